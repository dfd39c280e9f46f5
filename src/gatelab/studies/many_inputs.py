"""The rows of table 1, which figures 7 and 8 share: their problems, their widths, their fits under both protocols.

**True split**: errors on data that were not trained on. **Paper's protocol**: errors on the training data, which is
what the reference code reports as test error. Of a synthetic problem both are read off the same fits, since both train
on the same points. Of measured data they are not: the paper's protocol trains on every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from gatelab.errors import GatelabError
from gatelab.problems import Problem, problem
from gatelab.problems.problem import PAPER
from gatelab.scaling import Scaling, Slope, slope
from gatelab.scaling.slopes import Aggregate
from gatelab.studies.measure import measured, paper_target
from gatelab.studies.reference import TABLE1
from gatelab.studies.study import Request
from gatelab.studies.verdicts import NEAR
from gatelab.theory import ridge_rate, worst_case_rate
from gatelab.units import unit as as_unit

Protocol = Literal["split", "paper"]
PROTOCOLS: Mapping[Protocol, str] = {"split": "true split", "paper": "paper's protocol"}
UNITS = ("mlp", "glu", "gqu")
# The median of the seeds: to take the best of them by test error would be to choose by the test data.
AGGREGATE: Aggregate = "median"
# The paper's slopes are as near to each other as this whether taken against n or P.
NEAR_IN_MANY = 0.05
QUICK: Mapping[str, Any] = {"starts": 1, "rounds": 0, "steps": 5}


@dataclass(frozen=True)
class Row:
    """A problem of table 1 and how it is measured. `data` are options of the problem, `options` those of the solver.

    `every` takes all widths into the slope, as figure 2 does; `ridge` marks a sum of finitely many ridge functions;
    `tabled` is False for a problem that stands in for one of the paper's.
    """

    name: str
    label: str
    inputs: int
    widths: tuple[int, ...]
    seeds: int = 2
    measured: bool = False
    ridge: bool = False
    every: bool = False
    tabled: bool = True
    near: float = NEAR_IN_MANY
    data: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fits(self) -> int:
        return len(UNITS) * len(self.widths) * self.seeds * (2 if self.measured else 1)

    def paper(self, unit: str) -> float | None:
        """The slope in the paper's table; None for a dash."""
        return TABLE1[self.name].get(unit) if self.tabled else None

    def worst_case(self, unit: str) -> float:
        """Minus the rate that theory grants for the hardest target of so many inputs."""
        return -worst_case_rate(_degree(unit), self.inputs)

    def attainable(self, unit: str) -> int | None:
        """Minus the rate that the structure of the target allows, where it is known."""
        return -ridge_rate(_degree(unit)) if self.ridge or self.inputs == 1 else None

    def problem(self, protocol: Protocol = "split") -> Problem:
        return problem(self.name, protocol=protocol, **self.data)


def _degree(unit: str) -> int:
    degree = as_unit(unit).degree
    assert degree is not None  # of every unit with a relu gate
    return degree


_SPAN = (8, 12, 16, 24, 32)
LINE = Row("paper-1d", "1/(1+cos²πx)", 1, tuple(range(1, 51)), seeds=1, every=True, near=NEAR)
SYNTHETIC = (
    Row("sin4x-sin4y", "sin 4x sin 4y", 2, (8, 11, 16, 23, 32, 45, 64), ridge=True, data={"n": 2000}),
    Row("friedman1", "Friedman 1", 5, _SPAN),
    Row("friedman2", "Friedman 2", 4, _SPAN),
    Row("friedman3", "Friedman 3", 4, _SPAN),
)
REAL = (
    Row("airfoil", "airfoil", 5, (2, 4, 8, 12, 16, 24, 32), measured=True),
    Row("california", "California", 8, (2, 3, 4, 6, 8, 12, 16), measured=True, options={"starts": 1, "rounds": 6}),
)
# Seconds on any machine, and no measured data, which would have to be there.
STAND_IN = Row("friedman1", "Friedman 1, noisy", 5, (1, 2, 3), measured=True, tabled=False, data={"noise": 0.2})


