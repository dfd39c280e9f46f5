"""Verdicts from numbers, and the reasons in numbers. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gatelab.scaling_laws import Slope
from gatelab.studies.definition import Claim, Verdict

NEAR = 0.15  # slopes as near as this agree: the paper gives no intervals, and its own n and P slopes differ by 0.05


def slope_verdict(paper: float | None, ours: Slope, near: float = NEAR) -> Verdict:
    """Reproduced within our interval or `near`; exceeded where ours is steeper; new where the paper has no slope.

    >>> slope_verdict(-3.08, Slope(-3.5, -3.6, -3.4, 0.0, 50)), slope_verdict(-3.08, Slope(-2.5, -2.6, -2.4, 0.0, 50))
    ('exceeded', 'differs')
    >>> slope_verdict(-0.09, Slope(-0.2, -0.3, -0.15, 0.0, 7), near=0.05), slope_verdict(None, Slope(-1, -2, 0, 0, 7))
    ('exceeded', 'new')
    """
    if paper is None:
        return "new"
    if ours.low <= paper <= ours.high or abs(ours.value - paper) <= near:
        return "reproduced"
    return "exceeded" if ours.value < paper else "differs"


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
    return "reproduced" if max(ratios) <= 1.1 else "differs"


def fewer_verdict(paper: int, ours: int | None) -> Verdict:
    """How many neurons are needed: fewer than the paper's is exceeded, none found is differs.

    >>> fewer_verdict(15, 14), fewer_verdict(15, 15), fewer_verdict(15, None)
    ('exceeded', 'reproduced', 'differs')
    """
    if ours is None or ours > paper:
        return "differs"
    return "reproduced" if ours == paper else "exceeded"


def ends(low: float, high: float, form: str = ".3g") -> str:
    """An interval as claims have it; nothing where there is none.

    >>> ends(-1.8, -1.64, ".2f"), ends(float("nan"), float("nan"))
    ('[-1.80, -1.64]', '')
    """
    return "" if np.isnan(low) or np.isnan(high) else f"[{low:{form}}, {high:{form}}]"


def slope_ends(found: Slope) -> str:
    """A line through two points has no interval."""
    return ends(found.low, found.high, ".2f") if found.points > 2 else ""


def slope_claim(what: str, paper: float | None, ours: Slope, because: str, near: float = NEAR) -> Claim:
    said = "-" if paper is None else f"{paper:.2f}"
    return Claim(what, said, f"{ours.value:.2f}", slope_verdict(paper, ours, near), because, slope_ends(ours))


def errors_claim(unit: str, reference: Mapping[int, float], ours: Mapping[int, float]) -> Claim:
    """Our test errors beside those of the reference code, at the widths that both have."""
    common = [w for w in sorted(reference) if w in ours]
    times = {w: reference[w] / ours[w] for w in common}
    said = ", ".join(f"{times[w]:.1f} times less at n = {w}" for w in common) or "no common width was run"
    return Claim(
        f"RMSE of the {unit} at the widths of the reference code",
        ", ".join(f"{reference[w]:.1e} at {w}" for w in common) or "-",
        ", ".join(f"{ours[w]:.1e} at {w}" for w in common) or "-",
        errors_verdict(reference, ours),
        f"Knots trained as a spline's reach the neighbourhood of the free-knot limit; {said}.",
    )


def reference_sentence(reference: Mapping[int, float], ours: Mapping[int, float], limits: Mapping[int, float]) -> str:
    """How the reference code's errors lie beside ours at its own widths: against the limit, and in slope."""
    common = [w for w in sorted(reference) if w in ours]
    if len(common) < 2:
        return ""
    at = ", and ".join(
        f"{reference[w] / limits[w]:.2f} times the limit at n = {w}, where ours is {ours[w] / limits[w]:.2f} times"
        for w in (common[0], common[-1])
    )
    theirs, own = (_slope([e[w] for w in common], common) for e in (reference, ours))
    return (
        f"The reference code's error is {at}; over its widths {common[0]}..{common[-1]} its slope is {theirs:.2f} and "
        f"ours {own:.2f}."
    )


def _slope(errors: Sequence[float], widths: Sequence[int]) -> float:
    return float(np.polyfit(np.log(widths), np.log(errors), 1)[0])
