"""Appendix D on the whole of CIFAR-10: three pairs of units, the best checkpoint beside the last step, two schedules.

A pair of units is compared by three measures, each a number of every run: the gap at equal training loss, the test loss
at the last step, and the least test loss of all evaluations, that of the best checkpoint. That checkpoint is chosen on
the test data themselves, which makes its loss too low, by as much for a unit as for its partner: it favours both alike.

The p-values of all comparisons of the study are corrected together (Holm). They are those of Welch's t-test, which
takes runs for normal: exchanging five runs with five has no p below 2/252, and over more than six comparisons no
correction could then find anything. A difference is decided where its corrected p is at most 0.05 and its 95 % interval
leaves zero out; all others are called undecided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
from gatelab.studies.ntk.printed import pair_place
from gatelab.studies.records import record_path
from gatelab.studies.verdicts import ends
from gatelab.train import Gap
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
PLACE = ["model", "data", "optimiser", "first", "second"]
GATED = [gated for _, gated in PAIRS]
MARKERS = ("s", "o", "D")  # of the pairs: all can be hollow
WHOLE_NAMES = {"cifar10": "all of CIFAR-10"}
UNDECIDED = "undecided"


def run(request: Request) -> Outcome:
    """All comparisons from the two records, or from small models that are trained now."""
    gaps = runs_by_schedule(request)
    rows = [c.row() for schedule, gap in gaps.items() for c in contrasts(schedule, gap)]
    table = corrected(pd.DataFrame(rows).sort_values("model", kind="stable", ignore_index=True))
    claims = tuple(pair_claim(rows, len(table)) for _, rows in table.groupby(PLACE, sort=False))
    ends_of_runs = [ends_table(gap).assign(schedule=schedule) for schedule, gap in gaps.items()]
    tables = {"comparisons": table, "runs": pd.concat(ends_of_runs, ignore_index=True)}
    return Outcome(draw(table), tables, claims, notes(gaps, table))


def runs_by_schedule(request: Request) -> dict[str, Gap]:
    """The two records; when quick, small ViTs under both schedules."""
    if not request.quick:
        return {schedule: Gap.load(record_path(*record)) for schedule, record in RECORDS.items()}
    units = {"vit": [name for pair in PAIRS for name in pair]}
    plans = [*small_plans(units), *small_plans(units, ("adamw",), "constant")]
    histories = train_small(request, plans)
    return {s: Gap(tuple(h for h in histories if h.recipe.schedule == s), SMALL_ORIGIN) for s in RECORDS}


# ---- comparisons


@dataclass(frozen=True, eq=False)
class Contrast:
    """A pair of units under one model, optimiser and schedule, by one measure.

    Attributes:
        place: The schedule, the model, the data, the optimiser and the two units, by name.
        measure: A name of `MEASURES`.
        interval: The mean with a gate less that without.
        plain: The measure of each run without a gate.
        gated: That of each run with one.
    """

    place: Mapping[str, str]
    measure: str
    interval: Interval
    plain: Array
    gated: Array

    def row(self) -> dict[str, Any]:
        """The contrast as a row of a table, p of both tests with it; `relative` is to the larger mean.

        Of the two it is the larger in size: a gap of all images is near zero, and a share of nothing says nothing.
        """
        p, least = exchanged_means(self.plain, self.gated)
        return {
            **self.place,
            "measure": self.measure,
            "runs_first": len(self.plain),
            "runs_second": len(self.gated),
            "mean_first": self.plain.mean(),
            "mean_second": self.gated.mean(),
            "difference": self.interval.value,
            "low": self.interval.low,
            "high": self.interval.high,
            "relative": self.interval.value / max(abs(self.plain.mean()), abs(self.gated.mean())),
            "p_exchanged": p,
            "least_p": least,
            "p": float(ttest_ind(self.gated, self.plain, equal_var=False).pvalue),
        }


def contrasts(schedule: str, gap: Gap) -> Iterator[Contrast]:
    """Every pair of every model and optimiser by every measure; none by a gap where runs have no loss in common."""
    for model, data in gap.settings():
        for optimiser in OPTIMISER_NAMES:
            for plain, gated in PAIRS:
                comparison = gap.compare_units(model, data, optimiser, plain, gated)
                if comparison is None:
                    continue
                names = (schedule, model, data, optimiser, plain, gated)
                place = dict(zip(("schedule", *PLACE), names, strict=True))
                if (matched := comparison.matched) is not None:
                    yield Contrast(place, "gap", matched.interval, matched.first, matched.second)
                groups = [finished_runs(gap, model, data, unit, optimiser) for unit in (plain, gated)]
                last = [np.array([h.test[-1] for h in group]) for group in groups]
                best = [np.array([h.test.min() for h in group]) for group in groups]
                yield Contrast(place, "last", difference(*last), *last)
                yield Contrast(place, "best", difference(*best), *best)


def corrected(table: pd.DataFrame) -> pd.DataFrame:
    """The table with Holm's p over all its rows, and what is decided by it and by the interval."""
    p_holm = holm(table["p"])
    decided = (p_holm <= SIGNIFICANT) & ((table["low"] > 0) | (table["high"] < 0))
    words = np.where(table["difference"] > 0, "higher", "lower")
    return table.assign(p_holm=p_holm, decision=np.where(decided, words, UNDECIDED))


