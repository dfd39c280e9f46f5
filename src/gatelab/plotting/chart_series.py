"""Lines, bands, points, bars and areas of a panel as plain values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection, PathCollection, PolyCollection
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.contour import ContourSet
from matplotlib.image import AxesImage
from matplotlib.lines import AxLine, Line2D
from matplotlib.patches import Patch, Rectangle, StepPatch
from numpy.typing import ArrayLike, NDArray

MOST = 2000
DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dashdot", "None": "none", "": "none", " ": "none"}
MARKERS = frozenset("os^v<>DdPXx+*h|_.")
CARETS = {4: "<", 5: ">", 6: "^", 7: "v"}
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


@dataclass
class Reading:
    """What a reading has to say of itself, and in which panel it is."""

    where: str = ""
    left_out: list[str] = field(default_factory=list)
    thinned: list[str] = field(default_factory=list)

    def leave(self, what: str) -> None:
        self.left_out.append(f"{self.where}: {what}")


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


def numbers(values: ArrayLike) -> list[float | int | None]:
    """Six digits of each; None where there is no finite number.

    >>> numbers([1.0, 2 / 3, float("nan"), 1e-7])
    [1, 0.666667, None, 1e-07]
    """
    rounded: list[float | int | None] = []
    for value in np.asarray(np.ma.filled(np.ma.asarray(values, float), np.nan), float).ravel():
        if not np.isfinite(value):
            rounded.append(None)
            continue
        short = float(f"{value:.6g}")
        rounded.append(int(short) if short.is_integer() and abs(short) < 1e15 else short)
    return rounded


def hexadecimal(colour: Any) -> str:
    """A colour as #rrggbb, its transparency apart.

    >>> hexadecimal((1, 0, 0, 0.2)), hexadecimal("black")
    ('#ff0000', '#000000')
    """
    return colors.to_hex(colour, keep_alpha=False)


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


def read_series(axes: Axes, reading: Reading) -> list[dict[str, Any]]:
    """Everything in the panel that has values, from the hindmost to the foremost."""
    in_bars = {patch: box for box in axes.containers if isinstance(box, BarContainer) for patch in box.patches}
    caps = {cap for box in axes.containers if isinstance(box, ErrorbarContainer) for cap in box.lines[1]}
    layers: list[tuple[float, dict[str, Any]]] = []
    for artist in axes.get_children():
        if not artist.get_visible() or artist in caps or artist in in_bars:
            continue
        if isinstance(artist, Line2D) and artist in axes.lines:
            read = _line(axes, artist, reading)
        elif isinstance(artist, Collection):
            read = _collection(axes, artist, reading)
        elif isinstance(artist, Patch) and artist in axes.patches:
            read = _patch(axes, artist)
        else:
            if artist in (*axes.tables, *axes.artists) or (artist in axes.images and not isinstance(artist, AxesImage)):
                reading.leave(type(artist).__name__)
            continue
        layers += [(artist.get_zorder(), one) for one in read]
    for box in dict.fromkeys(in_bars.values()):
        layers.append((box.patches[0].get_zorder(), _bars(box)))
    ordered = [one for _, one in sorted(layers, key=lambda pair: pair[0])]
    _tie(ordered)
    return ordered


def style_of(line: Line2D) -> dict[str, Any]:
    """How a line and its markers look."""
    marker: Any = line.get_marker()
    mark = str(CARETS.get(marker, marker))
    if mark in ("None", "none", " ") or (isinstance(marker, int) and marker not in CARETS):
        mark = ""
    face = line.get_markerfacecolor()
    return {
        "colour": hexadecimal(line.get_color()),
        "dash": DASHES.get(str(line.get_linestyle()), "dashed"),
        "width": round(float(line.get_linewidth()), 2),
        "alpha": _alpha(line.get_alpha()),
        "marker": mark,
        "size": round(float(line.get_markersize()), 2),
        "hollow": bool(mark) and (face == "none" or hexadecimal(face) == "#ffffff"),
    }


def _alpha(value: Any) -> float:
    return 1.0 if value is None else round(float(value), 3)


def _label(artist: Any) -> str:
    label = str(artist.get_label())
    if label.startswith("_"):
        return ""
    return plain(label)


def _line(axes: Axes, line: Line2D, reading: Reading) -> Iterator[dict[str, Any]]:
    look = {"label": _label(line), **style_of(line)}
    if look["marker"] and look["marker"] not in MARKERS:
        reading.leave(f"the marker {look['marker']!r}")
    across, up = line.get_transform().contains_branch_seperately(axes.transData)
    if isinstance(line, AxLine) or not (across or up) or line.get_drawstyle() != "default":
        reading.leave(f"the line {look['label'] or type(line).__name__}")
        return
    x, y = (np.ma.filled(np.ma.asarray(v, float), np.nan) for v in (line.get_xdata(False), line.get_ydata(False)))
    if not across or not up:
        axis, place = ("x", x[0]) if across else ("y", y[0])
        yield look | {"kind": "level", "axis": axis, "at": numbers([place])[0]}
    elif len(x):
        indices = _thinned(y, look["label"], reading)
        yield look | {"kind": "line", "x": numbers(x[indices]), "y": numbers(y[indices])}


def _thinned(y: NDArray[np.float64], label: str, reading: Reading) -> NDArray[np.intp]:
    indices = thin(y)
    if len(indices) < len(y):
        parts = (reading.where, label, f"{len(indices)} of {len(y)} points")
        reading.thinned.append(": ".join(filter(None, parts)))
    return indices


def _collection(axes: Axes, collection: Collection, reading: Reading) -> Iterator[dict[str, Any]]:
    if isinstance(collection, ContourSet):
        return  # a map: `chart_pictures` has it
    label = _label(collection)
    transform = collection.get_transform()
    own = all(transform.contains_branch_seperately(axes.transData)) and not np.any(collection.get_offsets())
    if isinstance(collection, LineCollection) and own:
        ends = [np.asarray(s)[[0, -1]].ravel() for s in collection.get_segments() if len(s)]
        look = {"label": label, "colour": _first(collection.get_edgecolor()), "alpha": _alpha(collection.get_alpha())}
        if ends:
            width = round(float(np.ravel(collection.get_linewidth())[0]), 2)
            yield look | {"kind": "segments", "width": width, "ends": [numbers(e) for e in ends]}
    elif isinstance(collection, PathCollection):
        places = np.ma.filled(np.ma.asarray(collection.get_offsets(), float), np.nan)
        indices = _thinned(places[:, 1], label, reading)
        faces = [hexadecimal(c) for c in collection.get_facecolor()]
        edges = [hexadecimal(c) for c in collection.get_edgecolor()]
        colours = None
        if len(set(faces)) > 1:
            colours = [faces[i % len(faces)] for i in indices]
        yield {
            "kind": "points",
            "label": label,
            "colour": [*faces, *edges][0],
            "colours": colours,
            "hollow": not faces,
            "marker": "o",
            "size": round(float(np.sqrt(np.mean(collection.get_sizes()))), 2),
            "alpha": _alpha(collection.get_alpha()),
            "x": numbers(places[indices, 0]),
            "y": numbers(places[indices, 1]),
        }
    elif isinstance(collection, PolyCollection) and own:
        look = {"label": label, "colour": _first(collection.get_facecolor()), "alpha": _alpha(collection.get_alpha())}
        for path in collection.get_paths():
            yield look | _band(np.asarray(path.vertices, float))
    else:
        reading.leave(type(collection).__name__)


def _first(rows: Any) -> str:
    return hexadecimal(rows[0]) if len(rows) else "#000000"


def _band(corners: NDArray[np.float64]) -> dict[str, Any]:
    """What `fill_between` drew: along the first edge, back along the second; any other outline is an area."""
    if len(corners) > 1 and np.array_equal(corners[0], corners[-1]):
        corners = corners[:-1]
    half = len(corners) // 2 - 1
    there, back = corners[1 : half + 1], corners[half + 2 :][::-1]
    if len(corners) % 2 or half < 1 or not np.array_equal(there[:, 0], back[:, 0]):
        return {"kind": "area", "x": numbers(corners[:, 0]), "y": numbers(corners[:, 1])}
    x, low, high = there[:, 0], np.minimum(there[:, 1], back[:, 1]), np.maximum(there[:, 1], back[:, 1])
    indices = np.unique([*thin(low), *thin(high)])
    return {"kind": "band", "x": numbers(x[indices]), "low": numbers(low[indices]), "high": numbers(high[indices])}


def _patch(axes: Axes, patch: Patch) -> Iterator[dict[str, Any]]:
    face, edge = colors.to_rgba(patch.get_facecolor()), colors.to_rgba(patch.get_edgecolor())
    filled = patch.get_fill() and face[3] > 0
    colour = face if filled else edge
    look = {
        "label": _label(patch),
        "colour": hexadecimal(colour),
        "alpha": round(float(colour[3]), 3),
        "fill": bool(filled),
        "width": round(float(patch.get_linewidth()), 2),
    }
    if isinstance(patch, StepPatch):
        values, edges, base = patch.get_data()
        low = 0.0 if base is None else float(np.ravel(base)[0])
        yield look | {"kind": "steps", "edges": numbers(edges), "y": numbers(values), "base": numbers([low])[0]}
        return
    across, up = patch.get_transform().contains_branch_seperately(axes.transData)
    if isinstance(patch, Rectangle) and across != up:
        axis, start, length = "y", patch.get_y(), patch.get_height()
        if across:
            axis, start, length = "x", patch.get_x(), patch.get_width()
        yield look | {"kind": "span", "axis": axis, "ends": numbers([start, start + length])}
        return
    drawn = patch.get_transform().transform_path(patch.get_path())
    for corners in drawn.to_polygons(closed_only=False):
        inside = axes.transData.inverted().transform(corners)
        yield look | {"kind": "area", "x": numbers(inside[:, 0]), "y": numbers(inside[:, 1])}


def _bars(box: BarContainer) -> dict[str, Any]:
    upright = box.orientation != "horizontal"
    boxes = [(p.get_x(), p.get_y(), p.get_width(), p.get_height()) for p in box.patches]
    return {
        "kind": "bars",
        "label": _label(box),
        "colour": hexadecimal(box.patches[0].get_facecolor()),
        "colours": [hexadecimal(p.get_facecolor()) for p in box.patches],
        "alpha": _alpha(box.patches[0].get_alpha()),
        "upright": upright,
        "boxes": [numbers(b) for b in boxes],
    }


def _tie(series: list[dict[str, Any]]) -> None:
    """Bands and strokes that are the interval of a line are named by it, so that a point can say its interval."""
    tied: set[int] = set()
    for line in (one for one in series if one["kind"] in ("line", "points")):
        for i, other in enumerate(series):
            if i in tied or other["colour"] != line["colour"] or other["kind"] not in ("band", "segments"):
                continue
            if _same_places(line, other):
                line["interval"] = i
                tied.add(i)
                break


def _same_places(line: dict[str, Any], other: dict[str, Any]) -> bool:
    if other["kind"] == "band":
        return len(line["x"]) > 1 and line["x"] == other["x"]
    ends: Iterable[list[Any]] = other["ends"]
    upright = all(e[0] == e[2] for e in ends) and line["x"] == [e[0] for e in ends]
    level = all(e[1] == e[3] for e in ends) and line["y"] == [e[1] for e in ends]
    other["along"] = ""
    if upright:
        other["along"] = "y"
    elif level:
        other["along"] = "x"
    return upright or level
