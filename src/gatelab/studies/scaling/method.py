"""Table 1 by our Newton in the stages of the paper's code, next to the same units at their optimum.

The experiments are those of the paper's code, documented in `gatelab.scaling_laws.reference`: its data, tests, start
and stages of Newton's method. The solver is ours; `scaling/fig2` has runs of the code itself. The fits come from a
record, and the optimum from that of table 1; for airfoil, which the code fits over wider ranges, it is in the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.plotting.facets import Facets, Overlay, draw_figure
from gatelab.scaling_laws.reference import FIRST_ROWS, OPTIMUM
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, only
from gatelab.studies.engine import Study, Table, Tables, interval_at, interval_columns
from gatelab.studies.records import record_path
from gatelab.studies.scaling.error_curves import method_curves, method_record
from gatelab.studies.scaling.table1 import (
    APART,
    ROWS,
    SLOPE_RANGES,
    SPLIT,
    TABLED,
    ProblemRow,
    median_slope,
    medians,
    problem_claims,
    slope_cell,
    unflagged,
)

FIRST = f"california, first {FIRST_ROWS} rows"
CURVES = Facets(
    x="width", y="method_rmse", hue="unit", col="label", wrap=3, xlog=True, ylog=True, xlabel="neurons n",
    ylabel="RMSE, as the paper's code tests", title="Table 1 by our Newton in its stages and at the optimum",
    lines=(Overlay("optimum_rmse", "at the optimum", "dotted"), Overlay("paper_line", "the paper's slope")),
)  # fmt: skip


def figure(tables: Tables) -> Figure:
    """Errors by both trainings, and a line of the paper's slope through the middle of our Newton's."""
    parts = []
    for (name, unit), curve in tables["errors"].groupby(["problem", "unit"], sort=False):
        logs = np.log(curve[["width", "method_rmse"]])
        away = logs["width"] - logs["width"][logs["method_rmse"].notna()].mean()
        line = np.exp(logs["method_rmse"].mean() + (ROWS[name].paper(unit) or np.nan) * away)
        parts.append(curve.assign(paper_line=line, label=f"{ROWS[name].label}, {ROWS[name].inputs}D"))
    return draw_figure(CURVES, {"curves": pd.concat(parts)})


STUDY = Study(
    "scaling/method",
    "Table 1 by our Newton in the stages of the paper's code",
    "The slopes of table 1, as a Newton method of ours gives them in the stages of the paper's code.",
    position=10,
    figure=figure,
)


@STUDY.tables
def tables(request: Request) -> Tables:
    """One pair of slopes per problem and unit that the paper has a number for; further slopes, and all medians."""
    path = record_path("scaling/table1-errors.csv", "gatelab reproduce scaling/table1 --full", "an hour")
    table1 = pd.read_csv(path)
    optimum = optimum_fits(table1)
    groups = newton_fits(*(row.name for row in TABLED)).groupby(["problem", "unit"], sort=False)
    parts = [pair_of(ROWS[name], unit, fits, only(optimum, problem=name, unit=unit)) for (name, unit), fits in groups]
    slopes, pairs, errors = zip(*parts, strict=True)
    return {
        "slopes": pd.DataFrame(slopes),
        "pairs": pd.DataFrame(pairs),
        "errors": pd.concat(errors),
        "further": pd.DataFrame(further_slopes(table1)),
        "record": pd.DataFrame([method_record()])[["date", "device", "planned", "finished"]],
    }


def newton_fits(*names: str) -> Table:
    """The fits of our Newton in its stages, from their record."""
    curves = method_curves()
    return pd.concat([curves[name].table().assign(problem=name, trained_on="") for name in names])


def optimum_fits(errors: Table) -> Table:
    """The fits at the optimum with the errors of the paper's protocol, from the record of table 1."""
    parts = []
    for row in TABLED:
        trained_on, error = row.readings["paper"]
        fits = only(errors, problem=row.name, trained_on=trained_on)
        if row.name == "airfoil":
            fits, error = newton_fits(OPTIMUM).assign(problem=row.name), "test_rmse"
        parts.append(fits.assign(test_rmse=fits[error]))
    return pd.concat(parts)


