"""Levenberg-Marquardt on a batch: every member has its own damping, number of steps and end.

`descend` only sees losses: it accepts the steps that lower them and updates the dampings. A `Batch` holds the
parameters and computes the steps. `MemberSearch`, the rule of one member, is also that of `optim.LevenbergMarquardt`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from gatelab.arrays import AnyArray as Array
from gatelab.interrupts import stop_if_asked
from gatelab.linalg.least_squares import Projection
from gatelab.solve.solution import Status

# A member ends after this many steps in a row that gain less than the tolerance.
_IDLE = 3
# A fixed factor raises a damping at least to this.
_LEAST_RAISED = 1e-8


@dataclass(frozen=True)
class Damping:
    """The first damping, its bounds, and its updates.

    An accepted step divides by `down`, a rejected one multiplies by `up`, and by twice that if the loss is not finite.
    Without them the factors are H. Nielsen's (1999): by the ratio of the gain to the predicted one, and 2, 4, 8, ...
    """

    first: float = 1e-2
    least: float = 1e-12
    most: float = 1e8
    down: float | None = None
    up: float | None = None


class Batch(Protocol):
    """Least-squares problems with their current parameters."""

    def losses(self) -> Array:
        """The loss of every member (B,), or a root of it."""
        ...

    def linearize(self, members: Array) -> None:
        """Prepare the steps of these members, whose parameters have changed."""

    def trial(self, members: Array, damping: Array) -> tuple[Array, Array | None]:
        """The losses after a step, infinite where the step fails, and the predicted decrease, if it is known."""
        ...

    def accept(self, members: Array, rows: Array) -> None:
        """Accept the last trial for `members`, which are its `rows`."""


@dataclass(frozen=True)
class Descent:
    """The result for a batch: the status of each member, its last loss, and its losses after each step."""

    status: tuple[Status, ...]
    loss: Array
    losses: tuple[tuple[float, ...], ...]


def descend(
    batch: Batch,
    steps: Sequence[int],
    *,
    tolerance: float,
    floor: Array | float = 0.0,
    damping: Damping = Damping(),
    together: bool = False,
    stopped: Callable[[], Collection[int]] = tuple,
) -> Descent:
    """At most steps[b] steps for member b, in place.

    A member ends after three steps in a row that gain less than the share `tolerance`, at a loss of `floor`, or if
    `stopped()` has it; with `together`, members that have ended continue as long as others do.
    """
    floors = np.broadcast_to(floor, len(steps)).tolist()
    losses = batch.losses().tolist()
    members = [MemberSearch(damping, tolerance, *pair) for pair in zip(losses, floors, strict=True)]
    for count in range(max(steps, default=0)):
        stop_if_asked()
        others = stopped()
        left = [b for b, most in enumerate(steps) if most > count]
        active = [b for b in left if not members[b].ended and b not in others]
        if not active:
            break
        if together:
            active = left
        index = np.array(active)
        moved = [members[b].moved for b in active]
        if any(moved):
            batch.linearize(index[moved])
        after, promised = batch.trial(index, np.array([members[b].damping for b in active]))
        promises = [math.inf] * len(active) if promised is None else promised.tolist()
        trials = zip(active, after.tolist(), promises, strict=True)
        taken = [members[b].takes(loss, promise) for b, loss, promise in trials]
        if any(taken):
            batch.accept(index[taken], np.flatnonzero(taken))
    status, loss = tuple(member.status for member in members), np.array([member.loss for member in members])
    return Descent(status, loss, tuple(tuple(member.losses) for member in members))


class MemberSearch:
    """The state of the search of one member: its loss, its damping, and whether it has ended."""

    def __init__(self, rule: Damping, tolerance: float, loss: float, floor: float) -> None:
        self.rule, self.tolerance, self.floor = rule, tolerance, floor
        self.loss, self.damping, self.growth = loss, rule.first, 2.0
        self.idle, self.promised, self.moved = 0, math.inf, True
        self.losses: list[float] = []

    @property
    def ended(self) -> bool:
        stuck = self.damping > self.rule.most
        return self.idle >= _IDLE or stuck or self.loss <= self.floor or not math.isfinite(self.loss)

    @property
    def status(self) -> Status:
        if self.loss <= self.floor:
            return Status.FLOOR
        # No step improves: converged if hardly any decrease was predicted, stalled otherwise.
        at_rest = self.damping > self.rule.most and self.promised <= self.tolerance * self.loss
        if self.idle >= _IDLE or at_rest:
            return Status.CONVERGED
        if self.ended:
            return Status.STALLED
        return Status.BUDGET

    def takes(self, after: float, promised: float) -> bool:
        """Whether a trial is accepted, which it is if the loss falls; updates the damping in either case."""
        before, self.promised = self.loss, promised
        self.moved = after < before  # false for NaN
        if self.moved and self.rule.down:
            self.damping = max(self.damping / self.rule.down, self.rule.least)
        elif self.moved:
            ratio = 2 * ((before - after) / promised) - 1 if promised else math.inf
            change = min(max(1 - ratio * ratio * ratio, 1 / 3), 2.0)
            self.damping, self.growth = max(self.damping * change, self.rule.least), 2.0
        elif self.rule.up:
            factor = self.rule.up if math.isfinite(after) else 2 * self.rule.up
            self.damping = max(self.damping * factor, _LEAST_RAISED)
        else:
            self.damping, self.growth = max(self.damping * self.growth, self.rule.least), 2 * self.growth
        if self.moved:
            self.idle = self.idle + 1 if after > (1 - self.tolerance) * before else 0
            self.loss = after
        self.losses.append(self.loss)
        return self.moved


class ProjectedBatch:
    """A model with its nonlinear parameters, the optimal linear ones, and the normal equations."""

    def __init__(self, model: Any, theta: Tensor) -> None:
        self.model, self.theta, p = model, theta.clone(), theta[0].numel()
        self.projection = model.project(self.theta)
        self.normal = theta.new_zeros(len(theta), p, p), theta.new_zeros(len(theta), p)
        self.there: tuple[Tensor, Projection] = self.theta, self.projection

    def losses(self) -> Array:
        return self.projection.loss.cpu().numpy().copy()

    def linearize(self, members: Array) -> None:
        i = self._index(members)
        (K, g), model = self.normal, self.model.take(i)
        K[i], g[i] = model.normal(self.theta[i], self.projection.take(i))

    def trial(self, members: Array, damping: Array) -> tuple[Array, Array]:
        i = self._index(members)
        model, (K, g) = self.model.take(i), self.normal
        step, promised = damped_step(K[i], g[i], torch.from_numpy(damping).to(self.theta))
        theta = model.moved(self.theta[i], step)
        self.there = theta, model.project(theta)
        return self.there[1].loss.cpu().numpy(), promised.cpu().numpy()

    def accept(self, members: Array, rows: Array) -> None:
        i, k = self._index(members), self._index(rows)
        self.theta[i] = self.there[0][k]
        self.projection.put(i, self.there[1].take(k))

    def _index(self, members: Array) -> Tensor:
        return torch.from_numpy(members).to(self.theta.device)


def damped_step(K: Tensor, g: Tensor, damping: Tensor, least: float = 1e-12) -> tuple[Tensor, Tensor]:
    """The step (B, p) for normal matrices and downhill gradients with Marquardt's scaling, and the predicted decrease.

    The decrease is that of a sum of squares; `least` bounds the squared scales, relative to the largest.
    """
    diagonal = K.diagonal(dim1=-2, dim2=-1)
    size = diagonal.clamp_min(
        least * diagonal.amax(-1, keepdim=True).clamp_min(torch.finfo(K.dtype).tiny * 1e20)
    ).sqrt()
    damped = K / (size[..., None] * size[..., None, :])
    damped.diagonal(dim1=-2, dim2=-1).add_(damping[:, None])
    L, failed = torch.linalg.cholesky_ex(damped)
    step = torch.cholesky_solve((g / size)[..., None], L)[..., 0] / size
    # If rounding made a matrix indefinite, a step of zero is rejected and raises the damping.
    step = torch.where((failed == 0)[:, None] & torch.isfinite(step).all(-1, keepdim=True), step, 0.0)
    return step, (step * g).sum(-1) + (damping[:, None] * (step * size).square()).sum(-1)
