"""The losses of a ladder by unit, size and seed, and their seed noise.

A seed has the same batches for every unit, so the losses of one seed are correlated, and units are compared seed by
seed (`ladder_comparisons`). `ladder_laws` fits a law to the same losses.

Diverged runs, marked or with a loss that is not finite, are excluded; a unit's size with fewer than two remaining seeds
is left out and reported, and so is a unit with fewer than three remaining sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

from gatelab.arrays import Array
from gatelab.display import Compact, counted
from gatelab.errors import GatelabError, unknown_name
from gatelab.statistics import LEVEL, t_reach

SIGNIFICANT = 0.05
DRAWS = 500  # of the bootstrap
LEAST_SEEDS, LEAST_SIZES = 2, 3
NEIGHBORS = 1.2  # without a column size, numbers of parameters within this factor are one size
MOST_SHARED = 0.95  # the upper bound for the correlation of paired seeds
AT_ONCE = 250  # draws per batch


@dataclass(frozen=True, eq=False)
class LadderLosses(Compact):
    """The losses of a ladder, (units, sizes, seeds); NaN for trainings that diverged or do not exist.

    `parameters` are the numbers of parameters of each size, the geometric mean over the units, `sizes` those of each
    unit, (units, sizes), and `left_out` one sentence for each unit or size that is left out.
    """

    units: tuple[str, ...]
    parameters: Array
    sizes: Array
    losses: Array
    seeds: tuple[Any, ...]
    left_out: tuple[str, ...] = ()

    @property
    def present(self) -> NDArray[np.bool_]:
        """Whether each loss is available."""
        return np.isfinite(self.losses)

    def index(self, unit: str) -> int:
        """The index of a unit."""
        if unit not in self.units:
            raise unknown_name("unit of this ladder", unit, self.units)
        return self.units.index(unit)

    def table(self) -> pd.DataFrame:
        """One row per training that is not left out."""
        u, r, s = np.nonzero(self.present)
        units, seeds = np.array(self.units)[u], [self.seeds[i] for i in s]
        return pd.DataFrame(
            {"unit": units, "parameters": self.sizes[u, r], "seed": seeds, "loss": self.losses[u, r, s]}
        )


def read_ladder(table: pd.DataFrame | Mapping[str, Any], *, least_sizes: int = LEAST_SIZES) -> LadderLosses:
    """The losses of a table by unit, size and seed, without diverged trainings.

    Args:
        table: columns unit, parameters (without embeddings), seed and loss; diverged, true for trainings to leave out;
            size, a name that the units' numbers of parameters at one size share. Without it, parameters within a factor
            of 1.2 of the next are one size.
        least_sizes: the smallest number of sizes per unit: three for a law, one to compare units at a size.

    Returns:
        The losses, with a sentence for everything that was left out.

    >>> columns = {"unit": ["gelu"] * 6, "parameters": [1e5, 1e5, 1e6, 1e6, 1e7, 1e7], "seed": [0, 1] * 3}
    >>> read_ladder(columns | {"loss": [3.0, 3.1, 2.0, 2.1, 1.5, 1.6]}).losses.shape
    (1, 3, 2)
    """
    frame = pd.DataFrame(dict(table)).reset_index(drop=True)
    needed = ("unit", "parameters", "seed", "loss")
    missing = [name for name in needed if name not in frame]
    if missing or frame.empty:
        lacks = ", ".join(missing) or "rows"
        raise GatelabError(f"the table has no {lacks}; it needs rows of {', '.join(needed)}, one per training")
    loss, count = (np.array(pd.to_numeric(frame[name], errors="coerce"), float) for name in ("loss", "parameters"))
    wrong = frame["parameters"][~((count > 0) & (count < math.inf))].tolist()
    if wrong:
        raise GatelabError(f"column parameters holds {wrong[0]!r}; give positive numbers")
    if "diverged" in frame:
        loss = np.where(frame["diverged"].to_numpy(bool), np.nan, loss)
    place = size_places(frame, np.log(count))
    (u, units), (s, seeds) = (pd.factorize(frame[name]) for name in ("unit", "seed"))
    twice = pd.DataFrame({"unit": u, "place": place, "seed": s}).duplicated()
    if twice.any():
        unit, seed = frame.loc[twice.argmax(), ["unit", "seed"]]
        raise GatelabError(
            f"{unit} with seed {seed} appears twice at about {count[twice.argmax()]:g} parameters; give each training "
            "once, and a column size if sizes are closer than a factor of 1.2"
        )
    losses, logs = np.full((2, len(units), int(place.max()) + 1, len(seeds)), np.nan)
    losses[u, place, s], logs[u, place, s] = loss, np.log(count)
    parameters = [np.log(count[place == r]).mean() for r in range(losses.shape[1])]
    whole = LadderLosses(tuple(map(str, units)), np.exp(parameters), np.empty(0), losses, tuple(seeds.tolist()))
    return sifted(whole, logs, least_sizes)


def size_places(frame: Any, logs: Array) -> NDArray[np.intp]:
    """The index of each row's size, in the order of the logarithms of the parameters."""
    if "size" in frame:
        name = pd.factorize(frame["size"])[0]
        means = np.bincount(name, logs) / np.bincount(name)
        return means.argsort(kind="stable").argsort()[name]
    distinct = np.unique(logs)
    starts = np.concatenate(([0], np.diff(distinct) > math.log(NEIGHBORS)))
    return np.cumsum(starts).astype(np.intp)[np.searchsorted(distinct, logs)]


