"""Analytic kernels against the plain product X X^T, and the ends of their spectra against all eigenvalues."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.harness import Row, Table, best_times, threads, timed
from gatelab import ntk

D, WIDTH = 784, 4096
SIZES = {2000: 3, 4000: 3, 10_000: 2}  # and how often each is measured
PAIRS = {"relu": ["mlp", "glu"], "gelu": ["gelu", "geglu"], "silu": ["silu", "swiglu"]}


def run() -> Iterator[Table]:
    rows: list[Row] = []
    with threads(2) as cores:
        for n, repeats in SIZES.items():
            x = torch.randn(n, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
            for gate, names in PAIRS.items():
                plain, both = best_times(
                    lambda x=x: x @ x.T, lambda names=names, x=x: ntk.analytic(names, x, WIDTH), repeats=repeats
                )
                error = max(kernel.error for kernel in ntk.analytic(names, x[:500], WIDTH))
                row = {"gate": gate, "n": n, "X X^T": plain, "both kernels": both}
                rows.append(row | {"ratio": both / plain, "error": error})
    yield (
        f"Kernels of orders 0 and 1 together, d = {D}, float64, {cores} threads, seconds",
        rows,
        "ratio: over the product X X^T in the same run, at most 2 wanted for relu; error: as estimated, 0 for formulas",
    )
    rows = []
    with threads() as cores:  # on every core, as users have them
        for n in (1500, 3000, 10_000):
            X = np.random.default_rng(0).standard_normal((n, D))
            for unit in PAIRS["relu"]:
                K = ntk.analytic(unit, X, WIDTH)
                ends, seconds = timed(lambda K=K: ntk.spectrum(K))
                values, full = timed(lambda K=K: torch.linalg.eigvalsh(K.matrix))
                low, high = ends.condition_bounds
                row = {"unit": unit, "n": n, "ends, s": seconds, "all, s": full, "faster": full / seconds}
                differs = abs(ends.condition * float(values[0] / values[-1]) - 1)
                rows.append(row | {"condition": ends.condition, "differs": differs, "bounds": high / low - 1})
    yield (
        f"Ends of the spectrum with bounds, and all of it; d = {D}, {cores} cores",
        rows,
        "differs: relative difference of the condition numbers; bounds: relative width of the proved interval",
    )
