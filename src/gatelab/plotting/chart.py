"""A figure as JSON, from what its panels noted: a page draws it again and answers when a reader points at it.

Values are those that were drawn. Matplotlib is asked only for what it settles itself: limits and ticks, the places of
panels, and pictures of what has no outline worth keeping (level maps, surfaces).
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from colorsys import rgb_to_hls
from dataclasses import dataclass, field
from io import BytesIO
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpecBase
from matplotlib.ticker import FixedLocator
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from gatelab.plotting.panel import ColourBar, Entry, Mark, Notes, PanelFigure, Words
from gatelab.plotting.theme import style

DPI = 180
MOST = 2000
SCALES = ("linear", "log", "symlog")
MOST_CELLS = 4096
STOPS = 11
# What is kept of a pen; of lines and levels it is all.
LOOKS = {
    "points": ("colour", "alpha", "marker", "size", "hollow"),
    "band": ("colour", "alpha"),
    "bars": ("colour", "alpha"),
    "segments": ("colour", "alpha", "width"),
    "steps": ("colour", "alpha", "width"),
    "span": ("colour", "alpha", "width"),
    "area": ("colour", "alpha", "width"),
}
_MATH = {
    "\\times": "×",
    "\\to": "→",
    "\\infty": "∞",
    "\\cdot": "·",
    "\\lambda": "λ",
    "\\kappa": "κ",
    "\\mathbb{R}": "ℝ",
}
_UP = str.maketrans("0123456789+-−abcdmnpx", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻ᵃᵇᶜᵈᵐⁿᵖˣ")
_DOWN = str.maketrans("0123456789+-−", "₀₁₂₃₄₅₆₇₈₉₊₋₋")


def plain(text: str) -> str:
    """Text without matplotlib's mathematics.

    >>> plain("$x_1$"), plain("D = $1.4\\\\times10^{12}$"), plain("P → ∞")
    ('x₁', 'D = 1.4×10¹²', 'P → ∞')
    """

    def simple(formula: re.Match[str]) -> str:
        inner = re.sub(r"\\mathdefault\{([^}]*)\}", r"\1", formula[1])
        for name, sign in _MATH.items():
            inner = inner.replace(name, sign)
        inner = re.sub(r"\^\{([^}]*)\}|\^(.)", lambda m: (m[1] or m[2]).translate(_UP), inner)
        inner = re.sub(r"_\{([^}]*)\}|_(.)", lambda m: (m[1] or m[2]).translate(_DOWN), inner)
        return re.sub(r"[{}\\]", "", inner)

    return re.sub(r"\$([^$]*)\$", simple, text)


def numbers(values: ArrayLike, digits: int = 6) -> list[float | int | None]:
    """Six digits of each; None where there is no finite number.

    >>> numbers([1.0, 2 / 3, float("nan"), 1e-7])
    [1, 0.666667, None, 1e-07]
    """
    rounded: list[float | int | None] = []
    for value in np.asarray(values, float).ravel():
        if not np.isfinite(value):
            rounded.append(None)
            continue
        short = float(f"{value:.{digits}g}")
        rounded.append(int(short) if short.is_integer() and abs(short) < 1e15 else short)
    return rounded


def thin(values: NDArray[np.float64], most: int = MOST) -> NDArray[np.intp]:
    """Which points to keep of a long series: the least and the greatest of each of `most / 2` stretches.

    >>> thin(np.array([0.0, 9.0, 1.0, 2.0, -5.0, 3.0, 4.0, 4.0]), most=4).tolist()
    [0, 1, 4, 6]
    """
    if len(values) <= most:
        return np.arange(len(values))
    indices: set[int] = set()
    for stretch in np.array_split(np.arange(len(values)), most // 2):
        finite = np.where(np.isfinite(values[stretch]), values[stretch], 0.0)
        indices |= {int(stretch[finite.argmin()]), int(stretch[finite.argmax()])}
    return np.array(sorted(indices))


def chart_of(figure: Figure) -> dict[str, Any]:
    """The figure in JSON's own types; numbers have six digits, long series are thinned.

    Axes that no `Panel` drew on are pictures. What was drawn beside a panel's own methods is named in `left_out`, and
    what was thinned in `thinned`: a page says so.

    >>> from gatelab.plotting import Panel, Pen, new_figure
    >>> figure = new_figure(4, 3)
    >>> _ = Panel(figure.subplots()).line([1, 2, 4], [1, 0.25, 0.0625], Pen("#0072B2"))
    >>> chart = chart_of(figure)
    >>> chart["panels"][0]["series"][0]["y"], chart["left_out"]
    ([1, 0.25, 0.0625], [])
    """
    noted = figure
    if not isinstance(noted, PanelFigure):
        noted = PanelFigure()
    notes, bars, legend = noted.notes, noted.colour_bars, noted.entries
    with style():
        figure.draw_without_rendering()  # limits and the places of panels are settled by drawing
        beside = [bar.axes for bar in bars]
        axes = [one for one in figure.axes if one not in beside and one.get_visible()]
        remarks, places = Remarks(), _places(axes)
        groups = Groups(legend, [notes[one].entries for one in axes if one in notes])
        panels = [_panel(one, notes.get(one), groups, remarks) | place for one, place in zip(axes, places, strict=True)]
    title = figure.get_suptitle()
    for text in figure.texts:
        if text.get_text() != title:
            remarks.left_out.append(f"the figure: the text {text.get_text()!r}")
    return {
        "title": plain(title),
        "columns": max((p["column"] + p["across"] for p in panels), default=1),
        "panels": panels,
        "groups": groups.looks,
        "legend": groups.shown(legend),
        "bars": [_bar(bar, axes) for bar in bars],
        "left_out": remarks.left_out,
        "thinned": remarks.thinned,
    }


@dataclass
class Remarks:
    """What a page has to say of a chart, and of which panel."""

    where: str = ""
    left_out: list[str] = field(default_factory=list)
    thinned: list[str] = field(default_factory=list)


class Groups:
    """The distinct entries of all legends of a figure. An entry stands for every mark that looks like it.

    A unit has one entry for its line, its markers, its band and its limit, and one grey entry says what dashes mean in
    every colour. So a mark is matched by its colour first, then by dash and marker, and with a grey entry by dash and
    marker alone. An entry that looks the same and begins with the same word in two panels ("glu: slope -2.5",
    "glu: slope -2.6") is one group: a reader who hides a unit hides it in both.
    """

    def __init__(self, legend: Sequence[Entry], of_panels: Sequence[Sequence[Entry]]) -> None:
        self.looks: list[dict[str, Any]] = []
        self._legend = self.shown(legend)
        self._all = [entry for entries in of_panels for entry in self.shown(entries)]

    def shown(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """Group and text of each entry of one legend."""
        return [{"group": self._group(entry), "text": plain(entry.text)} for entry in entries]

    def assign(self, entries: Sequence[Entry], series: list[dict[str, Any]]) -> None:
        """Give each series the groups that it belongs to. A panel without a legend is read by those of the others."""
        known = sorted({entry["group"] for entry in [*self.shown(entries), *self._legend] or self._all})
        for one in series:
            one["groups"] = _matches(one, {group: self.looks[group] for group in known})
        for one in series:
            if "interval" in one:
                series[one["interval"]]["groups"] = one["groups"]
        for group in {group for one in series for group in one["groups"]}:
            self.looks[group]["used"] = True

    def _group(self, entry: Entry) -> int:
        look = entry.pen.for_page() | {"name": plain(entry.text).split(": ")[0], "used": False}
        for i, known in enumerate(self.looks):
            if all(known[key] == look[key] for key in ("name", "colour", "dash", "marker", "hollow")):
                return i
        self.looks.append(look)
        return len(self.looks) - 1


def _grey(colour: str) -> bool:
    return rgb_to_hls(*to_rgb(colour))[2] < 0.08


def _matches(one: dict[str, Any], known: dict[int, dict[str, Any]]) -> list[int]:
    """The groups of one series: the one of its colour, and the one that says what its dashes or markers mean."""
    same = [group for group, look in known.items() if look["colour"] == one["colour"]]
    if one["kind"] not in ("line", "level", "points"):
        return same if len(same) == 1 else []
    scores = {g: _score(one, known[g]) for g in same if not _grey(one["colour"]) or _score(one, known[g]) >= 2}
    own = sorted(scores, key=lambda group: -scores[group])[:1]
    if own and scores[own[0]] == 3:
        return own
    rest = {g: look for g, look in known.items() if g not in same and (_grey(look["colour"]) or not own)}
    return own + [group for group, look in rest.items() if _means(one, look)][:1]


def _score(one: dict[str, Any], look: dict[str, Any]) -> int:
    """How alike they look: dash, marker, filled or hollow. A line of markers has no dash of its own, and vice versa."""
    dash, mark = one.get("dash", "none"), one["marker"]
    return (
        (dash == look["dash"] or (dash == "none" and bool(mark)))
        + (mark == look["marker"] or (not mark and dash != "none"))
        + (one["hollow"] == look["hollow"] or not mark)
    )


def _means(one: dict[str, Any], look: dict[str, Any]) -> bool:
    """Whether an entry of another colour says what this line's dashes or these markers stand for."""
    dash = one.get("dash", "none")
    if look["dash"] not in ("none", "solid") and dash == look["dash"]:
        return True
    if not look["marker"] or not one["marker"] or dash != "none" or one["hollow"] != look["hollow"]:
        return False
    return look["hollow"] or look["marker"] == one["marker"]


