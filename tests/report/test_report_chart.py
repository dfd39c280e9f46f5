"""Figures as plain values: a page gets everything that the house draws, and nothing is dropped without a word."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from io import BytesIO

import numpy as np
import pytest
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from PIL import Image

from drawn_artists import assert_chart_is_what_is_drawn
from gatelab.plotting import (
    Curve,
    Panel,
    Pen,
    Plane,
    colour_bar,
    draw_plane,
    draw_surface,
    figure_legend,
    new_figure,
    save,
    scaling_figure,
    style,
)
from gatelab.plotting.chart import chart_of, thin
from gatelab.plotting.curves import law_figure
from gatelab.plotting.kernels import (
    Cloud,
    DensityCurve,
    Difference,
    Series,
    crossing_figure,
    density_figure,
    draw_heat,
    draw_histogram,
    draw_series,
    gap_figure,
    legend_below,
    parts_figure,
)
from gatelab.plotting.kernels import LossCurve as Loss
from gatelab.plotting.maps import FloorPanel, MethodErrors, approximation_figure, floor_figure, training_figure
from gatelab.statistics import Interval
from gatelab.studies import study
from gatelab.studies.definition import Request

N = np.array([2.0, 4.0, 8.0, 16.0])


def scaling() -> Figure:
    curves = [
        Curve(
            unit,
            N,
            np.outer(N**-order, [1.0, 1.5]),
            fitted=np.array([[True, True]] * 3 + [[False, False]]),
            limit=0.8 * N**-order,
            note=f"slope -{order}.0",
            paper=f"-{order}.1",
            reference=(N, 3 * N**-order),
        )
        for unit, order in (("mlp", 2), ("glu", 3))
    ]
    local = [(c.label, N[1:], np.full(3, -2.0)) for c in curves]
    return scaling_figure(
        [("neurons n", curves), ("parameters P", curves)], title="L(n) and L(P)", local=local, local_orders={"mlp": 2}
    )


def losses() -> Figure:
    steps = np.arange(20.0)
    loss = np.exp(-steps / 5)
    curves = [Loss("mlp", steps, loss, 0.9 * loss, 1.1 * loss), Loss("glu", steps, loss**2, predicted=True)]
    return crossing_figure(curves, 3.0, 0.5)


def parts() -> Figure:
    steps = np.arange(20.0)
    return parts_figure("glu", steps, np.exp(-steps), np.exp(-2 * steps), np.exp(-3 * steps), np.full(20, 0.01))


def floors() -> Figure:
    panel = FloorPanel(
        "d = 2", N, 1 / N, (MethodErrors("hermite", N, 2 / N, 1.9 / N, 2.1 / N),), 0.9, level=(0.3, "the paper's loss")
    )
    return floor_figure([panel, panel], "floors")


def training() -> Figure:
    series = [Series("new data", N, 1 / N, 0.9 / N, 1.1 / N, colour="#0072B2", marker="o")]
    return training_figure(series, [(0.1, "the floor", "--")], x_label="steps", y_label="RMSE", title="training")


def gaps() -> Figure:
    run = np.array([[2.0, 0.1], [1.0, 0.2]])
    clouds = [Cloud("ReLU", [run], "#0072B2"), Cloud("ReGLU", [run + 0.1], "#D55E00", "s", hollow=True)]
    rows = [
        Difference("a - b\nof a model", Interval(0.1, -0.1, 0.3), "+5%, p 0.4", "#D55E00"),
        Difference("c", Interval(0.0, np.nan, np.nan)),
    ]
    return gap_figure([("(a)", clouds), ("(b)", clouds)], "gaps", rows)


def law() -> Figure:
    P, D = (v.ravel() for v in np.meshgrid([10.0, 100.0, 1000.0], [1e2, 1e5]))

    def predict(p: np.ndarray, d: np.ndarray) -> np.ndarray:
        return 0.1 + 1 / np.asarray(p) + 1 / np.asarray(d)

    band = lambda p, d: (0.9 * predict(p, d), 1.1 * predict(p, d))  # noqa: E731
    return law_figure(P, D, predict(P, D), predict, band=band, floor=0.1, title="a law")


def scattered_law() -> Figure:
    P = np.geomspace(10, 1e4, 30)
    D = np.geomspace(1e2, 1e6, 30)
    return law_figure(P, D, 0.1 + 1 / P, lambda p, d: 0.1 + 1 / np.asarray(p) + 1 / np.asarray(d))


def approximation() -> Figure:
    z = np.linspace(-3, 3, 50)
    return approximation_figure(z, z**2, [("cubic", z**2 + 0.01 * z)], (-2, 2), [("rounding", 1e-3)], "errors")


def density() -> Figure:
    x = np.geomspace(0.1, 10, 30)
    return density_figure([DensityCurve("glu", x, np.exp(-x), ends=(0.1, 10.0), note="bulk")], log=True, title="law")


def heat() -> Figure:
    with style():
        figure = new_figure(6, 3)
        left, right = map(Panel, figure.subplots(1, 2))
        values = np.arange(16.0).reshape(4, 4)
        shown = draw_heat(left, values, "kernel", low=0.0, high=15.0, groups=[2, 4])
        draw_heat(right, values.T, "kernel, turned", low=0.0, high=15.0)
        colour_bar(shown, [left, right], label="entries", location="bottom")
    return figure


def histogram() -> Figure:
    with style():
        figure = new_figure(4, 3)
        panel = Panel(figure.subplots())
        panel.set(xscale="log")
        draw_histogram(panel, np.array([1.5, 2.5, 2.6]), np.array([1.0, 2.0, 3.0]), colour="#D55E00")
        series = [Series("ours", N, N, 0.9 * N, 1.1 * N, "#0072B2", "o", hollow=True)]
        draw_series(panel, series)
        legend_below(panel, [one.entry() for one in series])
        panel.span("y", 0.5, 1.5, "#ececec")
        panel.area([1.5, 2.0, 2.5], [1.5, 2.5, 2.0], "#D55E00", alpha=0.2)
    return figure


def planes() -> Figure:
    x = np.linspace(-1, 1, 20)
    plane = Plane(x, x, np.add.outer(x, 2 * x), (np.array([[-1.0, 0.5, 0.0], [1.0, -0.5, 0.0]]),))
    with style():
        figure = new_figure(7, 3)
        flat = Panel(figure.add_subplot(1, 2, 1))
        colour_bar(draw_plane(flat, plane, "a plane"), [flat])
        draw_surface(figure.add_subplot(1, 2, 2, projection="3d"), plane, "a surface")
    return figure


DRAWN: list[Callable[[], Figure]] = [
    scaling,
    losses,
    parts,
    floors,
    training,
    gaps,
    law,
    scattered_law,
    approximation,
    density,
    heat,
    histogram,
    planes,
]


@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)
def test_every_figure_of_the_room_is_told_whole(draw: Callable[[], Figure]) -> None:
    figure = draw()
    chart = chart_of(figure)
    assert_chart_is_what_is_drawn(figure, chart)
    assert chart["left_out"] == []
    assert json.loads(json.dumps(chart, allow_nan=False)) == chart
    assert all(panel["series"] or panel["maps"] or "picture" in panel for panel in chart["panels"])


LONGER = ("ntk/fig4", "ntk/fig5")


@pytest.mark.parametrize(
    "name",
    ["scaling/fig1", "scaling/fig9", "linearize/table2", *(pytest.param(n, marks=pytest.mark.slow) for n in LONGER)],
)
def test_studies_are_told_whole(name: str) -> None:
    figure = study(name).run(Request(quick=True, jobs=1)).figure
    chart = chart_of(figure)
    assert_chart_is_what_is_drawn(figure, chart)
    assert chart["left_out"] == []


def test_values_are_those_that_were_plotted() -> None:
    read = chart_of(scaling())
    for panel in read["panels"][:2]:
        line = next(s for s in panel["series"] if s["kind"] == "line" and s["label"] == "glu")
        np.testing.assert_allclose(line["x"], N)
        np.testing.assert_allclose(line["y"], N**-3.0, rtol=1e-5)
        band = panel["series"][line["interval"]]
        assert band["kind"] == "band"
        np.testing.assert_allclose(band["low"], N**-3.0, rtol=1e-5)
        np.testing.assert_allclose(band["high"], 1.5 * N**-3.0, rtol=1e-5)
    assert [p["x"]["label"] for p in read["panels"]] == ["neurons n", "parameters P", "neurons n"]
    assert {p["x"]["scale"] for p in read["panels"]} == {"log"}


def test_a_unit_is_one_group_in_all_panels_and_dashes_are_another() -> None:
    read = chart_of(scaling())
    names = [group["name"] for group in read["groups"]]
    glu, limit = names.index("glu"), names.index("free-knot limit")
    colour = read["groups"][glu]["colour"]
    for panel in read["panels"][:2]:
        assert all(glu in s["groups"] for s in panel["series"] if s["colour"] == colour)
        assert not any(glu in s["groups"] for s in panel["series"] if s["colour"] != colour)
        dashed = [s for s in panel["series"] if s.get("dash") == "dashed"]
        assert len(dashed) == 2
        assert all(limit in s["groups"] for s in dashed)
        hollow = [s for s in panel["series"] if s.get("hollow")]
        assert all(names.index("left out of the slope") in s["groups"] for s in hollow)
    assert [e["text"] for e in read["panels"][0]["legend"]][1] == "glu: slope −3.0, paper −3.1"


def test_filled_and_hollow_marks_of_one_colour_are_two_groups() -> None:
    with style():
        figure = new_figure(4, 3)
        panel = Panel(figure.subplots())
        series = [Series(str(h), N, N + h, N - 0.1, N + 2, "#0072B2", "o", "", hollow=h) for h in (False, True)]
        draw_series(panel, series)
        figure_legend(figure, [one.entry() for one in series])
    read = chart_of(figure)
    lines = [s for s in read["panels"][0]["series"] if s["kind"] == "line"]
    assert [read["groups"][s["groups"][0]]["name"] for s in lines] == ["False", "True"]
    strokes = [read["panels"][0]["series"][s["interval"]] for s in lines]
    assert [s["groups"] for s in strokes] == [s["groups"] for s in lines]


def test_shared_axes_keep_their_label_for_panels_below_each_other() -> None:
    read = chart_of(law())
    second = read["panels"][1]["y"]
    assert (second["label"], second["shared"], second["bare"]) == ("", "loss L", True)
    assert read["panels"][0]["legend"][1]["text"] == "D = 10⁵"


def test_ticks_that_the_figure_chose_and_texts_beside_it_are_kept() -> None:
    panel = chart_of(gaps())["panels"][2]
    assert panel["y"]["ticks"] == {"at": [1, 0], "labels": ["a - b\nof a model", "c"]}
    assert (panel["column"], panel["across"]) == (0, 2)
    (text,) = panel["texts"]
    assert text["text"] == "+5%, p 0.4"
    assert text["at"] == pytest.approx([1.02, 1.7 / 2.4], abs=1e-5)
    point = next(s for s in panel["series"] if s["kind"] == "line" and "interval" in s)
    assert panel["series"][point["interval"]]["ends"] == [[-0.1, 1, 0.3, 1]]
    assert panel["series"][point["interval"]]["along"] == "x"


def test_a_heat_map_has_its_cells_as_colours_and_as_values() -> None:
    figure = heat()
    read = chart_of(figure)
    (shown,) = read["panels"][0]["maps"]
    assert shown["values"] == list(range(16))
    assert shown["extent"] == [-0.5, 3.5, 3.5, -0.5]
    image = Image.open(BytesIO(base64.b64decode(shown["png"].split(",")[1]))).convert("RGBA")
    exact = figure.axes[0].images[0].to_rgba(np.arange(16.0).reshape(4, 4), bytes=True)
    np.testing.assert_array_equal(np.asarray(image), exact)
    (bar,) = read["bars"]
    assert (bar["label"], bar["limits"], bar["panels"]) == ("entries", [0, 15], [0, 1])
    assert len(read["panels"]) == 2


BLUE = Pen("#0072B2", "--", 1.5, "s", 5, "white", alpha=0.5)
METHODS: dict[str, Callable[[Panel], object]] = {
    "line": lambda panel: panel.line([1, 2], [3.0, 4.0], BLUE, label="a", order=4),
    "line of one point": lambda panel: panel.line(2.0, 3.0, Pen("black", "", marker=6)),
    "points": lambda panel: panel.points([1, 2], [3, 4], ["#ff0000", "#00ff00"], size=3.0),
    "band": lambda panel: panel.band([1, 2, 3], 0.5, [2.0, 3.0, 2.5], "#D55E00"),
    "upright strokes": lambda panel: panel.strokes([1, 2], [0, 1], [2, 3], Pen("#117733", width=2)),
    "level strokes": lambda panel: panel.strokes(1, [0, 1], [2, 3], Pen("#117733", alpha=0.5), along="x"),
    "rule of x": lambda panel: panel.rule("x", 1.5, Pen("#6b6b6b", ":", 0.7)),
    "rule of y": lambda panel: panel.rule("y", 2.5, Pen("#6b6b6b", "-."), label="level"),
    "span of x": lambda panel: panel.span("x", 1, 2, "#eeeeee", order=0),
    "span of y": lambda panel: panel.span("y", -1, 2, "#eeeeee", alpha=0.3),
    "steps": lambda panel: panel.steps([5, 6], [0, 1, 2], Pen("#117733", width=0.9)),
    "filled steps": lambda panel: panel.steps([5, 6], [0, 1, 2], Pen("#117733", width=0, alpha=0.3), fill=True),
    "area": lambda panel: panel.area([0, 1, 1], [0, 0, 2], "#CC79A7", alpha=0.2),
    "cells": lambda panel: panel.cells([[0.0, 1.0], [2.0, 3.0]], "viridis", Normalize(0, 3)),
    "contours": lambda panel: panel.contours([0, 1], [0, 1], np.eye(2), [0, 0.5, 1], "RdBu_r"),
    "text": lambda panel: panel.text("here", 0.3, 0.4, shift=(3, -4), across="right", colour="#D55E00"),
    "text in the panel": lambda panel: panel.text("edge", 1.02, 0.4, within=("panel", "data"), up="center"),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_notes_what_it_draws(name: str) -> None:
    with style():
        figure = new_figure(4, 3)
        panel = Panel(figure.subplots())
        METHODS[name](panel)
    chart = chart_of(figure)
    (shown,) = chart["panels"]
    assert_chart_is_what_is_drawn(figure, chart)
    assert len(shown["series"]) + len(shown["maps"]) + len(shown["texts"]) == 1
    assert chart["left_out"] == []


def test_the_check_of_the_methods_sees_a_line_that_was_moved() -> None:
    figure = new_figure(4, 3)
    Panel(figure.subplots()).line([1, 2], [3.0, 4.0], BLUE)
    figure.axes[0].get_lines()[0].set_ydata([3.0, 5.0])
    with pytest.raises(AssertionError):
        assert_chart_is_what_is_drawn(figure, chart_of(figure))


def test_bars_have_their_boxes() -> None:
    figure = new_figure(4, 3)
    panel = Panel(figure.subplots())
    panel.bars([1.0, 2.0], [3.0, 4.0], "#D55E00", width=0.5, label="counts")
    panel.legend()
    chart = chart_of(figure)
    (bars,) = chart["panels"][0]["series"]
    drawn = [[p.get_x(), p.get_y(), p.get_width(), p.get_height()] for p in panel.axes.patches]  # pyright: ignore
    assert bars["boxes"] == drawn == [[0.75, 0, 0.5, 3], [1.75, 0, 0.5, 4]]
    assert [chart["groups"][group]["name"] for group in bars["groups"]] == ["counts"]


def test_an_interval_is_that_of_its_own_line() -> None:
    """Two lines of one colour and the same places: matched by looks, the second would have had the first one's."""
    figure = new_figure(4, 3)
    panel = Panel(figure.subplots())
    for shift in (0.0, 10.0):
        ends = panel.strokes([1, 2], np.array([0, 1]) + shift, np.array([2, 3]) + shift, BLUE)
        panel.line([1, 2], np.array([1, 2]) + shift, BLUE, order=3, interval=ends)
    panel.band([1, 2], 0.0, 1.0, BLUE.colour)
    series = chart_of(figure)["panels"][0]["series"]
    lines = [one for one in series if one["kind"] == "line"]
    assert [series[one["interval"]]["ends"][0] for one in lines] == [[1, 0, 1, 2], [1, 10, 1, 12]]


