"""The rows of table 1, which figures 7 and 8 share: their problems, their fits under both protocols, and their slopes.

**True split**: errors on data that were not trained on. **Paper's protocol**: of Friedman's problems and of measured
data errors on the training data, which the paper's code reports as test error. Of Friedman's both are read off the
same fits, since both train on the same points; of measured data they are not: the paper's protocol trains on every row.
The targets of one and two inputs it tests on a grid of points of their own: there its protocol is a true split, and
there is one reading. A slope of one unit under one protocol is a cell, with the paper's slope and what theory grants
beside it. All these networks are trained as near to their optimum as our solvers come; what our Newton in the stages of
the paper's code gives is another reading, which `scaling/method` shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from gatelab.data import Problem, problem
from gatelab.data.definition import PAPER
from gatelab.errors import GatelabError
from gatelab.feedforward import unit as as_unit
from gatelab.scaling_laws import Scaling, Slope, slope
from gatelab.scaling_laws.slopes import Aggregate
from gatelab.studies.definition import Claim, Request, Verdict
from gatelab.studies.scaling.error_curves import fit_curves, median_errors, paper_target
from gatelab.studies.scaling.printed import (
    APART,
    BY_INPUTS,
    PROTOCOLS,
    READINGS,
    SLOPE_RANGES,
    STEEPER,
    UNITS,
    Protocol,
    Reading,
    slope_row,
    table1_slope,
)
from gatelab.studies.verdicts import reproduced_if, slope_claim, slope_ends, slope_verdict
from gatelab.theory import ridge_rate, worst_case_rate

# The median of the seeds: to take the best of them by test error would be to choose by the test data.
AGGREGATE: Aggregate = "median"
MARGIN = 0.05  # by which one slope must be steeper than another to count as such
MATCH = 0.25  # of the expected slope: as near as this counts as a match
QUICK: Mapping[str, Any] = {"starts": 1, "rounds": 0, "steps": 5}


@dataclass(frozen=True)
class ProblemRow:
    """A problem of table 1 and how it is fitted.

    Attributes:
        name: The name of the problem.
        label: Its name in the paper's table.
        inputs: How many inputs it has.
        widths: The widths that are fitted.
        seeds: How many fits a width has.
        measured: Whether its data were measured and not drawn from a formula.
        ridge: Whether the target is a sum of finitely many ridge functions.
        every: Whether all widths enter the slope, as in figure 2.
        tabled: Whether the paper has it; False for a problem that stands in for one of the paper's.
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
    every: bool = False
    tabled: bool = True
    data: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fitted_protocols(self) -> tuple[Protocol, ...]:
        """The protocols with fits of their own: of synthetic problems one set of fits serves both."""
        return tuple(PROTOCOLS) if self.measured else ("split",)

    @property
    def apart(self) -> bool:
        """Whether the paper's code tests on points of their own, so that its protocol is a true split."""
        return self.label in APART

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        """The protocols that differ."""
        return ("paper",) if self.apart else tuple(PROTOCOLS)

    @property
    def fits(self) -> int:
        """How many fits there are."""
        return len(UNITS) * len(self.widths) * self.seeds * len(self.fitted_protocols)

    def paper(self, unit: str) -> float | None:
        """The slope in the paper's table; None for a dash."""
        if not self.tabled:
            return None
        return table1_slope(self.label, unit)

    def worst_case(self, unit: str) -> float:
        """Minus the rate that theory grants for the hardest target of so many inputs."""
        return -worst_case_rate(unit_degree(unit), self.inputs)

    def attainable(self, unit: str) -> int | None:
        """Minus the rate that the structure of the target allows, where it is known."""
        if not self.ridge and self.inputs > 1:
            return None
        return -ridge_rate(unit_degree(unit))

    def problem(self, protocol: Protocol = "split") -> Problem:
        """The data of the row under a protocol."""
        return problem(self.name, protocol=protocol, **self.data)

    def quick(self) -> ProblemRow:
        """The same row with few widths, few points and few steps."""
        widths = (1, 2, 3) if self.measured else (2, 3, 4)
        return replace(self, widths=widths, seeds=1, data={**self.data, "n": 250}, options=QUICK)