def _panel(axes: Axes, notes: Notes | None, groups: Groups, remarks: Remarks) -> dict[str, Any]:
    title = plain(axes.get_title())
    if notes is None:
        return {"title": title, "legend": [], "picture": _picture(axes), "series": [], "maps": [], "texts": []}
    remarks.where = title or plain(axes.get_xlabel()) or "a panel without a title"
    drawn = {artist for mark in notes.marks for artist in mark.artists} | {words.artist for words in notes.words}
    beside = [one for one in _contents(axes) if one not in drawn]
    remarks.left_out += [f"{remarks.where}: {type(one).__name__}" for one in beside]
    series = _series(notes.marks, remarks)
    groups.assign(notes.entries, series)
    return {
        "title": title,
        "legend": groups.shown(notes.entries),
        "x": _axis(axes, "x", remarks),
        "y": _axis(axes, "y", remarks),
        "equal": axes.get_aspect() != "auto",
        "series": series,
        "maps": [_map(axes, mark) for mark in notes.marks if mark.kind in ("cells", "contours")],
        "texts": [_text(axes, words) for words in notes.words if words.text],
    }


def _contents(axes: Axes) -> list[Any]:
    return [*axes.lines, *axes.patches, *axes.collections, *axes.images, *axes.texts, *axes.tables, *axes.artists]


