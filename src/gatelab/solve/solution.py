"""What every solver returns: a network, and a status that says what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from torch import nn

from gatelab.display import counted, one_line


class Status(StrEnum):
    """How a solve ended.

    >>> Status.BUDGET.advice
    'ran out of steps while still improving: give it more steps'
    """

    CONVERGED = "converged"
    STALLED = "stalled"
    FLOOR = "floor"
    BUDGET = "budget"

    @property
    def advice(self) -> str:
        return _ADVICE[self]


_ADVICE = {
    Status.CONVERGED: "a local optimum: more seeds may find a better one, more steps will not",
    Status.STALLED: "no step improves the loss but the gradient is not small: try another solver or start",
    Status.FLOOR: "the training error is at the rounding of float64: a wider network cannot show less",
    Status.BUDGET: "ran out of steps while still improving: give it more steps",
}


@dataclass(frozen=True)
class Solution:
    """The network that a solver found, how it ended and the training RMSE after each step that led to it.

    A history has at least one entry. Stages that work on some of the rows give the RMSE on those.
    """

    network: nn.Module
    status: Status
    history: tuple[float, ...]

    def __repr__(self) -> str:
        return one_line(self, f"{self.status} in {counted(self.steps, 'step')}, training RMSE {self.history[-1]:.2g}")

    @property
    def steps(self) -> int:
        return len(self.history)
