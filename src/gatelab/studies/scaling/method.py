"""Table 1 by our Newton in the stages of the paper's code, and beside it what the same units reach at their optimum.

The experiments are those of the paper's code (`gatelab.scaling_laws.reference` says what is known of it): its data,
its tests, its start and its stages of Newton's method. The solver is ours, and not that code: `scaling/fig2` has runs
of the code itself. The fits come from a record; a quick run trains a few small networks for a few steps. The optimum is
that of table 1's record; of airfoil, which the code fits over wider ranges, it is in the same record as the fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from gatelab.data import problem
from gatelab.display import counted
from gatelab.plotting import Curve
from gatelab.scaling_laws import Point, Scaling, Slope
from gatelab.scaling_laws.reference import FIRST_ROWS, OPTIMUM, newton_options
from gatelab.studies.definition import Claim, Outcome, Request, Study, ticker
from gatelab.studies.records import record_path
from gatelab.studies.scaling.error_curves import fit_curves, median_errors, method_curves, method_origin
from gatelab.studies.scaling.many_inputs import CurvePanel, panel_figure
from gatelab.studies.scaling.printed import SLOPE_RANGES
from gatelab.studies.scaling.problem_rows import (
    LINE,
    QUICK,
    REAL,
    SYNTHETIC,
    ProblemRow,
    SlopeCell,
    inputs_claim,
    slopes_table,
    steeper_claim,
    trained_as_tested,
)
from gatelab.studies.verdicts import slope_claim, slope_ends

ROWS = (LINE, *SYNTHETIC, *REAL)
FIRST = f"california, first {FIRST_ROWS} rows"
ERRORS = "scaling/table1-errors.csv"
QUICK_WIDTHS, QUICK_ROWS = (2, 3, 4), 250


@dataclass(frozen=True)
class SlopePair:
    """A unit on a problem, by our Newton in its stages and at the optimum.

    Attributes:
        row: The problem.
        unit: The unit.
        method: The errors by our Newton in its stages.
        optimum: The errors at the optimum.
    """

    row: ProblemRow
    unit: str
    method: Scaling
    optimum: Scaling

    @cached_property
    def widths(self) -> tuple[int, int]:
        """The least and the greatest width by our Newton."""
        widths = median_errors(self.method, self.unit)
        return min(widths), max(widths)

    @cached_property
    def common(self) -> tuple[int, int]:
        """The least and the greatest width that both have."""
        return min(self.times), max(self.times)

    @cached_property
    def slope(self) -> Slope:
        """The slope by our Newton: of the median of the seeds over all widths; no fit is left out."""
        return self.slope_over(self.method, self.widths)

    @cached_property
    def common_slope(self) -> Slope:
        """The slope by our Newton over the widths at which there is an optimum."""
        return self.slope_over(self.method, self.common)

    @cached_property
    def best_slope(self) -> Slope:
        """The slope at the optimum."""
        return self.slope_over(self.optimum, self.common)

    def slope_over(self, study: Scaling, widths: tuple[int, int]) -> Slope:
        """The slope of the median of the seeds over a range of widths."""
        return study.slope(self.unit, widths=widths, aggregate="median", flagged=True)

    @property
    def cell(self) -> SlopeCell:
        """The slope by our Newton, beside the paper's."""
        return SlopeCell(self.row, self.unit, "method", self.slope)

    @cached_property
    def times(self) -> dict[int, float]:
        """How many times the error at the optimum our Newton has, by width."""
        theirs, ours = median_errors(self.method, self.unit), median_errors(self.optimum, self.unit)
        return {width: theirs[width] / ours[width] for width in theirs if width in ours}

    @property
    def outside(self) -> str:
        """What of the paper's conditions does not hold."""
        if self.row.inputs == 1:
            return ""
        theirs = SLOPE_RANGES.get((self.row.label, self.unit))
        if theirs is None:
            return "which widths the paper took is not known"
        if theirs[1] > self.widths[1]:
            return f"the paper's widths end at {theirs[1]}, ours at {self.widths[1]}"
        return ""

    @property
    def reason(self) -> str:
        """Both slopes, and how far our Newton stays above the optimum."""
        (low, high), (least, most) = self.widths, self.common
        seeds = len({p.seed for p in self.method.points if p.unit == self.unit})
        own = {True: "points of their own", False: "the training rows"}[self.row.apart]
        best, same = self.best_slope, ""
        if self.common != self.widths:
            same = f" where our Newton has {self.common_slope.value:.2f} {slope_ends(self.common_slope)}"
        return (
            f"n = {low}..{high}, {counted(seeds, 'seed')}, tested on {own}. At the optimum the slope over "
            f"n = {least}..{most} is {best.value:.2f} {slope_ends(best)}{same}; our Newton's error is "
            f"{self.times[least]:.2g} times the optimum's at n = {least} and {self.times[most]:.2g} times at "
            f"n = {most}."
        )

    def claim(self, further: str = "") -> Claim:
        """The paper's slope beside that of our Newton in the stages of its code."""
        reason = " ".join(filter(None, (self.reason, further)))
        return replace(self.cell.claim(reason, "table 1"), outside=self.outside)


