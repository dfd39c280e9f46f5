"""`gatelab ntk`: what it prints, and that its numbers are the library's."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import command_runs
import numpy as np
import pytest

import gatelab as gl
from gatelab.ntk import analytic, estimate, spectrum

run, ok, said = (partial(call, "ntk") for call in (command_runs.run, command_runs.ok, command_runs.document))


def table() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((40, 4))


@pytest.fixture(autouse=True)
def tables(here: Path) -> None:
    lines = "".join(",".join(map(repr, row)) + "\n" for row in table().tolist())
    (here / "points.csv").write_text(f"a,b,c,price\n{lines}")
    np.save(here / "points.npy", table())


def test_condition_numbers_are_those_of_the_library() -> None:
    found = said("--data", "points.csv", "--target", "price", "--unit", "glu", "--width", "64")
    (kernel,) = found["kernels"]
    values = np.linalg.eigvalsh(analytic("glu", table()[:, :3], 64).numpy())
    assert kernel["status"] == "resolved"
    assert kernel["lambda_max"] == pytest.approx(values[-1], rel=1e-6)
    assert kernel["lambda_min"] == pytest.approx(values[0], rel=1e-5)
    low, high = kernel["condition_bounds"]
    assert low <= kernel["condition"] <= high and (high - low) / low < 1e-3
    assert (found["n"], found["d"], found["width"]) == (40, 3, 64)


def test_the_estimates_stand_beside() -> None:
    found = said("--gaussian", "60,20", "--unit", "mlp,glu", "--unit", "geglu", "--width", "100")
    assert [k["kernel"] for k in found["kernels"]] == ["mlp", "glu", "geglu"]
    expected = estimate("glu", 60, 20, 100)
    glu = found["kernels"][1]
    assert expected.paper is not None
    assert glu["gaussian_ours"]["condition"] == pytest.approx(expected.ours.condition)
    assert glu["gaussian_paper"]["condition"] == pytest.approx(expected.paper.condition)
    assert found["kernels"][2]["gaussian_ours"] is None  # gelu is not homogeneous


def test_rows_are_drawn_by_the_seed_and_kept_in_order(here: Path) -> None:
    draw = ("--data", "points.npy", "--no-target", "--rows", "12", "--unit", "glu", "--out", "k.npy")
    first = said(*draw, "--seed", "3")
    saved = np.load(here / "k.npy")
    assert said(*draw, "--seed", "3") == first and first["data"] == "points.npy, 12 of 40 rows"
    assert said(*draw, "--seed", "4")["kernels"] != first["kernels"]
    kept = np.sort(np.random.default_rng(3).choice(40, 12, replace=False))
    np.testing.assert_allclose(saved, analytic("glu", table()[kept]).numpy(), rtol=1e-12)


def test_standardised_rows_have_unit_spread(here: Path) -> None:
    x = 5 + 3 * table()
    np.save(here / "far.npy", x)
    one = said("--data", "far.npy", "--no-target", "--unit", "mlp", "--standardize")["kernels"]
    np.save(here / "near.npy", (x - x.mean(0)) / x.std(0))
    two = said("--data", "near.npy", "--no-target", "--unit", "mlp")["kernels"]
    assert one[0]["condition"] == pytest.approx(two[0]["condition"], rel=1e-6)
    raw = said("--data", "far.npy", "--no-target", "--unit", "mlp", "--raw")["kernels"]
    assert raw[0]["condition"] > 2 * one[0]["condition"]


@pytest.mark.slow
def test_the_full_spectrum_is_printed_and_drawn(here: Path) -> None:
    found = said("--gaussian", "30,10", "--full", "--plot", "s.png")
    values = found["kernels"][0]["eigenvalues"]
    assert len(values) == 30 and values[-1] == pytest.approx(found["kernels"][0]["lambda_max"])
    assert (here / "s.png").stat().st_size > 0 and found["files"] == ["s.png"]
    assert "three quarters" in ok("--gaussian", "30,10", "--unit", "mlp", "--full")


def test_of_duplicates_lambda_min_is_not_made_up(here: Path) -> None:
    x = np.r_[table(), table()[:3]]
    np.save(here / "twice.npy", x)
    text = " ".join(ok("--data", "twice.npy", "--no-target").split())
    assert "rows that are equal or proportional to others" in text and ">=" in text and "0?" in text
    found = said("--data", "twice.npy", "--no-target")
    assert all(k["status"] == "unresolved" and k["condition"] is None for k in found["kernels"])


def test_a_problem_by_name() -> None:
    found = said("friedman1", "--rows", "50", "--unit", "glu")
    x = gl.problem("friedman1").train.x
    kept = np.sort(np.random.default_rng(0).choice(len(x), 50, replace=False))
    assert found["kernels"][0]["condition"] == pytest.approx(spectrum(analytic("glu", x[kept])).condition)


def test_kernels_that_do_not_fit_are_refused_with_a_number_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatelab.memory.free_memory", lambda device="cpu": 2 * 8 * 30 * 30)
    result = run("--gaussian", "30,10")
    assert result.exit_code == 2 and "--rows 28" in result.stderr and "are free" in result.stderr
