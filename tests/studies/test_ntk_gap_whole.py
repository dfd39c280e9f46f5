"""Appendix D on all of CIFAR-10: its numbers recomputed from the records, its verdicts, its figure, its quick run."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick_runs import Quick
from scipy.stats import ttest_ind

from gatelab.errors import GatelabError
from gatelab.studies import Outcome, Request, study
from gatelab.studies.ntk import fig7 as whole

RESULTS = Path(__file__).resolve().parents[2] / "results" / "ntk"


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return study("ntk/appendix-d-whole").run(Request())


def recorded_runs() -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """The runs of both records as they were written, by schedule, model, optimiser and unit."""
    runs: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for name in ("gap-whole", "gap-whole-constant"):
        for run in json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["runs"]:
            r = run["recipe"]
            runs.setdefault((r["schedule"], r["model"], r["optimiser"], r["unit"]["name"]), []).append(run)
    return runs


def lowest_so_far(run: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Training losses lower than ever before since the warm-up, ascending, and the gaps there."""
    losses: list[float] = []
    gaps: list[float] = []
    for step, train, test in zip(run["steps"], run["train"], run["test"], strict=True):
        if step >= run["recipe"]["warmup"] and train < min(losses, default=np.inf):
            losses.append(train)
            gaps.append(test - train)
    return losses[::-1], gaps[::-1]


def gaps_at_equal_loss(plain: list[dict[str, Any]], gated: list[dict[str, Any]]) -> list[list[float]]:
    curves = [[lowest_so_far(run) for run in group] for group in (plain, gated)]
    low = max(losses[0] for group in curves for losses, _ in group)
    high = min(losses[-1] for group in curves for losses, _ in group)
    levels = np.linspace(low, high, 200)
    return [[float(np.interp(levels, *curve).mean()) for curve in group] for group in curves]


def step_down(p: list[float], alpha: float) -> set[int]:
    """Which hypotheses Holm rejects, as he wrote it: from the least p on, until one is too large."""
    rejected: set[int] = set()
    for i in sorted(range(len(p)), key=lambda i: p[i]):
        if p[i] > alpha / (len(p) - len(rejected)):
            break
        rejected.add(i)
    return rejected


def test_every_number_of_the_study_is_in_the_records(outcome: Outcome) -> None:
    runs, table = recorded_runs(), outcome.tables["comparisons"]
    assert len(table) == 3 * (2 * 2 * 3 + 2 * 3) == 54
    for row in table.to_dict("records"):
        plain, gated = (runs[row["schedule"], row["model"], row["optimiser"], row[u]] for u in ("first", "second"))
        of_run = {"last": lambda run: run["test"][-1], "best": lambda run: min(run["test"])}
        if row["measure"] == "gap":
            a, b = gaps_at_equal_loss(plain, gated)
        else:
            a, b = ([of_run[row["measure"]](run) for run in group] for group in (plain, gated))
        assert (row["runs_first"], row["runs_second"]) == (len(a), len(b)) == (5, 5)
        welch = ttest_ind(b, a, equal_var=False)
        assert row["p"] == pytest.approx(welch.pvalue)
        means = (np.mean(a), np.mean(b), np.mean(b) - np.mean(a))
        assert (row["mean_first"], row["mean_second"], row["difference"]) == pytest.approx(means)
        assert row["relative"] == pytest.approx(means[2] / max(abs(means[0]), abs(means[1])))
        reach = np.array(welch.confidence_interval(0.95)) - means[2]
        if row["measure"] == "gap":  # a bootstrap over runs; Welch's interval is about as wide
            assert 0.5 < (row["difference_high"] - row["difference_low"]) / (reach[1] - reach[0]) < 1.5
        else:
            assert (row["difference_low"], row["difference_high"]) == pytest.approx(tuple(means[2] + reach))
        # Exchanged runs: of all ways to call five of ten runs gated, those whose means are as far apart.
        everyone = np.array([*a, *b])
        far = [abs(everyone[list(c)].mean() * 2 - everyone.mean() * 2) for c in combinations(range(10), 5)]
        assert row["p_exchanged"] == pytest.approx(np.mean(np.array(far) >= abs(means[2]) - 1e-12))


def test_what_is_decided_is_what_holm_rejects_and_the_interval_leaves_zero_out_of(outcome: Outcome) -> None:
    table = outcome.tables["comparisons"]
    rejected = step_down(table["p"].tolist(), 0.05)
    for i, row in enumerate(table.to_dict("records")):
        alone = not row["difference_low"] <= 0 <= row["difference_high"]
        word = "higher" if row["difference"] > 0 else "lower"
        if not (alone and i in rejected):
            word = "undecided after correction" if alone else "undecided"
        assert (row["decision"], row["decided"]) == (word, alone and i in rejected)


def test_there_is_a_claim_per_pair_and_panels_are_answered_by_sgd_alone(outcome: Outcome) -> None:
    """The paper has SGD; all of it is measured outside of the paper's conditions."""
    table = outcome.tables["comparisons"].query("schedule == 'cosine' and measure == 'gap'")
    figures = {("mixer", "sgd"): "figure 9, (", ("vit", "sgd"): "figure 11, ("}
    assert len(outcome.claims) == 12 + 2
    for claim, row in zip(outcome.claims, table.to_dict("records"), strict=False):
        place = figures.get((row["model"], row["optimiser"]), "")
        assert claim.place.startswith(place) and bool(claim.place) is bool(place)
        assert claim.verdict == "outside" and claim.outside == whole.OUTSIDE[row["optimiser"]]
        assert claim.value == row["difference"] and claim.support["corrected p, gap, cosine"] == row["p_holm"]


def test_counts_are_those_of_the_table(outcome: Outcome) -> None:
    table = outcome.tables["comparisons"]
    lowers, widens = outcome.claims[-2:]
    for claim, measure, sign in ((lowers, "best", -1), (widens, "gap", 1)):
        rows = table[table["measure"] == measure]
        assert (claim.value, claim.support["of"]) == ((rows["decided"] & (sign * rows["difference"] > 0)).sum(), 18)
        assert (rows["decided"] & (sign * rows["difference"] < 0)).sum() == 0
    (finding,) = whole.WHOLE.findings(outcome.tables)
    assert f"lower in {lowers.value}" in finding.sentence and f"higher in {widens.value}" in finding.sentence
    assert "0.82 million parameters" in finding.sizes and "1.2 million parameters" in finding.sizes


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_without_a_record_it_says_how_to_make_one(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(whole.RECORDS, schedule, ("none.json", whole.RECORDS[schedule][1]))
    with pytest.raises(GatelabError, match=r"no record results/none.json.*gpu_training.py .* --whole.*--quick"):
        whole.WHOLE.run(Request())


@pytest.mark.slow
def test_the_quick_study_trains_now_and_writes(quick: Quick) -> None:
    done = quick("ntk/appendix-d-whole")
    assert done.progress == tuple((i + 1, 12) for i in range(12))
    assert all(path.stat().st_size > 0 for path in done.files)
    assert len(done.outcome.claims) == 2 * 2 + 2 and not any(c.place for c in done.outcome.claims)
    (finding,) = whole.WHOLE.findings(done.outcome.tables)
    assert "inconclusive in 6 of 6 comparisons" in finding.sentence and "digits" in finding.sentence
    assert set(done.outcome.tables["comparisons"]["schedule"]) == {"cosine", "constant"}
