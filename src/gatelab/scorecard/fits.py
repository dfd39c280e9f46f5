"""The fits of a scorecard: problems with held-out rows, widths at equal parameters, and fits as points."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from gatelab.data import Problem
from gatelab.data import problem as as_problem
from gatelab.data.rows import Data
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import AnyUnit, Unit
from gatelab.feedforward.definition import check_width
from gatelab.scaling_laws import Point, Scaling
from gatelab.scaling_laws.curves import flag_of, limits_of
from gatelab.solve import Fit, fit, fit_many
from gatelab.solve.fits import check_fit

LEAST, TEST = 20, 2000  # the smallest number of rows, and the largest number of held-out rows
POINTS = 400  # rows of a formula or a registered problem
SHARE = 4  # training values per parameter of the default budget
MOST = 160  # parameters of the default budget; a few units then take half a minute on one core
SIZES = 7  # budgets for slopes, each smaller by the root of 2, down to an eighth
# One start per seed, and fewer rounds than `gl.fit`, for every unit; seeds show the remaining randomness.
EFFORT: Mapping[str, int] = {"starts": 1, "rounds": 4}

AnyData = str | Path | Problem | Callable[..., Any] | tuple[Any, Any]


def problem_of(data: AnyData, rows: int, *, target: Any = None, inputs: Any = None) -> Problem:
    """Data as a problem, with a random sample of at most `rows` training rows and 2000 held-out rows."""
    rows = whole_number("rows", rows, LEAST, of="training rows that may be used")
    columns = {"target": target, "inputs": inputs}
    named = {name: value for name, value in columns.items() if value is not None}
    if isinstance(data, Path) or (isinstance(data, str) and Path(data).is_file()):
        problem = Problem.from_file(data, **named)
    elif named:
        raise GatelabError(f"{' and '.join(named)} name columns of a file, and the data are not a file; leave them out")
    elif isinstance(data, Problem | tuple):
        problem = as_problem(data)
    else:
        problem = as_problem(data, n=POINTS)
    if problem.test is problem.train:
        raise GatelabError(
            f"the problem {problem.name!r} tests on its training rows, which does not measure generalization; "
            "leave the paper's protocol out"
        )
    count = problem.train.n + problem.test.n
    if count < LEAST:
        raise GatelabError(f"{problem.name} has {count} rows; give {LEAST} or more, better some hundreds")
    train, test = some_rows(problem.train, rows, 0), some_rows(problem.test, TEST, 1)
    if train is problem.train and test is problem.test:
        return problem
    description = f"{problem.description}; {train.n} of {problem.train.n} training rows drawn"
    return replace(problem, train=train, test=test, description=description, recipe=None)


def some_rows(data: Data, most: int, seed: int) -> Data:
    """The data, or a random sample of `most` rows in their order."""
    if data.n <= most:
        return data
    rows = np.sort(np.random.default_rng(seed).choice(data.n, most, replace=False))
    return Data(data.x[rows], data.y[rows])


def budget_of(units: Sequence[AnyUnit], problem: Problem, budget: int | None, widths: Sequence[int] | None) -> int:
    """The number of parameters for the comparison: given, reached by all units at `widths`, or the default."""
    if budget is not None:
        return whole_number("budget", budget, 1, of="parameters")

    def most(width: int) -> list[int]:
        return [u.parameter_count(width, problem.d_in, problem.d_out) for u in units]

    budget = min(problem.train.n * problem.d_out // SHARE, MOST)
    if widths is not None and len(widths):
        budget = min(most(max(widths)))
    return max(budget, *most(1))


def widest(unit: AnyUnit, budget: int, d_in: int, d_out: int) -> int | None:
    """The largest width within the budget; None if one neuron has more parameters."""

    def parameters(width: int) -> int:
        return unit.parameter_count(width, d_in, d_out)

    beyond = 1
    while parameters(beyond) <= budget:
        beyond *= 2
    return bisect_right(range(1, beyond), budget, key=parameters) or None


def widths_of(
    unit: AnyUnit, budget: int, d_in: int, d_out: int, widths: Sequence[int] | None = None
) -> tuple[int, ...]:
    """The widths at which a unit is fitted, including the largest within the budget."""
    last = widest(unit, budget, d_in, d_out)
    if last is None:
        least = unit.parameter_count(1, d_in, d_out)
        raise GatelabError(
            f"one neuron of {unit.name} has {least} parameters on {d_in} inputs and the budget is {budget}; "
            f"give a budget of {least} or more, or leave {unit.name} out"
        )
    if widths is not None:
        return tuple(sorted({last, *(check_width(w) for w in widths)}))
    sizes = (widest(unit, int(budget / 2 ** (k / 2)), d_in, d_out) for k in range(SIZES))
    return tuple(sorted({w for w in sizes if w}))


def fit_units(
    units: Sequence[AnyUnit],
    problem: Problem,
    widths: Mapping[str, Sequence[int]],
    seeds: Sequence[int],
    progress: Callable[[int], None],
) -> list[Fit]:
    """Fit every unit at its widths, narrowest first, batched if the solver allows; `progress(fits done)`."""
    solvers = {u.name: [check_fit(u, problem, width, "auto", EFFORT)[0] for width in widths[u.name]][-1] for u in units}
    fits: list[Fit] = []
    for u in units:
        effort: Mapping[str, Any] = EFFORT if solvers[u.name] == "varpro" else {}
        if effort and isinstance(u, Unit):
            before, count = len(fits), len(seeds) * len(widths[u.name])

            def report(done: int, total: int, before: int = before, count: int = count) -> None:
                progress(before + done * count // total)

            fits += fit_many(u, problem, widths[u.name], seeds=seeds, progress=report, **effort)
            continue
        for width, seed in product(widths[u.name], seeds):
            fits.append(fit(u, problem, width, seed=seed, **effort))
            progress(len(fits))
    return fits


def scaling_of(units: Sequence[AnyUnit], problem: Problem, fits: Sequence[Fit]) -> Scaling:
    """The fits as points of a `Scaling`, with the flags "floor" and "interpolation" of `gl.scaling`.

    Points above their limit are not flagged, since the limit is an estimate for given rows.
    """
    limits = {u.name: limits_of(u, problem, sorted({f.width for f in fits if f.unit == u.name})) for u in units}
    points = []
    for f in fits:
        bound = limits[f.unit][f.width]
        flag = flag_of(problem, f.parameters, f.test_rmse, str(f.status))
        ratio = f.test_rmse / bound if bound > 0 else np.nan
        numbers = (f.unit, f.width, f.parameters, f.seed, f.train_rmse, f.test_rmse, bound, ratio)
        points.append(Point(*numbers, flag, str(f.status), f.seconds))
    return Scaling(problem.name, tuple(points))
