"""The rows of table 1, which figures 7 and 8 share: their problems, their widths, their fits under both protocols.

**True split**: errors on data that were not trained on. **Paper's protocol**: errors on the training data, which is
what the reference code reports as test error. Of a synthetic problem both are read off the same fits, since both train
on the same points. Of measured data they are not: the paper's protocol trains on every row.

The cells of table 1: a slope of ours under one protocol, the paper's beside it, and what theory grants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from gatelab.data import Problem, problem
from gatelab.data.definition import PAPER
from gatelab.errors import GatelabError
from gatelab.feedforward import unit as as_unit
from gatelab.scaling_laws import Scaling, Slope, slope
from gatelab.scaling_laws.slopes import Aggregate
from gatelab.studies.definition import Claim, Request, Verdict
from gatelab.studies.scaling.errors import TABLE1, measured, paper_target
from gatelab.studies.verdicts import NEAR, slope_claim, slope_verdict
from gatelab.theory import ridge_rate, worst_case_rate

Protocol = Literal["split", "paper"]
PROTOCOLS: Mapping[Protocol, str] = {"split": "true split", "paper": "paper's protocol"}
UNITS = ("mlp", "glu", "gqu")
# The median of the seeds: to take the best of them by test error would be to choose by the test data.
AGGREGATE: Aggregate = "median"
# The paper's slopes are as near to each other as this whether taken against n or P.
NEAR_IN_MANY = 0.05
QUICK: Mapping[str, Any] = {"starts": 1, "rounds": 0, "steps": 5}


@dataclass(frozen=True)
class ProblemRow:
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
LINE = ProblemRow("paper-1d", "1/(1+cos²πx)", 1, tuple(range(1, 51)), seeds=1, every=True, near=NEAR)
SYNTHETIC = (
    ProblemRow("sin4x-sin4y", "sin 4x sin 4y", 2, (8, 11, 16, 23, 32, 45, 64), ridge=True, data={"n": 2000}),
    ProblemRow("friedman1", "Friedman 1", 5, _SPAN),
    ProblemRow("friedman2", "Friedman 2", 4, _SPAN),
    ProblemRow("friedman3", "Friedman 3", 4, _SPAN),
)
REAL = (
    ProblemRow("airfoil", "airfoil", 5, (2, 4, 8, 12, 16, 24, 32), measured=True),
    ProblemRow(
        "california", "California", 8, (2, 3, 4, 6, 8, 12, 16), measured=True, options={"starts": 1, "rounds": 6}
    ),
)
# Seconds on any machine, and no measured data, which would have to be there.
STAND_IN = ProblemRow("friedman1", "Friedman 1, noisy", 5, (1, 2, 3), measured=True, tabled=False, data={"noise": 0.2})


def line(request: Request) -> ProblemRow:
    return replace(LINE, widths=(16, 24, 32)) if request.quick else LINE


def synthetic(request: Request) -> tuple[ProblemRow, ...]:
    return tuple(_quick(row) for row in SYNTHETIC) if request.quick else SYNTHETIC


def real(request: Request) -> tuple[ProblemRow, ...]:
    """The rows of measured data; a synthetic one with noise stands in for them in a quick run."""
    return (_quick(STAND_IN),) if request.quick else REAL


def _quick(row: ProblemRow) -> ProblemRow:
    widths = (1, 2, 3) if row.measured else (2, 3, 4)
    return replace(row, widths=widths, seeds=1, data={**row.data, "n": 250}, options=QUICK)


@dataclass(frozen=True)
class Measured:
    """A row with what was measured under each protocol."""

    row: ProblemRow
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


def measure_row(request: Request, row: ProblemRow, tick: Callable[..., None]) -> Measured:
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


def present(rows: Iterable[ProblemRow]) -> tuple[tuple[ProblemRow, ...], tuple[str, ...]]:
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


MATCH = 0.25  # of the expected slope: as near as this counts as a match


@dataclass(frozen=True)
class SlopeCell:
    """One slope against n."""

    row: ProblemRow
    unit: str
    protocol: Protocol
    ours: Slope
    left_out: int = 0

    @property
    def what(self) -> str:
        return f"{self.row.label}, {self.unit}, {PROTOCOLS[self.protocol]}"

    @property
    def paper(self) -> float | None:
        return self.row.paper(self.unit)

    @property
    def worst_case(self) -> float:
        return self.row.worst_case(self.unit)

    @property
    def attainable(self) -> int | None:
        return self.row.attainable(self.unit)

    @property
    def verdict(self) -> Verdict:
        return slope_verdict(self.paper, self.ours, self.row.near)

    def claim(self, because: str) -> Claim:
        return slope_claim(self.what, self.paper, self.ours, because, self.row.near)


def cells_of(found: Measured) -> tuple[SlopeCell, ...]:
    """A cell for every unit and protocol."""
    return tuple(
        SlopeCell(found.row, unit, protocol, found.slope(unit, protocol), found.left_out(unit, protocol))
        for unit in UNITS
        for protocol in PROTOCOLS
    )


def _pairs(cells: Iterable[SlopeCell], protocol: Protocol) -> list[tuple[SlopeCell, SlopeCell]]:
    """MLP and GLU of every row of the paper's table."""
    mine = {(c.row.name, c.unit): c for c in cells if c.protocol == protocol and c.row.tabled}
    return [(mine[name, "mlp"], mine[name, "glu"]) for name, unit in mine if unit == "mlp"]


