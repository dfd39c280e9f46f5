"""Panels: what is drawn on one goes to matplotlib and is noted as plain values, from which a page draws it again.

A `Panel` is a pair of matplotlib's axes with few methods. Each draws and notes a `Mark`, a `Words` or an `Entry`;
`chart.chart_of` turns the notes of a figure into JSON. `panel.axes` is for what only a picture has, such as the places
of minor ticks. On axes of the caller's drawing is the same, and the notes go with the panel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from gatelab.errors import GatelabError
from gatelab.plotting.theme import RC, style

Along = Literal["x", "y"]
_DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dashdot", "": "none"}
_CARETS = {4: "<", 5: ">", 6: "^", 7: "v"}


@dataclass(frozen=True)
class Pen:
    """How a line and its markers look.

    Attributes:
        colour: Of the line and the markers, as matplotlib names it.
        dash: The line: "-", "--", ":", "-." or matplotlib's lengths of dashes; "" for none.
        width: Of the line, in points.
        marker: As matplotlib names it; "" for none.
        size: Of the markers, in points.
        face: What fills the markers: "white" or "none" for hollow ones, "" for the colour.
        edge: The width of the markers' outline, which only a picture has.
        alpha: From 0, not to be seen, to 1.
    """

    colour: Any
    dash: Any = "-"
    width: float = RC["lines.linewidth"]
    marker: Any = ""
    size: float = RC["lines.markersize"]
    face: str = ""
    edge: float = 1.0
    alpha: float = 1.0

    def for_line(self) -> dict[str, Any]:
        """The words that matplotlib has for it."""
        marker = self.marker
        if marker == "":
            marker = "none"
        return {
            "color": self.colour,
            "linestyle": self.dash or "none",
            "linewidth": self.width,
            "marker": marker,
            "markersize": self.size,
            "markerfacecolor": self.face or self.colour,
            "markeredgewidth": self.edge,
            "alpha": self.alpha,
        }

    def for_page(self) -> dict[str, Any]:
        """The same in JSON's types.

        >>> Pen("black", (0, (4, 2)), marker=6, face="none").for_page()["dash"]
        'dashed'
        """
        dash = "dashed"
        if isinstance(self.dash, str):
            dash = _DASHES[self.dash]
        return {
            "colour": to_hex(self.colour),
            "dash": dash,
            "width": round(self.width, 2),
            "alpha": round(self.alpha, 3),
            "marker": _CARETS.get(self.marker, self.marker),
            "size": round(self.size, 2),
            "hollow": self.marker != "" and self.face in ("white", "none"),
        }


@dataclass(frozen=True)
class Entry:
    """One line of a legend: a text, and the pen of what it stands for."""

    text: str
    pen: Pen

    def handle(self) -> Line2D:
        """What matplotlib's legends take."""
        return Line2D([], [], label=self.text, **self.pen.for_line())


@dataclass(frozen=True, eq=False)
class Mark:
    """Something with values that was drawn.

    Attributes:
        kind: line, level, points, band, segments, steps, span, area, bars, cells or contours.
        pen: How it looks.
        values: Its numbers by name, as they were drawn.
        artists: What matplotlib made of it.
        label: Its name, for a legend.
        interval: The band or the strokes that are the interval of this line.
    """

    kind: str
    pen: Pen
    values: Mapping[str, Any]
    artists: tuple[Any, ...]
    label: str = ""
    interval: Mark | None = None


@dataclass(frozen=True, eq=False)
class Words:
    """A text, its place, and in what each coordinate of the place is: the data, or parts of the panel."""

    text: str
    place: tuple[float, float]
    within: tuple[Literal["data", "panel"], Literal["data", "panel"]]
    shift: tuple[float, float]
    across: str
    up: str
    colour: str
    artist: Artist


@dataclass(frozen=True, eq=False)
class Notes:
    """What was drawn on one panel, in the order of drawing."""

    marks: list[Mark] = field(default_factory=list)
    words: list[Words] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class ColourBar:
    """Colours with the values at their ends, the axes of the panels that they are for, and those of the bar."""

    label: str
    mark: Mark
    panels: tuple[Axes, ...]
    axes: Axes


