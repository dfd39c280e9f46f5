"""`gatelab compare`: two files, one smooth and one noisy."""

from __future__ import annotations

import html
import json
import re
import shlex
from functools import partial
from pathlib import Path

import command_runs
import numpy as np
import pytest

run = partial(command_runs.run, "compare")

QUICK = ["--seeds", "2", "--budget", "30", "--features", "16", "--d-model", "16"]
UNITS = ["--unit", "glu", "--unit", "gqu,relu2"]


def table(noise: float) -> np.ndarray:
    """x, y and z = sin(3x) y + x y^2, or a kink and noise."""
    rng = np.random.default_rng(0)
    x, y, more = rng.uniform(-1, 1, 200), rng.uniform(-1, 1, 200), rng.standard_normal(200)
    z = np.maximum(x, 0) + noise * more if noise else np.sin(3 * x) * y + x * y**2
    return np.stack([x, y, z], axis=1)


@pytest.fixture(autouse=True)
def tables(here: Path) -> None:
    for name, noise in (("smooth", 0.0), ("noisy", 0.5)):
        write(here / f"{name}.csv", table(noise))


def write(path: Path, rows: np.ndarray) -> None:
    path.write_text("x,y,z\n" + "".join(",".join(map(repr, row)) + "\n" for row in rows.tolist()))


@pytest.mark.slow
def test_a_smooth_and_a_noisy_file_get_different_and_defensible_recommendations(here: Path):
    """On the smooth file errors fall with parameters, and the unit with the least error at the full budget is taken. On
    the noisy one nothing falls, and the cheapest network that is as good will do."""
    smooth = run("--data", "smooth.csv", *UNITS, *QUICK, "--json", "--out", "card.html")
    assert smooth.exit_code == 0, smooth.output
    card = json.loads(smooth.stdout)
    told, scores = card["recommendation"], {s["unit"]: s for s in card["scores"]}
    chosen = scores[told["unit"]]
    assert told["regime"] == "units" and chosen["ratio"] == 1 and told["width"] == chosen["width"]
    assert chosen["rmse"] < 0.2 * np.std(table(0.0)[:, 2]) and chosen["slope"] < -0.8
    page = (here / "card.html").read_text()
    assert card["files"] == ["card.html"] and page.startswith("<!doctype html>")
    again = shlex.join(["--data", "smooth.csv", *UNITS, *QUICK])
    assert f"gatelab compare {again} --out card.html" in page
    assert card["train_rows"] == 160 and all(card["advice"].values()) and card["scaling"]["points"]

    noisy = run("--data", "noisy.csv", "--target", "z", "--inputs", "x,y", *UNITS, *QUICK, "--plot", "card.png")
    assert noisy.exit_code == 0, noisy.output
    text = " ".join(noisy.stdout.split())
    unit, width, parameters = re.search(r"^Take (\w+) at width (\d+) \((\d+) par", text).groups()  # pyright: ignore
    assert int(parameters) < told["parameters"] / 2
    assert (unit, int(width)) != (told["unit"], told["width"])
    assert "More parameters do not help" in text and "slightly larger error on new ones" in text
    assert max(map(len, noisy.stdout.splitlines())) <= 80
    assert (here / "card.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_formula_is_compared_too_and_what_is_left_out_is_printed():
    options = ["--points", "60", "--unit", "mlp,glu", "--widths", "1,4", "--seeds", "1", *QUICK[4:], "--raw"]
    done = run("sin(2*x)*y", *options, "--out", "card.html")
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "Left out" in text and "glu at width 4 is left out of the comparison: it has 29 parameters" in text
    assert "60 rows of 2 inputs were fitted" in text
    command = re.search(r"gatelab compare [^<]*", html.unescape(Path("card.html").read_text()))
    assert command and set(shlex.split(command[0])[2:]) == {"sin(2*x)*y", *options, "--out", "card.html"}
