"""Tests of whether two groups of runs differ: by energy distance of their points, and by gap at equal training loss.

The energy distance of two clouds of points (Szekely and Rizzo),

    E(X, Y) = 2 E|X - Y| - E|X - X'| - E|Y - Y'|

is 0 for equal distributions and positive otherwise. The points of one run are dependent, so labels are permuted between
runs, not between points; a test that permutes points is included because the paper probably uses it. At equal training
loss, runs are compared by their mean gap over the losses that all of them pass through.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from scipy.stats import norm

from gatelab.arrays import Array
from gatelab.display import Compact
from gatelab.errors import GatelabError, check_seed
from gatelab.statistics import LEVEL, Interval, resampled, t_reach

LEVELS = 200  # training losses at which gaps are compared


@dataclass(frozen=True)
class PermutationTest(Compact):
    """The energy distance of two groups, and its p-value under random labels.

    `p` is the share of the `arrangements` of labels (all of them if `exact`) with at least this `distance`, `least_p`
    its smallest possible value, and `coefficient` E / (2 E|X - Y|), between 0 for equal distributions and 1.
    """

    distance: float
    coefficient: float
    p: float
    least_p: float
    arrangements: int
    exact: bool

    def __str__(self) -> str:
        least = " (the smallest possible)" if self.p <= self.least_p else ""
        return f"energy distance {self.distance:.3g}, p = {self.p:.3g}{least}"


def permutation_test(
    a: Sequence[ArrayLike],
    b: Sequence[ArrayLike],
    *,
    exchange: Literal["runs", "points"] = "runs",
    permutations: int = 9999,
    scale: bool = True,
    seed: int = 0,
) -> PermutationTest:
    """Test whether the runs of `a` and of `b`, each an array of points, have the same distribution.

    3 runs against 3 have no p below 0.1, 4 against 4 none below 2/70, 5 against 5 none below 2/252.

    Args:
        a: the runs of the first group, (points, coordinates) each.
        b: those of the second.
        exchange: "runs" permutes the labels of whole runs; "points" those of points, which are not independent.
        permutations: the largest number of arrangements; if there are more, a random sample of this size is used.
        scale: divide each coordinate by its standard deviation over all points.
        seed: of the sample of arrangements.

    Returns:
        The distance with its p-value.

    >>> far = permutation_test([[0, 1], [0, 2], [1, 1], [1, 2]], [[7, 9], [8, 9], [9, 7], [8, 8]])
    >>> round(far.p, 4), far.arrangements
    (0.0286, 70)
    """
    if exchange not in ("runs", "points"):
        raise GatelabError(f"exchange is {exchange!r}; give 'runs' or 'points'")
    runs, first = [rows_of_points(r) for r in (*a, *b)], len(a)
    if exchange == "points":
        first = sum(len(r) for r in runs[: len(a)])
        runs = [point[None] for r in runs for point in r]
    if not 0 < first < len(runs):
        raise GatelabError(f"there are {len(a)} and {len(b)} runs; give one of each at least")
    between, counts = summed_distances(runs, scale)
    masks, exact = arrangements(len(runs), first, permutations, check_seed(seed))
    observed = np.zeros((1, len(runs)), bool)
    observed[0, :first] = True
    (distance,), (cross,) = arranged_distances(observed, between, counts)
    distances, _ = arranged_distances(masks, between, counts)
    # Sums in another order differ by rounding; the observed arrangement must count as one.
    as_far = int((distances >= distance - 1e-12 * max(1.0, cross)).sum())
    p, least = shares(as_far, len(masks), exact, mirrored=2 * first == len(runs))
    coefficient = distance / (2 * cross) if cross else 0.0
    return PermutationTest(float(distance), float(coefficient), p, least, len(masks), exact)


def shares(as_far: int, count: int, exact: bool, mirrored: bool) -> tuple[float, float]:
    """p and its smallest possible value, if `as_far` of `count` arrangements have at least the observed distance."""
    if exact:
        return as_far / count, (1 + mirrored) / count
    return (as_far + 1) / (count + 1), 1 / (count + 1)


def summed_distances(runs: Sequence[Array], scale: bool) -> tuple[Array, Array]:
    """Sums of the distances between the points of any two runs, and the number of points per run."""
    widths = {r.shape[1] for r in runs}
    if len(widths) > 1:
        raise GatelabError(f"the points have {sorted(widths)} coordinates; give all the same number")
    points, counts = np.concatenate(runs), np.array([len(r) for r in runs])
    if scale:
        spread = points.std(0)
        points = points / np.where(spread > 0, spread, 1.0)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    distances = cdist(points, points)
    return np.add.reduceat(np.add.reduceat(distances, starts, 0), starts, 1), counts.astype(float)


def arranged_distances(masks: NDArray[np.bool_], between: Array, counts: Array) -> tuple[Array, Array]:
    """The energy distance of each arrangement, and E|X - Y|; a mask says which runs are in the first group."""
    x = masks.astype(float)
    y = 1 - x
    n_x, n_y = x @ counts, y @ counts
    xb = x @ between
    cross = (xb * y).sum(1) / (n_x * n_y)
    within_x = (xb * x).sum(1) / n_x**2
    within_y = ((y @ between) * y).sum(1) / n_y**2
    return 2 * cross - within_x - within_y, cross


@lru_cache(maxsize=16)  # tests of many pairs of groups use the same ones
def arrangements(count: int, first: int, permutations: int, seed: int) -> tuple[NDArray[np.bool_], bool]:
    """Masks of the runs in the first group: every choice, or a random sample of this size."""
    if (every := math.comb(count, first)) <= permutations:
        masks = np.zeros((every, count), bool)
        masks[np.arange(every)[:, None], list(combinations(range(count), first))] = True
        return masks, True
    keys = np.random.default_rng(seed).random((permutations, count))
    return keys.argsort(1).argsort(1) < first, False


def rows_of_points(values: ArrayLike) -> Array:
    """Points as an array (n, k); numbers are points with one coordinate."""
    points = np.asarray(values, float)
    if points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2 or not points.size:
        raise GatelabError(f"the points have the shape {np.shape(values)}; give rows of points, one or more")
    if not np.isfinite(points).all():
        raise GatelabError("some coordinates are not finite; leave out runs that diverged")
    return points


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Matched(Interval):
    """Mean gap of the second group minus that of the first, at training losses from `low_loss` to `high_loss`.

    `value` is the difference in nats, with a bootstrap interval over runs; `relative` is over the first group's mean
    gap, `standardized` over the deviation between runs. `p` is from permutations of whole runs, `least_p` its smallest
    possible value. `first` and `second` are the runs' mean gaps.
    """

    relative: float
    standardized: float
    p: float
    least_p: float
    low_loss: float
    high_loss: float
    first: Array
    second: Array

    def __str__(self) -> str:
        return f"{self:+.3f} nats ({self.relative:+.0%}), p = {self.p:.3g}"


def matched_gap(a: Sequence[ArrayLike], b: Sequence[ArrayLike], *, draws: int = 4000, seed: int = 0) -> Matched:
    """Compare runs of points (training loss, gap) at equal training loss.

    Args:
        a: the runs of the first group, one or more, (points, 2) each.
        b: those of the second.
        draws: of the bootstrap.
        seed: of the draws.

    Returns:
        The difference of the mean gaps with its interval and p.

    >>> losses = np.linspace(2, 0.5, 16)
    >>> def run(extra):
    ...     return np.stack([losses, 2 - losses + extra], 1)
    >>> matched = matched_gap([run(0.0), run(0.02), run(-0.02)], [run(0.1), run(0.13), run(0.07)])
    >>> round(matched.value, 3), round(matched.p, 2)
    (0.1, 0.1)
    """
    curves = [[falling_curve(run) for run in group] for group in (a, b)]
    if not all(curves):
        raise GatelabError(f"there are {len(a)} and {len(b)} runs; give one of each at least")
    everyone = [*curves[0], *curves[1]]
    low, high = max(c[0, 0] for c in everyone), min(c[-1, 0] for c in everyone)
    if not low < high:
        raise GatelabError(f"the runs have no training losses in common ({low:.3g} to {high:.3g}); train longer")
    levels = np.linspace(low, high, LEVELS)
    first, second = (np.array([np.interp(levels, c[:, 0], c[:, 1]).mean() for c in group]) for group in curves)
    interval = widened_bootstrap(first, second, draws, seed)
    p, least = exchanged_means(first, second)
    squares = first.var() * len(first) + second.var() * len(second)
    deviation = math.sqrt(squares / ((len(first) + len(second) - 2) or math.nan))  # within groups
    relative, standardized = (interval.value / (size or math.nan) for size in (float(first.mean()), deviation))
    return Matched(
        *astuple(interval), relative=relative, standardized=standardized, p=p, least_p=least, low_loss=float(low),
        high_loss=float(high), first=first, second=second,
    )  # fmt: skip


def falling_curve(points: ArrayLike) -> Array:
    """The points at which the training loss reached a new minimum, sorted by training loss."""
    run = np.asarray(points, float)
    if run.ndim != 2 or run.shape[1] != 2 or not len(run) or not np.isfinite(run).all():
        raise GatelabError(f"a run is points (training loss, gap), finite, not an array of shape {run.shape}")
    before = np.concatenate([[np.inf], np.minimum.accumulate(run[:, 0])[:-1]])
    return run[run[:, 0] < before][::-1]


def widened_bootstrap(first: Array, second: Array, draws: int, seed: int) -> Interval:
    """The difference of two means with a percentile interval over resampled runs; NaN for fewer than two runs.

    Its percentiles are moved outwards as if t quantiles replaced normal ones and n - 1 replaced n (Hesterberg 2015).
    """
    difference = float(second.mean() - first.mean())
    n = min(len(first), len(second))
    if n < 2:
        return Interval(difference, np.nan, np.nan)
    generator = np.random.default_rng(check_seed(seed))
    drawn = [group[resampled(len(group), draws, generator)].mean(1) for group in (first, second)]
    reach = t_reach(LEVEL, n - 1) * (n / (n - 1)) ** 0.5
    tail = float(norm.cdf(-reach))
    low, high = np.quantile(drawn[1] - drawn[0], [tail, 1 - tail])
    return Interval(difference, float(low), float(high))


def exchanged_means(first: Array, second: Array) -> tuple[float, float]:
    """The p-value of the difference of means under permuted labels, and its smallest possible value."""
    values = np.concatenate([first, second])
    masks, exact = arrangements(len(values), len(first), 9999, 0)
    share = masks.astype(float)
    means = (share @ values) / len(first) - ((1 - share) @ values) / len(second)
    observed = abs(first.mean() - second.mean())
    count = int((np.abs(means) >= observed - 1e-12 * max(1.0, float(np.abs(values).max()))).sum())
    return shares(count, len(masks), exact, mirrored=len(first) == len(second))
