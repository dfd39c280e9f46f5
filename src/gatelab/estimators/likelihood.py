"""The log-likelihood of classes under networks with a linear part, many networks in one batch.

    logits(x) = A (x, 1) + D [ act(Gx + g) * (Ux + u) * ... ],        p(x) = softmax(logits)

Two classes have one logit, that of the second against the first. The loss of a member of the batch is the weighted mean
of -log p at the rows, whose weights sum to one, and half its ridge times the sum of squares of all parameters but the
constants of A. A strong ridge thus takes neurons away one after the other, and what is left is logistic regression.

- `descend` goes by damped Gauss-Newton steps. The Fisher information of a row's logits is diag(p) - p p^T, with the
  root diag(sqrt p) - p sqrt(p)^T: by it the Gauss-Newton matrix is a product of one tall matrix with itself.
- `wander` goes by Adam in single precision over small batches of rows, for data where such matrices are too large.

Rows that a member does not train on are its `held_out` rows: each keeps the parameters that were best there, and ends
where they have been no better for some time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from time import monotonic

import torch
from torch import Tensor

from gatelab.feedforward import Unit
from gatelab.interrupts import stop_if_asked

# Damping of the first step, beside the scaled diagonal, and where a member has come to rest.
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-1, 1e-8, 1e6
# A step that gains less than this share of the loss is idle, and so many of them in a row are the end.
_TOLERANCE, _IDLE = 1e-4, 3
# Steps without a better loss on rows held out, after which a member ends.
_PATIENCE = 6
# How much of the mean slope and of its mean square Adam keeps at a step, and what is added to the root of the latter.
_MEMORY, _TINY = (0.9, 0.99), 1e-8
# Bytes of the tall matrix above which members of the batch are taken one after the other.
_TALL_BYTES = 2**27


@dataclass(frozen=True, eq=False)
class ClassRows:
    """The rows that a batch of networks is fitted to.

    Attributes:
        x: the inputs (N, d + 1), the last column ones.
        target: zeros and a one for the class of each row (N, classes).
    """

    x: Tensor
    target: Tensor

    @property
    def logits(self) -> int:
        """How many logits a network gives: one for two classes."""
        classes = self.target.shape[1]
        if classes == 2:
            return 1
        return classes


@dataclass(frozen=True, eq=False)
class Likelihood:
    """A batch of networks of one unit and width on the same rows.

    Attributes:
        unit: the unit.
        width: neurons, zero or more.
        rows: the data.
        weight: of the rows for each member (B, N), zero where a row is not trained on; each sums to one.
        ridge: of each member (B,).
        relevance: what each input is multiplied by for each member (B, d + 1), the last one: a ridge then costs inputs
            of little relevance more.
    """

    unit: Unit
    width: int
    rows: ClassRows
    weight: Tensor
    ridge: Tensor
    relevance: Tensor

    @property
    def maps(self) -> int:
        """How many affine maps a neuron has."""
        return self.unit.factors + 1

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many parameters the maps, the last map D and the linear part A have."""
        d, c = self.rows.x.shape[1], self.rows.logits
        return self.maps * self.width * d, c * self.width, c * d

    @property
    def together(self) -> int:
        """How many members can have their tall matrices in memory at a time."""
        return max(1, _TALL_BYTES // (8 * len(self.rows.x) * self.rows.logits * max(1, sum(self.sizes))))

    def take(self, index: Tensor) -> Likelihood:
        """These members of the batch."""
        return replace(self, weight=self.weight[index], ridge=self.ridge[index], relevance=self.relevance[index])

    def parts(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The maps (B, maps, n, d + 1), D (B, c, n) and A (B, c, d + 1) in flat parameters (B, p)."""
        batch, d, c = len(theta), self.rows.x.shape[1], self.rows.logits
        maps, D, A = theta.split(self.sizes, dim=1)
        return maps.view(batch, self.maps, self.width, d), D.view(batch, c, self.width), A.view(batch, c, d)

    def logits(self, theta: Tensor, x: Tensor | None = None) -> Tensor:
        """(B, N, c) at the rows, or at others."""
        if x is None:
            x = self.rows.x
        maps, D, A = self.parts(self.plain(theta))
        *z, linear = self.affine(x, maps, A)
        return linear + self.unit.neuron(*z) @ D.mT

    def affine(self, x: Tensor, maps: Tensor, A: Tensor) -> tuple[Tensor, ...]:
        """The values of each map (B, N, n) and of the linear part (B, N, c), by one product for all members."""
        weights = torch.cat([maps.flatten(1, 2), A], 1)
        values = (x @ weights.flatten(0, 1).T).unflatten(1, weights.shape[:2]).transpose(0, 1)
        return values.split([self.width] * self.maps + [A.shape[1]], -1)

    def plain(self, theta: Tensor) -> Tensor:
        """The same networks with their relevance in the parameters."""
        maps, D, A = self.parts(theta)
        maps, A = maps * self.relevance[:, None, None], A * self.relevance[:, None]
        return torch.cat([maps.flatten(1), D.flatten(1), A.flatten(1)], 1)

    def sensitivity(self, theta: Tensor) -> Tensor:
        """How much the logits move with each input (B, d): the root of the mean square of their derivative by it."""
        maps, D, A = self.parts(self.plain(theta))
        total = torch.zeros_like(self.relevance)
        most = max(1, _TALL_BYTES // (8 * len(theta) * self.maps * max(1, self.width)))
        for x, weight in zip(self.rows.x.split(most), self.weight.split(most, 1), strict=True):
            *z, _ = self.affine(x, maps, A)
            _, slopes = neurons(self.unit, z)
            for c in range(D.shape[1]):
                paths = ((b * D[:, c, None]) @ maps[:, i] for i, b in enumerate(slopes))
                total += (weight[..., None] * sum(paths, A[:, c, None]).square()).sum(1)
        return total[:, :-1].sqrt()

    def log_probability(self, theta: Tensor, x: Tensor | None = None) -> Tensor:
        """(B, N, classes) at the rows, or at others."""
        return log_softmax(self.logits(theta, x))

    def penalty(self, theta: Tensor) -> Tensor:
        """What the ridge multiplies for each parameter (B, p): one, and zero for the constants of A."""
        free = torch.ones_like(theta)
        self.parts(free)[2][..., -1] = 0.0
        return self.ridge[:, None] * free

    def cost(self, theta: Tensor) -> Tensor:
        """What the ridge adds to the loss of each member (B,)."""
        return 0.5 * (self.penalty(theta) * theta.square()).sum(-1)

    def deviance(self, theta: Tensor) -> Tensor:
        """-log p of the class of each row (B, N), made over parts of the rows that fit into memory."""
        most = max(1, _TALL_BYTES // (8 * len(theta) * (self.maps * self.width + self.rows.target.shape[1])))
        parts = zip(self.rows.x.split(most), self.rows.target.split(most), strict=True)
        return torch.cat([-(self.log_probability(theta, x) * target).sum(-1) for x, target in parts], -1)

    def loss(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each member (B,), and -log p of the class of each row (B, N)."""
        deviance = self.deviance(theta)
        return (self.weight * deviance).sum(-1) + self.cost(theta), deviance

    def normal(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The Gauss-Newton matrix (B, p, p) and the downhill gradient (B, p) of the loss."""
        x = self.rows.x * self.relevance[:, None]
        batch, (n, _), c = len(theta), self.rows.x.shape, self.rows.logits
        maps, D, A = self.parts(self.plain(theta))
        *z, linear = self.affine(self.rows.x, maps, A)
        values, slopes = neurons(self.unit, z)
        p = log_softmax(linear + values @ D.mT).exp()
        root_weight = self.weight.sqrt()
        root, residual = fisher_root(p) * root_weight[..., None, None], (self.rows.target - p)[..., -c:]
        # For a neuron's map: its weights in D by the root, times its slope, times (x, 1).
        through = torch.einsum("bncs,bci->bnsi", root, D)
        tall = [
            *((through * b[:, :, None])[..., None] * x[:, :, None, None] for b in slopes),
            torch.einsum("bncs,bni->bnsci", root, values),
            torch.einsum("bncs,bnd->bnscd", root, x),
        ]
        J = torch.cat([t.reshape(batch, n * c, -1) for t in tall], -1)
        weighted = residual * self.weight[..., None]
        back = weighted @ D
        gradient = [
            *((back * b).mT @ x for b in slopes),
            weighted.mT @ values,
            weighted.mT @ x,
        ]
        penalty = self.penalty(theta)
        g = torch.cat([t.reshape(batch, -1) for t in gradient], -1) - penalty * theta
        K = J.mT @ J
        K.diagonal(dim1=-2, dim2=-1).add_(penalty)
        return K, g


def neurons(unit: Unit, z: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The neurons and their derivatives by each of their maps' values, all (B, N, n)."""
    with torch.enable_grad():
        maps = [v.detach().requires_grad_() for v in z]
        value = unit.neuron(*maps)
        # Neurons are functions of their own pre-activations alone: the gradient of the sum is elementwise.
        slopes = torch.autograd.grad(value.sum(), maps, allow_unused=True)
    return value.detach(), [torch.zeros_like(v) if s is None else s for s, v in zip(slopes, z, strict=True)]


def log_softmax(logits: Tensor) -> Tensor:
    """log p (..., classes) of c logits; a single one is the second class's against the first.

    >>> log_softmax(torch.zeros(1)).exp()
    tensor([0.5000, 0.5000])
    """
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
    """Where a batch ended, each member at its best on the rows held out.

    Attributes:
        theta: the parameters (B, p).
        held_out: the mean of -log p there (B,); the loss itself where none were held out.
        training: the mean of -log p at the training rows (B,).
        steps: how many steps, or passes over the rows, led there.
    """

    theta: Tensor
    held_out: Tensor
    training: Tensor
    steps: Tensor


def descend(
    model: Likelihood,
    theta: Tensor,
    held_out: Tensor | None,
    *,
    steps: int,
    until: Tensor | None = None,
    end: float = math.inf,
) -> LikelihoodFit:
    """Damped Gauss-Newton steps."""
    batch = len(theta)
    theta = theta.clone()
    loss, deviance = model.loss(theta)
    training = (model.weight * deviance).sum(-1)
    best = LikelihoodFit(theta.clone(), judged(held_out, deviance, loss).clone(), training, torch.zeros_like(loss))
    damping = torch.full_like(loss, _FIRST_DAMPING)
    idle = torch.zeros(batch, dtype=torch.long, device=theta.device)
    worse = torch.zeros_like(idle)
    running = torch.isfinite(loss)
    K, g = theta.new_zeros(batch, theta.shape[1], theta.shape[1]), torch.zeros_like(theta)
    outdated = torch.ones_like(running)
    for count in range(1, steps + 1):
        stop_if_asked()
        active = running.nonzero()[:, 0]
        if not len(active) or monotonic() > end:
            break
        stale = active[outdated[active]]
        if len(stale):
            for piece in stale.split(model.together):
                K[piece], g[piece] = model.take(piece).normal(theta[piece])
            outdated[stale] = False
        step, promised = damped_step(K[active], g[active], damping[active])
        part = model.take(active)
        trial = theta[active] + step
        after, deviance = part.loss(trial)
        before = loss[active]
        better = after < before
        gain = torch.where(better, (before - after) / promised.clamp_min(1e-300), 0.0)
        factor = torch.where(better, (1 - (2 * gain - 1) ** 3).clamp(1 / 3, 2.0), 4.0)
        damping[active] = (damping[active] * factor).clamp_min(_LEAST_DAMPING)
        small = better & (before - after <= _TOLERANCE * before)
        idle[active] = torch.where(better, torch.where(small, idle[active] + 1, 0), idle[active])
        improved = active[better]
        theta[improved], loss[improved] = trial[better], after[better]
        outdated[improved] = True
        outside = judged(None if held_out is None else held_out[active], deviance, after)
        inside = (part.weight * deviance).sum(-1)
        gained = better & (outside < best.held_out[active])
        worse[active] = torch.where(gained, 0, worse[active] + better.long())
        put = active[gained]
        best.theta[put], best.held_out[put] = trial[gained], outside[gained]
        best.training[put], best.steps[put] = inside[gained], float(count)
        done = (damping[active] > _MOST_DAMPING) | (idle[active] >= _IDLE) | (worse[active] >= _PATIENCE)
        if until is not None:
            done |= better & (inside <= until[active])
        running[active[done]] = False
    return best


def judged(held_out: Tensor | None, deviance: Tensor, loss: Tensor) -> Tensor:
    """By what the best parameters of each member are known (B,)."""
    if held_out is None:
        return loss
    return (held_out * deviance).sum(-1)


def damped_step(K: Tensor, g: Tensor, damping: Tensor) -> tuple[Tensor, Tensor]:
    """The step with Marquardt's scaling, and the decrease of the loss that it promises."""
    diagonal = K.diagonal(dim1=-2, dim2=-1)
    size = diagonal.clamp_min(1e-8 * diagonal.amax(-1, keepdim=True).clamp_min(1e-200)).sqrt()
    damped = K / (size[..., None] * size[..., None, :])
    damped.diagonal(dim1=-2, dim2=-1).add_(damping[:, None])
    L, failed = torch.linalg.cholesky_ex(damped)
    step = torch.cholesky_solve((g / size)[..., None], L)[..., 0] / size
    # A matrix that rounding made indefinite asks for more damping: a step of zero does not improve and brings it.
    step = torch.where((failed == 0)[:, None] & torch.isfinite(step).all(-1, keepdim=True), step, 0.0)
    return step, 0.5 * ((step * g).sum(-1) + (damping[:, None] * (step * size).square()).sum(-1))


@dataclass(frozen=True)
class Wandering:
    """How Adam goes: passes over the rows, its first rate, the rows of a step, and the seed of their order."""

    passes: int
    rate: float
    batch_rows: int
    seed: int


def wander(
    model: Likelihood,
    theta: Tensor,
    held_out: Tensor | None,
    how: Wandering,
    *,
    until: Tensor | None = None,
    end: float = math.inf,
) -> LikelihoodFit:
    """Adam over small batches of rows in single precision, its rate falling to nothing over the passes."""
    n, generator = len(model.rows.x), torch.Generator().manual_seed(how.seed)
    single = replace(
        model,
        rows=ClassRows(model.rows.x.float(), model.rows.target.float()),
        weight=model.weight.float() * n,
        ridge=model.ridge.float(),
        relevance=model.relevance.float(),
    )
    current = theta.float().clone().requires_grad_()
    # Adam is written out: torch's imports a compiler that takes longer than many a fit.
    mean, square = torch.zeros_like(current), torch.zeros_like(current)
    total, step = how.passes * math.ceil(n / how.batch_rows), 0
    nothing = torch.zeros_like(model.ridge)
    best = LikelihoodFit(current.detach().clone(), nothing + math.inf, nothing + math.inf, nothing.clone())
    for count in range(how.passes + 1):
        stop_if_asked()
        with torch.no_grad():
            deviance = single.deviance(current).to(theta.dtype)
            inside = (model.weight * deviance).sum(-1)
            outside = judged(held_out, deviance, inside + model.cost(current))
        gained = outside < best.held_out
        best.theta[gained], best.held_out[gained] = current.detach()[gained], outside[gained]
        best.training[gained], best.steps[gained] = inside[gained], float(count)
        reached = until is not None and bool((inside <= until).all())
        idle = bool((count - best.steps > how.passes / 4).all())
        if count == how.passes or reached or idle or (count and monotonic() > end):
            break
        for index in torch.randperm(n, generator=generator).to(theta.device).split(how.batch_rows):
            part = replace(
                single,
                rows=ClassRows(single.rows.x[index], single.rows.target[index]),
                weight=single.weight[:, index] / len(index),
            )
            (slope,) = torch.autograd.grad(part.loss(current)[0].sum(), current)
            rate = how.rate * (0.5 + 0.5 * math.cos(math.pi * step / total))
            step += 1
            with torch.no_grad():
                mean.lerp_(slope, 1 - _MEMORY[0])
                square.lerp_(slope.square(), 1 - _MEMORY[1])
                size = (square / (1 - _MEMORY[1] ** step)).sqrt_().add_(_TINY)
                current.addcdiv_(mean, size, value=-rate / (1 - _MEMORY[0] ** step))
    return replace(best, theta=best.theta.to(theta.dtype))
