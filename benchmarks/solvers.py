"""The solvers beside the paper's Newton solver and peers from PyPI, their cost by points and width, and batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.neural_network import MLPRegressor

import gatelab as gl
from benchmarks.harness import Row, Table, best_times, threads, timed
from gatelab.solve.solvers.newton import solve as solve_newton
from gatelab.solve.solvers.varpro import varpro_many


def run() -> Iterator[Table]:
    warnings.filterwarnings("ignore")
    p = gl.problem("paper-1d")
    for name in ("mlp", "glu", "gqu"):  # warm up: first calls compile and cache
        gl.fit(name, p, 4)
        solve_newton(name, p, 4, steps=4)
    yield (
        "Knot solver and Newton: 1/(1+cos^2 pi x), 10 000 points, fully trained",
        [_newton(name, p, width) for name in ("mlp", "glu", "gqu") for width in (10, 20, 35)],
        "ratios: seconds of Newton over seconds of knots. Newton (autodiff): the Hessian by differentiating the "
        "gradient, as the paper's code has it; timed on the first steps of both schedules, times the steps that the "
        "structured twin took (same matrices). Newton (ours): the structured Hessian, run to its end. '1 start' is "
        "knots with starts=1.",
    )
    few = gl.problem("paper-1d", n=2000)
    note = "times: the fastest of 2 runs; ratio: time over that of gatelab mlp."
    yield "Width 8 (or 9 cells), 2 000 points", _peers(few, 8), note
    yield "Width 30, 2 000 points", _peers(few, 30), note + " pwlf searches globally and is left out at this width."
    yield (
        "Seconds against the number of points, width 30",
        [_growth(name) for name in ("mlp", "glu", "gqu")],
        "growth: what the step from 1e5 to 1e6 adds over what that from 1e4 to 1e5 adds; 10 is linear",
    )
    p, rows = gl.problem("paper-1d", n=40_000), []
    for name in ("mlp", "glu", "relu2"):
        for width in (100, 300, 1000):
            f = gl.fit(name, p, width)
            row = {"unit": name, "width": width, "seconds": f.seconds, "test RMSE": f.test_rmse}
            rows.append(row | {"over the limit": f.test_rmse / gl.limit(name, p, width)})
    yield "Wide networks, 40 000 points", rows, ""
    with threads(2) as cores:
        yield (
            "32 fits of width 8 on 1000 points of Friedman1: one batch against a loop",
            [_batch(name) for name in ("mlp", "glu")],
            f"{cores} threads, and one; difference: the largest of any parameter between batch and loop",
        )


def _newton(name: str, p: gl.Problem, width: int) -> Row:
    knots, single = (
        min((gl.fit(name, p, width, starts=starts) for _ in range(3)), key=lambda f: f.seconds) for starts in (4, 1)
    )
    ours = gl.fit(name, p, width, solver="newton")
    # Half of the paper's steps are layer sweeps, half the cascade, as in `Schedule.PAPER`.
    paper, count = 0.0, gl.unit(name).factors + 2
    for schedule in ("layers", "cascade"):
        options = {"schedule": schedule, "steps": count, "hessian": "autodiff"}
        done, seconds = timed(lambda options=options: solve_newton(name, p, width, **options))
        paper += seconds / max(done.steps, 1) * ours.steps / 2
    row: Row = {"unit": name, "width": width, "knots s": knots.seconds, "RMSE": knots.train_rmse}
    row |= {"1 start s": single.seconds, "RMSE ": single.train_rmse, "Newton RMSE": ours.train_rmse}
    row |= {"autodiff s": paper, "ratio": paper / knots.seconds, "ours s": ours.seconds}
    return row | {"ratio ": ours.seconds / knots.seconds, "1 start": ours.seconds / single.seconds}


def _peers(p: gl.Problem, width: int) -> list[Row]:
    options = {"solver": "lbfgs", "alpha": 0.0, "max_iter": 5000, "tol": 1e-12, "random_state": 0}
    layers = MLPRegressor(hidden_layer_sizes=(width,), **options)
    makers: dict[str, Callable[[], float]] = {
        "gatelab mlp": lambda: gl.fit("mlp", p, width).test_rmse,
        "gatelab glu": lambda: gl.fit("glu", p, width).test_rmse,
        "gatelab relu3": lambda: gl.fit("relu3", p, width).test_rmse,
        "scipy make_lsq_spline, degree 1": lambda: gl.spline_baseline(1, p, width + 1)[1],
        "scipy make_lsq_spline, degree 3": lambda: gl.spline_baseline(3, p, width + 1)[1],
        "scikit-learn MLPRegressor (lbfgs)": lambda: _rmse(p, layers.fit(p.train.x, p.train.y[:, 0]).predict(p.test.x)),
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
    import pwlf

    model = pwlf.PiecewiseLinFit(p.train.x[:, 0], p.train.y[:, 0], seed=0)
    model.fitfast(cells, pop=3)
    return _rmse(p, model.predict(p.test.x[:, 0]))


def _rmse(p: gl.Problem, prediction: np.ndarray) -> float:
    return float(np.sqrt(np.mean((prediction - p.test.y[:, 0]) ** 2)))


def _growth(name: str) -> Row:
    sizes = (10_000, 100_000, 1_000_000)
    data = [gl.problem("paper-1d", n=n, n_test=10_000) for n in sizes]
    seconds = np.array([min(gl.fit(name, p, 30).seconds for _ in range(2)) for p in data])
    row: Row = {"unit": name, **{f"N = {n:.0e}": s for n, s in zip(sizes, seconds, strict=True)}}
    row["exponent"] = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    return row | {"growth": (seconds[2] - seconds[1]) / (seconds[1] - seconds[0])}


def _batch(name: str) -> Row:
    train = gl.problem("friedman1", n=1000).train
    members = [(8, seed) for seed in range(32)]

    def batch() -> list:
        return varpro_many(name, train.x, train.y, members, starts=1)

    def loop() -> list:
        return [varpro_many(name, train.x, train.y, [member], starts=1)[0] for member in members]

    difference = max(
        float((p - q).detach().abs().max())
        for a, b in zip(batch(), loop(), strict=True)
        for p, q in zip(a.network.parameters(), b.network.parameters(), strict=True)
    )
    batched, looped = best_times(batch, loop, repeats=1)
    with threads(1):
        single, single_loop = best_times(batch, loop, repeats=1)
    row: Row = {"unit": name, "batch s": batched, "loop s": looped, "ratio": looped / batched}
    row |= {"1 thread: batch s": single, "loop s ": single_loop, "ratio ": single_loop / single}
    return row | {"best loop / batch": min(looped, single_loop) / batched, "difference": difference}
