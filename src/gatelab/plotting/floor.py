"""Errors of linearisations against the number of features, above the floor that none can pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from gatelab.plotting.kernels import Series, draw_series, plain_values
from gatelab.plotting.style import GREY, Look, new_figure, style

Array = NDArray[np.float64]
Line = Literal["-", "--", "-.", ":"]
# Methods are many and overlap: each has a colour and a marker of its own, none of them the floor's black.
_LOOKS = (
    Look("#E69F00", "P"),
    Look("#5D3A9B", "X"),
    Look("#0072B2", "<"),
    Look("#D55E00", ">"),
    Look("#117733", "h"),
    Look("#CC79A7", "D"),
    Look("#56B4E9", "s"),
    Look("#994F00", "v"),
)
FLOOR = "the floor: no maps of m features are below"


@dataclass(frozen=True, eq=False)
class Method:
    """RMSE of one method at some m, with intervals where it was run more than once."""

    name: str
    m: Array
    rmse: Array
    low: Array | None = None
    high: Array | None = None


@dataclass(frozen=True, eq=False)
class FloorPanel:
    """One law of w and x. `highest` is the top of the axis: errors beyond it are drawn at it, as upward triangles.

    `level` is one error, with what it is, that a dashed line marks.
    """

    title: str
    floor_m: Array
    floor: Array
    methods: tuple[Method, ...]
    highest: float
    level: tuple[float, str] | None = None


def floor_figure(panels: Sequence[FloorPanel], title: str) -> Figure:
    """The panels side by side with one legend below them."""
    names = list(dict.fromkeys(method.name for panel in panels for method in panel.methods))
    appearance = {name: _LOOKS[i % len(_LOOKS)] for i, name in enumerate(names)}
    with style():
        figure = new_figure(max(5.6, 3.7 * len(panels)), 4.6)
        axes = np.atleast_1d(figure.subplots(1, len(panels)))
        for axis, panel in zip(axes, panels, strict=True):
            _draw(axis, panel, appearance)
        handles = [Line2D([], [], color="#222222", linewidth=2, label=FLOOR)]
        handles += [
            Line2D([], [], color=appearance[n].colour, marker=appearance[n].marker, linestyle="none", label=n)
            for n in names
        ]
        if any((m.rmse > p.highest).any() for p in panels for m in p.methods):
            handles.append(Line2D([], [], color=GREY, marker=6, linestyle="none", label="above the axis"))
        for label in dict.fromkeys(p.level[1] for p in panels if p.level is not None):
            handles.append(Line2D([], [], color=GREY, linestyle="--", linewidth=1.2, label=label))
        figure.legend(handles=handles, loc="outside lower center", ncols=4 if len(panels) > 1 else 1)
        figure.suptitle(title)
    return figure


def _draw(axis: Axes, panel: FloorPanel, appearance: dict[str, Look]) -> None:
    axis.fill_between(panel.floor_m, panel.floor, 1e-30, color="#222222", alpha=0.07, linewidth=0)
    axis.plot(panel.floor_m, panel.floor, color="#222222", linewidth=2, zorder=2)
    for method in panel.methods:
        look = appearance[method.name]
        within = method.rmse <= panel.highest
        draw_series(
            axis,
            [
                Series(
                    method.name,
                    method.m[within],
                    method.rmse[within],
                    None if method.low is None else method.low[within],
                    None if method.high is None else method.high[within],
                    colour=look.colour,
                    marker=look.marker,
                    line="",  # between two m the error follows the floor's steps, not a straight line
                )
            ],
        )
        beyond = method.m[~within]
        axis.plot(beyond, np.full(len(beyond), panel.highest / 1.15), marker=6, linestyle="none", color=look.colour)
    if panel.level is not None:
        axis.axhline(panel.level[0], color=GREY, linestyle="--", linewidth=1.2, zorder=1)
    axis.set_xscale("log")
    axis.set_yscale("log")
    if panel.highest / panel.floor[panel.floor > 0].min() < 100:
        plain_values(axis)
    shown = [panel.floor[panel.floor > 0].min(), *(m.rmse.min() for m in panel.methods)]
    axis.set_ylim(0.6 * min(shown), panel.highest)
    axis.set_xlabel("features m")
    axis.set_ylabel("RMSE")
    axis.set_title(panel.title)


def training_figure(
    series: Sequence[Series], levels: Sequence[tuple[float, str, Line]], *, x_label: str, y_label: str, title: str
) -> Figure:
    """Curves of an error with horizontal levels (value, label, line style) to hold them against."""
    with style():
        figure = new_figure(5.6, 4.4)
        axis = figure.subplots()
        draw_series(axis, series)
        handles = [one.handle() for one in series]
        for value, label, line in levels:
            axis.axhline(value, color="#222222", linestyle=line, linewidth=1.2, zorder=1)
            handles.append(Line2D([], [], color="#222222", linestyle=line, linewidth=1.2, label=label))
        plain_values(axis)
        axis.set_xlabel(x_label)
        axis.set_ylabel(y_label)
        axis.set_title(title)
        figure.legend(handles=handles, loc="outside lower center", ncols=1)
    return figure
