"""What a command gives to its user: tables for people, one JSON document for programs, progress on stderr, files.

Whether a file can be written is asked before hours of computing; `gatelab.files` writes it.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from typer.core import TyperCommand

from gatelab.cli import interrupts
from gatelab.display import Listener, reporting
from gatelab.errors import GatelabError
from gatelab.files import either

# What the parameters of all commands are called that name a file to write, and those that name one to read.
WRITTEN = ("out", "csv", "save", "plot", "export", "to")
READ = ("data", "model", "path", "text", "table", "tokenizer", "record", "store", "other")


class CheckedCommand(TyperCommand):
    """A command that does not write over a file that it reads."""

    def invoke(self, ctx: Any) -> Any:
        targets, sources = (
            [Path(str(ctx.params[name])) for name in names if ctx.params.get(name)] for names in (WRITTEN, READ)
        )
        for target in targets:
            if any(is_part(target, source.expanduser()) for source in sources):
                raise GatelabError(f"{target} is read by this command and would be overwritten; give another path")
        return super().invoke(ctx)


class Application(typer.Typer):
    """Commands that are all checked."""

    def command(self, name: str | None = None, **options: Any) -> Any:
        return super().command(name, cls=CheckedCommand, **options)


def is_part(target: Path, source: Path) -> bool:
    """Whether a path is that of a file which is read, also by links, or of one in the folder of a model."""
    with suppress(OSError, ValueError):  # a file that is not there, or a text that is no path
        if target.resolve() == source.resolve():
            return True
        inside = target.is_file() and (source / "config.json").is_file() and target.resolve().parent == source.resolve()
        return inside or target.samefile(source)
    return False


def check_file(path: Path | None, suffixes: Sequence[str]) -> None:
    """Refuse a file that could not be written in the end."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise GatelabError(f"{path} cannot be written; give a name that ends in {either(suffixes)}")
    if path.is_dir():
        raise GatelabError(f"{path} is a folder; give the name of a file")
    check_folder(path.parent)
    interrupts.watch(path)


def check_folder(path: Path) -> None:
    """Refuse a folder that does not exist and cannot be made, or that may not be written to."""
    nearest = next(p for p in (path, *path.absolute().parents) if os.path.lexists(p))
    if not nearest.is_dir():
        raise GatelabError(f"{path} cannot be written, since {nearest} is not a folder; give another path")
    if not os.access(nearest, os.W_OK):
        raise GatelabError(f"{path} cannot be written, since {nearest} is read-only for you; give another path")
    from tempfile import TemporaryFile

    try:
        TemporaryFile(dir=nearest).close()  # root may do anything, and yet not make files in /proc
    except OSError as error:
        message = f"{path} cannot be written, since {nearest} takes no files ({error.strerror}); give another path"
        raise GatelabError(message) from error


def check_pyarrow() -> None:
    """Refuse to write Parquet where nothing can."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise GatelabError("Parquet files need pyarrow; run: pip install pyarrow, or export as csv or json") from None


class _Out(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(32, "the reader of our output has gone")


def console() -> Console:
    """The terminal; formulas have brackets, so that no text is read as markup."""
    return _Out(markup=False, highlight=False, emoji=False)


def say(*lines: str, wrap: bool = True) -> None:
    """Paragraphs to stdout; paths are not wrapped, so that they can be copied."""
    out = console()
    for line in lines:
        out.print(line, soft_wrap=not wrap)


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), wrap: Sequence[int] = ()
) -> None:
    """A table to stdout: columns `right` hold numbers, columns `wrap` hold text that may take several lines."""
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for i, heading in enumerate(headings):
        # fold: a column that is too narrow breaks a word, it does not drop its end
        grid.add_column(heading, justify="right" if i in right else "left", no_wrap=i not in wrap, overflow="fold")
    for row in rows:
        grid.add_row(*row)
    console().print(grid)


def points(lines: Iterable[str]) -> None:
    """A list with hanging dashes, each line once."""
    pairs([("-", line) for line in dict.fromkeys(lines)], gap=1)


def pairs(rows: Iterable[tuple[str, str]], gap: int = 2) -> None:
    """Names and values, a line each."""
    grid = Table.grid(padding=(0, gap))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, value)
    console().print(grid)


def say_written(*files: Path | None) -> None:
    """A line for each file that was written; None stands for one that was not asked for."""
    for file in files:
        if file is not None:
            say(f"wrote {file}", wrap=False)


def document(value: Any) -> None:
    """One JSON document to stdout; what is not finite becomes null."""
    sys.stdout.write(json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def plain(value: Any) -> Any:
    """The value in JSON's own types.

    >>> plain({"rmse": float("nan"), "widths": (1, 2)})
    {'rmse': None, 'widths': [1, 2]}
    """
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()  # a number of numpy's
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value)


def number(value: float | None, form: str = ".2f") -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None or math.isnan(value) else format(value, form)


def asked_for(*files: Path | None) -> list[Path]:
    """Those of the files that were asked for, as JSON documents name them."""
    return [file for file in files if file is not None]


def text(value: object) -> str:
    """A value of a record, numbers with all their digits."""
    return "-" if value is None else str(value)


def interval(value: float, low: float, high: float) -> str:
    """A number with its interval, where there is one."""
    if math.isnan(value) or math.isnan(low):
        return number(value)
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def command_line(context: typer.Context) -> str:
    """The command that was given, with files by their names alone; whether as JSON does not matter."""
    words = context.command_path.split()
    for option in context.command.params:
        name = str(option.name)
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name == "as_json":
            continue
        value = context.params[name]
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, bool):
                words.append((option.opts if one else option.secondary_opts)[0])
            else:
                words += option.opts[:1] * (option.param_type_name == "option")
                words.append(one.name if isinstance(one, Path) else str(one))
    return shlex.join(words)


def note(message: str) -> None:
    """A line beside what was asked for, on stderr, so that what is on stdout stays what it is."""
    typer.echo(f"gatelab: {message}", err=True)


@contextmanager
def progress(what: str, stored: int = 0) -> Iterator[Listener]:
    """A report of work in hand, gone from the terminal when the work is done."""
    with reporting(True, what, stored) as report:
        assert report is not None
        yield report
