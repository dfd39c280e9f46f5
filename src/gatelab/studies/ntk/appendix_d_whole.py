"""Appendix D on the whole of CIFAR-10: three pairs of units, the best checkpoint beside the last step, two schedules.

A pair of units is compared by three measures, each a number of every run: the gap at equal training loss, the test loss
at the last step, and the least test loss of all evaluations, that of the best checkpoint. That checkpoint is chosen on
the test data themselves, which makes its loss too low, for a unit as for its partner: it favours both alike.

The p-values of all comparisons of the study are corrected together (Holm). They are those of Welch's t-test, which
takes runs for normal: exchanging five runs with five has no p below 2/252, and over more than six comparisons no
correction could then find anything. A difference is decided where its corrected p is at most 0.05 and its 95 % interval
leaves zero out; all others are called undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import ttest_ind

from gatelab.arrays import Array
from gatelab.plotting import GREY, Entry, Panel, Pen, figure_legend, looks, new_figure, style
from gatelab.statistics import Interval, holm
from gatelab.studies.definition import (
    Claim,
    Finding,
    Outcome,
    Request,
    Sketch,
    Stroke,
    Study,
    Tables,
    Verdict,
    bracket,
    numbers,
    only,
)
from gatelab.studies.ntk.fig7 import difference, no_common_loss
from gatelab.studies.ntk.gaps import (
    DATA_NAMES,
    MODEL_NAMES,
    NEGLIGIBLE,
    OPTIMISER_NAMES,
    SIGNIFICANT,
    SMALL_ORIGIN,
    ends_table,
    finished_runs,
    setting_name,
    small_plans,
    train_small,
    unit_name,
)
from gatelab.studies.ntk.gaussian import PAIRS
from gatelab.studies.ntk.printed import PAIR_PANELS
from gatelab.studies.records import record_path
from gatelab.studies.verdicts import ends, unclaimed
from gatelab.train import Gap, History
from gatelab.train.comparison import exchanged_means

SCRIPT = "python benchmarks/gpu_training.py results"
# The record of each schedule and the command that makes it; SGD was not run at a constant rate.
RECORDS = {
    "cosine": ("ntk/gap-whole.json", f"{SCRIPT}/ntk/gap-whole.json --whole"),
    "constant": ("ntk/gap-whole-constant.json", f"{SCRIPT}/ntk/gap-whole-constant.json --whole --schedule constant"),
}
MEASURES = {
    "gap": "gap at equal training loss",
    "last": "test loss at the last step",
    "best": "test loss of the best checkpoint",
}
TEST_LOSSES: dict[str, Callable[[History], float]] = {"last": lambda h: h.test[-1], "best": lambda h: h.test.min()}
# Which of the paper's conditions these runs do not have, by optimiser.
OUTSIDE = {
    "sgd": "the paper has plain SGD at rates of its own, here it has momentum 0.9 and one rate that was not tuned",
    "adamw": "the paper has SGD for Mixer and ViT in appendix D, and here it is AdamW at one rate that was not tuned",
}
PLACE = ["model", "data", "optimiser", "first", "second"]
GATED = [gated for _, gated in PAIRS]
COLOURS = [shape.colour for shape in looks(GATED).values()]
MARKERS = ("s", "o", "D")  # of the pairs: all can be hollow
SHIFTS = (-0.25, 0.0, 0.25)  # of the pairs of one setting, beside each other


def run(request: Request) -> Outcome:
    """All comparisons from the two records, or from small models that are trained now."""
    gaps = runs_by_schedule(request)
    rows = [row for schedule, gap in gaps.items() for row in compared(schedule, gap)]
    table = corrected(pd.DataFrame(rows).sort_values("model", kind="stable", ignore_index=True))
    claims = tuple(pair_claim(part, len(table)) for _, part in table.groupby(PLACE, sort=False))
    ends_of_runs = [ends_table(gap).assign(schedule=schedule) for schedule, gap in gaps.items()]
    tables = {"comparisons": table, "runs": pd.concat(ends_of_runs, ignore_index=True)}
    return Outcome(draw(table), tables, claims, notes(gaps, table))


def runs_by_schedule(request: Request) -> dict[str, Gap]:
    """The two records; when quick, small ViTs with the first and the last pair under both schedules."""
    if not request.quick:
        return {schedule: Gap.load(record_path(*record)) for schedule, record in RECORDS.items()}
    units = {"vit": (*PAIRS[0], *PAIRS[-1])}
    histories = train_small(request, [*small_plans(units), *small_plans(units, ("adamw",), "constant")])
    return {s: Gap(tuple(h for h in histories if h.recipe.schedule == s), SMALL_ORIGIN) for s in RECORDS}


def compared(schedule: str, gap: Gap) -> Iterator[dict[str, Any]]:
    """A row for every model, optimiser, pair and measure; none of the gap where runs have no loss in common.

    `relative` is to the larger mean of the two: a gap of all images is near zero, and a share of nothing says nothing.
    """
    places = [(*s, o, *pair) for s in gap.settings() for o in gap.optimisers(*s) for pair in PAIRS]
    for model, data, optimiser, plain, gated in sorted(places, key=lambda place: list(OPTIMISER_NAMES).index(place[2])):
        comparison = gap.compare_units(model, data, optimiser, plain, gated)
        if comparison is None:
            continue
        values: dict[str, tuple[Interval, Array, Array]] = {}
        if (m := comparison.matched) is not None:
            values["gap"] = m.interval, m.first, m.second
        first_runs, second_runs = (finished_runs(gap, model, data, unit, optimiser) for unit in (plain, gated))
        for measure, loss in TEST_LOSSES.items():
            first, second = (np.array([loss(h) for h in runs]) for runs in (first_runs, second_runs))
            values[measure] = difference(first, second), first, second
        for measure, (interval, first, second) in values.items():
            p, least = exchanged_means(first, second)
            yield {
                "schedule": schedule,
                **dict(zip(PLACE, (model, data, optimiser, plain, gated), strict=True)),
                "measure": measure,
                "runs_first": len(first),
                "runs_second": len(second),
                "mean_first": first.mean(),
                "mean_second": second.mean(),
                "difference": interval.value,
                "low": interval.low,
                "high": interval.high,
                "relative": interval.value / max(abs(first.mean()), abs(second.mean())),
                "p_exchanged": p,
                "least_p": least,
                "p": welch_p(second, first),
            }


def welch_p(first: Array, second: Array) -> float:
    """The p of Welch's test."""
    test: Any = ttest_ind(first, second, equal_var=False)
    return float(test.pvalue)


