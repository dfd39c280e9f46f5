"""Blocks of real models as targets: does a SwiGLU block need a SwiGLU?

Inputs and outputs of blocks of a pretrained model are fitted by the best linear map and by units at equal numbers of
parameters, and measured on held-out windows of text. Gates start from the block's own strongest neurons and from random
ones; the start with the smaller validation error is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pandas as pd
import torch

from gatelab.anatomy import BlockRows, fit_block, layer_rows
from gatelab.anatomy.fits import affine_of_rows, left_over
from gatelab.feedforward.registry import product_unit
from gatelab.models import GPT2, blocks
from gatelab.models.layouts import unit_of
from gatelab.plotting.facets import Facets, Table, Tables
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, only
from gatelab.studies.engine import Study, averaged, geometric_mean, interval_at, interval_columns
from gatelab.studies.records import origin, read_record

RECORD = "anatomy/blocks.json"
COMMAND = "python -m benchmarks.blocks results/anatomy/blocks.json"
UNITS = ("mlp", "relu2", "glu", "swiglu")
NAMES = {"mlp": "MLP", "relu2": "ReLU²", "glu": "GLU", "swiglu": "SwiGLU", "gelu": "GELU"}
OVER_OWN = Facets(
    table="ratios", x="parameters", y="over_own", hue="unit", xlog=True, ylog=True, names=NAMES,
    levels={"the block's own unit": 1.0}, ylabel="variance left, relative to the block's unit",
)  # fmt: skip
STUDY = Study(
    "models/blocks",
    "Units fitted to the blocks of real models",
    "No paper asks whether a trained SwiGLU block needs a SwiGLU.",
    beyond=True,
    figure=replace(OVER_OWN, col="model", title="Units fitted to blocks, mean over layers"),
    cards={"Blocks of a real model": replace(OVER_OWN, where={"first": True})},
)
Cell = dict[str, Any]


@dataclass(frozen=True)
class BlocksPlan:
    """The blocks to fit, and the budget. Widths are of units without factors; gated ones have two thirds of them."""

    model: str
    layers: tuple[int, ...]
    units: tuple[str, ...] = UNITS
    widths: tuple[int, ...] = (24, 48, 96, 192)
    steps: int = 30  # of Adam per fit
    tokens: int = 4096  # to fit on and to choose by
    test: int = 1024  # tokens to measure on
    length: int = 128  # tokens per window

    def __str__(self) -> str:
        budget = f"{self.steps} steps of Adam per fit, {self.tokens} tokens to fit on and to choose by"
        return f"{self.model}: layers {', '.join(map(str, self.layers))}, {budget}, {self.test} to measure on."


QUICK = BlocksPlan("tiny GPT-2", (0, 1), widths=(3, 6, 12), steps=6, tokens=640, test=160, length=16)


# ---- measured


def width_of(unit: str, plain: int) -> int:
    """The width at which a unit has the number of parameters of a unit without factors."""
    return max(1, round(2 * plain / (2 + product_unit(unit).factors)))


def measure_blocks(
    model: Any,
    text: Any,
    plan: BlocksPlan,
    *,
    tokenizer: Any = None,
    device: str = "cpu",
    known: Sequence[Cell] = (),
    done: Callable[[list[Cell]], object] | None = None,
) -> list[Cell]:
    """Fit every unit at every width to the blocks of a plan; the linear map is the unit "linear".

    `known` cells are not computed again, and `done` is called with all cells after each new one.
    """
    cells = list(known)
    finished = {(c["layer"], c["unit"], c["plain"]) for c in cells}
    wanted = [*product(plan.layers, ["linear"], [0]), *product(plan.layers, plan.units, plan.widths)]
    missing = [key for key in wanted if key not in finished]
    layers = sorted({layer for layer, _, _ in missing})
    if not layers:
        return cells
    options = {"tokenizer": tokenizer, "tokens": plan.tokens, "test": plan.test, "length": plan.length}
    rows, own = dict(zip(layers, layer_rows(model, layers, text, **options), strict=True)), blocks(model)
    for layer, unit, plain in missing:
        fitted = fit_cell(rows[layer].to(device), unit, plain, own[layer], plan.steps)
        cells.append({"model": plan.model, "layer": layer, "own": unit_of(own[layer]).name, "plain": plain, **fitted})
        if done:
            done(cells)
    return cells


def fit_cell(rows: BlockRows, unit: str, plain: int, block: Any, steps: int) -> Cell:
    """The share of the variance of the test rows that one fitted map leaves."""
    if unit == "linear":
        affine = affine_of_rows(rows.x, rows.y, rows.validation)
        left = left_over(affine(rows.test[0]), rows.test[1], rows.y.mean(0))
        return {"unit": unit, "width": 0, "parameters": affine.parameters, "left": left, "start": "", "seconds": 0.0}
    width, starts = width_of(unit, plain), {"own": block, "random": None}
    fits = {name: fit_block(rows, unit, width, start=start, steps=steps) for name, start in starts.items()}
    start, best = min(fits.items(), key=lambda item: item[1].validation)
    numbers = {"unit": unit, "width": width, "parameters": best.parameters, "left": best.error, "start": start}
    return {**numbers, "seconds": round(sum(fit.seconds for fit in fits.values()), 2)}


@STUDY.tables
def tables(request: Request) -> Tables:
    if request.quick:
        tokens = torch.randint(64, (900,), generator=torch.Generator().manual_seed(0))
        total = len(QUICK.layers) * (1 + len(QUICK.units) * len(QUICK.widths))
        report = request.progress or (lambda finished, total: None)
        cells = measure_blocks(GPT2("tiny", "swiglu"), tokens, QUICK, done=lambda cells: report(len(cells), total))
        facts = [f"{QUICK} Its weights and tokens are random."]
    else:
        record = read_record(RECORD, COMMAND, "an hour on two cores, or minutes on a GPU")
        cells, facts = record["cells"], [origin(record), *record["plans"]]
    table = pd.DataFrame(cells)
    last = widest(table)
    advantages = pd.DataFrame(row for _, rows in last.groupby("model", sort=False) for row in comparison(rows))
    made = {"widest": last, "cells": table, "ratios": ratio_table(table), "advantages": advantages}
    return made | {"origin": pd.DataFrame({"fact": facts})}


# ---- computed from the cells


def widest(cells: Table) -> Table:
    """For every block and unit the share left at the most parameters, in the order of the cells."""
    keys = ["model", "layer", "unit"]
    last = cells.loc[cells.groupby(keys)["parameters"].idxmax(), [*keys, "own", "parameters", "left"]]
    return cells[keys].drop_duplicates().merge(last, on=keys)


def ratio_table(cells: Table) -> Table:
    """The variance left by each unit over that left by the block's own, at equal size: geometric mean over layers."""
    fitted = cells[cells["unit"] != "linear"]
    own = fitted[fitted["unit"] == fitted["own"]]
    both = fitted.merge(own[["model", "layer", "plain", "left", "parameters"]], on=["model", "layer", "plain"])
    both = both.assign(over_own=both["left_x"] / both["left_y"], parameters=both["parameters_y"])
    both = both[both["unit"] != both["own"]][["model", "unit", "plain", "parameters", "layer", "over_own"]]
    table = averaged(both, "layer", ["model", "unit", "plain", "parameters"], "geometric")
    return table.assign(first=table["model"] == table["model"].iloc[0])


