"""The fits of a scorecard: data as a problem, widths at equal parameters, and what each network misses on test rows.

Whatever a user calls data becomes a problem with rows that were set aside, and not too many of them. For every unit the
widths are fitted that come nearest below the same numbers of parameters.
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
from gatelab.display import Compact, Listener
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import AnyUnit, Unit
from gatelab.feedforward.definition import check_width
from gatelab.scaling_laws import Point, Scaling
from gatelab.scaling_laws.curves import limits_of
from gatelab.solve import Fit, fit, fit_many
from gatelab.solve.fits import check_fit

LEAST = 20
TEST = 2000
POINTS = 400  # of a formula or a registered problem, which have as many as one likes

SHARE = 4  # values of the data for each parameter of the default budget
MOST = 160  # parameters of the default budget: what a few units can be fitted with in half a minute on one core
RUNGS = 7  # budgets for slopes, each below the one before by the root of 2: an eighth at the end
# One start a seed, and fewer rounds than `gl.fit`: every unit gets the same, and seeds show what it leaves to luck.
EFFORT: Mapping[str, int] = {"starts": 1, "rounds": 4}
ROUNDING = 1e-10  # of the target's deviation: errors below it are rounding, and equal

AnyData = str | Path | Problem | Callable[..., Any] | tuple[Any, Any]


def problem_of(data: AnyData, rows: int, **columns: Any) -> Problem:
    """A problem from a file, a pair (x, y), a registered name, a formula, a function or a problem.

    `columns` are target and inputs of a file. At most `rows` training rows and 2000 test rows are used, drawn by a
    fixed seed.
    """
    rows = whole_number("rows", rows, LEAST, of="training rows that may be used")
    named = {name: value for name, value in columns.items() if value is not None}
    if isinstance(data, Path) or (isinstance(data, str) and Path(data).is_file()):
        problem = Problem.from_file(data, **named)
    elif named:
        raise GatelabError(f"{' and '.join(named)} name columns of a file; the data were given as something else")
    elif isinstance(data, tuple):
        if len(data) != 2:
            raise GatelabError(f"the data are a tuple of {len(data)}; give (x, y), a problem, a name or a file")
        problem = Problem.from_arrays(*data)
    elif isinstance(data, Problem):
        problem = data
    else:
        problem = as_problem(data, n=POINTS)
    if problem.test is problem.train:
        raise GatelabError(
            f"the problem {problem.name!r} tests on its training rows, which says nothing of new ones; "
            "leave the paper's protocol out"
        )
    count = problem.train.n + problem.test.n
    if count < LEAST:
        raise GatelabError(f"{problem.name} has {count} rows; a comparison needs {LEAST} or more, better some hundreds")
    train, test = some_rows(problem.train, rows, 0), some_rows(problem.test, TEST, 1)
    if train is problem.train and test is problem.test:
        return problem
    description = f"{problem.description}; {train.n} of {problem.train.n} training rows drawn"
    return replace(problem, train=train, test=test, description=description, recipe=None)


def some_rows(data: Data, most: int, seed: int) -> Data:
    """The data, or as many rows of them as there may be, in their order."""
    if data.n <= most:
        return data
    rows = np.sort(np.random.default_rng(seed).choice(data.n, most, replace=False))
    return Data(data.x[rows], data.y[rows])


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
        if unit.parameter_count(middle, d_in, d_out) <= budget:
            low = middle
        else:
            high = middle
    return low


def at_budget(unit: AnyUnit, budget: int, d_in: int, d_out: int) -> int:
    """`widest`, or the error that says what budget would do."""
    width = widest(unit, budget, d_in, d_out)
    if width is None:
        least = unit.parameter_count(1, d_in, d_out)
        raise GatelabError(
            f"one neuron of {unit.name} has {least} parameters on {d_in} inputs and the budget is {budget}; "
            f"give a budget of {least} or more, or leave {unit.name} out"
        )
    return width


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
    """The budget as an int, refused unless it is a number of parameters."""
    return whole_number("budget", budget, 1, of="parameters")


@dataclass(frozen=True, eq=False)
class Trials(Compact):
    """The seeds of one unit at one width: `squares` (seeds, test rows) are squared errors, averaged over outputs."""

    unit: str
    width: int
    parameters: int
    train_rmse: Array
    squares: Array = field(repr=False)
    statuses: tuple[str, ...] = ()

    @property
    def rmse(self) -> float:
        """The mean over seeds of the RMSE on the test rows."""
        return float(np.sqrt(self.squares.mean(axis=1)).mean())


def fit_units(
    units: Sequence[AnyUnit],
    problem: Problem,
    widths: Mapping[str, Sequence[int]],
    seeds: int,
    progress: Listener | None = None,
) -> tuple[tuple[Trials, ...], tuple[Fit, ...]]:
    """Every unit at its widths, smallest first, and the fits they are of; `progress(done, total)` counts fits."""
    for u in units:
        for width in widths[u.name]:
            check_fit(u, problem, width, "auto")
    total = seeds * sum(len(widths[u.name]) for u in units)
    fits: list[Fit] = []
    for u in units:
        before = len(fits)

        def report(count: int, before: int = before) -> None:
            if progress is not None:
                progress(before + count, total)

        fits += fits_of(u, problem, widths[u.name], seeds, report)
    by_network: dict[tuple[str, int], list[Fit]] = {}
    for network in fits:
        by_network.setdefault((network.unit, network.width), []).append(network)
    return tuple(trials_of(same, problem) for same in by_network.values()), tuple(fits)


def fits_of(
    unit: AnyUnit, problem: Problem, widths: Sequence[int], seeds: int, report: Callable[[int], None]
) -> list[Fit]:
    """The fits of one unit, in one batch where the solver takes batches, else one after the other."""
    solver, _ = check_fit(unit, problem, widths[-1], "auto")
    if solver == "varpro" and isinstance(unit, Unit):
        count = len(widths) * seeds

        def progress(done: int, total: int) -> None:
            report(done * count // total)

        return list(fit_many(unit, problem, widths, seeds=seeds, progress=progress, **EFFORT))
    options: Mapping[str, Any] = {"varpro": EFFORT}.get(solver, {})
    fits = []
    for width in widths:
        for seed in range(seeds):
            fits.append(fit(unit, problem, width, seed=seed, **options))
            report(len(fits))
    return fits


def trials_of(fits: Sequence[Fit], problem: Problem) -> Trials:
    """The seeds of one network, and what each misses on the test rows."""
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
    limits = {u.name: limits_of(u, problem, sorted({f.width for f in fits if f.unit == u.name})) for u in units}
    values, size = problem.train.n * problem.d_out, float(np.abs(problem.train.y).max())
    points = []
    for f in fits:
        bound = limits[f.unit][f.width]
        flag = ""
        if str(f.status) == "floor" or f.test_rmse <= 1e-12 * size:
            flag = "floor"
        elif 2 * f.parameters >= values:
            flag = "interpolation"
        ratio = np.nan
        if bound > 0:
            ratio = f.test_rmse / bound
        numbers = (f.unit, f.width, f.parameters, f.seed, f.train_rmse, f.test_rmse, bound, ratio)
        points.append(Point(*numbers, flag, str(f.status), f.seconds))
    return Scaling(problem.name, tuple(points))
