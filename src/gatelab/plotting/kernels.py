"""Kernels and training: series with intervals, heat maps, spectra, losses over steps and their crossings, gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from gatelab.arrays import Array
from gatelab.plotting import theme
from gatelab.plotting.theme import GREY, canvas, handle, look, looks, new_figure, style
from gatelab.statistics import Interval

HEAT = "viridis"


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


@dataclass(frozen=True, eq=False)
class DensityCurve:
    """One density over eigenvalues x; `ends` are marked on the axis, `note` stands in the legend."""

    label: str
    x: Array
    density: Array
    ends: tuple[float, ...] = ()
    note: str = ""
    line: Literal["-", "--", "-.", ":"] = "-"


def density_figure(curves: Sequence[DensityCurve], *, log: bool = False, title: str = "", ax: Any = None) -> Figure:
    """All curves in one panel. With `log` densities are per decade of the eigenvalue."""
    appearance = looks([c.label for c in curves])
    with style():
        place = canvas(4.8, 3.4 + 0.18 * len(curves), 1, ax)
        (axes,) = place.axes
        for curve in curves:
            colour = appearance[curve.label].colour
            label = ": ".join(filter(None, (curve.label, curve.note)))
            axes.plot(curve.x, curve.density, curve.line, color=colour, label=label)
            axes.fill_between(curve.x, 0.0, curve.density, color=colour, alpha=0.12, linewidth=0)
            axes.plot(curve.ends, [0] * len(curve.ends), "|", color=colour, markersize=12, clip_on=False)
        if log:
            axes.set_xscale("log")
        ylabel = "share of eigenvalues per decade" if log else "density"
        axes.set(xlabel="eigenvalue", ylabel=ylabel, ylim=(0, None), title=title)
        place.legend()
    return place.figure


@dataclass(frozen=True, eq=False)
class LossCurve:
    """A loss over steps with its interval, if there is one; a prediction is dashed."""

    label: str
    steps: Array
    loss: Array
    low: Array | None = None
    high: Array | None = None
    colour: str = ""
    predicted: bool = False

    @property
    def dash(self) -> Any:
        """Its line, as matplotlib has it."""
        return (0, (4, 2)) if self.predicted else "-"

    def entry(self, colour: str = GREY) -> Line2D:
        """What stands for it in a legend."""
        return handle(self.label, self.colour or colour, self.dash)


def draw_losses(axes: Any, curves: Sequence[LossCurve], *, log: bool = True) -> None:
    """The curves on one panel, intervals as bands. No legend."""
    known = looks(c.label for c in curves)
    if log:
        axes.set_yscale("log")
    for c in curves:
        colour = c.colour or known[c.label].colour
        if c.low is not None and c.high is not None and np.isfinite(c.low).all():
            axes.fill_between(c.steps, np.maximum(c.low, 1e-300), c.high, color=colour, alpha=0.18, linewidth=0)
        shown, width = np.isfinite(c.loss), 1.1 if c.predicted else 1.5
        line: dict[str, Any] = {"color": colour, "linestyle": c.dash, "linewidth": width}
        axes.plot(c.steps[shown], c.loss[shown], zorder=3 + c.predicted, **line)
    axes.set(xlabel="step", ylabel="training loss")


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


def losses_figure(
    curves: Sequence[LossCurve], title: str, *, loss_label: str = "training loss", ax: Any = None
) -> Figure:
    """Curves of one kind with a legend."""
    known = looks(c.label for c in curves)
    with style():
        place = canvas(5.4, 3.8, 1, ax)
        (axes,) = place.axes
        draw_losses(axes, curves)
        axes.legend(handles=[c.entry(known[c.label].colour) for c in curves], loc="upper right")
        axes.set(ylabel=loss_label, title=title)
    return place.figure


def parts_figure(
    label: str,
    steps: Array,
    loss: Array,
    bias: Array,
    variance: Array,
    deviation: Array | None,
    *,
    ax: Any = None,
) -> Figure:
    """An expected loss with its two parts, and one deviation of single networks around it."""
    low, high, title = None, None, label
    if deviation is not None:
        low, high = np.maximum(loss - deviation, 1e-3 * loss), loss + deviation
        title = f"{label}; band: one deviation of a single network"
    curves = [
        LossCurve("expected loss", steps, loss, low, high, colour=look("mlp").colour),
        LossCurve("bias: of the targets", steps, bias, colour=look("glu").colour, predicted=True),
        LossCurve("variance: of initial outputs", steps, variance, colour=look("gqu").colour, predicted=True),
    ]
    return losses_figure(curves, title, ax=ax)


def crossing_figure(curves: Sequence[LossCurve], step: float | None, loss: float | None, *, ax: Any = None) -> Figure:
    """Two expected losses and their crossing."""
    title = "no crossing"
    if step is not None:
        title = f"crossing at step {step:.1f}"
    with style():
        place = canvas(5.4, 3.8, 1, ax)
        losses_figure(curves, title, ax=place.axes)
        if step is not None and loss is not None:
            mark_crossing(place.axes[0], step, loss)
    return place.figure


@dataclass(frozen=True, eq=False)
class Cloud:
    """Runs of one kind, each an array of points (training loss, gap) in the order of training."""

    label: str
    runs: Sequence[Array]
    colour: str = GREY
    marker: str = "o"
    hollow: bool = False

    def look(self) -> dict[str, Any]:
        """How its points look, in matplotlib's words."""
        face = "white" if self.hollow else self.colour
        return {"marker": self.marker, "markersize": 3.4, "markerfacecolor": face, "markeredgewidth": 0.7}


