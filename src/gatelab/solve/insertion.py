"""Neurons come and go: insertion where the residual asks for it, removal where it costs least.

Candidates are hyperplanes through data points, half of them with random directions and half with those of neurons that
are there, turned a little: a target with ridge structure is found by its own neurons. What a candidate would gain, and
what losing a neuron would cost, are both exact given the other neurons, and both come from the projection at hand.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gatelab.linalg.least_squares import Projection, crossed
from gatelab.solve.features import ProductModel

# Candidates for each neuron that is wanted, and the fewest in all.
_PER_NEURON, _FEWEST = 16, 64
# The largest slope of a smooth gate that is drawn.
_STEEPEST = 6.0


def draw(model: ProductModel, count: int, generator: torch.Generator, near: Tensor | None = None) -> Tensor:
    """`count` neurons (maps, count, d_in + 1); half of them like those of `near` (maps, n, d_in + 1), if given.

    Drawn on the CPU, so that a seed means the same on every device.
    """
    d = model.x.shape[1] - 1
    theta = torch.randn(model.maps, count, d + 1, generator=generator, dtype=torch.float64)
    if near is not None and near.shape[1]:
        half = count // 2
        source = near[:, torch.randint(near.shape[1], (half,), generator=generator)]
        length = source[..., :-1].norm(dim=-1, keepdim=True).clamp_min(1e-12)
        turn = 0.3 * torch.rand(half, 1, generator=generator, dtype=torch.float64) ** 4
        sign = torch.where(torch.rand(half, 1, generator=generator) < 0.5, 1.0, -1.0)
        theta[:, :half, :-1] = sign * source[..., :-1] / length + turn * theta[:, :half, :-1]
        theta[1:, :half, -1] = (sign * source[1:] / length[1:])[..., -1]
    rows = torch.randint(len(model.x), (count,), generator=generator)
    through = model.x[rows.to(model.x.device), :-1].cpu()
    theta[0, :, -1] = -(theta[0, :, :-1] * through).sum(-1)
    if not model.homogeneous[0]:
        # A smooth gate has a width: from nearly a line across the data to nearly a kink.
        steep = _STEEPEST ** torch.rand(count, 1, generator=generator, dtype=torch.float64)
        theta[0] *= steep / theta[0, :, :-1].norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return theta


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
    maps, present = theta.cpu(), model.present.cpu()
    drawn = {
        b: draw(model, max(_PER_NEURON * k, _FEWEST), generators[b], maps[b][:, present[b]])
        for b, k in enumerate(wanted)
        if k
    }
    if not drawn:
        return model, theta
    most = max(c.shape[1] for c in drawn.values())
    candidates = torch.zeros(len(theta), model.maps, most, theta.shape[-1], dtype=torch.float64)
    for b, c in drawn.items():
        candidates[b, :, : c.shape[1]] = c
    candidates = model.normalised(candidates)
    score = gains(model, theta, projection, candidates.to(theta.device)).cpu()
    # As many slots as the widest member will need.
    need = max(n + k for n, k in zip(present.sum(1).tolist(), wanted, strict=True))
    more = max(need - present.shape[1], 0)
    maps = torch.cat([maps, maps.new_zeros(*maps.shape[:2], more, maps.shape[3])], 2)
    present = torch.cat([present, present.new_zeros(len(present), more)], 1)
    for b, c in drawn.items():
        chosen = _best_of_groups(score[b, : c.shape[1]], wanted[b])
        free = (~present[b]).nonzero()[: wanted[b], 0]
        maps[b, :, free] = candidates[b, :, chosen]
        present[b, free] = True
    return replace(model, present=present.to(theta.device)), maps.to(theta.device)


def _best_of_groups(score: Tensor, groups: int) -> Tensor:
    """The index of the best in each of `groups` interleaved groups: good ones that are not all the same one."""
    rows = torch.arange(len(score) // groups * groups).view(-1, groups)
    return rows.gather(0, score[rows].nan_to_num(-torch.inf).argmax(0, keepdim=True))[0]


def removed(
    model: ProductModel, projection: Projection, unwanted: list[int], generators: list[torch.Generator]
) -> ProductModel:
    """The batch without unwanted[b] neurons of member b: the cheapest, costs shaken by factors e^(N(0, 1) / 2)."""
    cost, present = costs(model, projection).cpu(), model.present.cpu().clone()
    for b, k in enumerate(unwanted):
        if k:
            here = present[b].nonzero()[:, 0]
            shake = torch.exp(0.5 * torch.randn(len(here), generator=generators[b], dtype=torch.float64))
            cheapest = (cost[b, here] * shake).nan_to_num(torch.inf).argsort()[:k]
            present[b, here[cheapest]] = False
    return replace(model, present=present.to(model.present.device))
