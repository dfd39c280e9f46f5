"""Appendix D on the whole of CIFAR-10: three pairs of units, the best checkpoint and the last step, two schedules.

A pair of units is compared by three measures, each a number of every run: the gap at equal training loss, the test loss
at the last step, and the least test loss of all evaluations, that of the best checkpoint. That checkpoint is chosen on
the test data themselves, which makes its loss too low for both units alike.

The p-values of all comparisons of the study are corrected together (Holm). They are those of Welch's t-test, which
assumes that runs are normal: exchanging five runs with five has no p below 2/252, and over more than six comparisons no
correction could then find anything. A difference is decided where its corrected p is at most 0.05 and its 95 % interval
excludes zero; all others are called undecided.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ttest_ind

from gatelab.plotting.facets import Facets
from gatelab.statistics import holm, sample, welch_difference
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Table, Tables, interval_at
from gatelab.studies.inventory import read_items
from gatelab.studies.ntk.gaps import (
    OPTIMISERS,
    SIGNIFICANT,
    finished_runs,
    name_of,
    runs_table,
    setting_name,
    train_small,
)
from gatelab.studies.ntk.gaussian import PAIRS
from gatelab.studies.records import record_path
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
# Appendix D, as we read it: a figure for each model and data set of images, a panel for each pair of units.
PAIR_PANELS = {
    (setting.split(" ", 1)[1], *units.split(" and ")): item.place
    for item in read_items("ntk")
    if item.heading in ("figure 8", "figure 9", "figure 10", "figure 11")
    for setting, units in [item.row.rsplit(", ", 1)]
}
# Which of the paper's conditions these runs do not have, by optimizer.
OUTSIDE = {
    "sgd": "the paper has plain SGD at rates of its own, here it has momentum 0.9 and one rate that was not tuned",
    "adamw": "the paper has SGD for Mixer and ViT in appendix D, and here it is AdamW at one rate that was not tuned",
}
PLACE = ["model", "data", "optimiser", "first", "second"]
DRAWN: dict[str, Any] = {
    "table": "comparisons",
    "y": "difference",
    "hue": "pair",
    "points": True,
    "levels": {"no difference": 0.0},
    "xlabel": " ",
}

STUDY = Study(
    "ntk/appendix-d-whole",
    "The generalization gap on all of CIFAR-10",
    "For the same training error a gate has limited influence on the generalization gap.",
    position=11,
    figure=Facets(
        x="place", col="measure", names=MEASURES, marks=("decided", "significant after Holm's correction"),
        ylabel="with a gate minus without (nats)", title="Appendix D, all of CIFAR-10: what a gate changes", **DRAWN,
    ),
    cards={
        "The gate on more images": Facets(
            x="short", where={"measure": "best", "schedule": "cosine"},
            ylabel="best test loss, gated minus plain, nats", **DRAWN,
        )
    },
)  # fmt: skip


@STUDY.tables
def tables(request: Request) -> Tables:
    """All comparisons from the two records, or from small ViTs that are trained now; p are corrected over all."""
    if request.quick:
        units = {"vit": (*PAIRS[0], *PAIRS[-1])}
        gap = train_small(
            request, [{"units": units}, {"units": units, "optimisers": ["adamw"], "schedule": "constant"}]
        )
        gaps = {s: Gap(tuple(h for h in gap.histories if h.recipe.schedule == s)) for s in RECORDS}
    else:
        gaps = {schedule: Gap.load(record_path(*record)) for schedule, record in RECORDS.items()}
    rows = [row for schedule, gap in gaps.items() for row in compared(schedule, gap)]
    table = corrected(pd.DataFrame(rows).sort_values("model", kind="stable", ignore_index=True))
    runs = [runs_table(gap).assign(schedule=schedule) for schedule, gap in gaps.items()]
    return {"comparisons": table, "runs": pd.concat(runs, ignore_index=True)}


def compared(schedule: str, gap: Gap) -> Iterator[dict[str, Any]]:
    """A row for every model, optimizer, pair and measure; none of the gap where runs have no loss in common.

    `relative` is to the larger mean of the two: a gap of all images is near zero, and a share of that says nothing.
    """
    places = [(*s, o, *pair) for s in gap.settings() for o in gap.optimisers(*s) for pair in PAIRS]
    for model, data, optimiser, plain, gated in sorted(places, key=lambda place: list(OPTIMISERS).index(place[2])):
        comparison = gap.compare_units(model, data, optimiser, plain, gated)
        if comparison is None:
            continue
        runs = [finished_runs(gap, model, data, unit, optimiser) for unit in (plain, gated)]
        values = {"last": [[h.test[-1] for h in own] for own in runs]}
        values["best"] = [[h.test.min() for h in own] for own in runs]
        matched = comparison.matched
        if matched is not None:
            values = {"gap": [matched.first, matched.second], **values}
        for measure, groups in values.items():
            first, second = (np.array(group, float) for group in groups)
            change = welch_difference(sample(first), sample(second))
            if measure == "gap" and matched is not None:
                change = matched.interval
            p, least = exchanged_means(first, second)
            yield {
                "schedule": schedule,
                **dict(zip(PLACE, (model, data, optimiser, plain, gated), strict=True)),
                "measure": measure,
                "runs_first": len(first),
                "runs_second": len(second),
                "mean_first": first.mean(),
                "mean_second": second.mean(),
                "difference": change.value,
                "difference_low": change.low,
                "difference_high": change.high,
                "relative": change.value / max(abs(first.mean()), abs(second.mean())),
                "p_exchanged": p,
                "least_p": least,
                "p": float(ttest_ind(second, first, equal_var=False).pvalue),  # pyright: ignore
                "pair": f"{name_of(gated)} - {name_of(plain)}",
                "short": f"{name_of(model)}, {name_of(optimiser)}",
                "place": f"{name_of(model)}\n{name_of(optimiser)}\n{schedule}",
            }


def corrected(table: Table) -> Table:
    """The table with Holm's p over all its rows, and what is decided by it and by the interval, in a word."""
    p_holm, alone = holm(table["p"]), (table["difference_low"] > 0) | (table["difference_high"] < 0)
    decided = alone & (p_holm <= SIGNIFICANT)
    words = np.where(table["difference"] > 0, "higher", "lower")
    words = np.select([decided, alone], [words, "undecided after correction"], "undecided")
    return table.assign(p_holm=p_holm, decided=decided, decision=words)


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """A claim per pair, model and optimizer: the gap at equal loss; its other schedule and test losses support it."""
    for (model, data, optimiser, *units), rows in tables["comparisons"].groupby(PLACE, sort=False):
        setting, (plain, gated) = setting_name(model, data, optimiser), map(name_of, units)
        gaps = rows[rows["measure"] == "gap"]
        words: dict[str, Any] = {
            "paper": "no significant shift (its p is lost)",
            "place": PAIR_PANELS.get((setting, plain, gated), ""),
            "outside": OUTSIDE[optimiser],
        }
        what = f"gap of {gated} minus that of {plain} at equal loss, {setting}"
        if gaps.empty:
            yield Claim(what, None, note="The runs pass through no common training losses.", **words)
            continue
        support: dict[str, Any] = {"mean gaps": [gaps["mean_first"].iloc[0], gaps["mean_second"].iloc[0]]}
        short = {"gap": "gap", "best": "best test loss"}
        for row in rows[rows["measure"] != "last"].to_dict("records"):
            name = f"{short[row['measure']]}, {row['schedule']}"
            support |= {name: interval_at(row, "difference"), f"corrected p, {name}": row["p_holm"]}
        yield Claim.of(what, interval_at(gaps.iloc[0], "difference"), unit="nats", support=support, **words)
    yield from counts(tables["comparisons"])


