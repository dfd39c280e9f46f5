"""Blocks with fewer neurons: which neurons to keep, and how to refit the remaining weights.

    magnitude       |G_i| |U_i| |D_i|: from the weights only
    wanda           rms(h_i) |D_i|: the contribution of a neuron on the calibration rows (Wanda, by whole neurons)
    flap            var(h_i) |D_i|^2: its contribution without the mean, which a bias can replace (FLAP)
    surgeon         min over D' of |D h - D' h|^2, neuron by neuron: the exact cost after refitting D (ZipLM)

    last_map        min over D of  E|t - D h|^2 + ridge |D - D_0|^2        a Gram matrix and one solve, in float64
    joint_refit     the same over the gates and the factors too            Adam, then D eliminated once more
    smaller_block   a smaller block by one of these methods, from rows of inputs and targets

All refits are regularized towards the original weights, with a strength chosen on held-out windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gatelab.anatomy.fits import BlockAdam, damped, detached, ridge_map, root_mean_square
from gatelab.models.layouts import Block

CHUNK = 4096  # rows whose hidden values are held at once
RIDGES = (1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0)
BATCH, WARM = 256, 10  # rows per step; warm-up steps
BETAS = (0.9, 0.95)
EPOCHS, RATE = 3, 0.02  # of the joint refit of a block
DAMPING = 1e-2  # of surgeon's refit, as in SparseGPT, ZipLM and FASP
RIDGE = 1e-3  # of surgeon's costs
METHODS = ("ours", "magnitude", "wanda", "flap", "surgeon")


@dataclass(frozen=True, eq=False)
class HiddenSums:
    """Means over rows with the hidden values h (n,) of a block and targets t (d,), in float64."""

    gram: Tensor  # of h h^T (n, n)
    mean: Tensor  # of h (n,)
    cross: Tensor  # of h t^T (n, d)
    size: float  # of |t|^2

    def take(self, neurons: Tensor) -> HiddenSums:
        return HiddenSums(self.gram[neurons][:, neurons], self.mean[neurons], self.cross[neurons], self.size)

    def error(self, D: Tensor) -> float:
        """The mean of |t - D h|^2."""
        D = D.to(self.gram)
        return float(self.size - 2 * (D.T * self.cross).sum() + ((D @ self.gram) * D).sum())


def kept_neurons(method: str, block: Block, sums: HiddenSums, width: int) -> Tensor:
    """The `width` neurons that a method keeps, in ascending order; see the module."""
    if method == "surgeon":
        return kept_by_surgeon(block, sums, width)
    if method == "magnitude":
        scores = math.prod((U.norm(dim=1) for U, _ in block.factors), start=block.W1.norm(dim=1) * block.W2.norm(dim=0))
    elif method == "wanda":
        scores = sums.gram.diagonal().sqrt() * block.W2.double().norm(dim=0)
    else:
        variance = (sums.gram.diagonal() - sums.mean.square()).clamp(min=0)
        scores = variance * block.W2.double().square().sum(0)
    return scores.argsort(descending=True, stable=True)[:width].sort().values


def kept_by_surgeon(block: Block, sums: HiddenSums, width: int) -> Tensor:
    """The neurons left after removing one by one, always the cheapest after refitting the last map.

    With A = E[h h^T] + ridge and the optimal D for all neurons, removing neuron i increases the mean of |t - D h|^2 by
    |D_i|^2 / (A^-1)_ii; D and A^-1 then change by rank one.
    """
    A = damped(sums.gram, RIDGE)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(A))
    start = block.W2.to(A)
    D = start + torch.linalg.solve(A, sums.cross - sums.gram @ start.T).T
    gone = torch.zeros(len(inverse), dtype=torch.bool, device=inverse.device)
    for _ in range(block.width - width):
        cost = (D.square().sum(0) / inverse.diagonal()).masked_fill(gone, torch.inf)
        i = int(cost.argmin())
        gone[i] = True
        column = inverse[:, i] / inverse[i, i]
        row = inverse[i].clone()
        D.addr_(D[:, i].clone(), column, alpha=-1)
        inverse.addr_(column, row, alpha=-1)
        inverse[i, i], D[:, i] = 1.0, 0.0  # so that later divisions stay finite
    return (~gone).nonzero()[:, 0]


@dataclass(frozen=True, eq=False)
class BlockTargets:
    """Inputs of a block (N, d) and targets for its output minus the last bias (N, d)."""

    inputs: Tensor
    targets: Tensor

    def error(self, block: Block) -> float:
        """The mean of |t - D h|^2."""
        total = 0.0
        for x, t in zip(self.inputs.split(CHUNK), self.targets.split(CHUNK), strict=True):
            total += float((t - block.hidden(x) @ block.W2.T).double().square().sum())
        return total / len(self.inputs)

    def size(self) -> float:
        """The mean of |t|^2, 1 if all targets are zero."""
        return float(self.targets.double().square().sum() / len(self.targets)) or 1.0

    def moments(self, block: Block) -> HiddenSums:
        """The means that last maps and scores of neurons need, by one pass over the rows."""
        n, d, count = block.width, self.targets.shape[1], len(self.inputs)
        gram, mean, cross = (self.inputs.new_zeros(shape, dtype=torch.float64) for shape in ((n, n), (n,), (n, d)))
        size = 0.0
        for x, t in zip(self.inputs.split(CHUNK), self.targets.split(CHUNK), strict=True):
            h = block.hidden(x)
            gram += h.T @ h
            mean += h.sum(0, dtype=torch.float64)
            cross += h.T @ t
            size += float(t.double().square().sum())
        return HiddenSums(gram / count, mean / count, cross / count, size / count)


def last_map(block: Block, sums: HiddenSums, ridge: float) -> Tensor:
    """The least-squares last map D (d, n), with a ridge towards the block's own, relative to the mean of h_i^2."""
    start = block.W2.to(sums.gram)
    return (start + ridge_map(sums.gram, sums.cross - sums.gram @ start.T, ridge)).to(block.W2)


