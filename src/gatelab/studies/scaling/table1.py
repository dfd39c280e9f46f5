"""Table 1: the slopes of MLP, GLU and GQU on seven problems, under the true split and under the paper's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.plotting.facets import Facets, Overlay, draw_figure
from gatelab.scaling_laws import slope
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, only
from gatelab.studies.engine import Study, Table, Tables, interval_at
from gatelab.studies.scaling.error_curves import UNITS
from gatelab.studies.scaling.problem_rows import PROTOCOLS, ROWS, SPLIT, SYNTHETIC, TABLED, available_rows, fit_rows
from gatelab.studies.scaling.row_claims import data_table, problem_claims, ridge_table, slope_claims
from gatelab.studies.scaling.row_slopes import medians, row_tables

EDGE = 1.0  # slopes of errors that rise are drawn at this edge, so that the others stay readable
SLOPES = Facets(
    x="problem", y="slope", hue="protocol", col="unit", points=True, paper="paper", xlabel="", names=PROTOCOLS,
    lines=(Overlay("worst_case", "worst case"), Overlay("attainable", "attainable for ridge functions", "dotted")),
    levels={"no fall": 0.0}, marks=("rising", f"error rises: slope of {EDGE:g} or more"),
    ylabel="slope against n", title="Table 1: slopes on problems of one to eight inputs",
)  # fmt: skip


def figure(tables: Tables) -> Figure:
    """Slopes with their intervals by problem and protocol, one panel per unit."""
    slopes = tables["slopes"].rename(columns={"low": "slope_low", "high": "slope_high"})
    ends = slopes[["slope", "slope_low", "slope_high"]].clip(upper=EDGE)
    names = slopes["problem"].map(lambda name: f"{ROWS[name].label} ({ROWS[name].inputs}D)")
    slopes = slopes.assign(rising=slopes["slope"] >= EDGE, problem=names, unit=slopes["unit"].str.upper(), **ends)
    drawing = draw_figure(SLOPES, {"slopes": slopes})
    for axes in drawing.axes:
        axes.tick_params("x", rotation=60)
    return drawing


STUDY = Study(
    "scaling/table1",
    "Slopes in one and in many dimensions",
    "The slopes of the GLU are steeper than those of the MLP on every problem but California housing, and fall with "
    "the number of inputs.",
    long=True,
    position=9,
    figure=figure,
)


@STUDY.tables
def tables(request: Request) -> Tables:
    """Every row whose data are on this machine; a quick run leaves measured data out."""
    rows = [row.quick() for row in TABLED if not row.measured] if request.quick else available_rows(TABLED)
    by_name = row_tables(fit_rows(request, rows), rows)
    by_name = {"table": printed_table(by_name["slopes"])} | by_name
    if not request.quick:
        by_name["ridge"] = ridge_table(SYNTHETIC[0].widths)
    measured = [row for row in rows if row.measured]
    if measured:
        by_name["data"] = data_table(by_name["errors"], measured)
    return by_name


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


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """Every cell of the table under each protocol, and the paper's statements on all of them."""
    for claim in slope_claims(tables, "table 1"):
        problem, unit, _ = claim.what.rsplit(", ", 2)
        if "ridge" in tables and problem == SYNTHETIC[0].label:
            yield replace(claim, support={**claim.support, **ridge_support(tables, unit)})
        else:
            yield claim
    for protocol in PROTOCOLS:
        yield from problem_claims(tables["slopes"], protocol)


def ridge_support(tables: Tables, unit: str) -> dict[str, Any]:
    """The slope of two fits on a line that share the neurons, and our training error over theirs."""
    pair = only(tables["ridge"], unit=unit)
    ours = only(medians(tables["errors"]), problem=SYNTHETIC[0].name, unit=unit, trained_on=SPLIT)
    line = slope(pair["width"].to_numpy(float), pair["rmse"].to_numpy(float))
    times = ours["train_rmse"].iloc[-1] / pair["rmse"].iloc[-1]
    return {
        "slope of two fits on a line that share the neurons": line.value,
        f"our training RMSE over theirs at n = {pair['width'].iloc[-1]}": float(times),
    }
