"""Appendix D on all of CIFAR-10: its numbers recomputed from the records, its verdicts, its figure, its quick run."""

from __future__ import annotations

import json
import re
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from quick_runs import Quick
from scipy.stats import ttest_ind

from gatelab.errors import GatelabError
from gatelab.studies import Outcome, Request, study
from gatelab.studies.ntk import appendix_d_whole as whole

RESULTS = Path(__file__).resolve().parents[2] / "results" / "ntk"
PAIRS = (("mlp", "glu"), ("gelu", "geglu"), ("silu", "swiglu"))


def title(plain: str, gated: str, setting: str) -> str:
    return f"gap of {whole.unit_name(gated)} less that of {whole.unit_name(plain)} at equal loss, {setting}"


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
        a, b = {
            "gap": lambda plain=plain, gated=gated: gaps_at_equal_loss(plain, gated),
            "last": lambda plain=plain, gated=gated: [[r["test"][-1] for r in g] for g in (plain, gated)],
            "best": lambda plain=plain, gated=gated: [[min(r["test"]) for r in g] for g in (plain, gated)],
        }[row["measure"]]()
        assert (row["runs_first"], row["runs_second"]) == (len(a), len(b)) == (5, 5)
        welch = ttest_ind(b, a, equal_var=False)
        assert row["p"] == pytest.approx(welch.pvalue)
        means = (np.mean(a), np.mean(b), np.mean(b) - np.mean(a))
        assert (row["mean_first"], row["mean_second"], row["difference"]) == pytest.approx(means)
        assert row["relative"] == pytest.approx(means[2] / max(abs(means[0]), abs(means[1])))
        reach = np.array(welch.confidence_interval(0.95)) - means[2]
        if row["measure"] == "gap":  # a bootstrap over runs; Welch's interval is about as wide
            assert 0.5 < (row["high"] - row["low"]) / (reach[1] - reach[0]) < 1.5
        else:
            assert (row["low"], row["high"]) == pytest.approx(tuple(means[2] + reach))
        # Exchanged runs: of all ways to call five of ten runs gated, those whose means are as far apart.
        everyone = np.array([*a, *b])
        far = [abs(everyone[list(c)].mean() * 2 - everyone.mean() * 2) for c in combinations(range(10), 5)]
        assert row["p_exchanged"] == pytest.approx(np.mean(np.array(far) >= abs(means[2]) - 1e-12))


def test_what_is_decided_is_what_holm_rejects_and_the_interval_leaves_zero_out_of(outcome: Outcome) -> None:
    table = outcome.tables["comparisons"]
    rejected = step_down(table["p"].tolist(), 0.05)
    for i, row in enumerate(table.to_dict("records")):
        alone = not row["low"] <= 0 <= row["high"]
        word = "higher" if row["difference"] > 0 else "lower"
        if not (alone and i in rejected):
            word = "undecided after correction" if alone else "undecided"
        assert (row["decision"], row["decided"]) == (word, alone and i in rejected)


def test_there_is_a_claim_a_pair_which_says_what_is_undecided(outcome: Outcome) -> None:
    """Panels are answered by SGD alone, as the paper has it; what no panel has contradicts none."""
    table = outcome.tables["comparisons"]
    assert len(outcome.comparison) == 12
    settings, places = product(("mixer", "vit"), ("sgd", "adamw")), {("mixer", "sgd"): 9, ("vit", "sgd"): 11}
    for setting, (letter, (plain, gated)) in product(settings, zip("abc", PAIRS, strict=True)):
        words = f"{whole.MODEL_NAMES[setting[0]]} on CIFAR-10, {whole.OPTIMISER_NAMES[setting[1]]}"
        (claim,) = [c for c in outcome.comparison if c.what == title(plain, gated, words)]
        figure = places.get(setting)
        assert claim.place.startswith(f"figure {figure}, ({letter}) {words}") if figure else not claim.place
        assert claim.outside == whole.OUTSIDE[setting[1]]
        rows = table[(table["model"] == setting[0]) & (table["optimiser"] == setting[1]) & (table["second"] == gated)]
        assert set(rows["first"]) == {plain} and len(rows) == 3 * (1 + (setting[1] == "adamw"))
        gaps = rows[rows["measure"] == "gap"]
        assert [part.rpartition(", ")[2] for part in claim.ours.split("; ")] == gaps["decision"].tolist()
        losses = rows[rows["measure"] != "gap"]
        assert re.findall(r", ([a-z ]+)\)", claim.because) == losses["decision"].tolist()
        assert "all 54 comparisons" in claim.because and (claim.verdict, True) == (
            {"differs": "new"}.get(whole.gap_verdict(gaps)[0], whole.gap_verdict(gaps)[0]),
            whole.gap_verdict(gaps)[1] in claim.because,
        )


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([(True, 0.2, 0.008)], "differs"),
        ([(False, 0.2, 0.3), (True, -0.2, 0.008)], "differs"),
        ([(True, 0.04, 0.008)], "reproduced"),  # decided, and negligible
        ([(False, 0.04, 0.3)], "reproduced"),
        ([(False, 0.2, 0.3)], "undecided"),  # that nothing is seen does not show that there is nothing
        ([(False, 0.2, 0.04)], "undecided"),  # alone it would differ: the correction does not make it agree
        ([(False, 0.01, 0.3), (False, 0.2, 0.04)], "undecided"),
    ],
)
def test_a_correction_turns_no_difference_into_agreement(rows: list[tuple[bool, float, float]], verdict: str) -> None:
    gaps = pd.DataFrame(rows, columns=["decided", "relative", "p_exchanged"]).assign(least_p=2 / 252)
    reached, reason = whole.gap_verdict(gaps)
    assert reached == verdict
    assert whole.gap_verdict(gaps.assign(least_p=1 / 3))[0] == "new"
    assert ("is decided" in reason) is (verdict == "differs") and ("not decided" in reason) is (verdict == "undecided")


