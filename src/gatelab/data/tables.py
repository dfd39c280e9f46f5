"""Inputs and targets from CSV, Parquet and numpy files, without unpickling.

Only selected columns become numbers, so that others may hold text. CSV is read by Python's `csv`, since pandas reports
neither the line nor the column of a value that is not a number, and pads short lines.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import operator
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gatelab.arrays import Array, fingerprint
from gatelab.data.archives import import_pyarrow, locate
from gatelab.data.rows import are_row_labels, unnamed, warn_of_columns
from gatelab.data.specification import Dataset
from gatelab.display import counted
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import as_path

PART = 2**16  # rows per part
MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
FILES = "give a CSV, Parquet, .npy or .npz file"
WAY_OUT = "remove or replace it, or leave the column out by naming the inputs"
Selector = str | int
# The texts that pandas reads as missing values.
_GAP = re.compile(r"|#N/A( N/A)?|#NA|-?1\.#(IND|QNAN)|<NA>|N/A|NA|NULL|-?NaN|-?nan|None|n/a|null")


@dataclass(frozen=True, eq=False)
class Table:
    """Inputs (N, d_in) and targets (N, d_out) of a file, and their names, if the file has names."""

    x: Array
    y: Array
    columns: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a file: its values (text of a CSV file) and names, if it has names.

    The last `targets` columns are targets; `labels` are columns that label the rows and are not inputs by default;
    `lines` has the line of each row of a CSV file.
    """

    path: Path
    frame: pd.DataFrame
    names: tuple[str, ...] = ()
    targets: int = 1
    labels: tuple[int, ...] = ()
    lines: Sequence[int] = ()

    @property
    def count(self) -> int:
        return self.frame.shape[1]

    def parts(self, wanted: Sequence[int], tabular: bool = False) -> Iterator[tuple[Any, float]]:
        """Some columns, part by part of the rows, as numbers or as they are, and the fraction of the rows so far."""
        rows: Any = self.frame.iloc[:, list(wanted)] if tabular else self.take(wanted)
        if not len(rows):
            raise GatelabError("the file has no rows; give one row per example")
        for start in range(0, len(rows), PART):
            yield rows[start : start + PART], min(1.0, (start + PART) / len(rows))

    def take(self, wanted: Sequence[int]) -> Array:
        """Some columns as finite numbers."""
        return np.column_stack([np.empty((len(self.frame), 0)), *map(self.numbers, wanted)])

    def numbers(self, i: int) -> Array:
        column, label = self.frame.iloc[:, i], self.label(i)
        if self.lines:
            cells = zip(column, self.lines, strict=True)
            return np.array([number(cell, self.path, line, label) for cell, line in cells], dtype=np.float64)
        if column.dtype.kind not in "biuf":
            raise GatelabError(f"{self.path}: the column {label} holds {column.dtype}, not numbers; {WAY_OUT}")
        values = column.to_numpy(np.float64)
        bad = ~np.isfinite(values)
        if bad.any():
            row = int(np.argmax(bad))
            fault = "missing (nan)" if np.isnan(values[row]) else "infinite"
            raise GatelabError(f"{self.path} row {row} (counted from 0): the value in {label} is {fault}; {WAY_OUT}")
        return values

    def label(self, i: int) -> str:
        """A column's name in messages: the quoted name, or its number in a file without names."""
        return repr(self.names[i]) if self.names else f"column {i}"


def read_table(path: str | Path, *, target: Any = None, inputs: Any = None) -> Table:
    """The columns of a file as inputs and targets, as in `Problem.from_file`; those of the y of an .npz are targets."""
    path = as_path(path, FILES)
    if not path.is_file():
        raise GatelabError(f"there is no file {path}; {FILES}")
    source = open_columns(path)
    if source.count < 2:
        raise GatelabError(
            f"{path} has one column; give one column per input and one for the target, in a CSV file separated by"
            " commas, semicolons or tabs"
        )
    last = range(source.count)[-source.targets :]
    outs = last if target is None else indices("target", target, source, path)
    ins = other_columns(source, outs, path) if inputs is None else indices("inputs", inputs, source, path)
    if both := [source.label(i) for i in ins if i in outs]:
        raise GatelabError(f"{path}: {', '.join(both)} is both input and target; give it to one of them")
    if not ins:
        raise GatelabError(f"{path}: every column is a target and no input remains; give fewer targets")
    values = source.take([*ins, *outs])
    columns, targets = (tuple(source.names[i] for i in some if source.names) for some in (ins, outs))
    return Table(values[:, : len(ins)], values[:, len(ins) :], columns, targets)


