"""Tables of the runs whose generalization gap is studied, which are records made on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gatelab.studies.engine import Table
from gatelab.studies.ntk.gaussian import NAMES
from gatelab.train import Comparison, Gap

OPTIMIZERS = {"sgd": "SGD", "adamw": "AdamW"}
WORDS = NAMES | OPTIMIZERS | {"mixer": "Mixer", "vit": "ViT", "gpt2": "GPT-2"}
WORDS |= {"cifar10": "CIFAR-10", "fineweb-edu": "FineWeb-Edu"}
SIGNIFICANT = 0.05
LOSSES = ("train", "test", "gap", "accuracy", "least_train", "least_test")
RUN = ["model", "data", "unit", "optimizer"]


def name_of(word: str) -> str:
    """A unit, optimizer, model or data set as the paper writes it; others keep their names."""
    return WORDS.get(word, word)


def setting_name(model: str, data: str, common: str = "") -> str:
    """A model and its data as the paper writes them, with an optimizer or a unit.

    >>> setting_name("vit", "cifar10", "sgd"), setting_name("gpt2", "fineweb-edu")
    ('ViT on CIFAR-10, SGD', 'GPT-2 on FineWeb-Edu')
    """
    return ", ".join(filter(None, (f"{name_of(model)} on {name_of(data)}", name_of(common))))


def run_rows(gap: Gap) -> Table:
    """A row per run with its last and its least losses, which are missing where it diverged."""
    rows = []
    for h in gap.histories:
        r = h.recipe
        row: dict[str, Any] = dict(zip(RUN, (r.model, r.data, r.unit.name, r.optimizer), strict=True))
        row |= {"lr": r.lr, "steps": r.steps, "batch": r.batch, "parameters": h.parameters, "counted": h.counted}
        row |= {"device": h.device, "throughput": h.throughput, "diverged": h.diverged is not None}
        row |= dict.fromkeys(LOSSES, np.nan)
        if h.diverged is None and len(h.steps):
            row |= {name: getattr(h, name)[-1] for name in LOSSES[:4]}
            row |= {"least_train": h.train.min(), "least_test": h.test.min()}
        rows.append(row)
    return pd.DataFrame(rows)


def runs_table(gap: Gap) -> Table:
    """The losses of runs: mean and standard deviation over the seeds of a unit and optimizer."""
    columns: dict[str, Any] = {"seeds": ("diverged", "size"), "diverged": ("diverged", "sum")}
    columns |= {name: (name, "first") for name in ("parameters", "lr", "steps", "batch")}
    for name in LOSSES:
        columns |= {name: (name, "mean"), f"{name}_std": (name, "std")}
    columns |= {"throughput": ("throughput", "median"), "counted": ("counted", "first"), "device": ("device", "first")}
    table = run_rows(gap).groupby(RUN, sort=False).agg(**columns).reset_index()
    return table.assign(setting=[setting_name(*names) for names in zip(table["model"], table["data"], strict=True)])


def points_table(gap: Gap, units: Mapping[str, Sequence[str]]) -> Table:
    """Training loss and gap at every evaluation after the warm-up of these units, with its panel and series."""
    order, frames = {name: i for i, name in enumerate(WORDS)}, []
    for h in sorted(gap.histories, key=lambda h: [order.get(w, 99) for w in (h.recipe.unit.name, h.recipe.optimizer)]):
        r = h.recipe
        if h.diverged is None and r.unit.name in units.get(r.model, (r.unit.name,)):
            series = f"{name_of(r.unit.name)}, {name_of(r.optimizer)}"
            words = {"panel": setting_name(r.model, r.data), "series": series, "seed": r.seed}
            frames.append(pd.DataFrame(words | dict(zip(("train", "gap"), h.points.T, strict=True))))
    return pd.concat(frames, ignore_index=True)


def comparisons_table(comparisons: Sequence[Comparison | None]) -> Table:
    """A row per comparison; `ratio` is the gap of the second group over that of the first, at equal training loss."""
    table = pd.DataFrame([c.row() for c in comparisons if c is not None])
    share = table["relative"] / table["difference"]
    low, high = np.sort([1 + table[end] * share for end in ("low", "high")], axis=0)  # a negative gap exchanges them
    settings = [setting_name(*where.split(", ")) for where in table["where"]]
    places = [f"{name_of(model)}, {name_of(common)}" for model, _, common in table["where"].str.split(", ")]
    kinds = np.where(table["second"].isin(list(OPTIMIZERS)), "optimizer", "gate")
    pairs = [f"{name_of(b)} - {name_of(a)}" for a, b in zip(table["first"], table["second"], strict=True)]
    words = {"pair": pairs, "setting": settings, "place": places, "compared": kinds}
    return table.assign(ratio=1 + table["relative"], ratio_low=low, ratio_high=high, **words)