def test_the_finding_counts_what_is_decided(outcome: Outcome) -> None:
    table = outcome.tables["comparisons"]
    (finding,) = whole.findings(outcome.tables)
    for measure, words in (("best", "best checkpoint is {} of 18"), ("gap", "equal training loss {} of 18")):
        rows = table[(table["measure"] == measure)]
        lower, higher = ((rows["decided"] & (sign * rows["difference"] > 0)).sum() for sign in (-1, 1))
        counts = {"lower": lower, "higher": higher, "undecided": 18 - lower - higher}
        assert words.format(", ".join(f"{word} in {n}" for word, n in counts.items() if n)) in finding.sentence
    assert "Mixer on CIFAR-10 (0.82 million parameters), ViT on CIFAR-10 (1.2 million parameters)" in finding.sizes
    assert [(s.label, len(s.x)) for s in finding.sketch.strokes] == [("ReGLU", 4), ("GEGLU", 4), ("SwiGLU", 4)]
    drawn = table[(table["measure"] == "best") & (table["schedule"] == "cosine") & (table["second"] == "geglu")]
    assert finding.sketch.strokes[1].y == tuple(drawn["difference"])
    # Names of places, at 6.4 pixels a letter, have room between the axis and the names of the pairs.
    room = (280 - 12 - 38 - 6.4 * len("SwiGLU") - 14) / (len(finding.sketch.places) + 0.5)
    assert all(6.4 * len(line) < room for name in finding.sketch.places for line in name.split("\n"))


def test_the_figure_is_hollow_where_nothing_is_decided_and_its_words_do_not_touch(outcome: Outcome) -> None:
    figure, table = outcome.figure, outcome.tables["comparisons"]
    for axes, measure in zip(figure.axes, whole.MEASURES, strict=True):
        rows = table[table["measure"] == measure]
        faces = [line.get_markerfacecolor() for line in axes.get_lines() if line.get_marker() not in ("None", "none")]
        assert len(faces) == len(rows) == 18
        assert faces.count("white") == (~rows["decided"]).sum()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = [t for axes in figure.axes for t in (axes.title, axes.xaxis.label)]
    for axes in figure.axes:
        low, high = axes.get_xlim()
        texts += [t for t in axes.get_xticklabels() if low <= t.get_position()[0] <= high]
    texts += [*figure.axes[0].get_yticklabels(), *figure.legends[0].get_texts(), *figure.texts]
    boxes = [t.get_window_extent(renderer) for t in texts if t.get_text() and t.get_visible()]
    assert len(boxes) > 20 and not [1 for a, b in combinations(boxes, 2) if a.overlaps(b)]
    assert all(figure.bbox.x0 <= b.x0 and b.x1 <= figure.bbox.x1 and b.y1 <= figure.bbox.y1 for b in boxes)


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_without_a_record_it_says_how_to_make_one(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(whole.RECORDS, schedule, ("none.json", whole.RECORDS[schedule][1]))
    with pytest.raises(GatelabError, match=r"no record results/none.json.*gpu_training.py .* --whole.*--quick"):
        whole.run(Request())


def test_the_study_does_not_write_over_the_records_that_it_reads() -> None:
    """`reproduce(name, "results")` writes name.json: that must not be a record."""
    assert f"{whole.STUDY.name}.json" not in {name for name, _ in whole.RECORDS.values()}


@pytest.mark.slow
def test_the_quick_study_trains_now_and_writes(quick: Quick) -> None:
    done = quick("ntk/appendix-d-whole")
    assert done.progress == tuple((i + 1, 12) for i in range(12))
    assert all(path.stat().st_size > 0 for path in done.files)
    assert len(done.outcome.comparison) == 2 * 2
    (finding,) = whole.findings(done.outcome.tables)
    assert "undecided in 6 of 6 comparisons" in finding.sentence and "digits" in finding.sentence
    assert all(c.because and "nan" not in c.because and not c.place for c in done.outcome.comparison)
    assert {c.verdict for c in done.outcome.comparison} == {"new"}  # two runs can show nothing
    assert set(done.outcome.tables["comparisons"]["schedule"]) == {"cosine", "constant"}
