"""The GQU2 of the paper's code, relu(Gx + g) times any quadratic: the GQU without the constraint of real roots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gatelab.data import Problem
from gatelab.feedforward import Unit
from gatelab.linalg.splines import cell_data
from gatelab.scaling_laws import limit
from gatelab.solve.free_knots import Spline, density, optimize
from gatelab.solve.solution import UNLIMITED
from gatelab.solve.solvers.knots import KnotTask
from gatelab.theory import constant

C0_CUBIC = 1 / 5040  # the limit's constant for C0 cubic splines


class AnyRoots(KnotTask):
    """Networks of relu(Gx + g) times any quadratic: the roots need not be real.

    At its knot t a neuron adds (x - t) times any quadratic, which is all that a C0 cubic spline can have there.
    """

    @property
    def multiplicity(self) -> int:
        """Three derivatives may jump at a knot: all but the value."""
        return 3


def any_roots_spline(target: Problem, width: int) -> Spline:
    """The best GQU2 of that number of neurons, as the C0 cubic spline with free knots that it is.

    n neurons make n cells: one of them is open from the left end on, and supplies any cubic.
    """
    assert target.interval is not None
    order = np.argsort(target.train.x[:, 0])
    x, y = target.train.x[order, 0], target.train.y[order, 0]
    generator = np.random.default_rng(0)
    task = AnyRoots(Unit("relu", 2), x, y, target.interval, 0, generator, starts=4, steps=UNLIMITED)
    start, _ = task.free_spline(density(x, y, target.interval, 3), width - 1, task.starts)
    assert start is not None
    return optimize(start, steps=200)[0]


def without_real_roots(target: Problem, widths: Sequence[int]) -> pd.DataFrame:
    """The best errors of the GQU2 by width; its constant is the error times n^4 over the norm in theory's limit."""
    order = np.argsort(target.test.x[:, 0])
    x, y = target.test.x[order, 0], target.test.y[order, 0]
    norm = limit("gqu", target, 1) / constant(4)
    rows = []
    for width in widths:
        spline = any_roots_spline(target, width)
        error = float(np.sqrt(np.mean(cell_data(x, y, spline.breaks, 3).residual(spline.z) ** 2)))
        numbers = {"width": width, "parameters": 6 * width + 1, "train_rmse": spline.rmse, "test_rmse": error}
        rows.append(numbers | {"limit": norm * C0_CUBIC * width**-4.0, "constant": error * width**4 / norm})
    return pd.DataFrame(rows)
