"""Effects of the levels of a column in addition to a linear map of the others: means and slopes with shrinkage.

Each level has a slope in a number if the slopes differ significantly by the F-test of a common slope. Integers are
names if neighboring values differ significantly, and at least half as much as any two values: smooth effects, for
example of an age, do not satisfy this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from gatelab.arrays import Array

# The largest number of slopes of a column's levels, and the level of significance.
MOST_SLOPES, CHANCE = 2, 1e-3
# Rounds of alternating fits of the linear map and the levels; bounds of the shrinkage, in rows.
_ROUNDS, _FEWEST_DRAWN, _MOST_DRAWN = 10, 0.1, 1e4


def neighbor_similarity(numbers: Array, left: Array, weight: Array) -> float:
    """The p-value of equal effects of neighboring numbers, by the F-test of pairs; 1 if effects are smooth."""
    values, index = np.unique(numbers, return_inverse=True)
    term = LevelTerm(0, len(values), index, np.ones(len(index)))
    rows = term.sums(weight[:, None])
    means = term.sums(weight[:, None] * left) / rows
    free, pairs = weight.sum() - len(values), len(values) // 2
    noise = float(weight @ np.square(left - means[index]).sum(1)) / max(free, 1.0)
    first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    apart = np.square(means[first] - means[second]) / (1 / rows[first] + 1 / rows[second])
    between = float(apart.sum()) / pairs
    spread = float((rows * np.square(means - weight @ left / weight.sum())).sum()) / (len(values) - 1)
    if free < 1 or between - noise < (spread - noise) / 2:
        return 1.0
    return float(fdtrc(pairs, free, between / max(noise, 1e-300)))


@dataclass(frozen=True)
class LevelTerm:
    """An effect of levels: the coefficient of each level times a factor of the row, which is one for means.

    `index` has the level of each row, one beyond the last if it is unknown. The shrinkage equals `drawn` rows of value
    zero; 0 means that it is estimated. For slopes the factor is the column `number` minus its mean in the level, one of
    `centers` (last zero), in units of its deviation, `unit`.
    """

    column: int
    levels: int
    index: NDArray[np.intp]
    factor: Array
    number: int | None = None
    centers: Array = field(default_factory=lambda: np.zeros(1))
    unit: float = 1.0
    drawn: float = 0.0

    def sums(self, values: Array) -> Array:
        sums = [np.bincount(self.index, column, minlength=self.levels)[: self.levels] for column in values.T]
        return np.stack(sums, axis=1).astype(np.float64, copy=False)

    def along(self, number: int, values: Array, weight: Array) -> LevelTerm:
        """The term of the levels' slopes in a number with these values."""
        rows, sums = self.sums(np.stack([weight, weight * values], axis=1)).T
        centers = np.append(sums / np.where(rows > 0, rows, 1.0), 0.0)
        factor = np.where(self.index < self.levels, values - centers[self.index], 0.0)
        factor[np.abs(factor) < 1e-12 * np.abs(values).max()] = 0.0  # rounding of equal numbers
        unit = float(np.sqrt(weight @ factor**2 / weight.sum())) or 1.0
        return replace(self, factor=factor / unit, number=number, centers=centers, unit=unit)


