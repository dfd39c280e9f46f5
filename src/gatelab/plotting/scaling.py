"""Error against size on logarithmic axes: curves, their limits, their slopes, and how the slopes change with size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from gatelab.plotting.style import GREY, Look, canvas, looks, style

Array = NDArray[np.float64]
Local = tuple[str, Array, Array]


@dataclass(frozen=True, eq=False)
class Curve:
    """One series of a log-log panel.

    `errors` and `kept` are (sizes, seeds); NaN errors are not drawn. `note` and `paper` stand in the legend: what was
    measured, and what the paper reports. `reference` holds sizes and errors of someone else's runs, drawn as crosses.
    `look` names the unit whose colour and marker the curve takes, its own label by default.
    """

    label: str
    sizes: Array
    errors: Array
    kept: NDArray[np.bool_] | None = None
    limit: Array | None = None
    note: str = ""
    paper: str | None = None
    reference: tuple[Array, Array] | None = None
    look: str = ""
    line: Literal["-", "--", "-.", ":"] = "-"

    @property
    def key(self) -> str:
        return self.look or self.label

    @property
    def legend(self) -> str:
        """The label with the note and the paper's value beside it.

        >>> Curve("glu", np.ones(1), np.ones((1, 1)), note="slope -2.6 [-2.7, -2.5]", paper="-3.08").legend
        'glu: slope −2.6 [−2.7, −2.5], paper −3.08'
        """
        said = ", ".join(part for part in (self.note, f"paper {self.paper}" if self.paper else "") if part)
        return f"{self.label}: {said.replace('-', '−')}" if said else self.label


def scaling_figure(
    panels: Sequence[tuple[str, Sequence[Curve]]],
    *,
    title: str = "",
    local: Sequence[Local] | None = None,
    local_orders: Mapping[str, int] | None = None,
    error_label: str = "test RMSE",
    ax: Any = None,
) -> Figure:
    """A log-log panel for each (axis label, curves), and a panel of local slopes if they are given.

    Points are the best of the seeds, bands reach from the least to the greatest. Hollow points take no part in the
    slope. Dashed thin lines are limits. Legends stand below their panels, where they cover nothing.
    """
    count = len(panels) + bool(local)
    names = [c.key for _, curves in panels for c in curves] + [name for name, _, _ in local or ()]
    appearance = looks(names)
    entries = max([len(curves) for _, curves in panels] + [len(local or ())])
    with style():
        place = canvas(3.6 * count, 3.1 + 0.18 * (entries + 3), count, ax)
        axes = place.panels
        for panel, (label, curves) in zip(axes, panels, strict=False):
            draw_curves(panel, curves, appearance)
            panel.set_xlabel(label)
            panel.set_ylabel(error_label)
        if local:
            draw_local_slopes(axes[-1], local, local_orders or {}, appearance)
        if title:
            place.title(title)
    return place.figure


def draw_curves(panel: Axes, curves: Sequence[Curve], appearance: Mapping[str, Look] | None = None) -> None:
    """The curves on one pair of log-log axes, with the legend below."""
    chosen = appearance or looks([c.key for c in curves])
    panel.set_xscale("log")
    panel.set_yscale("log")
    for order, curve in enumerate(curves):
        _draw_curve(panel, curve, chosen[curve.key], order)
    _fit_to_errors(panel, curves)
    handles = [_handle(c, chosen[c.key]) for c in curves]
    if any(c.limit is not None and np.isfinite(c.limit).any() for c in curves):
        handles.append(Line2D([], [], color=GREY, linestyle="--", linewidth=0.8, label="free-knot limit"))
    if any(c.kept is not None and not _best_kept(c)[1].all() for c in curves):
        label = "left out of the slope"
        handles.append(Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="none", label=label))
    if any(c.reference is not None for c in curves):
        handles.append(Line2D([], [], color=GREY, marker="x", linestyle=":", linewidth=0.8, label="reference code"))
    _legend_below(panel, handles)
    _plain_sizes(panel)


def _draw_curve(panel: Axes, curve: Curve, look: Look, order: int) -> None:
    best, kept = _best_kept(curve)
    there = np.isfinite(best)
    sizes = np.asarray(curve.sizes, float)
    errors = np.asarray(curve.errors, float)
    if errors.shape[1] > 1 and there.any():
        worst = np.where(np.isfinite(errors[there]), errors[there], -np.inf).max(axis=1)
        panel.fill_between(sizes[there], best[there], worst, color=look.colour, alpha=0.18, linewidth=0)
    panel.plot(sizes[there], best[there], color=look.colour, linestyle=curve.line, label=curve.label)
    shown = np.zeros(len(sizes), bool)
    shown[_spaced(sizes, np.flatnonzero(there), order)] = True
    for which, face in ((shown & kept, look.colour), (there & ~kept, "white")):
        marks = {"color": look.colour, "markerfacecolor": face, "markeredgewidth": 0.9, "zorder": 3}
        panel.plot(sizes[which], best[which], look.marker, **marks)
    if curve.limit is not None:
        panel.plot(sizes, curve.limit, color=look.colour, linestyle="--", linewidth=0.8, alpha=0.9)
    if curve.reference is not None:
        panel.plot(*curve.reference, color=look.colour, linestyle=":", linewidth=0.8, zorder=2)
        panel.plot(*curve.reference, "x", color=GREY, markersize=5, markeredgewidth=1.2, zorder=4)


def _spaced(sizes: Array, of: NDArray[np.intp], order: int, marks: int = 12) -> list[int]:
    """Which of the points get a marker: about `marks` of them, evenly along a logarithmic axis.

    Fifty markers on a line hide each other and the line. Where two curves coincide their markers must not, so each
    curve has them shifted by a part of the distance.
    """
    if len(of) <= marks:
        return [int(i) for i in of]
    at = np.log(sizes[of])
    wanted = np.linspace(at[0], at[-1], marks + 1)[:-1] + (at[-1] - at[0]) / marks * (order % 4) / 4
    return sorted({int(of[np.abs(at - place).argmin()]) for place in wanted})


def _fit_to_errors(panel: Axes, curves: Sequence[Curve]) -> None:
    """The range of what was measured: limits of the smallest networks lie far above and would press it together."""
    seen = [np.asarray(c.errors, float).ravel() for c in curves] + [c.reference[1] for c in curves if c.reference]
    values = np.concatenate(seen) if seen else np.empty(0)
    values = values[np.isfinite(values) & (values > 0)]
    if len(values):
        panel.set_ylim(0.5 * values.min(), 2 * values.max())


def _best_kept(curve: Curve) -> tuple[Array, NDArray[np.bool_]]:
    """The least error of each size, and whether any seed of that size takes part in the slope."""
    errors = np.asarray(curve.errors, float)
    best = np.where(np.isfinite(errors), errors, np.inf).min(axis=1)
    kept = np.ones(len(best), bool) if curve.kept is None else np.asarray(curve.kept, bool).any(axis=1)
    return np.where(np.isinf(best), np.nan, best), np.atleast_1d(kept)


def _handle(curve: Curve, look: Look) -> Line2D:
    return Line2D([], [], color=look.colour, marker=look.marker, linestyle=curve.line, label=curve.legend)


def draw_local_slopes(
    panel: Axes, local: Sequence[Local], orders: Mapping[str, int], appearance: Mapping[str, Look]
) -> None:
    """The slope about each size, with a dashed line for every order that theory expects."""
    panel.set_xscale("log")
    for order, (name, sizes, slopes) in enumerate(local):
        colour, at = appearance[name].colour, _spaced(sizes, np.arange(len(sizes)), order)
        panel.plot(sizes, slopes, color=colour, linewidth=1.1)
        panel.plot(sizes[at], slopes[at], appearance[name].marker, color=colour, markersize=3)
    expected = sorted(set(orders.values()) or {2, 3, 4})
    for order in expected:
        panel.axhline(-order, color=GREY, linestyle="--", linewidth=0.8, zorder=1)
    # Local slopes of the smallest networks leap; the range is that of the orders, so that their approach can be seen.
    panel.set_ylim(-max(expected) - 1.7, 0.5)
    panel.set_xlabel("neurons n")
    panel.set_ylabel("local slope against n")
    handles = [
        Line2D([], [], color=appearance[n].colour, marker=appearance[n].marker, label=_with_order(n, orders))
        for n, _, _ in local
    ]
    handles.append(Line2D([], [], color=GREY, linestyle="--", linewidth=0.8, label="minus the order"))
    _legend_below(panel, handles)
    _plain_sizes(panel)


def _with_order(name: str, orders: Mapping[str, int]) -> str:
    return f"{name}: order {orders[name]}" if name in orders else name


def _legend_below(panel: Axes, handles: Sequence[Line2D]) -> None:
    panel.legend(
        handles=list(handles), loc="upper center", bbox_to_anchor=(0.5, -0.16), borderaxespad=0.0, handlelength=2.4
    )


def _plain_sizes(panel: Axes) -> None:
    """Sizes as 1, 2, 5, 10, ... or 1, 3, 10, ...: powers of ten alone leave most panels with one or two ticks."""
    low, high = panel.get_xlim()
    steps = (1.0, 2.0, 5.0) if high < 300 * low else (1.0, 3.0)
    panel.xaxis.set_major_locator(LogLocator(base=10, subs=steps, numticks=12))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
