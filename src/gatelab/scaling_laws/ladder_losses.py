"""The losses of a ladder, units x sizes x seeds of one model: what seeds do to them, and which units differ.

A seed has the same batches for every unit. So the losses of one seed rise and fall together, and differences of units
are taken seed by seed. `ladder_laws` fits laws to the same losses.

**Diverged rows** never enter: those that are marked, and those whose loss is no finite number. A unit's size with fewer
than two seeds left is left out and named, and so is a unit with fewer than three sizes left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.display import counted, one_line
from gatelab.errors import GatelabError, unknown_name
from gatelab.statistics import LEVEL, Interval, holm, percentile_interval, t_interval, t_reach

if TYPE_CHECKING:
    import pandas as pd

LadderAxis = Literal["parameters", "flops", "seconds"]
SIGNIFICANT = 0.05
LEAST_SEEDS, LEAST_SIZES = 2, 3
NEIGHBOURS = 1.2  # numbers of parameters within this factor are the same rung where no column says which
MOST_SHARED = 0.95  # the largest correlation of paired seeds that is allowed for
ALL_ORDERS = 9  # units whose orders are all listed; of more, so many are drawn as nine units have


class PlainResult:
    """A frozen dataclass that tells itself, and the properties it names, in JSON's types."""

    TOLD: ClassVar[tuple[str, ...]] = ()

    def plain(self) -> dict[str, Any]:
        """All of it in JSON's types: arrays as lists, what is not finite as null."""
        return plain_values(self)


