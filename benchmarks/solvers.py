"""The knot solver against the paper's Newton solver, same data, same run."""

from __future__ import annotations

from collections.abc import Iterator

import gatelab as gl
from benchmarks.harness import Row, Table, timed
from gatelab.solve.solvers.newton import solve as solve_newton


def run() -> Iterator[Table]:
    p = gl.problem("paper-1d")
    for name in ("mlp", "glu", "gqu"):  # warm up: first calls compile and cache
        gl.fit(name, p, 4)
        solve_newton(name, p, 4, steps=4)
    yield (
        "Knot solver and Newton: 1/(1+cos^2 pi x), 10 000 points, fully trained",
        [_compare(name, p, width) for name in ("mlp", "glu", "gqu") for width in (10, 20, 35)],
        "ratios: seconds of Newton over seconds of knots. Newton (autodiff): the Hessian by differentiating the "
        "gradient, as the paper's code has it; timed on the first steps of both schedules, times the steps that the "
        "structured twin took (same matrices). Newton (ours): the structured Hessian, run to its end. '1 start' is "
        "knots with starts=1.",
    )


def _compare(name: str, p: gl.Problem, width: int) -> Row:
    knots, single = (
        min((gl.fit(name, p, width, starts=starts) for _ in range(3)), key=lambda f: f.seconds) for starts in (4, 1)
    )
    ours = gl.fit(name, p, width, solver="newton")
    paper = _paper_seconds(name, p, width, ours.steps)
    return {
        "unit": name,
        "width": width,
        "knots s": knots.seconds,
        "RMSE": knots.train_rmse,
        "1 start s": single.seconds,
        "RMSE ": single.train_rmse,
        "Newton RMSE": ours.train_rmse,
        "autodiff s": paper,
        "ratio": paper / knots.seconds,
        "ours s": ours.seconds,
        "ratio ": ours.seconds / knots.seconds,
        "1 start": ours.seconds / single.seconds,
    }


def _paper_seconds(name: str, p: gl.Problem, width: int, steps: int) -> float:
    """Half of the steps are layer sweeps, half the cascade, as in `Schedule.PAPER`."""
    seconds, count = 0.0, gl.unit(name).factors + 2
    for schedule in ("layers", "cascade"):
        done, length = timed(
            lambda schedule=schedule: solve_newton(name, p, width, schedule=schedule, steps=count, hessian="autodiff")
        )
        seconds += length / max(done.steps, 1) * steps / 2
    return seconds
