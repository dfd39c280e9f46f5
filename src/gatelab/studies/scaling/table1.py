"""Table 1, and figures 7 and 8 of it: slopes on seven problems, under the true split and under the paper's protocol.

**True split**: errors on data that were not trained on. **Paper's protocol**: for Friedman's problems and for measured
data, errors on the training data, which the paper's code reports as test errors; measured data are then trained on
every row. The targets of one and two inputs are tested on a separate grid: there the paper's protocol is a true split.

A slope is fitted to the medians, over seeds, of unflagged fits; with one input no fit is left out, as in figure 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.data import Problem, problem
from gatelab.feedforward import unit as as_unit
from gatelab.plotting.facets import Facets, Overlay, draw_figure
from gatelab.scaling_laws import Slope, slope
from gatelab.studies.claims import CLOSE, Claim
from gatelab.studies.definition import Request, limits, only
from gatelab.studies.engine import Study, Table, Tables, interval_at
from gatelab.studies.inventory import printed
from gatelab.studies.scaling.error_curves import UNITS, fit_curves
from gatelab.theory import worst_case_rate

SPLIT, ALL = "training part", "all rows"  # the rows that a fit was trained on
PROTOCOLS = {"split": "true split", "paper": "paper's protocol"}
APART = ("1/(1+cos²πx)", "sin 4x sin 4y")  # tested on separate points by the paper's code
# The widths over which the paper's code takes slopes, if it states them; elsewhere it takes all widths that were run.
SLOPE_RANGES = {("airfoil", "mlp"): (10, 500), ("airfoil", "glu"): (10, 100)}
QUICK: Mapping[str, Any] = {"starts": 1, "rounds": 0, "steps": 5}
MARGIN = 0.05  # by which one slope must be steeper than another to count as such
EDGE = 1.0  # slopes of errors that rise are drawn at this edge, so that the others stay readable
CAP = 1.5  # times the largest training error: where the panels of measured data end


@dataclass(frozen=True)
class ProblemRow:
    """A problem of table 1 and how it is fitted."""

    name: str  # of the problem, and after a comma its variant
    label: str  # in the paper's table
    inputs: int
    widths: tuple[int, ...]
    seeds: int = 2  # fits per width
    measured: bool = False  # and not drawn from a formula
    ridge: bool = False  # whether the target is a sum of finitely many ridge functions
    data: Mapping[str, Any] = field(default_factory=dict)  # options of the problem
    options: Mapping[str, Any] = field(default_factory=dict)  # of the solver

    @property
    def readings(self) -> dict[str, tuple[str, str]]:
        """The rows trained on and the column of errors that each protocol reads."""
        if self.label in APART:
            return {"paper": (SPLIT, "test_rmse")}
        return {"split": (SPLIT, "test_rmse"), "paper": ((SPLIT, ALL)[self.measured], "train_rmse")}

    @property
    def tabled(self) -> bool:
        """Whether the paper's table has it; variants have a comma in their name."""
        return "," not in self.name

    def title(self, unit: str, protocol: str) -> str:
        """The row of a slope in table 1 and in figures 7 and 8, and the title of the claim on it."""
        return f"{self.label}, {unit}, {PROTOCOLS[protocol]}"

    def paper(self, unit: str) -> float | None:
        """The slope in the paper's table; None for a dash and for a problem that it does not have."""
        if not self.tabled:
            return None
        cell = printed("scaling", f"table 1, {self.title(unit, 'paper')}")
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


SPAN, FEW = (8, 12, 16, 24, 32), {"starts": 1, "rounds": 6}
LINE = ProblemRow("paper-1d", "1/(1+cos²πx)", 1, tuple(range(1, 51)), seeds=1)
SYNTHETIC = (
    ProblemRow("sin4x-sin4y", "sin 4x sin 4y", 2, (8, 11, 16, 23, 32, 45, 64), ridge=True, data={"n": 2000}),
    ProblemRow("friedman1", "Friedman 1", 5, SPAN),
    ProblemRow("friedman2", "Friedman 2", 4, SPAN),
    ProblemRow("friedman3", "Friedman 3", 4, SPAN),
)
REAL = (
    ProblemRow("airfoil", "airfoil", 5, (2, 4, 8, 12, 16, 24, 32), measured=True),
    ProblemRow("california", "California", 8, (2, 3, 4, 6, 8, 12, 16), measured=True, options=FEW),
)
# For quick runs, which do without measured data.
STAND_IN = ProblemRow("friedman1, noisy", "Friedman 1, noisy", 5, (1, 2, 3), measured=True, data={"noise": 0.2})
TABLED = (LINE, *SYNTHETIC, *REAL)
ROWS = {row.name: row for row in (*TABLED, STAND_IN)}


