"""The first ladder's study: its tables are those of its record, and it does not write over the record."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from gatelab.errors import GatelabError
from gatelab.studies import Request, reproduce
from gatelab.studies.ladder import enwik8
from gatelab.train import Ladder

RECORD = Path(__file__).parents[2] / "results/ladder/enwik8.json"


def test_the_committed_tables_are_those_of_the_record() -> None:
    """Mean losses, learning rates and the pooled comparisons, which the ladder still computes."""
    ladder, tables = Ladder.read(RECORD), enwik8.tables(Request())
    expected = ladder.table().groupby(["repeats", "size", "unit"])["bits"].mean()
    measured = tables["bits"].set_index(["repeats", "size", "unit"])["bits"]
    pd.testing.assert_series_equal(measured.sort_index(), expected.sort_index())
    assert int(tables["bits"]["seeds"].sum()) == len(ladder.table())
    rates = ladder.rates()
    pd.testing.assert_series_equal(tables["rates"]["best"], rates["best"])
    pooled = tables["comparisons"].query("repeats == 1 and losses == 'as trained' and variance == 'pooled'")
    compared = ladder.comparisons()
    assert pooled["p_holm"].to_numpy() == pytest.approx(compared["p_holm"].to_numpy(), rel=1e-6)


def test_claims_have_the_interval_of_all_analyses() -> None:
    claims = {claim.what: claim for claim in enwik8.claims(enwik8.tables(Request()))}
    repeated = claims["swiglu minus relu2 over all sizes, a 20th of the text 20 times"]
    assert "sizes disagree" in repeated.note and repeated.verdict == "undecided"
    assert list(repeated.support) == ["0.4M", "1.3M", "3.2M", "11M"]
    assert claims["pairs of units that differ significantly by both rules of variance, every byte once"].value == 0


def test_the_record_is_never_written_over_by_the_outcome_of_its_study(tmp_path: Path) -> None:
    """Both are called ladder/enwik8.json: in a folder with the record the study is refused, and the record stays."""
    (tmp_path / "ladder").mkdir()
    path = tmp_path / "ladder/enwik8.json"
    path.write_bytes(RECORD.read_bytes())
    with pytest.raises(GatelabError, match="give another folder"):
        reproduce("ladder/enwik8", tmp_path, quick=True)
    assert path.read_bytes() == RECORD.read_bytes()
