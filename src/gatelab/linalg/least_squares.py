"""Least squares for a batch of tall matrices, made of matrix products: on a CPU and on CUDA alike.

Columns are scaled to length one. Where the Gram matrix of the scaled columns is well conditioned its Cholesky factor
solves the problem and two steps of refinement with true residuals restore what squaring lost: the answer is as good as
that of QR at half the price. Where it is not, and that matters, Q and R come from Cholesky-QR, shifted and done three
times (Fukaya et al., SIAM J. Sci. Comput. 42, 2020), which holds for condition numbers to 1e14. Each matrix of a batch
goes its own way, so that its result does not depend on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.linalg.interruptible import stop_if_asked

# Columns up to which a square is one product; a GPU's products are cut where its tiles end.
_BLOCK, _GPU_BLOCK, _GPU_TILE = 96, 128, 64
# Whether a GPU factors matrices in blocks, and the largest block that its library is given. Libraries factor and solve
# a batch column by column, a launch or a wait for each; blocks are products.
_GPU_FACTORS_BLOCKS, _LEAF = False, 32
# Multiplications that a CPU does in one piece, some tenths of a second: a thread can be stopped between pieces. A GPU
# is given the whole batch at once, which launches a product once and not for every member.
_PIECE = 1e9
# Pivots (squared, of unit columns) above this bound leave 1e-6 of error after squaring, which refinement removes.
_WELL = 1e-10
_REFINEMENTS = 3
# Directions of the scaled columns below this singular value are not told from zero: by QR, and by a shifted square.
_RANK, _SQUARED_RANK = 1e-10, 1e-6
_MISSED = 1e-4
# Shifts that are tried, each ten times the last: with so many any matrix of numbers is positive.
_SHIFTS = 20


def on_gpu(A: Tensor) -> bool:
    """Whether a tensor is where launches and passes over memory cost more than multiplications."""
    return A.is_cuda


@dataclass(frozen=True)
class Projection:
    """The solutions of min |F c - y|^2 + penalty |c|^2 for a batch.

    Attributes:
        coefficients: c, (B, m, o).
        residual: y - F c, (B, N, o).
        loss: the minimum, (B,).
        lower: the Cholesky factor of the scaled F^T F + penalty, (B, m, m).
        scale: what the columns were multiplied by, (B, m).
        careful: which of the batch took the way of QR, (B,).
    """

    coefficients: Tensor
    residual: Tensor
    loss: Tensor
    lower: Tensor
    scale: Tensor
    careful: Tensor

    def take(self, index: Tensor) -> Projection:
        """Those of some members of the batch."""
        return replace(self, **{name: value[index] for name, value in vars(self).items()})

    def put(self, index: Tensor, other: Projection) -> None:
        """Overwrite the entries at `index` in place."""
        for name, value in vars(self).items():
            value[index] = getattr(other, name)

    def reduced_gram(self, F: Tensor, J: Tensor, FJ: Tensor | None = None) -> Tensor:
        """J^T P J, where P projects on what F leaves: the normal matrix of a variable projection.

        Args:
            F: the columns (B, N, m) that were projected on.
            J: other columns (B, N, p).
            FJ: F^T J, if it is known.

        Returns:
            The matrix (B, p, p).
        """
        if FJ is None:
            FJ = crossed(F, J)
        T = Triangle.of(self.lower).solved(self.scale[..., None] * FJ)
        K = gram(J) - gram(T)
        if bool(self.careful.any()):
            # The difference of squares has lost half the digits: take the products of what was projected instead.
            i = self.careful.nonzero()[:, 0]
            Q = _right_solved(self.lower[i].mT, self.scale[i, None] * F[i])
            left = J[i] - _by_rows(torch.matmul, Q, crossed(Q, J[i]))
            K[i] = gram(left - _by_rows(torch.matmul, Q, crossed(Q, left)))
        return K


@dataclass(frozen=True)
class SpreadColumns:
    """The columns h_i x_k of a batch and one more, whose products with vectors need h and x alone.

    The matrix has d times as many entries as h, and its products with single vectors take as long as it takes to read
    them: this is what they cost on a GPU.

    Attributes:
        h: (B, N, n).
        x: (N, d), the same for the whole batch.
        last: the column behind the n d others, (B or 1, N, 1).
    """

    h: Tensor
    x: Tensor
    last: Tensor

    def times(self, c: Tensor) -> Tensor:
        """F c (B, N, 1) for c (B, n d + 1, 1).

        Args:
            c: the vectors.

        Returns:
            The products.
        """
        inner = self.h @ c[:, :-1, 0].unflatten(-1, (self.h.shape[-1], self.x.shape[-1]))
        return (inner * self.x).sum(-1, keepdim=True) + self.last * c[:, -1:]

    def transposed_times(self, r: Tensor) -> Tensor:
        """F^T r (B, n d + 1, 1) for r (B, N, 1).

        Args:
            r: the vectors.

        Returns:
            The products.
        """
        inner = self.h.mT @ (r * self.x)
        return torch.cat([inner.flatten(1)[..., None], (self.last * r).sum(1, keepdim=True)], 1)

    def gram(self, F: Tensor) -> Tensor:
        """F^T F (B, n d + 1, n d + 1), its last row and column by products with a vector.

        A single column more than the tiles of a GPU hold would take as long as a whole tile of them.

        Args:
            F: this matrix, written out.

        Returns:
            The products.
        """
        border = self.transposed_times(self.last.expand(len(self.h), -1, -1))
        return torch.cat([torch.cat([gram(F[..., :-1]), border[:, :-1]], -1), border.mT], -2)


def crossed(A: Tensor, B: Tensor) -> Tensor:
    """A^T B for batches (b, N, k) and (b, N, m): on a CPU by member and some columns at a time where it is large.

    >>> A, B = torch.randn(2, 30, 4), torch.randn(2, 30, 3)
    >>> torch.equal(crossed(A, B), A.mT @ B)
    True
    """
    stop_if_asked()
    if on_gpu(A) or len(A) * _work(A, B.shape[-1]) <= _PIECE:
        return A.mT @ B
    columns = 64 * int(max(1, B.shape[-1] * _PIECE // _work(A, B.shape[-1]) // 64))
    products = []
    for a, b in zip(A, B, strict=True):
        pieces = []
        for some in b.split(columns, -1):
            stop_if_asked()
            pieces.append(a.mT @ some)
        products.append(torch.cat(pieces, -1))
    return torch.stack(products)


def _work(A: Tensor, columns: int) -> float:
    """The multiplications of a product of one member of A with so many columns."""
    return float(A.shape[-2]) * A.shape[-1] * columns


def _by_rows(function: Callable[[Tensor, Tensor], Tensor], A: Tensor, B: Tensor) -> Tensor:
    """function(A, B), of which rows of A (b, N, k) are independent: on a CPU some at a time where it is large."""
    if on_gpu(A) or len(A) * _work(A, B.shape[-1]) <= _PIECE:
        return function(A, B)
    # A multiple of what the libraries cut rows into, so that the bits are those of the whole.
    rows = 256 * int(max(1, A.shape[-2] * _PIECE // _work(A, B.shape[-1]) // 256))
    parts = []
    for a, b in zip(A, B, strict=True):
        pieces = []
        for some in a.split(rows):
            stop_if_asked()
            pieces.append(function(some, b))
        parts.append(torch.cat(pieces))
    return torch.stack(parts)


def _right_solved(R: Tensor, A: Tensor) -> Tensor:
    """A R^-1 for upper triangular R."""
    return _by_rows(lambda a, r: torch.linalg.solve_triangular(r, a, upper=True, left=False), A, R)


def gram(A: Tensor) -> Tensor:
    """A^T A, with each block off the diagonal computed once.

    >>> A = torch.randn(2, 300, 150, dtype=torch.float64)
    >>> bool((gram(A) - A.mT @ A).abs().max() < 1e-10)
    True
    """
    k, block, tile = A.shape[-1], _BLOCK, 1
    if on_gpu(A):
        block, tile = _GPU_BLOCK, _GPU_TILE
    if k <= block:
        return crossed(A, A)
    half = -(-k // (2 * tile)) * tile
    left, right = A[..., :half], A[..., half:]
    corner = crossed(left, right)
    return torch.cat(
        [torch.cat([gram(left), corner], -1), torch.cat([corner.mT, gram(right)], -1)],
        -2,
    )


def project(
    F: Tensor, y: Tensor, penalty: Tensor, *, rank: float = _RANK, spread: SpreadColumns | None = None
) -> Projection:
    """Solve the batch: F (B, N, m), y (B, N, o), penalty (B, m), which may be zero. Columns of zeros get coefficient 0.

    Directions of the scaled columns with singular values below `rank` need not be told from zero: from 1e-6 on QR is
    spared, unless the residual shows that something was lost. `spread` is F once more, if it is made so and o is one.

    >>> F, y = torch.randn(3, 50, 4, dtype=torch.float64), torch.randn(3, 50, 1, dtype=torch.float64)
    >>> solution = project(F, y, torch.zeros(3, 4, dtype=torch.float64))
    >>> bool((solution.coefficients - torch.linalg.lstsq(F, y).solution).abs().max() < 1e-12)
    True
    """
    columns = spread or _Dense(F)
    G = columns.gram(F)
    size = G.diagonal(dim1=-2, dim2=-1) + penalty
    scale = torch.where(size > 0, size.clamp_min(torch.finfo(F.dtype).tiny).rsqrt(), 0.0)
    scaled = scale[..., None] * G * scale[..., None, :]
    scaled.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    triangle, failed = factored(scaled)
    lower = triangle.lower
    near = (failed != 0) | ~(lower.diagonal(dim1=-2, dim2=-1).amin(-1).square() > _WELL)
    if bool(near.any()):
        triangle.put(near.nonzero()[:, 0], _shifted_cholesky(scaled[near]))
    c, r, missed = _refined(columns, y, penalty, triangle, scale)
    loss = r.square().sum((-2, -1))
    careful = near & ((rank < _SQUARED_RANK) | ~(missed <= _MISSED * loss))
    if bool(careful.any()):
        i = careful.nonzero()[:, 0]
        lower[i], c[i] = _by_qr(F[i], y[i], penalty[i], scale[i])
        r[i] = y[i] - F[i] @ c[i]
        loss[i] = r[i].square().sum((-2, -1))
    loss = loss + (penalty[..., None] * c.square()).sum((-2, -1))
    return Projection(c, r, loss, lower, scale, careful)


@dataclass(frozen=True)
class Triangle:
    """Lower triangular matrices (B, m, m), on a GPU with their inverses.

    What is solved with them is refined, or a step that is tried: the digit that an inverse may lose does not matter.
    """

    lower: Tensor
    inverse: Tensor | None

    @classmethod
    def of(cls, lower: Tensor) -> Triangle:
        """The triangle of these matrices."""
        if on_gpu(lower) and _GPU_FACTORS_BLOCKS:
            return cls(lower, lower_inverse(lower))
        return cls(lower, None)

    def put(self, index: Tensor, other: Triangle) -> None:
        """Overwrite the members at `index` in place."""
        self.lower[index] = other.lower
        if self.inverse is not None and other.inverse is not None:
            self.inverse[index] = other.inverse

    def solved(self, b: Tensor) -> Tensor:
        """L^-1 b."""
        if self.inverse is not None:
            return self.inverse @ b
        return torch.linalg.solve_triangular(self.lower, b, upper=False)

    def solved_squared(self, b: Tensor) -> Tensor:
        """(L L^T)^-1 b."""
        if self.inverse is not None:
            return self.inverse.mT @ (self.inverse @ b)
        return torch.cholesky_solve(b, self.lower)

    def squared_inverse(self) -> Tensor:
        """(L L^T)^-1."""
        if self.inverse is not None:
            return self.inverse.mT @ self.inverse
        return torch.cholesky_inverse(self.lower)


def factored(G: Tensor) -> tuple[Triangle, Tensor]:
    """The Cholesky factors of a batch, and for each whether it failed: a number other than zero.

    Args:
        G: symmetric matrices (B, m, m).

    Returns:
        The factors, and a number for each member.
    """
    if on_gpu(G) and _GPU_FACTORS_BLOCKS:
        lower, inverse, failed = blocked_cholesky(G)
        return Triangle(lower, inverse), failed
    lower, failed = torch.linalg.cholesky_ex(G)
    return Triangle(lower, None), failed


def blocked_cholesky(G: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The Cholesky factors of a batch, their inverses, and which failed, by products of halves of halves.

    Args:
        G: symmetric matrices (B, m, m).

    Returns:
        L and its inverse (B, m, m), and a number (B,) other than zero for members that are not positive.

    >>> A = torch.randn(2, 90, 80, dtype=torch.float64)
    >>> L, inverse, failed = blocked_cholesky(A.mT @ A)
    >>> bool((L @ L.mT - A.mT @ A).abs().max() < 1e-11), failed.tolist()
    (True, [0, 0])
    """
    m = G.shape[-1]
    if m <= _LEAF:
        L, failed = torch.linalg.cholesky_ex(G)
        return L, lower_inverse(L), failed
    half = -(-m // (2 * _LEAF)) * _LEAF
    first, first_inverse, failed = blocked_cholesky(G[..., :half, :half])
    below = G[..., half:, :half]
    corner = below @ first_inverse.mT
    corner = corner + (below - corner @ first.mT) @ first_inverse.mT  # as exact as a solution column by column
    second, second_inverse, second_failed = blocked_cholesky(G[..., half:, half:] - corner @ corner.mT)
    inverse = _joined(first_inverse, -second_inverse @ (corner @ first_inverse), second_inverse)
    return _joined(first, corner, second), inverse, failed | second_failed


def lower_inverse(L: Tensor) -> Tensor:
    """The inverses of lower triangular matrices, by products of halves of halves.

    Args:
        L: lower triangular matrices (B, m, m).

    Returns:
        Their inverses.

    >>> L = torch.randn(2, 80, 80, dtype=torch.float64).tril(-1) / 80 + torch.eye(80)
    >>> bool((lower_inverse(L) @ L - torch.eye(80)).abs().max() < 1e-12)
    True
    """
    m = L.shape[-1]
    if m <= _LEAF:
        eye = torch.eye(m, dtype=L.dtype, device=L.device)
        return torch.linalg.solve_triangular(L, eye.expand_as(L), upper=False)
    half = -(-m // (2 * _LEAF)) * _LEAF
    first, second = lower_inverse(L[..., :half, :half]), lower_inverse(L[..., half:, half:])
    return _joined(first, -second @ (L[..., half:, :half] @ first), second)


def _joined(first: Tensor, corner: Tensor, second: Tensor) -> Tensor:
    """The lower triangular matrix of two on the diagonal and what is below the first."""
    half = first.shape[-1]
    whole = first.new_zeros(*first.shape[:-2], half + second.shape[-1], half + second.shape[-1])
    whole[..., :half, :half], whole[..., half:, :half], whole[..., half:, half:] = first, corner, second
    return whole


@dataclass(frozen=True)
class _Dense:
    """A matrix and its products."""

    F: Tensor

    def times(self, c: Tensor) -> Tensor:
        return self.F @ c

    def transposed_times(self, r: Tensor) -> Tensor:
        return self.F.mT @ r

    def gram(self, F: Tensor) -> Tensor:
        return gram(F)


def _refined(
    F: SpreadColumns | _Dense, y: Tensor, penalty: Tensor, triangle: Triangle, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Coefficients, residuals, and by how much one refinement more would lower the loss."""
    c, r = torch.zeros(*scale.shape, y.shape[2], dtype=y.dtype, device=y.device), y
    for _ in range(1 + _REFINEMENTS):
        gradient = F.transposed_times(r) - penalty[..., None] * c
        c = c + scale[..., None] * triangle.solved_squared(scale[..., None] * gradient)
        r = y - F.times(c)
    gradient = scale[..., None] * (F.transposed_times(r) - penalty[..., None] * c)
    missed = triangle.solved(gradient).square().sum((-2, -1))
    return c, r, missed


def _by_qr(F: Tensor, y: Tensor, penalty: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The factor and the coefficients by orthogonalisation; rows of small multiples of one keep the rank full."""
    m = F.shape[-1]
    rows = (penalty * scale.square()).sqrt().clamp_min(_RANK)
    Q, R = cholesky_qr(torch.cat([scale[:, None] * F, torch.diag_embed(rows)], 1))
    Q = Q[:, :-m]
    c, r = torch.zeros_like(F[:, 0, :, None] * y[:, :1]), y
    for _ in range(2):  # the second round costs little and makes the residual orthogonal to the last digit
        c = c + scale[..., None] * torch.linalg.solve_triangular(R, Q.mT @ r, upper=True)
        r = y - F @ c
        if bool((penalty > 0).any()):
            break  # a second round would undo part of the penalty
    return R.mT, c


def cholesky_qr(A: Tensor) -> tuple[Tensor, Tensor]:
    """Q (B, N, m) with orthonormal columns and R upper triangular, A = Q R, for columns of about unit length.

    >>> A = torch.randn(2, 40, 3, dtype=torch.float64)
    >>> Q, R = cholesky_qr(A)
    >>> bool((Q @ R - A).abs().max() < 1e-12), bool((gram(Q) - torch.eye(3)).abs().max() < 1e-12)
    (True, True)
    """
    R = _shifted_cholesky(gram(A)).lower.mT
    Q = _right_solved(R, A)
    for _ in range(2):
        L = _shifted_cholesky(gram(Q)).lower
        Q = _right_solved(L.mT, Q)
        R = L.mT @ R
    return Q, R


def _shifted_cholesky(G: Tensor) -> Triangle:
    """The Cholesky factor of G, with the least multiple of one that is needed on the diagonal of each."""
    triangle, failed = factored(G)
    eps = torch.finfo(G.dtype).eps
    shift = 4 * eps * G.diagonal(dim1=-2, dim2=-1).sum(-1)
    for _ in range(_SHIFTS):
        # Pivots at the level of rounding are as bad as a failure, for what they hold is noise.
        pivots = triangle.lower.diagonal(dim1=-2, dim2=-1)
        noise = 4 * eps * G.shape[-1] * pivots.amax(-1).square()
        bad = (failed != 0) | ~(pivots.amin(-1).square() > noise)
        if not bool(bad.any()):
            return triangle
        i = bad.nonzero()[:, 0]
        shifted = G[i].clone()
        shifted.diagonal(dim1=-2, dim2=-1).add_(shift[i, None])
        again, failed[i] = factored(shifted)
        triangle.put(i, again)
        shift = shift * 10
    raise GatelabError(
        "the columns of a least-squares problem hold values that are no numbers (NaN or infinite), or squares beyond"
        " the largest number; give inputs, weights and a unit whose values are finite"
    )
