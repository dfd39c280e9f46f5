"""How much memory a fit takes, by solver, before it is begun.

Estimates of the largest arrays, measured to be within a factor of two for networks of some megabytes and more:

    varpro, each network     4 (N, m + p) arrays and 6 squares of m + p: what is linear, and what moves
    newton                   6 Hessians (P, P), and pieces of the Jacobian of bounded size
    adam, lbfgs              3 (factors + 2) arrays (N, width) that the backward pass keeps or makes
    knots, frozen            3 arrays (N, width) for the exact error, 3 (width, width) for the gates' facing
"""

from __future__ import annotations

import torch

from gatelab.memory import check_memory
from gatelab.units import AnyUnit, FunctionUnit, Unit

_PAIRS = 50  # of L-BFGS: two vectors of all parameters each


def fit_bytes(solver: str, unit: AnyUnit, width: int, n: int, d_in: int, d_out: int) -> int:
    """The bytes that one fit of `width` neurons to n rows takes at its largest; of a solver of one's own, the network.

    >>> from gatelab.units import unit
    >>> fit_bytes("newton", unit("glu"), 100, 1000, 1, 1) / 8 == 6 * 501**2
    True
    """
    parameters = unit.parameter_count(width, d_in, d_out)
    factors = getattr(unit, "factors", 0)
    if solver == "varpro":
        lines = isinstance(unit, Unit) and not isinstance(unit, FunctionUnit) and factors > 0 and d_out == 1
        linear = width * (d_in + 1) if lines else width
        moving = width * (d_in + 1) * (factors + 1 - lines)
        columns = linear + moving + 1
        return 8 * (4 * n * columns + 6 * columns**2)
    if solver == "newton":
        return 8 * 6 * parameters**2
    if solver in ("adam", "lbfgs"):
        return 8 * (3 * (factors + 2) * n * width + (2 * _PAIRS if solver == "lbfgs" else 4) * parameters)
    if solver in ("knots", "frozen"):
        return 8 * 3 * width * (n + width)
    return 8 * parameters


def check_fit_memory(
    solver: str, unit: AnyUnit, width: int, n: int, sizes: tuple[int, int], device: str | torch.device = "cpu"
) -> None:
    """Refuse a fit that would not fit; `sizes` are the numbers of inputs and outputs."""
    check_memory(
        fit_bytes(solver, unit, width, n, *sizes),
        f"a fit of {unit.name}, width {width}, to {n} rows by {solver}",
        "give a smaller width or fewer rows",
        device,
    )
