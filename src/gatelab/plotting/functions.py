"""Functions of one and two variables: maps, surfaces, approximations with their errors, rows as points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.plotting.theme import NEURON_COLORS, canvas, look, style

MOST_POINTS = 2000  # per part
MOST_PANELS = 3


def thinned(count: int, most: int = MOST_POINTS) -> NDArray[np.intp]:
    """The indices of at most `most` of `count` rows, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.intp))


def rows_figure(
    parts: Sequence[tuple[str, Array, Array]], inputs: Sequence[str], target: str, title: str, *, ax: Any = None
) -> Figure:
    """`target` against each of the first three inputs, for a sample of rows of each part (name, x, y)."""
    count = min(len(inputs), MOST_PANELS)
    colors = (look("mlp").color, look("glu").color)
    with style():
        place = canvas(max(4.8, 3.1 * count), 3.4, count, ax)
        for i, axes in enumerate(place.axes):
            for (name, x, y), color in zip(parts, colors, strict=False):
                rows = thinned(len(x))
                size = 2.0 if len(rows) > 200 else 4.0
                axes.plot(x[rows, i], y[rows], "o", color=color, markersize=size, alpha=0.7, label=name)
            axes.set_xlabel(inputs[i])
        place.axes[0].set_ylabel(target)
        place.legend(ncols=len(parts))
        place.title(title)
    return place.figure


def approximation_figure(
    z: Array,
    exact: Array,
    approximations: Sequence[tuple[str, Array]],
    interval: tuple[float, float],
    title: str,
    *,
    ax: Any = None,
) -> Figure:
    """The functions on the left and their errors on the right; gray is outside the interval."""
    with style():
        place = canvas(9.4, 3.8, 2, ax)
        left, right = place.axes
        left.plot(z, exact, color="#222222", linewidth=2.2, label="exact")
        inside = (z >= interval[0]) & (z <= interval[1])
        for i, (name, values) in enumerate(approximations):
            color = NEURON_COLORS[i % len(NEURON_COLORS)]
            left.plot(z, values, color=color, label=name)
            right.plot(z, np.maximum(np.abs(values - exact), 1e-14), color=color, label=name)
        margin = 0.25 * (np.ptp(exact[inside]) or 1.0)
        left.set(ylim=(exact[inside].min() - margin, exact[inside].max() + margin), xlabel="z", ylabel="act(z)")
        right.set(yscale="log", xlabel="z", ylabel="|error|")
        for axes in place.axes:
            for a, b in ((z[0], interval[0]), (interval[1], z[-1])):
                axes.axvspan(a, b, color="#eeeeee", linewidth=0, zorder=0)
            axes.set_xlim(z[0], z[-1])
        left.legend(loc="upper left")
        place.title(title)
    return place.figure
