"""One worker process, seen from the sweep: start it, send it runs, hear from it, end it."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

from gatelab.sweep.run import Run

# Set before anything is imported there: the libraries read them once.
ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM", "BLIS")
}
_PIPE = 32_768  # bytes: less than the smallest pipe holds, so that sending never blocks
_MAIN = "from gatelab.sweep.worker import main; main({memory_limit})"


class News(NamedTuple):
    """A message from a child, None when it has ended, and when it came."""

    child: Child
    message: tuple[Any, ...] | None
    at: float


class Child:
    """A process that computes. Its messages go to `news`, put there by a thread that does nothing else.

    Fresh interpreters, not forks: a fork of a process with threads may hang, and `multiprocessing` would import the
    user's script again. The folders of `sys.path` go along, so that a task found here is found there.
    """

    def __init__(self, news: queue.SimpleQueue[News], memory_limit: int | None) -> None:
        self.runs: deque[Run] = deque()
        """What it was sent and has not answered, the one it computes first."""
        self.ready = False
        self.since = time.monotonic()
        """When the run at the head began; before it has, when it could have."""
        self.started = False
        self.asked_back = False
        paths = [os.path.abspath(p) for p in sys.path]  # noqa: PTH100  (an empty one means the present folder)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN.format(memory_limit=memory_limit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
            # A group of its own: Ctrl-C does not reach it, and whatever it starts ends with it.
            process_group=0 if os.name == "posix" else None,
        )
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._listen, args=(news,), daemon=True),
            threading.Thread(target=self._reap, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _listen(self, news: queue.SimpleQueue[News]) -> None:
        assert self._process.stdout is not None
        while True:
            try:
                message = pickle.load(self._process.stdout)
            except Exception:  # ended, or killed in the middle of a message
                news.put(News(self, None, time.monotonic()))
                return
            news.put(News(self, message, time.monotonic()))

    def _reap(self) -> None:
        # Processes that a task forked hold our pipe open; unless they go too, we would not hear that it ended. Its
        # number is ours until it is reaped, so killing the group cannot hit anybody else.
        if hasattr(os, "waitid"):  # not on macOS before Python 3.13, nor on Windows: there they are left alone
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        with self._lock:
            self._kill_group()
            self._process.wait()

    def _kill_group(self) -> None:
        if self._process.returncode is not None:
            return
        if os.name == "posix":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()

    def can_take(self, run: Run) -> bool:
        if not self.ready:  # what it was sent now, others could have computed before it can
            return False
        return not self.runs or sum(len(r.text) + 300 for r in (*self.runs, run)) < _PIPE

    def send(self, run: Run) -> None:
        if not self.runs:
            self.since, self.started = time.monotonic(), False
        self.runs.append(run)
        self._write(run)

    def ask_back(self) -> None:
        """Have the runs back that it has not begun; the answer comes as news."""
        from gatelab.sweep.worker import DROP

        self.asked_back = True
        self._write(DROP)

    def _write(self, message: object) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has died, which will be news soon
            self._process.stdin.write(pickle.dumps(message))
            self._process.stdin.flush()

    def kill(self) -> int:
        """End it and all it started; its exit code, negative for a signal."""
        with self._lock:
            self._kill_group()
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        return self._process.returncode
