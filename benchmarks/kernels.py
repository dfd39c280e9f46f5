"""Analytic kernels of orders 0 and 1 together, against the time of the plain product X X^T in the same run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import torch

from gatelab import ntk

Table = tuple[str, list[dict[str, float | str]], str]

D, WIDTH = 784, 4096
PAIRS = {"relu": ["mlp", "glu"], "gelu": ["gelu", "geglu"], "silu": ["silu", "swiglu"]}


def run(sizes: tuple[int, ...] = (2000, 4000, 10_000)) -> Iterator[Table]:
    before = torch.get_num_threads()
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    try:
        yield _table(sizes)
    finally:
        torch.set_num_threads(before)


def _table(sizes: tuple[int, ...]) -> Table:
    rows: list[dict[str, float | str]] = []
    for n in sizes:
        x = torch.randn(n, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        repeats = 3 if n <= 4000 else 2
        for gate, names in PAIRS.items():
            # Measured anew for every pair, in turn with it: the ratio is what a noisy machine disturbs least.
            plain, both = alternately(lambda: x @ x.T, lambda: ntk.analytic(names, x, WIDTH), repeats)  # noqa: B023
            error = max(kernel.error for kernel in ntk.analytic(names, x[:500], WIDTH))
            rows.append(
                {"gate": gate, "n": n, "X X^T": plain, "both kernels": both, "ratio": both / plain, "error": error}
            )
    return (
        f"Kernels of orders 0 and 1 together, d = {D}, float64, {torch.get_num_threads()} threads, seconds",
        rows,
        "ratio: over the product X X^T in the same run, at most 2 wanted for relu; error: as estimated, 0 for formulas",
    )


def alternately(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[float, float]:
    """The best time of each, taken in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for call, taken in zip((first, second), times, strict=True):
            began = time.perf_counter()
            call()
            taken.append(time.perf_counter() - began)
    return min(times[0]), min(times[1])