def corrected(table: pd.DataFrame) -> pd.DataFrame:
    """The table with Holm's p over all its rows, and what is decided by it and by the interval, in a word."""
    p_holm, alone = holm(table["p"]), (table["low"] > 0) | (table["high"] < 0)
    decided = alone & (p_holm <= SIGNIFICANT)
    words = np.where(table["difference"] > 0, "higher", "lower")
    words = np.select([decided, alone], [words, "undecided after correction"], "undecided")
    return table.assign(p_holm=p_holm, decided=decided, decision=words)


# ---- what it says


def pair_claim(rows: pd.DataFrame, comparisons: int) -> Claim:
    """One pair under one model and optimiser: the gap at equal loss, and beside it the test losses."""
    model, data, optimiser, *units = (str(name) for name in rows[PLACE].iloc[0])
    setting, (plain, gated) = setting_name(model, data, optimiser), map(unit_name, units)
    what = f"gap of {gated} less that of {plain} at equal loss, {setting}"
    paper, place = "no significant shift (its p is lost)", ", ".join(PAIR_PANELS.get((setting, plain, gated), ()))
    gaps = rows.loc[rows["measure"] == "gap"]
    if gaps.empty:
        return no_common_loss(what, paper, place)
    records = gaps.to_dict("records")
    ours = "; ".join(f"{r['schedule']}: {r['difference']:+.3f} nats, {r['decision']}" for r in records)
    parts = [
        f"With the {schedule} schedule {', '.join(measure_words(of_schedule))}."
        for schedule, of_schedule in rows.groupby("schedule", sort=False)
    ]
    verdict, reason = gap_verdict(gaps)
    because = f"{' '.join(parts)} p are corrected over all {comparisons} comparisons. {reason}"
    intervals = ", ".join(filter(None, (ends(r["low"], r["high"], "+.3f") for r in records)))
    verdict = unclaimed(verdict)
    return Claim(what, paper, ours, verdict, because, intervals, place, outside=OUTSIDE[optimiser])


