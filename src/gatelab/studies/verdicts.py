"""Verdicts from numbers, and the reasons in numbers. Pure functions.

The rule, for everything that has an interval:

- **undecided** where the interval contains both what the paper says and its opposite. The opposite of a slope that
  falls is one that does not, 0; the opposite of "larger than" is "not larger", so that an interval on both sides of the
  number decides nothing. So is what does not agree with a formula that our copy lost and we restored (`restored`).
- **reproduced** where the interval contains what the paper says, or, of slopes, our value is within 5 % of it.
- **exceeded** where ours is better than what the paper says; of slopes, where held-out errors fall faster. Training
  errors that fall faster are no gain by themselves: they differ.
- **differs** everywhere else.
- **new** where the paper has no number or word to compare with, as where it claims nothing (`unclaimed`).

What has no interval is exact, or says itself what it is held against. A claim that was measured where a condition of
the paper does not hold says so (`Claim.outside`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from gatelab.scaling_laws import Slope
from gatelab.statistics import Interval
from gatelab.studies.definition import Claim, Verdict

NEAR = 0.15  # exponents as near as this to 1 agree
TOLERANCE = 0.05  # of the paper's slope, which has no interval; its own slopes against n and P are 2 % apart


def reproduced_if(holds: bool) -> Verdict:
    """The verdict on a statement that holds or does not.

    >>> reproduced_if(True), reproduced_if(False)
    ('reproduced', 'differs')
    """
    if holds:
        return "reproduced"
    return "differs"


def restored(verdict: Verdict) -> Verdict:
    """The verdict on a formula that our copy lost: what differs may be the paper's formula or ours, and is undecided.

    >>> restored("reproduced"), restored("differs")
    ('reproduced', 'undecided')
    """
    return "undecided" if verdict == "differs" else verdict


def unclaimed(verdict: Verdict) -> Verdict:
    """The verdict on a statement where its conditions do not hold: that it fails there contradicts nobody, and is new.

    >>> unclaimed("reproduced"), unclaimed("differs")
    ('reproduced', 'new')
    """
    return "new" if verdict == "differs" else verdict


def side_verdict(ours: Interval, number: float, side: Literal["below", "above"]) -> Verdict:
    """The verdict on a statement that something lies below, or above, a number.

    >>> side_verdict(Interval(3.6, 3.1, 4.2), 1, "above"), side_verdict(Interval(0.34, -0.26, 0.94), 0, "below")
    ('reproduced', 'undecided')
    >>> side_verdict(Interval(0.34, 0.26, 0.94), 0, "below")
    'differs'
    """
    if not ours.excludes(number):
        return "undecided"
    return reproduced_if((ours.value > number) == (side == "above"))


def number_verdict(paper: float, opposite: float, ours: Interval, near: float = 0.0) -> Verdict:
    """The verdict on a number of the paper's: what our interval contains of it and of its opposite.

    >>> number_verdict(-0.56, 0.0, Interval(-0.17, -0.73, 0.38)), number_verdict(-0.56, 0.0, Interval(-0.5, -0.7, -0.3))
    ('undecided', 'reproduced')
    >>> number_verdict(-0.56, 0.0, Interval(0.1, -0.1, 0.3))
    'differs'
    """
    agrees = paper in ours or abs(ours.value - paper) <= near
    if agrees and opposite in ours:
        return "undecided"
    return reproduced_if(agrees)


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a statement of several numbers: one that differs decides, then one that is undecided.

    >>> together(["reproduced", "undecided"]), together(["undecided", "differs"]), together(["reproduced"])
    ('undecided', 'differs', 'reproduced')
    """
    reached = set(verdicts)
    for verdict in ("differs", "undecided"):
        if verdict in reached:
            return verdict
    return "reproduced"


def near(paper: float, ours: float) -> bool:
    """Whether a slope is the paper's as nearly as the paper's slopes are known: the tolerance is a share of it.

    >>> near(-3, -2.87), near(-4, -3.84), near(-2, -1.87)
    (True, True, False)
    """
    return abs(ours - paper) <= TOLERANCE * abs(paper)


