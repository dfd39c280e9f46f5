"""`RayPool`: runs on a Ray cluster, one started here or one joined by its address.

Runs travel in batches, small ones many at a time. When a Ray worker dies, so does its batch; its runs are submitted
again one by one, and one whose worker dies a second time has failed. Ray's own retries are off: they would repeat a
batch that kills its worker as a whole, the innocent with the guilty. Time and memory limits are kept by a worker
process of our own on the node, the same as those of `processes`.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import socket
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gatelab.errors import GatelabError
from gatelab.sweep.processes import ProcessPool, WorkerPace
from gatelab.sweep.run import Run
from gatelab.sweep.worker import ONE_THREAD, Computed, compute, failed, one_thread

_SPAN, _MOST = 1.0, 256  # seconds of work, and runs, in a batch: a Ray task costs milliseconds
_DEATHS = 2
PATIENCE = 10.0  # seconds until a cluster has answered

_pools: dict[tuple[float | None, int | None], ProcessPool] = {}
"""In a Ray worker: the process that keeps the limits, left running for the next batch."""


def require_ray() -> Any:
    """The module, or an error that says how to get it."""
    try:
        import ray
    except ImportError as error:
        raise GatelabError(
            "backend='ray' needs Ray, which is not installed; pip install 'gatelab[ray]', or give backend='processes'"
        ) from error
    return ray


def answers(address: str, patience: float = PATIENCE) -> bool:
    """Whether something at a host and port speaks as Ray does, within some seconds: Ray itself tries for minutes."""
    place = re.fullmatch(r"(?:ray://)?\[?([^/\[\]]+)\]?:(\d+)", address)
    replies: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def ask(host: str, port: int) -> None:
        with suppress(OSError, OverflowError), socket.create_connection((host, port), timeout=patience) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            # gRPC answers with a frame of settings, which is type 4; behind TLS only the connection tells.
            replies.put(bool(os.environ.get("RAY_USE_TLS")) or connection.recv(9)[3:4] == b"\x04")
        replies.put(False)

    if place is None:
        return True  # not a host and a port: Ray knows at once what it is
    # In a thread, since a name server may take longer than any timeout of a socket.
    threading.Thread(target=ask, args=(place[1], int(place[2])), daemon=True).start()
    with suppress(queue.Empty):
        return replies.get(timeout=patience)
    return False


def compute_batch(
    runs: list[Run], paths: list[str], time_limit: float | None, memory_limit: int | None
) -> list[Computed]:
    """What a Ray worker does; `paths` are the sweep's own, so that a task found there is found here."""
    sys.path.extend(p for p in paths if p not in sys.path)
    if time_limit is None and memory_limit is None:
        with one_thread():
            return [compute(run) for run in runs]
    pool = _pools.setdefault((time_limit, memory_limit), ProcessPool(1, time_limit, memory_limit))
    pool.submit(runs)
    results: list[Computed] = []
    while pool.busy():
        results += pool.collect(1.0)
    return results


