"""Kernels: heat maps, spectra as histograms, and series with intervals.

Spectral densities, measured and expected, on a linear or a logarithmic axis.

Losses over steps: measured with intervals, predicted, and where they cross.

The plane of training loss and generalisation gap, and differences with their intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from gatelab.arrays import Array
from gatelab.plotting.panel import Entry, Mark, Panel, Pen, canvas, new_figure
from gatelab.plotting.theme import GREY, look, looks, style
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

    @property
    def pen(self) -> Pen:
        """How its line and its markers look."""
        return Pen(self.colour, self.line, marker=self.marker, face="white" * self.hollow, edge=0.9)

    def entry(self) -> Entry:
        """What stands for it in a legend."""
        return Entry(self.label, self.pen)


def draw_series(panel: Panel, series: Sequence[Series], *, x_log: bool = True, y_log: bool = True) -> None:
    """The series on one panel, intervals as upright strokes. No legend: `legend_below` makes it."""
    if x_log:
        panel.set(xscale="log")
    if y_log:
        panel.set(yscale="log")
    for order, one in enumerate(series):
        strokes = None
        if one.low is not None and one.high is not None:
            strokes = panel.strokes(one.x, one.low, one.high, Pen(one.colour, width=1.6, alpha=0.6))
        panel.line(one.x, one.value, one.pen, order=3 + order / 100, interval=strokes)


def legend_below(panel: Panel, entries: Sequence[Entry], *, columns: int = 2) -> None:
    """Below the panel, where it covers nothing."""
    panel.legend_below(entries, distance=0.17, ncols=columns, handlelength=2.4, columnspacing=1.4)


def size_ticks(panel: Panel, sizes: Sequence[float] | Array) -> None:
    """A tick for each size that was run, and no others."""
    axis = panel.axes.xaxis
    axis.set_major_locator(FixedLocator([float(size) for size in sizes]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def plain_values(panel: Panel, subs: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Values on a short logarithmic axis as plain numbers."""
    axis = panel.axes.yaxis
    axis.set_major_locator(LogLocator(10, subs=tuple(subs)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def draw_heat(panel: Panel, values: Array, title: str, *, low: float, high: float, groups: Sequence[int] = ()) -> Mark:
    """A square matrix as a map; thin lines part the groups whose ends `groups` gives."""
    drawn = panel.cells(values, HEAT, Normalize(low, high))
    for end in groups[:-1]:
        panel.rule("y", end - 0.5, Pen("white", width=0.4))
        panel.rule("x", end - 0.5, Pen("white", width=0.4))
    panel.set(title=title, xlabel="sample j", ylabel="sample i")
    return drawn


def draw_histogram(panel: Panel, values: Array, edges: Array, *, colour: str, scale: float = 1.0) -> None:
    """How many values fall between neighbouring edges, as filled steps; `scale` multiplies the counts."""
    counts, _ = np.histogram(values, edges)
    heights = counts * scale
    panel.steps(heights, edges, Pen(colour, width=0, alpha=0.35), fill=True)
    panel.steps(heights, edges, Pen(colour, width=0.9))


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
        panel = place.panels[0]
        for curve in curves:
            colour = appearance[curve.label].colour
            legend = ": ".join(filter(None, (curve.label, curve.note)))
            panel.line(curve.x, curve.density, Pen(colour, curve.line), label=legend)
            panel.band(curve.x, 0.0, curve.density, colour, alpha=0.12)
            for end in curve.ends:
                panel.line(end, 0, Pen(colour, marker="|", size=12), clip_on=False)
        if log:
            panel.set(xscale="log")
        ylabel = "share of eigenvalues per decade" if log else "density"
        panel.set(xlabel="eigenvalue", ylabel=ylabel, ylim=(0, None), title=title)
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
        """Its line, as a `Pen` has it."""
        return (0, (4, 2)) if self.predicted else "-"

    def entry(self, colour: str = GREY) -> Entry:
        """What stands for it in a legend."""
        return Entry(self.label, Pen(self.colour or colour, self.dash))


def draw_losses(panel: Panel, curves: Sequence[LossCurve], *, log: bool = True) -> None:
    """The curves on one panel, intervals as bands. No legend."""
    known = looks(c.label for c in curves)
    if log:
        panel.set(yscale="log")
    for c in curves:
        colour, band = c.colour or known[c.label].colour, None
        if c.low is not None and c.high is not None and np.isfinite(c.low).all():
            band = panel.band(c.steps, np.maximum(c.low, 1e-300), c.high, colour)
        shown, width = np.isfinite(c.loss), 1.1 if c.predicted else 1.5
        panel.line(c.steps[shown], c.loss[shown], Pen(colour, c.dash, width), order=3 + c.predicted, interval=band)
    panel.set(xlabel="step", ylabel="training loss")


def mark_crossing(
    panel: Panel, step: float, loss: float, *, hollow: bool = False, ends: tuple[float, float] | None = None
) -> None:
    """A dot on the crossing; hollow it is a ring, wide enough to be seen around a dot in the same place.

    `ends` are those of the step's interval, drawn as a stroke.
    """
    face, size, stroke = "", 5, None
    if hollow:
        face, size = "none", 8
    if ends is not None:
        stroke = panel.strokes(loss, *ends, Pen("#222222", width=1.4), along="x", order=5)
    panel.line(step, loss, Pen("#222222", marker="o", size=size, face=face), order=6, interval=stroke)


def losses_figure(
    curves: Sequence[LossCurve], title: str, *, loss_label: str = "training loss", ax: Any = None
) -> Figure:
    """Curves of one kind with a legend."""
    with style():
        place = canvas(5.4, 3.8, 1, ax)
        panel = place.panels[0]
        draw_losses(panel, curves)
        known = looks(c.label for c in curves)
        panel.legend([c.entry(known[c.label].colour) for c in curves], loc="upper right")
        panel.set(ylabel=loss_label, title=title)
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
        losses_figure(curves, title, ax=place.panels[0].axes)
        if step is not None and loss is not None:
            mark_crossing(place.panels[0], step, loss)
    return place.figure


@dataclass(frozen=True, eq=False)
class Cloud:
    """Runs of one kind, each an array of points (training loss, gap) in the order of training."""

    label: str
    runs: Sequence[Array]
    colour: str = GREY
    marker: str = "o"
    hollow: bool = False

    @property
    def pen(self) -> Pen:
        """How its points look."""
        return Pen(self.colour, "", marker=self.marker, size=3.4, face="white" * self.hollow, edge=0.7)


@dataclass(frozen=True)
class Difference:
    """One line of a list of differences: what differs, by how much, and a remark."""

    label: str
    interval: Interval
    remark: str = ""
    colour: str = GREY


def draw_clouds(panel: Panel, clouds: Sequence[Cloud], title: str) -> None:
    """Every run as a thin line with its points; training goes from right to left. No legend: `gap_figure` makes it."""
    panel.rule("y", 0.0, Pen(GREY, width=0.7), order=1)
    for cloud in clouds:
        for run in cloud.runs:
            panel.line(run[:, 0], run[:, 1], replace(cloud.pen, dash="-", width=0.5, alpha=0.75))
    panel.set(title=title, xlabel="training loss (nats)", ylabel="gap: test loss - training loss (nats)")


def draw_differences(panel: Panel, rows: Sequence[Difference], title: str) -> None:
    """Values as points with their intervals, a line each from the top down; the remark stands at the right."""
    places = np.arange(len(rows))[::-1]
    panel.rule("x", 0.0, Pen(GREY, width=0.8), order=1)
    for place, row in zip(places, rows, strict=True):
        ends, stroke = row.interval, None
        if ends.known:
            stroke = panel.strokes(place, ends.low, ends.high, Pen(row.colour, width=1.6), along="x")
        panel.line(ends.value, place, Pen(row.colour, marker="o", size=4.5), order=3, interval=stroke)
        panel.text(row.remark, 1.02, place, within=("panel", "data"), up="center", size=7.5, colour="#333333")
    panel.axes.set_yticks(places, [row.label for row in rows])
    panel.set(ylim=(-0.7, len(rows) - 0.3), title=title)
    panel.axes.grid(axis="y", visible=False)


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
            for panel, (name, clouds) in zip(place.panels, panels, strict=True):
                draw_clouds(panel, clouds, name)
                legend_under(panel, clouds)
        return place.figure
    columns = max(1, min(columns, len(panels)))
    rows = -(-len(panels) // columns)
    below = []
    if differences:
        below = [1.0 + 0.36 * len(differences)]
    with style():
        figure = new_figure(max(5.4, 4.0 * columns), 0.5 + 4.2 * rows + sum(below))
        grid = figure.add_gridspec(rows + len(below), columns, height_ratios=[4.2] * rows + below)
        for place, (name, clouds) in enumerate(panels):
            panel = Panel(figure.add_subplot(grid[place // columns, place % columns]))
            draw_clouds(panel, clouds, name)
            legend_under(panel, clouds)
        if differences:
            panel = Panel(figure.add_subplot(grid[rows, :]))
            draw_differences(panel, differences, "Difference of the gap at equal training loss, with 95 % intervals")
            panel.set(xlabel="nats")
        figure.suptitle(title)
    return figure


def legend_under(panel: Panel, clouds: Sequence[Cloud]) -> None:
    """Below the panel, where it covers nothing."""
    ncols = 2 if max((len(cloud.label) for cloud in clouds), default=0) > 8 else 4
    entries = [Entry(cloud.label, cloud.pen) for cloud in clouds]
    panel.legend_below(entries, ncols=ncols, handletextpad=0.4, columnspacing=1.4)
