"""Comparisons of a ladder's units: pairwise tests, rank correlation with another score, and equivalent sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.display import one_line
from gatelab.errors import GatelabError
from gatelab.scaling_laws.ladder_losses import (
    LEAST_SEEDS,
    SIGNIFICANT,
    LadderAxis,
    LadderLosses,
    SeedNoise,
    seed_noise,
)
from gatelab.statistics import LEVEL, Interval, holm, percentile_interval, t_interval, t_reach

if TYPE_CHECKING:
    import pandas as pd

ORDERS = 50_000  # the largest number of permutations of the units for a rank correlation
Trend = Literal["falling", "rising", "constant", "undecided"]
ALIKE = 0.1  # exponents within a tenth count as equal: k then changes by a factor of at most 1.26 per decade
_MOST_FACTOR = 1e6  # larger factors come from flat laws
NOUNS: dict[LadderAxis, str] = {"parameters": "parameters", "flops": "FLOPs", "seconds": "seconds"}


def compare_ladder(
    ladder: LadderLosses, *, variance: Literal["pooled", "pair"] = "pooled", level: float = LEVEL
) -> pd.DataFrame:
    """The differences of all pairs of units, paired by seed, with t-intervals and Holm's correction.

    Seeds are few: three leave a pair two degrees of freedom, and an interval of 4.3 standard errors. By default the
    variance of a difference is therefore pooled over all pairs of a size, with (units - 1) (seeds - 1) degrees of
    freedom; this assumes that all units have the same variance after removal of the effect of the seed. Over all sizes,
    the difference is the mean over the sizes that both units have, weighted by inverse variance, since seed variances
    can differ tenfold between sizes. With "pair" it is the unweighted mean.

    Args:
        ladder: the losses.
        variance: "pooled" as above, or "pair", which makes no such assumption.
        level: of each interval.

    Returns:
        A data frame with one row per pair over all sizes, where `parameters` is NaN, then one row per pair and size:
        the difference (first minus second) with its interval, p, p after Holm's correction in each of the two
        families, and whether that is at most 5 % (`decided`).
    """
    import pandas as pd

    noise, rows = seed_noise(ladder), []
    for u, v in combinations(range(len(ladder.units)), 2):
        apart = ladder.losses[u] - ladder.losses[v]
        both = np.flatnonzero(np.isfinite(apart).sum(axis=1) >= LEAST_SEEDS)
        if not len(both):
            continue
        asked = [(math.nan, both), *((float(ladder.parameters[r]), both[both == r]) for r in both)]
        for where, sizes in asked:
            if variance == "pooled":
                interval, p = _by_all_pairs(apart[sizes], sizes, noise, level)
            else:
                interval, p = _by_the_pair(apart[sizes], level)
            ends = (interval.value, interval.low, interval.high, level)
            rows.append((ladder.units[u], ladder.units[v], where, *ends, p))
    columns = ("first", "second", "parameters", "difference", "low", "high", "level", "p")
    table = pd.DataFrame(rows, columns=columns)
    table = table.sort_values("parameters", key=pd.Series.notna, kind="stable", ignore_index=True)
    table["p_holm"] = table.groupby(table["parameters"].notna())["p"].transform(holm)
    return table.assign(decided=table["p_holm"] <= SIGNIFICANT)


def _by_all_pairs(apart: Array, sizes: NDArray[np.intp], noise: SeedNoise, level: float) -> tuple[Interval, float]:
    """The mean over sizes of a pair's differences, weighted by the inverse pooled variance.

    Since the weights are estimates, the variance of the mean has the factor 1 + 4 sum w (1 - w) / f, w being the
    normalized weights, and 1 / sum(w^2 / f) degrees of freedom (Meier 1953, "Variance of a weighted mean").
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
    """The mean over sizes of a pair's differences, with the variance of these over seeds."""
    values = apart[:, np.isfinite(apart).all(axis=0)].mean(axis=0)
    if len(values) < 2:
        return Interval(float(np.nanmean(apart, axis=1).mean()), math.nan, math.nan, level), 1.0
    error = max(float(np.std(values, ddof=1)) / math.sqrt(len(values)), 1e-300)
    return t_interval(values, level), two_sided(float(values.mean()) / error, len(values) - 1)


def combined(values: Sequence[Interval]) -> tuple[Interval, float]:
    """The mean of values weighted by inverse squared half-widths of their intervals, and the p-value of Cochran's Q.

    A half-width counts as 1.96 standard errors. For a t-interval it is larger, which compensates for the error of the
    standard error: under homogeneity p is at most 5 % in about 5 of 100 cases.

    >>> mean, p = combined([Interval(0.0, -0.2, 0.2), Interval(0.5, 0.4, 0.6)])
    >>> print(f"{mean:.2f}, p {p:.1e}")
    0.40 [0.31, 0.49], p 1.2e-05
    """
    from scipy.stats import chi2

    center, reach = np.array([(one.value, one.high - one.value) for one in values]).T
    weight = reach**-2.0
    mean, half = float(weight @ center / weight.sum()), float(weight.sum() ** -0.5)
    q = float(np.sum((1.96 * (center - mean) / reach) ** 2))
    return Interval(mean, mean - half, mean + half), float(chi2.sf(q, max(len(center) - 1, 1)))


