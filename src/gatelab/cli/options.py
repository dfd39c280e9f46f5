"""Options that commands share, each declared once, in groups that belong together.

Typer reads one option from each parameter of a function. `Application` lets a command take a frozen dataclass as one
parameter, with one option per field; its methods turn the user's text into values. Every command has --json and
--quiet, refuses to overwrite a file that it reads, and accepts the option names of the last release (`RENAMED`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from gatelab.cli import interrupts, output, reading
from gatelab.errors import GatelabError, real_number, unknown_name
from gatelab.files import PICTURES, either
from gatelab.solve.solvers import SOLVERS

if TYPE_CHECKING:
    from gatelab.data import Problem
    from gatelab.sweep import Plan, Run

Command = Callable[..., None]
# Parameters of all commands that name files to write, and those that name files to read.
WRITTEN = ("out", "plot")
READ = ("data", "model", "path", "text", "table", "tokenizer", "record", "store")
# Option names of the last release and their successors; remove them with the next one.
RENAMED = {
    "--csv": "--out",
    "--distil": "--distill",
    "--export": "--out",
    "--features": "--m",
    "--folder": "--store",
    "--optimiser": "--optimizer",
    "--save": "--out",
    "--standardise": "--standardize",
}


# ---- commands


def option(help: str, *names: str, default: str | None = None, **settings: Any) -> Any:
    """An option with its help; `default` describes in words its value if it is not given."""
    return typer.Option(*names, help=help, show_default=default or True, **settings)


def argument(metavar: str, help: str, complete: Any = None, default: str | None = None) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=default or False, autocompletion=complete)


def columns_option(help: str, default: str | None = None) -> Any:
    """Columns of a file, by name or number."""
    return option(help, metavar="NAME[,NAME]", default=default)


@dataclass(frozen=True)
class AnswerOptions:
    as_json: Annotated[bool, option("Print one JSON document instead of tables.", "--json")] = False
    quiet: Annotated[bool, option("Show no progress.", "--quiet", "-q")] = False


class CheckedCommand(TyperCommand):
    """A command that knows the old names of its options, and does not overwrite a file that it reads."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {name for option in self.params for name in option.opts}
        ctx.meta["words"] = list(current_names(args, known))
        return super().parse_args(ctx, list(ctx.meta["words"]))

    def invoke(self, ctx: Any) -> Any:
        def paths(names: Sequence[str]) -> list[Path]:
            return [Path(str(path)) for name in names for path in as_list(ctx.params.get(name))]

        for target in paths(WRITTEN):
            if any(is_part(target, source.expanduser()) for source in paths(READ)):
                raise GatelabError(f"{target} is read by this command and would be overwritten; give another path")
        return super().invoke(ctx)


class Application(typer.Typer):
    """Commands that are all checked and may take groups of options."""

    def command(self, name: str | None = None, *, epilog: str | None = None, **options: Any) -> Any:
        """The decorator of a command; `epilog` are its examples, one per line."""
        register = super().command(name, cls=CheckedCommand, epilog=epilog and epilog.replace("\n", "\n\n"), **options)

        def decorate(function: Command) -> Command:
            register(grouped(function))
            return function

        return decorate


def current_names(args: Sequence[str], known: set[str]) -> Iterator[str]:
    """The words of a command with the present names of its options; each old name is reported on stderr.

    >>> list(current_names(["--csv=a.csv", "--out", "a.png"], {"--out", "--plot"}))
    ['--out=a.csv', '--plot', 'a.png']
    """
    for i, word in enumerate(args):
        name, equals, value = word.partition("=")
        new = name
        if name not in known and RENAMED.get(name) in known:
            new = RENAMED[name]
        path = value or "".join(args[i + 1 : i + 2])
        if new == "--out" and "--plot" in known and path.lower().endswith(tuple(PICTURES)):
            new = "--plot"  # as in the last release
        if new != name:
            output.note(f"{name} is now called {new}; the old name works until the next release")
        yield f"{new}{equals}{value}"


def as_list(value: Any) -> list[Any]:
    """One or several values of an option as a list, empty for None."""
    if isinstance(value, list | tuple):
        return list(value)
    return [value] * (value is not None)


def is_part(target: Path, source: Path) -> bool:
    """Whether a path is that of a file which is read, also by links, or of one in the folder of a model."""
    with suppress(OSError, ValueError):  # a missing file, or a text that is not a path
        if target.resolve() == source.resolve():
            return True
        inside = target.is_file() and (source / "config.json").is_file() and target.resolve().parent == source.resolve()
        return inside or target.samefile(source)
    return False