class PanelFigure(Figure):
    """A figure with the notes of its panels.

    A notebook shows it as a picture although pyplot, which would tell it how, was never imported.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.notes: dict[Axes, Notes] = {}
        self.entries: list[Entry] = []
        self.colour_bars: list[ColourBar] = []

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        with style():
            self.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
        return buffer.getvalue()


def new_figure(width: float, height: float) -> PanelFigure:
    """An empty figure whose panels, labels and legends keep out of each other's way.

    Args:
        width: In inches.
        height: In inches.

    Returns:
        The figure, which shows itself in a notebook.
    """
    return PanelFigure(figsize=(width, height), layout="constrained")


def _whole(axes: Axes) -> Any:
    """The figure of the axes; where that is a part of another one, the other one."""
    part: Any = axes.figure
    return part.figure


class Panel:
    """A pair of axes to draw on.

    Words for matplotlib alone, such as `clip_on`, may follow those of every method that draws a line.

    >>> panel = Panel(new_figure(4, 3).subplots())
    >>> mark = panel.line([1, 2, 4], [1, 0.25, 0.0625], Pen("#0072B2"), label="order 2")
    >>> mark.values["y"], panel.axes.get_lines()[0].get_ydata()
    (array([1.    , 0.25  , 0.0625]), array([1.    , 0.25  , 0.0625]))
    """

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.notes = Notes()
        figure = _whole(axes)
        if isinstance(figure, PanelFigure):
            self.notes = figure.notes.setdefault(axes, self.notes)

    def set(self, **settings: Any) -> None:
        """Title, labels, scales, limits and the like, as `Axes.set` has them."""
        self.axes.set(**settings)

    def line(
        self, x: Any, y: Any, pen: Pen, *, label: str = "", order: float = 2, interval: Mark | None = None, **only: Any
    ) -> Mark:
        """A line through the points, its markers upon it; `order` says what lies above what."""
        x, y = _column(x), _column(y)
        settings = {**pen.for_line(), "zorder": order, **only}
        if label:
            settings["label"] = label
        return self._note(
            "line", pen, {"x": x, "y": y}, *self.axes.plot(x, y, **settings), label=label, interval=interval
        )

    def points(
        self, x: Any, y: Any, colours: Any, *, size: float, alpha: float = 1.0, label: str = "", **only: Any
    ) -> Mark:
        """Dots of one colour, or of a colour each."""
        x, y, each = _column(x), _column(y), None
        pen = Pen(colours, "", marker="o", size=size, alpha=alpha)
        if not isinstance(colours, str):
            each = [to_hex(colour) for colour in colours]
            pen = Pen(each[0], "", marker="o", size=size, alpha=alpha)
        drawn = self.axes.scatter(x, y, s=size**2, c=each or colours, alpha=alpha, label=label, **only)
        return self._note("points", pen, {"x": x, "y": y, "colours": each}, drawn, label=label)

    def band(self, x: Any, low: Any, high: Any, colour: Any, *, alpha: float = 0.18) -> Mark:
        """What lies between two curves."""
        x, low, high = np.broadcast_arrays(_column(x), _column(low), _column(high))
        drawn = self.axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0)
        return self._note("band", Pen(colour, alpha=alpha), {"x": x, "low": low, "high": high}, drawn)

    def strokes(self, places: Any, low: Any, high: Any, pen: Pen, *, along: Along = "y", order: float = 2) -> Mark:
        """A stroke from low to high at each place: upright ones along y, level ones along x."""
        place, low, high = np.broadcast_arrays(_column(places), _column(low), _column(high))
        draw, ends = self.axes.vlines, np.column_stack((place, low, place, high))
        if along == "x":
            draw, ends = self.axes.hlines, np.column_stack((low, place, high, place))
        drawn = draw(place, low, high, color=pen.colour, linewidth=pen.width, alpha=pen.alpha, zorder=order)
        return self._note("segments", pen, {"ends": ends, "along": along}, drawn)

    def rule(self, axis: Along, place: float, pen: Pen, *, label: str = "", order: float = 2) -> Mark:
        """A line from edge to edge at one value of an axis."""
        draw = {"x": self.axes.axvline, "y": self.axes.axhline}[axis]
        drawn = draw(place, zorder=order, label=label, **pen.for_line())
        return self._note("level", pen, {"axis": axis, "at": float(place)}, drawn, label=label)

    def span(self, axis: Along, low: float, high: float, colour: Any, *, alpha: float = 1.0, order: float = 1) -> Mark:
        """A stripe from edge to edge between two values of an axis."""
        draw = {"x": self.axes.axvspan, "y": self.axes.axhspan}[axis]
        drawn = draw(low, high, color=colour, alpha=alpha, linewidth=0, zorder=order)
        values = {"axis": axis, "ends": np.array([low, high], float), "fill": True}
        return self._note("span", Pen(colour, width=0, alpha=alpha), values, drawn)

    def steps(self, heights: Any, edges: Any, pen: Pen, *, fill: bool = False) -> Mark:
        """A height between each two neighbouring edges, as an outline or filled."""
        heights, edges = _column(heights), _column(edges)
        drawn = self.axes.stairs(
            heights, edges, fill=fill, color=pen.colour, alpha=pen.alpha, linewidth=pen.width, baseline=0.0
        )
        return self._note("steps", pen, {"edges": edges, "y": heights, "base": 0.0, "fill": fill}, drawn)

    def bars(self, places: Any, heights: Any, colour: Any, *, width: float = 0.8, label: str = "") -> Mark:
        """An upright bar at each place."""
        places, heights = _column(places), _column(heights)
        drawn = self.axes.bar(places, heights, width=width, color=colour, label=label)
        boxes = np.column_stack((places - width / 2, np.zeros(len(places)), np.full(len(places), width), heights))
        values = {"boxes": boxes, "upright": True, "colours": [to_hex(colour)] * len(places)}
        return self._note("bars", Pen(colour, "", marker="s"), values, *drawn.patches, label=label)

    def area(self, x: Any, y: Any, colour: Any, *, alpha: float) -> Mark:
        """A filled outline."""
        x, y = _column(x), _column(y)
        (drawn,) = self.axes.fill(x, y, facecolor=colour, edgecolor=colour, alpha=alpha, linewidth=1.0)
        return self._note("area", Pen(colour, width=1.0, alpha=alpha), {"x": x, "y": y, "fill": True}, drawn)

    def cells(
        self, values: ArrayLike, colours: str | Colormap, norm: Normalize, *, aspect: Literal["equal", "auto"] = "equal"
    ) -> Mark:
        """A matrix as a map, its first row at the top."""
        array = np.asarray(values, float)
        drawn = self.axes.imshow(array, cmap=colours, norm=norm, interpolation="nearest", aspect=aspect)
        self.axes.grid(False)
        return self._note("cells", Pen("black"), {"cells": array, "extent": drawn.get_extent()}, drawn)

    def contours(self, x: Any, y: Any, values: Any, levels: Any, colours: str | Colormap) -> Mark:
        """A filled map of a function on a grid, with thin level lines."""
        filled = self.axes.contourf(x, y, values, levels=levels, cmap=colours)
        thin: dict[str, Any] = {"colors": "#444444", "linewidths": 0.3, "linestyles": "solid"}
        lines = self.axes.contour(x, y, values, levels=levels, **thin)
        self.axes.grid(False)
        return self._note("contours", Pen("#444444"), {"levels": _column(levels)}, filled, lines)

    def text(
        self,
        text: str,
        x: float,
        y: float,
        *,
        within: tuple[Literal["data", "panel"], Literal["data", "panel"]] = ("data", "data"),
        shift: tuple[float, float] = (0.0, 0.0),
        across: Literal["left", "center", "right"] = "left",
        up: Literal["baseline", "bottom", "center", "top"] = "baseline",
        colour: str = "#000000",
        size: float = RC["font.size"],
    ) -> None:
        """A text at a place, `shift` points beside it; `across` and `up` say which part of the text lies there."""
        names = {"data": "data", "panel": "axes fraction"}
        drawn = self.axes.annotate(
            text,
            (x, y),
            xycoords=(names[within[0]], names[within[1]]),
            xytext=shift,
            textcoords="offset points",
            ha=across,
            va=up,
            color=colour,
            fontsize=size,
        )
        place = {"place": (x, y), "within": within, "shift": shift, "across": across, "up": up}
        self.notes.words.append(Words(text, **place, colour=colour, artist=drawn))

    def labelled(self) -> list[Entry]:
        """An entry for everything that has a label."""
        return [Entry(mark.label, mark.pen) for mark in self.notes.marks if mark.label]

    def legend(self, entries: Sequence[Entry] | None = None, **where: Any) -> None:
        """A legend of these entries, or of what has a label; `where` are the words of `Axes.legend`."""
        self.notes.entries[:] = self.labelled() if entries is None else entries
        if entries is not None:
            where["handles"] = [entry.handle() for entry in entries]
        self.axes.legend(**where)

    def legend_below(self, entries: Sequence[Entry] | None = None, *, distance: float = 0.16, **where: Any) -> None:
        """Below the panel, where it covers nothing."""
        beneath = {"loc": "upper center", "bbox_to_anchor": (0.5, -distance), "borderaxespad": 0.0}
        self.legend(entries, **beneath, **where)

    def _note(
        self, kind: str, pen: Pen, values: Mapping[str, Any], *drawn: Any, label: str = "", interval: Mark | None = None
    ) -> Mark:
        self.notes.marks.append(Mark(kind, pen, values, drawn, label, interval))
        return self.notes.marks[-1]


def _column(values: Any) -> Any:
    """The values as a one-dimensional array of numbers; a single number is one."""
    return np.atleast_1d(np.ma.filled(np.ma.asarray(values, float), np.nan))


def figure_legend(figure: Figure, entries: Sequence[Entry], *, loc: Any = "outside lower center", **where: Any) -> None:
    """One legend for all panels of a figure, below them unless told otherwise.

    Args:
        figure: The figure.
        entries: What the legend says.
        loc: Where it is, as matplotlib names it.
        where: Further words of `Figure.legend`.
    """
    figure.legend(handles=[entry.handle() for entry in entries], loc=loc, **where)
    if isinstance(figure, PanelFigure):
        figure.entries += entries


def colour_bar(mark: Mark, panels: Sequence[Panel], *, label: str = "", **where: Any) -> Any:
    """The colours of a map beside the panels that it speaks for.

    Args:
        mark: The map.
        panels: The panels whose maps have these colours.
        label: What the values are.
        where: Further words of `Figure.colorbar`.

    Returns:
        Matplotlib's colour bar.
    """
    part: Any = panels[0].axes.figure
    bar = part.colorbar(mark.artists[0], ax=[panel.axes for panel in panels], label=label, **where)
    figure = _whole(panels[0].axes)
    if isinstance(figure, PanelFigure):
        figure.colour_bars.append(ColourBar(label, mark, tuple(panel.axes for panel in panels), bar.ax))
    return bar


@dataclass(frozen=True, eq=False)
class Canvas:
    """Where a plot goes: panels of a figure of our own, or axes that the caller has, whose figure is left as it is."""

    figure: Figure
    panels: list[Panel]
    own: bool

    def title(self, text: str) -> None:
        """Above all panels of a figure of ours; above the caller's panel if there is one and it has no other title."""
        if self.own:
            self.figure.suptitle(text)
        elif len(self.panels) == 1 and not self.panels[0].axes.get_title():
            self.panels[0].set(title=text)

    def legend(self, entries: Sequence[Entry] | None = None, ncols: int = 1) -> None:
        """Below all panels of a figure of ours; in the last of the caller's panels."""
        shown = self.panels[0].labelled() if entries is None else entries
        if self.own:
            figure_legend(self.figure, shown, ncols=ncols)
        else:
            self.panels[-1].legend(shown)