@dataclass(frozen=True)
class LevelSpread:
    """The coefficients of levels (levels, outputs) with Henderson's shrinkage, and the F-test of equal coefficients.

    `drawn` is the shrinkage as a number of rows of value zero, `ratio` the F statistic (for slopes about a common one),
    and `chance` its p-value for normal rows, 1 if there are too few rows.
    """

    coefficients: Array
    drawn: float
    ratio: float
    chance: float

    @classmethod
    def of(cls, values: Array, term: LevelTerm, weight: Array) -> LevelSpread:
        """The spread of values (rows, outputs) by this term; rows of unknown levels do not count."""
        weight = np.where(term.index < term.levels, weight, 0.0)
        index = np.minimum(term.index, term.levels - 1)
        rows = term.sums((weight * term.factor**2)[:, None])[:, 0]
        sums = term.sums((weight * term.factor)[:, None] * values)
        known = rows > 1e-9 * rows.max()  # the other levels have no rows, or equal numbers in all of them
        means = np.where(known[:, None], sums, 0.0) / np.where(known, rows, 1.0)[:, None]
        common, free, left = np.zeros(values.shape[1]), known.sum() - 1.0, weight.sum() - known.sum()
        if term.number is not None:
            counts = term.sums(weight[:, None])
            values = values - (term.sums(weight[:, None] * values) / np.where(counts > 0, counts, 1.0))[index]
            common, left = sums.sum(0) / max(rows.sum(), 1e-300), left - np.count_nonzero(counts)
        within = float(weight @ np.square(values - term.factor[:, None] * means[index]).sum(1)) / max(left, 1.0)
        square = float(rows @ np.square(means - common).sum(1))
        ratio = square / max(within * free, 1e-300)
        chance = float(fdtrc(free, left, ratio)) if min(free, left) >= 1 else 1.0
        drawn, between = term.drawn or _MOST_DRAWN, square - within * free
        if not term.drawn and between > 0:
            spread = weight.sum() - (rows @ rows) / weight.sum()
            drawn = float(np.clip(within * spread / between, _FEWEST_DRAWN, _MOST_DRAWN))
        return cls(sums / (rows + drawn)[:, None], drawn, ratio, chance)


def chosen_slopes(
    x: Array, means: Sequence[LevelTerm], y: Array, weight: Array, numbers: Mapping[int, Array]
) -> list[LevelTerm]:
    """The slopes of levels that differ significantly, the most significant first, with shrinkage for all folds."""
    slopes: list[LevelTerm] = []
    effects, left = level_effects(x, means, y, weight)
    while (term := steepest(left, means, slopes, numbers, weight)) is not None:
        slopes.append(term)
        effects, left = level_effects(x, [*means, *slopes], y, weight)
    for k, (term, values) in enumerate(zip(list(slopes), effects[len(means) :], strict=True)):
        own = term.factor[:, None] * values[term.index]
        slopes[k] = replace(term, drawn=LevelSpread.of(left + own, term, weight).drawn)
    return [term for term in slopes if term.drawn < _MOST_DRAWN]


def steepest(
    left: Array, means: Sequence[LevelTerm], slopes: Sequence[LevelTerm], numbers: Mapping[int, Array], weight: Array
) -> LevelTerm | None:
    """The slopes of levels in another number with the largest significant difference in the residuals `left`."""
    ratio, best = 0.0, None
    for mean in means:
        taken = [term.number for term in slopes if term.column == mean.column]
        for number in sorted(numbers.keys() - taken):
            term = mean.along(number, numbers[number], weight)
            spread = LevelSpread.of(left, term, weight)
            if len(taken) < MOST_SLOPES and spread.chance < CHANCE / len(numbers) and spread.ratio > ratio:
                ratio, best = spread.ratio, term
    return best


def level_effects(x: Array, terms: Sequence[LevelTerm], y: Array, weight: Array) -> tuple[list[Array], Array]:
    """The effects of levels next to a linear map of x: min |y - x b - sum of terms|^2 + drawn |coefficients|^2.

    Returns the coefficients (levels + 1, outputs) of each term, the last zero for unknown levels, and the residuals
    (rows, outputs). x has a constant column.
    """
    scale = np.sqrt(weight @ x**2 / weight.sum())
    x = x / np.where(scale > 0, scale, 1.0)
    square = x.T @ (weight[:, None] * x)
    square[np.diag_indices_from(square)] += 1e-9 * weight.sum()
    effects = [np.zeros((term.levels + 1, y.shape[1])) for term in terms]
    added = [np.zeros(y.shape) for _ in terms]
    line = np.zeros(y.shape)
    for _ in range(_ROUNDS):
        line = x @ np.linalg.solve(square, x.T @ (weight[:, None] * (y - sum(added))))
        for k, term in enumerate(terms):
            others = sum(part for j, part in enumerate(added) if j != k)
            effects[k][:-1] = LevelSpread.of(y - line - others, term, weight).coefficients
            added[k] = term.factor[:, None] * effects[k][term.index]
    return effects, y - line - sum(added)