# ---- what it says


def pair_claim(rows: pd.DataFrame, comparisons: int) -> Claim:
    """One pair under one model and optimiser: the gap at equal loss, and beside it the test losses."""
    model, data, optimiser, plain, gated = (str(name) for name in rows[PLACE].iloc[0])
    setting = setting_name(model, data, optimiser)
    what = f"gap of {unit_name(gated)} less that of {unit_name(plain)} at equal loss, {setting}"
    paper, place = "no significant shift (its p is lost)", pair_place(setting, unit_name(plain), unit_name(gated))
    gaps = rows.loc[rows["measure"] == "gap"]
    if gaps.empty:
        return no_common_loss(what, paper, place)
    ours = "; ".join(
        f"{r['schedule']}: {r['difference']:+.3f} nats, {decision_words(r)}" for r in gaps.to_dict("records")
    )
    parts = [
        f"With the {schedule} schedule {', '.join(losses_words(of_schedule))}."
        for schedule, of_schedule in rows.groupby("schedule", sort=False)
    ]
    because = f"{' '.join(parts)} p are corrected over all {comparisons} comparisons. {reason(gaps)}"
    intervals = ", ".join(filter(None, (ends(r["low"], r["high"], "+.3f") for r in gaps.to_dict("records"))))
    return Claim(what, paper, ours, gap_verdict(gaps), because, intervals, place)


def decision_words(row: Mapping[Any, Any]) -> str:
    """What is decided; where the interval alone would have decided, that the correction leaves it open.

    >>> decision_words({"decision": "undecided", "low": 0.1, "high": 0.2})
    'undecided after correction'
    """
    if row["decision"] == UNDECIDED and (row["low"] > 0 or row["high"] < 0):
        return f"{UNDECIDED} after correction"
    return str(row["decision"])


def losses_words(rows: pd.DataFrame) -> Iterator[str]:
    """The p of the gap, and both test losses with their intervals."""
    for r in rows.to_dict("records"):
        if r["measure"] == "gap":
            yield f"the mean gaps are {r['mean_first']:.3f} and {r['mean_second']:.3f} (p = {r['p_holm']:.3g})"
        else:
            ending = f"{bracket(r['low'], r['high'], '+.3f')} nats (p = {r['p_holm']:.3g}, {decision_words(r)})"
            yield f"the {MEASURES[r['measure']]} changes by {r['difference']:+.3f}{ending}"


def gap_verdict(gaps: pd.DataFrame) -> Verdict:
    """What the gaps at equal loss say of the paper's statement that they do not differ.

    It differs where a difference is decided under some schedule and is no less than `NEGLIGIBLE` of the larger gap. It
    is reproduced where, under every schedule, even the uncorrected p of exchanged runs is above `SIGNIFICANT` or the
    difference is that small: a correction must not turn a difference into agreement. Between the two nothing is said.
    """
    if (gaps["least_p"] > SIGNIFICANT).any():
        return "new"
    small = gaps["relative"].abs() < NEGLIGIBLE
    if ((gaps["decision"] != UNDECIDED) & ~small).any():
        return "differs"
    if ((gaps["p_exchanged"] > SIGNIFICANT) | small).all():
        return "reproduced"
    return "new"


