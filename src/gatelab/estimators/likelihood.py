"""The log-likelihood of classes under networks with a linear part, many networks in one batch.

    logits(x) = A (x, 1) + D [ act(Gx + g) * (Ux + u) * ... ],        p(x) = softmax(logits)

Two classes have one logit, that of the second relative to the first. The loss of a member is the weighted mean of
-log p, plus half the ridge times the sum of squares of all parameters but the constants of A. `gauss_newton` is for
small data, `adam` trains in single precision on minibatches. Each member keeps the parameters with the best loss on its
`held_out` rows, and ends when that loss has not improved for some time.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from time import monotonic

import torch
from torch import Tensor
from torch.optim.adam import adam as adam_step

from gatelab.arrays import AnyArray as Array
from gatelab.feedforward import Unit
from gatelab.feedforward.definition import neuron_slopes
from gatelab.interrupts import stop_if_asked
from gatelab.solve.marquardt import Damping, damped_step, descend

_DAMPING = Damping(first=1e-1, least=1e-8, most=1e6, up=4)
# The smallest squared scale of a parameter relative to the largest.
_LEAST_SCALE = 1e-8
# The relative gain below which a step is idle, and the steps without a better loss on held-out rows that end a member.
_TOLERANCE, _PATIENCE = 1e-4, 6
# Bytes of the tall matrices that are in memory at a time.
_TALL_BYTES = 2**27


@dataclass(frozen=True, eq=False)
class Likelihood:
    """A batch of networks of one unit and width on the same rows x (N, d + 1), the last column ones.

    `target` is one-hot (N, classes); `weight` (B, N) sums to one for each member, zero for held-out rows; `ridge` is
    (B,). `relevance` (B, d + 1) has factors of the inputs: the ridge penalizes inputs of low relevance more.
    """

    unit: Unit
    width: int
    x: Tensor
    target: Tensor
    weight: Tensor
    ridge: Tensor
    relevance: Tensor

    @classmethod
    def plainly(cls, unit: Unit, width: int, x: Tensor, classes: int, weight: Tensor | None = None) -> Likelihood:
        """Networks without ridge and relevance, one per row of `weight`, or a single one."""
        if weight is None:
            weight = x.new_full((1, len(x)), 1 / len(x))
        ones = x.new_ones(len(weight), x.shape[1])
        return cls(unit, width, x, x.new_zeros(len(x), classes), weight, torch.zeros_like(weight[:, 0]), ones)

    @property
    def outputs(self) -> int:
        """The number of logits: one for two classes."""
        classes = self.target.shape[1]
        return 1 if classes == 2 else classes

    @property
    def maps(self) -> int:
        return self.unit.factors + 1

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of parameters of the maps, of the last map D and of the linear part A."""
        d, c = self.x.shape[1], self.outputs
        return self.maps * self.width * d, c * self.width, c * d

    @property
    def together(self) -> int:
        """The number of members whose tall matrices fit into memory at a time."""
        return max(1, _TALL_BYTES // (8 * len(self.x) * self.outputs * max(1, sum(self.sizes))))

    def take(self, index: Tensor) -> Likelihood:
        """These members of the batch."""
        return replace(self, weight=self.weight[index], ridge=self.ridge[index], relevance=self.relevance[index])

    def parts(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The maps (B, maps, n, d + 1), D (B, c, n) and A (B, c, d + 1) in flat parameters (B, p)."""
        batch, d, c = len(theta), self.x.shape[1], self.outputs
        maps, D, A = theta.split(self.sizes, dim=1)
        return maps.view(batch, self.maps, self.width, d), D.view(batch, c, self.width), A.view(batch, c, d)

    def logits(self, theta: Tensor, x: Tensor | None = None) -> Tensor:
        """(B, N, c) at the rows, or at others."""
        maps, D, A = self.parts(self.plain(theta))
        *z, linear = self.affine(self.x if x is None else x, maps, A)
        return linear + self.unit.neuron(*z) @ D.mT

    def affine(self, x: Tensor, maps: Tensor, A: Tensor) -> tuple[Tensor, ...]:
        """The values of each map (B, N, n) and of the linear part (B, N, c), by one product for all members."""
        weights = torch.cat([maps.flatten(1, 2), A], 1)
        values = (x @ weights.flatten(0, 1).T).unflatten(1, weights.shape[:2]).transpose(0, 1)
        return values.split([self.width] * self.maps + [A.shape[1]], -1)

    def plain(self, theta: Tensor) -> Tensor:
        """The parameters of the same networks without relevance factors."""
        maps, D, A = self.parts(theta)
        maps, A = maps * self.relevance[:, None, None], A * self.relevance[:, None]
        return torch.cat([maps.flatten(1), D.flatten(1), A.flatten(1)], 1)

    def sensitivity(self, theta: Tensor) -> Tensor:
        """The root mean square of the derivatives of the logits by each input (B, d)."""
        maps, D, A = self.parts(self.plain(theta))
        total = torch.zeros_like(self.relevance)
        most = max(1, _TALL_BYTES // (8 * len(theta) * self.maps * max(1, self.width)))
        for x, weight in zip(self.x.split(most), self.weight.split(most, 1), strict=True):
            *z, _ = self.affine(x, maps, A)
            _, slopes = neuron_slopes(self.unit, z)
            for c in range(D.shape[1]):
                paths = ((b * D[:, c, None]) @ maps[:, i] for i, b in enumerate(slopes))
                total += (weight[..., None] * sum(paths, A[:, c, None]).square()).sum(1)
        return total[:, :-1].sqrt()

    def log_probability(self, theta: Tensor, x: Tensor | None = None) -> Tensor:
        """(B, N, classes) at the rows, or at others."""
        return log_softmax(self.logits(theta, x))

    def penalty(self, theta: Tensor) -> Tensor:
        """The ridge of each parameter (B, p), zero for the constants of A."""
        free = torch.ones_like(theta)
        self.parts(free)[2][..., -1] = 0.0
        return self.ridge[:, None] * free

    def cost(self, theta: Tensor) -> Tensor:
        """The ridge term of the loss of each member (B,)."""
        return 0.5 * (self.penalty(theta) * theta.square()).sum(-1)

    def deviance(self, theta: Tensor) -> Tensor:
        """-log p of the class of each row (B, N), in blocks of rows that fit into memory."""
        most = max(1, _TALL_BYTES // (8 * len(theta) * (self.maps * self.width + self.target.shape[1])))
        parts = zip(self.x.split(most), self.target.split(most), strict=True)
        return torch.cat([-(self.log_probability(theta, x) * target).sum(-1) for x, target in parts], -1)

    def loss(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each member (B,), and -log p of the class of each row (B, N)."""
        deviance = self.deviance(theta)
        return (self.weight * deviance).sum(-1) + self.cost(theta), deviance

    def normal(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The Gauss-Newton matrix (B, p, p) and the downhill gradient (B, p) of the loss."""
        x = self.x * self.relevance[:, None]
        batch, n, c = len(theta), len(self.x), self.outputs
        maps, D, A = self.parts(self.plain(theta))
        *z, linear = self.affine(self.x, maps, A)
        values, slopes = neuron_slopes(self.unit, z)
        p = log_softmax(linear + values @ D.mT).exp()
        root_weight = self.weight.sqrt()
        root, residual = fisher_root(p) * root_weight[..., None, None], (self.target - p)[..., -c:]
        # For the map of a neuron: the product of the root with its weights in D, times its slope, times (x, 1).
        through = torch.einsum("bncs,bci->bnsi", root, D)
        tall = [
            *((through * b[:, :, None])[..., None] * x[:, :, None, None] for b in slopes),
            torch.einsum("bncs,bni->bnsci", root, values),
            torch.einsum("bncs,bnd->bnscd", root, x),
        ]
        J = torch.cat([t.reshape(batch, n * c, -1) for t in tall], -1)
        weighted = residual * self.weight[..., None]
        back = weighted @ D
        gradient = [*((back * b).mT @ x for b in slopes), weighted.mT @ values, weighted.mT @ x]
        penalty = self.penalty(theta)
        g = torch.cat([t.reshape(batch, -1) for t in gradient], -1) - penalty * theta
        K = J.mT @ J
        K.diagonal(dim1=-2, dim2=-1).add_(penalty)
        return K, g


def log_softmax(logits: Tensor) -> Tensor:
    """log p (..., classes) of c logits; a single logit is that of the second class relative to the first."""
    if logits.shape[-1] == 1:
        return torch.cat([-torch.nn.functional.softplus(logits), -torch.nn.functional.softplus(-logits)], -1)
    return logits.log_softmax(-1)


def fisher_root(p: Tensor) -> Tensor:
    """R (..., c, c) with R R^T the Fisher information of the logits: diag(p) - p p^T, or p (1 - p) for two classes."""
    if p.shape[-1] == 2:
        return p.prod(-1).sqrt()[..., None, None]
    root = p.sqrt()
    return torch.diag_embed(root) - p[..., None] * root[..., None, :]


@dataclass(frozen=True, eq=False)
class LikelihoodFit:
    """The best parameters (B, p) of each member by its score, and the mean of -log p on its training rows (B,)."""

    theta: Tensor
    score: Tensor
    training: Tensor

    def keep(self, members: Tensor, theta: Tensor, score: Tensor, training: Tensor) -> None:
        self.theta[members], self.score[members], self.training[members] = theta, score, training


def gauss_newton(
    model: Likelihood,
    theta: Tensor,
    held_out: Tensor | None,
    *,
    steps: int,
    until: Tensor | None = None,
    end: float = math.inf,
) -> LikelihoodFit:
    """Damped Gauss-Newton steps, until the training loss falls to `until` (B,) or the clock passes `end`."""
    batch, budget = _LikelihoodBatch(model, theta, held_out, until), [steps] * len(theta)

    def stopped() -> Collection[int]:
        return range(len(theta)) if monotonic() > end else batch.stopped

    descend(batch, budget, tolerance=_TOLERANCE, damping=_DAMPING, stopped=stopped)
    return batch.best


class _LikelihoodBatch:
    """Networks of a likelihood for `descend`; `best` has the parameters with the best scores so far."""

    def __init__(self, model: Likelihood, theta: Tensor, held_out: Tensor | None, until: Tensor | None) -> None:
        self.model, self.theta, self.held_out, self.until = model, theta.clone(), held_out, until
        self.loss, deviance = model.loss(theta)
        training = (model.weight * deviance).sum(-1)
        self.best = LikelihoodFit(theta.clone(), scores(held_out, deviance, self.loss).clone(), training)
        self.trials: tuple[Tensor, ...] = ()
        self.K, self.g = theta.new_zeros(len(theta), theta.shape[1], theta.shape[1]), torch.zeros_like(theta)
        self.worse = torch.zeros_like(self.loss)
        self.stopped: set[int] = set()

    def losses(self) -> Array:
        return self.loss.cpu().numpy()

    def linearize(self, members: Array) -> None:
        for piece in self._index(members).split(self.model.together):
            self.K[piece], self.g[piece] = self.model.take(piece).normal(self.theta[piece])

    def trial(self, members: Array, damping: Array) -> tuple[Array, Array]:
        i = self._index(members)
        step, promised = damped_step(self.K[i], self.g[i], torch.from_numpy(damping).to(self.theta), _LEAST_SCALE)
        theta = self.theta[i] + step
        self.trials = theta, *self.model.take(i).loss(theta)
        return self.trials[1].cpu().numpy(), 0.5 * promised.cpu().numpy()

    def accept(self, members: Array, rows: Array) -> None:
        i, k = self._index(members), self._index(rows)
        theta, loss, deviance = (part[k] for part in self.trials)
        self.theta[i] = theta
        score = scores(None if self.held_out is None else self.held_out[i], deviance, loss)
        training = (self.model.weight[i] * deviance).sum(-1)
        gained = score < self.best.score[i]
        self.best.keep(i[gained], theta[gained], score[gained], training[gained])
        self.worse[i] = torch.where(gained, 0.0, self.worse[i] + 1)
        done = self.worse[i] >= _PATIENCE
        if self.until is not None:
            done |= training <= self.until[i]
        self.stopped.update(i[done].tolist())

    def _index(self, members: Array) -> Tensor:
        return torch.from_numpy(members).to(self.theta.device)


def scores(held_out: Tensor | None, deviance: Tensor, loss: Tensor) -> Tensor:
    """The mean of -log p on held-out rows (B,), or the loss."""
    return loss if held_out is None else (held_out * deviance).sum(-1)


def adam(
    model: Likelihood,
    theta: Tensor,
    held_out: Tensor | None,
    *,
    passes: int,
    rate: float,
    batch_rows: int,
    seed: int,
    until: Tensor | None = None,
    end: float = math.inf,
) -> LikelihoodFit:
    """Adam on minibatches in single precision, with a cosine schedule of the rate over the passes."""
    n, generator = len(model.x), torch.Generator().manual_seed(seed)
    names = ("x", "target", "weight", "ridge", "relevance")
    single = replace(model, **{name: getattr(model, name).float() for name in names})
    current = theta.float().clone().requires_grad_()
    total = passes * math.ceil(n / batch_rows)
    # The function instead of the class, whose import of a compiler takes longer than many fits.
    step, mean, square = torch.zeros(()), torch.zeros_like(current), torch.zeros_like(current)
    how = {"amsgrad": False, "weight_decay": 0.0, "eps": 1e-8, "maximize": False}
    unknown, last = torch.full_like(model.ridge, math.inf), torch.zeros_like(model.ridge)
    best = LikelihoodFit(current.detach().clone(), unknown.clone(), unknown)
    for count in range(passes + 1):
        stop_if_asked()
        with torch.no_grad():
            deviance = single.deviance(current).to(theta.dtype)
            inside = (model.weight * deviance).sum(-1)
            score = scores(held_out, deviance, inside + model.cost(current))
        gained = score < best.score
        best.keep(gained, current.detach()[gained], score[gained], inside[gained])
        last[gained] = float(count)
        reached = until is not None and bool((inside <= until).all())
        idle = bool((count - last > passes / 4).all())
        if count == passes or reached or idle or (count and monotonic() > end):
            break
        for index in torch.randperm(n, generator=generator).to(theta.device).split(batch_rows):
            weight = single.weight[:, index] * (n / len(index))
            part = replace(single, x=single.x[index], target=single.target[index], weight=weight)
            slope = list(torch.autograd.grad(part.loss(current)[0].sum(), current))
            now = rate * (0.5 + 0.5 * math.cos(math.pi * float(step) / total))
            with torch.no_grad():
                adam_step([current], slope, [mean], [square], [], [step], beta1=0.9, beta2=0.99, lr=now, **how)
    return replace(best, theta=best.theta.to(theta.dtype))
