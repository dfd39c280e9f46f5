"""The study of blocks of real models: its quick version, its record, and comparisons of made-up shares."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from gatelab.models import GPT2
from gatelab.studies import Request
from gatelab.studies.models.blocks import QUICK, STUDY, comparison, measure_blocks, width_of


def test_quick_study_fits_every_unit_at_equal_parameters():
    ticks = []
    outcome = STUDY.run(Request(quick=True, progress=lambda done, total: ticks.append((done, total))))
    cells = outcome.tables["cells"]
    assert len(cells) == 2 * (1 + 4 * 3) and ticks[-1] == (26, 26)
    fitted = cells[cells["unit"] != "linear"]
    for _, sizes in fitted.groupby("plain")["parameters"]:
        assert sizes.max() / sizes.min() < 1.05
    assert ((fitted["left"] > 0) & (fitted["left"] < 1.1)).all()
    assert [claim.verdict for claim in outcome.claims] == ["new"] * 3
    (finding,) = STUDY.findings(outcome.tables)
    assert "at equal parameters" in finding.sentence
    assert len(outcome.tables["widest"]) == 2 * 5


def test_a_record_goes_on_where_it_stopped():
    plan = replace(QUICK, layers=(0,), units=("glu",), widths=(3, 6), steps=2)
    tokens = torch.randint(64, (900,), generator=torch.Generator().manual_seed(0))
    model = GPT2("tiny", "swiglu")
    whole = measure_blocks(model, tokens, plan)
    again: list[int] = []
    rest = measure_blocks(model, tokens, plan, known=whole[:2], done=lambda cells: again.append(len(cells)))
    assert again == [3] and [c["left"] for c in rest] == [c["left"] for c in whole]
    assert measure_blocks(model, tokens, plan, known=whole, done=again.append) == whole and again == [3]


def test_the_best_of_the_others_is_compared_with_the_own_unit():
    left = {"glu": 0.2, "mlp": 0.3, "relu2": 0.4, "swiglu": 0.25, "linear": 0.1}
    rows = [{"model": "m", "own": "glu", "layer": i, "unit": u, "left": x} for i in (1, 2) for u, x in left.items()]
    every, plain = comparison(pd.DataFrame(rows))
    assert (every["rival"], plain["rival"], plain["rivals"]) == ("swiglu", "mlp", "units without a factor")
    assert [every["ratio"], plain["ratio"]] == pytest.approx([1.25, 1.5])
    assert width_of("gqu", 90) == 45


def test_the_record_is_whole_and_its_claims_follow_from_it():
    outcome = STUDY.run(Request())
    counts = outcome.tables["cells"].query("unit != 'linear'").groupby(["model", "layer", "unit"]).size()
    assert (counts == 4).all()
    claims = {claim.what: claim for claim in outcome.claims}
    need = claims["SmolLM2-135M-Instruct: does a block of SwiGLU need SwiGLU?"]
    plain = claims["SmolLM2-135M-Instruct: its blocks by units without a factor"]
    assert not need.interval.excludes(1) and plain.low > 1
