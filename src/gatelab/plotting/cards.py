"""Small figures for the report's findings: two ticks per axis, and names at the ends of lines instead of legends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas.api.types import is_numeric_dtype

from gatelab.arrays import Array
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


@dataclass(frozen=True, eq=False)
class Stroke:
    """One series of a card; `ends` are the low and high ends of its intervals."""

    label: str
    x: Array
    y: Array
    color: str
    dash: Any = "-"
    ends: tuple[Array, Array] | None = None

    @property
    def look(self) -> dict[str, Any]:
        """Its line, or its points if it has no dash, as arguments of matplotlib."""
        width = 1.3 if self.dash == DASHED else 1.9
        line = {"color": self.color, "linestyle": self.dash or "none", "linewidth": width}
        return line | {"marker": "o" * (not self.dash), "markersize": 6}


def draw_card(facets: Facets, tables: Tables) -> Figure:
    """Draw facets of one panel as a small figure."""
    table = facets.rows_of(tables)
    names: list[str] = []
    if not is_numeric_dtype(table[facets.x]):
        names = list(dict.fromkeys(table[facets.x]))
    level = next(iter(facets.levels.values()), None)
    return _draw(list(_strokes(facets, table, names)), facets, names, level)


def _strokes(facets: Facets, table: Any, names: Sequence[str]) -> Iterator[Stroke]:
    shapes = looks(facets.name(value) for value, _ in facets.series(table))
    for value, rows in facets.series(table):
        name = facets.name(value)
        x, ends = rows[facets.x], None
        if names:
            x = x.map(names.index)
        low, high = f"{facets.y}_low", f"{facets.y}_high"
        if low in rows and high in rows:
            ends = (rows[low].to_numpy(), rows[high].to_numpy())
        columns: list[Any] = [(facets.y, "-" * (not facets.points and not names), facets.hue and name, ends)]
        columns += [(line.y, DASHED, line.label * (not facets.hue), None) for line in facets.lines if line.y in rows]
        for column, dash, label, own in columns:
            yield Stroke(label, x.to_numpy(float), rows[column].to_numpy(float), shapes[name].color, dash, own)


def _draw(strokes: Sequence[Stroke], axis: Any, names: Sequence[str], level: float | None) -> Figure:
    with style():
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        longest = max((LETTER * len(s.label) + SWATCH for s in strokes if s.label), default=0.0)
        right = WIDTH - RIGHT - longest
        axes = figure.add_axes(
            (LEFT / WIDTH, 1 - BOTTOM / HEIGHT, (right - LEFT) / WIDTH, (BOTTOM - TOP) / HEIGHT), zorder=2
        )
        axes.patch.set_visible(False)
        axes.grid(False)
        if axis.xlog:
            axes.set_xscale("log")
        if axis.ylog:
            axes.set_yscale("log")
        for stroke in strokes:
            _draw_stroke(axes, stroke)
        if level is not None:
            axes.axhline(level, color=GRAY, linewidth=1)
        _ticks(axes, strokes, names)
        figure.text(2 / WIDTH, 1 - 11 / HEIGHT, axis.ylabel or axis.y, **WORDS)
        if not names:
            middle = (LEFT + right) / 2 / WIDTH
            figure.text(middle, 1 - (BOTTOM + 25) / HEIGHT, axis.xlabel or axis.x, ha="center", **WORDS)
        _names(figure, axes, strokes, right + 6)
    return figure


def _draw_stroke(axes: Any, stroke: Stroke) -> None:
    if stroke.ends is not None:
        axes.vlines(stroke.x, *stroke.ends, color=stroke.color, linewidth=2, alpha=0.6)
    axes.plot(stroke.x, stroke.y, **stroke.look)


def _ticks(axes: Any, strokes: Sequence[Stroke], names: Sequence[str]) -> None:
    """Ticks at the ends of the data or at the names on the x axis, and two values on the y axis."""
    xs = np.concatenate([stroke.x[np.isfinite(stroke.x)] for stroke in strokes])
    places, margin = [xs.min(), xs.max()], 0.0
    if names:
        places, margin = list(range(len(names))), 0.5
    if xs.min() < xs.max() or names:
        axes.set_xlim(places[0] - margin, places[-1] + margin)
    axes.margins(y=0.05)
    axes.minorticks_off()
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
    """A short tick label.

    >>> short(50.0), short(0.25), short(1e-6), short(-20.0)
    ('50', '0.25', '10⁻⁶', '−20')
    """
    if value and not 1e-2 <= abs(value) < 1e5:
        power = int(np.floor(np.log10(abs(value)) + 1e-9))
        mantissa, ten = f"{value / 10.0**power:.1g}", f"10{str(power).translate(RAISED)}"
        return f"{mantissa}·{ten}".removeprefix("1·")
    return f"{value:g}".replace("-", "−")


def _names(figure: Figure, axes: Any, strokes: Sequence[Stroke], x: float) -> None:
    """Each name once, next to the end of its line, without overlaps."""
    named = {stroke.label: stroke for stroke in reversed(strokes) if stroke.label}
    height = {label: float(_end(axes, stroke)) for label, stroke in named.items()}
    order = sorted(named, key=height.__getitem__)
    for label, y in zip(order, spread([height[label] for label in order], LINE, TOP, BOTTOM), strict=True):
        stroke, at = named[label], [1 - y / HEIGHT] * 2
        figure.add_artist(Line2D([x / WIDTH, (x + 10) / WIDTH], at, markevery=[0], **stroke.look))
        figure.text((x + SWATCH) / WIDTH, at[0], label, va="center_baseline", **WORDS)


def _end(axes: Any, stroke: Stroke) -> float:
    """The distance of the end of a series from the top, in points."""
    last = np.flatnonzero(np.isfinite(stroke.y))[-1]
    place = axes.transData.transform((stroke.x[last], stroke.y[last]))
    return HEIGHT * (1 - place[1] / axes.figure.bbox.height)


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