def fit_rows(request: Request, rows: Sequence[ProblemRow]) -> Table:
    """One row per fit. Missing data raise before the first fit."""
    parts = [(row, part, row.problem(part)) for row in rows for part in (SPLIT, ALL)[: 1 + row.measured]]
    fits: dict[Any, Table] = {
        (row.name, part): fit_curves(request, UNITS, target, row.widths, row.seeds, **row.options).table()
        for row, part, target in parts
    }
    return pd.concat(fits, names=["problem", "trained_on"]).droplevel(2).reset_index()


# ---- medians and slopes of the fits


def medians(fits: Table) -> Table:
    """Test and training errors per width: medians of the logarithms over seeds, as slopes take them."""
    keys = [fits[key] for key in ("problem", "trained_on", "unit", "width", "parameters")]
    logs = np.log(fits[["train_rmse", "test_rmse"]])
    return np.exp(logs.groupby(keys, sort=False).median()).reset_index()


def median_slope(fits: Table, error: str = "test_rmse") -> Slope:
    """The slope against n of the medians of one unit's fits."""
    curve = medians(fits)
    return slope(curve["width"], curve[error])


def unflagged(fits: Table) -> Table:
    """The fits that take part in slopes; the empty flag is NaN in a table from a file."""
    return fits[fits["flag"].isna() | (fits["flag"] == "")]


def row_tables(request: Request, rows: Sequence[ProblemRow]) -> dict[str, Table]:
    """The fits of these rows and their slopes; a quick run makes the rows smaller."""
    if request.quick:
        rows = [row.quick() for row in rows]
    errors = fit_rows(request, rows)
    return {"slopes": slopes_table(errors, rows), "errors": errors}


def slopes_table(errors: Table, rows: Sequence[ProblemRow]) -> Table:
    """Slopes next to the paper's, the rate of the hardest target, and the rate that is attainable for this target."""
    cells = []
    for row, unit in product(rows, UNITS):
        degree = as_unit(unit).degree
        assert degree is not None
        attainable = np.nan
        if row.ridge or row.inputs == 1:
            attainable = -(degree + 1.0)  # of sums of ridge functions, in any dimension
        rates = {"worst_case": -worst_case_rate(degree, row.inputs), "attainable": attainable}
        for protocol, (trained_on, error) in row.readings.items():
            fits = only(errors, problem=row.name, unit=unit, trained_on=trained_on)
            chosen = fits
            if row.inputs > 1:
                chosen = unflagged(fits)
            ours = median_slope(chosen, error)
            cell = {"problem": row.name, "inputs": row.inputs, "unit": unit, "protocol": protocol}
            cell |= {"paper": row.paper(unit), "slope": ours.value, "low": ours.low, "high": ours.high, **rates}
            cell |= {"widths": f"{row.widths[0]}..{row.widths[-1]}", "seeds": row.seeds}
            cells.append(cell | {"fits_left_out": len(fits) - len(chosen)})
    return pd.DataFrame(cells)


# ---- figures

SLOPES = Facets(
    x="problem", y="slope", hue="protocol", col="unit", points=True, paper="paper", xlabel="", names=PROTOCOLS,
    lines=(Overlay("worst_case", "worst case"), Overlay("attainable", "attainable for ridge functions", "dotted")),
    levels={"no fall": 0.0}, marks=("rising", f"error rises: slope of {EDGE:g} or more"),
    ylabel="slope against n", title="Table 1: slopes on problems of one to eight inputs",
)  # fmt: skip
CURVES = Facets(
    x="width", y="rmse", hue="unit", col="label", wrap=2, xlog=True, ylog=True, xlabel="neurons n", ylabel="RMSE",
    lines=(Overlay("training", "training errors", "dotted"),), marks=("marked", "left out of the slope"),
    title="Figure 7: synthetic problems of many inputs",
)  # fmt: skip
BOTH_PROTOCOLS = replace(
    CURVES, row="label", col="protocol", wrap=0, marks=("marked", "beyond the axis"), title="Figure 8: measured data"
)


