"""`compare`: units side by side on one's own rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar, Unpack

import numpy as np
import torch

from gatelab.data import Problem
from gatelab.display import Listener, ProgressLike, reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import AnyUnit
from gatelab.feedforward import unit as as_unit
from gatelab.memory import check_device
from gatelab.scaling_laws import Scaling
from gatelab.scorecard import costs, fits
from gatelab.scorecard.costs import Bench, BlockCost, Linearity, check_features, linearity
from gatelab.scorecard.evidence import Evidence, Facts, FittedNetwork, Growth, LeftOut, Score
from gatelab.scorecard.fits import ROUNDING, AnyData, Trials, fit_units, problem_of, study
from gatelab.scorecard.measurements import Draws, TrainingEstimate, check_loss, draw, rows_of, training
from gatelab.scorecard.recommendation import recommend
from gatelab.scorecard.result import Scorecard, Settings
from gatelab.statistics import Interval

UNITS = ("mlp", "glu", "gqu", "relu2", "swiglu")
ROWS = 1000
Spec = str | AnyUnit | Callable[..., Any]
T = TypeVar("T")


class FileColumns(TypedDict, total=False):
    """The columns of a file, by name or number: its target and its inputs."""

    target: Any
    inputs: Any


def compare(
    units: Iterable[Spec] | Spec = UNITS,
    data: AnyData = "paper-1d",
    *,
    budget: int | None = None,
    widths: Sequence[int] | None = None,
    seeds: int = 3,
    features: int = 64,
    loss: float = 0.1,
    d_model: int = 128,
    rows: int = ROWS,
    device: str | torch.device | None = None,
    progress: ProgressLike = None,
    **columns: Unpack[FileColumns],
) -> Scorecard:
    """Slopes, error at equal parameters, conditioning, steps, linearisation and cost of units, and which to take.

    Args:
        units: two or more units, by name, as values, functions or classes.
        data: a file, a pair of arrays (x, y), a problem, its name, a formula or a function.
        budget: the number of parameters at which units are compared, by default a quarter of the training values and
            160 at most. Every unit is fitted at the width nearest below it, and for the slope at narrower ones.
        widths: those at which every unit is fitted instead.
        seeds: how many fits there are of every network.
        features: the m of the linearisation.
        loss: the share of the target's variance left to which steps are predicted.
        d_model: the size of the block that is timed.
        rows: how many training rows are used at most.
        device: where the block is timed; a GPU where torch sees one.
        progress: shown on a terminal and in a notebook unless it is False, or a function of (done, total).
        **columns: `target` and `inputs`, the columns of a file.

    Returns:
        A `Scorecard`.

    >>> x = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    >>> card = compare(["mlp", "bilinear"], (x, x[:, 0] * x[:, 1]), widths=[1, 2], seeds=1, features=9, d_model=8)
    >>> print(card.recommendation, card.recommendation.regime)
    bilinear of width 1, 8 parameters exact
    >>> card.score("mlp").rmse > 0.1 > 1e-9 > card.score("bilinear").rmse
    True
    """
    for name in columns:
        if name not in FileColumns.__annotations__:
            raise TypeError(f"compare() got an unexpected keyword argument {name!r}")
    chosen = chosen_units(units)
    seeds = whole_number("seeds", seeds, 1)
    # All that can be wrong is told before the fits, which take long.
    loss, features, d_model = check_loss(loss), check_features(features), costs.check_model(d_model)
    if device is None and torch.cuda.is_available():
        device = "cuda"
    where = check_device(device)
    problem = problem_of(data, rows, **columns)
    budget = budget_of(chosen, problem, budget, widths)
    sizes = {u.name: fits.widths_of(u, budget, problem.d_in, problem.d_out, widths) for u in chosen}
    with reporting(progress, "comparing") as report:
        stages = Stages(report, seeds * sum(map(len, sizes.values())), 3 * len(chosen))
        trials, every_fit = fit_units(chosen, problem, sizes, int(seeds), stages.fits)
        kernel_rows = rows_of(problem)
        largest = {u.name: fits.at_budget(u, budget, problem.d_in, problem.d_out) for u in chosen}
        trained = [stages.after(training(u, kernel_rows, largest[u.name], loss)) for u in chosen]
        linear = [stages.after(linearity(u, kernel_rows.x, features)) for u in chosen]
        block_costs, bench = costs.measure(chosen, d_model, where)
        stages.after(None, len(chosen))
    measured = Measurements(
        units=chosen,
        problem=problem,
        budget=budget,
        seeds=int(seeds),
        widths=largest,
        trials=trials,
        draws=draw([t.squares for t in trials], least=ROUNDING * float(problem.test.y.std())),
        scaling=study(chosen, problem, every_fit),
        training=trained,
        linearity=linear,
        block_costs=block_costs,
        bench=bench,
        kernel_rows=len(kernel_rows.x),
    )
    evidence = measured.evidence()
    recommendation = recommend(evidence)
    floor = None
    if recommendation.regime in ("noise", "rows"):
        floor = evidence.best.rmse
    intervals = [errors.interval for errors in linear if np.isfinite(errors.interval[0])]
    return Scorecard(
        problem=problem.name,
        inputs=problem.d_in,
        outputs=problem.d_out,
        train_rows=problem.train.n,
        test_rows=problem.test.n,
        settings=Settings(budget, int(seeds), features, loss, bench, next(iter(intervals), (np.nan, np.nan))),
        scores=evidence.scores,
        networks=evidence.networks,
        scaling=measured.scaling,
        recommendation=recommendation,
        floor=floor,
        left_out=measured.left_out(),
    )


def chosen_units(units: Iterable[Spec] | Spec) -> list[AnyUnit]:
    """Two or more units, whose names differ."""
    specs: Iterable[Any] = units  # pyright: ignore[reportAssignmentType]
    if isinstance(units, str) or callable(units):
        specs = [units]
    chosen = [as_unit(spec) for spec in specs]
    names = [u.name for u in chosen]
    if len(set(names)) < len(names):
        raise GatelabError(f"units must have different names, got {', '.join(names)}")
    if len(chosen) < 2:
        raise GatelabError(f"{len(chosen)} unit{'s' * (len(chosen) != 1)} given; a comparison needs two or more")
    return chosen


def budget_of(units: list[AnyUnit], problem: Problem, budget: int | None, widths: Sequence[int] | None) -> int:
    """The number of parameters at which units are compared: as given, what all reach at `widths`, or the default."""
    if budget is not None:
        return fits.check_budget(budget)
    if widths is not None and len(widths):
        reached = min(u.parameter_count(max(widths), problem.d_in, problem.d_out) for u in units)
        return max(reached, *(u.parameter_count(1, problem.d_in, problem.d_out) for u in units))
    return fits.default_budget(units, problem.d_in, problem.d_out, problem.train.n * problem.d_out)


class Stages:
    """Progress over fits, then over as many parts as there are left, each counted as one."""

    def __init__(self, progress: Listener | None, fits: int, parts: int) -> None:
        self.progress, self.count, self.total = progress, fits, fits + parts

    def fits(self, count: int, _: int) -> None:
        """So many fits are done."""
        if self.progress:
            self.progress(count, self.total)

    def after(self, result: T, parts: int = 1) -> T:
        """Some more parts are done; what they gave is handed on."""
        self.count += parts
        if self.progress:
            self.progress(self.count, self.total)
        return result


@dataclass(frozen=True, eq=False)
class Measurements:
    """All that was measured of the units, before anything follows from it.

    Attributes:
        units: the units, in the order in which they were given.
        problem: the rows.
        budget: the number of parameters at which units are compared.
        seeds: how many fits there are of every network.
        widths: of every unit the width at the budget.
        trials: the errors of every network.
        draws: the same, drawn again and again.
        scaling: the fits as points, with limits where theory has them.
        training: of every unit what its kernel says.
        linearity: of every unit how well it can be linearised.
        block_costs: of every unit what its block costs.
        bench: where that was measured.
        kernel_rows: how many rows the kernels are of.
    """

    units: Sequence[AnyUnit]
    problem: Problem
    budget: int
    seeds: int
    widths: Mapping[str, int]
    trials: Sequence[Trials]
    draws: Draws
    scaling: Scaling
    training: Sequence[TrainingEstimate]
    linearity: Sequence[Linearity]
    block_costs: Sequence[BlockCost]
    bench: Bench
    kernel_rows: int

    def evidence(self) -> Evidence:
        """What a recommendation rests on."""
        scores = self.scores()
        leader = min(scores, key=lambda s: s.rmse)
        return Evidence(scores, self.networks(), self.growth(leader), self.budget, self.facts())

    def place(self, unit: str, width: int) -> int:
        """The place of a network among the trials and the draws."""
        return next(i for i, t in enumerate(self.trials) if (t.unit, t.width) == (unit, width))

    def scores(self) -> tuple[Score, ...]:
        """Every unit at the budget."""
        places = [self.place(u.name, self.widths[u.name]) for u in self.units]
        best = min(places, key=lambda i: self.draws.measured[i])
        scores = []
        for unit, i, kernel, linear, block in zip(
            self.units, places, self.training, self.linearity, self.block_costs, strict=True
        ):
            width = self.widths[unit.name]
            slope, rmse, behind = self.slope(unit.name), self.draws.rmse(i), self.draws.ratio(i, best)
            scores.append(
                Score(
                    unit=unit.name,
                    width=width,
                    parameters=self.trials[i].parameters,
                    slope=slope.value,
                    slope_low=slope.low,
                    slope_high=slope.high,
                    order=unit.order,
                    limit=next(p.limit for p in self.scaling.points if (p.unit, p.width) == (unit.name, width)),
                    rmse=rmse.value,
                    rmse_low=rmse.low,
                    rmse_high=rmse.high,
                    train_rmse=float(self.trials[i].train_rmse.mean()),
                    behind=behind.value,
                    behind_low=behind.low,
                    behind_high=behind.high,
                    condition=kernel.condition,
                    condition_low=kernel.condition_low,
                    condition_high=kernel.condition_high,
                    resolved=kernel.resolved,
                    kernel_networks=kernel.networks,
                    steps=kernel.steps,
                    linear_error=linear.error,
                    linear_low=linear.low,
                    linear_high=linear.high,
                    linear_features=linear.features,
                    minimax_error=linear.minimax,
                    flops=costs.flops(unit, width, self.problem.d_in, self.problem.d_out),
                    block_width=block.width,
                    block_parameters=block.parameters,
                    block_flops=block.flops,
                    rows_per_second=block.rows_per_second,
                    rows_per_second_low=block.low,
                    rows_per_second_high=block.high,
                )
            )
        return tuple(scores)

    def slope(self, unit: str) -> Interval:
        """The slope of a unit's error against P; NaN where fewer than two widths count."""
        try:
            slope = self.scaling.slope(unit, against="P", aggregate="median")
        except GatelabError:
            return Interval(np.nan, np.nan, np.nan)
        return Interval(slope.value, slope.low, slope.high)

    def networks(self) -> tuple[FittedNetwork, ...]:
        """Those within the budget: beyond it units are measured for their slopes alone."""
        by_name = {u.name: u for u in self.units}
        within = [i for i, t in enumerate(self.trials) if t.parameters <= self.budget]
        best = min(within, key=lambda i: self.draws.measured[i])
        networks = []
        for i in within:
            t = self.trials[i]
            networks.append(
                FittedNetwork(
                    unit=t.unit,
                    width=t.width,
                    parameters=t.parameters,
                    flops=costs.flops(by_name[t.unit], t.width, self.problem.d_in, self.problem.d_out),
                    train_rmse=float(t.train_rmse.mean()),
                    rmse=self.draws.rmse(i),
                    behind=self.draws.ratio(i, best),
                )
            )
        return tuple(networks)

    def growth(self, leader: Score) -> Growth | None:
        """What more parameters do for the leader: from half its width or less, or from the narrowest there is."""
        smaller = [t for t in self.trials if t.unit == leader.unit and t.width < leader.width]
        if not smaller:
            return None
        halves = [t for t in smaller if 2 * t.width <= leader.width]
        start = min(smaller, key=lambda t: t.width)
        if halves:
            start = max(halves, key=lambda t: t.width)
        places = self.place(leader.unit, leader.width), self.place(start.unit, start.width)
        return Growth(
            unit=leader.unit,
            widths=(start.width, leader.width),
            parameters=(start.parameters, leader.parameters),
            ratio=self.draws.ratio(*places),
        )

    def left_out(self) -> tuple[LeftOut, ...]:
        """Every network that was fitted and is not compared, or does not count for its unit's slope."""
        networks = {(p.unit, p.width): p.parameters for p in self.scaling.points}
        beyond = [
            LeftOut(
                unit,
                width,
                parameters,
                "comparison",
                f"it has {parameters} parameters and units are compared at {self.budget}; it counts for the slope "
                f"alone, and a budget of {parameters} would compare it",
            )
            for (unit, width), parameters in networks.items()
            if parameters > self.budget
        ]
        values = self.problem.train.n * self.problem.d_out
        reasons = {
            "floor": "{fits} of its fits are exact to rounding",
            "interpolation": f"its parameters are half of the {values} values or more, and such networks interpolate",
        }
        flagged = Counter((p.unit, p.width, p.flag) for p in self.scaling.points if p.flag)
        unfit = [
            LeftOut(unit, width, networks[unit, width], "slope", reasons[flag].format(fits=count))
            for (unit, width, flag), count in flagged.items()
        ]
        return (*beyond, *unfit)

    def facts(self) -> Facts:
        """What else bears on how far the numbers can be trusted."""
        train, test = self.problem.train, self.problem.test
        outside = ((test.x < train.x.min(axis=0)) | (test.x > train.x.max(axis=0))).any(axis=1)
        squares = self.trials[int(np.argmin(self.draws.measured))].squares.mean(axis=0)
        heaviest = 0.0
        if squares.sum() > 0:
            heaviest = float(squares.max() / squares.sum())
        statuses = [s for t in self.trials for s in t.statuses]
        return Facts(
            train_rows=train.n,
            test_rows=test.n,
            values=train.n * self.problem.d_out,
            deviation=float(test.y.std()),
            outside=float(outside.mean()),
            heaviest=heaviest,
            unfinished=statuses.count("budget"),
            fits=len(statuses),
            seeds=self.seeds,
            kernel_rows=self.kernel_rows,
            threads=self.bench.threads,
            device=self.bench.device,
        )
