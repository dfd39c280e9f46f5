"""Which units of a ladder differ, pair by pair, and whether another score ranks them as their losses do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.display import Compact, counted, one_line
from gatelab.errors import GatelabError
from gatelab.plain import to_plain
from gatelab.scaling_laws.ladder_losses import (
    DRAWS,
    LEAST_SEEDS,
    SIGNIFICANT,
    LadderLosses,
    SeedNoise,
    redrawn_deviations,
    seed_noise,
)
from gatelab.statistics import LEVEL, Interval, holm, percentile_interval, t_interval, t_reach

if TYPE_CHECKING:
    import pandas as pd

ORDERS = 50_000  # of units, that a rank correlation is held against: all, or so many drawn ones


@dataclass(frozen=True)
class LadderComparison(Compact):
    """Two units at one size, or over all where `parameters` is None: first less second, paired by seed."""

    PROPERTIES: ClassVar[tuple[str, ...]] = ("decided",)

    first: str
    second: str
    parameters: float | None
    difference: Interval
    p: float
    p_holm: float

    plain = to_plain

    @property
    def decided(self) -> bool:
        """Whether Holm's p is at most 5 %."""
        return self.p_holm <= SIGNIFICANT


@dataclass(frozen=True)
class LadderComparisons(Compact):
    """All pairs of units, over all sizes and at each of them; Holm's correction is over each of the two families."""

    rows: tuple[LadderComparison, ...]

    plain = to_plain

    def table(self) -> pd.DataFrame:
        """A row a comparison."""
        import pandas as pd

        rows = [to_plain(row) for row in self.rows]
        return pd.DataFrame([row | row.pop("difference") for row in rows]).rename(columns={"value": "difference"})


def compare_ladder(
    ladder: LadderLosses, *, variance: Literal["pooled", "pair"] = "pooled", level: float = LEVEL
) -> LadderComparisons:
    """The differences of all pairs of units, paired by seed, with t-intervals and Holm's correction.

    Seeds are few: three leave a pair two degrees of freedom, and an interval of 4.3 standard errors. So the variance of
    a difference is by default that of all pairs of the size together, which takes every unit to scatter alike once what
    its seed does to all of them is gone: (units - 1) (seeds - 1) degrees of freedom. Over all sizes a difference is the
    mean of those at the sizes that both units have, each weighed by the inverse of its variance: seeds of one size may
    differ ten times as much as those of another, and a plain mean would be the luck of that size. With "pair" it is the
    plain mean.

    Args:
        ladder: the losses.
        variance: "pooled" as above, or "pair", which takes nothing for granted.
        level: of the intervals, each for itself.

    Returns:
        A row a pair over all sizes, then a row a pair and size.
    """
    noise, families = seed_noise(ladder), ([], [])
    for u, v in combinations(range(len(ladder.units)), 2):
        apart = ladder.losses[u] - ladder.losses[v]
        both = np.flatnonzero(np.isfinite(apart).sum(axis=1) >= LEAST_SEEDS)
        if not len(both):
            continue
        asked = [(None, both), *((float(ladder.parameters[r]), both[both == r]) for r in both)]
        for where, sizes in asked:
            if variance == "pooled":
                interval, p = _by_all_pairs(apart[sizes], sizes, noise, level)
            else:
                interval, p = _by_the_pair(apart[sizes], level)
            families[where is not None].append((ladder.units[u], ladder.units[v], where, interval, p))
    return LadderComparisons(
        tuple(
            LadderComparison(*row, float(corrected))
            for family in families
            for row, corrected in zip(family, holm([row[-1] for row in family]), strict=True)
        )
    )


def _by_all_pairs(apart: Array, sizes: NDArray[np.intp], noise: SeedNoise, level: float) -> tuple[Interval, float]:
    """The mean over sizes of a pair's differences, each by the inverse of the variance that all pairs have there.

    The weights are estimates: the variance of the mean has the factor 1 + 4 sum w (1 - w) / f, w the shares of the
    weights, and its degrees of freedom are 1 / sum(w^2 / f) (Meier 1953, "Variance of a weighted mean").
    """
    squares = np.maximum(2 * noise.own_variance[sizes] / np.isfinite(apart).sum(axis=1), 1e-300)
    freedom = np.maximum(noise.freedom[sizes], 1)
    share = (1 / squares) / np.sum(1 / squares)
    mean = float(share @ np.nanmean(apart, axis=1))
    error = math.sqrt((1 + 4 * float(np.sum(share * (1 - share) / freedom))) / float(np.sum(1 / squares)))
    total = 1 / float(np.sum(share**2 / freedom))
    reach = t_reach(level, total) * error
    return Interval(mean, mean - reach, mean + reach, level), two_sided(mean / error, total)


def _by_the_pair(apart: Array, level: float) -> tuple[Interval, float]:
    """The mean over sizes of a pair's differences by what they themselves scatter over seeds."""
    values = apart[:, np.isfinite(apart).all(axis=0)].mean(axis=0)
    if len(values) < 2:
        return Interval(float(np.nanmean(apart, axis=1).mean()), math.nan, math.nan, level), 1.0
    error = max(float(np.std(values, ddof=1)) / math.sqrt(len(values)), 1e-300)
    return t_interval(values, level), two_sided(float(values.mean()) / error, len(values) - 1)


def two_sided(t: float, freedom: float) -> float:
    """The probability of a Student's t as far from 0 as this."""
    from scipy.stats import t as student

    return float(2 * student.sf(abs(t), freedom))


