"""Table 1: the slopes of MLP, GLU and GQU on seven problems, under the true split and under the paper's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gatelab.plotting.theme import GRAY, look, style
from gatelab.scaling_laws import slope
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Table, Tables
from gatelab.studies.scaling.printed import PROTOCOLS, UNITS
from gatelab.studies.scaling.problem_rows import LINE, REAL, ROWS, SPLIT, SYNTHETIC, at_hand, fit_rows
from gatelab.studies.scaling.row_claims import data_table, problem_claims, ridge_table, slope_claims
from gatelab.studies.scaling.row_slopes import interval_of, medians, part_of, row_tables

EDGE = 1.0  # slopes of errors that rise are drawn at this edge: they should not press the others together
LIGHT = "#9a9a9a"
STROKE: dict[str, Any] = {"color": "black", "marker": "|", "markersize": 16, "linestyle": ""}
MARKS: dict[str, dict[str, Any]] = {
    "split": {"marker": "o", "color": look("mlp").color, "label": f"ours, {PROTOCOLS['split']}"},
    "paper": {"marker": "s", "color": LIGHT, "label": f"ours, {PROTOCOLS['paper']}"},
    "printed": {
        "marker": "D", "color": "black", "markerfacecolor": "white", "linestyle": "", "label": "the paper's table",
    },
    "worst_case": STROKE | {"label": "worst case for this number of inputs"},
    "attainable": STROKE | {"color": "#E69F00", "label": "attainable: a sum of ridge functions"},
}  # fmt: skip


def figure(tables: Tables) -> Figure:
    """One panel per unit and one line per problem, with slopes as dots."""
    slopes = tables["slopes"]
    names = list(dict.fromkeys(slopes["problem"]))
    with style():
        drawing = Figure(figsize=(10.4, 1.5 + 0.5 * len(names)), layout="constrained")
        panels = drawing.subplots(1, len(UNITS), sharey=True)
        for axes, unit in zip(panels, UNITS, strict=True):
            for cell in part_of(slopes, unit=unit).to_dict("records"):
                draw_cell(axes, cell, names.index(cell["problem"]))
            axes.axvline(0, color=GRAY, linewidth=0.6)
            axes.grid(axis="y", visible=False)
            axes.set(title=unit.upper(), xlabel="slope against n", xlim=(None, min(axes.get_xlim()[1], EDGE)))
        labels = [f"{ROWS[name].label} ({ROWS[name].inputs}D)" for name in names]
        panels[0].set_yticks(range(len(names)), labels)
        panels[0].set_ylim(len(names) - 0.5, -0.5)
        handles = [Line2D([], [], **mark) for mark in MARKS.values()]
        drawing.legend(handles=handles, loc="outside lower center", ncols=5, columnspacing=1.6)
        drawing.suptitle(f"Table 1: slopes of {len(UNITS)} units on {len(names)} problems")
    return drawing


def draw_cell(axes: Axes, cell: dict[str, Any], line: int) -> None:
    """One slope with its interval; next to that of the paper's protocol the paper's, and the rates of theory."""
    alone = len(ROWS[cell["problem"]].readings) == 1
    protocol, height = "split", float(line)
    if not alone:
        protocol = cell["protocol"]
        height += {"split": -0.2, "paper": 0.2}[protocol]
    color = {"split": look(cell["unit"]).color, "paper": LIGHT}[protocol]
    axes.plot([cell["low"], cell["high"]], [height, height], color=color, linewidth=1.4)
    marker = ">" if cell["slope"] >= EDGE else MARKS[protocol]["marker"]
    axes.plot(min(cell["slope"], 0.97 * EDGE), height, color=color, marker=marker)
    if cell["protocol"] == "paper":
        for column, name in (("worst_case", "worst_case"), ("attainable", "attainable"), ("paper", "printed")):
            if column != "attainable" or cell["attainable"] != cell["worst_case"]:
                axes.plot(cell[column], line, **MARKS[name])


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
    """Every row that the machine has the data of; a quick run leaves measured data out."""
    rows = [LINE, *SYNTHETIC, *at_hand(REAL)]
    if request.quick:
        rows = [row.quick() for row in (LINE, *SYNTHETIC)]
    made = row_tables(fit_rows(request, rows), rows)
    made = {"table": printed_table(made["slopes"])} | made
    if not request.quick:
        made["ridge"] = ridge_table(SYNTHETIC[0].widths)
    measured = [row for row in rows if row.measured]
    if measured:
        made["data"] = data_table(made["errors"], measured)
    return made


def printed_table(slopes: Table) -> Table:
    """The table as one would print it: one line per problem, with the paper's slope, both of ours and both rates."""
    lines = []
    for name, own in slopes.groupby("problem", sort=False):
        line: dict[str, Any] = {"problem": ROWS[name].label, "x dim": ROWS[name].inputs}
        for unit in UNITS:
            cells = part_of(own, unit=unit).set_index("protocol").to_dict("index")
            theirs = cells["paper"]
            line[f"{unit}, paper"] = f"{theirs['paper'] or np.nan:.2f}".replace("nan", "-")
            for protocol, words in PROTOCOLS.items():
                line[f"{unit}, {words}"] = f"{interval_of(cells.get(protocol, theirs)):.2f}"
            line[f"{unit}, worst case"] = f"{theirs['worst_case']:.2f}"
            line[f"{unit}, attainable"] = f"{theirs['attainable']:.0f}".replace("nan", "")
        lines.append(line)
    return pd.DataFrame(lines)


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """Every cell of the table under each protocol, and what the paper says of all of them."""
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
    pair = part_of(tables["ridge"], unit=unit)
    ours = part_of(medians(tables["errors"]), problem=SYNTHETIC[0].name, unit=unit, trained_on=SPLIT)
    line = slope(pair["width"].to_numpy(float), pair["rmse"].to_numpy(float))
    times = ours["train_rmse"].iloc[-1] / pair["rmse"].iloc[-1]
    return {
        "slope of two fits on a line that share the neurons": line.value,
        f"our training RMSE over theirs at n = {pair['width'].iloc[-1]}": float(times),
    }