def other_columns(source: Columns, outs: Sequence[int], path: Path) -> list[int]:
    """Every column that is neither a target nor a row label."""
    others = [i for i in range(source.count) if i not in outs]
    labels = ", ".join(source.label(i) for i in others if i in source.labels)
    if not labels:
        return others
    if all(i in source.labels for i in others):
        raise GatelabError(f"{path}: the only input {labels} labels the rows; give it as inputs to use it")
    warn_of_columns(f"{path}: {labels} labels the rows and is left out; give the inputs by name to use it")
    return [i for i in others if i not in source.labels]


def indices(what: str, columns: Any, source: Columns, path: Path) -> list[int]:
    """The numbers of columns that are given by name or by number, one or several, each once."""
    selectors = [columns]
    if isinstance(columns, Sequence | np.ndarray) and not isinstance(columns, str):
        selectors = list(columns)
    if not selectors:
        raise GatelabError(f"{what} is empty; give one column of {path} or more, or leave {what} out")
    places = [index_of(what, selector, source, path) for selector in selectors]
    if len(set(places)) < len(places):
        raise GatelabError(f"{what} names a column of {path} twice: {selectors}; give each once")
    return places


def index_of(what: str, selector: Any, source: Columns, path: Path) -> int:
    numbers = f"0 to {source.count - 1}"
    if isinstance(selector, str):
        if (same := source.names.count(selector)) > 1:
            raise GatelabError(f"{path} has {same} columns called {selector!r}; give {what} by number, {numbers}")
        if same:
            return source.names.index(selector)
        if not selector.isdecimal() and source.names:
            raise unknown_name(f"column of {path}", selector, source.names)
    try:
        number = int(selector) if isinstance(selector, str) else operator.index(selector)
        return range(source.count)[number]
    except (TypeError, ValueError, IndexError):
        columns = f"{source.count} columns" + " without names" * (not source.names)
        raise GatelabError(f"{what} is column {selector!r} and {path} has {columns}; give numbers, {numbers}") from None


def open_columns(path: Path) -> Columns:
    if path.suffix.lower() in (".xlsx", ".xlsm", ".xls", ".ods"):
        raise GatelabError(f"{path} is a spreadsheet, which is not read; save its sheet as a CSV file and give that")
    readers = {".parquet": open_parquet, ".pq": open_parquet, ".npy": open_npy, ".npz": open_npz}
    try:
        return readers.get(path.suffix.lower(), open_text)(path)
    except OSError as error:
        raise GatelabError(
            f"{path} cannot be read ({error.strerror or error}); give a file that you may read"
        ) from error


# ---- text


def open_text(path: Path) -> Columns:
    """The columns of a CSV file, separated by commas, semicolons or tabs, gzipped or not."""
    lines = text_lines(path)
    beginning = [line for line in lines[:1000] if line.strip()][:2]
    # Semicolons before commas, which may be decimal commas.
    delimiter = next((d for d in "\t;" if beginning and all(d in line for line in beginning)), ",")
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    try:
        rows = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise GatelabError(f"{path} line {reader.line_num}: {error}; give a plain CSV file") from None
    if not rows:
        raise GatelabError(f"{path} has no rows; give a CSV file with one example per line")
    line, first = rows[0]
    for last, row in rows:
        if len(row) != len(first):
            raise GatelabError(
                f"{path} line {last} has {counted(len(row), 'column')}; line {line} has {len(first)}: give the"
                " same number in every line"
            )
    names: tuple[str, ...] = ()
    if is_header(first, [row for _, row in rows[1:1000]], f"{path} line {line}"):
        names, rows = tuple(cell.strip() or f"column {i}" for i, cell in enumerate(first)), rows[1:]
    if not rows:
        raise GatelabError(f"{path} has a header and no rows; give a CSV file with one example per line")
    labels = [i for i in unnamed(first) if are_row_labels([row[i] for _, row in rows])] if names else []
    frame = pd.DataFrame([row for _, row in rows], dtype=object)
    return Columns(path, frame, names, labels=tuple(labels), lines=[line for line, _ in rows])


