"""Compute one run and record its result or its error; and the worker process that does so.

`compute` calls the task in this process. `Worker` is the inside of a worker process: it reads pickled runs from its
standard input and writes pickled results to its original standard output. Both are redirected first, so that a task may
print or read. A thread reads all the time: when the sweep ends, even by SIGKILL, the input ends and so does the worker,
in the middle of a run if need be. `Child` is the same process as the sweep sees it: it starts it, sends it runs,
receives its messages and ends it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import pickle
import platform
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, BinaryIO, NamedTuple

from gatelab._version import __version__
from gatelab.errors import GatelabError
from gatelab.sweep.database import pack
from gatelab.sweep.run import Record, Run, RunOutcome, decode, encode


class Computed(NamedTuple):
    """A record and its packed arrays."""

    record: Record
    arrays: bytes | None = None


def resolve(task: str) -> Callable[..., Any]:
    """The function behind a dotted name."""
    module, _, name = task.partition(":")
    try:
        function = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise GatelabError(
            f"the task {task!r} cannot be found ({error}); give the name of a function at the top of an installed "
            "module, as 'package.module:function'"
        ) from error
    if not callable(function):
        raise GatelabError(f"the task {task!r} is a {type(function).__name__}; give the name of a function")
    return function


def compute(run: Run) -> Computed:
    """Call the task. Any exception becomes a failed record, except Ctrl-C, which is meant for the sweep."""
    began = time.perf_counter()
    arrays = None
    try:
        outcome = _outcome(run, resolve(run.task)(**run.arguments, **run.settings))
        if outcome.arrays:
            arrays = pack(outcome.arrays)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: one run must not end the sweep
        seconds = time.perf_counter() - began
        # Without the first frame, which is this function.
        lines = traceback.format_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
        return Computed(failed(run, "".join(lines).rstrip(), seconds))
    seconds = time.perf_counter() - began
    record = Record(
        run,
        "done",
        metrics=outcome.metrics,
        history=outcome.history,
        seconds=seconds,
        versions=versions(),
        device=outcome.device,
        time=now(),
    )
    return Computed(record, arrays)


def _outcome(run: Run, returned: object) -> RunOutcome:
    outcome = returned
    if isinstance(returned, Mapping):
        outcome = RunOutcome(returned)
    if not isinstance(outcome, RunOutcome):
        raise GatelabError(
            f"the task {run.task!r} returned a {type(returned).__name__}; let it return a dict of metrics or a "
            "RunOutcome"
        )
    # Encoded and decoded: a value that is not plain fails this run alone, and a new record equals the stored one.
    metrics = decode(encode(dict(outcome.metrics), "metrics"))
    return RunOutcome(metrics, tuple(map(float, outcome.history)), str(outcome.device), outcome.arrays)


def failed(run: Run, error: str, seconds: float = 0.0) -> Record:
    return Record(run, "failed", error=error, seconds=seconds, versions=versions(), time=now())


def now() -> str:
    """UTC in ISO 8601, to the microsecond, which also distinguishes two tries of one run."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@functools.cache
def versions() -> Mapping[str, str]:
    torch = importlib.metadata.version("torch")
    return {"gatelab": __version__, "torch": torch, "python": platform.python_version()}


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch, if it is imported, to one thread inside the block: workers share the cores."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


READY = "ready"


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the sweep, which then ends its workers
    commands, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    worker = Worker(commands, answers)
    threading.Thread(target=worker.listen, daemon=True).start()
    with one_thread():
        worker.work()


class Worker:
    """The inside of a worker process: it reads runs from `commands` and writes results to `answers`."""

    def __init__(self, commands: BinaryIO, answers: BinaryIO) -> None:
        self._commands, self._answers = commands, answers
        self._todo: queue.SimpleQueue[Run] = queue.SimpleQueue()

    def listen(self) -> None:
        """Queue the runs that arrive; end the process with its input."""
        try:
            while True:
                self._todo.put(pickle.load(self._commands))
        finally:
            os._exit(0)

    def work(self) -> None:
        """Compute the queued runs, without end."""
        self.send(READY)
        while True:
            self.send(compute(self._todo.get()))

    def send(self, message: str | Computed) -> None:
        """Write a message; end the process if the sweep has gone."""
        data = pickle.dumps(message)  # before writing: an object that cannot be pickled leaves no partial message
        try:
            self._answers.write(data)
            self._answers.flush()
        except OSError:
            os._exit(0)


# Set before the worker's imports: the libraries read them once.
ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM", "BLIS")
}
_MAIN = "from gatelab.sweep.worker import main; main()"


class News(NamedTuple):
    """A message from a child: that it is ready, a result, or None when it has ended."""

    child: Child
    message: str | Computed | None


class Child:
    """A worker process; a thread puts its messages into the queue `news`.

    Workers are fresh interpreters: a fork of a process with threads may hang, and `multiprocessing` would import the
    user's script again. They inherit `sys.path`, so that the same tasks can be imported.
    """

    def __init__(self, news: queue.SimpleQueue[News]) -> None:
        self.run: Run | None = None
        self.ready = False
        paths = [os.path.abspath(p) for p in sys.path]  # noqa: PTH100  (an empty one means the present folder)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
            # In a new process group: Ctrl-C does not reach it, and the processes that it starts end with it.
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
                news.put(News(self, None))
                return
            news.put(News(self, message))

    def _reap(self) -> None:
        # Processes that a task forked keep the pipe open, so they must end before the worker's end is seen. The
        # process number stays reserved until it is reaped, so that killing the group cannot hit another process.
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

    def send(self, run: Run) -> None:
        """Send a run."""
        self.run = run
        assert self._process.stdin is not None
        with suppress(OSError):  # it has died, which will arrive as news
            self._process.stdin.write(pickle.dumps(run))
            self._process.stdin.flush()

    def kill(self) -> int:
        """End it and the processes that it started; return its exit code, negative for a signal."""
        with self._lock:
            self._kill_group()
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        return self._process.returncode
