"""`Store`: records and their networks in one SQLite file."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from gatelab.errors import GatelabError
from gatelab.files import as_path, write_whole
from gatelab.interrupts import held_back
from gatelab.sweep.database import COLUMNS, REMEDY, conditions, connect, explained, from_row, pack, to_row, transaction
from gatelab.sweep.leases import Leaseholder, Leases
from gatelab.sweep.run import Plain, Record, RunStatus
from gatelab.tensors import unpack

_CHUNK = 5_000
_INSERT = f"INSERT INTO records ({COLUMNS}) VALUES ({', '.join('?' * 11)})"
# A done record is never replaced; a failed one is replaced by the record of the next try.
_REPLACE = ", ".join(f"{c} = excluded.{c}" for c in COLUMNS.split(", ")[1:])
_UPSERT = f"{_INSERT} ON CONFLICT (key) DO UPDATE SET {_REPLACE} WHERE records.status = 'failed'"


class Store:
    """Records of runs and their networks in one file, which any number of sweeps and processes may share.

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
        self.path = as_path(path, "give the file of a store")
        self._lock = threading.RLock()
        self._db = connect(self.path)

    def close(self) -> None:
        """Close the file."""
        with self._lock, suppress(sqlite3.Error):
            self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, sql: str, values: Sequence[object] = ()) -> list[tuple]:
        with self._lock, explained(self.path):
            return self._db.execute(sql, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with held_back(), self._lock, explained(self.path), transaction(self._db):
            yield self._db

    # records

    def put(self, record: Record, arrays: Mapping[str, np.ndarray] | bytes | None = None) -> bool:
        """Store a record and its network; False if the store already has a done record, which stays."""
        networks = {}
        if arrays:
            networks[record.key] = pack(arrays)
        return self.put_all([record], networks) == 1

    def put_all(self, records: Iterable[Record], networks: Mapping[str, bytes] | None = None) -> int:
        """Store many records and their packed networks by key; return the number of new and replaced ones."""
        rows = [to_row(r) for r in records]
        with self._writing() as db:
            written = 0
            for row in rows:
                changed = db.execute(_UPSERT, row).rowcount
                if changed and networks and row[0] in networks:
                    db.execute("INSERT OR REPLACE INTO networks VALUES (?, ?)", [row[0], networks[row[0]]])
                written += changed
                db.execute("DELETE FROM claims WHERE key = ?", row[:1])
        return written

    def get(self, key: str) -> Record | None:
        """The record of a key, or None."""
        return next(self.get_all([key]), None)

    def get_all(self, keys: Iterable[str]) -> Iterator[Record]:
        """The records of these keys, in the order of the keys."""
        for chunk in _chunks(keys):
            rows = self._read(f"SELECT {COLUMNS} FROM records WHERE key IN (SELECT value FROM json_each(?))", [chunk])
            by_key = {row[0]: row for row in rows}
            yield from (from_row(by_key[key]) for key in json.loads(chunk) if key in by_key)

    def statuses(self, keys: Iterable[str]) -> dict[str, RunStatus]:
        """The status of each of these keys that has a record."""
        sql = "SELECT key, status FROM records WHERE key IN (SELECT value FROM json_each(?))"
        return {key: status for chunk in _chunks(keys) for key, status in self._read(sql, [chunk])}

    def records(
        self, *, task: str | None = None, status: RunStatus | None = None, where: Mapping[str, Plain] | None = None
    ) -> Iterator[Record]:
        """Records of one task, of one status, with given arguments, in the order in which they were stored.

        `where={"net.width": 8}` gives an argument by its dotted path. None matches one that is None or absent.
        """
        clause, values = conditions(task, status, where)
        rows = [row[0] for row in self._read(f"SELECT rowid FROM records {clause} ORDER BY rowid", values)]
        for chunk in _chunks(rows):
            sql = f"SELECT {COLUMNS} FROM records WHERE rowid IN (SELECT value FROM json_each(?)) ORDER BY rowid"
            yield from map(from_row, self._read(sql, [chunk]))

    def count(
        self, *, task: str | None = None, status: RunStatus | None = None, where: Mapping[str, Plain] | None = None
    ) -> int:
        """The number of records of one task, of one status, with given arguments."""
        clause, values = conditions(task, status, where)
        return self._read(f"SELECT count(*) FROM records {clause}", values)[0][0]

    def mean_seconds(self, task: str) -> float | None:
        """The mean time of a task's done runs; None if there are none."""
        return self._read("SELECT avg(seconds) FROM records WHERE task = ? AND status = 'done'", [task])[0][0]

    def delete(self, keys: Iterable[str]) -> int:
        """Delete the records and networks of these runs; return their number."""
        keys = list(keys)
        with self._writing() as db:
            db.executemany("DELETE FROM networks WHERE key = ?", [(key,) for key in keys])
            gone = sum(db.execute("DELETE FROM records WHERE key = ?", [key]).rowcount for key in keys)
        (pages,), (free,) = self._read("PRAGMA page_count")[0], self._read("PRAGMA freelist_count")[0]
        if 2 * free > pages:  # half empty; it may not shrink while another sweep writes, or on a full disk
            with held_back(), self._lock, suppress(sqlite3.OperationalError):
                self._db.execute("VACUUM")
        return gone

    # networks

    def get_arrays(self, key: str) -> dict[str, np.ndarray] | None:
        """The arrays of a run; None if it has none."""
        content = self._network(key)
        if content is None:
            return None
        return unpack(content, f"the network of {key} in {self.path}", REMEDY)

    def save_arrays(self, key: str, path: str | Path) -> Path:
        """Write the arrays of a run to a safetensors file; `gl.load` reads those of a fit."""
        content = self._network(key)
        if content is None:
            raise GatelabError(f"{key} has no network in {self.path}; give the key of a run that has one")
        return write_whole(path, content)

    def _network(self, key: str) -> bytes | None:
        rows = self._read("SELECT content FROM networks WHERE key = ?", [key])
        return rows[0][0] if rows else None

    # leases

    def lease(self, keys: Iterable[str], me: Leaseholder, redo: Mapping[str, str] | None = None) -> Leases:
        """Request leases on runs. A failed run is tried again if `redo` has its key and the time of its record."""
        leases = Leases(set(), set(), set())
        now = time.time()
        with self._writing() as db:
            for key in keys:
                record = db.execute("SELECT status, time FROM records WHERE key = ?", [key]).fetchone()
                if record and not (record[0] == "failed" and redo and redo.get(key) == record[1]):
                    leases.settled.add(key)
                    continue
                sql = "SELECT owner, host, pid, started, heartbeat FROM claims WHERE key = ?"
                other = db.execute(sql, [key]).fetchone()
                if other and other[0] != me.owner and Leaseholder(*other).alive(now, me):
                    leases.busy.add(key)
                    continue
                row = (key, me.owner, me.host, me.pid, me.started, now)
                db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?)", row)
                leases.mine.add(key)
        return leases

    def heartbeat(self, me: Leaseholder, now: float) -> None:
        """Renew all leases of a sweep."""
        with self._writing() as db:
            db.execute("UPDATE claims SET heartbeat = ? WHERE owner = ?", [now, me.owner])

    def release(self, me: Leaseholder) -> None:
        """End all leases of a sweep."""
        with self._writing() as db:
            db.execute("DELETE FROM claims WHERE owner = ?", [me.owner])


def _chunks(values: Iterable[str | int]) -> Iterator[str]:
    """JSON lists of some thousand values, each a single parameter: SQLite limits their number."""
    listed = list(values)
    for i in range(0, len(listed), _CHUNK):
        yield json.dumps(listed[i : i + _CHUNK])
