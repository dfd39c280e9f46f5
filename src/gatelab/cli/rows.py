"""The rows that `gatelab ntk` and `gatelab dynamics` work on: those of a file, of a problem, or Gaussian numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from gatelab.cli import reading
from gatelab.cli.options import TableOptions
from gatelab.cli.reading import check_exists, column_names, columns_by_name, shown_warnings
from gatelab.errors import GatelabError
from gatelab.memory import check_memory, size_text

if TYPE_CHECKING:
    from gatelab.arrays import Array

MANY = 20_000  # a larger kernel takes gigabytes and its eigenvalues minutes: only on request


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """n rows of d inputs with a name; for standard Gaussian rows there is theory."""

    x: Array
    name: str
    gaussian: bool = False

    @property
    def n(self) -> int:
        return len(self.x)

    @property
    def d(self) -> int:
        return self.x.shape[1]


@dataclass(frozen=True)
class KernelRowOptions(TableOptions):
    """The rows of a kernel, which needs no targets."""

    no_target: Annotated[bool, typer.Option("--no-target", help="Every column is an input.")] = False
    gaussian: Annotated[str | None, typer.Option(metavar="ROWS,INPUTS", help="Standard Gaussian rows instead.")] = None
    rows: Annotated[
        int | None, typer.Option(min=1, help="Number of rows, drawn at random.", show_default="all, up to 20000")
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="The seed of the drawing.")] = 0

    def read(self, problem: str | None, *, names: Sequence[str] = ()) -> ChosenRows:
        """The inputs that the options describe, at most `rows` of them; `names` are the inputs of a model."""
        import numpy as np

        check_one_source(problem, self, self.gaussian, "400,100")
        if self.data is None and (self.target is not None or self.inputs is not None or self.no_target):
            raise GatelabError(
                "--target, --inputs and --no-target are about columns of a file; give it with --data FILE"
            )
        chosen = self._all_rows(problem, names)
        self._check_many(chosen.n)
        if self.rows is None or self.rows >= chosen.n:
            return chosen
        # In the order of the file, so that a saved kernel matches it.
        numbers = np.sort(np.random.default_rng(self.seed).choice(chosen.n, self.rows, replace=False))
        return ChosenRows(chosen.x[numbers], f"{chosen.name}, {self.rows} of {chosen.n} rows", chosen.gaussian)

    def _all_rows(self, problem: str | None, names: Sequence[str]) -> ChosenRows:
        import numpy as np

        if self.gaussian:
            if self.standardize is not None:
                raise GatelabError("Gaussian rows are standardized already; leave --standardize and --raw out")
            n, d = gaussian_size(self.gaussian, 10**9, "400,100")
            self._check_many(n)
            check_memory(8 * n * d, f"{n} Gaussian rows of {d} inputs", "give fewer")
            x = np.random.default_rng(self.seed).standard_normal((n, d))
            return ChosenRows(x, f"Gaussian, seed {self.seed}", True)
        if self.data is not None:
            x = self._columns(names)
            if self.standardize:
                from gatelab.data.rows import Scale

                x = Scale.of(x).shrink(x)
            return ChosenRows(x, self.data.name)
        from gatelab.data import problem as named_problem

        target = named_problem(problem or "", standardize=self.standardize)
        return ChosenRows(target.train.x, target.name)

    def _columns(self, names: Sequence[str]) -> Array:
        """The inputs in the file: all columns, those of a model by name, or all except the target."""
        from gatelab.data.tables import open_columns, read_table

        path = self.data
        assert path is not None
        unnamed = self.target is None and self.inputs is None
        if self.no_target and not unnamed:
            raise GatelabError("--no-target takes every column as input; leave --target and --inputs out")
        check_exists(path)
        if self.no_target:
            columns = open_columns(path)
            return columns.take([i for i in range(columns.count) if i not in columns.labels])
        if unnamed and names:
            columns = open_columns(path)
            places = columns_by_name(columns, path, names)
            if places is not None:
                return columns.take(places)
        with shown_warnings():
            return read_table(path, target=column_names(self.target), inputs=column_names(self.inputs)).x

    def _check_many(self, n: int) -> None:
        if n > MANY and self.rows is None:
            raise GatelabError(
                f"there are {n} rows, whose kernel takes {size_text(8 * n * n)}, and its factors as much again; "
                f"--rows {MANY} draws that number of them, --rows {n} takes all"
            )


@dataclass(frozen=True)
class TrainingRowOptions(TableOptions):
    """The rows of a training by gradient descent, with a target for each."""

    gaussian: Annotated[str | None, typer.Option(metavar="ROWS,INPUTS", help="Gaussian rows and targets.")] = None
    rows: Annotated[int, typer.Option(min=2, help="Maximal number of rows, drawn at random.")] = 300
    seed: Annotated[int, typer.Option(min=0, help="The seed of the drawing.")] = 0

    def read(self, problem: str | None) -> tuple[ChosenRows, Array]:
        """The inputs that the options describe, and their targets."""
        import numpy as np

        check_one_source(problem, self, self.gaussian, "60,30")
        generator = np.random.default_rng(self.seed)
        if self.gaussian:
            if self.standardize is not None or self.target is not None or self.inputs is not None:
                raise GatelabError("Gaussian rows have no columns to choose or to scale; leave those options out")
            n, d = gaussian_size(self.gaussian, 10**5, "60,30")
            check_memory(8 * n * d, f"{n} Gaussian rows of {d} inputs", "give fewer")
            x = generator.standard_normal((n, d))
            return ChosenRows(x, f"Gaussian, seed {self.seed}", True), generator.standard_normal(n)
        source = reading.target(
            problem, self.data, target=self.target, inputs=self.inputs, standardize=self.standardize
        )
        x, y = np.asarray(source.train.x), np.asarray(source.train.y)
        if len(x) <= self.rows:
            return ChosenRows(x, source.name), y
        numbers = np.sort(generator.choice(len(x), self.rows, replace=False))
        return ChosenRows(x[numbers], f"{source.name}, {self.rows} of {len(x)} rows"), y[numbers]


def check_one_source(problem: str | None, table: TableOptions, gaussian: str | None, example: str) -> None:
    """Refuse rows from two sources, or from none; `example` is a size of Gaussian rows for the message."""
    sources = (("a problem", problem), ("--data", table.data), ("--gaussian", gaussian))
    names = [name for name, value in sources if value]
    if len(names) != 1:
        raise GatelabError(
            f"{' and '.join(names) or 'nothing'} is given; give one of them: a problem such as friedman1, --data FILE, "
            f"or --gaussian {example}"
        )


def gaussian_size(text: str, most: int, example: str) -> tuple[int, int]:
    """Rows and inputs, each from 1 to `most`.

    >>> gaussian_size("60, 30", 1000, "60,30")
    (60, 30)
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(p.isascii() and p.isdecimal() and 0 < int(p) <= most for p in parts):
        raise GatelabError(f"--gaussian is {text!r}; give rows and inputs, such as --gaussian {example}")
    return int(parts[0]), int(parts[1])
