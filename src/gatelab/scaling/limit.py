"""What bounds the error of a unit on a problem: the free-knot limit, and the noise of the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gatelab.errors import GatelabError
from gatelab.problems import Problem
from gatelab.problems import problem as as_problem
from gatelab.problems.checks import require_range
from gatelab.problems.registry import AnyProblem
from gatelab.theory import estimation_rmse, free_knot_rmse, noise_of_data, norm_of_data, norm_of_function
from gatelab.theory.limits import sigma
from gatelab.units import AnyUnit
from gatelab.units import unit as as_unit
from gatelab.units.unit import check_width

# Training, or noise, has a say where the error is so many times what it would be without.
ABOVE = 1.1


def limit(unit: str | AnyUnit | Callable[..., Any], problem: AnyProblem, width: Any) -> Any:
    """c_m n^-m ||f^(m)||_{L_sigma} / sqrt(|I|): the RMSE that the best n cells tend to, for a width or an array.

    From the function where the problem has one, else estimated from its training data, and refused where these do not
    determine it: the error says how noisy they are, or that they have a kink.

    >>> float(f"{limit('glu', 'paper-1d', 50):.3e}")
    1.068e-05
    """
    chosen, target = as_unit(unit), as_problem(problem)
    if chosen.order is None:
        raise GatelabError(f"{chosen.name!r} has no known algebraic rate, so no limit; look at its local slopes")
    if target.interval is None or target.d_out != 1:
        raise GatelabError(f"the free-knot limit is for one input and one output, not for problem {target.name!r}")
    require_range(target.train.x, target.train.y)
    widths = np.vectorize(check_width, otypes=[float])(np.asarray(width, dtype=object))
    value = free_knot_rmse(_norm(target, chosen.order), widths, chosen.order, target.interval[1] - target.interval[0])
    return float(value) if np.ndim(width) == 0 else value


def _norm(problem: Problem, order: int) -> float:
    assert problem.interval is not None
    if problem.f is not None:
        return norm_of_function(problem.f, problem.interval, order, sigma(order))
    return norm_of_data(problem.train.x[:, 0], problem.train.y[:, 0], problem.interval, order, sigma(order))


def noise_of(problem: Problem) -> float | None:
    """The standard deviation of the noise on the training targets: known, or estimated with one input; else None.

    >>> noise_of(as_problem("sin4x", n=200, noise=0.1))
    0.1
    """
    if problem.noise is not None or problem.interval is None or problem.d_out != 1:
        return problem.noise
    return noise_of_data(problem.train.x[:, 0], problem.train.y[:, 0], problem.interval)


def noise_rmse(problem: Problem, noise: float, parameters: int) -> float:
    """What noise of that deviation leaves in the test RMSE of a fit with P parameters to N values, however good it is.

    sigma (P/N)^1/2 on test points that are clean, as those of a function are; sigma (1 + P/N)^1/2 on rows that are as
    noisy as the training rows; sigma (1 - P/N)^1/2 on the training rows themselves, the paper's protocol.

    >>> round(noise_rmse(as_problem("sin4x", n=400, noise=0.1), 0.1, 16), 6)
    0.02
    """
    estimation = float(estimation_rmse(noise, parameters, problem.train.n * problem.d_out))
    if problem.test is problem.train:
        return float(np.sqrt(max(noise**2 - estimation**2, 0.0)))
    if problem.f is not None:
        return estimation
    return float(np.hypot(noise, estimation))


def set_by_noise(error: float, floor: float) -> bool:
    """Whether an error would be less by a tenth or more without what noise leaves in it.

    >>> set_by_noise(1.0, 0.4), set_by_noise(1.0, 0.5)
    (False, True)
    """
    return floor**2 > (1 - ABOVE**-2) * error**2
