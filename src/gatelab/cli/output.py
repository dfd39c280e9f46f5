"""The output of commands: tables for people, one JSON document for programs, progress on stderr, files."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from gatelab.cli import interrupts
from gatelab.display import Listener, reporting
from gatelab.errors import GatelabError
from gatelab.files import PICTURES, either, write_whole

_NUMBER = re.compile(r"[-+<>= ?0-9.,e%]*|inf")  # also bounds and missing numbers
_answer = {"as_json": False, "quiet": False}


def answer(*, as_json: bool = False, quiet: bool = False) -> None:
    """Set how the command that begins now answers: --json and --quiet."""
    _answer.update(as_json=as_json, quiet=quiet)


class Line(str):
    """A line that is not wrapped, such as a path or a command, so that it can be copied."""


Part = str | Table


def emit(document: Any, *parts: Part, files: Sequence[Path | None] = ()) -> None:
    """The result of a command: one JSON document with --json, else paragraphs and tables, then the `files` written.

    A file is None if it was not asked for.
    """
    written = [file for file in files if file is not None]
    if not _answer["as_json"]:
        # Formulas have brackets: no text is read as markup.
        out = _Out(markup=False, highlight=False, emoji=False)
        for part in (*parts, *(Line(f"wrote {file}") for file in written)):
            out.print(part, soft_wrap=isinstance(part, Line))
        return
    from gatelab.plain import to_plain

    if isinstance(document, Mapping) and files:
        document = {**document, "files": written}
    text = json.dumps(to_plain(document), indent=2, allow_nan=False, ensure_ascii=False)
    sys.stdout.write(f"{text}\n")


def check_file(path: Path, suffixes: Sequence[str]) -> None:
    """Refuse a file that could not be written in the end."""
    if path.suffix.lower() not in suffixes:
        raise GatelabError(f"{path} cannot be written; give a name that ends in {either(suffixes)}")
    if path.is_dir():
        raise GatelabError(f"{path} is a folder; give the name of a file")
    if path.suffix.lower() == ".parquet":
        from gatelab.data.archives import import_pyarrow

        import_pyarrow(path, "a .csv file")
    check_folder(path.parent)
    interrupts.watch(path)


def check_folder(path: Path) -> None:
    """Refuse a folder that does not exist and cannot be made, or that may not be written to."""
    nearest, reason = next(p for p in (path, *path.absolute().parents) if os.path.lexists(p)), "not a folder"
    if nearest.is_dir():
        reason = "read-only for you" * (not os.access(nearest, os.W_OK))
    if reason:
        raise GatelabError(f"{path} cannot be written, since {nearest} is {reason}; give another path")


def write(result: Any, *paths: Path | None, frame: Callable[[], Any] | None = None) -> None:
    """Write a result to files by their endings: its figure, its table as CSV (`frame` if given), or all of it."""
    for path in filter(None, paths):
        if path.suffix.lower() in PICTURES:
            result.plot(path)
        elif path.suffix.lower() == ".csv":
            write_frame(path, (frame or result.table)())
        else:
            result.save(path)


def write_frame(path: Path, frame: Any) -> None:
    """Write a data frame as CSV or Parquet."""
    if path.suffix.lower() == ".csv":
        write_whole(path, frame.to_csv(index=False))
    else:
        write_whole(path, lambda part: frame.to_parquet(part, engine="pyarrow", index=False))


class _Out(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(32, "the reader of our output has gone")


def table(rows: Any, formats: Mapping[str, str] | None = None) -> Table:
    """A table of rows with the same names, or of a data frame; numbers are by their format or to four digits."""
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    if hasattr(rows, "to_dict"):
        rows = rows.to_dict("records")
    texts = [{name: cell(value, (formats or {}).get(name, ".4g")) for name, value in row.items()} for row in rows]
    for name in texts[0] if texts else ():
        numbers = all(_NUMBER.fullmatch(row[name]) for row in texts)
        # fold: a column that is too narrow breaks a word, it does not drop its end
        grid.add_column(name, justify=("left", "right")[numbers], no_wrap=numbers, overflow="fold")
    for row in texts:
        grid.add_row(*row.values())
    return grid


def points(lines: Iterable[str]) -> Table:
    """A list with hanging dashes, each line once."""
    return pairs([("-", line) for line in dict.fromkeys(lines)], gap=1)


def pairs(rows: Iterable[tuple[str, Any]], gap: int = 2) -> Table:
    """Names and values, one line per pair."""
    grid = Table.grid(padding=(0, gap))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, cell(value))
    return grid


def cell(value: Any, form: str = ".4g") -> str:
    """A value as text: floats by their format, and a dash where there is none.

    >>> cell(1 / 3), cell(0.5, ".1%"), cell(12345), cell(None), cell(float("nan"))
    ('0.3333', '50.0%', '12345', '-', '-')
    """
    if value is None or value != value:
        return "-"
    return format(value, form) if isinstance(value, float) else str(value)


def command_line(context: typer.Context) -> str:
    """The command that was given, with the names of files instead of their paths, without --json and --quiet."""
    given = [word for word in context.meta["words"] if word not in ("--json", "--quiet", "-q")]
    words = [Path(word).name if Path(word).parent.is_dir() else word for word in given]
    return shlex.join([*context.command_path.split(), *words])


def note(message: str) -> None:
    """A line on stderr, which leaves stdout to the result."""
    typer.echo(f"gatelab: {message}", err=True)


def shown() -> bool:
    return not _answer["quiet"]


@contextmanager
def progress(what: str, stored: int = 0) -> Iterator[Listener]:
    """A report of progress, removed from the terminal at the end."""
    with reporting(shown(), what, stored) as report:
        yield report or (lambda *_: None)


def counting(report: Listener, count: int) -> Listener:
    """A report in things that a user knows, such as trainings, of work that counts smaller steps."""
    return lambda done, total, *more: report(done * count // max(total, 1), count, *more)
