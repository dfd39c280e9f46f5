"""CSV, Parquet and numpy files as columns of numbers; nothing is ever unpickled.

A file is opened first, for the names and the number of its columns, and the columns that are wanted are read then, in
parts: text in a column that nobody asked for does no harm, and a file may be larger than the memory.

Files of a user as inputs and targets: which columns are which.

How each kind of file is read is said in `formats`.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from gatelab.arrays import Array
from gatelab.data.checks import are_row_labels, unnamed, warn_of_labels
from gatelab.errors import GatelabError, unknown_name

_PART = 2**20  # numbers that are read at once
MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
_OUT = "remove or replace it, or leave the column out by naming the inputs"


Parts = Iterator[tuple[Array, float]]
"""Rows of a file, part by part, each with the fraction of the file that is read then."""


@dataclass(frozen=True, eq=False)
class Columns:
    """What a file holds: how many columns, how to read some, their names if any, how many of the last are targets.

    `labels` are columns that number or name the rows, such as the index of a data frame: no inputs unless asked for.
    """

    count: int
    parts: Callable[[Sequence[int]], Parts]
    names: tuple[str, ...] = ()
    targets: int = 1
    labels: tuple[int, ...] = ()

    def take(self, wanted: Sequence[int]) -> Array:
        """All rows of these columns."""
        parts = [values for values, _ in self.parts(wanted)]
        return np.concatenate(parts) if parts else np.empty((0, len(wanted)))

    def label(self, i: int) -> str:
        return repr(self.names[i]) if self.names else f"column {i}"


def open_columns(path: Path) -> Columns:
    """The columns of a file, by its ending; whatever has no ending of ours is read as text."""
    readers = {".parquet": _parquet, ".pq": _parquet, ".npy": _npy, ".npz": _npz}
    try:
        return readers.get(path.suffix.lower(), _text)(path)
    except OSError as error:
        raise GatelabError(
            f"{path} cannot be read ({error.strerror or error}); give a file that you may read"
        ) from error


# ---- text


def _text(path: Path) -> Columns:
    with path.open("rb") as raw:
        beginning = [line for line in islice(_lines(raw, path), 1000) if line.strip()][:2]
    # Semicolons before commas, since with them commas are decimal; a comma alone decides nothing.
    delimiter = next((d for d in "\t;" if beginning and all(d in line for line in beginning)), ",")

    def rows(raw: IO[bytes]) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(_lines(raw, path), delimiter=delimiter, skipinitialspace=True)
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield reader.line_num, cells
        except csv.Error as error:
            raise GatelabError(f"{path} line {reader.line_num}: {error}; give a plain CSV file") from None

    with path.open("rb") as raw:
        first = next(rows(raw), None)
    if first is None:
        raise GatelabError(f"{path} has no rows; give a CSV file with one example a line")
    line, cells = first
    header = not any(_is_number(cell) for cell in cells)
    names = tuple(cell.strip() or f"column {i}" for i, cell in enumerate(cells)) if header else ()

    def parts(wanted: Sequence[int]) -> Parts:
        size, values, last = path.stat().st_size, array("d"), 0
        with path.open("rb") as raw:
            body = rows(raw)
            if header:
                next(body)
            for last, row in body:
                if len(row) != len(cells):
                    raise GatelabError(
                        f"{path} line {last} has {len(row)} column{'s' * (len(row) != 1)}; line {line} has"
                        f" {len(cells)}: give every line as many"
                    )
                for k in wanted:
                    values.append(_number(row[k], path, last, columns.label(k)))
                if len(values) >= _PART:
                    yield np.frombuffer(values, dtype=np.float64).reshape(-1, len(wanted)), raw.tell() / size
                    values = array("d")
        if not last:
            raise GatelabError(f"{path} has a header and no rows; give a CSV file with one example a line")
        if values:
            yield np.frombuffer(values, dtype=np.float64).reshape(-1, len(wanted)), 1.0

    def labels_rows(i: int) -> bool:
        with path.open("rb") as raw:
            return are_row_labels([row[i] for _, row in islice(rows(raw), 1, None) if len(row) == len(cells)])

    labels = tuple(i for i in unnamed(cells) if header and labels_rows(i))
    columns = Columns(len(cells), parts, names, labels=labels)
    return columns


def _lines(raw: IO[bytes], path: Path) -> Iterator[str]:
    """The lines of a text, unpacked if need be, whatever ends them: csv alone refuses those of old spreadsheets."""
    packed = path.suffix.lower() == ".gz"
    binary = gzip.GzipFile(fileobj=raw) if packed else raw
    try:
        yield from io.TextIOWrapper(binary, encoding="utf-8-sig", newline=None)  # pyright: ignore[reportArgumentType]
    except UnicodeDecodeError:
        raise GatelabError(f"{path} is not a text file; give a CSV file in UTF-8, Parquet, .npy or .npz") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise GatelabError(f"{path} is not a whole gzip file ({error}); copy or pack it again") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(cell: str, path: Path, line: int, label: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    # Python reads 1_000 as a number; in a file it is a slip.
    if math.isfinite(value) and "_" not in cell:
        return value
    cell = cell.strip()
    if cell.lower() in MISSING:
        raise GatelabError(f"{path} line {line}: the value in {label} is missing ({cell!r}); {_OUT}")
    if math.isinf(value):
        raise GatelabError(f"{path} line {line}: the value in {label} is infinite ({cell!r}); {_OUT}")
    comma = " with a decimal point," if re.fullmatch(r"[-+]?[0-9]+,[0-9]+", cell) else ""
    raise GatelabError(f"{path} line {line}: {cell!r} in {label} is not a number; write numbers{comma} or {_OUT}")


# ---- numpy


def _npy(path: Path) -> Columns:
    try:
        # A large file stays on the disk, and its rows are read as they are wanted.
        large = path.stat().st_size > 8 * _PART
        return _of_array(np.load(path, mmap_mode="r" if large else None, allow_pickle=False), path)
    except (ValueError, EOFError) as error:
        if isinstance(error, GatelabError):
            raise
        raise GatelabError(
            f"{path} is not a plain .npy array ({error}); write it with numpy.save, N x k numbers"
        ) from None


def _npz(path: Path) -> Columns:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise GatelabError(
            f"{path} is not a plain .npz file ({error}); write it with numpy.savez(x=..., y=...)"
        ) from None
    if len(arrays) == 1:
        return _of_array(next(iter(arrays.values())), path)
    by_axis = {name.lower(): array for name, array in arrays.items()}
    if len(arrays) != 2 or set(by_axis) != {"x", "y"}:
        raise GatelabError(
            f"{path} holds the arrays {', '.join(map(repr, arrays)) or 'none'}; give one array of N x k numbers, or two"
            " called x and y, or X and y"
        )
    x, y = (a[:, None] if a.ndim == 1 else a for a in (by_axis["x"], by_axis["y"]))
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y):
        raise GatelabError(
            f"{path} holds x of shape {by_axis['x'].shape} and y of shape {by_axis['y'].shape}; give one row for each"
            " example in both"
        )
    _require_real(x, path)
    _require_real(y, path)
    return _of_array(np.hstack([x, y]), path, y.shape[1])


def _of_array(values: np.ndarray, path: Path, targets: int = 1) -> Columns:
    if values.ndim != 2 or values.shape[1] == 0:
        raise GatelabError(
            f"{path} holds an array of shape {values.shape}; give N x k numbers, an example a row, the target last"
        )
    _require_real(values, path)

    def parts(wanted: Sequence[int]) -> Parts:
        step = max(1, _PART // values.shape[1])
        for start in range(0, len(values), step):
            rows = np.array(values[start : start + step, list(wanted)], dtype=np.float64)
            bad = ~np.isfinite(rows)
            if bad.any():
                row, k = np.argwhere(bad)[0]
                raise GatelabError(
                    f"{path} row {start + row} (counted from 0): the value in column {wanted[k]} is {rows[row, k]};"
                    f" {_OUT}"
                )
            yield rows, min(1.0, (start + step) / len(values))

    return Columns(values.shape[1], parts, (), targets)


def _require_real(values: np.ndarray, path: Path) -> None:
    if values.dtype.kind not in "biuf":
        raise GatelabError(f"{path} holds {values.dtype}, not real numbers; give an array of N x k numbers")


# ---- Parquet


def _parquet(path: Path) -> Columns:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise GatelabError(
            f"{path} needs pyarrow, which is not installed: pip install 'gatelab[parquet]', or give a CSV file"
        ) from None
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowException as error:
        raise GatelabError(f"{path} is not a Parquet file ({error}); give a whole one, or a CSV file") from None
    # The index that pandas writes along is no column of the user's: without a name it is hidden, with one no input.
    indexed = (file.schema_arrow.pandas_metadata or {}).get("index_columns", ())
    names = tuple(n for n in file.schema_arrow.names if not re.fullmatch(r"__index_level_\d+__", n))
    if not names:
        raise GatelabError(f"{path} has no columns; give inputs and a target")
    if len(set(names)) < len(names):
        raise GatelabError(f"{path} has two columns of one name ({', '.join(names)}); name them apart")

    def parts(wanted: Sequence[int]) -> Parts:
        chosen = [names[i] for i in wanted]
        start = 0
        try:
            for batch in file.iter_batches(max(1, _PART // len(chosen)), columns=chosen):
                table = pa.Table.from_batches([batch])
                rows = np.column_stack([_numeric(table.column(name), name, path, start) for name in chosen])
                start += len(rows)
                yield rows, start / file.metadata.num_rows
        except pa.ArrowException as error:
            raise GatelabError(f"{path} cannot be read ({error}); write it again") from None

    bare = [i for i in unnamed(names) if are_row_labels(file.read(columns=[names[i]]).column(0).to_pylist())]
    labels = tuple(i for i, name in enumerate(names) if name in indexed or i in bare)
    return Columns(len(names), parts, names, labels=labels)


def _numeric(column: Any, name: str, path: Path, start: int) -> Array:
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise GatelabError(f"{path}: the column {name!r} holds {kind}, not numbers; {_OUT}")
    values = np.asarray(column.to_numpy(), dtype=np.float64)  # null becomes nan
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(np.argmax(bad))
        told = "missing" if np.isnan(values[row]) else "infinite"
        raise GatelabError(f"{path} row {start + row} (counted from 0): the value in {name!r} is {told}; {_OUT}")
    return values


Selector = str | int


@dataclass(frozen=True, eq=False)
class Table:
    """Inputs x (N, d_in), targets y (N, d_out) and the names of both, none where the file has none."""

    x: Array
    y: Array
    columns: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


def read_table(path: str | Path, *, target: Any = None, inputs: Any = None) -> Table:
    """The columns of a file: the target is the last, or what the file calls y, and the inputs are all others, unless
    they are given by name or by number, counted from 0, one or several. A column that labels the rows, such as the
    index that a data frame writes along, is no input unless it is given; a warning says so.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "points.csv"
    ...     _ = file.write_text("when,height,speed\\n0,1,2\\n1,3,4\\n")
    ...     table = read_table(file, target="height")
    >>> table.columns, table.y.ravel()
    (('when', 'speed'), array([1., 3.]))
    """
    path = Path(path)
    if not path.is_file():
        raise GatelabError(f"there is no file {path}; give a CSV, Parquet, .npy or .npz file")
    source = open_columns(path)
    if source.count < 2:
        raise GatelabError(
            f"{path} has one column; give a column for each input and one for the target, in a CSV file with commas,"
            " semicolons or tabs between"
        )
    everything = range(source.count)
    outs = everything[-source.targets :] if target is None else indices("target", target, source, path)
    ins = _others(source, outs, path) if inputs is None else indices("inputs", inputs, source, path)
    if both := [source.label(i) for i in ins if i in outs]:
        raise GatelabError(f"{path}: {', '.join(both)} is both input and target; give it to one of them")
    if not ins:
        raise GatelabError(f"{path}: every column is a target, none is left as input; give fewer targets")
    values = source.take([*ins, *outs])
    columns, targets = (tuple(source.names[i] for i in some) if source.names else () for some in (ins, outs))
    return Table(values[:, : len(ins)], values[:, len(ins) :], columns, targets)


def _others(source: Columns, outs: Sequence[int], path: Path) -> list[int]:
    """Every column that is no target and does not merely number the rows."""
    others = [i for i in range(source.count) if i not in outs]
    labels = ", ".join(source.label(i) for i in others if i in source.labels)
    if not labels:
        return others
    if all(i in source.labels for i in others):
        raise GatelabError(f"{path}: {labels} labels the rows and nothing else is left as input; give it as inputs")
    warn_of_labels(f"{path}: {labels} labels the rows and is left out; give the inputs by name to use it")
    return [i for i in others if i not in source.labels]


def indices(what: str, columns: Any, source: Columns, path: Path) -> list[int]:
    """The places of columns that are given by name or by number, one or several, each once."""
    many = list(columns) if isinstance(columns, Sequence | np.ndarray) and not isinstance(columns, str) else [columns]
    if not many:
        raise GatelabError(f"{what} is empty; give one column of {path} or more, or leave {what} out")
    places = [_index(what, one, source, path) for one in many]
    if len(set(places)) < len(places):
        raise GatelabError(f"{what} names a column of {path} twice: {many}; give each once")
    return places


def _index(what: str, one: Any, source: Columns, path: Path) -> int:
    if isinstance(one, str):
        if source.names.count(one) > 1:
            raise GatelabError(
                f"{path} has {source.names.count(one)} columns called {one!r}; give {what} by number,"
                f" 0 to {source.count - 1}"
            )
        if one in source.names:
            return source.names.index(one)
        if not one.isdecimal() and source.names:
            raise unknown_name(f"column of {path}", one, source.names)
    try:
        number = int(one) if isinstance(one, str) else one.__index__()
    except (AttributeError, ValueError):
        has = "columns" if source.names else "columns without names"
        raise GatelabError(
            f"{what} is {one!r} and {path} has {source.count} {has}; give numbers, 0 to {source.count - 1}"
        ) from None
    if not -source.count <= number < source.count:
        raise GatelabError(
            f"{what} is column {number} and {path} has {source.count} columns; give 0 to {source.count - 1}"
        )
    return number % source.count
