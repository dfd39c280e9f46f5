"""Confidence intervals by bootstrap and by the t-distribution, and Holm's correction of p-values.

With fewer than two values both ends of an interval are nan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gatelab.arrays import Array
from gatelab.errors import GatelabError, real_number

LEVEL = 0.95
DRAWS = 2000


@dataclass(frozen=True)
class Interval:
    """A value and the ends of its confidence interval at `level`, which are nan if they are not known.

    >>> slope = Interval(-2.1, -2.25, -1.95)
    >>> str(slope), -2.0 in slope, slope.excludes(0.0), f"{slope:.1f}"
    ('-2.1 [-2.25, -1.95]', True, True, '-2.1 [-2.2, -1.9]')
    """

    value: float
    low: float
    high: float
    level: float = LEVEL

    @property
    def known(self) -> bool:
        """Whether neither end is nan."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    def __contains__(self, number: float) -> bool:
        return self.low <= number <= self.high

    def excludes(self, number: float) -> bool:
        """Whether the ends are known and the number lies outside."""
        return self.known and number not in self

    def ends(self, form: str = ".3g") -> str:
        """The ends as text; empty if they are not known."""
        return f"[{self.low:{form}}, {self.high:{form}}]" if self.known else ""

    def __format__(self, form: str) -> str:
        form = form or ".3g"
        return f"{self.value:{form}} {self.ends(form)}".rstrip()

    def __str__(self) -> str:
        return format(self)


def percentile_interval(value: float, drawn: Array, level: float = LEVEL) -> Interval:
    """The value with the percentile interval of its bootstrap draws.

    >>> print(percentile_interval(0.5, np.linspace(0, 1, 101), level=0.9))
    0.5 [0.05, 0.95]
    """
    if len(drawn) < 3:
        return Interval(value, math.nan, math.nan, level)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high), level)


def resampled(count: int, draws: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Row numbers of `draws` samples with replacement, each of `count` rows out of `count`: (draws, count)."""
    return generator.integers(count, size=(draws, count))


def bootstrap(
    groups: Sequence[Array], statistic: Callable[..., Array], *, paired: bool = False, draws: int = DRAWS
) -> Interval:
    """A statistic of one or several groups of rows, with its percentile interval.

    >>> a, b = np.arange(10.0), np.arange(10.0) + 1
    >>> print(bootstrap([a, b], lambda x, y: (y - x).mean(-1), paired=True))
    1 [1, 1]
    >>> bootstrap([a, b], lambda x, y: y.mean(-1) - x.mean(-1)).excludes(0)
    False
    """
    generator = np.random.default_rng(0)
    value = float(statistic(*groups))
    if min(map(len, groups)) < 2:
        return Interval(value, math.nan, math.nan)
    if paired:
        rows = resampled(len(groups[0]), draws, generator)
        drawn = statistic(*(group[rows] for group in groups))
    else:
        drawn = statistic(*(group[resampled(len(group), draws, generator)] for group in groups))
    return percentile_interval(value, drawn)


def spearman(x: Array, y: Array, axis: int = -1) -> Array:
    """Rank correlations over an axis.

    >>> float(spearman(np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.9, 0.8])))
    0.5
    """
    from scipy.stats import rankdata  # slow to import, and not needed by lists and help

    a, b = (rankdata(values, axis=axis) - (values.shape[axis] + 1) / 2 for values in (x, y))
    return (a * b).sum(axis) / np.sqrt((a * a).sum(axis) * (b * b).sum(axis))


def check_level(level: float) -> float:
    """The level of an interval, between 0 and 1."""
    return real_number("level", level, above=0, below=1)


@cache
def t_reach(level: float, freedom: float) -> float:
    """The half-width of a t-interval in standard errors."""
    from scipy.stats import t  # slow to import, and not needed by lists and help

    return float(t.ppf(0.5 + level / 2, freedom))


def t_interval(values: Array, level: float = LEVEL) -> Interval:
    """The mean of independent values with its t-interval.

    >>> print(t_interval(np.array([1.0, 2.0, 3.0])))
    2 [-0.484, 4.48]
    """
    mean, deviation, count = sample(values)
    reach = math.nan
    if count > 1:
        reach = t_reach(level, count - 1) * deviation / count**0.5
    return Interval(mean, mean - reach, mean + reach, level)


Sample = tuple[float, float, int]  # mean, standard deviation and number of independent values


def sample(values: Array) -> Sample:
    """Mean, standard deviation and number of values; the deviation of a single one is nan.

    >>> sample(np.array([1.0, 2.0, 3.0]))
    (2.0, 1.0, 3)
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return float(np.mean(values)), deviation, len(values)


def welch_difference(first: Sample, second: Sample, level: float = LEVEL) -> Interval:
    """The mean of the second sample minus that of the first, with Welch's interval; nan for single values.

    >>> print(welch_difference((2.0, 1.0, 3), (1.0, 1.0, 3)))
    -1 [-3.27, 1.27]
    """
    value = second[0] - first[0]
    samples = (first, second)
    parts = [deviation**2 / count for _, deviation, count in samples]
    if math.isnan(sum(parts)) or sum(parts) == 0:
        return Interval(value, value + sum(parts), value + sum(parts), level)
    freedom = sum(parts) ** 2 / sum(part**2 / (s[2] - 1) for part, s in zip(parts, samples, strict=True))
    reach = t_reach(level, freedom) * sum(parts) ** 0.5
    return Interval(value, value - reach, value + reach, level)


def holm(p: ArrayLike) -> Array:
    """Correct the p-values of several tests by Holm's step-down procedure.

    The probability of rejecting any true null hypothesis is at most alpha if those with a corrected p of at most alpha
    are rejected, also for dependent tests.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, dtype=float)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise GatelabError(f"p-values are a list of numbers from 0 to 1, not {values.tolist()}")
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(np.arange(len(values), 0, -1) * values[order])
    return np.minimum(stepped, 1.0)[np.argsort(order)]
