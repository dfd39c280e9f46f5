"""The SQLite file of a store: its tables, and what its errors mean to a user.

Also the two translations that the store needs: between records and rows, with the arrays of a run in the form of a
safetensors file, and between filters and SQL.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError

from gatelab import tensors
from gatelab.errors import GatelabError
from gatelab.sweep.run import Plain, Record, Run, RunStatus, decode, encode

APPLICATION = 0x67617465  # "gate": tells our files from other programs' databases
PATIENCE = 60.0
"""Seconds to wait for another writer before giving up."""

SCHEMA = (
    """CREATE TABLE records (
        key TEXT PRIMARY KEY, task TEXT NOT NULL, arguments TEXT NOT NULL, status TEXT NOT NULL,
        metrics TEXT NOT NULL, history BLOB NOT NULL, error TEXT, seconds REAL NOT NULL, versions TEXT NOT NULL,
        time TEXT NOT NULL, device TEXT NOT NULL DEFAULT 'cpu', network INTEGER)""",
    # With the seconds in it, the mean time of a task's runs is read off the index alone.
    "CREATE INDEX records_by_task ON records (task, status, seconds)",
    """CREATE TABLE claims (
        key TEXT PRIMARY KEY, owner TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, started TEXT NOT NULL,
        heartbeat REAL NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX claims_by_owner ON claims (owner)",
    "CREATE TABLE networks (key TEXT PRIMARY KEY, content BLOB NOT NULL)",
    f"PRAGMA application_id = {APPLICATION}",
)
VERSION = 3


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, or make it; what cannot be written is opened to be read."""
    with explained(path):
        if path.is_dir():
            raise GatelabError(f"{path} is a folder; give the path of a file in it, such as {path / 'runs.db'}")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return _opened(path, str(path))
        except sqlite3.OperationalError as error:
            if _code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) or not path.is_file():
                raise
        address = f"{path.absolute().as_uri()}?mode=ro"
        try:
            return _opened(path, address)
        except sqlite3.OperationalError:
            log = path.with_name(f"{path.name}-wal")
            if log.exists() and log.stat().st_size:
                raise GatelabError(
                    f"{path} is read-only and its last records are still in {log.name}; copy both files to a folder "
                    "that you may write to, and open the copy"
                ) from None
            # Nobody writes to it: SQLite need not ask for locks, which it cannot have here.
            return _opened(path, f"{address}&immutable=1")


def _opened(path: Path, address: str) -> sqlite3.Connection:
    """The connection to a path, or to an address of a file that is only read, refused if it is no store of ours."""
    uri = address.startswith("file:")
    db = sqlite3.connect(address, timeout=PATIENCE, isolation_level=None, check_same_thread=False, uri=uri)
    try:
        tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if tables and db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise GatelabError(
                f"{path} is the database of another program; give the path of a new file or of a gatelab store"
            )
        _version(db, path)
        if not uri:
            _use_wal(db)
        # A killed process loses nothing that was committed; a power cut may cost the last records, never the file.
        db.execute("PRAGMA synchronous = NORMAL")
        _make_tables(db, path)
        # What a killed sweep left in the log goes into the file now: then the file alone is all of it. On a full
        # disk it stays in the log, from which it is read just as well.
        with suppress(sqlite3.OperationalError):
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    except BaseException:
        db.close()
        raise
    return db


def _version(db: sqlite3.Connection, path: Path) -> int:
    """The version of the schema, 0 in a new file; any other than ours is refused."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise GatelabError(
            f"{path} has schema {version}, but this gatelab knows schemas up to {VERSION}; update gatelab "
            "(pip install -U gatelab) or give another file. Nothing was changed"
        )
    if 0 < version < VERSION:
        raise GatelabError(
            f"{path} has schema {version}, from before the first release; give another file. Nothing was changed"
        )
    return version


