"""What a backend is: something that takes runs and gives back what came of them, in any order."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from gatelab.sweep.compute import Computed, compute, one_thread
from gatelab.sweep.run import Run


class Pool(Protocol):
    """Runs go in by `submit`, at most `room()` at a time, and come out of `collect`."""

    computes_here: bool
    """Whether `collect` itself computes, so that Ctrl-C must be let into it."""

    def room(self) -> int:
        """How many more runs it can use now; never 0 while it is idle."""
        ...

    def submit(self, runs: list[Run]) -> None: ...

    def busy(self) -> bool:
        """Whether anything submitted has not come out yet."""
        ...

    def collect(self, timeout: float) -> list[Computed]:
        """What has come out, after at most about `timeout` seconds; the serial pool takes as long as a run."""
        ...

    def close(self) -> list[Computed]:
        """Stop at once, and give what had come out already."""
        ...


class Pace:
    """How long runs take lately, to hand out tiny ones many at a time and long ones one by one.

    >>> pace = Pace()
    >>> pace.ahead(0.1, 32)
    1
    >>> pace.note(0.01); pace.ahead(0.1, 32)
    10
    """

    def __init__(self) -> None:
        self._seconds: float | None = None

    def note(self, seconds: float) -> None:
        # The long ones count at once, the short ones slowly: one wrongly thought short would hold up others behind it.
        if self._seconds is None or seconds > self._seconds:
            self._seconds = seconds
        else:
            self._seconds += 0.1 * (seconds - self._seconds)

    def ahead(self, span: float, most: int) -> int:
        """How many runs fill that span of time: 1 or more."""
        if self._seconds is None:
            return 1
        return most if self._seconds * most <= span else max(1, int(span / self._seconds))


class SerialPool:
    """One run after another in this process: nothing to start, nothing to send, easy to debug."""

    computes_here = True

    def __init__(self) -> None:
        self._todo: deque[Run] = deque()
        self._pace = Pace()

    def room(self) -> int:
        return 0 if self._todo else self._pace.ahead(0.1, 32)

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
