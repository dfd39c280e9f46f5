"""What the record of a ladder says, without claims: losses with intervals, laws, what units are worth, what is decided.

Losses are in bits a byte here. Whatever too few sizes, seeds or units leave open is a sentence that begins with
"undecided" in place of a value, so that a record may be read while it still grows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd

from gatelab.display import counted
from gatelab.errors import GatelabError
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.named import CATALOGUE
from gatelab.ntk import analytic, spectrum
from gatelab.scaling_laws import (
    LadderComparisons,
    LadderLaws,
    LadderLosses,
    RankAgreement,
    Worth,
    compare_ladder,
    fit_ladder,
    rank_units,
    read_ladder,
)
from gatelab.scaling_laws.ladder_losses import LEAST_SIZES, LadderAxis
from gatelab.statistics import Interval, t_interval
from gatelab.train import Ladder
from gatelab.train.ladders import BITS

AXES: tuple[LadderAxis, ...] = ("parameters", "flops", "seconds")
NOUNS = {"parameters": "parameters", "flops": "training FLOPs", "seconds": "GPU seconds"}
REFERENCE = "gelu"  # what others are held against, where it was climbed with
ROWS, INPUTS, WIDTH, DRAWN = 200, 100, 256, 3  # the Gaussian rows on which kernels are compared

Columns = dict[str, Any]
Frame = Any  # a pandas table: what its columns hold no type says
Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Regime:
    """A ladder whose text was read so often.

    Attributes:
        repeats: How often.
        points: A row a training, losses in bits.
        laws: In parameters, FLOPs and seconds; a sentence where there is none.
        draws: Of the bootstraps.
    """

    repeats: int
    points: Frame
    laws: Mapping[LadderAxis, LadderLaws | str]
    draws: int

    @property
    def name(self) -> str:
        """The regime in words."""
        return regime_name(self.repeats)

    @property
    def units(self) -> list[str]:
        """Units that climbed, in the order of the record."""
        return list(dict.fromkeys(self.points["unit"]))

    @property
    def sizes(self) -> list[str]:
        """Sizes that were climbed, smallest first."""
        logs = np.log(self.points["parameters"]).groupby(self.points["size"]).mean()
        return [str(size) for size in logs.sort_values().index]

    @cached_property
    def losses(self) -> LadderLosses | str:
        """By unit, size and seed, diverged runs left out; a sentence where nothing is left to compare."""
        return attempted(lambda: read_ladder(columns_of(self.points), least_sizes=1))

    @cached_property
    def comparisons(self) -> LadderComparisons | str:
        """All pairs of units, paired by seed, over all sizes and at each, with the variance of all pairs of a size."""
        return self._compared("pooled")

    @cached_property
    def pair_comparisons(self) -> LadderComparisons | str:
        """The same with the variance of each pair alone, all sizes counting alike."""
        return self._compared("pair")

    def _compared(self, variance: Literal["pooled", "pair"]) -> LadderComparisons | str:
        losses = self.losses
        if isinstance(losses, str):
            return losses
        if len(losses.units) < 2:
            return f"undecided: {counted(len(losses.units), 'unit')}"
        return attempted(lambda: compare_ladder(losses, variance=variance))

    def restricted(self, sizes: Sequence[str]) -> Regime:
        """The same regime at some of its sizes, without laws."""
        return Regime(self.repeats, self.points[self.points["size"].isin(list(sizes))], {}, self.draws)

    def difference(
        self, first: str, second: str, size: str | None = None, *, by_pair: bool = False
    ) -> tuple[Interval, float] | str:
        """Bits of the first unit less those of the second, at a size or over all that both have, and Holm's p."""
        comparisons = self.pair_comparisons if by_pair else self.comparisons
        if isinstance(comparisons, str) or isinstance(self.losses, str):
            return str(comparisons)
        parameters = None
        if size is not None:
            parameters = float(self.losses.parameters[self.sizes.index(size)])
        for row in comparisons.rows:
            if row.parameters == parameters and {row.first, row.second} == {first, second}:
                d = row.difference
                if row.first == second:
                    d = Interval(-d.value, -d.high, -d.low, d.level)
                return d, row.p_holm
        return f"undecided: no size has 2 seeds of both {first} and {second}"

    def common_sizes(self, units: Sequence[str]) -> list[str]:
        """Sizes that were climbed with all of these units."""
        own = self.points.groupby("size")["unit"].agg(set)
        return [size for size in self.sizes if set(units) <= own[size]]

    def law(self, against: LadderAxis = "parameters") -> LadderLaws | str:
        """The laws in something, or why there are none."""
        return self.laws.get(against, "undecided: not asked for")

    def worth(self, unit: str, reference: str, against: LadderAxis = "parameters") -> Worth | str:
        """How much larger the reference would have to be for the losses of a unit, or why that is not known."""
        laws = self.law(against)
        if isinstance(laws, str):
            return laws
        missing = [name for name in (unit, reference) if name not in laws.losses.units]
        if missing:
            own = self.points.groupby("unit")["size"].nunique()
            sizes = ", ".join(f"{counted(int(own.get(name, 0)), 'size')} of {name}" for name in missing)
            return f"undecided: {sizes}, and a law needs {LEAST_SIZES}"
        return laws.worth(unit, reference)