def independent_difference(first: Interval, second: Interval) -> Interval:
    """The difference of two independent values; its half-width is the root of the sum of squared half-widths.

    >>> print(independent_difference(Interval(1.0, 0.7, 1.3), Interval(0.5, 0.1, 0.9)))
    0.5 [0, 1]
    """
    value, half = first.value - second.value, math.hypot(first.high - first.value, second.high - second.value)
    return Interval(value, value - half, value + half)


def two_sided(t: float, freedom: float) -> float:
    """The two-sided p-value of a Student's t."""
    from scipy.stats import t as student

    return float(2 * student.sf(abs(t), freedom))


class RankAgreement(NamedTuple):
    """Spearman's correlation of the units' losses with a score.

    It has an interval over seeds, one for a random sample of units (NaN for perfect agreement), and the p-value over
    all permutations of the units, or over 50,000 random ones.
    """

    correlation: Interval
    over_units: Interval
    p: float


def rank_agreement(
    losses: Mapping[str, float], drawn: Array, scores: Mapping[str, float], level: float = LEVEL
) -> RankAgreement:
    """Spearman's correlation of scores and losses, with its intervals and the permutation p-value."""
    from scipy.stats import permutation_test, rankdata

    values, means = np.array([scores[unit] for unit in losses], float), np.array(list(losses.values()))
    if len(values) < 3 or np.ptp(values) == 0:
        raise GatelabError(f"scores {values.tolist()} cannot be ranked; give three units or more, not all equal")
    ranks = rankdata(values) - (len(values) + 1) / 2

    def spearman(first: Array, axis: int = -1) -> Array:
        own = rankdata(first, axis=axis) - (len(values) + 1) / 2
        return (own * ranks).sum(axis=axis) / np.sqrt((own * own).sum(axis=axis) * (ranks * ranks).sum())

    value = float(spearman(means))
    how = {"permutation_type": "pairings", "vectorized": True, "n_resamples": ORDERS, "random_state": 0}
    tested = permutation_test((means,), spearman, **how)  # pyright: ignore[reportArgumentType, reportCallIssue]
    by_chance = np.abs(tested.null_distribution).round(9)
    return RankAgreement(
        correlation=percentile_interval(value, spearman(drawn), level),
        over_units=rank_interval(value, len(values), level),
        p=max(float(np.mean(by_chance >= round(abs(value), 9))), 1 / len(by_chance)),
    )


def rank_interval(correlation: float, count: int, level: float = LEVEL) -> Interval:
    """A rank correlation of `count` pairs with its interval by Fisher's z, scaled as by Bonett and Wright (2000).

    >>> print(f"{rank_interval(0.6, 6):.2f}")
    0.60 [-0.49, 0.96]
    """
    if count < 4 or abs(correlation) > 1 - 1e-9:
        return Interval(correlation, math.nan, math.nan, level)
    reach = t_reach(level, 1e9) * math.sqrt((1 + correlation**2 / 2) / (count - 3))
    middle = math.atanh(correlation)
    return Interval(correlation, math.tanh(middle - reach), math.tanh(middle + reach), level)


