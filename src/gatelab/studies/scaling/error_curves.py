"""The target, the fits and the claims that the studies of error curves share: two trainings of the same networks.

Both are on 1/(1 + cos^2(pi x)) with 10 000 points: the paper's code at its commit "Paper version", up to five seeds per
width (results/scaling/reference.jsonl and .md), and the optimum, as near as our solvers come to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from gatelab.data import Problem, problem
from gatelab.errors import GatelabError
from gatelab.feedforward import unit as as_unit
from gatelab.scaling_laws import Point, Scaling, scaling
from gatelab.studies.claims import TOLERANCE, Claim
from gatelab.studies.definition import Request, only
from gatelab.studies.engine import Table, Tables, interval_at, interval_columns
from gatelab.studies.inventory import printed
from gatelab.studies.records import record_path

UNITS = ("mlp", "glu", "gqu")
# Slopes for n = 1 to 50; that of the GQU against P is in the caption of figure 6, which rounds.
PAPER_SLOPES: Mapping[tuple[str, str], float] = {
    (unit, against): float(printed("scaling", f"figure {figure}, {unit.upper()} against {against}"))
    for unit, figure in zip(UNITS, (2, 2, 6), strict=True)
    for against in ("n", "P")
}
CODE, OPTIMUM = "the paper's code", "the optimum"
RUNS, COMMIT = "scaling/reference.jsonl", "fcee655"
# Ranges of widths for slopes; infinity is the widest network that the paper's code was run at.
RANGES = {"5 to 14": (5, 14), "5 to widest": (5, np.inf), "2 to widest": (2, np.inf), "1 to widest": (1, np.inf)}
QUICK_WIDTHS = (5, 10, 20)
SMALL = 10  # networks of fewer neurons are small


# ---- records and fits


@cache
def code_curves() -> Scaling:
    """The runs of the paper's code on its target of one input, without those that ended in an error."""
    points = []
    path = record_path(RUNS, "results/scaling/reference.md, step by step", "hours of a core")
    for run in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if run["commit"] == COMMIT and "error" not in run:
            size = as_unit(run["unit"]).parameter_count(run["width"])
            errors = (run["train_rmse"], run["test_rmse"], np.nan, np.nan)
            points.append(Point(run["unit"], run["width"], size, run["seed"], *errors, "", "", run["seconds"]))
    return Scaling("paper-1d", tuple(points))


def code_medians() -> dict[str, dict[int, float]]:
    """The median test RMSE of the logged seeds of the paper's code, by unit and width."""
    return {unit: median_errors(code_curves(), unit) for unit in code_curves().units}


def paper_target(request: Request) -> Problem:
    """The paper's target, 1/(1 + cos^2(pi x)) on [-1, 1], with 10 000 random points, 1000 in a quick run."""
    return problem("paper-1d", n=1000 if request.quick else 10_000)


def widths_of(request: Request, least: int = 1) -> Sequence[int]:
    """The paper's widths from the least on, three of them in a quick run."""
    return QUICK_WIDTHS if request.quick else range(least, 51)


def fit_curves(
    request: Request, units: Sequence[str], target: Problem, widths: Sequence[int], seeds: int = 1, **options: Any
) -> Scaling:
    """The units fitted to the target at every width; further options go to `gatelab.scaling`."""
    listener = request.progress
    progress = listener and (lambda done, total, _: listener(done, total))
    jobs = request.jobs or int(request.quick) or None  # starting processes takes longer than a quick study
    options |= {"jobs": jobs, "progress": progress or False, **request.sweep_now()}
    return complete(scaling(units, target, widths, seeds, **options), request.sweep.get("store"))


def complete(study: Scaling, store: object) -> Scaling:
    """The study, if none of its fits failed: a slope without them would not be comparable with the paper's."""
    failed = sum(p.flag == "failed" for p in study.points)
    if failed:
        path = getattr(store, "path", store)
        raise GatelabError(
            f"{failed} of {len(study.points)} fits failed, and the figure needs them all; see why with "
            f"'gatelab results list --status failed --store {path}', then try them again with --retry-failed"
        )
    return study


# ---- numbers of curves


def curves_of(table: Table) -> Scaling:
    """The fits of a table of `Scaling.table`; empty texts are NaN in a table from a file."""
    filled = table.astype(object).fillna(dict.fromkeys(("flag", "status", "start", "breaks"), ""))
    rows = filled[[field.name for field in fields(Point)]].to_dict("records")
    return Scaling("paper-1d", tuple(Point(**row) for row in rows))


