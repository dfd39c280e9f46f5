"""How large a step may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gatelab.display import one_line
from gatelab.dynamics.inputs import Loss, kernel_matrix, loss_scale
from gatelab.dynamics.spectral import eigen


@dataclass(frozen=True)
class StableStep:
    """Steps of gradient descent: `limit` = 2 / lambda_max, beyond which it diverges, and `best` = 2 / (lambda_max +
    lambda_min), with which the slowest direction is as fast as a fixed step can make it.

    `rate` is the factor by which the residual along the slowest direction shrinks with the best step, (kappa - 1) /
    (kappa + 1).
    """

    limit: float
    best: float
    rate: float
    lambda_max: float
    lambda_min: float

    def __repr__(self) -> str:
        return one_line(self, f"limit {self.limit:.4g}, best {self.best:.4g} with rate {self.rate:.4g}")


def stable_step(K: Any, *, loss: Loss = "sum") -> StableStep:
    """The step sizes that a kernel allows, for the loss (1/2)|f - y|^2 or, with loss="mean", for its mean.

    >>> step = stable_step([[3.0, 1.0], [1.0, 3.0]])
    >>> step.limit, round(step.best, 3), round(step.rate, 3)
    (0.5, 0.333, 0.333)
    """
    matrix = kernel_matrix(K)
    values, _ = eigen(matrix)
    low, high = float(values[0]), float(values[-1])
    scale = loss_scale(loss, len(matrix))
    return StableStep(2 / (high * scale), 2 / ((high + low) * scale), (high - low) / (high + low), high, low)
