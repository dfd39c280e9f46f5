"""`gatelab report`: everything that was reproduced, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gatelab.cli import show
from gatelab.cli.lists import Json
from gatelab.cli.paper import FOLDER
from gatelab.cli.write import check_folder

REPORT = """Examples: gatelab report

gatelab report --out gatelab-out --json"""


def report(
    out: Annotated[Path, typer.Option(help="The folder that gatelab reproduce wrote to.")] = FOLDER,
    as_json: Json = False,
) -> None:
    """Make one page of everything that was reproduced."""
    check_folder(out)
    from gatelab.report import build

    made = build(out)
    if as_json:
        show.document({"page": made, "bytes": made.stat().st_size})
        return
    show.say(str(made), wrap=False)
