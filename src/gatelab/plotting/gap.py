"""The plane of training loss and generalisation gap, and differences with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from gatelab.plotting.style import GREY, canvas, new_figure, style

Array = NDArray[np.float64]


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
    """One line of a list of differences: its value, its interval where there is one, and a remark."""

    label: str
    value: float
    low: float
    high: float
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
    for at, row in zip(places, rows, strict=True):
        if np.isfinite(row.low):
            panel.hlines(at, row.low, row.high, color=row.colour, linewidth=1.6, zorder=2)
        panel.plot([row.value], [at], marker="o", color=row.colour, markersize=4.5, zorder=3)
        panel.annotate(
            row.remark,
            xy=(1.02, at),
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
    below = [1.0 + 0.36 * len(differences)] if differences else []
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
