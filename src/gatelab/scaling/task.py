"""One fit as a task of a sweep: plain values in, plain values out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatelab.problems.describe import describe as describe_problem
from gatelab.problems.describe import restore as restore_problem
from gatelab.problems.problem import Problem
from gatelab.solve import fit
from gatelab.solve.files import packed
from gatelab.sweep import Outcome, Run
from gatelab.units import AnyUnit
from gatelab.units.describe import describe as describe_unit
from gatelab.units.describe import restore as restore_unit

TASK = "gatelab.scaling.task:fit_one"


def run_of(unit: AnyUnit, problem: Problem, width: int, seed: int, solver: str, options: Mapping[str, Any]) -> Run:
    """The run that fits this unit; equal arguments make equal runs, in every process and on every machine."""
    return Run(
        TASK,
        {
            "unit": describe_unit(unit),
            "problem": describe_problem(problem),
            "width": width,
            "seed": seed,
            "solver": solver,
            "options": dict(options),
        },
    )


def fit_one(
    unit: Mapping[str, Any],
    problem: Mapping[str, Any],
    width: int,
    seed: int,
    solver: str,
    options: Mapping[str, Any],
) -> Outcome:
    """Fit, and keep errors, status and the network, as a file that `gl.load` reads."""
    done = fit(restore_unit(unit), restore_problem(problem), width, solver=solver, seed=seed, progress=False, **options)
    metrics = {
        "parameters": done.parameters,
        "train_rmse": done.train_rmse,
        "test_rmse": done.test_rmse,
        "status": str(done.status),
        "solver": done.solver,
        "steps": done.steps,
    }
    if "import" in unit:
        # Code of a user's own cannot be told in a file: the parameters alone are kept.
        state = {name: value.detach().numpy() for name, value in done.network.state_dict().items()}
        return Outcome(metrics, done.history, arrays=state)
    return Outcome(metrics, done.history, arrays=packed(done))
