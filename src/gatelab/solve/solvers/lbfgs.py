"""L-BFGS on the whole batch, for comparison."""

from __future__ import annotations

from functools import partial

import torch

from gatelab.data import Problem
from gatelab.errors import whole_number
from gatelab.feedforward import unit as as_unit
from gatelab.solve.solution import Solution, UnitLike, start
from gatelab.solve.solvers.adam import follow_gradient, gradient_memory

_PAIRS = 50
memory = partial(gradient_memory, 2 * _PAIRS)


def solve(
    unit: UnitLike, problem: Problem, width: int, *, seed: int = 0, steps: int = 500, init: str | None = None
) -> Solution:
    """L-BFGS with a strong Wolfe search and 50 pairs of history."""
    steps = whole_number("steps", steps, 1)
    net = start(as_unit(unit), problem, width, seed=seed, init=init)
    # torch's own tolerances are absolute and would end a fit whose loss is small: `follow_gradient` decides.
    # With one iteration a call, the default max_eval would leave the line search without one evaluation.
    how = {"max_iter": 1, "max_eval": 26, "history_size": _PAIRS, "tolerance_grad": 0.0, "tolerance_change": 0.0}
    optimizer = torch.optim.LBFGS(net.parameters(), line_search_fn="strong_wolfe", **how)
    return follow_gradient(net, problem, steps, optimizer.step)