def plain_frame(table: pd.DataFrame) -> Frame:
    """A table whose columns may be used without saying what they hold."""
    return table


def regime_name(repeats: int) -> str:
    """How the text was read.

    >>> regime_name(1), regime_name(20)
    ('every byte once', 'a 20th of the text 20 times')
    """
    if repeats == 1:
        return "every byte once"
    return f"a {repeats}th of the text {repeats} times"


def attempted(compute: Callable[[], Value]) -> Value | str:
    """What a computation gives, or the reason why it cannot, as what is undecided."""
    try:
        return compute()
    except GatelabError as error:
        return f"undecided: {error}"


def columns_of(points: Frame) -> Columns:
    """What laws and comparisons read, with losses in bits."""
    names = ("unit", "parameters", "seed", "flops", "seconds")
    columns: Columns = {name: points[name].tolist() for name in names}
    diverged = points["diverged"].notna().tolist()
    return {**columns, "loss": points["bits"].tolist(), "size": points["size"].tolist(), "diverged": diverged}


def laws_of(points: Frame, against: LadderAxis, draws: int) -> LadderLaws | str:
    """The laws in something, or a sentence with how many sizes there are."""
    if points.empty:
        return "undecided: 0 sizes"
    sizes = int(points.groupby("unit")["size"].nunique().max())
    if sizes < LEAST_SIZES:
        return f"undecided: {counted(sizes, 'size')}, and a law needs {LEAST_SIZES}"
    rise = first_rise(points)
    if rise is not None:
        return f"undecided: losses rise from {rise[0]} to {rise[1]}, and a law falls with size"
    return attempted(lambda: fit_ladder(columns_of(points), against=against, draws=draws, progress=False))


def first_rise(points: Frame) -> tuple[str, str] | None:
    """The first two neighbouring sizes of which the larger has the larger mean loss, over units that climbed both."""
    sound = points[points["diverged"].isna()]
    sizes = sound.groupby("size")["parameters"].mean().sort_values().index
    means = sound.groupby(["unit", "size"])["bits"].mean().unstack()[list(sizes)]
    for small, large in pairwise(sizes):
        if (means[large] - means[small]).dropna().mean() > 0:
            return str(small), str(large)
    return None


def timed(points: Frame, speeds: Frame) -> Frame:
    """The trainings whose unit and size were timed, with the seconds of one among those that are trained together.

    Rungs of the record were trained beside each other on one device, so that their own seconds are not those of a
    device alone. A unit without speeds is left out: nothing of another unit stands in for it.
    """
    rates = speeds[(speeds["loop"] == "gatelab") & (speeds["models"] > 1)].set_index(["unit", "size"])
    keys = list(zip(points["unit"], points["size"], strict=True))
    own = points[[key in rates.index for key in keys]]
    seconds = [
        tokens / float(rates.loc[key, "tokens_per_second"])
        for key, tokens in zip(zip(own["unit"], own["size"], strict=True), own["tokens"], strict=True)
    ]
    return own.assign(seconds=seconds)


def speed_rows(record: Mapping[str, Any]) -> Frame:
    """The rows of results/ladder/speed.json, each with its unit; the first records had one unit for all."""
    return pd.DataFrame([{"unit": record.get("unit"), **row} for row in record["rows"]])