def _series(marks: Sequence[Mark], remarks: Remarks) -> list[dict[str, Any]]:
    """Every mark but the maps, from the hindmost to the foremost; a line has the place of its interval in the list."""
    shown = [mark for mark in marks if mark.kind not in ("cells", "contours") and len(mark.values.get("x", "x"))]
    shown.sort(key=lambda mark: mark.artists[0].get_zorder())
    series = [_one(mark, remarks) for mark in shown]
    for mark, one in zip(shown, series, strict=True):
        if mark.interval is not None and _places_of(series[shown.index(mark.interval)]) in (one["x"], one["y"]):
            one["interval"] = shown.index(mark.interval)
    return series


def _places_of(interval: dict[str, Any]) -> list[Any]:
    """Where an interval has its ends: a reader who points at a line is told those of the same place."""
    if interval["kind"] == "band":
        return interval["x"]
    return [end[0 if interval["along"] == "y" else 1] for end in interval["ends"]]


def _one(mark: Mark, remarks: Remarks) -> dict[str, Any]:
    look, values = mark.pen.for_page(), dict(mark.values)
    indices = None
    if mark.kind in ("line", "points"):
        indices = thin(values["y"])
        if len(indices) < len(values["y"]):
            parts = (remarks.where, plain(mark.label), f"{len(indices)} of {len(values['y'])} points")
            remarks.thinned.append(": ".join(filter(None, parts)))
    elif mark.kind == "band":
        indices = np.unique([*thin(values["low"]), *thin(values["high"])])
    if indices is not None:
        for name, column in values.items():
            if column is not None:
                values[name] = np.asarray(column)[indices]
    known = {name: look[name] for name in LOOKS.get(mark.kind, look)}
    return {"kind": mark.kind, "label": plain(mark.label), **known, **{k: _json(v) for k, v in values.items()}}


