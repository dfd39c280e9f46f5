"""Facts behind the rows of table 1: the two ridge functions of sin 4x sin 4y, and the rows of measured data.

The target sin 4x sin 4y = cos 4(x - y) / 2 - cos 4(x + y) / 2 is a sum of two ridge functions, and a network may be two
halves, each fitted on a line. For x and y uniform on [-1, 1] both x - y and x + y have the triangular density on
[-2, 2], and the errors of the halves are nearly uncorrelated, so that their squares add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gatelab.arrays import Array
from gatelab.data import Problem
from gatelab.solve import fit, predict
from gatelab.studies.engine import Table
from gatelab.studies.scaling.printed import UNITS
from gatelab.studies.scaling.problem_rows import SPLIT, ProblemRow
from gatelab.studies.scaling.row_slopes import part_of

WORST = 0.01  # the part of the test rows that is looked at for outliers
REFITTED = 8  # the widest network that is fitted once more to look at its errors
# Columns that were swept at fixed values of the others: rows of one sweep are neighbors of each other.
SWEPT = {"airfoil": "frequency"}


def ridge_problem(points: int) -> Problem:
    """One of the two ridge functions, on points of the triangular density."""
    rng = np.random.default_rng(0)
    t, other = (rng.uniform(-1, 1, (points, 2)).sum(axis=1) for _ in range(2))
    wave = {"name": "cos(4t)/2", "interval": (-2.0, 2.0)}
    return Problem.from_arrays(t, np.cos(4 * t) / 2, test=(other, np.cos(4 * other) / 2), **wave)


def ridge_table(widths: Sequence[int], units: Iterable[str] = UNITS, points: int = 10_000) -> Table:
    """The test RMSE of two fits on a line that share the neurons, per unit and width."""
    line = ridge_problem(points)
    halves = sorted({half for width in widths for half in (width // 2, width - width // 2)})
    rows = []
    for unit in units:
        error = {half: fit(unit, line, half).test_rmse for half in halves}
        rows += [(unit, n, float(np.hypot(error[n // 2], error[n - n // 2]))) for n in widths]
    return pd.DataFrame(rows, columns=["unit", "width", "rmse"])


def data_table(errors: Table, rows: Iterable[ProblemRow]) -> Table:
    """One row per problem of measured data: counts over all its rows, and where the test errors of one fit lie."""
    return pd.DataFrame({"problem": row.name} | data_facts(row) | refitted(errors, row) for row in rows)


def data_facts(row: ProblemRow) -> dict[str, Any]:
    """Rows, those that share their inputs with another, those at the largest target, and settings of a sweep."""
    data = row.problem()
    x, y = (np.concatenate([getattr(data.train, name), getattr(data.test, name)]) for name in ("x", "y"))
    _, group, count = np.unique(x, axis=0, return_inverse=True, return_counts=True)
    others = [i for i, name in enumerate(data.columns) if name != SWEPT.get(row.name)]
    return {
        "rows": len(x),
        "sharing_inputs": int((count[group.ravel()] > 1).sum()),
        "at_largest_target": int((y == y.max()).sum()),
        "settings": len(np.unique(x[:, others], axis=0)) if row.name in SWEPT else np.nan,
    }


def refitted(errors: Table, row: ProblemRow) -> dict[str, Any]:
    """The small fit whose test error is farthest above its training error, made again."""
    fits = part_of(errors, problem=row.name, trained_on=SPLIT)
    small = fits[fits["width"] <= REFITTED]
    chosen = small.loc[(small["test_rmse"] / small["train_rmse"]).idxmax()]
    target, names = row.problem(), {"unit": chosen["unit"], "width": int(chosen["width"])}
    again = fit(names["unit"], target, names["width"], seed=int(chosen["seed"]), **row.options)
    return names | outliers(target, predict(again.network, target.test.x))


def outliers(target: Problem, values: Array) -> dict[str, float]:
    """Shares of the squared test error in the worst hundredth of the rows and in the worst; how far out that lies."""
    squares = np.square(values - target.test.y).sum(axis=1)
    reach = np.abs(target.test.x).max(axis=1)
    rank = np.argsort(squares)
    others, worst = np.split(rank, [len(rank) - max(1, round(WORST * len(rank)))])
    return {
        "worst_share": float(squares[worst].sum() / squares.sum()),
        "largest_share": float(squares[rank[-1]] / squares.sum()),
        "rmse": float(np.sqrt(squares.mean())),
        "rmse_without": float(np.sqrt(squares[others].mean())),
        "reach": float(reach[rank[-1]]),
        "median_reach": float(np.median(reach)),
    }
