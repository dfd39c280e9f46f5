"""The rows that `gatelab ntk` and `gatelab dynamics` work on: those of a file, of a problem, or Gaussian numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from gatelab.cli import reading
from gatelab.cli.options import TableOptions, option
from gatelab.errors import GatelabError
from gatelab.memory import check_memory

if TYPE_CHECKING:
    from gatelab.arrays import Array

MANY = 20_000  # the kernel of more rows takes gigabytes and its eigenvalues minutes: only on request


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """n rows of d inputs with a name, and their targets; for standard Gaussian rows there is theory."""

    x: Array
    name: str
    y: Any = None
    gaussian: bool = False

    @property
    def n(self) -> int:
        return len(self.x)

    @property
    def d(self) -> int:
        return self.x.shape[1]

    def drawn(self, count: int, seed: int) -> ChosenRows:
        """At most this number of rows, in their order, so that a saved kernel matches the file."""
        import numpy as np

        if count >= self.n:
            return self
        kept = np.sort(np.random.default_rng(seed).choice(self.n, count, replace=False))
        y = None if self.y is None else self.y[kept]
        return replace(self, x=self.x[kept], y=y, name=f"{self.name}, {count} of {self.n} rows")


@dataclass(frozen=True)
class TrainingRowOptions(TableOptions):
    """The rows of a training by gradient descent, with a target for each."""

    gaussian: Annotated[str | None, option("Standard Gaussian rows and targets.", metavar="ROWS,INPUTS")] = None
    rows: Annotated[int, option("Maximal number of rows, drawn at random.", min=2)] = 300
    seed: Annotated[int, option("The seed of the drawing.", min=0)] = 0

    def read(self, problem: str | None) -> ChosenRows:
        """The rows that the options describe."""
        check_one_source(problem, self)
        if self.gaussian:
            return gaussian_rows(self.gaussian, self.seed)
        return self.all_rows(problem).drawn(self.rows, self.seed)

    def all_rows(self, problem: str | None) -> ChosenRows:
        import numpy as np

        source = self.problem(problem)
        return ChosenRows(np.asarray(source.train.x), source.name, np.asarray(source.train.y))


@dataclass(frozen=True)
class KernelRowOptions(TrainingRowOptions):
    """The rows of a kernel, which needs no targets."""

    rows: Annotated[int, option("Maximal number of rows of data, drawn at random.", min=1)] = MANY
    no_target: Annotated[bool, option("Every column is an input.", "--no-target")] = False

    def all_rows(self, problem: str | None) -> ChosenRows:
        """The rows of a problem, or of the file: all columns, or all except the target."""
        from gatelab.data.rows import Scale
        from gatelab.data.tables import open_columns, read_table

        path = self.data
        if path is None:
            return super().all_rows(problem)
        if self.no_target and not (self.target is None and self.inputs is None):
            raise GatelabError("--no-target takes every column as input; leave --target and --inputs out")
        if self.no_target:
            columns = open_columns(path)
            x = columns.take([i for i in range(columns.count) if i not in columns.labels])
        else:
            target, inputs = reading.column_names(self.target), reading.column_names(self.inputs)
            with reading.shown_warnings():
                x = read_table(path, target=target, inputs=inputs).x
        if self.standardize:
            x = Scale.of(x).shrink(x)
        return ChosenRows(x, path.name)


def check_one_source(problem: str | None, table: TrainingRowOptions) -> None:
    """Refuse rows from two sources or from none, and options that the source does not have."""
    sources = (("a problem", problem), ("--data", table.data), ("--gaussian", table.gaussian))
    names = [name for name, value in sources if value]
    if len(names) != 1:
        raise GatelabError(
            f"{' and '.join(names) or 'nothing'} is given; give one of them: a problem such as friedman1, --data FILE, "
            "or --gaussian 60,30"
        )
    if table.data is None and (table.target or table.inputs or getattr(table, "no_target", False)):
        raise GatelabError("--target, --inputs and --no-target are about columns of a file; give it with --data FILE")
    if table.gaussian and table.standardize is not None:
        raise GatelabError("Gaussian rows are standardized already; leave --standardize and --raw out")


def gaussian_rows(text: str, seed: int) -> ChosenRows:
    import numpy as np

    try:
        n, d = reading.whole_numbers(text)
    except ValueError:
        raise GatelabError(f"--gaussian is {text!r}; give rows and inputs, such as --gaussian 60,30") from None
    check_memory(8 * n * d, f"{n} Gaussian rows of {d} inputs", "give fewer")
    generator = np.random.default_rng(seed)
    x, y = generator.standard_normal((n, d)), generator.standard_normal(n)
    return ChosenRows(x, f"Gaussian, seed {seed}", y, gaussian=True)
