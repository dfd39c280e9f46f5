"""What the studies of the gap share: the record of runs on a GPU, a small version of it, tables, and their wording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from gatelab import feedforward
from gatelab.data.images import ImageData, Images
from gatelab.data.text import TextData
from gatelab.plotting.kernels import Cloud
from gatelab.studies.definition import Request, ticker
from gatelab.studies.ntk.gaussian import PAPER_NAMES
from gatelab.studies.records import record_path
from gatelab.train import Gap, History, Recipe, gap_recipes, train_many

RECORD = "ntk/gap.json"
COMMAND = "python benchmarks/gpu_training.py results/ntk/gap.json"
MODEL_NAMES = {"mixer": "Mixer", "vit": "ViT", "gpt2": "GPT-2"}
DATA_NAMES = {"cifar10": "CIFAR-10", "tiny-imagenet": "Tiny ImageNet", "mnist": "MNIST", "fineweb-edu": "FineWeb-Edu"}
OPTIMISER_NAMES = {"sgd": "SGD", "adamw": "AdamW"}
SIGNIFICANT = 0.05
NEGLIGIBLE = 0.05  # of the gap: what "nearly indistinguishable" may mean
QUICK_TRAINING: dict[str, Any] = {
    "size": "tiny",
    "steps": 9,
    "batch": 16,
    "evaluations": 4,
    "warmup": 1,
    "test_size": 64,
}
SMALL_ORIGIN = {"device": "a CPU", "date": "now"}
SmallPlan = tuple[list[Recipe], ImageData | TextData]


def runs_for(request: Request, units: Mapping[str, Sequence[str]]) -> Gap:
    """The record; when quick, small models of these units by model, trained now on data that are always there."""
    if not request.quick:
        return read_record()
    return Gap(tuple(train_small(request, small_plans(units))), SMALL_ORIGIN)


def read_record() -> Gap:
    """The runs that were made on a GPU."""
    return Gap.load(record_path(RECORD, COMMAND))


# ---- the small version


def small_plans(
    units: Mapping[str, Sequence[str]], optimisers: Sequence[str] = ("sgd", "adamw"), schedule: str = "cosine"
) -> list[SmallPlan]:
    """Two seeds of tiny models with these units by model, and the data of each; GPT-2 has AdamW alone."""
    plans: list[SmallPlan] = []
    for model, names in units.items():
        data: ImageData | TextData = digits()
        own: Sequence[str] = optimisers
        if model == "gpt2":
            data, own = small_text(), ("adamw",)
        values = {**QUICK_TRAINING, "augment": False, "schedule": schedule}
        groups = gap_recipes(names, model=model, data=data.name, optimisers=own, seeds=2, **values)
        plans += [(group, data) for group in groups]
    return plans


def train_small(request: Request, plans: Sequence[SmallPlan]) -> list[History]:
    """Train them on one core of a CPU, a tick for each unit and optimiser."""
    tick = ticker(request, len(plans))
    histories: list[History] = []
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for group, data in plans:
            histories += train_many(group, data=data, device="cpu")
            tick()
    finally:
        torch.set_num_threads(before)
    return histories


def digits() -> ImageData:
    """Scikit-learn's digits, 8 by 8 pixels: 1400 to train on and 397 to test."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(np.round(pixels * (255 / 16)).astype(np.uint8)).reshape(-1, 1, 8, 8)
    parts = [Images(images[s], torch.from_numpy(labels[s]).long()) for s in (slice(1400), slice(1400, None))]
    mean, std = float(parts[0].images.double().mean()) / 255, float(parts[0].images.double().std()) / 255
    return ImageData("digits", parts[0], parts[1], tuple("0123456789"), (mean,), (std,))


def small_text() -> TextData:
    """Our own source, byte by byte: text that is always at hand."""
    files = sorted(Path(feedforward.__file__).parent.glob("*.py"))
    tokens = np.frombuffer(b"".join(file.read_bytes() for file in files), np.uint8).astype(np.uint16)
    cut = len(tokens) * 4 // 5
    return TextData("source", tokens[:cut], tokens[cut:], 256)


# ---- runs by their names


def unit_name(name: str) -> str:
    """A unit as the paper writes it; units that the paper did not try have their names here."""
    return PAPER_NAMES.get(name, name)


def setting_name(model: str, data: str, optimiser: str = "") -> str:
    """A model and its data as the paper writes them.

    >>> setting_name("vit", "cifar10", "sgd")
    'ViT on CIFAR-10, SGD'
    """
    name = f"{MODEL_NAMES.get(model, model)} on {DATA_NAMES.get(data, data)}"
    if optimiser:
        name += f", {OPTIMISER_NAMES.get(optimiser, optimiser)}"
    return name


