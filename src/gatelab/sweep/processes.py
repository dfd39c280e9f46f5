"""Pools of workers: they take runs and return their results in any order.

Pools of the standard library and of joblib break when one worker dies. Here every worker has its own pair of pipes and
one run at a time, so that the run that killed it is known. It is tried once more, and has failed if that worker dies as
well.
"""

from __future__ import annotations

import queue
import signal
from collections import Counter, deque
from contextlib import suppress

from gatelab.errors import GatelabError
from gatelab.sweep.run import Run
from gatelab.sweep.worker import Child, Computed, News, compute, failed, one_thread

_DEATHS = 2  # workers that a run may kill
_STILLBORN = 3  # workers in a row that may end before they are ready


class Pool:
    """Takes runs by `submit`, at most `free_slots()` at a time, and returns results by `collect`.

    Its `slots` workers may die; the run of a dead worker is tried once more.
    """

    computes_here = False
    """Whether `collect` itself computes, so that Ctrl-C must be able to interrupt it."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._todo: deque[Run] = deque()
        self._deaths: Counter[str] = Counter()

    def pending(self) -> int:
        """The number of submitted runs without a result."""
        return len(self._todo)

    def free_slots(self) -> int:
        """The number of further runs that it can take now; never 0 while it is idle."""
        return max(0, self._slots - self.pending())

    def submit(self, runs: list[Run]) -> None:
        self._todo.extend(runs)
        self._hand_out()

    def collect(self, timeout: float) -> list[Computed]:
        """New results, after at most about `timeout` seconds; the serial pool computes one run."""
        raise NotImplementedError

    def close(self) -> list[Computed]:
        """Stop at once, and return the results that were ready."""
        return []

    def _hand_out(self) -> None:
        """Give runs to workers that are free."""

    def _retry_or_fail(self, run: Run, error: str, results: list[Computed]) -> None:
        """Queue the run of a dead worker for a second try, or record the error if it has killed two."""
        self._deaths[run.key] += 1
        if self._deaths[run.key] < _DEATHS:
            self._todo.append(run)
        else:
            results.append(Computed(failed(run, error)))


class SerialPool(Pool):
    """One run after another in this process, which is easy to debug."""

    computes_here = True

    def __init__(self) -> None:
        super().__init__(1)

    def collect(self, timeout: float) -> list[Computed]:
        with one_thread():
            return [compute(self._todo.popleft())]


class ProcessPool(Pool):
    """Up to `jobs` workers, started on demand."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs)
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._children: list[Child] = []
        self._stillborn = 0

    def pending(self) -> int:
        return len(self._todo) + sum(child.run is not None for child in self._children)

    def collect(self, timeout: float) -> list[Computed]:
        for child in self._children:
            if child.ended():  # processes that it started may hold its pipe, and its end would not become news
                child.kill()
        results: list[Computed] = []
        for child, message in self._hear(timeout):
            if message is None:
                self._bury(child, results)
            elif isinstance(message, Computed):
                child.run = None
                results.append(message)
            else:
                child.ready, self._stillborn = True, 0
        self._hand_out()
        return results

    def close(self) -> list[Computed]:
        results = [message for _, message in self._hear(0) if isinstance(message, Computed)]
        for child in self._children:
            child.kill()
        self._children.clear()
        self._todo.clear()
        return results

    def _hear(self, timeout: float) -> list[News]:
        """All news; if there is none, wait for the next message."""
        heard: list[News] = []
        with suppress(queue.Empty):
            heard.append(self._news.get(timeout=max(0.001, timeout)))
            while True:
                heard.append(self._news.get_nowait())
        return heard

    def _hand_out(self) -> None:
        while len(self._children) < min(self._slots, self.pending()):
            self._children.append(Child(self._news))
        for child in self._children:
            if self._todo and child.ready and child.run is None:
                child.send(self._todo.popleft())

    def _bury(self, child: Child, results: list[Computed]) -> None:
        """Handle a worker that died."""
        self._children.remove(child)
        cause = exit_cause(child.kill())
        if child.run is not None:
            self._retry_or_fail(child.run, f"its worker process ended twice: {cause}", results)
        self._stillborn += not child.ready
        if self._stillborn >= _STILLBORN:
            raise GatelabError(
                f"{self._stillborn} worker processes in a row ended during startup ({cause}); their output above has"
                " the reason. Try backend='serial', which starts none"
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
