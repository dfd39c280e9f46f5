"""Training along gradients, on the whole batch, in float64: what Adam and L-BFGS share.

The best network that was seen is kept. Converged means that the largest entry of the gradient has fallen to 1e-8 of
what it was at the start; a loss that no longer changes at all is a stall, and one that is not finite, or larger in the
end than at the start, has diverged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor, nn

from gatelab.feedforward import AnyUnit
from gatelab.solve.solution import Solution, Status, tensors

if TYPE_CHECKING:
    from gatelab.data import Problem

_SMALL_GRADIENT = 1e-8


def gradient_memory(vectors: int, unit: AnyUnit, width: int, n: int, d_in: int, d_out: int) -> int:
    """3 (factors + 2) arrays (N, width) that the backward pass keeps or makes, and so many vectors of parameters."""
    activations = 3 * (getattr(unit, "factors", 0) + 2) * n * width
    return 8 * (activations + vectors * unit.parameter_count(width, d_in, d_out))


def follow_gradient(
    net: nn.Module, problem: Problem, steps: int, advance: Callable[[Callable[[], Tensor]], object]
) -> Solution:
    """Advance until the steps are spent, the gradient is small, or the loss is constant or not finite."""
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
