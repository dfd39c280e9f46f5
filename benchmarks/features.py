"""Features of polynomials beside scikit-learn's: time, memory, error; and a large layer in bounded memory."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.preprocessing import PolynomialFeatures

from benchmarks.harness import Row, Table, best_times, timed
from gatelab.linearization import linearize

DEGREE = 4


def run() -> Iterator[Table]:
    yield _monomials()
    yield _sketches()
    yield _layer(1024, 256, 2048)


def _monomials(rows: int = 1000) -> Table:
    out: list[Row] = []
    for d in (8, 16, 32):
        X, W = _normal(rows, d, 0), _normal(50, d, 1) / d**0.5
        linear = linearize("gelu", "hermite", degree=DEGREE, d=d)
        assert linear.polynomial is not None
        ours, theirs = linear.psi(torch.from_numpy(X)), PolynomialFeatures(DEGREE).fit_transform(X)
        seconds, their_seconds = best_times(
            lambda linear=linear, X=X: linear.psi(torch.from_numpy(X)),
            lambda X=X: PolynomialFeatures(DEGREE).fit_transform(X),
        )
        gap = (ours @ linear.phi(torch.from_numpy(W)).T).numpy() - linear.polynomial(X @ W.T)
        row = {"d": d, "our features": ours.shape[1], "sklearn features": theirs.shape[1]}
        row |= {"our s": seconds, "sklearn s": their_seconds, "our MiB": ours.numel() * 8 / 2**20}
        out.append(row | {"sklearn MiB": theirs.nbytes / 2**20, "largest |phi.psi - p|": float(np.abs(gap).max())})
    note = "ours leaves out the powers that the polynomial has not, and has the weights that make a product of two maps"
    return f"Monomials to degree {DEGREE}, {rows} rows, beside PolynomialFeatures", out, note


def _sketches(rows: int = 1000, d: int = 16) -> Table:
    """(w.x)^4 of unit vectors: exact by monomials, in expectation by TensorSketch."""
    X, W = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (_normal(rows, d, 0), _normal(200, d, 1)))
    exact = (X @ W.T) ** DEGREE
    out: list[Row] = []

    def measure(method: str, features: int, psi: Callable[[np.ndarray], Any], phi: Callable[[np.ndarray], Any]) -> None:
        (seconds,) = best_times(lambda: psi(X))
        error = float(np.sqrt(np.mean((np.asarray(psi(X) @ phi(W).T) - exact) ** 2)))
        out.append({"method": method, "features": features, "seconds": seconds, "RMSE": error})

    def ours(name: str, linear: Any) -> None:
        measure(name, linear.m, *(lambda v, f=f: f(torch.from_numpy(v)) for f in (linear.psi, linear.phi)))

    ours("symmetric", linearize(lambda z: z**DEGREE, "taylor", degree=DEGREE, d=d))
    for m in (256, 1024, 4096):
        sketch = PolynomialCountSketch(degree=DEGREE, n_components=m, random_state=0).fit(X)
        measure("PolynomialCountSketch", m, sketch.transform, sketch.transform)
        ours("our TensorSketch", linearize(lambda z: z**DEGREE, "tensorsketch", d=d, m=m, degree=DEGREE, seed=0))
    return (
        f"(w.x)^{DEGREE} on the unit sphere, d = {d}",
        out,
        "psi of the rows is timed; with one seed both sketches draw the same hashes, so that their errors agree",
    )


def _layer(n: int, d: int, rows: int) -> Table:
    """A whole layer of n neurons by degree 2, with features and without, and what was held beside the result."""
    out: list[Row] = []
    linear = linearize("gelu", "hermite", degree=2)
    whole = linear.features(d).m
    W, X = (torch.from_numpy(v) for v in (_normal(n, d, 0) / d**0.5, _normal(rows, d, 1)))
    exact = linear.exact(W, X)
    for features, product in ((0, linear.product), (whole, lambda W, X: linear.psi(X) @ linear.phi(W).T)):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        value, seconds = timed(lambda product=product: product(W, X))
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
        row = {"features": features, "seconds": seconds, "peak MiB": peak}
        row["features whole, MiB"] = whole * (n + rows) * 8 / 2**20
        out.append(row | {"RMSE": float((value - exact).square().mean().sqrt())})
    return f"A layer of {n} x {d} on {rows} inputs, float64", out, "peak: growth of the resident set"


def _normal(n: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))
