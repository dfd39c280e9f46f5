"""Variable projection: errors and times on Friedman1 and sin4x sin4y, and a batch against the loop of its members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import gatelab as gl
from benchmarks.harness import Row, Table, threads, timed
from gatelab.solve.solvers.varpro import varpro_many

# The paper's code on as many points, one seed: training RMSE and seconds of a core (results/scaling/reference.jsonl).
REFERENCE = {
    ("friedman1", "glu"): {8: (0.0324, 17), 16: (0.0381, 35)},
    ("friedman1", "mlp"): {8: (0.0868, 9), 16: (0.139, 12)},
    ("sin4x-sin4y", "glu"): {8: (0.169, 8)},
    ("sin4x-sin4y", "mlp"): {8: (0.38, 4)},
}


def run() -> Iterator[Table]:
    with threads(2) as cores:
        yield _fits("friedman1", (8, 16, 32), cores)
        yield _fits("sin4x-sin4y", (8, 16, 32, 64), cores)
        yield _batch(cores)


def _fits(name: str, widths: Sequence[int], cores: int) -> Table:
    data = gl.problem(name, n=2000)
    rows: list[Row] = []
    for unit in ("mlp", "glu", "gqu", "swiglu"):
        fits = [gl.fit(unit, data, width) for width in widths]
        slopes = [np.nan] * (len(fits) - 2)
        for errors in ([f.train_rmse for f in fits], [f.test_rmse for f in fits]):
            slopes.append(float(np.polyfit(np.log(widths), np.log(errors), 1)[0]))
        for f, slope in zip(fits, slopes, strict=True):
            error, seconds = REFERENCE.get((name, unit), {}).get(f.width, (np.nan, np.nan))
            row = {"unit": unit, "width": f.width, "parameters": f.parameters, "train RMSE": f.train_rmse}
            row |= {"test RMSE": f.test_rmse, "seconds": f.seconds, "status": str(f.status)}
            rows.append(row | {"reference": error, "its seconds": seconds, "slope": slope})
    return (
        f"{name}, 2000 points, best of 4 starts, {cores} threads",
        rows,
        "slope: of the training error (last row but one of a unit) and of the test error (last row) against n. "
        "reference: the paper's code, run as it is, training error; its times are for orientation",
    )


def _batch(cores: int) -> Table:
    rows: list[Row] = []
    data = gl.problem("friedman1", n=1000)
    x, y = data.train.x, data.train.y
    members = [(8, seed) for seed in range(32)]
    for unit in ("mlp", "glu"):

        def batch(unit: str = unit) -> Any:
            return varpro_many(unit, x, y, members, starts=1)

        def loop(unit: str = unit) -> Any:
            return [varpro_many(unit, x, y, [m], starts=1)[0] for m in members]

        varpro_many(unit, x, y, members[:2], starts=1)
        (together, batched), (alone, looped) = timed(batch), timed(loop)
        with threads(1):
            (_, single), (_, single_loop) = timed(batch), timed(loop)
        difference = max(
            float((p - q).detach().abs().max())
            for a, b in zip(together, alone, strict=True)
            for p, q in zip(a.network.parameters(), b.network.parameters(), strict=True)
        )
        row = {"unit": unit, "batch s": batched, "loop s": looped, "ratio": looped / batched}
        row |= {"1 thread: batch s": single, "loop s ": single_loop, "ratio ": single_loop / single}
        rows.append(row | {"best loop / batch": min(looped, single_loop) / batched, "difference": difference})
    return (
        "32 fits of width 8 on 1000 points of Friedman1: one batch against a loop",
        rows,
        f"{cores} threads, and one; difference: the largest of any parameter between batch and loop",
    )
