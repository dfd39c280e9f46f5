"""Least squares for a batch of tall matrices by matrix products, on CPU and CUDA.

Columns are scaled to norm one. The Cholesky factor of their Gram matrix, with iterative refinement, solves a well
conditioned problem as accurately as QR at half its cost. Otherwise Q and R come from shifted Cholesky-QR, applied three
times (Fukaya et al., SIAM J. Sci. Comput. 42, 2020), valid for condition numbers up to 1e14. The result of a matrix
does not depend on the rest of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.interrupts import stop_if_asked

# Columns up to which a Gram matrix is one product; on a GPU blocks are multiples of its tiles.
_BLOCK, _GPU_BLOCK, _GPU_TILE = 96, 128, 64
# Multiplications per piece on a CPU, some tenths of a second: a thread can be stopped between pieces. A GPU computes
# the whole batch at once.
_PIECE = 1e9
# Squared pivots of unit columns above this bound give an error of 1e-6, which refinement removes.
_WELL = 1e-10
_REFINEMENTS = 3
# Singular values of the scaled columns that count as zero: in QR, and with a shifted Gram matrix.
_RANK, _SQUARED_RANK = 1e-10, 1e-6
_MISSED = 1e-4
Product = Callable[[Tensor], Tensor]
_SHIFTS = 20  # each ten times the last, so that any finite matrix becomes positive definite


def on_gpu(A: Tensor) -> bool:
    """Whether launches and memory traffic cost more than multiplications."""
    return A.is_cuda


@dataclass(frozen=True)
class Projection:
    """The solutions of min |F c - y|^2 + penalty |c|^2 for a batch: c (B, m, o), y - F c (B, N, o), the minimum (B,).

    `lower` (B, m, m) is the Cholesky factor of F^T F + penalty, its columns multiplied by `scale` (B, m); `careful`
    (B,) marks the problems that were solved by QR.
    """

    coefficients: Tensor
    residual: Tensor
    loss: Tensor
    lower: Tensor
    scale: Tensor
    careful: Tensor

    def take(self, index: Tensor) -> Projection:
        """The solutions of some members of the batch."""
        return replace(self, **{name: value[index] for name, value in vars(self).items()})

    def put(self, index: Tensor, other: Projection) -> None:
        """Overwrite the entries at `index` in place."""
        for name, value in vars(self).items():
            value[index] = getattr(other, name)

    def reduced_gram(self, F: Tensor, J: Tensor, FJ: Tensor | None = None) -> Tensor:
        """J^T P J, where P projects onto the orthogonal complement of F: the normal matrix of variable projection."""
        if FJ is None:
            FJ = crossed(F, J)
        T = torch.linalg.solve_triangular(self.lower, self.scale[..., None] * FJ, upper=False)
        K = gram(J) - gram(T)
        if bool(self.careful.any()):
            # The difference of Gram matrices has lost half the digits: use the projected columns instead.
            i = self.careful.nonzero()[:, 0]
            Q = _right_solved(self.lower[i].mT, self.scale[i, None] * F[i])
            left = J[i] - _by_rows(torch.matmul, Q, crossed(Q, J[i]))
            K[i] = gram(left - _by_rows(torch.matmul, Q, crossed(Q, left)))
        return K


@dataclass(frozen=True)
class SpreadColumns:
    """The columns h_i x_k of a batch, h (B, N, n) and x (N, d), and one more, (B or 1, N, 1), for fast products."""

    h: Tensor
    x: Tensor
    last: Tensor

    def times(self, c: Tensor) -> Tensor:
        """F c (B, N, 1) for c (B, n d + 1, 1)."""
        inner = self.h @ c[:, :-1, 0].unflatten(-1, (self.h.shape[-1], self.x.shape[-1]))
        return (inner * self.x).sum(-1, keepdim=True) + self.last * c[:, -1:]

    def transposed_times(self, r: Tensor) -> Tensor:
        """F^T r (B, n d + 1, 1) for r (B, N, 1)."""
        inner = self.h.mT @ (r * self.x)
        return torch.cat([inner.flatten(1)[..., None], (self.last * r).sum(1, keepdim=True)], 1)

    def gram(self, F: Tensor) -> Tensor:
        """F^T F (B, n d + 1, n d + 1), its last row and column by products with a vector.

        On a GPU a single additional column would cost as much as a whole tile.
        """
        border = self.transposed_times(self.last.expand(len(self.h), -1, -1))
        return torch.cat([torch.cat([gram(F[..., :-1]), border[:, :-1]], -1), border.mT], -2)


def crossed(A: Tensor, B: Tensor) -> Tensor:
    """A^T B for batches (b, N, k) and (b, N, m), on a CPU in pieces if it is large."""
    stop_if_asked()
    return _in_pieces(lambda b, a: a.mT @ b, B, A, -1, 64)


def _in_pieces(function: Callable[[Tensor, Tensor], Tensor], A: Tensor, B: Tensor, dim: int, multiple: int) -> Tensor:
    """function(A, B), on a CPU in pieces of A, multiples of the libraries' blocks, if it is large."""
    work = float(A.shape[-2]) * A.shape[-1] * B.shape[-1]
    if on_gpu(A) or len(A) * work <= _PIECE:
        return function(A, B)
    size = multiple * int(max(1, A.shape[dim] * _PIECE // work // multiple))
    members = []
    for a, b in zip(A, B, strict=True):
        pieces = []
        for some in a.split(size, dim):
            stop_if_asked()
            pieces.append(function(some, b))
        members.append(torch.cat(pieces, dim))
    return torch.stack(members)


def _by_rows(function: Callable[[Tensor, Tensor], Tensor], A: Tensor, B: Tensor) -> Tensor:
    return _in_pieces(function, A, B, -2, 256)


def _right_solved(R: Tensor, A: Tensor) -> Tensor:
    """A R^-1 for upper triangular R; on a GPU by the inverse, since products are fast there."""
    if on_gpu(A):
        eye = torch.eye(R.shape[-1], dtype=R.dtype, device=R.device)
        return A @ torch.linalg.solve_triangular(R, eye.expand_as(R), upper=True)
    return _by_rows(lambda a, r: torch.linalg.solve_triangular(r, a, upper=True, left=False), A, R)


def gram(A: Tensor) -> Tensor:
    """A^T A, with each block off the diagonal computed once."""
    k, (block, tile) = A.shape[-1], (_GPU_BLOCK, _GPU_TILE) if on_gpu(A) else (_BLOCK, 1)
    if k <= block:
        return crossed(A, A)
    half = -(-k // (2 * tile)) * tile
    left, right = A[..., :half], A[..., half:]
    corner = crossed(left, right)
    return torch.cat([torch.cat([gram(left), corner], -1), torch.cat([corner.mT, gram(right)], -1)], -2)


def project(
    F: Tensor, y: Tensor, penalty: Tensor, *, rank: float = _RANK, spread: SpreadColumns | None = None
) -> Projection:
    """Solve the batch: F (B, N, m), y (B, N, o), penalty (B, m), which may be zero. Columns of zeros get coefficient 0.

    Singular values of the scaled columns below `rank` may be treated as zero: from 1e-6 on QR is used only if the
    residual shows a loss of accuracy. `spread` is the factored form of F, if it has one and o is one.
    """
    if spread is None:
        times, back, G = partial(torch.matmul, F), partial(torch.matmul, F.mT), gram(F)
    else:
        times, back, G = spread.times, spread.transposed_times, spread.gram(F)
    size = G.diagonal(dim1=-2, dim2=-1) + penalty
    scale = torch.where(size > 0, size.clamp_min(torch.finfo(F.dtype).tiny).rsqrt(), 0.0)
    scaled = scale[..., None] * G * scale[..., None, :]
    scaled.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    lower, failed = torch.linalg.cholesky_ex(scaled)
    near = (failed != 0) | ~(lower.diagonal(dim1=-2, dim2=-1).amin(-1).square() > _WELL)
    if bool(near.any()):
        lower[near] = _shifted_cholesky(scaled[near])
    c, r, missed = _refined(times, back, y, penalty, lower, scale)
    loss = r.square().sum((-2, -1))
    careful = near & ((rank < _SQUARED_RANK) | ~(missed <= _MISSED * loss))
    if bool(careful.any()):
        i = careful.nonzero()[:, 0]
        lower[i], c[i] = _by_qr(F[i], y[i], penalty[i], scale[i])
        r[i] = y[i] - F[i] @ c[i]
        loss[i] = r[i].square().sum((-2, -1))
    loss = loss + (penalty[..., None] * c.square()).sum((-2, -1))
    return Projection(c, r, loss, lower, scale, careful)


def _refined(
    times: Product, back: Product, y: Tensor, penalty: Tensor, lower: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Coefficients, residuals, and the decrease of the loss by one further refinement, from products with F and F^T."""
    c, r = torch.zeros(*scale.shape, y.shape[2], dtype=y.dtype, device=y.device), y
    for _ in range(1 + _REFINEMENTS):
        gradient = back(r) - penalty[..., None] * c
        c = c + scale[..., None] * torch.cholesky_solve(scale[..., None] * gradient, lower)
        r = y - times(c)
    gradient = scale[..., None] * (back(r) - penalty[..., None] * c)
    missed = torch.linalg.solve_triangular(lower, gradient, upper=False).square().sum((-2, -1))
    return c, r, missed


def _by_qr(F: Tensor, y: Tensor, penalty: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The factor and the coefficients by QR; added rows with small diagonal entries keep the rank full."""
    m = F.shape[-1]
    rows = (penalty * scale.square()).sqrt().clamp_min(_RANK)
    Q, R = cholesky_qr(torch.cat([scale[:, None] * F, torch.diag_embed(rows)], 1))
    Q = Q[:, :-m]
    c, r = torch.zeros_like(F[:, 0, :, None] * y[:, :1]), y
    for _ in range(2):  # the second round makes the residual orthogonal to the last digit
        c = c + scale[..., None] * torch.linalg.solve_triangular(R, Q.mT @ r, upper=True)
        r = y - F @ c
        if bool((penalty > 0).any()):
            break  # a second round would undo part of the penalty
    return R.mT, c


def cholesky_qr(A: Tensor) -> tuple[Tensor, Tensor]:
    """Q (B, N, m) with orthonormal columns and R upper triangular, A = Q R, for columns of about unit length."""
    R = _shifted_cholesky(gram(A)).mT
    Q = _right_solved(R, A)
    for _ in range(2):
        L = _shifted_cholesky(gram(Q))
        Q = _right_solved(L.mT, Q)
        R = L.mT @ R
    return Q, R


def _shifted_cholesky(G: Tensor) -> Tensor:
    """The Cholesky factor of each G plus the smallest shift of its diagonal that makes it positive definite."""
    L, failed = torch.linalg.cholesky_ex(G)
    eps = torch.finfo(G.dtype).eps
    shift = 4 * eps * G.diagonal(dim1=-2, dim2=-1).sum(-1)
    for _ in range(_SHIFTS):
        # Pivots at the level of rounding are noise and count as a failure.
        pivots = L.diagonal(dim1=-2, dim2=-1)
        noise = 4 * eps * G.shape[-1] * pivots.amax(-1).square()
        bad = (failed != 0) | ~(pivots.amin(-1).square() > noise)
        if not bool(bad.any()):
            return L
        i = bad.nonzero()[:, 0]
        shifted = G[i].clone()
        shifted.diagonal(dim1=-2, dim2=-1).add_(shift[i, None])
        L[i], failed[i] = torch.linalg.cholesky_ex(shifted)
        shift = shift * 10
    raise GatelabError(
        "the columns of a least-squares problem hold NaN or infinite values, or their squares overflow; give inputs,"
        " weights and a unit whose values are finite"
    )
