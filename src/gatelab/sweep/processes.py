"""Pools of workers: they take runs and return their results in any order.

`SerialPool` computes in this process. `ProcessPool` has worker processes, each of which may fail, run out of memory or
be killed without harm to the others; pools of the standard library and of joblib break when one worker dies. Every
worker has its own pair of pipes and one run at a time, so that the run that killed it is known. Such a run is tried
once more, and has failed if that worker dies as well.
"""

from __future__ import annotations

import queue
import signal
from collections import Counter, deque
from contextlib import suppress
from typing import Protocol

from gatelab.errors import GatelabError
from gatelab.sweep.run import Run
from gatelab.sweep.worker import Child, Computed, News, compute, failed, one_thread

_DEATHS = 2  # workers that a run may kill
_STILLBORN = 3  # workers in a row that may end before they are ready


class Pool(Protocol):
    """Takes runs by `submit`, at most `free_slots()` at a time, and returns results by `collect`."""

    computes_here: bool
    """Whether `collect` itself computes, so that Ctrl-C must be able to interrupt it."""

    def free_slots(self) -> int:
        """The number of further runs that it can take now; never 0 while it is idle."""
        ...

    def submit(self, runs: list[Run]) -> None: ...

    def busy(self) -> bool:
        """Whether any submitted run has no result yet."""
        ...

    def collect(self, timeout: float) -> list[Computed]:
        """New results, after at most about `timeout` seconds; the serial pool computes one run."""
        ...

    def close(self) -> list[Computed]:
        """Stop at once, and return the results that were ready."""
        ...


class SerialPool:
    """One run after another in this process, which is easy to debug."""

    computes_here = True

    def __init__(self) -> None:
        self._todo: deque[Run] = deque()

    def free_slots(self) -> int:
        return int(not self._todo)

    def submit(self, runs: list[Run]) -> None:
        self._todo.extend(runs)

    def busy(self) -> bool:
        return bool(self._todo)

    def collect(self, timeout: float) -> list[Computed]:
        with one_thread():
            return [compute(self._todo.popleft())]

    def close(self) -> list[Computed]:
        return []


class RetryingPool:
    """A pool of `slots` workers that may die: it tries the run of a dead worker once more."""

    computes_here = False

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._todo: deque[Run] = deque()
        self._deaths: Counter[str] = Counter()

    def free_slots(self) -> int:
        return max(0, self._slots - self._pending())

    def submit(self, runs: list[Run]) -> None:
        self._todo.extend(runs)
        self._hand_out()

    def busy(self) -> bool:
        return self._pending() > 0

    def _pending(self) -> int:
        """The number of runs without a result."""
        raise NotImplementedError

    def _hand_out(self) -> None:
        raise NotImplementedError

    def _retry_or_fail(self, run: Run, error: str, results: list[Computed]) -> None:
        """Queue the run of a dead worker for a second try, or record the error if it has killed two."""
        self._deaths[run.key] += 1
        if self._deaths[run.key] < _DEATHS:
            self._todo.append(run)
        else:
            results.append(Computed(failed(run, error)))


class ProcessPool(RetryingPool):
    """Up to `jobs` workers, started on demand."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs)
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._children: list[Child] = []
        self._stillborn = 0

    def _pending(self) -> int:
        return len(self._todo) + sum(child.run is not None for child in self._children)

    def collect(self, timeout: float) -> list[Computed]:
        results: list[Computed] = []
        for news in self._hear(timeout):
            self._take(news, results)
        self._hand_out()
        return results

    def close(self) -> list[Computed]:
        results = [news.message for news in self._hear(0) if isinstance(news.message, Computed)]
        for child in self._children:
            child.kill()
        self._children.clear()
        self._todo.clear()
        return results

    def _hear(self, timeout: float) -> list[News]:
        """All news; if there is none, wait for the next message."""
        heard: list[News] = []
        with suppress(queue.Empty):
            if self._news.empty():
                heard.append(self._news.get(timeout=max(0.001, timeout)))
            while True:
                heard.append(self._news.get_nowait())
        return heard

    def _hand_out(self) -> None:
        while len(self._children) < min(self._slots, self._pending()):
            self._children.append(Child(self._news))
        for child in self._children:
            if self._todo and child.ready and child.run is None:
                child.send(self._todo.popleft())

    def _take(self, news: News, results: list[Computed]) -> None:
        child, message = news
        if message is None:
            self._bury(child, results)
        elif isinstance(message, Computed):
            child.run = None
            results.append(message)
        else:  # it is ready
            child.ready, self._stillborn = True, 0

    def _bury(self, child: Child, results: list[Computed]) -> None:
        """Handle a worker that died."""
        self._children.remove(child)
        code = child.kill()
        if child.run is not None:
            self._retry_or_fail(child.run, f"its worker process ended twice: {exit_cause(code)}", results)
        if child.ready:
            return
        self._stillborn += 1
        if self._stillborn >= _STILLBORN:
            raise GatelabError(
                f"{self._stillborn} worker processes in a row ended during startup ({exit_cause(code)}); their "
                "output above has the reason. Try backend='serial', which starts none"
            )


def exit_cause(code: int) -> str:
    """The meaning of an exit code."""
    if code >= 0:
        return f"exit code {code}"
    if code == -signal.SIGKILL:
        return "killed by SIGKILL, as the system does when memory runs out"
    if -code in set(signal.Signals):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
