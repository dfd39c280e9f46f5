"""The rows that a kernel is of: a file, a problem or Gaussian numbers; how many fit; which are too alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatelab.cli.reading import columns_by_name, said_warnings
from gatelab.errors import GatelabError
from gatelab.memory import check_memory, most_that_fits, size_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

MANY = 20_000  # beyond it a kernel takes gigabytes and its eigenvalues minutes: only when asked for
COPIES = 2  # the kernel itself, and its shifted copy, in which the Cholesky factor is made


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """n rows of d inputs, what they are called, and whether they are standard Gaussian, for which there is theory."""

    x: Array
    name: str
    gaussian: bool = False

    @property
    def n(self) -> int:
        return len(self.x)

    @property
    def d(self) -> int:
        return self.x.shape[1]


def read_rows(
    problem: str | None,
    data: Path | None,
    gaussian: str | None,
    *,
    target: str | None,
    inputs: str | None,
    all_inputs: bool,
    standardise: bool | None,
    rows: int | None,
    seed: int,
    names: Sequence[str] = (),
) -> ChosenRows:
    """The inputs that the options mean, at most `rows` of them, drawn by the seed; `names` are those of a model."""
    import numpy as np

    given = [name for name, value in (("a problem", problem), ("--data", data), ("--gaussian", gaussian)) if value]
    if len(given) != 1:
        raise GatelabError(
            f"{' and '.join(given) or 'nothing'} is given; give one of them: a problem such as friedman1, --data FILE, "
            "or --gaussian 400,100"
        )
    if data is None and (target is not None or inputs is not None or all_inputs):
        raise GatelabError("--target, --inputs and --no-target are about columns of a file; give it with --data FILE")
    if gaussian:
        if standardise is not None:
            raise GatelabError("Gaussian rows are standardised already; leave --standardise and --raw out")
        n, d = _pair(gaussian)
        _check_many(n, rows)
        check_memory(8 * n * d, f"{n} Gaussian rows of {d} inputs", "give fewer")
        found = ChosenRows(np.random.default_rng(seed).standard_normal((n, d)), f"Gaussian, seed {seed}", True)
    elif data is not None:
        x = _columns(data, target, inputs, all_inputs, names)
        if standardise:
            from gatelab.data.rows import Scale

            x = Scale.of(x).shrink(x)
        found = ChosenRows(x, data.name)
    else:
        from gatelab.data import problem as named

        made = named(problem or "", standardise=standardise)
        found = ChosenRows(made.train.x, made.name)
    _check_many(found.n, rows)
    if rows is None or rows >= found.n:
        return found
    # In their order, so that what is saved can be laid beside the file.
    kept = np.sort(np.random.default_rng(seed).choice(found.n, rows, replace=False))
    return ChosenRows(found.x[kept], f"{found.name}, {rows} of {found.n} rows", found.gaussian)


def _pair(text: str) -> tuple[int, int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(p.isascii() and p.isdecimal() and 0 < int(p) <= 10**9 for p in parts):
        raise GatelabError(f"--gaussian is {text!r}; give rows and inputs, such as --gaussian 400,100")
    return int(parts[0]), int(parts[1])


def _columns(path: Path, target: str | None, inputs: str | None, all_inputs: bool, names: Sequence[str]) -> Array:
    from gatelab.data.tables import open_columns, read_table

    unsaid = target is None and inputs is None
    if all_inputs and not unsaid:
        raise GatelabError("--no-target takes every column as input; leave --target and --inputs out")
    if not path.is_file():
        raise GatelabError(f"there is no file {path}; give a CSV, Parquet, .npy or .npz file")
    if all_inputs or (unsaid and names):
        columns = open_columns(path)
        by_name = None if all_inputs else columns_by_name(columns, path, names)
        if all_inputs or by_name is not None:
            every = [i for i in range(columns.count) if i not in columns.labels]
            return columns.take(by_name or every)
    split = [None if text is None else [name.strip() for name in text.split(",")] for text in (target, inputs)]
    with said_warnings():
        return read_table(path, target=split[0], inputs=split[1]).x


def _check_many(n: int, rows: int | None) -> None:
    if n > MANY and rows is None:
        raise GatelabError(
            f"there are {n} rows, whose kernel takes {size_text(8 * n * n)}, and its factors as much again; "
            f"--rows {MANY} draws so many of them by --seed, --rows {n} takes all"
        )


def check_kernels(n: int, kernels: int) -> bool:
    """Refuse kernels that would not fit; whether all of them fit at once, else one after the other."""
    one = 8 * n * n
    most = max(1, int(most_that_fits(8 * COPIES) ** 0.5))
    check_memory(COPIES * one, f"the kernel of {n} rows with its factors", f"give --rows {most} or fewer")
    return COPIES - 1 + kernels <= most_that_fits(one)


def alike(x: Array) -> str:
    """What makes a kernel singular in these rows, in words; nothing if nothing does.

    >>> import numpy as np
    >>> alike(np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0], [3.0, 6.0]]))
    '1 row is a copy of another, 1 row is zero, 1 row is a multiple of another'
    """
    import numpy as np

    x = x + 0.0  # -0.0 and 0.0 are the same number in different bits
    distinct = np.unique(x, axis=0)
    length = np.linalg.norm(distinct, axis=1)
    nonzero = distinct[length > 0] / length[length > 0, None]
    directions = len(np.unique(nonzero.round(13) + 0.0, axis=0))
    counts = (
        (len(x) - len(distinct), "a copy of another", "copies of others"),
        (int((length == 0).sum()), "zero", "zero"),
        (len(nonzero) - directions, "a multiple of another", "multiples of others"),
    )
    return ", ".join(f"1 row is {one}" if k == 1 else f"{k} rows are {more}" for k, one, more in counts if k)


def save_kernels(path: Path, kernels: dict[str, Any]) -> None:
    """One kernel as .npy, several as .npz by their units; whole or not at all."""
    import io

    import numpy as np

    from gatelab.files import write_whole

    held = io.BytesIO()
    if path.suffix.lower() == ".npy":
        np.save(held, next(iter(kernels.values())).numpy())
    else:
        np.savez(held, **{name: kernel.numpy() for name, kernel in kernels.items()})
    write_whole(path, held.getvalue())