@dataclass(frozen=True)
class RankAgreement:
    """Spearman's correlation of the units' mean losses with another score of theirs.

    Attributes:
        units: Those that have both.
        losses: Their mean losses over the sizes that all have.
        scores: The other score.
        correlation: With its interval over the ladder's seeds: how far the ladder's own order is certain.
        over_units: The same correlation with an interval for units drawn from many; nan where the orders agree wholly.
        p: The share of all orders of the units, or of 50 000 drawn ones, whose correlation is as far from 0.
        least: The least correlation that could have p <= 5 % with so many units; nan where none could.
    """

    PROPERTIES: ClassVar[tuple[str, ...]] = ("sentence",)

    units: tuple[str, ...]
    losses: tuple[float, ...]
    scores: tuple[float, ...]
    correlation: Interval
    over_units: Interval
    p: float
    least: float

    plain = to_plain

    @property
    def sentence(self) -> str:
        """The answer in words."""
        word, bar = "undecided", f"no correlation of {len(self.units)} units could decide it"
        if self.p <= SIGNIFICANT:
            word = "decided"
        if not math.isnan(self.least):
            bar = f"with {len(self.units)} units it takes {self.least:.2f} or more to decide"
        over_units = self.over_units.ends(".2f") or "no interval"
        rank = f"rank correlation {self.correlation:.2f} over seeds, {over_units} over units"
        return f"{rank}, p {self.p:.2g}, {word}; {bar}"

    def __repr__(self) -> str:
        return one_line(self, self.sentence)


def rank_agreement(
    losses: Mapping[str, float], drawn: Array, scores: Mapping[str, float], level: float = LEVEL
) -> RankAgreement:
    """Whether a score ranks units as their losses do: Spearman's correlation, its intervals and p by all orders."""
    from scipy.stats import permutation_test, rankdata

    values, means = np.array([scores[unit] for unit in losses], float), np.array(list(losses.values()))
    if len(values) < 3 or np.ptp(values) == 0:
        raise GatelabError(
            f"scores {values.tolist()} have no order to compare; give three units or more, not all equal"
        )
    ranks = rankdata(values) - (len(values) + 1) / 2

    def spearman(first: Array, axis: int = -1) -> Array:
        own = rankdata(first, axis=axis) - (len(values) + 1) / 2
        return (own * ranks).sum(axis=axis) / np.sqrt((own * own).sum(axis=axis) * (ranks * ranks).sum())

    value = float(spearman(means))
    tested = permutation_test(
        (means,), spearman, permutation_type="pairings", vectorized=True, n_resamples=ORDERS, random_state=0
    )
    by_chance = np.abs(tested.null_distribution).round(9)
    sizes, counts = np.unique(by_chance, return_counts=True)
    enough = sizes[np.cumsum(counts[::-1])[::-1] <= SIGNIFICANT * len(by_chance)]
    return RankAgreement(
        units=tuple(losses),
        losses=tuple(means.tolist()),
        scores=tuple(values.tolist()),
        correlation=percentile_interval(value, spearman(drawn), level),
        over_units=rank_interval(value, len(values), level),
        p=max(float(np.mean(by_chance >= round(abs(value), 9))), 1 / len(by_chance)),
        least=float(min(enough, default=math.nan)),
    )


def rank_interval(correlation: float, count: int, level: float = LEVEL) -> Interval:
    """A rank correlation of `count` pairs with its interval by Fisher's z, as Bonett and Wright (2000) scale it.

    >>> print(f"{rank_interval(0.6, 6):.2f}")
    0.60 [-0.49, 0.96]
    """
    if count < 4 or abs(correlation) > 1 - 1e-9:
        return Interval(correlation, math.nan, math.nan, level)
    reach = t_reach(level, 1e9) * math.sqrt((1 + correlation**2 / 2) / (count - 3))
    middle = math.atanh(correlation)
    return Interval(correlation, math.tanh(middle - reach), math.tanh(middle + reach), level)


def rank_units(
    ladder: LadderLosses, scores: Mapping[str, float], *, draws: int = DRAWS, level: float = LEVEL, seed: int = 0
) -> RankAgreement:
    """Whether a score ranks units as their mean losses do, over the sizes that all of them have; no law is needed.

    Sizes count by the inverse of the variance of their seeds, as in `compare_ladder`.

    Args:
        ladder: the losses.
        scores: a number for each unit, such as a condition number or a slope; at least three units need one.
        draws: of the ladder's seeds.
        level: of the intervals.
        seed: of the draws.

    Returns:
        Spearman's correlation, positive where units of larger scores have larger losses.
    """
    common = [unit for unit in ladder.units if unit in scores and math.isfinite(scores[unit])]
    if len(common) < 3:
        raise GatelabError(
            f"{counted(len(common), 'unit')} of the ladder have a score; a rank correlation needs 3 or more of "
            f"{', '.join(ladder.units)}"
        )
    places = [ladder.index(unit) for unit in common]
    sizes = np.flatnonzero(ladder.present[places].any(axis=2).all(axis=0))
    if not len(sizes):
        raise GatelabError(f"no size is common to {', '.join(common)}; leave units out")
    # The mean of the seeds that are there, at each size, and of the sizes.
    there = ladder.present[places][:, sizes]
    weight = 1 / np.maximum(seed_noise(ladder).own_variance[sizes], 1e-300)
    share = there / there.sum(axis=2, keepdims=True) * (weight / weight.sum())[:, None]
    losses = np.where(there, ladder.losses[places][:, sizes], 0.0)
    means = (share * losses).sum(axis=(1, 2))
    parts = redrawn_deviations(ladder, draws=draws, level=level, seed=seed)
    drawn = np.concatenate([np.einsum("urs,drsu->du", share, off[:, sizes][..., places]) for off in parts])
    return rank_agreement(dict(zip(common, means.tolist(), strict=True)), means + drawn, scores, level)
