"""Levenberg-Marquardt on a batch: every member has its own damping, its own steps, its own end.

The search, `descend`, sees losses alone: it takes the steps that lower them, lets the damping follow, and ends each
member by itself. Where the members are, and the step that a damping gives there, is the affair of a `Batch`: the knots
of a spline (`free_knots`, a banded system), networks in all their parameters (`polish`), and networks after what is
linear has been eliminated (`ProjectedBatch`). Whatever has a gradient and a normal matrix takes `damped_step`.
"""

from __future__ import annotations

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

    def after(self, damping: Array, growth: Array, gain: Array, after: Array, better: Array) -> Array:
        """The damping of the next step."""
        if self.factors is None:
            ratio = 2 * gain - 1
            relaxed = damping * np.clip(1 - ratio * ratio * ratio, 1 / 3, 2.0)
            return np.maximum(np.where(better, relaxed, damping * growth), self.least)
        down, up = self.factors
        raised = np.maximum(damping * np.where(np.isfinite(after), up, 2 * up), _LEAST_RAISED)
        return np.where(better, np.maximum(damping / down, self.least), raised)


class Batch(Protocol):
    """Least-squares problems, and where each of them is."""

    def losses(self) -> Array:
        """The loss of every member (B,), or a root of it."""
        ...

    def linearize(self, members: Array) -> None:
        """Prepare the steps of these members, which have moved since."""
        ...

    def trial(self, members: Array, damping: Array) -> tuple[Array, Array | float]:
        """The losses after a step, infinite where there is none, and the decrease promised, infinite if unknown."""
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
    ...         return self.there**2, self.x**2
    ...     def accept(self, members, rows):
    ...         self.x = self.there
    >>> descend(Line(), [9], tolerance=1e-6, floor=1e-9).status
    (<Status.FLOOR: 'floor'>,)
    """
    loss, budget = batch.losses(), np.asarray(steps)
    value, growth = np.full(len(loss), damping.first), np.full(len(loss), 2.0)
    idle, promised, outdated = np.zeros(len(loss), int), np.full(len(loss), np.inf), np.ones(len(loss), bool)
    losses: list[list[float]] = [[] for _ in loss]

    def ended() -> Array:
        return (idle >= _IDLE) | (value > damping.most) | (loss <= floor) | ~np.isfinite(loss)

    for count in range(max(steps, default=0)):
        stop_if_asked()
        running = (budget > count) & ~ended()
        if not running.any():
            break
        active = np.flatnonzero(budget > count if together else running)
        if len(moved := active[outdated[active]]):
            batch.linearize(moved)
            outdated[moved] = False
        after, promised[active] = batch.trial(active, value[active])
        before = loss[active]
        better = after < before  # false for NaN, which a wild step may give
        with np.errstate(all="ignore"):
            gain = np.where(better, (before - after) / promised[active], 0.0)
            value[active] = damping.after(value[active], growth[active], gain, after, better)
        growth[active] = np.where(better, 2.0, 2 * growth[active])
        small = after > (1 - tolerance) * before
        idle[active] = np.where(better, np.where(small, idle[active] + 1, 0), idle[active])
        rows = np.flatnonzero(better)
        if len(rows):
            batch.accept(active[rows], rows)
            loss[active[rows]] = after[rows]
            outdated[active[rows]] = True
        for member in active:
            losses[member].append(float(loss[member]))
    # No step improves: at rest if next to nothing was promised, stalled if more was.
    at_rest = (idle >= _IDLE) | ((value > damping.most) & (promised <= tolerance * loss))
    choices = [loss <= floor, at_rest, ended()]
    status = np.select(choices, [Status.FLOOR, Status.CONVERGED, Status.STALLED], Status.BUDGET)
    return Descent(tuple(map(Status, status)), loss, tuple(map(tuple, losses)))


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
