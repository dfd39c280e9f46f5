"""Table 1 for nine units: held-out errors at equal parameters. The design, fixed before the grid was run:

Seven problems, nine units, budgets of P = 20 to 160 parameters with one input and 40 to 320 elsewhere, in factors of 2;
a unit has the largest width with at most P. Each of five seeds draws training rows, test rows and the start, the same
rows for all units. One input: the exact solvers of `gl.fit`; elsewhere variable projection with one start and two
rounds. A problem's budget counts if all units have all seeds; all fits count, converged or not.

Logarithms of test errors at the largest budget are compared for every pair of units, paired over seeds: t-intervals,
and p with Holm's correction for all pairs of all problems; above 0.05 a difference is inconclusive. A few rows far
outside can carry all the error of measured data: a second comparison, with its own correction, clips predictions to
the range of the training targets. Seeds of airfoil share most rows: its intervals are too narrow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp

from gatelab.data import problem as as_problem
from gatelab.feedforward import unit as as_unit
from gatelab.plotting.facets import Facets
from gatelab.solve import fit, predict
from gatelab.statistics import holm
from gatelab.studies import engine
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, only
from gatelab.studies.engine import Study, Table, Tables, averaged, geometric_mean, interval_at, interval_columns
from gatelab.studies.records import record_path
from gatelab.studies.scaling.table1 import QUICK, TABLED

COMMAND = "python -m benchmarks.units results/scaling/units.csv"
UNITS = ("mlp", "relu2", "relu3", "glu", "gqu", "silu", "gelu", "swiglu", "geglu")
LABELS = {row.name: row.label for row in TABLED}
MEASURED = [row.name for row in TABLED if row.measured]
BUDGETS = {row.name: (40, 80, 160, 320) for row in TABLED} | {"paper-1d": (20, 40, 80, 160)}
SEEDS, ROWS, OPTIONS = range(5), 1000, {"starts": 1, "rounds": 2}
FITS = sum(len(UNITS) * len(sizes) * len(SEEDS) for sizes in BUDGETS.values())
ALPHA, OPEN = 0.05, "inconclusive"
# The pairs with a claim: what a gate, a power, smoothness and a gate on a smooth gate do.
PAIRS = (("mlp", "glu"), ("relu2", "glu"), ("glu", "swiglu"), ("relu2", "swiglu"), ("silu", "swiglu"))
STUDY = Study(
    "scaling/units",
    "Table 1 for every unit",
    "The paper has MLP and GLU, and on one input the GQU; not powers of ReLU, and no smooth gate.",
    position=14,
    beyond=True,
    quick={
        "problem": ("sin4x-sin4y", "friedman1"), "unit": ("mlp", "glu", "swiglu"), "budget": (20, 40), "seed": range(3),
        "rows": (200,), "options": (QUICK,),
    },
    figure=Facets(
        table="cells", x="parameters", y="test_rmse", hue="unit", col="label", wrap=4, xlog=True, ylog=True,
        xlabel="parameters P", ylabel="RMSE on held-out rows", title="Nine units on the problems of table 1",
    ),
)  # fmt: skip


def error_row(
    problem: str, unit: str, budget: int, seed: int, rows: int = ROWS, options: Mapping[str, Any] = OPTIONS
) -> dict[str, Any]:
    """Errors and CPU seconds of the widest network within the budget."""
    draws: dict[str, Any] = {"n": rows, "seed": seed}
    if problem not in MEASURED:
        draws["n_test"] = 2 * rows
    target, began = as_problem(problem, **draws), time.process_time()
    if target.d_in == 1:
        options = {}  # the exact solvers have none
    first, second = (as_unit(unit).parameter_count(n, target.d_in) for n in (1, 2))
    width = 1 + (budget - first) // (second - first)
    made = fit(unit, target, width, seed=seed, progress=False, **options)
    cpu = time.process_time() - began
    inside = np.clip(predict(made.network, target.test.x), target.train.y.min(), target.train.y.max())
    clipped = float(np.sqrt(np.mean((inside - target.test.y) ** 2)))
    row = {"width": width, "parameters": made.parameters, "train_rmse": made.train_rmse, "test_rmse": made.test_rmse}
    return row | {"clipped_rmse": clipped, "status": str(made.status), "cpu": cpu}


@STUDY.tables
def tables(request: Request) -> Tables:
    """The tables of the record; a quick run makes a few fits of its own."""
    if request.quick:
        rows = engine.measured_rows(f"{__name__}:error_row", engine.grid_cells(STUDY.quick), "", request)
        return analysis(rows.drop(columns=["rows", "options"]))
    return analysis(pd.read_csv(record_path("scaling/units.csv", COMMAND, "an hour of a core"), comment="#"))


def analysis(rows: Table) -> dict[str, Table]:
    """Means, pairs and winners of the budgets that are complete."""
    done = rows.groupby(["problem", "budget"])["unit"].transform("size")
    whole = rows[done == rows["unit"].nunique() * rows["seed"].nunique()]
    whole = whole.assign(label=whole["problem"].map(LABELS))
    whole = whole.iloc[whole["problem"].map(list(LABELS).index).argsort(kind="stable")]
    keys = ["problem", "label", "unit", "budget", "width", "parameters"]
    last = whole[whole["budget"] == whole.groupby("problem")["budget"].transform("max")]
    found = {
        "cells": averaged(whole.drop(columns="status"), "seed", keys, "geometric"),
        "pairs": pair_table(last, "test_rmse"),
        "errors": rows,
    }
    found["winners"] = winner_table(last, found["pairs"], "test_rmse")
    measured = last[last["problem"].isin(MEASURED)]
    if len(measured):
        found["clipped_pairs"] = pair_table(measured, "clipped_rmse")
        found["clipped"] = winner_table(measured, found["clipped_pairs"], "clipped_rmse")
    return found


def pair_table(rows: Table, error: str) -> Table:
    """The error of the first unit of every pair over that of the second, and which has less by the corrected p."""
    found = []
    for label, own in rows.groupby("label", sort=False):
        logs = np.log(own.pivot(index="seed", columns="unit", values=error))
        for first, second in combinations(own["unit"].unique(), 2):
            apart = (logs[first] - logs[second]).to_numpy()
            ratio = interval_columns("ratio", geometric_mean(np.exp(apart)))
            test: Any = ttest_1samp(apart, 0)
            found.append({"label": label, "first": first, "second": second, **ratio, "p": test.pvalue})
    table = pd.DataFrame(found).assign(corrected=lambda made: holm(made["p"]))
    smaller = np.where(table["ratio"] < 1, table["first"], table["second"])
    return table.assign(less=np.where(table["corrected"] > ALPHA, OPEN, smaller))


def winner_table(rows: Table, pairs: Table, error: str) -> Table:
    """The unit with the least error of each problem, and the units whose distance from it is inconclusive."""
    found = []
    for label, own in rows.groupby("label", sort=False):
        winner = str(np.log(own[error]).groupby(own["unit"]).mean().idxmin())
        near = only(pairs, label=label, less=OPEN)
        rivals = [*near["second"][near["first"] == winner], *near["first"][near["second"] == winner]]
        place = {"label": label, "budget": int(own["budget"].iloc[0]), "winner": winner}
        place |= interval_columns("error", geometric_mean(only(own, unit=winner)[error]))
        found.append(place | {"leads": own["unit"].nunique() - 1 - len(rivals), OPEN: ", ".join(sorted(rivals))})
    return pd.DataFrame(found)


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    for name, words in (("winners", "held-out error"), ("clipped", "held-out error of clipped predictions")):
        for row in tables.get(name, pd.DataFrame()).to_dict("records"):
            support = {"winner": row["winner"], "parameters at most": row["budget"]}
            support |= {"others that it leads": row["leads"], "inconclusive against": row[OPEN] or "none"}
            yield Claim.of(f"least {words}, {row['label']}", interval_at(row, "error"), support=support)
    for first, second in PAIRS:
        own = only(tables["pairs"], first=first, second=second)
        for row in own.to_dict("records"):
            what, support = f"error of {first} over {second}, {row['label']}", {"p, corrected": row["corrected"]}
            yield Claim.of(what, interval_at(row, "ratio"), support=support | {"less error": row["less"]})
        counts = {name: int((own["less"] == name).sum()) for name in (second, first, OPEN)}
        what = f"problems on which {second} has less error than {first}"
        yield Claim(what, float(counts[second]), unit=f"of {len(own)}", support=counts)
    cost = tables["cells"].pivot(index=["label", "budget"], columns="unit", values="cpu")
    for unit in cost.columns:
        support = {"times that of glu": geometric_mean(cost[unit] / cost["glu"]).value}
        yield Claim(f"CPU time per fit, {unit}", geometric_mean(cost[unit]).value, unit="s", support=support)
    fits = {"fits": len(tables["errors"])}
    yield Claim("fits of the design that are done, share", fits["fits"] / FITS, support=fits)
