"""The other side of `processes`: a process that computes the runs it is sent, one after another.

It is sent pickles on its standard input and answers with pickles on what was its standard output; both are moved out of
the way first, so that a task that prints or reads disturbs nothing. A thread listens all the time: when the sweep is
gone, even by SIGKILL, the input ends and the worker ends with it, in the middle of a run if need be.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from gatelab.errors import GatelabError
from gatelab.sweep.compute import OUT_OF_MEMORY, Computed, compute, failed, one_thread, resolve
from gatelab.sweep.run import Run

READY, STARTED, ENDED, DROPPED = "ready", "started", "ended", "dropped"
DROP = "drop"
"""What is sent instead of a run to have all runs back that have not begun."""


def main(memory_limit: int | None = None) -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the sweep, which will end us
    commands, answers = _take_over_pipes()
    lock = threading.Lock()

    def send(*message: Any) -> None:
        data = pickle.dumps(message)  # before the lock and the pipe: what cannot be pickled leaves no half message
        with lock:
            try:
                answers.write(data)
                answers.flush()
            except OSError:
                os._exit(0)  # nobody is there to hear it

    todo: queue.SimpleQueue[Run] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(commands, todo, send), daemon=True).start()
    if memory_limit is not None:
        limit_memory(memory_limit)
    with one_thread():
        send(READY)
        while True:
            run = todo.get()
            _import_task(run)
            send(STARTED, run.key)
            _send_computed(compute(run), send)


def _take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
    commands, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return commands, answers


def _listen(commands: BinaryIO, todo: queue.SimpleQueue[Run], send: Callable[..., None]) -> None:
    try:
        while True:
            command = pickle.load(commands)
            if command == DROP:
                send(DROPPED, _empty(todo))
            else:
                todo.put(command)
    finally:
        os._exit(0)


def _empty(todo: queue.SimpleQueue[Run]) -> list[str]:
    keys = []
    while True:
        try:
            keys.append(todo.get_nowait().key)
        except queue.Empty:
            return keys


def _import_task(run: Run) -> None:
    # Imports may take long and are no part of the run: its clock starts after them. If they fail, `compute` says so.
    try:
        resolve(run.task)
    except Exception:
        return


def _send_computed(computed: Computed, send: Callable[..., None]) -> None:
    try:
        send(ENDED, computed)
    except MemoryError:
        run = computed.record.run
        send(ENDED, Computed(failed(run, f"{OUT_OF_MEMORY} when sending the result", computed.record.seconds)))


def limit_memory(limit: int) -> None:
    """Let this process have `limit` bytes more than it has now.

    RLIMIT_DATA, not RLIMIT_AS: libraries reserve address space by the gigabyte and never touch it.
    """
    import resource

    status = Path("/proc/self/status").read_text()
    used = 1024 * int(status.partition("VmData:")[2].split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + limit
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def check_memory_limit(limit: int | None) -> None:
    if limit is not None and not sys.platform.startswith("linux"):
        raise GatelabError(f"memory_limit needs Linux, this is {sys.platform}; leave it out")
