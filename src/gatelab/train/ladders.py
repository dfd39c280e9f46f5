"""`ladder`: units x sizes x seeds of one language model, each unit at its own best learning rate.

A ladder goes up in stages. At the two smallest sizes every unit is trained at several learning rates, and a parabola in
log lr gives the best. A rule, lr = a_unit d_model^-s with one s for all units, takes these rates to the larger sizes;
around its rates at the third size there are sweeps again, and they enter the rule too. Then every unit climbs: all
sizes, all seeds, at the rates of the rule. Rates are tuned on the validation part of the text, and what is reported is
the loss on its test part, which nothing was chosen by.
"""

from __future__ import annotations

import importlib.util
import json
import math
import tempfile
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from gatelab.arrays import Array
from gatelab.data.text import TextData
from gatelab.display import Listener, ProgressLike, one_line, reporting, shorten
from gatelab.errors import GatelabError, unknown_name, whole_number
from gatelab.feedforward import unit as as_unit
from gatelab.files import write_whole
from gatelab.memory import check_device
from gatelab.scaling_laws import LadderComparisons, LadderLaws, compare_ladder, fit_ladder, read_ladder
from gatelab.scaling_laws.ladder_laws import DRAWS
from gatelab.scaling_laws.ladder_losses import LadderAxis
from gatelab.statistics import Interval, t_interval
from gatelab.sweep import Backend, Record, Run, Store, map_runs
from gatelab.sweep.backends import check_hours, opened
from gatelab.train.recipes import SIZES, TEXT_MODELS, Recipe, recipe
from gatelab.train.rungs import TASK, Rung, noted, read_text, rung_of, text_fingerprint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS = ("gelu", "relu2", "reglu", "geglu", "swiglu", "gqu")
LADDER_SIZES = ("0.4M", "1.3M", "3.2M", "11M", "26M")
FACTOR = 2.0  # between two learning rates of a sweep
RATES = tuple(2e-3 * FACTOR**k for k in range(4))
TUNED = 2  # sizes at which learning rates are swept, the smallest
PARTS = 10_000  # in which progress is told
LOOK_SECONDS = 1.0  # between two looks at how far rungs are
ROUNDS = 3  # how often a sweep whose best rate lies at its end goes on beyond
NEAR = 1.25  # a climb whose learning rate is within this factor of the rule's need not be trained again
BITS = math.log(2)
# Parameters and operations a second of three swiglus together on an H200: results/ladder/speed.json.
H200_RATES = {396288: 6.797e13, 1327104: 1.043e14, 3211264: 1.523e14, 10616832: 2.174e14, 25690112: 2.756e14}
# The whole flow in minutes on two cores, on a text that every Python has.
QUICK: Mapping[str, Any] = {
    "units": ("gelu", "swiglu"),
    "sizes": ("tiny", "mini", "small"),
    "seeds": 3,
    "batch": 8,
    "steps": 120,
    "test_size": 200,
}


@dataclass(frozen=True)
class LadderPoint:
    """A training of the ladder: the loss of one unit, size, learning rate and seed.

    Attributes:
        unit: the unit's name.
        size: that of the model.
        d_model: the width of its stream.
        parameters: those that are not of the vocabulary, P.
        lr: the learning rate.
        seed: of weights and batches.
        repeats: how often the text was read.
        purpose: "tune", measured on the validation part, or "climb", measured on the test part.
        loss: in nats a token; NaN where the training diverged.
        train: the same on the training part.
        diverged: the step at which it did, or None.
        tokens: that were trained on.
        flops: operations that the training took.
        seconds: those of all members that were trained together, over their number.
        throughput: tokens a second, of all members together.
        together: how many they were.
        device: what computed.
    """

    unit: str
    size: str
    d_model: int
    parameters: int
    lr: float
    seed: int
    repeats: int
    purpose: str
    loss: float
    train: float
    diverged: int | None
    tokens: int
    flops: float
    seconds: float
    throughput: float
    together: int
    device: str

    def __repr__(self) -> str:
        return one_line(self, f"{self.unit} at {self.size}, lr {self.lr:.3g}, seed {self.seed}: {self.loss:.4f}")


@dataclass(frozen=True, eq=False)
class RungResult:
    """A rung that was trained: what was asked for, metrics as `train_rung` gives them, what computed, when it ended."""

    run: Run
    metrics: Mapping[str, Any]
    device: str
    time: str

    def __repr__(self) -> str:
        return one_line(self, repr(self.rung))

    @property
    def rung(self) -> Rung:
        """What was trained together."""
        return rung_of(self.run.arguments)

    @property
    def points(self) -> list[LadderPoint]:
        """A point for each learning rate and seed."""
        rung, m = self.rung, self.metrics
        shared = {
            "unit": rung.recipe.unit.name,
            "size": rung.recipe.size,
            "d_model": rung.config.d_model,
            "repeats": rung.repeats,
            "purpose": rung.purpose,
            "device": self.device,
            "seconds": m["seconds"] / m["together"],
            "throughput": number(m["throughput"]),
            **{name: m[name] for name in ("parameters", "tokens", "flops", "together")},
        }
        return [
            LadderPoint(
                lr=member.lr,
                seed=member.seed,
                loss=number(m["loss"][i]),
                train=number(m["train"][i]),
                diverged=m["diverged"][i],
                **shared,
            )
            for i, member in enumerate(rung.members)
        ]

    @staticmethod
    def of(record: Record) -> RungResult:
        """What a record of the sweep says."""
        return RungResult(record.run, record.metrics, record.device, record.time)

    def plain(self) -> dict[str, Any]:
        """The same in JSON's own types; an error where the unit could not be found again by who reads them."""
        self.rung.recipe.plain()
        return {
            "arguments": self.run.arguments,
            "metrics": dict(self.metrics),
            "device": self.device,
            "time": self.time,
        }

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> RungResult:
        """What `plain` wrote."""
        return RungResult(Run(TASK, values["arguments"]), values["metrics"], values["device"], values["time"])


