"""Errors of approximations against the pre-activation, and against the degree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gatelab.plotting.style import GREY, NEURON_COLOURS, canvas, style

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ErrorCurve:
    """An error, or anything positive, at the points x; `line` and `marker` as matplotlib names them."""

    label: str
    x: Array
    error: Array
    colour: str | None = None
    line: str = "-"
    marker: str = ""


def draw_errors(panel: Axes, curves: Sequence[ErrorCurve], *, floor: float = 1e-16, xlabel: str = "z") -> None:
    """|error| on a logarithmic axis; zeros are drawn at the floor, where they are seen."""
    for i, curve in enumerate(curves):
        panel.plot(
            curve.x,
            np.maximum(np.abs(curve.error), floor),
            color=curve.colour or NEURON_COLOURS[i % len(NEURON_COLOURS)],
            linestyle=curve.line,
            marker=curve.marker,
            label=curve.label,
        )
    panel.set_yscale("log")
    panel.set_xlabel(xlabel)
    panel.set_ylabel("|error|")


def mark_levels(panel: Axes, levels: Sequence[tuple[str, float]]) -> None:
    """Horizontal lines with their names at the right end."""
    for name, level in levels:
        panel.axhline(level, color=GREY, linestyle=":", linewidth=0.9)
        panel.annotate(
            name,
            (1.0, level),
            xycoords=("axes fraction", "data"),
            xytext=(-2, 2),
            textcoords="offset points",
            ha="right",
            color=GREY,
            fontsize=7,
        )


def approximation_figure(
    z: Array,
    exact: Array,
    made: Sequence[tuple[str, Array]],
    interval: tuple[float, float],
    levels: Sequence[tuple[str, float]],
    title: str,
    *,
    ax: Any = None,
) -> Figure:
    """The functions on the left and their errors on the right; grey is outside the interval."""
    with style():
        place = canvas(9.4, 3.8, 2, ax)
        left, right = place.panels
        left.plot(z, exact, color="#222222", linewidth=2.2, label="exact")
        inside = (z >= interval[0]) & (z <= interval[1])
        for i, (name, values) in enumerate(made):
            left.plot(z, values, color=NEURON_COLOURS[i % len(NEURON_COLOURS)], label=name)
        room = 0.25 * (np.ptp(exact[inside]) or 1.0)
        left.set_ylim(exact[inside].min() - room, exact[inside].max() + room)
        left.set_xlabel("z")
        left.set_ylabel("act(z)")
        draw_errors(right, [ErrorCurve(name, z, values - exact) for name, values in made], floor=1e-14)
        mark_levels(right, levels)
        for panel in (left, right):
            for a, b in ((z[0], interval[0]), (interval[1], z[-1])):
                panel.axvspan(a, b, color="#eeeeee", zorder=0)
            panel.set_xlim(z[0], z[-1])
        left.legend(loc="upper left")
        place.title(title)
    return place.figure
