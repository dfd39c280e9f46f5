"""Section 3 of the paper: parameters that are written down, their constants and orders, beside trained networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from gatelab.arrays import Array
from gatelab.data import Problem
from gatelab.feedforward import unit as as_unit
from gatelab.scaling_laws import Scaling, slope
from gatelab.solve import construct, rmse
from gatelab.studies.definition import Claim
from gatelab.studies.scaling.error_curves import best_errors
from gatelab.studies.scaling.printed import PAPER_SLOPES
from gatelab.studies.verdicts import reproduced_if, slope_claim

# Eq. 9 and 14: RMSE = constant h^m rms(f^(m)).
EQUATIONS: Mapping[str, tuple[str, str, float]] = {
    "mlp": ("eq. 9", "1/sqrt(120)", 120**-0.5),
    "glu": ("eq. 14", "1/sqrt(945/2)", (945 / 2) ** -0.5),
}
COUNTS = {"mlp": "(dim_x + dim_y + 1) n + dim_y", "glu": "(2 dim_x + dim_y + 2) n + dim_y"}
WIDTHS = (50, 100, 200, 400)
POINTS = 20_000
CLOSE = 0.05  # of the constant: terms of higher order are left


def construction_claims(name: str, target: Problem, trained: Scaling) -> list[Claim]:
    """The constant, the order, and whether trained networks are below the construction."""
    return [constant_claim(name, target), order_claim(name, target), below_claim(name, target, trained)]


def built_errors(name: str, target: Problem, widths: Sequence[int]) -> dict[int, tuple[float, float]]:
    """The RMSE of the constructed network over the whole interval and the one that theory predicts, by width."""
    assert target.f is not None and target.interval is not None
    a, b = target.interval
    x = a + (b - a) * (np.arange(POINTS) + 0.5)[:, None] / POINTS
    y = np.asarray(target.f(x[:, 0]), float)[:, None]
    constructions = {width: construct(name, target, width) for width in widths}
    return {width: (rmse(c.network, x, y), c.predicted_rmse) for width, c in constructions.items()}


def constant_claim(name: str, target: Problem) -> Claim:
    """Eq. 9 and 14: the constant of the error, from the widest construction."""
    equation, printed, value = EQUATIONS[name]
    errors = built_errors(name, target, (WIDTHS[0], WIDTHS[-1]))
    times = {width: error / predicted for width, (error, predicted) in errors.items()}
    return Claim(
        f"constant of the {name}'s construction ({equation})",
        f"{printed} = {value:.4f}",
        f"{value * times[WIDTHS[-1]]:.4f} at n = {WIDTHS[-1]}",
        reproduced_if(abs(times[WIDTHS[-1]] - 1) <= CLOSE),
        f"RMSE over h^m rms(f^(m)); {value * times[WIDTHS[0]]:.4f} at n = {WIDTHS[0]}. The paper's C is a bound on the "
        "derivative; it is its root mean square that enters.",
        place=f"{equation}, constant",
    )


def order_claim(name: str, target: Problem) -> Claim:
    """Eq. 9 and 14: the power of the number of neurons."""
    order = {"mlp": 2, "glu": 3}[name]
    errors = {width: error for width, (error, _) in built_errors(name, target, WIDTHS).items()}
    line = slope(np.array(WIDTHS, float), np.array([errors[w] for w in WIDTHS])[:, None])
    return slope_claim(
        f"order of the {name}'s construction",
        float(-order),
        line,
        f"n = {WIDTHS[0]}..{WIDTHS[-1]}, RMSE {errors[WIDTHS[0]]:.1e} to {errors[WIDTHS[-1]]:.1e}; nothing is trained.",
        place=f"{EQUATIONS[name][0]}, order",
    )


def below_claim(name: str, target: Problem, trained: Scaling) -> Claim:
    """Section 4: trained networks have less error than the construction with as many neurons."""
    errors = best_errors(trained, name)
    built = built_errors(name, target, list(errors))
    ratios = {width: errors[width] / built[width][0] for width in errors}
    worst, widest = max(ratios, key=lambda w: ratios[w]), max(ratios)
    return Claim(
        f"error of the trained {name} over that of its construction",
        "lower, bounded by the same rate",
        f"{min(ratios.values()):.3f} to {max(ratios.values()):.3f}",
        reproduced_if(max(ratios.values()) < 1),
        f"At n = {widest} it is {ratios[widest]:.3f}, largest at n = {worst}. Free knots have the order of equal ones "
        "and a smaller constant.",
        place=f"section 4, {name.upper()} below the construction",
    )


def shift_claim(name: str, study: Scaling) -> Claim:
    """The caption of figure 2 says that P instead of n moves the lines and leaves their slopes; its numbers differ."""
    printed = PAPER_SLOPES[name, "P"] - PAPER_SLOPES[name, "n"]
    widest = max(p.width for p in study.points)

    def shift(narrowest: int, widest: int) -> float:
        n, P = (study.slope(name, against=a, widths=(narrowest, widest), flagged=True).value for a in ("n", "P"))
        return P - n

    whole, upper = shift(1, 10**6), shift(widest // 2, widest)
    return Claim(
        f"slope of the {name} against P less that against n",
        f"none by the caption, {printed:.2f} by the slopes",
        f"{whole:.2f}",
        reproduced_if(abs(whole - printed) <= 0.02),
        f"P = {as_unit(name).parameter_count(1) - 1}n + 1 is no power of n where n is small; over n = {widest // 2}.."
        f"{widest} the slopes differ by {upper:.3f}.",
        place=f"figure 2, {name.upper()}, caption",
    )


def count_claim(name: str) -> Claim:
    """The formula for P against numbers counted in networks."""
    sizes = list(product((1, 7, 50), (1, 2, 5), (1, 3)))
    chosen = as_unit(name)
    counted = [sum(p.numel() for p in chosen.network(n, dx, dy).parameters()) for n, dx, dy in sizes]
    q = {"mlp": 0, "glu": 1}[name]
    printed = [((q + 1) * dx + dy + q + 1) * n + dy for n, dx, dy in sizes]
    agree = sum(a == b for a, b in zip(counted, printed, strict=True))
    return Claim(
        f"parameters of the {name}",
        COUNTS[name],
        f"the same in {agree} of {len(sizes)} networks",
        reproduced_if(agree == len(sizes)),
        f"Counted for n up to {max(n for n, _, _ in sizes)}, dim_x up to {max(d for _, d, _ in sizes)} and dim_y up to "
        f"{max(d for _, _, d in sizes)}; with one input and output {as_unit(name).parameter_count(1) - 1}n + 1.",
        place=f"section 3, P of the {name.upper()}",
    )


def recurrence(f: Mapping[int, float], h: float, *, printed: bool) -> Array:
    """The weights D_i from values f at the knots 0, h, 2h, ...: by eq. 6 as printed, or divided by h throughout.

    D_0 and D_1, which the paper works out before it states eq. 6, are those of the second form.

    >>> recurrence({0: 0.0, 1: 1.0, 2: 1.0}, 1.0, printed=False)
    array([ 1., -1.])
    """
    cells = len(f) - 1
    D = np.zeros(cells)
    for i in range(cells):
        so_far = float(np.sum(D[:i] * h * (i + 1 - np.arange(i))))  # y_{i-1} less d at the next knot
        rise = f[i + 1] - f[0]
        if printed:
            D[i] = rise / h - so_far
        else:
            D[i] = (rise - so_far) / h
    return D


def eq6_claim(target: Problem, cells: int = 50) -> Claim:
    """What eq. 6 gives as it is printed, on the target brought to [0, 1]."""
    assert target.f is not None and target.interval is not None
    a, b = target.interval
    x = np.linspace(0, 1, 2001)
    h = 1 / cells
    knots = h * np.arange(cells + 1)
    f = dict(enumerate(np.asarray(target.f(np.asarray(a + (b - a) * knots, float)), float)))
    exact = np.asarray(target.f(a + (b - a) * x), float)
    off = {}
    for printed in (True, False):
        D = recurrence(f, h, printed=printed)
        y = f[0] + np.maximum(x[:, None] - knots[:-1], 0) @ D
        off[printed] = math.sqrt(float(np.mean((y - exact) ** 2)))
    return Claim(
        "the recurrence for D_i (eq. 6)",
        "interpolates at the knots",
        f"RMSE {off[True]:.1e} as printed, {off[False]:.1e} with all of it over h",
        reproduced_if(off[True] <= 1.1 * off[False]),
        f"{cells} cells on [0, 1]. As printed y is not divided by h, and a slope has a value taken from it; f(0) is "
        "taken off y as well, without which it would be farther off.",
        place="eq. 6, recurrence for D_i",
    )