def measure_words(rows: pd.DataFrame) -> Iterator[str]:
    """The p of the gap, and both test losses with their intervals."""
    for r in rows.to_dict("records"):
        if r["measure"] == "gap":
            yield f"the mean gaps are {r['mean_first']:.3f} and {r['mean_second']:.3f} (p = {r['p_holm']:.3g})"
        else:
            ending = f"{bracket(r['low'], r['high'], '+.3f')} nats (p = {r['p_holm']:.3g}, {r['decision']})"
            yield f"the {MEASURES[r['measure']]} changes by {r['difference']:+.3f}{ending}"


def gap_verdict(gaps: pd.DataFrame) -> tuple[Verdict, str]:
    """What the gaps at equal loss say of the paper's statement that they hardly differ, and why.

    It differs where a difference is decided under some schedule and is no less than `NEGLIGIBLE` of the larger gap. It
    is reproduced where, under every schedule, the difference is smaller than that. Between the two it is undecided:
    that no difference is seen does not show that there is none.
    """
    small, decided = np.abs(gaps["relative"].to_numpy(float)) < NEGLIGIBLE, gaps["decided"].to_numpy(bool)
    least = float(gaps["least_p"].to_numpy(float).max())
    if least > SIGNIFICANT:
        return "new", f"So few runs have no p below {least:.2g} when exchanged: nothing is claimed."
    if (decided & ~small).any():
        return "differs", f"A difference of {NEGLIGIBLE:.0%} of the larger gap or more is decided."
    if small.all():
        return "reproduced", f"The difference is below {NEGLIGIBLE:.0%} of the larger gap."
    return "undecided", (
        f"A difference of {NEGLIGIBLE:.0%} of the larger gap or more is seen and not decided among so many comparisons."
    )


def notes(gaps: Mapping[str, Gap], table: pd.DataFrame) -> tuple[str, ...]:
    """How the runs were made, and how they are to be read."""
    lines = []
    lengths = {f"{h.recipe.steps} steps of {h.recipe.batch} images": 0 for gap in gaps.values() for h in gap.histories}
    for schedule, gap in gaps.items():
        origin = f"{gap.origin['device']}, {gap.origin['date'][:10]}, by '{gap.origin.get('command', 'a quick run')}'"
        lines.append(f"{schedule}: {len(gap.histories)} trainings on {origin}; {len(gap.diverged())} diverged.")
    return (
        *lines,
        f"{seeds(table)} of each unit; units of a pair have as many parameters, and the learning rate of their model "
        f"and optimiser, one each, which was not tuned; {' or '.join(lengths)}. Units of a pair share no seed; the two "
        "schedules have the same ones.",
        "With a cosine the unit that comes to a loss sooner comes there at a higher learning rate; at a constant rate "
        "it does not. SGD was not run at a constant rate.",
        "The best checkpoint is that of the least test loss: chosen on the test data, which favours both units alike.",
        "Intervals are 95 %, each for itself: of the gap a bootstrap over runs, of test losses Welch's. p are Welch's, "
        f"corrected by Holm over all {len(table)} comparisons; what they or the interval leave open is undecided. "
        f"Exchanged runs have no p below {table['least_p'].min():.2g}; theirs is p_exchanged in the table.",
        "The captions of figures 8 to 11 are lost: that each is of one model and data set, and its panels of the three "
        "pairs, is our reading. Not measured: Tiny ImageNet, SGD without momentum, tuned rates.",
    )


def seeds(table: pd.DataFrame) -> str:
    """How many runs each unit has."""
    return f"{' to '.join(map(str, sorted({*table['runs_first'], *table['runs_second']})))} seeds"


def data_name(table: pd.DataFrame) -> str:
    """The data of the comparisons."""
    name = str(table["data"].iloc[0])
    return DATA_NAMES.get(name, name)


# ---- figure


