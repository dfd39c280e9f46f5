"""Several networks as one: what each weighs is found on rows that none of them has seen.

Candidates are picked one after the other, each the one that lowers the error of the mean most, and any of them as often
as that helps: a candidate that is picked three times of eight weighs three eighths. Such weights are not negative, add
up to one, and are too coarse to fit the noise of the rows held out, as least squares would.

The deviation that is stated with a prediction is for new targets. It grows with the spread of the candidates, and is
scaled so that 1.96 of it hold 95 % of the residuals at the rows held out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.display import counted, one_line
from gatelab.estimators.steps import StepNetwork
from gatelab.feedforward import Network
from gatelab.solve import predict

_LEVEL, _DEVIATIONS = 0.95, 1.96


@dataclass(frozen=True, eq=False)
class Committee:
    """Networks whose weighted mean is predicted.

    A member is a network, a network of step gates, or the sum of one of each; members of one candidate share its
    weight.

    Attributes:
        networks: of the scaled inputs.
        steps: of the raw inputs.
        parts: the number of a member's network and that of its step gates, -1 for none, (members, 2).
        candidate: the number of the candidate that a member belongs to, (members,).
        weight: of the members, (members,); they add up to one.
    """

    networks: tuple[Network, ...]
    steps: tuple[StepNetwork, ...]
    parts: NDArray[np.int64]
    candidate: NDArray[np.int64]
    weight: Array

    def __repr__(self) -> str:
        return one_line(
            self, f"{counted(len(self.networks), 'network')}, {counted(len(self.steps), 'network')} of step gates"
        )

    @classmethod
    def of(
        cls, candidates: Sequence[Sequence[tuple[Network | None, StepNetwork | None]]], weights: Sequence[float]
    ) -> Committee:
        """Of candidates with their members, and a weight for each candidate."""
        networks: list[Network] = []
        steps: list[StepNetwork] = []
        parts, numbers, shares = [], [], []
        for number, (members, weight) in enumerate(zip(candidates, weights, strict=True)):
            for network, step in members:
                place = [-1, -1]
                if network is not None:
                    place[0] = len(networks)
                    networks.append(network)
                if step is not None:
                    place[1] = len(steps)
                    steps.append(step)
                parts.append(place)
                numbers.append(number)
                shares.append(weight / len(members))
        return cls(
            tuple(networks),
            tuple(steps),
            np.array(parts, dtype=np.int64).reshape(-1, 2),
            np.array(numbers, dtype=np.int64),
            np.array(shares),
        )

    def values(self, raw: Array, scaled: Array, hold: Callable[[Array], Array]) -> tuple[Array, Array]:
        """The mean and the spread of the candidates, both (rows, outputs), at inputs raw for step gates and scaled.

        `hold` keeps the values of a network near the targets that were seen.
        """
        networks = [hold(predict(network, scaled)) for network in self.networks]
        steps = [step.values(raw) for step in self.steps]
        by_candidate: dict[int, Array] = {}
        weights: dict[int, float] = {}
        for (n, s), candidate, weight in zip(self.parts.tolist(), self.candidate.tolist(), self.weight, strict=True):
            terms = ([networks[n]] if n >= 0 else []) + ([steps[s]] if s >= 0 else [])
            by_candidate[candidate] = by_candidate.get(candidate, 0.0) + weight * sum(terms)
            weights[candidate] = weights.get(candidate, 0.0) + float(weight)
        mean = sum(by_candidate.values(), np.zeros((len(raw), 1)))
        square = sum(
            (weights[c] * np.square(value / weights[c] - mean) for c, value in by_candidate.items()),
            np.zeros((len(raw), 1)),
        )
        return mean, np.sqrt(square)


def picked(values: Array, y: Array, weight: Array, picks: int) -> NDArray[np.int64]:
    """How often each candidate is picked, so that the mean of the picks has the least error.

    >>> y = np.zeros((4, 1))
    >>> values = np.stack([np.full((4, 1), v) for v in (1.0, -1.1, 5.0)])
    >>> picked(values, y, np.ones(4), 2).tolist()
    [1, 1, 0]
    """
    count = np.zeros(len(values), dtype=np.int64)
    best, best_error = count.copy(), np.inf
    total = np.zeros_like(y)
    for pick in range(1, picks + 1):
        errors = np.array([weight @ np.square((total + v) / pick - y).sum(axis=1) for v in values])
        errors[~np.isfinite(errors)] = np.inf
        chosen = int(np.argmin(errors))
        count[chosen] += 1
        total = total + values[chosen]
        if errors[chosen] < best_error:
            best, best_error = count.copy(), errors[chosen]
    return best


def deviation_scale(residual: Array, spread: Array) -> tuple[Array, Array]:
    """The two numbers of a deviation sqrt(noise^2 + spread^2) scale, for each output."""
    noise = np.sqrt(np.mean(np.square(residual), axis=0))
    noise = np.where(noise > 0, noise, np.finfo(np.float64).tiny)
    level = min(1.0, _LEVEL * (1 + 1 / len(residual)))
    ratio = np.abs(residual) / np.sqrt(noise**2 + spread**2)
    return noise, np.quantile(ratio, level, axis=0, method="higher") / _DEVIATIONS
