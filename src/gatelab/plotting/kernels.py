"""Curves of one panel, such as losses over steps and spectra, and runs in the plane of loss and gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gatelab.arrays import Array
from gatelab.plotting.theme import GRAY, canvas, handle, legend_below, log_ticks, looks, style

DASHED = (0, (4, 2))


@dataclass(frozen=True, eq=False)
class PlotLine:
    """A curve of a panel.

    `band` are the ends of its interval, `marks` places on the x axis, `note` is in the legend. A prediction is dashed.
    """

    label: str
    x: Array
    y: Array
    band: tuple[Array, Array] | None = None
    marks: Sequence[float] = ()
    note: str = ""
    color: str = ""
    marker: str = ""
    predicted: bool = False


def lines_figure(
    lines: Sequence[PlotLine], title: str, x: str = "step", y: str = "training loss", *, log: str = "y", ax: Any = None
) -> Figure:
    """Curves in one panel with a legend; `log` names the logarithmic axes."""
    known = looks(line.label for line in lines)
    with style():
        place = canvas(5.4, 3.8, 1, ax)
        (axes,) = place.axes
        for which in log:
            getattr(axes, f"set_{which}scale")("log")
        for line in lines:
            color, shown = line.color or known[line.label].color, np.isfinite(line.y)
            if line.band is not None and np.isfinite(line.band[0]).all():
                low, high = line.band
                if "y" in log:
                    low = np.maximum(low, 1e-3 * line.y)  # an interval may reach below 0
                axes.fill_between(line.x, low, high, color=color, alpha=0.18, linewidth=0)
            dash: Any = (("-", 1.5), (DASHED, 1.1))[line.predicted]
            label = ": ".join(filter(None, (line.label, line.note)))
            form: dict[str, Any] = {"linestyle": dash[0], "linewidth": dash[1], "marker": line.marker, "label": label}
            axes.plot(line.x[shown], line.y[shown], color=color, zorder=3 + line.predicted, **form)
            axes.plot(line.marks, [0] * len(line.marks), "|", color=color, markersize=12, clip_on=False)
        axes.set(xlabel=x, ylabel=y, title=title)
        for which in log:
            log_ticks(getattr(axes, f"{which}axis"))
        if x == "step":
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        if "y" not in log:
            axes.set_ylim(0, None)
        axes.legend(loc="best")
    return place.figure


def density_figure(lines: Sequence[PlotLine], title: str, *, log: bool, ax: Any = None) -> Figure:
    """Densities of eigenvalues; with `log`, per decade of the eigenvalue."""
    return lines_figure(lines, title, "eigenvalue", ("density", "share per decade")[log], log="x" * log, ax=ax)


@dataclass(frozen=True, eq=False)
class Cloud:
    """Runs of one kind, each an array of points (training loss, gap) in the order of training."""

    label: str
    runs: Sequence[Array]
    color: str = GRAY
    marker: str = "o"
    hollow: bool = False

    def look(self) -> dict[str, Any]:
        face = (self.color, "white")[self.hollow]
        return {"marker": self.marker, "markersize": 3.4, "markerfacecolor": face, "markeredgewidth": 0.7}


def clouds_figure(panels: Sequence[tuple[str, Sequence[Cloud]]], title: str, *, ax: Any = None) -> Figure:
    """A panel for each (title, clouds), three in a row, its legend below it; training proceeds from right to left."""
    rows = -(-len(panels) // 3)
    with style():
        place = canvas(4.0 * max(1.35, min(3, len(panels))), 0.5 + 4.2 * rows, len(panels), ax, rows=rows)
        for axes, (name, clouds) in zip(place.axes, panels, strict=True):
            axes.axhline(0.0, color=GRAY, linewidth=0.7, zorder=1)
            for cloud in clouds:
                for run in cloud.runs:
                    axes.plot(run[:, 0], run[:, 1], color=cloud.color, linewidth=0.5, alpha=0.75, **cloud.look())
            axes.set(title=name, xlabel="training loss (nats)", ylabel="gap: test loss - training loss (nats)")
            ncols = 2 if any(len(cloud.label) > 8 for cloud in clouds) else 4
            entries = [handle(cloud.label, cloud.color, "", **cloud.look()) for cloud in clouds]
            legend_below(axes, entries, ncols=ncols, handletextpad=0.4, columnspacing=1.4)
        if ax is None:
            place.title(title)
    return place.figure
