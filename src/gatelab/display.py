"""What people see of values and of work in hand: a value in one line, progress with the time left.

Functions that may take long have an argument `progress`:

    None        a bar on a terminal and a line in a notebook, after two seconds of work; nothing where nobody looks
    False       nothing
    True        as None, and where there is neither terminal nor notebook a line on stderr every ten seconds
    function    called with (done, total), and nothing is shown
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

Told = Callable[..., object]
ProgressLike = Told | bool | None

LONGEST = 110  # characters of a value in one line
PATIENCE = 2.0  # seconds of work before anything is shown
EVERY = 10.0  # seconds between lines in a log
OFTEN = 0.5  # seconds between changes of the line in a notebook


def one_line(value: object, text: str) -> str:
    """The class of a value and what it is, in one line that is never long.

    >>> one_line(1.5, "three\\nhalves"), len(one_line(1.5, "x" * 500))
    ('float(three halves)', 110)
    """
    line = f"{type(value).__name__}({' '.join(text.split())})"
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 4]}...)"


def shorten(text: str, most: int = 32) -> str:
    """A name that others chose, no longer than `most`.

    >>> shorten("sin(x)"), shorten("sin(x) + " * 9)
    ('sin(x)', 'sin(x) + sin(x) + sin(x) + si...')
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


def counted(count: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{count} {noun}{'s' * (count != 1)}"


class Report:
    """Called with (done, total) as work ends: moves a bar of rich's, or writes a line with the time left now and then.

    What was `stored` before comes at once and says nothing of the time that the rest will take. Of what else it is
    called with, a text, such as a speed, is shown beside the name of the work.
    """

    def __init__(
        self,
        what: str,
        bar: Progress | None = None,
        stored: int = 0,
        *,
        write: Callable[[str], object] | None = None,
        first: float = EVERY,
        every: float = EVERY,
    ) -> None:
        self.what, self.bar, self.stored = what, bar, stored
        self.write, self.first, self.every = write or _to_stderr, first, every
        self.task = bar.add_task(what, total=None, completed=stored) if bar else None
        self.began, self.last = time.monotonic(), -float("inf")

    def __call__(self, done: int, total: int, *more: object) -> None:
        what = ", ".join([self.what, *(text for text in more if isinstance(text, str) and text)])
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=max(done, self.stored), total=total, description=what)
            return
        now = time.monotonic()
        due = max(self.began + self.first, self.last + self.every)
        if now >= due and self.stored < done < total:
            self.last = now
            left = (now - self.began) / (done - self.stored) * (total - done)
            self.write(f"{what}: {done} of {total}, about {left:.0f} s left")


@contextmanager
def reporting(progress: ProgressLike, what: str, stored: int = 0) -> Iterator[Told | None]:
    """What to call with (done, total) while `what` is done, None where nobody is to be told.

    Work within work is not shown: whoever began the outer one knows of it.

    >>> with reporting(False, "counting") as report:
    ...     print(report)
    None
    """
    global _depth
    with _lock:
        _depth += 1
        inner = _depth > 1
    try:
        if callable(progress):
            yield progress
        elif progress is False or (inner and not progress):
            yield None
        elif sys.stderr is not None and sys.stderr.isatty():
            with _bar(what, stored) as report:
                yield report
        elif in_notebook():
            with _cell(what, stored) as report:
                yield report
        else:
            yield Report(what, None, stored) if progress else None
    finally:
        with _lock:
            _depth -= 1


def part_of(report: Told | None, before: int, parts: int) -> Told | None:
    """The report for one of several equal parts, `before` of which are done.

    >>> part_of(print, 1, 3)(5, 10)
    15 30
    """
    if report is None:
        return None
    return lambda done, total: report(before * total + done, parts * total)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


_depth, _lock = 0, threading.Lock()


def _to_stderr(line: str) -> None:
    print(f"gatelab: {line}", file=sys.stderr, flush=True)


@contextmanager
def _bar(what: str, stored: int) -> Iterator[Report]:
    """A bar that appears after two seconds and is gone when the work is."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    class Visible(Console):
        def show_cursor(self, show: bool = True) -> bool:
            """Left as it is: a process that is killed could not show it again."""
            return False

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Visible(stderr=True, markup=False, highlight=False), transient=True)
    begin = threading.Timer(PATIENCE, bar.start)
    begin.daemon = True
    begin.start()
    try:
        yield Report(what, bar, stored)
    finally:
        begin.cancel()
        begin.join()  # else a bar that is just being begun would stay
        if bar.live.is_started:
            bar.stop()


@contextmanager
def _cell(what: str, stored: int) -> Iterator[Report]:
    """A line below the cell of a notebook, which changes as the work goes on and says at the end how long it took."""
    from IPython.display import display  # pyright: ignore[reportMissingImports]

    handle: Any = None

    def write(line: str) -> None:
        nonlocal handle
        content = {"text/plain": line}
        if handle is None:
            handle = display(content, raw=True, display_id=True)
        else:
            handle.update(content, raw=True)

    report = Report(what, None, stored, write=write, first=PATIENCE, every=OFTEN)
    ended = "stopped after"
    try:
        yield report
        ended = "done in"
    finally:
        if handle is not None:
            write(f"{what}: {ended} {time.monotonic() - report.began:.0f} s")
