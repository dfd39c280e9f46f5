"""The slopes of table 1, figures 7 and 8 next to the paper's, and what its appendix D says of all problems together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gatelab.studies.claims import CLOSE, Claim
from gatelab.studies.engine import Table, Tables
from gatelab.studies.scaling.printed import APART, BY_INPUTS, READINGS, SLOPE_RANGES, STEEPER, Reading, slope_row
from gatelab.studies.scaling.problem_rows import ALL, ROWS, SPLIT
from gatelab.studies.scaling.row_slopes import interval_of, medians, part_of

MARGIN = 0.05  # by which one slope must be steeper than another to count as such


def slope_claims(tables: Tables, heading: str) -> Iterator[Claim]:
    """The paper's slopes next to ours, below "table 1", "figure 7" or "figure 8"."""
    curves = medians(tables["errors"])
    for cell in tables["slopes"].to_dict("records"):
        row, unit, protocol = ROWS[cell["problem"]], cell["unit"], cell["protocol"]
        what = slope_row(row.label, unit, READINGS[protocol])
        paper = row.paper(unit)
        answers = row.tabled if heading == "table 1" else protocol == "paper" and paper is not None
        low, high = (int(n) for n in cell["widths"].split(".."))
        theirs = SLOPE_RANGES.get((row.label, unit), (low, high))
        different = f"the paper's slope is over n = {theirs[0]} to {theirs[1]}, ours over {low} to {high}"
        yield Claim.of(
            what,
            interval_of(cell),
            "-" if paper is None else paper,
            "new" if paper is None else "slope",
            place=f"{heading}, {what}" if answers else "",
            outside=different if theirs != (low, high) else "",
            held_out=row.readings[protocol][1] == "test_rmse",
            support=slope_support(tables, cell, part_of(curves, problem=row.name, unit=unit)),
        )


def slope_support(tables: Tables, cell: Mapping[str, Any], curve: Table) -> dict[str, Any]:
    """The errors behind a slope, the rates of theory, the slope on rows held out, and the floor of measured data."""
    of_cell = {"problem": cell["problem"], "unit": cell["unit"]}
    split = part_of(curve, trained_on=SPLIT)
    small, *_, large = split["width"]
    ends = split.set_index("width").loc[[small, large]]
    support: dict[str, Any] = {
        f"test RMSE at n = {small} and {large}": ends["test_rmse"].tolist(),
        "training RMSE there": ends["train_rmse"].tolist(),
        "worst case for this number of inputs": cell["worst_case"],
    }
    if cell["attainable"] == cell["attainable"]:
        support["attainable for this target"] = cell["attainable"]
    held_out = part_of(tables["slopes"], **of_cell, protocol="split").to_dict("records")
    if cell["protocol"] == "paper" and held_out:
        support["slope on rows held out"] = interval_of(held_out[0])
    least = int(split.loc[split["test_rmse"].idxmin(), "width"])
    if least < large:
        support["least test RMSE at n"] = least
    if cell["protocol"] == "paper" and ROWS[cell["problem"]].measured:
        support[f"RMSE at n = {large}, trained on all rows"] = float(
            part_of(curve, trained_on=ALL)["train_rmse"].iloc[-1]
        )
    if "floors" in tables:
        floors = part_of(tables["floors"], **of_cell, protocol=cell["protocol"]).to_dict("records")
        if floors:
            support["floor E of E + A/P^a"] = interval_of(floors[0], "E")
    return support


def problem_claims(slopes: Table, reading: Reading) -> Iterator[Claim]:
    """Appendix D: the GLU is steeper on every problem but California, and slopes go as 1 / dim_x."""
    apart = slopes["problem"].map(lambda name: ROWS[name].label in APART) & (slopes["protocol"] == "paper")
    chosen = slopes[(slopes["protocol"] == reading) | (apart & (reading == "split"))]
    ours, paper = (chosen.pivot(index="problem", columns="unit", values=name) for name in ("slope", "paper"))
    steeper = ours["glu"] < ours["mlp"] - MARGIN
    others = steeper.drop("california", errors="ignore")
    what = f"{STEEPER}, {READINGS[reading]}"
    yield Claim(
        what,
        float(others.sum()),
        paper=float(len(others)),
        rule="number",
        unit=f"of {len(others)}",
        place=f"appendix D, {what}",
        support={
            "steeper on": [row.label for name, row in ROWS.items() if steeper.get(name)],
            "by more than": MARGIN,
        },
        note="The paper excepts California housing, which is not counted.",
    )
    inputs = chosen.groupby("problem")["inputs"].first()
    many = inputs[inputs > 1].index
    times, printed = (
        (table.mul(inputs, axis=0) / table.loc["paper-1d"]).loc[many, ["mlp", "glu"]].to_numpy(float).ravel()
        for table in (ours, paper)
    )
    what = f"{BY_INPUTS}, {READINGS[reading]}"
    yield Claim(
        what,
        float(times[np.abs(times - 1).argmax()]),
        paper=1.0,
        rule="close",
        place=f"appendix D, {what}",
        support={
            "least and greatest of ours": [float(times.min()), float(times.max())],
            "least and greatest of the paper's table": [float(printed.min()), float(printed.max())],
            "cells": len(times),
            "ours within a quarter of 1": int((np.abs(times - 1) <= CLOSE).sum()),
            "the paper's within a quarter of 1": int((np.abs(printed - 1) <= CLOSE).sum()),
        },
        note="The value is the cell that is farthest from 1. Slopes depend on the target: sums of ridge functions lose "
        "nothing with the number of inputs.",
    )
