"""Rigorous bounds for the extreme eigenvalues of a symmetric matrix, by Lanczos and Cholesky.

Lanczos, with full reorthogonalization, finds lambda_max, and lambda_min too if the condition number is small; otherwise
solves with a Cholesky factor of K minus a shift just below the spectrum find lambda_min. For u = 2^-53 it is proved:

    inner bound    the Rayleigh quotient of a vector lies within the spectrum, up to 2 (n + 2) u |K|_F of rounding
    outer bound    if Cholesky's algorithm succeeds on A, lambda_min(A) >= -(n + 2) u tr A  (J. Demmel, LAPACK
                   Working Note 14, 1989; S. Rump, BIT 46, 2006). A = s - K bounds lambda_max, A = K - s lambda_min
    cheaper        if theta - r > sqrt(|K|_F^2 - (theta - r)^2), r the residual, every other eigenvalue is smaller

This holds for sums in any order, but not for Strassen's products. An error of norm p in K widens every interval by p.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal, get_blas_funcs
from torch import Tensor

from gatelab.arrays import Array
from gatelab.errors import check_seed
from gatelab.interrupts import apart

Apply = Callable[[Tensor], Tensor]
_EVERY = 5
_SYMV, _TRSV = get_blas_funcs(("symv", "trsv"), dtype="float64")
_U = 2.0**-53
_MARGIN = 1e-9  # the width of an interval relative to its eigenvalue, apart from rounding
_TOL = 1e-8
# Up to this condition number some 200 products find both ends, which is cheaper than a Cholesky factor.
_FLAT = 300.0
_OPERATOR_STEPS = 256
# The number of products for a first estimate: they cost little and give a shift that saves two of three solves.
_ROUGH = 100
_FAILURE = 1e-6


@dataclass(frozen=True, eq=False)
class Krylov:
    """A Q = Q T + beta_k q e_k^T: the rows of `basis` are the columns of Q, `alpha` and `beta` make T.

    beta[-1] is the norm of the remainder; the space is `closed` (invariant) if that is zero up to rounding.
    """

    basis: Tensor
    alpha: Array
    beta: Array
    closed: bool

    def ritz(self) -> tuple[Array, Array]:
        """Ritz values, ascending, and the eigenvectors of T."""
        return tridiagonal(self.alpha, self.beta)


@dataclass(frozen=True, eq=False)
class Ritz:
    """An approximate eigenvalue, its vector of length one, and an estimate of its error."""

    value: float
    vector: Tensor
    error: float


def start_vector(n: int, seed: int, device: torch.device | str = "cpu") -> Tensor:
    """A random direction, the same on every device."""
    v = torch.from_numpy(np.random.default_rng(seed).standard_normal(n)).to(device)
    return v / v.norm()


def krylov(apply: Apply, start: Tensor, steps: int, settled: Callable[[Array, Array], bool] | None = None) -> Krylov:
    """At most `steps` steps from `start` (of norm one); every five steps `settled(alpha, beta)` may end them."""
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
        closed = bool(beta[k - 1] <= 8 * _U * np.sqrt(n) * scale)
        enough = settled is not None and k % _EVERY == 0 and settled(alpha[:k], beta[:k])
        if closed or enough or k == steps:
            break
        if k == len(basis):
            basis = torch.cat([basis, torch.empty_like(basis[: min(k, steps - k)])])
        basis[k] = w / beta[k - 1]
    return Krylov(basis[:k], alpha[:k].copy(), beta[:k].copy(), closed)


def both_ends(
    apply: Apply, start: Tensor, *, tol: float = 1e-8, steps: int = 300, flat: float = 0.0, least: int = 0
) -> tuple[Ritz, Ritz]:
    """The largest and the smallest eigenvalue, the latter accurate if their ratio is below `flat`."""

    def error(values: Array, vectors: Array, beta: float, which: int) -> float:
        """The residual of an end, or its square over the gap to the next Ritz value if that is smaller."""
        residual = float(beta * abs(vectors[-1, which]))
        if len(values) == 1:
            return residual
        gap = abs(float(values[which] - values[-2 if which else 1]))
        return min(residual, residual**2 / gap) if gap > 0 else residual

    def settled(alpha: Array, beta: Array) -> bool:
        values, vectors = tridiagonal(alpha, beta)
        if error(values, vectors, beta[-1], -1) > tol * max(abs(values[0]), abs(values[-1])):
            return False
        hopeless = len(alpha) >= least and (values[0] <= 0 or values[0] * flat <= values[-1])
        return bool(hopeless or error(values, vectors, beta[-1], 0) <= tol * values[0])

    space = krylov(apply, start, steps, settled)
    values, vectors = space.ritz()

    def end(which: int) -> Ritz:
        v = space.basis.T @ torch.as_tensor(vectors[:, which].copy(), dtype=start.dtype, device=start.device)
        off = 0.0 if space.closed else error(values, vectors, space.beta[-1], which)
        return Ritz(float(values[which]), v / v.norm(), off)

    return end(-1), end(0)


def tridiagonal(alpha: Array, beta: Array) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors of the matrix with diagonal `alpha` and off-diagonal `beta`."""
    values, vectors = eigh_tridiagonal(alpha, beta[:-1])
    return np.asarray(values), np.asarray(vectors)