def slopes_figure(tables: Tables) -> Figure:
    slopes = tables["slopes"].rename(columns={"low": "slope_low", "high": "slope_high"})
    ends = slopes[["slope", "slope_low", "slope_high"]].clip(upper=EDGE)
    names = slopes["problem"].map(lambda name: f"{ROWS[name].label} ({ROWS[name].inputs}D)")
    slopes = slopes.assign(rising=slopes["slope"] >= EDGE, problem=names, unit=slopes["unit"].str.upper(), **ends)
    drawing = draw_figure(SLOPES, {"slopes": slopes})
    for axes in drawing.axes:
        axes.tick_params("x", rotation=60)
    return drawing


def curves(errors: Table, trained_on: str) -> Table:
    flagged = errors.assign(marked=~errors.index.isin(unflagged(errors).index))
    flags = flagged.groupby(["problem", "trained_on", "unit", "width"])["marked"].any().reset_index()
    labels = {name: f"{row.label}, {row.inputs} inputs" for name, row in ROWS.items()}
    made = only(medians(errors), trained_on=trained_on).merge(flags)
    return made.assign(label=made["problem"].map(labels), rmse=made["test_rmse"], training=made["train_rmse"])


def measured_figure(tables: Tables) -> Figure:
    split = curves(tables["errors"], SPLIT).assign(protocol="true split")
    cap = CAP * split.groupby("problem")["training"].transform("max")
    split = split.assign(rmse=np.minimum(split["rmse"], cap), marked=split["rmse"] > cap)
    paper = curves(tables["errors"], ALL).assign(protocol="paper's protocol", training=np.nan, marked=False)
    return draw_figure(BOTH_PROTOCOLS, {"curves": pd.concat([split, paper])})


# ---- the studies

FIG7 = Study(
    "scaling/fig7",
    "Synthetic problems of many inputs",
    "On sin 4x sin 4y and on Friedman's problems the error of the GLU falls faster than that of the MLP.",
    long=True,
    position=7,
    figure=lambda tables: draw_figure(CURVES, {"curves": curves(tables["errors"], SPLIT)}),
)
FIG8 = Study(
    "scaling/fig8",
    "Measured data",
    "On airfoil self-noise the error of the GLU falls faster than that of the MLP, on California housing as slowly.",
    long=True,
    position=8,
    figure=measured_figure,
)
TABLE1 = Study(
    "scaling/table1",
    "Slopes in one and in many dimensions",
    "The slopes of the GLU are steeper than those of the MLP on every problem but California housing, and fall with "
    "the number of inputs.",
    long=True,
    position=9,
    figure=slopes_figure,
)


FIG7.tables(lambda request: row_tables(request, SYNTHETIC))
FIG7.claims(lambda tables: slope_claims(tables, "figure 7"))
# In a quick run a synthetic problem with noise stands in for measured data.
FIG8.tables(lambda request: row_tables(request, [STAND_IN] if request.quick else REAL))
FIG8.claims(lambda tables: slope_claims(tables, "figure 8"))


@TABLE1.tables
def all_tables(request: Request) -> Tables:
    """Every row; a quick run leaves measured data out."""
    rows = TABLED
    if request.quick:
        rows = (LINE, *SYNTHETIC)
    by_name = row_tables(request, rows)
    return {"table": printed_table(by_name["slopes"])} | by_name


def printed_table(slopes: Table) -> Table:
    """The printed table: one line per problem, with the paper's slope, both of ours and both rates."""
    lines = []
    for name, own in slopes.groupby("problem", sort=False):
        line: dict[str, Any] = {"problem": ROWS[name].label, "x dim": ROWS[name].inputs}
        for unit in UNITS:
            cells = only(own, unit=unit).set_index("protocol").to_dict("index")
            theirs = cells["paper"]
            line[f"{unit}, paper"] = f"{theirs['paper'] or np.nan:.2f}".replace("nan", "-")
            for protocol, words in PROTOCOLS.items():
                line[f"{unit}, {words}"] = f"{interval_at(cells.get(protocol, theirs), 'slope'):.2f}"
            line[f"{unit}, worst case"] = f"{theirs['worst_case']:.2f}"
            line[f"{unit}, attainable"] = f"{theirs['attainable']:.0f}".replace("nan", "")
        lines.append(line)
    return pd.DataFrame(lines)