def draw(table: pd.DataFrame) -> Figure:
    """A panel a measure, in it a line a model, optimiser and schedule, on it the three pairs with their intervals."""
    names = [
        f"{MODEL_NAMES[r['model']]}, {OPTIMISER_NAMES[r['optimiser']]}\n{r['schedule']}"
        for r in table.to_dict("records")
    ]
    settings = list(dict.fromkeys(names))
    with style():
        figure = new_figure(10.2, 1.6 + 0.62 * len(settings))
        grid = figure.subplots(1, len(MEASURES), sharey=True, squeeze=False)[0]
        panels = {measure: Panel(axes) for measure, axes in zip(MEASURES, grid, strict=True)}
        for letter, (measure, panel) in zip("abc", panels.items(), strict=True):
            for place in range(0, len(settings), 2):
                panel.span("y", place - 0.5, place + 0.5, "#f4f4f4", order=0)
            panel.rule("x", 0.0, Pen(GREY, width=0.8), order=1)
            panel.set(title=f"({letter}) {MEASURES[measure]}", xlabel="with a gate less without (nats)")
        for name, r in zip(names, table.to_dict("records"), strict=True):
            panel, pair = panels[r["measure"]], GATED.index(r["second"])
            height = settings.index(name) + SHIFTS[pair]
            stroke = panel.strokes(height, r["low"], r["high"], Pen(COLOURS[pair], width=1.4), along="x")
            pen = Pen(COLOURS[pair], "", marker=MARKERS[pair], size=5, face="white" * (not r["decided"]))
            panel.line(r["difference"], height, pen, order=3, interval=stroke)
        for axes in grid:
            axes.grid(axis="y", visible=False)
            axes.locator_params(axis="x", nbins=5)
        grid[2].sharex(grid[1])
        grid[0].set_yticks(range(len(settings)), settings)
        grid[0].set_ylim(len(settings) - 0.5, -0.5)
        entries = [
            Entry(f"{unit_name(b)} - {unit_name(a)}", Pen(colour, "", marker=marker, size=5))
            for (a, b), colour, marker in zip(PAIRS, COLOURS, MARKERS, strict=True)
        ]
        hollow = Entry("hollow: undecided after Holm's correction", Pen(GREY, "", marker="o", size=5, face="white"))
        figure_legend(figure, [*entries, hollow], ncols=4)
        figure.suptitle(f"Appendix D, all of {data_name(table)}: what a gate changes, with 95 % intervals over seeds")
    return figure


# ---- the finding


def findings(tables: Tables) -> tuple[Finding, ...]:
    """In how many comparisons the gap and the best test loss are decided, and which way; drawn with the cosine."""
    table, runs = tables["comparisons"], tables["runs"]
    best, gaps = only(table, measure="best"), only(table, measure="gap")
    sentence = (
        f"With a gate and all of {data_name(table)} the test loss of the best checkpoint is {counts(best)}, and the "
        f"gap at equal training loss {counts(gaps)}, after Holm's correction over all {len(table)} comparisons."
    )
    drawn = only(best, schedule="cosine")
    places = [f"{MODEL_NAMES[r['model']]}\n{OPTIMISER_NAMES[r['optimiser']]}" for r in drawn.to_dict("records")]
    x = pd.Series([list(dict.fromkeys(places)).index(place) for place in places], drawn.index)
    strokes = []
    for gated, colour, shift in zip(GATED, COLOURS, SHIFTS, strict=True):
        rows = drawn.loc[drawn["second"] == gated]
        y, low, high = (numbers(rows[name]) for name in ("difference", "low", "high"))
        shifted = numbers(x[rows.index] + shift)
        strokes.append(Stroke(unit_name(gated), shifted, y, colour, marks=True, low=low, high=high))
    sketch = Sketch(
        "",
        "best test loss, gated less plain, nats",
        tuple(strokes),
        log_x=False,
        log_y=False,
        places=tuple(dict.fromkeys(places)),
        level=0.0,
    )
    models = [
        f"{setting_name(r['model'], r['data'])} ({r['parameters'] / 1e6:.2g} million parameters)"
        for r in runs.drop_duplicates(["model", "data"]).to_dict("records")
    ]
    sizes = f"{', '.join(models)}; {seeds(table)} of each unit. The figure has the cosine schedule."
    return (Finding("The gate on more images", sentence, sizes, sketch),)


def counts(rows: pd.DataFrame) -> str:
    """How many rows are decided which way.

    >>> counts(pd.DataFrame({"decision": ["lower", "undecided", "lower"]}))
    'lower in 2, undecided in 1 of 3 comparisons'
    """
    words = [str(word).removesuffix(" after correction") for word in rows["decision"]]
    parts = [f"{word} in {words.count(word)}" for word in ("lower", "higher", "undecided") if word in words]
    return f"{', '.join(parts)} of {len(rows)} comparisons"


STUDY = Study(
    "ntk/appendix-d-whole",
    "The generalisation gap on all of CIFAR-10",
    "For the same training error a gate has limited influence on the generalisation gap.",
    run,
    findings=findings,
    position=11,
)
