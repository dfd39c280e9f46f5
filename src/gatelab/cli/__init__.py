"""The command line: parse, call, print.

`main` handles Ctrl-C (`interrupts`) before any other import; `application` turns errors into exit codes, `options`
declares shared options, `reading` and `rows` turn texts and files into values, and `output` prints. Every other module
is named after its commands and imports the computing packages inside functions.
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

        _check_streams()
        os.environ["MPLBACKEND"] = "agg"  # figures are drawn into files only
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


def _check_streams() -> None:
    """Refuse a closed stdout: the next file would get its number, and the output."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115, it stays open
    if sys.stdout is None:
        print("gatelab: standard output is closed; send it to a file, or to /dev/null", file=sys.stderr)
        sys.exit(2)
    for stream in (sys.stdout, sys.stderr):
        # A console shows a question mark for a character that it lacks.
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")