def run(request: Request) -> Outcome:
    """Every row of table 1 that the paper has a number for."""
    pairs = list(quick_pairs(request) if request.quick else recorded_pairs())
    cells = [pair.cell for pair in pairs]
    claims = []
    for pair in pairs:
        further = ""
        if pair.row.name == "california" and not request.quick:
            further = first_rows(pair.unit)
        claims.append(pair.claim(further))
        if pair.row.name == "airfoil":
            claims.append(optimum_claim(pair))
    claims += [steeper_claim(cells, "method"), inputs_claim(cells, "method")]
    figure = panel_figure(
        [row_panel([p for p in pairs if p.row.name == name]) for name in dict.fromkeys(p.row.name for p in pairs)],
        "Table 1 by our Newton in its stages and at the optimum",
        columns=3,
    )
    tables = {"slopes": slopes_table(cells), "pairs": pairs_table(pairs), "errors": errors_table(pairs)}
    sentences = notes(pairs)
    if not request.quick:
        sentences = (*sentences, method_origin())
    return Outcome(figure, tables, tuple(claims), sentences)


def recorded_pairs() -> Iterable[SlopePair]:
    """The pairs of the records: our Newton in its stages, and the optimum of table 1."""
    method, at_optimum = method_curves(), optimum_curves()
    at_optimum["airfoil"] = method[OPTIMUM]
    for row in ROWS:
        for unit in method[row.name].units:
            yield SlopePair(row, unit, method[row.name], at_optimum[row.name])


def optimum_curves(trained_on: str = "all rows") -> dict[str, Scaling]:
    """The fits of table 1, from its record: of measured data those to all rows, or those to the "training part"."""
    path = record_path(ERRORS, "gatelab reproduce scaling/table1 --full", "an hour")
    table = pd.read_csv(path, dtype={"flag": str}).fillna({"flag": ""})
    curves = {}
    for row in ROWS:
        mine = table["problem"] == row.name
        if row.measured:
            mine &= table["trained_on"] == trained_on
        columns = pd.DataFrame(table[mine]).drop(columns=["problem", "trained_on"]).to_dict("records")
        study = Scaling(row.name, tuple(Point(**{str(k): v for k, v in point.items()}) for point in columns))
        if not row.apart and trained_on == "all rows":
            study = trained_as_tested(study)
        curves[row.name] = study
    return curves


def quick_pairs(request: Request) -> Iterable[SlopePair]:
    """Small networks of the synthetic problems, trained now for a few steps."""
    tick = ticker(request, 2 * len(QUICK_WIDTHS) * sum(len(paper_units(row)) for row in (LINE, *SYNTHETIC)))
    for row in (LINE, *SYNTHETIC):
        protocols = {True: "split", False: "paper"}
        target = problem(row.name, n=QUICK_ROWS, protocol=protocols[row.apart])
        for unit in paper_units(row):
            options = {**newton_options(unit, row.inputs), "steps": 15}
            method = fit_curves(request, (unit,), target, QUICK_WIDTHS, tick, solver="newton", **options)
            optimum = fit_curves(request, (unit,), target, QUICK_WIDTHS, tick, solver="varpro", **QUICK)
            yield SlopePair(row, unit, method, optimum)


def paper_units(row: ProblemRow) -> tuple[str, ...]:
    """The units for which the paper has a number."""
    return tuple(unit for unit in ("mlp", "glu", "gqu") if row.paper(unit) is not None)


def first_rows(unit: str) -> str:
    """The slope on the rows of California that the paper's code takes by default."""
    study = method_curves()[FIRST]
    line = study.slope(unit, aggregate="median", flagged=True)
    widths = sorted(median_errors(study, unit))
    return (
        f"How many rows the paper took is not known; on the first {FIRST_ROWS}, the code's default, the slope for "
        f"n = {widths[0]}..{widths[-1]} is {line.value:.2f} {slope_ends(line)}."
    )


def optimum_claim(pair: SlopePair) -> Claim:
    """Airfoil at the optimum over the range of widths of the paper's code: errors on the training rows."""
    low, high = pair.common
    errors = median_errors(pair.optimum, pair.unit)
    apart = optimum_curves("training part")[pair.row.name]
    held_out = apart.slope(pair.unit, aggregate="median")
    widths = sorted(median_errors(apart, pair.unit))
    return slope_claim(
        f"{pair.row.label}, {pair.unit}, at the optimum over the paper's range",
        pair.row.paper(pair.unit),
        pair.best_slope,
        f"Training RMSE {errors[low]:.2g} at n = {low} and {errors[high]:.2g} at n = {high}, of 1503 rows. On rows "
        f"held out the slope is {held_out.value:.2f} {slope_ends(held_out)}, n = {widths[0]}..{widths[-1]} (table 1).",
        held_out=False,
    )


