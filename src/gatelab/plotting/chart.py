"""A figure as plain values: what a page needs to draw it again and to answer when a reader points at it.

The values are read from matplotlib's artists, so every figure of the studies can be read, whichever function drew it.
This file reads figure, panels and axes; `chart_series` reads lines, bands, points and areas; `chart_pictures` turns
what has no outline worth keeping (maps, surfaces) into small pictures; `chart_legend` tells which entry stands for
which series.
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpecBase
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator
from matplotlib.transforms import Bbox

from gatelab.plotting.chart_legend import Groups
from gatelab.plotting.chart_pictures import colour_bars, maps, picture
from gatelab.plotting.chart_series import Reading, hexadecimal, numbers, plain, read_series
from gatelab.plotting.theme import style

SCALES = ("linear", "log", "symlog")


def chart_of(figure: Figure) -> dict[str, Any]:
    """The figure in JSON's own types; numbers have six digits, long series are thinned.

    What cannot be read is named in `left_out`, and what was thinned in `thinned`: a page says so.

    >>> figure = Figure()
    >>> _ = figure.subplots().plot([1, 2, 4], [1, 0.25, 0.0625], label="order 2")
    >>> read = chart_of(figure)
    >>> read["panels"][0]["series"][0]["y"], read["left_out"]
    ([1, 0.25, 0.0625], [])
    """
    with style():
        figure.draw_without_rendering()  # limits, colours of maps and places of texts are settled by drawing
        bars, beside = colour_bars(figure)
        axes = [one for one in figure.axes if one not in beside and one.get_visible()]
        groups, reading = Groups(figure, axes), Reading()
        places = _places(axes)
        panels = [_panel(one, groups, reading) | place for one, place in zip(axes, places, strict=True)]
        _beside(figure, reading)
    return {
        "title": plain(figure.get_suptitle()),
        "columns": max((p["column"] + p["across"] for p in panels), default=1),
        "panels": panels,
        "groups": groups.entries,
        "legend": groups.of_figure,
        "bars": bars,
        "left_out": reading.left_out,
        "thinned": reading.thinned,
    }


def _panel(axes: Axes, groups: Groups, reading: Reading) -> dict[str, Any]:
    title = plain(" ".join(filter(None, (axes.get_title(loc) for loc in ("left", "center", "right")))))
    values: dict[str, Any] = {"title": title, "legend": groups.of_panel(axes)}
    if axes.name != "rectilinear":
        return values | {"picture": picture(axes), "series": [], "maps": [], "texts": []}
    reading.where = title or plain(axes.get_xlabel()) or "a panel without a title"
    return values | {
        "x": _axis(axes, "x", reading),
        "y": _axis(axes, "y", reading),
        "equal": axes.get_aspect() != "auto",
        "series": groups.assign(axes, read_series(axes, reading)),
        "maps": maps(axes),
        "texts": _texts(axes, reading),
    }


def _axis(axes: Axes, which: Literal["x", "y"], reading: Reading) -> dict[str, Any]:
    """Label, scale, limits, and ticks where the figure has chosen them itself; a page finds all others.

    Panels that share an axis have its label and its numbers at one of them. `shared` is that label, for a page that
    has to put the panels below each other; `bare` says that this one has no numbers.
    """
    axis = getattr(axes, f"{which}axis")
    limits = getattr(axes, f"get_{which}lim")()
    scale = axis.get_scale()
    if scale not in SCALES:
        reading.leave(f"{scale} scale")
    siblings = getattr(axes, f"get_shared_{which}_axes")().get_siblings(axes)
    labels = [getattr(panel, f"get_{which}label")() for panel in (axes, *siblings)]
    locator, ticks = axis.get_major_locator(), None
    if isinstance(locator, FixedLocator):
        places = [float(v) for v in locator() if min(limits) <= v <= max(limits)]
        ticks = {"at": numbers(places), "labels": [plain(t) for t in axis.get_major_formatter().format_ticks(places)]}
    values: dict[str, Any] = {
        "label": plain(labels[0]),
        "shared": plain(next((label for label in labels if label), "")),
        "scale": scale,
        "limits": numbers(limits),
        "ticks": ticks,
        "bare": not axis.get_tick_params().get({"x": "labelbottom", "y": "labelleft"}[which], True),
        "grid": bool(axis.get_tick_params().get("gridOn", False)),
    }
    if scale == "symlog":
        values["threshold"] = numbers([getattr(axis.get_transform(), "linthresh", 1.0)])[0]
    return values


def _texts(axes: Axes, reading: Reading) -> list[dict[str, Any]]:
    """Texts with their places as parts of the panel: 0 is its left and lower edge, 1 its right and upper one."""
    texts = []
    for text in axes.texts:
        if not text.get_visible() or not text.get_text():
            continue
        if isinstance(text, Annotation) and text.arrow_patch is not None:
            reading.leave(f"the arrow of {text.get_text()!r}")
        place = axes.transAxes.inverted().transform(text.get_transform().transform(text.get_position()))
        texts.append(
            {
                "text": plain(text.get_text()),
                "at": numbers(place),
                "across": text.get_horizontalalignment(),
                "up": text.get_verticalalignment(),
                "colour": hexadecimal(text.get_color()),
            }
        )
    return texts


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


def _beside(figure: Figure, reading: Reading) -> None:
    """What stands outside all panels, other than the title and the legends, is not read."""
    reading.where = "the figure"
    title = figure.get_suptitle()
    for text in figure.texts:
        if text.get_text() and text.get_text() != title:
            reading.leave(f"the text {text.get_text()!r}")
    for kind, artists in (("an image", figure.images), ("a line", figure.lines), ("a patch", figure.patches)):
        for _ in artists:
            reading.leave(kind)
