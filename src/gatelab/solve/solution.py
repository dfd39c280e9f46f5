"""The result of a solver, and what solvers share: a problem's tensors, the start, the loss, the memory check."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gatelab.display import counted, one_line
from gatelab.errors import GatelabError, check_seed, whole_number
from gatelab.feedforward import AnyUnit, ModuleUnit
from gatelab.memory import check_memory
from gatelab.solve.solvers import SOLVERS

if TYPE_CHECKING:
    from gatelab.data import Problem

# More steps than any solver takes, for `steps=None`: solvers then have other limits.
UNLIMITED = 2**62

UnitLike = str | AnyUnit | Callable[..., object] | type[nn.Module]


class Status(StrEnum):
    """How a solve ended.

    >>> Status.BUDGET.advice
    'ran out of steps while still improving: give it more steps'
    """

    CONVERGED = "converged"
    STALLED = "stalled"
    FLOOR = "floor"
    BUDGET = "budget"
    DIVERGED = "diverged"

    @property
    def advice(self) -> str:
        """The next step to take, in one sentence."""
        return _ADVICE[self]


_ADVICE = {
    Status.CONVERGED: "a local optimum: more seeds may find a better one, more steps will not",
    Status.STALLED: "no step improves the loss but the gradient is not small: try another solver or start",
    Status.FLOOR: "the training error is at the rounding of float64, of the targets or of neurons that nearly cancel: a"
    " wider network cannot show less, unless the targets are far from 0: subtract their mean, or give standardize=True",
    Status.BUDGET: "ran out of steps while still improving: give it more steps",
    Status.DIVERGED: "the loss grew beyond that of the start: give a smaller learning rate (lr) or another start",
}


@dataclass(frozen=True)
class Solution:
    """The result of a solver.

    `network` is the network that it found, `status` how it ended, `history` the training RMSE after each step that led
    to the network, empty if the start is the best. Stages on a subset of the rows report the RMSE on that subset.
    """

    network: nn.Module
    status: Status
    history: tuple[float, ...]

    def __repr__(self) -> str:
        reached = "".join(f", training RMSE {error:.2g}" for error in self.history[-1:])
        return one_line(self, f"{self.status} in {counted(self.steps, 'step')}{reached}")

    @property
    def steps(self) -> int:
        """The number of iterations of the network from its start to its end."""
        return len(self.history)


def tensors(problem: Problem) -> tuple[Tensor, Tensor]:
    """The training inputs (N, d_in) and outputs (N, d_out) in float64."""
    x, y = (torch.as_tensor(a, dtype=torch.float64) for a in (problem.train.x, problem.train.y))
    return x, y


def start(unit: AnyUnit, problem: Problem, width: int, *, seed: int, init: str | None) -> nn.Module:
    """The network where training starts, checked to have a finite loss.

    `init=None` takes the paper's knots for one input and `lecun` otherwise; a user's class initializes itself.
    """
    x, y = tensors(problem)
    own = isinstance(unit, ModuleUnit)
    if own and init not in (None, "own"):
        raise GatelabError(f"init is {init!r}, but {unit.name!r} is a class that initializes itself; leave init out")
    if init is None and own:
        init = "own"
    elif init is None:
        init = ("lecun", "spline-alternating")[x.shape[1] == 1]
    interval = problem.interval or (float(x.min()), float(x.max()))
    net = unit.network(width, x.shape[1], y.shape[1], seed=check_seed(seed), init=init, interval=interval)
    loss = mean_square(net, x, y)
    if not math.isfinite(loss):
        raise GatelabError(
            f"the first loss of {unit.name!r} is {loss}: "
            "choose another init, or look for where the unit divides or overflows"
        )
    return net


@torch.no_grad()
def mean_square(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """L = mean (y(x) - y)^2 over rows and outputs."""
    return (net(x) - y).square().mean().item()


def check_steps(steps: Any) -> int:
    """The maximum number of steps of a network; `UNLIMITED` for None."""
    return UNLIMITED if steps is None else whole_number("steps", steps, 1)


def check_fit_memory(
    solver: str, unit: AnyUnit, width: int, n: int, sizes: tuple[int, int], device: str | torch.device = "cpu"
) -> None:
    """Raise if memory is insufficient; `sizes` are the numbers of inputs and outputs."""
    need = 8 * unit.parameter_count(width, *sizes)  # for a user's solver, the network
    if solver in SOLVERS:
        need = SOLVERS.module(solver).memory(unit, width, n, *sizes)
    what = f"a fit of {unit.name}, width {width}, to {n} rows by {solver}"
    check_memory(need, what, "give a smaller width or fewer rows", device)
