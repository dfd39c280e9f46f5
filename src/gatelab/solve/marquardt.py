"""Levenberg-Marquardt on a batch: every member has its own damping, its own steps, its own end.

The search, `descend`, sees losses alone: it takes the steps that lower them, lets the damping follow, and ends each
member by itself. Where the members are, and the step that a damping gives there, is the affair of a `Batch`: the knots
of a spline (`free_knots`, a banded system), networks in all their parameters (`polish`), and networks after what is
linear has been eliminated (`ProjectedBatch`). Whatever has a gradient and a normal matrix takes `damped_step`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from gatelab.arrays import AnyArray as Array
from gatelab.interrupts import stop_if_asked
from gatelab.linalg.least_squares import Projection
from gatelab.solve.solution import Status

# So many steps in a row that gain less than the tolerance end a member.
_IDLE = 3
# Fixed factors raise a damping to this at least.
_LEAST_RAISED = 1e-8


@dataclass(frozen=True)
class Damping:
    """Where the damping begins, its bounds, and how it follows the steps.

    Without `factors` a step divides it by up to 3 or doubles it, by its gain over what was promised, and steps in a row
    that fail multiply it by 2, 4, 8, ... (H. Nielsen, 1999). With them a step divides it by the first, a failure
    multiplies it by the second, and one that leads nowhere by twice that.
    """

    first: float = 1e-2
    least: float = 1e-12
    most: float = 1e8
    factors: tuple[float, float] | None = None


class Batch(Protocol):
    """Least-squares problems, and where each of them is."""

    def losses(self) -> Array:
        """The loss of every member (B,), or a root of it."""
        ...

    def linearize(self, members: Array) -> None:
        """Prepare the steps of these members, which have moved since."""
        ...

    def trial(self, members: Array, damping: Array) -> tuple[Array, Array | None]:
        """The losses after a step, infinite where there is none, and the decrease that was promised, if it is known."""
        ...

    def accept(self, members: Array, rows: Array) -> None:
        """Take the last trial for `members`, which are at `rows` of it."""
        ...


@dataclass(frozen=True)
class Descent:
    """How a batch ended: the status of each member, and its losses, the last and those after each step."""

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
) -> Descent:
    """At most steps[b] steps for member b.

    Args:
        batch: what moves, in place.
        steps: the most steps of each member.
        tolerance: three steps in a row that gain less than this share of the loss end a member.
        floor: losses that are rounding, which end it too.
        damping: how the damping begins and follows.
        together: whether members that have ended go on so long as others do.

    >>> class Line:
    ...     x = np.array([1.0])
    ...     losses = lambda self: self.x**2
    ...     linearize = lambda self, members: None
    ...     def trial(self, members, damping):
    ...         self.there = self.x - self.x / (1 + damping)
    ...         return self.there**2, None
    ...     def accept(self, members, rows):
    ...         self.x = self.there
    >>> descend(Line(), [9], tolerance=1e-6, floor=1e-9).status
    (<Status.FLOOR: 'floor'>,)
    """
    floors = np.broadcast_to(floor, len(steps)).tolist()
    losses = batch.losses().tolist()
    members = [_Member(damping, tolerance, *pair) for pair in zip(losses, floors, strict=True)]
    for count in range(max(steps, default=0)):
        stop_if_asked()
        left = [b for b, most in enumerate(steps) if most > count]
        active = [b for b in left if not members[b].ended]
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


class _Member:
    """The search of one member: its loss, its damping, and what it has seen."""

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
        # No step improves: at rest if next to nothing was promised, stalled if more was.
        at_rest = self.damping > self.rule.most and self.promised <= self.tolerance * self.loss
        if self.idle >= _IDLE or at_rest:
            return Status.CONVERGED
        return Status.STALLED if self.ended else Status.BUDGET

    def takes(self, after: float, promised: float) -> bool:
        """Whether a trial is taken, which it is if the loss falls; the damping follows either way."""
        before, self.promised = self.loss, promised
        self.moved = after < before  # false for NaN, which a wild step may give
        if self.rule.factors is not None:
            down, up = self.rule.factors
            raised = max(self.damping * (up if math.isfinite(after) else 2 * up), _LEAST_RAISED)
            self.damping = max(self.damping / down, self.rule.least) if self.moved else raised
        elif self.moved:
            ratio = 2 * ((before - after) / promised) - 1 if promised else math.inf
            change = min(max(1 - ratio * ratio * ratio, 1 / 3), 2.0)
            self.damping, self.growth = max(self.damping * change, self.rule.least), 2.0
        else:
            self.damping, self.growth = max(self.damping * self.growth, self.rule.least), 2 * self.growth
        if self.moved:
            self.idle = self.idle + 1 if after > (1 - self.tolerance) * before else 0
            self.loss = after
        self.losses.append(self.loss)
        return self.moved


class ProjectedBatch:
    """A model with its parameters, what is linear at its best for them, and the normal equations there.

    A model gives `take(members)`, itself for some members; `project(theta)`, what is linear at its best; and after
    that `normal(theta, projection)`, the normal matrices (B, p, p) and the downhill gradients (B, p) of half the
    projected loss; and `moved(theta, step)`.
    """

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
    """The step (B, p) for normal matrices and downhill gradients with Marquardt's scaling, and the decrease promised.

    The decrease is that of twice the function of which K and g are: a sum of squares. `least` bounds the scales from
    below, relative to the largest.
    """
    diagonal = K.diagonal(dim1=-2, dim2=-1)
    size = diagonal.clamp_min(
        least * diagonal.amax(-1, keepdim=True).clamp_min(torch.finfo(K.dtype).tiny * 1e20)
    ).sqrt()
    damped = K / (size[..., None] * size[..., None, :])
    damped.diagonal(dim1=-2, dim2=-1).add_(damping[:, None])
    L, failed = torch.linalg.cholesky_ex(damped)
    step = torch.cholesky_solve((g / size)[..., None], L)[..., 0] / size
    # A matrix that rounding made indefinite asks for more damping: a step of zero does not improve and brings it.
    step = torch.where((failed == 0)[:, None] & torch.isfinite(step).all(-1, keepdim=True), step, 0.0)
    return step, (step * g).sum(-1) + (damping[:, None] * (step * size).square()).sum(-1)
