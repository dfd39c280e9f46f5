"""What the studies of errors share: their target, their fits at many widths, and sentences about the curves.

Three trainings stand beside each other on the target 1/(1 + cos^2(pi x)) with 10 000 points:

- **the paper's code**, as it is at its commit "Paper version", up to five seeds a width: a log of runs in
  results/scaling/reference.jsonl, and the page beside it says how they were made;
- **our Newton in its stages** (`gatelab.scaling_laws.reference`): our own Newton's method from the start of that code
  and in its stages, from a record. It is not that code: its line search is another, and it is better at small n;
- **the optimum**, as near as our solvers come to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from gatelab.data import Problem, problem
from gatelab.display import counted
from gatelab.errors import GatelabError
from gatelab.feedforward import unit as as_unit
from gatelab.scaling_laws import Point, Scaling, Slope, scaling
from gatelab.scaling_laws.reference import newton_options, read_curves
from gatelab.studies.definition import Claim, Request, only
from gatelab.studies.records import origin, read_record, record_path
from gatelab.studies.scaling.printed import PAPER_SLOPES
from gatelab.studies.verdicts import ends, near, reproduced_if, slope_claim

CODE, NEWTON, OPTIMUM = "the paper's code", "our Newton in its stages", "the optimum"
RUNS, COMMIT = "scaling/reference.jsonl", "fcee655"
# Widths over which slopes are taken, to the widest network that the paper's code was run at where there is no end.
RANGES = ((5, 14), (5, None), (2, None), (1, None))
METHOD = "scaling/paper-method.json"
METHOD_COMMAND = "python benchmarks/paper_method.py results/scaling/paper-method.json --store runs.db"
QUICK_STEPS = 40
QUICK_WIDTHS = (5, 10, 20)
QUICK_POINTS = 1000


@cache
def code_curves() -> Scaling:
    """The runs of the paper's code on its target of one input; those that ended in an error are left out."""
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
    study = code_curves()
    return {unit: median_errors(study, unit) for unit in study.units}


def paper_target(request: Request) -> Problem:
    """The paper's target, 1/(1 + cos^2(pi x)) on [-1, 1], with 10 000 random points, fewer when quick."""
    return problem("paper-1d", n=QUICK_POINTS) if request.quick else problem("paper-1d")


def widths_for(request: Request, full: Sequence[int]) -> Sequence[int]:
    """The widths of a full study, or the few of a quick one."""
    return QUICK_WIDTHS if request.quick else full


def fit_curves(
    request: Request,
    units: Sequence[str],
    target: Problem,
    widths: Sequence[int],
    tick: Callable[..., None],
    solver: str = "auto",
    seeds: int = 1,
    **options: Any,
) -> Scaling:
    """The units fitted to the target at every width, all fits done; further options go to the solver."""
    jobs = request.jobs
    if request.quick and not jobs:
        jobs = 1  # starting processes takes longer than all fits of a quick study
    how = {"solver": solver, "jobs": jobs or None, "progress": tick, **request.sweep_now(), **options}
    return complete(scaling(units, target, widths, seeds, **how), request.sweep.get("store"))


def complete(study: Scaling, store: object) -> Scaling:
    """The study, if all its fits ended: a figure with holes would be compared with the paper's as if it had none."""
    failed = sum(p.flag == "failed" for p in study.points)
    if failed:
        path = getattr(store, "path", store)
        raise GatelabError(
            f"{failed} of {len(study.points)} fits failed, and the figure needs them all; see why with "
            f"'gatelab results list --status failed --store {path}', then try them again with --retry-failed"
        )
    return study


def best_errors(study: Scaling, unit: str) -> dict[int, float]:
    """The least test RMSE at each width."""
    return {int(n): float(e) for n, e in zip(*study.best(unit), strict=True)}


def upper_half(study: Scaling) -> tuple[int, int]:
    """From half the greatest width to the greatest: where a study of limited widths is nearest to its asymptote."""
    widest = max(p.width for p in study.points)
    return widest // 2, widest


def tail_slope(study: Scaling, unit: str) -> Slope:
    """The slope over the upper half of the widths."""
    return study.slope(unit, widths=upper_half(study), flagged=True)


