"""Work that Ctrl-C stops, and work that it must not cut.

Python hears a signal in its main thread alone, and there only between two of its own instructions: a main thread that
sits in LAPACK, or waits for threads that nobody told to stop, hears nothing. So long work leaves the main thread.

- `on_threads` shares pieces of work out among threads. An exception in the main thread asks them to stop, and they do
  so where they call `stop_if_asked`, which every long loop does.
- `apart` makes one long call that cannot be cut. It is left to end by itself if the main thread is interrupted.
- `held_back` lets Ctrl-C wait until a block has ended that must not be cut: a record that is written, a training step.
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
# A wait without an end cannot be interrupted on every system: it is made of such slices, in seconds.
_SLICE = 0.2
# So long an interrupted main thread waits for its threads to stop; those in a longer piece stop after it.
_PATIENCE = 1.0
_thread = threading.local()


class Stopped(BaseException):
    """Raised in a thread that was asked to stop: not an error, so that nothing but `on_threads` catches it."""


def stop_if_asked() -> None:
    """End the piece of work that this thread does, if `on_threads` was interrupted; nothing in any other thread."""
    asked = getattr(_thread, "asked", None)
    if asked is not None and asked.is_set():
        raise Stopped


def on_threads(work: Callable[[_Part], _Result], pieces: Sequence[_Part], threads: int) -> Iterator[_Result]:
    """The results in order, of pieces that are shared out among threads, each with one thread of torch.

    >>> list(on_threads(abs, [-1, 2, -3], threads=2))
    [1, 2, 3]
    """
    import torch  # which sweeps and lists do without

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
    """What `call` returns, computed in a thread of its own with as many of torch's threads as there are here.

    In any other thread than the main one, which hears no signals, it is a plain call.

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
    """Hold Ctrl-C back until the block has ended, then let it through; the list is not empty once it was pressed.

    Python raises KeyboardInterrupt between any two instructions, also between the end of a run and its record.
    """
    handler = signal.getsignal(signal.SIGINT)
    signals: list[Any] = []
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield signals  # signals reach the main thread only, and there nobody listens
        return
    signal.signal(signal.SIGINT, lambda number, frame: signals.append((number, frame)))
    try:
        yield signals
    finally:
        signal.signal(signal.SIGINT, handler)
        if signals:
            handler(*signals[0])


def _result(future: Future[_Result]) -> _Result:
    """What the future holds, waited for in slices."""
    while not future.done():
        wait([future], timeout=_SLICE)
    return future.result()
