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
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from gatelab._version import __version__
from gatelab.errors import GatelabError
from gatelab.sweep.database import pack
from gatelab.sweep.run import Record, Run, RunOutcome, decode, encode

OUT_OF_MEMORY = "out of memory"
TIME_LIMIT = "time limit"


class Computed(NamedTuple):
    """A record and its packed arrays."""

    record: Record
    arrays: bytes | None = None


def resolve(task: str) -> Callable[..., Any]:
    """The function behind a dotted name.

    >>> resolve("math:hypot")(3, 4)
    5.0
    >>> resolve("math:hippo")
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: the task 'math:hippo' cannot be found (module 'math' has no attribute 'hippo'); give
    the name of a function at the top of an installed module, as 'package.module:function'
    """
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
    """Call the task. Any exception becomes a failed record, except Ctrl-C, which is meant for the sweep.

    >>> compute(Run("builtins:dict", {"rmse": 0.5})).record.metrics
    {'rmse': 0.5}
    >>> compute(Run("builtins:dict.fromkeys", {"rmse": 0.5})).record.error
    'TypeError: dict.fromkeys() takes no keyword arguments'
    """
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
        text = "".join(lines).rstrip()
        # torch raises a RuntimeError when the CPU's memory runs out.
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            text = f"{OUT_OF_MEMORY}\n\n{text}"
        return Computed(failed(run, text, seconds))
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
def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def versions() -> dict[str, str]:
    return {"gatelab": __version__, "torch": _installed("torch"), "python": platform.python_version()}


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


READY, STARTED, ENDED, DROPPED = "ready", "started", "ended", "dropped"
DROP = "drop"
"""The command that asks a worker to return all runs that have not started."""


def main(memory_limit: int | None = None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the sweep, which then ends its workers
    commands, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    worker = Worker(commands, answers)
    threading.Thread(target=worker.listen, daemon=True).start()
    if memory_limit is not None:
        limit_memory(memory_limit)
    with one_thread():
        worker.work()


class Worker:
    """The inside of a worker process: it reads runs from `commands` and writes results to `answers`."""

    def __init__(self, commands: BinaryIO, answers: BinaryIO) -> None:
        self._commands, self._answers = commands, answers
        self._lock = threading.Lock()
        self._todo: queue.SimpleQueue[Run] = queue.SimpleQueue()

    def listen(self) -> None:
        """Queue the runs that arrive; on request return those that have not started."""
        try:
            while True:
                command = pickle.load(self._commands)
                if command != DROP:
                    self._todo.put(command)
                    continue
                keys = []
                with suppress(queue.Empty):
                    while True:
                        keys.append(self._todo.get_nowait().key)
                self.send(DROPPED, keys)
        finally:
            os._exit(0)

    def work(self) -> None:
        """Compute the queued runs, without end."""
        self.send(READY)
        while True:
            run = self._todo.get()
            # Imports may take long; the clock of a run starts after them. If they fail, `compute` records the error.
            with suppress(Exception):
                resolve(run.task)
            self.send(STARTED, run.key)
            computed = compute(run)
            try:
                self.send(ENDED, computed)
            except MemoryError:
                error = f"{OUT_OF_MEMORY} when sending the result"
                self.send(ENDED, Computed(failed(run, error, computed.record.seconds)))

    def send(self, *message: Any) -> None:
        """Write a message; end the process if the sweep has gone."""
        data = pickle.dumps(message)  # before writing: an object that cannot be pickled leaves no partial message
        with self._lock:
            try:
                self._answers.write(data)
                self._answers.flush()
            except OSError:
                os._exit(0)


def limit_memory(limit: int) -> None:
    """Limit this process to `limit` bytes more than it uses now.

    By RLIMIT_DATA instead of RLIMIT_AS, since libraries reserve gigabytes of address space that they never touch.
    """
    import resource

    status = Path("/proc/self/status").read_text()
    used = 1024 * int(status.partition("VmData:")[2].split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + limit
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def check_memory_limit(limit: int | None) -> None:
    if limit is not None and not sys.platform.startswith("linux"):
        raise GatelabError(f"memory_limit needs Linux, this is {sys.platform}; leave it out")


# Set before the worker's imports: the libraries read them once.
ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM", "BLIS")
}
_PIPE = 32_768  # bytes, fewer than the smallest pipe buffers, so that sending never blocks
_MAIN = "from gatelab.sweep.worker import main; main({memory_limit})"


class News(NamedTuple):
    """A message from a child, None when it has ended, and the time of its arrival."""

    child: Child
    message: tuple[Any, ...] | None
    moment: float


class Child:
    """A worker process; a thread puts its messages into the queue `news`.

    Workers are fresh interpreters: a fork of a process with threads may hang, and `multiprocessing` would import the
    user's script again. They inherit `sys.path`, so that the same tasks can be imported.
    """

    def __init__(self, news: queue.SimpleQueue[News], memory_limit: int | None) -> None:
        self.runs: deque[Run] = deque()
        """The runs without a result, the present one first."""
        self.ready = False
        self.since = time.monotonic()
        """The time at which the present run started or could have started."""
        self.started = False
        self.asked_back = False
        paths = [os.path.abspath(p) for p in sys.path]  # noqa: PTH100  (an empty one means the present folder)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN.format(memory_limit=memory_limit)],
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
                news.put(News(self, None, time.monotonic()))
                return
            news.put(News(self, message, time.monotonic()))

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

    def can_take(self, run: Run) -> bool:
        """Whether the run can be sent now without blocking on the pipe."""
        if not self.ready:  # until then other workers could compute the run
            return False
        return not self.runs or sum(len(r.text) + len(str(r.settings)) + 300 for r in (*self.runs, run)) < _PIPE

    def send(self, run: Run) -> None:
        """Send a run, which joins its queue."""
        if not self.runs:
            self.since, self.started = time.monotonic(), False
        self.runs.append(run)
        self._write(run)

    def ask_back(self) -> None:
        """Ask for the runs that it has not started; the answer arrives as news."""
        self.asked_back = True
        self._write(DROP)

    def _write(self, message: object) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has died, which will arrive as news
            self._process.stdin.write(pickle.dumps(message))
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