def steeper_claim(cells: Sequence[SlopeCell], protocol: Protocol) -> Claim:
    """Appendix D: the GLU's slope is steeper than the MLP's on every problem but California housing."""
    pairs = _pairs(cells, protocol)
    steeper = [m.row.label for m, g in pairs if g.ours.value < m.ours.value - m.row.near]
    expected = [m.row.label for m, _ in pairs if m.row.name != "california"]
    said = "; ".join(f"{m.row.label} {m.ours.value:.2f} and {g.ours.value:.2f}" for m, g in pairs)
    return Claim(
        f"problems on which the GLU is steeper than the MLP, {PROTOCOLS[protocol]}",
        "all but California housing",
        f"{len(steeper)} of {len(pairs)}: {', '.join(steeper) or 'none'}",
        "reproduced" if steeper == expected else "differs",
        f"Steeper by more than {pairs[-1][0].row.near:g} ({pairs[0][0].row.near:g} in one dimension). Slopes of mlp "
        f"and glu: {said}.",
    )


def inputs_claim(cells: Sequence[SlopeCell], protocol: Protocol) -> Claim:
    """Appendix D: slopes decrease by a factor of 1 / dim_x, though "not every problem matches"."""
    pairs = _pairs(cells, protocol)
    first = next(pair for pair in pairs if pair[0].row.inputs == 1)
    rest = [(c, one) for pair in pairs if pair[0].row.inputs > 1 for c, one in zip(pair, first, strict=True)]
    times = [c.ours.value * c.row.inputs / one.ours.value for c, one in rest]
    printed = [c.paper * c.row.inputs / one.paper for c, one in rest if c.paper is not None and one.paper is not None]
    return Claim(
        f"slope times dim_x over the slope in one dimension, mlp and glu, {PROTOCOLS[protocol]}",
        f"1, by its own table {min(printed):.2f} to {max(printed):.2f}",
        f"{min(times):.2f} to {max(times):.2f}",
        "reproduced" if all(abs(t - 1) <= MATCH for t in times) else "differs",
        f"Within {MATCH:.0%} of 1 are {sum(abs(t - 1) <= MATCH for t in times)} of our {len(times)} and "
        f"{sum(abs(t - 1) <= MATCH for t in printed)} of the paper's {len(printed)}: the slope depends on the target, "
        "and sums of ridge functions lose nothing with the number of inputs.",
    )


def slopes_table(cells: Iterable[SlopeCell]) -> pd.DataFrame:
    """A row a cell; NaN where the paper has a dash and where theory knows of nothing better than the worst case."""
    return pd.DataFrame(
        [
            {
                "problem": c.row.name,
                "inputs": c.row.inputs,
                "unit": c.unit,
                "protocol": c.protocol,
                "paper": c.paper,
                "slope": c.ours.value,
                "low": c.ours.low,
                "high": c.ours.high,
                "worst_case": c.worst_case,
                "attainable": c.attainable,
                "widths": f"{c.row.widths[0]}..{c.row.widths[-1]}",
                "seeds": c.row.seeds,
                "fits_left_out": c.left_out,
                "verdict": c.verdict,
            }
            for c in cells
        ]
    )


def printed_table(cells: Sequence[SlopeCell]) -> pd.DataFrame:
    """The table as one would print it: a row a problem, for each unit the paper's slope, ours twice, the rates."""
    rows = []
    for row in dict.fromkeys(c.row.name for c in cells):
        mine = [c for c in cells if c.row.name == row]
        line: dict[str, object] = {"problem": mine[0].row.label, "x dim": mine[0].row.inputs}
        for unit in UNITS:
            by = {c.protocol: c for c in mine if c.unit == unit}
            first = by["split"]
            line[f"{unit}, paper"] = "-" if first.paper is None else f"{first.paper:.2f}"
            line |= {f"{unit}, {words}": str(by[protocol].ours) for protocol, words in PROTOCOLS.items()}
            line[f"{unit}, worst case"] = f"{first.worst_case:.2f}"
            line[f"{unit}, attainable"] = "" if first.attainable is None else f"{first.attainable}"
        rows.append(line)
    return pd.DataFrame(rows)
