"""The app: its commands in the order in which a newcomer needs them."""

from __future__ import annotations

from typing import Annotated

import typer

from gatelab._version import __version__
from gatelab.cli import (
    compare,
    dynamics,
    gap,
    law,
    linearize,
    lists,
    measure,
    ntk,
    paper,
    predict,
    report,
    results,
    scale,
    train,
)
from gatelab.cli.shell import Shell

app = typer.Typer(
    name="gatelab",
    cls=Shell,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # what is no GatelabError is a defect of ours, and keeps its plain traceback
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=paper.DEMO)(paper.demo)
app.command(epilog=lists.UNITS)(lists.units)
app.command(epilog=lists.PROBLEMS)(lists.problems)
app.command(epilog=lists.GLOSSARY)(lists.glossary)
app.command(epilog=measure.FIT)(measure.fit)
app.command(epilog=predict.PREDICT)(predict.predict)
app.command(epilog=scale.SCALE)(scale.scale)
app.command(epilog=law.LAW)(law.law)
app.command(epilog=ntk.NTK)(ntk.ntk)
app.command(epilog=dynamics.DYNAMICS)(dynamics.dynamics)
app.command(epilog=train.TRAIN)(train.train)
app.command(epilog=gap.GAP)(gap.gap)
app.command(epilog=linearize.LINEARIZE)(linearize.linearize)
app.command(epilog=compare.COMPARE)(compare.compare)
app.command(epilog=paper.REPRODUCE)(paper.reproduce)
app.command(epilog=report.REPORT)(report.report)
app.add_typer(results.app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gatelab {__version__}")
        raise typer.Exit


@app.callback(epilog="Example: gatelab demo. Words: gatelab glossary")
def gatelab(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="The version.")] = False,
) -> None:
    """The laboratory for feed-forward units: how their error falls, how they train, how far they can be linearised."""
