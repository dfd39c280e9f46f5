"""The study of blocks of real models: its quick version, its record, and what its sentences say of an interval."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gatelab.models import GPT2
from gatelab.statistics import Interval
from gatelab.studies import Request
from gatelab.studies.models.blocks import (
    QUICK,
    RECORD,
    STUDY,
    advantage,
    findings,
    measure_blocks,
    need_words,
    slopes_of,
    width_of,
)

COMMITTED = Path(__file__).parents[2] / "results" / RECORD


def test_quick_study_fits_every_unit_at_equal_parameters():
    ticks = []
    outcome = STUDY.run(Request(quick=True, progress=lambda done, total: ticks.append((done, total))))
    cells = outcome.tables["cells"]
    assert len(cells) == 2 * (1 + 4 * 3) and ticks[-1] == (26, 26)
    fitted = cells[cells["unit"] != "linear"]
    for _, sizes in fitted.groupby("plain")["parameters"]:
        assert sizes.max() / sizes.min() < 1.05
    assert ((fitted["left"] > 0) & (fitted["left"] < 1.1)).all()
    assert {claim.verdict for claim in outcome.comparison} == {"new"} and len(outcome.comparison) == 2
    (finding,) = findings(outcome.tables)
    assert "at equal parameters" in finding.sentence and len(finding.sketch.strokes) == 4
    assert (outcome.tables["slopes"].dropna(subset="slope")["slope"] < 0).all()


def test_a_record_goes_on_where_it_stopped():
    plan = replace(QUICK, layers=(0,), units=("glu",), widths=(3, 6), steps=2)
    tokens = torch.randint(64, (900,), generator=torch.Generator().manual_seed(0))
    model = GPT2("tiny", "swiglu")
    whole = measure_blocks(model, tokens, plan)
    again: list[int] = []
    rest = measure_blocks(model, tokens, plan, known=whole[:2], done=lambda cells: again.append(len(cells)))
    assert again == [3] and [c["left"] for c in rest] == [c["left"] for c in whole]
    assert measure_blocks(model, tokens, plan, known=whole, done=again.append) == whole and again == [3]


def test_what_an_interval_says_of_need():
    assert need_words(Interval(1.2, 0.9, 1.6)) == "Undecided"
    assert need_words(Interval(1.2, 1.1, 1.6)).startswith("Yes")
    assert need_words(Interval(0.8, 0.7, 0.9)).startswith("No")
    assert width_of("gqu", 90) == 45


@pytest.mark.skipif(not COMMITTED.is_file(), reason="the record is not committed")
def test_the_record_is_whole_and_its_claims_follow_from_it():
    record = json.loads(COMMITTED.read_text(encoding="utf-8"))
    outcome = STUDY.run(Request())
    rows = slopes_of(record["cells"])
    for model in dict.fromkeys(cell["model"] for cell in record["cells"]):
        own = next(cell["own"] for cell in record["cells"] if cell["model"] == model)
        ratio, _ = advantage(rows, model, own)
        (claim,) = (c for c in outcome.comparison if c.what.startswith(model) and "need" in c.what)
        assert f"{ratio.value:.2f} times" in claim.ours and claim.interval == ratio.ends(".2f")
    counts = {}
    for cell in record["cells"]:
        key = (cell["model"], cell["layer"], cell["unit"])
        counts[key] = counts.get(key, 0) + 1
    assert {count for (_, _, unit), count in counts.items() if unit != "linear"} == {4}