def grouped(command: Command) -> Command:
    """Let a command take groups of options: parameters whose type is a dataclass, with an option in each field.

    `AnswerOptions` are added; `output.answer` receives them instead of the command.

    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: int = 8
    ...     depth: int = 1
    >>> def build(*, name: str, size: Size) -> None:
    ...     print(name, size.width, size.depth)
    >>> grouped(build)(name="glu", width=16)
    glu 16 1
    """
    groups = {name: hint for name, hint in get_type_hints(command).items() if is_dataclass(hint)}
    parameters = [*options_of(command), *options_of(AnswerOptions)]

    @functools.wraps(command)
    def call(**values: Any) -> None:
        def take(group: Any) -> Any:
            return group(**{field.name: values.pop(field.name) for field in fields(group) if field.name in values})

        output.answer(**vars(take(AnswerOptions)))
        built = {name: take(group) for name, group in groups.items()}
        command(**values, **built)

    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def options_of(command: Any) -> Iterator[inspect.Parameter]:
    """The parameters of a command, with those of each group in its place."""
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            yield from options_of(hints[name])
        else:
            yield parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)


# ---- units, problems and files


def complete_unit(incomplete: str) -> list[str]:
    """Units with this beginning, for the shell; after a comma the next one."""
    from gatelab.feedforward.named import CATALOGUE

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in CATALOGUE if name.startswith(last.lower())]


def complete_word(incomplete: str) -> list[str]:
    """Units and problems with this beginning, for the shell."""
    from gatelab.data.named import CATALOGUE

    return complete_unit(incomplete) + [name for name in CATALOGUE if name.startswith(incomplete.lower())]


def unit_option(default: str = "") -> Any:
    """Units by --unit, in commands that take several; `default` names those used where none is given."""
    form: dict[str, Any] = {"metavar": "UNIT[,UNIT]", "default": default or None, "autocompletion": complete_unit}
    return option("Units, separated by commas.", "--unit", "--units", **form)


def checked(*endings: str) -> Any:
    """A callback that checks the files to write before the work: their endings and their folders."""

    def check(context: typer.Context, value: Any) -> Any:
        for path in as_list(value):
            if not context.resilient_parsing:
                output.check_file(path, endings)
        return value

    return check


def out_option(help: str, *endings: str, **options: Any) -> Any:
    """Where results are written, in every command: a file with one of the endings, without them a folder."""
    if endings:
        options |= {"metavar": "FILE", "callback": checked(*endings)}
    return typer.Option("--out", "-o", help=help, show_default=False, **{"metavar": "DIR", **options})


OneUnit = Annotated[str | None, option("The unit.", "--unit", metavar="UNIT", autocompletion=complete_unit)]
MaybeWords = list[str] | None
Words = Annotated[MaybeWords, argument("UNIT|PROBLEM", "Units, and a problem's name or a formula.", complete_word)]
UnitsAlone = Annotated[MaybeWords, argument("UNIT", "Units.", complete_unit)]
ModelPath = Annotated[str, argument("PATH", "A folder of Transformers, a GGUF file, smollm2, minilm or stories260k.")]
Seeds = Annotated[int, option("Number of seeds.", min=1)]
Plot = Annotated[
    Path | None, option("Write the figure, .png, .svg or .pdf.", metavar="FILE", callback=checked(*PICTURES))
]
DryRun = Annotated[bool, option("Show the work and its size; compute nothing.", "--dry-run")]
Device = Annotated[str, option("auto, cpu or cuda; auto is cuda where there is one.")]
FitDevice = Annotated[str, option("auto, cpu or cuda; auto is the CPU, faster for small fits.")]
Jobs = Annotated[int | None, option("Processes.", "--jobs", "-j", min=1, default="one per core")]
Tokenizer = Annotated[
    Path | None, option("A folder with a tokenizer of Transformers.", metavar="DIR", default="that of the model")
]
PROBLEM = "paper-1d"
SAMPLES = {"n": None, "sampling": "random", "noise": 0.0}  # of formulas, unless given
SOLVER_HELP = f"{either(('auto', *SOLVERS))}."


def device_name(device: str) -> str:
    """The device that --device names; auto is cuda where there is one."""
    import torch

    if device == "auto":
        return ("cpu", "cuda")[torch.cuda.is_available()]
    return device


# ---- data


@dataclass(frozen=True)
class TableOptions:
    """A file with data, and which of its columns are used."""

    data: Annotated[Path | None, option("CSV, Parquet, .npy or .npz file, for the problem.", metavar="FILE")] = None
    target: Annotated[str | None, columns_option("Its columns to predict, by name or number.", "the last")] = None
    inputs: Annotated[str | None, columns_option("Its columns to predict from.", "all others")] = None
    standardize: Annotated[
        bool | None, option("Scale to mean 0 and deviation 1, or do not.", "--standardize/--raw", default="by problem")
    ] = None

    def problem(self, name: str | None, **settings: Any) -> Problem:
        """The data of the file, or the problem of this name or formula with its sampling, None for the default."""
        from gatelab.data import Problem
        from gatelab.data import problem as named_problem

        if self.data is None:
            if self.target is not None or self.inputs is not None:
                raise GatelabError("--target and --inputs name columns of a file; give it with --data FILE")
            if name is None:  # an empty text is an empty formula and refused as one
                name = PROBLEM
            return named_problem(name, standardize=self.standardize, **settings)
        if name is not None:
            raise GatelabError(f"both the problem {name!r} and --data {self.data} are given; leave one of them out")
        if any(settings.pop(option, default) != default for option, default in SAMPLES.items()):
            raise GatelabError(
                f"--points, --sampling and --noise are for formulas; leave them out with --data {self.data}"
            )
        columns = {"target": reading.column_names(self.target), "inputs": reading.column_names(self.inputs)}
        with reading.shown_warnings():
            return Problem.from_file(self.data, **columns, standardize=bool(self.standardize), **settings)