def comparison(last: Table) -> Iterator[Cell]:
    """The least variance left by other units over that left by the own unit, at the largest size: mean over layers.

    The other units are first all, then only gated ones or only ones without a factor, unlike the own unit.
    """
    model, own = last[["model", "own"]].iloc[0]
    left = last[last["unit"] != "linear"].pivot(index="layer", columns="unit", values="left")
    if own not in left:
        return
    others = [unit for unit in left if unit != own]
    gated = product_unit(own).factors > 0
    unlike = [unit for unit in others if (product_unit(unit).factors > 0) != gated]
    for name, rivals in (("any other unit", others), ("units without a factor" if gated else "gated units", unlike)):
        ends = interval_columns("ratio", geometric_mean(left[rivals].min(axis=1) / left[own]))
        rival = left[rivals].idxmin(axis=1).value_counts().idxmax()
        yield {"model": model, "own": own, "rivals": name, **ends, "rival": rival, "layers": len(left)}


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    last, cells = tables["widest"], tables["cells"]
    for model, of_model in last.groupby("model", sort=False):
        left = only(of_model, unit="linear").set_index("layer")["left"]
        what, support = f"{model}: what the best linear map leaves, mean over layers", 100 * left.add_prefix("layer ")
        yield Claim(what, 100 * left.mean(), unit="% of the variance", support=support.to_dict())
        starts = cells[(cells["model"] == model) & (cells["unit"] != "linear")]["start"]
        for row in only(tables["advantages"], model=model).to_dict("records"):
            own, title = NAMES.get(row["own"], row["own"]), f"{model}: its blocks by {row['rivals']}"
            if row["rivals"] == "any other unit":
                title = f"{model}: does a block of {own} need {own}?"
            support = {"the best of them, most often": NAMES.get(row["rival"], row["rival"]), "layers": row["layers"]}
            support["share of fits that began as the block's own neurons"] = starts.eq("own").mean()
            note = "Variance left by the best of them over that left by its own unit. Above 1 its own is better."
            yield Claim.of(title, interval_at(row, "ratio"), support=support, note=note)
