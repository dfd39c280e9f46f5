"""A model with its blocks replaced: errors of every layer as maps, embeddings beside them, and training curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from gatelab.plotting.dynamics import Curve, draw_losses
from gatelab.plotting.style import GREY, NEURON_COLOURS, ink_on, new_figure, style

Array = NDArray[np.float64]
LEAST, MOST = 1e-3, 1.0  # errors that the colours tell apart
LEVELS = (0.999, 0.99)


@dataclass(frozen=True, eq=False)
class Replacement:
    """One way: relative errors of the layers, and 1 - cosine of embeddings, (mean, low, high, worst)."""

    label: str
    alone: tuple[float, ...]
    accumulated: tuple[float, ...]
    cosine: tuple[float, float, float, float]


def replaced_figure(ways: Sequence[Replacement], curves: Sequence[Curve], gaps: Sequence[Curve], title: str) -> Figure:
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


def _gaps(panel: Axes, curves: Sequence[Curve]) -> None:
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
    return f"{value:.2g}" if value >= 1e-3 else f"{value:.0e}".replace("e-0", "e-")


def _dots(panel: Axes, ways: Sequence[Replacement]) -> None:
    least = 1e-6
    for row, way in enumerate(ways):
        mean, low, high, worst = (max(v, least) for v in way.cosine)
        kept = 1 - way.cosine[2]  # the lower end of the interval is what a level is kept by
        colour = next(
            (NEURON_COLOURS[k] for k, level in zip((2, 0), LEVELS, strict=True) if kept > level), NEURON_COLOURS[1]
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
