"""Per-sample gradients in factored form, and their contributions to the kernel: K_ij += <gradient i, gradient j>.

The gradient of each sample by a parameter of p by q entries has one of these forms:

    Outer    sum_t L_it R_it^T      L, R: (n, T, p), (n, T, q); weight matrices, T positions per sample
    Rows     sum_t e_{r_it} v_it^T  r: (n, T) row numbers, v: (n, T, q); embeddings
    Sum      the gradient itself    (n, p q); biases, norms, other small parameters

The kernel is computed from gradients, formed a chunk of rows at a time (2 n T p q + n^2 p q operations), or for small T
by positions, sum_ts (L_it . L_js) (R_it . R_js), tile by tile (n^2 T^2 (p + q)). Long sums are cut into slices, each in
the precision of the model; slices and parameters are summed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

_SLICE, _BLOCK = 2048, 128
# The cost per pair of positions in addition to the products, in multiply-adds.
_OVERHEAD = 20
Shape = tuple[int, int]


@dataclass(frozen=True)
class Outer:
    """Gradients sum_t L_it R_it^T: `left` is (n, T, p) and `right` (n, T, q)."""

    left: Tensor
    right: Tensor

    def trimmed(self) -> Outer:
        """Without positions that have no gradient, if at most half of them have one in any sample."""
        sizes = [torch.linalg.vector_norm(t, ord=float("inf"), dim=-1) for t in (self.left, self.right)]
        activity = torch.minimum(*sizes)
        active = max(1, int((activity > 0).sum(1).max()))
        if 2 * active > activity.shape[1]:
            return self
        positions = activity.topk(active, dim=1).indices[..., None]
        left, right = (t.gather(1, positions.expand(-1, -1, t.shape[2])) for t in (self.left, self.right))
        return Outer(left, right)

    def gradients(self, shape: Shape) -> Tensor:
        return torch.bmm(self.left.transpose(1, 2), self.right).flatten(1)

    def add_to(self, K: Tensor, workspace: int) -> None:
        """Add the contribution of this parameter to K by the cheaper way, within `workspace` bytes."""
        active, workspace = self.active(workspace)
        n, T, p = active.left.shape
        q = active.right.shape[2]
        gradients, positions = (2 * n * T + n * n) * p * q, n * n * T * T * (p + q + _OVERHEAD)
        if positions < gradients and tile_size(T, active.left, workspace):
            active.add_by_positions(K, workspace)
        else:
            active.add_by_gradients(K, workspace)

    def active(self, workspace: int) -> tuple[Outer, int]:
        """Drop columns of `left` that are zero for all samples, if a copy fits; return the remaining workspace too.

        Few logits of a vocabulary have a gradient.
        """
        active = self.left.flatten(0, 1).any(0)
        count = int(active.sum())
        n, T, p = self.left.shape
        needed = count * n * T * self.left.element_size()
        if 2 * count > p or 3 * needed > workspace:
            return self, workspace
        return Outer(self.left[:, :, active], self.right), workspace - needed

    def add_by_gradients(self, K: Tensor, workspace: int) -> None:
        """Add <gradient i, gradient j>, a chunk of the gradients' rows at a time."""
        n, _, p = self.left.shape
        for rows in row_chunks(p, n * self.right.shape[2] * self.left.element_size(), workspace):
            add_gram(K, torch.bmm(self.left[:, :, rows].transpose(1, 2), self.right).flatten(1))

    def add_by_positions(self, K: Tensor, workspace: int) -> None:
        """Add sum_ts (L_it . L_js) (R_it . R_js), tile by tile."""

        def products(i: slice, j: slice) -> Tensor:
            left = self.left[i].flatten(0, 1) @ self.left[j].flatten(0, 1).T
            left *= self.right[i].flatten(0, 1) @ self.right[j].flatten(0, 1).T
            return left

        if self.left.shape[2]:
            add_position_tiles(K, self.left, products, workspace)


@dataclass(frozen=True)
class Rows:
    """Gradients sum_t e_{r_it} v_it^T: `rows` (n, T) are the numbers of rows and `values` (n, T, q) what they get."""

    rows: Tensor
    values: Tensor

    def gradients(self, shape: Shape) -> Tensor:
        whole = self.values.new_zeros(len(self.rows), *shape)
        whole.scatter_add_(1, self.rows[..., None].expand_as(self.values), self.values)
        return whole.flatten(1)

    def add_by_positions(self, K: Tensor, workspace: int) -> None:
        """Add sum_ts [r_it = r_js] (v_it . v_js), tile by tile."""

        def products(i: slice, j: slice) -> Tensor:
            values = self.values[i].flatten(0, 1) @ self.values[j].flatten(0, 1).T
            values *= self.rows[i].flatten()[:, None] == self.rows[j].flatten()[None, :]
            return values

        add_position_tiles(K, self.values, products, workspace)

    def scatter(self, whole: Tensor, chunk: slice) -> None:
        """Add the values of the rows in `chunk` to `whole` (n, rows of the chunk, q)."""
        sample, position = ((self.rows >= chunk.start) & (self.rows < chunk.stop)).nonzero(as_tuple=True)
        flat = sample * whole.shape[1] + self.rows[sample, position] - chunk.start
        whole.view(-1, whole.shape[2]).index_add_(0, flat, self.values[sample, position])


