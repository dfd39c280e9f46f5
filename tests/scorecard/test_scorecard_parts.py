"""The parts of a scorecard against slow, obvious twins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import gatelab as gl
from gatelab.data.rows import Data
from gatelab.linearization import calibrate, floor
from gatelab.scorecard import costs, fits
from gatelab.scorecard.costs import linearity, preactivations
from gatelab.scorecard.fits import problem_of
from gatelab.scorecard.measurements import Draws, mean_kernel, rows_of, steps_to, training


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


def test_equal_networks_are_told_apart_no_more_often_than_the_level_says():
    """Both have squared errors of one law, 300 rows of 1 seed: 5 % false alarms; 12 or more of 100 come by chance with
    probability 0.4 %, and the seeds are fixed."""
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(100):
        found = Draws(dict(enumerate(rng.chisquare(1, size=(2, 1, 300)))), draws=400).ratio(0, 1)
        alarms += not found.low <= 1 <= found.high
    assert alarms < 12


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
    def softgate(z, v):
        return torch.nn.functional.softplus(z) * v

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
    assert math.isnan(linearity(gl.unit(Plain), rows.x, 8)["linear"].value)  # a class has no gate


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


class Plain(torch.nn.Module):
    def __init__(self, width: int, d_in: int, d_out: int) -> None:
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(d_in, width), torch.nn.Linear(width, d_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.tanh(self.inner(x)))


@pytest.mark.parametrize("name", ["mlp", "glu", "gqu", "swiglu"])
def test_operations_are_those_that_torch_counts_and_one_for_each_gate_and_factor(name: str):
    u = gl.unit(name)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        u.network(5, 3, 2)(torch.zeros(1, 3, dtype=torch.float64))
    assert costs.flops(u, 5, 3, 2) == counter.get_total_flops() + 5 * (u.factors + 1)  # pyright: ignore
    assert costs.flops(gl.unit(Plain), 5, 3, 2) == 2 * 5 * (3 + 2)


def test_blocks_have_equal_parameters_and_are_timed():
    units = [gl.unit(u) for u in ("mlp", "glu", "gqu", Plain)]
    found, bench = costs.block_costs(units, 16, "cpu", batch=64, repeats=5)
    assert bench["d_model"] == 16 and bench["repeats"] == 5
    for c in found:
        assert abs(c["block_parameters"] / 2048 - 1) < 0.05
        assert 0 < c["rows_per_second"].low <= c["rows_per_second"].value <= c["rows_per_second"].high


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ((np.arange(19.0), np.arange(19.0)), {}, "19 rows; a comparison needs 20"),
        ((np.arange(30.0),) * 3, {}, "pair"),
        ("x2", {"target": "a"}, "target name columns of a file"),
        ("x2", {"rows": 3}, "rows is 3"),
        (gl.problem("x2", n=50, protocol="paper"), {}, "tests on its training rows"),
    ],
)
def test_data_are_refused(data: Any, options: dict[str, Any], said: str):
    with pytest.raises(gl.GatelabError, match=said):
        problem_of(data, **{"rows": 100, **options})


def test_rows_are_cut_and_drawn_by_a_fixed_seed():
    cut, again = (problem_of(gl.problem("x2", n=300, n_test=3000), 100) for _ in range(2))
    assert (cut.train.n, cut.test.n) == (100, 2000) and np.array_equal(cut.train.x, again.train.x)
    assert problem_of("paper-1d", 1000).train.n == 400
    rows = rows_of(cut, most=50)
    assert rows.x.shape == (50, 2) and (rows.x[:, -1] == 1).all() and len(rows_of(cut).x) == 100
