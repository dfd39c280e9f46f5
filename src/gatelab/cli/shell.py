"""How a command ends: exit codes and the one line on stderr.

0 done; 2 the user can fix it (a `GatelabError`, a wrong option, a file that cannot be written); 130 Ctrl-C; 141 the
reader of our output has gone. Commands print when they are done, so that nothing is on stdout where they are not.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from gatelab.errors import GatelabError

WRONG, INTERRUPTED, PIPE = 2, 130, 141


class Interrupted(KeyboardInterrupt):
    """Ctrl-C after some files were complete, or with a store; `kept` says what it holds, once all is written."""

    def __init__(self, files: Sequence[Path] = (), kept: Callable[[], str | None] = lambda: None) -> None:
        super().__init__()
        self.files, self.kept = tuple(files), kept


class Shell(TyperGroup):
    """The group of all commands, and the one place where their errors end."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except GatelabError as error:
            raise _end(str(error), WRONG) from error
        except KeyboardInterrupt as error:
            # A second Ctrl-C would leave the workers that the first is about to end.
            with suppress(ValueError):
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            _end_sweeps(error)
            _end_workers()
            raise _end(f"interrupted; {_left(error)}", INTERRUPTED) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                _drop_stdout()
                raise typer.Exit(PIPE) from error
            if error.errno == errno.ENOSPC:
                _drop_stdout()
            raise _end(f"{_of(error)}; free some space or give another path", WRONG) from error


def _end(message: str, code: int) -> typer.Exit:
    typer.echo(f"gatelab: {' '.join(message.split())}", err=True)
    return typer.Exit(code)


def _of(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)


def _drop_stdout() -> None:
    """What is still in the buffer goes nowhere, else Python would complain of it at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _left(error: KeyboardInterrupt) -> str:
    if not isinstance(error, Interrupted):
        return "nothing was written"
    complete = f"complete: {', '.join(map(str, error.files))}" if error.files else None
    return "; ".join(part for part in (complete, error.kept()) if part) or "nothing was written"


def _end_sweeps(error: BaseException | None) -> None:
    """End what the error left in the middle: a sweep lives in a generator, which its traceback keeps alive."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _end_workers() -> None:
    """End the processes that compute units which travel by value."""
    if "joblib" not in sys.modules:
        return
    from joblib.externals.loky import get_reusable_executor

    # reuse=True, which loky documents and whose type its stub lacks: the pool that is there, of whatever size.
    pool = get_reusable_executor(reuse=True, kill_workers=True)  # pyright: ignore[reportArgumentType]
    pool.shutdown(wait=True, kill_workers=True)