def plain_values(value: Any) -> Any:
    """A value in JSON's types: dataclasses as objects, arrays as lists, what is not finite as null.

    >>> plain_values({"k": Interval(1.2, 1.1, float("nan"))})
    {'k': {'value': 1.2, 'low': 1.1, 'high': None, 'level': 0.95}}
    """
    if isinstance(value, Mapping):
        return {str(name): plain_values(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain_values(value.tolist())
    if isinstance(value, tuple | list):
        return [plain_values(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Interval | PlainResult):
        names = [part.name for part in fields(value) if part.repr]  # pyright: ignore[reportArgumentType]
        return {name: plain_values(getattr(value, name)) for name in (*names, *getattr(value, "TOLD", ()))}
    return value


@dataclass(frozen=True, eq=False)
class LadderLosses(PlainResult):
    """The losses of a ladder by unit, rung and seed; nan where a run diverged or was not made.

    Attributes:
        units: Their names, in the order of the table.
        parameters: The number of parameters of each rung, the geometric mean over the units.
        sizes: (units, rungs), what laws are in: parameters, FLOPs or seconds.
        losses: (units, rungs, seeds).
        seeds: Their names.
        against: Which column the sizes are.
        left_out: What is missing and why, a sentence each.
    """

    units: tuple[str, ...]
    parameters: Array
    sizes: Array
    losses: Array
    seeds: tuple[Any, ...]
    against: LadderAxis = "parameters"
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        size = f"{len(self.units)} units x {len(self.parameters)} sizes x {counted(len(self.seeds), 'seed')}"
        return one_line(self, f"{size}, {len(self.left_out)} left out: {', '.join(self.units)}")

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which losses are there."""
        return np.isfinite(self.losses)

    def index(self, unit: str) -> int:
        """The place of a unit."""
        if unit not in self.units:
            raise unknown_name("unit of this ladder", unit, self.units)
        return self.units.index(unit)

    def table(self) -> pd.DataFrame:
        """A row a run that takes part."""
        import pandas as pd

        u, r, s = np.nonzero(self.present)
        columns = {
            "unit": np.array(self.units)[u],
            "parameters": self.parameters[r],
            "seed": [self.seeds[i] for i in s],
            "loss": self.losses[u, r, s],
        }
        return pd.DataFrame(columns | {self.against: self.sizes[u, r]})


def read_ladder(
    table: pd.DataFrame | Mapping[str, Any], *, against: LadderAxis = "parameters", least_sizes: int = LEAST_SIZES
) -> LadderLosses:
    """The losses of a table, by unit, rung and seed, and what the rules of this module leave out.

    Args:
        table: columns unit, parameters (without embeddings), seed and loss; flops and seconds where laws are to be in
            them; diverged, true for runs that are to be left out; rung, which sizes of different units belong together.
            Without it, parameters within a factor of 1.2 of the next are one rung.
        against: the column that laws are in. What differs by seed, such as seconds, is averaged geometrically.
        least_sizes: how many sizes a unit needs: three for a law; one is enough to compare units at a size.

    Returns:
        The losses, with a sentence for everything that is missing.

    >>> columns = {"unit": ["gelu"] * 6, "parameters": [1e5, 1e5, 1e6, 1e6, 1e7, 1e7], "seed": [0, 1] * 3}
    >>> read_ladder(columns | {"loss": [3.0, 3.1, 2.0, 2.1, 1.5, 1.6]})
    LadderLosses(1 units x 3 sizes x 2 seeds, 0 left out: gelu)
    """
    import pandas as pd

    frame = pd.DataFrame(dict(table)).reset_index(drop=True)
    needed = list(dict.fromkeys(("unit", "parameters", "seed", "loss", against)))
    missing = [name for name in needed if name not in frame]
    if missing or frame.empty:
        lacks = f"no column {', '.join(missing)}" if missing else "no rows"
        raise GatelabError(f"the table has {lacks}; it needs {', '.join(needed)}, a row a run")
    for name in dict.fromkeys(("parameters", against)):
        column = numbers_of(frame, name)
        wrong = [value for value, x in zip(frame[name].tolist(), column, strict=True) if not (0 < x < math.inf)]
        if wrong:
            raise GatelabError(f"column {name} holds {wrong[0]!r}; give positive numbers")
    loss, size, count = (numbers_of(frame, name) for name in ("loss", against, "parameters"))
    if "diverged" in frame:
        loss = np.where(frame["diverged"].to_numpy(bool), np.nan, loss)
    rung, names = rung_of(frame), frame["unit"].astype(str)
    units, seeds = list(dict.fromkeys(names)), list(dict.fromkeys(frame["seed"]))
    losses = np.full((len(units), int(rung.max()) + 1, len(seeds)), np.nan)
    logs = np.full_like(losses, np.nan)
    for i, (unit, seed) in enumerate(zip(names, frame["seed"], strict=True)):
        place = units.index(unit), rung[i], seeds.index(seed)
        if np.isfinite(logs[place]):
            raise GatelabError(
                f"{unit} with seed {seed} is there twice at about {count[i]:g} parameters; give each run "
                "once, and a column rung where sizes lie closer than a factor of 1.2"
            )
        logs[place], losses[place] = math.log(size[i]), loss[i]
    parameters = [np.log(count[rung == r]).mean() for r in range(losses.shape[1])]
    whole = LadderLosses(tuple(units), np.exp(parameters), np.empty(0), losses, tuple(seeds), against)
    return sifted(whole, logs, least_sizes)


def numbers_of(frame: pd.DataFrame, name: str) -> Array:
    """A column as numbers, nan where it holds something else."""
    import pandas as pd

    return np.array(pd.to_numeric(frame[name], errors="coerce"), np.float64)


def rung_of(frame: pd.DataFrame) -> NDArray[np.intp]:
    """The rung of every row, from 0 in the order of the parameters."""
    logs = np.log(numbers_of(frame, "parameters"))
    if "rung" in frame:
        names = frame["rung"].tolist()
        means = {name: logs[[other == name for other in names]].mean() for name in dict.fromkeys(names)}
        order = sorted(means, key=lambda name: means[name])
        return np.array([order.index(name) for name in names], dtype=np.intp)
    distinct = np.unique(logs)
    starts = np.concatenate(([0], np.diff(distinct) > math.log(NEIGHBOURS)))
    return np.cumsum(starts).astype(np.intp)[np.searchsorted(distinct, logs)]


def sifted(ladder: LadderLosses, log_sizes: Array, least_sizes: int) -> LadderLosses:
    """The ladder without cells of too few seeds and units of too few sizes; `log_sizes` are nan where no run was."""
    there, left_out = np.isfinite(log_sizes), []
    asked, count = there.sum(axis=2), ladder.present.sum(axis=2)
    for u, r in np.argwhere((count < asked) | ((count < LEAST_SEEDS) & (asked > 0))):
        ending = "" if count[u, r] >= LEAST_SEEDS else ", so that the size is left out"
        left_out.append(
            f"{ladder.units[u]} at {ladder.parameters[r]:.3g} parameters: {count[u, r]} of {asked[u, r]} seeds can be "
            f"used{ending}"
        )
    enough = (count >= LEAST_SEEDS).sum(axis=1)
    for unit, sizes in zip(ladder.units, enough, strict=True):
        if sizes < least_sizes:
            left_out.append(f"{unit}: {counted(int(sizes), 'size')} left, so that the unit is left out")
    chosen = np.flatnonzero(enough >= least_sizes)
    if not len(chosen):
        raise GatelabError(
            f"no unit has {counted(least_sizes, 'size')} with {LEAST_SEEDS} seeds each, which is needed here: "
            f"{'; '.join(left_out)}"
        )
    # A size that no run has is that of its rung, so that arrays are whole; no loss stands beside it.
    sums = np.where(there, log_sizes, 0.0).sum(axis=2) / np.maximum(asked, 1)
    return LadderLosses(
        units=tuple(ladder.units[u] for u in chosen),
        parameters=ladder.parameters,
        sizes=np.where(asked > 0, np.exp(sums), ladder.parameters)[chosen],
        losses=np.where(count[..., None] < LEAST_SEEDS, np.nan, ladder.losses)[chosen],
        seeds=ladder.seeds,
        against=ladder.against,
        left_out=tuple(left_out),
    )


@dataclass(frozen=True, eq=False)
class SeedNoise:
    """What seeds do to losses.

    Attributes:
        variance: Of a single loss at each rung, drawn towards that of all rungs as far as rungs scatter alike
            (`drawn_together`).
        own_variance: Of each rung by itself, without what all units of a seed share.
        freedom: The degrees of freedom of `own_variance`: (units - 1) (seeds - 1) where nothing is missing.
        correlation: Of the losses of two units over their common seeds, that of all rungs together, at least 0.
    """

    variance: Array
    own_variance: Array
    freedom: Array
    correlation: float


def seed_noise(ladder: LadderLosses) -> SeedNoise:
    """What seeds do to the losses of a ladder; sums are divided by what is expected of them where seeds are missing."""
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
        raise GatelabError("the losses of different seeds are equal, so that nothing says what a difference is worth")
    shared = products / max(expected, 1e-300) / total
    own = np.array([_without_seeds(off[:, r], there[:, r]) for r in range(len(squares))])
    own_freedom = np.maximum(freedom - np.maximum(there.any(axis=0).sum(axis=1) - 1, 0), 0)
    return SeedNoise(
        variance=drawn_together(squares, freedom),
        own_variance=own / np.maximum(own_freedom, 1),
        freedom=own_freedom,
        correlation=float(np.clip(shared, 0.0, MOST_SHARED)),
    )


def drawn_together(squares: Array, freedom: Array) -> Array:
    """Variances of several groups: one for all, unless they certainly differ; then each drawn towards that of all.

    The logarithm of a variance of f degrees of freedom scatters by trigamma(f / 2). What the logarithms of all groups
    scatter beyond that, less twice its own standard error, is taken for real, and a group keeps its own variance in the
    share that the real scatter has of all. `squares` are sums of squares about means; a group without any degree of
    `freedom` gets the common variance.

    >>> drawn_together(np.array([8.0, 12.0, 10.0]), np.full(3, 10)).tolist()
    [1.0, 1.0, 1.0]
    >>> drawn_together(np.array([1e4, 1e-4, 1.0]), np.full(3, 10)).round(6).tolist()
    [1082.382212, 1.1e-05, 0.110885]
    """
    from scipy.special import digamma, polygamma

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
    """Losses less the mean of their unit and rung; 0 where there is none."""
    n = ladder.present.sum(axis=2, keepdims=True)
    means = np.nansum(ladder.losses, axis=2, keepdims=True) / np.maximum(n, 1)
    return np.where(ladder.present, ladder.losses - means, 0.0)


def _without_seeds(off: Array, there: NDArray[np.bool_]) -> float:
    """The sum of squares at one rung that neither units nor seeds account for."""
    u, s = np.nonzero(there)
    design = np.concatenate((np.eye(len(there))[u], np.eye(there.shape[1])[s]), axis=1)
    rest = off[u, s] - design @ np.linalg.lstsq(design, off[u, s], rcond=None)[0]
    return float(rest @ rest)


@dataclass(frozen=True)
class LadderComparison(PlainResult):
    """Two units at one rung, or over all where `parameters` is None: first less second, paired by seed."""

    TOLD: ClassVar[tuple[str, ...]] = ("decided",)

    first: str
    second: str
    parameters: float | None
    difference: Interval
    p: float
    p_holm: float

    @property
    def decided(self) -> bool:
        """Whether Holm's p is at most 5 %."""
        return self.p_holm <= SIGNIFICANT

    def __repr__(self) -> str:
        where, word = "over all sizes", "decided" if self.decided else "undecided"
        if self.parameters is not None:
            where = f"at {self.parameters:.2g}"
        return one_line(self, f"{self.first} - {self.second} {where}: {self.difference:.4f}, {word}")


@dataclass(frozen=True)
class LadderComparisons(PlainResult):
    """All pairs of units, over all sizes and at each of them; Holm's correction is over each of the two families."""

    rows: tuple[LadderComparison, ...]

    def __repr__(self) -> str:
        overall = [row.decided for row in self.rows if row.parameters is None]
        single = [row.decided for row in self.rows if row.parameters is not None]
        return one_line(
            self,
            f"{sum(overall)} of {len(overall)} decided over all sizes, {sum(single)} of {len(single)} at single sizes",
        )

    def table(self) -> pd.DataFrame:
        """A row a comparison."""
        import pandas as pd

        plain = [row.plain() for row in self.rows]
        return pd.DataFrame([row | row.pop("difference") for row in plain]).rename(columns={"value": "difference"})


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
    noise, rows = seed_noise(ladder), []
    for u, v in combinations(range(len(ladder.units)), 2):
        apart = ladder.losses[u] - ladder.losses[v]
        both = np.flatnonzero(np.isfinite(apart).sum(axis=1) >= LEAST_SEEDS)
        places: list[tuple[float | None, NDArray[np.intp]]] = [
            (float(ladder.parameters[r]), both[both == r]) for r in both
        ]
        for where, rungs in [(None, both)] * bool(len(both)) + places:
            if variance == "pooled":
                interval, p = _by_all_pairs(apart, rungs, noise, level)
            else:
                interval, p = _by_the_pair(apart[rungs], level)
            rows.append((ladder.units[u], ladder.units[v], where, interval, p))
    rows.sort(key=lambda row: row[2] is not None)
    overall, p = sum(row[2] is None for row in rows), [row[4] for row in rows]
    corrected = np.concatenate((holm(p[:overall]), holm(p[overall:])))
    return LadderComparisons(
        tuple(
            LadderComparison(first, second, where, interval, p, float(h))
            for (first, second, where, interval, p), h in zip(rows, corrected, strict=True)
        )
    )


def _by_all_pairs(apart: Array, rungs: NDArray[np.intp], noise: SeedNoise, level: float) -> tuple[Interval, float]:
    """The mean over rungs of a pair's differences, each by the inverse of the variance that all pairs have there.

    The weights are estimates, and so the smallest variances are too small more often than not: the variance of the mean
    has the factor 1 + 4 sum w (1 - w) / f, w the shares of the weights, and its degrees of freedom are 1 / sum(w^2 / f)
    (Meier 1953, "Variance of a weighted mean").
    """
    squares = np.maximum(2 * noise.own_variance[rungs] / np.isfinite(apart[rungs]).sum(axis=1), 1e-300)
    freedom = np.maximum(noise.freedom[rungs], 1)
    share = (1 / squares) / np.sum(1 / squares)
    mean = float(share @ np.nanmean(apart[rungs], axis=1))
    error = math.sqrt((1 + 4 * float(np.sum(share * (1 - share) / freedom))) / float(np.sum(1 / squares)))
    total = 1 / float(np.sum(share**2 / freedom))
    reach = t_reach(level, total) * error
    return Interval(mean, mean - reach, mean + reach, level), two_sided(mean / error, total)


def _by_the_pair(apart: Array, level: float) -> tuple[Interval, float]:
    """The mean over rungs of a pair's differences by what they themselves scatter over seeds."""
    values = apart[:, np.isfinite(apart).all(axis=0)].mean(axis=0)
    if len(values) < 2:
        return Interval(float(np.nanmean(apart, axis=1).mean()), math.nan, math.nan, level), 1.0
    error = max(float(np.std(values, ddof=1)) / math.sqrt(len(values)), 1e-300)
    return t_interval(values, level), two_sided(float(values.mean()) / error, len(values) - 1)


def two_sided(t: float, freedom: float) -> float:
    """The probability of a Student's t as far from 0 as this.

    >>> round(two_sided(2.776, 4), 3)
    0.05
    """
    from scipy.stats import t as student

    return float(2 * student.sf(abs(t), freedom))


@dataclass(frozen=True)
class RankAgreement(PlainResult):
    """Spearman's correlation of the units' mean losses with another score of theirs.

    Attributes:
        units: Those that have both.
        losses: Their mean losses over the sizes that all have.
        scores: The other score.
        correlation: With its interval over the ladder's seeds: how far the ladder's own order is certain.
        over_units: The same correlation with an interval for units drawn from many; nan where the orders agree wholly.
        p: The share of all orders of the units whose correlation is as far from 0.
        least: The least correlation that could have p <= 5 % with so many units; nan where none could.
    """

    TOLD: ClassVar[tuple[str, ...]] = ("sentence",)

    units: tuple[str, ...]
    losses: tuple[float, ...]
    scores: tuple[float, ...]
    correlation: Interval
    over_units: Interval
    p: float
    least: float

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

    def table(self) -> pd.DataFrame:
        """A row a unit."""
        import pandas as pd

        return pd.DataFrame({"unit": self.units, "loss": self.losses, "score": self.scores})


def rank_agreement(
    losses: Mapping[str, float], drawn: Array, scores: Mapping[str, float], level: float = LEVEL
) -> RankAgreement:
    """Whether a score ranks units as their losses do: Spearman's correlation with both its intervals and an exact p."""
    from scipy.stats import rankdata

    values, means = np.array([scores[unit] for unit in losses], float), np.array(list(losses.values()))
    if len(values) < 3 or np.ptp(values) == 0:
        raise GatelabError(
            f"scores {values.tolist()} have no order to compare; give three units or more, not all equal"
        )

    def spearman(first: Array, second: Array) -> Array:
        a, b = (rankdata(part, axis=-1) - (part.shape[-1] + 1) / 2 for part in (first, second))
        return (a * b).sum(axis=-1) / np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))

    value = float(spearman(means, values))
    correlations = np.abs(spearman(np.broadcast_to(means, (1, len(means))), values[orders(len(values))])).round(9)
    sizes, counts = np.unique(correlations, return_counts=True)
    enough = sizes[np.cumsum(counts[::-1])[::-1] <= SIGNIFICANT * len(correlations)]
    over_seeds = spearman(drawn, np.broadcast_to(values, drawn.shape))
    return RankAgreement(
        units=tuple(losses),
        losses=tuple(means.tolist()),
        scores=tuple(values.tolist()),
        correlation=percentile_interval(value, over_seeds, level),
        over_units=rank_interval(value, len(values), level),
        p=float(np.mean(correlations >= round(abs(value), 9))),
        least=float(min(enough, default=math.nan)),
    )


def orders(count: int) -> NDArray[np.intp]:
    """All orders of so many things, a row each; of more than nine things, 362 880 by chance, the first as it is."""
    if count <= ALL_ORDERS:
        return np.array(list(permutations(range(count))))
    draws = np.random.default_rng(0).random((math.factorial(ALL_ORDERS), count))
    draws[0] = np.arange(count)
    return draws.argsort(axis=1)


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
