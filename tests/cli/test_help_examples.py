"""Every example of every help text is executed: as it stands, made short by further options, or at least parsed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from gatelab.cli import app

ROOT = Path(__file__).parents[2]
GROUP: Any = typer.main.get_command(app)
# What makes an example short; later options win. Its own options are parsed and checked all the same.
SHORT = {
    "fit": "--width 3 --seeds 1",
    "scale": "--dry-run",
    "ntk": "--width 32",
    "ntk --gaussian": "",
    "ntk --data points.csv --target price --model": "",
    "dynamics mlp": "--width 32 --rows 40",
    "linearize gelu --method optimal": "--features 17",
    "linearize gelu --method learned": "--features 4 --option steps=2",
    "results prune --older-than": "--dry-run",
}
# Minutes, or a model that is not there: parsed, and no more.
PARSED = (
    "demo",
    "train",
    "gap mlp",
    "gap silu",
    "ladder --quick",
    "ladder gelu",
    "ladder --text enwik8",
    "plan",
    "shrink",
    "profile",
    "compare",
)
PARSED += ("reproduce scaling", "reproduce all")


def examples(command: Any = GROUP) -> Iterator[str]:
    """All lines of all epilogs that begin with the name of the program."""
    for part in re.split(r"\n\n|Examples?: |\. Words: ", command.epilog or ""):
        if part.startswith("gatelab "):
            yield part.strip()
    for sub in getattr(command, "commands", {}).values():
        yield from examples(sub)


EXAMPLES = sorted(set(examples()))


def run(line: str) -> Any:
    return CliRunner().invoke(app, shlex.split(line)[1:], env={"COLUMNS": "80", "NO_COLOR": "1"}, prog_name="gatelab")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that examples name, small ones."""
    folder = tmp_path_factory.mktemp("examples")
    rooms, age = np.random.default_rng(0).uniform(1, 9, (2, 200)).round(3)
    rows = "".join(f"{a},{b},{a * b + a}\n" for a, b in zip(rooms.tolist(), age.tolist(), strict=True))
    for name in ("points.csv", "houses.csv", "mine.csv"):
        (folder / name).write_text(f"rooms,age,price\n{rows}")
    np.save(folder / "z.npy", np.linspace(-3, 4, 500))
    grid = [(p, d, 1 + 40 / p**0.5 + 90 / d**0.5) for p in (100, 400, 1600, 6400) for d in (1000, 4000, 16000, 64000)]
    for name, header in (("runs.csv", "P,D,L"), ("runs2.csv", "params,tokens,loss")):
        (folder / name).write_text(header + "\n" + "".join(f"{p},{d},{loss}\n" for p, d, loss in grid))
    (folder / "results").symlink_to(ROOT / "results")
    shutil.copytree(ROOT / "results" / "linearize", folder / "gatelab-out" / "linearize")
    before = Path.cwd()
    os.chdir(folder)
    try:
        for line in (
            "gatelab fit mlp --data points.csv --target price --width 3 --save mlp.safetensors",
            "gatelab scale glu relu2 --problem x2 --widths 2,3 --seeds 2 --points 60 --jobs 1 --store runs.db",
        ):
            result = run(line)
            assert result.exit_code == 0, (line, result.output)
        for name in ("a.db", "b.db", "gatelab.db"):
            shutil.copy("runs.db", name)
    finally:
        os.chdir(before)
    return folder


def test_every_command_has_an_example() -> None:
    assert {line.split()[1] for line in EXAMPLES} >= set(GROUP.commands) and len(EXAMPLES) > 50


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_of_the_help_works(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    words = line.removeprefix("gatelab ")
    if "--encrypted" in words and find_spec("tenseal") is None:
        pytest.skip("needs TenSEAL: pip install 'gatelab[encrypted]'")
    if words.startswith(PARSED):
        command, name, rest = GROUP, "", shlex.split(words)
        while rest and rest[0] in getattr(command, "commands", {}):
            name, *rest = rest
            command = command.commands[name]
        command.make_context(name, rest)
        return
    if "3f8a" in line:
        listed = json.loads(run("gatelab results list --store runs.db --json").stdout)
        line = line.replace("3f8a", next(iter(re.findall(r'"key": "(\w+)"', json.dumps(listed)))))
    if "--p-column" in line:
        line = line.replace("runs.csv", "runs2.csv")
    options = max((short for short in SHORT if words.startswith(short)), key=len, default="")
    result = run(f"{line} {SHORT.get(options, '')}")
    assert result.exit_code == 0, result.output
    assert "times the size of the activation" not in result.stdout, "an example must not show a useless error"