def number(value: float | None) -> float:
    """NaN for None."""
    if value is None:
        return math.nan
    return float(value)


# ---- learning rates


def best_rate(lrs: Sequence[float], losses: Sequence[float]) -> float:
    """The learning rate of least loss, by a parabola in log lr through the best of them and its two neighbours.

    It is the best one itself where that has no neighbour on one side; losses are NaN where a training diverged.

    >>> round(best_rate([1e-3, 2e-3, 4e-3], [1.1, 1.0, 1.1]), 6)
    0.002
    >>> best_rate([1e-3, 2e-3, 4e-3], [1.1, 1.0, float("nan")])
    0.002
    """
    return rate_and_curvature(lrs, losses)[0]


def rate_and_curvature(lrs: Sequence[float], losses: Sequence[float]) -> tuple[float, float]:
    """The best rate, and half the second derivative of the parabola in log lr; NaN where there is no parabola."""
    order = np.argsort(lrs)
    rates, values = np.asarray(lrs, float)[order], np.asarray(losses, float)[order]
    if np.isnan(values).all():
        raise GatelabError(f"every training at the learning rates {rates.tolist()} diverged; give smaller ones")
    best = int(np.nanargmin(values))
    if at_end(lrs, losses) or not np.isfinite(values[best - 1 : best + 2]).all():
        return float(rates[best]), math.nan
    x = np.log(rates[best - 1 : best + 2])
    curvature, slope, _ = np.polyfit(x - x[1], values[best - 1 : best + 2], 2)
    return float(np.exp(x[1] - slope / (2 * curvature))), float(curvature)


def at_end(lrs: Sequence[float], losses: Sequence[float]) -> int:
    """-1 or 1 where the best rate is the smallest or the largest that there is, else 0.

    A training that diverged is a loss above all others: a best rate with such a neighbour is not at an end.
    """
    order = np.argsort(lrs)
    values = np.where(np.isnan(losses), np.inf, losses)[order]
    best = int(np.argmin(values))
    if best == 0:
        return -1
    return int(best == len(values) - 1)


@dataclass(frozen=True)
class RateRule:
    """lr = scale_unit (d_model / 128)^-exponent, one exponent for all units.

    Attributes:
        scales: the learning rate of each unit at d_model = 128.
        exponent: with an interval over units; it has none where there is one unit or one size.
    """

    scales: Mapping[str, float]
    exponent: Interval

    def __repr__(self) -> str:
        rates = ", ".join(f"{shorten(unit)} {rate:.3g}" for unit, rate in self.scales.items())
        return one_line(self, f"d_model^-{self.exponent:.2f}: {rates}")

    def rate(self, unit: str, d_model: int) -> float:
        """The learning rate of a unit at a width of the stream, to three digits."""
        return float(f"{self.scales[unit] * (d_model / 128) ** -self.exponent.value:.3g}")

    @staticmethod
    def of(rates: Iterable[tuple[str, int, float]]) -> RateRule:
        """The rule through units, widths of the stream and the best learning rates there: least squares in log lr.

        >>> rule = RateRule.of([("a", 128, 4e-3), ("a", 256, 2e-3), ("b", 128, 8e-3), ("b", 256, 4e-3)])
        >>> round(rule.exponent.value, 6), rule.rate("b", 512)
        (1.0, 0.002)
        """
        logs: dict[str, list[tuple[float, float]]] = {}
        for unit, d_model, lr in rates:
            logs.setdefault(unit, []).append((math.log(d_model / 128), math.log(lr)))
        lines = [np.array(own) for own in logs.values() if len({x for x, _ in own}) > 1]
        slopes = [-float(np.polyfit(line[:, 0], line[:, 1], 1)[0]) for line in lines]
        exponent = Interval(0.0, math.nan, math.nan)
        if len(slopes) == 1:
            exponent = Interval(slopes[0], math.nan, math.nan)
        elif slopes:
            exponent = t_interval(np.array(slopes))
        scales = {unit: math.exp(sum(y + exponent.value * x for x, y in own) / len(own)) for unit, own in logs.items()}
        return RateRule(scales, exponent)


