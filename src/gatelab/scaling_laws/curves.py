"""`scaling`: units x widths x seeds, each fitted, with the theoretical limit beside every point.

A fit is a run of a sweep where it can be described by plain values, and is computed here with joblib where it cannot.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

from gatelab.data import Problem
from gatelab.data import problem as as_problem
from gatelab.data.registry import AnyProblem
from gatelab.data.registry import describe as describe_problem
from gatelab.data.registry import restore as restore_problem
from gatelab.display import ProgressLike, reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import AnyUnit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.definition import check_width
from gatelab.feedforward.registry import describe as describe_unit
from gatelab.feedforward.registry import restore as restore_unit
from gatelab.scaling_laws.result import Flag, Point, Scaling
from gatelab.scaling_laws.slopes import ABOVE, limit, noise_of, noise_rmse, set_by_noise
from gatelab.solve import fit
from gatelab.solve.files import packed
from gatelab.solve.fits import check_fit
from gatelab.sweep import Backend, Record, Run, RunOutcome, Store, map_runs

TASK = "gatelab.scaling_laws.curves:fit_one"


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
) -> RunOutcome:
    """Fit, and keep errors, status and the network, as a file that `gl.load` reads."""
    target = restore_problem(problem)
    result = fit(restore_unit(unit), target, width, solver=solver, seed=seed, progress=False, **options)
    metrics = {
        "parameters": result.parameters,
        "train_rmse": result.train_rmse,
        "test_rmse": result.test_rmse,
        "status": str(result.status),
        "solver": result.solver,
        "steps": result.steps,
    }
    if "import" in unit:
        # A file cannot hold code of a user's own: the parameters alone are kept.
        state = {name: value.detach().numpy() for name, value in result.network.state_dict().items()}
        return RunOutcome(metrics, result.history, arrays=state)
    return RunOutcome(metrics, result.history, arrays=packed(result))


AnySpec = str | AnyUnit | Callable[..., Any]


def scaling(
    units: Iterable[AnySpec] | str,
    problem: AnyProblem,
    widths: Sequence[int],
    seeds: int = 1,
    *,
    solver: str | Callable[..., Any] = "auto",
    jobs: int | None = None,
    backend: Backend | None = None,
    store: Store | str | Path | None = None,
    retry_failed: bool = False,
    max_hours: float | None = None,
    address: str | None = None,
    progress: ProgressLike = None,
    **options: Any,
) -> Scaling:
    """Fit every unit at every width and seed. Equal arguments give bit-equal errors, whatever the backend.

    Args:
        units: one or more units, names, or functions and classes of your own.
        problem: a problem, its name, an expression in x, or a function.
        widths: the numbers of neurons.
        seeds: how many fits for each unit and width.
        solver: as in `fit`.
        jobs: the number of processes, one thread each; all cores by default.
        backend: "serial", "processes" or "ray".
        store: a file in which every fit is kept as it ends, with its network: the same call computes only what is
            missing. A fit that fails is kept too and flagged; without a store, the first failure is raised.
        retry_failed: fit again what is kept as failed.
        max_hours: after them nothing new is begun.
        address: of a cluster of ray; a local one by default.
        progress: shown on a terminal and in a notebook unless it is False, or a function of (done, total, point) that
            is called as each fit ends.
        **options: further options of the solver.

    Returns:
        The points, with slopes, tables and figures.

    >>> study = scaling(["mlp", "glu"], "exp(sin(3*x))", [8, 16, 32], jobs=1)
    >>> study.slope("glu").value < study.slope("mlp").value < -1.5
    True
    """
    tasks, target, names = _tasks(units, problem, widths, seeds, solver)
    bounds = _Bounds.of(dict.fromkeys(u for u, _, _ in tasks), target, sorted({n for _, n, _ in tasks}))
    workers = min(jobs or cores(), len(tasks))
    seconds = None
    if max_hours is not None:
        seconds = 3600 * max_hours
    if store is not None or backend == "ray" or _plain(tasks, solver):
        runs = {run_of(u, target, n, s, _named(solver), options): (u, n, s) for u, n, s in tasks}
        records = map_runs(
            runs,
            store=store,
            backend=backend or ("serial" if workers == 1 else "processes"),
            jobs=workers,
            retry_failed=retry_failed,
            max_seconds=seconds,
            address=address,
        )
        arriving = _points(records, runs, bounds, keep_failures=store is not None)
    else:
        arriving = _unnamed(tasks, bounds, solver, options, workers)
    points: list[Point] = []
    with reporting(progress, "fitting") as report:
        for point in arriving:
            points.append(point)
            if report:
                report(len(points), len(tasks), point)
    if len(points) < len(tasks):
        remedy = "the same call goes on from the store"
        if store is None:
            remedy = "give a store to keep what is done"
        raise GatelabError(f"stopped after {max_hours:g} hours with {len(points)} of {len(tasks)} fits done; {remedy}")
    rank = {name: i for i, name in enumerate(names)}
    return Scaling(target.name, tuple(sorted(points, key=lambda p: (rank[p.unit], p.width, p.seed))))


def scaling_runs(
    units: Iterable[AnySpec] | str,
    problem: AnyProblem,
    widths: Sequence[int],
    seeds: int = 1,
    *,
    solver: str = "auto",
    **options: Any,
) -> tuple[Run, ...]:
    """The runs that `scaling` would ask for, for `gatelab.sweep.plan`.

    Args:
        units: as in `scaling`.
        problem: as in `scaling`.
        widths: the numbers of neurons.
        seeds: how many fits for each unit and width.
        solver: the name of a solver.
        **options: further options of the solver.

    Returns:
        A run for each fit, wide networks first.
    """
    tasks, target, _ = _tasks(units, problem, widths, seeds, solver)
    return tuple(run_of(u, target, n, s, solver, options) for u, n, s in tasks)


Task = tuple[AnyUnit, int, int]


def _tasks(
    units: Iterable[AnySpec] | str, problem: Any, widths: Sequence[int], seeds: int, solver: Any
) -> tuple[list[Task], Problem, list[str]]:
    if isinstance(units, str) or callable(units):
        units = [units]
    chosen = [as_unit(u) for u in units]
    names = [u.name for u in chosen]
    if len(set(names)) < len(names):
        raise GatelabError(f"units must have different names, got {', '.join(names)}")
    if not chosen or not len(widths):
        raise GatelabError("give at least one unit and one width")
    whole_number("seeds", seeds, 1)
    target = as_problem(problem)
    sizes = sorted({check_width(w) for w in widths})
    for u in chosen:
        check_fit(u, target, sizes[-1], solver)
    # Wide networks first: the last to finish are then short ones and no core waits.
    return [(u, n, s) for n in reversed(sizes) for u in chosen for s in range(seeds)], target, names


def _named(solver: Any) -> str:
    if not isinstance(solver, str):
        raise GatelabError("a solver of your own has no name to be stored by; leave out store and backend='ray'")
    return solver


def _plain(tasks: list[Task], solver: Any) -> bool:
    """Whether the runs can be described: a lambda as unit, say, cannot, and is sent to the processes as it is."""
    try:
        for u in dict.fromkeys(u for u, _, _ in tasks):
            run_of(u, as_problem("x2", n=4), 1, 0, _named(solver), {})
    except GatelabError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class _Bounds:
    """What the errors of a study are held against: limits by unit and width, and the noise of the problem's data."""

    problem: Problem
    limits: dict[str, dict[int, float]]
    noise: float

    @classmethod
    def of(cls, units: Iterable[AnyUnit], problem: Problem, widths: list[int]) -> _Bounds:
        return cls(problem, {u.name: limits_of(u, problem, widths) for u in units}, noise_of(problem) or 0.0)

    def point(self, unit: str, width: int, seed: int, metrics: Any, seconds: float) -> Point:
        """The point of a fit, with its limit and its flag."""
        train, test, status = float(metrics["train_rmse"]), float(metrics["test_rmse"]), str(metrics["status"])
        parameters, problem, bound = metrics["parameters"], self.problem, self.limits[unit][width]
        ratio = np.nan
        if bound > 0:
            ratio = test / bound
        flag: Flag = ""
        if status == "floor" or test <= 1e-12 * float(np.abs(problem.train.y).max()):
            flag = "floor"
        elif 2 * parameters >= problem.train.n * problem.d_out:
            flag = "interpolation"
        elif set_by_noise(test, noise_rmse(problem, self.noise, parameters)):
            flag = "noise"
        elif ratio > ABOVE:
            flag = "optimiser"
        return Point(
            unit=unit,
            width=width,
            parameters=parameters,
            seed=seed,
            train_rmse=train,
            test_rmse=test,
            limit=bound,
            ratio=ratio,
            flag=flag,
            status=status,
            seconds=seconds,
        )

    def failure(self, unit: AnyUnit, width: int, seed: int, seconds: float) -> Point:
        """The point of a fit that did not end."""
        return Point(
            unit=unit.name,
            width=width,
            parameters=unit.parameter_count(width, self.problem.d_in, self.problem.d_out),
            seed=seed,
            train_rmse=np.nan,
            test_rmse=np.nan,
            limit=self.limits[unit.name][width],
            ratio=np.nan,
            flag="failed",
            status="failed",
            seconds=seconds,
        )