def unit_degree(unit: str) -> int:
    """The degree of the pieces of a unit, which every unit with a relu gate has."""
    degree = as_unit(unit).degree
    assert degree is not None
    return degree


SPAN = (8, 12, 16, 24, 32)
LINE = ProblemRow("paper-1d", "1/(1+cos²πx)", 1, tuple(range(1, 51)), seeds=1, every=True)
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
# Seconds on any machine, and no measured data, which would have to be there.
STAND_IN = ProblemRow("friedman1", "Friedman 1, noisy", 5, (1, 2, 3), measured=True, tabled=False, data={"noise": 0.2})


def line_row(request: Request) -> ProblemRow:
    """The row of the paper's target of one input."""
    return replace(LINE, widths=(16, 24, 32)) if request.quick else LINE


def synthetic_rows(request: Request) -> tuple[ProblemRow, ...]:
    """The rows of synthetic problems of many inputs."""
    return tuple(row.quick() for row in SYNTHETIC) if request.quick else SYNTHETIC


def measured_rows(request: Request) -> tuple[ProblemRow, ...]:
    """The rows of measured data; a synthetic one with noise stands in for them in a quick run."""
    return (STAND_IN.quick(),) if request.quick else REAL


@dataclass(frozen=True)
class FittedRow:
    """A row with the error curves of its fits under each protocol."""

    row: ProblemRow
    curves: Mapping[Protocol, Scaling]

    def sizes(self, unit: str) -> tuple[int, ...]:
        """The widths that were fitted."""
        return tuple(sorted({p.width for p in self.curves["split"].points if p.unit == unit}))

    def errors(self, unit: str, protocol: Protocol) -> dict[int, float]:
        """The median of the seeds at each width, on what the protocol tests on."""
        return median_errors(self.curves[protocol], unit, "test_rmse")

    def training(self, unit: str) -> dict[int, float]:
        """The training error of the fits of the true split."""
        return median_errors(self.curves["split"], unit, "train_rmse")

    def slope(self, unit: str, protocol: Protocol) -> Slope:
        """The slope against n of the errors that the protocol tests by."""
        return slope(*self.curves[protocol].curve(unit, flagged=self.row.every), aggregate=AGGREGATE)

    def training_slope(self, unit: str) -> Slope:
        """The slope of the training error of the fits of the true split."""
        training = trained_as_tested(self.curves["split"])
        return slope(*training.curve(unit, flagged=self.row.every), aggregate=AGGREGATE)

    def left_out(self, unit: str, protocol: Protocol) -> int:
        """How many fits are flagged and take no part in the slope."""
        if self.row.every:
            return 0
        return sum(bool(p.flag) for p in self.curves[protocol].points if p.unit == unit)


def fit_row(request: Request, row: ProblemRow, tick: Callable[..., None]) -> FittedRow:
    """All fits of a row under both protocols."""
    curves: dict[Protocol, Scaling] = {}
    for protocol in row.fitted_protocols:
        target = paper_target(request) if row.inputs == 1 else row.problem(protocol)
        curves[protocol] = fit_curves(request, UNITS, target, row.widths, tick, seeds=row.seeds, **row.options)
    return FittedRow(row, with_paper_protocol(row, curves))


def with_paper_protocol(row: ProblemRow, curves: Mapping[Protocol, Scaling]) -> dict[Protocol, Scaling]:
    """The curves of both protocols, where the fits of the true split are those of the paper's too."""
    if "paper" in curves:
        return dict(curves)
    paper = curves["split"]
    if not row.apart:
        paper = trained_as_tested(paper)
    return {**curves, "paper": paper}


def trained_as_tested(study: Scaling) -> Scaling:
    """The same fits with their training errors in the place of test errors: the paper's protocol."""
    points = [replace(p, test_rmse=p.train_rmse, ratio=p.train_rmse / p.limit) for p in study.points]
    return Scaling(PAPER.format(study.problem), tuple(points))


