"""The problems of table 1, which figures 7 and 8 share: how they are fitted, and which errors are read.

**True split**: errors on data that were not trained on. **Paper's protocol**: for Friedman's problems and for measured
data, errors on the training data, which the paper's code reports as test errors. Both protocols read the same fits of
Friedman's problems; for measured data the paper's protocol trains on every row, which takes separate fits. The targets
of one and two inputs are tested on a separate grid: there the paper's protocol is a true split, the only reading.

All networks here are trained as near to their optimum as our solvers come; `scaling/method` has our Newton in the
stages of the paper's code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from gatelab.data import Problem, problem
from gatelab.errors import GatelabError
from gatelab.studies.definition import Request, ticker
from gatelab.studies.engine import Table
from gatelab.studies.inventory import printed
from gatelab.studies.scaling.error_curves import NEWTON, UNITS, fit_curves

SPLIT, ALL = "training part", "all rows"  # the rows that a fit was trained on
PROTOCOLS = {"split": "true split", "paper": "paper's protocol"}  # of fits at the optimum
READINGS = {**PROTOCOLS, "method": NEWTON}
APART = ("1/(1+cos²πx)", "sin 4x sin 4y")  # tested on separate points by the paper's code
# The widths over which the paper's code takes slopes, if it states them; elsewhere it takes all widths that were run.
SLOPE_RANGES = {("airfoil", "mlp"): (10, 500), ("airfoil", "glu"): (10, 100)}
QUICK: Mapping[str, Any] = {"starts": 1, "rounds": 0, "steps": 5}


@dataclass(frozen=True)
class ProblemRow:
    """A problem of table 1 and how it is fitted.

    Attributes:
        name: The name of the problem, and after a comma its variant.
        label: Its name in the paper's table.
        inputs: The number of inputs.
        widths: The widths that are fitted.
        seeds: The number of fits per width.
        measured: Whether its data were measured and not drawn from a formula.
        ridge: Whether the target is a sum of finitely many ridge functions.
        data: Options of the problem.
        options: Options of the solver.
    """

    name: str
    label: str
    inputs: int
    widths: tuple[int, ...]
    seeds: int = 2
    measured: bool = False
    ridge: bool = False
    data: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        """The rows that are trained on: of measured data also every row, by the paper's protocol."""
        return (SPLIT, ALL) if self.measured else (SPLIT,)

    @property
    def readings(self) -> dict[str, tuple[str, str]]:
        """The fits and the column of their errors that each protocol reads."""
        if self.label in APART:
            return {"paper": (SPLIT, "test_rmse")}
        return {"split": (SPLIT, "test_rmse"), "paper": (self.parts[-1], "train_rmse")}

    @property
    def tabled(self) -> bool:
        """Whether the paper's table has it; variants have a comma in their name."""
        return "," not in self.name

    def title(self, unit: str, reading: str) -> str:
        """The row of a slope in table 1 and in figures 7 and 8, and the title of the claim on it."""
        return f"{self.label}, {unit}, {READINGS[reading]}"

    def paper(self, unit: str) -> float | None:
        """The slope in the paper's table; None for a dash and for a problem that it does not have."""
        cell = printed("scaling", f"table 1, {self.title(unit, 'paper')}") if self.tabled else "-"
        return None if cell == "-" else float(cell)

    def problem(self, trained_on: str = SPLIT) -> Problem:
        """The data, split or with every row in training."""
        protocol = {SPLIT: "split", ALL: "paper"}[trained_on]
        return problem(self.name.partition(",")[0], protocol=protocol, **self.data)

    def quick(self) -> ProblemRow:
        """The same row with few widths, few points and few steps."""
        if self.inputs == 1:
            return replace(self, widths=(16, 24, 32), data={"n": 1000})
        widths = (1, 2, 3) if self.measured else (2, 3, 4)
        return replace(self, widths=widths, seeds=1, data={**self.data, "n": 250}, options=QUICK)


SPAN = (8, 12, 16, 24, 32)
LINE = ProblemRow("paper-1d", "1/(1+cos²πx)", 1, tuple(range(1, 51)), seeds=1)
SYNTHETIC = (
    ProblemRow("sin4x-sin4y", "sin 4x sin 4y", 2, (8, 11, 16, 23, 32, 45, 64), ridge=True, data={"n": 2000}),
    ProblemRow("friedman1", "Friedman 1", 5, SPAN),
    ProblemRow("friedman2", "Friedman 2", 4, SPAN),
    ProblemRow("friedman3", "Friedman 3", 4, SPAN),
)
REAL = (
    ProblemRow("airfoil", "airfoil", 5, (2, 4, 8, 12, 16, 24, 32), measured=True),
    ProblemRow(
        "california", "California", 8, (2, 3, 4, 6, 8, 12, 16), measured=True, options={"starts": 1, "rounds": 6}
    ),
)
# For quick runs, which do without measured data.
STAND_IN = ProblemRow("friedman1, noisy", "Friedman 1, noisy", 5, (1, 2, 3), measured=True, data={"noise": 0.2})
TABLED = (LINE, *SYNTHETIC, *REAL)
ROWS = {row.name: row for row in (*TABLED, STAND_IN)}


def available_rows(rows: Iterable[ProblemRow]) -> list[ProblemRow]:
    """The rows whose data this machine has."""
    found = []
    for row in rows:
        with suppress(GatelabError):
            row.problem()
            found.append(row)
    return found


def fit_rows(request: Request, rows: Sequence[ProblemRow]) -> Table:
    """One row per fit. Missing data raise before the first fit."""
    plans = [(row, part, row.problem(part)) for row in rows for part in row.parts]
    tick = ticker(request, sum(len(UNITS) * len(row.widths) * row.seeds for row, *_ in plans))
    parts = []
    for row, part, target in plans:
        fits = fit_curves(request, UNITS, target, row.widths, tick, seeds=row.seeds, **row.options).table()
        fits.insert(0, "problem", row.name)
        fits.insert(1, "trained_on", part)
        parts.append(fits)
    return pd.concat(parts, ignore_index=True)
