"""`fit` and `fit_many`: any unit, any problem, any solver, one result type."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from gatelab.data import Problem
from gatelab.data import problem as as_problem
from gatelab.data.registry import AnyProblem
from gatelab.data.rows import Scales, matrix, names_of, require_range
from gatelab.display import ProgressLike, counted, one_line, part_of, reporting, shorten
from gatelab.errors import GatelabError, check_seeds, unknown_name
from gatelab.feedforward import AnyUnit, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.definition import check_rows, check_width
from gatelab.feedforward.specification import check_widths
from gatelab.solve.files import write
from gatelab.solve.solution import Solution, Status, check_fit_memory
from gatelab.solve.solvers import SOLVERS, Solver, poles
from gatelab.solve.solvers.varpro import varpro_many

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Above this ratio of test to training error a fit is overfitted.
OVERFITTED = 2.0


@dataclass(frozen=True)
class Fit:
    """A fitted network, its errors and how it was found; errors are those of the network's forward pass.

    `train_rmse` and `test_rmse` are in the units of the problem that was fitted: if it was standardized (`scales` is
    then not None), in standard deviations of the target, as in the papers. `test_rmse_raw` is the test error in the
    units of the target. `predict` takes and returns raw values in either case; `network` alone is a function of the
    data as they were fitted.

    `seconds` covers all seeds; `network` is the one with the smallest training error. `steps` is its number of
    iterations from start to end, `history` the training RMSE after each. `columns` and `targets` are the names of
    inputs and targets, if the data have names.
    """

    unit: str
    problem: str
    width: int
    parameters: int
    solver: str
    seed: int
    network: nn.Module
    train_rmse: float
    test_rmse: float
    test_rmse_raw: float
    status: Status
    steps: int
    seconds: float
    history: tuple[float, ...]
    d_in: int
    scales: Scales | None = None
    columns: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return one_line(
            self,
            f"{self.unit}, width {self.width}, {shorten(self.problem)}: test RMSE {self.test_rmse:.2g}, "
            f"{self.status} in {counted(self.steps, 'step')}",
        )

    @property
    def advice(self) -> str:
        """The next step to take, in one sentence: against overfitting, or by the status."""
        # At the rounding of float64 both errors are noise.
        times = self.test_rmse / max(self.train_rmse, 1e-300)
        if times <= (1000 * OVERFITTED if self.status is Status.FLOOR else OVERFITTED):
            return self.status.advice
        return (
            f"overfitted: the test error is {times:.2g} times the training error; give more training rows, fewer"
            " neurons (a smaller width), or a ridge (solver='varpro', ridge=1e-3)"
        )

    def predict(self, x: Any) -> np.ndarray:
        """The targets at rows x, both in the units of the data, standardized or not.

        x (N, d_in) gives (N, d_out). With one input x may also be (N,) or a number, and with one output the result then
        has the same shape. Columns of a pandas table are selected by name, in any order, if the fit has names.

        >>> line = as_problem("100 + 50*x", n=40, standardize=True)
        >>> model = fit("mlp", line, 2)
        >>> model.predict([0.0, 0.5]).round(6), float(model.predict(0.5).round(6))
        (array([100., 125.]), 125.0)
        """
        values = predict(self.network, self.scaled(self.rows(x)))
        if self.scales is not None:
            values = self.scales.y.stretch(values)
        if np.ndim(x) == 2:
            return values
        outputs = values.shape[1:] if values.shape[1] > 1 else ()
        return values.reshape((*np.shape(x), *outputs))

    def rows(self, x: Any) -> np.ndarray:
        """x as finite raw numbers, (N, d_in)."""
        if self.columns and (names := names_of(x)):
            missing = [name for name in self.columns if name not in names]
            if missing:
                raise GatelabError(
                    f"x has no column {', '.join(map(repr, missing))}, only {', '.join(map(repr, names))}; give a table"
                    f" with {', '.join(map(repr, self.columns))}, or an array of these {self.d_in} columns in this"
                    " order"
                )
            x = x[list(self.columns)]
        if np.isscalar(x):
            x = np.asarray(x)
        rows = matrix(x.reshape(1) if getattr(x, "ndim", 1) == 0 else x, "x")
        if rows.shape[1] != self.d_in:
            raise GatelabError(
                f"x has the shape {tuple(np.shape(x))} and the network has {self.d_in} input{'s' * (self.d_in != 1)}; "
                f"give an array of the shape (N, {self.d_in}), one row per example"
            )
        return rows

    def scaled(self, rows: np.ndarray) -> np.ndarray:
        """Raw rows scaled for the network."""
        if self.scales is None:
            return rows
        return self.scales.x.shrink(rows)

    def save(self, path: str | Path) -> Path:
        """Write the fit as safetensors, numbers and text only; `gl.load(path)` restores it bit by bit.

        Units are stored by gate and factors: your own functions and classes are refused.
        """
        return write(self, path)

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """The training error after each step, and the test error at the end.

        Written to `path` (.png, .svg or .pdf) if given, and drawn into the axes `ax` if given.
        """
        from gatelab.plotting import look, saved
        from gatelab.plotting.functions import thinned
        from gatelab.plotting.kernels import PlotLine, lines_figure

        color, steps = look(self.unit).color, thinned(len(self.history))
        errors, ends = np.array(self.history, dtype=np.float64)[steps], np.array([1.0, max(2, len(self.history))])
        lines = [
            PlotLine("training", 1 + steps.astype(np.float64), errors, color=color, marker="o" * (len(steps) < 30)),
            PlotLine("test, at the end", ends, np.full(2, self.test_rmse), color=color, predicted=True),
        ]
        title = f"{self.unit} of width {self.width} on {self.problem}"
        return saved(lines_figure(lines, title, y="RMSE", ax=ax), path)

    def _repr_html_(self) -> str:
        from gatelab.plotting.theme import html

        rows = [
            ("test RMSE", f"{self.test_rmse:.3e}"),
            ("training RMSE", f"{self.train_rmse:.3e}"),
            ("parameters", str(self.parameters)),
            ("solver", f"{self.solver}, {counted(self.steps, 'step')}, seed {self.seed}"),
            ("status", f"{self.status}: {self.advice}"),
            ("time", f"{self.seconds:.2f} s"),
        ]
        return html(f"{self.unit} of width {self.width}, fitted to {self.problem}", rows, figure=self.plot())

    def as_row(self) -> dict[str, Any]:
        """Everything but the network and the history, as plain values."""
        names = ("unit", "problem", "width", "parameters", "solver", "seed", "train_rmse", "test_rmse", "test_rmse_raw")
        row = {name: getattr(self, name) for name in names}
        return row | {"status": str(self.status), "advice": self.advice, "steps": self.steps, "seconds": self.seconds}


def fit(
    unit: str | AnyUnit | Callable[..., Any],
    problem: AnyProblem,
    width: int,
    *,
    solver: str | Solver = "auto",
    seed: int = 0,
    seeds: int | Sequence[int] = 1,
    progress: ProgressLike = None,
    **options: Any,
) -> Fit:
    """Train a network with one or several seeds and return the one with the smallest training error.

    Args:
        unit: a unit, its name, or your own function or class.
        problem: a problem, its name, an expression in x, or a function.
        width: the number of neurons.
        solver: a name in `SOLVERS`, your own function, or "auto": the knot solver where it applies (one input, one
            output, a relu-gated unit), the pole solver for smooth gates with one input and one output, and variable
            projection elsewhere.
        seed: the first seed.
        seeds: the number of seeds, or the seeds themselves, such as [3, 4].
        progress: shown on a terminal and in a notebook unless it is False, or a function of (done, total).
        **options: further options of the solver. `steps`, of all solvers, is the maximum number of iterations of a
            network from its start to its end. `start`, of knots, poles and varpro, is a fit to start from: of this unit
            or of a unit that it contains, with at most `width` neurons.

    Returns:
        A `Fit` with the network and its errors.

    >>> result = fit("glu", "exp(sin(3*x))", 25)
    >>> result.status.value, result.test_rmse < 1e-4
    ('converged', True)
    """
    chosen, target = as_unit(unit), as_problem(problem)
    numbers, width = check_seeds(seeds, seed), check_width(width)
    name, run = check_fit(chosen, target, width, solver, options)
    check_rows(chosen, width, target.d_in, target.d_out)
    check_options(name, run, options)
    began = time.perf_counter()
    inner = "progress" in inspect.signature(run).parameters
    solutions: list[tuple[float, int, Solution]] = []
    with reporting(progress, f"fitting {chosen.name}") as report:
        for s in numbers:
            more = {}
            if inner:
                more = {"progress": part_of(report, len(solutions), len(numbers))}
            solution = run(chosen, target, width, seed=s, **options, **more)
            solutions.append((rmse(solution.network, target.train.x, target.train.y), s, solution))
            if report and not inner:
                report(len(solutions), len(numbers))
    _, seed, solution = min(solutions, key=lambda one: one[0])
    seconds = time.perf_counter() - began
    return _as_fit(chosen, target, width, solution, solver=name, seed=seed, seconds=seconds)


def _as_fit(
    unit: AnyUnit, problem: Problem, width: int, solution: Solution, *, solver: str, seed: int, seconds: float
) -> Fit:
    raw_residual = predict(solution.network, problem.test.x) - problem.test.y
    if problem.scales is not None:
        # In the units of the target, each output in its own.
        raw_residual = raw_residual * problem.scales.y.deviation
    return Fit(
        unit=unit.name, problem=problem.name, width=width, solver=solver, seed=seed, network=solution.network,
        parameters=unit.parameter_count(width, problem.d_in, problem.d_out),
        train_rmse=rmse(solution.network, problem.train.x, problem.train.y),
        test_rmse=rmse(solution.network, problem.test.x, problem.test.y),
        test_rmse_raw=math.sqrt(float(np.mean(np.square(raw_residual)))),
        status=solution.status, steps=solution.steps, seconds=seconds, history=solution.history,
        d_in=problem.d_in, scales=problem.scales, columns=problem.columns, targets=problem.targets,
    )  # fmt: skip


def fit_many(
    unit: str | AnyUnit | Callable[..., Any],
    problem: AnyProblem,
    widths: Sequence[int],
    seeds: int | Sequence[int] = 1,
    *,
    seed: int = 0,
    progress: ProgressLike = None,
    **options: Any,
) -> tuple[Fit, ...]:
    """One fit per width and seed, by variable projection in one batch; each equals `fit(..., solver="varpro")`.

    Args:
        unit: a unit, its name, or your own function.
        problem: a problem, its name, an expression in x, or a function.
        widths: the numbers of neurons.
        seeds: the number of seeds per width, or the seeds themselves.
        seed: the first seed.
        progress: as in `fit`.
        **options: those of `varpro_many`; `device="cuda"` computes the batch on a GPU.

    Returns:
        The fits, by width and then by seed; `seconds` is the time of the batch divided by the number of fits.

    >>> [f.width for f in fit_many("glu", "x**2 + y**2", [1, 2], starts=1, rounds=0)]
    [1, 2]
    """
    chosen, target = as_unit(unit), as_problem(problem)
    members = list(product(check_widths(widths), check_seeds(seeds, seed)))
    for width in dict.fromkeys(width for width, _ in members):
        check_fit(chosen, target, width, "varpro")
    check_rows(chosen, members[0][0], target.d_in, target.d_out)
    check_options("varpro", varpro_many, options)
    began = time.perf_counter()
    with reporting(progress, f"fitting {chosen.name}") as report:
        solutions = varpro_many(chosen, target.train.x, target.train.y, members, progress=report, **options)
    share = (time.perf_counter() - began) / len(members)
    return tuple(
        _as_fit(chosen, target, width, solution, solver="varpro", seed=s, seconds=share)
        for (width, s), solution in zip(members, solutions, strict=True)
    )


def check_options(name: str, solver: Callable[..., object], options: Mapping[str, Any]) -> None:
    """Raise an error for an option that the solver does not have."""
    parameters = inspect.signature(solver).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    unknown = [option for option in options if option not in known]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise GatelabError(f"the solver {name!r} has no option {unknown[0]!r}; it takes {', '.join(known)}")


def check_fit(
    unit: AnyUnit, problem: Problem, width: int, solver: str | Solver, options: Collection[str] = ()
) -> tuple[str, Solver]:
    """The solver's name and function; raises errors that are known before the computation."""
    for data in (problem.train, problem.test):
        require_range(data.x, data.y)
    values, sizes = problem.train.n * problem.d_out, (problem.d_in, problem.d_out)
    parameters = unit.parameter_count(width, *sizes)
    if parameters > values:
        first, second = (unit.parameter_count(n, *sizes) for n in (1, 2))
        widest = 1 + (values - first) // max(second - first, 1)
        remedy = "give more data" + f" or a width of at most {widest}" * (widest > 0)
        raise GatelabError(
            f"{unit.name} of width {width} has {parameters} parameters but the training data have only {values} "
            f"values; {remedy}"
        )
    if solver == "auto":
        line = problem.d_in == problem.d_out == 1 and problem.interval is not None
        solver = "varpro"
        if line and unit.gate_power is not None:
            solver = "knots"
        elif poles.applies(unit, problem) and {"steps", "start"}.issuperset(options):
            solver = "poles"
    if callable(solver):
        name, run = getattr(solver, "__name__", "custom"), solver
    elif solver in SOLVERS:
        name, run = solver, SOLVERS[solver]
    else:
        raise unknown_name("solver", str(solver), ("auto", *SOLVERS))
    # Variable projection checks the memory itself, on its device.
    if name != "varpro" or not isinstance(unit, Unit):
        check_fit_memory(name, unit, width, problem.train.n, sizes)
    return name, run


def predict(network: nn.Module, x: np.ndarray) -> np.ndarray:
    """The network's forward pass, in slices of bounded memory.

    Args:
        network: a module that takes float64 rows (N, d_in).
        x: the rows, (N, d_in) or (N,).

    Returns:
        Its outputs (N, d_out); (N,) of rows (N,) where there is one output.
    """
    rows = torch.from_numpy(np.ascontiguousarray(x[:, None] if x.ndim == 1 else x))
    slice_rows = max(1, 2**22 // max(1, getattr(network, "width", 64)))
    with torch.no_grad():
        out = torch.cat([network(part) for part in rows.split(slice_rows)]).numpy()
    return out[:, 0] if x.ndim == 1 and out.shape[1] == 1 else out


def rmse(network: nn.Module, x: np.ndarray, y: np.ndarray) -> float:
    """The root mean squared error of the forward pass, over rows and outputs.

    Args:
        network: a module that takes float64 rows (N, d_in).
        x: the rows, (N, d_in) or (N,).
        y: the targets, in the shape that `predict` returns.

    Returns:
        The error, in the units of y.
    """
    return math.sqrt(float(np.mean(np.square(predict(network, x) - y))))
