"""Pools of workers: they take runs and return their results in any order.

`SerialPool` computes in this process. `ProcessPool` has worker processes, each of which may fail, hang, run out of
memory or be killed without harm to the others; pools of the standard library and of joblib break when one worker dies.
Every worker has its own pair of pipes and computes its runs in order, so that the run that killed it is known. Such a
suspect run is tried once more, alone, and has failed if that worker dies as well. The runs behind it go to others.
"""

from __future__ import annotations

import queue
import signal
import time
from collections import Counter, deque
from contextlib import suppress
from typing import Protocol

from gatelab.errors import GatelabError
from gatelab.sweep.run import Run
from gatelab.sweep.worker import (
    DROPPED,
    ENDED,
    OUT_OF_MEMORY,
    READY,
    STARTED,
    TIME_LIMIT,
    Child,
    Computed,
    News,
    compute,
    failed,
    one_thread,
)

_SPAN, _MOST = 0.1, 32  # seconds of work, and runs, to send ahead of a worker
_DEATHS = 2  # workers that a run may kill
_STILLBORN = 3  # workers in a row that may end before they are ready
_GRACE = 60.0  # seconds for imports, which do not count as time of a run
_STUCK = 0.5  # seconds after which a run counts as long, so that no other is sent behind it


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


class WorkerPace:
    """The recent duration of runs: short runs are submitted in batches, long ones singly.

    >>> pace = WorkerPace()
    >>> pace.batch(0.1, 32)
    1
    >>> pace.note(0.01); pace.batch(0.1, 32)
    10
    """

    def __init__(self) -> None:
        self._seconds: float | None = None

    def note(self, seconds: float) -> None:
        # Long runs count at once, short ones slowly: runs wait behind one that is wrongly expected to be short.
        if self._seconds is None or seconds > self._seconds:
            self._seconds = seconds
        else:
            self._seconds += 0.1 * (seconds - self._seconds)

    def batch(self, span: float, most: int) -> int:
        """The number of runs that fill that span of time, from 1 to `most`."""
        if self._seconds is None:
            return 1
        if self._seconds * most <= span:
            return most
        return max(1, int(span / self._seconds))


class SerialPool:
    """One run after another in this process, which is easy to debug."""

    computes_here = True

    def __init__(self) -> None:
        self._todo: deque[Run] = deque()
        self._pace = WorkerPace()

    def free_slots(self) -> int:
        if self._todo:
            return 0
        return self._pace.batch(_SPAN, _MOST)

    def submit(self, runs: list[Run]) -> None:
        self._todo.extend(runs)

    def busy(self) -> bool:
        return bool(self._todo)

    def collect(self, timeout: float) -> list[Computed]:
        if not self._todo:
            return []
        with one_thread():
            computed = compute(self._todo.popleft())
        self._pace.note(computed.record.seconds)
        return [computed]

    def close(self) -> list[Computed]:
        self._todo.clear()
        return []


class RetryingPool:
    """A pool whose workers may die: it tries the run of a dead worker once more, alone."""

    computes_here = False

    def __init__(self) -> None:
        self._todo: deque[Run] = deque()
        self._suspects: deque[Run] = deque()
        self._deaths: Counter[str] = Counter()
        self._pace = WorkerPace()

    def submit(self, runs: list[Run]) -> None:
        self._todo.extend(runs)
        self._hand_out()

    def busy(self) -> bool:
        return self._pending() > 0

    def _pending(self) -> int:
        raise NotImplementedError

    def _hand_out(self) -> None:
        raise NotImplementedError

    def _retry_or_fail(self, run: Run, error: str, results: list[Computed]) -> None:
        """Queue the run for a second try, or record the error if it has killed two workers."""
        if self._deaths[run.key] < _DEATHS:
            self._suspects.append(run)
            return
        del self._deaths[run.key]
        results.append(Computed(failed(run, error)))