def sifted(ladder: LadderLosses, log_sizes: Array, least_sizes: int) -> LadderLosses:
    """The ladder without sizes of too few seeds and units of too few sizes; `log_sizes` is NaN without a training."""
    there, left_out = np.isfinite(log_sizes), []
    asked, count = there.sum(axis=2), ladder.present.sum(axis=2)
    for u, r in np.argwhere((count < asked) | ((count < LEAST_SEEDS) & (asked > 0))):
        ending = "" if count[u, r] >= LEAST_SEEDS else ", so the size is left out"
        left_out.append(
            f"{ladder.units[u]} at {ladder.parameters[r]:.3g} parameters: {count[u, r]} of {asked[u, r]} seeds can be "
            f"used{ending}"
        )
    enough = (count >= LEAST_SEEDS).sum(axis=1)
    for unit, sizes in zip(ladder.units, enough, strict=True):
        if sizes < least_sizes:
            left_out.append(f"{unit}: {counted(int(sizes), 'size')} left, so the unit is left out")
    chosen = np.flatnonzero(enough >= least_sizes)
    if not len(chosen):
        raise GatelabError(
            f"no unit has the required {counted(least_sizes, 'size')} with {LEAST_SEEDS} seeds: {'; '.join(left_out)}"
        )
    # A size without trainings gets the mean over units, as a placeholder.
    sums = np.where(there, log_sizes, 0.0).sum(axis=2) / np.maximum(asked, 1)
    sizes = np.where(asked > 0, np.exp(sums), ladder.parameters)[chosen]
    losses = np.where(count[..., None] < LEAST_SEEDS, np.nan, ladder.losses)[chosen]
    units = tuple(ladder.units[u] for u in chosen)
    return replace(ladder, units=units, sizes=sizes, losses=losses, left_out=tuple(left_out))


@dataclass(frozen=True, eq=False)
class SeedNoise:
    """The variance of losses over seeds."""

    variance: Array  # of a single loss at each size, shrunk towards that of all sizes (`shrunk_variances`)
    own_variance: Array  # of each size alone, without the effect of the seed common to all units
    freedom: Array  # the degrees of freedom of the latter: (units - 1) (seeds - 1) without missing losses
    correlation: float  # of the losses of two units over their common seeds, at all sizes together, at least 0


def seed_noise(ladder: LadderLosses) -> SeedNoise:
    """The seed noise of a ladder; sums are divided by their expected values, also with missing seeds."""
    there, n = ladder.present, ladder.present.sum(axis=2)
    off = deviations(ladder)
    squares, freedom = (off**2).sum(axis=(0, 2)), np.maximum(n - 1, 0).sum(axis=0)
    products, expected = 0.0, 0.0
    for u, v in combinations(range(len(n)), 2):
        both, first, second = (there[u] & there[v]).sum(axis=1), np.maximum(n[u], 1), np.maximum(n[v], 1)
        products += float((off[u] * off[v]).sum())
        expected += float((both * (1 - 1 / first - 1 / second + both / (first * second))).sum())
    total = float(squares.sum() / freedom.sum())
    if not total > 1e-20 * float(np.nanmean(ladder.losses)) ** 2:
        raise GatelabError("the losses of different seeds are equal, which allows no test; give several seeds")
    shared = products / max(expected, 1e-300) / total
    own = np.array([_without_seeds(off[:, r], there[:, r]) for r in range(len(squares))])
    own_freedom = np.maximum(freedom - np.maximum(there.any(axis=0).sum(axis=1) - 1, 0), 0)
    correlation = float(np.clip(shared, 0.0, MOST_SHARED))
    return SeedNoise(shrunk_variances(squares, freedom), own / np.maximum(own_freedom, 1), own_freedom, correlation)


