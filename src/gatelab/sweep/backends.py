"""`map_runs` computes the runs that have no record yet; `plan` reports how many there are and how long they take.

A sweep submits the runs without a record to a pool of workers and stores the results.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from gatelab.display import Compact
from gatelab.errors import GatelabError, real_number, unknown_name
from gatelab.interrupts import held_back
from gatelab.sweep.processes import Pool, ProcessPool, SerialPool
from gatelab.sweep.run import Record, Run
from gatelab.sweep.store import Store
from gatelab.sweep.worker import Computed, resolve

Backend = Literal["serial", "processes", "ray"]
Source = Literal["stored", "computed"]
BACKENDS: tuple[Backend, ...] = ("serial", "processes", "ray")
_WAIT = 0.2  # seconds between checks of the clock and of Ctrl-C


@dataclass(frozen=True)
class Plan:
    """The number of runs that are `done`, that have `failed` and stay so, and that a sweep would compute (`todo`).

    `expected_seconds` is None if no run of the task has been timed yet.
    """

    done: int
    failed: int
    todo: int
    expected_seconds: float | None


@dataclass(frozen=True)
class Progress(Compact):
    """The state of a sweep after its latest `record`.

    Of `total` runs, `stored` had a record already, `computed` were computed, and `failed` of both have failed;
    `elapsed` seconds have passed.
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


def plan(runs: Iterable[Run], store: Store | str | Path | None, *, retry_failed: bool = False, jobs: int = 1) -> Plan:
    """Count the runs that `map_runs` would compute, and estimate their time.

    Args:
        runs: The runs; equal runs count once.
        store: The store or its file, which is created if it does not exist; None for no store.
        retry_failed: Whether failed runs would be computed again.
        jobs: The number of parallel runs.

    Returns:
        The numbers of done, failed and missing runs, and the expected seconds.

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
    max_seconds: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    address: str | None = None,
    gpus_per_run: float = 0,
) -> Iterator[Record]:
    """Yield the records of all runs: first those in the store, then the others as they are computed, in any order.

    A run that raises yields a failed record. Leaving the loop or pressing Ctrl-C stores the
    finished runs and stops the others; the same call resumes.

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

    >>> runs = [Run("builtins:dict", {"rmse": 1 / n}) for n in (1, 2)]
    >>> [record.metrics["rmse"] for record in map_runs(runs)]
    [1.0, 0.5]
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
    if max_seconds is None:
        max_seconds = math.inf
    return _records(_distinct(runs), store, pool, retry_failed, max_seconds, progress)


def _records(
    runs: dict[str, Run],
    store: Store | str | Path | None,
    pool: Callable[[], Pool],
    retry_failed: bool,
    max_seconds: float,
    progress: Callable[[Progress], None] | None,
) -> Iterator[Record]:
    began = time.monotonic()
    counts = Counter[str]()
    with (
        opened(store) as database,
        closing(_sweep(runs, database, pool, retry_failed, began + max_seconds)) as records,
    ):
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


def check_hours(max_hours: float | None) -> None:
    if max_hours is not None:
        real_number("max_hours", max_hours, least=0)


def _sweep(
    runs: dict[str, Run], store: Store | None, pool: Callable[[], Pool], retry_failed: bool, deadline: float
) -> Generator[tuple[Record, Source], None, None]:
    """Each record with its source, stored or computed; no run starts after the deadline."""
    todo = dict(runs)
    if store is not None:
        for record in store.get_all(runs):
            if record.ok or not retry_failed:
                del todo[record.key]
                yield record, "stored"
    for task in sorted({run.task for run in todo.values()}):
        resolve(task)  # a mistyped name is the caller's error and must not fail a hundred thousand runs
    if not todo:
        return
    waiting = deque(todo.values())
    with _open_pool(pool, store) as workers:
        while waiting or workers.busy():
            if time.monotonic() >= deadline:
                waiting.clear()
            free = min(workers.free_slots(), len(waiting))
            if free:
                workers.submit([waiting.popleft() for _ in range(free)])
            if workers.busy():
                # Ctrl-C must not strike between the end of a run and its record.
                guard = nullcontext() if workers.computes_here else held_back()
                with guard:
                    records = _keep(workers.collect(_WAIT), store)
                for record in records:
                    yield record, "computed"


@contextmanager
def _open_pool(pool: Callable[[], Pool], store: Store | None) -> Iterator[Pool]:
    """The pool, which is closed at the end; the results that are ready by then are stored."""
    workers = pool()
    try:
        yield workers
    finally:
        with held_back(), suppress(GatelabError):
            _keep(workers.close(), store)


def _keep(results: list[Computed], store: Store | None) -> list[Record]:
    """Store results, each record with its network; return the records as they are in the store."""
    records = [result.record for result in results]
    if store is None or not results:
        return records
    networks = {record.key: arrays for record, arrays in results if arrays is not None}
    if store.put_all(records, networks) == len(records):
        return records
    return list(store.get_all(record.key for record in records))  # another sweep stored its record first


def _distinct(runs: Iterable[Run]) -> dict[str, Run]:
    distinct: dict[str, Run] = {}
    for run in runs:
        if not isinstance(run, Run):
            raise GatelabError(f"one of the runs is a {type(run).__name__}; give Run(task, arguments)")
        distinct.setdefault(run.key, run)
    return distinct


def opened(store: Store | str | Path | None) -> AbstractContextManager[Store | None]:
    """The store as a context, which is closed at the end only if it was opened here."""
    if store is None or isinstance(store, Store):
        return nullcontext(store)
    return Store(store)
