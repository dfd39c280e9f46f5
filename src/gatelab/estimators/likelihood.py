"""The log-likelihood of classes under networks with a linear part, many networks in one batch.

    logits(x) = A (x, 1) + D [ act(Gx + g) * (Ux + u) * ... ],        p(x) = softmax(logits)

Two classes have one logit, that of the second against the first. The loss of a member of the batch is the weighted mean
of -log p at the rows, whose weights sum to one, and half its ridge times the sum of squares of all parameters but the
constants of A. A strong ridge thus takes neurons away one after the other, and what is left is logistic regression.

`gauss_newton` is for small data: the Fisher information of a row's logits is diag(p) - p p^T, with the root
diag(sqrt p) - p sqrt(p)^T, by which the Gauss-Newton matrix is a product of one tall matrix with itself. `adam` goes in
single precision over small batches of rows, where such matrices are too large. Rows that a member does not train on are
its `held_out` rows: each keeps the parameters that were best there, and ends where they have been no better for some
time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from time import monotonic

import torch
from torch import Tensor
from torch.optim.adam import adam as adam_step

from gatelab.feedforward import Unit
from gatelab.interrupts import stop_if_asked

# Damping of the first step, beside the scaled diagonal, and where a member has come to rest.
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-1, 1e-8, 1e6
# A step that gains less than this share of the loss is idle, and so many of them in a row are the end; steps without a
# better loss on rows held out, after which a member ends.
_TOLERANCE, _IDLE, _PATIENCE = 1e-4, 3, 6
# Bytes of the tall matrix above which members of the batch are taken one after the other.
_TALL_BYTES = 2**27


@dataclass(frozen=True, eq=False)
class Likelihood:
    """A batch of networks of one unit and width on the same rows.

    Attributes:
        unit: the unit.
        width: neurons, zero or more.
        x: the inputs (N, d + 1), the last column ones.
        target: zeros and a one for the class of each row (N, classes).
        weight: of the rows for each member (B, N), zero where a row is not trained on; each sums to one.
        ridge: of each member (B,).
        relevance: what each input is multiplied by for each member (B, d + 1), the last one: a ridge then costs inputs
            of little relevance more.
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
        """Networks without a ridge and with inputs as they are, one for each row of weights: without them, one."""
        if weight is None:
            weight = x.new_full((1, len(x)), 1 / len(x))
        ones = x.new_ones(len(weight), x.shape[1])
        return cls(unit, width, x, x.new_zeros(len(x), classes), weight, torch.zeros_like(weight[:, 0]), ones)

    @property
    def outputs(self) -> int:
        """How many logits a network gives: one for two classes."""
        classes = self.target.shape[1]
        return 1 if classes == 2 else classes

    @property
    def maps(self) -> int:
        return self.unit.factors + 1

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many parameters the maps, the last map D and the linear part A have."""
        d, c = self.x.shape[1], self.outputs
        return self.maps * self.width * d, c * self.width, c * d

    @property
    def together(self) -> int:
        """How many members can have their tall matrices in memory at a time."""
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
        """The same networks with their relevance in the parameters."""
        maps, D, A = self.parts(theta)
        maps, A = maps * self.relevance[:, None, None], A * self.relevance[:, None]
        return torch.cat([maps.flatten(1), D.flatten(1), A.flatten(1)], 1)

    def sensitivity(self, theta: Tensor) -> Tensor:
        """How much the logits move with each input (B, d): the root of the mean square of their derivative by it."""
        maps, D, A = self.parts(self.plain(theta))
        total = torch.zeros_like(self.relevance)
        most = max(1, _TALL_BYTES // (8 * len(theta) * self.maps * max(1, self.width)))
        for x, weight in zip(self.x.split(most), self.weight.split(most, 1), strict=True):
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
        values, slopes = neurons(self.unit, z)
        p = log_softmax(linear + values @ D.mT).exp()
        root_weight = self.weight.sqrt()
        root, residual = fisher_root(p) * root_weight[..., None, None], (self.target - p)[..., -c:]
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
        gradient = [*((back * b).mT @ x for b in slopes), weighted.mT @ values, weighted.mT @ x]
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
    """Where each member of a batch was best on the rows held out: its parameters (B, p), the mean of -log p there (B,)

    or the loss itself where none were held out, that at the training rows (B,), and how many steps or passes led there.
    """

    theta: Tensor
    held_out: Tensor
    training: Tensor
    steps: Tensor

    def keep(self, members: Tensor, theta: Tensor, held_out: Tensor, training: Tensor, count: int) -> None:
        """Put what some members have reached."""
        self.theta[members], self.held_out[members] = theta, held_out
        self.training[members], self.steps[members] = training, float(count)


def gauss_newton(
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
        for piece in stale.split(model.together) if len(stale) else ():
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
        best.keep(active[gained], trial[gained], outside[gained], inside[gained], count)
        done = (damping[active] > _MOST_DAMPING) | (idle[active] >= _IDLE) | (worse[active] >= _PATIENCE)
        if until is not None:
            done |= better & (inside <= until[active])
        running[active[done]] = False
    return best


def judged(held_out: Tensor | None, deviance: Tensor, loss: Tensor) -> Tensor:
    """By what the best parameters of each member are known (B,)."""
    return loss if held_out is None else (held_out * deviance).sum(-1)


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
    """Adam over small batches of rows in single precision, its rate falling to nothing over the passes."""
    n, generator = len(model.x), torch.Generator().manual_seed(seed)
    names = ("x", "target", "weight", "ridge", "relevance")
    single = replace(model, **{name: getattr(model, name).float() for name in names})
    current = theta.float().clone().requires_grad_()
    total = passes * math.ceil(n / batch_rows)
    # As a function: the class imports a compiler, which takes longer than many a fit.
    step, mean, square = torch.zeros(()), torch.zeros_like(current), torch.zeros_like(current)
    how = {"amsgrad": False, "weight_decay": 0.0, "eps": 1e-8, "maximize": False}
    nothing = torch.zeros_like(model.ridge)
    best = LikelihoodFit(current.detach().clone(), nothing + math.inf, nothing + math.inf, nothing.clone())
    for count in range(passes + 1):
        stop_if_asked()
        with torch.no_grad():
            deviance = single.deviance(current).to(theta.dtype)
            inside = (model.weight * deviance).sum(-1)
            outside = judged(held_out, deviance, inside + model.cost(current))
        gained = outside < best.held_out
        best.keep(gained, current.detach()[gained], outside[gained], inside[gained], count)
        reached = until is not None and bool((inside <= until).all())
        idle = bool((count - best.steps > passes / 4).all())
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
