"""`gl.compare` as a whole, on small data, and its parts against slow, obvious twins."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import gatelab as gl
from gatelab.data.rows import Data
from gatelab.linearization import calibrate, floor
from gatelab.report.builders import scorecard_page
from gatelab.scorecard import Scorecard, compare, costs, fits
from gatelab.scorecard.costs import linearity, preactivations
from gatelab.scorecard.fits import problem_of
from gatelab.scorecard.measurements import Draws, mean_kernel, rows_of, steps_to, training

QUICK: dict[str, Any] = {"seeds": 2, "features": 16, "d_model": 8}


def softgate(z, v):
    return torch.nn.functional.softplus(z) * v


class Square(torch.nn.Module):
    def __init__(self, width: int, d_in: int, d_out: int) -> None:
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(d_in, width), torch.nn.Linear(width, d_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.inner(x).square())


def rows() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).uniform(-1, 1, (90, 2))
    return x, np.sin(2 * x[:, 0]) * x[:, 1]


@pytest.fixture
def quick_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what does not depend on how good fits are."""
    monkeypatch.setattr(fits, "EFFORT", {"starts": 1, "rounds": 0})


@pytest.fixture(scope="module")
def card() -> Scorecard:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fits, "EFFORT", {"starts": 1, "rounds": 1})
        patch.setattr("gatelab.scorecard.measurements.NETWORKS", 8)
        return compare([softgate, "glu", Square], rows(), budget=15, widths=[1, 2], **QUICK | {"seeds": [1, 0]})


def test_own_units_stand_beside_ours(card: Scorecard):
    assert card.units == ("softgate", "glu", "Square") and card.facts["seeds"] == 2
    frame = card.table()
    assert list(frame["unit"]) == list(card.units) and (frame["parameters"] <= 15).all()
    assert np.isfinite(frame[["rmse", "slope", "condition_low", "rows_per_second", "steps"]]).all(axis=None)
    # What has no formula is not made up.
    assert np.isnan(card.score("softgate").linear.value) and np.isfinite(card.score("glu").linear.value)
    assert card.score("softgate").sampled > 0 == card.score("glu").sampled
    assert card.recommendation.unit in card.units and "sampled networks" in card.advice


def test_numbers_are_those_of_the_fits(card: Scorecard):
    problem = gl.Problem.from_arrays(*rows())
    best = card.score("glu")
    found = gl.fit_many("glu", problem, [best.width], seeds=2, starts=1, rounds=1)
    assert best.rmse.value == pytest.approx(np.mean([f.test_rmse for f in found]), rel=1e-9)
    assert best.train_rmse == pytest.approx(np.mean([f.train_rmse for f in found]), rel=1e-9)
    assert best.rmse.low < best.rmse.value < best.rmse.high
    assert min(s.ratio.value for s in card.scores) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        card.scores = ()  # pyright: ignore[reportAttributeAccessIssue]


def test_errors_on_a_standardized_problem_are_those_of_its_fits():
    """One start and four rounds a seed, unless a test asks for less."""
    problem = gl.problem("100 + 50*x*y", n=60, standardize=True)
    card = compare(["mlp", "glu"], problem, widths=[1], **QUICK)
    (found,) = gl.fit_many("glu", problem, [1], starts=1, rounds=4)
    assert min(p.test_rmse for p in card.scaling.points if (p.unit, p.seed) == ("glu", 0)) == found.test_rmse
    fitted = card.scaling.table().groupby(["unit", "width"])["test_rmse"].mean()
    assert all(n.rmse.value == pytest.approx(fitted[n.unit, n.width], rel=1e-9) for n in card.networks)


def test_a_hostile_name_is_text_in_the_page(card: Scorecard):
    figure = card.plot()
    assert len(figure.axes) == 6 and "not known" in [t.get_text() for t in figure.axes[4].texts]
    hostile = dataclasses.replace(card, facts={**card.facts, "problem": "<script>alert(1)</script>"})
    page = scorecard_page(hostile, "gatelab compare --data a.csv")
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page and page.count("<section") == 4


