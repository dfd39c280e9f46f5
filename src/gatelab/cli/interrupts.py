"""Ctrl-C: a command ends within two seconds of the first one, whatever it is doing, and at once at the second.

Python raises KeyboardInterrupt between two instructions of the main thread, hence not while that thread is inside of
LAPACK, nor while other threads go on computing. So a thread of our own hears of every Ctrl-C as soon as it comes. It
gives the main thread a while to end in good order, with writes that have begun and with what sweeps file, and then ends
the process with all its children. Either way one line says what is complete.

The module imports little: it is loaded before anything that takes long.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CODE = 130
PATIENCE = 1.2  # seconds for the main thread to end in good order
LAST = 0.3  # seconds for the line that says what is complete, where the main thread does not end

_pressed = threading.Event()
_said = threading.Lock()
_timers: list[threading.Timer] = []
_kept: list[Callable[[], str | None]] = []
_outputs: dict[Path, tuple[int, int] | None] = {}


def listen() -> None:
    """Hear Ctrl-C from now on, in a thread that ends the process if nothing else does."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # a shell starts background jobs with Ctrl-C ignored
    hear, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    threading.Thread(target=_hear, args=(hear,), daemon=True).start()
    complain, complain_of_thread = sys.unraisablehook, threading.excepthook
    # What an interrupted import or thread complains of is no news.
    sys.unraisablehook = lambda what: None if _pressed.is_set() else complain(what)
    threading.excepthook = lambda what: None if _pressed.is_set() else complain_of_thread(what)


def _hear(hear: int) -> None:
    while True:
        for number in os.read(hear, 16):
            if number != signal.SIGINT:
                continue
            if _pressed.is_set():
                _end_now()
            _pressed.set()
            _later(PATIENCE, _end_now)


def _later(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    _timers.append(timer)
    timer.start()


def _end_now() -> None:
    _later(LAST, end)
    say(_to_terminal)
    end()


def _to_terminal(line: str) -> None:
    # Past Python's own buffer, which the main thread may hold; a progress bar has hidden the cursor.
    shown = f"\r\x1b[K\x1b[?25h{line}" if os.isatty(2) else line
    with suppress(OSError):
        os.write(2, shown.encode(errors="replace"))


def pressed() -> bool:
    """Whether Ctrl-C has been pressed; asked when something has failed, which Ctrl-C may have caused just now."""
    return _pressed.wait(0.1)


def begin() -> None:
    """Forget what an earlier command of this process has said and kept."""
    _kept.clear()
    _outputs.clear()
    if _said.locked():
        _said.release()


@contextmanager
def keeping(kept: Callable[[], str | None]) -> Iterator[None]:
    """Ctrl-C inside of the block says what `kept` then returns: what is complete or stored, if anything."""
    _kept.append(kept)
    try:
        yield
    except KeyboardInterrupt:
        raise  # what it says is still to be asked
    except BaseException:
        _kept.remove(kept)
        raise
    _kept.remove(kept)


def watch(path: Path) -> None:
    """A file that the command is going to write: after Ctrl-C one knows whether it has."""
    _outputs[path] = _version(path)


def _version(path: Path) -> tuple[int, int] | None:
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns


def left() -> str:
    """What the interrupted command leaves behind, in words."""
    complete = [str(path) for path, before in _outputs.items() if _version(path) not in (None, before)]
    parts = [f"complete: {', '.join(complete)}" if complete else None, *(kept() for kept in reversed(_kept))]
    return "; ".join(part for part in parts if part) or "nothing was written"


def say(write: Callable[[str], object]) -> None:
    """The one line, once, whichever thread comes first."""
    line = f"gatelab: interrupted; {left()}\n"
    if _said.acquire(blocking=False):
        write(line)


def end() -> None:
    """End this process and all that it has started, now: threads that still compute are not waited for."""
    for pid in _descendants():
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    os._exit(CODE)


def end_interrupted() -> None:
    """The main thread has ended in good order: say so, unless that has been done, and go."""
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    say(_to_terminal)
    end()


def _descendants() -> list[int]:
    """Children and theirs, by /proc; without it workers end by themselves when their pipe closes."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            # Trackers clean up what killed processes have shared, and end by themselves.
            if b"resource_tracker" not in (folder / "cmdline").read_bytes():
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(folder.name))
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def finished(code: object) -> None:
    """The command has done its work: Ctrl-C from here on, while Python takes itself down, changes nothing of it."""
    for timer in _timers:
        timer.cancel()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, lambda *_: os._exit(code if isinstance(code, int) else 0))