def canvas(
    width: float, height: float, count: int = 1, ax: Any = None, *, rows: int = 1, sharey: bool = False
) -> Canvas:
    """Panels in a new figure, or those that the caller gives.

    Args:
        width: Of a new figure, in inches.
        height: Of a new figure, in inches.
        count: How many panels the plot has.
        ax: Axes of the caller's to draw into: one pair of axes, or an array or list of `count`.
        rows: In how many rows the panels of a new figure stand.
        sharey: Whether the panels of a new figure share the y-axis.

    Returns:
        The figure and its panels.

    >>> mine = Figure().subplots(1, 2)
    >>> canvas(4, 3, 2, mine).figure is mine[0].figure
    True
    >>> canvas(4, 3, 1, mine)
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: ax holds 2 axes and this plot has 1 panel; give 1 of matplotlib's axes
    """
    if ax is None:
        figure = new_figure(width, height)
        grid = figure.subplots(rows, -(-count // rows), squeeze=False, sharey=sharey)
        return Canvas(figure, [Panel(axes) for axes in grid.ravel()], own=True)
    parts: list[Any] = list(np.ravel(np.asarray(ax, dtype=object)))
    axes = [part for part in parts if isinstance(part, Axes)]
    if len(axes) != count or len(axes) < len(parts):
        wanted = "1 of matplotlib's axes"
        if count != 1:
            wanted = f"an array or list of {count} of matplotlib's axes"
        content = f"holds {len(axes)} axes"
        if parts and not axes:
            content = f"is of type {type(ax).__name__}"
        raise GatelabError(f"ax {content} and this plot has {count} panel{'s' * (count > 1)}; give {wanted}")
    return Canvas(_whole(axes[0]), [Panel(one) for one in axes], own=False)