def regimes_of(ladder: Ladder, speeds: Frame, draws: int) -> dict[int, Regime]:
    """The regimes of a record, by how often the text was read."""
    table = plain_frame(ladder.table())
    regimes: dict[int, Regime] = {}
    for repeats, points in table.groupby("repeats"):
        regimes[int(str(repeats))] = regime_of(int(str(repeats)), points, speeds, draws)
    return regimes


def regime_of(repeats: int, points: Frame, speeds: Frame, draws: int) -> Regime:
    """A regime with its laws in everything that they are in."""
    parts = {"parameters": points, "flops": points, "seconds": timed(points, speeds)}
    return Regime(repeats, points, {axis: laws_of(parts[axis], axis, draws) for axis in AXES}, draws)


def at_best_rates(regime: Regime, rates: Frame, speeds: Frame) -> Regime:
    """The regime as if each unit had climbed at its best learning rate: less what its own is known to cost, in bits.

    Where a size was not swept, a unit's rate is taken to cost what it does at the largest size below that was; where
    the best rate of a sweep lies at an end, the least that it can cost. Where nothing was swept it is the same.
    """
    costs = rates.dropna(subset=["excess"]).set_index(["unit", "size"])["excess"]

    def cost(unit: str, size: str) -> float:
        below = regime.sizes[: regime.sizes.index(size) + 1]
        return next((float(costs[unit, s]) for s in reversed(below) if (unit, s) in costs.index), 0.0)

    points = regime.points
    if rates.empty or points.empty:
        return regime
    off = [cost(unit, size) for unit, size in zip(points["unit"], points["size"], strict=True)]
    return regime_of(regime.repeats, points.assign(bits=points["bits"] - off), speeds, regime.draws)


# ---- tables


def bits_table(regimes: Mapping[int, Regime]) -> pd.DataFrame:
    """A row a regime, size and unit: bits a byte with a t-interval over seeds, and what is above the best there."""
    rows = []
    for regime in regimes.values():
        for size in regime.sizes:
            here = regime.points[regime.points["size"] == size]
            means = here.groupby("unit")["bits"].mean().dropna()
            for unit, own in here.groupby("unit", sort=False):
                known = own["bits"].dropna().to_numpy(float)
                bits = Interval(math.nan, math.nan, math.nan)
                if len(known):
                    bits = t_interval(known)
                row: dict[str, Any] = {"repeats": regime.repeats, "size": size, "unit": unit}
                row |= {"parameters": int(own["parameters"].iloc[0]), "flops": own["flops"].iloc[0]}
                row |= {"tokens": int(own["tokens"].iloc[0]), "lr": own["lr"].iloc[0], "seeds": len(own)}
                row |= {"diverged": int(own["diverged"].notna().sum())}
                row |= {"bits": bits.value, "low": bits.low, "high": bits.high}
                rows.append(row | excess_columns(regime, str(unit), str(means.idxmin()), size))
    return pd.DataFrame(rows)


def excess_columns(regime: Regime, unit: str, best: str, size: str) -> dict[str, Any]:
    """Bits above the unit of the least mean at that size, paired by seed."""
    columns = {"best": best, "excess": 0.0, "excess_low": math.nan, "excess_high": math.nan, "p_holm": math.nan}
    if unit == best:
        return columns
    apart = regime.difference(unit, best, size)
    if isinstance(apart, str):
        return columns | {"excess": math.nan}
    d, p = apart
    return columns | {"excess": d.value, "excess_low": d.low, "excess_high": d.high, "p_holm": p}


def laws_table(regimes: Mapping[int, Regime]) -> pd.DataFrame:
    """All constants of all laws; a row with the reason where there is no law."""
    parts = []
    for regime in regimes.values():
        for axis in AXES:
            laws = regime.law(axis)
            if isinstance(laws, str):
                frame = pd.DataFrame([{"verdict": laws}])
            else:
                frame = laws.table().assign(verdict=laws.verdict, p_units=laws.units_differ.p)
                frame = frame.assign(p_exponents=laws.exponents_differ.p, p_limits=laws.limits_differ.p)
                frame = frame.assign(p_beyond_shifts=laws.beyond_shifts.p, common_misfit=laws.common_misfit)
            parts.append(frame.assign(repeats=regime.repeats, against=axis))
    return pd.concat(parts, ignore_index=True)