def text_lines(path: Path) -> list[str]:
    """The lines of a text file, unpacked if it is gzipped, with any line ending: csv refuses old ones."""
    raw = path.read_bytes()
    try:
        if path.suffix.lower() == ".gz":
            raw = gzip.decompress(raw)
        return list(io.StringIO(raw.decode("utf-8-sig"), newline=None))
    except UnicodeDecodeError:
        raise GatelabError(f"{path} is not a text file; give a CSV file in UTF-8, Parquet, .npy or .npz") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise GatelabError(f"{path} is not a whole gzip file ({error}); copy or pack it again") from None


def number(cell: str, path: Path, line: int, label: str) -> float:
    value = float(cell) if is_number(cell) else math.nan
    # Python reads 1_000 as a number; in a file it is a mistake.
    if math.isfinite(value) and "_" not in cell:
        return value
    cell, where = cell.strip(), f"{path} line {line}"
    for fault, applies in (("missing", cell.lower() in MISSING), ("infinite", math.isinf(value))):
        if applies:
            raise GatelabError(f"{where}: the value in {label} is {fault} ({cell!r}); {WAY_OUT}")
    comma = " with a decimal point and without separators," * bool(re.fullmatch(r"[-+]?[0-9]+[,.][0-9.,]+", cell))
    raise GatelabError(f"{where}: {cell!r} in {label} is not a number; write numbers{comma} or {WAY_OUT}")


def is_header(first: list[str], body: list[list[str]], where: str) -> bool:
    """Whether the first row names the columns, with a warning if it has numbers and might.

    Numbers count as names if they are years, or four or more in equal steps, and the rows below differ from them or
    have numbers below a text.
    """
    places = [i for i, cell in enumerate(first) if is_number(cell)]
    if not places:
        return True
    if not body or not all(re.fullmatch(r"[0-9.]+", first[i].strip()) for i in places):
        return False
    texts = [i for i in range(len(first)) if i not in places and first[i].strip().lower() not in MISSING]
    named = any(all(is_number(row[i]) for row in body) for i in texts)
    numbers = np.array([float(first[i]) for i in places])
    rows = np.array([[float(row[i]) if is_number(row[i]) else np.nan for i in places] for row in body])
    low, high = np.fmin.reduce(rows), np.fmax.reduce(rows)  # which ignore NaN
    with np.errstate(all="ignore"):
        beyond = (numbers < 2 * low - high) | (numbers > 2 * high - low)
    years = bool(((numbers >= 1800) & (numbers <= 2100) & (numbers % 1 == 0)).all())
    steps = np.diff(numbers)
    equal = len(steps) > 0 and steps[0] > 0 and np.allclose(steps, steps[0])
    equal = equal and float(np.mean(np.isclose(np.diff(rows, axis=1), steps[0]).all(axis=1))) < 0.1
    line = f"{where}: {','.join(first)[:60]} is taken as"
    if (years and (named or beyond.all())) or (equal and len(steps) >= 3):
        warn_of_columns(f"{line} names of columns; if it is data, put a line of names above it")
        return True
    numbered = equal and steps[0] == 1 and (len(steps) >= 2 or numbers[0] == 0) and first[places[0]].isdecimal()
    if named or numbered or (years and beyond.any()):
        warn_of_columns(f"{line} data; if these are names of columns, write them as c0,c1,...")
    return False