def rows_with_data(rows: Iterable[ProblemRow]) -> tuple[tuple[ProblemRow, ...], tuple[str, ...]]:
    """The rows whose data are at hand, and a sentence for each that is left out; said before anything is fitted."""
    at_hand, lacking = [], []
    for row in rows:
        try:
            for protocol in PROTOCOLS:
                row.problem(protocol)
            at_hand.append(row)
        except GatelabError as error:
            lacking.append(f"{row.label} is left out: {error}.")
    return tuple(at_hand), tuple(lacking)


@dataclass(frozen=True)
class SlopeCell:
    """One slope against n: of a unit on a problem under a protocol. `left_out` fits took no part in it.

    Beside errors on the training rows stands the slope of those that were held out, where there is one.
    """

    row: ProblemRow
    unit: str
    protocol: Reading
    ours: Slope
    left_out: int = 0
    beside: Slope | None = None

    @property
    def what(self) -> str:
        """The title of the claim on it."""
        return slope_row(self.row.label, self.unit, READINGS[self.protocol])

    def under(self, protocol: Reading) -> bool:
        """Whether it is what a protocol gives: a true split is what the paper's own is, where its points are apart."""
        return self.protocol == protocol or (protocol == "split" and self.row.apart and self.protocol == "paper")

    @property
    def paper(self) -> float | None:
        """The slope in the paper's table; None for a dash."""
        return self.row.paper(self.unit)

    @property
    def worst_case(self) -> float:
        """Minus the rate that theory grants for the hardest target."""
        return self.row.worst_case(self.unit)

    @property
    def attainable(self) -> int | None:
        """Minus the rate that the structure of the target allows, where it is known."""
        return self.row.attainable(self.unit)

    @property
    def held_out(self) -> bool:
        """Whether a steeper slope is a gain: errors are of rows that were held out, or those fall faster as well."""
        if self.protocol == "split" or self.row.apart:
            return True
        return self.beside is not None and slope_verdict(self.paper, self.beside) == "exceeded"

    @property
    def verdict(self) -> Verdict:
        """How ours lies beside the paper's."""
        return slope_verdict(self.paper, self.ours, held_out=self.held_out)

    def place(self, heading: str) -> str:
        """Where it stands below a heading of the paper; its figures have no dashes, and its own protocol alone."""
        in_figure = self.protocol == "paper" and self.paper is not None
        if not self.row.tabled or (heading != "table 1" and not in_figure):
            return ""
        return f"{heading}, {self.what}"

    def claim(self, because: str, heading: str) -> Claim:
        """The paper's slope beside ours, below "table 1", "figure 7" or "figure 8"."""
        place, held_out = self.place(heading), self.held_out
        if self.beside is not None:
            words = f"the slope is {self.ours.value:.2f}, on rows held out {self.beside.value:.2f}"
            because = f"On the training rows {words} {slope_ends(self.beside)}. {because}"
        return slope_claim(
            self.what, self.paper, self.ours, because, held_out=held_out, place=place, outside=self.outside
        )

    @property
    def outside(self) -> str:
        """Which widths the paper has and ours have not, where it is known."""
        theirs = SLOPE_RANGES.get((self.row.label, self.unit))
        ours = (self.row.widths[0], self.row.widths[-1])
        if theirs is None or theirs == ours:
            return ""
        return f"the paper's slope is over n = {theirs[0]} to {theirs[1]}, ours over {ours[0]} to {ours[1]}"


def cells_of(fitted: FittedRow) -> tuple[SlopeCell, ...]:
    """A cell for every unit and protocol."""
    cells = []
    for unit in UNITS:
        held_out = fitted.slope(unit, "split")
        for protocol in fitted.row.protocols:
            beside = held_out if protocol == "paper" and not fitted.row.apart else None
            ours, left_out = fitted.slope(unit, protocol), fitted.left_out(unit, protocol)
            cells.append(SlopeCell(fitted.row, unit, protocol, ours, left_out, beside))
    return tuple(cells)


