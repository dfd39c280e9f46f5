"""How far errors can be told apart, and how well a unit trains on given rows.

Two networks err on the same hard rows, so that their errors go up and down together; drawn apart, their intervals
overlap long after the difference is certain. So test rows are drawn with replacement, the same for every network, and
the seeds of each network apart. Intervals are percentiles of 2000 draws. With the usual three seeds they cover somewhat
less than they say.

How a unit trains is told by the condition number of its tangent kernel, and by steps to a loss. Rows are standardised,
and have a 1 appended: the networks that are compared have biases, and without them rows of few inputs are multiples of
each other, whose kernels are singular. The kernel is that of LeCun's weights, expected over initialisations, of as many
neurons as the budget allows. Units without a formula for it get the mean kernel of many networks, whose smallest
eigenvalue is too small rather than too large.

Steps are those of gradient descent on all rows in the kernel regime (`gl.dynamics.expected_loss`), at 1 / lambda_max,
half of the largest rate that is stable for that unit, until the given share of the targets' mean square is left.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq

from gatelab.arrays import Array
from gatelab.data import Problem
from gatelab.data.rows import Scale
from gatelab.display import Compact
from gatelab.dynamics import expected_loss
from gatelab.errors import GatelabError
from gatelab.feedforward import AnyUnit, Unit
from gatelab.ntk import Kernel, analytic, empirical, spectrum
from gatelab.statistics import DRAWS, Interval, percentile_interval, resampled

PART = 2**22  # numbers in memory at once
MOST = 1000  # rows: a kernel of more takes seconds
PER_ROW = 8  # parameters of all sampled networks together, for each row
NETWORKS = 64
LONGEST = 1e12  # steps: beyond it the directions that are left are rounding


@dataclass(frozen=True, eq=False)
class Draws(Compact):
    """RMSE of every network as measured, and in every draw of test rows and seeds, (networks, draws)."""

    measured: Array
    drawn: Array

    def rmse(self, i: int) -> Interval:
        """The error of network i."""
        return percentile_interval(float(self.measured[i]), self.drawn[i])

    def ratio(self, i: int, j: int) -> Interval:
        """The error of network i over that of network j; the interval of a network with itself is 1."""
        return percentile_interval(float(self.measured[i] / self.measured[j]), self.drawn[i] / self.drawn[j])


def draw(squares: Sequence[Array], *, least: float = 0.0, draws: int = DRAWS, seed: int = 0) -> Draws:
    """Draws of the mean over seeds of the RMSE, from squared errors (seeds, rows) of each network.

    RMSEs below `least` count as `least`: of errors that are all rounding none is the smaller.

    >>> rng = np.random.default_rng(0)
    >>> hard = rng.exponential(size=200)                     # how hard each row is, for both networks
    >>> errors = draw([hard[None], 1.1 * hard[None]])
    >>> print(errors.rmse(0)); print(errors.ratio(1, 0))
    1.06 [0.996, 1.13]
    1.05 [1.05, 1.05]
    """
    rows = squares[0].shape[1]
    least = max(least, float(np.finfo(np.float64).tiny))
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(rows, np.full(rows, 1 / rows), size=draws)
    measured, drawn = [], []
    for errors in squares:
        per_seed = np.empty((draws, len(errors)))
        step = max(1, PART // rows)
        for i in range(0, draws, step):
            per_seed[i : i + step] = np.sqrt(counts[i : i + step] @ errors.T / rows)
        seeds = resampled(len(errors), draws, generator)
        drawn.append(np.maximum(np.take_along_axis(per_seed, seeds, axis=1), least).mean(axis=1))
        measured.append(np.maximum(np.sqrt(errors.mean(axis=1)), least).mean())
    return Draws(np.array(measured), np.array(drawn))


@dataclass(frozen=True, eq=False)
class MeasuredRows:
    """Standardised inputs with a 1 appended, standardised targets, and whether they are a part of what was given."""

    x: Array
    y: Array
    sampled: bool = False


@dataclass(frozen=True)
class TrainingEstimate:
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


def rows_of(problem: Problem, most: int = MOST, seed: int = 0) -> MeasuredRows:
    """The training rows, at most `most` of them, drawn by the seed."""
    x = Scale.of(problem.train.x).shrink(problem.train.x)
    y = Scale.of(problem.train.y).shrink(problem.train.y)
    x = np.hstack([x, np.ones((len(x), 1))])
    if len(x) <= most:
        return MeasuredRows(x, y)
    rows = np.sort(np.random.default_rng(seed).choice(len(x), most, replace=False))
    return MeasuredRows(x[rows], y[rows], True)


def check_loss(loss: float) -> float:
    """The loss as a float, refused unless it is a share."""
    if not isinstance(loss, int | float) or not 0 < loss < 1:
        raise GatelabError(
            f"loss is {loss!r}; give the share of the target's variance that may be left, between 0 and 1"
        )
    return float(loss)


def training(unit: AnyUnit, rows: MeasuredRows, width: int, loss: float) -> TrainingEstimate:
    """What the kernel of the unit on these rows says of its training."""
    loss = check_loss(loss)
    with warnings.catch_warnings():
        # What they warn of is in the bounds, and becomes a caveat.
        warnings.simplefilter("ignore", UserWarning)
        kernel, start = expected_kernel(unit, rows, width)
        eigenvalues = spectrum(kernel)
    low, high = eigenvalues.condition_bounds
    return TrainingEstimate(
        condition=eigenvalues.condition,
        condition_low=low,
        condition_high=high,
        resolved=eigenvalues.status == "resolved",
        steps=steps_to(kernel, rows.y, loss, **start),
        networks=len(start.get("start", ())),
    )


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
    power: Any = brentq(lambda power: above(10.0**power), -6, math.log10(LONGEST), xtol=1e-9)
    return float(math.ceil(10.0**power - 1e-6))


def expected_kernel(unit: AnyUnit, rows: MeasuredRows, width: int) -> tuple[Kernel, dict[str, Any]]:
    """The kernel, and the initial outputs as `expected_loss` takes them."""
    try:
        return analytic(unit, rows.x, width), {"nngp": analytic(unit, rows.x, width, kind="nngp")}
    except GatelabError:
        if isinstance(unit, Unit) and type(unit) is Unit:
            raise  # it has a formula: what is wrong is the rows
    return mean_kernel(unit, rows, width)


def mean_kernel(unit: AnyUnit, rows: MeasuredRows, width: int) -> tuple[Kernel, dict[str, Any]]:
    """The mean of the kernels of sampled networks, and their outputs; what `analytic` is the expectation of."""
    product = isinstance(unit, Unit)
    inputs = rows.x
    if not product:  # a user's class has biases of its own
        inputs = np.ascontiguousarray(rows.x[:, :-1])
    x = torch.from_numpy(inputs)
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
