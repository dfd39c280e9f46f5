"""Kernels: heat maps, spectra as histograms, and series with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from gatelab.plotting.style import GREY

Array = NDArray[np.float64]
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
