"""Adam on the whole batch, for comparison."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gatelab.errors import real_number, whole_number
from gatelab.feedforward import unit as as_unit
from gatelab.solve.first_order import follow_gradient, gradient_memory
from gatelab.solve.solution import Solution, UnitLike, start

if TYPE_CHECKING:
    from gatelab.data import Problem

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
    """Adam with the learning rate lr(t) = lr (1 + cos(pi t / steps)) / 2.

    >>> import numpy as np
    >>> from gatelab.data import Problem
    >>> wave = Problem.from_function(lambda x: np.sin(3 * x), n=200)
    >>> fit = solve("glu", wave, 4, steps=100)
    >>> fit.steps, fit.history[-1] < fit.history[0]
    (100, True)
    """
    lr, steps = real_number("lr", lr, above=0), whole_number("steps", steps, 1)
    net = start(as_unit(unit), problem, width, seed=seed, init=init)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def advance(_: Callable[[], Tensor]) -> None:
        optimizer.step()  # at the gradient that the loop has just computed
        decay.step()

    return follow_gradient(net, problem, steps, advance)
