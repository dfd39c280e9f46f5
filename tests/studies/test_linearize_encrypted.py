"""The study of encrypted inference: its quick run, its parts, and what its record says, in the page too."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from quick_runs import Quick

from gatelab.feedforward.gates import activation
from gatelab.linearization import find_published
from gatelab.studies.linearize import encrypted as study

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "results" / "linearize"
TABLES = ("values", "blocks", "plans", "layers")


@pytest.fixture(scope="module")
def record() -> dict[str, pd.DataFrame]:
    return {name: pd.read_csv(RECORD / f"encrypted-{name}.csv") for name in TABLES}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None or find_spec("tenseal") is None, reason="needs both packages")
def test_the_quick_study(quick: Quick) -> None:
    run = quick("linearize/encrypted")
    tables = run.outcome.tables
    assert tuple(tables) == TABLES and run.progress[-1][0] == run.progress[-1][1] == len(run.progress)
    assert (tables["values"]["excess"] < 0).all() and (tables["values"]["security"] == 128).all()
    blocks = tables["blocks"]
    assert (blocks["total"] <= blocks["proved"] + blocks["encryption"]).all() and (blocks["encryption"] < 1e-6).all()
    for _, rows in tables["plans"].groupby("model"):
        ours = study.cheapest(rows, "our plan")
        assert ours is not None
        for way in study.RIVALS:
            other = study.cheapest(rows, way)
            assert other is None or other["levels"] >= ours["levels"]
    plans = tables["plans"].groupby("model")["levels"].first()
    assert (tables["layers"].groupby("model")["levels"].sum() == plans).all()
    mixed = tables["plans"][tables["plans"]["way"] == "mixed minimax"].set_index("model")["levels"]
    assert (tables["layers"].groupby("model")["levels of mixed minimax"].sum() == mixed).all()


def test_stretched_pieces_are_near_silu() -> None:
    z = np.linspace(-12, 12, 2001)
    silu = activation("silu")(torch.from_numpy(z)).numpy()
    for name in study.NAMES:
        assert np.abs(study.fitting(find_published(name), "silu")(z) - silu).max() < 0.06
        assert study.fitting(find_published(name), "gelu") is find_published(name)


def rows_of(*rows: tuple[str, int, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["way", "levels", "quality", "quality low"]).assign(**{"most of a layer": 9})


def test_a_way_is_told_by_its_cheapest_row_that_is_certain() -> None:
    rows = rows_of(("a", 10, 0.9995, 0.9985), ("a", 12, 0.9996, 0.9994), ("a", 14, 1.0, 1.0), ("b", 9, 0.5, 0.4))
    assert study.told_of(rows, "a") == "a 12, at most 9 a layer (0.99960)"
    assert study.told_of(rows, "b") == "b not with up to 9 levels a layer (quality 0.5000)"


def test_the_record_is_within_what_is_proved(record: dict[str, pd.DataFrame]) -> None:
    values, blocks = record["values"], record["blocks"]
    assert set(values["function"]) == {"gelu", "silu", "tanh"} and (values["inputs"] == 1000).all()
    assert (values["excess"] <= 0).all() and (values["security"] == 128).all()
    assert (blocks["total"] <= blocks["proved"] + blocks["encryption"]).all()


def test_in_the_record_no_other_way_has_the_quality_with_as_few_levels(record: dict[str, pd.DataFrame]) -> None:
    for _, rows in record["plans"].groupby("model"):
        ours = study.cheapest(rows, "our plan")
        assert ours is not None and ours["quality low"] >= study.QUALITY
        for way in study.RIVALS:
            other = study.cheapest(rows, way)
            assert other is None or other["levels"] > ours["levels"]
        # Allocation and fitting apart: minimax with levels by layer lies between uniform minimax and the plan, and the
        # layer with the most levels has as many in all three.
        plan, mixed, uniform = (study.cheapest(rows, way) for way in ("our plan", "mixed minimax", "uniform minimax"))
        assert plan is not None and mixed is not None and uniform is not None
        assert plan["levels"] < mixed["levels"] <= uniform["levels"]
        assert plan["most of a layer"] == mixed["most of a layer"] == uniform["most of a layer"]


def test_the_page_has_the_numbers_of_the_record(record: dict[str, pd.DataFrame]) -> None:
    """The table of docs/rooms/encrypted.md: levels in all, most of a layer, and quality, or that none has it."""
    page = (ROOT / "docs" / "rooms" / "encrypted.md").read_text(encoding="utf-8")
    for model, rows in record["plans"].groupby("model"):
        for way in ("our plan", *study.RIVALS):
            cells = rf"^\| {re.escape(str(model))} \| {way} \| (\S+) \| (\d+) \| ([\d.]+) \|"
            line = re.search(cells, page, re.MULTILINE)
            assert line is not None, (model, way)
            row = study.cheapest(rows, way)
            if row is None:
                row = {**study.best(rows, way), "levels": "-"}
            assert line.groups() == (str(row["levels"]), str(row["most of a layer"]), f"{row['quality']:.5f}")
