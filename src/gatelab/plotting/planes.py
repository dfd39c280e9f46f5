"""Functions of two variables: as a map with level lines, and as a surface, with the hinges where gates open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

Array = NDArray[np.float64]
MAP = "RdBu_r"


@dataclass(frozen=True, eq=False)
class Plane:
    """Values (rows, columns) over the grid y (rows,) times x (columns,), and hinges, each a path (points, 3)."""

    x: Array
    y: Array
    values: Array
    hinges: tuple[Array, ...] = ()


def draw_plane(panel: Axes, plane: Plane, title: str, *, scale: float | None = None) -> Any:
    """A filled map, symmetric about zero, with thin level lines, which are straight where the function is linear."""
    reach = scale or float(np.abs(plane.values).max()) or 1.0
    levels = np.linspace(-reach, reach, 24)  # an odd number of bands: the middle one, about zero, is white
    filled = panel.contourf(plane.x, plane.y, plane.values, levels=levels, cmap=MAP)
    panel.contour(plane.x, plane.y, plane.values, levels=levels, colors="#444444", linewidths=0.3, linestyles="solid")
    _draw_hinges(panel, plane.hinges)
    panel.set_aspect("equal")
    panel.set_title(title)
    panel.set_xlabel("$x_1$")
    panel.set_ylabel("$x_2$")
    panel.grid(False)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(MaxNLocator(2))
    return filled


def _draw_hinges(panel: Axes, hinges: Sequence[Array]) -> None:
    for path in hinges:
        panel.plot(path[:, 0], path[:, 1], color="black", linewidth=1.4)


def draw_surface(panel: Any, plane: Plane, title: str, *, view: tuple[float, float] = (35.0, -60.0)) -> None:
    """The surface on three-dimensional axes, with the hinges lying on it."""
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
