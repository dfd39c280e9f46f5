"""Committees: several networks with weights, whose mean is predicted.

A regressor predicts the mean of candidates that are picked one after the other, with repetition, while that lowers the
error of the mean: such coarse weights do not fit the noise of the held-out rows. Its standard deviation grows with the
spread of the candidates. A classifier predicts a mixture whose weights and temperature maximize the likelihood of the
held-out rows.
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

# A network or None, and trees or None; the values of both are added.
Member = tuple[Any, Any]
_LEVEL, _DEVIATIONS = 0.95, 1.96
# The prior number of rows that each candidate of a mixture explains.
_ROWS_BEFORE = 1.0
# The bounds of the temperature, and the prior standard deviation of its logarithm.
_COLDEST, _HOTTEST, _DEVIATION = 0.2, 5.0, 0.15


@dataclass(frozen=True, eq=False)
class Committee(Compact):
    """Networks, trees of step gates, and sums of one of each, whose weighted mean is predicted.

    Attributes:
        members: a network of the scaled inputs or None, and trees of the raw inputs or None.
        candidate: the number of each member's candidate, (members,).
        weight: the weights of the members, (members,), of sum one; members of a candidate share its weight.
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
        """The mean and the spread of candidates (rows, outputs), from the members' values (members, rows, outputs)."""
        share = np.bincount(self.candidate, self.weight).astype(np.float64)
        own = [self.candidate == c for c in range(len(share))]
        parts = [np.tensordot(self.weight[c] / s, values[c], 1) for c, s in zip(own, share, strict=True)]
        return mean_and_spread(np.stack(parts), share)


def mean_and_spread(values: Array, share: Array) -> tuple[Array, Array]:
    """The weighted mean of values (candidates, rows, outputs) and their standard deviation."""
    mean = np.tensordot(share, values, 1)
    return mean, np.sqrt(np.tensordot(share, np.square(values - mean), 1))


def pick_counts(values: Array, y: Array, weight: Array, picks: int) -> NDArray[np.int64]:
    """The number of picks of each candidate for which the mean of the picks has the smallest error.

    >>> y = np.zeros((4, 1))
    >>> values = np.stack([np.full((4, 1), v) for v in (1.0, -1.1, 5.0)])
    >>> pick_counts(values, y, np.ones(4), 2).tolist()
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
    """The noise and the scale of the deviation sqrt(noise^2 + spread^2) scale, for each output."""
    noise = np.sqrt(np.mean(np.square(residual), axis=0))
    noise = np.where(noise > 0, noise, np.finfo(np.float64).tiny)
    level = min(1.0, _LEVEL * (1 + 1 / len(residual)))
    ratio = np.abs(residual) / np.sqrt(noise**2 + spread**2)
    return noise, np.quantile(ratio, level, axis=0, method="higher") / _DEVIATIONS


def log_loss(log_p: Array, y: Array, weight: Array) -> float:
    """The weighted mean of -log p of the rows' classes; infinity instead of NaN."""
    loss = float(-(weight @ (log_p * y).sum(1)) / weight.sum())
    return loss if np.isfinite(loss) else np.inf


def mixture_weights(log_p: Sequence[Array], y: Array, weight: Array, rounds: int = 50) -> Array:
    """The weights of a mixture of candidates that maximize the likelihood of held-out rows, by EM with a prior."""
    rows = len(y)
    p = np.stack([np.exp((values * y).sum(1)) for values in log_p], axis=1).clip(1e-300)
    share = np.full(len(log_p), 1 / len(log_p))
    for _ in range(rounds):
        part = p * share
        explained = rows * (weight @ (part / part.sum(1, keepdims=True))) / weight.sum()
        share = (explained + _ROWS_BEFORE) / (rows + _ROWS_BEFORE * len(log_p))
    return share


def log_mean(log_p: Sequence[Array], share: Array) -> Array:
    return np.logaddexp.reduce(np.stack(log_p) + np.log(share)[:, None, None], axis=0)


def tempered(log_p: Array, temperature: float) -> Array:
    """log p at another temperature: above one, probabilities are more equal."""
    return log_softmax(log_p / temperature, axis=-1)


def temperature_of(log_p: Array, y: Array, weight: Array) -> float:
    """The temperature that maximizes the likelihood of held-out rows, with a prior: they also ended the training."""

    def loss(log_temperature: float) -> float:
        deviance = log_loss(tempered(log_p, math.exp(log_temperature)), y, weight)
        return len(y) * deviance + 0.5 * (log_temperature / _DEVIATION) ** 2

    best: Any = minimize_scalar(loss, bounds=(math.log(_COLDEST), math.log(_HOTTEST)), method="bounded")
    return math.exp(float(best.x))