def line(request: Request) -> Row:
    return replace(LINE, widths=(16, 24, 32)) if request.quick else LINE


def synthetic(request: Request) -> tuple[Row, ...]:
    return tuple(_quick(row) for row in SYNTHETIC) if request.quick else SYNTHETIC


def real(request: Request) -> tuple[Row, ...]:
    """The rows of measured data; a synthetic one with noise stands in for them in a quick run."""
    return (_quick(STAND_IN),) if request.quick else REAL


def _quick(row: Row) -> Row:
    widths = (1, 2, 3) if row.measured else (2, 3, 4)
    return replace(row, widths=widths, seeds=1, data={**row.data, "n": 250}, options=QUICK)


@dataclass(frozen=True)
class Measured:
    """A row with what was measured under each protocol."""

    row: Row
    curves: Mapping[Protocol, Scaling]

    def sizes(self, unit: str) -> tuple[int, ...]:
        return tuple(sorted({p.width for p in self.curves["split"].points if p.unit == unit}))

    def errors(self, unit: str, protocol: Protocol) -> dict[int, float]:
        """The median of the seeds at each width, on what the protocol tests on."""
        return _medians(self.curves[protocol], unit, "test_rmse")

    def training(self, unit: str) -> dict[int, float]:
        """The training error of the fits of the true split."""
        return _medians(self.curves["split"], unit, "train_rmse")

    def slope(self, unit: str, protocol: Protocol) -> Slope:
        return slope(*self.curves[protocol].curve(unit, flagged=self.row.every), aggregate=AGGREGATE)

    def training_slope(self, unit: str) -> Slope:
        """The slope of the training error of the fits of the true split."""
        seen = trained_as_tested(self.curves["split"])
        return slope(*seen.curve(unit, flagged=self.row.every), aggregate=AGGREGATE)

    def left_out(self, unit: str, protocol: Protocol) -> int:
        """How many fits are flagged and take no part in the slope."""
        if self.row.every:
            return 0
        return sum(bool(p.flag) for p in self.curves[protocol].points if p.unit == unit)


def measure_row(request: Request, row: Row, tick: Callable[..., None]) -> Measured:
    """All fits of a row under both protocols."""
    if row.inputs == 1:
        split = measured(request, UNITS, paper_target(request), row.widths, tick, seeds=row.seeds)
        return Measured(row, {"split": split, "paper": trained_as_tested(split)})

    def fitted(protocol: Protocol) -> Scaling:
        target = row.problem(protocol)
        return measured(request, UNITS, target, row.widths, tick, seeds=row.seeds, **row.options)

    split = fitted("split")
    return Measured(row, {"split": split, "paper": fitted("paper") if row.measured else trained_as_tested(split)})


def trained_as_tested(study: Scaling) -> Scaling:
    """The same fits with their training errors in the place of test errors: the paper's protocol."""
    points = [replace(p, test_rmse=p.train_rmse, ratio=p.train_rmse / p.limit) for p in study.points]
    return Scaling(PAPER.format(study.problem), tuple(points))


def present(rows: Iterable[Row]) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The rows whose data are at hand, and a sentence for each that is left out; said before anything is fitted."""
    kept, lacking = [], []
    for row in rows:
        try:
            for protocol in PROTOCOLS:
                row.problem(protocol)
            kept.append(row)
        except GatelabError as error:
            lacking.append(f"{row.label} is left out: {error}.")
    return tuple(kept), tuple(lacking)


def _medians(study: Scaling, unit: str, what: str) -> dict[int, float]:
    """Of the logarithms, as slopes take it: the mean of two seeds is then the geometric one."""
    found: dict[int, list[float]] = {}
    for p in study.points:
        if p.unit == unit:
            found.setdefault(p.width, []).append(float(np.log(getattr(p, what))))
    return {width: float(np.exp(np.median(logs))) for width, logs in sorted(found.items())}