def best_errors(study: Scaling, unit: str) -> dict[int, float]:
    return {int(n): float(e) for n, e in zip(*study.best(unit), strict=True)}


def median_errors(study: Scaling, unit: str) -> dict[int, float]:
    """The median test RMSE over seeds at each width, of the logarithms, as slopes take it."""
    widths, errors = study.curve(unit, flagged=True)
    medians = np.exp(np.nanmedian(np.log(errors), axis=1))
    return {int(n): float(e) for n, e in zip(widths, medians, strict=True)}


def upper_half(study: Scaling) -> tuple[int, int]:
    """From half the greatest width to the greatest, where a study is nearest to its asymptote."""
    widest = max(p.width for p in study.points)
    return widest // 2, widest


def range_slopes(optimum: Scaling, units: Sequence[str]) -> Table:
    """Slopes by unit, range of widths, training and axis, over the widths at which the paper's code was run."""
    rows, code = [], code_curves()
    for unit in units:
        run = sorted({p.width for p in code.points if p.unit == unit})
        spans: dict[str, tuple[str, list[int]]] = {}
        for name, (low, high) in RANGES.items():
            spans.setdefault(f"{low} to {min(high, run[-1])}", (name, [w for w in run if low <= w <= high]))
        trainings = ((CODE, code), (OPTIMUM, optimum))
        for (words, (name, widths)), (training, study) in product(spans.items(), trainings):
            points = tuple(p for p in study.points if p.unit == unit and p.width in widths)
            for against in ("n", "P"):
                line = Scaling("", points).slope_or_none(unit, against=against, aggregate="median", flagged=True)
                if line is None:
                    continue  # a quick study has other widths
                paper = PAPER_SLOPES[unit, against]
                row = {"unit": unit, "range": name, "widths": words, "training": training, "against": against}
                row |= {"paper": paper, **interval_columns("slope", line), "sizes": line.points}
                rows.append(row | {"within_5_percent": abs(line.value - paper) <= TOLERANCE * abs(paper)})
    return pd.DataFrame(rows)


def training_claims(tables: Tables, unit: str, figure: str) -> Iterator[Claim]:
    """The slopes of a unit by both trainings next to the paper's, and our errors next to those of its code."""
    optimum = curves_of(only(tables["errors"], unit=unit))
    ours, code = best_errors(optimum, unit), code_medians()[unit]
    for against in ("n", "P"):
        yield code_claim(only(tables["ranges"], unit=unit, against=against), unit, against, figure)
    low, high = upper_half(optimum)
    ratios = {w: optimum.ratio(unit, w) for w in ours}
    small, name = [ratios[w] for w in ours if w < SMALL], "error over the free-knot limit"
    limits: dict[str, Any] = {}
    if small:
        limits[f"{name}, n < {SMALL}"] = [min(small), max(small)]
    limits[f"{name}, n = {high}"] = ratios[high]
    for against in ("n", "P"):
        whole, upper = (optimum.slope(unit, against=against, widths=w, flagged=True) for w in (None, (low, high)))
        what, support = f"slope of the {unit} against {against}, at the optimum", {f"n = {low} to {high}": upper}
        yield Claim.of(what, whole, PAPER_SLOPES[unit, against], "slope", support=support | limits)
    if times := {w: code[w] / ours[w] for w in sorted(code) if w in ours}:
        what = f"RMSE of the {unit} over that of the paper's code, largest ratio of all widths"
        support = {"widths": list(times), "the paper's code over ours": list(times.values())}
        support |= {f"RMSE of the paper's code at n = {max(code)}": code[max(code)]}
        yield Claim(what, 1 / min(times.values()), paper=1.0, rule="at most", support=support)


def code_claim(slopes: Table, unit: str, against: str, figure: str) -> Claim:
    """The slope of the paper's code over the first range in which it is within 5 % of the printed one."""
    code = slopes[slopes["training"] == CODE]
    chosen = pd.concat([code[code["within_5_percent"]], code.tail(1)]).iloc[0]
    return Claim.of(
        f"slope of the {unit} against {against}, by the paper's code", interval_at(chosen, "slope"), chosen["paper"],
        "slope", place=f"{figure}, {unit.upper()} against {against}",
        outside=f"the paper's slope is over n = 1 to 50, that of its code here over {chosen['widths']}",
        support={f"{row.training}, n = {row.widths}": row.slope for row in slopes.itertuples()},
    )  # fmt: skip
