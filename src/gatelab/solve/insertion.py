"""Insertion of neurons where they lower the residual most, and removal of those that matter least.

Candidates are hyperplanes through data points, half of them with random directions and half with slightly perturbed
directions of present neurons, which suits targets with ridge structure. The gain of a candidate and the cost of a
removal are exact given the other neurons, and come from the current projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gatelab.linalg.least_squares import Projection, crossed
from gatelab.solve.features import ProductModel

# Candidates per inserted neuron, and the smallest number of candidates.
_PER_NEURON, _FEWEST = 16, 64
# The largest slope of a smooth gate that is drawn.
_STEEPEST = 6.0


def draw(model: ProductModel, count: int, generator: torch.Generator) -> Tensor:
    """`count` neurons (maps, count, d_in + 1) of random directions."""
    empty = torch.zeros(1, model.maps, 0, model.x.shape[1], dtype=torch.float64)
    return draw_batch(model, [count], [generator], empty, torch.zeros(1, 0, dtype=torch.bool))[0]


def draw_batch(
    model: ProductModel, counts: Sequence[int], generators: Sequence[torch.Generator], maps: Tensor, present: Tensor
) -> Tensor:
    """counts[b] neurons per member, half of them near its present neurons, padded with zeros.

    Random numbers are drawn on the CPU and member by member: results depend neither on the device nor on the batch.
    """
    shape, number, d = (len(counts), max(counts)), model.maps, model.x.shape[1] - 1
    smooth = not model.homogeneous[0]
    theta = torch.zeros(shape[0], number, shape[1], d + 1, dtype=torch.float64)
    source, rows = torch.zeros(2, *shape, dtype=torch.long)
    turn, steep = torch.zeros(2, *shape, dtype=torch.float64)
    side, copied = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
    # The order of draws from a generator: directions, copies (source, distance, side), rows, slopes.
    for b, (count, g, n) in enumerate(zip(counts, generators, present.sum(1).tolist(), strict=True)):
        if not count:
            continue
        theta[b, :, :count] = torch.randn(number, count, d + 1, generator=g, dtype=torch.float64)
        if n:
            half = count // 2
            source[b, :half] = torch.randint(n, (half,), generator=g)
            turn[b, :half] = torch.rand(half, 1, generator=g, dtype=torch.float64)[:, 0]
            side[b, :half] = torch.rand(half, 1, generator=g)[:, 0]
            copied[b, :half] = True
        rows[b, :count] = torch.randint(len(model.x), (count,), generator=g)
        if smooth:
            steep[b, :count] = torch.rand(count, 1, generator=g, dtype=torch.float64)[:, 0]
    if bool(copied.any()):
        slots = _present_first(present).gather(1, source)
        near = maps.gather(2, slots[:, None, :, None].expand(-1, number, -1, d + 1))
        length = near[..., :-1].norm(dim=-1, keepdim=True).clamp_min(1e-12)
        near = torch.where(side < 0.5, 1.0, -1.0)[:, None, :, None] * near / length
        near[..., :-1] += (0.3 * turn**4)[:, None, :, None] * theta[..., :-1]
        theta = torch.where(copied[:, None, :, None], near, theta)
    # The hyperplane of every gate contains a row.
    theta[:, 0, :, -1] = -(theta[:, 0, :, :-1] * model.x.cpu()[rows, :-1]).sum(-1)
    if smooth:
        # Slopes of smooth gates: from nearly linear across the data to nearly a kink.
        lengths = theta[:, 0, :, :-1].norm(dim=-1, keepdim=True).clamp_min(1e-12)
        theta[:, 0] *= _STEEPEST ** steep[..., None] / lengths
    return theta


def _present_first(present: Tensor) -> Tensor:
    """The slots of each member, occupied ones first, in their order."""
    return present.to(torch.uint8).argsort(dim=1, descending=True, stable=True)


def gains(model: ProductModel, theta: Tensor, projection: Projection, candidates: Tensor) -> Tensor:
    """The decrease of the loss (B, M) by each candidate (B, maps, M, d_in + 1) as one additional neuron."""
    H = model.hidden(candidates)
    F = model.columns(theta)
    # Column k of a candidate is H x_k: the products below are with all its columns, without forming them.
    basis = model.x if model.lines else model.x[:, -1:]
    lost = torch.stack([projection.scale[..., None] * crossed(F, H * basis[:, k, None]) for k in range(basis.shape[1])])
    lost = torch.linalg.solve_triangular(projection.lower, lost, upper=False).permute(1, 3, 0, 2)
    pairs = (basis[:, :, None] * basis[:, None]).flatten(1)
    own = (H.square().mT @ pairs).view(*lost.shape[:3], -1)
    asked = torch.stack([H.mT @ (projection.residual * basis[:, k, None]) for k in range(basis.shape[1])], 2)
    size = own.diagonal(dim1=-2, dim2=-1).clamp_min(torch.finfo(H.dtype).tiny).sqrt()
    left = (own - lost @ lost.mT) / (size[..., None] * size[..., None, :])
    # Bounds the gain of candidates that are nearly in the span of the network, which is dominated by rounding.
    left.diagonal(dim1=-2, dim2=-1).add_(1e-3)
    asked = asked / size[..., None]
    return (asked * _solve_blocks(left, asked)).sum((-1, -2))


def costs(model: ProductModel, projection: Projection) -> Tensor:
    """The increase of the loss without each neuron, the others refitted: (B, n), infinite for empty slots."""
    batch, n = model.present.shape
    block = model.x.shape[1] if model.lines else 1
    inverse = torch.cholesky_inverse(projection.lower)[:, :-1, :-1].reshape(batch, n, block, n, block)
    inverse = inverse.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2)
    c = projection.coefficients[:, :-1] / projection.scale[:, :-1, None].clamp_min(1e-300)
    c = c.reshape(batch, n, block, -1)
    inverse = inverse + 1e-12 * torch.eye(block, dtype=c.dtype, device=c.device)
    cost = (c * _solve_blocks(inverse, c)).sum((-1, -2))
    return torch.where(model.present, cost, torch.inf)


def _solve_blocks(a: Tensor, b: Tensor) -> Tensor:
    """a^-1 b for small blocks; zero where a block is singular, since redundant columns neither gain nor cost."""
    x, failed = torch.linalg.solve_ex(a, b)
    return torch.where((failed == 0)[..., None, None] & torch.isfinite(x), x, 0.0)


def insert(
    model: ProductModel, theta: Tensor, projection: Projection, wanted: list[int], generators: list[torch.Generator]
) -> tuple[ProductModel, Tensor]:
    """The batch with wanted[b] additional neurons in member b, each the best of a group of candidates."""
    if not any(wanted):
        return model, theta
    maps, present = theta.cpu(), model.present.cpu()
    counts = [max(_PER_NEURON * k, _FEWEST) if k else 0 for k in wanted]
    candidates = model.normalized(draw_batch(model, counts, generators, maps, present))
    score = gains(model, theta, projection, candidates.to(theta.device)).cpu()
    # Enough slots for the widest member.
    more = max(int((present.sum(1) + torch.tensor(wanted)).max()) - present.shape[1], 0)
    maps = torch.nn.functional.pad(maps, (0, 0, 0, more))
    present = torch.nn.functional.pad(present, (0, more))
    free = _present_first(~present)
    for k in sorted({*wanted} - {0}):
        members = torch.tensor([b for b, w in enumerate(wanted) if w == k])[:, None]
        chosen = _best_of_groups(score[members[:, 0], : max(_PER_NEURON * k, _FEWEST)], k)
        slots = free[members[:, 0], :k]
        maps[members, :, slots], present[members, slots] = candidates[members, :, chosen], True
    return replace(model, present=present.to(theta.device)), maps.to(theta.device)


def _best_of_groups(score: Tensor, groups: int) -> Tensor:
    """The best of each of `groups` interleaved groups (B, groups), so that near duplicates are not all chosen."""
    rows = score.shape[1] // groups
    grouped = score[:, : rows * groups].nan_to_num(-torch.inf).unflatten(1, (rows, groups))
    return grouped.argmax(1) * groups + torch.arange(groups)


def remove(
    model: ProductModel, projection: Projection, unwanted: list[int], generators: list[torch.Generator]
) -> ProductModel:
    """The batch without the unwanted[b] cheapest neurons of member b, by costs times random factors e^(N(0, 1) / 2)."""
    cost, present = costs(model, projection).cpu(), model.present.cpu()
    shake = torch.zeros_like(cost)
    for b, (k, n) in enumerate(zip(unwanted, present.sum(1).tolist(), strict=True)):
        if k:
            shake[b, :n] = torch.randn(n, generator=generators[b], dtype=torch.float64)
    place = (present.cumsum(1) - 1).clamp_min(0)
    shaken = (cost * torch.exp(0.5 * shake.gather(1, place))).nan_to_num(torch.finfo(cost.dtype).max)
    order = torch.where(present, shaken, torch.inf).argsort(dim=1, stable=True)
    cheapest = torch.arange(present.shape[1]) < torch.tensor(unwanted)[:, None]
    here = torch.zeros_like(present).scatter(1, order, cheapest) & present
    return replace(model, present=(present & ~here).to(model.present.device))
