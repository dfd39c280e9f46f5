"""Adam on the whole batch, for comparison, and the training loop in float64 that it shares with L-BFGS.

The best network of all steps is kept. A fit has converged if the largest entry of the gradient has fallen to 1e-8 of
its first value, stalled if the loss no longer changes at all, and diverged if the loss is not finite or ends larger
than it started.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from gatelab.data import Problem
from gatelab.errors import real_number, whole_number
from gatelab.feedforward import AnyUnit
from gatelab.feedforward import unit as as_unit
from gatelab.solve.solution import Solution, Status, UnitLike, start, tensors

_SMALL_GRADIENT = 1e-8


def gradient_memory(vectors: int, unit: AnyUnit, width: int, n: int, d_in: int, d_out: int) -> int:
    """3 (factors + 2) arrays (N, width) of the backward pass, and vectors of the size of the parameters."""
    activations = 3 * (getattr(unit, "factors", 0) + 2) * n * width
    return 8 * (activations + vectors * unit.parameter_count(width, d_in, d_out))


def follow_gradient(
    net: nn.Module, problem: Problem, steps: int, advance: Callable[[Callable[[], Tensor]], object]
) -> Solution:
    """Train until the steps run out, the gradient is small, or the loss is constant or not finite."""
    x, y = tensors(problem)

    def closure() -> Tensor:
        net.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        return loss.detach()

    def parameters() -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in net.state_dict().items()}

    def largest_gradient() -> float:
        return max((p.grad.abs().max().item() for p in net.parameters() if p.grad is not None), default=0.0)

    first = best = loss = closure().item()
    state, small = parameters(), _SMALL_GRADIENT * largest_gradient()
    status, history = Status.BUDGET, []
    for _ in range(steps):
        before = loss
        advance(closure)
        loss = closure().item()
        if not math.isfinite(loss):
            break
        history.append(loss**0.5)
        if loss < best:
            best, state = loss, parameters()
        if largest_gradient() <= small:
            status = Status.CONVERGED
            break
        if loss == before:
            status = Status.STALLED
            break
    if not loss <= first:
        status = Status.DIVERGED
    net.load_state_dict(state)
    net.zero_grad()
    return Solution(net, status, tuple(history))


memory = partial(gradient_memory, 4)  # the parameters, their gradient and two moments


def solve(
    unit: UnitLike,
    problem: Problem,
    width: int,
    *,
    seed: int = 0,
    steps: int = 2000,
    lr: float = 1e-2,
    init: str | None = None,
) -> Solution:
    """Adam with the learning rate lr(t) = lr (1 + cos(pi t / steps)) / 2."""
    lr, steps = real_number("lr", lr, above=0), whole_number("steps", steps, 1)
    net = start(as_unit(unit), problem, width, seed=seed, init=init)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def advance(_: Callable[[], Tensor]) -> None:
        optimizer.step()  # at the gradient that the loop has just computed
        decay.step()

    return follow_gradient(net, problem, steps, advance)