@pytest.mark.usefixtures("quick_fits")
def test_what_was_fitted_is_compared_or_left_out_with_a_reason():
    """glu of width 3 has 22 parameters; units are compared at the 13 of mlp of width 3."""
    uneven = compare(["mlp", "glu"], rows(), widths=[2, 3], seeds=1, features=4, d_model=8)
    fitted = {(p.unit, p.width) for p in uneven.scaling.points}
    absent = uneven.left_out()
    assert set(absent["why"]) == {"budget"} and uneven.facts["budget"] == 13
    assert {("glu", 2), ("glu", 3)} == fitted - {(n.unit, n.width) for n in uneven.networks}
    assert list(zip(absent["width"], absent["parameters"], absent["fits"], strict=True)) == [(2, 15, 1), (3, 22, 1)]
    assert any("a budget of 22 would compare it" in item for item in uneven.sections["Left out"])
    again = compare(["mlp", "glu"], rows(), widths=[2, 3], budget=22, seeds=1, features=4, d_model=8)
    assert again.left_out().empty and ("glu", 3) in {(n.unit, n.width) for n in again.networks}


def test_points_that_the_slope_leaves_out_are_named():
    x = np.linspace(-1, 1, 40)
    card = compare(["mlp", "bilinear"], (x, x**2), widths=[1, 6], seeds=1, features=16, d_model=8)
    absent = card.left_out()
    flagged = {(p.unit, p.width, p.flag) for p in card.scaling.points if p.flag}
    left = {(unit, width, why) for unit, width, _, why, _ in absent.to_numpy().tolist() if why != "budget"}
    assert left == flagged and {why for *_, why in left} == {"floor", "interpolation"}
    # The product of two linear maps has no more than 2 x 2 features, whatever was asked for.
    assert card.score("bilinear").features == 4 and card.score("bilinear").linear.value < 1e-6


@pytest.mark.usefixtures("quick_fits")
def test_equal_calls_give_equal_numbers_but_for_the_clock_and_progress_runs_to_its_end():
    told: list[tuple[int, int]] = []
    small = {"widths": [1], "seeds": 1, "features": 4, "d_model": 8}
    first = compare(["mlp", "glu"], rows(), progress=lambda *now: told.append(now), **small)
    second = compare(["mlp", "glu"], rows(), **small)
    clock = [c for c in first.table().columns if c.startswith("rows_per_second")]
    assert first.table().drop(columns=clock).equals(second.table().drop(columns=clock))
    assert first.networks == second.networks and first.recommendation.regime == "open"
    done, total = zip(*told, strict=True)
    assert set(total) == {2 + 3} and done[-1] == total[0] and list(done) == sorted(done)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"units": ["glu"]}, "1 unit given"),
        ({"units": ["glu", "reglu"]}, "different names"),
        ({"units": ["glu", "gllu"]}, "no unit is called 'gllu'"),
        ({"budget": 0}, "budget is 0"),
        ({"budget": 5}, "one neuron of glu has 8 parameters"),
        ({"budget": 5000}, "more data"),
        ({"loss": 0}, "loss is 0"),
        ({"d_model": 0}, "d_model is 0"),
        ({"data": (np.arange(19.0), np.arange(19.0))}, "19 rows; give 20"),
        ({"data": (np.arange(30.0),) * 3}, "pair"),
        ({"data": "x2", "target": "a"}, "target name columns of a file"),
        ({"data": "x2", "rows": 3}, "rows is 3"),
        ({"data": gl.problem("x2", n=50, protocol="paper")}, "tests on its training rows"),
    ],
)
def test_what_cannot_be_compared_is_refused(given: dict[str, Any], said: str):
    with pytest.raises(gl.GatelabError, match=said):
        compare(**{"units": ["glu", "mlp"], "data": rows()} | given)


@pytest.mark.parametrize("name", ["mlp", "glu", "gqu", "swiglu"])
def test_the_width_at_a_budget_is_the_largest_that_fits(name: str):
    u = gl.unit(name)
    for budget in range(u.parameter_count(1, 3, 2), 200, 7):
        within = [w for w in range(1, 200) if u.parameter_count(w, 3, 2) <= budget]
        assert fits.widest(u, budget, 3, 2) == max(within)


