"""Commands in this process, as the tests of the command line call them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from gatelab.cli import app

SRC = Path(__file__).parents[2] / "src"


def run(*args: str, columns: int = 80) -> Any:
    return CliRunner().invoke(app, list(args), env={"COLUMNS": str(columns), "NO_COLOR": "1"}, prog_name="gatelab")


def ok(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def document(*args: str) -> Any:
    """The JSON document of a command."""
    return json.loads(ok(*args, "--json"))


def command(*args: str) -> list[str]:
    """The same as a process."""
    return [sys.executable, "-m", "gatelab", *args]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SRC), "COLUMNS": "80"}
