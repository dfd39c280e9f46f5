"""Functions of two variables: as a map with level lines, and as a surface, with the hinges where gates open.

Rows as points: targets against inputs, and one column of numbers against another that should equal it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.plotting.panel import Mark, Panel, Pen, canvas
from gatelab.plotting.theme import GREY, look, style

MAP = "RdBu_r"


@dataclass(frozen=True, eq=False)
class Plane:
    """Values (rows, columns) over the grid y (rows,) times x (columns,), and hinges, each a path (points, 3)."""

    x: Array
    y: Array
    values: Array
    hinges: tuple[Array, ...] = ()


def draw_plane(panel: Panel, plane: Plane, title: str, *, scale: float | None = None) -> Mark:
    """A filled map, symmetric about zero, with thin level lines, which are straight where the function is linear.

    Args:
        panel: The panel to draw on.
        plane: The function on a grid, with its hinges.
        title: A line above the panel.
        scale: The value at both ends of the colours; by default the greatest of the plane.

    Returns:
        The map, for a colour bar.
    """
    reach = scale or float(np.abs(plane.values).max()) or 1.0
    levels = np.linspace(-reach, reach, 24)  # an odd number of bands: the middle one, about zero, is white
    drawn = panel.contours(plane.x, plane.y, plane.values, levels, MAP)
    for path in plane.hinges:
        panel.line(path[:, 0], path[:, 1], Pen("black", width=1.4))
    panel.set(aspect="equal", title=title, xlabel="$x_1$", ylabel="$x_2$")
    for axis in (panel.axes.xaxis, panel.axes.yaxis):
        axis.set_major_locator(MaxNLocator(2))
    return drawn


def draw_surface(panel: Any, plane: Plane, title: str, *, view: tuple[float, float] = (35.0, -60.0)) -> None:
    """The surface on three-dimensional axes, with the hinges lying on it.

    Args:
        panel: Three-dimensional axes to draw into.
        plane: The function on a grid, with its hinges.
        title: A line above the panel.
        view: Elevation and azimuth in degrees.

    Returns:
        Nothing: the surface is drawn.
    """
    # Depth cannot be sorted between a surface and a line upon it: the lines are drawn last.
    panel.computed_zorder = False
    x, y = np.meshgrid(plane.x, plane.y)
    reach = float(np.abs(plane.values).max()) or 1.0
    panel.plot_surface(
        x, y, plane.values, cmap=MAP, vmin=-reach, vmax=reach, rstride=2, cstride=2, linewidth=0, alpha=0.95, zorder=1
    )
    for path in plane.hinges:
        panel.plot(path[:, 0], path[:, 1], path[:, 2], color="black", linewidth=1.4, zorder=2)
    panel.view_init(*view)
    panel.set_title(title)
    panel.set_xlabel("$x_1$")
    panel.set_ylabel("$x_2$")
    for axis in (panel.xaxis, panel.yaxis, panel.zaxis):
        axis.set_major_locator(MaxNLocator(4))
        axis.set_pane_color((1.0, 1.0, 1.0, 1.0))


MOST_POINTS = 2000  # of a part: more hide each other and take long to draw
MOST_PANELS = 3


def thinned(count: int, most: int = MOST_POINTS) -> NDArray[np.intp]:
    """Which of `count` rows are drawn: all, or `most` of them, evenly from the first to the last.

    >>> thinned(3), len(thinned(10**6))
    (array([0, 1, 2]), 2000)
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.intp))


def rows_figure(
    parts: Sequence[tuple[str, Array, Array]], inputs: Sequence[str], target: str, title: str, *, ax: Any = None
) -> Figure:
    """`target` against each of the first inputs, a panel each, three at most; of each part (name, x, y) some rows."""
    count = min(len(inputs), MOST_PANELS)
    colours = (look("mlp").colour, look("glu").colour)
    with style():
        place = canvas(max(4.8, 3.1 * count), 3.4, count, ax)
        for i, panel in enumerate(place.panels):
            for (name, x, y), colour in zip(parts, colours, strict=False):
                rows = thinned(len(x))
                size = 2.0 if len(rows) > 200 else 4.0
                panel.line(x[rows, i], y[rows], Pen(colour, "", marker="o", size=size, alpha=0.7), label=name)
            panel.set(xlabel=inputs[i])
        place.panels[0].set(ylabel=target)
        place.legend(ncols=len(parts))
        place.title(title)
    return place.figure


def history_figure(errors: Array, test: float, colour: str, title: str, *, ax: Any = None) -> Figure:
    """The training error after each step on a logarithmic axis, and the test error at the end as a dashed line."""
    rows = thinned(len(errors))
    with style():
        place = canvas(4.8, 3.2, 1, ax)
        panel = place.panels[0]
        panel.line(rows + 1, errors[rows], Pen(colour, marker="o" if len(rows) < 30 else ""), label="training")
        panel.rule("y", test, Pen(colour, "--", 1.0), label="test, at the end")
        values = np.append(errors, test)
        values = values[np.isfinite(values) & (values > 0)]
        if len(values):
            # At least a decade, so that some ticks are numbers that can be read.
            panel.set(yscale="log", ylim=(values.min() / 3.2, values.max() * 3.2))
        panel.axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        panel.set(xlabel="step", ylabel="RMSE")
        panel.legend(loc="upper right")
        place.title(title)
    return place.figure


def agreement_figure(exact: Array, computed: Array, labels: tuple[str, str], title: str, *, ax: Any = None) -> Figure:
    """One value against the other, with the line on which they are equal."""
    rows = thinned(len(exact))
    with style():
        place = canvas(3.9, 3.6, 1, ax)
        panel = place.panels[0]
        ends = [min(exact.min(), computed.min()), max(exact.max(), computed.max())]
        panel.line(ends, ends, Pen(GREY, width=0.8), order=1)
        panel.line(exact[rows], computed[rows], Pen(look("glu").colour, "", marker="o", size=2.5, alpha=0.7))
        panel.set(xlabel=labels[0], ylabel=labels[1])
        place.title(title)
    return place.figure
