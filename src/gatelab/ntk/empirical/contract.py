"""From factors to the kernel: K_ij += <gradient of sample i, gradient of sample j>, parameter by parameter.

Two ways for sum_t L_it R_it^T with p x q entries and T positions:

    gradients   form them, a chunk of rows at a time, and multiply:        2 n T p q + n^2 p q  operations
    positions   sum_ts (L_it . L_js) (R_it . R_js), tile by tile:          n^2 T^2 (p + q)

The second wins where T is small: with T = 1 it is the elementwise product of two Gram matrices. Long sums are cut into
slices, each in the precision of the model; the slices and the parameters add up in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from gatelab.ntk.empirical.collect import Factors

Way = Literal["gradients", "positions"]
_SLICE, _BLOCK = 2048, 128


def add_parameter(K: Tensor, kept: Factors, workspace: int, way: Way | None = None) -> None:
    """Add the part of one parameter to K, with at most `workspace` bytes of memory beside the factors."""
    if kept.summed is not None:
        add_gram(K, kept.summed)
    elif kept.left is not None and kept.right is not None and kept.rows is None:
        _add_outer(K, kept.left, kept.right, workspace, way)
    elif kept.left is None and kept.rows is not None and kept.values is not None:
        _add_rows(K, kept.rows, kept.values, workspace, way)
    else:
        _add_both(K, kept, workspace)


def add_gram(K: Tensor, A: Tensor) -> None:
    """K += A A^T, in float64 from slice to slice; only half of it is computed."""
    n = len(A)
    for i, j in _pairs(n, max(_BLOCK, -(-n // 8))):
        add_tile(K, i, j, product(A[i], A[j]))


def add_tile(K: Tensor, i: slice, j: slice, tile: Tensor) -> None:
    """Add to a tile of K and to its mirror image."""
    K[i, j] += tile
    if i != j:
        K[j, i] += tile.T


def product(A: Tensor, B: Tensor) -> Tensor:
    """A B^T in float64 out of slices in the precision of A: one batched product, wide enough to fill a GPU.

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


def _pairs(n: int, block: int) -> Iterator[tuple[slice, slice]]:
    cuts = [slice(k, min(k + block, n)) for k in range(0, n, block)]
    return ((i, j) for k, i in enumerate(cuts) for j in cuts[k:])


def _add_outer(K: Tensor, L: Tensor, R: Tensor, workspace: int, way: Way | None) -> None:
    L, workspace = _active(L, workspace)
    n, T, p = L.shape
    q = R.shape[2]
    if not p:
        return
    if way is None:
        gradients, positions = (2 * n * T + n * n) * p * q, n * n * T * T * (p + q + 20)
        way = "positions" if positions < gradients and _tile(T, L, workspace) else "gradients"
    if way == "positions":
        _by_positions(K, L, R, None, workspace)
        return
    for rows in _row_chunks(n, p, q, L, workspace):
        add_gram(K, torch.bmm(L[:, :, rows].transpose(1, 2), R).flatten(1))


def _active(L: Tensor, workspace: int) -> tuple[Tensor, int]:
    """Without the columns that are zero for all samples: of a vocabulary, few logits have a gradient."""
    active = torch.linalg.vector_norm(L, ord=float("inf"), dim=(0, 1)) > 0
    count = int(active.sum())
    needed = count * L.shape[0] * L.shape[1] * L.element_size()
    if 2 * count > L.shape[2] or 3 * needed > workspace:
        return L, workspace
    return L[:, :, active], workspace - needed


def _add_rows(K: Tensor, rows: Tensor, values: Tensor, workspace: int, way: Way | None) -> None:
    n, T, q = values.shape
    present, rows = torch.unique(rows, return_inverse=True)
    if way is None:
        cheaper = T * T * (q + 20) < (len(present) + T) * q
        way = "positions" if cheaper and _tile(T, values, workspace) else "gradients"
    if way == "positions":
        _by_positions(K, values, None, rows, workspace)
        return
    for chunk in _row_chunks(n, len(present), q, values, workspace):
        whole = values.new_zeros(n, chunk.stop - chunk.start, q)
        _scatter(whole, rows, values, chunk)
        add_gram(K, whole.flatten(1))


def _add_both(K: Tensor, kept: Factors, workspace: int) -> None:
    """A weight that is an embedding here and a matrix there (tied): the gradients add up before they are multiplied."""
    L, R, rows, values = kept.left, kept.right, kept.rows, kept.values
    assert L is not None and R is not None and rows is not None and values is not None
    n = len(L)
    active = torch.linalg.vector_norm(L, ord=float("inf"), dim=(0, 1)) > 0
    active[rows.flatten()] = True
    number = torch.cumsum(active, 0) - 1
    rows = number[rows]
    columns = active.nonzero()[:, 0]
    for chunk in _row_chunks(n, len(columns), R.shape[2] + L.shape[1], L, workspace):
        whole = torch.bmm(L[:, :, columns[chunk]].transpose(1, 2), R)
        _scatter(whole, rows, values, chunk)
        add_gram(K, whole.flatten(1))


def _scatter(whole: Tensor, rows: Tensor, values: Tensor, chunk: slice) -> None:
    """Add the values of the rows in `chunk` to `whole` (n, rows of the chunk, q)."""
    sample, position = ((rows >= chunk.start) & (rows < chunk.stop)).nonzero(as_tuple=True)
    flat = sample * whole.shape[1] + rows[sample, position] - chunk.start
    whole.view(-1, whole.shape[2]).index_add_(0, flat, values[sample, position])


def _row_chunks(n: int, p: int, q: int, like: Tensor, workspace: int) -> Iterator[slice]:
    """As many rows of the parameter as keep n gradients of them, and their products, within the workspace."""
    each = n * q * like.element_size()
    count = -(-p // max(1, min(p, 2 * workspace // (3 * each))))
    size = -(-p // count)
    return (slice(k, min(k + size, p)) for k in range(0, p, size))


def _tile(T: int, like: Tensor, workspace: int) -> int:
    """Samples in a tile of the second way: two matrices (tile T)^2 and what becomes of them fit; 0 if none do."""
    return int((workspace / (4 * like.element_size())) ** 0.5) // T


def _by_positions(K: Tensor, V: Tensor, R: Tensor | None, rows: Tensor | None, workspace: int) -> None:
    n, T, _ = V.shape
    for i, j in _pairs(n, max(1, min(n, _tile(T, V, workspace)))):
        both = V[i].flatten(0, 1) @ V[j].flatten(0, 1).T
        if R is not None:
            both *= R[i].flatten(0, 1) @ R[j].flatten(0, 1).T
        elif rows is not None:
            both *= rows[i].flatten()[:, None] == rows[j].flatten()[None, :]
        both = both.unflatten(1, (-1, T)).unflatten(0, (-1, T))
        add_tile(K, i, j, both.sum((1, 3), dtype=torch.float64))
