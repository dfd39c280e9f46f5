"""Error against size on logarithmic axes: curves, their limits, their slopes, and how the slopes change with size.

The loss against parameters and against data, with the law in both as lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.plotting.theme import GREY, Look, canvas, looks, style

Local = tuple[str, Array, Array]


@dataclass(frozen=True, eq=False)
class Curve:
    """One series of a log-log panel.

    `errors` and `fitted` are (sizes, seeds); NaN errors are not drawn, and `fitted` says which take part in the slope.
    `note` and `paper` stand in the legend: what was measured, and what the paper reports. `reference` holds sizes and
    errors of someone else's runs, drawn as crosses. `look` names the unit whose colour and marker the curve takes, its
    own label by default.
    """

    label: str
    sizes: Array
    errors: Array
    fitted: NDArray[np.bool_] | None = None
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
        remarks = [self.note]
        if self.paper:
            remarks.append(f"paper {self.paper}")
        text = ", ".join(filter(None, remarks))
        if not text:
            return self.label
        return f"{self.label}: {text.replace('-', '−')}"

    def handle(self, look: Look) -> Line2D:
        """What stands for it in a legend."""
        return Line2D([], [], color=look.colour, marker=look.marker, linestyle=self.line, label=self.legend)


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

    Args:
        panels: The label of the x-axis and the curves of each panel.
        title: A line above all panels.
        local: Name, sizes and slopes of each curve of local slopes.
        local_orders: The order that theory expects of each name, drawn as a dashed line.
        error_label: The label of the y-axis.
        ax: Axes of the caller's to draw into, one for each panel.

    Returns:
        The figure that holds the panels.
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
    handles = [c.handle(chosen[c.key]) for c in curves]
    if any(c.limit is not None and np.isfinite(c.limit).any() for c in curves):
        handles.append(Line2D([], [], color=GREY, linestyle="--", linewidth=0.8, label="free-knot limit"))
    if any(c.fitted is not None and not _best_fitted(c)[1].all() for c in curves):
        label = "left out of the slope"
        handles.append(Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="none", label=label))
    if any(c.reference is not None for c in curves):
        handles.append(Line2D([], [], color=GREY, marker="x", linestyle=":", linewidth=0.8, label="reference code"))
    _legend_below(panel, handles)
    _plain_sizes(panel)


def _draw_curve(panel: Axes, curve: Curve, look: Look, order: int) -> None:
    best, fitted = _best_fitted(curve)
    there = np.isfinite(best)
    sizes = np.asarray(curve.sizes, float)
    errors = np.asarray(curve.errors, float)
    if errors.shape[1] > 1 and there.any():
        worst = np.where(np.isfinite(errors[there]), errors[there], -np.inf).max(axis=1)
        panel.fill_between(sizes[there], best[there], worst, color=look.colour, alpha=0.18, linewidth=0)
    panel.plot(sizes[there], best[there], color=look.colour, linestyle=curve.line, label=curve.label)
    shown = np.zeros(len(sizes), bool)
    shown[_spaced(sizes, np.flatnonzero(there), order)] = True
    for which, face in ((shown & fitted, look.colour), (there & ~fitted, "white")):
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
    logs = np.log(sizes[of])
    wanted = np.linspace(logs[0], logs[-1], marks + 1)[:-1] + (logs[-1] - logs[0]) / marks * (order % 4) / 4
    return sorted({int(of[np.abs(logs - place).argmin()]) for place in wanted})


def _fit_to_errors(panel: Axes, curves: Sequence[Curve]) -> None:
    """The range of what was measured: limits of the smallest networks lie far above and would press it together."""
    parts = [np.asarray(c.errors, float).ravel() for c in curves] + [c.reference[1] for c in curves if c.reference]
    values = np.concatenate([*parts, np.empty(0)])
    values = values[np.isfinite(values) & (values > 0)]
    if len(values):
        panel.set_ylim(0.5 * values.min(), 2 * values.max())


def _best_fitted(curve: Curve) -> tuple[Array, NDArray[np.bool_]]:
    """The least error of each size, and whether any seed of that size takes part in the slope."""
    errors = np.asarray(curve.errors, float)
    best = np.where(np.isfinite(errors), errors, np.inf).min(axis=1)
    fitted = np.ones(len(best), bool)
    if curve.fitted is not None:
        fitted = np.asarray(curve.fitted, bool).any(axis=1)
    return np.where(np.isinf(best), np.nan, best), np.atleast_1d(fitted)


def draw_local_slopes(
    panel: Axes, local: Sequence[Local], orders: Mapping[str, int], appearance: Mapping[str, Look]
) -> None:
    """The slope about each size, with a dashed line for every order that theory expects."""
    panel.set_xscale("log")
    for order, (name, sizes, slopes) in enumerate(local):
        colour, marked = appearance[name].colour, _spaced(sizes, np.arange(len(sizes)), order)
        panel.plot(sizes, slopes, color=colour, linewidth=1.1)
        panel.plot(sizes[marked], slopes[marked], appearance[name].marker, color=colour, markersize=3)
    expected = sorted(set(orders.values()) or {2, 3, 4})
    for order in expected:
        panel.axhline(-order, color=GREY, linestyle="--", linewidth=0.8, zorder=1)
    # Local slopes of the smallest networks leap; the range is that of the orders, so that their approach can be seen.
    panel.set_ylim(-max(expected) - 1.7, 0.5)
    panel.set_xlabel("neurons n")
    panel.set_ylabel("local slope against n")
    handles = []
    for name, _, _ in local:
        label = f"{name}: order {orders[name]}" if name in orders else name
        handles.append(Line2D([], [], color=appearance[name].colour, marker=appearance[name].marker, label=label))
    handles.append(Line2D([], [], color=GREY, linestyle="--", linewidth=0.8, label="minus the order"))
    _legend_below(panel, handles)
    _plain_sizes(panel)


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


Predict = Callable[[Any, Any], Any]
Band = Callable[[Any, Any], tuple[Any, Any]]

AXES = {"P": "parameters P", "D": "data D"}
MANY = 10  # values that can have a line each
SOME = 5  # lines where there are more
MARKERS = "os^Dv<>PXh"


def law_figure(
    P: Array,
    D: Array,
    L: Array,
    predict: Predict,
    *,
    band: Band | None = None,
    floor: float = 0.0,
    title: str = "",
    captions: Sequence[str] = ("", "", "floor"),
    loss_label: str = "loss L",
    ax: Any = None,
) -> Figure:
    """L against P with a line for each D, and against D with a line for each P, on logarithmic axes.

    `predict(P, D)` is the law and `band(P, D)` its low and high end. A panel whose size does not change is left out.
    Up to ten values have a line and a marker each; of more, five are drawn and points are coloured in between. The
    dotted line is the law where the other size is without end, the dashed one the floor. `captions` stand above the
    panels for P and D and beside the floor.
    """
    columns = {"P": P, "D": D}
    axes = [name for name in columns if np.ptp(columns[name]) > 0]
    with style():
        entries = [min(len(np.unique(columns[name])), MANY) + 2 for name in columns]
        width, height = 3.9 * len(axes) + 0.6 * (len(axes) == 1), 3.6 + 0.1 * max(entries)
        place = canvas(width, height, len(axes), ax, sharey=True)
        panels = place.panels
        for panel, along in zip(panels, axes, strict=True):
            across, caption, flipped, bounds = "D", captions[0], predict, band
            if along == "D":
                across, caption, flipped = "P", captions[1], lambda x, z: predict(z, x)
                if band is not None:
                    bounds = lambda x, z: band(z, x)  # noqa: E731
            handles = _draw(panel, columns[along], columns[across], L, flipped, bounds, across)
            panel.set_title(caption)
            panel.set_xlabel(AXES[along])
            _sizes(panel)
            if floor > 0.5 * L.min():
                panel.axhline(floor, color=GREY, linestyle="--", linewidth=0.9, zorder=1)
                handles.append(Line2D([], [], color=GREY, linestyle="--", linewidth=0.9, label=captions[2]))
            _legend(panel, handles)
        panels[0].set_ylabel(loss_label)
        _losses(panels[0], L, floor if floor > 0.5 * L.min() else L.min())
        if title:
            place.title(title)
    return place.figure


def _draw(
    panel: Axes, x: Array, other: Array, L: Array, predict: Predict, band: Band | None, name: str
) -> list[Line2D]:
    """Points and lines of one panel, and what its legend says of them."""
    panel.set_xscale("log")
    panel.set_yscale("log")
    values = np.unique(other)
    each = len(values) <= MANY
    lines = values if each else np.geomspace(values[0], values[-1], SOME)
    along = np.geomspace(x.min() / 1.2, x.max() * 1.2, 200)
    handles = []
    for i, value in enumerate(lines):
        colour = _colour(value, values)
        marker = MARKERS[i] if each else "none"
        panel.plot(along, predict(along, value), color=colour, linewidth=1.2, zorder=2)
        if band is not None:
            panel.fill_between(along, *band(along, value), color=colour, alpha=0.15, linewidth=0)
        handles.append(Line2D([], [], color=colour, marker=marker, label=f"{name} = {size_text(value)}"))
    if each:
        for value, marker in zip(values, MARKERS, strict=False):
            here = other == value
            marks = {"color": _colour(value, values), "markeredgecolor": "white", "markeredgewidth": 0.4, "zorder": 3}
            panel.plot(x[here], L[here], marker, **marks)
    else:
        colours = [_colour(value, values) for value in other]
        panel.scatter(x, L, s=14, c=colours, edgecolors="white", linewidths=0.4, zorder=3)
    if len(values) > 1:
        panel.plot(along, predict(along, np.inf), color=GREY, linestyle=":", linewidth=1.1, zorder=1)
        handles.append(Line2D([], [], color=GREY, linestyle=":", linewidth=1.1, label=f"{name} → ∞"))
    return handles


def _colour(value: float, values: Array) -> Any:
    """From dark to light with the logarithm of the value; the palest part, which white would swallow, is not used."""
    low, high = np.log(values[0]), np.log(values[-1])
    return mpl.colormaps["viridis"](0.86 * (np.log(value) - low) / max(high - low, 1e-12))


def size_text(value: float) -> str:
    """A size as it is printed in a figure.

    >>> size_text(10_000), size_text(1e9), size_text(1.4e12)
    ('10000', '$10^{9}$', '$1.4\\\\times10^{12}$')
    """
    if 0.01 <= value < 1e5:
        return f"{float(f'{value:.4g}'):g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    power = f"10^{{{int(exponent)}}}"
    if float(mantissa) == 1:
        return f"${power}$"
    return f"${float(mantissa):g}\\times{power}$"


def _sizes(panel: Axes) -> None:
    low, high = panel.get_xlim()
    if high > 100 * low:
        decades = int(np.ceil(np.log10(high / low) / 6))
        panel.xaxis.set_major_locator(LogLocator(base=10.0**decades, numticks=12))
        return
    panel.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 3.0) if high > 10 * low else (1.0, 2.0, 5.0)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_text(value)))
    panel.xaxis.set_minor_formatter(NullFormatter())


def _losses(panel: Axes, L: Array, least: float) -> None:
    """The range of what was measured, with the floor; plain numbers, since losses seldom span a decade."""
    low, high = min(least, L.min()), L.max()
    margin = max((high / low) ** 0.06, 1.02)
    panel.set_ylim(low / margin, high * margin)
    if high > 30 * low:
        return
    panel.yaxis.set_major_locator(LogLocator(10, subs=(1, 1.5, 2, 3, 5, 7)))
    if high < 4 * low:
        panel.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_locator(NullLocator())


def _legend(panel: Axes, handles: Sequence[Line2D]) -> None:
    panel.legend(
        handles=list(handles),
        loc="upper center",
        bbox_to_anchor=(0.5, -0.15),
        borderaxespad=0.0,
        ncols=2 if len(handles) > 4 else 1,
        handlelength=2.4,
        columnspacing=1.5,
    )
