"""The command line: parse, call, print.

`main` is the entry point and handles Ctrl-C (`interrupts`) before any other import; `application` has the commands and
turns errors and closed pipes into exit codes. `options` declares shared options, `reading` turns texts and files into
values, `rows` reads the rows of kernels, and `output` prints tables, JSON and progress. Every other module is named
after its commands and imports the computing packages inside functions.
"""

import os
import sys

from gatelab.lazy import import_on_use

TYPE_CHECKING = False  # without an import that Ctrl-C could interrupt
if TYPE_CHECKING:
    from gatelab.cli.application import app

import_on_use(__name__, {"application": ("app",)})

__all__ = ["app", "main"]


def main() -> None:
    """The entry point."""
    try:
        from gatelab.cli import interrupts

        _open_streams()
        _settle_environment()
        interrupts.listen()
    except KeyboardInterrupt:
        os.write(2, b"gatelab: interrupted; nothing was written\n")
        os._exit(130)
    try:
        from gatelab.cli.application import app

        app(prog_name="gatelab")
    except KeyboardInterrupt:
        interrupts.end()
    except SystemExit as ending:
        if ending.code == interrupts.CODE:
            interrupts.end()
        raise


def _open_streams() -> None:
    """Refuse a closed stdout, and open the others to nowhere: the next file would get their number."""
    closed = [number for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)) if stream is None]
    for _ in closed:
        os.open(os.devnull, os.O_RDWR)  # which takes the lowest number that is free
    if 0 in closed:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115, it stays open
    if 2 in closed:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    if 1 in closed:
        print("gatelab: standard output is closed; send it to a file, or to /dev/null", file=sys.stderr)
        sys.exit(2)
    for stream in (sys.stdout, sys.stderr):
        # A console shows a question mark for a character that it lacks.
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")


def _settle_environment() -> None:
    """Draw figures into files only; ignore lines of less than 20 characters, which would show nothing."""
    os.environ["MPLBACKEND"] = "agg"
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) < 20:
        del os.environ["COLUMNS"]
