"""`gatelab dynamics`: what it prints."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import command_runs
import numpy as np
import pytest

from gatelab.dynamics import crossing, expected_loss, stable_step
from gatelab.ntk import analytic

ok, document = partial(command_runs.ok, "dynamics"), partial(command_runs.document, "dynamics")


@pytest.fixture(autouse=True)
def table(here: Path) -> None:
    x = np.random.default_rng(0).standard_normal((30, 4))
    np.savetxt("t.csv", np.column_stack([x, x[:, 0] * x[:, 1]]), delimiter=",", header="a,b,c,d,price", comments="")


def test_it_prints_losses_and_the_crossing_and_draws_them(here: Path) -> None:
    text = ok("--gaussian", "30,10", "--width", "200", "--steps", "20", "--plot", "c.png")
    assert "n = 30, d = 10, width 200" in text and "step 20" in text
    assert "mlp is ahead at first, glu from step" in " ".join(text.split())
    assert (here / "c.png").exists() and "wrote c.png" in text


def test_json_agrees_with_the_library() -> None:
    said = document("--gaussian", "30,10", "--width", "200", "--steps", "30", "--seed", "3")
    generator = np.random.default_rng(3)
    X, y = generator.standard_normal((30, 10)), generator.standard_normal(30)
    K, N = analytic(["mlp", "glu"], X, 200), analytic(["mlp", "glu"], X, kind="nngp")
    lr = min(stable_step(k).limit for k in K) / 2
    assert said["lr"] == pytest.approx(lr)
    np.testing.assert_allclose(said["units"][1]["loss"], expected_loss(K[1], y, lr=lr, steps=30, nngp=N[1]).loss)
    found = crossing(*K, y, lr=lr, nngp=N, steps=30)
    assert said["crossings"][0]["step"] == pytest.approx(found.step) and said["crossings"][0]["measured"] is None
    assert said["crossings"][0]["late"]["holds"] is found.late.holds


def test_networks_are_trained_when_asked_for() -> None:
    args = ("--gaussian", "20,30", "--width", "64", "--steps", "8", "--measure", "--seeds", "6")
    said = document(*args)
    assert len(said["units"][0]["measured"]["mean"]) == 9 and len(said["units"][0]["measured"]["seeds"]) == 6
    assert said["crossings"][0]["measured"]["seeds"] == [6, 6]
    assert "trained" in ok(*args)


def test_files_problems_and_steps_that_diverge() -> None:
    assert "t.csv: n = 24, d = 4" in ok("--data", "t.csv", "--target", "price", "--standardize", "--steps", "5")
    assert "friedman1, 40 of" in ok("friedman1", "--rows", "40", "--steps", "5", "--unit", "geglu", "--unit", "mlp")
    text = " ".join(ok("--gaussian", "20,5", "--width", "50", "--steps", "9", "--lr", "9", "--measure").split())
    assert "the loss grows without bound" in text and "networks of 'glu' diverged" in text


def test_a_step_at_which_losses_grow_names_no_crossing() -> None:
    args = ("--gaussian", "20,10", "--width", "50", "--steps", "9", "--lr", "1e9")
    said = document(*args)
    assert said["crossings"][0]["step"] is None and said["crossings"][0]["last"] is None
    assert "both losses grow without bound" in said["crossings"][0]["reason"]
    assert said["units"][0]["stable"] is False
    text = " ".join(ok(*args).split())
    assert "do not cross" in text and "from step" not in text