def is_gap(cell: str) -> bool:
    """Whether a cell is a missing value, here or in pandas."""
    return cell.strip().lower() in MISSING or bool(_GAP.fullmatch(cell.strip()))


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


# ---- numpy


def open_npy(path: Path) -> Columns:
    try:
        values = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise GatelabError(
            f"{path} is not a plain .npy array ({error}); write it with numpy.save, N x k numbers"
        ) from None
    return array_columns(values, path)


def open_npz(path: Path) -> Columns:
    """The columns of an .npz file with one array, or with two called x and y."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise GatelabError(
            f"{path} is not a plain .npz file ({error}); write it with numpy.savez(x=..., y=...)"
        ) from None
    if len(arrays) == 1:
        return array_columns(next(iter(arrays.values())), path)
    by_axis = {name.lower(): array for name, array in arrays.items()}
    if len(arrays) != 2 or set(by_axis) != {"x", "y"}:
        raise GatelabError(
            f"{path} holds the arrays {', '.join(map(repr, arrays)) or 'none'}; give one array of N x k numbers, or two"
            " called x and y, or X and y"
        )
    x, y = (a[:, None] if a.ndim == 1 else a for a in (by_axis["x"], by_axis["y"]))
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y):
        raise GatelabError(
            f"{path} holds x of shape {by_axis['x'].shape} and y of shape {by_axis['y'].shape}; give one row per"
            " example in both"
        )
    return array_columns(np.hstack([x, y]), path, y.shape[1])


def array_columns(values: np.ndarray, path: Path, targets: int = 1) -> Columns:
    if values.ndim != 2 or values.shape[1] == 0:
        raise GatelabError(
            f"{path} holds an array of shape {values.shape}; give N x k numbers, one row per example, the target last"
        )
    if values.dtype.kind not in "biuf":
        raise GatelabError(f"{path} holds {values.dtype}, not real numbers; give an array of N x k numbers")
    return Columns(path, pd.DataFrame(values), targets=targets)


# ---- Parquet


def open_parquet(path: Path) -> Columns:
    pa, pq = import_pyarrow(path, "a CSV file")
    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise GatelabError(f"{path} is not a Parquet file ({error}); give a whole one, or a CSV file") from None
    # The index of a pandas table is not an input; an index without a name is hidden.
    indexed = (table.schema.pandas_metadata or {}).get("index_columns", ())
    names = tuple(n for n in table.column_names if not re.fullmatch(r"__index_level_\d+__", n))
    if not names:
        raise GatelabError(f"{path} has no columns; give inputs and a target")
    if len(set(names)) < len(names):
        raise GatelabError(f"{path} has two columns of one name ({', '.join(names)}); give distinct names")
    frame = table.select(list(names)).replace_schema_metadata().to_pandas()
    bare = [i for i in unnamed(names) if are_row_labels(frame.iloc[:, i])]
    labels = tuple(i for i, name in enumerate(names) if name in indexed or i in bare)
    return Columns(path, frame, names, labels=labels)


# ---- measured data


def load_measured(data: Dataset) -> Table:
    path, url = locate(data.archive, data.name), data.archive.url
    try:
        table = data.read(path)
    except GatelabError:
        raise
    except (tarfile.TarError, KeyError, ValueError, EOFError, OSError, zlib.error) as error:
        raise GatelabError(f"{path} cannot be read as {data.name} ({error}); copy it again from {url}") from error
    if table.x.shape != (data.rows, len(data.columns)) or table.columns not in ((), data.columns):
        raise GatelabError(
            f"{path} holds {len(table.x)} rows of {table.x.shape[1]} inputs {', '.join(table.columns)}; {data.name} has"
            f" {data.rows} of {', '.join(data.columns)}: copy it again from {url}, or fit your own file with"
            " Problem.from_file"
        )
    return Table(table.x, table.y, data.columns)


def table_fingerprint(table: Table) -> str:
    """A short hash of the values, the same on every machine."""
    parts = [part for values in (table.x, table.y) for part in (repr(values.shape), values.astype("<f8"))]
    return fingerprint(parts, 12)
