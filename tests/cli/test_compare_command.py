"""`gatelab compare`: two files, one smooth and one noisy, and what it refuses."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gatelab.cli import app
from gatelab.cli.compare import COMPARE

QUICK = ["--seeds", "2", "--budget", "30", "--features", "16", "--d-model", "16"]
UNITS = ["--unit", "glu", "--unit", "gqu,relu2"]


def run(*args: str):
    return CliRunner().invoke(app, ["compare", *args], env={"COLUMNS": "80", "NO_COLOR": "1"}, prog_name="gatelab")


def table(noise: float) -> np.ndarray:
    """x, y and z, z = sin(3x) y + x y^2 without noise, |x| and noise else: what is left to learn is a kink."""
    rng = np.random.default_rng(0)
    x, y, more = rng.uniform(-1, 1, 200), rng.uniform(-1, 1, 200), rng.standard_normal(200)
    z = np.maximum(x, 0) + noise * more if noise else np.sin(3 * x) * y + x * y**2
    return np.stack([x, y, z], axis=1)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, noise in (("smooth", 0.0), ("noisy", 0.5)):
        write(tmp_path / f"{name}.csv", table(noise))
    return tmp_path


def write(path: Path, rows: np.ndarray) -> None:
    path.write_text("x,y,z\n" + "".join(",".join(map(repr, row)) + "\n" for row in rows.tolist()))


@pytest.mark.slow
def test_a_smooth_and_a_noisy_file_get_different_and_defensible_recommendations(here: Path):
    """On the smooth file errors fall with parameters, and the unit of the highest order that is as good as any is to be
    had at the full budget. On the noisy one nothing falls, and the smallest network that is as good will do."""
    smooth = run("--data", "smooth.csv", *UNITS, *QUICK, "--json", "--out", "card.html")
    assert smooth.exit_code == 0, smooth.output
    card = json.loads(smooth.stdout)
    told, scores = card["recommendation"], {s["unit"]: s for s in card["scores"]}
    assert told["regime"] == "units" and card["floor"] is None
    chosen = scores[told["unit"]]
    assert chosen["behind_low"] <= 1 and told["width"] == chosen["width"]
    assert chosen["rmse"] < 0.2 * np.std(table(0.0)[:, 2]) and chosen["slope"] < -0.8
    page = (here / "card.html").read_text()
    assert card["files"] == ["card.html"] and page.startswith("<!doctype html>")
    again = "--unit glu --unit gqu --unit relu2 --data smooth.csv --budget 30 --seeds 2 --features 16 --d-model 16"
    assert f"gatelab compare {again} --out card.html" in page

    noisy = run("--data", "noisy.csv", "--target", "z", "--inputs", "x,y", *UNITS, *QUICK, "--out", "card.png")
    assert noisy.exit_code == 0, noisy.output
    text = " ".join(noisy.stdout.split())
    unit, width, parameters = re.search(r"Take (\w+) of width (\d+), (\d+) parameters", text).groups()  # pyright: ignore
    assert int(parameters) < told["parameters"] / 2
    assert (unit, int(width)) != (told["unit"], told["width"])
    assert "more parameters do not help" in text or "a smaller network" in text
    assert "the cheapest" in text and "on fresh rows expect a somewhat larger error" in text
    assert (here / "card.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_problem_by_name_is_compared_too():
    done = run(
        "sin(2*x)*y", "--points", "60", "--unit", "mlp,glu", "--widths", "1,2", "--seeds", "1", *QUICK[4:], "--json"
    )
    assert done.exit_code == 0, done.output
    card = json.loads(done.stdout)
    assert [s["unit"] for s in card["scores"]] == ["mlp", "glu"] and card["train_rows"] == 60
    assert len(card["methods"]) == 6 and {p["width"] for p in card["scaling"]["points"]} >= {1, 2}


@pytest.mark.slow
def test_what_is_left_out_and_every_line_is_printed():
    done = run("--data", "smooth.csv", "--unit", "mlp,glu", "--widths", "1,4", "--seeds", "1", *QUICK[4:])
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "Left out:" in text and "glu of width 4 is left out of the comparison: it has 29 parameters" in text
    assert "beside error parameters FLOPs steps condition throughput" in text
    assert max(map(len, done.stdout.splitlines())) <= 80


def bad(name: str) -> tuple[str, np.ndarray]:
    rows = table(0.1)
    if name == "nan":
        rows[3, 1] = np.nan
    if name == "constant":
        rows[:, 2] = 1.0
    return f"{name}.csv", rows[: {"one": 1, "few": 12}.get(name, 200)]


@pytest.mark.parametrize(
    ("name", "said"),
    [("one", "1 row"), ("few", "12 rows"), ("nan", "nan"), ("constant", "1")],
    ids=["one", "few", "nan", "constant"],
)
def test_rows_that_cannot_be_compared_end_with_2_and_one_line(here: Path, name: str, said: str):
    file, rows = bad(name)
    write(here / file, rows)
    done = run("--data", file, *UNITS)
    assert done.exit_code == 2 and not done.stdout
    assert done.stderr.startswith("gatelab: ") and done.stderr.count("\n") == 1
    assert said in done.stderr.lower() and file in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--unit", "gllu,glu"], "did you mean 'glu'"),
        (["--unit", "glu"], "two or more"),
        (["--out", "card.doc"], "ends in .html, .png, .svg or .pdf"),
        (["--widths", "4:2"], "write 2:4"),
        (["--target", "nothing"], "nothing"),
        (["friedman1"], "leave one of them out"),
        (["--budget", "3"], "one neuron of mlp has 5 parameters"),
        (["--loss", "2"], "loss is 2"),
    ],
    ids=["unknown", "one", "suffix", "widths", "column", "both", "budget", "loss"],
)
def test_wrong_options_end_with_2(args: list[str], said: str):
    done = run("--data", "smooth.csv", *args)
    assert done.exit_code == 2 and not done.stdout and said in " ".join(done.stderr.split())


def test_examples_of_the_help_are_read():
    """Each is parsed with files that are there: no option of it is unknown."""
    for line in COMPARE.removeprefix("Examples: ").split("\n\n"):
        words = shlex.split(line)
        assert words[:2] == ["gatelab", "compare"]
        done = run(*words[2:], "--seeds", "0")
        assert done.exit_code == 2 and "--seeds" in done.stderr, done.output


def test_ctrl_c_leaves_nothing_half_written(here: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("gatelab.scorecard.comparison"), "fit_units", interrupted)
    done = run("--data", "smooth.csv", "--out", "card.html")
    assert done.exit_code == 130 and "nothing was written" in done.stderr
    assert not (here / "card.html").exists()