def ratio_sentence(study: Scaling, unit: str) -> str:
    """Where the errors of small and of the largest networks lie against the free-knot limit."""
    widths = sorted({p.width for p in study.points if p.unit == unit})
    small = [study.ratio(unit, w) for w in widths if w < 10]
    largest = widths[-1]
    ratio = study.ratio(unit, largest)
    if not small:
        return f"The {unit}'s test RMSE is {ratio:.2f} times the limit at n = {largest}"
    return (
        f"The {unit}'s test RMSE is {min(small):.2f} to {max(small):.2f} times the limit for n < 10 and "
        f"{ratio:.2f} times at n = {largest}"
    )


def slope_reason(study: Scaling, unit: str) -> str:
    """Why the global slope is what it is, from ratios to the limit and the upper half of the widths."""
    whole, upper = study.slope(unit, flagged=True), tail_slope(study, unit)
    low, high = upper_half(study)
    limits = {p.width: p.limit for p in study.points if p.unit == unit}
    narrow, wide = min(limits), max(limits)
    # The limit is an exact power of the width: its own line has the order.
    order = round(-np.log(limits[wide] / limits[narrow]) / np.log(wide / narrow))
    if whole.value > -order:
        effect = (
            "small networks trained to their optimum lie below the asymptotic line, so the line through all is flatter"
        )
    else:
        effect = "small networks lie above the asymptotic line, so the line through all is steeper"
    course = f"over n = {low}..{high} the slope is {upper.value:.2f}"
    return f"{ratio_sentence(study, unit)}: {effect} than order {order}; {course}."


def slope_claims(study: Scaling, unit: str) -> list[Claim]:
    """The slopes of a unit at its optimum against n and P beside those of the paper, all points included as there."""
    reason = slope_reason(study, unit)
    return [
        slope_claim(
            f"slope of the {unit} against {against}, at the optimum",
            PAPER_SLOPES[unit, against],
            study.slope(unit, against=against, flagged=True),
            reason,
        )
        for against in ("n", "P")
    ]


def by_newton(
    request: Request,
    units: Sequence[str],
    target: Problem,
    tick: Callable[..., None],
    quick: Sequence[int] = QUICK_WIDTHS,
) -> Scaling:
    """The units by our Newton in the stages and from the start of the paper's code, five seeds; from the record.

    A quick study trains one seed of each of the `quick` widths now, for few steps.
    """
    if request.quick:
        options = {**newton_options(units[0], target.d_in), "steps": QUICK_STEPS}
        return fit_curves(request, units, target, quick, tick, solver="newton", **options)
    curve = method_curves()["paper-1d"]
    return Scaling(curve.problem, tuple(p for p in curve.points if p.unit in units))


def method_record() -> dict[str, Any]:
    """The record of the experiments by our Newton in its stages."""
    return read_record(METHOD, METHOD_COMMAND, "four hours of a core")


def method_curves() -> dict[str, Scaling]:
    """What the record of our Newton in its stages holds, by experiment."""
    return read_curves(method_record())


def method_origin() -> str:
    """Where the record of our Newton in its stages comes from, and what it has not."""
    record = method_record()
    lacking = record["planned"] - record["finished"]
    return f"{origin(record)} {record['finished']} of its {record['planned']} fits were made, {lacking} were not."


def median_errors(study: Scaling, unit: str, error: str = "test_rmse") -> dict[int, float]:
    """The median of the seeds at each width, of "test_rmse" or of "train_rmse".

    It is that of the logarithms, as slopes take it: the mean of two seeds is then the geometric one.
    """
    by_width: dict[int, list[float]] = {}
    for p in study.points:
        if p.unit == unit:
            by_width.setdefault(p.width, []).append(float(np.log(getattr(p, error))))
    return {width: float(np.exp(np.median(logs))) for width, logs in sorted(by_width.items())}


