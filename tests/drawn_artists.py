"""What matplotlib's artists hold, read from them alone: the notes of a panel must say the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle, StepPatch

DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dashdot", "None": "none"}
CARETS = {6: "^", 7: "v", "None": "", "none": ""}


def assert_chart_is_what_is_drawn(figure: Figure, chart: dict[str, Any]) -> None:
    """Every artist of every panel is a series, a map or a text of the chart, with its values and its look."""
    bars = [bar.axes for bar in figure.colour_bars]  # pyright: ignore[reportAttributeAccessIssue]
    panels = [axes for axes in figure.axes if axes not in bars]
    assert len(chart["panels"]) == len(panels)
    for axes, panel in zip(panels, chart["panels"], strict=True):
        assert panel["title"] or not axes.get_title()
        if "picture" in panel:
            assert axes.name == "3d"
            continue
        drawn = [_values(axes, artist) for artist in _in_order(axes)]
        drawn = [values for values in drawn if values.get("x") is None or len(values["x"])]
        assert [s["kind"] for s in panel["series"]] == [values["kind"] for values in drawn]
        for series, values in zip(panel["series"], drawn, strict=True):
            _assert_alike(series, values)
        assert len(panel["maps"]) == len(axes.images) + sum(isinstance(c, ContourSet) for c in axes.collections) // 2
        for image, shown in zip(axes.images, panel["maps"], strict=bool(axes.images)):
            cells = np.asarray(image.get_array(), float)
            assert shown["shape"] == list(cells.shape)
            if cells.size <= 4096:
                assert shown["values"] == pytest.approx(cells.ravel(), rel=1e-3)
            assert tuple(shown["extent"]) == tuple(image.get_extent())
        texts = [text for text in axes.texts if text.get_text()]
        assert [one["text"] for one in panel["texts"]] == [text.get_text() for text in texts]
        for one, text in zip(panel["texts"], texts, strict=True):
            place = axes.transAxes.inverted().transform(text.get_transform().transform(text.get_position()))
            assert one["at"] == pytest.approx(list(place), abs=1e-4)
            assert one["colour"] == to_hex(text.get_color())
        legend = axes.get_legend()
        assert len(panel["legend"]) == (0 if legend is None else len(legend.get_texts()))


def _in_order(axes: Axes) -> list[Any]:
    artists = [a for a in axes.get_children() if a in (*axes.lines, *axes.collections, *axes.patches)]
    return sorted((a for a in artists if not isinstance(a, ContourSet)), key=lambda a: a.get_zorder())


def _values(axes: Axes, artist: Any) -> dict[str, Any]:
    across, up = artist.get_transform().contains_branch_seperately(axes.transData)
    if isinstance(artist, Line2D):
        x, y = (np.asarray(v, float) for v in artist.get_data())
        face: Any = artist.get_markerfacecolor()
        marker: Any = artist.get_marker()
        look = {
            "colour": to_hex(artist.get_color()),
            "dash": DASHES[str(artist.get_linestyle())],
            "width": artist.get_linewidth(),
            "marker": CARETS.get(marker, marker),
            "size": artist.get_markersize(),
            "alpha": artist.get_alpha(),
            "hollow": CARETS.get(marker, marker) != "" and (face == "none" or to_hex(face) == "#ffffff"),
        }
        if across and up:
            return {"kind": "line", "x": x, "y": y, **look}
        return {"kind": "level", "axis": "x" if across else "y", "at": (x if across else y)[0], **look}
    if isinstance(artist, LineCollection):
        look = {"colour": to_hex(artist.get_edgecolor()[0]), "width": artist.get_linewidth()[0]}  # pyright: ignore
        return {"kind": "segments", "ends": [np.ravel(s) for s in artist.get_segments()], **look}
    if isinstance(artist, PathCollection):
        places = np.asarray(artist.get_offsets(), float)
        return {"kind": "points", "x": places[:, 0], "y": places[:, 1], "size": artist.get_sizes()[0] ** 0.5}
    face = artist.get_facecolor()
    if isinstance(artist, PolyCollection):
        corners = np.asarray(artist.get_paths()[0].vertices, float)
        x = np.unique(corners[:, 0])
        ends = [corners[corners[:, 0] == place, 1] for place in x]
        low, high = ([f(e) for e in ends] for f in (np.min, np.max))
        return {"kind": "band", "x": x, "low": low, "high": high, "colour": to_hex(face[0]), "alpha": face[0][3]}
    if isinstance(artist, StepPatch):
        heights, edges, _ = artist.get_data()
        return {"kind": "steps", "y": heights, "edges": edges, "fill": artist.get_fill()}
    look = {"colour": to_hex(face), "alpha": face[3], "fill": True}
    if isinstance(artist, Rectangle):
        ends = [artist.get_y(), artist.get_y() + artist.get_height()]
        if across:
            ends = [artist.get_x(), artist.get_x() + artist.get_width()]
        return {"kind": "span", "axis": "x" if across else "y", "ends": ends, **look}
    corners = artist.get_xy()[:-1]
    return {"kind": "area", "x": corners[:, 0], "y": corners[:, 1], **look}


def _assert_alike(series: dict[str, Any], values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, (str, bool)):
            assert series[name] == value, (name, series)
        elif name in ("size", "width", "alpha"):
            assert series[name] == pytest.approx(float(value), abs=0.006), (name, series)
        else:
            exact = np.asarray(value, float)
            shown = np.asarray(series[name], float)
            if shown.size == 2000 < exact.size:  # thinned, which has a test of its own
                continue
            np.testing.assert_allclose(shown, np.where(np.isfinite(exact), exact, np.nan), rtol=1e-5, err_msg=name)
