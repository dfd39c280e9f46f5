"""The factors of all samples for a group of parameters, by forward and backward passes over batches of samples.

From factors to the kernel: K_ij += <gradient of sample i, gradient of sample j>, parameter by parameter.

Two ways for sum_t L_it R_it^T with p x q entries and T positions:

    gradients   form them, a chunk of rows at a time, and multiply:        2 n T p q + n^2 p q  operations
    positions   sum_ts (L_it . L_js) (R_it . R_js), tile by tile:          n^2 T^2 (p + q)

The second wins where T is small: with T = 1 it is the elementwise product of two Gram matrices. Long sums are cut into
slices, each in the precision of the model; the slices and the parameters add up in float64.

Automatic Jacobians: the gradient of each sample by any parameter, however it is used.

`vmap(grad)` where the model can be mapped over samples, else sample by sample: the numbers are the same, the time is
not. Where the Jacobian of all samples is too large, blocks of it are multiplied pair by pair and made anew for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from gatelab.errors import GatelabError
from gatelab.linalg.interruptible import apart
from gatelab.memory import ran_out
from gatelab.ntk.modules.samples import Samples
from gatelab.ntk.modules.surveys import (
    AHEAD,
    Call,
    Misfit,
    Recorder,
    Share,
    Survey,
    Use,
    g_activity,
    gradients,
    plain_gradients,
)


@dataclass
class Factors:
    """What is kept of a parameter (p, q) for n samples: `summed` (n, p q), or L and R, rows and values, or all four."""

    summed: Tensor | None = None
    left: Tensor | None = None
    right: Tensor | None = None
    rows: Tensor | None = None
    values: Tensor | None = None


def collect(
    samples: Samples,
    parameters: dict[str, nn.Parameter],
    seen: Survey,
    shares: Sequence[Share],
    column: int,
    batch: int,
    tick: Callable[[], None],
) -> dict[str, Factors]:
    """Run all samples, `batch` at a time, and keep the factors of `shares` for the output `column`."""
    known = {id(p): name for name, p in parameters.items()}
    calls = sorted({use.call for share in shares for use in share.uses})
    kept = _allocate(samples, shares)
    for start in range(0, samples.n, batch):
        which = slice(start, min(start + batch, samples.n))
        recorder = Recorder(known, which.stop - start, seen.stretched)
        by_call = apart(_pass, samples, which, recorder, seen, calls, column)
        for share in shares:
            _write(kept[share.name], share, recorder.calls, by_call, which)
        del recorder, by_call
        tick()
    return kept


def _pass(
    samples: Samples, which: slice, recorder: Recorder, seen: Survey, calls: list[int], column: int
) -> dict[int, Tensor | None]:
    """Forward and backward for the samples in `which`: the gradients by the results of the numbered calls."""
    with torch.enable_grad(), recorder:
        values = samples.run(samples.take(which), samples.index(which))
    _check(recorder, values, seen)
    by_result = gradients(values[:, column].sum(), [recorder.calls[k] for k in calls])
    return dict(zip(calls, by_result, strict=True))


def _check(recorder: Recorder, values: Tensor, seen: Survey) -> None:
    if not torch.isfinite(values).all():
        raise GatelabError("the model's outputs are not finite; look for NaN or overflow in weights and inputs")
    if recorder.signature != seen.signature:
        raise Misfit(*(share.name for share in seen.shares))
    new = recorder.other - seen.other
    for call, expected in zip(recorder.calls, seen.shapes, strict=True):
        if not call.shared and (call.shape[1:] != expected[1:] or call.shape[0] * AHEAD != expected[0] * recorder.n):
            new |= {part.name for part in call.parts}
    if new - set(seen.free):
        raise Misfit(*new)


def _allocate(samples: Samples, shares: Sequence[Share]) -> dict[str, Factors]:
    """Zeroed memory for all factors: what a batch does not reach has no gradient."""
    n, kept, shared = samples.n, {}, {}

    def zeros(*shape: int, dtype: torch.dtype = samples.dtype) -> Tensor:
        return torch.zeros(n, *shape, dtype=dtype, device=samples.device)

    for share in shares:
        p, q = share.shape
        if share.summed:
            kept[share.name] = Factors(summed=zeros(p * q))
            continue
        factors = kept[share.name] = Factors()
        length = sum(u.positions for u in share.uses if u.kind == "outer")
        if length:
            sides = []
            for side, width in ((0, p), (1, q)):
                key = (share.alias, length) if share.alias and share.alias[1] == side else None
                memory = shared.get(key) if key else None
                memory = zeros(length, width) if memory is None else memory
                if key:
                    shared[key] = memory
                sides.append(memory)
            factors.left, factors.right = sides
        length = sum(u.positions for u in share.uses if u.kind == "rows")
        if length:
            factors.rows, factors.values = zeros(length, dtype=torch.int64), zeros(length, q)
    return kept


def _write(kept: Factors, share: Share, calls: list[Call], gradient: dict[int, Tensor | None], which: slice) -> None:
    n = which.stop - which.start
    places = {"outer": 0, "rows": 0}
    for use in share.uses:
        call, g = calls[use.call], gradient[use.call]
        if g is not None:
            try:
                made = call.parts[use.part].make(g, n, call.shared)
            except RuntimeError as error:
                if ran_out(error):
                    raise
                raise Misfit(share.name) from error
            if kept.summed is not None:
                kept.summed[which] += _whole(made, use, share.shape)
            else:
                _put(kept, use, made, which, places[use.kind], share.name)
        if use.kind != "sum":
            places[use.kind] += use.positions


def _whole(made: tuple[Tensor, ...], use: Use, shape: tuple[int, int]) -> Tensor:
    """The gradient of each sample (N, p q)."""
    if use.kind == "sum":
        return made[0]
    if use.kind == "outer":
        return torch.bmm(made[0].transpose(1, 2), made[1]).flatten(1)
    whole = made[1].new_zeros(len(made[0]), *shape)
    whole.scatter_add_(1, made[0][..., None].expand_as(made[1]), made[1])
    return whole.flatten(1)


def _put(kept: Factors, use: Use, made: tuple[Tensor, ...], which: slice, at: int, name: str) -> None:
    if use.trimmed:
        side = use.side if use.side >= 0 else None
        active = g_activity(side, made)
        if int((active > 0).sum(1).max()) > use.positions:
            raise Misfit(name)
        best = active.topk(use.positions, dim=1).indices[..., None]
        made = tuple(t.gather(1, best.expand(-1, -1, t.shape[2])) for t in made)
    if made[0].shape[1] != use.positions:
        raise Misfit(name)
    targets = (kept.left, kept.right) if use.kind == "outer" else (kept.rows, kept.values)
    for target, value in zip(targets, made, strict=True):
        assert target is not None
        target[which, at : at + use.positions] = value


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


def add_jacobians(
    K: Tensor,
    samples: Samples,
    free: dict[str, nn.Parameter],
    column: int,
    block: int,
    batch: int,
    tick: Callable[[], None],
) -> None:
    """Add the part of the parameters `free` to K; `tick` is called for each block that was made."""
    cuts = [slice(k, min(k + block, samples.n)) for k in range(0, samples.n, block)]
    for a, i in enumerate(cuts):
        left = jacobian(samples, free, column, i, batch)
        tick()
        add_gram(K[i, i], left)
        for j in cuts[a + 1 :]:
            add_tile(K, i, j, product(left, jacobian(samples, free, column, j, batch)))
            tick()


def blocks(n: int, block: int) -> int:
    """How many blocks of Jacobians `add_jacobians` makes.

    >>> blocks(10, 4)
    6
    """
    count = -(-n // block)
    return count * (count + 1) // 2


def jacobian(samples: Samples, free: dict[str, nn.Parameter], column: int, which: slice, batch: int) -> Tensor:
    """The gradients (N, P) of the samples in `which`, `batch` at a time."""
    width = sum(p.numel() for p in free.values())
    whole = torch.empty(which.stop - which.start, width, dtype=samples.dtype, device=samples.device)
    for start in range(which.start, which.stop, batch):
        part = slice(start, min(start + batch, which.stop))
        here = slice(part.start - which.start, part.stop - which.start)
        try:
            whole[here] = apart(_mapped, samples, free, column, part)
        except (MemoryError, GatelabError):
            raise
        except Exception as error:
            # What vmap cannot map, it says in many ways; the loop below fails where the model itself does.
            if ran_out(error):
                raise
            for k in range(part.start, part.stop):
                whole[k - which.start] = _single(samples, free, column, k)
    return whole


def _mapped(samples: Samples, free: dict[str, nn.Parameter], column: int, which: slice) -> Tensor:
    def value(parameters: dict[str, Tensor], inputs: dict[str, Tensor], index: Tensor) -> Tensor:
        def call(*args: Tensor, **kwargs: Tensor) -> object:
            return functional_call(samples.model, parameters, args, kwargs)

        one = {k: v.unsqueeze(0) for k, v in inputs.items()}
        return samples.run(one, index.unsqueeze(0), call)[0, column]

    parameters = {name: p.detach() for name, p in free.items()}
    with torch.no_grad(), warnings.catch_warnings():  # the other parameters are constants here
        warnings.filterwarnings("ignore", "There is a performance drop")
        found = vmap(grad(value), in_dims=(None, 0, 0))(parameters, samples.take(which), samples.index(which))
    return torch.cat([found[name].flatten(1) for name in free], 1)


def _single(samples: Samples, free: dict[str, nn.Parameter], column: int, k: int) -> Tensor:
    which = slice(k, k + 1)
    with torch.enable_grad():
        value = samples.run(samples.take(which), samples.index(which))[0, column]
    parameters = list(free.values())
    return torch.cat([g.flatten() for g in plain_gradients(value, parameters)])
