"""Between records and rows, and between filters and SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gatelab.errors import GatelabError
from gatelab.sweep.plain import Plain, decode, encode
from gatelab.sweep.run import Record, Run, RunStatus

COLUMNS = "key, task, arguments, status, metrics, history, error, seconds, versions, time, device"
INDEXES = 24
"""How many arguments are indexed at most: each costs some microseconds and bytes a record."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


class Index(NamedTuple):
    name: str
    sql: str


def to_row(r: Record) -> tuple:
    history = np.asarray(r.history, "<f8").tobytes()
    error = None if r.error is None else r.error.encode(errors="backslashreplace").decode()
    metrics, versions = encode(dict(r.metrics), "metrics"), encode(dict(r.versions), "versions")
    return (r.key, r.task, r.run.text, r.status, metrics, history, error, r.seconds, versions, r.time, r.device)


def from_row(row: tuple) -> Record:
    key, task, text, status, metrics, history, error, seconds, versions, time, device = row
    return Record(
        Run.stored(task, text, key),
        status,
        decode(metrics),
        tuple(np.frombuffer(history, "<f8").tolist()),
        error,
        seconds,
        decode(versions),
        device,
        time,
    )


def scalar_paths(arguments: Mapping[str, Plain]) -> list[str]:
    """The dotted paths of the arguments worth an index: single values, and those one level inside dicts.

    >>> scalar_paths({"unit": {"name": "glu", "sizes": [1, 2]}, "width": 8})
    ['width', 'unit.name']
    """
    outer = [name for name, value in arguments.items() if _indexable(value)]
    inner = [
        f"{name}.{part}"
        for name, inside in arguments.items()
        if isinstance(inside, Mapping)
        for part, value in inside.items()
        if _indexable(value)
    ]
    return outer + inner


def _indexable(value: Plain) -> bool:
    return not isinstance(value, list | tuple | Mapping) and len(str(value)) <= 200


def argument_index(path: str) -> Index | None:
    """The index over one argument; None where its name would need quoting.

    Task and status come second and third: SQLite takes the index with the most columns that a filter fixes, so one that
    fixes all three goes by the argument and not through every run of the task.
    """
    if not all(_NAME.fullmatch(part) for part in path.split(".")):
        return None
    index = f"argument_{path}"
    return Index(index, f'CREATE INDEX IF NOT EXISTS "{index}" ON records ({_argument(path)}, task, status)')


def _argument(path: str) -> str:
    # SQLite uses an index over an expression only where the filter has the same text: hence no parameter here.
    parts = path.split(".")
    if all(_NAME.fullmatch(p) for p in parts):
        return f"json_extract(arguments, '$.{path}')"
    if any(not p or '"' in p for p in parts):
        raise GatelabError(f"cannot filter by the argument {path!r}; give a name, or names joined by dots")
    quoted = ".".join(f'"{p}"' for p in parts).replace("'", "''")
    return f"json_extract(arguments, '$.{quoted}')"


def conditions(
    task: str | None, status: RunStatus | None, where: Mapping[str, Plain] | None, before: str | None = None
) -> tuple[str, list[object]]:
    """The WHERE clause and its values.

    >>> conditions("lab:fit", None, {"width": 8})
    ("WHERE task = ? AND json_extract(arguments, '$.width') = ?", ['lab:fit', 8])
    """
    if status not in (None, "done", "failed"):
        raise GatelabError(f"the status is {status!r}; give 'done' or 'failed'")
    terms: list[str] = []
    values: list[object] = []
    for column, value in (("task", task), ("status", status)):
        if value is not None:
            terms.append(f"{column} = ?")
            values.append(value)
    for path, value in (where or {}).items():
        plain = decode(encode(value, f"where[{path!r}]"))
        if plain is None:
            terms.append(f"{_argument(path)} IS NULL")
            continue
        terms.append(f"{_argument(path)} = ?")
        # What is no SQL value (sequences, dicts, NaN) SQLite gives as its JSON, and ours is written the same way.
        if isinstance(plain, int) and plain.bit_length() > 63:
            plain = float(plain)  # which is what SQLite makes of such a number in JSON
        simple = isinstance(plain, bool | int | str) or (isinstance(plain, float) and np.isfinite(plain))
        values.append(plain if simple else encode(plain))
    if before is not None:
        terms.append("time < ?")
        values.append(before)
    return (f"WHERE {' AND '.join(terms)}" if terms else ""), values
