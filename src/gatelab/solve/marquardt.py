"""Levenberg-Marquardt on a batch: every member has its own damping, its own steps, its own end.

A model gives `project(theta)`, the solution of what is linear, and `normal(theta, projection)`, the normal matrix and
the gradient of the projected loss. Members that have ended take no further part, and the Jacobian is computed only
where a step was taken: a batch costs what its members would, without the overhead of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gatelab.linalg.interruptible import stop_if_asked
from gatelab.linalg.least_squares import Projection
from gatelab.solve.solution import Status

_FIRST_DAMPING = 1e-2
_LEAST_DAMPING, _MOST_DAMPING = 1e-12, 1e8
# So many steps in a row that gain less than the tolerance end a member.
_IDLE = 3
# A residual this small beside the target is rounding.
_FLOOR = 1e-13


class Model(Protocol):
    """A batch of least-squares problems in theta after what is linear has been eliminated."""

    def take(self, index: Tensor) -> Model: ...
    def project(self, theta: Tensor) -> Projection: ...
    def normal(self, theta: Tensor, found: Projection) -> tuple[Tensor, Tensor]: ...
    def moved(self, theta: Tensor, step: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Descent:
    """Where a batch ended: parameters, projections, a status and the losses after each step for every member."""

    theta: Tensor
    found: Projection
    status: tuple[Status, ...]
    losses: tuple[tuple[float, ...], ...]


def descend(model: Model, theta: Tensor, steps: Sequence[int], *, tolerance: float, floor: Tensor) -> Descent:
    """At most steps[b] steps for member b; a loss at `floor` (B,) times 1e-26 is rounding and ends it too."""
    batch, device = len(theta), theta.device
    theta = theta.clone()
    found = model.project(theta)
    budget = torch.tensor(list(steps), device=device)
    damping = torch.full((batch,), _FIRST_DAMPING, dtype=theta.dtype, device=device)
    growth = torch.full_like(damping, 2.0)
    idle = torch.zeros(batch, dtype=torch.long, device=device)
    ended = torch.full((batch,), _RUNNING, dtype=torch.long, device=device)
    ended[~torch.isfinite(found.loss)] = _STALLED
    ended[found.loss <= _FLOOR**2 * floor] = _AT_FLOOR
    taken: list[tuple[Tensor, Tensor]] = []
    p = theta[0].numel()
    K = torch.zeros(batch, p, p, dtype=theta.dtype, device=device)
    g = torch.zeros(batch, p, dtype=theta.dtype, device=device)
    fresh = torch.ones(batch, dtype=torch.bool, device=device)
    for count in range(max(steps, default=0)):
        stop_if_asked()
        on = ((ended == _RUNNING) & (budget > count)).nonzero()[:, 0]
        if not len(on):
            break
        new = on[fresh[on]]
        if len(new):
            K[new], g[new] = model.take(new).normal(theta[new], found.take(new))
            fresh[new] = False
        step, promised = _step(K[on], g[on], damping[on])
        trial = model.take(on).moved(theta[on], step)
        there = model.take(on).project(trial)
        before, after = found.loss[on], there.loss
        better = after < before  # false for NaN, which a wild step may give
        gain = torch.where(better, (before - after) / promised, 0.0)
        damping[on] = torch.where(
            better,
            damping[on] * (1 - (2 * gain - 1) ** 3).clamp(1 / 3, 2.0),
            damping[on] * growth[on],
        ).clamp_min(_LEAST_DAMPING)
        growth[on] = torch.where(better, 2.0, growth[on] * 2)
        small = better & (before - after <= tolerance * before)
        idle[on] = torch.where(better, torch.where(small, idle[on] + 1, 0), idle[on])
        won = better.nonzero()[:, 0]
        if len(won):
            theta[on[won]] = trial[won]
            found.put(on[won], there.take(won))
            fresh[on[won]] = True
        taken.append((on, found.loss[on].clone()))
        stuck = damping[on] > _MOST_DAMPING
        # No step improves: at rest if the model promised next to nothing, stalled if it promised more.
        at_rest = stuck & (promised <= tolerance * found.loss[on])
        state = ended[on]
        state[stuck] = _STALLED
        state[at_rest | (idle[on] >= _IDLE)] = _CONVERGED
        state[found.loss[on] <= _FLOOR**2 * floor[on]] = _AT_FLOOR
        ended[on] = state
    return Descent(theta, found, tuple(_STATUS[s] for s in ended.tolist()), _histories(batch, taken))


_RUNNING, _CONVERGED, _STALLED, _AT_FLOOR = range(4)
_STATUS = (Status.BUDGET, Status.CONVERGED, Status.STALLED, Status.FLOOR)


def _step(K: Tensor, g: Tensor, damping: Tensor) -> tuple[Tensor, Tensor]:
    """The damped step with Marquardt's scaling, and the decrease of the loss that it promises."""
    diagonal = K.diagonal(dim1=-2, dim2=-1)
    least = 1e-12 * diagonal.amax(-1, keepdim=True).clamp_min(torch.finfo(K.dtype).tiny * 1e20)
    size = diagonal.clamp_min(least).sqrt()
    damped = K / (size[..., None] * size[..., None, :])
    damped.diagonal(dim1=-2, dim2=-1).add_(damping[:, None])
    L, failed = torch.linalg.cholesky_ex(damped)
    step = torch.cholesky_solve((g / size)[..., None], L)[..., 0] / size
    # A matrix that rounding made indefinite asks for more damping: a step of zero does not improve and brings it.
    step = torch.where((failed == 0)[:, None] & torch.isfinite(step).all(-1, keepdim=True), step, 0.0)
    promised = (step * g).sum(-1) + (damping[:, None] * (step * size).square()).sum(-1)
    return step, promised


def _histories(batch: int, taken: list[tuple[Tensor, Tensor]]) -> tuple[tuple[float, ...], ...]:
    histories: list[list[float]] = [[] for _ in range(batch)]
    for on, losses in taken:
        for member, loss in zip(on.tolist(), losses.tolist(), strict=True):
            histories[member].append(loss)
    return tuple(tuple(h) for h in histories)
