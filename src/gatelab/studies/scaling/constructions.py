"""Section 3 of the paper: constructed networks, their constants and orders, and errors on a cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gatelab.arrays import Array
from gatelab.data import Problem
from gatelab.feedforward import unit as as_unit
from gatelab.scaling_laws import slope
from gatelab.solve import construct, rmse
from gatelab.statistics import Interval, t_interval
from gatelab.studies.claims import Claim
from gatelab.studies.definition import only
from gatelab.studies.engine import Table, interval_at, interval_columns

# Eq. 9 and 14: RMSE = constant h^m rms(f^(m)); the equation, its constant and its order m.
EQUATIONS = {"mlp": ("eq. 9", 120**-0.5, 2), "glu": ("eq. 14", (945 / 2) ** -0.5, 3)}
COUNTS = {"mlp": "(dim_x + dim_y + 1) n + dim_y", "glu": "(2 dim_x + dim_y + 2) n + dim_y"}
WIDTHS = (50, 100, 200, 400)  # over which orders are measured
POINTS = 20_000  # of the interval, for errors of constructions
NETWORKS = tuple(product((1, 7, 50), (1, 2, 5), (1, 3)))  # n, dim_x and dim_y of networks for parameter counts


# ---- the constructions next to trained networks


def built_errors(unit: str, target: Problem, widths: Sequence[int]) -> Table:
    """The RMSE of constructed networks over the whole interval, measured and predicted by theory."""
    assert target.f is not None and target.interval is not None
    a, b = target.interval
    x = a + (b - a) * (np.arange(POINTS) + 0.5)[:, None] / POINTS
    y = np.asarray(target.f(x[:, 0]), float)[:, None]
    built = [construct(unit, target, width) for width in widths]
    errors = {"rmse": [rmse(c.network, x, y) for c in built], "predicted_rmse": [c.predicted_rmse for c in built]}
    return pd.DataFrame({"unit": unit, "width": list(widths), **errors})


def construction_claims(unit: str, built: Table, trained: Mapping[int, float]) -> Iterator[Claim]:
    """The constant, the order, and the errors of trained networks by width over those of the construction."""
    equation, constant, order = EQUATIONS[unit]
    by_width = only(built, unit=unit).set_index("width")
    times = by_width["rmse"] / by_width["predicted_rmse"]
    least, *_, most = WIDTHS
    yield Claim(
        f"constant of the {unit}'s construction ({equation})", constant * times[most], paper=constant, rule="number",
        place=f"{equation}, constant", support={f"at n = {least}": constant * times[least]},
        note="RMSE over h^m rms(f^(m)). The paper's C is a bound on the derivative; its root mean square enters.",
    )  # fmt: skip
    errors = by_width.loc[list(WIDTHS), "rmse"]
    built_slope, support = slope(errors.index, errors), {f"RMSE at n = {n}": errors[n] for n in (least, most)}
    what, place = f"order of the {unit}'s construction", f"{equation}, order"
    yield Claim.of(what, built_slope, float(-order), "slope", place=place, support=support)
    ratios, widest = pd.Series(trained) / by_width["rmse"].loc[list(trained)], max(trained)
    yield Claim(
        f"error of the trained {unit} over that of its construction, largest of all widths", float(ratios.max()),
        paper=1.0, rule="below", place=f"section 4, {unit.upper()} below the construction",
        support={"smallest": float(ratios.min()), f"at n = {widest}": float(ratios[widest])},
        note="Free knots have the order of equally spaced ones and a smaller constant.",
    )  # fmt: skip


# ---- eq. 6 to 8 and 10 to 13


class Smooth(NamedTuple):
    """A function on [0, 1] with its derivatives at 0 from the second to the fourth, none of which is zero."""

    f: Callable[[Array], Array]
    second: float
    third: float
    fourth: float


TARGETS = {
    "exp 2x": Smooth(lambda x: np.exp(2 * x), 4.0, 8.0, 16.0),
    "1/(1 + x)": Smooth(lambda x: 1 / (1 + x), 2.0, -6.0, 24.0),
    "sin(3x + 1)": Smooth(lambda x: np.sin(3 * x + 1), -9 * math.sin(1), -27 * math.cos(1), 81 * math.sin(1)),
}
CELLS = tuple(2.0**-k for k in range(4, 9))  # the sizes h of the first cell
WITHIN = np.linspace(0, 1, 101)  # of a cell
D, U = -2.0, 3.0  # of a GLU neuron, where both are free


def mlp_error(t: Smooth, x: Array, h: float, start: float = 0.0) -> Array:
    """f - y at start + x on the cell from `start` on, y the line through f at both of its ends."""
    left, right = t.f(start + np.array([0.0, h]))
    return t.f(start + x) - left - (right - left) * x / h


def glu_error(t: Smooth, x: Array, h: float, D: float, U: float) -> Array:
    """f - y on the first cell, y one GLU neuron with u_0 by eq. 10."""
    left, right = t.f(np.array([0.0, h]))
    u = (-D * U * h**2 - left + right) / (D * h)
    return t.f(x) - left - D * x * (U * x + u)


def eq7(t: Smooth, x: Array, h: float) -> Array:
    """The right-hand side of eq. 7 as printed, without its O(h^4)."""
    return x**2 * t.second / 2 - h * x * t.second / 2 + x**3 * t.third / 6 - h**3 * x * t.fourth / 24


def eq11(t: Smooth, x: Array, h: float, D: float, U: float) -> Array:
    """The right-hand side of eq. 11 as printed, without its O(h^4)."""
    return D * U * h * x - D * U * x**2 - h * x * t.second / 2 + x**2 * t.second / 2 + eq13(t, x, h)


def eq13(t: Smooth, x: Array, h: float) -> Array:
    """The right-hand side of eq. 13 as printed, without its O(h^4)."""
    return x**3 * t.third / 6 - h**2 * x * t.third / 6


# The remainder on a cell after subtracting the right-hand side of an equation.
REMAINDERS: dict[str, Callable[[Smooth, Array, float], Array]] = {
    "eq. 7": lambda t, x, h: -mlp_error(t, x, h) - eq7(t, x, h),
    "eq. 7 with the sign of f - y": lambda t, x, h: mlp_error(t, x, h) - eq7(t, x, h),
    "eq. 7 with that sign and the missing term": lambda t, x, h: (
        mlp_error(t, x, h) - eq7(t, x, h) + h**2 * x * t.third / 6
    ),
    "eq. 11": lambda t, x, h: glu_error(t, x, h, D, U) - eq11(t, x, h, D, U),
    "eq. 12": lambda t, x, h: glu_error(t, x, h, D, t.second / (2 * D)),
    "eq. 12 with 1.1 times its U_0": lambda t, x, h: glu_error(t, x, h, D, 1.1 * t.second / (2 * D)),
    "eq. 13": lambda t, x, h: glu_error(t, x, h, D, t.second / (2 * D)) - eq13(t, x, h),
}


def mean_power(number: Callable[[Smooth, float], float]) -> Interval:
    """The power of h in a number: the mean of its slopes over the targets, with its t-interval."""
    logs = np.log([[number(t, h) for t in TARGETS.values()] for h in CELLS])
    return t_interval(np.polyfit(np.log(CELLS), logs, 1)[0])


def cell_order(remainder: Callable[[Smooth, Array, float], Array]) -> Interval:
    """The power of h in the largest remainder on the first cell."""
    return mean_power(lambda t, h: np.abs(remainder(t, h * WITHIN, h)).max())


def whole_over_cell(t: Smooth, h: float) -> float:
    """The MLP's error over all cells, over that of the first one."""
    squares = [np.mean(mlp_error(t, h * WITHIN, h, start) ** 2) for start in h * np.arange(round(1 / h))]
    return math.sqrt(np.mean(squares) / squares[0])


