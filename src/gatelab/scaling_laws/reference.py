"""The experiments of the paper with our Newton solver in the stages of the reference code, and their record.

The code is https://github.com/afqueiruga/divine_scaling. Its procedure, and ours:

- **Data.** For one and two inputs, n uniform points are drawn by `numpy.random` from the seed; the test points are a
  grid of n points or int(sqrt(n)) squared. Friedman's problems are 2000 rows of scikit-learn with `random_state=0`;
  they, airfoil and California are standardized, and tested on their training rows.
- **Start.** For one input the gates are on a grid with alternating signs, and the other parameters are normal, as in
  the paper (the code initializes them like `torch.nn.Linear`). For several inputs all parameters are initialized like
  that.
- **Stages.** Full-batch Newton in float64 takes three steps on each layer, from the output to the gate, and a hundred
  on all parameters ("newton_layer_cascade"). Its line search is strong Wolfe, ours is Armijo's with a look-ahead; if
  the direction is not one of descent, it is replaced by the gradient's.
- **Slopes.** A line through log RMSE against log n over all widths; for airfoil over n = 10 to 500 (MLP) and 10 to 100
  (GLU), the only ranges in the code. For the other problems with many inputs, the ranges are those of our fits.

The number of rows of California in the paper is not known (the first 2000 are the code's default); both are included.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gatelab.data import Problem, problem
from gatelab.data.named.measured import CALIFORNIA_DATA
from gatelab.data.tables import load_measured
from gatelab.errors import unknown_name
from gatelab.feedforward import unit as as_unit
from gatelab.scaling_laws.result import Scaling
from gatelab.solve import fit

SEEDS = 5
FIRST_ROWS = 2000  # of California, by the default of the reference code
POINTS = {"paper-1d": 10_000, "sin4x-sin4y": 2000}


@dataclass(frozen=True)
class Experiment:
    """A problem of the paper with the settings of its reference code, and the widths that are fitted here."""

    name: str  # of the problem, with a remark after a comma
    widths: Mapping[str, tuple[int, ...]]
    further: Mapping[str, tuple[int, ...]]  # fitted if there is time
    solver: str = "newton"  # in the stages of the reference code, or another solver
    seeds: int = SEEDS

    @property
    def problem(self) -> str:
        """The name of the data that are fitted."""
        return self.name.partition(",")[0]


LINE = (1, 2, 3, 4, 5, 7, 10, 14, 20, 28, 35, 42, 50)
PLANE = (8, 11, 16, 23, 32, 45, 64)
SPAN = (8, 12, 16, 24, 32)
ROWS = (2, 3, 4, 6, 8, 12, 16)
AIRFOIL_MLP = (10, 14, 20, 28, 40, 57, 80, 113, 160)
AIRFOIL_GLU = (10, 14, 20, 28, 40, 57, 80, 100)
OPTIMUM = "airfoil, at the optimum"  # over the paper's range of widths, which exceeds that of table 1


def both(widths: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """The same widths for MLP and GLU."""
    return {"mlp": widths, "glu": widths}


# The most important ones first.
EXPERIMENTS = (
    Experiment("airfoil", {"mlp": AIRFOIL_MLP, "glu": AIRFOIL_GLU}, {"mlp": (214,)}),
    Experiment(
        "paper-1d",
        dict.fromkeys(("mlp", "glu", "gqu"), LINE),
        dict.fromkeys(("mlp", "glu", "gqu"), tuple(w for w in range(1, 51) if w not in LINE)),
    ),
    Experiment("sin4x-sin4y", both(PLANE), both((2, 3, 4, 6))),
    *(Experiment(f"friedman{k}", both(SPAN), both((2, 3, 4, 6, 45, 64))) for k in (1, 2, 3)),
    Experiment(f"california, first {FIRST_ROWS} rows", both(ROWS), both((24, 32))),
    Experiment("california", both(ROWS), {}),
    Experiment(OPTIMUM, {}, {"mlp": (*AIRFOIL_MLP, 214), "glu": AIRFOIL_GLU}, solver="varpro", seeds=2),
)


def paper_problem(experiment: str, seed: int) -> Problem:
    """The data of an experiment, as in the reference code.

    >>> plane = paper_problem("sin4x-sin4y", 0)
    >>> plane.train.n, plane.test.n, float(plane.test.x.min()), float(plane.test.x.max())
    (2000, 1936, -1.0, 1.0)
    """
    if experiment not in {e.name for e in EXPERIMENTS}:
        raise unknown_name("experiment", experiment, [e.name for e in EXPERIMENTS])
    if experiment in POINTS:
        return _on_a_grid(experiment, POINTS[experiment], seed)
    if experiment == f"california, first {FIRST_ROWS} rows":
        table = load_measured(CALIFORNIA_DATA)
        rows = table.x[:FIRST_ROWS], table.y[:FIRST_ROWS]
        return Problem.from_arrays(*rows, name=experiment, protocol="paper", standardize=True)
    return problem(experiment.partition(",")[0], protocol="paper")


def _on_a_grid(name: str, n: int, seed: int) -> Problem:
    """Points from numpy's legacy generator with this seed, and a grid of test points."""
    target = problem(name, n=2).f
    inputs = {"paper-1d": 1, "sin4x-sin4y": 2}[name]
    assert target is not None
    drawn = 2 * np.random.RandomState(seed).rand(n, inputs) - 1
    side = int(n ** (1 / inputs))
    line = np.linspace(-1, 1, side)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[line] * inputs)], axis=1)
    x, test = np.squeeze(drawn), np.squeeze(grid)
    return Problem.from_arrays(x, target(x), test=(test, target(test)), name=name)


def newton_options(unit: str, inputs: int) -> dict[str, Any]:
    """Initialization, schedule and steps of the reference code.

    >>> newton_options("glu", 5)
    {'init': 'uniform', 'schedule': 'reference', 'steps': 109}
    """
    layers = getattr(as_unit(unit), "factors", 0) + 2
    start = {1: "spline-alternating"}.get(inputs, "uniform")
    return {"init": start, "schedule": "reference", "steps": 3 * layers + 100}


def fit_as_the_paper(experiment: str, unit: str, width: int, seed: int, solver: str = "newton") -> dict[str, Any]:
    """One fit of an experiment: its errors, status and core seconds."""
    target = paper_problem(experiment, seed)
    options = {}
    if solver == "newton":
        options = newton_options(unit, target.d_in)
    began = time.process_time()
    result = fit(unit, target, width, solver=solver, seed=seed, progress=False, **options)
    return {
        "parameters": result.parameters,
        "train_rmse": result.train_rmse,
        "test_rmse": result.test_rmse,
        "status": str(result.status),
        "steps": result.steps,
        "core_seconds": time.process_time() - began,
    }


def read_curves(record: Mapping[str, Any]) -> dict[str, Scaling]:
    """The curves of a record, by the name of the experiment."""
    return {name: Scaling.from_json(json.dumps(value)) for name, value in record["curves"].items()}