def pair_of(row: ProblemRow, unit: str, newton: Table, optimum: Table) -> tuple[dict[str, Any], dict[str, Any], Table]:
    """The slope of our Newton over all its widths; both slopes over the widths that both have; the medians of both."""
    theirs, ours = (
        medians(fits).set_index("width")["test_rmse"].rename(name)
        for fits, name in ((newton, "method_rmse"), (optimum, "optimum_rmse"))
    )
    errors = pd.concat([theirs, ours], axis=1).sort_index()
    times = (errors["method_rmse"] / errors["optimum_rmse"]).dropna()
    least, most = int(times.index[0]), int(times.index[-1])
    whole = median_slope(newton)
    common, best = (median_slope(fits[fits["width"].between(least, most)]) for fits in (newton, optimum))
    slopes = slope_cell(row, unit, "method", whole, list(theirs.index))
    slopes |= {"seeds": newton["seed"].nunique(), "fits_left_out": 0}
    pair = {name: slopes[name] for name in ("problem", "unit", "widths", "seeds", "paper")}
    pair |= interval_columns("method", whole) | {"common_widths": f"{least}..{most}"}
    pair |= interval_columns("method_common", common) | interval_columns("optimum", best)
    pair |= {"times_at_least_width": times.iloc[0], "times_at_greatest_width": times.iloc[-1]}
    return slopes, pair, errors.reset_index().assign(problem=row.name, unit=unit)


def further_slopes(errors: Table) -> Iterator[dict[str, Any]]:
    """Slopes on the first rows of California, the code's default, and of airfoil's optimum on held-out rows."""
    airfoil = unflagged(only(errors, problem="airfoil", trained_on=SPLIT))
    for what, name, fits in (("first rows", "california", newton_fits(FIRST)), ("held out", "airfoil", airfoil)):
        for unit in ("mlp", "glu"):
            own = only(fits, unit=unit)
            line, widths = median_slope(own), sorted(own["width"])
            ends = {"slope": line.value, "low": line.low, "high": line.high, "widths": f"{widths[0]}..{widths[-1]}"}
            yield {"problem": name, "unit": unit, "reading": what} | ends


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """The paper's slopes next to those of our Newton in the stages of its code."""
    for pair in tables["pairs"].to_dict("records"):
        row, unit, last = ROWS[pair["problem"]], pair["unit"], int(pair["widths"].split("..")[1])
        what, paper, theirs = row.title(unit, "method"), row.paper(unit), SLOPE_RANGES.get((row.label, unit))
        ends = ("times_at_least_width", "times_at_greatest_width")
        support = {
            "n": pair["widths"],
            "seeds": pair["seeds"],
            "n in common with the optimum": pair["common_widths"],
            "our Newton over these": interval_at(pair, "method_common"),
            "the optimum over these": interval_at(pair, "optimum"),
            "error over the optimum's at the least and the greatest of these": [pair[end] for end in ends],
            **further(tables, row.name, unit, "first rows", f"slope on the first {FIRST_ROWS} rows"),
        }
        unknown = theirs is None and row.inputs > 1
        outside = ""
        if theirs and theirs[1] > last:
            outside = f"the paper's widths end at {theirs[1]}, ours at {last}"
        more = {"place": f"table 1, {what}", "note": "Which widths the paper took is not known." * unknown}
        more |= {"support": support, "outside": outside, "held_out": row.label in APART}
        yield Claim.of(what, interval_at(pair, "method"), paper, "slope", **more)
        if row.name == "airfoil":
            least, most = map(int, pair["common_widths"].split(".."))
            errors = only(tables["errors"], problem=row.name, unit=unit).set_index("width")["optimum_rmse"]
            support = {f"training RMSE at n = {least} and {most}": errors[[least, most]].tolist()}
            support |= further(tables, row.name, unit, "held out", "slope on rows held out, as in table 1")
            what, ours = f"airfoil, {unit}, at the optimum over the paper's range", interval_at(pair, "optimum")
            yield Claim.of(what, ours, paper, "slope", support=support, outside=outside, held_out=False)
    yield from problem_claims(tables["slopes"], "method")


def further(tables: Tables, name: str, unit: str, reading: str, words: str) -> dict[str, Any]:
    """A further slope of a problem, if the study has it."""
    cells = only(tables["further"], problem=name, unit=unit, reading=reading).to_dict("records")
    return {f"{words}, n = {cell['widths']}": interval_at(cell, "slope") for cell in cells}
