"""The solvers beside the paper's Newton solver and peers from PyPI, and their cost by points and width."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib import import_module

import numpy as np
from sklearn.metrics import root_mean_squared_error
from sklearn.neural_network import MLPRegressor

import gatelab as gl
from benchmarks.harness import Row, Table, timed


def run() -> Iterator[Table]:
    warnings.filterwarnings("ignore")
    p = gl.problem("paper-1d")
    units = ("mlp", "glu", "gqu")
    for name in units:  # warm up: first calls compile and cache
        gl.fit(name, p, 4)
        gl.fit(name, p, 4, solver="newton", steps=4)
    rows = [_newton(name, p, width) for name in units for width in (10, 20, 35)]
    title = "Knot solver and Newton: 1/(1+cos^2 pi x), 10 000 points, fully trained"
    yield title, rows, "ratio: seconds of Newton over seconds of knots."
    few = gl.problem("paper-1d", n=2000)
    note = "times: the fastest of 2 runs; ratio: time over that of gatelab mlp."
    yield "Width 8 (or 9 cells), 2 000 points", _peers(few, 8), note
    yield "Width 30, 2 000 points", _peers(few, 30), note + " pwlf searches globally and is left out at this width."
    data = {n: gl.problem("paper-1d", n=n, n_test=10_000) for n in (10_000, 100_000, 1_000_000)}
    rows = []
    for name in units:
        seconds = {n: min(gl.fit(name, p, 30).seconds for _ in range(2)) for n, p in data.items()}
        slope = np.polyfit(np.log([*seconds]), np.log([*seconds.values()]), 1)[0]
        rows.append({"unit": name, **{f"N = {n:.0e}": s for n, s in seconds.items()}, "exponent": slope})
    yield "Seconds against the number of points, width 30", rows, "exponent: the slope of log seconds against log N"


def _newton(name: str, p: gl.Problem, width: int) -> Row:
    knots = min((gl.fit(name, p, width) for _ in range(3)), key=lambda f: f.seconds)
    newton = gl.fit(name, p, width, solver="newton")
    row: Row = {"unit": name, "width": width, "knots s": knots.seconds, "RMSE": knots.train_rmse}
    row |= {"Newton s": newton.seconds, "Newton RMSE": newton.train_rmse}
    return row | {"ratio": newton.seconds / knots.seconds}


def _peers(p: gl.Problem, width: int) -> list[Row]:
    options = {"solver": "lbfgs", "alpha": 0.0, "max_iter": 5000, "tol": 1e-12, "random_state": 0}
    layers = MLPRegressor(hidden_layer_sizes=(width,), **options)
    makers: dict[str, Callable[[], float]] = {
        "gatelab mlp": lambda: gl.fit("mlp", p, width).test_rmse,
        "gatelab glu": lambda: gl.fit("glu", p, width).test_rmse,
        "gatelab relu3": lambda: gl.fit("relu3", p, width).test_rmse,
        "scipy make_lsq_spline, degree 1": lambda: gl.spline_baseline(1, p, width + 1)[1],
        "scipy make_lsq_spline, degree 3": lambda: gl.spline_baseline(3, p, width + 1)[1],
        "scikit-learn MLPRegressor (lbfgs)": lambda: root_mean_squared_error(
            p.test.y, layers.fit(p.train.x, p.train.y[:, 0]).predict(p.test.x)
        ),
        "torch Adam, mlp": lambda: gl.fit("mlp", p, width, solver="adam").test_rmse,
        "torch L-BFGS, glu": lambda: gl.fit("glu", p, width, solver="lbfgs").test_rmse,
    }
    if width < 10:
        makers["pwlf (fitfast)"] = lambda: _pwlf(p, width + 1)
    rows: list[Row] = []
    for name, make in makers.items():
        runs = [timed(make) for _ in range(2)]
        rows.append({"method": name, "test RMSE": runs[0][0], "seconds": min(seconds for _, seconds in runs)})
    return [row | {"ratio": row["seconds"] / rows[0]["seconds"]} for row in rows]


def _pwlf(p: gl.Problem, cells: int) -> float:
    model = import_module("pwlf").PiecewiseLinFit(p.train.x[:, 0], p.train.y[:, 0], seed=0)
    model.fitfast(cells, pop=3)
    return root_mean_squared_error(p.test.y[:, 0], model.predict(p.test.x[:, 0]))