@dataclass(frozen=True)
class SampleOptions(TableOptions):
    """The data of a file, or how a formula is sampled."""

    interval: Annotated[str | None, option("Where every input lies; R for -R,R.", metavar="A,B", default="-1,1")] = None
    points: Annotated[int | None, option("Training points.", default="10000, or the problem's own")] = None
    noise: Annotated[float, option("Standard deviation of noise on the training targets.")] = 0.0

    def problem(self, name: str | None, **settings: Any) -> Problem:
        interval = reading.interval(self.interval)
        return super().problem(name, interval=interval, n=self.points, noise=self.noise, **settings)


@dataclass(frozen=True)
class ProblemOptions(SampleOptions):
    """All options of a problem."""

    sampling: Annotated[str, option("random or grid.")] = "random"
    protocol: Annotated[str, option("split, or paper: test on the training data, as the paper's code does.")] = "split"

    def problem(self, name: str | None, **settings: Any) -> Problem:
        return super().problem(name, sampling=self.sampling, protocol=self.protocol, **settings)


# ---- solvers


@dataclass(frozen=True)
class SolverOptions:
    """How networks are fitted."""

    solver: Annotated[str, option(SOLVER_HELP)] = "auto"
    steps: Annotated[int | None, option("Maximal iterations per network.", min=1, default="the solver's")] = None
    ridge: Annotated[float | None, option("Ridge of varpro, for noisy data.", min=0, default="0")] = None
    device: FitDevice = "auto"

    def settings(self) -> dict[str, Any]:
        """The solver and the settings that the user gave; others keep the solver's defaults."""
        if self.solver not in (known := ("auto", *SOLVERS)):  # in workers the same error would come late
            raise unknown_name("solver", self.solver, known)
        values = {"steps": self.steps, "ridge": self.ridge, "device": self.device}
        return {"solver": self.solver} | {name: v for name, v in values.items() if v not in (None, "auto")}


# ---- sweeps


@dataclass(frozen=True)
class SweepOptions:
    """Where the fits of a command are computed and stored, and how to resume after Ctrl-C."""

    jobs: Jobs = None
    store: Annotated[Path | None, option("Keep every fit here; the same command resumes.", metavar="FILE")] = None
    backend: Annotated[str | None, option("serial, processes or ray.", default="processes, with one job serial")] = None
    address: Annotated[str | None, option("A Ray cluster.", default="a local one")] = None
    retry_failed: Annotated[bool, option("Repeat the fits that failed.", "--retry-failed")] = False
    max_hours: Annotated[float | None, option("Start no new fit after this time.", default="no limit")] = None

    def keywords(self) -> dict[str, Any]:
        """The options except `jobs` as arguments of `gatelab.scaling`, without those left out."""
        from gatelab.sweep.backends import check_backend

        check_backend(self.backend or "serial", self.address)
        if self.max_hours is not None:
            real_number("--max-hours", self.max_hours, above=0)
        if self.retry_failed and self.store is None:
            raise GatelabError("--retry-failed needs the record of failures; give --store FILE, which holds it")
        return {name: value for name, value in vars(self).items() if value and name != "jobs"}

    def plan(self, runs: Sequence[Run]) -> Plan:
        """The runs that are done and those to do; a store is not created for the question."""
        from joblib import cpu_count

        from gatelab.sweep import plan

        jobs, store = self.jobs or cpu_count(), self.store
        if self.backend == "serial":
            jobs = 1
        if store and not store.exists():
            store = None
        return plan(runs, store, retry_failed=self.retry_failed, jobs=jobs)


@contextmanager
def resuming(store: Path | None, runs: Callable[[], Sequence[Run]] | None = None) -> Iterator[None]:
    """Ctrl-C inside reports that the same command resumes, and how much of these runs a store of runs holds."""

    def state() -> str | None:
        if store is None or not (store.is_file() or any(path.is_file() for path in store.rglob("*"))):
            return None
        held = "finished work is"
        with suppress(GatelabError):  # a second error would hide the first
            if runs and store.is_file():
                from gatelab.sweep import plan

                found = plan(runs(), store)
                held = f"{found.done + found.failed} of {found.done + found.failed + found.todo} fits are"
        return f"{held} in {store}; the same command resumes"

    with interrupts.keeping(state):
        yield
