"""Losses over steps: measured with intervals, predicted, and where they cross."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from gatelab.plotting.style import GREY, canvas, look, looks, style

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """A loss over steps with its interval, if there is one; a prediction is dashed."""

    label: str
    steps: Array
    loss: Array
    low: Array | None = None
    high: Array | None = None
    colour: str = ""
    predicted: bool = False

    def handle(self, colour: str = GREY) -> Line2D:
        """What stands for it in a legend."""
        dashes = (0, (4, 2)) if self.predicted else "-"
        return Line2D([], [], color=self.colour or colour, linestyle=dashes, label=self.label)


def draw_losses(panel: Axes, curves: Sequence[Curve], *, log: bool = True) -> None:
    """The curves on one pair of axes, intervals as bands. No legend."""
    known = looks(c.label for c in curves)
    if log:
        panel.set_yscale("log")
    for c in curves:
        colour = c.colour or known[c.label].colour
        if c.low is not None and c.high is not None and np.isfinite(c.low).all():
            panel.fill_between(c.steps, np.maximum(c.low, 1e-300), c.high, color=colour, alpha=0.18, linewidth=0)
        shown = np.isfinite(c.loss)
        panel.plot(
            c.steps[shown],
            c.loss[shown],
            color=colour,
            linestyle=(0, (4, 2)) if c.predicted else "-",
            linewidth=1.1 if c.predicted else 1.5,
            zorder=4 if c.predicted else 3,
        )
    panel.set_xlabel("step")
    panel.set_ylabel("training loss")


def mark_crossing(panel: Axes, step: float, loss: float, *, colour: str = "#222222", hollow: bool = False) -> None:
    """A dot on the crossing; hollow it is a ring, wide enough to be seen around a dot in the same place."""
    face, size = ("none", 8) if hollow else (colour, 5)
    panel.plot([step], [loss], marker="o", markersize=size, color=colour, markerfacecolor=face, zorder=6)


def losses_figure(curves: Sequence[Curve], title: str, *, loss_label: str = "training loss", ax: Any = None) -> Figure:
    """Curves of one kind with a legend."""
    with style():
        place = canvas(5.4, 3.8, 1, ax)
        panel = place.panels[0]
        draw_losses(panel, curves)
        known = looks(c.label for c in curves)
        lines = [c.handle(known[c.label].colour) for c in curves]
        panel.legend(handles=lines, loc="upper right")
        panel.set_ylabel(loss_label)
        panel.set_title(title)
    return place.figure


def parts_figure(
    label: str,
    steps: Array,
    loss: Array,
    bias: Array,
    variance: Array,
    deviation: Array | None,
    *,
    ax: Any = None,
) -> Figure:
    """An expected loss with its two parts, and one deviation of single networks around it."""
    band = (None, None) if deviation is None else (np.maximum(loss - deviation, 1e-3 * loss), loss + deviation)
    curves = [
        Curve("expected loss", steps, loss, *band, colour=look("mlp").colour),
        Curve("bias: of the targets", steps, bias, colour=look("glu").colour, predicted=True),
        Curve("variance: of initial outputs", steps, variance, colour=look("gqu").colour, predicted=True),
    ]
    about = "" if deviation is None else "; band: one deviation of a single network"
    return losses_figure(curves, f"{label}{about}", ax=ax)


def crossing_figure(curves: Sequence[Curve], step: float | None, loss: float | None, *, ax: Any = None) -> Figure:
    """Two expected losses and their crossing."""
    title = "no crossing" if step is None else f"crossing at step {step:.1f}"
    with style():
        place = canvas(5.4, 3.8, 1, ax)
        losses_figure(curves, title, ax=place.panels[0])
        if step is not None and loss is not None:
            mark_crossing(place.panels[0], step, loss)
    return place.figure