def test_what_was_drawn_beside_a_panel_is_named_and_other_axes_are_a_picture() -> None:
    figure = new_figure(6, 3)
    left, right = figure.subplots(1, 2)
    panel = Panel(left)
    panel.set(title="odd")
    panel.line([0, 1], [0, 1], BLUE)
    left.plot([0, 1], [1, 0])
    left.quiver([0.0], [0.0], [1.0], [1.0])
    right.plot([0, 1], [0, 1])
    figure.text(0.5, 0.5, "beside")
    chart = chart_of(figure)
    assert chart["left_out"] == ["odd: Line2D", "odd: Quiver", "the figure: the text 'beside'"]
    assert len(chart["panels"][0]["series"]) == 1
    assert chart["panels"][1]["picture"]["png"].startswith("data:image/png;base64,")
    mine = Figure()
    Panel(mine.subplots()).line([0, 1], [0, 1], BLUE)  # of a figure of the caller's there are no notes
    assert "picture" in chart_of(mine)["panels"][0]


def test_two_panels_of_the_same_axes_share_their_notes() -> None:
    figure = new_figure(4, 3)
    axes = figure.subplots()
    Panel(axes).line([0, 1], [0, 1], BLUE)
    Panel(axes).rule("y", 0.5, BLUE)
    assert [one["kind"] for one in chart_of(figure)["panels"][0]["series"]] == ["line", "level"]


