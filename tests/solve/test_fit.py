"""`fit`: one result type, its checks, and the claim that the knot solver is the best of the solvers."""

import inspect

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import gatelab as gl
from gatelab.cli import app
from gatelab.solve import SOLVERS, predict, solvers
from gatelab.solve.solution import Status


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_returns_the_same_kind_of_result(name):
    unit = {"poles": "swiglu"}.get(name, "glu")
    f = gl.fit(unit, gl.problem("sin4x", n=300), 4, solver=name, steps=20)
    assert isinstance(f, gl.Fit)
    assert f.solver == name
    assert f.parameters == 21
    assert len(f.history) == f.steps
    assert f.status.advice
    parameters = inspect.signature(SOLVERS[name]).parameters
    assert {"seed", "steps"} <= {p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY}
    memory = SOLVERS.module(name).memory
    assert 0 < memory(gl.unit("glu"), 4, 300, 1, 1) < memory(gl.unit("glu"), 40, 300, 1, 1)
    x = gl.problem("sin4x", n=300).train.x
    with torch.no_grad():
        y = f.network(torch.from_numpy(x)).numpy()
    assert f.train_rmse == pytest.approx(np.sqrt(np.mean((y - np.sin(4 * x)) ** 2)), rel=1e-12)


def test_names_of_solvers_are_those_of_their_files(tmp_path, monkeypatch):
    assert set(SOLVERS) == {"adam", "frozen", "knots", "lbfgs", "newton", "poles", "varpro"} and len(SOLVERS) == 7
    assert "newtn" not in SOLVERS and "varpro" in repr(SOLVERS)
    page = CliRunner().invoke(app, ["fit", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    assert all(name in page for name in SOLVERS)
    (tmp_path / "mean.py").write_text(
        """
from gatelab.solve.solution import Solution, Status
def memory(*sizes):
    return 0
def solve(unit, problem, width, *, seed):
    return Solution(unit.network(width, seed=seed), Status.BUDGET, (1.0,))
"""
    )
    monkeypatch.setattr(solvers, "__path__", [*solvers.__path__, str(tmp_path)])
    assert gl.fit("glu", "x2", 3, solver="mean").solver == "mean"
    with pytest.raises(gl.GatelabError, match=r"Known: .*mean"):
        gl.fit("glu", "x2", 3, solver="meam")

    def untrained(unit, problem, width, *, seed):
        return gl.solve.Solution(unit.network(width, seed=seed), gl.Status.BUDGET, (1.0,))

    assert gl.fit("glu", "x2", 3, solver=untrained).solver == "untrained"


@pytest.mark.parametrize("name", ["mlp", "relu2", "relu3", "glu", "gqu"])
@pytest.mark.parametrize("width", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 5, 8, 13, 20))])
def test_the_knot_solver_beats_or_meets_the_others(name, width):
    p = gl.problem("paper-1d", n=400)
    knots = gl.fit(name, p, width).train_rmse
    others = {
        "frozen": gl.fit(name, p, width, solver="frozen").train_rmse,
        "newton": gl.fit(name, p, width, solver="newton", steps=60).train_rmse,
        "lbfgs": gl.fit(name, p, width, solver="lbfgs", steps=80).train_rmse,
    }
    assert knots <= min(others.values()) * (1 + 1e-3), others


def test_more_parameters_than_data_is_refused_with_the_width_that_fits():
    p = gl.problem("paper-1d", n=100)
    with pytest.raises(gl.GatelabError, match=r"251 parameters .* only 100 values; .* width of at most 19"):
        gl.fit("glu", p, 50)
    assert gl.fit("glu", p, 19).parameters == 96


def test_best_of_seeds_is_kept():
    p = gl.problem("paper-1d", n=300)
    alone = [gl.fit("glu", p, 4, solver="lbfgs", seed=s, steps=10).train_rmse for s in range(3)]
    best = gl.fit("glu", p, 4, solver="lbfgs", seeds=3, steps=10)
    assert best.train_rmse == min(alone)
    assert best.seed == int(np.argmin(alone))


def test_small_integers_of_numpy_do_not_overflow():
    f = gl.fit("glu", gl.problem("sin4x", n=1100), np.int8(100), steps=1)
    assert type(f.width) is int and f.parameters == 501
    assert gl.unit("glu").parameter_count(np.int8(100), np.int8(100), np.int8(2)) == 20_402
    assert gl.construct("gqu", "sin4x", np.int8(100)).network.width == 100


