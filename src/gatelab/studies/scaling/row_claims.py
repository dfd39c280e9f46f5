"""Claims on the slopes of table 1, figures 7 and 8 and on appendix D, and facts about the targets and the data.

The target sin 4x sin 4y = cos 4(x - y) / 2 - cos 4(x + y) / 2 is a sum of two ridge functions, and a network may be two
halves, each fitted on a line. For x and y uniform on [-1, 1] both x - y and x + y have the triangular density on
[-2, 2], and the errors of the halves are nearly uncorrelated, so that their squares add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gatelab.arrays import Array
from gatelab.data import Problem
from gatelab.solve import fit, predict
from gatelab.studies.claims import CLOSE, Claim
from gatelab.studies.definition import only
from gatelab.studies.engine import Table, Tables, interval_at
from gatelab.studies.scaling.error_curves import UNITS
from gatelab.studies.scaling.problem_rows import ALL, APART, READINGS, ROWS, SLOPE_RANGES, SPLIT, ProblemRow
from gatelab.studies.scaling.row_slopes import medians

MARGIN = 0.05  # by which one slope must be steeper than another to count as such
WORST = 0.01  # the share of the test rows that are examined as outliers
LARGEST_GAP_WIDTH = 8  # the widest network that is fitted again to examine its errors
# Columns that were swept at fixed values of the others: rows of one sweep are neighbors of each other.
SWEPT = {"airfoil": "frequency"}


# ---- claims


def slope_claims(tables: Tables, heading: str) -> Iterator[Claim]:
    """The paper's slopes next to ours, for "table 1", "figure 7" or "figure 8"."""
    curves = medians(tables["errors"])
    for cell in tables["slopes"].to_dict("records"):
        row, unit, protocol = ROWS[cell["problem"]], cell["unit"], cell["protocol"]
        what, paper = row.title(unit, protocol), row.paper(unit)
        printed: dict[str, Any] = {"paper": "-"} if paper is None else {"paper": paper, "rule": "slope"}
        answers = row.tabled and (heading == "table 1" or (protocol == "paper" and paper is not None))
        low, high = (int(n) for n in cell["widths"].split(".."))
        theirs = SLOPE_RANGES.get((row.label, unit), (low, high))
        different = f"the paper's slope is over n = {theirs[0]} to {theirs[1]}, ours over {low} to {high}"
        yield Claim.of(
            what,
            interval_at(cell, "slope"),
            **printed,
            place=f"{heading}, {what}" * answers,
            outside=different * (theirs != (low, high)),
            held_out=row.readings[protocol][1] == "test_rmse",
            support=slope_support(tables, cell, only(curves, problem=row.name, unit=unit)),
        )


def slope_support(tables: Tables, cell: Mapping[str, Any], curve: Table) -> dict[str, Any]:
    """The errors behind a slope, the rates of theory, the slope on rows held out, and the floor of measured data."""
    of_cell = {"problem": cell["problem"], "unit": cell["unit"]}
    split = only(curve, trained_on=SPLIT)
    small, *_, large = split["width"]
    ends = split.set_index("width").loc[[small, large]]
    support: dict[str, Any] = {
        f"test RMSE at n = {small} and {large}": ends["test_rmse"].tolist(),
        "training RMSE there": ends["train_rmse"].tolist(),
        "worst case for this number of inputs": cell["worst_case"],
    }
    if cell["attainable"] == cell["attainable"]:
        support["attainable for this target"] = cell["attainable"]
    held_out = only(tables["slopes"], **of_cell, protocol="split").to_dict("records")
    if cell["protocol"] == "paper" and held_out:
        support["slope on rows held out"] = interval_at(held_out[0], "slope")
    least = int(split.loc[split["test_rmse"].idxmin(), "width"])
    if least < large:
        support["least test RMSE at n"] = least
    if cell["protocol"] == "paper" and ROWS[cell["problem"]].measured:
        support[f"RMSE at n = {large}, trained on all rows"] = only(curve, trained_on=ALL)["train_rmse"].iloc[-1]
    if "floors" in tables:
        floors = only(tables["floors"], **of_cell, protocol=cell["protocol"]).to_dict("records")
        if floors:
            support["floor E of E + A/P^a"] = interval_at(floors[0], "E")
    return support


