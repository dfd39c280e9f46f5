"""Which neurons of a block stay: by their weights, by what they carry, or by what is lost once the others are refitted.

    magnitude   |G_i| |U_i| |D_i|: weights alone
    wanda       rms(h_i) |D_i|: how much a neuron carries on the calibration rows (Wanda, by whole neurons)
    flap        var(h_i) |D_i|^2: what it carries less its mean, which a bias can take over (FLAP)
    surgeon     min over D' of |D h - D' h|^2, neuron after neuron: the exact cost once D is refitted (ZipLM)

All of them need of the rows no more than `HiddenSums`, which are summed up in one streaming pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gatelab.models.layouts import Block

CHUNK = 4096  # rows whose hidden values are held at once


@dataclass(frozen=True, eq=False)
class HiddenSums:
    """Means over rows with the hidden values h (n,) of a block and targets t (d,), in float64."""

    gram: Tensor  # of h h^T (n, n)
    mean: Tensor  # of h (n,)
    cross: Tensor  # of h t^T (n, d)
    size: float  # of |t|^2

    def take(self, neurons: Tensor) -> HiddenSums:
        """Those of some neurons alone."""
        gram = self.gram[neurons][:, neurons]
        return HiddenSums(gram, self.mean[neurons], self.cross[neurons], self.size)

    def error(self, D: Tensor) -> float:
        """The mean of |t - D h|^2."""
        D = D.to(self.gram)
        return float(self.size - 2 * (D.T * self.cross).sum() + ((D @ self.gram) * D).sum())


def moments(block: Block, rows: Tensor, targets: Tensor) -> HiddenSums:
    """One pass over the inputs of a block (N, d) and what its output less the last bias should be (N, d)."""
    n, count = block.width, len(rows)
    place = {"dtype": torch.float64, "device": rows.device}
    gram, mean = torch.zeros((n, n), **place), torch.zeros(n, **place)
    cross, size = torch.zeros((n, targets.shape[1]), **place), 0.0
    for x, t in zip(rows.split(CHUNK), targets.split(CHUNK), strict=True):
        h = block.hidden(x)
        gram += h.T @ h
        mean += h.sum(0, dtype=torch.float64)
        cross += h.T @ t
        size += float(t.double().square().sum())
    return HiddenSums(gram / count, mean / count, cross / count, size / count)


def magnitude(block: Block, moments: HiddenSums, width: int) -> Tensor:
    """The neurons with the largest product of the lengths of their weights; the rows do not matter."""
    score = block.W1.norm(dim=1) * block.W2.norm(dim=0)
    for U, _ in block.factors:
        score = score * U.norm(dim=1)
    return largest(score, width)


def wanda(block: Block, moments: HiddenSums, width: int) -> Tensor:
    """The neurons that carry most."""
    return largest(wanda_scores(block, moments), width)


def wanda_scores(block: Block, moments: HiddenSums) -> Tensor:
    """The root mean square of every neuron's value times the length of its column in the last map."""
    return moments.gram.diagonal().sqrt() * block.W2.double().norm(dim=0)


def flap(block: Block, moments: HiddenSums, width: int) -> Tensor:
    """The neurons that carry most beside their mean."""
    variance = (moments.gram.diagonal() - moments.mean.square()).clamp(min=0)
    return largest(variance * block.W2.double().square().sum(0), width)


def surgeon(block: Block, moments: HiddenSums, width: int, ridge: float = 1e-3) -> Tensor:
    """Neurons go one after another, the one whose loss costs least once the last map of the others is refitted.

    With A = E[h h^T] + ridge and D at its best for all neurons, neuron i costs |D_i|^2 / (A^-1)_ii exactly; a rank-one
    change of D and of A^-1 accounts for its loss.
    """
    stays = torch.ones(block.width, dtype=torch.bool)
    neurons, _ = surgeon_costs(block, moments, block.width - width, ridge)
    stays[neurons] = False
    return stays.nonzero()[:, 0].to(moments.gram.device)


def surgeon_costs(block: Block, moments: HiddenSums, count: int, ridge: float = 1e-3) -> tuple[list[int], list[float]]:
    """Which neurons go, one after another, and what each costs beside those before it, in the mean of |t - D h|^2."""
    A = damped(moments.gram, ridge)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(A))
    start = block.W2.to(A)
    D = start + torch.linalg.solve(A, moments.cross - moments.gram @ start.T).T
    gone = torch.zeros(len(inverse), dtype=torch.bool, device=inverse.device)
    order: list[int] = []
    costs: list[Tensor] = []
    for _ in range(count):
        cost = (D.square().sum(0) / inverse.diagonal()).masked_fill(gone, torch.inf)
        i = int(cost.argmin())
        order.append(i)
        costs.append(cost[i])
        gone[i] = True
        column = inverse[:, i] / inverse[i, i]
        row = inverse[i].clone()
        D.addr_(D[:, i].clone(), column, alpha=-1)
        inverse.addr_(column, row, alpha=-1)
        inverse[i, i], D[:, i] = 1.0, 0.0  # out of the way of the divisions
    return order, [float(cost) for cost in costs]


def damped(gram: Tensor, ridge: float) -> Tensor:
    """A Gram matrix with a share of its mean diagonal added to the diagonal."""
    out = gram.clone()
    out.diagonal().add_(max(ridge * float(gram.diagonal().mean()), torch.finfo(gram.dtype).tiny))
    return out


def largest(score: Tensor, width: int) -> Tensor:
    """The places of the largest scores, in ascending order."""
    return score.argsort(descending=True, stable=True)[:width].sort().values


Order = Callable[[Block, HiddenSums, int], Tensor]
ORDERS: dict[str, Order] = {"magnitude": magnitude, "wanda": wanda, "flap": flap, "surgeon": surgeon}
