"""What solvers that follow derivatives share: a problem's tensors, the start and the loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError, check_seed, whole_number
from gatelab.units import AnyUnit, ModuleUnit

if TYPE_CHECKING:
    from gatelab.problems import Problem

# More steps than any solver takes: a solver whose `steps` is None has limits of its own.
UNLIMITED = 2**62

UnitLike = str | AnyUnit | Callable[..., object] | type[nn.Module]


def tensors(problem: Problem) -> tuple[Tensor, Tensor]:
    """The training inputs (N, d_in) and outputs (N, d_out) in float64."""
    x, y = (torch.as_tensor(a, dtype=torch.float64) for a in (problem.train.x, problem.train.y))
    return x, y


def default_init(unit: AnyUnit, d_in: int) -> str:
    """The paper's knots where the input is a line, `lecun` elsewhere; a user's class has its own.

    >>> from gatelab.units import unit
    >>> default_init(unit("glu"), 1), default_init(unit("glu"), 2)
    ('spline-alternating', 'lecun')
    """
    if isinstance(unit, ModuleUnit):
        return "own"
    return "spline-alternating" if d_in == 1 else "lecun"


def start(unit: AnyUnit, problem: Problem, width: int, *, seed: int, init: str | None) -> nn.Module:
    """The network where training begins, checked to have a finite loss; `init=None` takes `default_init`."""
    x, y = tensors(problem)
    if isinstance(unit, ModuleUnit) and init not in (None, "own"):
        raise GatelabError(f"init is {init!r}, but {unit.name!r} is a class that initialises itself; leave init out")
    net = unit.network(
        width,
        x.shape[1],
        y.shape[1],
        seed=check_seed(seed),
        init=init or default_init(unit, x.shape[1]),
        interval=problem.interval or (float(x.min()), float(x.max())),
    )
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
    """The most steps that a network may take in all; `UNLIMITED` for None, the solver's own measure."""
    return UNLIMITED if steps is None else whole_number("steps", steps, 1)
