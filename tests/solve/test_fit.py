"""`fit`: one result type, its checks, and the claim that the knot solver is the best of the solvers."""

import numpy as np
import pytest
import torch

import gatelab as gl
from gatelab.solve import SOLVERS, predict


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_returns_the_same_kind_of_result(solver):
    options = {"steps": 20} if solver in ("newton", "adam", "lbfgs") else {}
    f = gl.fit("glu", gl.problem("sin4x", n=300), 4, solver=solver, **options)
    assert isinstance(f, gl.Fit)
    assert f.solver == solver
    assert f.parameters == 21
    assert len(f.history) == f.steps
    assert f.status.advice
    x = gl.problem("sin4x", n=300).train.x
    with torch.no_grad():
        y = f.network(torch.from_numpy(x)).numpy()
    assert f.train_rmse == pytest.approx(np.sqrt(np.mean((y - np.sin(4 * x)) ** 2)), rel=1e-12)


def test_train_and_test_are_different_data():
    f = gl.fit("mlp", gl.problem("paper-1d", n=300), 20)
    assert f.train_rmse < f.test_rmse


@pytest.mark.parametrize("name", ["mlp", "relu2", "relu3", "glu", "gqu"])
@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 13, 20])
def test_the_knot_solver_beats_or_meets_the_others(name, width):
    p = gl.problem("paper-1d", n=1000)
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
    alone = [gl.fit("glu", p, 4, solver="lbfgs", seed=s, steps=30).train_rmse for s in range(3)]
    best = gl.fit("glu", p, 4, solver="lbfgs", seeds=3, steps=30)
    assert best.train_rmse == min(alone)
    assert best.seed == int(np.argmin(alone))


def test_errors_name_the_way_out():
    with pytest.raises(gl.GatelabError, match="'newton'"):
        gl.fit("glu", "x2", 3, solver="newtn")
    with pytest.raises(gl.GatelabError, match="1 or more"):
        gl.fit("glu", "x2", 0)
    with pytest.raises(gl.GatelabError, match="seeds"):
        gl.fit("glu", "x2", 3, seeds=0)


def test_a_solver_of_ones_own():
    def untrained(unit, problem, width, *, seed):
        return gl.solve.Solution(unit.network(width, seed=seed), gl.Status.BUDGET, (1.0,))

    assert gl.fit("glu", "x2", 3, solver=untrained).solver == "untrained"


def test_predict_in_slices_is_the_plain_forward_pass(monkeypatch):
    net = gl.unit("glu").network(7, 2, 3, init="normal")
    x = np.random.default_rng(0).standard_normal((50, 2))
    with torch.no_grad():
        np.testing.assert_array_equal(predict(net, x), net(torch.from_numpy(x)).numpy())
    f = gl.fit("mlp", gl.problem("x2", n=100), 3)
    assert f.predict([0.0, 0.5]).shape == (2,)
    assert f.predict([[0.0], [0.5]]).shape == (2, 1)
    assert set(f.as_row()) >= {"unit", "width", "test_rmse", "status", "advice"}
