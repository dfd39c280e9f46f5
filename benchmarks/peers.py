"""Peers from PyPI on the same data: scipy's splines, pwlf, scikit-learn's MLPRegressor, torch's optimizers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pwlf
from sklearn.neural_network import MLPRegressor

import gatelab as gl
from benchmarks.harness import Row, Table, timed


def run() -> Iterator[Table]:
    warnings.filterwarnings("ignore")
    p = gl.problem("paper-1d", n=2000)
    yield "Width 8 (or 9 cells), 2 000 points", _rows(p, 8), _NOTE
    yield "Width 30, 2 000 points", _rows(p, 30), _NOTE + " pwlf searches globally and is left out at this width."


_NOTE = "times: the fastest of 2 runs; ratio: time over that of gatelab mlp."


def _rows(p: gl.Problem, width: int) -> list[Row]:
    makers: dict[str, Callable[[], float]] = {
        "gatelab mlp": lambda: gl.fit("mlp", p, width).test_rmse,
        "gatelab glu": lambda: gl.fit("glu", p, width).test_rmse,
        "gatelab relu3": lambda: gl.fit("relu3", p, width).test_rmse,
        "scipy make_lsq_spline, degree 1": lambda: gl.spline_baseline(1, p, width + 1)[1],
        "scipy make_lsq_spline, degree 3": lambda: gl.spline_baseline(3, p, width + 1)[1],
        "scikit-learn MLPRegressor (lbfgs)": lambda: _sklearn(p, width),
        "torch Adam, mlp": lambda: gl.fit("mlp", p, width, solver="adam").test_rmse,
        "torch L-BFGS, glu": lambda: gl.fit("glu", p, width, solver="lbfgs").test_rmse,
    }
    if width < 10:
        makers["pwlf (fitfast)"] = lambda: _pwlf(p, width + 1)
    rows: list[Row] = []
    for name, make in makers.items():
        runs = [timed(make) for _ in range(2)]
        seconds = min(length for _, length in runs)
        rows.append({"method": name, "test RMSE": runs[0][0], "seconds": seconds})
    return [row | {"ratio": row["seconds"] / rows[0]["seconds"]} for row in rows]


def _sklearn(p: gl.Problem, width: int) -> float:
    net = MLPRegressor(hidden_layer_sizes=(width,), solver="lbfgs", alpha=0.0, max_iter=5000, tol=1e-12, random_state=0)
    net.fit(p.train.x, p.train.y[:, 0])
    return float(np.sqrt(np.mean((net.predict(p.test.x) - p.test.y[:, 0]) ** 2)))


def _pwlf(p: gl.Problem, cells: int) -> float:
    model = pwlf.PiecewiseLinFit(p.train.x[:, 0], p.train.y[:, 0], seed=0)
    model.fitfast(cells, pop=3)
    return float(np.sqrt(np.mean((model.predict(p.test.x[:, 0]) - p.test.y[:, 0]) ** 2)))
