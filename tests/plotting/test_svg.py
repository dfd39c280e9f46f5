"""SVG of figures: text is text, many marks are an image, colors follow the page, boxes cut a figure into panels."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from gatelab.plotting import new_figure, style
from gatelab.plotting.facets import Facets, draw_figure
from gatelab.plotting.svg import MOST_BYTES, svg_text, themed


def written(figure: Figure) -> str:
    with style():
        return svg_text(figure)


def small(count: int = 3, columns: int = 1) -> Figure:
    with style():
        figure = new_figure(3 * columns, 3)
        panels, labels = figure.subplots(1, columns, squeeze=False)[0], ("neurons n", "parameters P")
        for axes, label in zip(panels, labels, strict=False):
            axes.plot(np.arange(count), np.random.default_rng(0).random(count), "o", color="#5D3A9B", label="points")
            axes.set(xlabel=label, ylabel="$10^{-3}$ & <b>", title="a title")
        figure.legend(handles=figure.axes[0].lines, loc="outside lower center")
    return figure


def test_text_is_text_and_formulas_flow_in_any_font() -> None:
    text = written(small())
    assert ">neurons n</text>" in text and ">a title</text>" in text
    formula = re.search(r"<tspan[^>]*>10</tspan>(<tspan[^>]*>)−3</tspan>", text)
    assert formula is not None and " x=" not in formula[1]
    assert "<image" not in text and ElementTree.fromstring(text).get("aria-label", "").endswith("against neurons n")


def test_many_marks_are_an_image_and_no_figure_is_large() -> None:
    text = written(small(100_000))
    assert "<image" in text and len(text) < MOST_BYTES and ">neurons n</text>" in text


@pytest.mark.parametrize("sparse", [True, False])
def test_a_dark_theme_inverts_sparse_marks_and_no_maps(sparse: bool) -> None:
    with style():
        figure = new_figure(3, 3)
        axes = figure.subplots()
        if sparse:
            axes.plot(np.arange(5000), np.arange(5000), "o")
        else:
            axes.pcolormesh(np.eye(4))
    text = written(figure)
    assert "<image" in text and ("filter: var(--marks, none)" in themed(text, "mine")) is sparse


def test_a_page_has_the_colors_of_its_theme_and_ids_of_its_own() -> None:
    text = themed(written(small()), "mine")
    assert "fill: var(--surface, #ffffff)" in text and "stroke: var(--rule, #e4e4e4)" in text
    assert "stroke: var(--c5d3a9b, #5d3a9b)" in text
    ids = set(re.findall(r' id="([^"]+)"', text))
    assert all(name.startswith("mine-") for name in ids)
    assert set(re.findall(r"#(mine-[\w-]+)", text)) <= ids


def test_nothing_of_a_file_can_run_or_ask() -> None:
    inside = '<script>b()</script><foreignObject/><g onclick="c()"/>'
    text = f'<svg xmlns="http://www.w3.org/2000/svg" onload="a()">{inside}</svg>'
    assert themed(text, "x") == '<svg role="img"><style /><g id="x-all"><g /></g></svg>'
    link = 'xmlns:xlink="http://www.w3.org/1999/xlink" xlink:href="https://a.b/c.png"'
    assert "a.b" not in themed(f'<svg xmlns="http://www.w3.org/2000/svg"><image {link}/></svg>', "x")


def test_boxes_are_columns_with_their_sizes_and_legends() -> None:
    root = ElementTree.fromstring(written(small(columns=2)))
    left, right, legend = json.loads(root.get("data-views", ""))
    assert (left[4], right[4], legend[4]) == ("n", "P", "")
    assert left[0] + left[2] <= right[0] + 12 and legend[1] > left[1] + left[3] - 12
    for other in (Figure(), small()):  # nothing to choose from
        assert json.loads(ElementTree.fromstring(written(other)).get("data-views", "")) == []


def test_parts_side_by_side_keep_their_legends() -> None:
    table = pd.DataFrame({"n": [1, 2], "P": [3, 6], "e": [1.0, 0.5], "unit": ["a", "b"]})
    parts = [Facets(size, "e", "unit", xlabel=label) for size, label in (("n", "neurons n"), ("P", "parameters P"))]
    views = json.loads(ElementTree.fromstring(written(draw_figure(parts, {"t": table}))).get("data-views", ""))
    assert [view[4] for view in views] == ["n", "n", "P", "P"]
