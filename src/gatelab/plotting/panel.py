"""Deleted at the merge: the names that studies draw with until they are ported, upon plain matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from gatelab.arrays import Array
from gatelab.plotting import theme
from gatelab.plotting.theme import GREY, RC, handle, new_figure, style
from gatelab.statistics import Interval

HEAT = "viridis"


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


@dataclass(frozen=True, eq=False)
class Series:
    """Values over x with intervals where there are any; without a marker it is a line alone."""

    label: str
    x: Array
    value: Array
    low: Array | None = None
    high: Array | None = None
    colour: str = GREY
    marker: str = ""
    line: Literal["-", "--", "-.", ":", ""] = "-"
    hollow: bool = False

    def look(self) -> dict[str, Any]:
        """How its line and its markers look, in matplotlib's words."""
        face = "white" if self.hollow else self.colour
        return {"marker": self.marker, "markerfacecolor": face, "markeredgewidth": 0.9}

    def entry(self) -> Line2D:
        """What stands for it in a legend."""
        return handle(self.label, self.colour, self.line, **self.look())


def draw_series(axes: Any, series: Sequence[Series], *, x_log: bool = True, y_log: bool = True) -> None:
    """The series on one panel, intervals as upright strokes. No legend: `legend_below` makes it."""
    if x_log:
        axes.set_xscale("log")
    if y_log:
        axes.set_yscale("log")
    for order, one in enumerate(series):
        if one.low is not None and one.high is not None:
            axes.vlines(one.x, one.low, one.high, color=one.colour, linewidth=1.6, alpha=0.6)
        look = {"color": one.colour, "linestyle": one.line or "none", **one.look()}
        axes.plot(np.atleast_1d(one.x), np.atleast_1d(one.value), zorder=3 + order / 100, **look)


def legend_below(axes: Any, entries: Sequence[Any], *, columns: int = 2) -> None:
    """Below the panel, where it covers nothing."""
    theme.legend_below(axes, entries, distance=0.17, ncols=columns, handlelength=2.4, columnspacing=1.4)


