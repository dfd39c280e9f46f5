"""Condition numbers of whole models: the record, and the small version."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from quick_runs import Quick

from gatelab.errors import GatelabError
from gatelab.studies import Request, records
from gatelab.studies.ntk import fig3


def test_the_record_has_every_model_unit_and_start_with_three_seeds() -> None:
    outcome = fig3.STUDY.run(Request())
    table = outcome.tables["conditions"]
    counts = table.groupby(["model", "start", "unit"]).size()
    assert len(counts) == 2 * 2 * 8 and (counts >= 3).all()
    assert np.allclose(table["condition"], table["lambda_max"] / table["lambda_min"])
    # Matched widths: gated and plain models have the same number of parameters but for the biases of the factors.
    for _, part in table.groupby("model"):
        assert part["parameters"].max() / part["parameters"].min() < 1.001
    said = {c.what: c for c in outcome.claims}
    reglu = said["condition number of GPT-2 with ReLU over that with ReGLU, LeCun weights"]
    plain, gated = (table.query(f"model == 'gpt2' and start == 'lecun' and unit == '{u}'") for u in ("mlp", "glu"))
    ratio = np.exp(np.log(plain["condition"].to_numpy() / gated["condition"].to_numpy()).mean())
    assert reglu.verdict == "reproduced" and reglu.value == pytest.approx(ratio) and reglu.low < ratio < reglu.high
    worse = said["condition number of ViT with ReLU over that with ReGLU, weights of deviation 0.02"]
    assert worse.verdict == "differs" and worse.value < 1
    assert "2026" in outcome.notes[0] and "H200" in outcome.notes[0]


def test_the_small_version_computes_its_own(quick: Quick) -> None:
    outcome = quick("ntk/fig3").outcome
    table = outcome.tables["conditions"]
    assert len(table) == 2 * 8 * 2 and quick("ntk/fig3").progress[-1] == (32, 32)
    assert (table["condition"] > 1).all() and (table["lambda_min"] > 0).all()
    assert [len(axes.get_xticks()) for axes in outcome.figure.axes] == [8, 8]


def test_records_that_are_missing_or_damaged_say_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(records, "COMMITTED", ())
    with pytest.raises(GatelabError, match=r"no record results/ntk/models.json; make it with 'python"):
        fig3.STUDY.run(Request())
    place = tmp_path / "results" / "ntk"
    place.mkdir(parents=True)
    for content, said in (("{", "damaged"), (json.dumps([1]), "holds list")):
        (place / "models.json").write_text(content)
        with pytest.raises(GatelabError, match=said):
            fig3.STUDY.run(Request())
