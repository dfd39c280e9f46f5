"""Levenberg-Marquardt on a batch: every member has its own damping, its own steps, its own end.

A model gives `project(theta)`, the solution of what is linear, and `normal(theta, projection)`, the normal matrix and
the gradient of the projected loss. Members that have ended take no further part, and the Jacobian is computed only
where a step was taken: a batch costs what its members would, without the overhead of each.

Beside it is what a batch needs around it: data of unit variance with the way back for the networks (`Standard`), and
how a batch is cut into parts, by threads and widths on a CPU, by memory everywhere (`parts`, `on_threads`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from gatelab.feedforward import Network, factor_names
from gatelab.interrupts import on_threads as shared_out
from gatelab.interrupts import stop_if_asked
from gatelab.linalg.least_squares import Projection
from gatelab.solve.solution import Status


@dataclass(frozen=True)
class Standard:
    """The data with inputs and targets of mean zero and unit variance, on the device, and the way back."""

    x: Tensor
    y: Tensor
    root_weight: Tensor | None
    x_mean: Tensor
    x_scale: Tensor
    y_mean: Tensor
    y_scale: float

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, weights: np.ndarray | None, device: torch.device) -> Standard:
        """The data x (N, d_in) and y (N, d_out), rows weighted by weights (members or 1, N) if there are any."""
        inputs, targets = (torch.tensor(np.asarray(a, dtype=np.float64)) for a in (x, y))
        x_mean, x_scale = inputs.mean(0), _spread(inputs)
        y_mean, y_scale = targets.mean(0), float(_spread(targets).max())
        ones = torch.ones(len(inputs), 1, dtype=torch.float64)
        root = None
        if weights is not None:
            w = torch.tensor(weights, dtype=torch.float64)
            root = (w / w.mean(-1, keepdim=True)).sqrt().to(device)
        scaled = torch.cat([(inputs - x_mean) / x_scale, ones], 1)
        return cls(
            x=scaled.to(device),
            y=((targets - y_mean) / y_scale).to(device),
            root_weight=root,
            x_mean=x_mean,
            x_scale=x_scale,
            y_mean=y_mean,
            y_scale=y_scale,
        )

    @torch.no_grad()
    def maps_of(self, net: Network) -> Tensor:
        """The affine maps (1, maps, n, d_in + 1) of a network as functions of the scaled data, on their device."""
        maps = []
        for name in ("G", *factor_names(net.unit.factors)):
            weight, bias = getattr(net, name), getattr(net, name.lower())
            maps.append(torch.cat([weight * self.x_scale, (bias + weight @ self.x_mean)[:, None]], 1))
        return torch.stack(maps)[None].to(self.x.device)

    @torch.no_grad()
    def undo(self, net: Network) -> Network:
        """The same network as a function of the data as they were given."""
        for name in ("G", *factor_names(net.unit.factors)):
            weight, bias = getattr(net, name), getattr(net, name.lower())
            weight /= self.x_scale
            bias -= weight @ self.x_mean
        net.D.mul_(self.y_scale)
        net.d.mul_(self.y_scale).add_(self.y_mean)
        return net


def _spread(a: Tensor) -> Tensor:
    """The standard deviation of each column, one where a column is constant."""
    largest = a.abs().amax(0).clamp_min(torch.finfo(a.dtype).tiny)
    deviation = (a / largest).std(0, correction=0) * largest
    return torch.where(deviation > 1e-14 * largest, deviation, 1.0)


# The most that a part of a batch may take.
_CPU_BYTES, _CUDA_BYTES = 1 << 30, 48 << 30
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


def parts(widths: Sequence[int], bytes_per_neuron: int, device: torch.device) -> list[list[int]]:
    """The indices of `widths` in parts, the widest first.

    A part is padded to its first width. A GPU has more to gain from one large part than to lose by padding. A CPU has
    not, and there a part of one width is, bit by bit, the loop of its members.

    >>> parts([8, 2, 8, 2], 1000, torch.device("cuda"))
    [[0, 2, 1, 3]]
    """
    cpu = device.type == "cpu"
    threads, most = 1, _CUDA_BYTES
    if cpu:
        threads, most = torch.get_num_threads(), _CPU_BYTES
    share = sum(w**2 for w in widths) / threads
    out: list[list[int]] = []
    first, spent = 0, 0.0
    for i in sorted(range(len(widths)), key=lambda i: -widths[i]):
        room = most // (bytes_per_neuron * max(first, 1))
        full = not out or len(out[-1]) >= max(room, 1) or spent + widths[i] ** 2 / 2 > share
        if full or (cpu and widths[i] < first):
            out.append([])
            first, spent = widths[i], 0.0
        out[-1].append(i)
        spent += widths[i] ** 2
    return out


def on_threads(work: Callable[[_Part], _Result], pieces: Sequence[_Part], device: torch.device) -> Iterator[_Result]:
    """The results in order, the pieces on a CPU shared out among as many threads as torch has.

    Each computes with one thread of torch, even if there is but one: that keeps all cores busy, where sharing out every
    small product of matrices would keep them waiting for each other. And the main thread is free to hear Ctrl-C.
    """
    if device.type != "cpu":
        return map(work, pieces)
    return shared_out(work, pieces, min(torch.get_num_threads(), len(pieces)))


class _OneBlasThread:
    """A context in which numpy's and scipy's products of matrices use one thread each.

    Products of many small matrices, shared out among cores, keep the cores waiting for each other: a network of ten
    neurons took five times as long on two as on one. The setting belongs to the process, so that the first to enter
    makes it and the last to leave takes it back.
    """

    def __init__(self) -> None:
        self._lock, self._users = Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._limit = _blas_libraries().limit(limits=1, user_api="blas")
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._limit.restore_original_limits()


one_blas_thread = _OneBlasThread()


@cache
def _blas_libraries() -> ThreadpoolController:
    return ThreadpoolController()


_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-2, 1e-12, 1e8
# So many steps in a row that gain less than the tolerance end a member.
_IDLE = 3
# A residual this small beside the target is rounding.
_FLOOR = 1e-13
# The state of a member, and the status that it ends with.
_RUNNING, _CONVERGED, _STALLED, _AT_FLOOR = range(4)
_STATUS = (Status.BUDGET, Status.CONVERGED, Status.STALLED, Status.FLOOR)


class SeparableModel(Protocol):
    """A batch of least-squares problems in theta after what is linear has been eliminated."""

    def take(self, index: Tensor) -> SeparableModel:
        """These members of the batch."""
        ...

    def project(self, theta: Tensor) -> Projection:
        """What is linear at its best for theta."""
        ...

    def normal(self, theta: Tensor, projection: Projection) -> tuple[Tensor, Tensor]:
        """The normal matrix (B, p, p) and the downhill gradient (B, p) of half the projected loss."""
        ...

    def moved(self, theta: Tensor, step: Tensor) -> Tensor:
        """Theta after a step (B, p)."""
        ...


@dataclass(frozen=True)
class Descent:
    """Where a batch ended: parameters, projections, a status and the losses after each step for every member."""

    theta: Tensor
    projection: Projection
    status: tuple[Status, ...]
    losses: tuple[tuple[float, ...], ...]


def descend(model: SeparableModel, theta: Tensor, steps: Sequence[int], *, tolerance: float, floor: Tensor) -> Descent:
    """At most steps[b] steps for member b; a loss at `floor` (B,) times 1e-26 is rounding and ends it too."""
    batch, device = len(theta), theta.device
    theta = theta.clone()
    projection = model.project(theta)
    budget = torch.tensor(list(steps), device=device)
    damping = torch.full((batch,), _FIRST_DAMPING, dtype=theta.dtype, device=device)
    growth = torch.full_like(damping, 2.0)
    idle = torch.zeros(batch, dtype=torch.long, device=device)
    ended = torch.full((batch,), _RUNNING, dtype=torch.long, device=device)
    ended[~torch.isfinite(projection.loss)] = _STALLED
    ended[projection.loss <= _FLOOR**2 * floor] = _AT_FLOOR
    trace: list[tuple[Tensor, Tensor]] = []
    p = theta[0].numel()
    K = torch.zeros(batch, p, p, dtype=theta.dtype, device=device)
    g = torch.zeros(batch, p, dtype=theta.dtype, device=device)
    outdated = torch.ones(batch, dtype=torch.bool, device=device)
    for count in range(max(steps, default=0)):
        stop_if_asked()
        active = ((ended == _RUNNING) & (budget > count)).nonzero()[:, 0]
        if not len(active):
            break
        moved_members = active[outdated[active]]
        if len(moved_members):
            K[moved_members], g[moved_members] = model.take(moved_members).normal(
                theta[moved_members], projection.take(moved_members)
            )
            outdated[moved_members] = False
        step, promised = _step(K[active], g[active], damping[active])
        trial = model.take(active).moved(theta[active], step)
        trial_projection = model.take(active).project(trial)
        before, after = projection.loss[active], trial_projection.loss
        better = after < before  # false for NaN, which a wild step may give
        gain = torch.where(better, (before - after) / promised, 0.0)
        damping[active] = torch.where(
            better,
            damping[active] * (1 - (2 * gain - 1) ** 3).clamp(1 / 3, 2.0),
            damping[active] * growth[active],
        ).clamp_min(_LEAST_DAMPING)
        growth[active] = torch.where(better, 2.0, growth[active] * 2)
        small = better & (before - after <= tolerance * before)
        idle[active] = torch.where(better, torch.where(small, idle[active] + 1, 0), idle[active])
        improved = better.nonzero()[:, 0]
        if len(improved):
            theta[active[improved]] = trial[improved]
            projection.put(active[improved], trial_projection.take(improved))
            outdated[active[improved]] = True
        trace.append((active, projection.loss[active].clone()))
        stuck = damping[active] > _MOST_DAMPING
        # No step improves: at rest if the model promised next to nothing, stalled if it promised more.
        at_rest = stuck & (promised <= tolerance * projection.loss[active])
        state = ended[active]
        state[stuck] = _STALLED
        state[at_rest | (idle[active] >= _IDLE)] = _CONVERGED
        state[projection.loss[active] <= _FLOOR**2 * floor[active]] = _AT_FLOOR
        ended[active] = state
    losses: list[list[float]] = [[] for _ in range(batch)]
    for active, after in trace:
        for member, loss in zip(active.tolist(), after.tolist(), strict=True):
            losses[member].append(loss)
    return Descent(theta, projection, tuple(_STATUS[s] for s in ended.tolist()), tuple(map(tuple, losses)))


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