def _json(value: Any) -> Any:
    """Arrays of numbers with six digits, all else as it is.

    >>> _json(np.array([[1 / 3, 2.0]])), _json("x"), _json(0.5)
    ([[0.333333, 2]], 'x', 0.5)
    """
    if isinstance(value, float):
        return numbers([value])[0]
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind == "U":
        return value.tolist()
    if value.ndim == 2:
        return [numbers(row) for row in value]
    return numbers(value)


def _axis(axes: Axes, which: Literal["x", "y"], remarks: Remarks) -> dict[str, Any]:
    """Label, scale, limits, and ticks where the figure has chosen them itself; a page finds all others.

    Panels that share an axis have its label and its numbers at one of them. `shared` is that label, for a page that
    has to put the panels below each other; `bare` says that this one has no numbers.
    """
    axis = getattr(axes, f"{which}axis")
    limits = getattr(axes, f"get_{which}lim")()
    scale = axis.get_scale()
    if scale not in SCALES:
        remarks.left_out.append(f"{remarks.where}: {scale} scale")
    siblings = getattr(axes, f"get_shared_{which}_axes")().get_siblings(axes)
    labels = [getattr(panel, f"get_{which}label")() for panel in (axes, *siblings)]
    locator, ticks = axis.get_major_locator(), None
    if isinstance(locator, FixedLocator):
        places = [float(v) for v in locator() if min(limits) <= v <= max(limits)]
        ticks = {"at": numbers(places), "labels": [plain(t) for t in axis.get_major_formatter().format_ticks(places)]}
    values = {
        "label": plain(labels[0]),
        "shared": plain(next((label for label in labels if label), "")),
        "scale": scale,
        "limits": numbers(limits),
        "ticks": ticks,
        "bare": not axis.get_tick_params().get({"x": "labelbottom", "y": "labelleft"}[which], True),
        "grid": bool(axis.get_tick_params().get("gridOn", False)),
    }
    if scale == "symlog":
        values["threshold"] = axis.get_transform().linthresh
    return values


def _text(axes: Axes, words: Words) -> dict[str, Any]:
    """A text with its place as parts of the panel: 0 is its left and lower edge, 1 its right and upper one."""
    frames = {"data": axes.transData, "panel": axes.transAxes}
    pixels = [frames[within].transform(words.place)[i] for i, within in enumerate(words.within)]
    shift = np.array(words.shift) * axes.get_figure(root=True).dpi / 72  # type: ignore[union-attr]
    return {
        "text": plain(words.text),
        "at": numbers(axes.transAxes.inverted().transform(pixels + shift)),
        "across": words.across,
        "up": words.up,
        "colour": to_hex(words.colour),
    }


def _places(axes: list[Axes]) -> list[dict[str, Any]]:
    """Row and column of each panel, how many it takes, and its width over its height.

    Grids below each other, as those of subfigures are, become one with as many columns as all of them divide.
    """
    grids = _grids(axes)
    columns = math.lcm(*(grid.get_geometry()[1] for grid in grids))
    rows = list(accumulate((grid.get_geometry()[0] for grid in grids), initial=0))
    places = []
    for i, one in enumerate(axes):
        spec = one.get_subplotspec()
        place = {"row": i, "column": 0, "down": 1, "across": 1}
        if spec is not None and grids:
            order, wide = grids.index(spec.get_gridspec()), columns // spec.get_gridspec().get_geometry()[1]
            place = {
                "row": rows[order] + spec.rowspan.start,
                "column": wide * spec.colspan.start,
                "down": len(spec.rowspan),
                "across": wide * len(spec.colspan),
            }
        box = one.get_window_extent()
        places.append(place | {"aspect": round(float(box.width / box.height), 3)})
    return places