def quadrature(
    apply: Apply, n: int, probes: int, steps: int, seed: int, device: torch.device | str
) -> tuple[Array, Array]:
    """Nodes and weights (sum 1) of stochastic Lanczos quadrature: sums approximate means over the spectrum."""
    nodes, weights = [], []
    first = check_seed(seed)
    for probe in range(probes):
        values, vectors = krylov(apply, start_vector(n, first + probe, device), steps).ritz()
        nodes.append(values)
        weights.append(vectors[0] ** 2 / probes)
    return np.concatenate(nodes), np.concatenate(weights)


@dataclass(frozen=True)
class Bracket:
    """An eigenvalue and an interval that contains it."""

    value: float
    lower: float
    upper: float

    def widened(self, by: float) -> Bracket:
        return Bracket(self.value, self.lower - by, self.upper + by)


@dataclass(frozen=True)
class Extremes:
    """Both ends of a spectrum. For operators they are not `proved`: they fail for one start vector in a million."""

    lambda_max: Bracket
    lambda_min: Bracket
    proved: bool = True

    def widened(self, by: float) -> Extremes:
        return Extremes(self.lambda_max.widened(by), self.lambda_min.widened(by), self.proved)


def extremes(K: Tensor, *, entry_error: float = 0.0) -> Extremes:
    """Both ends of the spectrum of a symmetric float64 matrix; `entry_error` is that of K_ij over sqrt(K_ii K_jj)."""
    n = len(K)
    if not bool(K.any()):
        return Extremes(Bracket(0.0, 0.0, 0.0), Bracket(0.0, 0.0, 0.0))
    norm = float(torch.linalg.matrix_norm(K)) * (1 + n * n * _U)
    rounding = 2 * (n + 2) * _U * norm
    top, bottom = both_ends(product(K), start_vector(n, 0, K.device), tol=_TOL, flat=_FLAT, least=_ROUGH)
    high = _top_bracket(K, top, norm, rounding)
    # Above the limit `_FLAT` the lower end is accurate only if the Krylov space has closed.
    low = _bottom_bracket(K, bottom, _TOL * (bottom.value * _FLAT > top.value), rounding)
    return Extremes(high, low).widened(entry_error * float(K.diagonal().abs().sum()))


def _top_bracket(K: Tensor, ritz: Ritz, norm: float, rounding: float) -> Bracket:
    """The interval of lambda_max around a Ritz value; `norm` is the Frobenius norm of K."""
    image = K @ ritz.vector
    theta = float(ritz.vector @ image)
    r = float((image - theta * ritz.vector).norm()) + rounding
    base = max(theta - r, 0.0)
    others = math.sqrt(max(norm * norm - base * base, 0.0))
    if others < base:
        # The only eigenvalue beyond `others` lies within r of theta, and within r^2 over the gap.
        upper = theta + rounding + min(r, r * r / (theta - others))
    else:
        upper = outer_bound(K, -1, theta, ritz.error)
    return Bracket(theta, theta - rounding, upper)


def _bottom_bracket(K: Tensor, ritz: Ritz, tol: float, rounding: float) -> Bracket:
    """The interval of lambda_min around a converged Ritz value, otherwise by solves with a Cholesky factor."""
    n = len(K)
    if 0 <= ritz.error <= tol * ritz.value:
        theta = float(ritz.vector @ (K @ ritz.vector))
        return Bracket(theta, -outer_bound(K, 1, -theta, ritz.error), theta + rounding)
    trusted = (n + 2) * _U * float(K.diagonal().abs().sum())
    # K + shift must be positive definite, and solves converge faster if its smallest eigenvalue is near 0. The Ritz
    # value is an upper bound of lambda_min.
    below = ritz.value - max(0.03 * ritz.value, 2 * ritz.error)
    shift = -below if below > trusted else 1.1 * max(-ritz.value - trusted, 0.0)
    while (factor := cholesky(K, 1, shift)) is None:
        shift = 0.0 if shift < 0 else max(4 * shift, trusted)
    tol = _TOL
    if shift < 0:
        # An error of 1 / (lambda_min + shift) is a smaller relative error of lambda_min.
        tol *= max(1.0, ritz.value / (ritz.value + shift))
    first = start_vector(n, 1, K.device)
    inverse, _ = both_ends(partial(solve_factored, factor), first, tol=tol, steps=500)
    # One more solve removes the remaining components of large eigenvalues, which would dominate the quotient.
    v = solve_factored(factor, inverse.vector)
    v /= v.norm()
    del factor
    theta = float(v @ (K @ v))
    if theta + shift <= 4 * trusted:
        # K is numerically singular at the smallest possible shift, so that a second factor cannot improve the bound.
        return Bracket(theta, -shift - allowance(K, 1, shift), theta + rounding)
    error = inverse.error / abs(inverse.value) * abs(theta + shift)
    return Bracket(theta, -outer_bound(K, 1, -theta, error), theta + rounding)


