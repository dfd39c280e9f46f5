"""What the paper on scaling prints: its numbers, and every place of it that can be measured again.

Figures are numbered as in the version with eleven of them and an appendix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gatelab.studies.definition import Item

UNITS = ("mlp", "glu", "gqu")
# Slopes for n = 1 to 50: figure 2 and table 1; for the GQU against P the caption of figure 6, which rounds.
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
# Table 1, cells as printed: problem, x dim, MLP, GLU, GQU. The paper has no GQU beyond one dimension.
TABLE1 = """
1/(1+cos²πx)  | 1 | -2.13 | -3.08 | -3.55
sin 4x sin 4y | 2 | -0.91 | -1.55 | -
Friedman 1    | 5 | -0.55 | -1.00 | -
Friedman 2    | 4 | -0.75 | -1.12 | -
Friedman 3    | 4 | -0.31 | -0.56 | -
airfoil       | 5 | -0.25 | -0.39 | -
California    | 8 | -0.09 | -0.09 | -
"""
# The text and the figures: the heading, the row or panel of it, the number as printed if there is one, a remark.
PLACES = """
abstract   | L(P) of the MLP                      | -2
abstract   | L(P) of the GLU                      | -3
abstract   | GQU steeper than GLU and MLP
section 1  | MLP, twice the neurons               | 4
section 1  | GLU, twice the neurons               | 8
figure 1   | MLP of two inputs
figure 1   | GLU of two inputs
figure 1   | right: neurons of a GLU of one input
section 3  | P of the MLP                         | (dim_x + dim_y + 1) n + dim_y
section 3  | P of the GLU                         | (2 dim_x + dim_y + 2) n + dim_y
section 3  | partitions                           | n - 1
eq. 6      | recurrence for D_i
eq. 7      | truncation error of the MLP          | O(h^4)
eq. 8      | error from one cell
eq. 9      | constant                             | 1/sqrt(120)
eq. 9      | order                                | -2
eq. 10     | u_0
eq. 11     | truncation error of the GLU          | O(h^4)
eq. 12     | U_0 cancels f''
eq. 13     | truncation error after it            | O(h^4)
eq. 14     | constant                             | 1/sqrt(945/2)
eq. 14     | order                                | -3
figure 2   | MLP against n                        | -2.13
figure 2   | MLP against P                        | -2.18
figure 2   | MLP, caption
figure 2   | GLU against n                        | -3.08
figure 2   | GLU against P                        | -3.12
figure 2   | GLU, caption
section 4  | MLP below the construction
section 4  | GLU below the construction
figure 3   | left and right
figure 4   | (a) and (b)
figure 4   | (a), rate                            | -2
figure 4   | (c)
figure 4   | (d) and (e)
figure 4   | (d), rate                            | -3
figure 4   | (f)
figure 5   | MLP, error
figure 5   | MLP, order
figure 5   | GLU, error
figure 5   | GLU, order
section 5  | GLU neurons for 50 of the MLP        | 15 for 50
figure 6   | GQU against n                        | -3.55 | printed in table 1
figure 6   | GQU against P                        | -3.5
appendix B | MLP at its knots
appendix B | GLU at its knots
appendix C | the slope that was hoped for         | -4
appendix C | steeper than observed                | -3.55
figure 9   | MLP
figure 9   | GLU
figure 10  | four neurons, piecewise linear
figure 11  | four neurons, piecewise quadratic
"""
# What the paper prints once and we measure at the optimum under each protocol, and by our Newton in its stages.
Protocol = Literal["split", "paper"]
PROTOCOLS: Mapping[Protocol, str] = {"split": "true split", "paper": "paper's protocol"}
Reading = Literal["split", "paper", "method"]
READINGS: Mapping[Reading, str] = {**PROTOCOLS, "method": "our Newton in its stages"}
# The paper's code tests these on points of their own: its protocol is a true split, and there is no other.
APART = ("1/(1+cos²πx)", "sin 4x sin 4y")
# The widths over which the paper's code takes slopes, where it says so; it takes all that were run elsewhere.
SLOPE_RANGES: Mapping[tuple[str, str], tuple[int, int]] = {("airfoil", "mlp"): (10, 500), ("airfoil", "glu"): (10, 100)}
STEEPER = "problems on which the GLU is steeper than the MLP"
BY_INPUTS = "slope times dim_x over the slope in one dimension, mlp and glu"
# The panels of figures 7 and 8; the paper has them under its own protocol.
PANELS = {
    "figure 7": ("sin 4x sin 4y", "Friedman 1", "Friedman 2", "Friedman 3"),
    "figure 8": ("airfoil", "California"),
}
NO_NUMBERS = "curves without printed numbers; their slopes are those of table 1"
DEFINITIONS = {
    "eq. 1": "the GLU",
    "eq. 2, 5": "a neuron and a cell",
    "eq. 3": "the law L(D, P)",
    "eq. 4": "the error",
    "eq. 15, 16": "piecewise expansions",
    "eq. 17": "the GQU",
}
STATEMENT = "a statement or a picture, without a number"
DEFINITION = "a definition: the units are built by it, and tested as such"


def table_rows(table: str) -> list[tuple[str, list[str]]]:
    """The rows of a table that is written as text.

    >>> table_rows(TABLE1)[0]
    ('1/(1+cos²πx)', ['1', '-2.13', '-3.08', '-3.55'])
    """
    rows = [[cell.strip() for cell in line.split(" | ")] for line in table.strip().splitlines()]
    return [(first, others) for first, *others in rows]


def table1_slope(problem: str, unit: str) -> float | None:
    """The slope in a cell of table 1; None for a dash.

    >>> table1_slope("Friedman 1", "glu"), table1_slope("Friedman 1", "gqu")
    (-1.0, None)
    """
    _, *slopes = dict(table_rows(TABLE1))[problem]
    cell = slopes[UNITS.index(unit)]
    if cell == "-":
        return None
    return float(cell)


def slope_row(problem: str, unit: str, protocol: str) -> str:
    """The row of a slope in table 1 and in figures 7 and 8, and the title of the claim on it.

    >>> slope_row("airfoil", "glu", "true split")
    'airfoil, glu, true split'
    """
    return f"{problem}, {unit}, {protocol}"


def _table1() -> list[Item]:
    items = []
    for problem, (_, *slopes) in table_rows(TABLE1):
        for unit, printed in zip(UNITS, slopes, strict=True):
            for reading in readings(problem, printed):
                why = {"-": "the paper has a dash"}.get(printed, "")
                items.append(Item("scaling", "table 1", slope_row(problem, unit, READINGS[reading]), printed, why))
    return items


def _places() -> list[Item]:
    items = []
    for heading, (row, *others) in table_rows(PLACES):
        printed, why = (*others, "", "")[:2]
        items.append(Item("scaling", heading, row, printed, why or {"": STATEMENT}.get(printed, "")))
    return items


def readings(problem: str, printed: str) -> tuple[Reading, ...]:
    """How a cell of table 1 is measured: by our Newton where it has a number, at the optimum everywhere.

    >>> readings("Friedman 1", "-0.55"), readings("sin 4x sin 4y", "-")
    (('split', 'paper', 'method'), ('paper',))
    """
    skipped: set[str] = set()
    if problem in APART:
        skipped.add("split")
    if printed == "-":
        skipped.add("method")
    return tuple(reading for reading in READINGS if reading not in skipped)


ITEMS = (
    *_places(),
    *(Item("scaling", heading, row, why=DEFINITION, measurable=False) for heading, row in DEFINITIONS.items()),
    *_table1(),
    *(Item("scaling", "appendix D", f"{STEEPER}, {reading}", why=STATEMENT) for reading in READINGS.values()),
    *(Item("scaling", "appendix D", f"{BY_INPUTS}, {reading}", "1") for reading in READINGS.values()),
    *(
        Item("scaling", figure, slope_row(problem, unit, PROTOCOLS["paper"]), why=NO_NUMBERS)
        for figure, problems in PANELS.items()
        for problem in problems
        for unit in UNITS[:2]
    ),
)
