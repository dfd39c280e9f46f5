"""Deleted at the merge: the names that studies draw with until they are ported, upon plain matplotlib."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gatelab.plotting import theme
from gatelab.plotting.theme import RC, new_figure

__all__ = ["Entry", "Panel", "Pen", "canvas", "colour_bar", "figure_legend", "new_figure"]


@dataclass(frozen=True)
class Pen:
    colour: Any
    dash: Any = "-"
    width: float = RC["lines.linewidth"]
    marker: Any = ""
    size: float = RC["lines.markersize"]
    face: str = ""
    edge: float = 1.0
    alpha: float = 1.0

    def for_line(self) -> dict[str, Any]:
        marker = "none" if self.marker == "" else self.marker
        line = {"color": self.colour, "linestyle": self.dash or "none", "linewidth": self.width, "alpha": self.alpha}
        face = {"markerfacecolor": self.face or self.colour, "markeredgewidth": self.edge}
        return {**line, **face, "marker": marker, "markersize": self.size}


@dataclass(frozen=True)
class Entry:
    text: str
    pen: Pen


def _handles(entries: Any) -> list[Any]:
    return [theme.Line2D([], [], label=e.text, **e.pen.for_line()) if isinstance(e, Entry) else e for e in entries]


class Panel:
    def __init__(self, axes: Any) -> None:
        self.axes = getattr(axes, "axes", axes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.axes, name)

    def line(
        self, x: Any, y: Any, pen: Pen, *, label: str = "", order: float = 2, interval: Any = None, **only: Any
    ) -> Any:
        named = {"label": label} if label else {}
        return self.axes.plot(
            np.atleast_1d(x), np.atleast_1d(y), **{**pen.for_line(), "zorder": order, **named, **only}
        )

    def points(self, x: Any, y: Any, colours: Any, *, size: float, **only: Any) -> Any:
        return self.axes.scatter(x, y, s=size**2, c=colours, **only)

    def band(self, x: Any, low: Any, high: Any, colour: Any, *, alpha: float = 0.18) -> Any:
        return self.axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0)

    def strokes(self, places: Any, low: Any, high: Any, pen: Pen, *, along: str = "y", order: float = 2) -> Any:
        draw = self.axes.vlines if along == "y" else self.axes.hlines
        return draw(places, low, high, color=pen.colour, linewidth=pen.width, alpha=pen.alpha, zorder=order)

    def rule(self, axis: str, place: float, pen: Pen, *, label: str = "", order: float = 2) -> Any:
        draw = {"x": self.axes.axvline, "y": self.axes.axhline}[axis]
        return draw(place, zorder=order, label=label, **pen.for_line())

    def span(self, axis: str, low: float, high: float, colour: Any, *, alpha: float = 1.0, order: float = 1) -> Any:
        draw = {"x": self.axes.axvspan, "y": self.axes.axhspan}[axis]
        return draw(low, high, color=colour, alpha=alpha, linewidth=0, zorder=order)

    def steps(self, heights: Any, edges: Any, pen: Pen, *, fill: bool = False) -> Any:
        return self.axes.stairs(heights, edges, fill=fill, color=pen.colour, alpha=pen.alpha, linewidth=pen.width)

    def bars(self, places: Any, heights: Any, colour: Any, *, width: float = 0.8, label: str = "") -> Any:
        return self.axes.bar(places, heights, width=width, color=colour, label=label)

    def area(self, x: Any, y: Any, colour: Any, *, alpha: float) -> Any:
        return self.axes.fill(x, y, facecolor=colour, edgecolor=colour, alpha=alpha, linewidth=1.0)

    def text(
        self,
        text: str,
        x: float,
        y: float,
        *,
        within: Any = ("data", "data"),
        shift: Any = (0.0, 0.0),
        across: Any = "left",
        up: Any = "baseline",
        colour: str = "#000000",
        size: float = RC["font.size"],
    ) -> None:
        coordinates = tuple({"data": "data", "panel": "axes fraction"}[part] for part in within)
        where: Any = {"xycoords": coordinates, "xytext": shift, "textcoords": "offset points"}
        self.axes.annotate(text, (x, y), **where, ha=across, va=up, color=colour, fontsize=size)

    def labelled(self) -> list[Any]:
        handles = self.axes.get_legend_handles_labels()[0]
        for one in handles:
            one.text = one.get_label()
        return handles

    def legend(self, entries: Any = None, **where: Any) -> None:
        given = where.pop("handles", entries)
        self.axes.legend(**where, **({} if given is None else {"handles": _handles(given)}))

    def legend_below(self, entries: Any = None, *, distance: float = 0.16, **where: Any) -> None:
        theme.legend_below(self, entries, distance=distance, **where)


def figure_legend(figure: Any, entries: Any, *, loc: Any = "outside lower center", **where: Any) -> None:
    figure.legend(handles=_handles(entries), loc=loc, **where)


def colour_bar(mark: Any, panels: Any, *, label: str = "", **where: Any) -> Any:
    axes = [getattr(panel, "axes", panel) for panel in panels]
    return axes[0].figure.colorbar(mark, ax=axes, label=label, **where)


class _Canvas(theme.Canvas):
    @property
    def panels(self) -> list[Panel]:
        return [Panel(one) for one in self.axes]

    def legend(self, handles: Any = None, ncols: int = 1) -> None:
        super().legend(None if handles is None else _handles(handles), ncols)


def canvas(*args: Any, **kwargs: Any) -> _Canvas:
    made = theme.canvas(*args, **kwargs)
    return _Canvas(made.figure, made.axes, made.own)