def newton_claim(newton: Scaling, optimum: Scaling, unit: str) -> Claim:
    """The slope of a unit by our Newton in its stages: the median of the seeds at each width, every width."""
    theirs, ours = median_errors(newton, unit), best_errors(optimum, unit)
    times = {w: theirs[w] / ours[w] for w in theirs if w in ours}
    small, widest = [times[w] for w in times if w < 10], max(times)
    seeds = sorted({p.seed for p in newton.points})
    reason = (
        "A Newton method of ours in the stages of the paper's code, from alternating gates, "
        f"{counted(len(seeds), 'seed')}: not that code. Its error is {times[widest]:.2f} times that at the optimum at "
        f"n = {widest}"
    )
    if small:
        reason += f", and {min(small):.2f} to {max(small):.2f} times for n < 10"
    low, how = sorted(theirs)[1], {"aggregate": "median", "flagged": True}
    line, later = newton.slope(unit, **how), newton.slope(unit, **how, widths=(low, widest))
    because = f"{reason}; from n = {low} on the slope is {later.value:.2f}."
    return slope_claim(f"slope of the {unit} against n, {NEWTON}", PAPER_SLOPES[unit, "n"], line, because)


def range_slopes(newton: Scaling, optimum: Scaling, units: Sequence[str]) -> pd.DataFrame:
    """A row a unit, range of widths, training and axis: slopes over the widths at which the paper's code was run.

    The last range of a unit has every width of ours, which the paper's code was not run at.
    """
    rows, how = [], {"aggregate": "median", "flagged": True}
    for unit in units:
        theirs = set(median_errors(code_curves(), unit))
        every = {p.width for p in optimum.points if p.unit == unit}
        ranges = {f"{low} to {high or max(theirs)}": (low, high or max(theirs)) for low, high in RANGES}
        spans = {words: {w for w in theirs if low <= w <= high} for words, (low, high) in ranges.items()}
        spans[f"{min(every)} to {max(every)}, every width"] = every
        for words, widths in spans.items():
            for training, study in ((CODE, code_curves()), (NEWTON, newton), (OPTIMUM, optimum)):
                if training == CODE and not widths <= theirs:
                    continue
                part = Scaling(study.problem, tuple(p for p in study.points if p.unit == unit and p.width in widths))
                for against in ("n", "P"):
                    line, paper = part.slope_or_none(unit, **how, against=against), PAPER_SLOPES[unit, against]
                    if line is None:
                        continue  # a quick study has other widths
                    names = {"unit": unit, "widths": words, "training": training, "against": against, "paper": paper}
                    measured = {"slope": line.value, "low": line.low, "high": line.high, "sizes": line.points}
                    rows.append(names | measured | {"within_5_percent": near(paper, line.value)})
    return pd.DataFrame(rows)


def code_claims(slopes: pd.DataFrame, unit: str, figure: str) -> list[Claim]:
    """For which widths the paper's slopes are those of its code; the verdict is of the first range that agrees."""
    claims = []
    for against in ("n", "P"):
        mine = only(slopes, unit=unit, against=against)
        by_training = {name: rows.to_dict("records") for name, rows in mine.groupby("training", sort=False)}
        code, paper = by_training[CODE], PAPER_SLOPES[unit, against]
        agreeing = [row for row in code if row["within_5_percent"]]
        others = [row["widths"] for row in code if row not in agreeing]
        chosen = (agreeing or code[-1:])[0]
        words = [
            f"{name}: " + ", ".join(f"{row['slope']:.2f} for n = {row['widths']}" for row in rows)
            for name, rows in by_training.items()
        ]
        seeds = sorted({p.seed for p in code_curves().points if p.unit == unit})
        held = " and ".join(row["widths"] for row in agreeing) or "none of these"
        failing = f", not for {' or '.join(others)}" * bool(others)
        claims.append(
            Claim(
                f"slope of the {unit} against {against}, by the paper's code",
                f"{paper:.2f}",
                f"{chosen['slope']:.2f} for n = {chosen['widths']}",
                reproduced_if(bool(agreeing)),
                f"Within 5 % of the paper's for n = {held}{failing}. Slopes of the medians of up to "
                f"{counted(len(seeds), 'seed')}, by {'; by '.join(words)}.",
                ends(chosen["low"], chosen["high"], ".2f"),
                place=f"{figure}, {unit.upper()} against {against}",
                outside=f"the paper's slope is over n = 1 to 50, that of its code here over {chosen['widths']}",
            )
        )
    return claims
