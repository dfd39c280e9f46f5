"""Work that Ctrl-C stops, and work that it must not interrupt.

A main thread inside LAPACK or waiting for other threads does not respond to signals, so that long work runs in other
threads: `on_threads` distributes it, and asks for an end that `stop_if_asked` obeys; `apart` makes one long call, which
continues in the background after Ctrl-C. `held_back` delays Ctrl-C until a block has ended.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")
_SLICE = 0.2  # seconds per wait: an indefinite wait cannot be interrupted on every system
_PATIENCE = 1.0  # seconds that an interrupted main thread waits for its threads to stop
_thread = threading.local()


class Stopped(BaseException):
    """Raised in a thread that was asked to stop; not an `Exception`, so that only `on_threads` catches it."""


def stop_if_asked() -> None:
    """Raise `Stopped` in a thread of `on_threads` that was interrupted; no effect in other threads."""
    asked = getattr(_thread, "asked", None)
    if asked is not None and asked.is_set():
        raise Stopped


def on_threads(work: Callable[[_Part], _Result], pieces: Sequence[_Part], threads: int) -> Iterator[_Result]:
    """The results of all pieces in order, computed on threads with one torch thread each.

    >>> list(on_threads(abs, [-1, 2, -3], threads=2))
    [1, 2, 3]
    """
    import torch  # slow to import, and not needed by sweeps and lists

    asked = threading.Event()

    def begin() -> None:
        _thread.asked = asked
        torch.set_num_threads(1)

    pool = ThreadPoolExecutor(max(1, threads), initializer=begin)
    futures: list[Future[_Result]] = []
    try:
        futures = [pool.submit(work, piece) for piece in pieces]
        for future in futures:
            yield _result(future)
    finally:
        asked.set()
        pool.shutdown(wait=False, cancel_futures=True)
        wait(futures, timeout=_PATIENCE)


def apart(call: Callable[..., _Result], *args: Any, **keywords: Any) -> _Result:
    """The result of `call`, computed in a new thread with the same number of torch threads.

    Outside the main thread, which alone receives signals, it is a plain call.

    >>> apart(max, [1, 3, 2], key=abs)
    3
    """
    import torch

    if threading.current_thread() is not threading.main_thread():
        return call(*args, **keywords)
    future: Future[_Result] = Future()
    threads, gradients = torch.get_num_threads(), torch.is_grad_enabled()

    def settle() -> None:
        torch.set_num_threads(threads)
        try:
            with torch.set_grad_enabled(gradients):
                future.set_result(call(*args, **keywords))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=settle, name="gatelab-apart", daemon=True).start()
    return _result(future)


@contextmanager
def held_back() -> Iterator[list[Any]]:
    """Delay Ctrl-C until the block has ended; the yielded list is not empty once it was pressed."""
    handler = signal.getsignal(signal.SIGINT)
    signals: list[Any] = []
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield signals
        return
    signal.signal(signal.SIGINT, lambda number, frame: signals.append((number, frame)))
    try:
        yield signals
    finally:
        signal.signal(signal.SIGINT, handler)
        if signals:
            handler(*signals[0])


def _result(future: Future[_Result]) -> _Result:
    """The result of a future, waited for in slices."""
    while not future.done():
        wait([future], timeout=_SLICE)
    return future.result()
