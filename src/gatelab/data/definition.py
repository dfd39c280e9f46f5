"""`Problem`: training and test data from arrays, a file or a function.

With `protocol="paper"` a problem tests on the training data, as the reference code of the first paper does with
Friedman's problems and measured data; its name is then marked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gatelab.arrays import check_interval
from gatelab.data import rows
from gatelab.data.expression import Expression
from gatelab.data.rows import Data, Function, Scales
from gatelab.data.tables import FILES, Selector, read_table
from gatelab.display import counted, one_line, shorten
from gatelab.errors import GatelabError, real_number, whole_number
from gatelab.files import as_path
from gatelab.memory import check_memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = "{} (paper's protocol)"


@dataclass(frozen=True, eq=False)
class Problem:
    """Training data, test data and, if it is known, the target function.

    Attributes:
        name: its name in tables and files.
        train: the training rows.
        test: the test rows.
        interval: the interval of a one-dimensional problem, which contains every x.
        f: the function, if it is known, as in `from_function`.
        description: a one-line description.
        recipe: the arguments of `problem`, in plain values; None for user data.
        columns: the names of the inputs, if the data have names.
        targets: the names of the targets, if the data have names.
        scales: the scales of a standardized problem, by which fits predict raw values; otherwise None.
        noise: the standard deviation of the noise on the training targets, if it is known.

    >>> runge = Problem.from_function(lambda x: 1 / (1 + 9 * x**2), n=100, name="runge")
    >>> runge.train.n, runge.test.n, runge.interval
    (100, 100, (-1.0, 1.0))
    """

    name: str
    train: Data
    test: Data
    interval: tuple[float, float] | None = None
    f: Function | None = None
    description: str = ""
    recipe: Mapping[str, Any] | None = None
    columns: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    scales: Scales | None = None
    noise: float | None = None

    def __repr__(self) -> str:
        return one_line(
            self,
            f"{shorten(self.name)}: {counted(self.d_in, 'input')}, {counted(self.d_out, 'output')}, "
            f"{self.train.n} training and {self.test.n} test rows",
        )

    def __post_init__(self) -> None:
        if (self.train.d_in, self.train.d_out) != (self.test.d_in, self.test.d_out):
            raise GatelabError(
                f"train maps {self.train.d_in} inputs to {self.train.d_out} outputs and test"
                f" {self.test.d_in} to {self.test.d_out}; give both the same columns"
            )
        if not rows.varying(self.train.x).any():
            raise GatelabError(
                f"every x of the {self.train.n} training rows is {rows.first_row(self.train.x)};"
                " give inputs with at least 2 distinct values"
            )
        rows.require_varying(self.train.y)
        for names, count, what in ((self.columns, self.d_in, "inputs"), (self.targets, self.d_out, "targets")):
            if names and len(names) != count:
                raise GatelabError(
                    f"{len(names)} names {names} are given for {count} {what}; give one name per column, or none"
                )
        if self.interval is None:
            return
        if self.d_in != 1:
            raise GatelabError(
                f"an interval is given with {self.d_in} inputs; it belongs to problems of one input: leave it out"
            )
        a, b = check_interval(self.interval)
        x = np.concatenate([self.train.x, self.test.x])
        if outside := int(((x < a) | (x > b)).sum()):
            raise GatelabError(
                f"{outside} of {len(x)} inputs lie outside the interval [{a:g}, {b:g}] (they reach from"
                f" {x.min():g} to {x.max():g}); widen the interval or leave it out"
            )
        object.__setattr__(self, "interval", (a, b))

    @property
    def d_in(self) -> int:
        """The number of inputs."""
        return self.train.d_in

    @property
    def d_out(self) -> int:
        """The number of outputs."""
        return self.train.d_out

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """Plot the first output against each of the first three inputs, into `ax` and to `path` if given."""
        from gatelab.plotting import saved
        from gatelab.plotting.functions import rows_figure

        inputs = self.columns or ("x", *(f"x{i + 1}" for i in range(1, self.d_in)))
        target = (*self.targets, "y")[0] + (f", the first of {self.d_out}" * (self.d_out > 1))
        parts = []
        for name, data in (("training", self.train), ("test", self.test)):
            x, y = data.x, data.y
            if self.scales is not None:
                x, y = self.scales.x.stretch(x), self.scales.y.stretch(y)
            parts.append((name, x, y[:, 0]))
        return saved(rows_figure(parts, inputs, target, self.name, ax=ax), path)

    def _repr_html_(self) -> str:
        from gatelab.plotting.theme import html

        facts = {
            "inputs": ", ".join(self.columns) or str(self.d_in),
            "outputs": str(self.d_out),
            "training rows": str(self.train.n),
            "test rows": str(self.test.n),
            "interval": "[{:g}, {:g}]".format(*self.interval) if self.interval else "none",
            "about": self.description,
        }
        return html(f"Problem {self.name}", list(facts.items()), figure=self.plot())

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        *,
        test: tuple[Any, Any] | None = None,
        test_fraction: float = 0.2,
        seed: int = 0,
        name: str = "arrays",
        interval: tuple[float, float] | None = None,
        columns: tuple[str, ...] = (),
        targets: tuple[str, ...] = (),
        standardize: bool = False,
        protocol: str = "split",
    ) -> Problem:
        """A problem from arrays, tensors or lists, one row per example.

        Args:
            x: the inputs, (N,) or (N, d_in).
            y: the targets, (N,) or (N, d_out).
            test: a pair (x, y) of test rows; by default the rows are split.
            test_fraction: the share of the distinct x for testing; rows of equal x stay on one side.
            seed: the seed of the split.
            name: the problem's name in tables and files.
            interval: the interval of a single input, by default the range of all x.
            columns: the names of the inputs, by default those of the table.
            targets: the names of the targets, by default those of the table.
            standardize: give inputs and targets mean 0 and deviation 1 on the training part; fits predict raw values.
            protocol: "split", or "paper" to train and test on all rows.

        Returns:
            A `Problem`.

        >>> x = np.linspace(0, 3, 50)
        >>> p = Problem.from_arrays(x, np.sin(x), seed=1)
        >>> p.train.n, p.test.n, p.interval
        (40, 10, (0.0, 3.0))
        """
        x, y = rows.without_row_labels(x, "x"), rows.without_row_labels(y, "y")
        columns, targets = tuple(columns) or rows.names_of(x), tuple(targets) or rows.names_of(y)
        train_data = test_data = Data(x, y)
        paper = rows.checked_protocol(protocol, test=test)
        if test is not None:
            test_data = rows.given_test(test)
        elif not paper:
            train_data, test_data = rows.split(train_data, test_fraction, seed)
        if interval is None and train_data.d_in == 1:
            every = np.concatenate([train_data.x.ravel(), test_data.x.ravel()])
            interval = (float(every.min()), float(every.max()))
        description = f"{train_data.n} training and {test_data.n} test rows"
        if paper:
            name, description = PAPER.format(name), f"{train_data.n} rows for training and test"
        problem = cls(name, train_data, test_data, interval, None, description, columns=columns, targets=targets)
        if test is not None:
            rows.refuse_shared_rows(train_data, test_data)
        return rows.standardized(problem) if standardize else problem

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        target: Selector | Sequence[Selector] | None = None,
        inputs: Selector | Sequence[Selector] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Problem:
        """A problem from a CSV, Parquet, .npy or .npz file, one row per example.

        CSV files may have a header, be separated by commas, semicolons or tabs, and be gzipped. An .npz file holds one
        array, or two called x and y. A column of row labels is ignored unless it is given as an input.

        Args:
            path: the file.
            target: columns by name or by number, counted from 0; by default the last one.
            inputs: columns by name or by number; by default all others.
            name: the problem's name in tables and files, by default that of the file.
            **options: `test_fraction`, `seed`, `interval`, `standardize` and `protocol` as in `from_arrays`.

        Returns:
            A `Problem`.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "sums.csv"
        ...     _ = file.write_text("a;b;sum\\n" + "".join(f"{i};{i * i};{i + i * i}\\n" for i in range(10)))
        ...     p = Problem.from_file(file, target="sum")
        >>> p.name, p.columns, p.train.n, p.test.n
        ('sums.csv', ('a', 'b'), 8, 2)
        """
        path = as_path(path, FILES)
        table = read_table(path, target=target, inputs=inputs)
        try:
            names = {"name": name or path.name, "columns": table.columns, "targets": table.targets}
            return cls.from_arrays(table.x, table.y, **names, **options)
        except GatelabError as error:
            raise GatelabError(f"{path}: {error}") from error

    @classmethod
    def from_layer(cls, model: Any, layer: str | int, text: Any, **options: Any) -> Problem:
        """The inputs and outputs of a feed-forward block of a given model, as a problem for every solver.

        Args:
            model: a model of Transformers or of gatelab; see `gatelab.anatomy.load_model`.
            layer: the number of a layer with a block, or the name of any module that maps rows to rows.
            text: a string, a file, the name of a text, or token numbers.
            **options: `tokenizer`, `tokens` to train on, `test` tokens, `length` of a window.

        Returns:
            A `Problem` with the inputs and outputs of the block; its test rows come from other windows.

        >>> from gatelab.models import GPT2
        >>> Problem.from_layer(GPT2("tiny", "swiglu"), 1, range(200), tokens=150, test=50, length=10)
        Problem(GPT2 blocks.1: 32 inputs, 32 outputs, 150 training and 50 test rows)
        """
        # A higher layer, imported only here.
        return import_module("gatelab.anatomy").layer_problem(model, layer, text, **options)

    @classmethod
    def from_function(
        cls,
        f: Function,
        *,
        d_in: int | None = None,
        interval: tuple[float, float] = (-1.0, 1.0),
        n: int = 10_000,
        n_test: int | None = None,
        sampling: str = "random",
        noise: float = 0.0,
        seed: int = 0,
        name: str | None = None,
        standardize: bool = False,
        protocol: str = "split",
    ) -> Problem:
        """A problem from a function.

        A grid of several inputs is a product of equal sides with about n points. Test points are an independent uniform
        draw without noise.

        Args:
            f: a function that maps (N,) to (N,) arrays or, of several inputs, (N, d_in) to (N,) or (N, d_out).
            d_in: the number of inputs, by default 1, or that of a formula.
            interval: the interval of every input.
            n: the number of training points.
            n_test: the number of test points, by default n.
            sampling: "random" or "grid".
            noise: the standard deviation of Gaussian noise on the training targets.
            seed: the seed of every draw.
            name: the problem's name in tables and files, by default that of the function.
            standardize: as in `from_arrays`.
            protocol: as in `from_arrays`.

        Returns:
            A `Problem`.

        >>> Problem.from_function(lambda x: x[:, 0] * x[:, 1], d_in=2, n=10, sampling="grid", name="xy").description
        'xy on [-1, 1]^2, grid of 3^2 = 9 points'
        """
        interval = check_interval(interval)
        if d_in is None:
            d_in = f.d_in if isinstance(f, Expression) else 1
        d_in = whole_number("d_in", d_in, 1, 10_000)
        if isinstance(f, Expression) and d_in != f.d_in:
            raise GatelabError(f"d_in is {d_in} and the formula {f.text!r} has {f.d_in} inputs; leave d_in out")
        paper = rows.checked_protocol(protocol, n_test=n_test)
        n, n_test = rows.sizes(n, n_test)
        noise = real_number("noise", noise, least=0)
        what = f"a problem of {n} training and {n_test} test points with {d_in} inputs"
        check_memory([(4, n + n_test, d_in + 1)], what, "give a smaller n or n_test")  # with copies during the checks
        # Three generators, so that the test points depend neither on the noise nor on the sampling.
        for_train, for_test, for_noise = (np.random.default_rng(s) for s in rows.seeds(seed).spawn(3))
        x = rows.sample(sampling, interval, n, d_in, for_train)
        x_test = rows.sample("random", interval, n_test, d_in, for_test)
        y = rows.values(f, x)
        rows.require_varying(y)
        train = Data(x, y + noise * for_noise.standard_normal(y.shape))
        test = train if paper else Data(x_test, rows.values(f, x_test))
        name = str(name or getattr(f, "text", None) or getattr(f, "__name__", type(f).__name__))
        description = f"{name} on [{interval[0]:g}, {interval[1]:g}]" + f"^{d_in}" * (d_in > 1)
        if d_in > 1 and sampling == "grid":
            description += f", grid of {rows.grid_side(n, d_in)}^{d_in} = {len(x)} points"
        if paper:
            name = PAPER.format(name)
        problem = cls(name, train, test, interval if d_in == 1 else None, f, description, noise=noise)
        return rows.standardized(problem) if standardize else problem
