"""Figure 7 and appendix D: the generalization gap against the training loss, with and without a gate.

Two questions are asked of each pair of units. Are their points (training loss, gap) from one distribution? And is the
gap the same at equal training loss? The first answer is "no" also where one unit is merely faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from gatelab.plotting import style
from gatelab.plotting.facets import Facets, draw_panel
from gatelab.statistics import Interval, welch_difference
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Table, Tables, interval_at
from gatelab.studies.inventory import read_items
from gatelab.studies.ntk.gaps import (
    RUN,
    SIGNIFICANT,
    comparisons_table,
    name_of,
    points_table,
    runs_for,
    runs_table,
    setting_name,
)

PAIRS = {"mixer": ("mlp", "glu"), "vit": ("mlp", "glu"), "gpt2": ("silu", "swiglu")}
NEW = ("gqu", "relu2")  # which the paper did not try
# The settings of the record that stand for the panels of figure 7, with their places, and all that the record has.
PANELS = {item.row.split(" ", 1)[1]: item.place for item in read_items("ntk") if item.heading == "figure 7"}
RECORDED = (*PANELS, "Mixer on CIFAR-10, AdamW", "ViT on CIFAR-10, AdamW")
# The settings at which the paper's inventory has the record, with the optimizer and without it.
SETTINGS = {*RECORDED, *(setting.rpartition(", ")[0] for setting in RECORDED)}
NO_COMMON_LOSS = "The runs pass through no common training losses."
Row = Mapping[Any, Any]


def draw(title: str, tables: Tables) -> Figure:
    """A plane of training loss and gap per setting, and below them the differences of the gap at equal loss."""
    panels = list(dict.fromkeys(tables["points"]["panel"]))
    rows = tables["comparisons"].dropna(subset=["difference"]).iloc[::-1]
    columns = min(3, len(panels))
    lines, height = -(-len(panels) // columns), 0.8 + 0.26 * len(rows)
    with style():
        figure = Figure(figsize=(4.2 * columns, 3.6 * lines + height + 0.4), layout="constrained")
        grid = figure.add_gridspec(lines + 1, columns, height_ratios=[3.6] * lines + [height])
        for i, name in enumerate(panels):
            facets = Facets(
                table="points", x="train", y="gap", hue="series", where={"panel": name}, points=True, title=name,
                xlabel="training loss (nats)", ylabel="gap: test loss - training loss (nats)",
            )  # fmt: skip
            draw_panel(figure.add_subplot(grid[i // columns, i % columns]), facets, tables)
        axes = figure.add_subplot(grid[lines, :])
        reach = [rows["difference"] - rows["low"], rows["high"] - rows["difference"]]
        axes.errorbar(rows["difference"], np.arange(len(rows)), xerr=reach, fmt="o", capsize=2)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(np.arange(len(rows)), rows["pair"] + ", " + rows["setting"])
        axes.set_xlabel("nats")
        axes.set_title("difference of the gap at equal training loss, 95 % intervals")
        figure.suptitle(title)
    return figure


STUDY = Study(
    "ntk/fig7",
    "The generalization gap",
    "At equal training loss gated and plain units have the same gap; the optimizer matters more than the gate.",
    position=9,
    figure=partial(draw, "Figure 7: generalization gap against training loss"),
    cards={
        "The gap in whole models": Facets(
            table="comparisons", x="place", y="ratio", where={"compared": "gate"}, points=True,
            levels={"equal gaps": 1.0}, xlabel=" ", ylabel="gap with a gate over gap without",
        )
    },
)  # fmt: skip


@STUDY.tables
def tables(request: Request) -> Tables:
    """The pairs of the paper under each optimizer, and SGD and AdamW for each of their units."""
    gap = runs_for(request, PAIRS)
    compared = []
    for model, data in gap.settings():
        compared += [gap.compare_units(model, data, o, *PAIRS[model]) for o in gap.optimisers(model, data)]
    for model, data in gap.settings():
        if {"sgd", "adamw"} <= set(gap.optimisers(model, data)):
            compared += [gap.compare_optimisers(model, data, unit, "sgd", "adamw") for unit in PAIRS[model]]
    points = points_table(gap, PAIRS, panel_each_optimiser=False)
    return {"comparisons": comparisons_table(compared), "runs": runs_table(gap), "points": points}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """Each pair: its points, its gap at equal loss, its losses at the end; each setting: the optimizer."""
    table = tables["comparisons"]
    gates, optimisers = (table[table["compared"] == kind] for kind in ("gate", "optimiser"))
    for row in gates.to_dict("records"):
        setting = row["setting"]
        yield joint_claim(row, PANELS.get(setting) or recorded_place("section 5, joint distribution", setting))
        yield matched_claim(row, recorded_place("section 5, gap at equal loss", setting))
        yield from loss_claims(row, tables["runs"])
    for where, rows in optimisers.groupby(optimisers["where"].str.rpartition(", ")[0], sort=False):
        yield optimiser_claim(str(where), rows, gates[gates["where"].str.startswith(f"{where}, ")])


def recorded_place(words: str, setting: str) -> str:
    """Words of the paper's inventory with a setting; small models of a quick run have no place in it.

    >>> recorded_place("section 1, test loss", "ViT on CIFAR-10, SGD"), recorded_place("section 1, test loss", "ViT")
    ('section 1, test loss, ViT on CIFAR-10, SGD', '')
    """
    if setting not in SETTINGS:
        return ""
    return f"{words}, {setting}"


def joint_claim(row: Row, place: str = "", *, new: bool = False) -> Claim:
    """Whether the points are from one distribution; runs that are too few for a significant p claim nothing."""
    said: dict[str, Any] = {}
    if not new:
        note = "The paper says that there is no significant shift; its p is lost in our copy."
        said = {"paper": SIGNIFICANT, "rule": rule_of("above", row), "note": note}
    return Claim(
        f"p of one distribution of (loss, gap), {name_of(row['first'])} and {name_of(row['second'])}, {row['setting']}",
        row["p"], place=place, **said,
        support={
            "least possible p": row["least_p"], "energy coefficient": row["energy_coefficient"],
            "p if points were exchanged": row["p_points"], "runs": [row["runs_first"], row["runs_second"]],
        },
    )  # fmt: skip


def rule_of(rule: str, *rows: Row) -> str:
    """A rule for claims of comparisons; "new" where all have so few runs that no p can be significant."""
    if all(row["least_p"] > SIGNIFICANT for row in rows):
        return "new"
    return rule


def matched_claim(row: Row, place: str = "", *, new: bool = False) -> Claim:
    """The gap at equal training loss, as a ratio."""
    what = f"gap of {name_of(row['second'])} over that of {name_of(row['first'])} at equal loss, {row['setting']}"
    if np.isnan(row["ratio"]):
        return Claim(what, None, place=place, note=NO_COMMON_LOSS)
    first = row["difference"] / row["relative"]
    said: dict[str, Any] = {}
    if not new:
        said = {"paper": 1.0, "rule": rule_of("equal", row)}
    return Claim.of(
        what, interval_at(row, "ratio"), place=place, **said,
        support={
            "difference in nats": shift(row), "p": row["p_matched"], "mean gaps": [first, first + row["difference"]],
            "training losses from and to": [row["low_loss"], row["high_loss"]],
        },
    )  # fmt: skip


def shift(row: Row) -> Interval:
    """The difference of the gaps at equal training loss, in nats."""
    return Interval(row["difference"], row["low"], row["high"])


def loss_claims(row: Row, runs: Table) -> Iterator[Claim]:
    """The introduction: a gate speeds up training and, the gap being the same, has a better test loss."""
    model, data, optimiser = row["where"].split(", ")
    by_run, pair = runs.set_index(RUN), f"{name_of(row['second'])} minus that of {name_of(row['first'])}"
    plain, gated = (by_run.loc[(model, data, row[side], optimiser)] for side in ("first", "second"))
    rule = "new" if min(row["runs_first"], row["runs_second"]) < 3 else "below"
    for loss, word in (("train", "training"), ("test", "test")):
        change, least = (loss_difference(plain, gated, name) for name in (loss, f"least_{loss}"))
        yield Claim.of(
            f"{word} loss of {pair} at the last step, {row['setting']}", change, 0.0, rule, unit="nats",
            place=recorded_place(f"section 1, {word} loss", row["setting"]),
            support={"losses": [plain[loss], gated[loss]], "difference of the least losses on the way": least},
            note="The paper says that it is lower.",
        )  # fmt: skip


def loss_difference(plain: Row, gated: Row, name: str) -> Interval:
    """The mean of a loss with a gate minus that without, over the runs that did not diverge."""
    first, second = ((r[name], r[f"{name}_std"], int(r["seeds"] - r["diverged"])) for r in (plain, gated))
    return welch_difference(first, second)


def optimiser_claim(where: str, optimisers: Table, gates: Table) -> Claim:
    """Whether AdamW has the smaller gap for each unit, by more than the gate changes."""
    name = setting_name(*where.split(", "))
    what, place = f"AdamW minus SGD at equal loss, {name}", recorded_place("section 5, SGD and AdamW", name)
    paper = "smaller gap, for both units; far more than the gate changes"
    shifts, by_gate = optimisers.dropna(subset=["difference"]), float(gates["difference"].abs().max())
    if shifts.empty or np.isnan(by_gate):
        return Claim(what, None, paper=paper, place=place, note=NO_COMMON_LOSS)
    rows, least = shifts.to_dict("records"), float(shifts["difference"].abs().min())
    support: dict[str, Any] = {f"{row['setting'].rpartition(', ')[2]}, nats": shift(row) for row in rows}
    support |= {"least change by the optimizer, nats": least, "largest change by the gate, nats": by_gate}
    return Claim(
        what, float((shifts["high"] < 0).all() and least > by_gate), paper=paper, place=place, support=support,
        rule=rule_of("holds", *rows),
        note="The learning rate of each optimizer was chosen once and not tuned.",
    )  # fmt: skip


# ---- appendix D: every model, data set and optimizer, with units that the paper did not try

APPENDIX_D = Study(
    "ntk/appendix-d",
    "The generalization gap of more units",
    "For the same training error a gate has limited influence on the generalization gap.",
    position=10,
    beyond=True,
    figure=partial(draw, "Appendix D: generalization gap against training loss, all units"),
)


@APPENDIX_D.tables
def all_units(request: Request) -> Tables:
    """The first unit of each setting with every other one, and the optimizers of each unit."""
    gap = runs_for(request, {model: (*PAIRS[model], *NEW) for model in ("vit", "gpt2")})
    compared = [*gap.comparisons(), *gap.optimiser_comparisons()]
    points = points_table(gap, {}, panel_each_optimiser=True)
    return {"comparisons": comparisons_table(compared), "runs": runs_table(gap), "points": points}


@APPENDIX_D.claims
def all_claims(tables: Tables) -> Iterator[Claim]:
    """The points and the gap at equal loss of each unit next to the first."""
    for row in tables["comparisons"].query("compared == 'gate'").to_dict("records"):
        yield joint_claim(row, new=row["second"] in NEW)
        yield matched_claim(row, new=row["second"] in NEW)
