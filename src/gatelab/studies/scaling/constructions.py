"""Section 3 of the paper: parameters that are written down, their constants and orders, beside trained networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from gatelab.arrays import Array
from gatelab.data import Problem
from gatelab.feedforward import unit as as_unit
from gatelab.scaling_laws import Scaling, slope
from gatelab.solve import construct, rmse
from gatelab.statistics import Interval, t_interval
from gatelab.studies.definition import Claim
from gatelab.studies.scaling.error_curves import best_errors
from gatelab.studies.scaling.printed import PAPER_SLOPES
from gatelab.studies.verdicts import number_verdict, reproduced_if, slope_claim

# Eq. 9 and 14: RMSE = constant h^m rms(f^(m)).
EQUATIONS: Mapping[str, tuple[str, str, float]] = {
    "mlp": ("eq. 9", "1/sqrt(120)", 120**-0.5),
    "glu": ("eq. 14", "1/sqrt(945/2)", (945 / 2) ** -0.5),
}
COUNTS = {"mlp": "(dim_x + dim_y + 1) n + dim_y", "glu": "(2 dim_x + dim_y + 2) n + dim_y"}
WIDTHS = (50, 100, 200, 400)
POINTS = 20_000
NEAR_ORDER = 0.1  # orders on a cell as near as this agree
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


# ---- eq. 7, 8 and 10 to 13: errors on a cell


@dataclass(frozen=True, eq=False)
class CellTarget:
    """A smooth function on [0, 1] with its derivatives at 0 up to the fourth, none of which is zero."""

    name: str
    f: Callable[[Array], Array]
    second: float
    third: float
    fourth: float


CELL_TARGETS = (
    CellTarget("exp 2x", lambda x: np.exp(2 * x), 4.0, 8.0, 16.0),
    CellTarget("1/(1 + x)", lambda x: 1 / (1 + x), 2.0, -6.0, 24.0),
    CellTarget("sin(3x + 1)", lambda x: np.sin(3 * x + 1), -9 * math.sin(1), -27 * math.cos(1), 81 * math.sin(1)),
)
CELL_NAMES = ", ".join(target.name for target in CELL_TARGETS)
CELLS = tuple(2.0**-k for k in range(4, 9))  # the sizes h of the first cell
WITHIN = np.linspace(0, 1, 101)  # of a cell
FREE = ((1.0, 0.7), (-2.0, 3.0))  # values of D_0 and U_0 where they are free
OFF = 1.1  # U_0 so many times that of eq. 12 does not cancel f''
Remainder = Callable[[CellTarget, Array, float], Array]


def cell_order(remainder: Remainder) -> Interval:
    """The power of h with which the largest |remainder(target, x, h)| on the first cell falls."""
    largest = [[np.abs(remainder(target, h * WITHIN, h)).max() for target in CELL_TARGETS] for h in CELLS]
    return mean_power(np.array(largest))


def mean_power(values: Array) -> Interval:
    """The power of h in values (cells, targets): a slope for each target, their mean and its t-interval."""
    return t_interval(np.polyfit(np.log(CELLS), np.log(values), 1)[0])


def mlp_error(target: CellTarget, x: Array, h: float, start: float = 0.0) -> Array:
    """f - y at start + x on the cell from `start` on, y the line through f at both of its ends."""
    left, right = target.f(start + np.array([0.0, h]))
    return target.f(start + x) - left - (right - left) * x / h


def eq7(target: CellTarget, x: Array, h: float) -> Array:
    """The right-hand side of eq. 7 as printed, without its O(h^4)."""
    second, third, fourth = target.second, target.third, target.fourth
    return x**2 * second / 2 - h * x * second / 2 + x**3 * third / 6 - h**3 * x * fourth / 24


def glu_error(target: CellTarget, x: Array, h: float, D: float, U: float) -> Array:
    """f - y on the first cell, y one GLU neuron with u_0 by eq. 10."""
    left, right = target.f(np.array([0.0, h]))
    u = (-D * U * h**2 - left + right) / (D * h)
    return target.f(x) - left - D * x * (U * x + u)


def eq11(target: CellTarget, x: Array, h: float, D: float, U: float) -> Array:
    """The right-hand side of eq. 11 as printed, without its O(h^4)."""
    bent = D * U * h * x - D * U * x**2 - h * x * target.second / 2 + x**2 * target.second / 2
    return bent + eq13(target, x, h)


def eq13(target: CellTarget, x: Array, h: float) -> Array:
    """The right-hand side of eq. 13 as printed, without its O(h^4)."""
    return x**3 * target.third / 6 - h**2 * x * target.third / 6


def cancelling(target: CellTarget, D: float) -> float:
    """U_0 by eq. 12."""
    return target.second / (2 * D)


def cell_claims() -> list[Claim]:
    """Eq. 7, 8 and 10 to 13, each held against errors on cells that shrink."""
    D, U = FREE[1]
    left_out = "what the truncation error of the {} construction leaves out (eq. {})"
    printed = cell_order(lambda f, x, h: -mlp_error(f, x, h) - eq7(f, x, h))
    turned = cell_order(lambda f, x, h: mlp_error(f, x, h) - eq7(f, x, h))
    mended = cell_order(lambda f, x, h: mlp_error(f, x, h) - eq7(f, x, h) + h**2 * x * f.third / 6)
    another = cell_order(lambda f, x, h: glu_error(f, x, h, D, OFF * cancelling(f, D)))
    return [
        cell_claim(
            left_out.format("MLP's", 7),
            "O(h^4)",
            4,
            printed,
            f"Cells of h = 1/{1 / CELLS[0]:.0f} to 1/{1 / CELLS[-1]:.0f}. With the sign of f - y it is "
            f"h^{turned.value:.2f}, and with -h² x f''' / 6, which is missing, h^{mended.value:.2f}.",
            "eq. 7, truncation error of the MLP",
        ),
        one_cell_claim(),
        meeting_claim(),
        cell_claim(
            left_out.format("GLU's", 11),
            "O(h^4)",
            4,
            cell_order(lambda f, x, h: glu_error(f, x, h, D, U) - eq11(f, x, h, D, U)),
            f"D_0 = {D:g}, U_0 = {U:g}. Its sign is that of f - y, as is said there and not before eq. 7.",
            "eq. 11, truncation error of the GLU",
        ),
        cell_claim(
            "the GLU's error on a cell with U_0 = f''/(2 D_0) (eq. 12)",
            "h^3: both terms with f'' cancel",
            3,
            cell_order(lambda f, x, h: glu_error(f, x, h, D, cancelling(f, D))),
            f"With {OFF:g} times that U_0 it is h^{another.value:.2f}.",
            "eq. 12, U_0 cancels f''",
        ),
        cell_claim(
            "what the GLU's truncation error leaves out once f'' is cancelled (eq. 13)",
            "O(h^4)",
            4,
            cell_order(lambda f, x, h: glu_error(f, x, h, D, cancelling(f, D)) - eq13(f, x, h)),
            "The constant 1/sqrt(945/2) of eq. 14 is the root mean square of (s³ - s)/6 on a cell.",
            "eq. 13, truncation error after it",
        ),
    ]


def cell_claim(what: str, paper: str, order: int, ours: Interval, because: str, place: str) -> Claim:
    """A printed order of h beside the measured one; its opposite is an order less."""
    verdict = number_verdict(order, order - 1, ours, NEAR_ORDER)
    return Claim(what, paper, f"h^{ours.value:.2f}", verdict, f"{CELL_NAMES}. {because}", ours.ends(".2f"), place)


def one_cell_claim() -> Claim:
    """The error over all cells beside that of the first one: in proportion, whatever h is."""
    ratios = np.empty((len(CELLS), len(CELL_TARGETS)))
    for i, h in enumerate(CELLS):
        for j, target in enumerate(CELL_TARGETS):
            starts = h * np.arange(round(1 / h))
            squares = [np.mean(mlp_error(target, h * WITHIN, h, start) ** 2) for start in starts]
            ratios[i, j] = math.sqrt(np.mean(squares) / squares[0])
    power = mean_power(ratios)
    return Claim(
        "the whole error over that of a representative cell (eq. 8)",
        "in proportion",
        f"{', '.join(f'{ratio:.2f}' for ratio in ratios[-1])}, changing like h^{power.value:.2f}",
        number_verdict(0, 1, power, NEAR_ORDER),
        f"{CELL_NAMES}, the first cell for all. The ratio is that of the root mean square of f'' to f'' at 0, not 1: a "
        "cell gives the power of h and the constant, not the size. The sum runs from i = 0, whose cell lies outside.",
        power.ends(".2f"),
        "eq. 8, error from one cell",
    )


def meeting_claim() -> Claim:
    """Whether u_0 makes the neuron meet f at the end of its cell, whatever D_0 and U_0 are."""
    sizes = product(CELL_TARGETS, CELLS, FREE)
    off = max(abs(float(glu_error(target, np.array([h]), h, D, U)[0])) for target, h, (D, U) in sizes)
    return Claim(
        "f(h) - y(h) with u_0 of the GLU's construction (eq. 10)",
        "0, D_0 and U_0 being free",
        f"{off:.0e} at most",
        reproduced_if(off < 1e-12),
        f"{CELL_NAMES}, {len(CELLS)} sizes of the cell, (D_0, U_0) = {' and '.join(map(str, FREE))}.",
        place="eq. 10, u_0",
    )