def counts(table: Table) -> Iterator[Claim]:
    """In how many comparisons of all models, optimizers, pairs and schedules a gate changes something."""
    best, gaps = (table[table["measure"] == measure] for measure in ("best", "gap"))
    cosine, means = best[best["schedule"] == "cosine"], best[["mean_first", "mean_second"]].to_numpy(float)
    yield Claim(
        "comparisons in which a gate lowers the test loss of the best checkpoint", count(best, "lower"),
        support={
            "of": len(best), "raises": count(best, "higher"),
            "lowers, cosine alone": count(cosine, "lower"), "of, cosine alone": len(cosine),
            "by single intervals, cosine alone": int((cosine["difference_high"] < 0).sum()),
            "least and largest loss": [means.min(), means.max()],
        },
    )  # fmt: skip
    wider = gaps[gaps["decision"] == "higher"]
    yield Claim(
        "comparisons in which a gate widens the gap at equal training loss", len(wider),
        support={
            "of": len(gaps), "narrows": count(gaps, "lower"),
            "widens, with AdamW": int((wider["optimiser"] == "adamw").sum()),
            "least and largest difference, nats": [wider["difference"].min(), wider["difference"].max()],
        },
    )  # fmt: skip


def count(rows: Table, decision: str) -> int:
    """How many comparisons are decided that way."""
    return int((rows["decision"] == decision).sum())
