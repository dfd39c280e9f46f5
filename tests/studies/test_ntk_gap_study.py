"""Figure 7 and appendix D: the small version, and what the claims say of made-up records."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_ind

from gatelab.statistics import Interval, sample, welch_difference
from gatelab.studies import Claim, Outcome, Request, study
from gatelab.studies.ntk import fig7
from gatelab.train import Gap, History, gap_recipes, matched_gap
from gatelab.train.recipes import evaluation_steps

RESULTS = Path(__file__).resolve().parents[2] / "results" / "ntk"


def made_up(gate: float = 0.0, adamw: float = -0.1, seeds: int = 5, faster: float = 0.0) -> Gap:
    """Gaps of (top - loss) / 4 times 1 + gate + adamw, 1 % of noise; losses of gated units are lower by `faster`."""
    generator = np.random.default_rng(0)
    histories = []
    for model, data, units, optimizers, top in (
        ("mixer", "cifar10", ("mlp", "glu", "gqu"), ("sgd", "adamw"), 2.3),
        ("gpt2", "fineweb-edu", ("silu", "swiglu"), ("adamw",), 10.0),
    ):
        for group in gap_recipes(units, model=model, data=data, optimizers=optimizers, seeds=seeds, steps=1000):
            for r in group:
                steps = np.array(evaluation_steps(r))
                gated = r.unit.name in ("glu", "swiglu", "gqu")
                train = 0.3 + (top - 0.3) * np.exp(-4 * steps / steps[-1]) - faster * gated
                more = gate * gated + adamw * (r.optimizer == "adamw")
                gap = (top + 0.1 - train) / 4 * (1 + more + 0.01 * generator.normal())
                rest = np.linspace(0, 1, len(steps))
                facts = (1e5, "images", seeds, 10**6, "made up")
                histories.append(History(r, steps, train, train + gap, train, rest, rest, rest, rest, *facts))
    return Gap(tuple(histories), {"device": "made up", "date": "never", "command": "none"})


def claims_of(found: Gap, monkeypatch: pytest.MonkeyPatch) -> list[Claim]:
    """The claims of figure 7, without drawing it."""
    monkeypatch.setattr(fig7.Gap, "load", lambda path: found)
    return list(fig7.claims(fig7.tables(Request())))


def outcome(found: Gap, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    monkeypatch.setattr(fig7.Gap, "load", lambda path: found)
    return study("ntk/fig7").run(Request())


def test_equal_gaps_and_a_smaller_one_of_adamw_are_the_papers_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    every = claims_of(made_up(), monkeypatch)
    claims = [c for c in every if "at the last step" not in c.what]
    assert {c.verdict for c in claims} == {"reproduced"} and len(claims) == 2 * 3 + 1 == len(every) - 2 * 3
    assert claims[0].support["least possible p"] == pytest.approx(2 / 252)


def test_an_effect_of_the_gate_differs_from_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = claims_of(made_up(gate=0.3, adamw=0.0), monkeypatch)
    matched = [c for c in claims if c.what.startswith("gap of")]
    assert {c.verdict for c in matched} == {"differs"}
    assert [c.value for c in matched] == pytest.approx([1.3] * 3, abs=0.03)
    shift = matched[0].support["difference in nats"].value
    assert claims[-1].verdict == "differs" and claims[-1].support["largest change by the gate, nats"] >= shift


def test_a_gate_that_is_faster_has_lower_losses_at_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for faster, gate, training, test in ((0.1, 0.0, "reproduced", "reproduced"), (0.1, 2.0, "reproduced", "differs")):
        claims = claims_of(made_up(gate, faster=faster), monkeypatch)
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


def test_the_figure_has_a_plane_a_setting_and_the_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    done = outcome(made_up(), monkeypatch)
    titles = ["Mixer on CIFAR-10", "GPT-2 on FineWeb-Edu", "gate", "optimizer"]
    assert [a.get_title() for a in done.figure.axes] == titles
    runs, comparisons = done.tables["runs"], done.tables["comparisons"]
    assert (runs["seeds"] == 5).all() and (runs["diverged"] == 0).all() and len(runs) == 3 * 2 + 2
    assert len(comparisons) == 3 + 2 and (comparisons["ratio_low"] <= comparisons["ratio_high"]).all()
    (finding,) = study("ntk/fig7").findings(done.tables)
    assert "for ReGLU and ReLU" in finding.sentence


def test_the_record_of_the_working_folder_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    made_up(seeds=3).save(tmp_path / "results" / "ntk" / "gap.json")
    assert (fig7.tables(Request())["runs"]["seeds"] == 3).all()


# ---- the whole of CIFAR-10


@pytest.fixture(scope="module")
def whole(recorded: Callable[[str], Outcome]) -> Outcome:
    return recorded("ntk/appendix-d-whole")


def recorded_runs() -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """The runs of both records as they were written, by schedule, model, optimizer and unit."""
    runs: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for name in ("gap-whole", "gap-whole-constant"):
        for run in json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["runs"]:
            r = run["recipe"]
            runs.setdefault((r["schedule"], r["model"], r["optimiser"], r["unit"]["name"]), []).append(run)
    return runs


def test_every_number_of_the_study_is_in_the_records(whole: Outcome) -> None:
    runs, table = recorded_runs(), whole.tables["comparisons"]
    gaps = {schedule: Gap.load(RESULTS.parent / record) for schedule, (record, _) in fig7.RECORDS.items()}
    assert len(table) == 3 * (2 * 2 * 3 + 2 * 3) == 54 and (table[["runs_first", "runs_second"]] == 5).all(axis=None)
    of_run = {"last": lambda run: run["test"][-1], "best": lambda run: min(run["test"])}
    for row in table.to_dict("records"):
        schedule, model, data, optimizer = (row[name] for name in ("schedule", "model", "data", "optimizer"))
        if row["measure"] == "gap":
            pair = (gaps[schedule].runs(model, data, row[u], optimizer) for u in ("first", "second"))
            matched = matched_gap(*pair)
            a, b = matched.first, matched.second
        else:
            pair = (runs[schedule, model, optimizer, row[u]] for u in ("first", "second"))
            a, b = ([of_run[row["measure"]](run) for run in group] for group in pair)
        welch = ttest_ind(b, a, equal_var=False)
        means = (np.mean(a), np.mean(b), np.mean(b) - np.mean(a))
        assert (row["mean_first"], row["mean_second"], row["difference"]) == pytest.approx(means)
        assert row["relative"] == pytest.approx(means[2] / max(abs(means[0]), abs(means[1])))
        ends, welchs = (row["difference_low"], row["difference_high"]), welch.confidence_interval(0.95)
        if row["measure"] == "gap":  # a bootstrap over runs; Welch's interval is about as wide
            assert 0.5 < (ends[1] - ends[0]) / (welchs.high - welchs.low) < 1.5
        else:
            assert (row["p"], *ends) == pytest.approx((welch.pvalue, *welchs))


def test_there_is_a_claim_per_pair_and_panels_are_answered_by_sgd_alone(whole: Outcome) -> None:
    """The paper has SGD; all of it is measured outside of the paper's conditions."""
    table = whole.tables["comparisons"].query("schedule == 'cosine' and measure == 'gap'")
    figures = {("mixer", "sgd"): "figure 9, (", ("vit", "sgd"): "figure 11, ("}
    assert len(whole.claims) == 12 + 2
    for claim, row in zip(whole.claims, table.to_dict("records"), strict=False):
        place = figures.get((row["model"], row["optimizer"]), "")
        assert claim.place.startswith(place) and bool(claim.place) is bool(place)
        assert claim.verdict == "outside" and claim.outside == fig7.OUTSIDE[row["optimizer"]]
        assert claim.value == row["difference"] and claim.support["corrected p, gap, cosine"] == row["p_holm"]


def test_counts_are_those_of_the_table(whole: Outcome) -> None:
    table = whole.tables["comparisons"]
    lowers, widens = whole.claims[-2:]
    for claim, measure, sign in ((lowers, "best", -1), (widens, "gap", 1)):
        rows = table[table["measure"] == measure]
        assert (claim.value, claim.support["of"]) == ((rows["decided"] & (sign * rows["difference"] > 0)).sum(), 18)
        assert (rows["decided"] & (sign * rows["difference"] < 0)).sum() == 0
    (finding,) = fig7.WHOLE.findings(whole.tables)
    assert f"lower in {lowers.value}" in finding.sentence and f"higher in {widens.value}" in finding.sentence
    assert "0.82 million parameters" in finding.sizes and "1.2 million parameters" in finding.sizes
