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
from types import FrameType

CODE = 130
PATIENCE = 1.2  # seconds for the main thread to end in good order
LAST = 0.3  # seconds for the line that says what is complete, where the main thread does not end

_pressed = threading.Event()
_line = threading.Lock()  # held while the one line is written
_said = threading.Event()
_timers: list[threading.Timer] = []
_pipe: list[int] = []
_complete: list[Callable[[], str | None]] = []
_outputs: dict[Path, tuple[int, int] | None] = {}


def listen() -> None:
    """Hear Ctrl-C from now on, in a thread that ends the process if nothing else does."""
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

    Modules of C++ import others while they are set up, and an exception that comes back from there ends the process
    without a word. Nobody writes anything while he imports, so there is nothing to wait for either.
    """
    if _imports(frame):
        os.write(_pipe[1], bytes([number]))  # as if it were the second one, which ends the process at once
    else:
        signal.default_int_handler(number, frame)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def silenced(complain: Callable[..., object]) -> Callable[[object], None]:
    """The hook, but silent after Ctrl-C: what an interrupted import or thread complains of is no news."""

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
    """A store that others hold, or a full machine, can take too long to say what it keeps."""
    _say_once("gatelab: interrupted; what was stored before is kept\n", _to_terminal)
    end()


def _to_terminal(line: str) -> None:
    # Past Python's own buffer, which the main thread may hold; a progress bar has hidden the cursor.
    if os.isatty(2):
        line = f"\r\x1b[K\x1b[?25h{line}"
    with suppress(OSError):
        os.write(2, line.encode(errors="replace"))


def pressed() -> bool:
    """Whether Ctrl-C has been pressed; asked when something has failed, which Ctrl-C may have caused just now."""
    return _pressed.wait(0.1)


def begin() -> None:
    """Forget what an earlier command of this process has written."""
    _complete.clear()
    _outputs.clear()
    _said.clear()


@contextmanager
def keeping(complete: Callable[[], str | None]) -> Iterator[None]:
    """Ctrl-C inside of the block says what `complete` then returns: what is complete or stored, if anything."""
    _complete.append(complete)
    try:
        yield
    except KeyboardInterrupt:
        raise  # what it says is still to be asked
    except BaseException:
        _complete.remove(complete)
        raise
    _complete.remove(complete)


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
    files = [str(path) for path, before in _outputs.items() if _version(path) not in (None, before)]
    parts = [complete() for complete in reversed(_complete)]
    if files:
        parts.insert(0, f"complete: {', '.join(files)}")
    return "; ".join(part for part in parts if part) or "nothing was written"


def say(write: Callable[[str], object]) -> None:
    """The one line, once, whichever thread comes first."""
    _say_once(f"gatelab: interrupted; {left()}\n", write)


def _say_once(line: str, write: Callable[[str], object]) -> None:
    # No wait without an end: the other thread's write may never return, where nobody reads.
    if _line.acquire(timeout=LAST):
        try:
            if not _said.is_set():
                write(line)
                _said.set()
        finally:
            _line.release()


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
    descendants: list[int] = []
    todo = [os.getpid()]
    while todo:
        children = parents.get(todo.pop(), [])
        descendants += children
        todo += children
    return descendants


def finished(code: object) -> None:
    """The command has done its work: Ctrl-C from here on, while Python takes itself down, changes nothing of it."""
    for timer in _timers:
        timer.cancel()
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.set_wakeup_fd(-1)
        number = code if isinstance(code, int) else 0
        signal.signal(signal.SIGINT, lambda *_: os._exit(number))
