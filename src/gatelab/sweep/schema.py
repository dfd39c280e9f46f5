"""The SQLite file: its tables, how older ones become new ones, and what its errors mean to a user."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gatelab.errors import GatelabError

APPLICATION = 0x67617465  # "gate": tells our files from other programs' databases
PATIENCE = 60.0
"""Seconds to wait for another writer before giving up."""

_V1 = (
    """CREATE TABLE records (
        key TEXT PRIMARY KEY, task TEXT NOT NULL, arguments TEXT NOT NULL, status TEXT NOT NULL,
        metrics TEXT NOT NULL, history BLOB NOT NULL, error TEXT, seconds REAL NOT NULL, versions TEXT NOT NULL,
        time TEXT NOT NULL)""",
    # With the seconds in it, the mean time of a task's runs is read off the index alone.
    "CREATE INDEX records_by_task ON records (task, status, seconds)",
    f"PRAGMA application_id = {APPLICATION}",
)
_V2 = (
    "ALTER TABLE records ADD COLUMN device TEXT NOT NULL DEFAULT 'cpu'",
    """CREATE TABLE claims (
        key TEXT PRIMARY KEY, owner TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, started TEXT NOT NULL,
        heartbeat REAL NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX claims_by_owner ON claims (owner)",
)
# Networks lay in a folder beside the file before. `network` is 1 or 0, and NULL where nobody knows: `Store` asks the
# folder, if it is there. The index holds those alone and is empty in all files but old ones.
_V3 = (
    "CREATE TABLE networks (key TEXT PRIMARY KEY, content BLOB NOT NULL)",
    "ALTER TABLE records ADD COLUMN network INTEGER",
    "UPDATE records SET network = 0 WHERE status = 'failed'",
    "CREATE INDEX records_unknown ON records (key) WHERE network IS NULL",
)
# Step i takes version i to version i + 1. A new file goes through all of them: one way to the present schema, not two.
MIGRATIONS = (_V1, _V2, _V3)
VERSION = len(MIGRATIONS)


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, or make it, and bring it to the present schema."""
    with explained(path):
        if path.is_dir():
            raise GatelabError(f"{path} is a folder; give the path of a file in it, such as {path / 'runs.db'}")
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            _check_origin(db, path)
            _use_wal(db)
            # A killed process loses nothing that was committed; a power cut may cost the last records, never the file.
            db.execute("PRAGMA synchronous = NORMAL")
            _migrate(db, path)
            # What a killed sweep left in the log goes into the file now: then the file alone is all of it. On a full
            # disk it stays in the log, from which it is read just as well.
            with suppress(sqlite3.OperationalError):
                db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except BaseException:
            db.close()
            raise
        return db


def _check_origin(db: sqlite3.Connection, path: Path) -> None:
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables and db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise GatelabError(
            f"{path} is the database of another program; give the path of a new file or of a gatelab store"
        )
    _known_version(db, path)


def _known_version(db: sqlite3.Connection, path: Path) -> int:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise GatelabError(
            f"{path} has schema {version}, but this gatelab knows schemas up to {VERSION}; update gatelab "
            "(pip install -U gatelab) or give another file. Nothing was changed"
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


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    if _known_version(db, path) == VERSION:
        return
    with transaction(db):
        # Asked again inside: another process may have migrated while we waited for the lock.
        for step in range(_known_version(db, path), VERSION):
            for statement in MIGRATIONS[step]:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {step + 1}")


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
