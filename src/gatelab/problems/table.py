"""Files of a user as inputs and targets: which columns are which.

How each kind of file is read is said in `formats`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gatelab.errors import GatelabError, unknown_name
from gatelab.problems.checks import Array, warn_of_labels
from gatelab.problems.formats import Columns, open_columns

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
