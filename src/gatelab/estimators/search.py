"""The search of both estimators: candidates of (unit, width, ridge) by a loss on held-out rows.

A `Committee` has several networks with weights, whose mean is predicted. A regressor picks candidates one after the
other, with repetition, while that lowers the error of the mean: such coarse weights do not fit the noise of the
held-out rows. A classifier predicts a mixture whose weights and temperature maximize the likelihood of held-out rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from gatelab.arrays import Array
from gatelab.display import Compact
from gatelab.estimators.frames import TableRows
from gatelab.estimators.trees import BinnedRows
from gatelab.feedforward import Unit

# A network or None, and trees or None; the values of both are added.
Member = tuple[Any, Any]
_LEVEL, _DEVIATIONS = 0.95, 1.96
# The prior number of rows that each candidate of a mixture explains.
_ROWS_BEFORE = 1.0
# The bounds of the temperature, and the prior standard deviation of its logarithm.
_COLDEST, _HOTTEST, _DEVIATION = 0.2, 5.0, 0.15
# Classes with fewer distinct inputs are never held out.
_FEWEST_INPUTS = 3


@dataclass(frozen=True, eq=False)
class Candidate:
    """Networks of one kind, one per fold, with their values on held-out rows and the error of these.

    `unit` is None for trees, and `width` is then their number; `gates` is "trained", "drawn", "both" for trained gates
    plus trees, or the kind of trees. A classifier's networks also have their training losses and the relevance factors
    of the inputs, if any.
    """

    unit: Unit | None
    width: int
    ridge: float = 0.0
    gates: str = "trained"
    members: tuple[Member, ...] = ()
    values: Any = None
    error: float = math.nan
    steepness: float = 0.0
    training: Any = None
    relevance: Any = None

    @property
    def name(self) -> str:
        if self.unit is None:
            return self.gates if self.gates == "steps" else f"{self.gates} steps"
        return f"{self.unit.name} + steps" if self.gates == "both" else self.unit.name


class Search:
    """A search on rows with folds, of which the first `used` evaluate candidates; `tried` has the candidates so far."""

    def __init__(
        self,
        rows: TableRows,
        raw: Array,
        folds: tuple[NDArray[np.intp], int],
        used: int,
        *,
        loss: Callable[[Array, Array, Array], float],
        seed: int,
        device: str,
        end: float = math.inf,
        show: Callable[..., object] = lambda row: None,
    ) -> None:
        self.rows, self.raw, (self.fold, self.folds), self.used = rows, raw, folds, used
        self.loss, self.seed, self.device, self.end, self.show = loss, seed, device, end, show
        self.tried: list[Candidate] = []

    def over(self, seconds: float = 0.0) -> bool:
        """Whether fewer than these seconds are left."""
        return time.monotonic() + seconds >= self.end

    @cached_property
    def binned(self) -> BinnedRows:
        return BinnedRows.of(self.raw, self.rows.y, self.rows.weight)

    def outside(self, f: int) -> NDArray[np.intp]:
        """The held-out rows of a fold."""
        return np.flatnonzero(self.fold == f)

    def truth(self, folds: int) -> tuple[Array, Array]:
        """Targets and weights of the held-out rows of the first folds, fold by fold."""
        index = np.concatenate([self.outside(f) for f in range(folds)])
        return self.rows.y[index], self.rows.weight[index]

    def evaluate(self, candidate: Candidate, members: Sequence[Member], values: Sequence[Array]) -> Candidate:
        """The candidate with its members, their values on the held-out rows of each fold, and the loss of these."""
        joined = np.concatenate(values)
        error = self.loss(joined, *self.truth(len(values)))
        return replace(candidate, members=tuple(members), values=joined, error=error)

    def enter(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        for candidate in candidates:
            self.show(self.row(candidate))
            self.tried.append(candidate)
        return candidates

    @staticmethod
    def row(candidate: Candidate) -> dict[str, Any]:
        """A candidate as plain values."""
        return {"unit": candidate.name, "width": candidate.width, "ridge": candidate.ridge}

    def of_kind(self, *gates: str) -> list[Candidate]:
        return [c for c in self.tried if c.gates in gates]

    @property
    def best(self) -> Candidate:
        return min(self.tried, key=lambda c: c.error)


def folds_of(
    rows: TableRows, folds: int, seed: int, *, most: int | None = None, classes: bool = False
) -> tuple[NDArray[np.intp], int]:
    """The fold of each row, or -1 beyond the `most` rows, and the number of folds, stratified by classes if asked."""
    generator = np.random.default_rng(seed)
    sample = np.arange(len(rows))
    if most is not None and len(rows) > most:
        sample = np.sort(generator.permutation(len(rows))[:most])
    groups, first, group = np.unique(rows.x[sample], axis=0, return_index=True, return_inverse=True)
    place = generator.permutation(len(groups))
    if classes:
        label = rows.y[sample].argmax(1)[first]
        order = place[np.argsort(label[place], kind="stable")]
        order = order[np.bincount(label)[label[order]] >= _FEWEST_INPUTS]
        place = np.full(len(groups), -1)
        place[order] = np.arange(len(order))
    number = min(folds, int(np.count_nonzero(place >= 0)))
    fold = np.full(len(rows), -1, dtype=np.intp)
    if number > 1:
        fold[sample] = np.where(place < 0, -1, place % number)[group.ravel()]
    return fold, number


@dataclass(frozen=True, eq=False)
class Committee(Compact):
    """Networks of the scaled inputs, trees of the raw inputs, and sums of both, whose weighted mean is predicted.

    Members have the numbers of their candidates, and share the weight of a candidate; the sum of all is one.
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
    """The number of picks of each candidate for which the mean of the picks has the smallest error."""
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