class RayPool:
    """Batches of runs as Ray tasks, with so many CPUs and GPUs each."""

    computes_here = False

    def __init__(
        self,
        jobs: int | None,
        address: str | None,
        gpus: float,
        time_limit: float | None,
        memory_limit: int | None,
    ) -> None:
        self._ray = require_ray()
        self._limits = (time_limit, memory_limit)
        self._jobs, self._gpus = jobs, gpus
        self._ours = self._join(address)
        try:
            self._slots = self._count_slots()
        except BaseException:
            self._leave()
            raise
        # Where data and checkpoints lie is said by variables of ours, which a cluster that we join does not have.
        ours = {name: value for name, value in os.environ.items() if name.startswith("GATELAB_")}
        self._task: Callable[..., Any] = self._ray.remote(
            num_cpus=1, num_gpus=gpus, max_retries=0, runtime_env={"env_vars": {**ours, **ONE_THREAD}}
        )(compute_batch).remote
        self._paths = [os.path.abspath(p) for p in sys.path]  # noqa: PTH100  (an empty one means the present folder)
        self._todo: deque[Run] = deque()
        self._suspects: deque[Run] = deque()
        self._batches: dict[Any, list[Run]] = {}
        self._deaths: Counter[str] = Counter()
        self._pace = WorkerPace()

    def _join(self, address: str | None) -> bool:
        """Connect; whether the connection is ours to end."""
        if self._ray.is_initialized():
            present = self._ray.get_runtime_context().gcs_address
            if address not in (None, "auto", "local", present):
                raise GatelabError(
                    f"address is {address!r}, but this process is connected to the Ray cluster at {present}; leave the "
                    "address out, or call ray.shutdown() first"
                )
            return False
        # "local" and not nothing: nothing would join whatever cluster it finds on this machine.
        options: dict[str, Any] = {"address": address or "local"}
        if options["address"] == "local":
            options |= {"num_cpus": self._jobs, "include_dashboard": False}
        try:
            if not answers(options["address"]):
                raise ConnectionError("nothing there answers as Ray does")
            self._ray.init(**options, log_to_driver=False, configure_logging=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise GatelabError(
                f"no Ray cluster could be reached at {options['address']!r} ({error}); give the address that "
                "`ray start` printed (and, if the cluster has one, its token by RAY_AUTH_TOKEN_PATH), or none to "
                "start a local one"
            ) from error
        return True

    def _count_slots(self) -> int:
        """How many runs fit on the cluster at once."""
        resources = self._ray.cluster_resources()
        slots = [self._jobs or 10**6]
        for name, wanted in (("CPU", 1), ("GPU", self._gpus)):
            if wanted > resources.get(name, 0):
                raise GatelabError(
                    f"each run wants {wanted:g} {name}s, but the whole Ray cluster has {resources.get(name, 0):g}; ask "
                    "for less"
                )
            if wanted:
                slots.append(int(resources.get(name, 0) / wanted))
        return min(slots)

    def _pending(self) -> int:
        return len(self._todo) + len(self._suspects) + sum(map(len, self._batches.values()))

    def room(self) -> int:
        return max(0, self._at_once() * self._pace.batch(_SPAN, _MOST) - self._pending())

    def _at_once(self) -> int:
        # Of tiny runs a second batch lies ready, so that no slot waits for us; long ones are begun one by one.
        if self._pace.batch(_SPAN, _MOST) > 1:
            return 2 * self._slots
        return self._slots

    def submit(self, runs: list[Run]) -> None:
        self._todo.extend(runs)
        self._hand_out()

    def busy(self) -> bool:
        return self._pending() > 0

    def _hand_out(self) -> None:
        size = self._pace.batch(_SPAN, _MOST)
        while (self._suspects or self._todo) and len(self._batches) < self._at_once():
            if self._suspects:
                batch = [self._suspects.popleft()]
            else:
                batch = [self._todo.popleft() for _ in range(min(size, len(self._todo)))]
            self._batches[self._task(batch, self._paths, *self._limits)] = batch

    def collect(self, timeout: float) -> list[Computed]:
        self._hand_out()
        if not self._batches:
            return []
        refs = list(self._batches)
        ready, _ = self._ray.wait(refs, num_returns=1, timeout=timeout)
        if ready:  # the one we waited for is seldom alone
            ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        results: list[Computed] = []
        for ref in ready:
            self._take(ref, results)
        self._hand_out()
        return results

    def _take(self, ref: Any, results: list[Computed]) -> None:
        batch = self._batches.pop(ref)
        try:
            computed: list[Computed] = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            # Not a run's own error, which would be a record: the worker could not even read what it was sent.
            raise GatelabError(
                f"the workers of the Ray cluster cannot compute ({error.cause}); install the same gatelab, and the "
                "modules of the tasks, on every node"
            ) from error
        except self._ray.exceptions.RayError as error:
            # A worker died: who was with others goes alone, who was alone for the second time has failed.
            reason = f"its Ray worker died twice: {type(error).__name__}: {' '.join(str(error).split())}"
            for run in batch:
                self._deaths[run.key] += len(batch) == 1
                if self._deaths[run.key] < _DEATHS:
                    self._suspects.append(run)
                else:
                    del self._deaths[run.key]
                    results.append(Computed(failed(run, reason)))
            return
        for record, _ in computed:
            self._deaths.pop(record.key, None)
            self._pace.note(record.seconds)
        results += computed

    def close(self) -> list[Computed]:
        results: list[Computed] = []
        refs = list(self._batches)
        with suppress(Exception):  # the cluster may be gone, and then nothing is left to be told or stopped
            ready = set()
            if refs:
                ready |= set(self._ray.wait(refs, num_returns=len(refs), timeout=0)[0])
            for ref in refs:
                if ref in ready:
                    with suppress(self._ray.exceptions.RayError):
                        results += self._ray.get(ref)
                else:
                    self._ray.cancel(ref, force=True)
        for waiting in (self._batches, self._todo, self._suspects):
            waiting.clear()
        self._leave()
        return results

    def _leave(self) -> None:
        if self._ours:
            self._ray.shutdown()
