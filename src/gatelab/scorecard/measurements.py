"""Bootstrap intervals of errors, and predictions of a unit's training on given rows.

The bootstrap resamples held-out rows jointly for all networks, whose errors are correlated, and seeds separately for
each; with the usual three seeds its percentiles cover slightly less than 95 %. The kernel is that of LeCun's weights,
expected over initializations; units without a formula get the mean kernel of sampled networks, whose smallest
eigenvalue is biased downwards. Rows have a 1 appended: without a bias, kernels of few inputs are singular.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq

from gatelab.arrays import Array
from gatelab.data import Problem
from gatelab.data.rows import Data, Scale
from gatelab.dynamics import expected_loss
from gatelab.errors import GatelabError
from gatelab.feedforward import AnyUnit, Unit
from gatelab.ntk import Kernel, analytic, empirical, spectrum
from gatelab.scorecard.fits import some_rows
from gatelab.statistics import DRAWS, Interval, percentile_interval, resampled

MOST = 1000  # rows; a larger kernel takes seconds
PER_ROW = 8  # parameters of all sampled networks together, per row
NETWORKS = 64
LONGEST = 1e12  # steps; the remaining directions are rounding


class Draws:
    """The RMSE of networks by name, averaged over seeds, and its bootstrap draws, from squared errors (seeds, rows).

    RMSEs below `least` are rounding and count as `least`.
    """

    def __init__(self, squares: Mapping[Any, Array], *, least: float = 0.0, draws: int = DRAWS) -> None:
        rows = next(iter(squares.values())).shape[1]
        least = max(least, float(np.finfo(np.float64).tiny))
        generator = np.random.default_rng(0)
        counts = generator.multinomial(rows, np.full(rows, 1 / rows), size=draws)
        self.measured: dict[Any, float] = {}
        self.drawn: dict[Any, Array] = {}
        for name, errors in squares.items():
            per_seed = np.sqrt(counts @ errors.T / rows)
            seeds = resampled(len(errors), draws, generator)
            self.drawn[name] = np.maximum(np.take_along_axis(per_seed, seeds, axis=1), least).mean(axis=1)
            self.measured[name] = float(np.maximum(np.sqrt(errors.mean(axis=1)), least).mean())

    def rmse(self, name: Any) -> Interval:
        return percentile_interval(self.measured[name], self.drawn[name])

    def ratio(self, name: Any, other: Any) -> Interval:
        return percentile_interval(self.measured[name] / self.measured[other], self.drawn[name] / self.drawn[other])


def rows_of(problem: Problem, most: int = MOST) -> Data:
    """At most `most` training rows, with standardized inputs and targets, and a 1 appended to the inputs."""
    x = Scale.of(problem.train.x).shrink(problem.train.x)
    y = Scale.of(problem.train.y).shrink(problem.train.y)
    return some_rows(Data(np.hstack([x, np.ones((len(x), 1))]), y), most, 0)


def training(unit: AnyUnit, rows: Data, width: int, loss: float) -> dict[str, Any]:
    """Condition number and predicted steps from the unit's kernel on these rows, as fields of a `Score`."""
    with warnings.catch_warnings():
        # The bounds of the condition number include the subjects of these warnings.
        warnings.simplefilter("ignore", UserWarning)
        kernel, start = expected_kernel(unit, rows, width)
        eigenvalues = spectrum(kernel)
    return {
        "condition": Interval(eigenvalues.condition, *eigenvalues.condition_bounds, level=1.0),
        "sampled": len(start.get("start", ())),
        "steps": steps_to(kernel, rows.y, loss, **start),
    }


def steps_to(kernel: Any, y: Array, loss: float, **start: Any) -> float:
    """Steps at 1 / lambda_max until the loss is `loss` times the targets' mean square, or inf."""
    decay = expected_loss(kernel, y, steps=[0], loss="mean", **start).spectral
    goal = math.log(loss * 0.5 * decay.scale * float(np.sum(y**2)))

    def above(t: float) -> float:
        return float(decay.log_loss(np.array([t]))[0]) - goal

    if above(0.0) <= 0:
        return 0.0
    if above(LONGEST) > 0:
        return math.inf
    # At this rate the loss decreases monotonically.
    power: Any = brentq(lambda power: above(10.0**power), -6, math.log10(LONGEST), xtol=1e-9)
    return float(math.ceil(10.0**power - 1e-6))


def expected_kernel(unit: AnyUnit, rows: Data, width: int) -> tuple[Kernel, dict[str, Any]]:
    """The kernel, and the initial outputs as arguments of `expected_loss`."""
    try:
        return analytic(unit, rows.x, width), {"nngp": analytic(unit, rows.x, width, kind="nngp")}
    except GatelabError:
        if isinstance(unit, Unit) and type(unit) is Unit:
            raise  # it has a formula, so the error is due to the rows
    return mean_kernel(unit, rows, width)


def mean_kernel(unit: AnyUnit, rows: Data, width: int) -> tuple[Kernel, dict[str, Any]]:
    """The mean kernel of sampled networks, and their outputs."""
    product = isinstance(unit, Unit)
    x = torch.from_numpy(rows.x)
    if not product:  # a custom class has its own biases
        x = x[:, :-1].contiguous()
    total, outputs, parameters = torch.zeros(len(x), len(x), dtype=torch.float64), [], 0
    while len(outputs) < NETWORKS and (parameters < PER_ROW * len(x) or not outputs):
        net = unit.network(width, x.shape[1], 1, seed=len(outputs)).eval()
        if product:
            # The 1 in every row is the bias; the network's biases would count twice.
            for name, p in net.named_parameters():
                p.requires_grad_(not name.islower())
        parameters += sum(p.numel() for p in net.parameters() if p.requires_grad)
        total += empirical(net, x).matrix
        with torch.no_grad():
            outputs.append(net(x).numpy())
    start = np.repeat(np.stack(outputs), rows.y.shape[1], axis=2)
    return Kernel(total / len(outputs), unit.name, width), {"start": start}