def reason(gaps: pd.DataFrame) -> str:
    """Why the verdict is what it is, in a sentence."""
    if (gaps["least_p"] > SIGNIFICANT).any():
        return f"So few runs have no p below {gaps['least_p'].max():.2g} when they are exchanged: nothing is claimed."
    verdict = gap_verdict(gaps)
    if verdict == "differs":
        return f"A difference of {NEGLIGIBLE:.0%} of the larger gap or more is decided."
    if verdict == "reproduced":
        return (
            f"Before any correction p of exchanged runs is above {SIGNIFICANT:g}, or the difference below "
            f"{NEGLIGIBLE:.0%} of the gap: no shift is seen, which does not show that there is none."
        )
    return "Alone a gap would be called different, among so many it is not: undecided, and no verdict."


def notes(gaps: Mapping[str, Gap], table: pd.DataFrame) -> tuple[str, ...]:
    """How the runs were made, and how they are to be read."""
    lines = []
    for schedule, gap in gaps.items():
        line = f"{schedule}: {len(gap.histories)} trainings on {gap.origin['device']}, {gap.origin['date'][:10]}"
        if "command" in gap.origin:
            line += f", by '{gap.origin['command']}'"
        lines.append(f"{line}.")
        if diverged := gap.diverged():
            lines.append("Left out since they diverged: " + "; ".join(str(h) for h in diverged) + ".")
    runs = sorted({*table["runs_first"], *table["runs_second"]})
    return (
        *lines,
        f"{' to '.join(map(str, runs))} seeds of each unit; units of a pair have as many parameters, and the learning "
        "rate of their model and optimiser, which was not searched. Units of a pair share no seed; the two schedules "
        "have the same ones.",
        "With a cosine the unit that comes to a loss sooner comes there at a higher learning rate; at a constant rate "
        "it does not. SGD was not run at a constant rate.",
        "The best checkpoint is that of the least test loss: chosen on the test data, which favours both units alike.",
        "Intervals are 95 %, each for itself: of the gap a bootstrap over runs, of test losses Welch's. p are Welch's, "
        f"corrected by Holm over all {len(table)} comparisons; what they or the interval leave open is undecided. "
        f"Exchanged runs have no p below {table['least_p'].min():.2g}; theirs is p_exchanged in the table.",
        "The captions of figures 8 to 11 are lost: that each is of one model and optimiser, and its panels of the three"
        " pairs, is our reading.",
    )


# ---- figure


def draw(table: pd.DataFrame) -> Figure:
    """A panel a measure, in it a line a model, optimiser and schedule, on it the three pairs with their intervals."""
    settings = list(dict.fromkeys(setting_of(r) for r in table.to_dict("records")))
    colours = [shape.colour for shape in looks(GATED).values()]
    with style():
        figure = new_figure(10.2, 1.6 + 0.62 * len(settings))
        grid = figure.subplots(1, len(MEASURES), sharey=True, squeeze=False)[0]
        for letter, measure, axes in zip("abc", MEASURES, grid, strict=True):
            panel = Panel(axes)
            for place in range(0, len(settings), 2):
                panel.span("y", place - 0.5, place + 0.5, "#f4f4f4", order=0)
            panel.rule("x", 0.0, Pen(GREY, width=0.8), order=1)
            for r in table.loc[table["measure"] == measure].to_dict("records"):
                pair = GATED.index(r["second"])
                height = settings.index(setting_of(r)) + 0.25 * (pair - 1)
                face = "white" * (r["decision"] == UNDECIDED)
                stroke = None
                if Interval(r["difference"], r["low"], r["high"]).known:
                    stroke = panel.strokes(height, r["low"], r["high"], Pen(colours[pair], width=1.4), along="x")
                pen = Pen(colours[pair], "", marker=MARKERS[pair], size=5, face=face)
                panel.line(r["difference"], height, pen, order=3, interval=stroke)
            panel.set(title=f"({letter}) {MEASURES[measure]}", xlabel="with a gate less without (nats)")
            axes.grid(axis="y", visible=False)
            axes.locator_params(axis="x", nbins=5)
        grid[2].sharex(grid[1])
        grid[0].set_yticks(range(len(settings)), settings)
        grid[0].set_ylim(len(settings) - 0.5, -0.5)
        pairs = [
            Entry(f"{unit_name(b)} - {unit_name(a)}", Pen(colour, "", marker=marker, size=5))
            for (a, b), colour, marker in zip(PAIRS, colours, MARKERS, strict=True)
        ]
        hollow = Entry("hollow: undecided after Holm's correction", Pen(GREY, "", marker="o", size=5, face="white"))
        figure_legend(figure, [*pairs, hollow], ncols=4)
        figure.suptitle(f"Appendix D on {data_names(table)}: what a gate changes, with 95 % intervals over seeds")
    return figure


