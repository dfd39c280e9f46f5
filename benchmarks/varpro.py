"""Variable projection: errors and times on Friedman1 and sin4x sin4y, and a batch against the loop of its members."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch

import gatelab as gl
from gatelab.solve.solvers.varpro import varpro_many

Table = tuple[str, list[dict[str, float | str]], str]

# The paper's code on as many points, one seed: training RMSE and seconds of a core (results/scaling/reference.jsonl).
REFERENCE = {
    ("friedman1", "glu"): {8: (0.0324, 17), 16: (0.0381, 35)},
    ("friedman1", "mlp"): {8: (0.0868, 9), 16: (0.139, 12)},
    ("sin4x-sin4y", "glu"): {8: (0.169, 8)},
    ("sin4x-sin4y", "mlp"): {8: (0.38, 4)},
}


def run() -> Iterator[Table]:
    before = torch.get_num_threads()
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    try:
        yield _fits("friedman1", ("mlp", "glu", "gqu", "swiglu"), (8, 16, 32))
        yield _fits("sin4x-sin4y", ("mlp", "glu", "gqu", "swiglu"), (8, 16, 32, 64))
        yield _batch()
    finally:
        torch.set_num_threads(before)


def _fits(name: str, units: Sequence[str], widths: Sequence[int]) -> Table:
    data = gl.problem(name, n=2000)
    rows: list[dict[str, float | str]] = []
    for unit in units:
        fits = [gl.fit(unit, data, width) for width in widths]
        for f in fits:
            theirs = REFERENCE.get((name, unit), {}).get(f.width, (np.nan, np.nan))
            rows.append(
                {
                    "unit": unit,
                    "width": f.width,
                    "parameters": f.parameters,
                    "train RMSE": f.train_rmse,
                    "test RMSE": f.test_rmse,
                    "seconds": f.seconds,
                    "status": str(f.status),
                    "reference": theirs[0],
                    "its seconds": theirs[1],
                }
            )
        n = np.log([f.width for f in fits])
        for row, kind in ((rows[-2], "train"), (rows[-1], "test")):
            row["slope"] = float(np.polyfit(n, np.log([getattr(f, f"{kind}_rmse") for f in fits]), 1)[0])
        for row in rows:
            row.setdefault("slope", np.nan)
    return (
        f"{name}, 2000 points, best of 4 starts, {torch.get_num_threads()} threads",
        rows,
        "slope: of the training error (last row but one of a unit) and of the test error (last row) against n. "
        "reference: the paper's code, run as it is, training error; its times are for orientation",
    )


def _batch() -> Table:
    rows: list[dict[str, float | str]] = []
    data = gl.problem("friedman1", n=1000)
    x, y = data.train.x, data.train.y
    members = [(8, seed) for seed in range(32)]
    threads = torch.get_num_threads()
    for unit in ("mlp", "glu"):
        varpro_many(unit, x, y, members[:2], starts=1)
        together, found = _timed(lambda unit=unit: varpro_many(unit, x, y, members, starts=1))
        one_by_one, alone = _timed(lambda unit=unit: [varpro_many(unit, x, y, [m], starts=1)[0] for m in members])
        torch.set_num_threads(1)
        single, _ = _timed(lambda unit=unit: varpro_many(unit, x, y, members, starts=1))
        single_loop, _ = _timed(lambda unit=unit: [varpro_many(unit, x, y, [m], starts=1)[0] for m in members])
        torch.set_num_threads(threads)
        difference = max(
            float((p - q).detach().abs().max())
            for a, b in zip(found, alone, strict=True)
            for p, q in zip(a.network.parameters(), b.network.parameters(), strict=True)
        )
        rows.append({"unit": unit, "batch s": together, "loop s": one_by_one, "ratio": one_by_one / together})
        rows[-1] |= {"1 thread: batch s": single, "loop s ": single_loop, "ratio ": single_loop / single}
        rows[-1] |= {"best loop / batch": min(one_by_one, single_loop) / together, "difference": difference}
    return (
        "32 fits of width 8 on 1000 points of Friedman1: one batch against a loop",
        rows,
        f"{threads} threads, and one; difference: the largest of any parameter between batch and loop",
    )


def _timed(work):
    began = time.perf_counter()
    out = work()
    return time.perf_counter() - began, out
