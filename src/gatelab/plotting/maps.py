"""Deleted at the merge, except what a ported study uses: figures of single studies of linearization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.plotting.kernels import LossCurve, Series, draw_losses, draw_series, plain_values
from gatelab.plotting.panel import Entry, Panel, Pen, colour_bar, figure_legend, new_figure
from gatelab.plotting.theme import GREY, NEURON_COLOURS, Look, ink_on, style

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
        for axes, content in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
            _draw(Panel(axes), content, appearance)
        entries = [Entry(FLOOR, Pen("#222222", width=2))]
        entries += [Entry(n, Pen(appearance[n].colour, "", marker=appearance[n].marker)) for n in names]
        if any((m.rmse > p.highest).any() for p in panels for m in p.methods):
            entries.append(Entry("above the axis", Pen(GREY, "", marker=6)))
        for label in dict.fromkeys(p.level[1] for p in panels if p.level is not None):
            entries.append(Entry(label, Pen(GREY, "--", 1.2)))
        figure_legend(figure, entries, ncols=4 if len(panels) > 1 else 1)
        figure.suptitle(title)
    return figure


def _draw(panel: Panel, content: FloorPanel, appearance: dict[str, Look]) -> None:
    panel.band(content.floor_m, 1e-30, content.floor, "#222222", alpha=0.07)
    panel.line(content.floor_m, content.floor, Pen("#222222", width=2))
    for method in content.methods:
        look = appearance[method.name]
        within = method.rmse <= content.highest
        draw_series(
            panel,
            [
                Series(
                    method.name,
                    method.m[within],
                    method.rmse[within],
                    None if method.low is None else method.low[within],
                    None if method.high is None else method.high[within],
                    colour=look.colour,
                    marker=look.marker,
                    line="",  # between two m its square falls linearly, not the error itself
                )
            ],
        )
        beyond = method.m[~within]
        panel.line(beyond, np.full(len(beyond), content.highest / 1.15), Pen(look.colour, "", marker=6))
    if content.level is not None:
        panel.rule("y", content.level[0], Pen(GREY, "--", 1.2), order=1)
    panel.set(xscale="log", yscale="log", xlabel="features m", ylabel="RMSE", title=content.title)
    if content.highest / content.floor[content.floor > 0].min() < 100:
        plain_values(panel)
    shown = [content.floor[content.floor > 0].min(), *(m.rmse.min() for m in content.methods)]
    panel.set(ylim=(0.6 * min(shown), content.highest))


def training_figure(
    series: Sequence[Series], levels: Sequence[tuple[float, str, Line]], *, x_label: str, y_label: str, title: str
) -> Figure:
    """Curves of an error with horizontal levels (value, label, line style) to hold them against."""
    with style():
        figure = new_figure(5.6, 4.4)
        panel = Panel(figure.subplots())
        draw_series(panel, series)
        entries = [one.entry() for one in series]
        for value, label, line in levels:
            panel.rule("y", value, Pen("#222222", line, 1.2), order=1)
            entries.append(Entry(label, Pen("#222222", line, 1.2)))
        plain_values(panel)
        panel.set(xlabel=x_label, ylabel=y_label, title=title)
        figure_legend(figure, entries)
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


def draw_errors(panel: Panel, curves: Sequence[ErrorCurve], *, floor: float = 1e-16, xlabel: str = "z") -> None:
    """|error| on a logarithmic axis; zeros are drawn at the floor, where they are seen."""
    for i, curve in enumerate(curves):
        pen = Pen(curve.colour or NEURON_COLOURS[i % len(NEURON_COLOURS)], curve.line, marker=curve.marker)
        panel.line(curve.x, np.maximum(np.abs(curve.error), floor), pen, label=curve.label)
    panel.set(yscale="log", xlabel=xlabel, ylabel="|error|")


def mark_levels(panel: Panel, levels: Sequence[tuple[str, float]]) -> None:
    """Horizontal lines with their names at the right end."""
    for name, level in levels:
        panel.rule("y", level, Pen(GREY, ":", 0.9))
        panel.text(name, 1.0, level, within=("panel", "data"), shift=(-2, 2), across="right", colour=GREY, size=7)


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
        alone, together, dots = map(Panel, top.subplots(1, 3, sharey=True, width_ratios=(1, 1, 1.15)))
        _heat(alone, np.array([w.alone for w in ways]))
        alone.set(title="error of a layer's output, it alone replaced")
        alone.axes.set_yticks(range(len(ways)), [w.label for w in ways])
        mark = _heat(together, np.array([w.accumulated for w in ways]))
        together.set(title="error of a layer's output, all replaced")
        where: dict[str, Any] = {"location": "bottom", "shrink": 0.5, "aspect": 40}
        colour_bar(mark, [alone, together], label="relative RMSE", **where)
        _dots(dots, ways)
        left, right = map(Panel, bottom.subplots(1, 2))
        draw_losses(left, curves, log=False)
        left.set(ylabel="test loss, nats a byte", title="a small GPT trained from scratch")
        left.legend([c.entry() for c in curves], loc="upper right", ncols=2)
        _gaps(right, gaps)
        right.set(
            ylabel=f"test loss less that of {curves[0].label}",
            title=f"less {curves[0].label} of the same seed; bands span seeds",
        )
        figure.suptitle(title)
    return figure


def _gaps(panel: Panel, curves: Sequence[LossCurve]) -> None:
    """Distances to another curve, from a fifth of the steps on: before, they are those of the first few updates."""
    start = max((float(c.steps[-1]) for c in curves), default=0.0) / 5
    for c in curves:
        late, band = c.steps >= start, None
        if c.low is not None and c.high is not None:
            band = panel.band(c.steps[late], c.low[late], c.high[late], c.colour)
        panel.line(c.steps[late], c.loss[late], Pen(c.colour), interval=band)
    panel.rule("y", 0.0, Pen(GREY, width=0.9))
    panel.set(xlabel="step")


def _heat(panel: Panel, errors: Array) -> Any:
    shown = np.clip(np.nan_to_num(errors, nan=np.inf), LEAST, MOST)
    mark = panel.imshow(shown, cmap="viridis_r", norm=LogNorm(LEAST, MOST), interpolation="nearest", aspect="auto")
    panel.grid(False)
    colours = mark.to_rgba(shown)
    for (row, column), value in np.ndenumerate(errors):
        ink = ink_on(colours[row, column])
        panel.text(_short(value), column, row, across="center", up="center", size=6.5, colour=ink)
    panel.axes.set_xticks(range(errors.shape[1]), [str(i + 1) for i in range(errors.shape[1])])
    panel.set(xlabel="layer")
    return mark


def _short(value: float) -> str:
    if not np.isfinite(value):
        return "inf"
    if value >= 1e-3:
        return f"{value:.2g}"
    return f"{value:.0e}".replace("e-0", "e-")


def _dots(panel: Panel, ways: Sequence[Replacement]) -> None:
    least = 1e-6
    for row, way in enumerate(ways):
        mean, low, high, worst = (max(v, least) for v in way.cosine)
        loss = 1 - way.cosine[2]  # the lower end of the interval is what a level is kept by
        colour = next(
            (NEURON_COLOURS[k] for k, level in zip((2, 0), LEVELS, strict=True) if loss > level), NEURON_COLOURS[1]
        )
        panel.line([low, high], [row, row], Pen(colour, width=3, alpha=0.5))
        panel.line(mean, row, Pen(colour, "", marker="o"))
        panel.line(worst, row, Pen(colour, "", marker="|", size=7))
    for level in LEVELS:
        panel.rule("x", 1 - level, Pen(GREY, ":", 0.9))
        panel.text(f"{level:g}", 1 - level, 1.0, within=("data", "panel"), shift=(2, -8), colour=GREY, size=7)
    panel.set(xscale="log", xlim=(least / 1.5, 3.0), xlabel="1 - cosine of embeddings before and after")
    panel.set(title="dot: mean, bar: 95%, stroke: worst sentence")
