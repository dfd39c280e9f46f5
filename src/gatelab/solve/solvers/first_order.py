"""First-order training for comparison: Adam and L-BFGS on the whole batch, in float64.

Both keep the best network they see. Converged means that the largest entry of the gradient has fallen to 1e-8
of what it was at the start; a loss that no longer changes at all is a stall, and one that is not finite, or larger
in the end than at the start, has diverged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import AnyUnit
from gatelab.feedforward import unit as as_unit
from gatelab.solve.solution import Solution, Status, UnitLike, start, tensors
from gatelab.solve.solvers import solver

if TYPE_CHECKING:
    from gatelab.data import Problem

_SMALL_GRADIENT = 1e-8
_PAIRS = 50  # of L-BFGS: two vectors of all parameters each


def activation_bytes(unit: AnyUnit, width: int, n: int) -> int:
    """3 (factors + 2) arrays (N, width) that the backward pass keeps or makes."""
    return 8 * 3 * (getattr(unit, "factors", 0) + 2) * n * width


def adam_bytes(unit: AnyUnit, width: int, n: int, d_in: int, d_out: int) -> int:
    """The activations; and the parameters with their gradient and two moments."""
    return activation_bytes(unit, width, n) + 8 * 4 * unit.parameter_count(width, d_in, d_out)


def lbfgs_bytes(unit: AnyUnit, width: int, n: int, d_in: int, d_out: int) -> int:
    """The activations, and the pairs of the history."""
    return activation_bytes(unit, width, n) + 8 * 2 * _PAIRS * unit.parameter_count(width, d_in, d_out)


@solver("adam", memory=adam_bytes)
def adam(
    unit: UnitLike,
    problem: Problem,
    width: int,
    *,
    seed: int = 0,
    steps: int = 2000,
    lr: float = 1e-2,
    init: str | None = None,
) -> Solution:
    """Adam with the learning rate lr(t) = lr (1 + cos(pi t / steps)) / 2.

    >>> import numpy as np
    >>> from gatelab.data import Problem
    >>> wave = Problem.from_function(lambda x: np.sin(3 * x), n=200)
    >>> fit = adam("glu", wave, 4, steps=100)
    >>> fit.steps, fit.history[-1] < fit.history[0]
    (100, True)
    """
    if not (isinstance(lr, Real) and 0 < lr < math.inf):
        raise GatelabError(f"lr is {lr!r}; give a finite learning rate above 0")
    steps = whole_number("steps", steps, 1)
    net = start(as_unit(unit), problem, width, seed=seed, init=init)
    optimiser = torch.optim.Adam(net.parameters(), lr=lr)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)

    def advance(_: Callable[[], Tensor]) -> None:
        optimiser.step()  # at the gradient that the loop has just computed
        decay.step()

    return _descend(net, problem, steps, advance)


@solver("lbfgs", memory=lbfgs_bytes)
def lbfgs(
    unit: UnitLike, problem: Problem, width: int, *, seed: int = 0, steps: int = 500, init: str | None = None
) -> Solution:
    """L-BFGS with a strong Wolfe search and 50 pairs of history.

    >>> import numpy as np
    >>> from gatelab.data import Problem
    >>> wave = Problem.from_function(lambda x: np.sin(3 * x), n=200)
    >>> lbfgs("glu", wave, 4, steps=60).history[-1] < 0.03
    True
    """
    steps = whole_number("steps", steps, 1)
    net = start(as_unit(unit), problem, width, seed=seed, init=init)
    # torch's own tolerances are absolute and would end a fit whose loss is small: the loop below decides.
    # With one iteration a call, the default max_eval would leave the line search without one evaluation.
    how = {"max_iter": 1, "max_eval": 26, "history_size": _PAIRS, "tolerance_grad": 0.0, "tolerance_change": 0.0}
    optimiser = torch.optim.LBFGS(net.parameters(), line_search_fn="strong_wolfe", **how)
    return _descend(net, problem, steps, optimiser.step)


def _descend(
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
