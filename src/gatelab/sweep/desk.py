"""Where a sweep meets the store: it claims runs before they are computed and files what came of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from gatelab.errors import GatelabError
from gatelab.sweep.claims import Claims, beating, claimant
from gatelab.sweep.compute import Computed
from gatelab.sweep.run import Record, Run
from gatelab.sweep.store import Store


class Desk:
    """The dealings of one sweep with its store, if it has one; without one every run is its own and nothing is kept."""

    def __init__(self, store: Store | None, redo: Mapping[str, str]) -> None:
        self._store, self._redo, self._me = store, redo, claimant()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Claims live inside and are given back at the end, whatever the reason."""
        store = self._store
        if store is None:
            yield
            return
        try:
            with beating(lambda now: store.heartbeat(self._me, now)):
                yield
        finally:
            with suppress(GatelabError):  # a full disk, say: whoever comes next sees that we are gone
                store.release(self._me)

    def claim(self, runs: list[Run]) -> Claims:
        keys = [run.key for run in runs]
        if self._store is None:
            return Claims(frozenset(keys), frozenset(), frozenset())
        return self._store.claim(keys, self._me, self._redo)

    def stored(self, keys: frozenset[str]) -> list[Record]:
        return list(self._store.get_all(sorted(keys))) if self._store and keys else []

    def file(self, results: list[Computed]) -> list[Record]:
        """Store results, each record with its network; what is now on record."""
        records = [result.record for result in results]
        if self._store is None or not results:
            return records
        networks = {record.key: arrays for record, arrays in results if arrays is not None}
        if self._store.put_all(records, networks) == len(records):
            return records
        return list(self._store.get_all(record.key for record in records))  # another sweep was first: its word holds
