"""Runs whose generalization gap is studied: the record made on a GPU, a small version of it, and their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from gatelab import feedforward
from gatelab.data.images import ImageData, Images
from gatelab.data.text import TextData
from gatelab.studies.definition import Request
from gatelab.studies.engine import Table
from gatelab.studies.ntk.gaussian import NAMES
from gatelab.studies.records import record_path
from gatelab.train import Comparison, Gap, History, gap_recipes, train_many

RECORD = "ntk/gap.json"
COMMAND = "python -m benchmarks.gpu_training results/ntk/gap.json"
OPTIMIZERS = {"sgd": "SGD", "adamw": "AdamW"}
WORDS = NAMES | OPTIMIZERS | {"mixer": "Mixer", "vit": "ViT", "gpt2": "GPT-2"}
WORDS |= {"cifar10": "CIFAR-10", "fineweb-edu": "FineWeb-Edu"}
SIGNIFICANT = 0.05
SMALL: dict[str, Any] = {"size": "tiny", "steps": 9, "batch": 16, "evaluations": 4, "warmup": 1, "test_size": 64}
LOSSES = ("train", "test", "gap", "accuracy", "least_train", "least_test")
RUN = ["model", "data", "unit", "optimizer"]


def read_record() -> Gap:
    """The runs that were made on a GPU."""
    return Gap.load(record_path(RECORD, COMMAND))


def runs_for(request: Request, units: Mapping[str, Sequence[str]]) -> Gap:
    """The record; in a quick run, small models with these units, trained now."""
    if request.quick:
        return train_small(request, units)
    return read_record()


# ---- the small version


def train_small(request: Request, units: Mapping[str, Sequence[str]], schedules: Sequence[str] = ("cosine",)) -> Gap:
    """Two seeds of tiny models on one core of a CPU; GPT-2 and runs at a constant rate have AdamW alone."""
    groups = []
    for schedule, (model, names) in product(schedules, units.items()):
        data = small_text() if model == "gpt2" else digits()
        optimizers = ("sgd", "adamw")[model == "gpt2" or schedule == "constant" :]
        values: dict[str, Any] = {"model": model, "data": data.name, "optimizers": optimizers, "schedule": schedule}
        groups += [(group, data) for group in gap_recipes(names, **values, **SMALL, seeds=2, augment=False)]
    histories: list[History] = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for done, (group, data) in enumerate(groups, 1):
            histories += train_many(group, data=data, device="cpu")
            if request.progress:
                request.progress(done, len(groups))
    finally:
        torch.set_num_threads(threads)
    return Gap(tuple(histories))


def digits() -> ImageData:
    """Scikit-learn's digits, 8 by 8 pixels: 1400 to train on and 397 to test."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(np.round(pixels * (255 / 16)).astype(np.uint8)).reshape(-1, 1, 8, 8)
    parts = [Images(images[s], torch.from_numpy(labels[s]).long()) for s in (slice(1400), slice(1400, None))]
    mean, std = float(parts[0].images.double().mean()) / 255, float(parts[0].images.double().std()) / 255
    return ImageData("digits", parts[0], parts[1], tuple("0123456789"), (mean,), (std,))


def small_text() -> TextData:
    """Our own source, byte by byte: text that is always available."""
    files = sorted(Path(feedforward.__file__).parent.glob("*.py"))
    tokens = np.frombuffer(b"".join(file.read_bytes() for file in files), np.uint8).astype(np.uint16)
    cut = len(tokens) * 4 // 5
    return TextData("source", tokens[:cut], tokens[cut:], 256)


# ---- tables


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
