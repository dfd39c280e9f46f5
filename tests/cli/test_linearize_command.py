"""`gatelab linearize`: what it prints and writes."""

from __future__ import annotations

import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import command_runs
import numpy as np
import pytest

import gatelab as gl
from gatelab.linearization import calibrate, linearize

run, ok, document = (partial(call, "linearize") for call in (command_runs.run, command_runs.ok, command_runs.document))


@pytest.fixture(autouse=True)
def numbers(here: Path) -> None:
    z = np.random.default_rng(0).normal(0, 1.2, (50, 20))
    np.save(here / "z.npy", z)
    np.savetxt(here / "z.csv", z, delimiter=",")


def test_it_prints_the_polynomial_its_bound_and_the_published(here: Path) -> None:
    text = ok("gelu", "--degree", "10", "--interval", "-5,5", "--compare", "--plot", "p.png", "--out", "p.json")
    assert "largest error   0.01015" in text and "proved at most  0.01017" in text and "4 levels, 5 products" in text
    assert re.search(r"bolt +4 +3 +0.00936", text) and "wrote p.png" in text and (here / "p.png").exists()
    assert gl.load(here / "p.json") == linearize("gelu", "minimax", degree=10, interval=5.0).polynomial


def test_json_agrees_with_the_library(here: Path) -> None:
    said = document("silu", "--method", "minimax", "--data", "z.csv", "--margin", "0.2", "--d", "2")
    z = np.load(here / "z.npy")
    p = linearize("silu", "minimax", interval=calibrate(z, 0.2)).polynomial
    assert p is not None
    assert np.allclose(said["polynomial"]["powers"], p.coefficients)
    assert said["polynomial"]["error"]["bound"] >= said["polynomial"]["error"]["measured"]
    assert said["data"]["numbers"] == 1000 and said["data"]["maximum"] <= said["polynomial"]["error"]["bound"]
    assert said["m"] == said["error"]["m"] == linearize("silu", "minimax", interval=calibrate(z, 0.2), d=2).m


@pytest.mark.parametrize("method", ["hermite", "fit", "chebyshev", "taylor"])
def test_every_polynomial_takes_data(method: str) -> None:
    said = document("gelu", "--method", method, "--degree", "6", "--data", "z.npy", "--compare")
    assert said["data"]["rmse"] > 0 and len(said["published"]) == 5 and said["published"][0]["rmse_on_data"] > 0


def test_maps_that_are_no_polynomials() -> None:
    text = ok("gelu", "--method", "optimal", "--d", "2", "--m", "16").replace("\n", " ")
    assert "m = 16" in text and "0.01054" in text
    assert "m = 20" in ok("swiglu", "--method", "tangent", "--d", "4")


def test_options_of_a_method_are_numbers_of_its_own() -> None:
    words = ("gelu", "--method", "maclaurin", "--d", "2", "--m", "9")
    assert "d = 2, m = 9" in ok(*words, "--option", "degree=4", "--option", "radius=0.5")
    assert ok(*words, "--option", "radius=1") == ok(*words)
    assert ok(*words, "--option", "radius=2") != ok(*words)


@pytest.mark.skipif(find_spec("tenseal") is None, reason="needs TenSEAL: pip install 'gatelab[encrypted]'")
def test_encrypted_values_are_reported_in_parts() -> None:
    text = ok("silu", "--interval", "4", "--degree", "6", "--encrypted")
    assert "(proved)" in text and "3 levels" in text and "128 bits of" in text
    secret = document("silu", "--interval", "4", "--degree", "6", "--encrypted")["encrypted"]
    assert secret["numbers"] == 1000 and secret["levels"] == 3 and secret["encryption"] < 1e-8
    words = "gelu --interval 9 --degree 100 --method chebyshev --encrypted --data z.npy"
    result = run(*words.split())
    assert result.exit_code == 2 and "leave one of them out" in result.stderr