def test_a_scale_that_a_page_has_not_is_named() -> None:
    figure = new_figure(4, 3)
    panel = Panel(figure.subplots())
    panel.set(xscale="symlog", yscale="logit", xlabel="x")
    chart = chart_of(figure)
    assert chart["left_out"] == ["x: logit scale"]
    assert chart["panels"][0]["x"]["threshold"] == 2


def test_long_series_are_thinned_keep_their_extremes_and_say_so() -> None:
    figure = new_figure(4, 3)
    y = np.sin(np.arange(10_000) / 50)
    y[[1234, 8765]] = 7.0, -7.0
    Panel(figure.subplots()).line(np.arange(10_000), y, BLUE, label="wave")
    chart = chart_of(figure)
    line = chart["panels"][0]["series"][0]
    assert len(line["x"]) <= 2000
    assert (max(line["y"]), min(line["y"])) == (7, -7)
    np.testing.assert_allclose(line["y"], y[line["x"]], rtol=1e-5)
    assert chart["thinned"] == ["a panel without a title: wave: 2000 of 10000 points"]


def test_thinning_is_the_loop_over_stretches() -> None:
    values = np.random.default_rng(0).standard_normal(101)
    slow = set()
    for part in np.array_split(np.arange(101), 5):
        slow |= {min(part, key=lambda i: values[i]), max(part, key=lambda i: values[i])}
    assert thin(values, most=10).tolist() == sorted(slow)


def test_gaps_in_a_line_stay_gaps() -> None:
    figure = new_figure(4, 3)
    Panel(figure.subplots()).line([1, 2, 3], [1.0, np.nan, np.inf], BLUE)
    assert chart_of(figure)["panels"][0]["series"][0]["y"] == [1, None, None]


@pytest.mark.slow
def test_reading_does_not_change_the_figure(tmp_path) -> None:
    for name, draw in (("scaling", scaling), ("planes", planes)):
        untouched, read = draw(), draw()
        with style():
            untouched.draw_without_rendering()  # a layout starts from the last one: reading is one drawing, and no more
        chart_of(read)
        files = [save(figure, tmp_path / f"{name}{i}.png") for i, figure in enumerate((untouched, read))]
        assert files[0].read_bytes() == files[1].read_bytes()