def outer_bound(K: Tensor, sign: int, theta: float, error: float) -> float:
    """An upper bound of the eigenvalues of -sign K, as near to theta as Cholesky's algorithm permits."""
    margin = max(4 * error, _MARGIN * abs(theta), allowance(K, sign, theta) / 16)
    while cholesky(K, sign, theta + margin) is None:
        margin *= 8
    return theta + margin + allowance(K, sign, theta + margin)


def allowance(K: Tensor, sign: int, shift: float) -> float:
    """The error of Cholesky's test of sign K + shift, with the rounding of the diagonal."""
    diagonal = K.diagonal()
    rounding = 2 * _U * (abs(shift) + float(diagonal.abs().max()))
    return (len(K) + 2) * _U * float((sign * diagonal + shift).abs().sum()) + rounding


def cholesky(K: Tensor, sign: int, shift: float) -> Tensor | None:
    """The factor of sign K + shift, or None if the algorithm breaks down."""
    A = sign * K
    A.diagonal().add_(shift)
    # The transpose is the same matrix in the memory order of LAPACK, which can then work in place.
    A = A.mT
    into = (A, torch.empty((), dtype=torch.int32)) if A.device.type == "cpu" else None
    factor, failed = apart(torch.linalg.cholesky_ex, A, out=into)
    if int(failed) or not bool(torch.isfinite(factor.diagonal()).all()):
        return None
    return factor


def product(K: Tensor) -> Apply:
    """v -> K v, which reads only one half of K if BLAS can: these products are bound by memory."""
    if K.device.type != "cpu" or not K.is_contiguous():
        return lambda v: K @ v
    columns = K.numpy().T
    return lambda v: torch.from_numpy(_SYMV(1.0, columns, v.numpy(), lower=1))


def solve_factored(factor: Tensor, v: Tensor) -> Tensor:
    """L^-T L^-1 v."""
    if factor.device.type == "cpu" and factor.mT.is_contiguous():  # in BLAS's memory order, so that no copy is made
        L = factor.numpy()
        return torch.from_numpy(_TRSV(L, _TRSV(L, v.numpy(), lower=1), lower=1, trans=1))
    half = torch.linalg.solve_triangular(factor, v[:, None], upper=False)
    return torch.linalg.solve_triangular(factor.mT, half, upper=True)[:, 0]


def operator_extremes(apply: Apply, n: int, *, unit: float = _U) -> Extremes:
    """Both ends of the spectrum of a positive semidefinite operator, from products that are rounded to `unit`.

    By J. Kuczynski and H. Wozniakowski (SIAM J. Matrix Anal. Appl. 13, 1992), lambda_max exceeds the largest Ritz value
    after k steps by at most eps lambda_max, except with probability 1.648 sqrt(n) exp(-sqrt(eps) (2k - 1)).
    """
    if n <= _OPERATOR_STEPS:
        K = torch.stack([apply(row) for row in torch.eye(n, dtype=torch.float64)])
        off = float(torch.linalg.matrix_norm(K - K.mT)) + n * unit * float(torch.linalg.matrix_norm(K))
        return extremes((K + K.mT) / 2).widened(off)
    space = krylov(apply, start_vector(n, 0), _OPERATOR_STEPS)
    values = space.ritz()[0]
    k, high, low = len(values), float(values[-1]), float(values[0])
    rounding = 2 * (n + 2) * unit * high
    eps = (math.log(1.648 * math.sqrt(n) / _FAILURE) / (2 * k - 1)) ** 2
    beyond = below = math.inf
    if eps < 1:
        beyond = high * eps / (1 - eps)
        # At the other end the theorem is applied to lambda_max - K.
        below = (high + beyond - low) * eps / (1 - eps)
    top = Bracket(high, high - rounding, high + beyond + rounding)
    return Extremes(top, Bracket(low, low - below - rounding, low + rounding), proved=False)
