"""Extreme eigenvalues against the full spectrum, and estimates of condition numbers against measured ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.harness import Row, Table, threads, timed
from gatelab.ntk import analytic, estimate, spectrum

UNITS = ("mlp", "glu")
SIZES = (1500, 3000, 10_000)
DIMENSIONS = (50, 100, 200, 400, 800)
RATIOS = (0.5, 1.0, 2.0, 4.0)
WIDTH, SEEDS = 1000, 3


def run() -> Iterator[Table]:
    with threads() as cores:
        yield _ends(cores)
    yield _estimates()


def _ends(cores: int, d: int = 784) -> Table:
    """On every core, as users have them."""
    rows: list[Row] = []
    for n in SIZES:
        X = np.random.default_rng(0).standard_normal((n, d))
        for unit in UNITS:
            K = analytic(unit, X, width=4096)
            ends, seconds = timed(lambda K=K: spectrum(K))
            values, full = timed(lambda K=K: torch.linalg.eigvalsh(K.matrix))
            low, high = ends.condition_bounds
            row = {"unit": unit, "n": n, "ends, s": seconds, "all, s": full, "faster": full / seconds}
            row |= {"condition": ends.condition, "differs": abs(ends.condition * float(values[0] / values[-1]) - 1)}
            rows.append(row | {"bounds": high / low - 1})
    return (
        f"Ends of the spectrum with bounds, and all of it; d = {d}, {cores} cores",
        rows,
        "differs: relative difference of the condition numbers; bounds: relative width of the proved interval",
    )


def _estimates() -> Table:
    rows: list[Row] = []
    for unit in UNITS:
        for d in DIMENSIONS:
            for n in (round(r * d) for r in RATIOS):
                measured = float(np.mean([_condition(unit, n, d, seed) for seed in range(SEEDS)]))
                e = estimate(unit, n, d, WIDTH)
                assert e.paper is not None
                paper, ours = e.paper.condition, e.ours.condition
                row = {"unit": unit, "d": d, "n": n, "measured": measured, "paper": paper, "ours": ours}
                rows.append(row | {"paper / measured": paper / measured, "ours / measured": ours / measured})
    off = max(abs(row["ours / measured"] - 1) for row in rows)
    return (
        f"Condition numbers for Gaussian data, width {WIDTH}: mean of {SEEDS} seeds, the paper's estimate, ours",
        rows,
        f"ours is within {100 * off:.0f} % of the mean over seeds everywhere",
    )


def _condition(unit: str, n: int, d: int, seed: int) -> float:
    X = np.random.default_rng(seed).standard_normal((n, d))
    values = np.linalg.eigvalsh(np.asarray(analytic(unit, X, width=WIDTH)))
    return float(values[-1] / values[0])
