"""`compare`: units side by side on one's own rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from gatelab.data import Problem
from gatelab.display import ProgressLike, Told, reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import AnyUnit
from gatelab.feedforward import unit as as_unit
from gatelab.memory import check_device
from gatelab.scaling_laws import Scaling
from gatelab.scorecard import costs, fits
from gatelab.scorecard.costs import Linearity, check_features, linearity
from gatelab.scorecard.evidence import Evidence, Facts, FittedNetwork, Growth, LeftOut, Score
from gatelab.scorecard.fits import ROUNDING, Given, Trials, fit_units, problem_of, study
from gatelab.scorecard.measurements import Draws, TrainingEstimate, check_loss, draw, rows_of, training
from gatelab.scorecard.recommendation import recommend
from gatelab.scorecard.result import Scorecard, Settings

UNITS = ("mlp", "glu", "gqu", "relu2", "swiglu")
ROWS = 1000
Spec = str | AnyUnit | Callable[..., Any]
T = TypeVar("T")


def compare(
    units: Iterable[Spec] | Spec = UNITS,
    data: Given = "paper-1d",
    *,
    budget: int | None = None,
    widths: Sequence[int] | None = None,
    seeds: int = 3,
    features: int = 64,
    loss: float = 0.1,
    d_model: int = 128,
    rows: int = ROWS,
    target: Any = None,
    inputs: Any = None,
    device: str | torch.device | None = None,
    progress: ProgressLike = None,
) -> Scorecard:
    """Slopes, error at equal parameters, conditioning, steps, linearisation and cost of units, and which to take.

    `data` is a file (with `target` and `inputs`, its columns), a pair of arrays (x, y), a problem, its name, or a
    formula. `budget` is the number of parameters at which units are held against each other, by default a quarter of
    the training values and 160 at most. Every unit is fitted at the width nearest below it, and for the slope at
    narrower ones, or at `widths`; by `seeds` seeds each. At most `rows` training rows are used. `features` is the m of
    the linearisation, `loss` the share of the target's variance left to which steps are predicted, `d_model` the size
    of the block that is timed, on `device` (a GPU where torch sees one). `progress` is shown on a terminal and in a
    notebook unless it is False, or a function of (done, total).

    >>> x = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    >>> card = compare(["mlp", "bilinear"], (x, x[:, 0] * x[:, 1]), widths=[1, 2], seeds=1, features=9, d_model=8)
    >>> print(card.recommendation, card.recommendation.regime)
    bilinear of width 1, 8 parameters exact
    >>> card.score("mlp").rmse > 0.1 > 1e-9 > card.score("bilinear").rmse
    True
    """
    chosen = _units(units)
    whole_number("seeds", seeds, 1)
    # All that can be wrong is told before the fits, which take long.
    loss, features, d_model = check_loss(loss), check_features(features), costs.check_model(d_model)
    where = check_device("cuda" if device is None and torch.cuda.is_available() else device)
    problem = problem_of(data, rows, target=target, inputs=inputs)
    budget = _budget(chosen, problem, budget, widths)
    sizes = {u.name: fits.widths_of(u, budget, problem.d_in, problem.d_out, widths) for u in chosen}
    with reporting(progress, "comparing") as report:
        stage = _Stages(report, seeds * sum(map(len, sizes.values())), 3 * len(chosen))
        trials, every_fit = fit_units(chosen, problem, sizes, int(seeds), stage.fits)
        rows_here = rows_of(problem)
        at = {u.name: fits.at_budget(u, budget, problem.d_in, problem.d_out) for u in chosen}
        trained = [stage.after(training(u, rows_here, at[u.name], loss)) for u in chosen]
        linear = [stage.after(linearity(u, rows_here.x, features)) for u in chosen]
        block_costs, bench = costs.measure(chosen, d_model, where)
        stage.after(None, len(chosen))
    scaling = study(chosen, problem, every_fit)
    draws = draw([t.squares for t in trials], least=ROUNDING * float(problem.test.y.std()))
    scores = _scores(chosen, trials, at, draws, scaling, trained, linear, block_costs, problem)
    evidence = Evidence(
        scores,
        _networks(chosen, trials, draws, budget, problem),
        _growth(trials, draws, min(scores, key=lambda s: s.rmse)),
        budget,
        _facts(problem, trials, draws, int(seeds), len(rows_here.x), bench),
    )
    recommendation = recommend(evidence)
    interval = next((one.interval for one in linear if np.isfinite(one.interval[0])), (np.nan, np.nan))
    floor = None
    if recommendation.regime in ("noise", "rows"):
        floor = evidence.best.rmse
    return Scorecard(
        problem=problem.name,
        inputs=problem.d_in,
        outputs=problem.d_out,
        train_rows=problem.train.n,
        test_rows=problem.test.n,
        settings=Settings(budget, int(seeds), features, loss, bench, interval),
        scores=scores,
        networks=evidence.networks,
        scaling=scaling,
        recommendation=recommendation,
        floor=floor,
        left_out=_left_out(scaling, budget, problem.train.n * problem.d_out),
    )


class _Stages:
    """Progress over fits, then over as many parts as there are left, each counted as one."""

    def __init__(self, progress: Told | None, fits: int, parts: int) -> None:
        self.progress, self.done, self.total = progress, fits, fits + parts

    def fits(self, done: int, _: int) -> None:
        if self.progress:
            self.progress(done, self.total)

    def after(self, made: T, parts: int = 1) -> T:
        self.done += parts
        if self.progress:
            self.progress(self.done, self.total)
        return made


def _units(given: Iterable[Spec] | Spec) -> list[AnyUnit]:
    chosen = [as_unit(u) for u in ([given] if isinstance(given, str) or callable(given) else given)]  # pyright: ignore
    names = [u.name for u in chosen]
    if len(set(names)) < len(names):
        raise GatelabError(f"units must have different names, got {', '.join(names)}")
    if len(chosen) < 2:
        raise GatelabError(f"{len(chosen)} unit{'s' * (len(chosen) != 1)} given; a comparison needs two or more")
    return chosen


def _budget(units: list[AnyUnit], problem: Problem, budget: int | None, widths: Sequence[int] | None) -> int:
    if budget is not None:
        return fits.check_budget(budget)
    if widths is not None and len(widths):
        reached = min(u.parameter_count(max(widths), problem.d_in, problem.d_out) for u in units)
        return max(reached, *(u.parameter_count(1, problem.d_in, problem.d_out) for u in units))
    return fits.default_budget(units, problem.d_in, problem.d_out, problem.train.n * problem.d_out)


def _place(trials: Sequence[Trials], unit: str, width: int) -> int:
    return next(i for i, t in enumerate(trials) if (t.unit, t.width) == (unit, width))


def _scores(
    units: Sequence[AnyUnit],
    trials: Sequence[Trials],
    at: dict[str, int],
    draws: Draws,
    scaling: Scaling,
    trained: Sequence[TrainingEstimate],
    linear: Sequence[Linearity],
    block_costs: Sequence[costs.BlockCost],
    problem: Problem,
) -> tuple[Score, ...]:
    places = [_place(trials, u.name, at[u.name]) for u in units]
    best = min(places, key=lambda i: draws.measured[i])
    made = []
    for u, i, t, lin, c in zip(units, places, trained, linear, block_costs, strict=True):
        rmse, behind = draws.rmse(i), draws.ratio(i, best)
        slope, low, high = _slope(scaling, u.name)
        bound = next(p.limit for p in scaling.points if (p.unit, p.width) == (u.name, at[u.name]))
        made.append(
            Score(
                unit=u.name,
                width=at[u.name],
                parameters=trials[i].parameters,
                slope=slope,
                slope_low=low,
                slope_high=high,
                order=u.order,
                limit=bound,
                rmse=rmse.value,
                rmse_low=rmse.low,
                rmse_high=rmse.high,
                train_rmse=float(trials[i].train_rmse.mean()),
                behind=behind.value,
                behind_low=behind.low,
                behind_high=behind.high,
                condition=t.condition,
                condition_low=t.condition_low,
                condition_high=t.condition_high,
                resolved=t.resolved,
                kernel_networks=t.networks,
                steps=t.steps,
                linear_error=lin.error,
                linear_low=lin.low,
                linear_high=lin.high,
                linear_features=lin.features,
                minimax_error=lin.minimax,
                flops=costs.flops(u, at[u.name], problem.d_in, problem.d_out),
                block_width=c.width,
                block_parameters=c.parameters,
                block_flops=c.flops,
                rows_per_second=c.rows_per_second,
                rows_per_second_low=c.low,
                rows_per_second_high=c.high,
            )
        )
    return tuple(made)


def _slope(scaling: Scaling, unit: str) -> tuple[float, float, float]:
    try:
        found = scaling.slope(unit, against="P", aggregate="median")
    except GatelabError:  # fewer than two widths are left
        return np.nan, np.nan, np.nan
    return found.value, found.low, found.high


def _networks(
    units: Sequence[AnyUnit], trials: Sequence[Trials], draws: Draws, budget: int, problem: Problem
) -> tuple[FittedNetwork, ...]:
    """Those within the budget: beyond it units are measured for their slopes alone."""
    by_name = {u.name: u for u in units}
    within = [i for i, t in enumerate(trials) if t.parameters <= budget]
    best = min(within, key=lambda i: draws.measured[i])
    return tuple(
        FittedNetwork(
            t.unit,
            t.width,
            t.parameters,
            costs.flops(by_name[t.unit], t.width, problem.d_in, problem.d_out),
            float(t.train_rmse.mean()),
            draws.rmse(i),
            draws.ratio(i, best),
        )
        for i, t in ((i, trials[i]) for i in within)
    )


def _growth(trials: Sequence[Trials], draws: Draws, leader: Score) -> Growth | None:
    """What more parameters do for the leader: from half its width or less, or from the narrowest that was fitted."""
    smaller = [t for t in trials if t.unit == leader.unit and t.width < leader.width]
    if not smaller:
        return None
    halves = [t for t in smaller if 2 * t.width <= leader.width]
    start = min(smaller, key=lambda t: t.width)
    if halves:
        start = max(halves, key=lambda t: t.width)
    ratio = draws.ratio(_place(trials, leader.unit, leader.width), _place(trials, start.unit, start.width))
    return Growth(leader.unit, (start.width, leader.width), (start.parameters, leader.parameters), ratio)


def _left_out(scaling: Scaling, budget: int, values: int) -> tuple[LeftOut, ...]:
    """Every network that was fitted and is not compared, or does not count for its unit's slope."""
    networks = {(p.unit, p.width): p.parameters for p in scaling.points}
    beyond = [
        LeftOut(
            unit,
            width,
            parameters,
            "comparison",
            f"it has {parameters} parameters and units are compared at {budget}; it counts for the slope alone, and a "
            f"budget of {parameters} would compare it",
        )
        for (unit, width), parameters in networks.items()
        if parameters > budget
    ]
    reasons = {
        "floor": "{fits} of its fits are exact to rounding",
        "interpolation": f"its parameters are half of the {values} values or more, and such networks interpolate",
    }
    flagged = Counter((p.unit, p.width, p.flag) for p in scaling.points if p.flag)
    unfit = [
        LeftOut(unit, width, networks[unit, width], "slope", reasons[flag].format(fits=count))
        for (unit, width, flag), count in flagged.items()
    ]
    return (*beyond, *unfit)


def _facts(
    problem: Problem, trials: Sequence[Trials], draws: Draws, seeds: int, kernel_rows: int, bench: costs.Bench
) -> Facts:
    train, test = problem.train, problem.test
    outside = ((test.x < train.x.min(axis=0)) | (test.x > train.x.max(axis=0))).any(axis=1)
    squares = trials[int(np.argmin(draws.measured))].squares.mean(axis=0)
    statuses = [s for t in trials for s in t.statuses]
    return Facts(
        train_rows=train.n,
        test_rows=test.n,
        values=train.n * problem.d_out,
        deviation=float(test.y.std()),
        outside=float(outside.mean()),
        heaviest=float(squares.max() / squares.sum()) if squares.sum() > 0 else 0.0,
        unfinished=statuses.count("budget"),
        fits=len(statuses),
        seeds=seeds,
        kernel_rows=kernel_rows,
        threads=bench.threads,
        device=bench.device,
    )