def size_ticks(axes: Any, sizes: Sequence[float] | Array) -> None:
    """A tick for each size that was run, and no others."""
    axes.xaxis.set_major_locator(FixedLocator([float(size) for size in sizes]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def plain_values(axes: Any, subs: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Values on a short logarithmic axis as plain numbers."""
    axes.yaxis.set_major_locator(LogLocator(10, subs=tuple(subs)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def draw_heat(axes: Any, values: Array, title: str, *, low: float, high: float, groups: Sequence[int] = ()) -> Any:
    """A square matrix as a map; thin lines part the groups whose ends `groups` gives."""
    drawn = axes.imshow(values, cmap=HEAT, norm=Normalize(low, high), interpolation="nearest")
    for end in groups[:-1]:
        axes.axhline(end - 0.5, color="#fefefe", linewidth=0.4)
        axes.axvline(end - 0.5, color="#fefefe", linewidth=0.4)
    axes.grid(False)
    axes.set(title=title, xlabel="sample j", ylabel="sample i")
    return drawn


def draw_histogram(axes: Any, values: Array, edges: Array, *, colour: str, scale: float = 1.0) -> None:
    """How many values fall between neighbouring edges, as filled steps; `scale` multiplies the counts."""
    counts, _ = np.histogram(values, edges)
    axes.stairs(counts * scale, edges, fill=True, color=colour, alpha=0.35, linewidth=0)
    axes.stairs(counts * scale, edges, color=colour, linewidth=0.9)


def mark_crossing(
    axes: Any, step: float, loss: float, *, hollow: bool = False, ends: tuple[float, float] | None = None
) -> None:
    """A dot on the crossing; hollow it is a ring, wide enough to be seen around a dot in the same place.

    `ends` are those of the step's interval, drawn as a stroke.
    """
    if ends is not None:
        axes.hlines(loss, *ends, color="#222222", linewidth=1.4, zorder=5)
    face, size = ("none", 8) if hollow else ("#222222", 5)
    axes.plot([step], [loss], "o", color="#222222", markersize=size, markerfacecolor=face, zorder=6)


@dataclass(frozen=True)
class Difference:
    """One line of a list of differences: what differs, by how much, and a remark."""

    label: str
    interval: Interval
    remark: str = ""
    colour: str = GREY


def draw_differences(axes: Any, rows: Sequence[Difference], title: str) -> None:
    """Values as points with their intervals, a line each from the top down; the remark stands at the right."""
    places = np.arange(len(rows))[::-1]
    axes.axvline(0.0, color=GREY, linewidth=0.8, zorder=1)
    for place, row in zip(places, rows, strict=True):
        if row.interval.known:
            axes.hlines(place, row.interval.low, row.interval.high, color=row.colour, linewidth=1.6)
        axes.plot([row.interval.value], [place], "o", color=row.colour, markersize=4.5, zorder=3)
        beside: Any = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 7.5, "color": "#333333"}
        axes.annotate(row.remark, (1.02, place), **beside)
    axes.set_yticks(places, [row.label for row in rows])
    axes.set(ylim=(-0.7, len(rows) - 0.3), title=title)
    axes.grid(axis="y", visible=False)


def gap_figure(
    panels: Sequence[tuple[str, Sequence[Any]]],
    title: str,
    differences: Sequence[Difference] = (),
    *,
    columns: int = 3,
    ax: Any = None,
) -> Figure:
    """A panel for each (title, clouds), its legend below it; under all of them the differences, if there are any.

    Into `ax`, axes of the caller's, go the panels alone.
    """
    if ax is not None:
        with style():
            place = theme.canvas(0, 0, len(panels), ax)
            for axes, (name, clouds) in zip(place.axes, panels, strict=True):
                _clouds()(axes, clouds, name)
        return place.figure
    columns = max(1, min(columns, len(panels)))
    rows = -(-len(panels) // columns)
    below = [1.0 + 0.36 * len(differences)] if differences else []
    with style():
        figure = new_figure(max(5.4, 4.0 * columns), 0.5 + 4.2 * rows + sum(below))
        grid = figure.add_gridspec(rows + len(below), columns, height_ratios=[4.2] * rows + below)
        for place, (name, clouds) in enumerate(panels):
            _clouds()(figure.add_subplot(grid[place // columns, place % columns]), clouds, name)
        if differences:
            axes = figure.add_subplot(grid[rows, :])
            draw_differences(axes, differences, "Difference of the gap at equal training loss, with 95 % intervals")
            axes.set_xlabel("nats")
        figure.suptitle(title)
    return figure


def _clouds() -> Any:
    from gatelab.plotting.kernels import draw_clouds

    return draw_clouds


MAP = "RdBu_r"


@dataclass(frozen=True, eq=False)
class Plane:
    """Values (rows, columns) over the grid y (rows,) times x (columns,), and hinges, each a path (points, 3)."""

    x: Array
    y: Array
    values: Array
    hinges: tuple[Array, ...] = ()


def draw_plane(axes: Any, plane: Plane, title: str, *, scale: float | None = None) -> Any:
    """A filled map, symmetric about zero, with thin level lines, which are straight where the function is linear.

    `scale` is the value at both ends of the colors, by default the greatest of the plane. The map is handed back, for
    a bar of colors.
    """
    reach = scale or float(np.abs(plane.values).max()) or 1.0
    levels = np.linspace(-reach, reach, 24)  # an odd number of bands: the middle one, about zero, is white
    drawn = axes.contourf(plane.x, plane.y, plane.values, levels=levels, cmap=MAP)
    thin: dict[str, Any] = {"colors": "#444444", "linewidths": 0.3, "linestyles": "solid"}
    axes.contour(plane.x, plane.y, plane.values, levels=levels, **thin)
    for path in plane.hinges:
        axes.plot(path[:, 0], path[:, 1], color="#010101", linewidth=1.4)  # black upon a map, in the dark as well
    axes.grid(False)
    axes.set(aspect="equal", title=title, xlabel="$x_1$", ylabel="$x_2$")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(2))
    return drawn


def draw_surface(axes: Any, plane: Plane, title: str, *, view: tuple[float, float] = (35.0, -60.0)) -> None:
    """The surface on three-dimensional axes, with the hinges lying on it, seen from an elevation and an azimuth."""
    # Depth cannot be sorted between a surface and a line upon it: the lines are drawn last.
    axes.computed_zorder = False
    x, y = np.meshgrid(plane.x, plane.y)
    reach = float(np.abs(plane.values).max()) or 1.0
    axes.plot_surface(
        x, y, plane.values, cmap=MAP, vmin=-reach, vmax=reach, rstride=2, cstride=2, linewidth=0, alpha=0.95, zorder=1
    )
    for path in plane.hinges:
        axes.plot(path[:, 0], path[:, 1], path[:, 2], color="#010101", linewidth=1.4, zorder=2)
    axes.view_init(*view)
    axes.set_title(title)
    axes.set_xlabel("$x_1$")
    axes.set_ylabel("$x_2$")
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_major_locator(MaxNLocator(4))
        axis.set_pane_color((1.0, 1.0, 1.0, 1.0))
