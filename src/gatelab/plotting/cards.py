"""Small figures for the report's findings: two ticks per axis, and names at the ends of lines instead of legends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas.api.types import is_numeric_dtype

from gatelab.plotting.facets import Facets, Tables
from gatelab.plotting.theme import GRAY, looks, style

WIDTH, HEIGHT = 280, 136  # points, or pixels of the page
TOP, BOTTOM, LEFT, RIGHT = 18.0, 108.0, 38.0, 12.0
LETTER = 6.4  # the width of a letter, with a margin
SWATCH = 14.0  # the length of line before a name
LINE = 13.0  # the smallest distance between two names
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
DASHED = (0, (3, 2))
WORDS: dict[str, Any] = {"fontsize": 11, "color": GRAY}


def draw_card(facets: Facets, tables: Tables) -> Figure:
    """Draw facets of one panel as a small figure."""
    table = facets.rows_of(tables)
    names = list(dict.fromkeys(table[facets.x])) * (not is_numeric_dtype(table[facets.x]))
    with style():
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        axes = figure.add_axes((0, 0, 1, 1), zorder=2)
        axes.patch.set_visible(False)
        axes.grid(False)
        if facets.xlog:
            axes.set_xscale("log")
        if facets.ylog:
            axes.set_yscale("log")
        _draw_series(axes, facets, table, names)
        for level in list(facets.levels.values())[:1]:
            axes.axhline(level, color=GRAY, linewidth=1)
        lines = [(str(line.get_label()), line) for line in reversed(axes.lines)]
        named = {label: line for label, line in lines if label and not label.startswith("_")}
        right = WIDTH - RIGHT - max((LETTER * len(label) + SWATCH for label in named), default=0.0)
        axes.set_position((LEFT / WIDTH, 1 - BOTTOM / HEIGHT, (right - LEFT) / WIDTH, (BOTTOM - TOP) / HEIGHT))
        _ticks(axes, names)
        figure.text(2 / WIDTH, 1 - 11 / HEIGHT, facets.ylabel or facets.y, **WORDS)
        if not names:
            middle = (LEFT + right) / 2 / WIDTH
            figure.text(middle, 1 - (BOTTOM + 25) / HEIGHT, facets.xlabel or facets.x, ha="center", **WORDS)
        _names(figure, axes, named, right + 6)
    return figure


def _draw_series(axes: Any, facets: Facets, table: Any, names: Sequence[str]) -> None:
    """Series as lines, or as points with `facets.points` or names on the x axis; further columns are dashed."""
    shapes = looks(facets.name(value) for value, _ in facets.series(table))
    low, high = f"{facets.y}_low", f"{facets.y}_high"
    form: dict[str, Any] = {"linewidth": 1.9}
    if facets.points or names:
        form = {"linestyle": "none", "marker": "o", "markersize": 6}
    for value, rows in facets.series(table):
        name, x = facets.name(value), rows[facets.x]
        color = shapes[name].color
        if names:
            x = x.map(names.index)
        if low in rows and high in rows:
            axes.vlines(x, rows[low], rows[high], color=color, linewidth=2, alpha=0.6)
        axes.plot(x, rows[facets.y], color=color, label=name * bool(facets.hue), **form)
        for line in facets.lines:
            if line.y in rows:
                label = line.label * (not facets.hue)
                axes.plot(x, rows[line.y], color=color, linestyle=DASHED, linewidth=1.3, label=label)


def _ticks(axes: Any, names: Sequence[str]) -> None:
    """Ticks at the ends of the data or at the names on the x axis, and two values on the y axis."""
    low, high = axes.dataLim.intervalx
    places, margin = [float(low), float(high)], 0.0
    if names:
        places, margin = list(range(len(names))), 0.5
    if low < high or names:
        axes.set_xlim(places[0] - margin, places[-1] + margin)
    axes.margins(y=0.05)
    # One line per word, since names are side by side.
    lines = [name.replace(", ", "\n").replace(" ", "\n") for name in names]
    axes.set_xticks(places, lines or [short(place) for place in places])
    values = two(*axes.get_ylim(), log=axes.get_yscale() == "log")
    axes.set_yticks(values, [short(value) for value in values])
    axes.minorticks_off()
    axes.tick_params(length=0, pad=4, labelsize=11, labelcolor=GRAY)
    for side in ("left", "bottom"):
        axes.spines[side].set(color="#aaaaaa", linewidth=1)


def two(low: float, high: float, *, log: bool) -> list[float]:
    """The outermost round values in a range: powers of ten on a logarithmic axis if it has two, else round steps.

    >>> two(0.002, 30.0, log=True), two(1.4, 2.6, log=False)
    ([0.01, 10.0], [1.5, 2.5])
    """
    if log:
        powers = range(int(np.ceil(np.log10(low))), int(np.floor(np.log10(high))) + 1)
        if len(powers) > 1:
            return [10.0 ** powers[0], 10.0 ** powers[-1]]
    step = 10.0 ** np.floor(np.log10(high - low))
    for part in (1.0, 0.5, 0.2, 0.1):
        first, last = np.ceil(low / (part * step)), np.floor(high / (part * step))
        if last > first:
            return [float(first * part * step), float(last * part * step)]
    return [low]


def short(value: float) -> str:
    """A short tick label, such as 50, −20 or 10⁻⁶."""
    if value and not 1e-2 <= abs(value) < 1e5:
        power = int(np.floor(np.log10(abs(value)) + 1e-9))
        mantissa, ten = f"{value / 10.0**power:.1g}", f"10{str(power).translate(RAISED)}"
        return f"{mantissa}·{ten}".removeprefix("1·")
    return f"{value:g}".replace("-", "−")


def _names(figure: Figure, axes: Any, named: Mapping[str, Line2D], x: float) -> None:
    """Each name once, next to the end of its line, without overlaps."""
    height = {label: _end(axes, line) for label, line in named.items()}
    order = sorted(named, key=height.__getitem__)
    for label, y in zip(order, spread([height[label] for label in order], LINE, TOP, BOTTOM), strict=True):
        line, at = named[label], [1 - y / HEIGHT] * 2
        form = {name: getattr(line, f"get_{name}")() for name in ("color", "linewidth", "marker", "markersize")}
        dash: Any = DASHED if line.is_dashed() else line.get_linestyle()
        figure.add_artist(Line2D([x / WIDTH, (x + 10) / WIDTH], at, linestyle=dash, markevery=[0], **form))
        figure.text((x + SWATCH) / WIDTH, at[0], label, va="center_baseline", **WORDS)


def _end(axes: Any, line: Line2D) -> float:
    """The distance of the end of a line from the top, in points."""
    points = np.asarray(line.get_xydata())
    last = points[np.isfinite(points).all(axis=1)][-1]
    return float(HEIGHT * (1 - axes.transData.transform(last)[1] / axes.figure.bbox.height))


def spread(places: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Ascending places moved to be at least `least` apart, within the ends.

    >>> spread([10.0, 12.0, 50.0], 13.0, 0.0, 100.0), spread([95.0, 99.0], 13.0, 0.0, 100.0)
    ([10.0, 23.0, 50.0], [87.0, 100.0])
    """
    moved: list[float] = []
    for place in places:
        moved.append(max(place, low))
        low = moved[-1] + least
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], high)
        high = moved[i] - least
    return moved
