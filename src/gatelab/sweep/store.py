"""`Store`: records in one SQLite file, each once, kept for good; arrays in a folder beside it."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import numpy as np

from gatelab.errors import GatelabError
from gatelab.sweep.arrays import arrays_path, pack, read_arrays, write_arrays
from gatelab.sweep.claims import Claimant, Claims
from gatelab.sweep.interrupt import uninterrupted
from gatelab.sweep.plain import Plain
from gatelab.sweep.query import COLUMNS, INDEXES, argument_index, conditions, from_row, scalar_paths, to_row
from gatelab.sweep.run import Record, RunStatus
from gatelab.sweep.schema import connect, explained, transaction

_CHUNK = 5_000
_INSERT = f"INSERT INTO records ({COLUMNS}) VALUES ({', '.join('?' * 11)})"
# A done record is never replaced; a failed one is, by whatever came of the next try.
_REPLACE = ", ".join(f"{c} = excluded.{c}" for c in COLUMNS.split(", ")[1:])
_UPSERT = f"{_INSERT} ON CONFLICT (key) DO UPDATE SET {_REPLACE} WHERE records.status = 'failed'"


class Store:
    """Records of runs in one file; any number of sweeps, in any number of processes, may use it at once.

    >>> import tempfile
    >>> from gatelab.sweep import Run
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Store(Path(folder.name) / "runs.db") as store:
    ...     for width in (8, 16):
    ...         _ = store.put(Record(Run("lab:fit", {"unit": "glu", "width": width}), "done", {"rmse": 1 / width}))
    ...     [r.metrics["rmse"] for r in store.records(where={"width": 16})], store.count()
    ([0.0625], 2)
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.folder = self.path.with_name(f"{self.path.name}.arrays")
        self._lock = threading.RLock()
        self._db = connect(self.path)
        rows = self._read(
            "SELECT name FROM sqlite_schema WHERE type = 'index' AND name LIKE 'argument\\_%' ESCAPE '\\'"
        )
        self._indexed = {name for (name,) in rows}

    def close(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, sql: str, values: Sequence[object] = ()) -> list[tuple]:
        with self._lock, explained(self.path):
            return self._db.execute(sql, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with uninterrupted(), self._lock, explained(self.path), transaction(self._db):
            yield self._db

    # records

    def put(self, record: Record) -> bool:
        """Keep a record and end the claim on its run; False where a done record is there already, which stays."""
        return self.put_all([record]) == 1

    def put_all(self, records: Iterable[Record]) -> int:
        """Keep many records in one transaction; how many were new or replaced a failed one."""
        rows = [to_row(r) for r in records]
        indexed = set(self._indexed)
        with self._writing() as db:
            written = 0
            for row in rows:
                _index_arguments(db, row[2], indexed)
                written += db.execute(_UPSERT, row).rowcount
                db.execute("DELETE FROM claims WHERE key = ?", row[:1])
        self._indexed = indexed
        return written

    def get(self, key: str) -> Record | None:
        return next(self.get_all([key]), None)

    def get_all(self, keys: Iterable[str]) -> Iterator[Record]:
        """The records there are of these keys, in the order of the keys."""
        for chunk in _chunks(keys):
            rows = self._read(f"SELECT {COLUMNS} FROM records WHERE key IN (SELECT value FROM json_each(?))", [chunk])
            found = {row[0]: row for row in rows}
            yield from (from_row(found[key]) for key in json.loads(chunk) if key in found)

    def statuses(self, keys: Iterable[str]) -> dict[str, RunStatus]:
        """The status of each of these keys that has a record."""
        sql = "SELECT key, status FROM records WHERE key IN (SELECT value FROM json_each(?))"
        return {key: status for chunk in _chunks(keys) for key, status in self._read(sql, [chunk])}

    def done_keys(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys whose run is done."""
        return {key for key, status in self.statuses(keys).items() if status == "done"}

    def records(
        self, *, task: str | None = None, status: RunStatus | None = None, where: Mapping[str, Plain] | None = None
    ) -> Iterator[Record]:
        """Records in the order they came, of one task, of one status, with given arguments.

        `where={"unit": "glu", "net.width": 8}`: an argument by its name, one inside a dict by its dotted path. None
        finds what is None and what is not there.
        """
        clause, values = conditions(task, status, where)
        rows = [row[0] for row in self._read(f"SELECT rowid FROM records {clause} ORDER BY rowid", values)]
        for chunk in _chunks(rows):
            sql = f"SELECT {COLUMNS} FROM records WHERE rowid IN (SELECT value FROM json_each(?)) ORDER BY rowid"
            yield from map(from_row, self._read(sql, [chunk]))

    def rows(
        self, *, task: str | None = None, status: RunStatus | None = None, where: Mapping[str, Plain] | None = None
    ) -> list[dict[str, bool | int | float | str | None]]:
        """The same as flat rows, for tables and files; see `Record.row`."""
        return [record.row() for record in self.records(task=task, status=status, where=where)]

    def count(
        self, *, task: str | None = None, status: RunStatus | None = None, where: Mapping[str, Plain] | None = None
    ) -> int:
        clause, values = conditions(task, status, where)
        return self._read(f"SELECT count(*) FROM records {clause}", values)[0][0]

    def tasks(self) -> dict[str, dict[str, int]]:
        """How many records of each status each task has."""
        result: dict[str, dict[str, int]] = {}
        for task, status, n in self._read("SELECT task, status, count(*) FROM records GROUP BY task, status"):
            result.setdefault(task, {})[status] = n
        return result

    def mean_seconds(self, task: str) -> float | None:
        """The mean time of a task's done runs; None where there are none."""
        return self._read("SELECT avg(seconds) FROM records WHERE task = ? AND status = 'done'", [task])[0][0]

    def delete(self, keys: Iterable[str]) -> int:
        """Forget these runs, their arrays included; how many there were."""
        keys = list(keys)
        with self._writing() as db:
            gone = sum(db.execute("DELETE FROM records WHERE key = ?", [key]).rowcount for key in keys)
        for key in keys:
            with suppress(OSError):
                arrays_path(self.folder, key).unlink()
        return gone

    def prune(
        self,
        *,
        task: str | None = None,
        status: RunStatus | None = None,
        where: Mapping[str, Plain] | None = None,
        before: str | None = None,
    ) -> int:
        """Forget all records that fit every condition, `before` being an ISO time; how many there were."""
        clause, values = conditions(task, status, where, before)
        if not clause:
            raise GatelabError(
                "prune was given no condition and would forget every record; give task, status, where or before"
            )
        return self.delete([key for (key,) in self._read(f"SELECT key FROM records {clause}", values)])

    # arrays

    def put_arrays(self, key: str, arrays: Mapping[str, np.ndarray] | bytes) -> Path:
        """Keep arrays (or what `arrays.pack` made of them) beside the record of that key."""
        content = arrays if isinstance(arrays, bytes) else pack(arrays)
        return write_arrays(arrays_path(self.folder, key), content)

    def get_arrays(self, key: str) -> dict[str, np.ndarray] | None:
        return read_arrays(arrays_path(self.folder, key))

    # claims

    def claim(self, keys: Iterable[str], me: Claimant, redo: Mapping[str, str] | None = None) -> Claims:
        """Ask for runs to compute. A failed record is to be tried again if `redo` holds its key and its time."""
        mine, settled, busy = set[str](), set[str](), set[str]()
        now = time.time()
        with self._writing() as db:
            for key in keys:
                found = db.execute("SELECT status, time FROM records WHERE key = ?", [key]).fetchone()
                if found and not (found[0] == "failed" and redo and redo.get(key) == found[1]):
                    settled.add(key)
                    continue
                sql = "SELECT owner, host, pid, started, heartbeat FROM claims WHERE key = ?"
                other = db.execute(sql, [key]).fetchone()
                if other and other[0] != me.owner and Claimant(*other).alive(now, me):
                    busy.add(key)
                    continue
                row = (key, me.owner, me.host, me.pid, me.started, now)
                db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?)", row)
                mine.add(key)
        return Claims(frozenset(mine), frozenset(settled), frozenset(busy))

    def heartbeat(self, me: Claimant, now: float) -> None:
        with self._writing() as db:
            db.execute("UPDATE claims SET heartbeat = ? WHERE owner = ?", [now, me.owner])

    def release(self, me: Claimant) -> None:
        """Give back whatever was claimed and has no record."""
        with self._writing() as db:
            db.execute("DELETE FROM claims WHERE owner = ?", [me.owner])


def _index_arguments(db: sqlite3.Connection, text: str, indexed: set[str]) -> None:
    # Made with the first record that has the argument, an index costs microseconds a record; made for the first filter
    # on a million of them, seconds.
    if len(indexed) >= INDEXES:
        return
    for path in scalar_paths(json.loads(text)):
        index = argument_index(path)
        if index and index.name not in indexed and len(indexed) < INDEXES:
            db.execute(index.sql)
            indexed.add(index.name)


def _chunks(values: Iterable[str | int]) -> Iterator[str]:
    """JSON lists of some thousand values: one parameter each, whatever SQLite's limit on their number."""
    listed = list(values)
    for i in range(0, len(listed), _CHUNK):
        yield json.dumps(listed[i : i + _CHUNK])
