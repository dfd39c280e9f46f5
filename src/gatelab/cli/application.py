"""The application: its commands in panels, and how a command ends.

It ends with one line on stderr and an exit code: 2 for an error that the user can fix, 130 Ctrl-C, 141 a closed pipe.
Commands print at their end, so that stdout stays empty if they fail.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gatelab._version import __version__
from gatelab.cli import interrupts, results
from gatelab.cli.options import Application, option
from gatelab.errors import GatelabError, unknown_name
from gatelab.memory import free_memory, ran_out, size_text

WRONG, PIPE = 2, 141
# Of click, which some versions of typer contain.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class Shell(TyperGroup):
    """The group of all commands, and the one place where their errors end."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        interrupts.begin()
        try:
            return super().make_context(*args, **options)
        except KeyboardInterrupt as error:
            raise _interrupted() from error
        except _UsageError as error:
            raise _misused(error) from error

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except GatelabError as error:
            raise _end(str(error), WRONG) from error
        except _UsageError as error:
            raise _misused(error) from error
        except KeyboardInterrupt as error:
            # The traceback keeps the generator of a sweep alive: this ends it.
            cause: BaseException | None = error
            while cause is not None:
                traceback.clear_frames(cause.__traceback__)
                cause = cause.__cause__ or cause.__context__
            raise _interrupted() from error
        except (MemoryError, RuntimeError) as error:
            if not ran_out(error):
                raise
            raise _end(f"memory ran out, {size_text(free_memory())} are free; give smaller sizes", WRONG) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                _drop_stdout()
                raise typer.Exit(PIPE) from error
            reason = ": ".join(map(str, filter(None, (error.filename, error.strerror or error))))
            remedy = "give another path"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                _drop_stdout()
                remedy = "free some space or give another path"
            raise _end(f"{reason}; {remedy}", WRONG) from error


def _interrupted() -> typer.Exit:
    interrupts.say(lambda line: typer.echo(line, nl=False, err=True))
    return typer.Exit(interrupts.CODE)


def _misused(error: Any) -> typer.Exit:
    """A wrong option or word, in one line with its value."""
    message = error.format_message()
    if not message:  # a group without a command has shown its help
        return typer.Exit(WRONG)
    causes = getattr(error.__cause__, "errors", list)()
    value = "".join(f" (it is {cause['input']!r})" for cause in causes[:1])
    command = getattr(error.ctx, "command_path", "gatelab")
    return _end(f"{message.rstrip('.')}{value}; see '{command} --help' for help", WRONG)


def _end(message: str, code: int) -> typer.Exit:
    typer.echo(f"gatelab: {' '.join(message.split())}", err=True)
    return typer.Exit(code)


def _drop_stdout() -> None:
    """Discard the buffer of stdout, which Python would fail to flush at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = Application(
    name="gatelab",
    cls=Shell,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # any other error is a defect of gatelab and keeps its plain traceback
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Panels of the help. A command is NAME_command in the module of its name, or in the one after the =; NAME its examples.
PANELS = {
    "Fit and scale": "demo=reproduce fit predict regress=predict compare scale law=scale units=lists problems=lists",
    "Conditioning and training": "ntk dynamics train gap=train ladder",
    "Linearize and encrypt": "linearize plan=linearize",
    "Models": "profile shrink",
    "Papers": "reproduce report=reproduce glossary=lists",
}
for panel, commands in PANELS.items():
    for name, _, place in (command.partition("=") for command in commands.split()):
        module = import_module(f"gatelab.cli.{place or name}")
        register = app.command(name, epilog=getattr(module, name.upper()), rich_help_panel=panel)
        register(getattr(module, f"{name}_command"))
app.add_typer(results.app, rich_help_panel="Stores")


@app.command("help", epilog="Example: gatelab help fit", hidden=True)
def help_command(
    context: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]", help="A command.")] = None,
) -> None:
    """Show the help of gatelab or of a command."""
    shown = context.parent
    assert shown is not None
    command: Any = shown.command
    for word in words or ():
        known = getattr(command, "commands", {})
        if word not in known:
            raise unknown_name("command", word, known)
        command = known[word]
        shown = type(context)(command, info_name=word, parent=shown)
    typer.echo(command.get_help(shown))


def show_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        typer.echo(f"gatelab {__version__}")
        raise typer.Exit


@app.callback(epilog="Examples: gatelab demo\n\ngatelab help fit\n\ngatelab glossary")
def gatelab(
    version: Annotated[
        bool, option("Show the version.", "--version", "-v", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """A laboratory for feed-forward units: scaling of their error, training, linearization."""