def recurrence(f: Array, h: float, *, printed: bool) -> Array:
    """The weights D_i from values f at the knots 0, h, 2h, ...: by eq. 6 as printed, or divided by h throughout."""
    weights = np.zeros(len(f) - 1)
    for i in range(len(weights)):
        so_far = float(np.sum(weights[:i] * h * (i + 1 - np.arange(i))))  # y_{i-1} minus d at the next knot
        rise = f[i + 1] - f[0]
        weights[i] = rise / h - so_far if printed else (rise - so_far) / h
    return weights


def eq6_error(target: Problem, *, printed: bool, cells: int = 50) -> float:
    """The RMSE of the weights by eq. 6, on the target brought to [0, 1]."""
    assert target.f is not None and target.interval is not None
    a, b = target.interval
    x, knots = np.linspace(0, 1, 2001), np.arange(cells + 1) / cells
    f, exact = (np.asarray(target.f(a + (b - a) * points), float) for points in (knots, x))
    y = f[0] + np.maximum(x[:, None] - knots[:-1], 0) @ recurrence(f, 1 / cells, printed=printed)
    return math.sqrt(float(np.mean((y - exact) ** 2)))


def equations_table(target: Problem) -> Table:
    powers = {name: cell_order(remainder) for name, remainder in REMAINDERS.items()}
    powers["eq. 8"] = mean_power(whole_over_cell)
    exact = {f"eq. 8, ratio for {name}": whole_over_cell(t, CELLS[-1]) for name, t in TARGETS.items()}
    sizes = product(TARGETS.values(), CELLS, ((1.0, 0.7), (D, U)))
    exact["eq. 10"] = max(float(np.abs(glu_error(t, np.array([h]), h, *free)).max()) for t, h, free in sizes)
    exact |= {"eq. 6": eq6_error(target, printed=True), "eq. 6 over h": eq6_error(target, printed=False)}
    for unit, q in (("mlp", 0), ("glu", 1)):  # the networks whose parameter count is that of the paper's formula
        formula = [((q + 1) * dx + dy + q + 1) * n + dy for n, dx, dy in NETWORKS]
        counts = [sum(p.numel() for p in as_unit(unit).network(*size).parameters()) for size in NETWORKS]
        exact[f"parameters, {unit}"] = float(np.equal(formula, counts).sum())
    powers |= {name: Interval(value, math.nan, math.nan) for name, value in exact.items()}
    return pd.DataFrame([{"quantity": name, **interval_columns("value", value)} for name, value in powers.items()])


