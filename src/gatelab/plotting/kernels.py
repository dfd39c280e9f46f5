"""Kernels: heat maps, spectra as histograms, and series with intervals.

Spectral densities, measured and expected, on a linear or a logarithmic axis.

Losses over steps: measured with intervals, predicted, and where they cross.

The plane of training loss and generalisation gap, and differences with their intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from gatelab.arrays import Array
from gatelab.plotting.theme import GREY, canvas, look, looks, new_figure, style
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

    def handle(self) -> Line2D:
        """What stands for it in a legend."""
        return Line2D([], [], label=self.label, **self._style())

    def _style(self) -> dict[str, Any]:
        return {
            "color": self.colour,
            "marker": self.marker or "none",
            "linestyle": self.line or "none",
            "markerfacecolor": "white" if self.hollow else self.colour,
            "markeredgewidth": 0.9,
        }


def draw_series(panel: Axes, series: Sequence[Series], *, x_log: bool = True, y_log: bool = True) -> None:
    """The series on one pair of axes, intervals as upright strokes. No legend: `legend_below` makes it."""
    if x_log:
        panel.set_xscale("log")
    if y_log:
        panel.set_yscale("log")
    for order, one in enumerate(series):
        if one.low is not None and one.high is not None:
            panel.vlines(one.x, one.low, one.high, color=one.colour, linewidth=1.6, alpha=0.6, zorder=2)
        panel.plot(one.x, one.value, zorder=3 + order / 100, **one._style())


def legend_below(panel: Axes, handles: Sequence[Line2D], *, columns: int = 2) -> None:
    """Below the panel, where it covers nothing."""
    panel.legend(
        handles=list(handles),
        loc="upper center",
        bbox_to_anchor=(0.5, -0.17),
        borderaxespad=0.0,
        ncols=columns,
        handlelength=2.4,
        columnspacing=1.4,
    )


def size_ticks(panel: Axes, sizes: Sequence[float] | Array) -> None:
    """A tick for each size that was run, and no others."""
    panel.xaxis.set_major_locator(FixedLocator([float(size) for size in sizes]))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_locator(NullLocator())


def plain_values(panel: Axes, subs: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Values on a short logarithmic axis as plain numbers."""
    panel.yaxis.set_major_locator(LogLocator(10, subs=tuple(subs)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def draw_heat(panel: Axes, values: Array, title: str, *, low: float, high: float, groups: Sequence[int] = ()) -> Any:
    """A square matrix as a map; thin lines part the groups whose ends `groups` gives."""
    drawn = panel.imshow(values, cmap=HEAT, vmin=low, vmax=high, interpolation="nearest", aspect="equal")
    for end in groups[:-1]:
        for line in (panel.axhline, panel.axvline):
            line(end - 0.5, color="white", linewidth=0.4)
    panel.set_title(title)
    panel.set_xlabel("sample j")
    panel.set_ylabel("sample i")
    panel.grid(False)
    return drawn


def draw_histogram(panel: Axes, values: Array, edges: Array, *, colour: str, scale: float = 1.0) -> None:
    """How many values fall between neighbouring edges, as filled steps; `scale` multiplies the counts."""
    counts, _ = np.histogram(values, edges)
    heights = counts * scale
    panel.stairs(heights, edges, fill=True, color=colour, alpha=0.35, linewidth=0)
    panel.stairs(heights, edges, color=colour, linewidth=0.9)


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
            panel.plot(curve.x, curve.density, curve.line, color=colour, label=legend)
            panel.fill_between(curve.x, curve.density, color=colour, alpha=0.12, linewidth=0)
            for end in curve.ends:
                panel.plot([end], [0], marker="|", markersize=12, color=colour, clip_on=False)
        if log:
            panel.set_xscale("log")
        panel.set_xlabel("eigenvalue")
        panel.set_ylabel("share of eigenvalues per decade" if log else "density")
        panel.set_ylim(bottom=0)
        panel.set_title(title)
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
    def line(self) -> dict[str, Any]:
        """How its line is drawn."""
        if self.predicted:
            return {"linestyle": (0, (4, 2)), "linewidth": 1.1, "zorder": 4}
        return {"linestyle": "-", "linewidth": 1.5, "zorder": 3}

    def handle(self, colour: str = GREY) -> Line2D:
        """What stands for it in a legend."""
        return Line2D([], [], color=self.colour or colour, linestyle=self.line["linestyle"], label=self.label)


def draw_losses(panel: Axes, curves: Sequence[LossCurve], *, log: bool = True) -> None:
    """The curves on one pair of axes, intervals as bands. No legend."""
    known = looks(c.label for c in curves)
    if log:
        panel.set_yscale("log")
    for c in curves:
        colour = c.colour or known[c.label].colour
        if c.low is not None and c.high is not None and np.isfinite(c.low).all():
            panel.fill_between(c.steps, np.maximum(c.low, 1e-300), c.high, color=colour, alpha=0.18, linewidth=0)
        shown = np.isfinite(c.loss)
        panel.plot(c.steps[shown], c.loss[shown], color=colour, **c.line)
    panel.set_xlabel("step")
    panel.set_ylabel("training loss")


def mark_crossing(panel: Axes, step: float, loss: float, *, colour: str = "#222222", hollow: bool = False) -> None:
    """A dot on the crossing; hollow it is a ring, wide enough to be seen around a dot in the same place."""
    face, size = ("none", 8) if hollow else (colour, 5)
    panel.plot([step], [loss], marker="o", markersize=size, color=colour, markerfacecolor=face, zorder=6)


def losses_figure(
    curves: Sequence[LossCurve], title: str, *, loss_label: str = "training loss", ax: Any = None
) -> Figure:
    """Curves of one kind with a legend."""
    with style():
        place = canvas(5.4, 3.8, 1, ax)
        panel = place.panels[0]
        draw_losses(panel, curves)
        known = looks(c.label for c in curves)
        lines = [c.handle(known[c.label].colour) for c in curves]
        panel.legend(handles=lines, loc="upper right")
        panel.set_ylabel(loss_label)
        panel.set_title(title)
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
        losses_figure(curves, title, ax=place.panels[0])
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

    def handle(self) -> Line2D:
        """What stands for it in a legend."""
        return Line2D([], [], label=self.label, linestyle="none", **self._style())

    def _style(self) -> dict:
        face = "white" if self.hollow else self.colour
        return {
            "color": self.colour,
            "marker": self.marker,
            "markersize": 3.4,
            "markerfacecolor": face,
            "markeredgecolor": self.colour,
            "markeredgewidth": 0.7,
        }


@dataclass(frozen=True)
class Difference:
    """One line of a list of differences: what differs, by how much, and a remark."""

    label: str
    interval: Interval
    remark: str = ""
    colour: str = GREY


def draw_clouds(panel: Axes, clouds: Sequence[Cloud], title: str) -> None:
    """Every run as a thin line with its points; training goes from right to left. No legend: `gap_figure` makes it."""
    panel.axhline(0.0, color=GREY, linewidth=0.7, zorder=1)
    for cloud in clouds:
        for run in cloud.runs:
            panel.plot(run[:, 0], run[:, 1], linewidth=0.5, alpha=0.75, zorder=2, **cloud._style())
    panel.set_title(title)
    panel.set_xlabel("training loss (nats)")
    panel.set_ylabel("gap: test loss - training loss (nats)")


def draw_differences(panel: Axes, rows: Sequence[Difference], title: str) -> None:
    """Values as points with their intervals, a line each from the top down; the remark stands at the right."""
    places = np.arange(len(rows))[::-1]
    panel.axvline(0.0, color=GREY, linewidth=0.8, zorder=1)
    for place, row in zip(places, rows, strict=True):
        if row.interval.known:
            panel.hlines(place, row.interval.low, row.interval.high, color=row.colour, linewidth=1.6, zorder=2)
        panel.plot([row.interval.value], [place], marker="o", color=row.colour, markersize=4.5, zorder=3)
        panel.annotate(
            row.remark,
            xy=(1.02, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=7.5,
            color="#333333",
            annotation_clip=False,
        )
    panel.set_yticks(places, [row.label for row in rows])
    panel.set_ylim(-0.7, len(rows) - 0.3)
    panel.grid(axis="y", visible=False)
    panel.set_title(title)


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
            panel = figure.add_subplot(grid[place // columns, place % columns])
            draw_clouds(panel, clouds, name)
            legend_under(panel, clouds)
        if differences:
            panel = figure.add_subplot(grid[rows, :])
            draw_differences(panel, differences, "Difference of the gap at equal training loss, with 95 % intervals")
            panel.set_xlabel("nats")
        figure.suptitle(title)
    return figure


def legend_under(panel: Axes, clouds: Sequence[Cloud]) -> None:
    """Below the panel, where it covers nothing."""
    panel.legend(
        handles=[cloud.handle() for cloud in clouds],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        borderaxespad=0.0,
        ncols=2 if max((len(cloud.label) for cloud in clouds), default=0) > 8 else 4,
        handletextpad=0.4,
        columnspacing=1.4,
    )