def slope_verdict(paper: float | None, ours: Slope, *, held_out: bool = True) -> Verdict:
    """Reproduced within our interval or `near`; exceeded where ours is steeper; new where the paper has no slope.

    A wide interval decides nothing: where it contains the paper's slope and 0, no fall at all, that is undecided.
    Errors that are not `held_out` exceed nothing.

    >>> slope_verdict(-3.08, Slope(-3.5, -3.6, -3.4, 0.0, 50)), slope_verdict(-3.08, Slope(-2.5, -2.6, -2.4, 0.0, 50))
    ('exceeded', 'differs')
    >>> slope_verdict(-0.3, Slope(-1.4, -1.5, -1.3, 0, 5), held_out=False), slope_verdict(None, Slope(-1, -2, 0, 0, 7))
    ('differs', 'new')
    """
    if paper is None:
        return "new"
    verdict = number_verdict(paper, 0.0, ours, TOLERANCE * abs(paper))
    if verdict == "differs" and held_out and ours.value < paper:
        return "exceeded"
    return verdict


def errors_verdict(reference: Mapping[int, float], ours: Mapping[int, float]) -> Verdict:
    """Exceeded where ours is lower at every common width; reproduced where it is nowhere more than a tenth above.

    >>> errors_verdict({5: 1.0, 10: 0.5}, {5: 0.9, 10: 0.4, 20: 0.1}), errors_verdict({5: 1.0}, {20: 0.1})
    ('exceeded', 'new')
    """
    ratios = [ours[w] / reference[w] for w in reference if w in ours]
    if not ratios:
        return "new"
    if max(ratios) < 1:
        return "exceeded"
    return reproduced_if(max(ratios) <= 1.1)


def fewer_verdict(paper: int, ours: int | None) -> Verdict:
    """How many neurons are needed: fewer than the paper's is exceeded, none at all is differs.

    >>> fewer_verdict(15, 14), fewer_verdict(15, 15), fewer_verdict(15, None)
    ('exceeded', 'reproduced', 'differs')
    """
    if ours is not None and ours < paper:
        return "exceeded"
    return reproduced_if(ours == paper)


def ends(low: float, high: float, form: str = ".3g") -> str:
    """An interval as claims have it; nothing where there is none.

    >>> ends(-1.8, -1.64, ".2f"), ends(float("nan"), float("nan"))
    ('[-1.80, -1.64]', '')
    """
    if np.isnan(low) or np.isnan(high):
        return ""
    return f"[{low:{form}}, {high:{form}}]"


def slope_ends(line: Slope) -> str:
    """The interval of a slope; a line through three points or fewer has none."""
    return line.ends(".2f")


def slope_claim(
    what: str,
    paper: float | None,
    ours: Slope,
    because: str,
    *,
    held_out: bool = True,
    place: str = "",
    outside: str = "",
) -> Claim:
    """A slope of the paper beside ours; a dash where the paper has none.

    >>> slope_claim("a slope", -2.0, Slope(-2.05, -2.1, -2.0, 0.0, 5), "measured", place="figure 2, MLP").verdict
    'reproduced'
    """
    printed = "-"
    if paper is not None:
        printed = f"{paper:.2f}"
    verdict = slope_verdict(paper, ours, held_out=held_out)
    return Claim(what, printed, f"{ours.value:.2f}", verdict, because, slope_ends(ours), place, outside=outside)


def errors_claim(unit: str, reference: Mapping[int, float], ours: Mapping[int, float]) -> Claim:
    """Our test errors beside the medians of the paper's code, at the widths that both have."""
    common = [w for w in sorted(reference) if w in ours]
    times = {w: reference[w] / ours[w] for w in common}
    ratios = ", ".join(f"{times[w]:.1f} times less at n = {w}" for w in common) or "no common width was run"
    return Claim(
        f"RMSE of the {unit} at the widths at which the paper's code was run",
        ", ".join(f"{reference[w]:.1e} at {w}" for w in common) or "-",
        ", ".join(f"{ours[w]:.1e} at {w}" for w in common) or "-",
        errors_verdict(reference, ours),
        f"Knots trained as a spline's reach the neighbourhood of the free-knot limit; {ratios}.",
    )
