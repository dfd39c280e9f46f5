"""Ctrl-C: a command ends within two seconds of the first one, and at once at the second.

Python raises KeyboardInterrupt between two instructions of the main thread, hence not inside LAPACK and not in other
threads. A separate thread receives every Ctrl-C at once. It gives the main thread some time to finish its writes, and
then ends the process with all its children. One line reports the files and fits that are complete.

The module imports little, since it is loaded first.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

CODE = 130
PATIENCE = 1.2  # seconds for the main thread to end
LAST = 0.3  # seconds for the last line, if the main thread does not end

_pressed = threading.Event()
_line = threading.Lock()  # held while the one line is written
_said = threading.Event()
_timers: list[threading.Timer] = []
_pipe: list[int] = []
_complete: list[Callable[[], str | None]] = []
_outputs: dict[Path, tuple[int, int] | None] = {}


def listen() -> None:
    """Receive Ctrl-C from now on, in a thread that ends the process if the main thread does not."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # a shell starts background jobs with Ctrl-C ignored
    hear, tell = os.pipe()
    _pipe[:] = hear, tell
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    threading.Thread(target=_hear, args=(hear,), daemon=True).start()
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = silenced(sys.unraisablehook)
    threading.excepthook = silenced(threading.excepthook)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt the main thread as Python does, unless it imports.

    An exception inside the import of a C++ module ends the process without a message. Imports write no files, so
    there is no reason to wait either.
    """
    if _imports(frame):
        os.write(_pipe[1], bytes([number]))  # like the second one, which ends the process at once
    else:
        signal.default_int_handler(number, frame)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def silenced(complain: Callable[..., object]) -> Callable[[object], None]:
    """The hook, but silent after Ctrl-C."""

    def hook(problem: object) -> None:
        if not _pressed.is_set():
            complain(problem)

    return hook


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
    _later(LAST, _end_unasked)
    say(_to_terminal)
    end()


def _end_unasked() -> None:
    """End without asking the store, which can take too long on a busy machine."""
    _say_once("gatelab: interrupted; fits that were stored before are kept\n", _to_terminal)
    end()


def _to_terminal(line: str) -> None:
    # Not through Python's buffer, which the main thread may hold; a progress bar has hidden the cursor.
    if os.isatty(2):
        line = f"\r\x1b[K\x1b[?25h{line}"
    with suppress(OSError):
        os.write(2, line.encode(errors="replace"))


def pressed() -> bool:
    """Whether Ctrl-C has been pressed, as a possible cause of an error."""
    return _pressed.wait(0.1)


def begin() -> None:
    """Forget the files of an earlier command of this process."""
    _complete.clear()
    _outputs.clear()
    _said.clear()


@contextmanager
def keeping(complete: Callable[[], str | None]) -> Iterator[None]:
    """Ctrl-C inside the block prints the text that `complete` then returns."""
    _complete.append(complete)
    try:
        yield
    except KeyboardInterrupt:
        raise  # `complete` is called later
    except BaseException:
        _complete.remove(complete)
        raise
    _complete.remove(complete)


def watch(path: Path) -> None:
    """Watch a file of the command, to report after Ctrl-C whether it was written."""
    _outputs[path] = _version(path)


def _version(path: Path) -> tuple[int, int] | None:
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns


def left() -> str:
    """The complete files and fits of an interrupted command, in words."""
    files = [str(path) for path, before in _outputs.items() if _version(path) not in (None, before)]
    parts = [complete() for complete in reversed(_complete)]
    if files:
        parts.insert(0, f"complete: {', '.join(files)}")
    return "; ".join(part for part in parts if part) or "nothing was written"


def say(write: Callable[[str], object]) -> None:
    """Print the last line, once."""
    _say_once(f"gatelab: interrupted; {left()}\n", write)


def _say_once(line: str, write: Callable[[str], object]) -> None:
    # With a time limit: a write to a closed reader may never return.
    if _line.acquire(timeout=LAST):
        try:
            if not _said.is_set():
                write(line)
                _said.set()
        finally:
            _line.release()


def end() -> None:
    """End this process and its children at once, without waiting for threads."""
    for pid in _descendants():
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    os._exit(CODE)


def end_interrupted() -> None:
    """Print the last line at the end of the main thread, and end the process."""
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    say(_to_terminal)
    end()


def _descendants() -> list[int]:
    """All descendants, by /proc; without it workers end when their pipe closes."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            # Trackers clean up shared memory of killed processes and end by themselves.
            if b"resource_tracker" not in (folder / "cmdline").read_bytes():
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(folder.name))
    descendants: list[int] = []
    todo = [os.getpid()]
    while todo:
        children = parents.get(todo.pop(), [])
        descendants += children
        todo += children
    return descendants


def finished(code: object) -> None:
    """Let Ctrl-C after the end of a command keep its exit code."""
    for timer in _timers:
        timer.cancel()
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.set_wakeup_fd(-1)
        number = code if isinstance(code, int) else 0
        signal.signal(signal.SIGINT, lambda *_: os._exit(number))
