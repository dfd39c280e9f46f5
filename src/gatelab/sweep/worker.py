"""Compute one run and make a record of whatever happens; and the process that does so, seen from both of its ends.

`compute` calls the task here and now. `Worker` is the inside of a process that computes the runs it is sent, one after
another: it is sent pickles on its standard input and answers with pickles on what was its standard output. Both are
moved out of the way first, so that a task that prints or reads disturbs nothing. A thread listens all the time: when
the sweep is gone, even by SIGKILL, the input ends and the worker ends with it, in the middle of a run if need be.
`Child` is the same process seen from the sweep: start it, send it runs, hear from it, end it.
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
    """A record, and the packed arrays that are stored with it."""

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
    """Call the task. Whatever it raises ends in the record, except Ctrl-C, which is meant for the sweep.

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
        # The first frame is ours and says nothing.
        lines = traceback.format_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
        text = "".join(lines).rstrip()
        # torch has no MemoryError of its own for the processor's memory.
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
    # Through its text and back: what is not plain is refused here, where it is this run's fault and no other's, and a
    # record looks the same whether it was just computed or read from a store.
    metrics = decode(encode(dict(outcome.metrics), "metrics"))
    return RunOutcome(metrics, tuple(map(float, outcome.history)), str(outcome.device), outcome.arrays)


def failed(run: Run, error: str, seconds: float = 0.0) -> Record:
    """The record of a run that failed just now."""
    return Record(run, "failed", error=error, seconds=seconds, versions=versions(), time=now())


def now() -> str:
    """UTC in ISO 8601, to the microsecond: it also tells two tries of one run apart."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@functools.cache
def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def versions() -> dict[str, str]:
    """The versions of what computes, as records keep them."""
    return {"gatelab": __version__, "torch": _installed("torch"), "python": platform.python_version()}


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread inside the block, so that workers do not fight for cores; whoever has no torch needs none."""
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
"""What is sent instead of a run to have all runs back that have not begun."""


def main(memory_limit: int | None = None) -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the sweep, which will end us
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
    """A process that computes, seen from inside: runs come by `commands`, and what came of them goes to `answers`."""

    def __init__(self, commands: BinaryIO, answers: BinaryIO) -> None:
        self._commands, self._answers = commands, answers
        self._lock = threading.Lock()
        self._todo: queue.SimpleQueue[Run] = queue.SimpleQueue()

    def listen(self) -> None:
        """Queue the runs that are sent, and give those back that have not begun when they are asked for."""
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
        """Compute what is queued, without end."""
        self.send(READY)
        while True:
            run = self._todo.get()
            # Imports may take long and are no part of the run: its clock starts after them. If they fail, `compute`
            # says so.
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
        """Answer; where nobody is there to hear it, end."""
        data = pickle.dumps(message)  # before the lock and the pipe: what cannot be pickled leaves no half message
        with self._lock:
            try:
                self._answers.write(data)
                self._answers.flush()
            except OSError:
                os._exit(0)


def limit_memory(limit: int) -> None:
    """Let this process have `limit` bytes more than it has now.

    RLIMIT_DATA, not RLIMIT_AS: libraries reserve address space by the gigabyte and never touch it.
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
    """Refuse a limit that this system cannot keep."""
    if limit is not None and not sys.platform.startswith("linux"):
        raise GatelabError(f"memory_limit needs Linux, this is {sys.platform}; leave it out")


# Set before anything is imported there: the libraries read them once.
ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM", "BLIS")
}
_PIPE = 32_768  # bytes: less than the smallest pipe holds, so that sending never blocks
_MAIN = "from gatelab.sweep.worker import main; main({memory_limit})"


class News(NamedTuple):
    """A message from a child, None when it has ended, and the moment when it came."""

    child: Child
    message: tuple[Any, ...] | None
    moment: float


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
        """Whether the run can be sent now, without waiting for the pipe."""
        if not self.ready:  # what it was sent now, others could have computed before it can
            return False
        return not self.runs or sum(len(r.text) + len(str(r.settings)) + 300 for r in (*self.runs, run)) < _PIPE

    def send(self, run: Run) -> None:
        """Send it a run, to be computed after those that it has."""
        if not self.runs:
            self.since, self.started = time.monotonic(), False
        self.runs.append(run)
        self._write(run)

    def ask_back(self) -> None:
        """Have the runs back that it has not begun; the answer comes as news."""
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