@pytest.mark.parametrize("ridge", ["x", {}, None, [1, 2], -1, float("nan")])
def test_a_ridge_that_is_no_number_is_refused(ridge):
    with pytest.raises(gl.GatelabError, match=r"ridge is .*; give a finite number, 0 or more"):
        gl.fit("glu", gl.problem("sin4x", n=100), 3, solver="varpro", ridge=ridge)


@pytest.mark.parametrize("widths", [2, None, []])
def test_many_fits_need_widths(widths):
    with pytest.raises(gl.GatelabError, match="at least one number of neurons"):
        gl.fit_many("glu", "sin4x", widths)


def test_a_target_far_from_zero_is_not_called_constant():
    x = np.linspace(-1, 1, 200)
    with pytest.raises(gl.GatelabError, match=r"differs by 2 about 1e\+15, .* subtract"):
        gl.fit("glu", (x, np.sin(3 * x) + 1e15), 3)
    with pytest.raises(gl.GatelabError, match="the target is constant = 5"):
        gl.fit("glu", (x, 0 * x + 5), 3)


@pytest.mark.parametrize(
    "mixing",
    [
        lambda z: z * z.mean(0),
        lambda z: z.softmax(0),
        lambda z: z.relu().cumsum(0),
        lambda z: z.relu() + 1e-3 * z.roll(1, 0),
        torch.nn.functional.dropout,
    ],
    ids=["mean", "softmax", "cumsum", "roll", "dropout"],
)
def test_a_unit_that_mixes_rows_is_caught_and_warned_of(mixing):
    """It was fitted to "test RMSE 39, converged" without a word."""
    failed = [check.name for check in gl.check_unit(mixing, raise_on_failure=False) if not check.passed]
    assert "treats rows alone" in failed
    state = torch.random.get_rng_state()
    with pytest.warns(UserWarning, match="computes a row from the other rows of its batch"):
        gl.fit(mixing, gl.problem("sin4x", n=60), 2, solver="adam", steps=1)
    assert mixing is torch.nn.functional.dropout or torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("unit", "says"),
    [
        (lambda z: (z > 0).to(z.dtype), "and a gradient"),
        (torch.nn.ReLU, r"cannot be built as ReLU\(width, d_in, d_out\)"),
        (torch.nn.Linear, "does not map rows"),
        (lambda z: 3.0, "does not map rows .* not float"),
        (lambda z: np.tanh(z.detach().numpy()), "without numpy"),
        (lambda z: z[:2], r"it gave \(2, 1\)"),
        (gl.Unit(activation=lambda z: 3.0), "does not map rows"),
    ],
)
def test_units_that_cannot_be_fitted_are_refused_in_a_sentence(unit, says):
    plane = gl.problem("x*y + x**2", n=60)
    with pytest.raises(gl.GatelabError, match=says):
        gl.fit(unit, plane, 3)
    with pytest.raises(gl.GatelabError, match=says):
        gl.scaling(unit, plane, [2, 3], jobs=1)


