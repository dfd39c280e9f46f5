"""Kernels and training: spectra, losses over steps and their crossings, runs in the plane of loss and gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gatelab.arrays import Array
from gatelab.plotting import theme
from gatelab.plotting.theme import GRAY, canvas, handle, look, looks, style


@dataclass(frozen=True, eq=False)
class DensityCurve:
    """One density over eigenvalues x; `ends` are marked on the axis, and `note` is shown in the legend."""

    label: str
    x: Array
    density: Array
    ends: tuple[float, ...] = ()
    note: str = ""
    line: Literal["-", "--", "-.", ":"] = "-"


def density_figure(curves: Sequence[DensityCurve], *, log: bool = False, title: str = "", ax: Any = None) -> Figure:
    """All curves in one panel. With `log`, densities are per decade of the eigenvalue."""
    appearance = looks([c.label for c in curves])
    with style():
        place = canvas(4.8, 3.4 + 0.18 * len(curves), 1, ax)
        (axes,) = place.axes
        for curve in curves:
            color = appearance[curve.label].color
            label = ": ".join(filter(None, (curve.label, curve.note)))
            axes.plot(curve.x, curve.density, curve.line, color=color, label=label)
            axes.fill_between(curve.x, 0.0, curve.density, color=color, alpha=0.12, linewidth=0)
            axes.plot(curve.ends, [0] * len(curve.ends), "|", color=color, markersize=12, clip_on=False)
        ylabel = "density"
        if log:
            axes.set_xscale("log")
            ylabel = "share of eigenvalues per decade"
        axes.set(xlabel="eigenvalue", ylabel=ylabel, ylim=(0, None), title=title)
        place.legend()
    return place.figure


@dataclass(frozen=True, eq=False)
class LossCurve:
    """A loss over steps, optionally with its interval; a prediction is dashed."""

    label: str
    steps: Array
    loss: Array
    low: Array | None = None
    high: Array | None = None
    color: str = ""
    predicted: bool = False

    @property
    def dash(self) -> Any:
        """Its line style."""
        if self.predicted:
            return 0, (4, 2)
        return "-"

    def entry(self, color: str = GRAY) -> Line2D:
        """Its entry in a legend."""
        return handle(self.label, self.color or color, self.dash)


def draw_losses(axes: Any, curves: Sequence[LossCurve], *, log: bool = True) -> None:
    """Draw the curves in one panel, with intervals as bands, without a legend."""
    known = looks(c.label for c in curves)
    if log:
        axes.set_yscale("log")
    for c in curves:
        color = c.color or known[c.label].color
        if c.low is not None and c.high is not None and np.isfinite(c.low).all():
            axes.fill_between(c.steps, np.maximum(c.low, 1e-300), c.high, color=color, alpha=0.18, linewidth=0)
        shown, width = np.isfinite(c.loss), 1.1 if c.predicted else 1.5
        line: dict[str, Any] = {"color": color, "linestyle": c.dash, "linewidth": width}
        axes.plot(c.steps[shown], c.loss[shown], zorder=3 + c.predicted, **line)
    axes.set(xlabel="step", ylabel="training loss")


def losses_figure(
    curves: Sequence[LossCurve], title: str, *, loss_label: str = "training loss", ax: Any = None
) -> Figure:
    """Curves of one kind with a legend."""
    known = looks(c.label for c in curves)
    with style():
        place = canvas(5.4, 3.8, 1, ax)
        (axes,) = place.axes
        draw_losses(axes, curves)
        axes.legend(handles=[c.entry(known[c.label].color) for c in curves], loc="upper right")
        axes.set(ylabel=loss_label, title=title)
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
    """An expected loss with bias and variance, and one standard deviation of single networks."""
    low, high, title = None, None, label
    if deviation is not None:
        low, high = np.maximum(loss - deviation, 1e-3 * loss), loss + deviation
        title = f"{label}; band: one deviation of a single network"
    curves = [
        LossCurve("expected loss", steps, loss, low, high, color=look("mlp").color),
        LossCurve("bias: of the targets", steps, bias, color=look("glu").color, predicted=True),
        LossCurve("variance: of initial outputs", steps, variance, color=look("gqu").color, predicted=True),
    ]
    return losses_figure(curves, title, ax=ax)


def crossing_figure(curves: Sequence[LossCurve], step: float | None, loss: float | None, *, ax: Any = None) -> Figure:
    """Two expected losses and their crossing."""
    title = "no crossing"
    if step is not None:
        title = f"crossing at step {step:.1f}"
    with style():
        place = canvas(5.4, 3.8, 1, ax)
        losses_figure(curves, title, ax=place.axes)
        if step is not None and loss is not None:
            place.axes[0].plot([step], [loss], "o", color="#222222", markersize=5, zorder=6)
    return place.figure


@dataclass(frozen=True, eq=False)
class Cloud:
    """Runs of one kind, each an array of points (training loss, gap) in the order of training."""

    label: str
    runs: Sequence[Array]
    color: str = GRAY
    marker: str = "o"
    hollow: bool = False

    def look(self) -> dict[str, Any]:
        """The arguments of matplotlib for its points."""
        face = (self.color, "white")[self.hollow]
        return {"marker": self.marker, "markersize": 3.4, "markerfacecolor": face, "markeredgewidth": 0.7}


def draw_clouds(axes: Any, clouds: Sequence[Cloud], title: str) -> None:
    """Draw every run as a thin line with points, with a legend below; training proceeds from right to left."""
    axes.axhline(0.0, color=GRAY, linewidth=0.7, zorder=1)
    for cloud in clouds:
        for run in cloud.runs:
            axes.plot(run[:, 0], run[:, 1], color=cloud.color, linewidth=0.5, alpha=0.75, **cloud.look())
    axes.set(title=title, xlabel="training loss (nats)", ylabel="gap: test loss - training loss (nats)")
    ncols = 2 if any(len(cloud.label) > 8 for cloud in clouds) else 4
    entries = [handle(cloud.label, cloud.color, "", **cloud.look()) for cloud in clouds]
    theme.legend_below(axes, entries, ncols=ncols, handletextpad=0.4, columnspacing=1.4)


def clouds_figure(panels: Sequence[tuple[str, Sequence[Cloud]]], title: str, *, ax: Any = None) -> Figure:
    """A panel for each (title, clouds), three in a row, its legend below it."""
    rows = -(-len(panels) // 3)
    with style():
        place = canvas(4.0 * max(1.35, min(3, len(panels))), 0.5 + 4.2 * rows, len(panels), ax, rows=rows)
        for axes, (name, clouds) in zip(place.axes, panels, strict=True):
            draw_clouds(axes, clouds, name)
        if ax is None:
            place.title(title)
    return place.figure