@dataclass(frozen=True)
class RateSweep:
    """The learning rates that a unit was trained at, at one size, smallest first, and their losses.

    Losses are those of the validation part; NaN where a training diverged.
    """

    unit: str
    size: str
    d_model: int
    lrs: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def best(self) -> float:
        """The best learning rate, as `best_rate` has it."""
        return best_rate(self.lrs, self.losses)

    @property
    def end(self) -> int:
        """Whether it lies at an end, as `at_end` has it."""
        return at_end(self.lrs, self.losses)

    def excess(self, lr: float) -> float:
        """The loss at a rate less the least one, by the parabola in log lr.

        Where the best rate lies at an end there is none: what a rate that was swept is above the least loss that was
        found, which is less than it costs; NaN for other rates.
        """
        best, curvature = rate_and_curvature(self.lrs, self.losses)
        if self.end and lr in self.lrs:
            return self.losses[self.lrs.index(lr)] - min(loss for loss in self.losses if not math.isnan(loss))
        return curvature * math.log(lr / best) ** 2


Rates = Mapping[str, float] | RateRule | Callable[[str, int], float]


# ---- the ladder


@dataclass(frozen=True, eq=False)
class Ladder:
    """All trainings of a ladder.

    Attributes:
        text: the name of the text.
        results: the rungs, those that tuned learning rates too.
        facts: what else a record says: device, date, command.
    """

    text: str
    results: tuple[RungResult, ...]
    facts: Mapping[str, Any]

    def __repr__(self) -> str:
        # Not by `climbs`, which refuses a ladder that does not say which of them count.
        climbed = {(p.unit, p.size, p.repeats, p.seed) for p in self.points if p.purpose == "climb"}
        units, sizes = ({each[i] for each in climbed} for i in (0, 1))
        return one_line(self, f"{len(units)} units, {len(sizes)} sizes, {len(climbed)} trainings on {self.text}")

    @cached_property
    def points(self) -> tuple[LadderPoint, ...]:
        """The trainings, in an order that does not depend on what ended first.

        A seed that was trained again with more of them beside it is there once, as it was trained last.
        """
        names = ("purpose", "unit", "size", "lr", "seed", "repeats", "tokens")
        ended = sorted(self.results, key=lambda result: result.time)
        found = {tuple(getattr(p, name) for name in names): p for result in ended for p in result.points}
        return in_order(list(found.values()))

    @cached_property
    def climbs(self) -> tuple[LadderPoint, ...]:
        """The trainings that count: where a unit climbed a size at several learning rates, at the one that the rule
        has, or the nearest to it."""
        rates: dict[tuple[str, str, int], set[float]] = {}
        for p in self.points:
            if p.purpose == "climb":
                rates.setdefault((p.unit, p.size, p.repeats), set()).add(p.lr)
        if max(map(len, rates.values()), default=1) == 1:
            return tuple(p for p in self.points if p.purpose == "climb")
        rule = self.rule()

        def counts(p: LadderPoint) -> bool:
            tried = sorted(rates[p.unit, p.size, p.repeats])
            if len(tried) == 1:
                return True
            if p.unit not in rule.scales:
                raise GatelabError(
                    f"{p.unit} climbed {p.size} at the learning rates {', '.join(f'{lr:g}' for lr in tried)}, and no "
                    "sweep says which counts; keep each in a store of its own, or climb with lrs=None, which sweeps"
                )
            wanted = rule.rate(p.unit, p.d_model)
            return p.lr == min(tried, key=lambda lr: abs(math.log(lr / wanted)))

        return tuple(p for p in self.points if p.purpose == "climb" and counts(p))

    def table(self, purpose: str = "climb") -> pd.DataFrame:
        """A row a training, with its loss also in bits a token.

        Args:
            purpose: "climb", or "tune" for the sweeps of learning rates.

        Returns:
            The columns of a `LadderPoint` and `bits`.
        """
        rows = self.climbs
        if purpose != "climb":
            rows = tuple(p for p in self.points if p.purpose == purpose)
        table = pd.DataFrame([vars(p) for p in rows], columns=[f.name for f in fields(LadderPoint)])
        return table.assign(bits=table["loss"] / BITS)

    def sweeps(self) -> list[RateSweep]:
        """The learning rates that were tried, of every unit at every size that was swept."""
        swept: dict[tuple[str, str, int], list[LadderPoint]] = {}
        for point in self.points:
            if point.purpose == "tune":
                swept.setdefault((point.unit, point.size, point.d_model), []).append(point)
        return [RateSweep(*key, tuple(p.lr for p in own), tuple(p.loss for p in own)) for key, own in swept.items()]

    def rule(self) -> RateRule:
        """How learning rates go from size to size, by the sweeps whose best rate lies between others."""
        swept = self.sweeps()
        between = {sweep.unit for sweep in swept if not sweep.end}
        return RateRule.of((s.unit, s.d_model, s.best) for s in swept if not s.end or s.unit not in between)

    def rates(self) -> pd.DataFrame:
        """The best learning rates, those of the rule, those of the climbs, and what the latter cost in loss.

        Returns:
            A row a sweep. `end` is -1 or 1 where the best rate is the smallest or the largest that was swept: `excess`
            is then less than what the climb's rate costs. Where nothing climbed it is that of the rule's rate.
        """
        rule = self.rule()
        climbed = {(p.unit, p.size): p.lr for p in self.climbs if p.repeats == 1}
        rows = []
        for sweep in self.sweeps():
            values: dict[str, Any] = {"best": sweep.best, "end": sweep.end}
            values["rule"] = rule.rate(sweep.unit, sweep.d_model)
            values["climbed"] = climbed.get((sweep.unit, sweep.size), math.nan)
            excess = sweep.excess(climbed.get((sweep.unit, sweep.size), values["rule"]))
            rows.append({"unit": sweep.unit, "size": sweep.size, **values, "excess": excess})
        return pd.DataFrame(rows, columns=["unit", "size", "best", "end", "rule", "climbed", "excess"])

    def near_rates(self, repeats: int = 1) -> Callable[[str, int], float]:
        """The rates of the rule; where a unit climbed with one near it, that one, so that it is not trained again.

        Args:
            repeats: which regime's climbs.

        Returns:
            A function of unit and d_model.
        """
        rule = self.rule()
        climbed = {(p.unit, p.d_model): p.lr for p in self.climbs if p.repeats == repeats}

        def rate(unit: str, d_model: int) -> float:
            wanted = rule.rate(unit, d_model)
            known = climbed.get((unit, d_model), math.inf)
            if max(known / wanted, wanted / known) <= NEAR:
                return known
            return wanted

        return rate

    def law(
        self, against: LadderAxis = "parameters", *, repeats: int = 1, draws: int = DRAWS, progress: ProgressLike = None
    ) -> LadderLaws:
        """Whether units differ by an offset or by an exponent, and what each is worth in parameters.

        Args:
            against: "parameters", "flops" or "seconds", those of one training among the ones it was trained with.
            repeats: which regime: how often the text was read.
            draws: of the bootstraps and tests.
            progress: as in `fit_ladder`.

        Returns:
            The laws, with tests, intervals, `worth` and a figure.
        """
        return fit_ladder(self.columns(repeats), against=against, draws=draws, progress=progress)

    def columns(self, repeats: int) -> dict[str, Any]:
        """What laws are fitted to: an entry a training of that regime."""
        points = [p for p in self.climbs if p.repeats == repeats]
        names = ("unit", "parameters", "seed", "loss", "flops", "seconds")
        columns: dict[str, Any] = {name: [getattr(p, name) for p in points] for name in names}
        return {**columns, "rung": [p.size for p in points], "diverged": [p.diverged is not None for p in points]}

    def comparisons(self, *, repeats: int = 1) -> LadderComparisons:
        """All pairs of units at each size and over all, paired by seed, with Holm's correction.

        Args:
            repeats: which regime.

        Returns:
            The differences of losses, in nats a token, and which are decided.
        """
        return compare_ladder(read_ladder(self.columns(repeats), least_sizes=1))

    def plot(
        self, path: str | Path | None = None, *, repeats: int = 1, reference: str | None = None, ax: Any = None
    ) -> Figure:
        """Losses against parameters with the laws, and what each unit is worth beside the reference.

        Args:
            path: where to write the figure (.png, .svg or .pdf), if anywhere.
            repeats: which regime.
            reference: the unit that others are held against; by default the first.
            ax: two of matplotlib's axes to draw into.

        Returns:
            The figure; where there is no law, as of fewer than three sizes, one of the mean losses alone.
        """
        try:
            laws = self.law(repeats=repeats)
        except GatelabError:
            means = mean_losses(p for p in self.climbs if p.repeats == repeats)
            if ax is not None or not means:
                raise
            from gatelab.plotting import saved
            from gatelab.plotting.curves import means_figure

            figure = means_figure(means, loss_label="test loss, nats a token", title="mean losses; there is no law")
            return saved(figure, path)
        return laws.plot(path, reference=reference, loss="nats a token", ax=ax)

    def plain(self) -> dict[str, Any]:
        """The ladder in JSON's own types."""
        return {"text": self.text, "facts": dict(self.facts), "rungs": [result.plain() for result in self.results]}

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> Ladder:
        """The ladder that `plain` wrote."""
        return Ladder(values["text"], tuple(RungResult.from_plain(v) for v in values["rungs"]), values["facts"])

    def save(self, path: str | Path) -> Path:
        """Write the ladder as a JSON record, a line a rung.

        Args:
            path: of the file.

        Returns:
            The same.
        """
        values = self.plain()
        rungs = ",\n".join(json.dumps(rung) for rung in values.pop("rungs"))
        return write_whole(path, f'{json.dumps(values)[:-1]}, "rungs": [\n{rungs}\n]}}\n')

    @staticmethod
    def read(path: str | Path) -> Ladder:
        """The ladder of a JSON record.

        Args:
            path: of the file.

        Returns:
            The ladder that `save` wrote.
        """
        try:
            return Ladder.from_plain(json.loads(Path(path).read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            message = f"{path} is no record of a ladder ({error}); give a file that Ladder.save wrote"
            raise GatelabError(message) from error

    @staticmethod
    def from_store(store: Store | str | Path, facts: Mapping[str, Any] | None = None) -> Ladder:
        """All rungs that a store has, whatever calls they were asked by.

        Args:
            store: the store or its file.
            facts: what else the ladder should say of itself.

        Returns:
            A ladder; rungs that failed are left out.
        """
        with opened(store) as database:
            assert database is not None
            results = [RungResult.of(record) for record in database.records(task=TASK, status="done")]
        told = [(result.rung.recipe.data, result.run.arguments) for result in results]
        texts = sorted({(name, arguments["text"]) for name, arguments in told})
        tuned = sorted({(name, arguments["valid"]) for name, arguments in told if "valid" in arguments})
        several = next((pairs for pairs in (texts, tuned) if len(pairs) > 1), texts)
        if len(several) != 1:
            named = ", ".join(f"{name} ({key})" for name, key in several) or "none"
            raise GatelabError(
                f"the store has ladders of {len(several)} texts: {named}; give one with rungs of one text, and note "
                "that a file that was changed, or cut into other tokens, is another text"
            )
        check_alike(results)
        return Ladder(Path(texts[0][0]).name, tuple(results), dict(facts or {}))

    def fill(self, store: Store | str | Path) -> int:
        """Put all rungs into a store: a ladder that was begun elsewhere goes on from its record.

        Args:
            store: the store or its file.

        Returns:
            How many rungs were new there.
        """
        self.plain()  # an error where a unit is known to this process alone
        with opened(store) as database:
            assert database is not None
            return database.put_all(
                Record(result.run, "done", metrics=result.metrics, device=result.device, time=result.time)
                for result in self.results
            )


def check_alike(results: Iterable[RungResult]) -> None:
    """Refuse rungs of one size that were trained in different ways: what they differ by is no matter of units."""
    found: dict[tuple[str, str], set[str]] = {}
    for result in results:
        recipe = result.rung.recipe
        for field in fields(recipe):
            if field.name not in ("unit", "size", "lr", "seed", "data"):
                found.setdefault((recipe.size, field.name), set()).add(str(getattr(recipe, field.name)))
    for (size, name), values in found.items():
        if len(values) > 1:
            raise GatelabError(
                f"the store has rungs of {size} with {name} {' and '.join(sorted(values))}; give each its own store"
            )


def mean_losses(points: Iterable[LadderPoint]) -> dict[str, tuple[Array, Array]]:
    """Parameters and mean losses of each unit, without trainings that diverged."""
    sizes: dict[str, dict[int, list[float]]] = {}
    for p in points:
        if math.isfinite(p.loss):
            sizes.setdefault(p.unit, {}).setdefault(p.parameters, []).append(p.loss)
    return {
        unit: (np.array(list(own), float), np.array([sum(losses) / len(losses) for losses in own.values()]))
        for unit, own in sizes.items()
    }


def in_order(points: Sequence[LadderPoint]) -> tuple[LadderPoint, ...]:
    """Points by purpose, size, unit, rate and seed: the same whatever ended first."""
    return tuple(sorted(points, key=lambda p: (p.purpose, p.repeats, p.parameters, p.unit, p.lr, p.seed)))


@dataclass(frozen=True)
class Climb:
    """What a ladder asks for: recipes by unit and size, and the numbers of seeds and repeats.

    Attributes:
        recipes: of each unit and size, smallest first, without learning rate and seed.
        seeds: how many trainings of each unit and size.
        repeats: how often the text is read, for each regime.
        checked: the sizes at which learning rates are swept around those of the rule.
    """

    recipes: Mapping[tuple[str, str], Recipe]
    seeds: int
    repeats: tuple[int, ...]
    checked: tuple[str, ...]

    @property
    def sizes(self) -> list[str]:
        """The sizes, smallest first."""
        return list(dict.fromkeys(size for _, size in self.recipes))

    def sweep(self, unit: str, size: str, lrs: Sequence[float]) -> Rung:
        """A sweep of learning rates."""
        return Rung(self.recipes[unit, size], tuple(lrs), (0,), 1, "tune")

    def sweeps(self) -> list[Rung]:
        """The first sweeps, at the smallest sizes."""
        return [self.sweep(unit, size, RATES) for unit, size in self.recipes if size in self.sizes[:TUNED]]

    def extensions(self, ladder: Ladder, sizes: Sequence[str]) -> list[Rung]:
        """Further rates where the best of some sizes lies at an end: two at a time, one where trainings are dear."""
        rungs = []
        for swept in ladder.sweeps():
            if swept.end and swept.size in sizes and (swept.unit, swept.size) in self.recipes:
                edge = {-1: swept.lrs[0], 1: swept.lrs[-1]}[swept.end]
                count = 2 if swept.size in self.sizes[: TUNED + 1] else 1
                further = [rounded_rate(edge * FACTOR ** (k * swept.end)) for k in range(1, count + 1)]
                rungs.append(self.sweep(swept.unit, swept.size, further))
        return rungs

    def checks(self, rule: RateRule) -> list[Rung]:
        """Sweeps around the rates of the rule, at sizes that it was not made from so far."""
        rungs = []
        for (unit, size), own in self.recipes.items():
            if size in self.checked:
                rate = rule.rate(unit, Rung(own, (1.0,), (0,)).config.d_model)
                rungs.append(self.sweep(unit, size, [rounded_rate(rate * FACTOR**k) for k in (-1, 0, 1)]))
        return rungs

    def ascents(self, rate: Callable[[str, int], float]) -> list[Rung]:
        """All units, sizes and seeds at rates that are a function of unit and d_model."""
        rungs = []
        for (unit, _), own in self.recipes.items():
            d_model = Rung(own, (1.0,), (0,)).config.d_model
            lrs, seeds = (rate(unit, d_model),), tuple(range(self.seeds))
            rungs += [Rung(own, lrs, seeds, repeats) for repeats in self.repeats]
        return rungs


def rounded_rate(rate: float) -> float:
    """A learning rate to three digits: equal rates have equal names in a store."""
    return float(f"{rate:.3g}")


def ladder(
    units: Sequence[Any] = UNITS,
    data: str | Path = "enwik8",
    sizes: Sequence[str] = LADDER_SIZES,
    seeds: int = 3,
    *,
    repeats: Sequence[int] = (1,),
    lrs: Mapping[str, float] | RateRule | None = None,
    store: Store | str | Path | None = None,
    backend: Backend = "serial",
    jobs: int | None = None,
    device: str | None = None,
    max_hours: float | None = None,
    progress: ProgressLike = None,
    **options: Any,
) -> Ladder:
    """Train a language model with every unit at every size, each unit at its own best learning rate.

    Args:
        units: whatever `gl.unit` takes, each once; of a script or notebook too, without a store and in this process.
        data: "enwik8", another text of `gl.data.text_data`, or a file.
        sizes: of the model, smallest first.
        seeds: trainings of each unit and size; equal seeds see equal batches, whatever the unit.
        repeats: how often the text is read: 1 is every token once, 20 a twentieth of the text twenty times.
        lrs: learning rates by unit, at all sizes, or a rule that gives them; None sweeps them at the two smallest sizes
            and goes on by a rule.
        store: a file in which every rung is kept as it ends, its checkpoints beside it: the same call goes on.
        backend: "serial", "processes" or "ray", which takes a GPU for each rung where the device is one.
        jobs: how many rungs at once.
        device: None for a GPU if there is one, else the CPU.
        max_hours: after them nothing new is begun.
        progress: shown on a terminal and in a notebook unless it is False, or a function of (done, total, rung), which
            is called whenever a rung ends, and from another thread every second while one is trained.
        **options: values of the recipes: model, optimiser, tokenizer, batch, steps, weight_decay, options and so on.

    Returns:
        All trainings, with tables, laws and figures.
    """
    climb, text = planned(units, data, sizes, seeds, repeats, options)
    how: dict[str, Any] = {"store": store, "backend": backend, "jobs": jobs, "device": device, "max_hours": max_hours}
    return trained(climb, text, Path(str(data)).name, lrs, progress=progress, **how)


def trained(
    climb: Climb, fingerprint: str, text: str, lrs: Rates | None, *, progress: ProgressLike, **how: Any
) -> Ladder:
    """All that a climb asks for.

    Args:
        climb: as `planned` gives it, and so is the fingerprint of the text.
        text: its name.
        lrs: as in `ladder`, or a function of unit and d_model.
        progress: as in `ladder`, and so is `how`: store, backend, jobs, device and max_hours.

    Returns:
        All trainings.
    """
    check_hours(how["max_hours"])
    if how["store"] is not None or how["backend"] != "serial":
        for own in climb.recipes.values():
            own.plain()  # an error where a unit is known to this process alone
    if how["device"] is not None:
        check_device(how["device"], torch.float32)
    with (
        tempfile.TemporaryDirectory(prefix="gatelab-rungs-") as notes,
        reporting(progress, "climbing") as report,
        watched(Course(fingerprint, Path(notes), report)) as course,
    ):
        work = Work(text=fingerprint, began=time.monotonic(), notes=notes, **how)
        return climbed(climb, work, lrs, text, course)


def planned(
    units: Any,
    data: str | Path,
    sizes: Any,
    seeds: int,
    repeats: Any,
    options: Mapping[str, Any],
) -> tuple[Climb, str]:
    """What a ladder asks for, every value checked, and the fingerprint of its text."""
    units, sizes, repeats = (
        list(each) if isinstance(each, Iterable) and not isinstance(each, str) and not callable(each) else [each]
        for each in (units, sizes, repeats)
    )
    names = [as_unit(u).name for u in units]
    for what, values in (("units", names), ("sizes", sizes), ("repeats", repeats)):
        if not values or len(set(values)) < len(values):
            raise GatelabError(f"the {what} are {values}; give one or more, each once")
    whole_number("seeds", seeds, 1)
    for times in repeats:
        whole_number("repeats", times, 1)
    values = {"model": "decoder", "tokenizer": "bytes", "batch": 16, "evaluations": 4, **options}
    model = values.pop("model")
    if model not in TEXT_MODELS:
        raise unknown_name("model of text", str(model), TEXT_MODELS)
    for size in sizes:
        if size not in SIZES[model]:
            raise unknown_name(f"size of the {model}", str(size), SIZES[model])
    content = read_text(str(data), values["tokenizer"])
    recipes: dict[tuple[str, str], Recipe] = {}
    counts: dict[str, int] = {}
    for size in sizes:
        for unit in units:
            own = recipe(model, unit, str(data), size=size, sampling="epochs", lr=1.0, **{"steps": 1, **values})
            config = Rung(own, (1.0,), (0,)).config
            if "steps" not in values:
                steps = len(content.train) // (config.context * own.batch)
                if steps < 1:
                    raise GatelabError(
                        f"{data} has {len(content.train)} training tokens, fewer than a batch of {own.batch} windows "
                        f"of {config.context}; give a longer text, a smaller batch or options={{'context': ...}}"
                    )
                own = replace(own, steps=steps, warmup=min(100, steps // 10))
            check_windows(content, config.context, repeats)
            recipes[own.unit.name, size] = own
            counts[size] = config.body_count("mlp")
    if list(counts.values()) != sorted(counts.values()):
        raise GatelabError(f"the sizes are {', '.join(sizes)}; give them smallest first")
    third = tuple(sizes[TUNED : TUNED + 1])
    return Climb(recipes, seeds, tuple(repeats), third), text_fingerprint(str(data), content)


def check_windows(text: TextData, context: int, repeats: Sequence[int]) -> None:
    """Refuse a text of which a part, as it is read most often, is no window and the token after it."""
    assert text.valid is not None
    counts = (round(len(text.train) / max(repeats)), len(text.valid), len(text.test))
    if min(counts) <= context:
        raise GatelabError(
            f"with repeats {max(repeats)} a rung has {counts[0]} training, {counts[1]} validation and {counts[2]} test "
            f"tokens of {text.name}, too few for a window of {context} and the token after it; give a longer text, "
            "fewer repeats or options={'context': ...}"
        )


@dataclass(frozen=True, eq=False)
class Work:
    """How the rungs of a ladder are computed: the text's fingerprint, the store, who computes for how long, notes."""

    text: str
    store: Store | str | Path | None
    backend: Backend
    jobs: int | None
    device: str | None
    max_hours: float | None
    began: float
    notes: str

    def settings(self) -> dict[str, Any]:
        """Where rungs are computed: checkpoints lie beside the store, notes of how far they are in a folder."""
        folder = None
        if self.store is not None:
            path = self.store.path if isinstance(self.store, Store) else Path(self.store)
            folder = str(path.with_name(path.name + ".checkpoints").resolve())
        return {"folder": folder, "device": self.device, "notes": self.notes}

    def results(self, rungs: Sequence[Rung]) -> Iterator[RungResult]:
        """What comes of rungs, as they end; what fails is raised, and all else is kept in the store."""
        runs = {rung.run(self.text, self.settings()): rung for rung in rungs}
        seconds, gpus = None, 0.0
        if self.max_hours is not None:
            seconds = max(0.0, 3600 * self.max_hours - (time.monotonic() - self.began))
        if self.backend == "ray" and self.device != "cpu":
            gpus = 1.0
        records = map_runs(
            runs,
            store=self.store,
            backend=self.backend,
            jobs=self.jobs,
            retry_failed=True,
            max_seconds=seconds,
            gpus_per_run=gpus,
        )
        ended = 0
        for record in records:
            rung = runs[record.run]
            if not record.ok:
                why = (record.error or "").strip().splitlines()[-1:]
                raise GatelabError(
                    f"{rung!r} failed; the others are kept in the store, if there is one: {' '.join(why)}"
                )
            ended += 1
            yield RungResult.of(record)
        if ended < len(runs):
            remedy = (
                "give a store to keep what is done" if self.store is None else "the same call goes on from the store"
            )
            done = f"{ended} of {len(runs)} rungs of this stage done"
            raise GatelabError(f"stopped after {self.max_hours:g} hours with {done}; {remedy}")


class Course:
    """How far a ladder is, in operations, those of rungs that are in hand included; told to whoever listens."""

    def __init__(self, text: str, notes: Path, report: Listener | None) -> None:
        self.text, self.notes, self.report = text, notes, report
        self.total, self.ended, self.told = 0.0, 0.0, -1
        self.waiting: dict[str, Rung] = {}
        self.lock = threading.Lock()

    def ask(self, rungs: Sequence[Rung]) -> None:
        """These are trained next."""
        with self.lock:
            self.waiting |= {rung.run(self.text).key: rung for rung in rungs}

    def end(self, result: RungResult) -> None:
        """This one is done."""
        with self.lock:
            self.waiting.pop(result.run.key, None)
            self.ended += rung_flops(result.rung)
            self.tell(self.ended, repr(result.rung))

    def look(self) -> None:
        """Tell how far rungs in hand are, if that is more than was told."""
        with self.lock:
            shares = {key: noted(self.notes / key) for key in self.waiting}
            done = self.ended + sum(share * rung_flops(self.waiting[key]) for key, share in shares.items())
            first = max(shares, key=lambda key: shares[key], default=None)
            if first is not None and self.parts(done) > self.told:
                self.tell(done, repr(self.waiting[first]))

    def parts(self, done: float) -> int:
        """How many of the parts into which the whole is divided are done; what comes on top has no part."""
        return int(PARTS * done / max(self.total, done, 1.0))

    def tell(self, done: float, text: str) -> None:
        """To whoever listens."""
        self.told = max(self.told, self.parts(done))
        if self.report:
            self.report(self.told, PARTS, text)


@contextmanager
def watched(course: Course) -> Iterator[Course]:
    """While a ladder climbs, look every second how far its rungs are."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            course.look()

    thread = threading.Thread(target=watch, daemon=True, name="gatelab-rungs")
    if course.report:
        thread.start()
    try:
        yield course
    finally:
        over.set()
        if course.report:
            thread.join()


def climbed(climb: Climb, work: Work, lrs: Rates | None, text: str, course: Course) -> Ladder:
    """All stages of a ladder, one after the other."""
    results: list[RungResult] = []
    course.total = sum(rung_flops(rung) for rung in expected_rungs(climb, lrs))

    def so_far() -> Ladder:
        return Ladder(text, tuple(results), climb_facts(climb))

    def stage(rungs: Sequence[Rung]) -> None:
        course.ask(rungs)
        for result in work.results(rungs):
            results.append(result)
            course.end(result)

    if lrs is None:
        stage(climb.sweeps())
        for _ in range(ROUNDS):
            stage(climb.extensions(so_far(), climb.sizes[:TUNED]))
        rule = so_far().rule()
        stage(climb.checks(rule))
        for _ in range(ROUNDS):
            stage(climb.extensions(so_far(), climb.checked))
        stage(climb.ascents(so_far().rule().rate))
    else:
        stage(climb.ascents(given_rates(climb, lrs)))
    return so_far()


def given_rates(climb: Climb, lrs: Rates) -> Callable[[str, int], float]:
    """Learning rates that are known, as a function of unit and d_model."""
    if callable(lrs):
        return lrs
    units = dict.fromkeys(unit for unit, _ in climb.recipes)
    if not isinstance(lrs, RateRule):
        lrs = RateRule(rates_by_name(lrs, units), Interval(0.0, math.nan, math.nan))
    missing = [unit for unit in units if unit not in lrs.scales]
    if missing:
        raise GatelabError(f"lrs has no learning rate of {', '.join(missing)}; give one for each")
    return lrs.rate


def rates_by_name(lrs: Mapping[Any, float], units: Container[str]) -> dict[str, float]:
    """Learning rates by the names that units have, of whatever a user calls them by: "reglu" is "glu"."""
    if not isinstance(lrs, Mapping):
        raise GatelabError(f"lrs is {lrs!r}; give a learning rate for each unit, such as {{'gelu': 0.003}}")
    rates: dict[str, float] = {}
    for given, lr in lrs.items():
        name = given if given in units else as_unit(given).name
        if not (isinstance(lr, Real) and 0 < lr < math.inf):
            raise GatelabError(f"of {name} the lr is {lr!r}; give a finite number above 0")
        if rates.setdefault(name, lr) != lr:
            raise GatelabError(f"lrs has both {rates[name]:g} and {lr:g} for {name}, one as {given!r}; give one")
    return rates


def expected_rungs(climb: Climb, lrs: Rates | None) -> list[Rung]:
    """The rungs that a ladder will have at least; their learning rates are checked, or not yet known."""
    if lrs is not None:
        return climb.ascents(given_rates(climb, lrs))
    unknown = RateRule(dict.fromkeys((unit for unit, _ in climb.recipes), 1.0), Interval(0.0, math.nan, math.nan))
    return climb.ascents(unknown.rate) + climb.sweeps() + climb.checks(unknown)


def rung_flops(rung: Rung) -> float:
    """Operations of a rung."""
    r, config = rung.recipe, rung.config
    return float(len(rung.members) * r.steps * r.batch * config.context * config.token_flops(r.unit, r.match_mlp))


def gpu_hours(rungs: Sequence[Rung]) -> float:
    """Hours that rungs take on an H200, by the measured rates of its sizes, in logarithms between them.

    >>> climb, _ = planned(["glu"], quick_text(), ["0.4M"], 3, (1,), {"steps": 1000})
    >>> round(3600 * gpu_hours(expected_rungs(climb, {"glu": 1e-3})), 2)
    1.22
    """
    sizes, rates = np.log(list(H200_RATES)), np.log(list(H200_RATES.values()))
    counts = [rung.config.body_count(rung.recipe.unit, rung.recipe.match_mlp) for rung in rungs]
    seconds = [rung_flops(r) / np.exp(np.interp(math.log(n), sizes, rates)) for r, n in zip(rungs, counts, strict=True)]
    return float(sum(seconds)) / 3600


def quick_text() -> Path:
    """Half a million characters of English that come with Python: what `help()` says of its topics."""
    origin = getattr(importlib.util.find_spec("pydoc_data.topics"), "origin", None)
    if origin is None:
        raise GatelabError("this Python has no pydoc_data, whose text a quick ladder reads; give a text of your own")
    return Path(origin)


def climb_facts(climb: Climb) -> dict[str, Any]:
    """What all rungs of a ladder share."""
    first = next(iter(climb.recipes.values()))
    names = ("model", "optimiser", "tokenizer", "batch", "steps", "schedule", "weight_decay", "beta2", "clip", "warmup")
    context = Rung(first, (1.0,), (0,)).config.context
    return {**{name: getattr(first, name) for name in names}, "context": context}