def test_widths_end_at_the_budget_and_a_budget_below_one_neuron_is_refused():
    u = gl.unit("gqu")
    found = fits.widths_of(u, 80, 3, 1)
    assert found == tuple(sorted(set(found))) and u.parameter_count(found[-1], 3, 1) <= 80
    assert fits.widths_of(u, 80, 3, 1, [1, 9]) == (1, 6, 9) and fits.widths_of(gl.unit("glu"), 80, 3, 1)[-2:] == (6, 8)
    with pytest.raises(gl.GatelabError, match=r"one neuron of gqu has 14 parameters.*budget is 10"):
        fits.widths_of(u, 10, 3, 1)


def test_rows_that_are_hard_for_both_do_not_hide_a_difference():
    """Errors of 10 % less on every row are certain, though the intervals of both errors overlap widely."""
    hard = np.tile(np.random.default_rng(0).exponential(size=60), (3, 1))
    found = Draws({0: hard, 1: 1.21 * hard})
    assert found.rmse(0).high > found.rmse(1).low
    assert found.ratio(1, 0).low > 1
    # Errors that are rounding are equal.
    assert Draws({0: np.full((1, 20), 1e-30), 1: np.full((1, 20), 1e-26)}, least=1e-10).ratio(1, 0).value == 1


def test_draws_are_those_of_a_loop():
    squares = {name: np.random.default_rng(i).random((2, 7)) for i, name in enumerate("ab")}
    found = Draws(squares, draws=5)
    rng = np.random.default_rng(0)
    counts = rng.multinomial(7, np.full(7, 1 / 7), size=5)
    for name, errors in squares.items():
        picked = rng.integers(2, size=(5, 2))
        for k in range(5):
            rows = np.repeat(np.arange(7), counts[k])
            each = [math.sqrt(errors[s][rows].mean()) for s in picked[k]]
            assert found.drawn[name][k] == pytest.approx(np.mean(each), rel=1e-12)


def some_rows(n: int = 40, d: int = 3) -> Data:
    x = np.random.default_rng(0).standard_normal((n, d))
    return rows_of(gl.Problem.from_arrays(x, np.sin(x[:, :1]), test_fraction=0.1))


def test_the_mean_of_sampled_kernels_tends_to_the_formula(monkeypatch: pytest.MonkeyPatch):
    """150 networks of width 8 leave some 11 % of the norm, by the root of their number; the seeds are fixed."""
    monkeypatch.setattr("gatelab.scorecard.measurements.NETWORKS", 150)
    monkeypatch.setattr("gatelab.scorecard.measurements.PER_ROW", 10**9)
    rows = some_rows()
    found, start = mean_kernel(gl.unit("glu"), rows, 8)
    expected = gl.ntk.analytic("glu", rows.x, 8).matrix
    assert float((found.matrix - expected).norm() / expected.norm()) < 0.2
    outputs = np.asarray(start["start"])[:, :, 0]
    nngp = gl.ntk.analytic("glu", rows.x, 8, kind="nngp").matrix.numpy()
    assert np.linalg.norm(outputs.T @ outputs / len(outputs) - nngp) < 0.4 * np.linalg.norm(nngp)


def test_predicted_steps_are_those_of_gradient_descent_carried_out():
    rows = some_rows()
    K = gl.ntk.analytic("glu", rows.x, 16).matrix.numpy()
    predicted = steps_to(K, rows.y, 0.01, start=np.zeros(len(K)))
    f, rate, steps = np.zeros_like(rows.y), 1 / np.linalg.eigvalsh(K)[-1], 0
    while np.mean((f - rows.y) ** 2) > 0.01 * np.mean(rows.y**2):
        f, steps = f - rate * K @ (f - rows.y), steps + 1
    assert predicted == steps > 3
    assert steps_to(np.diag([1.0, 0.0]), np.ones((2, 1)), 0.3, start=np.zeros(2)) == math.inf


