"""The study of encrypted inference: its quick run, its parts, and what its record says."""

from __future__ import annotations

from collections.abc import Mapping
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

RECORD = Path(__file__).parents[2] / "results" / "linearize"
TABLES = ("values", "plans", "layers")


@pytest.fixture(scope="module")
def record() -> dict[str, pd.DataFrame]:
    return {name: pd.read_csv(RECORD / f"encrypted-{name}.csv") for name in TABLES}


def check(tables: Mapping[str, pd.DataFrame]) -> None:
    """Errors are within their proofs, and no other way reaches the quality with fewer levels."""
    values = tables["values"]
    assert (values["excess"] <= 0).all() and (values["security"] == 128).all()
    for _, rows in tables["plans"].groupby("model"):
        ours = study.cheapest(rows, "our plan")
        assert ours is not None
        for way in study.RIVALS:
            other = study.cheapest(rows, way)
            assert other is None or other["levels"] >= ours["levels"]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None or find_spec("tenseal") is None, reason="needs both packages")
def test_the_quick_study(quick: Quick) -> None:
    run = quick("linearize/encrypted")
    tables = run.outcome.tables
    assert tuple(tables) == TABLES and run.progress[-1] == (2, 2)
    check(tables)
    plans = tables["plans"].groupby("model")["levels"].first()
    assert (tables["layers"].groupby("model")["levels"].sum() == plans).all()
    mixed = tables["plans"][tables["plans"]["way"] == "mixed minimax"].set_index("model")["levels"]
    assert (tables["layers"].groupby("model")["levels of mixed minimax"].sum() == mixed).all()


def test_stretched_pieces_are_near_silu() -> None:
    z = np.linspace(-12, 12, 2001)
    silu = activation("silu")(torch.from_numpy(z)).numpy()
    for name in study.PUBLISHED:
        assert np.abs(study.pieces_for(find_published(name), "silu")(z) - silu).max() < 0.06
        assert study.pieces_for(find_published(name), "gelu") is find_published(name)


def rows_of(*rows: tuple[str, int, float, float]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["way", "levels", "quality", "quality low"])
    losses = dict.fromkeys(("loss", "loss_low", "loss_high"), 1 - table["quality"])
    return table.assign(**{"most of a layer": 9}, **losses)


def test_a_claim_has_the_cheapest_row_that_is_certain() -> None:
    rows = rows_of(("our plan", 10, 0.9995, 0.9985), ("our plan", 12, 0.9996, 0.9994), ("our plan", 14, 1.0, 1.0))
    others = rows_of(*((way, 20, 0.5, 0.4) for way in study.RIVALS))
    claim = study.plan_claim("one", pd.concat([rows, others]))
    assert claim.value == 12 and claim.support["1 - quality"].value == pytest.approx(0.0004)
    assert claim.support["least 1 - quality of bolt, which does not reach it"] == 0.5
    assert study.plan_claim("one", others).value is None


def test_the_record_is_within_its_proofs_and_our_plan_has_the_fewest_levels(record: dict[str, pd.DataFrame]) -> None:
    check(record)
    assert set(record["values"]["function"]) == {"gelu", "silu", "tanh"} and (record["values"]["inputs"] == 1000).all()
    for _, rows in record["plans"].groupby("model"):
        # Minimax with levels by layer lies between uniform minimax and the plan, and the layer with the most levels has
        # the same number in all three.
        plan, mixed, uniform = (study.cheapest(rows, way) for way in ("our plan", "mixed minimax", "uniform minimax"))
        assert plan is not None and mixed is not None and uniform is not None
        assert plan["levels"] < mixed["levels"] <= uniform["levels"]
        assert plan["most of a layer"] == mixed["most of a layer"] == uniform["most of a layer"]


def test_the_record_makes_claims_and_the_finding(record: dict[str, pd.DataFrame]) -> None:
    claims = {claim.what: claim for claim in study.STUDY.report(record).claims}
    assert len(claims) == 3 and {claim.verdict for claim in claims.values()} == {"new"}
    assert claims["levels of all activations of all-MiniLM-L6-v2 that keep a quality of 0.999"].value == 28
    (finding,) = study.STUDY.findings(record)
    assert "28 levels" in finding.sentence and "nexus 54" in finding.sentence