def worth_table(regimes: Mapping[int, Regime], references: Sequence[str]) -> pd.DataFrame:
    """How much larger each reference would have to be for a unit's loss: by size, over all, and how it changes."""
    rows = []
    for regime in regimes.values():
        for axis in AXES:
            for reference in references:
                for unit in regime.units:
                    if unit == reference:
                        continue
                    row = {"repeats": regime.repeats, "against": axis, "unit": unit, "reference": reference}
                    worth = regime.worth(unit, reference, axis)
                    if isinstance(worth, str):
                        rows.append(row | {"place": "all sizes", "trend": worth})
                        continue
                    slope = {"slope": worth.slope.value, "slope_low": worth.slope.low, "slope_high": worth.slope.high}
                    row |= {"trend": worth.trend}
                    named = [("all sizes", worth.overall, False)]
                    named += list(zip(map(str, worth.sizes), worth.factor, worth.extrapolated, strict=True))
                    for place, k, far in named:
                        percent = {"percent": 100 * (k.value - 1), "low": 100 * (k.low - 1), "high": 100 * (k.high - 1)}
                        rows.append(row | {"place": place, **percent, "extrapolated": far, **slope})
    return pd.DataFrame(rows)


def comparisons_table(regimes: Mapping[int, Regime]) -> pd.DataFrame:
    """Every pair of units over all sizes and at each, in bits, with what is decided, by both rules of variance."""
    parts = [
        comparisons.table().assign(repeats=regime.repeats, variance=variance)
        for regime in regimes.values()
        for variance, comparisons in (("pooled", regime.comparisons), ("pair", regime.pair_comparisons))
        if not isinstance(comparisons, str)
    ]
    if not parts:
        return pd.DataFrame(columns=["first", "second", "parameters", "difference", "repeats", "variance"])
    return pd.concat(parts, ignore_index=True)


def rates_table(ladder: Ladder) -> pd.DataFrame:
    """The learning rates that were best, those of the rule and of the climbs; what the latter cost, in bits."""
    rates = plain_frame(ladder.rates()).rename(columns={"used": "climbed"})
    tuned = list(dict.fromkeys(rates["size"]))[:2]
    used = rates["climbed"].fillna(rates["rule"])
    rates = rates.assign(excess=rates["excess"] / BITS, factor=used / rates["best"])
    return rates.assign(first_tuned=rates["size"].isin(tuned))


def least_known(rates: Frame) -> list[str]:
    """Units and sizes whose best learning rate lies at an end of the sweep: what another costs has a lower end alone.

    >>> rates = {"unit": ["gelu", "glu"], "size": ["11M", "11M"], "end": [0, -1], "first_tuned": [False, False]}
    >>> least_known(pd.DataFrame(rates))
    ['glu at 11M']
    """
    ends = rates[(rates["end"] != 0) & ~rates["first_tuned"].astype(bool)]
    return [f"{unit} at {size}" for unit, size in zip(ends["unit"], ends["size"], strict=True)]


# ---- scores of other rooms


def gaussian_conditions(units: Sequence[str]) -> dict[str, float]:
    """Condition numbers of the units' tangent kernels on Gaussian rows: the geometric mean of three draws."""
    known = [unit for unit in units if unit in CATALOGUE]
    logs = np.zeros(len(known))
    for draw in range(DRAWN):
        rows = np.random.default_rng(draw).standard_normal((ROWS, INPUTS))
        kernels = analytic(known, rows, width=WIDTH, progress=False)
        logs += np.log([spectrum(kernel).condition for kernel in kernels])
    return dict(zip(known, np.exp(logs / DRAWN).tolist(), strict=True))


def model_conditions(record: Mapping[str, Any]) -> dict[str, float]:
    """Those of GPT-2 as it is configured, by unit: the geometric mean over seeds of the record of `ntk/fig3`."""
    rows = plain_frame(pd.DataFrame(record["figure3"]))
    own = rows[(rows["model"] == "gpt2") & (rows["start"] == "configuration")]
    return np.exp(np.log(own["condition"]).groupby(own["unit"]).mean()).to_dict()


def agreement(regime: Regime, scores: Mapping[str, float]) -> RankAgreement | str:
    """Whether a score ranks the units as their losses do, or why that is not known."""
    losses = regime.losses
    if isinstance(losses, str):
        return losses
    return attempted(lambda: rank_units(losses, scores, draws=regime.draws))


def gated(unit: str) -> bool:
    """Whether a unit multiplies its gate by a line or more."""
    return unit in CATALOGUE and bool(getattr(as_unit(unit), "factors", 0))
