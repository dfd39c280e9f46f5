"""Errors of linearisations against the number of features, above the floor that none can pass.

Errors of approximations against the pre-activation, and against the degree.

A model with its blocks replaced: errors of every layer as maps, embeddings beside them, and training curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from gatelab.arrays import Array
from gatelab.plotting.kernels import LossCurve, Series, draw_losses, draw_series, plain_values
from gatelab.plotting.theme import GREY, NEURON_COLOURS, Look, canvas, ink_on, new_figure, style

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
class MethodErrors:
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
    methods: tuple[MethodErrors, ...]
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
    approximations: Sequence[tuple[str, Array]],
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
        for i, (name, values) in enumerate(approximations):
            left.plot(z, values, color=NEURON_COLOURS[i % len(NEURON_COLOURS)], label=name)
        room = 0.25 * (np.ptp(exact[inside]) or 1.0)
        left.set_ylim(exact[inside].min() - room, exact[inside].max() + room)
        left.set_xlabel("z")
        left.set_ylabel("act(z)")
        draw_errors(right, [ErrorCurve(name, z, values - exact) for name, values in approximations], floor=1e-14)
        mark_levels(right, levels)
        for panel in (left, right):
            for a, b in ((z[0], interval[0]), (interval[1], z[-1])):
                panel.axvspan(a, b, color="#eeeeee", zorder=0)
            panel.set_xlim(z[0], z[-1])
        left.legend(loc="upper left")
        place.title(title)
    return place.figure


LEAST, MOST = 1e-3, 1.0  # errors that the colours tell apart
LEVELS = (0.999, 0.99)


@dataclass(frozen=True, eq=False)
class Replacement:
    """One way: relative errors of the layers, and 1 - cosine of embeddings, (mean, low, high, worst)."""

    label: str
    alone: tuple[float, ...]
    accumulated: tuple[float, ...]
    cosine: tuple[float, float, float, float]


def replaced_figure(
    ways: Sequence[Replacement], curves: Sequence[LossCurve], gaps: Sequence[LossCurve], title: str
) -> Figure:
    """Ways from top to bottom: errors alone, accumulated, 1 - cosine; below, losses and their distance to the first."""
    with style():
        figure = new_figure(11.5, 4.4 + 0.24 * len(ways))
        parts: Any = figure.subfigures(2, 1, height_ratios=(0.9 + 0.24 * len(ways), 3.3))
        top, bottom = parts
        alone, together, dots = top.subplots(1, 3, sharey=True, width_ratios=(1, 1, 1.15))
        image = None
        for panel, name, about in (
            (alone, "alone", "it alone replaced"),
            (together, "accumulated", "all replaced"),
        ):
            image = _heat(panel, np.array([getattr(w, name) for w in ways]))
            panel.set_title(f"error of a layer's output, {about}")
        alone.set_yticks(range(len(ways)), [w.label for w in ways])
        assert image is not None
        top.colorbar(image, ax=[alone, together], location="bottom", shrink=0.5, aspect=40, label="relative RMSE")
        _dots(dots, ways)
        left, right = bottom.subplots(1, 2)
        draw_losses(left, curves, log=False)
        left.set_ylabel("test loss, nats a byte")
        left.set_title("a small GPT trained from scratch")
        left.legend(handles=[c.handle() for c in curves], loc="upper right", ncols=2)
        _gaps(right, gaps)
        right.set_ylabel(f"test loss less that of {curves[0].label}")
        right.set_title(f"less {curves[0].label} of the same seed; bands span seeds")
        figure.suptitle(title)
    return figure


def _gaps(panel: Axes, curves: Sequence[LossCurve]) -> None:
    """Distances to another curve, from a fifth of the steps on: before, they are those of the first few updates."""
    start = max((float(c.steps[-1]) for c in curves), default=0.0) / 5
    for c in curves:
        late = c.steps >= start
        if c.low is not None and c.high is not None:
            panel.fill_between(c.steps[late], c.low[late], c.high[late], color=c.colour, alpha=0.18, linewidth=0)
        panel.plot(c.steps[late], c.loss[late], color=c.colour)
    panel.axhline(0.0, color=GREY, linewidth=0.9)
    panel.set_xlabel("step")


def _heat(panel: Axes, errors: Array) -> AxesImage:
    shown = np.clip(np.nan_to_num(errors, nan=np.inf), LEAST, MOST)
    image = panel.imshow(shown, norm=LogNorm(LEAST, MOST), cmap="viridis_r", aspect="auto")
    panel.grid(visible=False)
    cells = image.to_rgba(shown)
    for (row, column), value in np.ndenumerate(errors):
        colour = ink_on(cells[row, column])
        panel.text(column, row, _short(value), ha="center", va="center", fontsize=6.5, color=colour)
    panel.set_xticks(range(errors.shape[1]), [str(i + 1) for i in range(errors.shape[1])])
    panel.set_xlabel("layer")
    return image


def _short(value: float) -> str:
    if not np.isfinite(value):
        return "inf"
    if value >= 1e-3:
        return f"{value:.2g}"
    return f"{value:.0e}".replace("e-0", "e-")


def _dots(panel: Axes, ways: Sequence[Replacement]) -> None:
    least = 1e-6
    for row, way in enumerate(ways):
        mean, low, high, worst = (max(v, least) for v in way.cosine)
        loss = 1 - way.cosine[2]  # the lower end of the interval is what a level is kept by
        colour = next(
            (NEURON_COLOURS[k] for k, level in zip((2, 0), LEVELS, strict=True) if loss > level), NEURON_COLOURS[1]
        )
        panel.plot([low, high], [row, row], color=colour, linewidth=3, alpha=0.5)
        panel.plot([mean], [row], "o", color=colour)
        panel.plot([worst], [row], "|", color=colour, markersize=7)
    for level in LEVELS:
        panel.axvline(1 - level, color=GREY, linestyle=":", linewidth=0.9)
        panel.annotate(
            f"{level:g}", (1 - level, 1.0), xycoords=("data", "axes fraction"), xytext=(2, -8),
            textcoords="offset points", color=GREY, fontsize=7,
        )  # fmt: skip
    panel.set_xscale("log")
    panel.set_xlim(least / 1.5, 3.0)
    panel.set_xlabel("1 - cosine of embeddings before and after")
    panel.set_title("dot: mean, bar: 95%, stroke: worst sentence")