@dataclass(frozen=True)
class Sum:
    """Gradients without factors: `whole` is (n, p q)."""

    whole: Tensor

    def gradients(self, shape: Shape) -> Tensor:
        return self.whole

    def add_to(self, K: Tensor, workspace: int) -> None:
        """Add the contribution of this parameter to K."""
        add_gram(K, self.whole)


def add_tied(K: Tensor, outer: Outer, table: Rows, workspace: int) -> None:
    """Add the contribution of an embedding whose weight may also be used as a matrix, by the cheaper way."""
    left, right, rows, values = outer.left, outer.right, table.rows, table.values
    _, T, q = values.shape
    used = left.flatten(0, 1).any(0)
    used[rows.flatten()] = True
    columns = used.nonzero()[:, 0]
    cheaper = T * T * (q + _OVERHEAD) < (len(columns) + T) * q
    if cheaper and not left.shape[1] and tile_size(T, values, workspace):
        table.add_by_positions(K, workspace)
        return
    numbered = Rows((torch.cumsum(used, 0) - 1)[rows], values)
    each = len(left) * (q + left.shape[1]) * left.element_size()
    for chunk in row_chunks(len(columns), each, workspace):
        whole = torch.bmm(left[:, :, columns[chunk]].transpose(1, 2), right)
        numbered.scatter(whole, chunk)
        add_gram(K, whole.flatten(1))


Factors = Outer | Rows | Sum


def add_gram(K: Tensor, A: Tensor) -> None:
    """K += A A^T, summed over slices in float64; only one triangle is computed."""
    n = len(A)
    for i, j in tiles(n, max(_BLOCK, -(-n // 8))):
        add_tile(K, i, j, product(A[i], A[j]))


def add_tile(K: Tensor, i: slice, j: slice, tile: Tensor) -> None:
    K[i, j] += tile
    if i != j:
        K[j, i] += tile.T


def product(A: Tensor, B: Tensor) -> Tensor:
    """A B^T in float64 from slices in the precision of A, by one batched product.

    >>> A = torch.ones(2, 20_000)
    >>> product(A, A[:1]).T
    tensor([[20000., 20000.]], dtype=torch.float64)
    """
    width = max(_SLICE, 8 * max(len(A), len(B)))
    whole = A.shape[1] // width
    total = torch.zeros(len(A), len(B), dtype=torch.float64, device=A.device)
    if whole:
        a, b = (t[:, : whole * width].unflatten(1, (whole, width)).transpose(0, 1) for t in (A, B))
        total += torch.bmm(a, b.transpose(1, 2)).sum(0, dtype=torch.float64)
    if whole * width < A.shape[1]:
        total += A[:, whole * width :] @ B[:, whole * width :].T
    return total


def cuts(n: int, size: int) -> list[slice]:
    """Slices of `size` that cover 0 to n - 1.

    >>> cuts(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(k, min(k + size, n)) for k in range(0, n, size)]


def tiles(n: int, size: int) -> Iterator[tuple[slice, slice]]:
    """The tiles on and above the diagonal of an n by n matrix."""
    pieces = cuts(n, size)
    return ((i, j) for k, i in enumerate(pieces) for j in pieces[k:])


def row_chunks(rows: int, each: int, workspace: int) -> list[slice]:
    """Chunks of rows of a parameter, with `each` bytes per row, that fit into the workspace with their products."""
    if not rows:
        return []
    count = -(-rows // max(1, min(rows, 2 * workspace // (3 * each))))
    return cuts(rows, -(-rows // count))


def tile_size(positions: int, like: Tensor, workspace: int) -> int:
    """Samples per tile of pairs of positions, such that four matrices (tile T)^2 fit; 0 if none do."""
    return int((workspace / (4 * like.element_size())) ** 0.5) // positions


def add_position_tiles(K: Tensor, factor: Tensor, products: Callable[[slice, slice], Tensor], workspace: int) -> None:
    """Add the sums over pairs of positions; `products` computes them for two slices of samples, (samples T)^2."""
    n, T, _ = factor.shape
    for i, j in tiles(n, max(1, min(n, tile_size(T, factor, workspace)))):
        pairs = products(i, j).unflatten(1, (-1, T)).unflatten(0, (-1, T))
        add_tile(K, i, j, pairs.sum((1, 3), dtype=torch.float64))
