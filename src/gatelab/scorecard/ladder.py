"""Which networks are fitted: for every unit the widths that come nearest below the same numbers of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gatelab.errors import GatelabError
from gatelab.units import AnyUnit
from gatelab.units.unit import check_width

SHARE = 4  # values of the data for each parameter of the default budget
MOST = 160  # parameters of the default budget: what a few units can be fitted with in half a minute on one core
RUNGS = 7  # budgets for slopes, each below the one before by the root of 2: an eighth at the end


def default_budget(units: Sequence[AnyUnit], d_in: int, d_out: int, values: int) -> int:
    """A quarter of the values of the data, 160 at most, and enough for one neuron of every unit."""
    least = max(u.parameter_count(1, d_in, d_out) for u in units)
    return max(min(values // SHARE, MOST), least)


def widest(unit: AnyUnit, budget: int, d_in: int, d_out: int) -> int | None:
    """The width whose parameters come nearest to the budget from below; None where one neuron has more.

    >>> from gatelab.units import unit
    >>> widest(unit("glu"), 80, 3, 1), widest(unit("mlp"), 80, 3, 1), widest(unit("gqu"), 10, 3, 1)
    (8, 15, None)
    """
    if unit.parameter_count(1, d_in, d_out) > budget:
        return None
    low, high = 1, 2
    while unit.parameter_count(high, d_in, d_out) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if unit.parameter_count(middle, d_in, d_out) <= budget else (low, middle)
    return low


def at_budget(unit: AnyUnit, budget: int, d_in: int, d_out: int) -> int:
    """`widest`, or the error that says what budget would do."""
    found = widest(unit, budget, d_in, d_out)
    if found is None:
        least = unit.parameter_count(1, d_in, d_out)
        raise GatelabError(
            f"one neuron of {unit.name} has {least} parameters on {d_in} inputs and the budget is {budget}; "
            f"give a budget of {least} or more, or leave {unit.name} out"
        )
    return found


def widths_of(
    unit: AnyUnit, budget: int, d_in: int, d_out: int, widths: Sequence[int] | None = None
) -> tuple[int, ...]:
    """The widths at which a unit is fitted, the one of the budget last; those given are the same for every unit.

    >>> from gatelab.units import unit
    >>> widths_of(unit("glu"), 80, 3, 1)
    (1, 2, 3, 4, 6, 8)
    """
    last = at_budget(unit, budget, d_in, d_out)
    if widths is not None:
        return tuple(sorted({last, *(check_width(w) for w in widths)}))
    rungs = (widest(unit, int(budget / 2 ** (k / 2)), d_in, d_out) for k in range(RUNGS))
    return tuple(sorted({w for w in rungs if w}))


def check_budget(budget: Any) -> int:
    if isinstance(budget, bool) or not hasattr(budget, "__index__") or int(budget) < 1:
        raise GatelabError(f"budget is {budget!r}; give a number of parameters, such as 100")
    return int(budget)
