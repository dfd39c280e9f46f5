"""Log-log figures: what is drawn is what was given."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest

from gatelab.plotting import Curve, look, looks, scaling_figure

N = np.array([2.0, 4.0, 8.0, 16.0])


def curve(name: str = "glu", seeds: int = 1, **more: object) -> Curve:
    errors = N[:, None] ** -3.0 * (1 + np.arange(seeds))
    return Curve(name, N, errors, **more)  # pyright: ignore[reportArgumentType]


def test_panels_have_log_axes_labels_and_the_best_of_the_seeds() -> None:
    figure = scaling_figure([("neurons n", [curve(seeds=3)]), ("parameters P", [curve()])], title="t")
    left, right = figure.axes
    assert (left.get_xscale(), left.get_yscale()) == ("log", "log")
    assert (left.get_xlabel(), right.get_xlabel()) == ("neurons n", "parameters P")
    assert left.get_ylabel() == "test RMSE"
    line = left.get_lines()[0]
    np.testing.assert_allclose(np.asarray(line.get_ydata(), float), N**-3.0)
    assert figure.get_suptitle() == "t"


def test_points_left_out_are_hollow_and_named_and_missing_ones_not_drawn() -> None:
    kept, errors = np.array([[False], [True], [True], [True]]), np.array([[1.0], [0.1], [np.nan], [0.001]])
    panel = scaling_figure([("n", [Curve("mlp", N, errors, fitted=kept)])]).axes[0]
    np.testing.assert_array_equal(panel.get_lines()[0].get_xdata(), [2.0, 4.0, 16.0])  # what is missing is not drawn
    hollow = [line for line in panel.get_lines() if line.get_markerfacecolor() == "white"]
    assert [len(line.get_xdata()) for line in hollow] == [1]  # pyright: ignore[reportArgumentType]
    assert "left out of the slope" in legend_of(panel)


def test_the_legend_has_slopes_the_papers_value_limits_and_other_code() -> None:
    full = curve(note="slope -3.00", paper="-3.08", limit=2 * N**-3.0, reference=(N[:2], N[:2] ** -2.0))
    panel = scaling_figure([("n", [full])]).axes[0]
    assert legend_of(panel) == ["glu: slope −3.00, paper −3.08", "free-knot limit", "the paper's code"]
    assert any(line.get_linestyle() == "--" for line in panel.get_lines())
    assert any(line.get_marker() == "x" for line in panel.get_lines())


def test_local_slopes_get_a_panel_with_a_line_for_each_order() -> None:
    local = [("glu", N, np.full(4, -2.9)), ("mlp", N, np.full(4, -1.9))]
    figure = scaling_figure([("n", [curve(), curve("mlp")])], local=local, local_orders={"glu": 3, "mlp": 2})
    panel = figure.axes[-1]
    dashed = [float(np.ravel(line.get_ydata())[0]) for line in panel.get_lines() if line.get_linestyle() == "--"]
    assert sorted(dashed) == [-3, -2]
    assert legend_of(panel)[:2] == ["glu: order 3", "mlp: order 2"]
    low, high = panel.get_ylim()
    assert low < -3 < -2 < high


def test_names_get_distinct_looks_and_drawing_leaves_matplotlibs_settings_alone() -> None:
    chosen = looks(["a", "b", "glu", "mlp", "gqu", "relu2", "relu3"])
    assert look("mlp") == chosen["mlp"]
    assert len({shape.color for shape in chosen.values()}) == len({shape.marker for shape in chosen.values()}) == 7
    before = dict(mpl.rcParams)
    scaling_figure([("n", [curve()])])
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("count", [1, 12, 50, 200])
def test_markers_stay_countable(count: int) -> None:
    sizes = np.arange(1.0, count + 1)
    panel = scaling_figure([("n", [Curve("mlp", sizes, sizes[:, None] ** -2.0)])]).axes[0]
    marked = sum(len(line.get_xdata()) for line in panel.get_lines() if line.get_marker() == "o")  # pyright: ignore
    assert 1 <= marked <= 15


def legend_of(panel: object) -> list[str]:
    return [text.get_text() for text in panel.get_legend().get_texts()]  # pyright: ignore[reportAttributeAccessIssue]
