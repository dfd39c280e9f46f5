"""The knot solver against the paper's Newton solver, same data, same run."""

from __future__ import annotations

import time
from collections.abc import Iterator

import gatelab as gl
from gatelab.solve.solvers.newton import solve as solve_newton

Table = tuple[str, list[dict[str, float | str]], str]


def run() -> Iterator[Table]:
    p = gl.problem("paper-1d")
    for name in ("mlp", "glu", "gqu"):  # warm up: first calls compile and cache
        gl.fit(name, p, 4)
        solve_newton(name, p, 4, steps=4)
    rows = []
    for name in ("mlp", "glu", "gqu"):
        for width in (10, 20, 35):
            rows.append(_compare(name, p, width))
    yield (
        "Knot solver and Newton: 1/(1+cos^2 pi x), 10 000 points, fully trained",
        rows,
        "ratios: seconds of Newton over seconds of knots. Newton (autodiff): the Hessian by differentiating the "
        "gradient, as the paper's code has it; timed on the first steps of both schedules, times the steps that the "
        "structured twin took (same matrices). Newton (ours): the structured Hessian, run to its end. '1 start' is "
        "knots with starts=1.",
    )


def _compare(name: str, p: gl.Problem, width: int) -> dict[str, float | str]:
    knots, single = (min(_thrice(name, p, width, starts), key=lambda f: f.seconds) for starts in (4, 1))
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


def _thrice(name: str, p: gl.Problem, width: int, starts: int) -> list[gl.Fit]:
    return [gl.fit(name, p, width, starts=starts) for _ in range(3)]


def _paper_seconds(name: str, p: gl.Problem, width: int, steps: int) -> float:
    """Half of the steps are layer sweeps, half the cascade, as in `Schedule.PAPER`."""
    seconds = 0.0
    factors = gl.unit(name).factors + 2
    for schedule, count in (("layers", factors), ("cascade", factors)):
        began = time.perf_counter()
        done = solve_newton(name, p, width, schedule=schedule, steps=count, hessian="autodiff").steps
        seconds += (time.perf_counter() - began) / max(done, 1) * steps / 2
    return seconds
