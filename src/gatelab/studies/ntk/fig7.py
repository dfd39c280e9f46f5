"""Figure 7 and appendix D: the generalization gap against the training loss, with and without a gate.

Are the points (training loss, gap) of two units from one distribution ("no" also where one is merely faster)? And is
their gap the same at equal training loss? On the whole of CIFAR-10 also the test losses at the last step and of the
best checkpoint are compared, which is chosen on the test data, for both units alike. There a difference is decided
where Welch's p, corrected over all comparisons (Holm), is at most 0.05 and its 95 % interval excludes zero. Exchanging
five runs with five has no p below 2/252, too large for a correction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ttest_ind

from gatelab.plotting.facets import Facets
from gatelab.statistics import Interval, holm, sample, welch_difference
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Table, Tables, interval_at, interval_columns
from gatelab.studies.inventory import read_items
from gatelab.studies.ntk import gaps
from gatelab.studies.ntk.gaps import OPTIMIZERS, RUN, SIGNIFICANT, WORDS, name_of, setting_name
from gatelab.studies.ntk.gaussian import PAIRS as UNIT_PAIRS
from gatelab.studies.records import record_path
from gatelab.train import Gap

PAIRS = {"mixer": ("mlp", "glu"), "vit": ("mlp", "glu"), "gpt2": ("silu", "swiglu")}
SCRIPT = "python -m benchmarks.gpu_training results"
RECORD = "ntk/gap.json", f"{SCRIPT}/ntk/gap.json"
# The panels of figure 7 by setting.
PANELS = {item.row.split(" ", 1)[1]: item.place for item in read_items("ntk") if item.heading == "figure 7"}
NO_COMMON_LOSS = "The runs pass through no common training losses."
Row = Mapping[Any, Any]
RATIOS: dict[str, Any] = {
    "table": "comparisons", "x": "place", "y": "ratio", "points": True, "levels": {"equal gaps": 1.0}, "xlabel": " ",
    "names": {f"{a}, {b}": f"{a}\n{b}" for a in WORDS.values() for b in WORDS.values()},
}  # fmt: skip
STUDY = Study(
    "ntk/fig7",
    "The generalization gap",
    "At equal training loss gated and plain units have the same gap; the optimizer matters more than the gate.",
    position=9,
    figure=(
        Facets(
            table="points", x="train", y="gap", hue="series", col="panel", wrap=3, points=True,
            title="Figure 7: generalization gap against training loss", xlabel="training loss (nats)",
            ylabel="gap: test loss - training loss (nats)",
        ),
        Facets(
            **RATIOS, hue="pair", col="compared", ylabel="gap over gap, at equal training loss",
            title="at equal training loss, 95 % intervals",
        ),
    ),
    cards={
        "The gap in whole models": Facets(
            **RATIOS, where={"compared": "gate"}, ylabel="gap with a gate over gap without"
        )
    },
)  # fmt: skip


@STUDY.tables
def tables(request: Request) -> Tables:
    """The pairs of the paper under each optimizer, and SGD and AdamW for each of their units."""
    gap, by_gate, by_optimizer = Gap.load(record_path(*RECORD)), [], []
    for model, data in gap.settings():
        optimizers = gap.optimizers(model, data)
        by_gate += [gap.compare_units(model, data, name, *PAIRS[model]) for name in optimizers]
        if set(OPTIMIZERS) <= set(optimizers):
            by_optimizer += [gap.compare_optimizers(model, data, unit, *OPTIMIZERS) for unit in PAIRS[model]]
    tables = {"runs": gaps.runs_table(gap), "points": gaps.points_table(gap, PAIRS)}
    return {"comparisons": gaps.comparisons_table(by_gate + by_optimizer), **tables}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    table = tables["comparisons"]
    gates, optimizers = (table[table["compared"] == kind] for kind in ("gate", "optimizer"))
    for row in gates.to_dict("records"):
        setting = row["setting"]
        joint = PANELS.get(setting, f"section 5, joint distribution, {setting}")
        yield from gate_claims(row, joint, f"section 5, gap at equal loss, {setting}")
        yield from loss_claims(row, tables["runs"])
    for where, rows in optimizers.groupby(optimizers["where"].str.rpartition(", ")[0], sort=False):
        yield optimizer_claim(str(where), rows, gates[gates["where"].str.startswith(f"{where}, ")])


def gate_claims(row: Row, joint_place: str, gap_place: str) -> Iterator[Claim]:
    """Whether the points of two units are from one distribution, and their gaps at equal training loss, as a ratio."""
    first, second = name_of(row["first"]), name_of(row["second"])
    yield Claim(
        f"p of one distribution of (loss, gap), {first} and {second}, {row['setting']}", row["p"],
        paper=SIGNIFICANT, rule="above", place=joint_place,
        note="The paper finds no significant shift; its p is lost in our copy.",
        support={
            "least possible p": row["least_p"], "energy coefficient": row["energy_coefficient"],
            "p if points were exchanged": row["p_points"], "runs": [row["runs_first"], row["runs_second"]],
        },
    )  # fmt: skip
    what = f"gap of {second} over that of {first} at equal loss, {row['setting']}"
    if np.isnan(row["ratio"]):
        yield Claim(what, None, place=gap_place, note=NO_COMMON_LOSS)
        return
    mean = row["difference"] / row["relative"]
    yield Claim.of(
        what, interval_at(row, "ratio"), 1.0, "equal", place=gap_place,
        support={
            "difference in nats": interval_at(row, "difference"), "p": row["p_matched"],
            "mean gaps": [mean, mean + row["difference"]],
            "training losses from and to": [row["low_loss"], row["high_loss"]],
        },
    )  # fmt: skip


def loss_claims(row: Row, runs: Table) -> Iterator[Claim]:
    """The introduction: a gate speeds up training and, the gap being the same, has a better test loss."""
    model, data, optimizer = row["where"].split(", ")
    by_run, pair = runs.set_index(RUN), f"{name_of(row['second'])} minus that of {name_of(row['first'])}"
    plain, gated = (by_run.loc[(model, data, row[side], optimizer)] for side in ("first", "second"))
    for loss, word in (("train", "training"), ("test", "test")):
        change, least = (loss_difference(plain, gated, name) for name in (loss, f"least_{loss}"))
        yield Claim.of(
            f"{word} loss of {pair} at the last step, {row['setting']}", change, 0.0, "below", unit="nats",
            place=f"section 1, {word} loss, {row['setting']}",
            support={"losses": [plain[loss], gated[loss]], "difference of the least losses on the way": least},
            note="The paper says that it is lower.",
        )  # fmt: skip


def loss_difference(plain: Row, gated: Row, name: str) -> Interval:
    """The mean of a loss with a gate minus that without, over the runs that did not diverge."""
    first, second = ((r[name], r[f"{name}_std"], int(r["seeds"] - r["diverged"])) for r in (plain, gated))
    return welch_difference(first, second)


def optimizer_claim(where: str, optimizers: Table, gates: Table) -> Claim:
    """Whether AdamW has the smaller gap for each unit, by more than the effect of the gate."""
    name = setting_name(*where.split(", "))
    what, place = f"AdamW minus SGD at equal loss, {name}", f"section 5, SGD and AdamW, {name}"
    paper = "smaller gap, for both units; far more than the gate changes"
    shifts, by_gate = optimizers.dropna(subset=["difference"]), float(gates["difference"].abs().max())
    if shifts.empty or np.isnan(by_gate):
        return Claim(what, None, paper=paper, place=place, note=NO_COMMON_LOSS)
    rows, least = shifts.to_dict("records"), float(shifts["difference"].abs().min())
    support: dict[str, Any] = {
        f"{row['setting'].rpartition(', ')[2]}, nats": interval_at(row, "difference") for row in rows
    }
    support |= {"least change by the optimizer, nats": least, "largest change by the gate, nats": by_gate}
    return Claim(
        what, float((shifts["high"] < 0).all() and least > by_gate), paper=paper, place=place, support=support,
        rule="holds",
        note="The learning rate of each optimizer was chosen once and not tuned.",
    )  # fmt: skip


# ---- appendix D on the whole of CIFAR-10: the best checkpoint, the last step, two schedules

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
# Places of appendix D, as we read it: a figure for each model and data set of images, a panel for each pair of units.
PAIR_PANELS = {
    (setting.split(" ", 1)[1], *units.split(" and ")): item.place
    for item in read_items("ntk")
    if item.heading in ("figure 8", "figure 9", "figure 10", "figure 11")
    for setting, units in [item.row.rsplit(", ", 1)]
}
# The condition of the paper that these runs do not meet, by optimizer.
OUTSIDE = {
    "sgd": "the paper has plain SGD at its own rates, here it has momentum 0.9 and one rate that was not tuned",
    "adamw": "the paper has SGD for Mixer and ViT in appendix D, and here it is AdamW at one rate that was not tuned",
}
PLACE = ["model", "data", "optimizer", "first", "second"]
DRAWN: dict[str, Any] = {"table": "comparisons", "y": "difference", "hue": "pair", "points": True}
DRAWN |= {"levels": {"no difference": 0.0}, "xlabel": " "}
WHOLE = Study(
    "ntk/appendix-d-whole",
    "The generalization gap on all of CIFAR-10",
    "For the same training error a gate has limited influence on the generalization gap.",
    position=11,
    figure=Facets(
        x="place", col="measure", names=MEASURES, marks=("decided", "significant after Holm's correction"),
        ylabel="with a gate minus without (nats)", title="Appendix D, all of CIFAR-10: changes by a gate", **DRAWN,
    ),
    cards={
        "The gate on more images": Facets(
            x="short", where={"measure": "best", "schedule": "cosine"},
            ylabel="best test loss, gated minus plain, nats", **DRAWN,
        )
    },
)  # fmt: skip


@WHOLE.tables
def whole_tables(request: Request) -> Tables:
    """All comparisons from the two records; p are corrected over all, by Holm."""
    records = {schedule: Gap.load(record_path(*record)) for schedule, record in RECORDS.items()}
    rows = [row for schedule, gap in records.items() for row in comparison_rows(schedule, gap)]
    table = pd.DataFrame(rows).sort_values("model", kind="stable", ignore_index=True)
    p_holm, alone = holm(table["p"]), (table["difference_low"] > 0) | (table["difference_high"] < 0)
    significant = alone & (p_holm <= SIGNIFICANT)
    words = np.where(table["difference"] > 0, "higher", "lower")
    words = np.select([significant, alone], [words, "undecided after correction"], "undecided")
    table = table.assign(p_holm=p_holm, decided=significant, decision=words)
    runs = [gaps.runs_table(gap).assign(schedule=schedule) for schedule, gap in records.items()]
    return {"comparisons": table, "runs": pd.concat(runs, ignore_index=True)}


def comparison_rows(schedule: str, gap: Gap) -> Iterator[dict[str, Any]]:
    """A row per model, optimizer, pair and measure, without the gap where runs have no training loss in common."""
    runs = dict(iter(gaps.run_rows(gap).groupby(RUN)))
    places = [(*s, o, *pair) for s in gap.settings() for o in gap.optimizers(*s) for pair in UNIT_PAIRS]
    for model, data, optimizer, plain, gated in sorted(places, key=lambda place: list(OPTIMIZERS).index(place[2])):
        comparison = gap.compare_units(model, data, optimizer, plain, gated)
        if comparison is None:
            continue
        own, matched = [runs[model, data, unit, optimizer] for unit in (plain, gated)], comparison.matched
        groups: dict[str, Any] = {}
        if matched is not None:
            groups["gap"] = matched, matched.first, matched.second
        for measure, loss in (("last", "test"), ("best", "least_test")):
            first, second = (run[loss].dropna().to_numpy(float) for run in own)
            groups[measure] = welch_difference(sample(first), sample(second)), first, second
        for measure, (change, first, second) in groups.items():
            yield {
                "schedule": schedule,
                **dict(zip(PLACE, (model, data, optimizer, plain, gated), strict=True)),
                "measure": measure,
                "runs_first": len(first),
                "runs_second": len(second),
                "mean_first": first.mean(),
                "mean_second": second.mean(),
                **interval_columns("difference", change),
                "relative": change.value / max(abs(first.mean()), abs(second.mean())),
                "p": float(ttest_ind(second, first, equal_var=False).pvalue),  # pyright: ignore
                "pair": f"{name_of(gated)} - {name_of(plain)}",
                "short": f"{name_of(model)}, {name_of(optimizer)}",
                "place": f"{name_of(model)}\n{name_of(optimizer)}\n{schedule}",
            }


@WHOLE.claims
def whole_claims(tables: Tables) -> Iterator[Claim]:
    for (model, data, optimizer, *units), rows in tables["comparisons"].groupby(PLACE, sort=False):
        setting, (plain, gated) = setting_name(model, data, optimizer), map(name_of, units)
        equal = rows[rows["measure"] == "gap"]
        words: dict[str, Any] = {
            "paper": "no significant shift (its p is lost)",
            "place": PAIR_PANELS.get((setting, plain, gated), ""),
            "outside": OUTSIDE[optimizer],
        }
        what = f"gap of {gated} minus that of {plain} at equal loss, {setting}"
        if equal.empty:
            yield Claim(what, None, note=NO_COMMON_LOSS, **words)
            continue
        support: dict[str, Any] = {"mean gaps": equal[["mean_first", "mean_second"]].iloc[0].tolist()}
        short = {"gap": "gap", "best": "best test loss"}
        for row in rows[rows["measure"] != "last"].to_dict("records"):
            name = f"{short[row['measure']]}, {row['schedule']}"
            support |= {name: interval_at(row, "difference"), f"corrected p, {name}": row["p_holm"]}
        yield Claim.of(what, interval_at(equal.iloc[0], "difference"), unit="nats", support=support, **words)
    yield from counts(tables["comparisons"])


def counts(table: Table) -> Iterator[Claim]:
    """The number of comparisons, over all models, optimizers, pairs and schedules, in which a gate matters."""
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
            "widens, with AdamW": int((wider["optimizer"] == "adamw").sum()),
            "least and largest difference, nats": [wider["difference"].min(), wider["difference"].max()],
        },
    )  # fmt: skip


def count(rows: Table, decision: str) -> int:
    return int((rows["decision"] == decision).sum())