@dataclass(frozen=True)
class Worth:
    """The factor k by which the reference must be larger to have the loss of a unit, by size.

    Attributes:
        unit: With the losses to reach.
        reference: The unit that would be enlarged.
        against: The measure of size.
        sizes: Of the unit.
        factor: k at each size, with intervals over seeds.
        extrapolated: Whether k required extrapolation of the reference, by its exponent.
        overall: The factor (A_reference / A_unit)^(1/a) of the law with one exponent.
        slope: d log k / d log size, of the line through all sizes.
    """

    unit: str
    reference: str
    against: LadderAxis
    sizes: tuple[float, ...]
    factor: tuple[Interval, ...]
    extrapolated: tuple[bool, ...]
    overall: Interval
    slope: Interval

    def __repr__(self) -> str:
        return one_line(self, self.sentence)

    @property
    def trend(self) -> Trend:
        """The change of k with size; "constant" if the interval of the slope is within 0.1 of 0."""
        if self.slope.excludes(0.0):
            return "falling" if self.slope.value < 0 else "rising"
        if self.slope.low >= -ALIKE and self.slope.high <= ALIKE:
            return "constant"
        return "undecided"

    @property
    def by_size(self) -> str:
        """The measured factors in percent, size by size."""
        pairs = zip(self.sizes, self.factor, strict=True)
        return ", ".join(f"{100 * (k.value - 1):+.0f} % {percent_ends(k)} at {size_words(size)}" for size, k in pairs)

    @property
    def sentence(self) -> str:
        """The result in words."""
        noun, trend = NOUNS[self.against], self.trend
        amount = f"{more_or_fewer(self.overall.value)} {noun} than {self.reference} {percent_ends(self.overall)}"
        if trend in ("falling", "rising"):
            text = f"{self.unit} is worth, in {noun} of {self.reference}, {self.by_size}: {trend} with size"
        elif not self.overall.excludes(1.0):
            if max(self.overall.high, 1 / self.overall.low) > 0.99 * _MOST_FACTOR:
                amount = "the curves are too flat for a number"
            text = f"whether {self.unit} is worth more or fewer {noun} than {self.reference} is undecided: {amount}"
        elif trend == "constant":
            text = f"{self.unit} is worth {amount}, at every size"
        else:
            text = f"{self.unit} is worth {amount} over all sizes; whether that changes with size is undecided"
        beyond = [size_words(size) for size, far in zip(self.sizes, self.extrapolated, strict=True) if far]
        if beyond:
            text += f" (at {', '.join(beyond)} by extrapolation of {self.reference})"
        return text

    def table(self) -> pd.DataFrame:
        """One row per size: k with its interval, and in percent."""
        import pandas as pd

        rows = [
            (size, k.value, k.low, k.high, 100 * (k.value - 1), far)
            for size, k, far in zip(self.sizes, self.factor, self.extrapolated, strict=True)
        ]
        return pd.DataFrame(rows, columns=[self.against, "factor", "low", "high", "percent", "extrapolated"])


def size_words(size: float) -> str:
    """A size to two digits, in millions from 10,000 to a billion.

    >>> size_words(401408), size_words(25690112), size_words(1.5e16), size_words(83.1)
    ('0.4M', '26M', '1.5e+16', '83')
    """
    if 1e4 <= size < 1e9:
        return f"{size / 1e6:.2g}M"
    return f"{size:.2g}"


def more_or_fewer(factor: float) -> str:
    """A factor in percent and words.

    >>> more_or_fewer(1.23), more_or_fewer(0.9)
    ('23 % more', '10 % fewer')
    """
    percent = 100 * (factor - 1)
    return f"{abs(percent):.0f} % {'more' if percent >= 0 else 'fewer'}"


def percent_ends(factor: Interval) -> str:
    """The ends of a factor's interval in percent.

    >>> percent_ends(Interval(1.23, 1.15, 1.32))
    '[15, 32]'
    """
    return Interval(*(100 * (end - 1) for end in (factor.value, factor.low, factor.high))).ends(".0f")


def log_factors(log_sizes: Array, losses: Array, curve: tuple[Array, Array], E: Array, exponent: Array) -> Array:
    """log k (rows, sizes), from the position of each loss on the reference's curve (log sizes, losses).

    The curve is piecewise linear in log(L - E) against log size, and is extrapolated with the exponent. Where it does
    not decrease, it is replaced by the mean of the running minimum and the running maximum from the right.
    """
    x, heights = curve
    falling = 0.5 * (np.minimum.accumulate(heights, axis=1) + np.maximum.accumulate(heights[:, ::-1], axis=1)[:, ::-1])
    z, wanted = (np.log(np.maximum(part - E[:, None], 1e-9)) for part in (falling, losses))
    left = np.clip((z[:, None, :] > wanted[:, :, None]).sum(axis=2) - 1, 0, len(x) - 2)
    z_left, z_right = np.take_along_axis(z, left, axis=1), np.take_along_axis(z, left + 1, axis=1)
    share = (z_left - wanted) / np.maximum(z_left - z_right, 1e-12)
    inside = x[left] + np.clip(share, 0.0, 1.0) * (x[left + 1] - x[left])
    above, below = np.maximum(wanted - z[:, :1], 0.0), np.maximum(z[:, -1:] - wanted, 0.0)
    return inside - above / exponent[:, None] + below / exponent[:, None] - log_sizes


def factor_interval(log_factor: float, drawn: Array, level: float = LEVEL) -> Interval:
    """A factor with a percentile interval of its draws, all given as logarithms.

    Factors are clipped to [1e-6, 1e6]. A NaN draw widens the interval at both ends.

    >>> print(factor_interval(0.0, np.log([0.5, 1.0, 2.0, 4.0]), level=0.5))
    1 [0.875, 2.5]
    >>> print(factor_interval(0.0, np.array([0.0, np.nan, np.nan, 900.0])))
    1 [1e-06, 1e+06]
    """
    most = math.log(_MOST_FACTOR)

    def factors(worst: float) -> Array:
        return np.exp(np.clip(np.where(np.isnan(drawn), worst, drawn), -most, most))

    value = float(np.exp(np.clip(log_factor, -most, most)))
    low, high = (percentile_interval(value, factors(worst), level) for worst in (-most, most))
    return replace(low, high=high.high)
