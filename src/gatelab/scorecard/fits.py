"""Networks of every unit, fitted to the training rows; what each misses on every row that was held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gatelab.display import Told, counted, one_line
from gatelab.errors import GatelabError
from gatelab.problems import Problem
from gatelab.scaling import Point, Scaling, limit
from gatelab.solve import Fit, fit, fit_many
from gatelab.solve.fit import check_fit
from gatelab.units import AnyUnit, Unit

Array = NDArray[np.float64]
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