def _grids(axes: list[Axes]) -> list[GridSpecBase]:
    """The grids of the panels from top to bottom; none where a panel has none or grids stand beside each other."""
    boxes: dict[GridSpecBase, list[Bbox]] = {}
    for one in axes:
        spec = one.get_subplotspec()
        if spec is None:
            return []
        boxes.setdefault(spec.get_gridspec(), []).append(one.get_window_extent())
    spans = {grid: (min(b.y0 for b in parts), max(b.y1 for b in parts)) for grid, parts in boxes.items()}
    ordered = sorted(spans, key=lambda grid: -spans[grid][1])
    if any(spans[upper][0] < spans[lower][1] for upper, lower in pairwise(ordered)):
        return []
    return ordered


def _map(axes: Axes, mark: Mark) -> dict[str, Any]:
    """A picture within the panel, its `extent` (left, right, bottom, top).

    Cells have their values, row by row from the top, for a reader who points at one, unless there are more than 4096.
    """
    if mark.kind == "contours":
        drawn = _drawn(axes, mark.artists, axes.bbox)
        return {"png": drawn, "extent": numbers([*axes.get_xlim(), *axes.get_ylim()]), "values": None}
    cells = mark.values["cells"]
    values = None
    if cells.size <= MOST_CELLS:
        values = numbers(cells, 4)
    colours, extent = mark.artists[0].to_rgba(cells, bytes=True), numbers(mark.values["extent"])
    return {"png": _png(colours), "extent": extent, "shape": list(cells.shape), "values": values}


def _picture(axes: Axes) -> dict[str, Any]:
    """Axes that have no notes, such as those of a surface, as one picture with all but their title."""
    shown = axes.title.get_visible()
    axes.title.set_visible(False)
    try:
        box = axes.get_tightbbox()
        assert box is not None
        return {"png": _drawn(axes, [axes], box), "aspect": round(float(box.width / box.height), 3)}
    finally:
        axes.title.set_visible(shown)


def _bar(bar: ColourBar, axes: list[Axes]) -> dict[str, Any]:
    """A colour bar: its label, the values at its ends, colours between them, and the panels that it is for."""
    colours = bar.mark.artists[0].get_cmap()(np.linspace(0, 1, STOPS))
    return {
        "label": plain(bar.label),
        "limits": numbers(bar.mark.artists[0].get_clim()),
        "colours": [to_hex(colour) for colour in colours],
        "panels": [axes.index(one) for one in bar.panels],
    }


def _drawn(axes: Axes, artists: Sequence[Any], box: Bbox) -> str:
    """The artists alone on nothing, cut to the box (in pixels of the figure as it is)."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    before = figure.dpi
    scale = DPI / before
    try:
        figure.dpi = DPI
        width, height = (int(np.ceil(v * DPI)) for v in figure.get_size_inches())
        renderer = RendererAgg(width, height, DPI)
        for artist in artists:
            artist.draw(renderer)
        cells = np.asarray(renderer.buffer_rgba())
    finally:
        figure.dpi = before
    left, right = (round(v * scale) for v in (max(box.x0, 0), box.x1))
    low, high = (round(v * scale) for v in (max(box.y0, 0), box.y1))
    return _png(cells[max(height - high, 0) : height - low, left:right])


def _png(cells: np.ndarray) -> str:
    """A PNG as the address that holds it, of at most 256 colours: maps have no more."""
    image = Image.fromarray(np.ascontiguousarray(cells)).quantize(256, method=Image.Quantize.FASTOCTREE)
    file = BytesIO()
    image.save(file, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
