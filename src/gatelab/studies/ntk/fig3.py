"""Figure 3: condition numbers of the kernels of ViT and GPT-2, gated and not.

The numbers are a record made on a GPU (benchmarks/gpu_kernels.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pandas as pd

from gatelab.plotting.facets import Facets
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Tables, averaged, interval_at
from gatelab.studies.ntk.gaussian import NAMES, PAIRS, unit_ratio
from gatelab.studies.records import read_record

RECORD = "ntk/models.json"
COMMAND = "python -m benchmarks.gpu_kernels results/ntk/models.json --only figure3"
MODELS = {"vit": "ViT", "gpt2": "GPT-2"}
PANELS = {"vit": "(a)", "gpt2": "(b)"}
STARTS = {"lecun": "LeCun weights", "configuration": "weights of deviation 0.02"}
EXTRA = ("relu2", "gqu")  # units that the paper did not try: one without a gate, one with two factors
UNITS = (*(unit for pair in PAIRS for unit in pair), *EXTRA)
COLUMNS = ["model", "start", "unit", "seed", "n", "parameters", "lambda_max", "lambda_min", "condition", "data"]

STUDY = Study(
    "ntk/fig3",
    "Condition numbers of ViT and GPT-2, gated and plain",
    "Replacing the feed-forward blocks of ViT and GPT-2 by GLU variants lowers the condition number.",
    position=3,
    figure=Facets(
        table="means", x="name", y="condition", hue="start", col="model", ylog=True, points=True,
        names=MODELS | STARTS, xlabel="unit of the feed-forward blocks", ylabel="condition number of the kernel, κ",
        title="Figure 3: gated and plain feed-forward blocks in whole models",
    ),
)  # fmt: skip


@STUDY.tables
def tables(request: Request) -> Tables:
    """The record: a row per model, start, unit and seed, and means over seeds."""
    record = read_record(RECORD, COMMAND)
    rows = pd.DataFrame(record["figure3"])
    source = {key: record[key] for key in ("date", "device", "command")}
    rows = rows.loc[rows["unit"].isin(UNITS), COLUMNS]
    order = {name: place for place, name in enumerate((*MODELS, *STARTS, *UNITS))}
    rows = rows.sort_values(["model", "start", "unit", "seed"], key=lambda column: column.map(order).fillna(column))
    measures = ["model", "start", "unit", "seed", "lambda_max", "lambda_min", "condition"]
    means = averaged(rows[measures], "seed", ["model", "start", "unit"], "geometric")
    means.insert(3, "name", means["unit"].map(NAMES))
    return {"conditions": rows.reset_index(drop=True), "means": means, "source": pd.DataFrame([source])}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    means = tables["means"].set_index(["model", "start", "unit"]).sort_index()
    by_start = dict(iter(tables["conditions"].groupby(["model", "start"])))
    for model, start, (plain, gated) in product(MODELS, STARTS, PAIRS):
        rows, name = by_start[model, start], MODELS[model]
        support = {NAMES[unit]: interval_at(means.loc[(model, start, unit)], "condition") for unit in (plain, gated)}
        for column, words in (("lambda_max", "λ_max"), ("lambda_min", "λ_min")):
            support[f"the same ratio of {words}"] = unit_ratio(rows, plain, gated, column)
        title = f"condition number of {name} with {NAMES[plain]} over that with {NAMES[gated]}, {STARTS[start]}"
        ratio = unit_ratio(rows, plain, gated, "condition")
        place = f"figure 3, {PANELS[model]} {name}, {NAMES[gated]}, {STARTS[start]}"
        yield Claim.of(title, ratio, 1.0, "above", place=place, support=support)
    for model, start, unit in product(MODELS, STARTS, EXTRA):
        own = means.loc[(model, start)]
        title = f"condition number of {MODELS[model]} with {NAMES[unit]}, {STARTS[start]}"
        support = {NAMES[other]: interval_at(own.loc[other], "condition") for other in PAIRS[0]}
        yield Claim.of(title, interval_at(own.loc[unit], "condition"), support=support)
