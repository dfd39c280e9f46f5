"""`limit`: the free-knot limit of a unit on a problem, the line that no training passes for long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gatelab.errors import GatelabError
from gatelab.problems import Problem
from gatelab.problems import problem as as_problem
from gatelab.theory import free_knot_rmse, norm_of_data, norm_of_function
from gatelab.theory.limits import sigma
from gatelab.units import AnyUnit
from gatelab.units import unit as as_unit
from gatelab.units.unit import check_width


def limit(unit: str | AnyUnit | Callable[..., Any], problem: str | Callable | Problem, width: Any) -> Any:
    """c_m n^-m ||f^(m)||_{L_sigma} / sqrt(|I|): the RMSE that the best n cells tend to, for a width or an array.

    From the function where the problem has one, else estimated from its training data.

    >>> float(f"{limit('glu', 'paper-1d', 50):.3e}")
    1.068e-05
    """
    chosen, target = as_unit(unit), as_problem(problem)
    if chosen.order is None:
        raise GatelabError(f"{chosen.name!r} has no known algebraic rate, so no limit; look at its local slopes")
    if target.interval is None or target.d_out != 1:
        raise GatelabError(f"the free-knot limit is for one input and one output, not for problem {target.name!r}")
    widths = np.vectorize(check_width, otypes=[float])(np.asarray(width, dtype=object))
    value = free_knot_rmse(_norm(target, chosen.order), widths, chosen.order, target.interval[1] - target.interval[0])
    return float(value) if np.ndim(width) == 0 else value


def _norm(problem: Problem, order: int) -> float:
    assert problem.interval is not None
    if problem.f is not None:
        return norm_of_function(problem.f, problem.interval, order, sigma(order))
    return norm_of_data(problem.train.x[:, 0], problem.train.y[:, 0], problem.interval, order, sigma(order))