def data_names(table: pd.DataFrame) -> str:
    """The data of the comparisons, in words.

    >>> data_names(pd.DataFrame({"data": ["cifar10", "cifar10"]}))
    'all of CIFAR-10'
    """
    return " and ".join(WHOLE_NAMES.get(str(name), str(name)) for name in table["data"].unique())


def setting_of(row: Mapping[Any, Any]) -> str:
    """A row's model, optimiser and schedule, in two lines."""
    return f"{MODEL_NAMES[row['model']]}, {OPTIMISER_NAMES[row['optimiser']]}\n{row['schedule']}"


# ---- the finding


def findings(tables: Tables) -> tuple[Finding, ...]:
    """In how many comparisons the gap and the best test loss are decided, and which way."""
    table = tables["comparisons"]
    best, gaps = only(table, measure="best"), only(table, measure="gap")
    sentence = (
        f"On {data_names(table)} the test loss of the best checkpoint is {counts(best)} with a gate, and the gap at "
        f"equal training loss {counts(gaps)}, after Holm's correction over {len(table)} comparisons."
    )
    settings = list(dict.fromkeys(setting_of(r) for r in best.to_dict("records")))
    strokes = []
    for order, (plain, gated) in enumerate(PAIRS):
        rows = best.loc[best["second"] == gated]
        places = [settings.index(setting_of(r)) + 0.25 * (order - 1) for r in rows.to_dict("records")]
        values = {name: numbers(rows[name]) for name in ("low", "high")}
        label = f"{unit_name(gated)} - {unit_name(plain)}"
        y = numbers(rows["difference"])
        strokes.append(Stroke(label, numbers(places), y, looks(GATED)[gated].colour, marks=True, **values))
    names = tuple(name.replace(", ", "\n").replace("\ncosine", "").replace("\nconstant", "*") for name in settings)
    y_name = "best test loss, gated less plain, nats; * constant rate"
    sketch = Sketch("", y_name, tuple(strokes), log_x=False, log_y=False, places=names, level=0.0)
    return (Finding("The gate on more images", sentence, sizes(tables["runs"], table), sketch),)


def counts(rows: pd.DataFrame) -> str:
    """How many rows are decided which way.

    >>> counts(pd.DataFrame({"decision": ["lower", "undecided", "lower"]}))
    'lower in 2 and undecided in 1 of 3 comparisons'
    """
    numbers_of = [(word, int((rows["decision"] == word).sum())) for word in ("lower", "higher", UNDECIDED)]
    parts = [f"{word} in {count}" for word, count in numbers_of if count]
    return f"{', '.join(parts[:-1])}{' and ' * (len(parts) > 1)}{parts[-1]} of {len(rows)} comparisons"


def sizes(runs: pd.DataFrame, table: pd.DataFrame) -> str:
    """The models with their parameters, and the seeds."""
    models = runs.drop_duplicates(["model", "data"])
    parts = [
        f"{setting_name(r['model'], r['data'])} ({r['parameters'] / 1e6:.2g} million parameters)"
        for r in models.to_dict("records")
    ]
    seeds = sorted({*table["runs_first"], *table["runs_second"]})
    return f"{', '.join(parts)}; {' to '.join(map(str, seeds))} seeds of each unit."


STUDY = Study(
    "ntk/appendix-d-whole",
    "The generalisation gap on all of CIFAR-10",
    "For the same training error a gate has limited influence on the generalisation gap.",
    run,
    findings=findings,
    position=11,
)
