"""The application: its commands, in the order in which a newcomer needs them, and how a command ends.

It ends with an exit code and one line on stderr: 0 done; 2 the user can fix it (a `GatelabError`, a wrong option, a
file that cannot be written); 130 Ctrl-C; 141 the reader of our output has gone. Commands print when they are done, so
that nothing is on stdout where they are not.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gatelab._version import __version__
from gatelab.cli import (
    compare,
    dynamics,
    fit,
    interrupts,
    ladder,
    linearize,
    lists,
    ntk,
    output,
    plan,
    predict,
    profile,
    reproduce,
    results,
    scale,
    shrink,
    train,
)
from gatelab.errors import GatelabError
from gatelab.memory import free_memory, ran_out, size_text

WRONG, PIPE = 2, 141
# Of click's, which some versions of typer carry within themselves.
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
            # A sweep lives in a generator, which the traceback of the error keeps alive: this ends it.
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
            reason, remedy = str(error.strerror or error), "give another path"
            if error.filename:
                reason = f"{error.filename}: {error.strerror}"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                _drop_stdout()
                remedy = "free some space or give another path"
            elif error.errno == errno.ENOENT and not error.filename:  # as where nobody asked for a file
                reason, remedy = "the folder that this was started in is gone", "change to one that is there (cd)"
            raise _end(f"{reason}; {remedy}", WRONG) from error


def _interrupted() -> typer.Exit:
    interrupts.say(lambda line: typer.echo(line, nl=False, err=True))
    return typer.Exit(interrupts.CODE)


def _misused(error: Any) -> typer.Exit:
    """A wrong option or word, in one line with its value; a group without a command has shown its help."""
    message = error.format_message()
    if not message:
        return typer.Exit(WRONG)
    causes = getattr(error.__cause__, "errors", list)()
    value = "".join(f" (it is {cause['input']!r})" for cause in causes[:1])
    command = getattr(error.ctx, "command_path", "gatelab")
    return _end(f"{message.rstrip('.')}{value}; see '{command} --help' for help", WRONG)


def _end(message: str, code: int) -> typer.Exit:
    typer.echo(f"gatelab: {' '.join(message.split())}", err=True)
    return typer.Exit(code)


def _drop_stdout() -> None:
    """What is still in the buffer goes nowhere, else Python would complain of it at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = output.Application(
    name="gatelab",
    cls=Shell,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # what is no GatelabError is a defect of ours, and keeps its plain traceback
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo", epilog=reproduce.DEMO)(reproduce.demo_command)
app.command("units", epilog=lists.UNITS)(lists.units)
app.command("problems", epilog=lists.PROBLEMS)(lists.problems)
app.command("glossary", epilog=lists.GLOSSARY)(lists.glossary)
app.command("fit", epilog=fit.FIT)(fit.fit_command)
app.command("predict", epilog=predict.PREDICT)(predict.predict_command)
app.command("scale", epilog=scale.SCALE)(scale.scale_command)
app.command("law", epilog=scale.LAW)(scale.law_command)
app.command("ntk", epilog=ntk.NTK)(ntk.ntk_command)
app.command("dynamics", epilog=dynamics.DYNAMICS)(dynamics.dynamics_command)
app.command("train", epilog=train.TRAIN)(train.train_command)
app.command("gap", epilog=train.GAP)(train.gap_command)
app.command("ladder", epilog=ladder.LADDER)(ladder.ladder_command)
app.command("linearize", epilog=linearize.LINEARIZE)(linearize.linearize_command)
app.command("plan", epilog=plan.PLAN)(plan.plan_command)
app.command("shrink", epilog=shrink.SHRINK)(shrink.shrink_command)
app.command("profile", epilog=profile.PROFILE)(profile.profile_command)
app.command("compare", epilog=compare.COMPARE)(compare.compare_command)
app.command("reproduce", epilog=reproduce.REPRODUCE)(reproduce.reproduce_command)
app.command("report", epilog=reproduce.REPORT)(reproduce.report_command)
app.add_typer(results.app)


def show_version(wanted: bool) -> None:
    """Print the version and end, as --version asks for."""
    if wanted:
        typer.echo(f"gatelab {__version__}")
        raise typer.Exit


@app.callback(epilog="Example: gatelab demo. Words: gatelab glossary")
def gatelab(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    """The laboratory for feed-forward units: how their error falls, how they train, how far they can be linearised."""
