"""The SQLite file of a store: its tables, its error messages, rows for records, and SQL for filters."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from safetensors import SafetensorError

from gatelab import tensors
from gatelab.errors import GatelabError
from gatelab.sweep.run import Plain, Record, Run, RunStatus, decode, encode

APPLICATION = 0x67617465  # "gate", which distinguishes a store from the databases of other programs
VERSION = 3
PATIENCE = 60.0  # seconds to wait for another writer before giving up
LARGEST = 990_000_000  # bytes of arrays per run: SQLite limits a row to 10^9
REMEDY = "delete the record and compute the run again"

SCHEMA = (
    """CREATE TABLE records (
        key TEXT PRIMARY KEY, task TEXT NOT NULL, arguments TEXT NOT NULL, status TEXT NOT NULL,
        metrics TEXT NOT NULL, history BLOB NOT NULL, error TEXT, seconds REAL NOT NULL, versions TEXT NOT NULL,
        time TEXT NOT NULL, device TEXT NOT NULL DEFAULT 'cpu', network INTEGER)""",
    # With the seconds in it, the index alone gives the mean time of a task's runs.
    "CREATE INDEX records_by_task ON records (task, status, seconds)",
    """CREATE TABLE claims (
        key TEXT PRIMARY KEY, owner TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, started TEXT NOT NULL,
        heartbeat REAL NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX claims_by_owner ON claims (owner)",
    "CREATE TABLE networks (key TEXT PRIMARY KEY, content BLOB NOT NULL)",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)


def connect(path: Path) -> sqlite3.Connection:
    """Open the file or create it; a file that cannot be written is opened read-only."""
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
            # No process writes to it, so that SQLite needs no locks, which it could not get here.
            return _opened(path, f"{address}&immutable=1")


def _opened(path: Path, address: str) -> sqlite3.Connection:
    """The connection to a path or, read-only, to a file URI; any database but a store is refused."""
    uri = address.startswith("file:")
    db = sqlite3.connect(address, timeout=PATIENCE, isolation_level=None, check_same_thread=False, uri=uri)
    try:
        tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if tables and db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise GatelabError(
                f"{path} is the database of another program; give the path of a new file or of a gatelab store"
            )
        version = _version(db, path)
        if not uri:
            _use_wal(db)
        # A killed process loses no committed record; a power cut may lose the last records, never the file.
        db.execute("PRAGMA synchronous = NORMAL")
        if not version:
            with transaction(db):
                if not _version(db, path):  # another process may have created them in the meantime
                    for statement in SCHEMA:
                        db.execute(statement)
        # Records that a killed sweep left in the log are moved into the file. On a full disk they stay in the log.
        with suppress(sqlite3.OperationalError):
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    except BaseException:
        db.close()
        raise
    return db


def _version(db: sqlite3.Connection, path: Path) -> int:
    """The version of the schema, 0 in a new file; an unknown version is refused."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, VERSION):
        raise GatelabError(
            f"{path} has schema {version}, but this gatelab knows schema {VERSION}; update gatelab "
            "(pip install -U gatelab) or give another file"
        )
    return version


def _use_wal(db: sqlite3.Connection) -> None:
    # SQLite itself does not wait when two processes change the journal of a new file at once.
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction that takes the write lock at its beginning, where SQLite can wait for it."""
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
    """Turn errors of SQLite and of the file system into a `GatelabError` with a remedy."""
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
            return f"{path} is not a gatelab store (not a SQLite file); give another path"
        case sqlite3.SQLITE_CORRUPT:
            rescue = f"sqlite3 '{path}' .recover | sqlite3 recovered.db"
            return f"{path} is damaged or was cut short ({error}); restore a copy, or save what is readable: {rescue}"
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return f"{path} cannot be written ({error}); give a path in a folder that you may write to"
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            full = "no space left for" * (_code(error) == sqlite3.SQLITE_FULL) or "could not be read or written:"
            return f"{full} {path} ({error}); stored records are safe. Check the disk, then start again"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"{path} stays locked by another program; close that program or wait, and start again"
        case _:
            return f"{path} could not be used as a store ({error})"


def pack(arrays: Mapping[str, np.ndarray] | bytes) -> bytes:
    """The bytes of these arrays; packed arrays are returned unchanged."""
    parts = {"": np.frombuffer(arrays, np.uint8)} if isinstance(arrays, bytes) else arrays
    for name, array in parts.items():
        if not isinstance(array, np.ndarray):
            raise GatelabError(f"array {name!r} is a {type(array).__name__}; give a numpy array (tensor.numpy())")
    if (size := sum(array.nbytes for array in parts.values())) > LARGEST:
        raise GatelabError(f"these arrays have {size / 1e9:.2f} GB; a run may have {LARGEST / 1e9:.2f}, keep fewer")
    if isinstance(arrays, bytes):
        return arrays
    try:
        return tensors.pack(arrays)
    except (SafetensorError, KeyError, TypeError) as error:
        kinds = ", ".join(f"{name}: {array.dtype}" for name, array in arrays.items())
        raise GatelabError(f"these arrays cannot be stored ({kinds}); give arrays of numbers or bools") from error


COLUMNS = "key, task, arguments, status, metrics, history, error, seconds, versions, time, device"


def to_row(r: Record) -> tuple:
    history, error = np.asarray(r.history, "<f8").tobytes(), r.error
    if error is not None:
        error = error.encode(errors="backslashreplace").decode()
    metrics, versions = encode(dict(r.metrics), "metrics"), encode(dict(r.versions), "versions")
    return (r.key, r.task, r.run.text, r.status, metrics, history, error, r.seconds, versions, r.time, r.device)


def from_row(row: tuple) -> Record:
    key, task, text, status, metrics, history, error, seconds, versions, time, device = row
    run, losses = Run.stored(task, text, key), tuple(np.frombuffer(history, "<f8").tolist())
    return Record(run, status, decode(metrics), losses, error, seconds, decode(versions), device=device, time=time)


def _argument(path: str) -> str:
    parts = path.split(".")
    if any(not p or '"' in p for p in parts):
        raise GatelabError(f"cannot filter by the argument {path!r}; give a name, or names joined by dots")
    quoted = ".".join(f'"{p}"' for p in parts).replace("'", "''")
    return f"json_extract(arguments, '$.{quoted}')"


def conditions(
    task: str | None, status: RunStatus | None, where: Mapping[str, Plain] | None
) -> tuple[str, list[object]]:
    """The WHERE clause and its values.

    >>> print(*conditions("lab:fit", None, {"width": 8}))
    WHERE task = ? AND json_extract(arguments, '$."width"') = ? ['lab:fit', 8]
    """
    if status not in (None, "done", "failed"):
        raise GatelabError(f"the status is {status!r}; give 'done' or 'failed'")
    given = {"task = ?": task, "status = ?": status}
    terms = [term for term, value in given.items() if value is not None]
    values: list[object] = [value for value in given.values() if value is not None]
    for path, value in (where or {}).items():
        plain = decode(encode(value, f"where[{path!r}]"))
        if plain is None:
            terms.append(f"{_argument(path)} IS NULL")
            continue
        terms.append(f"{_argument(path)} = ?")
        # SQLite extracts sequences, dicts and NaN as JSON text, which has the same form as `encode`.
        if not isinstance(plain, bool | int | str) and not (isinstance(plain, float) and np.isfinite(plain)):
            plain = encode(plain)
        values.append(plain)
    return f"WHERE {' AND '.join(terms)}" * bool(terms), values
