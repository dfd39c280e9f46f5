"""Six units in a language model on enwik8, 0.4 to 26 million parameters: the first ladder, superseded by `gain`.

Its tables are committed; here they are read. At one number of tokens E contains the data term, so that its laws could
not tell an offset of the units from an exponent.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from gatelab.plotting.facets import Facets, Overlay
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Tables, interval_at
from gatelab.studies.records import record_path

COMMAND = "git checkout results/ladder"
TABLES = ("bits", "sizes", "worth", "comparisons", "leads", "rates", "speeds")
LITERATURE = 1.11  # 12 layers, 44 million parameters, many passes over the text (arXiv 1808.04444)
STUDY = Study(
    "ladder/enwik8",
    "Units in a language model: the first ladder",
    "No paper has it: public runs contradict each other on whether a gate is better, and none has intervals.",
    position=1,
    beyond=True,
    figure=(
        Facets(
            table="bits", x="parameters", y="bits", hue="unit", row="text", xlog=True, points=True,
            lines=(Overlay("line", "law, one exponent (top)", "solid"),), marks=("unswept", "rates not swept"),
            ylabel="bits per byte", title="Losses on enwik8",
        ),
        Facets(
            table="bits", x="shown_at", y="excess", hue="unit", row="text", xlog=True, levels={"best unit": 0.0},
            xlabel="parameters, units side by side", ylabel="bits per byte above the best unit of the size",
            marks=("unswept", "rates not swept"), title="Differences, paired by seed",
        ),
    ),
)  # fmt: skip


@STUDY.tables
def tables(_: Request) -> Tables:
    return {name: pd.read_csv(record_path(f"ladder/enwik8-{name}.csv", COMMAND)) for name in TABLES}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    for (unit, text), own in tables["leads"].groupby(["unit", "text"], sort=False):
        overall, title = own.iloc[0], f"{unit} minus relu2 over all sizes, {text}"
        by_size = {row["size"]: interval_at(row, "difference") for _, row in own.iloc[1:].iterrows()}
        ends = overall[["difference", "widest_low", "widest_high"]].astype(float)
        note = "The sizes disagree: the interval covers all of them." if overall["disagree"] else ""
        rule = "above" if text == "every byte once" else "below"  # the hypothesis: gates win where data repeat
        yield Claim(title, *ends, paper=0.0, rule=rule, unit="bits", support=by_size, note=note)
    bits, trained = tables["bits"], tables["comparisons"].query("losses == 'as trained' and size == 'all sizes'")
    for text, pairs in trained.groupby(trained["repeats"].map(dict(zip(bits["repeats"], bits["text"], strict=True)))):
        decided = pairs[pairs["decided"]]
        rules = decided.groupby(["first", "second", np.sign(decided["difference"])])["variance"].nunique()
        title = f"pairs of units that differ significantly by both rules of variance, {text}"
        yield Claim(title, float((rules == 2).sum()), support={"pairs": len(pairs) // 2})
    best = bits[bits["parameters"] == bits["parameters"].max()].sort_values("bits").iloc[0]
    support = {"unit": best["unit"], "parameters": int(best["parameters"]), "bytes read": int(best["tokens"])}
    title = "bits per byte of the best unit of the largest size"
    yield Claim.of(title, interval_at(best, "bits"), LITERATURE, support=support)
