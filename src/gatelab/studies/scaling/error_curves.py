"""What the studies of errors share: their target, their fits at many widths, and sentences about the curves.

Beside our curves stand errors of the paper's reference code: networks fully trained by its second-order solver in
float64 on 10 000 points of 1/(1 + cos^2(pi x)); RMSE by width. None of the versions of its repository that we could
read has this target, so one line was added to its `PROBLEM_1D`; a GQU of width 50 was not run. What is known of these
runs, and some of them made again with their log, is in results/scaling/reference.md. What our own solver gives by the
method of that code (`gatelab.scaling_laws.reference`) is in a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gatelab.data import Problem, problem
from gatelab.display import counted
from gatelab.errors import GatelabError
from gatelab.scaling_laws import Scaling, Slope, scaling
from gatelab.scaling_laws.reference import newton_options, read_curves
from gatelab.studies.definition import Claim, Request
from gatelab.studies.records import origin, read_record
from gatelab.studies.scaling.printed import PAPER_SLOPES
from gatelab.studies.verdicts import reference_sentence, slope_claim

SOURCE = "the reference code of the paper, with this target put in"
REFERENCE_RMSE: Mapping[str, Mapping[int, float]] = {
    "mlp": {5: 3.4e-2, 10: 9.6e-3, 20: 2.1e-3, 35: 8.2e-4, 50: 4.4e-4},
    "glu": {5: 1.5e-2, 10: 1.9e-3, 20: 3.5e-4, 35: 7.8e-5, 50: 2.8e-5},
    "gqu": {5: 4.0e-2, 10: 2.6e-3, 20: 2.5e-4, 35: 5.4e-5},
}
# Training errors of the reference code on Friedman's first problem, 2000 points, by width.
REFERENCE_FRIEDMAN1: Mapping[str, Mapping[int, float]] = {
    "mlp": {8: 0.103, 16: 0.243, 32: 0.047},
    "glu": {8: 0.027, 16: 0.033, 32: 0.043},
}
# Networks trained by the paper's method: its solver in its stages, from its start.
METHOD = "scaling/paper-method.json"
METHOD_COMMAND = "python benchmarks/paper_method.py results/scaling/paper-method.json --store runs.db"
QUICK_STEPS = 40
QUICK_WIDTHS = (5, 10, 20)
QUICK_POINTS = 1000


def paper_target(request: Request) -> Problem:
    """The paper's target, 1/(1 + cos^2(pi x)) on [-1, 1], with 10 000 random points, fewer when quick."""
    if request.quick:
        return problem("paper-1d", n=QUICK_POINTS)
    return problem("paper-1d")


def widths_for(request: Request, full: Sequence[int]) -> Sequence[int]:
    """The widths of a full study, or the few of a quick one."""
    if request.quick:
        return QUICK_WIDTHS
    return full


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
    """Why the global slope is what it is, from ratios to the limit, the upper half of the widths and the other code."""
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
    parts = [
        f"{ratio_sentence(study, unit)}: {effect} than order {order}",
        f"over n = {low}..{high} the slope is {upper.value:.2f}. ",
    ]
    return "; ".join(parts) + reference_sentence(REFERENCE_RMSE.get(unit, {}), best_errors(study, unit), limits)


def slope_claims(study: Scaling, unit: str, figure: str = "") -> list[Claim]:
    """The slopes of a unit at its optimum against n and P beside those of the paper, all points included as there.

    They answer for a figure of the paper where no claim by the paper's own method does.
    """
    reason = slope_reason(study, unit)
    return [
        slope_claim(
            f"slope of the {unit} against {against}, at the optimum",
            PAPER_SLOPES[unit, against],
            study.slope(unit, against=against, flagged=True),
            reason,
            place=f"{figure}, {unit.upper()} against {against}" * bool(figure),
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
    """The units trained by the paper's method: its solver, its stages and its start, five seeds; from the record.

    A quick study trains one seed of each of the `quick` widths now, for few steps.
    """
    if request.quick:
        options = {**newton_options(units[0], target.d_in), "steps": QUICK_STEPS}
        return fit_curves(request, units, target, quick, tick, solver="newton", **options)
    curve = method_curves()["paper-1d"]
    return Scaling(curve.problem, tuple(p for p in curve.points if p.unit in units))


def method_record() -> dict[str, Any]:
    """The record of the experiments by the paper's method."""
    return read_record(METHOD, METHOD_COMMAND, "four hours of a core")


def method_curves() -> dict[str, Scaling]:
    """What the record of the paper's method holds, by experiment."""
    return read_curves(method_record())


def method_origin() -> str:
    """Where the record of the paper's method comes from, and what it has not."""
    record = method_record()
    lacking = record["planned"] - record["finished"]
    return f"{origin(record)} {record['finished']} of its {record['planned']} fits were made, {lacking} were not."


def median_errors(study: Scaling, unit: str) -> dict[int, float]:
    """The median test RMSE of the seeds at each width."""
    widths = sorted({p.width for p in study.points if p.unit == unit})
    errors = {w: [p.test_rmse for p in study.points if (p.unit, p.width) == (unit, w)] for w in widths}
    return {w: float(np.median(values)) for w, values in errors.items()}


def newton_claims(newton: Scaling, optimum: Scaling, unit: str, figure: str) -> list[Claim]:
    """The slopes of a unit by the paper's method: the median of the seeds at each width, all widths as there."""
    theirs, ours = median_errors(newton, unit), best_errors(optimum, unit)
    times = {w: theirs[w] / ours[w] for w in theirs if w in ours}
    small, widest = [times[w] for w in times if w < 10], max(times)
    seeds = sorted({p.seed for p in newton.points})
    reason = (
        f"Newton's method in the stages of the reference code, from alternating gates, {counted(len(seeds), 'seed')}. "
        f"Its error is {times[widest]:.2f} times that at the optimum at n = {widest}"
    )
    if small:
        reason += f", and {min(small):.2f} to {max(small):.2f} times for n < 10"
    low = sorted(theirs)[1]
    claims = []
    for against in ("n", "P"):
        line = newton.slope(unit, against=against, aggregate="median", flagged=True)
        later = newton.slope(unit, against=against, aggregate="median", widths=(low, widest), flagged=True)
        claims.append(
            slope_claim(
                f"slope of the {unit} against {against}, by the paper's method",
                PAPER_SLOPES[unit, against],
                line,
                f"{reason}; from n = {low} on the slope is {later.value:.2f}.",
                place=f"{figure}, {unit.upper()} against {against}",
            )
        )
    return claims


def with_reference(study: Scaling) -> pd.DataFrame:
    """The study's table with a column for the reference code's RMSE, where it was run at that width."""
    table = study.table()
    table["reference_rmse"] = [
        REFERENCE_RMSE.get(str(u), {}).get(int(w), np.nan) for u, w in zip(table["unit"], table["width"], strict=True)
    ]
    return table
