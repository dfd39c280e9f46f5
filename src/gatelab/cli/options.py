"""Options that commands share, each declared once, in groups that belong together.

Typer reads one option from each parameter of a function and knows no groups. `grouped` lets a command take a frozen
dataclass as one parameter, and shows typer one parameter for each of its fields. The methods of a group turn what the
user has typed into values: a problem, the settings of a solver, the keywords of a sweep.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from gatelab.cli import interrupts, reading
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import either
from gatelab.solve.solvers import SOLVERS

if TYPE_CHECKING:
    from gatelab.data import Problem
    from gatelab.sweep import Plan, Run

Command = Callable[..., None]
SOLVER_HELP = f"{either(('auto', *SOLVERS))}."


def grouped(command: Command) -> Command:
    """Let a command take groups of options: parameters whose type is a dataclass, with an option in each field.

    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: int = 8
    ...     depth: int = 1
    >>> @grouped
    ... def build(*, name: str, size: Size) -> None:
    ...     print(name, size.width, size.depth)
    >>> list(inspect.signature(build).parameters)
    ['name', 'width', 'depth']
    >>> build(name="glu", width=16)
    glu 16 1
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        options = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            option = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, annotation=options[field.name])
            if field.default is not MISSING:
                option = option.replace(default=field.default)
            parameters.append(option)

    @functools.wraps(command)
    def call(**values: Any) -> None:
        built = {}
        for name, group in groups.items():
            built[name] = group(
                **{field.name: values.pop(field.name) for field in fields(group) if field.name in values}
            )
        command(**values, **built)

    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


# ---- units, problems and how the answer looks


def complete_unit(incomplete: str) -> list[str]:
    """The units that begin so, for the shell; after a comma the next one."""
    from gatelab.feedforward.named import CATALOGUE

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in CATALOGUE if name.startswith(last.lower())]


def complete_word(incomplete: str) -> list[str]:
    """Units and problems that begin so, for the shell."""
    from gatelab.data.named import CATALOGUE

    return complete_unit(incomplete) + [name for name in CATALOGUE if name.startswith(incomplete.lower())]


def unit_option(default: str = "") -> Any:
    """Units by --unit, in every command; `default` says which are used where none is named."""
    return typer.Option(
        *("--unit", "--units"),
        metavar="UNIT",
        help="Units, often or with commas.",
        show_default=default or False,
        autocompletion=complete_unit,
    )


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="UNIT|PROBLEM",
        help="Units, and a problem's name or a formula.",
        show_default=False,
        autocompletion=complete_word,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of tables.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds.")]


# ---- data


@dataclass(frozen=True)
class TableOptions:
    """A file with data, and which of its columns are used."""

    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CSV, Parquet, .npy or .npz file, for the problem.")
    ] = None
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]", help="Its columns to predict, by name or number.", show_default="the last"),
    ] = None
    inputs: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]", help="Its columns to predict from.", show_default="all others"),
    ] = None
    standardise: Annotated[
        bool | None,
        typer.Option(
            "--standardise/--raw",
            help="Inputs and target with mean 0 and deviation 1, or as they are.",
            show_default="standardised for friedman, airfoil, california",
        ),
    ] = None


@dataclass(frozen=True)
class SampleOptions(TableOptions):
    """The data of a file, or how a formula is sampled."""

    interval: Annotated[
        str | None, typer.Option(metavar="A,B", help="Where every input lies; R for -R,R.", show_default="-1,1")
    ] = None
    points: Annotated[int | None, typer.Option(help="Training points.", show_default="10000, or the problem's own")] = (
        None
    )
    noise: Annotated[float, typer.Option(help="Standard deviation of noise on the training targets.")] = reading.NOISE

    def problem(self, name: str | None, **settings: Any) -> Problem:
        """The problem that the options mean; `name` is its name or formula, None where the user named none."""
        return reading.target(
            name,
            self.data,
            interval=reading.interval(self.interval),
            points=self.points,
            noise=self.noise,
            target=self.target,
            inputs=self.inputs,
            standardise=self.standardise,
            **settings,
        )


@dataclass(frozen=True)
class ProblemOptions(SampleOptions):
    """All options of a problem: those of `SampleOptions`, where the samples lie, and what the test is on."""

    sampling: Annotated[str, typer.Option(help="random, grid or gauss.")] = reading.SAMPLING
    protocol: Annotated[
        str, typer.Option(help="split, or paper: test on the training data, as the paper's code does.")
    ] = "split"

    def problem(self, name: str | None, **settings: Any) -> Problem:
        return super().problem(name, sampling=self.sampling, protocol=self.protocol, **settings)