def shrunk_variances(squares: Array, freedom: Array) -> Array:
    """Variances of groups from their sums of squares, shrunk towards a common one; equal if they do not clearly differ.

    The log of an estimated variance with f degrees of freedom has the variance trigamma(f / 2); what the groups' logs
    vary beyond that, minus twice its standard error, is the weight of a group's own variance.

    >>> shrunk_variances(np.array([1e4, 1e-4, 1.0]), np.full(3, 10)).round(6).tolist()
    [1082.382212, 1.1e-05, 0.110885]
    """
    pooled = np.full(len(squares), squares.sum() / freedom.sum())
    scattered = (freedom > 0) & (squares > 0)
    half = freedom[scattered] / 2
    if len(half) < 2:
        return pooled
    logs = np.log(squares[scattered] / freedom[scattered]) - digamma(half) + np.log(half)
    chance = np.asarray(polygamma(1, half), np.float64)
    real = float(np.var(logs, ddof=1) - chance.mean() * (1 + 2 * math.sqrt(2 / (len(logs) - 1))))
    if real <= 0:
        return pooled
    common = float(np.average(logs, weights=1 / (real + chance)))
    drawn = np.full(len(squares), common)
    drawn[scattered] += real / (real + chance) * (logs - common)
    return np.exp(drawn)


def deviations(ladder: LadderLosses) -> Array:
    """Losses minus the mean of their unit and size; 0 for missing losses."""
    n = ladder.present.sum(axis=2, keepdims=True)
    means = np.nansum(ladder.losses, axis=2, keepdims=True) / np.maximum(n, 1)
    return np.where(ladder.present, ladder.losses - means, 0.0)


def _without_seeds(off: Array, there: NDArray[np.bool_]) -> float:
    """The sum of squares at one size after removal of the effects of units and seeds."""
    u, s = np.nonzero(there)
    design = np.concatenate((np.eye(len(there))[u], np.eye(there.shape[1])[s]), axis=1)
    rest = off[u, s] - design @ np.linalg.lstsq(design, off[u, s], rcond=None)[0]
    return float(rest @ rest)


def redrawn_deviations(ladder: LadderLosses, *, draws: int, seed: int = 0) -> Iterator[Array]:
    """Bootstrap deviations of the losses, (draws, sizes, seeds, units), in batches of draws.

    The deviations of all units are resampled jointly, from all sizes and seeds, standardized by size; missing ones are
    random.
    """
    noise, there = seed_noise(ladder), ladder.present
    n = there.sum(axis=2, keepdims=True)
    off = deviations(ladder) * np.sqrt(n / np.maximum(n - 1, 1)) / np.sqrt(noise.variance)[:, None]
    chosen = there.any(axis=0)
    pool, gaps = off[:, chosen].T.copy(), ~there[:, chosen].T
    pool[gaps] = np.random.default_rng((seed, 2)).choice(off[there], size=int(gaps.sum()))
    pool /= math.sqrt(np.mean(pool**2))
    # Student's t over normal quantiles, with (seeds - 1) degrees of freedom per size.
    vectors = int(np.maximum(chosen.sum(axis=1) - 1, 0).sum())
    reach = t_reach(LEVEL, max(vectors, 1)) / t_reach(LEVEL, 1e9)
    scale = reach * np.sqrt(noise.variance)[:, None, None]
    generator = np.random.default_rng((seed, 1))
    for first in range(0, draws, AT_ONCE):
        yield pool[generator.integers(len(pool), size=(min(AT_ONCE, draws - first), *chosen.shape))] * scale
