"""Splines of degree 1, 2 and 3 with equally spaced control nodes: the paper's baselines (fig. 5)."""

from __future__ import annotations

import numpy as np
from scipy.interpolate import make_lsq_spline

from gatelab.errors import GatelabError
from gatelab.problems import problem as as_problem
from gatelab.problems.registry import AnyProblem


def spline_baseline(degree: int, problem: AnyProblem, nodes: int) -> tuple[float, float]:
    """Train and test RMSE of the least-squares spline with `nodes` control nodes, ends included.

    >>> train, test = spline_baseline(1, "paper-1d", 50)
    >>> f"{test:.1e}"
    '5.4e-04'
    """
    target = as_problem(problem)
    if degree not in (1, 2, 3):
        raise GatelabError(f"degree is {degree}; the baselines are splines of degree 1, 2 and 3")
    if nodes < 2:
        raise GatelabError(f"nodes is {nodes}; a spline has two ends, give 2 or more")
    if target.interval is None:
        raise GatelabError(f"splines need one input, problem {target.name!r} has {target.d_in}")
    a, b = target.interval
    inner = np.linspace(a, b, nodes)[1:-1]
    knots = np.concatenate((np.full(degree + 1, a), inner, np.full(degree + 1, b)))
    rank = np.argsort(target.train.x[:, 0], kind="stable")
    try:
        fitted = make_lsq_spline(target.train.x[rank, 0], target.train.y[rank, 0], knots, degree)
    except (ValueError, np.linalg.LinAlgError):
        raise GatelabError(
            f"{target.train.n} points do not determine a spline of {nodes} nodes; give more data or fewer nodes"
        ) from None
    train, test = (
        float(np.sqrt(np.mean(np.square(fitted(d.x[:, 0]) - d.y[:, 0])))) for d in (target.train, target.test)
    )
    return train, test
