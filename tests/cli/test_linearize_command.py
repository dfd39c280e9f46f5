"""`gatelab linearize`: what it prints, what it writes and how it refuses."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gatelab.cli import app
from gatelab.linearization import calibrate, linearize, read_polynomial


def run(*args: str):
    return CliRunner().invoke(app, ["linearize", *args], env={"COLUMNS": "80", "NO_COLOR": "1"}, prog_name="gatelab")


def ok(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    z = np.random.default_rng(0).normal(0, 1.2, (50, 20))
    np.save(tmp_path / "z.npy", z)
    np.savetxt(tmp_path / "z.csv", z, delimiter=",")
    np.save(tmp_path / "words.npy", np.array(["a", "b"]))
    return tmp_path


def test_help_has_an_example_and_fits() -> None:
    text = ok("--help")
    assert "Examples: gatelab linearize" in text and max(map(len, text.splitlines())) <= 80


def test_it_prints_the_polynomial_its_bound_and_the_published(here: Path) -> None:
    text = ok("gelu", "--degree", "10", "--interval", "-5,5", "--compare", "--plot", "p.png", "--out", "p.json")
    assert "largest error   0.01015" in text and "proved at most  0.01017" in text and "4 levels, 5 products" in text
    assert re.search(r"bolt +4 +3 +0.00936", text) and "wrote p.png" in text and (here / "p.png").exists()
    assert read_polynomial(here / "p.json") == linearize("gelu", "minimax", degree=10, interval=5.0).polynomial


def test_json_agrees_with_the_library(here: Path) -> None:
    said = json.loads(ok("silu", "--method", "minimax", "--data", "z.csv", "--margin", "0.2", "--d", "2", "--json"))
    z = np.load(here / "z.npy")
    p = linearize("silu", "minimax", interval=calibrate(z, 0.2)).polynomial
    assert p is not None
    assert np.allclose(said["polynomial"]["powers"], p.coefficients) and said["polynomial"]["margin"] == 0.2
    assert said["polynomial"]["error"]["bound"] >= said["polynomial"]["error"]["measured"]
    assert said["data"]["numbers"] == 1000 and said["data"]["maximum"] <= said["polynomial"]["error"]["bound"]
    assert said["m"] == said["error"]["m"] == linearize("silu", "minimax", interval=calibrate(z, 0.2), d=2).m


@pytest.mark.parametrize("method", ["hermite", "fit", "chebyshev", "taylor"])
def test_every_polynomial_takes_data(method: str) -> None:
    said = json.loads(ok("gelu", "--method", method, "--degree", "6", "--data", "z.npy", "--compare", "--json"))
    assert said["data"]["rmse"] > 0 and len(said["published"]) == 5 and said["published"][0]["rmse_on_data"] > 0


def test_maps_that_are_no_polynomials() -> None:
    text = ok("gelu", "--method", "optimal", "--d", "2", "--m", "16").replace("\n", " ")
    assert "m = 16" in text and "0.01054" in text
    assert "m = 20" in ok("swiglu", "--method", "tangent", "--d", "4")


def test_options_of_a_method_are_numbers_of_its_own() -> None:
    words = ("gelu", "--method", "fourier", "--d", "2", "--m", "9")
    assert "d = 2, m = 9" in ok(*words, "--option", "terms=2", "--option", "base=0.5")
    assert ok(*words, "--option", "terms=3") == ok(*words)
    assert ok(*words, "--option", "terms=1") != ok(*words)


def test_gated_units_and_scales() -> None:
    assert "silu times 1 linear by hermite of degree 4, d = 3" in ok(
        "swiglu", "--method", "hermite", "--degree", "4", "--scale", "0.5", "--d", "3", "--w-scale", "0.2"
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["gelo"], "did you mean 'gelu'"),
        (["gelu", "--method", "minmax"], "did you mean 'minimax'"),
        (["relu", "--method", "taylor"], "kink"),
        (["gelu", "--interval", "5,a"], "with a comma"),
        (["gelu", "--interval", "5,3"], "with a < b"),
        (["gelu", "--interval", "5", "--data", "z.npy"], "leave one of them out"),
        (["gelu", "--scale", "2", "--interval", "3"], "--scale is for method hermite"),
        (["gelu", "--method", "fit"], "--data FILE"),
        (["gelu", "--method", "optimal"], "needs m"),
        (["gelu", "--method", "monte-carlo"], "does not factor"),
        (["gelu", "--option", "degrees=3"], "did you mean 'degree'"),
        (["gelu", "--option", "degree=high"], "give NAME=NUMBER"),
        (["gelu", "--option", "degree=2.5"], "whole number, from 0 to 100"),
        (["gelu", "--method", "optimal", "--d", "2", "--m", "4", "--out", "p.json"], "not a polynomial"),
        (["gelu", "--method", "optimal", "--d", "2", "--m", "4", "--interval", "3"], "leave it out"),
        (["silu", "--compare"], "leave --compare out"),
        (["gelu", "--data", "none.npy"], "there is no file"),
        (["gelu", "--data", "words.npy"], "give a numeric array"),
        (["gelu", "--out", "p.txt"], "ends in .json"),
        (["gelu", "--plot", "p.doc"], ".png, .svg or .pdf"),
    ],
)
def test_errors_are_one_line(args: list[str], says: str) -> None:
    result = run(*args, "--json")
    assert result.exit_code == 2 and result.stdout == ""
    assert re.fullmatch(r"gatelab: .+\n", result.stderr) and says in result.stderr, result.stderr


@pytest.mark.skipif(find_spec("tenseal") is None, reason="needs TenSEAL: pip install 'gatelab[encrypted]'")
def test_encrypted_values_are_reported_in_parts() -> None:
    text = ok("silu", "--interval", "4", "--degree", "6", "--encrypted")
    assert "(proved)" in text and "3 levels" in text and "128 bits of" in text
    document = json.loads(ok("silu", "--interval", "4", "--degree", "6", "--encrypted", "--json"))["encrypted"]
    assert document["numbers"] == 1000 and document["levels"] == 3 and document["encryption"] < 1e-8
    result = run(
        "gelu", "--interval", "9", "--degree", "100", "--method", "chebyshev", "--encrypted", "--data", "z.npy"
    )
    assert result.exit_code == 2 and "leave one of them out" in result.stderr
