"""Features of polynomials beside scikit-learn's: time, memory, error; and a large layer in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.preprocessing import PolynomialFeatures

from gatelab.linearization import linearize

Table = tuple[str, list[dict[str, float | str]], str]
DEGREE = 4


def run(
    sizes: tuple[int, ...] = (8, 16, 32), rows: int = 1000, layer: tuple[int, int, int] = (1024, 256, 2048)
) -> Iterator[Table]:
    """`layer` is (neurons, inputs, rows of X); a large one is (4096, 1024, 8192)."""
    yield _monomials(sizes, rows)
    yield _sketches(rows)
    yield _layer(*layer)


def _monomials(sizes: tuple[int, ...], rows: int) -> Table:
    out = []
    for d in sizes:
        X, W = _rows(rows, d, 0), _rows(50, d, 1) / d**0.5
        made = linearize("gelu", "hermite", degree=DEGREE, d=d)
        assert made.polynomial is not None
        exact = made.polynomial(X @ W.T)
        ours = _timed(lambda made=made, X=X: made.psi(torch.from_numpy(X)))
        theirs = _timed(lambda X=X: PolynomialFeatures(DEGREE).fit_transform(X))
        gap = (ours[0] @ made.phi(torch.from_numpy(W)).T).numpy() - exact
        out.append(
            {
                "d": d,
                "our features": ours[0].shape[1],
                "sklearn features": theirs[0].shape[1],
                "our s": ours[1],
                "sklearn s": theirs[1],
                "our MiB": ours[0].numel() * 8 / 2**20,
                "sklearn MiB": theirs[0].nbytes / 2**20,
                "largest |phi.psi - p|": float(np.abs(gap).max()),
            }
        )
    note = "ours leaves out the powers that the polynomial has not, and has the weights that make a product of two maps"
    return f"Monomials to degree {DEGREE}, {rows} rows, beside PolynomialFeatures", out, note


def _sketches(rows: int, d: int = 16) -> Table:
    """(w.x)^4 of unit vectors: exact by monomials, in expectation by TensorSketch."""
    X, W = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (_rows(rows, d, 0), _rows(200, d, 1)))
    exact = (X @ W.T) ** DEGREE
    out = []
    made = linearize(lambda z: z**DEGREE, "taylor", degree=DEGREE, d=d)
    assert made.polynomial is not None and made.polynomial.degrees == (DEGREE,)
    psi, seconds = _timed(lambda: made.psi(torch.from_numpy(X)))
    gap = (psi @ made.phi(torch.from_numpy(W)).T).numpy() - exact
    out.append({"method": "symmetric", "features": made.m, "seconds": seconds, "RMSE": float(np.sqrt((gap**2).mean()))})
    for m in (256, 1024, 4096):
        sketch = PolynomialCountSketch(degree=DEGREE, n_components=m, random_state=0).fit(X)
        found, seconds = _timed(lambda sketch=sketch: sketch.transform(X))
        gap = found @ sketch.transform(W).T - exact
        row = {"method": "PolynomialCountSketch", "features": m, "seconds": seconds}
        out.append({**row, "RMSE": float(np.sqrt((gap**2).mean()))})
        ours = linearize(lambda z: z**DEGREE, "tensorsketch", d=d, m=m, degree=DEGREE, seed=0)
        psi, seconds = _timed(lambda ours=ours: ours.psi(torch.from_numpy(X)))
        gap = (psi @ ours.phi(torch.from_numpy(W)).T).numpy() - exact
        out.append(
            {"method": "our TensorSketch", "features": m, "seconds": seconds, "RMSE": float(np.sqrt((gap**2).mean()))}
        )
    return (
        f"(w.x)^{DEGREE} on the unit sphere, d = {d}",
        out,
        "psi of the rows is timed; with one seed both sketches draw the same hashes, so that their errors agree",
    )


def _layer(n: int, d: int, rows: int) -> Table:
    """A whole layer by degree 2, with features and without, and what was held beside the result."""
    out = []
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for device in devices:
        W = torch.from_numpy(_rows(n, d, 0) / d**0.5).to(device)
        X = torch.from_numpy(_rows(rows, d, 1)).to(device)
        made = linearize("gelu", "hermite", degree=2)
        for features in (False, True):
            peak = _Peak(device)
            ways = {False: made.product, True: lambda W, X, made=made: made.psi(X) @ made.phi(W).T}
            value, seconds = _timed(lambda way=ways[features], W=W, X=X: way(W, X), 1)
            exact = made.exact(W, X)
            row = {"device": device, "features": made.features(d).m if features else 0, "seconds": seconds}
            row["peak MiB"] = peak.read()
            row["features whole, MiB"] = made.features(d).m * (n + rows) * 8 / 2**20
            out.append({**row, "RMSE": float((value - exact).square().mean().sqrt())})
    return (
        f"A layer of {n} x {d} on {rows} inputs, float64",
        out,
        "peak: growth of the resident set, or of CUDA's allocations",
    )


class _Peak:
    """The most that was held since it was made: CUDA's own count, or the high-water mark of the process."""

    def __init__(self, device: str) -> None:
        self.device = device
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self.before = self._now()

    def _now(self) -> float:
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated() / 2**20
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

    def read(self) -> float:
        return self._now() - self.before


def _rows(n: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


def _timed(call: Callable[[], Any], repeats: int = 3) -> tuple[Any, float]:
    found, best = None, float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        found = call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return found, best