def _use_wal(db: sqlite3.Connection) -> None:
    # SQLite does not wait by itself when two processes change the journal of a new file at once.
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _make_tables(db: sqlite3.Connection, path: Path) -> None:
    if _version(db, path) == VERSION:
        return
    with transaction(db):
        if _version(db, path) == 0:  # asked again inside: another process may have made them while we waited
            for statement in (*SCHEMA, f"PRAGMA user_version = {VERSION}"):
                db.execute(statement)


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. IMMEDIATE takes the write lock at once: a lock taken halfway could not be waited for."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has rolled back already
            db.execute("ROLLBACK")
        raise


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system say into what the user can do about it."""
    try:
        yield
    except sqlite3.Error as error:
        raise GatelabError(_explain(path, error)) from error
    except OSError as error:
        raise GatelabError(
            f"{path} cannot be used as a store ({error.strerror or error}); give a path in a folder that you may "
            "write to"
        ) from error


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extended part


def _explain(path: Path, error: sqlite3.Error) -> str:
    match _code(error):
        case sqlite3.SQLITE_NOTADB:
            return f"{path} is not a gatelab store (it is no SQLite file); give another path, it was left as it is"
        case sqlite3.SQLITE_CORRUPT:
            return (
                f"{path} is damaged or was cut short ({error}); nothing was changed. Restore a copy, or save what "
                f"can be read with: sqlite3 '{path}' .recover | sqlite3 recovered.db"
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return f"{path} cannot be written ({error}); give a path in a folder that you may write to"
        case sqlite3.SQLITE_FULL:
            return f"no space left for {path} ({error}); what was stored is safe. Free some space and start again"
        case sqlite3.SQLITE_IOERR:
            return (
                f"{path} could not be read or written ({error}); what was stored is safe. Look at the disk's space, "
                "quota and connection, then start again"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"{path} stays locked by another program; close that program or wait, and start again"
        case _:
            return f"{path} could not be used as a store ({error})"


LARGEST = 990_000_000
"""Bytes of one run: SQLite keeps a value of up to 10^9 with what belongs to its row."""
REMEDY = "delete the record and compute the run again"


def pack(arrays: Mapping[str, np.ndarray] | bytes) -> bytes:
    """The bytes of these arrays; what is packed already stays as it is.

    >>> len(pack({"G": np.zeros(3)})) > 3 * 8
    True
    """
    if isinstance(arrays, bytes):
        check_size(len(arrays))
        return arrays
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise GatelabError(f"array {name!r} is a {type(array).__name__}; give a numpy array (tensor.numpy())")
    check_size(sum(array.nbytes for array in arrays.values()))
    try:
        return tensors.pack(arrays)
    except (SafetensorError, KeyError, TypeError) as error:
        kinds = ", ".join(f"{n}: {a.dtype}" for n, a in arrays.items())
        raise GatelabError(f"these arrays cannot be stored ({kinds}); give arrays of numbers or bools") from error


def check_size(size: int) -> None:
    """Refuse more bytes than SQLite can keep of one run."""
    if size > LARGEST:
        raise GatelabError(f"these arrays have {size / 1e9:.2f} GB; a run may have {LARGEST / 1e9:.2f}, keep fewer")


COLUMNS = "key, task, arguments, status, metrics, history, error, seconds, versions, time, device"
INDEXES = 24
"""How many arguments are indexed at most: each costs some microseconds and bytes a record."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


class Index(NamedTuple):
    """An index over an argument: its name, and the statement that makes it."""

    name: str
    sql: str


def to_row(r: Record) -> tuple:
    """A record as the values of `COLUMNS`."""
    history, error = np.asarray(r.history, "<f8").tobytes(), r.error
    if error is not None:
        error = error.encode(errors="backslashreplace").decode()
    metrics, versions = encode(dict(r.metrics), "metrics"), encode(dict(r.versions), "versions")
    return (r.key, r.task, r.run.text, r.status, metrics, history, error, r.seconds, versions, r.time, r.device)


def from_row(row: tuple) -> Record:
    """The record of such values."""
    key, task, text, status, metrics, history, error, seconds, versions, time, device = row
    return Record(
        Run.stored(task, text, key),
        status,
        metrics=decode(metrics),
        history=tuple(np.frombuffer(history, "<f8").tolist()),
        error=error,
        seconds=seconds,
        versions=decode(versions),
        device=device,
        time=time,
    )


def scalar_paths(arguments: Mapping[str, Plain]) -> list[str]:
    """The dotted paths of the arguments worth an index: single values, and those one level inside dicts.

    >>> scalar_paths({"unit": {"name": "glu", "sizes": [1, 2]}, "width": 8})
    ['width', 'unit.name']
    """

    def short(value: Plain) -> bool:
        return not isinstance(value, list | tuple | Mapping) and len(str(value)) <= 200

    outer = [name for name, value in arguments.items() if short(value)]
    inner = [
        f"{name}.{part}"
        for name, inside in arguments.items()
        if isinstance(inside, Mapping)
        for part, value in inside.items()
        if short(value)
    ]
    return outer + inner


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
        if not simple:
            plain = encode(plain)
        values.append(plain)
    if before is not None:
        terms.append("time < ?")
        values.append(before)
    if not terms:
        return "", values
    return f"WHERE {' AND '.join(terms)}", values
