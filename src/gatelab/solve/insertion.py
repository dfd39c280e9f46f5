"""Neurons come and go: insertion where the residual asks for it, removal where it costs least.

Candidates are hyperplanes through data points, half of them with random directions and half with those of neurons that
are there, turned a little: a target with ridge structure is found by its own neurons. What a candidate would gain, and
what losing a neuron would cost, are both exact given the other neurons, and both come from the projection at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gatelab.linalg.least_squares import Projection, crossed
from gatelab.solve.features import ProductModel

# Candidates for each neuron that is wanted, and the fewest in all.
_PER_NEURON, _FEWEST = 16, 64
# The largest slope of a smooth gate that is drawn.
_STEEPEST = 6.0


def draw(model: ProductModel, count: int, generator: torch.Generator) -> Tensor:
    """`count` neurons (maps, count, d_in + 1) of random directions: what `drawn` gives a member that has none."""
    nothing = torch.zeros(1, model.maps, 0, model.x.shape[1], dtype=torch.float64)
    return drawn(model, [count], [generator], nothing, torch.zeros(1, 0, dtype=torch.bool))[0]


def drawn(
    model: ProductModel, counts: Sequence[int], generators: Sequence[torch.Generator], maps: Tensor, present: Tensor
) -> Tensor:
    """counts[b] neurons for each member, half of them like those that it has, and zeros up to the most of all.

    Drawn on the CPU, so that a seed means the same on every device: member by member what is random, all together what
    is made of it. A batch of hundreds would otherwise keep a GPU waiting.
    """
    shape, number, d = (len(counts), max(counts, default=0)), model.maps, model.x.shape[1] - 1
    smooth = not model.homogeneous[0]
    theta = torch.zeros(shape[0], number, shape[1], d + 1, dtype=torch.float64)
    source, rows = torch.zeros(2, *shape, dtype=torch.long)
    turn, steep = torch.zeros(2, *shape, dtype=torch.float64)
    side, copied = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
    # A generator's numbers in the order of these lines: directions, copies (which, how far, which side), rows, slopes.
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
    # Every gate's hyperplane goes through a row.
    theta[:, 0, :, -1] = -(theta[:, 0, :, :-1] * model.x.cpu()[rows, :-1]).sum(-1)
    if smooth:
        # A smooth gate has a width: from nearly a line across the data to nearly a kink.
        lengths = theta[:, 0, :, :-1].norm(dim=-1, keepdim=True).clamp_min(1e-12)
        theta[:, 0] *= _STEEPEST ** steep[..., None] / lengths
    return theta


def _present_first(present: Tensor) -> Tensor:
    """The slots of each member, those that hold first, in their order."""
    return present.to(torch.uint8).argsort(dim=1, descending=True, stable=True)


def gains(model: ProductModel, theta: Tensor, projection: Projection, candidates: Tensor) -> Tensor:
    """By how much the loss would fall with each candidate (B, maps, M, d_in + 1) as one neuron more: (B, M)."""
    H = model.hidden(candidates)
    F = model.columns(theta)
    # Column k of a candidate is H x_k: the products below are those with all its columns, which are never formed.
    basis = model.x if model.lines else model.x[:, -1:]
    lost = torch.stack([projection.scale[..., None] * crossed(F, H * basis[:, k, None]) for k in range(basis.shape[1])])
    lost = torch.linalg.solve_triangular(projection.lower, lost, upper=False).permute(1, 3, 0, 2)
    pairs = (basis[:, :, None] * basis[:, None]).flatten(1)
    own = (H.square().mT @ pairs).view(*lost.shape[:3], -1)
    asked = torch.stack([H.mT @ (projection.residual * basis[:, k, None]) for k in range(basis.shape[1])], 2)
    size = own.diagonal(dim1=-2, dim2=-1).clamp_min(torch.finfo(H.dtype).tiny).sqrt()
    left = (own - lost @ lost.mT) / (size[..., None] * size[..., None, :])
    # A candidate that the network nearly holds already promises what rounding makes of it: not more than this.
    left.diagonal(dim1=-2, dim2=-1).add_(1e-3)
    asked = asked / size[..., None]
    return (asked * _solved(left, asked)).sum((-1, -2))


def costs(model: ProductModel, projection: Projection) -> Tensor:
    """By how much the loss would rise without each neuron, the others refitted: (B, n), infinite where none is."""
    batch, n = model.present.shape
    block = model.x.shape[1] if model.lines else 1
    inverse = torch.cholesky_inverse(projection.lower)[:, :-1, :-1].reshape(batch, n, block, n, block)
    inverse = inverse.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2)
    c = projection.coefficients[:, :-1] / projection.scale[:, :-1, None].clamp_min(1e-300)
    c = c.reshape(batch, n, block, -1)
    inverse = inverse + 1e-12 * torch.eye(block, dtype=c.dtype, device=c.device)
    cost = (c * _solved(inverse, c)).sum((-1, -2))
    return torch.where(model.present, cost, torch.inf)


def _solved(a: Tensor, b: Tensor) -> Tensor:
    """a^-1 b for small blocks; zero where a block is singular: nothing is gained, or lost, by what others hold too."""
    x, failed = torch.linalg.solve_ex(a, b)
    return torch.where((failed == 0)[..., None, None] & torch.isfinite(x), x, 0.0)


def inserted(
    model: ProductModel, theta: Tensor, projection: Projection, wanted: list[int], generators: list[torch.Generator]
) -> tuple[ProductModel, Tensor]:
    """The batch with wanted[b] neurons more in member b: each the best of its own group of candidates."""
    if not any(wanted):
        return model, theta
    maps, present = theta.cpu(), model.present.cpu()
    counts = [max(_PER_NEURON * k, _FEWEST) if k else 0 for k in wanted]
    candidates = model.normalised(drawn(model, counts, generators, maps, present))
    score = gains(model, theta, projection, candidates.to(theta.device)).cpu()
    # As many slots as the widest member will need.
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
    """The best (B, groups) in each of `groups` interleaved groups: good ones that are not all the same one."""
    rows = score.shape[1] // groups
    grouped = score[:, : rows * groups].nan_to_num(-torch.inf).unflatten(1, (rows, groups))
    return grouped.argmax(1) * groups + torch.arange(groups)


def removed(
    model: ProductModel, projection: Projection, unwanted: list[int], generators: list[torch.Generator]
) -> ProductModel:
    """The batch without unwanted[b] neurons of member b: the cheapest, costs shaken by factors e^(N(0, 1) / 2)."""
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
