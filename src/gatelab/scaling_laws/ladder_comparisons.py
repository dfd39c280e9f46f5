"""Comparisons of a ladder's units: pairwise tests, and the rank correlation with another score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from gatelab.arrays import Array
from gatelab.errors import GatelabError
from gatelab.scaling_laws.ladder_losses import LEAST_SEEDS, SIGNIFICANT, LadderLosses, SeedNoise, seed_noise
from gatelab.statistics import LEVEL, Interval, holm, percentile_interval, spearman, t_reach

ORDERS = 50_000  # the largest number of permutations of the units for a rank correlation


def compare_ladder(ladder: LadderLosses) -> pd.DataFrame:
    """The differences of all pairs of units, paired by seed, with t-intervals and Holm's correction.

    Since seeds are few, the variance of a difference is pooled over all pairs of a size, with (units - 1) (seeds - 1)
    degrees of freedom: units are assumed to have the same variance without the effect of the seed. Over all sizes, the
    difference is the mean over the sizes that both units have, weighted by inverse variance.

    Args:
        ladder: the losses.

    Returns:
        A data frame with one row per pair over all sizes, where `parameters` is NaN, then one row per pair and size:
        the difference (first minus second) with its interval, p, p after Holm's correction in each of the two
        families, and whether that is at most 5 % (`decided`).
    """
    noise, rows = seed_noise(ladder), []
    for u, v in combinations(range(len(ladder.units)), 2):
        apart = ladder.losses[u] - ladder.losses[v]
        both = np.flatnonzero(np.isfinite(apart).sum(axis=1) >= LEAST_SEEDS)
        if not len(both):
            continue
        asked = [(math.nan, both), *((float(ladder.parameters[r]), both[both == r]) for r in both)]
        for where, sizes in asked:
            rows.append((ladder.units[u], ladder.units[v], where, *_mean_difference(apart[sizes], sizes, noise)))
    columns = ("first", "second", "parameters", "difference", "low", "high", "p")
    table = pd.DataFrame(rows, columns=columns)
    table = table.sort_values("parameters", key=pd.Series.notna, kind="stable", ignore_index=True)
    table["p_holm"] = table.groupby(table["parameters"].notna())["p"].transform(holm)
    return table.assign(decided=table["p_holm"] <= SIGNIFICANT)


def _mean_difference(apart: Array, sizes: NDArray[np.intp], noise: SeedNoise) -> tuple[float, float, float, float]:
    """The mean over sizes of a pair's differences, weighted by the inverse pooled variance, with its interval and p.

    Since the weights are estimates, the variance of the mean has the factor 1 + 4 sum w (1 - w) / f, w being the
    normalized weights, and 1 / sum(w^2 / f) degrees of freedom (Meier 1953, "Variance of a weighted mean").
    """
    squares = np.maximum(2 * noise.own_variance[sizes] / np.isfinite(apart).sum(axis=1), 1e-300)
    freedom = np.maximum(noise.freedom[sizes], 1)
    share = (1 / squares) / np.sum(1 / squares)
    mean = float(share @ np.nanmean(apart, axis=1))
    error = math.sqrt((1 + 4 * float(np.sum(share * (1 - share) / freedom))) / float(np.sum(1 / squares)))
    total = 1 / float(np.sum(share**2 / freedom))
    reach = t_reach(LEVEL, total) * error
    return mean, mean - reach, mean + reach, float(2 * stats.t.sf(abs(mean / error), total))


class RankAgreement(NamedTuple):
    """Spearman's correlation of losses with a score: intervals over seeds and units, and p by permutations of units."""

    correlation: Interval
    over_units: Interval
    p: float


def rank_agreement(losses: Mapping[str, float], drawn: Array, scores: Mapping[str, float]) -> RankAgreement:
    """Spearman's correlation of scores and losses, with its intervals and the permutation p-value."""
    values, means = np.array([scores[unit] for unit in losses], float), np.array(list(losses.values()))
    if len(values) < 3 or np.ptp(values) == 0:
        raise GatelabError(f"scores {values.tolist()} cannot be ranked; give three units or more, not all equal")
    with_scores = partial(spearman, values)
    value = float(with_scores(means))
    how = {"permutation_type": "pairings", "vectorized": True, "n_resamples": ORDERS, "random_state": 0}
    tested = stats.permutation_test((means,), with_scores, **how)  # pyright: ignore[reportArgumentType, reportCallIssue]
    by_chance = np.abs(tested.null_distribution).round(9)
    p = max(float(np.mean(by_chance >= round(abs(value), 9))), 1 / len(by_chance))
    return RankAgreement(percentile_interval(value, with_scores(drawn)), rank_interval(value, len(values)), p)


def rank_interval(correlation: float, count: int) -> Interval:
    """A rank correlation of `count` pairs with its interval by Fisher's z, scaled as by Bonett and Wright (2000).

    >>> print(f"{rank_interval(0.6, 6):.2f}")
    0.60 [-0.49, 0.96]
    """
    if count < 4 or abs(correlation) > 1 - 1e-9:
        return Interval(correlation, math.nan, math.nan)
    reach = t_reach(LEVEL, 1e9) * math.sqrt((1 + correlation**2 / 2) / (count - 3))
    middle = math.atanh(correlation)
    return Interval(correlation, math.tanh(middle - reach), math.tanh(middle + reach))
