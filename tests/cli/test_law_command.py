"""`gatelab law`: what it prints."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import command_runs
import numpy as np
import pytest

import gatelab as gl

ok, document = partial(command_runs.ok, "law"), partial(command_runs.document, "law")


def columns() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    P, D = (z.ravel() for z in np.meshgrid(np.geomspace(1e7, 1e9, 4), np.geomspace(1e9, 1e11, 3)))
    noise = np.exp(0.005 * np.random.default_rng(0).standard_normal(12))
    return P, D, gl.Law(1.69, 406.4, 0.34, 410.7, 0.28).predict(P, D) * noise


@pytest.fixture(autouse=True)
def tables(here: Path) -> None:
    rows = "".join(f"run {i}, {p!r}, {d!r}, {y!r}\n" for i, (p, d, y) in enumerate(np.stack(columns(), 1).tolist()))
    (here / "runs.csv").write_text(f"\ufeffname,P,D,L\n\n{rows}")
    (here / "named.csv").write_text(f"name,params,tokens,loss\n{rows}")


def test_it_prints_the_law_with_intervals_and_draws_it(here: Path) -> None:
    text = ok("runs.csv", "--bootstrap", "8", "--plot", "law.png")
    law = gl.fit_law(*columns(), bootstrap=8)
    assert f"{law}, from 12 runs in runs.csv" in text
    assert f"a {law.a:.4g} {law.intervals.a[0]:.4g} {law.intervals.a[1]:.4g} B" in " ".join(text.split())
    assert "low, high: 95% interval" in text and "wrote law.png" in text
    assert (here / "law.png").exists()


def test_json_agrees_with_the_library() -> None:
    said = document("runs.csv", "--bootstrap", "8", "--seed", "3")
    law = gl.fit_law(*columns(), bootstrap=8, seed=3)
    assert {row["constant"]: row["value"] for row in said["constants"]} == {n: getattr(law, n) for n in "EAaBb"}
    assert said["points"] == 12 and said["rmse_of_log"] == law.rmse and said["notes"] == []


def test_columns_by_name_and_null_for_no_interval() -> None:
    names = ("--p-column", "params", "--d-column", "tokens", "--l-column", "loss")
    said = document("named.csv", *names, "--bootstrap", "0")
    assert said["constants"][0]["low"] is None
    assert said["law"] == str(gl.fit_law(*columns(), bootstrap=0))
    assert "-" in ok("named.csv", *names, "--bootstrap", "0")


def test_it_says_what_the_table_cannot_tell(here: Path) -> None:
    (here / "one.csv").write_text("P,D,L\n" + "".join(f"{10**k},5,{1 + 9 / 2**k}\n" for k in range(7)))
    assert "D is the same in every row" in ok("one.csv", "--bootstrap", "5")
