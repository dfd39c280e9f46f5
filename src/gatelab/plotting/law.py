"""The loss against parameters and against data, with the law in both as lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from gatelab.plotting.style import GREY, canvas, style

Array = NDArray[np.float64]
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
            across = "D" if along == "P" else "P"
            flipped = predict if along == "P" else lambda x, z: predict(z, x)
            bounds = band if band is None or along == "P" else lambda x, z: band(z, x)
            handles = _draw(panel, columns[along], columns[across], L, flipped, bounds, across)
            panel.set_title(captions[0 if along == "P" else 1])
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
    return f"${power}$" if float(mantissa) == 1 else f"${float(mantissa):g}\\times{power}$"


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
    locator = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]) if high < 4 * low else LogLocator(10, subs=(1, 1.5, 2, 3, 5, 7))
    panel.yaxis.set_major_locator(locator)
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
