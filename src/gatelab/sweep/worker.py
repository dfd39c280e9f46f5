"""Compute one run and record its result or its error; and the worker process that does so.

`compute` calls the task in this process, `main` is the inside of a worker process, and `Child` is that process as the
sweep sees it. When the sweep ends, even by SIGKILL, the worker's input ends and so does the worker.
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
from pathlib import Path
from typing import Any, NamedTuple

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
        outcome = resolve(run.task)(**run.arguments, **run.settings)
        if isinstance(outcome, Mapping):
            outcome = RunOutcome(outcome)
        if not isinstance(outcome, RunOutcome):
            raise GatelabError(
                f"the task {run.task!r} returned a {type(outcome).__name__}; let it return a dict of metrics or a "
                "RunOutcome"
            )
        # Encoded and decoded: a value that is not plain fails this run alone, and a new record equals the stored one.
        metrics = decode(encode(dict(outcome.metrics), "metrics"))
        history = tuple(map(float, outcome.history))
        if outcome.arrays:
            arrays = pack(outcome.arrays)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: one run must not end the sweep
        seconds = time.perf_counter() - began
        # Without the first frame, which is this function.
        lines = traceback.format_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
        return Computed(failed(run, "".join(lines).rstrip(), seconds))
    facts = {"seconds": time.perf_counter() - began, "versions": versions(), "time": now()}
    return Computed(Record(run, "done", metrics, history, device=str(outcome.device), **facts), arrays)


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


def main() -> None:
    """The inside of a worker process, which reads pickled runs from stdin and writes pickled results to stdout."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the sweep, which then ends its workers
    commands, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Both are redirected, so that a task may print or read.
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    todo: queue.SimpleQueue[Run] = queue.SimpleQueue()

    def listen() -> None:
        """Queue the runs that arrive; end the process with its input, in the middle of a run if need be."""
        try:
            while True:
                todo.put(pickle.load(commands))
        finally:
            os._exit(0)

    def send(message: str | Computed) -> None:
        with suppress(OSError):  # the sweep has gone, which ends the input too
            answers.write(pickle.dumps(message))
            answers.flush()

    threading.Thread(target=listen, daemon=True).start()
    with one_thread():
        send("ready")
        while True:
            send(compute(todo.get()))


# Set before the worker's imports: the libraries read them once.
ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM", "BLIS")
}
_MAIN = "from gatelab.sweep.worker import main; main()"


class Child:
    """A worker process as its sweep sees it; a thread puts its messages into the queue `news`.

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
        assert self._process.stdin is not None and self._process.stdout is not None
        self._runs, self._answers = self._process.stdin, self._process.stdout
        self._thread = threading.Thread(target=self._listen, args=(news,), daemon=True)
        self._thread.start()

    def _listen(self, news: queue.SimpleQueue[News]) -> None:
        try:
            while True:
                news.put((self, pickle.load(self._answers)))
        except Exception:  # ended, or killed in the middle of a message
            news.put((self, None))

    def send(self, run: Run) -> None:
        self.run = run
        with suppress(OSError):  # it has died, which will arrive as news
            self._runs.write(pickle.dumps(run))
            self._runs.flush()

    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> int:
        """End it and the processes that it started; return its exit code, negative for a signal."""
        if not self._answers.closed:
            with suppress(ProcessLookupError, PermissionError):
                if os.name == "posix":
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:
                    self._process.kill()
            self._process.wait()
            self._thread.join()
            self._answers.close()
            with suppress(OSError):
                self._runs.close()
        return self._process.returncode


News = tuple[Child, str | Computed | None]
"""A message from a child: that it is ready, a result, or None when it has ended."""
