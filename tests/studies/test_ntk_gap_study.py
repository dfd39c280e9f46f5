"""Figure 7 and appendix D: the small version, and what the claims say of made-up records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from quick_runs import Quick
from scipy.stats import ttest_ind

from gatelab.statistics import Interval, sample, welch_difference
from gatelab.studies import Outcome, Request, study
from gatelab.studies.ntk import fig7
from gatelab.studies.ntk.gaps import digits, read_record, small_text
from gatelab.train import Gap, History, gap_recipes
from gatelab.train.recipes import evaluation_steps


def made_up(gate: float = 0.0, adamw: float = -0.1, seeds: int = 5, faster: float = 0.0) -> Gap:
    """Runs whose gap is (top - loss) / 4 times 1 + gate (gated) + adamw (AdamW), and 1 % of noise from run to run.

    The training loss of gated units is lower by `faster` everywhere.
    """
    generator = np.random.default_rng(0)
    histories = []
    for model, data, units, optimisers, top in (
        ("mixer", "cifar10", ("mlp", "glu", "gqu"), ("sgd", "adamw"), 2.3),
        ("gpt2", "fineweb-edu", ("silu", "swiglu"), ("adamw",), 10.0),
    ):
        for group in gap_recipes(units, model=model, data=data, optimisers=optimisers, seeds=seeds, steps=1000):
            for r in group:
                steps = np.array(evaluation_steps(r))
                gated = r.unit.name in ("glu", "swiglu", "gqu")
                train = 0.3 + (top - 0.3) * np.exp(-4 * steps / steps[-1]) - faster * gated
                more = gate * gated + adamw * (r.optimiser == "adamw")
                gap = (top + 0.1 - train) / 4 * (1 + more + 0.01 * generator.normal())
                rest = np.linspace(0, 1, len(steps))
                facts = (1e5, "images", seeds, 10**6, "made up")
                histories.append(History(r, steps, train, train + gap, train, rest, rest, rest, rest, *facts))
    return Gap(tuple(histories), {"device": "made up", "date": "never", "command": "none"})


def outcome(found: Gap, monkeypatch: pytest.MonkeyPatch, name: str = "ntk/fig7") -> Outcome:
    monkeypatch.setattr(fig7, "runs_for", lambda request, units: found)
    return study(name).run(Request())


def test_no_effect_of_the_gate_and_less_gap_of_adamw_is_the_papers_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    every = outcome(made_up(), monkeypatch).claims
    claims = [c for c in every if "at the last step" not in c.what]
    assert {c.verdict for c in claims} == {"reproduced"} and len(claims) == 2 * 3 + 1 == len(every) - 2 * 3
    assert "ReLU and ReGLU, Mixer on CIFAR-10, SGD" in claims[0].what
    assert claims[0].support["least possible p"] == pytest.approx(2 / 252)


def test_an_effect_of_the_gate_differs_from_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = outcome(made_up(gate=0.3, adamw=0.0), monkeypatch).claims
    matched = [c for c in claims if c.what.startswith("gap of")]
    assert {c.verdict for c in matched} == {"differs"}
    assert [c.value for c in matched] == pytest.approx([1.3] * 3, abs=0.03)
    shift = matched[0].support["difference in nats"].value
    assert claims[-1].verdict == "differs" and claims[-1].support["largest change by the gate, nats"] >= shift


def test_a_gate_that_is_faster_has_lower_losses_at_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for faster, gate, training, test in ((0.1, 0.0, "reproduced", "reproduced"), (0.1, 2.0, "reproduced", "differs")):
        claims = outcome(made_up(gate, faster=faster), monkeypatch).claims
        losses = [c for c in claims if "at the last step, Mixer on CIFAR-10, SGD" in c.what]
        assert [c.verdict for c in losses] == [training, test]
        assert losses[0].value == pytest.approx(-0.1) and losses[0].low <= -0.1 <= losses[0].high


def test_welchs_interval_is_scipys() -> None:
    generator = np.random.default_rng(3)
    a, b = generator.normal(size=5), 2 * generator.normal(size=4)
    found, scipys = welch_difference(sample(a), sample(b)), ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((scipys.low, scipys.high))
    assert np.isnan(welch_difference(sample(a[:1]), sample(b)).low)
    assert welch_difference((1.0, 0.0, 3), (2.0, 0.0, 3)) == Interval(1.0, 1.0, 1.0)


def test_too_few_runs_claim_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    every = outcome(made_up(seeds=3), monkeypatch).claims
    claims = [c for c in every if "at the last step" not in c.what]
    assert {c.verdict for c in claims} == {"new"} and claims[0].support["least possible p"] == pytest.approx(0.1)


def test_units_that_the_paper_did_not_try_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    done = outcome(made_up(), monkeypatch, "ntk/appendix-d")
    assert {c.verdict for c in done.claims if "GQU" in c.what} == {"new"}
    assert {c.verdict for c in done.claims if "ReGLU" in c.what} == {"reproduced"}
    assert len(done.figure.axes) == 3 + 1 and "40 trainings on made up" in done.notes[0]


def test_the_figure_has_a_plane_a_setting_and_the_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    done = outcome(made_up(), monkeypatch)
    assert [a.get_title() for a in done.figure.axes][:2] == ["Mixer on CIFAR-10", "GPT-2 on FineWeb-Edu"]
    runs = done.tables["runs"]
    assert (runs["seeds"] == 5).all() and (runs["diverged"] == 0).all() and len(runs) == 3 * 2 + 2
    assert len(done.tables["comparisons"]) == 3 + 2
    (finding,) = study("ntk/fig7").findings(done.tables)
    assert "for ReLU and ReGLU" in finding.sentence.replace("ReGLU and ReLU", "ReLU and ReGLU")


def test_the_record_of_the_working_folder_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    made_up(seeds=2).save(tmp_path / "results" / "ntk" / "gap.json")
    assert len(read_record().histories) == 8 * 2


def test_data_of_the_small_version_are_real_and_always_there() -> None:
    assert digits().train.images.shape == (1400, 1, 8, 8) and len(digits().test) == 397
    assert int(digits().train.images.max()) == 255 and small_text().train.max() < 256 < len(small_text().test)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ntk/fig7", "ntk/appendix-d"])
def test_a_quick_study_trains_now_and_writes(name: str, quick: Quick) -> None:
    done = quick(name)
    seen = list(done.progress)
    assert seen == [(i + 1, len(seen)) for i in range(len(seen))] and len(seen) >= 10
    assert all(path.stat().st_size > 0 for path in done.files)
    assert {c.verdict for c in done.outcome.claims} == {"new"}  # two runs can show nothing