def test_conditioning_is_that_of_the_kernel_and_units_without_a_formula_have_one_too():
    rows = some_rows()
    found = training(gl.unit("glu"), rows, 8, 0.1)
    dense = np.linalg.cond(gl.ntk.analytic("glu", rows.x, 8).matrix.numpy())
    assert np.isfinite(found["condition"].value) and found["sampled"] == 0
    assert found["condition"].low <= dense * (1 + 1e-9) and dense * (1 - 1e-9) <= found["condition"].high
    own = training(gl.unit(softgate), rows, 8, 0.1)
    assert own["sampled"] > 1 and own["condition"].low > 1 and own["steps"] > 0


def test_a_plain_unit_is_linearized_to_the_floor():
    rows = some_rows()
    found = linearity(gl.unit("gelu"), rows.x, 20)
    d = rows.x.shape[1]
    least = floor("gelu", d, 20, w_scale=d**-0.5)
    # The deviation of gelu of a nearly standard normal number is 0.58, that of the chance length aside.
    assert 0.9 * least / 0.6 < found["linear"].value < 1.15 * least / 0.5
    assert found["linear"].low < found["linear"].value < found["linear"].high


def test_a_gated_unit_shares_its_features_with_its_factor():
    rows = some_rows()
    gated, gate = (linearity(gl.unit(name), rows.x, 20) for name in ("geglu", "gelu"))
    assert gated["features"] == 20 and gated["linear"].value > gate["linear"].value
    assert gated["minimax"] == gate["minimax"]
    none = linearity(gl.unit("gqu"), rows.x, 15)  # 4 * 4 features for one of the gate
    assert (none["linear"].value, none["features"]) == (1.0, 0)
    assert math.isnan(linearity(gl.unit(Square), rows.x, 8)["linear"].value)  # a class has no gate


def test_the_polynomial_is_wrong_by_no_more_than_it_says():
    rows = some_rows()
    found = linearity(gl.unit("swiglu"), rows.x, 4)
    silu = gl.unit("swiglu").gate  # pyright: ignore[reportAttributeAccessIssue]
    interval = calibrate(preactivations(rows.x), symmetric=True)
    p = gl.linearize(silu, "minimax", degree=8, interval=interval).polynomial
    assert p is not None
    z = torch.linspace(*interval, 4001, dtype=torch.float64)
    worst = float((silu(z) - p(z)).abs().max())
    draws = torch.randn(10**5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    spread = float(silu(draws).std())
    # Rows that were standardized have pre-activations of deviation near 1, not of exactly 1.
    assert 0.7 < found["minimax"] / (worst / spread) < 1.4


@pytest.mark.parametrize("name", ["mlp", "glu", "gqu", "swiglu"])
def test_operations_are_those_that_torch_counts_and_one_for_each_gate_and_factor(name: str):
    u = gl.unit(name)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        u.network(5, 3, 2)(torch.zeros(1, 3, dtype=torch.float64))
    assert costs.flops(u, 5, 3, 2) == counter.get_total_flops() + 5 * (u.factors + 1)  # pyright: ignore
    assert costs.flops(gl.unit(Square), 5, 3, 2) == 2 * 5 * (3 + 2)


def test_blocks_have_equal_parameters_and_are_timed():
    units = [gl.unit(u) for u in ("mlp", "glu", "gqu", Square)]
    found, bench = costs.block_costs(units, 16, "cpu", batch=64, repeats=5)
    assert bench["d_model"] == 16 and bench["repeats"] == 5
    for c in found:
        assert abs(c["block_parameters"] / 2048 - 1) < 0.05
        assert 0 < c["rows_per_second"].low <= c["rows_per_second"].value <= c["rows_per_second"].high


def test_rows_are_cut_and_drawn_by_a_fixed_seed():
    cut, again = (problem_of(gl.problem("x2", n=300, n_test=3000), 100) for _ in range(2))
    assert (cut.train.n, cut.test.n) == (100, 2000) and np.array_equal(cut.train.x, again.train.x)
    assert problem_of("paper-1d", 1000).train.n == 400
    rows = rows_of(cut, most=50)
    assert rows.x.shape == (50, 2) and (rows.x[:, -1] == 1).all() and len(rows_of(cut).x) == 100