def last_map_by_held_out(block: Block, sums: HiddenSums, held_out: HiddenSums) -> Tensor:
    """The last map with the best ridge on held-out rows, or the block's own if that is better."""
    return min([*(last_map(block, sums, ridge) for ridge in RIDGES), block.W2], key=held_out.error)


def joint_refit(
    block: Block, fitted: BlockTargets, held_out: BlockTargets, *, epochs: int = EPOCHS, rate: float = RATE
) -> Block:
    """Refit gates, factors and the last map together by Adam, then the last map by least squares.

    Held-out rows choose the epoch, which may be none, and the ridge. Biases that are all zero stay zero.
    """
    best, least = block, held_out.error(block)
    generator = torch.Generator().manual_seed(0)
    scales: list[tuple[float, float | None]] = []
    for W, b in block.maps[:-1]:
        scale = root_mean_square(torch.cat([W, b[:, None]], 1))
        scales.append((scale, scale if bool(b.any()) else None))
    scales.append((root_mean_square(block.W2), None))
    adam = BlockAdam(replace(block, b2=torch.zeros_like(block.b2)), scales, BETAS, 1e-12)
    size, count = root_mean_square(fitted.targets), len(fitted.inputs)
    batch = min(BATCH, count)
    steps, step = epochs * (count // batch), 0
    for _ in range(epochs):
        order = torch.randperm(count, generator=generator).to(fitted.inputs.device)
        for chosen in order[: count // batch * batch].split(batch):
            step += 1
            share = min(1.0, step / WARM) * (1 - 0.95 * step / steps)
            adam.step(fitted.inputs[chosen], fitted.targets[chosen], size, rate * share)
        current = replace(detached(adam.block), b2=block.b2)
        error = held_out.error(current)
        if error < least:
            best, least = current, error
    return replace(best, W2=last_map_by_held_out(best, fitted.moments(best), held_out.moments(best)))


def smaller_block(block: Block, fitted: BlockTargets, others: BlockTargets, width: int, method: str) -> Block:
    """A block with fewer neurons; flap replaces removed means by a bias, surgeon refits the last map as FASP does."""
    if method == "ours":
        return our_block(block, fitted, others, width)
    sums = fitted.moments(block)
    chosen = kept_neurons(method, block, sums, width)
    small = narrowed(block, chosen)
    if method == "surgeon":
        small = replace(small, W2=last_map(small, sums.take(chosen), DAMPING))
    if method == "flap":
        gone = torch.ones(block.width, dtype=torch.bool, device=chosen.device)
        gone[chosen] = False
        small = replace(small, b2=block.b2 + (block.W2[:, gone].double() @ sums.mean[gone]).to(block.b2))
    return small


def our_block(block: Block, fitted: BlockTargets, others: BlockTargets, width: int) -> Block:
    """Select neurons by surgeon or wanda, as held-out windows choose, then refit all weights together."""
    sums, decisive = fitted.moments(block), others.moments(block)
    candidates: list[tuple[float, Block]] = []
    for order in ("surgeon", "wanda"):
        chosen = kept_neurons(order, block, sums, width)
        small, its_decisive = narrowed(block, chosen), decisive.take(chosen)
        D = last_map_by_held_out(small, sums.take(chosen), its_decisive)
        candidates.append((its_decisive.error(D), replace(small, W2=D)))
    _, start = min(candidates, key=lambda candidate: candidate[0])
    return joint_refit(start, fitted, others)


def narrowed(block: Block, neurons: Tensor) -> Block:
    *affine, (W2, b2) = block.maps
    return block.with_maps([*((W[neurons], b[neurons]) for W, b in affine), (W2[:, neurons], b2)])
