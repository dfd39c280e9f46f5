"""`scaling`: fits of units at several widths and seeds; lambdas are sent to workers as pickles."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle
import numpy as np
import torch
from joblib import cpu_count

from gatelab.data import Problem
from gatelab.data import problem as as_problem
from gatelab.data.registry import AnyProblem
from gatelab.data.registry import describe as describe_problem
from gatelab.data.registry import restore as restore_problem
from gatelab.display import ProgressLike, reporting
from gatelab.errors import GatelabError, check_seeds, whole_number
from gatelab.feedforward import AnyUnit, Network, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.registry import describe as describe_unit
from gatelab.feedforward.registry import restore as restore_unit
from gatelab.feedforward.specification import check_widths
from gatelab.scaling_laws.result import Flag, Point, Scaling
from gatelab.scaling_laws.slopes import ABOVE, limit, noise_of, noise_rmse, set_by_noise
from gatelab.solve import fit
from gatelab.solve.constructions import contains
from gatelab.solve.files import packed, restored_network
from gatelab.solve.fits import check_fit
from gatelab.sweep import Backend, Record, Run, RunOutcome, Store, map_runs
from gatelab.sweep.backends import check_backend, opened, seconds_of, stopped

# Training errors with a smaller relative difference are considered equal.
_EQUAL = 1e-9
TASK, UNNAMED_TASK = "gatelab.scaling_laws.curves:fit_one", "gatelab.scaling_laws.curves:fit_unnamed"
Task = tuple[AnyUnit, int, int]  # a unit, a width and a seed
Key = tuple[str, int, int]  # with the unit's name


def run_of(task: Task, problem: Problem, solver: str, options: Mapping[str, Any], start: Network | None = None) -> Run:
    """The run of a fit; equal arguments give equal runs in every process and on every machine."""
    unit, width, seed = task
    if not isinstance(solver, str):
        raise GatelabError("a custom solver cannot be stored by name; leave out store and backend='ray'")
    arguments: dict[str, Any] = {"unit": describe_unit(unit), "problem": describe_problem(problem)}
    arguments |= {"width": width, "seed": seed, "solver": solver, "options": dict(options)}
    if start is not None:
        parameters = {name: value.tolist() for name, value in start.state_dict().items()}
        arguments["start"] = {"unit": describe_unit(start.unit), "width": start.width, "parameters": parameters}
    return Run(TASK, arguments)


def fit_one(
    unit: Mapping[str, Any],
    problem: Mapping[str, Any],
    width: int,
    seed: int,
    solver: str,
    options: Mapping[str, Any],
    start: Mapping[str, Any] | None = None,
) -> RunOutcome:
    """Fit a unit that has a description."""
    target, how = restore_problem(problem), dict(options)
    if start is not None:
        begin = restore_unit(start["unit"])
        assert isinstance(begin, Unit)
        state = {name: torch.tensor(value, dtype=torch.float64) for name, value in start["parameters"].items()}
        how["start"] = restored_network(begin, start["width"], target.d_in, target.d_out, state)
    result = fit(restore_unit(unit), target, width, solver=solver, seed=seed, progress=False, **how)
    return outcome_of(result, whole="import" not in unit)  # a file cannot hold the code of a custom unit


def fit_unnamed(*, by_value: bytes, **_: Any) -> RunOutcome:
    """Fit a unit or solver that came as a pickle."""
    unit, problem, width, seed, solver, options = cloudpickle.loads(by_value)
    result = fit(unit, problem, width, solver=solver, seed=seed, progress=False, **options)
    return outcome_of(result)


def outcome_of(result: Any, whole: bool = False) -> RunOutcome:
    """Errors, status and the parameters of the network, or with `whole` all that `gl.load` reads."""
    names = ("parameters", "train_rmse", "test_rmse", "status", "solver", "steps")
    metrics = {name: getattr(result, name) for name in names} | {"status": str(result.status)}
    state = {name: value.detach().numpy() for name, value in result.network.state_dict().items()}
    return RunOutcome(metrics, result.history, arrays=packed(result) if whole else state)


AnySpec = str | AnyUnit | Callable[..., Any]


def scaling(
    units: Iterable[AnySpec] | str,
    problem: AnyProblem,
    widths: Sequence[int] | Mapping[str, Sequence[int]],
    seeds: int | Sequence[int] = 1,
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
    """Fit every unit at every width and seed. Equal arguments give bitwise equal errors with every backend.

    A fit with a larger training error than a network that it contains is repeated from that network; see `Point`.

    Args:
        units: one or more units, names, functions or classes.
        problem: a problem, its name, an expression in x, or a function.
        widths: the numbers of neurons, or those of each unit by its name.
        seeds: the number of fits per unit and width, or their seeds, such as [3, 4].
        solver: as in `fit`.
        jobs: the number of processes with one thread each; all cores by default.
        backend: "serial", "processes" or "ray".
        store: a file that keeps every finished fit with its network; the same call computes only missing fits. Without
            one, the first failure is raised.
        retry_failed: repeat fits that failed.
        max_hours: after which no new fit starts.
        address: of a ray cluster; a local one by default.
        progress: False for no progress bar, or a function of (done, total, point) that is called after each fit.
        **options: further options of the solver.

    Returns:
        The points, with slopes, tables and figures.

    >>> study = scaling(["mlp", "glu"], "exp(sin(3*x))", [8, 16, 32], jobs=1)
    >>> study.slope("glu").value < study.slope("mlp").value < -1.5
    True
    """
    tasks, target, names = _tasks(units, problem, widths, seeds, solver)
    workers = min(cpu_count() if jobs is None else whole_number("jobs", jobs, 1), len(tasks))
    how: Backend = backend or (("processes", "serial")[workers == 1])
    check_backend(how, address)
    seconds = seconds_of(max_hours)
    end = time.monotonic() + (seconds or math.inf)
    points: dict[Key, Point] = {}
    with TemporaryDirectory() as folder, reporting(progress, "fitting") as report:
        networks = Path(folder, "networks.db") if store is None else store
        named = store is not None or how == "ray" or _describable(tasks, solver)
        fits = _Fits(tasks, target, solver, options, networks, named)
        runs = {fits.run(task): task for task in tasks}
        limits = {"retry_failed": retry_failed, "max_seconds": seconds, "address": address}
        for record in map_runs(runs, store=networks, backend=how, jobs=workers, **limits):
            if not record.ok and store is None:
                raise_error(record)
            point = fits.point(runs[record.run], record)
            points[point.unit, point.width, point.seed] = point
            if report:
                report(len(points), len(tasks), point)
        if len(points) < len(tasks):
            raise stopped(max_hours, f"{len(points)} of {len(tasks)} fits", store)
        if not options.get("ridge"):
            points = nested(tasks, points, lambda task, source: fits.refit(task, source, end))
    rank = {name: i for i, name in enumerate(names)}
    return Scaling(target.name, tuple(sorted(points.values(), key=lambda p: (rank[p.unit], p.width, p.seed))))


def scaling_runs(
    units: Iterable[AnySpec] | str,
    problem: AnyProblem,
    widths: Sequence[int],
    seeds: int | Sequence[int] = 1,
    *,
    solver: str = "auto",
    **options: Any,
) -> tuple[Run, ...]:
    """The runs of a call of `scaling`, for `gatelab.sweep.plan`.

    Args:
        units: as in `scaling`.
        problem: as in `scaling`.
        widths: the numbers of neurons.
        seeds: the number of fits per unit and width, or their seeds, such as [3, 4].
        solver: the name of a solver.
        **options: further options of the solver.

    Returns:
        One run per fit, wide networks first.
    """
    tasks, target, _ = _tasks(units, problem, widths, seeds, solver)
    return tuple(run_of(task, target, solver, options) for task in tasks)


def _tasks(
    units: Iterable[AnySpec] | str, problem: Any, widths: Any, seeds: Any, solver: Any
) -> tuple[list[Task], Problem, list[str]]:
    if isinstance(units, str) or callable(units) or not isinstance(units, Iterable):
        units = [units]
    chosen = [as_unit(u) for u in units]
    names = [u.name for u in chosen]
    if len(set(names)) < len(names):
        raise GatelabError(f"the names of the units are {', '.join(names)}; give different names")
    if not chosen:
        raise GatelabError("units is empty; give at least one unit, such as ['mlp', 'glu']")
    if not isinstance(widths, Mapping):
        widths = dict.fromkeys(names, widths)
    if set(widths) != set(names):
        raise GatelabError(f"widths are for {', '.join(widths)}; give them for {', '.join(names)}")
    target, sizes = as_problem(problem), {name: set(check_widths(widths[name])) for name in names}
    numbers = check_seeds(seeds)
    for u in chosen:
        check_fit(u, target, max(sizes[u.name]), solver)
    # Wide networks first: the last fits are then short, and no core is idle.
    every = sorted(set().union(*sizes.values()), reverse=True)
    return [(u, n, s) for n in every for u in chosen if n in sizes[u.name] for s in numbers], target, names


def _describable(tasks: list[Task], solver: Any) -> bool:
    """Whether the runs have a description in plain values, which a lambda does not."""
    with suppress(GatelabError):
        for u, _, _ in tasks:
            describe_unit(u)
        return isinstance(solver, str)
    return False


@dataclass(eq=False)
class _Fits:
    """The fits of a call of `scaling`: their runs, the store of their networks, and limits of their errors."""

    tasks: Sequence[Task]
    problem: Problem
    solver: Any
    options: dict[str, Any]
    store: Store | str | Path
    named: bool
    refits: dict[Key, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = sorted({n for _, n, _ in self.tasks})
        self.limits = {u.name: limits_of(u, self.problem, sizes) for u in dict.fromkeys(u for u, _, _ in self.tasks)}
        self.noise = noise_of(self.problem) or 0.0

    def run(self, task: Task, start: Network | None = None) -> Run:
        """The run of a fit, which starts from a network if one is given."""
        if self.named:
            return run_of(task, self.problem, self.solver, self.options, start)
        unit, width, seed = task
        options = self.options if start is None else {**self.options, "start": start}
        value = cloudpickle.dumps((unit, self.problem, width, seed, self.solver, options))
        arguments = {"unit": unit.name, "width": width, "seed": seed, "again": start is not None}
        return Run(UNNAMED_TASK, arguments, {"by_value": value})

    def point(self, task: Task, record: Record) -> Point:
        """The point of a fit, with its limit and its flag; that of one that did not end has no errors."""
        unit, width, seed = task
        problem, bound, metrics = self.problem, self.limits[unit.name][width], record.metrics
        if not record.ok:
            parameters = unit.parameter_count(width, problem.d_in, problem.d_out)
            metrics = {"parameters": parameters, "train_rmse": np.nan, "test_rmse": np.nan, "status": "failed"}
        train, test, status = float(metrics["train_rmse"]), float(metrics["test_rmse"]), str(metrics["status"])
        parameters, ratio = metrics["parameters"], test / bound if bound > 0 else np.nan
        flag = flag_of(problem, parameters, test, status)
        if status == "failed":
            flag = "failed"
        elif not flag and set_by_noise(test, noise_rmse(problem, self.noise, parameters)):
            flag = "noise"
        elif not flag and ratio > ABOVE:
            flag = "optimizer"
        return Point(
            unit=unit.name, width=width, parameters=parameters, seed=seed, train_rmse=train, test_rmse=test,
            limit=bound, ratio=ratio, flag=flag, status=status, seconds=record.seconds,
        )  # fmt: skip

    def network(self, task: Task) -> Network:
        """The network of a fit, or of its refit."""
        unit, width, seed = task
        key = self.refits.get((unit.name, width, seed)) or self.run(task).key
        with opened(self.store) as database:
            arrays = None if database is None else database.get_arrays(key)
        if arrays is None or not isinstance(unit, Unit):
            raise GatelabError(f"there is no network of {key} in the store; repeat the fit with a new store")
        state = {name: torch.tensor(value) for name, value in arrays.items()}
        return restored_network(unit, width, self.problem.d_in, self.problem.d_out, state)

    def refit(self, task: Task, source: Task, end: float) -> Point | None:
        """Repeat a fit from the network of another; None if the solver takes no start or the time is over."""
        name, _ = check_fit(task[0], self.problem, task[1], self.solver, self.options)
        if name not in ("knots", "poles", "varpro") or "start" in self.options or time.monotonic() > end:
            return None
        try:
            run = self.run(task, self.network(source))
            (record,) = map_runs([run], store=self.store)
            if not record.ok:
                raise_error(record)
        except GatelabError:
            return None  # `nested` then reports the larger error
        self.refits[task[0].name, task[1], task[2]] = run.key
        return self.point(task, record)


def raise_error(record: Record) -> None:
    """Raise the error of a run in this process."""
    text = record.error or "no reason given"
    name, _, message = text.strip().splitlines()[-1].partition(": ")
    if name.endswith("GatelabError"):
        raise GatelabError(message)
    raise RuntimeError(f"a fit failed\n\n{text}")


def nested(
    tasks: Sequence[Task], points: Mapping[Key, Point], refit: Callable[[Task, Task], Point | None]
) -> dict[Key, Point]:
    """The points of a study, with fits repeated whose training error exceeds that of a network that they contain.

    `refit(task, source)` repeats a fit from the network of another, or returns None. Seeds are treated separately.
    """
    points, chosen = dict(points), list(dict.fromkeys(u for u, _, _ in tasks))
    seeds = sorted({s for _, _, s in tasks})
    # Units come after those that they contain, whose errors are final by then.
    for unit in sorted(chosen, key=lambda u: sum(contains(u, other) for other in chosen)):
        contained = [u for u in chosen if u != unit and contains(unit, u)]
        widths = sorted({n for u, n, _ in tasks if u == unit})
        for i, width in enumerate(widths):
            for seed in seeds:
                task, key = (unit, width, seed), (unit.name, width, seed)
                sources = [(u, width, seed) for u in contained if (u.name, width, seed) in points]
                if i and contains(unit, unit):
                    sources.append((unit, widths[i - 1], seed))
                errors = {source: points[source[0].name, *source[1:]].train_rmse for source in sources}
                measured = {source: error for source, error in errors.items() if np.isfinite(error)}
                if not measured or not _larger(points[key], min(measured.values())):
                    continue
                source = min(measured, key=lambda s: measured[s])
                name, before = f"the {source[0].name} of width {source[1]}", points[key]
                after = refit(task, source)
                if after is not None and after.train_rmse < before.train_rmse:
                    points[key] = replace(after, seconds=before.seconds + after.seconds, start=name)
                if _larger(points[key], measured[source]):
                    points[key] = replace(points[key], breaks=f"{name} has {measured[source]:.2e}")
    return points


def _larger(point: Point, error: float) -> bool:
    """Whether the training error of a point exceeds another by more than rounding."""
    return point.status != "floor" and point.train_rmse > (1 + _EQUAL) * error


def flag_of(problem: Problem, parameters: int, error: float, status: str) -> Flag:
    """Why an error says nothing of its unit: it is rounding, or there is a parameter for every other value."""
    if status == "floor" or error <= 1e-12 * float(np.abs(problem.train.y).max()):
        return "floor"
    return "interpolation" if 2 * parameters >= problem.train.n * problem.d_out else ""


def limits_of(unit: AnyUnit, problem: Problem, widths: list[int]) -> dict[int, float]:
    """The limit at each width; NaN for smooth gates, several inputs, or data that do not determine it."""
    try:
        return dict(zip(widths, map(float, limit(unit, problem, np.array(widths))), strict=True))
    except GatelabError:
        return dict.fromkeys(widths, np.nan)
