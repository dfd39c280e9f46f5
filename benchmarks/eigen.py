"""Extreme eigenvalues against the full spectrum, and estimates of condition numbers against measured ones."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np
import torch

from gatelab.ntk import analytic, estimate, spectrum

Table = tuple[str, list[dict[str, float | str]], str]
UNITS = ("mlp", "glu")
SIZES = (1500, 3000, 10_000)
DIMENSIONS = (50, 100, 200, 400, 800)
RATIOS = (0.5, 1.0, 2.0, 4.0)
WIDTH, SEEDS = 1000, 3


def run() -> Iterator[Table]:
    yield from ends()
    yield from estimates()


def ends(sizes: tuple[int, ...] = SIZES, d: int = 784) -> Iterator[Table]:
    """On every core, as users have them; the other benchmarks keep to one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    rows: list[dict[str, float | str]] = []
    try:
        for n in sizes:
            X = np.random.default_rng(0).standard_normal((n, d))
            for unit in UNITS:
                K = analytic(unit, X, width=4096)
                began = time.perf_counter()
                found = spectrum(K)
                middle = time.perf_counter()
                values = torch.linalg.eigvalsh(K.matrix)
                full = time.perf_counter() - middle
                ratio = float(values[-1] / values[0])
                low, high = found.condition_bounds
                rows.append(
                    {
                        "unit": unit,
                        "n": n,
                        "ends, s": middle - began,
                        "all, s": full,
                        "faster": full / (middle - began),
                        "condition": found.condition,
                        "differs": abs(found.condition / ratio - 1),
                        "bounds": high / low - 1,
                    }
                )
    finally:
        torch.set_num_threads(threads)
    yield (
        f"Ends of the spectrum with bounds, and all of it; d = {d}, {os.cpu_count()} cores",
        rows,
        "differs: relative difference of the condition numbers; bounds: relative width of the proved interval",
    )


def estimates(
    dimensions: tuple[int, ...] = DIMENSIONS,
    ratios: tuple[float, ...] = RATIOS,
    width: int | None = WIDTH,
    seeds: int = SEEDS,
) -> Iterator[Table]:
    rows: list[dict[str, float | str]] = []
    for unit in UNITS:
        for d in dimensions:
            for n in (round(r * d) for r in ratios):
                measured = float(np.mean([_condition(unit, n, d, width, seed) for seed in range(seeds)]))
                e = estimate(unit, n, d, width)
                assert e.paper is not None
                rows.append({"unit": unit, "d": d, "n": n, "measured": measured, "paper": e.paper.condition})
                rows[-1]["ours"] = e.ours.condition
                rows[-1]["paper / measured"] = e.paper.condition / measured
                rows[-1]["ours / measured"] = e.ours.condition / measured
    off = max(abs(float(row["ours / measured"]) - 1) for row in rows)
    yield (
        f"Condition numbers for Gaussian data, width {width}: mean of {seeds} seeds, the paper's estimate, ours",
        rows,
        f"ours is within {100 * off:.0f} % of the mean over seeds everywhere",
    )


def _condition(unit: str, n: int, d: int, width: int | None, seed: int) -> float:
    X = np.random.default_rng(seed).standard_normal((n, d))
    values = np.linalg.eigvalsh(np.asarray(analytic(unit, X, width=width)))
    return float(values[-1] / values[0])