@TABLE1.claims
def all_claims(tables: Tables) -> Iterator[Claim]:
    yield from slope_claims(tables, "table 1")
    for protocol in PROTOCOLS:
        yield from problem_claims(tables["slopes"], protocol)


def slope_claims(tables: Tables, heading: str) -> Iterator[Claim]:
    """The paper's slopes next to ours, for "table 1", "figure 7" or "figure 8"."""
    curves = medians(tables["errors"])
    for cell in tables["slopes"].to_dict("records"):
        row, unit, protocol = ROWS[cell["problem"]], cell["unit"], cell["protocol"]
        what, paper = row.title(unit, protocol), row.paper(unit)
        answers = row.tabled and (heading == "table 1" or (protocol == "paper" and paper is not None))
        low, high = (int(n) for n in cell["widths"].split(".."))
        theirs = SLOPE_RANGES.get((row.label, unit), (low, high))
        different = f"the paper's slope is over n = {theirs[0]} to {theirs[1]}, ours over {low} to {high}"
        yield Claim.of(
            what, interval_at(cell, "slope"), paper or "-", "slope" if paper else "new",
            place=f"{heading}, {what}" * answers, outside=different * (theirs != (low, high)),
            held_out=row.readings[protocol][1] == "test_rmse",
            support=slope_support(tables, cell, only(curves, problem=row.name, unit=unit)),
        )  # fmt: skip


def slope_support(tables: Tables, cell: Mapping[str, Any], curve: Table) -> dict[str, Any]:
    """The errors behind a slope, the rates of theory, and the slope on rows held out."""
    split = only(curve, trained_on=SPLIT).set_index("width")
    small, *_, large = split.index
    support: dict[str, Any] = {
        f"test RMSE at n = {small} and {large}": split["test_rmse"].iloc[[0, -1]].tolist(),
        "training RMSE there": split["train_rmse"].iloc[[0, -1]].tolist(),
        "worst case for this number of inputs": cell["worst_case"],
    }
    if np.isfinite(cell["attainable"]):
        support["attainable for this target"] = cell["attainable"]
    if cell["protocol"] == "paper":
        same = {"problem": cell["problem"], "unit": cell["unit"]}
        for held_out in only(tables["slopes"], **same, protocol="split").to_dict("records"):
            support["slope on rows held out"] = interval_at(held_out, "slope")
    return support


def problem_claims(slopes: Table, protocol: str) -> Iterator[Claim]:
    """Appendix D: the GLU is steeper on every problem but California, and slopes go as 1 / dim_x."""
    apart = slopes["problem"].map(lambda name: ROWS[name].label in APART) & (slopes["protocol"] == "paper")
    chosen = slopes[(slopes["protocol"] == protocol) | (apart & (protocol == "split"))]
    ours, paper = (chosen.pivot(index="problem", columns="unit", values=name) for name in ("slope", "paper"))
    steeper = ours["glu"] < ours["mlp"] - MARGIN
    others = steeper.drop("california", errors="ignore")
    what = f"problems on which the GLU is steeper than the MLP, {PROTOCOLS[protocol]}"
    yield Claim(
        what, float(others.sum()), paper=float(len(others)), rule="number", unit=f"of {len(others)}",
        place=f"appendix D, {what}",
        support={"steeper on": [row.label for name, row in ROWS.items() if steeper.get(name)], "by more than": MARGIN},
        note="The paper excepts California housing, which is not counted.",
    )  # fmt: skip
    inputs = chosen.groupby("problem")["inputs"].first()
    many = inputs[inputs > 1].index
    times, printed = (
        (table.mul(inputs, axis=0) / table.loc["paper-1d"]).loc[many, ["mlp", "glu"]].to_numpy(float).ravel()
        for table in (ours, paper)
    )
    what = f"slope times dim_x over the slope in one dimension, mlp and glu, {PROTOCOLS[protocol]}"
    yield Claim(
        what, float(times[np.abs(times - 1).argmax()]), paper=1.0, rule="close", place=f"appendix D, {what}",
        support={
            "least and greatest of ours": limits(times), "least and greatest of the paper's table": limits(printed),
            "cells": len(times), "ours within a quarter of 1": int((np.abs(times - 1) <= CLOSE).sum()),
            "the paper's within a quarter of 1": int((np.abs(printed - 1) <= CLOSE).sum()),
        },
        note="The value is the cell that is farthest from 1. Slopes depend on the target: sums of ridge functions lose "
        "nothing with the number of inputs.",
    )  # fmt: skip