def problem_claims(slopes: Table, reading: str) -> Iterator[Claim]:
    """Appendix D: the GLU is steeper on every problem but California, and slopes go as 1 / dim_x."""
    apart = slopes["problem"].map(lambda name: ROWS[name].label in APART) & (slopes["protocol"] == "paper")
    chosen = slopes[(slopes["protocol"] == reading) | (apart & (reading == "split"))]
    ours, paper = (chosen.pivot(index="problem", columns="unit", values=name) for name in ("slope", "paper"))
    steeper = ours["glu"] < ours["mlp"] - MARGIN
    others = steeper.drop("california", errors="ignore")
    what = f"problems on which the GLU is steeper than the MLP, {READINGS[reading]}"
    yield Claim(
        what,
        float(others.sum()),
        paper=float(len(others)),
        rule="number",
        unit=f"of {len(others)}",
        place=f"appendix D, {what}",
        support={"steeper on": [row.label for name, row in ROWS.items() if steeper.get(name)], "by more than": MARGIN},
        note="The paper excepts California housing, which is not counted.",
    )
    inputs = chosen.groupby("problem")["inputs"].first()
    many = inputs[inputs > 1].index
    times, printed = (
        (table.mul(inputs, axis=0) / table.loc["paper-1d"]).loc[many, ["mlp", "glu"]].to_numpy(float).ravel()
        for table in (ours, paper)
    )
    what = f"slope times dim_x over the slope in one dimension, mlp and glu, {READINGS[reading]}"
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


# ---- facts behind the rows


def ridge_problem(points: int) -> Problem:
    """One of the two ridge functions, on points of the triangular density."""
    rng = np.random.default_rng(0)
    t, other = (rng.uniform(-1, 1, (points, 2)).sum(axis=1) for _ in range(2))
    wave = {"name": "cos(4t)/2", "interval": (-2.0, 2.0)}
    return Problem.from_arrays(t, np.cos(4 * t) / 2, test=(other, np.cos(4 * other) / 2), **wave)


def ridge_table(widths: Sequence[int], units: Iterable[str] = UNITS, points: int = 10_000) -> Table:
    """The test RMSE of two fits on a line that share the neurons, per unit and width."""
    line = ridge_problem(points)
    halves = sorted({half for width in widths for half in (width // 2, width - width // 2)})
    rows = []
    for unit in units:
        error = {half: fit(unit, line, half).test_rmse for half in halves}
        rows += [(unit, n, float(np.hypot(error[n // 2], error[n - n // 2]))) for n in widths]
    return pd.DataFrame(rows, columns=["unit", "width", "rmse"])


def data_table(errors: Table, rows: Iterable[ProblemRow]) -> Table:
    """One row per problem of measured data: counts over all its rows, and where the test errors of one fit lie."""
    return pd.DataFrame({"problem": row.name} | data_facts(row) | largest_gap(errors, row) for row in rows)


def data_facts(row: ProblemRow) -> dict[str, Any]:
    """Rows, those that share their inputs with another, those at the largest target, and settings of a sweep."""
    data = row.problem()
    x, y = (np.concatenate([getattr(data.train, name), getattr(data.test, name)]) for name in ("x", "y"))
    _, group, count = np.unique(x, axis=0, return_inverse=True, return_counts=True)
    others = [i for i, name in enumerate(data.columns) if name != SWEPT.get(row.name)]
    return {
        "rows": len(x),
        "sharing_inputs": int((count[group.ravel()] > 1).sum()),
        "at_largest_target": int((y == y.max()).sum()),
        "settings": len(np.unique(x[:, others], axis=0)) if row.name in SWEPT else np.nan,
    }


def largest_gap(errors: Table, row: ProblemRow) -> dict[str, Any]:
    """The small fit with the largest ratio of test to training error, made again."""
    fits = only(errors, problem=row.name, trained_on=SPLIT)
    small = fits[fits["width"] <= LARGEST_GAP_WIDTH]
    chosen = small.loc[(small["test_rmse"] / small["train_rmse"]).idxmax()]
    target, names = row.problem(), {"unit": chosen["unit"], "width": int(chosen["width"])}
    again = fit(names["unit"], target, names["width"], seed=int(chosen["seed"]), **row.options)
    return names | outliers(target, predict(again.network, target.test.x))


def outliers(target: Problem, values: Array) -> dict[str, float]:
    """Shares of the squared test error in the worst hundredth of the rows and in the worst; how far out that lies."""
    squares = np.square(values - target.test.y).sum(axis=1)
    reach = np.abs(target.test.x).max(axis=1)
    rank = np.argsort(squares)
    others, worst = np.split(rank, [len(rank) - max(1, round(WORST * len(rank)))])
    return {
        "worst_share": float(squares[worst].sum() / squares.sum()),
        "largest_share": float(squares[rank[-1]] / squares.sum()),
        "rmse": float(np.sqrt(squares.mean())),
        "rmse_without": float(np.sqrt(squares[others].mean())),
        "reach": float(reach[rank[-1]]),
        "median_reach": float(np.median(reach)),
    }
