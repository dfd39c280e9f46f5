"""Several networks as one: who its members are, what each weighs, and what they say together.

A regressor predicts the mean of candidates that are picked one after the other, as often as it lowers the error of the
mean: such weights are too coarse to fit the noise of the rows held out. Its deviation grows with the spread of the
candidates. A classifier predicts a mixture, of which weights and temperature make the rows held out most likely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from gatelab.arrays import Array
from gatelab.display import Compact

# A network or None and trees or None; where both are there, their values are added.
Member = tuple[Any, Any]
_LEVEL, _DEVIATIONS = 0.95, 1.96
# Rows that each member of a mixture is taken to have explained before any is looked at.
_ROWS_BEFORE = 1.0
# Temperatures between which the one is sought, and the deviation of its logarithm before any row is looked at.
_COLDEST, _HOTTEST, _DEVIATION = 0.2, 5.0, 0.15


@dataclass(frozen=True, eq=False)
class Committee(Compact):
    """Networks, trees of step gates, and sums of one of each, whose weighted mean is predicted.

    Attributes:
        members: a network of the scaled inputs or None, and trees of the raw ones or None.
        candidate: the number of the candidate that a member belongs to, (members,).
        weight: of the members, (members,); they add up to one, and members of one candidate share its weight.
    """

    members: tuple[Member, ...]
    candidate: NDArray[np.int64]
    weight: Array

    @classmethod
    def of(cls, candidates: Sequence[Sequence[Member]], weights: Sequence[float] | Array) -> Committee:
        sizes = np.array([len(members) for members in candidates])
        numbers = np.repeat(np.arange(len(sizes)), sizes)
        return cls(tuple(chain(*candidates)), numbers, (np.asarray(weights) / sizes)[numbers])

    @property
    def networks(self) -> tuple[Any, ...]:
        return tuple(network for network, _ in self.members if network is not None)

    @property
    def trees(self) -> tuple[Any, ...]:
        return tuple(trees for _, trees in self.members if trees is not None)

    def mean_and_spread(self, values: Array) -> tuple[Array, Array]:
        """The mean and the spread of candidates, both (rows, outputs), by what members say (members, rows, outputs)."""
        share = np.bincount(self.candidate, self.weight).astype(np.float64)
        own = [self.candidate == c for c in range(len(share))]
        parts = [np.tensordot(self.weight[c] / s, values[c], 1) for c, s in zip(own, share, strict=True)]
        return mean_and_spread(np.stack(parts), share)


def mean_and_spread(values: Array, share: Array) -> tuple[Array, Array]:
    """The mean of values (candidates, rows, outputs) by shares, and their deviation from it."""
    mean = np.tensordot(share, values, 1)
    return mean, np.sqrt(np.tensordot(share, np.square(values - mean), 1))


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


def log_loss(log_p: Array, y: Array, weight: Array) -> float:
    """The weighted mean of -log p of the classes of rows; infinite where it is no number."""
    loss = float(-(weight @ (log_p * y).sum(1)) / weight.sum())
    if not np.isfinite(loss):
        return np.inf
    return loss


def mixture_weights(log_p: Sequence[Array], y: Array, weight: Array, rounds: int = 50) -> Array:
    """What candidates count in the mixture that makes rows held out most likely, by EM, with a row more for each."""
    rows = len(y)
    p = np.stack([np.exp((values * y).sum(1)) for values in log_p], axis=1).clip(1e-300)
    share = np.full(len(log_p), 1 / len(log_p))
    for _ in range(rounds):
        part = p * share
        explained = rows * (weight @ (part / part.sum(1, keepdims=True))) / weight.sum()
        share = (explained + _ROWS_BEFORE) / (rows + _ROWS_BEFORE * len(log_p))
    return share


def log_mean(log_p: Sequence[Array], share: Array) -> Array:
    """log of the mean of probabilities by these shares."""
    return np.logaddexp.reduce(np.stack(log_p) + np.log(share)[:, None, None], axis=0)


def tempered(log_p: Array, temperature: float) -> Array:
    """log p at another temperature: above one, probabilities are nearer to each other."""
    return log_softmax(log_p / temperature, axis=-1)


def temperature_of(log_p: Array, y: Array, weight: Array) -> float:
    """The temperature at which rows held out are most likely, with a prior, since they also said when networks end."""

    def loss(log_temperature: float) -> float:
        deviance = log_loss(tempered(log_p, math.exp(log_temperature)), y, weight)
        return len(y) * deviance + 0.5 * (log_temperature / _DEVIATION) ** 2

    best: Any = minimize_scalar(loss, bounds=(math.log(_COLDEST), math.log(_HOTTEST)), method="bounded")
    return math.exp(float(best.x))