def clouds_of(gap: Gap, model: str, data: str, units: Sequence[str], optimiser: str = "") -> list[Cloud]:
    """The clouds of these units under the paper's names; of one optimiser alone if it is named."""
    clouds = []
    for cloud in gap.clouds(model, data, units):
        unit, of = cloud.label.split(", ")
        if not optimiser:
            clouds.append(replace(cloud, label=f"{unit_name(unit)}, {OPTIMISER_NAMES.get(of, of)}"))
        elif optimiser == of:
            clouds.append(replace(cloud, label=unit_name(unit), hollow=False))
    return clouds


def histories_of(gap: Gap, model: str, data: str, unit: str, optimiser: str) -> list[History]:
    """All runs of that kind, those that diverged too."""
    wanted = (model, data, unit, optimiser)
    named = [((h.recipe.model, h.recipe.data, h.recipe.unit.name, h.recipe.optimiser), h) for h in gap.histories]
    return [h for key, h in named if key == wanted]


def finished_runs(gap: Gap, model: str, data: str, unit: str, optimiser: str) -> list[History]:
    """The runs of that kind that came to their end."""
    runs = histories_of(gap, model, data, unit, optimiser)
    return [h for h in runs if h.diverged is None and len(h.steps)]


# ---- tables and sentences


def ends_table(gap: Gap) -> pd.DataFrame:
    """Where runs end: losses, gap and accuracy of each unit and optimiser, mean and deviation over seeds."""
    rows = []
    for model, data in gap.settings():
        for unit in gap.units(model, data):
            for optimiser in gap.optimisers(model, data):
                runs = histories_of(gap, model, data, unit, optimiser)
                good = finished_runs(gap, model, data, unit, optimiser)
                if not runs:
                    continue
                row: dict[str, Any] = {"model": model, "data": data, "unit": unit, "optimiser": optimiser}
                row |= {"seeds": len(runs), "diverged": len(runs) - len(good), "parameters": runs[0].parameters}
                row |= {"lr": runs[0].recipe.lr, "steps": runs[0].recipe.steps, "batch": runs[0].recipe.batch}
                for name in ("train", "test", "gap", "accuracy"):
                    last = np.array([getattr(h, name)[-1] for h in good])
                    row |= {name: np.nan, f"{name}_std": np.nan}
                    if len(last):
                        row[name] = last.mean()
                    if len(last) > 1:
                        row[f"{name}_std"] = last.std(ddof=1)
                row["throughput"] = np.median([h.throughput for h in runs])
                rows.append({**row, "counted": runs[0].counted, "device": runs[0].device})
    return pd.DataFrame(rows)


def notes(gap: Gap) -> tuple[str, ...]:
    """How the runs were made, and how they are to be read."""
    origin = f"Runs of {gap.origin.get('device', 'an unknown device')}, {gap.origin.get('date', 'at an unknown time')}"
    if "command" in gap.origin:
        origin += f", by '{gap.origin['command']}'"
    groups = [
        gap.runs(model, data, unit, optimiser)
        for model, data in gap.settings()
        for unit in gap.units(model, data)
        for optimiser in gap.optimisers(model, data)
    ]
    seeds = min((len(runs) for runs in groups if runs), default=0)
    tests = 2 * (len(gap.comparisons()) + len(gap.optimiser_comparisons()))
    lines = [
        f"{origin}: {len(gap.histories)} trainings, {seeds} seeds or more of each unit and optimiser.",
        "The gap is test loss less training loss, the latter of as many training samples, the same in every run and"
        " without augmentation: running losses are of augmented images and of parameters that have moved since.",
        "Points are from the end of the warm-up on. p exchanges whole runs, which is sound: runs share no seed. The"
        " paper probably exchanges points; those p are in the tables (p_points) and mean little, since points of one"
        " run depend on each other.",
        "At equal training loss: each run's gap is interpolated between its lowest losses so far and averaged over the"
        " losses that all runs pass through; intervals are bootstraps over runs, 95 %.",
        f"Of {tests} tests at 5 % about {tests / 20:.0f} would find something where nothing is; none is corrected.",
    ]
    if diverged := gap.diverged():
        lines.append("Left out since they diverged: " + "; ".join(str(h) for h in diverged) + ".")
    if left := gap.origin.get("left_out"):
        lines.append(f"Not run for want of time: {'; '.join(left)}.")
    return tuple(lines)
