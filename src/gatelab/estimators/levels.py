"""What levels of a column add to a linear map of the others: means and slopes, drawn towards zero where rows are few.

How far is by the spread of levels beside that of rows. A number in which slopes differ between levels more than chance
would have it, by the F-test of a common slope, gives each level a slope as well, about the mean of the number in the
level. Whole numbers are names where neighbours differ by more than chance would have it, at least half as much as any
two values do: what is smooth in a number, as most things are in an age or a size, is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from gatelab.arrays import Array

# Numbers in which a column's levels have slopes, at most; how often levels of one slope would be given others, at most.
MOST_SLOPES, CHANCE = 2, 1e-3
# Rounds in which the linear map and the levels are fitted in turn; rows that zero counts for, beside those of a level.
_ROUNDS, _FEWEST_DRAWN, _MOST_DRAWN = 10, 0.1, 1e4


def neighbours_alike(numbers: Array, left: Array, weight: Array) -> float:
    """How often rows of neighbouring numbers, were they alike, would differ as much as these do: the F-test of pairs.

    It is 1 as well where neighbours differ by less than half of what any two values do.
    """
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
    """What levels add to rows: a coefficient of each level times a factor of the row, which is one for means.

    The levels are those of a `column` of the table, `index` has that of each row, one beyond the last where it is not
    known, and zero counts for `drawn` rows, 0 where the spread of levels is to say it. For slopes the factor is the
    column `number` less its mean in the level, of which `centres` are (last zero), in units of its deviation, `unit`.
    """

    column: int
    levels: int
    index: NDArray[np.intp]
    factor: Array
    number: int | None = None
    centres: Array = field(default_factory=lambda: np.zeros(1))
    unit: float = 1.0
    drawn: float = 0.0

    def sums(self, values: Array) -> Array:
        sums = [np.bincount(self.index, column, minlength=self.levels)[: self.levels] for column in values.T]
        return np.stack(sums, axis=1).astype(np.float64, copy=False)

    def along(self, number: int, values: Array, weight: Array) -> LevelTerm:
        """The term of these levels' slopes in a number with these values."""
        rows, sums = self.sums(np.stack([weight, weight * values], axis=1)).T
        centres = np.append(sums / np.where(rows > 0, rows, 1.0), 0.0)
        factor = np.where(self.index < self.levels, values - centres[self.index], 0.0)
        factor[np.abs(factor) < 1e-12 * np.abs(values).max()] = 0.0  # the rounding of a number that is the same
        unit = float(np.sqrt(weight @ factor**2 / weight.sum())) or 1.0
        return replace(self, factor=factor / unit, number=number, centres=centres, unit=unit)


@dataclass(frozen=True)
class LevelSpread:
    """How the coefficients of levels differ, beside how rows do.

    `rows` and `sums` are those of squared factors and of factor times value in each level, `within` the variance of
    rows about their level, `square` the weighted sum of squares of coefficients (of slopes about a common one), `free`
    and `left` the degrees of freedom of levels and rows, `given` how many rows zero counts for, 0 if that is open.
    """

    rows: Array
    sums: Array
    within: float
    square: float
    free: float
    left: float
    total: float
    given: float

    @classmethod
    def of(cls, values: Array, term: LevelTerm, weight: Array) -> LevelSpread:
        """The spread of values (rows, outputs) that levels have by this term; rows of none tell nothing of it."""
        weight = np.where(term.index < term.levels, weight, 0.0)
        index = np.minimum(term.index, term.levels - 1)
        rows = term.sums((weight * term.factor**2)[:, None])[:, 0]
        sums = term.sums((weight * term.factor)[:, None] * values)
        told = rows > 1e-9 * rows.max()  # in the other levels there are no rows, or their number is the same in all
        means = np.where(told[:, None], sums, 0.0) / np.where(told, rows, 1.0)[:, None]
        common, left = np.zeros(values.shape[1]), weight.sum() - np.count_nonzero(told)
        if term.number is not None:
            counts = term.sums(weight[:, None])
            values = values - (term.sums(weight[:, None] * values) / np.where(counts > 0, counts, 1.0))[index]
            common, left = sums.sum(0) / max(rows.sum(), 1e-300), left - np.count_nonzero(counts)
        within = float(weight @ np.square(values - term.factor[:, None] * means[index]).sum(1)) / max(left, 1.0)
        square = float(rows @ np.square(means - common).sum(1))
        return cls(rows, sums, within, square, np.count_nonzero(told) - 1.0, left, total=weight.sum(), given=term.drawn)

    @property
    def ratio(self) -> float:
        """How many times as much coefficients of levels differ as they would by chance: F."""
        return self.square / max(self.within * self.free, 1e-300)

    @property
    def chance(self) -> float:
        """How often levels that are alike would differ as much, were rows normal; 1 where it cannot be told."""
        if self.free < 1 or self.left < 1:
            return 1.0
        return float(fdtrc(self.free, self.left, self.ratio))

    @property
    def drawn(self) -> float:
        """How many rows zero counts for, beside those of a level."""
        if self.given > 0:
            return self.given
        spread = self.total - (self.rows @ self.rows) / self.total
        between = self.square - self.within * self.free
        if between > 0:
            return float(np.clip(self.within * spread / between, _FEWEST_DRAWN, _MOST_DRAWN))
        return _MOST_DRAWN

    def coefficients(self) -> Array:
        """Those of each level (levels, outputs), drawn to zero by their spread beside that of rows: Henderson's way."""
        return self.sums / (self.rows + self.drawn)[:, None]


def chosen_slopes(
    x: Array, means: Sequence[LevelTerm], y: Array, weight: Array, numbers: Mapping[int, Array]
) -> list[LevelTerm]:
    """The slopes of levels that differ beyond chance, the one that does most first, and how far each is drawn.

    How far is said here, for all parts of the rows: a part alone may find slopes all alike, and a column that hardly
    varies in training would be far out of its range later.
    """
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
    """The slopes of levels, in a number without any yet, that differ most beyond chance in what is `left` of y."""
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
    """What levels add to a linear map of x, a constant in it: min |y - x b - sum of terms|^2 + drawn |coefficients|^2.

    The coefficients (levels + 1, outputs) of each term, the last of them zero, for a level that is not known; and what
    is left of the targets (rows, outputs).
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
            effects[k][:-1] = LevelSpread.of(y - line - others, term, weight).coefficients()
            added[k] = term.factor[:, None] * effects[k][term.index]
    return effects, y - line - sum(added)
