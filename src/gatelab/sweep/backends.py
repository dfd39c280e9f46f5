"""`map_runs` computes the runs that have no record yet; `plan` reports how many there are and how long they take.

A sweep leases runs from its store, submits them to a pool of workers and stores the results.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from gatelab.display import Compact
from gatelab.errors import GatelabError, real_number, unknown_name
from gatelab.interrupts import held_back
from gatelab.sweep.leases import Leaseholder, beating, leaseholder
from gatelab.sweep.processes import Pool, ProcessPool, SerialPool
from gatelab.sweep.run import Record, Run
from gatelab.sweep.store import Store
from gatelab.sweep.worker import Computed, resolve

Backend = Literal["serial", "processes", "ray"]
Source = Literal["stored", "computed"]
BACKENDS: tuple[Backend, ...] = ("serial", "processes", "ray")
_WAIT = 0.2  # seconds between checks of the clock, of Ctrl-C and of the runs that other sweeps compute


@dataclass(frozen=True)
class Plan:
    """The numbers of runs that are done, that failed, and that a sweep would compute, and the seconds, if known."""

    done: int
    failed: int
    todo: int
    expected_seconds: float | None


@dataclass(frozen=True)
class Progress(Compact):
    """The state of a sweep after its latest record; `failed` are among the stored or the computed runs."""

    record: Record
    total: int
    stored: int
    computed: int
    failed: int
    elapsed: float

    @property
    def finished(self) -> int:
        return self.stored + self.computed


def plan(runs: Iterable[Run], store: Store | str | Path | None, *, retry_failed: bool = False, jobs: int = 1) -> Plan:
    """Count the runs that `map_runs` would compute, and estimate their time.

    Args:
        runs: The runs; equal runs count once.
        store: The store or its file; None for no store.
        retry_failed: Whether failed runs would be computed again.
        jobs: The number of parallel runs.

    Returns:
        The numbers of done, failed and missing runs, and the expected seconds.

    >>> plan([Run("math:hypot", {"n": n}) for n in (1, 2, 2)], None)
    Plan(done=0, failed=0, todo=2, expected_seconds=None)
    """
    distinct = _distinct(runs)
    with opened(store) as database:
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
    max_seconds: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    address: str | None = None,
    gpus_per_run: float = 0,
) -> Iterator[Record]:
    """Yield the records of all runs: first those in the store, then the others as they are computed, in any order.

    A run that raises yields a failed record. Leaving the loop or pressing Ctrl-C stores the finished runs and stops the
    others; the same call resumes. Several sweeps can share one store and its work.

    Args:
        runs: The runs; equal runs are computed once.
        store: The store or its file; None keeps no records.
        backend: "serial", "processes" or "ray".
        jobs: The number of parallel runs; None for one per core.
        retry_failed: Whether failed runs are computed again.
        max_seconds: Seconds after which no run starts and the iterator ends early.
        progress: Called with a `Progress` after every record.
        address: The Ray cluster; None for a local one.
        gpus_per_run: GPUs per run, on Ray.

    Returns:
        An iterator over the records, which computes on demand.

    >>> [record.metrics["rmse"] for record in map_runs([Run("builtins:dict", {"rmse": 0.5})])]
    [0.5]
    """
    check_backend(backend, address)
    if jobs is not None and not jobs > 0:
        raise GatelabError(f"jobs is {jobs}; give a positive number, or None for the default")
    pool: Callable[[], Pool]
    if backend == "ray":
        from gatelab.sweep.ray_backend import RayPool, require_ray

        require_ray()
        pool = partial(RayPool, jobs, address, gpus_per_run)
    elif gpus_per_run:
        raise GatelabError(f"gpus_per_run is for Ray, but backend is {backend!r}; give backend='ray'")
    elif backend == "serial":
        pool = SerialPool
    else:
        from joblib import cpu_count

        pool = partial(ProcessPool, jobs or cpu_count())
    return _records(_distinct(runs), store, pool, retry_failed, max_seconds, progress)


def _records(
    runs: dict[str, Run],
    store: Store | str | Path | None,
    pool: Callable[[], Pool],
    retry_failed: bool,
    max_seconds: float | None,
    progress: Callable[[Progress], None] | None,
) -> Iterator[Record]:
    began = time.monotonic()
    deadline = math.inf if max_seconds is None else began + max_seconds
    counts = Counter[str]()
    with opened(store) as database:
        sweep = Sweep(runs, database, pool, retry_failed, keep_networks=store is not None)
        with closing(sweep.records(deadline)) as records:
            for record, source in records:
                counts[source] += 1
                counts["failed"] += not record.ok
                if progress:
                    elapsed = time.monotonic() - began
                    state = (len(runs), counts["stored"], counts["computed"], counts["failed"])
                    progress(Progress(record, *state, elapsed))
                yield record


def check_backend(backend: str, address: str | None = None) -> None:
    """Refuse an unknown backend, and a cluster address for any backend but Ray."""
    if backend not in BACKENDS:
        raise unknown_name("backend", str(backend), BACKENDS)
    if address is not None and backend != "ray":
        raise GatelabError(f"address is for Ray, but backend is {backend!r}; give backend='ray'")


def seconds_of(max_hours: float | None) -> float | None:
    return None if max_hours is None else 3600 * real_number("max_hours", max_hours, least=0)


def stopped(max_hours: float | None, done: str, store: object) -> GatelabError:
    """The error of a sweep that its hours ended before all its runs."""
    remedy = "give a store to keep finished ones" if store is None else "the same call resumes from the store"
    return GatelabError(f"stopped after {max_hours:g} hours with {done}; {remedy}")


@dataclass(frozen=True, eq=False)
class Sweep:
    """One call of `map_runs` with its store open.

    `redo` maps the keys of failed runs that will be retried to the times of their records.
    """

    runs: dict[str, Run]
    store: Store
    pool: Callable[[], Pool]
    retry_failed: bool
    keep_networks: bool
    redo: dict[str, str] = field(default_factory=dict)
    me: Leaseholder = field(default_factory=leaseholder)

    def records(self, deadline: float) -> Generator[tuple[Record, Source], None, None]:
        """Each record with its source, stored or computed; no run starts after the deadline."""
        todo = dict(self.runs)
        for record in self.store.get_all(self.runs):
            if not record.ok and self.retry_failed:
                self.redo[record.key] = record.time
            else:
                del todo[record.key]
                yield record, "stored"
        for task in sorted({run.task for run in todo.values()}):
            resolve(task)  # a mistyped name is the caller's error and must not fail a hundred thousand runs
        if todo:
            yield from self.compute(deque(todo.values()), deadline)

    def compute(self, todo: deque[Run], deadline: float) -> Iterator[tuple[Record, Source]]:
        """Lease runs, submit them and store their results, until none is left here or in another sweep."""
        elsewhere: deque[Run] = deque()
        next_look = 0.0
        with self.open_pool() as pool:
            while todo or elsewhere or pool.pending():
                now = time.monotonic()
                if now >= deadline:
                    todo.clear()
                    elsewhere.clear()
                if not todo and now >= next_look:
                    # Another sweep has finished them by now, or was killed: asking for a lease shows which.
                    todo, elsewhere, next_look = elsewhere, deque(), now + _WAIT
                free = pool.free_slots()
                if todo and free:
                    chunk = [todo.popleft() for _ in range(min(free, len(todo)))]
                    leases = self.store.lease([run.key for run in chunk], self.me, self.redo)
                    elsewhere.extend(run for run in chunk if run.key in leases.busy)
                    pool.submit([run for run in chunk if run.key in leases.mine])
                    for record in self.store.get_all(sorted(leases.settled)):
                        yield record, "stored"
                if pool.pending():
                    # Ctrl-C must not strike between the end of a run and its record.
                    guard = nullcontext() if pool.computes_here else held_back()
                    with guard:
                        records = self.keep(pool.collect(_WAIT))
                    for record in records:
                        yield record, "computed"
                elif elsewhere and not todo:
                    time.sleep(_WAIT)

    @contextmanager
    def open_pool(self) -> Iterator[Pool]:
        """The pool; at the end it is closed, and leases without a record are released."""
        try:
            with beating(lambda now: self.store.heartbeat(self.me, now)):
                pool = self.pool()
                try:
                    yield pool
                finally:
                    with held_back(), suppress(GatelabError):
                        self.keep(pool.close())
        finally:
            with suppress(GatelabError):  # on a full disk, say: the next sweep sees that this one has ended
                self.store.release(self.me)

    def keep(self, results: list[Computed]) -> list[Record]:
        """Store results, each record with its network; return the records as they are in the store."""
        records = [record for record, _ in results]
        networks = {record.key: arrays for record, arrays in results if arrays is not None and self.keep_networks}
        if not records or self.store.put_all(records, networks) == len(records):
            return records
        return list(self.store.get_all(record.key for record in records))  # another sweep stored its record first


def _distinct(runs: Iterable[Run]) -> dict[str, Run]:
    distinct: dict[str, Run] = {}
    for run in runs:
        if not isinstance(run, Run):
            raise GatelabError(f"one of the runs is a {type(run).__name__}; give Run(task, arguments)")
        distinct.setdefault(run.key, run)
    return distinct


def opened(store: Store | str | Path | None) -> AbstractContextManager[Store]:
    """The store as a context, which is closed at the end only if it was opened here; None is a store in memory."""
    if isinstance(store, Store):
        return nullcontext(store)
    return Store(":memory:" if store is None else store)