def _points(records: Iterable[Record], runs: dict[Run, Task], bounds: _Bounds, keep_failures: bool) -> Iterator[Point]:
    for record in records:
        u, n, s = runs[record.run]
        if record.ok:
            yield bounds.point(u.name, n, s, record.metrics, record.seconds)
        elif keep_failures:
            yield bounds.failure(u, n, s, record.seconds)
        else:
            text = record.error or "no reason given"
            name, _, message = text.strip().splitlines()[-1].partition(": ")
            if name.endswith("GatelabError"):
                raise GatelabError(message)
            raise RuntimeError(f"a fit failed\n\n{text}")


def _unnamed(tasks: list[Task], bounds: _Bounds, solver: Any, options: dict[str, Any], workers: int) -> Iterator[Point]:
    """Units and solvers that only this process knows: sent along by value, which joblib can."""
    fit_task = partial(fit_here, problem=bounds.problem, solver=solver, options=options)
    if workers == 1:
        results = map(fit_task, tasks)
    else:
        with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
            parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
            results = parallel(joblib.delayed(fit_task)(task) for task in tasks)
    for name, n, s, metrics, seconds in results:  # pyright: ignore[reportGeneralTypeIssues, reportOptionalIterable]
        yield bounds.point(name, n, s, metrics, seconds)


def fit_here(
    task: Task, *, problem: Problem, solver: Any, options: dict[str, Any]
) -> tuple[str, int, int, dict[str, Any], float]:
    """One fit with one thread: the unit's name, the width, the seed, what was measured, and the seconds."""
    unit, width, seed = task
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        result = fit(unit, problem, width, solver=solver, seed=seed, progress=False, **options)
    finally:
        torch.set_num_threads(threads)
    metrics = {name: getattr(result, name) for name in ("parameters", "train_rmse", "test_rmse", "status")}
    return unit.name, width, seed, metrics, result.seconds


def limits_of(unit: AnyUnit, problem: Problem, widths: list[int]) -> dict[int, float]:
    """The limit at each width; NaN where there is none: smooth gates, several inputs, data that do not determine it."""
    if unit.order is None or problem.interval is None or problem.d_out != 1:
        return dict.fromkeys(widths, np.nan)
    try:
        return dict(zip(widths, map(float, limit(unit, problem, np.array(widths))), strict=True))
    except GatelabError:
        if problem.f is not None:
            raise
        return dict.fromkeys(widths, np.nan)


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
