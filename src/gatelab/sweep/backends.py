"""`map_runs`: runs in, records out, only what is missing computed; and `plan`, what that would do.

A sweep asks its store for leases before it computes, hands runs to a pool of workers and files what comes of them.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gatelab.display import Compact
from gatelab.errors import GatelabError, real_number, unknown_name
from gatelab.interrupts import held_back
from gatelab.sweep.leases import Leaseholder, Leases, beating, leaseholder
from gatelab.sweep.processes import Pool, ProcessPool, SerialPool
from gatelab.sweep.run import Record, Run
from gatelab.sweep.store import Store
from gatelab.sweep.worker import Computed, check_memory_limit, resolve

Backend = Literal["serial", "processes", "ray"]
Source = Literal["stored", "computed"]
BACKENDS: tuple[Backend, ...] = ("serial", "processes", "ray")
_WAIT = 0.2  # seconds between two looks: at the clock, at Ctrl-C, at the runs that other sweeps compute


@dataclass(frozen=True)
class Plan:
    """What a sweep would find and do.

    `done` runs have a record, `failed` ones have one that stays, `todo` would be computed in `expected_seconds`, which
    is None where no run of the task has been timed yet.
    """

    done: int
    failed: int
    todo: int
    expected_seconds: float | None


@dataclass(frozen=True)
class Progress(Compact):
    """Where a sweep stands, with the `record` that just came.

    Of `total` runs, `stored` had a record already, `computed` were computed, and `failed` of both have failed;
    `elapsed` seconds have passed and `remaining` are expected, None before anything is known.
    """

    record: Record
    total: int
    stored: int
    computed: int
    failed: int
    elapsed: float

    @property
    def finished(self) -> int:
        return self.stored + self.computed

    @property
    def remaining(self) -> float | None:
        if self.finished >= self.total:
            return 0.0
        if not self.computed:
            return None
        return self.elapsed / self.computed * (self.total - self.finished)


def plan(runs: Iterable[Run], store: Store | str | Path | None, *, retry_failed: bool = False, jobs: int = 1) -> Plan:
    """Say what `map_runs` would do, and about how long it would take.

    Args:
        runs: The runs; those that are equal count once.
        store: The store or its file; None for none. A file that is not there is made.
        retry_failed: Whether failed runs are to be computed again.
        jobs: How many runs are computed at once.

    Returns:
        How many runs are done, have failed (and stay so) and are to do, and the seconds that these would take.

    >>> plan([Run("math:hypot", {"n": n}) for n in (1, 2, 2)], None)
    Plan(done=0, failed=0, todo=2, expected_seconds=None)
    """
    distinct = _distinct(runs)
    with opened(store) as database:
        if database is None:
            return Plan(0, 0, len(distinct), None if distinct else 0.0)
        statuses = database.statuses(distinct)
        settled = {key for key, status in statuses.items() if status == "done" or not retry_failed}
        todo = Counter(run.task for key, run in distinct.items() if key not in settled)
        means = {task: database.mean_seconds(task) for task in todo}
    done = sum(status == "done" for status in statuses.values())
    known = [n * mean for task, n in todo.items() if (mean := means[task]) is not None]
    expected = None
    if len(known) == len(todo):
        expected = sum(known) / max(1, min(jobs, todo.total()))
    return Plan(done, len(settled) - done, todo.total(), expected)


def map_runs(
    runs: Iterable[Run],
    *,
    store: Store | str | Path | None = None,
    backend: Backend = "serial",
    jobs: int | None = None,
    retry_failed: bool = False,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    max_seconds: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    address: str | None = None,
    gpus_per_run: float = 0,
) -> Iterator[Record]:
    """Give the records of all runs: first those in the store, then the others as they are computed, in any order.

    A run that raises, or breaks a limit, gives a failed record. Leaving the loop, or Ctrl-C, stores what is done and
    stops what is not; the same call goes on. Several sweeps may use one store at once: they share the work.

    Args:
        runs: The runs; those that are equal are computed once.
        store: The store or its file, where every record is kept; None for none.
        backend: "serial", "processes" or "ray". Limits make the serial one compute in a process of its own.
        jobs: How many runs are computed at once; None for one a core.
        retry_failed: Whether failed runs are computed again; else their records stay.
        time_limit: Seconds after which a run has failed.
        memory_limit: Bytes of a run, beyond what a worker has at its start, above which it has failed.
        max_seconds: Seconds after which nothing new is begun and the iterator ends early.
        progress: Called with a `Progress` after every record.
        address: The Ray cluster; None for a local one.
        gpus_per_run: GPUs that a run takes, on Ray.

    Returns:
        An iterator over the records, which computes as it is asked.

    >>> runs = [Run("builtins:dict", {"rmse": 1 / n}) for n in (1, 2)]
    >>> [record.metrics["rmse"] for record in map_runs(runs)]
    [1.0, 0.5]
    """
    check_backend(backend, address)
    for name, value in (("jobs", jobs), ("time_limit", time_limit), ("memory_limit", memory_limit)):
        if value is not None and not value > 0:
            raise GatelabError(f"{name} is {value}; give a positive number, or None for the default")
    check_memory_limit(memory_limit)
    if backend == "ray":
        from gatelab.sweep.ray_backend import RayPool, require_ray

        require_ray()

        def pool() -> Pool:
            return RayPool(jobs, address, gpus_per_run, time_limit, memory_limit)
    elif gpus_per_run:
        raise GatelabError(f"gpus_per_run is for Ray, but backend is {backend!r}; give backend='ray'")
    elif backend == "serial" and time_limit is None and memory_limit is None:
        pool = SerialPool
    else:

        def pool() -> Pool:
            from joblib import cpu_count

            return ProcessPool(1 if backend == "serial" else jobs or cpu_count(), time_limit, memory_limit)

    if max_seconds is None:
        max_seconds = math.inf
    sweep = Sweep(_distinct(runs), store, pool, retry_failed, max_seconds, progress)
    return sweep.records()


def check_backend(backend: str, address: str | None = None) -> None:
    """Refuse a backend that is none, and the address of a cluster for one that has none."""
    if backend not in BACKENDS:
        raise unknown_name("backend", str(backend), BACKENDS)
    if address is not None and backend != "ray":
        raise GatelabError(f"address is for Ray, but backend is {backend!r}; give backend='ray'")


def check_hours(max_hours: float | None) -> None:
    """Refuse a limit that is none."""
    if max_hours is not None:
        real_number("max_hours", max_hours, least=0)


@dataclass(frozen=True, eq=False)
class Sweep:
    """One call of `map_runs`: the distinct runs by their keys, and what is to be done with them."""

    runs: dict[str, Run]
    store: Store | str | Path | None
    pool: Callable[[], Pool]
    retry_failed: bool
    max_seconds: float
    progress: Callable[[Progress], None] | None

    def records(self) -> Iterator[Record]:
        """The records in the store, then those that are computed; `progress` is called with each of them."""
        began = time.monotonic()
        counts = Counter[str]()
        with closing(self.records_by_source(began + self.max_seconds)) as records:
            for record, source in records:
                counts[source] += 1
                counts["failed"] += not record.ok
                if self.progress:
                    elapsed = time.monotonic() - began
                    state = (len(self.runs), counts["stored"], counts["computed"], counts["failed"])
                    self.progress(Progress(record, *state, elapsed))
                yield record

    def records_by_source(self, deadline: float) -> Generator[tuple[Record, Source], None, None]:
        """Each record with whether it was stored or is computed now; nothing is begun after the deadline."""
        redo: dict[str, str] = {}
        todo = dict(self.runs)
        with opened(self.store) as database:
            if database is not None:
                for record in database.get_all(self.runs):
                    if not record.ok and self.retry_failed:
                        redo[record.key] = record.time
                    else:
                        del todo[record.key]
                        yield record, "stored"
            for task in sorted({run.task for run in todo.values()}):
                resolve(task)  # a name mistyped is the caller's error, not a hundred thousand failed runs
            if todo:
                yield from self.compute(deque(todo.values()), Desk(database, redo), deadline)

    def compute(self, todo: deque[Run], desk: Desk, deadline: float) -> Iterator[tuple[Record, Source]]:
        """Lease, hand out, file, until nothing is left to do, nothing in work and nothing with other sweeps."""
        elsewhere: deque[Run] = deque()
        next_look = 0.0
        with desk.open(self.pool) as pool:
            while todo or elsewhere or pool.busy():
                now = time.monotonic()
                if now >= deadline:
                    todo.clear()
                    elsewhere.clear()
                if not todo and now >= next_look:
                    # Done by now, or abandoned by a sweep that was killed: asking for them again tells.
                    todo, elsewhere, next_look = elsewhere, deque(), now + _WAIT
                room = pool.room()
                if todo and room:
                    chunk = [todo.popleft() for _ in range(min(room, len(todo)))]
                    leases = desk.lease(chunk)
                    elsewhere.extend(run for run in chunk if run.key in leases.busy)
                    pool.submit([run for run in chunk if run.key in leases.mine])
                    for record in desk.stored(leases.settled):
                        yield record, "stored"
                if pool.busy():
                    # Between the end of a run and its record there is no room for Ctrl-C.
                    guard = nullcontext() if pool.computes_here else held_back()
                    with guard:
                        records = desk.file(pool.collect(_WAIT))
                    for record in records:
                        yield record, "computed"
                elif elsewhere and not todo:
                    time.sleep(_WAIT)


@dataclass(frozen=True, eq=False)
class Desk:
    """The dealings of one sweep with its store, if it has one; without one every run is its own and nothing is kept.

    `redo` are the keys of failed runs that are to be computed again, with the times of their records.
    """

    store: Store | None
    redo: Mapping[str, str]
    me: Leaseholder = field(default_factory=leaseholder)

    @contextmanager
    def open(self, make_pool: Callable[[], Pool]) -> Iterator[Pool]:
        """The pool, closed at the end; leases hold inside and are given back at the end, whatever the reason."""
        store = self.store
        heart: AbstractContextManager[None] = nullcontext()
        if store is not None:
            heart = beating(lambda now: store.heartbeat(self.me, now))
        try:
            with heart:
                pool = make_pool()
                try:
                    yield pool
                finally:
                    with held_back(), suppress(GatelabError):
                        self.file(pool.close())
        finally:
            if store is not None:
                with suppress(GatelabError):  # a full disk, say: whoever comes next sees that we are gone
                    store.release(self.me)

    def lease(self, runs: list[Run]) -> Leases:
        """Ask for these runs."""
        keys = [run.key for run in runs]
        if self.store is None:
            return Leases(mine=frozenset(keys))
        return self.store.lease(keys, self.me, self.redo)

    def stored(self, keys: frozenset[str]) -> list[Record]:
        """The records that other sweeps have stored of these keys."""
        if self.store is None or not keys:
            return []
        return list(self.store.get_all(sorted(keys)))

    def file(self, results: list[Computed]) -> list[Record]:
        """Store results, each record with its network; what is now on record."""
        records = [result.record for result in results]
        if self.store is None or not results:
            return records
        networks = {record.key: arrays for record, arrays in results if arrays is not None}
        if self.store.put_all(records, networks) == len(records):
            return records
        return list(self.store.get_all(record.key for record in records))  # another sweep was first: its word holds


def _distinct(runs: Iterable[Run]) -> dict[str, Run]:
    distinct: dict[str, Run] = {}
    for run in runs:
        if not isinstance(run, Run):
            raise GatelabError(f"one of the runs is a {type(run).__name__}; give Run(task, arguments)")
        distinct.setdefault(run.key, run)
    return distinct


def opened(store: Store | str | Path | None) -> AbstractContextManager[Store | None]:
    """A store that is to be closed in the end only if it was opened here."""
    if store is None or isinstance(store, Store):
        return nullcontext(store)
    return Store(store)
