"""Short representations of values, and progress reports with the time left.

The argument `progress` of long work is None for a bar on a terminal or a line in a notebook after two seconds, True for
lines on stderr as well, every ten seconds, False for no output, or a function of (done, total).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

Listener = Callable[..., object]
ProgressLike = Listener | bool | None

LONGEST = 110  # characters of a value in one line
PATIENCE = 2.0  # seconds of work before the first output
EVERY = 10.0  # seconds between lines in a log
OFTEN = 0.5  # seconds between updates of the line in a notebook
WINDOW = 600.0  # seconds of work that the time left is estimated from


def one_line(value: object, text: str) -> str:
    """The class of a value and a description of it, in one short line.

    >>> one_line(1.5, "three\\nhalves"), len(one_line(1.5, "x" * 500))
    ('float(three halves)', 110)
    """
    return f"{type(value).__name__}({shorten(' '.join(text.split()), LONGEST - len(type(value).__name__) - 2)})"


class Compact:
    """A base of dataclasses with a one-line repr: numbers to four digits, arrays by their shapes, the rest shortened.

    >>> from dataclasses import dataclass, field
    >>> @dataclass(frozen=True)
    ... class Curve(Compact):
    ...     unit: str
    ...     losses: list[float]
    ...     rate: float
    >>> Curve("glu", [0.5] * 100, 1 / 3)
    Curve(unit='glu', losses=100 values, rate=0.3333)
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "__repr__" not in cls.__dict__:  # the decorator `dataclass` keeps a repr that exists
            cls.__repr__ = _compact_repr


def _compact_repr(self: Any) -> str:
    parts = (f"{f.name}={_compact(getattr(self, f.name))}" for f in fields(self) if f.repr)
    return one_line(self, ", ".join(parts))


def _compact(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(getattr(value, "shape", None), tuple) and value.shape:
        return f"array of {' x '.join(map(str, value.shape))}"
    if isinstance(value, Sized) and not isinstance(value, str) and len(value) > 3:
        return counted(len(value), "value")
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_compact, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_compact(part)}' for name, part in value.items())}}}"
    if callable(value) and not is_dataclass(value):
        return getattr(value, "__name__", type(value).__name__)
    return shorten(repr(value))


def shorten(text: str, most: int = 32) -> str:
    """A text cut to at most `most` characters."""
    if len(text) <= most:
        return text
    return f"{text[: most - 3]}..."


def counted(count: int, noun: str) -> str:
    """A count with its noun, such as "1 seed" or "3 seeds"."""
    return f"{count} {noun}{'s' * (count != 1)}"


def duration(seconds: float) -> str:
    """A readable duration.

    >>> duration(0.4), duration(42.3), duration(200), duration(9000)
    ('less than 1 s', 'about 42 s', 'about 3 min', 'about 2.5 h')
    """
    if seconds < 1:
        return "less than 1 s"
    if seconds < 120:
        return f"about {seconds:.0f} s"
    if seconds < 7200:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"


class Report:
    """A callback for (done, total, *texts) that moves a bar of rich, or writes a line with the time left at intervals.

    Neither the first `stored` steps nor the next one, which includes imports, count for the time left.
    """

    def __init__(
        self,
        what: str,
        stored: int = 0,
        *,
        bar: Progress | None = None,
        write: Callable[[str], object] | None = None,
        first: float = EVERY,
        every: float = EVERY,
    ) -> None:
        from rich.progress import Progress

        self.what, self.stored, self.write = what, stored, write
        self.first, self.every = first, every
        self.bar = bar or Progress(get_time=lambda: time.monotonic(), speed_estimate_period=WINDOW)
        self.task = self.bar.add_task(what, total=None, completed=stored)
        self.began, self.last = time.monotonic(), -float("inf")

    def __call__(self, done: int, total: int, *more: object) -> None:
        what = ", ".join([self.what, *(text for text in more if isinstance(text, str) and text)])
        self.bar.update(self.task, completed=max(done, self.stored), total=total, description=what)
        now = time.monotonic()
        due = max(self.began + self.first, self.last + self.every)
        if self.write is not None and now >= due and self.stored < done < total:
            self.last = now
            line = f"{what}: {done} of {total}"
            if left := self.bar.tasks[0].time_remaining:
                line += f", {duration(left)} left"
            self.write(line)


@contextmanager
def reporting(progress: ProgressLike, what: str, stored: int = 0) -> Iterator[Listener | None]:
    """A callback for (done, total) during the work `what`; None without output.

    Nested work is not shown.

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
        elif progress:
            yield Report(what, stored, write=lambda line: print(f"gatelab: {line}", file=sys.stderr, flush=True))
        else:
            yield None
    finally:
        with _lock:
            _depth -= 1


def part_of(report: Listener | None, before: int, parts: int) -> Listener | None:
    """The callback for one of several equal parts, `before` of which are done.

    >>> part_of(print, 1, 3)(5, 10)
    15 30
    """
    if report is None:
        return None
    return lambda done, total: report(before * total + done, parts * total)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


_depth, _lock = 0, threading.Lock()


@contextmanager
def _bar(what: str, stored: int) -> Iterator[Report]:
    """A bar that appears after two seconds and disappears at the end."""
    from rich import progress
    from rich.console import Console

    class Visible(Console):
        def show_cursor(self, show: bool = True) -> bool:
            """Never hide the cursor: a killed process could not show it again."""
            return False

    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("left"),
        console=Visible(stderr=True, markup=False, highlight=False),
        transient=True,
        speed_estimate_period=WINDOW,
    )
    begin = threading.Timer(PATIENCE, bar.start)
    begin.daemon = True
    begin.start()
    try:
        yield Report(what, stored, bar=bar)
    finally:
        begin.cancel()
        begin.join()  # otherwise a bar that is just starting would stay
        if bar.live.is_started:
            bar.stop()


@contextmanager
def _cell(what: str, stored: int) -> Iterator[Report]:
    """A line below the cell of a notebook, updated during the work, with the total time at the end."""
    from IPython.display import display  # pyright: ignore[reportMissingImports]

    handle: Any = None

    def write(line: str) -> None:
        nonlocal handle
        if handle is None:
            handle = display({"text/plain": line}, raw=True, display_id=True)
        else:
            handle.update({"text/plain": line}, raw=True)

    report = Report(what, stored, write=write, first=PATIENCE, every=OFTEN)
    ended = "stopped after"
    try:
        yield report
        ended = "done in"
    finally:
        if handle is not None:
            write(f"{what}: {ended} {time.monotonic() - report.began:.0f} s")
