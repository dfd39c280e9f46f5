"""Small figures: what the table has, names that do not touch, few ticks."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from gatelab.plotting.cards import LINE, draw_card
from gatelab.plotting.facets import Facets, Overlay

TABLE = pd.DataFrame({"n": [1, 10, 100] * 3, "unit": np.repeat(["a", "b", "c"], 3), "error": [1, 0.1, 0.01] * 3})
TABLE["error"] *= np.repeat([1.0, 1.1, 1.2], 3)


def test_a_card_has_its_series_two_ticks_an_axis_and_names_that_do_not_touch() -> None:
    figure = draw_card(Facets("n", "error", "unit", xlog=True, ylog=True, lines=(Overlay("limit", "l"),)), {"t": TABLE})
    (axes,) = figure.axes
    series = [tuple(group["error"]) for _, group in TABLE.groupby("unit")]
    assert [tuple(np.asarray(line.get_ydata())) for line in axes.lines] == series
    assert [t.get_text() for t in axes.get_xticklabels()] == ["1", "100"] and len(axes.get_yticks()) == 2
    figure.draw_without_rendering()
    names = {text.get_text(): text.get_window_extent() for text in figure.texts if text.get_text() in "abc"}
    assert set(names) == {"a", "b", "c"} and not axes.get_legend()
    apart = [abs(p.y0 - q.y0) for p, q in combinations(names.values(), 2)]
    assert min(apart) >= 0.99 * LINE * figure.dpi / 72
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for box in names.values())


def test_an_axis_of_names_has_a_place_each_with_intervals_and_a_level() -> None:
    table = {"model": ["ViT", "Mixer"], "gap": [5.0, -5.0], "gap_low": [1.0, -9.0], "gap_high": [9.0, -1.0]}
    (axes,) = draw_card(Facets("model", "gap", levels={"none": 0.0}), {"t": pd.DataFrame(table)}).axes
    assert [t.get_text() for t in axes.get_xticklabels()] == ["ViT", "Mixer"] and axes.get_xlim() == (-0.5, 1.5)
    dots, level = axes.lines
    heights = [*np.ravel(dots.get_ydata()), *np.ravel(level.get_ydata())]
    assert dots.get_marker() == "o" and heights == [5.0, -5.0, 0.0, 0.0]
    assert len(axes.collections[0].get_paths()) == 2
