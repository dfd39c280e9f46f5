"""The two conditions of corollary 4.2, evaluated for given data: who falls faster at first, and who in the end.

Early, to first order in the step: L_0 - L_1 = eta [ y^T K y + tr(NNGP K) ], and with NNGP = K / m the second term is
tr(K^2) / m. Late, only the directions of the smallest eigenvalues are left, C (1 - eta lambda_min)^(2t) with
C = |u^T y|^2 + the variance of the initial outputs along u, and the second unit is ahead once

    t > ln(C_b / C_a) / ( 2 ln[ (1 - eta_a lambda_a) / (1 - eta_b lambda_b) ] )
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gatelab.display import one_line
from gatelab.dynamics.inputs import Array
from gatelab.dynamics.spectral import Spectral

Pair = tuple[float, float]


@dataclass(frozen=True)
class Early:
    """Of both units: the loss at the start, y^T K y, tr K^2, and by how much the first step lowers the loss.

    `holds` is the corollary's condition that the first unit falls faster: its y^T K y and its tr K^2 are larger.
    """

    start: Pair
    signal: Pair
    spread: Pair
    first_step: Pair

    def __repr__(self) -> str:
        return one_line(
            self, f"holds: {self.holds}, the first steps gain {self.first_step[0]:.3g} and {self.first_step[1]:.3g}"
        )

    @property
    def holds(self) -> bool:
        return self.signal[0] > self.signal[1] and self.spread[0] > self.spread[1]


@dataclass(frozen=True)
class Late:
    """Of both units: the smallest eigenvalue, the weight C of its direction, and its factor 1 - eta lambda a step.

    `holds` is the condition that the second unit falls faster in the end. `bound` is the step after which the paper's
    formula has it ahead, None where the condition fails. It compares two directions alone, and is no estimate of the
    crossing: others may have decided it long before.
    """

    lambda_min: Pair
    weight: Pair
    factor: Pair
    bound: float | None

    def __repr__(self) -> str:
        return one_line(
            self, f"holds: {self.holds}, smallest eigenvalues {self.lambda_min[0]:.3g} and {self.lambda_min[1]:.3g}"
        )

    @property
    def holds(self) -> bool:
        return self.factor[1] < self.factor[0]


def early(a: Spectral, b: Spectral) -> Early:
    with np.errstate(over="ignore"):  # one step far beyond what is stable may leave float64
        ends = [np.exp(s.log_loss(np.array([0.0, 1.0]))) for s in (a, b)]
    return Early(
        (float(ends[0][0]), float(ends[1][0])),
        (_signal(a), _signal(b)),
        (float(np.sum(a.eigenvalues**2)), float(np.sum(b.eigenvalues**2))),
        (float(ends[0][0] - ends[0][1]), float(ends[1][0] - ends[1][1])),
    )


def _signal(s: Spectral) -> float:
    return float(s.eigenvalues @ s.targets)


def late(a: Spectral, b: Spectral) -> Late:
    factors = (_factor(a), _factor(b))
    weights = (_weight(a), _weight(b))
    bound = None
    if factors[1] < factors[0] and min(weights) > 0:
        slower = math.inf if factors[1] == 0 else 2 * math.log(factors[0] / factors[1])
        bound = max(0.0, math.log(weights[1] / weights[0]) / slower)
    return Late((float(a.eigenvalues[0]), float(b.eigenvalues[0])), weights, factors, bound)


def _factor(s: Spectral) -> float:
    return abs(1 - s.lr * float(s.eigenvalues[0]))


def _weight(s: Spectral) -> float:
    weights: Array = s.targets + s.outputs
    return float(weights[0])
