"""Whatever a user calls data, as a problem with rows that were held out, and not too many of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gatelab.errors import GatelabError
from gatelab.problems import Problem
from gatelab.problems import problem as as_problem
from gatelab.problems.data import Data

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
