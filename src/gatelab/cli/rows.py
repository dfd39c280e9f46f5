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

    gaussian: Annotated[str | None, option("Gaussian rows and targets.", metavar="ROWS,INPUTS")] = None
    rows: Annotated[int, option("Maximal number of rows, drawn at random.", min=2)] = 300
    seed: Annotated[int, option("The seed of the drawing.", min=0)] = 0

    def read(self, problem: str | None) -> ChosenRows:
        """The rows that the options describe, with their targets."""
        import numpy as np

        check_one_source(problem, self, self.gaussian)
        if self.gaussian:
            return gaussian_rows(self.gaussian, self.seed)
        source = self.problem(problem)
        x, y = np.asarray(source.train.x), np.asarray(source.train.y)
        return ChosenRows(x, source.name, y).drawn(self.rows, self.seed)


@dataclass(frozen=True)
class KernelRowOptions(TableOptions):
    """The rows of a kernel, which needs no targets."""

    no_target: Annotated[bool, option("Every column is an input.", "--no-target")] = False
    gaussian: Annotated[str | None, option("Standard Gaussian rows instead.", metavar="ROWS,INPUTS")] = None
    rows: Annotated[int, option("Maximal number of rows of data, drawn at random.", min=1)] = MANY
    seed: Annotated[int, option("The seed of the drawing.", min=0)] = 0

    def read(self, problem: str | None) -> ChosenRows:
        """The inputs that the options describe, at most `rows` of them."""
        from gatelab.data import problem as named_problem

        check_one_source(problem, self, self.gaussian)
        if self.gaussian:
            return gaussian_rows(self.gaussian, self.seed)
        if self.data is not None:
            chosen = ChosenRows(self._columns(), self.data.name)
            if self.standardize:
                from gatelab.data.rows import Scale

                chosen = replace(chosen, x=Scale.of(chosen.x).shrink(chosen.x))
        else:
            found = named_problem(problem or "", standardize=self.standardize)
            chosen = ChosenRows(found.train.x, found.name)
        return chosen.drawn(self.rows, self.seed)

    def _columns(self) -> Array:
        """The inputs in the file: all columns, or all except the target."""
        from gatelab.data.tables import open_columns, read_table

        path = self.data
        assert path is not None
        if self.no_target and not (self.target is None and self.inputs is None):
            raise GatelabError("--no-target takes every column as input; leave --target and --inputs out")
        reading.check_exists(path)
        if self.no_target:
            columns = open_columns(path)
            return columns.take([i for i in range(columns.count) if i not in columns.labels])
        target, inputs = reading.column_names(self.target), reading.column_names(self.inputs)
        with reading.shown_warnings():
            return read_table(path, target=target, inputs=inputs).x


def check_one_source(problem: str | None, table: TableOptions, gaussian: str | None) -> None:
    """Refuse rows from two sources or from none, and options that the source does not have."""
    sources = (("a problem", problem), ("--data", table.data), ("--gaussian", gaussian))
    names = [name for name, value in sources if value]
    if len(names) != 1:
        raise GatelabError(
            f"{' and '.join(names) or 'nothing'} is given; give one of them: a problem such as friedman1, --data FILE, "
            "or --gaussian 60,30"
        )
    if table.data is None and (table.target or table.inputs or getattr(table, "no_target", False)):
        raise GatelabError("--target, --inputs and --no-target are about columns of a file; give it with --data FILE")
    if gaussian and table.standardize is not None:
        raise GatelabError("Gaussian rows are standardized already; leave --standardize and --raw out")


def gaussian_rows(text: str, seed: int) -> ChosenRows:
    import numpy as np

    if len(size := reading.whole_numbers(text)) != 2:
        raise GatelabError(f"--gaussian is {text!r}; give rows and inputs, such as --gaussian 60,30")
    n, d = size
    check_memory(8 * n * d, f"{n} Gaussian rows of {d} inputs", "give fewer")
    generator = np.random.default_rng(seed)
    x, y = generator.standard_normal((n, d)), generator.standard_normal(n)
    return ChosenRows(x, f"Gaussian, seed {seed}", y, gaussian=True)