def equation_claims(equations: Table) -> Iterator[Claim]:
    rows = {row["quantity"]: interval_at(row, "value") for row in equations.to_dict("records")}
    numbers = {name: row.value for name, row in rows.items()}
    printed, divided = numbers["eq. 6"], numbers["eq. 6 over h"]
    yield Claim(
        "RMSE of the recurrence for D_i (eq. 6) over that with all of it divided by h", printed / divided, paper=1.0,
        rule="close", place="eq. 6, recurrence for D_i",
        support={"RMSE as printed": printed, "with all of it over h": divided},
        note="50 cells on [0, 1]. As printed y is not divided by h, and a value is subtracted from a slope.",
    )  # fmt: skip
    left_out = "power of h that the truncation error of the {} construction leaves out ({})"
    notes = {
        "eq. 11": "The sign is that of f - y, as stated there and not before eq. 7.",
        "eq. 13": "The constant 1/sqrt(945/2) of eq. 14 is the root mean square of (s³ - s)/6 on a cell.",
    }
    for equation, order, what, place in (
        ("eq. 7", 4, left_out.format("MLP's", "eq. 7"), "truncation error of the MLP"),
        ("eq. 8", 0, "power of h in the whole error over that of one cell (eq. 8)", "error from one cell"),
        ("eq. 11", 4, left_out.format("GLU's", "eq. 11"), "truncation error of the GLU"),
        ("eq. 12", 3, "power of h in the GLU's error on a cell with U_0 = f''/(2 D_0) (eq. 12)", "U_0 cancels f''"),
        ("eq. 13", 4, left_out.format("GLU's", "eq. 13, f'' canceled"), "truncation error after it"),
    ):
        others = {name: value for name, value in numbers.items() if name.startswith(equation) and name != equation}
        more = {"place": f"{equation}, {place}", "support": others, "note": notes.get(equation, "")}
        yield Claim.of(what, rows[equation], float(order), "number", **more)
    zero, largest = "f(h) - y(h) with u_0 of the GLU's construction (eq. 10)", numbers["eq. 10"]
    statements: list[Any] = [(zero, "0, D_0 and U_0 being free", "eq. 10, u_0", largest < 1e-12, {"largest": largest})]
    for unit, formula in COUNTS.items():
        agreeing = int(numbers[f"parameters, {unit}"])
        support = {"networks": len(NETWORKS), "with that number": agreeing}
        place = f"section 3, P of the {unit.upper()}"
        statements.append((f"parameters of the {unit}", formula, place, agreeing == len(NETWORKS), support))
    for what, paper, place, holds, support in statements:
        yield Claim(what, float(holds), paper=paper, rule="holds", place=place, support=support)
