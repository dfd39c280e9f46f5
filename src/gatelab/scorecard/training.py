"""How well a unit trains on given rows: the condition number of its tangent kernel, and steps to a loss.

Rows are standardised, and have a 1 appended: the networks that are compared have biases, and without them rows of few
inputs are multiples of each other, whose kernels are singular. The kernel is that of LeCun's weights, expected over
initialisations, of as many neurons as the budget allows. Units without a formula for it get the mean kernel of many
networks, whose smallest eigenvalue is too small rather than too large.

Steps are those of gradient descent on all rows in the kernel regime (`gl.dynamics.expected_loss`), at 1 / lambda_max,
half of the largest rate that is stable for that unit, until the given share of the targets' mean square is left.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq

from gatelab.dynamics import expected_loss
from gatelab.errors import GatelabError
from gatelab.ntk import Kernel, analytic, empirical, spectrum
from gatelab.problems import Problem
from gatelab.problems.standardise import Scale
from gatelab.units import AnyUnit, Unit

Array = NDArray[np.float64]
MOST = 1000  # rows: a kernel of more takes seconds
PER_ROW = 8  # parameters of all sampled networks together, for each row
NETWORKS = 64
LONGEST = 1e12  # steps: beyond it the directions that are left are rounding


@dataclass(frozen=True, eq=False)
class Rows:
    """Standardised inputs with a 1 appended, standardised targets, and whether they are a part of what was given."""

    x: Array
    y: Array
    sampled: bool = False


@dataclass(frozen=True)
class Training:
    """The condition number with its bounds, inf where float64 cannot tell; the predicted steps; what to know of both.

    `resolved` says whether the condition number is known, else only `condition_low` is; `networks` is how many were
    sampled, 0 where the kernel has a formula.
    """

    condition: float
    condition_low: float
    condition_high: float
    resolved: bool
    steps: float
    networks: int


def rows_of(problem: Problem, most: int = MOST, seed: int = 0) -> Rows:
    """The training rows, at most `most` of them, drawn by the seed."""
    x = Scale.of(problem.train.x).shrink(problem.train.x)
    y = Scale.of(problem.train.y).shrink(problem.train.y)
    x = np.hstack([x, np.ones((len(x), 1))])
    if len(x) <= most:
        return Rows(x, y)
    kept = np.sort(np.random.default_rng(seed).choice(len(x), most, replace=False))
    return Rows(x[kept], y[kept], True)


def check_loss(loss: float) -> float:
    if not isinstance(loss, int | float) or not 0 < loss < 1:
        raise GatelabError(
            f"loss is {loss!r}; give the share of the target's variance that may be left, between 0 and 1"
        )
    return float(loss)


def training(unit: AnyUnit, rows: Rows, width: int, loss: float) -> Training:
    """What the kernel of the unit on these rows says of its training."""
    loss = check_loss(loss)
    with warnings.catch_warnings():
        # What they warn of is in the bounds, and becomes a caveat.
        warnings.simplefilter("ignore", UserWarning)
        kernel, start = _kernel(unit, rows, width)
        found = spectrum(kernel)
    low, high = found.condition_bounds
    count = len(start["start"]) if "start" in start else 0
    steps = steps_to(kernel, rows.y, loss, **start)
    return Training(found.condition, low, high, found.status == "resolved", steps, count)


def steps_to(kernel: Any, y: Array, loss: float, **start: Any) -> float:
    """Steps at 1 / lambda_max until `loss` times the targets' mean square is left; inf where that is never.

    `start` is what `expected_loss` takes to know the initial outputs.

    >>> steps_to(np.diag([2.0, 1.0]), np.ones((2, 1)), 0.125, start=np.zeros(2))      # (1 + 1/4^t) / 2, but one is gone
    1.0
    """
    course = expected_loss(kernel, y, steps=[0], loss="mean", **start).spectral
    goal = math.log(loss * 0.5 * course.scale * float(np.sum(y**2)))

    def above(t: float) -> float:
        return float(course.log_loss(np.array([t]))[0]) - goal

    if above(0.0) <= 0:
        return 0.0
    if above(LONGEST) > 0:
        return math.inf
    # The loss falls at every step, for no direction overshoots at this rate.
    found: Any = brentq(lambda power: above(10.0**power), -6, math.log10(LONGEST), xtol=1e-9)
    return float(math.ceil(10.0**found - 1e-6))


def _kernel(unit: AnyUnit, rows: Rows, width: int) -> tuple[Kernel, dict[str, Any]]:
    """The kernel, and the initial outputs as `expected_loss` takes them."""
    try:
        return analytic(unit, rows.x, width), {"nngp": analytic(unit, rows.x, width, kind="nngp")}
    except GatelabError:
        if isinstance(unit, Unit) and type(unit) is Unit:
            raise  # it has a formula: what is wrong is the rows
    return mean_kernel(unit, rows, width)


def mean_kernel(unit: AnyUnit, rows: Rows, width: int) -> tuple[Kernel, dict[str, Any]]:
    """The mean of the kernels of sampled networks, and their outputs; what `analytic` is the expectation of."""
    product = isinstance(unit, Unit)
    x = torch.from_numpy(rows.x if product else np.ascontiguousarray(rows.x[:, :-1]))
    total, outputs, parameters = torch.zeros(len(x), len(x), dtype=torch.float64), [], 0
    while len(outputs) < NETWORKS and (parameters < PER_ROW * len(x) or not outputs):
        net = unit.network(width, x.shape[1], 1, seed=len(outputs)).eval()
        if product:
            # The 1 in every row is the bias; a second one would count twice.
            for name, p in net.named_parameters():
                p.requires_grad_(not name.islower())
        parameters += sum(p.numel() for p in net.parameters() if p.requires_grad)
        total += empirical(net, x).matrix
        with torch.no_grad():
            outputs.append(net(x).numpy())
    start = np.repeat(np.stack(outputs), rows.y.shape[1], axis=2)
    return Kernel(total / len(outputs), unit.name, width), {"start": start}