# ---- solvers


@dataclass(frozen=True)
class SolverOptions:
    """How networks are fitted."""

    solver: Annotated[str, typer.Option(help=SOLVER_HELP)] = "auto"
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, help="Most iterations of a network, from its start to its end.", show_default="the solver's"
        ),
    ] = None
    ridge: Annotated[float | None, typer.Option(min=0, help="Ridge of varpro, for noisy data.", show_default="0")] = (
        None
    )
    device: Annotated[str | None, typer.Option(help="Device of varpro, such as cuda.", show_default="cpu")] = None

    def check(self) -> None:
        """Refuse an unknown solver before the workers start, since in them the same error comes late."""
        from gatelab.solve import SOLVERS

        if self.solver not in (known := ("auto", *SOLVERS)):
            raise unknown_name("solver", self.solver, known)

    def settings(self) -> dict[str, Any]:
        """The solver, and those settings that the user named: a solver has defaults of its own."""
        values = {"steps": self.steps, "ridge": self.ridge, "device": self.device}
        return {"solver": self.solver} | {name: value for name, value in values.items() if value is not None}


# ---- sweeps


@dataclass(frozen=True)
class SweepOptions:
    """Who computes the fits of a command, where they are stored, and how to go on after Ctrl-C."""

    jobs: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="one a core")] = None
    store: Annotated[
        Path | None, typer.Option(help="Keep every fit here; the same command computes what is missing.")
    ] = None
    backend: Annotated[
        str | None, typer.Option(help="serial, processes or ray.", show_default="processes, with one job serial")
    ] = None
    address: Annotated[str | None, typer.Option(help="A Ray cluster.", show_default="a local one")] = None
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try again what failed, by the store.")] = False
    max_hours: Annotated[float | None, typer.Option(help="Begin nothing new after that.", show_default="no limit")] = (
        None
    )

    def keywords(self) -> dict[str, Any]:
        """The options but `jobs` as arguments of `gatelab.scaling_laws`, without those that the user left out."""
        from gatelab.sweep import BACKENDS

        store, backend, hours = self.store, self.backend, self.max_hours
        if backend is not None and backend not in BACKENDS:
            raise unknown_name("backend", backend, BACKENDS)
        if self.address is not None and backend != "ray":
            raise GatelabError(f"the address {self.address!r} is that of a Ray cluster; give --backend ray with it")
        if self.retry_failed and store is None:
            raise GatelabError("--retry-failed needs to know what failed; give --store FILE, the file that knows")
        if store is not None and store.is_dir():
            raise GatelabError(f"{store} is a folder; give the path of a file in it, such as {store / 'runs.db'}")
        if hours is not None and not hours > 0:
            raise GatelabError(f"--max-hours is {hours:g}; give a positive number of hours, such as 0.5")
        values = {"store": store, "backend": backend, "retry_failed": self.retry_failed or None, "max_hours": hours}
        return {name: value for name, value in (values | {"address": self.address}).items() if value is not None}

    def plan(self, runs: Sequence[Run]) -> Plan:
        """What is done and to do. A store that is not there yet is not made for the question."""
        from joblib import cpu_count

        from gatelab.sweep import plan

        jobs = self.jobs or cpu_count()
        if self.backend == "serial":
            jobs = 1
        store = None
        if self.store and self.store.exists():
            store = self.store
        return plan(runs, store, retry_failed=self.retry_failed, jobs=jobs)

    @contextmanager
    def resumable(self, runs: Callable[[], Sequence[Run]] | None = None) -> Iterator[None]:
        """Ctrl-C inside says what the store holds, of these runs or of all, and that the same command goes on."""
        from gatelab.sweep import Store, plan

        def progress() -> str | None:
            if self.store is None or not self.store.exists():
                return None
            try:
                if runs:
                    state = plan(runs(), self.store)
                    stored = state.done + state.failed
                    count = f"{stored} of {stored + state.todo} fits are"
                else:
                    with Store(self.store) as store:
                        stored = store.count()
                    count = "1 fit is" if stored == 1 else f"{stored} fits are"
            except GatelabError:
                count = "what was done is"  # the end of a command is no place for a second complaint
            return f"{count} in {self.store}; the same command goes on"

        with interrupts.keeping(progress):
            yield


def how_to_look(store: Path | None) -> str:
    """The command that lists the failed runs of a store."""
    return f"gatelab results list --status failed --store {store}"