def test_advice_names_overfitting():
    """More neurons than 160 noisy rows bear; the advice was "more seeds may find a better one"."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((200, 5))
    rows = gl.Problem.from_arrays(x, x[:, 0] + 0.5 * generator.standard_normal(200), test_fraction=0.2)
    wide, narrow = (gl.fit("mlp", rows, n, starts=1, rounds=0) for n in (18, 1))
    times = wide.test_rmse / wide.train_rmse
    assert times > 3 > narrow.test_rmse / narrow.train_rmse
    assert wide.advice.startswith("overfitted") and wide.as_row()["advice"] == wide.advice
    assert "overfitted" in wide._repr_html_() and narrow.advice == narrow.status.advice
    assert gl.fit("glu", gl.problem("x**2", n=50), 3).advice == Status.FLOOR.advice, "at the rounding nothing is said"


def test_predict_in_slices_is_the_plain_forward_pass():
    """A network that calls itself very wide is given few rows at a time."""
    net = gl.unit("glu").network(7, 2, 3, init="normal")
    x = np.random.default_rng(0).standard_normal((50, 2))
    with torch.no_grad():
        expected = net(torch.from_numpy(x)).numpy()
    slices = []
    net.register_forward_pre_hook(lambda _, inputs: slices.append(len(inputs[0])))
    net.width = 2**22 // 8
    np.testing.assert_allclose(predict(net, x), expected, rtol=1e-14)
    assert slices == [8] * 6 + [2]


ROOMS = np.random.default_rng(1).uniform([1, 0], [9, 100], (120, 2))
PRICES = 50_000 * ROOMS[:, 0] * np.exp(-ROOMS[:, 1] / 100)
QUICK = {"starts": 1, "rounds": 0, "steps": 30}


def test_a_standardised_fit_predicts_raw_targets_from_raw_rows():
    problem = gl.Problem.from_arrays(ROOMS, PRICES, test=(ROOMS[:40] + 1e-3, PRICES[:40]), standardize=True)
    f = gl.fit("swiglu", problem, 3, **QUICK)
    error = f.predict(ROOMS[:40] + 1e-3)[:, 0] - PRICES[:40]
    assert np.sqrt(np.mean(error**2)) == pytest.approx(f.test_rmse_raw, rel=1e-9)
    assert f.test_rmse_raw == pytest.approx(f.test_rmse * PRICES.std(), rel=1e-9)
    assert f.test_rmse < 0.1 and f.as_row()["test_rmse_raw"] == f.test_rmse_raw
    (many,) = gl.fit_many("swiglu", problem, [3], **QUICK)
    np.testing.assert_array_equal(many.predict(ROOMS), f.predict(ROOMS))
    with torch.no_grad():
        inside = f.network(torch.from_numpy(problem.scales.x.shrink(ROOMS))).numpy()
    np.testing.assert_allclose(f.predict(ROOMS), problem.scales.y.stretch(inside), rtol=1e-12)


@pytest.fixture(scope="module")
def line():
    return gl.fit("mlp", gl.problem("2*x + 1", n=50), 2)


@pytest.fixture(scope="module")
def houses():
    table = pd.DataFrame(ROOMS, columns=["rooms", "age"])
    return gl.fit("mlp", gl.Problem.from_arrays(table, pd.Series(PRICES, name="price")), 2, **QUICK)


def test_a_number_and_no_rows_are_predicted_too(line):
    assert line.predict(0.5).shape == () and float(line.predict(0.5)) == pytest.approx(2, abs=1e-6)
    assert float(line.predict(torch.tensor(0.5, requires_grad=True))) == pytest.approx(2, abs=1e-6)
    assert line.predict([]).shape == (0,) and line.predict(np.empty((0, 1))).shape == (0, 1)
    assert line.predict([0.0, 0.5]).shape == (2,) and line.predict([[0.0], [0.5]]).shape == (2, 1)


def test_columns_of_a_table_are_taken_by_name(houses):
    assert (houses.columns, houses.targets) == (("rooms", "age"), ("price",))
    table = pd.DataFrame(ROOMS, columns=["rooms", "age"])
    expected = houses.predict(ROOMS)
    np.testing.assert_array_equal(houses.predict(table.assign(id=7)[["id", "age", "rooms"]]), expected)
    np.testing.assert_array_equal(houses.predict(pd.DataFrame(ROOMS)), expected)
    with pytest.raises(gl.GatelabError, match=r"no column 'age', only 'rooms', 'id'; give a table with 'rooms', 'age'"):
        houses.predict(table.rename(columns={"age": "id"}))


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (0.5, r"shape \(\) and the network has 2 inputs; give an array of the shape \(N, 2\)"),
        (np.zeros((4, 3)), r"shape \(4, 3\) and the network has 2 inputs"),
        (np.zeros((4, 2, 1)), r"shape \(4, 2, 1\)"),
        ([[1.0, np.nan]], "1 NaN and 0 infinite values, the first in row 0"),
    ],
)
def test_what_cannot_be_predicted_is_said(houses, x, says):
    with pytest.raises(gl.GatelabError, match=says):
        houses.predict(x)


@pytest.mark.parametrize(("size", "says"), [(1e308, r"targets reach 1e\+308"), (1e-310, "targets reach 1e-310")])
def test_targets_beyond_double_precision_are_refused_with_the_range_that_works(size, says):
    x = np.linspace(-1, 1, 60)
    rows = gl.Problem.from_arrays(x, size * np.sin(4 * x), test=(x + 0.01, size * np.sin(4 * x)))
    for solve in (gl.fit, gl.scaling, gl.limit):
        with pytest.raises(gl.GatelabError, match=says + r"; sizes from 1e-60 to 1e\+60 work"):
            solve("glu", rows, [2] if solve is gl.scaling else 2)
    with pytest.raises(gl.GatelabError, match="inputs reach"):
        gl.fit("glu", gl.Problem.from_arrays(size / 2 * x, x**2), 2)
    large, plain = (gl.fit("mlp", (x, s * np.sin(4 * x)), 6) for s in (1e55, 1.0))
    assert large.test_rmse / 1e55 == pytest.approx(plain.test_rmse, rel=1e-3)