def unit_pairs(cells: Iterable[SlopeCell], protocol: Reading) -> list[tuple[SlopeCell, SlopeCell]]:
    """MLP and GLU of every row of the paper's table."""
    mine = {(c.row.name, c.unit): c for c in cells if c.under(protocol) and c.row.tabled}
    return [(mine[name, "mlp"], mine[name, "glu"]) for name, unit in mine if unit == "mlp"]


def steeper_claim(cells: Sequence[SlopeCell], protocol: Reading) -> Claim:
    """Appendix D: the GLU's slope is steeper than the MLP's on every problem but California housing."""
    pairs = unit_pairs(cells, protocol)
    steeper = [m.row.label for m, g in pairs if g.ours.value < m.ours.value - MARGIN]
    expected = [m.row.label for m, _ in pairs if m.row.name != "california"]
    slopes = "; ".join(f"{m.row.label} {m.ours.value:.2f} and {g.ours.value:.2f}" for m, g in pairs)
    what = f"{STEEPER}, {READINGS[protocol]}"
    return Claim(
        what,
        "all but California housing",
        f"{len(steeper)} of {len(pairs)}: {', '.join(steeper) or 'none'}",
        reproduced_if(steeper == expected),
        f"Steeper by more than {MARGIN:g}. Slopes of mlp and glu: {slopes}.",
        place=f"appendix D, {what}",
    )


def inputs_claim(cells: Sequence[SlopeCell], protocol: Reading) -> Claim:
    """Appendix D: slopes decrease by a factor of 1 / dim_x, though "not every problem matches"."""
    pairs = unit_pairs(cells, protocol)
    line = next(pair for pair in pairs if pair[0].row.inputs == 1)
    beside = [(c, own) for pair in pairs if pair[0].row.inputs > 1 for c, own in zip(pair, line, strict=True)]
    times = [c.ours.value * c.row.inputs / own.ours.value for c, own in beside]
    printed = [c.paper * c.row.inputs / own.paper for c, own in beside if c.paper is not None and own.paper is not None]
    what = f"{BY_INPUTS}, {READINGS[protocol]}"
    return Claim(
        what,
        f"1, by its own table {min(printed):.2f} to {max(printed):.2f}",
        f"{min(times):.2f} to {max(times):.2f}",
        reproduced_if(all(abs(t - 1) <= MATCH for t in times)),
        f"Within {MATCH:.0%} of 1 are {sum(abs(t - 1) <= MATCH for t in times)} of our {len(times)} and "
        f"{sum(abs(t - 1) <= MATCH for t in printed)} of the paper's {len(printed)}: the slope depends on the target, "
        "and sums of ridge functions lose nothing with the number of inputs.",
        place=f"appendix D, {what}",
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
    for name in dict.fromkeys(c.row.name for c in cells):
        own = [c for c in cells if c.row.name == name]
        row: dict[str, object] = {"problem": own[0].row.label, "x dim": own[0].row.inputs}
        for unit in UNITS:
            by_protocol = {p: c for p in PROTOCOLS for c in own if c.unit == unit and c.under(p)}
            cell = by_protocol["paper"]
            row |= {f"{unit}, paper": "-"}
            if cell.paper is not None:
                row[f"{unit}, paper"] = f"{cell.paper:.2f}"
            row |= {f"{unit}, {words}": str(by_protocol[protocol].ours) for protocol, words in PROTOCOLS.items()}
            row |= {f"{unit}, worst case": f"{cell.worst_case:.2f}", f"{unit}, attainable": ""}
            if cell.attainable is not None:
                row[f"{unit}, attainable"] = f"{cell.attainable}"
        rows.append(row)
    return pd.DataFrame(rows)


def fits_table(rows: Sequence[FittedRow]) -> pd.DataFrame:
    """A row a fit, labelled by its problem and by the data that it was trained on; no fit stands there twice."""
    trained_on = {"split": "training part", "paper": "all rows"}
    parts = []
    for fitted in rows:
        for protocol in fitted.row.fitted_protocols:
            table = fitted.curves[protocol].table()
            table.insert(0, "problem", fitted.row.name)
            table.insert(1, "trained_on", trained_on[protocol])
            parts.append(table)
    return pd.concat(parts, ignore_index=True)