class ProcessPool(RetryingPool):
    """Up to `jobs` workers, started on demand; limits are per run."""

    def __init__(self, jobs: int, time_limit: float | None = None, memory_limit: int | None = None) -> None:
        super().__init__()
        self._jobs, self._time_limit, self._memory_limit = jobs, time_limit, memory_limit
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._children: list[Child] = []
        self._stillborn = 0

    def _pending(self) -> int:
        return len(self._todo) + len(self._suspects) + sum(len(c.runs) for c in self._children)

    def free_slots(self) -> int:
        return max(0, self._jobs * self._pace.batch(_SPAN, _MOST) - self._pending())

    def collect(self, timeout: float) -> list[Computed]:
        self._hand_out()
        results: list[Computed] = []
        for news in self._hear(timeout):
            if news.child in self._children:  # the last messages of a killed worker no longer count
                self._take(news, results)
        now = time.monotonic()
        for child in list(self._children):
            if child.runs and now - child.since > self._allowed(child):
                run = child.runs.popleft()
                self._retire(child)
                results.append(self._too_long(run, now - child.since))
        self._hand_out()
        return results

    def close(self) -> list[Computed]:
        results: list[Computed] = []
        for news in self._hear(0):
            if news.message and news.message[0] == ENDED and news.child in self._children:
                results.append(news.message[1])
        for child in self._children:
            child.kill()
        self._children.clear()
        self._todo.clear()
        self._suspects.clear()
        return results

    def _hear(self, timeout: float) -> list[News]:
        """All news; if there is none, wait for the next message, at most until a run reaches its limit."""
        heard: list[News] = []
        limits = [child.since + self._allowed(child) - time.monotonic() for child in self._children if child.runs]
        with suppress(queue.Empty):
            if self._news.empty():
                heard.append(self._news.get(timeout=max(0.001, min([timeout, *limits]))))
            while True:
                heard.append(self._news.get_nowait())
        return heard

    def _allowed(self, child: Child) -> float:
        """The seconds that its run may take, with its imports if it has not started."""
        if self._time_limit is None:
            return float("inf")
        if child.started:
            return self._time_limit
        return self._time_limit + _GRACE

    def _hand_out(self) -> None:
        while len(self._children) < self._jobs and len(self._children) < self._pending():
            self._children.append(Child(self._news, self._memory_limit))
        idle = [child for child in self._children if child.ready and not child.runs]
        while idle and self._suspects:
            idle.pop().send(self._suspects.popleft())
        # In rounds, so that all have one run before any has two; none while a suspect waits for an idle worker.
        rounds = self._pace.batch(_SPAN, _MOST)
        if self._suspects:
            rounds = 0
        for depth in range(1, rounds + 1):
            for child in self._children:
                if self._todo and len(child.runs) < depth and self._free(child) and child.can_take(self._todo[0]):
                    child.send(self._todo.popleft())
        if not self._todo and any(not child.runs for child in self._children):
            # Runs that were expected to be short wait behind a long one while other workers are idle.
            for child in self._children:
                if len(child.runs) > 1 and not child.asked_back and not self._free(child):
                    child.ask_back()

    def _free(self, child: Child) -> bool:
        """Whether runs may be queued behind its present one: not behind a suspect, nor behind a long run."""
        return not child.runs or (child.runs[0].key not in self._deaths and time.monotonic() - child.since < _STUCK)

    def _take(self, news: News, results: list[Computed]) -> None:
        child, message = news.child, news.message
        if message is None:
            self._bury(child, results)
            return
        kind, *content = message
        if kind == READY:
            child.ready, self._stillborn = True, 0
        elif kind == STARTED:
            child.started, child.since = True, news.moment
        elif kind == DROPPED:
            dropped = set(content[0])
            self._todo.extend(run for run in child.runs if run.key in dropped)
            child.runs = deque(run for run in child.runs if run.key not in dropped)
            child.asked_back = False
        elif kind == ENDED:
            computed: Computed = content[0]
            run, seconds = child.runs.popleft(), computed.record.seconds
            child.started, child.since = False, news.moment
            self._deaths.pop(run.key, None)
            self._pace.note(seconds)
            if (computed.record.error or "").startswith(OUT_OF_MEMORY):
                self._retire(child)  # its heap is fragmented: the next run would have less memory than its limit
            if self._time_limit is not None and seconds > self._time_limit:
                computed = self._too_long(computed.record.run, seconds)
            results.append(computed)

    def _too_long(self, run: Run, seconds: float) -> Computed:
        error = f"{TIME_LIMIT}: the run took longer than {self._time_limit:g} s and was stopped"
        return Computed(failed(run, error, seconds))

    def _retire(self, child: Child) -> int:
        """End a worker; the runs that waited in its queue go first to the others."""
        self._children.remove(child)
        code = child.kill()
        self._todo.extendleft(reversed(child.runs))
        return code

    def _bury(self, child: Child, results: list[Computed]) -> None:
        """Handle a worker that died: its run is suspect, and has failed if it killed a worker before."""
        suspect = None
        if child.runs:
            suspect = child.runs.popleft()
        code = self._retire(child)
        if not child.ready:
            self._stillborn += 1
            if self._stillborn >= _STILLBORN:
                raise GatelabError(
                    f"{self._stillborn} worker processes in a row ended during startup ({exit_cause(code)}); their "
                    "output above has the reason. Try backend='serial', which starts none"
                )
            return
        if suspect is None:
            return
        self._deaths[suspect.key] += 1
        self._retry_or_fail(suspect, f"its worker process ended twice: {exit_cause(code)}", results)


def exit_cause(code: int) -> str:
    """The meaning of an exit code.

    >>> exit_cause(-9), exit_cause(3)
    ('killed by SIGKILL, as the system does when memory runs out', 'exit code 3')
    """
    if code >= 0:
        return f"exit code {code}"
    if code == -signal.SIGKILL:
        return "killed by SIGKILL, as the system does when memory runs out"
    if -code in set(signal.Signals):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
