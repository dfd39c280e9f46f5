"""Whatever a user calls data, as a problem with rows that were held out, and not too many of them.

Which networks are fitted: for every unit the widths that come nearest below the same numbers of parameters.

Networks of every unit, fitted to the training rows; what each misses on every row that was held out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gatelab.arrays import Array
from gatelab.data import Problem
from gatelab.data import problem as as_problem
from gatelab.data.rows import Data
from gatelab.display import Told, counted, one_line
from gatelab.errors import GatelabError
from gatelab.feedforward import AnyUnit, Unit
from gatelab.feedforward.definition import check_width
from gatelab.scaling_laws import Point, Scaling, limit
from gatelab.solve import Fit, fit, fit_many
from gatelab.solve.fits import check_fit

LEAST = 20
TEST = 2000
POINTS = 400  # of a formula or a registered problem, which have as many as one likes

Given = str | Path | Problem | Callable[..., Any] | tuple[Any, Any]


def problem_of(given: Given, rows: int, **columns: Any) -> Problem:
    """A problem from a file, a pair (x, y), a registered name, a formula, a function or a problem.

    `columns` are target and inputs of a file. At most `rows` training rows and 2000 test rows are kept, drawn by a
    fixed seed.
    """
    if isinstance(rows, bool) or not hasattr(rows, "__index__") or int(rows) < LEAST:
        raise GatelabError(f"rows is {rows!r}; give how many training rows may be used, {LEAST} or more")
    named = {name: value for name, value in columns.items() if value is not None}
    if isinstance(given, Path) or (isinstance(given, str) and Path(given).is_file()):
        made = Problem.from_file(given, **named)
    elif named:
        raise GatelabError(f"{' and '.join(named)} name columns of a file; the data were given as something else")
    elif isinstance(given, tuple):
        if len(given) != 2:
            raise GatelabError(f"the data are a tuple of {len(given)}; give (x, y), a problem, a name or a file")
        made = Problem.from_arrays(*given)
    elif isinstance(given, Problem):
        made = given
    else:
        made = as_problem(given, n=POINTS)
    return _cut(_checked(made), int(rows))


def _checked(problem: Problem) -> Problem:
    if problem.test is problem.train:
        raise GatelabError(
            f"the problem {problem.name!r} tests on its training rows, which says nothing of new ones; "
            "leave the paper's protocol out"
        )
    count = problem.train.n + problem.test.n
    if count < LEAST:
        raise GatelabError(f"{problem.name} has {count} rows; a comparison needs {LEAST} or more, better some hundreds")
    return problem


def _cut(problem: Problem, rows: int) -> Problem:
    train, test = _some(problem.train, rows, 0), _some(problem.test, TEST, 1)
    if train is problem.train and test is problem.test:
        return problem
    told = f"{problem.description}; {train.n} of {problem.train.n} training rows drawn"
    return replace(problem, train=train, test=test, description=told, recipe=None)


def _some(data: Data, most: int, seed: int) -> Data:
    if data.n <= most:
        return data
    kept = np.sort(np.random.default_rng(seed).choice(data.n, most, replace=False))
    return Data(data.x[kept], data.y[kept])


SHARE = 4  # values of the data for each parameter of the default budget
MOST = 160  # parameters of the default budget: what a few units can be fitted with in half a minute on one core
RUNGS = 7  # budgets for slopes, each below the one before by the root of 2: an eighth at the end


def default_budget(units: Sequence[AnyUnit], d_in: int, d_out: int, values: int) -> int:
    """A quarter of the values of the data, 160 at most, and enough for one neuron of every unit."""
    least = max(u.parameter_count(1, d_in, d_out) for u in units)
    return max(min(values // SHARE, MOST), least)


def widest(unit: AnyUnit, budget: int, d_in: int, d_out: int) -> int | None:
    """The width whose parameters come nearest to the budget from below; None where one neuron has more.

    >>> from gatelab.feedforward import unit
    >>> widest(unit("glu"), 80, 3, 1), widest(unit("mlp"), 80, 3, 1), widest(unit("gqu"), 10, 3, 1)
    (8, 15, None)
    """
    if unit.parameter_count(1, d_in, d_out) > budget:
        return None
    low, high = 1, 2
    while unit.parameter_count(high, d_in, d_out) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if unit.parameter_count(middle, d_in, d_out) <= budget else (low, middle)
    return low


def at_budget(unit: AnyUnit, budget: int, d_in: int, d_out: int) -> int:
    """`widest`, or the error that says what budget would do."""
    found = widest(unit, budget, d_in, d_out)
    if found is None:
        least = unit.parameter_count(1, d_in, d_out)
        raise GatelabError(
            f"one neuron of {unit.name} has {least} parameters on {d_in} inputs and the budget is {budget}; "
            f"give a budget of {least} or more, or leave {unit.name} out"
        )
    return found


def widths_of(
    unit: AnyUnit, budget: int, d_in: int, d_out: int, widths: Sequence[int] | None = None
) -> tuple[int, ...]:
    """The widths at which a unit is fitted, the one of the budget last; those given are the same for every unit.

    >>> from gatelab.feedforward import unit
    >>> widths_of(unit("glu"), 80, 3, 1)
    (1, 2, 3, 4, 6, 8)
    """
    last = at_budget(unit, budget, d_in, d_out)
    if widths is not None:
        return tuple(sorted({last, *(check_width(w) for w in widths)}))
    rungs = (widest(unit, int(budget / 2 ** (k / 2)), d_in, d_out) for k in range(RUNGS))
    return tuple(sorted({w for w in rungs if w}))


def check_budget(budget: Any) -> int:
    if isinstance(budget, bool) or not hasattr(budget, "__index__") or int(budget) < 1:
        raise GatelabError(f"budget is {budget!r}; give a number of parameters, such as 100")
    return int(budget)


# One start a seed, and fewer rounds than `gl.fit`: every unit gets the same, and seeds show what it leaves to luck.
EFFORT: Mapping[str, int] = {"starts": 1, "rounds": 4}
ROUNDING = 1e-10  # of the target's deviation: errors below it are rounding, and equal


@dataclass(frozen=True, eq=False)
class Trials:
    """The seeds of one unit at one width: `squares` (seeds, test rows) are squared errors, averaged over outputs."""

    unit: str
    width: int
    parameters: int
    train_rmse: Array
    squares: Array = field(repr=False)
    statuses: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return one_line(
            self, f"{self.unit}, width {self.width}: {counted(len(self.train_rmse), 'seed')}, test RMSE {self.rmse:.2g}"
        )

    @property
    def rmse(self) -> float:
        """The mean over seeds of the RMSE on the test rows."""
        return float(np.sqrt(self.squares.mean(axis=1)).mean())


def fit_units(
    units: Sequence[AnyUnit],
    problem: Problem,
    widths: Mapping[str, Sequence[int]],
    seeds: int,
    progress: Told | None = None,
) -> tuple[tuple[Trials, ...], tuple[Fit, ...]]:
    """Every unit at its widths, smallest first, and the fits they are of; `progress(done, total)` counts fits."""
    for u in units:
        for width in widths[u.name]:
            check_fit(u, problem, width, "auto")
    total = seeds * sum(len(widths[u.name]) for u in units)
    fits: list[Fit] = []
    for u in units:
        fits += _fits(u, problem, widths[u.name], seeds, _after(progress, len(fits), total))
    by_network: dict[tuple[str, int], list[Fit]] = {}
    for one in fits:
        by_network.setdefault((one.unit, one.width), []).append(one)
    return tuple(_trials(same, problem) for same in by_network.values()), tuple(fits)


def _after(progress: Told | None, before: int, total: int) -> Told | None:
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)


def _fits(unit: AnyUnit, problem: Problem, widths: Sequence[int], seeds: int, progress: Told | None) -> list[Fit]:
    """In one batch where the solver takes batches, else one after the other."""
    count = len(widths) * seeds
    solver, _ = check_fit(unit, problem, widths[-1], "auto")
    if solver == "varpro" and isinstance(unit, Unit):
        told = None if progress is None else lambda done, total: progress(done * count // total, count)
        return list(fit_many(unit, problem, widths, seeds=seeds, progress=told, **EFFORT))
    options: Mapping[str, Any] = EFFORT if solver == "varpro" else {}
    made = []
    for width in widths:
        for seed in range(seeds):
            made.append(fit(unit, problem, width, seed=seed, **options))
            if progress:
                progress(len(made), count)
    return made


def _trials(fits: Sequence[Fit], problem: Problem) -> Trials:
    first = fits[0]
    squares = [np.square(f.predict(problem.test.x) - problem.test.y).mean(axis=1) for f in fits]
    train = np.array([f.train_rmse for f in fits])
    statuses = tuple(str(f.status) for f in fits)
    return Trials(first.unit, first.width, first.parameters, train, np.array(squares), statuses)


def study(units: Sequence[AnyUnit], problem: Problem, fits: Sequence[Fit]) -> Scaling:
    """The fits as the points of a `Scaling`, with limits where theory has them.

    Points are flagged "floor" and "interpolation" as `gl.scaling` does it. None is flagged for lying above its limit:
    that of given rows is an estimate, and a slope over what rows of one's own allow is what is asked for.
    """
    limits = {u.name: _limits(u, problem, sorted({f.width for f in fits if f.unit == u.name})) for u in units}
    values, size = problem.train.n * problem.d_out, float(np.abs(problem.train.y).max())
    points = []
    for f in fits:
        bound = limits[f.unit][f.width]
        exact = str(f.status) == "floor" or f.test_rmse <= 1e-12 * size
        flag = "floor" if exact else "interpolation" if 2 * f.parameters >= values else ""
        ratio = f.test_rmse / bound if bound > 0 else np.nan
        numbers = (f.unit, f.width, f.parameters, f.seed, f.train_rmse, f.test_rmse, bound, ratio)
        points.append(Point(*numbers, flag, str(f.status), f.seconds))
    return Scaling(problem.name, tuple(points))


def _limits(unit: AnyUnit, problem: Problem, widths: list[int]) -> dict[int, float]:
    try:
        return dict(zip(widths, map(float, limit(unit, problem, np.array(widths))), strict=True))
    except GatelabError:  # smooth gates, several inputs, too few rows for a derivative: theory has no number
        return dict.fromkeys(widths, np.nan)
