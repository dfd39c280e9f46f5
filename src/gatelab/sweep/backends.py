"""`map_runs`: runs in, records out, only what is missing computed. `plan`: what that would do."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gatelab.display import one_line
from gatelab.errors import GatelabError, unknown_name
from gatelab.sweep.processes import Pool, ProcessPool, SerialPool
from gatelab.sweep.run import Record, Run, uninterrupted
from gatelab.sweep.store import Store
from gatelab.sweep.worker import Desk, check_memory_limit, resolve

Backend = Literal["serial", "processes", "ray"]
BACKENDS: tuple[Backend, ...] = ("serial", "processes", "ray")
_WAIT = 0.2  # seconds between two looks: at the clock, at Ctrl-C, at the runs that other sweeps compute


@dataclass(frozen=True)
class Plan:
    """What a sweep would find and do; `expected_seconds` is None where no run of the task has been timed yet."""

    done: int
    failed: int
    todo: int
    expected_seconds: float | None


@dataclass(frozen=True)
class Progress:
    """Where a sweep stands, with the record that just came; `remaining` seconds are None before anything is known."""

    record: Record
    total: int
    stored: int
    computed: int
    failed: int
    elapsed: float

    def __repr__(self) -> str:
        return one_line(self, f"{self.finished} of {self.total}, {self.failed} failed, {self.elapsed:.1f} s")

    @property
    def finished(self) -> int:
        return self.stored + self.computed

    @property
    def remaining(self) -> float | None:
        if self.finished >= self.total:
            return 0.0
        return self.elapsed / self.computed * (self.total - self.finished) if self.computed else None


def plan(runs: Iterable[Run], store: Store | str | Path | None, *, retry_failed: bool = False, jobs: int = 1) -> Plan:
    """How many runs are done, have failed (and stay so), are to do, and how long these would take.

    >>> plan([Run("math:hypot", {"n": n}) for n in (1, 2, 2)], None)
    Plan(done=0, failed=0, todo=2, expected_seconds=None)
    """
    distinct = _distinct(runs)
    with _opened(store) as opened:
        statuses = opened.statuses(distinct) if opened else {}
        kept = {k for k, status in statuses.items() if status == "done" or not retry_failed}
        todo = Counter(run.task for key, run in distinct.items() if key not in kept)
        means = {task: opened.mean_seconds(task) if opened else None for task in todo}
    known = [n * mean for task, n in todo.items() if (mean := means[task]) is not None]
    done = sum(status == "done" for status in statuses.values())
    expected = sum(known) / max(1, min(jobs, todo.total())) if len(known) == len(todo) else None
    return Plan(done, len(kept) - done, todo.total(), expected)


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
    cpus_per_run: float = 1,
    gpus_per_run: float = 0,
) -> Iterator[Record]:
    """The records of all runs: first those in the store, then the others as they are computed, in any order.

    A run that raises, outlasts `time_limit` (seconds) or outgrows `memory_limit` (bytes, beyond what a worker has at
    its start) gives a failed record, which stays until `retry_failed`. After `max_seconds` nothing new is begun and the
    iterator ends early. Leaving the loop, or Ctrl-C, stores what is done and stops the rest; the same call goes on.
    Several sweeps may use one store at once: they share the work. `jobs` is all cores by default; `address`,
    `cpus_per_run` and `gpus_per_run` are for Ray. Limits make the serial backend compute in a process of its own.

    >>> runs = [Run("builtins:dict", {"rmse": 1 / n}) for n in (1, 2)]
    >>> [record.metrics["rmse"] for record in map_runs(runs)]
    [1.0, 0.5]
    """
    if backend not in BACKENDS:
        raise unknown_name("backend", str(backend), BACKENDS)
    for name, value in (("jobs", jobs), ("time_limit", time_limit), ("memory_limit", memory_limit)):
        if value is not None and not value > 0:
            raise GatelabError(f"{name} is {value}; give a positive number, or None for the default")
    check_memory_limit(memory_limit)
    if backend == "ray":
        from gatelab.sweep.ray_backend import RayPool, require_ray

        require_ray()

        def pool() -> Pool:
            return RayPool(jobs, address, cpus_per_run, gpus_per_run, time_limit, memory_limit)
    elif address is not None or gpus_per_run:
        raise GatelabError(f"address and gpus_per_run are for Ray, but backend is {backend!r}; give backend='ray'")
    elif backend == "serial" and time_limit is None and memory_limit is None:
        pool = SerialPool
    else:

        def pool() -> Pool:
            from joblib import cpu_count

            workers = 1 if backend == "serial" else jobs or max(1, int(cpu_count() // cpus_per_run))
            return ProcessPool(workers, time_limit, memory_limit)

    return _sweep(
        _distinct(runs), store, pool, retry_failed, math.inf if max_seconds is None else max_seconds, progress
    )


def _distinct(runs: Iterable[Run]) -> dict[str, Run]:
    distinct: dict[str, Run] = {}
    for run in runs:
        if not isinstance(run, Run):
            raise GatelabError(f"one of the runs is a {type(run).__name__}; give Run(task, arguments)")
        distinct.setdefault(run.key, run)
    return distinct


def _opened(store: Store | str | Path | None) -> Store | nullcontext[Store | None]:
    return nullcontext(store) if store is None or isinstance(store, Store) else Store(store)


def _sweep(
    runs: dict[str, Run],
    store: Store | str | Path | None,
    pool: Callable[[], Pool],
    retry_failed: bool,
    max_seconds: float,
    progress: Callable[[Progress], None] | None,
) -> Iterator[Record]:
    began = time.monotonic()
    counts = Counter[str]()

    def tell(record: Record, how: Literal["stored", "computed"]) -> Record:
        counts[how] += 1
        counts["failed"] += not record.ok
        if progress:
            elapsed = time.monotonic() - began
            progress(Progress(record, len(runs), counts["stored"], counts["computed"], counts["failed"], elapsed))
        return record

    with _opened(store) as opened:
        redo: dict[str, str] = {}
        todo = dict(runs)
        for record in opened.get_all(runs) if opened else ():
            if not record.ok and retry_failed:
                redo[record.key] = record.time
            else:
                del todo[record.key]
                yield tell(record, "stored")
        for task in sorted({run.task for run in todo.values()}):
            resolve(task)  # a name mistyped is the caller's error, not a hundred thousand failed runs
        if todo:
            for record, how in _compute(deque(todo.values()), Desk(opened, redo), pool, began + max_seconds):
                yield tell(record, how)


def _compute(
    todo: deque[Run], desk: Desk, make_pool: Callable[[], Pool], deadline: float
) -> Iterator[tuple[Record, Literal["stored", "computed"]]]:
    """Claim, hand out, file, until nothing is left to do, nothing in work and nothing with other sweeps."""
    elsewhere: deque[Run] = deque()
    look = 0.0
    with desk.open(), _closing(make_pool(), desk) as pool:
        while todo or elsewhere or pool.busy():
            now = time.monotonic()
            if now >= deadline:
                todo.clear()
                elsewhere.clear()
            if not todo and now >= look:
                # Done by now, or abandoned by a sweep that was killed: claiming them again tells.
                todo, elsewhere, look = elsewhere, deque(), now + _WAIT
            room = pool.room()
            if todo and room:
                chunk = [todo.popleft() for _ in range(min(room, len(todo)))]
                claims = desk.claim(chunk)
                elsewhere.extend(run for run in chunk if run.key in claims.busy)
                pool.submit([run for run in chunk if run.key in claims.mine])
                for record in desk.stored(claims.settled):
                    yield record, "stored"
            if pool.busy():
                # Between the end of a run and its record there is no room for Ctrl-C.
                with nullcontext() if pool.computes_here else uninterrupted():
                    records = desk.file(pool.collect(_WAIT))
                for record in records:
                    yield record, "computed"
            elif elsewhere and not todo:
                time.sleep(_WAIT)


@contextmanager
def _closing(pool: Pool, desk: Desk) -> Iterator[Pool]:
    try:
        yield pool
    finally:
        with uninterrupted(), suppress(GatelabError):
            desk.file(pool.close())
