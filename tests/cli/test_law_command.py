"""`gatelab law`: what it prints and how it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import gatelab as gl
from gatelab.cli import app


def run(*args: str):
    return CliRunner().invoke(app, ["law", *args], env={"COLUMNS": "80", "NO_COLOR": "1"}, prog_name="gatelab")


def ok(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 0, result.output
    return result.stdout


def columns() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    P, D = (z.ravel() for z in np.meshgrid(np.geomspace(1e7, 1e9, 4), np.geomspace(1e9, 1e11, 3)))
    noise = np.exp(0.005 * np.random.default_rng(0).standard_normal(12))
    return P, D, gl.Law(1.69, 406.4, 0.34, 410.7, 0.28).predict(P, D) * noise


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"run {i}, {p!r}, {d!r}, {y!r}\n" for i, (p, d, y) in enumerate(np.stack(columns(), 1).tolist()))
    (tmp_path / "runs.csv").write_text(f"\ufeffname,P,D,L\n\n{rows}")
    (tmp_path / "named.csv").write_text(f"name,params,tokens,loss\n{rows}")
    return tmp_path


def test_help_has_an_example() -> None:
    text = ok("--help")
    assert "Examples: gatelab law" in text
    assert max(map(len, text.splitlines())) <= 80


def test_it_prints_the_law_with_intervals_and_draws_it(here: Path) -> None:
    text = ok("runs.csv", "--bootstrap", "30", "--plot", "law.png")
    law = gl.fit_law(*columns(), bootstrap=30)
    assert f"{law}, from 12 runs in runs.csv" in text
    assert f"[{law.intervals.a[0]:.4g}, {law.intervals.a[1]:.4g}]" in text
    assert "95% interval" in text and "wrote law.png" in text
    assert (here / "law.png").exists()


def test_json_agrees_with_the_library() -> None:
    said = json.loads(ok("runs.csv", "--json", "--bootstrap", "20", "--seed", "3"))
    law = gl.fit_law(*columns(), bootstrap=20, seed=3)
    assert {row["constant"]: row["value"] for row in said["constants"]} == {
        name: getattr(law, name) for name in "EAaBb"
    }
    assert said["points"] == 12 and said["rmse_of_log"] == law.rmse and said["notes"] == []


def test_columns_by_name_and_null_for_no_interval() -> None:
    names = ("--p-column", "params", "--d-column", "tokens", "--l-column", "loss")
    said = json.loads(ok("named.csv", *names, "--json", "--bootstrap", "0"))
    assert said["constants"][0]["low"] is None
    assert said["law"] == str(gl.fit_law(*columns(), bootstrap=0))
    assert "-" in ok("named.csv", *names, "--bootstrap", "0")


def test_it_says_what_the_table_cannot_tell(here: Path) -> None:
    (here / "one.csv").write_text("P,D,L\n" + "".join(f"{10**k},5,{1 + 9 / 2**k}\n" for k in range(7)))
    assert "D is the same in every row" in ok("one.csv", "--bootstrap", "5")


@pytest.mark.parametrize(
    ("text", "args", "says"),
    [
        ("P,D,L\n1,2,3\n", [], "1 different (P, D)"),
        ("P,D,L\n", [], "0 different (P, D)"),
        ("", [], "empty"),
        ("P,D,loss\n1,2,3\n", [], "no column is called 'L'"),
        ("P,D,L\n1,2,3\n1,2,x\n", [], "line 3: 'x' is not a number"),
        ("P,D,L\n1,2\n", [], "line 2: an empty cell is not a number"),
        (b"\xff\xfe\x80", [], "not a text file"),
        (None, [], "there is no file t.csv"),
        ("P,D,L\n1,2,3\n", ["--plot", "a.doc"], ".png, .svg or .pdf"),
        ("P,D,L\n1,2,nan\n", [], "L holds 1 NaN and 0 infinite values, the first in row 0"),
    ],
)
def test_errors_are_one_line(here: Path, text: str | bytes | None, args: list[str], says: str) -> None:
    if text is not None:
        (here / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    result = run("t.csv", *args, "--json")
    assert result.exit_code == 2 and result.stdout == ""
    assert re.fullmatch(r"gatelab: .+\n", result.stderr) and says in result.stderr