def row_panel(pairs: Sequence[SlopePair]) -> CurvePanel:
    """A panel a problem: both curves of each unit, a line of the paper's slope, and the limit where there is one."""
    row, curves = pairs[0].row, []
    for pair in pairs:
        method = median_errors(pair.method, pair.unit)
        sizes, errors = np.array(list(method), float), np.array(list(method.values()))
        best = median_errors(pair.optimum, pair.unit)
        limits = {p.width: p.limit for p in pair.optimum.points if p.unit == pair.unit}
        ends = np.array(pair.widths, float)
        paper = row.paper(pair.unit)
        assert paper is not None
        line = np.exp(np.mean(np.log(errors))) * (ends / np.exp(np.mean(np.log(sizes)))) ** paper
        curves += [
            Curve(f"{pair.unit}, our Newton", sizes, errors[:, None], note=f"slope {pair.slope}", look=pair.unit),
            Curve(
                f"{pair.unit}, at the optimum",
                np.array(list(best), float),
                np.array(list(best.values()))[:, None],
                note=f"slope {pair.best_slope}",
                limit=np.array([limits[width] for width in best]),
                line=":",
                look=pair.unit,
            ),
            Curve(
                f"{pair.unit}, the paper's slope {paper:.2f}".replace("-", "−"),
                ends,
                line[:, None],
                line="--",
                look=pair.unit,
            ),
        ]
    tested = {True: "test RMSE", False: "RMSE on training rows"}[row.apart]
    return CurvePanel(f"{row.label}, {counted(row.inputs, 'input')}", tested, tuple(curves))


def pairs_table(pairs: Sequence[SlopePair]) -> pd.DataFrame:
    """A row a pair: the paper's slope, our Newton's over all its widths, and both over the widths that both have."""
    rows = []
    for pair in pairs:
        (low, high), (least, most) = pair.widths, pair.common
        theirs, same, best = pair.slope, pair.common_slope, pair.best_slope
        rows.append(
            {
                "problem": pair.row.name,
                "unit": pair.unit,
                "widths": f"{low}..{high}",
                "seeds": len({p.seed for p in pair.method.points if p.unit == pair.unit}),
                "paper": pair.row.paper(pair.unit),
                "method": theirs.value,
                "method_low": theirs.low,
                "method_high": theirs.high,
                "common_widths": f"{least}..{most}",
                "method_common": same.value,
                "optimum": best.value,
                "optimum_low": best.low,
                "optimum_high": best.high,
                "times_at_least_width": pair.times[least],
                "times_at_greatest_width": pair.times[most],
            }
        )
    return pd.DataFrame(rows)


def errors_table(pairs: Sequence[SlopePair]) -> pd.DataFrame:
    """A row a width of each unit and problem: medians of the seeds by both."""
    rows = []
    for pair in pairs:
        theirs, ours = median_errors(pair.method, pair.unit), median_errors(pair.optimum, pair.unit)
        for width in sorted({*theirs, *ours}):
            errors = {"method_rmse": theirs.get(width, np.nan), "optimum_rmse": ours.get(width, np.nan)}
            rows.append({"problem": pair.row.name, "unit": pair.unit, "width": width, **errors})
    return pd.DataFrame(rows)


def notes(pairs: Sequence[SlopePair]) -> tuple[str, ...]:
    """How many of the paper's slopes our Newton gives, and what is known of the paper's runs."""
    verdicts = [pair.cell.verdict for pair in pairs]
    steeper = sum(pair.best_slope.value < pair.common_slope.value for pair in pairs)
    return (
        f"By our Newton in its stages {verdicts.count('reproduced')} of {counted(len(pairs), 'slope')} are reproduced; "
        f"at the optimum {steeper} are steeper at the same widths.",
        "Data, tests, start and stages are those of the paper's code, https://github.com/afqueiruga/divine_scaling; "
        "the solver is ours, and beside runs of that code it stands in one dimension alone (scaling/fig2). Targets of "
        "one and two inputs are tested on a grid, the others on the training rows.",
        "The ranges of widths are the paper's for one input and the code's for airfoil, whose MLP ends at 214 of 500 "
        "neurons, where it has as many parameters as there are rows. The others are not known: the code takes every "
        "width that was run, and there is no list of them.",
    )


STUDY = Study(
    "scaling/method",
    "Table 1 by our Newton in the stages of the paper's code",
    "The slopes of table 1, as a Newton method of ours gives them in the stages of the paper's code.",
    run,
    position=10,
)
