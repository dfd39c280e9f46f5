"""Errors and losses against size on logarithmic axes: curves with limits and slopes, laws in P and D, ladders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.display import shorten
from gatelab.plotting.theme import GRAY, Look, canvas, handle, legend_below, log_ticks, looks, size_text, style

Local = tuple[str, Array, Array]
HOLLOW: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 0.9}


@dataclass(frozen=True, eq=False)
class Curve:
    """One series of a log-log panel.

    `errors` and `fitted` are (sizes, seeds); NaN errors are not drawn, and points that are not `fitted` are hollow.
    `note` and the paper's value are in the legend. `reference` holds sizes and errors of other code.
    """

    label: str
    sizes: Array
    errors: Array
    fitted: NDArray[np.bool_] | None = None
    limit: Array | None = None
    note: str = ""
    paper: str | None = None
    reference: tuple[Array, Array] | None = None


def scaling_figure(
    panels: Sequence[tuple[str, Sequence[Curve]]],
    *,
    title: str = "",
    local: Sequence[Local] | None = None,
    local_orders: Mapping[str, int] | None = None,
    ax: Any = None,
) -> Figure:
    """A log-log panel for each (axis label, curves), and a panel of local slopes if they are given.

    Points are the best over seeds, and bands the range over seeds. Hollow points are not part of the slope. Thin dashed
    lines are limits. Legends are below their panels.

    Args:
        panels: The label of the x-axis and the curves of each panel.
        title: A line above all panels.
        local: Name, sizes and slopes of each curve of local slopes.
        local_orders: The theoretical order of each name, drawn as a dashed line.
        ax: Axes to draw into, one per panel.

    Returns:
        The figure that holds the panels.
    """
    count = len(panels) + bool(local)
    names = [c.label for _, curves in panels for c in curves] + [name for name, _, _ in local or ()]
    appearance = looks(names)
    entries = max([len(curves) for _, curves in panels] + [len(local or ())])
    with style():
        place = canvas(3.6 * count, 3.1 + 0.18 * (entries + 3), count, ax)
        for axes, (label, curves) in zip(place.axes, panels, strict=False):
            draw_curves(axes, curves, appearance)
            axes.set(xlabel=label, ylabel="test RMSE")
        if local:
            draw_local_slopes(place.axes[-1], local, local_orders or {}, appearance)
        if title:
            place.title(title)
    return place.figure


def draw_curves(axes: Any, curves: Sequence[Curve], appearance: Mapping[str, Look]) -> None:
    """The curves on one pair of log-log axes, with the legend below."""
    axes.set(xscale="log", yscale="log")
    entries = []
    for order, curve in enumerate(curves):
        look = appearance[curve.label]
        _draw_curve(axes, curve, look, order)
        remarks = ", ".join(filter(None, (curve.note, curve.paper and f"paper {curve.paper}"))).replace("-", "−")
        entries.append(handle(": ".join(filter(None, (curve.label, remarks))), look.color, marker=look.marker))
    _fit_to_errors(axes, curves)
    if any(c.limit is not None and np.isfinite(c.limit).any() for c in curves):
        entries.append(handle("free-knot limit", GRAY, "--", linewidth=0.8))
    if any(c.fitted is not None and not _best_fitted(c)[1].all() for c in curves):
        entries.append(handle("left out of the slope", GRAY, "", **HOLLOW, marker="o"))
    if any(c.reference is not None for c in curves):
        entries.append(handle("the paper's code", GRAY, ":", linewidth=0.8, marker="x"))
    legend_below(axes, entries, handlelength=2.4)
    log_ticks(axes.xaxis)


def _draw_curve(axes: Any, curve: Curve, look: Look, order: int) -> None:
    best, fitted = _best_fitted(curve)
    there = np.isfinite(best)
    sizes = np.asarray(curve.sizes, float)
    errors = np.asarray(curve.errors, float)
    if errors.shape[1] > 1 and there.any():
        worst = np.where(np.isfinite(errors[there]), errors[there], -np.inf).max(axis=1)
        axes.fill_between(sizes[there], best[there], worst, color=look.color, alpha=0.18, linewidth=0)
    axes.plot(sizes[there], best[there], color=look.color, label=curve.label)
    shown = np.zeros(len(sizes), bool)
    shown[_spaced(sizes, np.flatnonzero(there), order)] = True
    for which, hollow in ((shown & fitted, {}), (there & ~fitted, HOLLOW)):
        axes.plot(sizes[which], best[which], look.marker, color=look.color, zorder=3, **hollow)
    if curve.limit is not None:
        axes.plot(sizes, curve.limit, "--", color=look.color, linewidth=0.8, alpha=0.9)
    if curve.reference is not None:
        axes.plot(*curve.reference, ":", color=look.color, linewidth=0.8)
        axes.plot(*curve.reference, "x", color=GRAY, markersize=5, markeredgewidth=1.2, zorder=4)


def _spaced(sizes: Array, of: NDArray[np.intp], order: int, marks: int = 12) -> list[int]:
    """About `marks` of the points, evenly along a logarithmic axis, shifted from curve to curve."""
    if len(of) <= marks:
        return [int(i) for i in of]
    logs = np.log(sizes[of])
    wanted = np.linspace(logs[0], logs[-1], marks + 1)[:-1] + (logs[-1] - logs[0]) / marks * (order % 4) / 4
    return sorted({int(of[np.abs(logs - place).argmin()]) for place in wanted})


def _fit_to_errors(axes: Any, curves: Sequence[Curve]) -> None:
    """Set the y range to that of the errors, without the limits of small networks, which are far above."""
    parts = [np.asarray(c.errors, float).ravel() for c in curves]
    parts += [c.reference[1] for c in curves if c.reference is not None]
    values = np.concatenate([*parts, np.empty(0)])
    values = values[np.isfinite(values) & (values > 0)]
    if len(values):
        axes.set(ylim=(0.5 * values.min(), 2 * values.max()))


def _best_fitted(curve: Curve) -> tuple[Array, NDArray[np.bool_]]:
    """The smallest error of each size, and whether any seed of that size is part of the slope."""
    errors = np.asarray(curve.errors, float)
    best = np.where(np.isfinite(errors), errors, np.inf).min(axis=1)
    fitted = np.ones(len(best), bool)
    if curve.fitted is not None:
        fitted = np.asarray(curve.fitted, bool).any(axis=1)
    return np.where(np.isinf(best), np.nan, best), np.atleast_1d(fitted)


def draw_local_slopes(
    axes: Any, local: Sequence[Local], orders: Mapping[str, int], appearance: Mapping[str, Look]
) -> None:
    """Local slopes, with a dashed line for every theoretical order."""
    axes.set(xscale="log")
    for order, (name, sizes, slopes) in enumerate(local):
        color, marked = appearance[name].color, _spaced(sizes, np.arange(len(sizes)), order)
        axes.plot(sizes, slopes, color=color, linewidth=1.1)
        axes.plot(sizes[marked], slopes[marked], appearance[name].marker, color=color, markersize=3)
    expected = sorted(set(orders.values()) or {2, 3, 4})
    for order in expected:
        axes.axhline(-order, color=GRAY, linestyle="--", linewidth=0.8, zorder=1)
    # The range is that of the orders, since local slopes of the smallest networks vary widely.
    axes.set(ylim=(-max(expected) - 1.7, 0.5), xlabel="neurons n", ylabel="local slope against n")
    entries = []
    for name, _, _ in local:
        label = f"{name}: order {orders[name]}" if name in orders else name
        entries.append(handle(label, appearance[name].color, marker=appearance[name].marker))
    entries.append(handle("minus the order", GRAY, "--", linewidth=0.8))
    legend_below(axes, entries, handlelength=2.4)
    log_ticks(axes.xaxis)


Predict = Callable[[Any, Any], Any]
Band = Callable[[Any, Any], tuple[Any, Any]]

AXES = {"P": "parameters P", "D": "data D"}
MANY = 10  # the largest number of values with one line each
SOME = 5  # lines if there are more values
MARKERS = "os^Dv<>PXh"


def law_figure(
    P: Array,
    D: Array,
    L: Array,
    predict: Predict,
    *,
    band: Band | None,
    floor: float,
    title: str,
    captions: Sequence[str],
    ax: Any = None,
) -> Figure:
    """L against P with a line for each D, and against D with a line for each P, on logarithmic axes.

    `predict(P, D)` is the law and `band(P, D)` its interval. A panel whose size does not vary is left out. The dotted
    line is the law at infinite other size, the dashed line the floor. `captions` are the titles of the panels for P and
    D and the label of the floor.
    """
    columns = {"P": P, "D": D}
    names = [name for name in columns if np.ptp(columns[name]) > 0]
    with style():
        lines = [min(len(np.unique(columns[name])), MANY) + 2 for name in columns]
        width, height = 3.9 * len(names) + 0.6 * (len(names) == 1), 3.6 + 0.1 * max(lines)
        place = canvas(width, height, len(names), ax, sharey=True)
        for axes, along in zip(place.axes, names, strict=True):
            across, caption = {"P": ("D", captions[0]), "D": ("P", captions[1])}[along]
            functions = (predict, band)
            if along == "D":
                functions = (_swapped(predict), band and _swapped(band))
            entries = _draw(axes, columns[along], columns[across], L, *functions, across)
            axes.set(title=caption, xlabel=AXES[along])
            log_ticks(axes.xaxis)
            if floor > 0.5 * L.min():
                axes.axhline(floor, color=GRAY, linestyle="--", linewidth=0.9, zorder=1)
                entries.append(handle(captions[2], GRAY, "--", linewidth=0.9))
            ncols = 1 + (len(entries) > 4)
            legend_below(axes, entries, distance=0.15, ncols=ncols, handlelength=2.4, columnspacing=1.5)
        place.axes[0].set(ylabel="loss L")
        _losses(place.axes[0], L, floor if floor > 0.5 * L.min() else L.min())
        place.title(title)
    return place.figure


def _swapped(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, z: function(z, x)


def _draw(axes: Any, x: Array, other: Array, L: Array, predict: Predict, band: Band | None, name: str) -> list[Line2D]:
    """Draw points and lines of one panel, and return the entries of its legend."""
    axes.set(xscale="log", yscale="log")
    values = np.unique(other)
    lines, markers = values, MARKERS
    if len(values) > MANY:
        lines, markers = np.geomspace(values[0], values[-1], SOME), ""
    along = np.geomspace(x.min() / 1.2, x.max() * 1.2, 200)
    entries = []
    for i, value in enumerate(lines):
        color = _color(value, values)
        if band is not None:
            axes.fill_between(along, *band(along, value), color=color, alpha=0.15, linewidth=0)
        axes.plot(along, predict(along, value), color=color, linewidth=1.2)
        entries.append(handle(f"{name} = {size_text(value)}", color, marker=markers[i : i + 1]))
    white: Any = {"edgecolors": "white", "linewidths": 0.4, "zorder": 3}
    for value, marker in zip(values, markers, strict=False):
        here = other == value
        axes.scatter(x[here], L[here], 16, color=_color(value, values), marker=marker, **white)
    if not markers:
        axes.scatter(x, L, 14, c=[_color(value, values) for value in other], **white)
    if len(values) > 1:
        axes.plot(along, predict(along, np.inf), ":", color=GRAY, linewidth=1.1, zorder=1)
        entries.append(handle(f"{name} → ∞", GRAY, ":", linewidth=1.1))
    return entries


def _color(value: float, values: Array) -> Any:
    """A color from dark to light by the logarithm of the value, without the palest ones."""
    low, high = np.log(values[0]), np.log(values[-1])
    return mpl.colormaps["viridis"](0.86 * (np.log(value) - low) / max(high - low, 1e-12))


def _losses(axes: Any, L: Array, least: float) -> None:
    """Set the y range to that of the losses and the floor."""
    low, high = min(least, L.min()), L.max()
    margin = max((high / low) ** 0.06, 1.02)
    axes.set(ylim=(low / margin, high * margin))
    log_ticks(axes.yaxis)


def ladder_figure(
    means: Mapping[str, tuple[Array, Array]],
    law: Callable[[str, Array], Array] | None,
    *,
    loss_label: str,
    title: str,
    ax: Any = None,
) -> Figure:
    """Losses of a ladder against parameters, and the law of the loss of a unit as a function of size.

    `means` has the sizes of each unit and its losses there in three rows: values with their low and high ends.
    """
    appearance = looks(list(means))
    sizes = np.concatenate([own for own, _ in means.values()])
    along = np.geomspace(sizes.min() / 1.15, sizes.max() * 1.15, 200)
    with style():
        place = canvas(5.4, 4.2, 1, ax)
        (axes,) = place.axes
        axes.set(xscale="log", yscale="log", xlabel="parameters", ylabel=loss_label)
        for unit, (own, values) in means.items():
            look = appearance[unit]
            if law is not None:
                axes.plot(along, law(unit, along), color=look.color, linewidth=1.0)
            axes.vlines(own, values[1], values[2], color=look.color, linewidth=1.2)
            axes.plot(own, values[0], look.marker, color=look.color, markeredgewidth=0.9, zorder=3)
        entries = [handle(shorten(unit), look.color, marker=look.marker) for unit, look in appearance.items()]
        losses = np.concatenate([values[0] for _, values in means.values()])
        _losses(axes, losses, losses.min())
        log_ticks(axes.xaxis)
        place.legend(entries, ncols=min(len(entries), 5))
        place.title(title)
    return place.figure
