"""Numbers of others: the paper's slopes, and errors of its reference code.

The errors were measured with the reference code of the paper, run as it is: networks fully trained by its second-order
solver in float64 on 10 000 points of 1/(1 + cos^2(pi x)); RMSE by width. A GQU of width 50 was not run.

What the studies of errors share: their data, their widths, their runs, and sentences about ratios to the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gatelab.data import Problem, problem
from gatelab.errors import GatelabError
from gatelab.scaling_laws import Scaling, Slope, scaling
from gatelab.studies.definition import Claim, Request
from gatelab.studies.verdicts import reference_sentence, slope_claim

SOURCE = "the reference code of the paper, run as it is"

REFERENCE_RMSE: Mapping[str, Mapping[int, float]] = {
    "mlp": {5: 3.4e-2, 10: 9.6e-3, 20: 2.1e-3, 35: 8.2e-4, 50: 4.4e-4},
    "glu": {5: 1.5e-2, 10: 1.9e-3, 20: 3.5e-4, 35: 7.8e-5, 50: 2.8e-5},
    "gqu": {5: 4.0e-2, 10: 2.6e-3, 20: 2.5e-4, 35: 5.4e-5},
}

# Figure 2 and table 1; for the GQU against P the caption of figure 6, which rounds.
PAPER_SLOPES: Mapping[tuple[str, str], float] = {
    ("mlp", "n"): -2.13,
    ("mlp", "P"): -2.18,
    ("glu", "n"): -3.08,
    ("glu", "P"): -3.12,
    ("gqu", "n"): -3.55,
    ("gqu", "P"): -3.5,
}

# The conclusion of the paper: "to the same error with 15 neurons versus 50".
GLU_FOR_MLP = (15, 50)

# Table 1, slopes against n. The paper has no GQU beyond one dimension.
TABLE1: Mapping[str, Mapping[str, float]] = {
    "paper-1d": {"mlp": -2.13, "glu": -3.08, "gqu": -3.55},
    "sin4x-sin4y": {"mlp": -0.91, "glu": -1.55},
    "friedman1": {"mlp": -0.55, "glu": -1.00},
    "friedman2": {"mlp": -0.75, "glu": -1.12},
    "friedman3": {"mlp": -0.31, "glu": -0.56},
    "airfoil": {"mlp": -0.25, "glu": -0.39},
    "california": {"mlp": -0.09, "glu": -0.09},
}


QUICK_WIDTHS = (5, 10, 20)
QUICK_POINTS = 1000


def paper_target(request: Request) -> Problem:
    """The paper's target, 1/(1 + cos^2(pi x)) on [-1, 1], with 10 000 random points, fewer when quick."""
    return problem("paper-1d", n=QUICK_POINTS) if request.quick else problem("paper-1d")


def widths_for(request: Request, full: Sequence[int]) -> Sequence[int]:
    return QUICK_WIDTHS if request.quick else full


def ticker(request: Request, total: int) -> Callable[..., None]:
    """A callable, to be called once a fit with whatever arguments, that reports how many are done."""
    done = 0

    def tick(*_: object) -> None:
        nonlocal done
        done += 1
        if request.progress:
            request.progress(done, total)

    return tick


def measured(
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
    # Starting processes takes longer than all fits of a quick study.
    jobs = request.jobs or (1 if request.quick else None)
    how = {"solver": solver, "jobs": jobs, "progress": tick, **request.sweep_now(), **options}
    study = scaling(units, target, widths, seeds, **how)
    return complete(study, request.sweep.get("store"))


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
    return study.slope(unit, widths=upper_half(study), flagged=True)


def ratio_sentence(study: Scaling, unit: str) -> str:
    """Where the errors of small and of the largest networks lie against the free-knot limit."""
    widths = sorted({p.width for p in study.points if p.unit == unit})
    small = [study.ratio(unit, w) for w in widths if w < 10]
    largest = widths[-1]
    below = f"{min(small):.2f} to {max(small):.2f} times the limit for n < 10 and " if small else ""
    least = f"{study.ratio(unit, largest):.2f} times {'' if small else 'the limit '}at n = {largest}"
    return f"The {unit}'s test RMSE is {below}{least}"


def slope_reason(study: Scaling, unit: str) -> str:
    """Why the global slope is what it is, from ratios to the limit, the upper half of the widths and the other code."""
    whole, upper = study.slope(unit, flagged=True), tail_slope(study, unit)
    low, high = upper_half(study)
    order = _order(study, unit)
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
    limits = {p.width: p.limit for p in study.points if p.unit == unit}
    return "; ".join(parts) + reference_sentence(REFERENCE_RMSE.get(unit, {}), best_errors(study, unit), limits)


def _order(study: Scaling, unit: str) -> int:
    """The order from the limit's own line, which is an exact power."""
    points = sorted((p.width, p.limit) for p in study.points if p.unit == unit)
    (n0, l0), (n1, l1) = points[0], points[-1]
    return round(-np.log(l1 / l0) / np.log(n1 / n0))


def slope_claims(study: Scaling, unit: str) -> list[Claim]:
    """The paper's slopes of a unit against n and against P beside ours, all points included as in the paper."""
    reason = slope_reason(study, unit)
    return [
        slope_claim(
            f"slope of the {unit} against {against}",
            PAPER_SLOPES[unit, against],
            study.slope(unit, against=against, flagged=True),
            reason,
        )
        for against in ("n", "P")
    ]


def with_reference(study: Scaling) -> pd.DataFrame:
    """The study's table with a column for the reference code's RMSE, where it was run at that width."""
    table = study.table()
    table["reference_rmse"] = [
        REFERENCE_RMSE.get(str(u), {}).get(int(w), np.nan) for u, w in zip(table["unit"], table["width"], strict=True)
    ]
    return table