@dataclass(frozen=True)
class Difference:
    """One line of a list of differences: what differs, by how much, and a remark."""

    label: str
    interval: Interval
    remark: str = ""
    colour: str = GREY


def draw_clouds(axes: Any, clouds: Sequence[Cloud], title: str) -> None:
    """Every run as a thin line with its points, and a legend below; training goes from right to left."""
    axes.axhline(0.0, color=GREY, linewidth=0.7, zorder=1)
    for cloud in clouds:
        for run in cloud.runs:
            axes.plot(run[:, 0], run[:, 1], color=cloud.colour, linewidth=0.5, alpha=0.75, **cloud.look())
    axes.set(title=title, xlabel="training loss (nats)", ylabel="gap: test loss - training loss (nats)")
    ncols = 2 if max((len(cloud.label) for cloud in clouds), default=0) > 8 else 4
    entries = [handle(cloud.label, cloud.colour, "", **cloud.look()) for cloud in clouds]
    theme.legend_below(axes, entries, ncols=ncols, handletextpad=0.4, columnspacing=1.4)


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
    panels: Sequence[tuple[str, Sequence[Cloud]]],
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
            place = canvas(0, 0, len(panels), ax)
            for axes, (name, clouds) in zip(place.axes, panels, strict=True):
                draw_clouds(axes, clouds, name)
        return place.figure
    columns = max(1, min(columns, len(panels)))
    rows = -(-len(panels) // columns)
    below = [1.0 + 0.36 * len(differences)] if differences else []
    with style():
        figure = new_figure(max(5.4, 4.0 * columns), 0.5 + 4.2 * rows + sum(below))
        grid = figure.add_gridspec(rows + len(below), columns, height_ratios=[4.2] * rows + below)
        for place, (name, clouds) in enumerate(panels):
            draw_clouds(figure.add_subplot(grid[place // columns, place % columns]), clouds, name)
        if differences:
            axes = figure.add_subplot(grid[rows, :])
            draw_differences(axes, differences, "Difference of the gap at equal training loss, with 95 % intervals")
            axes.set_xlabel("nats")
        figure.suptitle(title)
    return figure
