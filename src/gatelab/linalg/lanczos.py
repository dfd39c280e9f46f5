"""Lanczos with full reorthogonalisation: Krylov bases, extreme eigenvalues, quadrature of the spectral density.

Every new vector is made orthogonal to all before it, twice: no ghosts, and the residuals mean what they say. Matrices
come as functions v -> A v of float64 tensors, on any device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from gatelab.errors import check_seed

Array = NDArray[np.float64]
Apply = Callable[[Tensor], Tensor]
_EPS = 2.0**-52
_EVERY = 5


@dataclass(frozen=True, eq=False)
class Krylov:
    """A Q = Q T + beta_k q e_k^T: the rows of `basis` are the columns of Q, `alpha` and `beta` make T.

    beta[-1] is the norm of what is left over; `closed` says that it is rounding, so that the space is invariant.
    """

    basis: Tensor
    alpha: Array
    beta: Array
    closed: bool

    def ritz(self) -> tuple[Array, Array]:
        """Ritz values, ascending, and the eigenvectors of T."""
        return _tridiagonal(self.alpha, self.beta)


@dataclass(frozen=True, eq=False)
class Ritz:
    """An approximate eigenvalue, its vector of length one, and an estimate of its error."""

    value: float
    vector: Tensor
    error: float
    steps: int


def start_vector(n: int, seed: int, device: torch.device | str = "cpu") -> Tensor:
    """A chance direction, the same on every device."""
    v = torch.from_numpy(np.random.default_rng(seed).standard_normal(n)).to(device)
    return v / v.norm()


def krylov(apply: Apply, start: Tensor, steps: int, done: Callable[[Array, Array], bool] | None = None) -> Krylov:
    """At most `steps` steps from `start` (of length one); every five steps `done(alpha, beta)` may end them.

    >>> A = torch.diag(torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64))
    >>> krylov(lambda v: A @ v, start_vector(3, 0), 3).ritz()[0].round(9)
    array([1., 2., 5.])
    """
    n = len(start)
    steps = min(steps, n)
    basis = torch.empty(min(steps, 32), n, dtype=start.dtype, device=start.device)
    alpha, beta = np.zeros(steps), np.zeros(steps)
    basis[0] = start
    closed, scale, k = False, 0.0, 0
    for k in range(1, steps + 1):
        w = apply(basis[k - 1])
        alpha[k - 1] = float(basis[k - 1] @ w)
        for _ in range(2):
            w = w - basis[:k].T @ (basis[:k] @ w)
        beta[k - 1] = float(w.norm())
        scale = max(scale, abs(alpha[k - 1]) + beta[k - 1])
        closed = bool(beta[k - 1] <= 4 * _EPS * np.sqrt(n) * scale)
        enough = done is not None and k % _EVERY == 0 and done(alpha[:k], beta[:k])
        if closed or enough or k == steps:
            break
        if k == len(basis):
            basis = torch.cat([basis, torch.empty_like(basis[: min(k, steps - k)])])
        basis[k] = w / beta[k - 1]
    return Krylov(basis[:k], alpha[:k].copy(), beta[:k].copy(), closed)


def largest(apply: Apply, start: Tensor, *, tol: float = 1e-8, steps: int = 500) -> Ritz:
    """The largest eigenvalue, until its error is estimated below `tol` times the largest in absolute value."""
    return both_ends(apply, start, tol=tol, steps=steps, flat=0.0)[0]


def both_ends(
    apply: Apply, start: Tensor, *, tol: float = 1e-8, steps: int = 300, flat: float, least: int = 0
) -> tuple[Ritz, Ritz]:
    """The largest eigenvalue and the smallest; the latter is waited for where the Ritz values span less than `flat`.

    Elsewhere it is what the `least` number of steps gives.

    >>> A = torch.diag(torch.linspace(1, 9, 50, dtype=torch.float64))
    >>> top, bottom = both_ends(lambda v: A @ v, start_vector(50, 0), flat=100)
    >>> round(top.value, 9), round(bottom.value, 9)
    (9.0, 1.0)
    """

    def done(alpha: Array, beta: Array) -> bool:
        values, vectors = _tridiagonal(alpha, beta)
        if _error(values, vectors, beta[-1], -1) > tol * max(abs(values[0]), abs(values[-1])):
            return False
        hopeless = len(alpha) >= least and (values[0] <= 0 or values[0] * flat <= values[-1])
        return bool(hopeless or _error(values, vectors, beta[-1], 0) <= tol * values[0])

    space = krylov(apply, start, steps, done)
    values, vectors = space.ritz()

    def end(which: int) -> Ritz:
        v = space.basis.T @ torch.as_tensor(vectors[:, which].copy(), dtype=start.dtype, device=start.device)
        error = 0.0 if space.closed else _error(values, vectors, space.beta[-1], which)
        return Ritz(float(values[which]), v / v.norm(), error, len(values))

    return end(-1), end(0)


def _tridiagonal(alpha: Array, beta: Array) -> tuple[Array, Array]:
    values, vectors = eigh_tridiagonal(alpha, beta[:-1])
    return np.asarray(values), np.asarray(vectors)


def _error(values: Array, vectors: Array, beta: float, which: int) -> float:
    """The residual of an end, or its square over the gap to the next Ritz value where that is less."""
    residual = float(beta * abs(vectors[-1, which]))
    gap = abs(float(values[which] - values[-2 if which else 1])) if len(values) > 1 else 0.0
    return min(residual, residual**2 / gap) if gap > 0 else residual


def quadrature(
    apply: Apply, n: int, probes: int, steps: int, seed: int, device: torch.device | str
) -> tuple[Array, Array]:
    """Nodes and weights (sum 1) whose sums approximate the means of functions over the spectrum.

    Stochastic Lanczos quadrature: exact for polynomials of degree 2 steps - 1 along each of the chance directions.

    >>> A = torch.diag(torch.arange(1.0, 5.0, dtype=torch.float64))
    >>> nodes, weights = quadrature(lambda v: A @ v, 4, 500, 4, 0, "cpu")
    >>> bool(abs(weights @ nodes - 2.5) < 0.15)  # five standard errors
    True
    """
    nodes, weights = [], []
    first = check_seed(seed)
    for probe in range(probes):
        values, vectors = krylov(apply, start_vector(n, first + probe, device), steps).ritz()
        nodes.append(values)
        weights.append(vectors[0] ** 2 / probes)
    return np.concatenate(nodes), np.concatenate(weights)
