"""The figure of the law in P and D: errors with both laws, and how far each law is off as P nears D."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from gatelab.plotting import GREY, NEURON_COLOURS, new_figure, style

Array = NDArray[np.float64]
Columns = tuple[Array, Array, Array]
Predict = Callable[[Array, Array], Array]
MARKS = {"additive": ("o", NEURON_COLOURS[0]), "noise": ("^", NEURON_COLOURS[1])}


@dataclass(frozen=True, eq=False)
class LawPanel:
    """One unit: P, D and error of the fits that made the laws and of those left out, and the two laws."""

    name: str
    kept: Columns
    left_out: Columns
    additive: Predict
    noise: Predict


def law_panels(units: Sequence[LawPanel], title: str) -> Figure:
    """Above, error against P for each D with both laws; below, measured over predicted against P/D."""
    with style():
        figure = new_figure(1.2 + 3.4 * len(units), 6.2)
        grid = figure.subplots(2, len(units), sharey="row", sharex="row", squeeze=False, height_ratios=(1.4, 1.0))
        data = np.unique(np.concatenate([u.kept[1] for u in units]))
        for (above, below), unit in zip(grid.T, units, strict=True):
            _errors(above, unit, data)
            _ratios(below, unit)
            above.set_title(unit.name)
        grid[0, 0].set_ylabel("RMSE on clean test data")
        grid[1, 0].set_ylabel("measured over law")
        figure.legend(handles=_handles(data), loc="outside right center", handlelength=2.2)
        figure.suptitle(title)
    return figure


def _errors(panel: Axes, unit: LawPanel, data: Array) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    for D in data:
        colour = _colour(D, data)
        for (P, Ds, L), face in ((unit.kept, colour), (unit.left_out, "white")):
            here = Ds == D
            panel.plot(P[here], L[here], "o", color=colour, markerfacecolor=face, markersize=3.5, zorder=3)
        P = unit.kept[0][unit.kept[1] == D]
        if len(P):
            along = np.geomspace(P.min(), P.max(), 60)
            panel.plot(along, unit.additive(along, np.full(60, D)), color=colour, linestyle="-")
            panel.plot(along, unit.noise(along, np.full(60, D)), color=colour, linestyle="--")
    panel.set_xlabel("parameters P")
    _plain(panel.xaxis, (1.0, 2.0, 5.0))
    _plain(panel.yaxis, (1.0, 2.0, 5.0))


def _ratios(panel: Axes, unit: LawPanel) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.axhline(1.0, color=GREY, linewidth=0.8)
    for law, predict in (("additive", unit.additive), ("noise", unit.noise)):
        marker, colour = MARKS[law]
        for (P, D, L), face in ((unit.kept, colour), (unit.left_out, "white")):
            panel.plot(P / D, L / predict(P, D), marker, color=colour, markerfacecolor=face, markersize=3.5)
    panel.set_xlabel("parameters over data, P/D")
    _plain(panel.xaxis, (1.0, 3.0))
    _plain(panel.yaxis, (1.0, 2.0, 5.0))


def _plain(axis: Axis, steps: tuple[float, ...]) -> None:
    axis.set_major_locator(LogLocator(10, subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _colour(value: float, values: Array) -> Any:
    """From dark to light with the logarithm; the palest part, which white would swallow, is not used."""
    share = np.log(value / values[0]) / max(np.log(values[-1] / values[0]), 1e-12)
    return mpl.colormaps["viridis"](0.86 * share)


def _handles(data: Array) -> list[Line2D]:
    of_data = [Line2D([], [], color=_colour(D, data), marker="o", linestyle="none", label=f"D = {D:g}") for D in data]
    of_laws = [
        Line2D([], [], color=GREY, linestyle="-", label="$E + A/P^a + B/D^b$"),
        Line2D([], [], color=GREY, linestyle="--", label="noise law"),
    ]
    below = [
        Line2D([], [], color=colour, marker=marker, linestyle="none", label=f"over the {law} law")
        for law, (marker, colour) in MARKS.items()
    ]
    hollow = Line2D(
        [], [], color=GREY, marker="o", markerfacecolor="white", linestyle="none", label="left out: P ≥ D/2"
    )
    return [*of_data, *of_laws, *below, hollow]
