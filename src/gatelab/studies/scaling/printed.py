"""Names for the numbers that the paper on scaling prints, read from printed.csv, and for how its table 1 is measured.

Figures are numbered as in the version with eleven of them and an appendix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gatelab.studies.inventory import printed

UNITS = ("mlp", "glu", "gqu")
# Slopes for n = 1 to 50; that of the GQU against P is in the caption of figure 6, which rounds.
PAPER_SLOPES: Mapping[tuple[str, str], float] = {
    (unit, against): float(printed("scaling", f"figure {figure}, {unit.upper()} against {against}"))
    for unit, figure in zip(UNITS, (2, 2, 6), strict=True)
    for against in ("n", "P")
}
# The conclusion of the paper: "to the same error with 15 neurons versus 50".
GLU_FOR_MLP = tuple(int(n) for n in printed("scaling", "section 5, GLU neurons for 50 of the MLP").split(" for "))
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


def table1_slope(problem: str, unit: str) -> float | None:
    """The slope in a cell of table 1; None for a dash.

    >>> table1_slope("Friedman 1", "glu"), table1_slope("Friedman 1", "gqu")
    (-1.0, None)
    """
    cell = printed("scaling", f"table 1, {slope_row(problem, unit, PROTOCOLS['paper'])}")
    if cell == "-":
        return None
    return float(cell)


def slope_row(problem: str, unit: str, protocol: str) -> str:
    """The row of a slope in table 1 and in figures 7 and 8, and the title of the claim on it.

    >>> slope_row("airfoil", "glu", "true split")
    'airfoil, glu, true split'
    """
    return f"{problem}, {unit}, {protocol}"
