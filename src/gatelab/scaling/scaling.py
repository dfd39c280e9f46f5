"""`scaling`: units x widths x seeds, each fitted, with the theoretical limit beside every point."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import joblib
import numpy as np
import torch

from gatelab.errors import GatelabError
from gatelab.problems import Problem
from gatelab.problems import problem as as_problem
from gatelab.scaling.limit import limit
from gatelab.scaling.slopes import Aggregate, Slope, local_slopes, slope
from gatelab.solve import Status, fit
from gatelab.units import AnyUnit
from gatelab.units import unit as as_unit
from gatelab.units.unit import check_width

if TYPE_CHECKING:  # tables and figures are for the one who looks at them, not for every worker: imported where used
    import pandas as pd
    from matplotlib.figure import Figure

Against = Literal["n", "P"]
Flag = Literal["", "floor", "interpolation", "optimiser"]
ABOVE = 1.1


@dataclass(frozen=True)
class Point:
    """One fit, with the limit and the reason, if any, why it is left out of slopes.

    `floor`: at the rounding of float64. `interpolation`: so many parameters that the data, not the unit, set the error.
    `optimiser`: above 1.1 times the limit, so that training (or a width below the asymptotic range) sets it.
    """

    unit: str
    width: int
    parameters: int
    seed: int
    train_rmse: float
    test_rmse: float
    limit: float
    ratio: float
    flag: Flag
    status: str
    seconds: float


@dataclass(frozen=True)
class Scaling:
    """The points of a study, and what follows from them."""

    problem: str
    points: tuple[Point, ...]

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.unit for p in self.points))

    def table(self) -> pd.DataFrame:
        """A row a fit."""
        import pandas as pd

        return pd.DataFrame([asdict(p) for p in self.points])

    def curve(
        self,
        unit: str,
        *,
        against: Against = "n",
        widths: tuple[int, int] | None = None,
        flagged: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sizes (k,) and test errors (k, seeds) of a unit; points left out are NaN unless `flagged`."""
        mine = [p for p in self.points if p.unit == unit and (widths is None or widths[0] <= p.width <= widths[1])]
        if not mine:
            raise GatelabError(f"no point of unit {unit!r} in that range; the study has {', '.join(self.units)}")
        rows = sorted({p.width for p in mine})
        columns = sorted({p.seed for p in mine})
        errors = np.full((len(rows), len(columns)), np.nan)
        sizes = np.zeros(len(rows))
        for p in mine:
            i = rows.index(p.width)
            sizes[i] = p.width if against == "n" else p.parameters
            if flagged or not p.flag:
                errors[i, columns.index(p.seed)] = p.test_rmse
        return sizes, errors

    def slope(
        self,
        unit: str,
        *,
        against: Against = "n",
        widths: tuple[int, int] | None = None,
        aggregate: Aggregate = "best",
        flagged: bool = False,
    ) -> Slope:
        """The global slope of a unit over a range of widths, without the flagged points unless asked for."""
        return slope(*self.curve(unit, against=against, widths=widths, flagged=flagged), aggregate=aggregate)

    def slopes(self, *, widths: tuple[int, int] | None = None, flagged: bool = False) -> pd.DataFrame:
        """A row a unit and axis (n and P): slope, interval, how many points made it and how many were left out."""
        import pandas as pd

        rows = []
        for name in self.units:
            inside = [p for p in self.points if p.unit == name and (not widths or widths[0] <= p.width <= widths[1])]
            for against in ("n", "P"):
                for aggregate in ("best", "median"):
                    s = self._slope_or_none(name, against, aggregate, widths, flagged)
                    rows.append(
                        {
                            "unit": name,
                            "against": against,
                            "aggregate": aggregate,
                            "slope": s.value if s else np.nan,
                            "low": s.low if s else np.nan,
                            "high": s.high if s else np.nan,
                            "widths": s.points if s else 0,
                            "left_out": 0 if flagged else sum(bool(p.flag) for p in inside),
                        }
                    )
        return pd.DataFrame(rows)

    def _slope_or_none(
        self, unit: str, against: Against, aggregate: Aggregate, widths: tuple[int, int] | None, flagged: bool
    ) -> Slope | None:
        try:
            return self.slope(unit, against=against, widths=widths, aggregate=aggregate, flagged=flagged)
        except GatelabError:
            return None

    def local_slopes(self, unit: str, *, against: Against = "n", window: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Sizes and local slopes of the best-of-seeds curve, all points included."""
        sizes, errors = self.curve(unit, against=against, flagged=True)
        return sizes, local_slopes(sizes, np.nanmin(errors, axis=1), window=window)

    def ratio(self, unit: str, width: int) -> float:
        """Test RMSE over the limit of the best seed at that width."""
        ratios = [p.ratio for p in self.points if p.unit == unit and p.width == width]
        if not ratios:
            raise GatelabError(f"the study has no fit of {unit!r} at width {width}")
        return min(ratios)

    def plot(self, path: str | Path | None = None, **options: Any) -> Figure:
        """Error against n and against P with limits and slopes, and the local slopes; written to `path` if given.

        Options are those of `gatelab.scaling.draw.draw`: a title, the paper's slopes, other code's errors.
        """
        from gatelab.plotting import save
        from gatelab.scaling.draw import draw

        figure = draw(self, **options)
        if path is not None:
            save(figure, path)
        return figure

    def to_json(self) -> str:
        return json.dumps({"problem": self.problem, "points": [asdict(p) for p in self.points]})

    @classmethod
    def from_json(cls, text: str) -> Scaling:
        raw = json.loads(text)
        return cls(raw["problem"], tuple(Point(**p) for p in raw["points"]))


def scaling(
    units: Iterable[str | AnyUnit | Callable[..., Any]] | str,
    problem: str | Callable | Problem,
    widths: Sequence[int],
    seeds: int = 1,
    *,
    solver: str = "auto",
    jobs: int | None = None,
    progress: Callable[[int, int, Point], None] | None = None,
    **options: Any,
) -> Scaling:
    """Fit every unit at every width and seed; `jobs` processes (all cores by default), one thread each.

    `progress(done, total, point)` is called as each fit ends. Equal arguments give bit-equal errors, whatever `jobs`.

    >>> study = scaling(["mlp", "glu"], "exp(sin(3*x))", [8, 16, 32], jobs=1)
    >>> study.slope("glu").value < study.slope("mlp").value < -1.5
    True
    """
    chosen = [as_unit(u) for u in ([units] if isinstance(units, str) or callable(units) else units)]
    names = [u.name for u in chosen]
    if len(set(names)) < len(names):
        raise GatelabError(f"units must have different names, got {', '.join(names)}")
    if not chosen or not len(widths):
        raise GatelabError("give at least one unit and one width")
    target = as_problem(problem)
    sizes = sorted({check_width(w) for w in widths})
    limits = {u.name: _limits(u, target, sizes) for u in chosen}
    # Wide networks first: the last jobs to finish are then short ones and no core waits.
    tasks = [(u, n, s) for n in reversed(sizes) for u in chosen for s in range(seeds)]
    if not tasks:
        raise GatelabError(f"seeds is {seeds}; give 1 or more")
    points: list[Point] = []
    for point in _run(tasks, target, limits, solver, options, min(jobs or _cores(), len(tasks))):
        points.append(point)
        if progress:
            progress(len(points), len(tasks), point)
    rank = {name: i for i, name in enumerate(names)}
    return Scaling(target.name, tuple(sorted(points, key=lambda p: (rank[p.unit], p.width, p.seed))))


def _run(
    tasks: list[tuple[AnyUnit, int, int]],
    problem: Problem,
    limits: dict[str, dict[int, float]],
    solver: str,
    options: dict[str, Any],
    jobs: int,
) -> Iterator[Point]:
    if jobs == 1:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # bit-equal to the workers, which have one thread each
        try:
            for u, n, s in tasks:
                yield _point(u, problem, n, s, solver, options, limits[u.name][n])
        finally:
            torch.set_num_threads(threads)
        return
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size="auto")
        yield from parallel(  # pyright: ignore[reportReturnType]
            joblib.delayed(_point)(u, problem, n, s, solver, options, limits[u.name][n]) for u, n, s in tasks
        )


def _point(
    unit: AnyUnit, problem: Problem, width: int, seed: int, solver: str, options: dict[str, Any], bound: float
) -> Point:
    torch.set_num_threads(1)
    f = fit(unit, problem, width, solver=solver, seed=seed, **options)
    ratio = f.test_rmse / bound if bound > 0 else np.nan
    flag: Flag = ""
    scale = float(np.abs(problem.train.y).max())
    if f.status is Status.FLOOR or f.test_rmse <= 1e-12 * scale:
        flag = "floor"
    elif 2 * f.parameters >= problem.train.n * problem.d_out:
        flag = "interpolation"
    elif ratio > ABOVE:
        flag = "optimiser"
    return Point(
        f.unit,
        width,
        f.parameters,
        seed,
        f.train_rmse,
        f.test_rmse,
        bound,
        ratio,
        flag,
        str(f.status),
        f.seconds,
    )


def _limits(unit: AnyUnit, problem: Problem, widths: list[int]) -> dict[int, float]:
    """The limit at each width; NaN where theory has none (smooth gates, more than one input)."""
    if unit.order is None or problem.interval is None or problem.d_out != 1:
        return dict.fromkeys(widths, np.nan)
    return dict(zip(widths, map(float, limit(unit, problem, np.array(widths))), strict=True))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
