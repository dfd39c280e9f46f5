"""Ctrl-C: one line reports the files and fits that are complete, and the process ends without waiting for threads.

The module imports little, since it is loaded first.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

CODE = 130
_pressed: list[int] = []
_said: list[str] = []
_complete: list[Callable[[], str | None]] = []
_outputs: dict[Path, tuple[int, int] | None] = {}


def listen() -> None:
    """Receive Ctrl-C from now on."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell lets background jobs ignore it
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt the main thread as Python does; end the process at the second Ctrl-C, and during an import of C++."""
    if _pressed or _imports(frame):
        end()
    _pressed.append(number)
    signal.default_int_handler(number, frame)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def begin() -> None:
    """Forget the files of an earlier command of this process."""
    for known in (_pressed, _said, _complete, _outputs):
        known.clear()


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


def say(write: Callable[[str], object]) -> None:
    """Print the complete files and fits of an interrupted command, once."""
    files = [str(path) for path, before in _outputs.items() if _version(path) not in (None, before)]
    parts = [complete() for complete in reversed(_complete)]
    if files:
        parts.insert(0, f"complete: {', '.join(files)}")
    left = "; ".join(part for part in parts if part) or "nothing was written"
    if not _said:
        _said.append(left)
        write(f"gatelab: interrupted; {left}\n")


def end() -> None:
    """Print the last line, and end the process without waiting for threads; workers end when their pipe closes."""
    say(_to_terminal)
    os._exit(CODE)


def _to_terminal(line: str) -> None:
    # Not through Python's buffer, which the main thread may hold; a progress bar may be in the line.
    if os.isatty(2):
        line = f"\r\x1b[K{line}"
    with suppress(OSError):
        os.write(2, line.encode(errors="replace"))
