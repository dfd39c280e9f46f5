"""A run of a ladder: one unit at one size, all its seeds and learning rates trained together, as a run of a sweep.

The arguments of a run determine its numbers and its key in a store; the folder of checkpoints and the device are
settings, which do not enter the key.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from gatelab.arrays import Array
from gatelab.data.text import TextData, is_checked, text_data
from gatelab.display import one_line
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.registry import check_source
from gatelab.models import DecoderConfig, GPT2Config
from gatelab.sweep import Record, Run, RunOutcome
from gatelab.train.history import History, rounded
from gatelab.train.loop import train_many
from gatelab.train.members import config_of, token_fingerprint
from gatelab.train.recipes import Recipe

TASK = "gatelab.train.rungs:train_rung"  # the name that the keys of stored runs contain
SAVE_SECONDS = 45.0  # between two checkpoints
# The parts of a text on which losses are measured, and the words for them in the keys of stored runs.
STORED_PARTS = {"test": "climb", "valid": "tune"}
HERE = SimpleNamespace()  # units that cannot be imported, such as those of a notebook, by name


@dataclass(frozen=True)
class LadderRun:
    """A recipe at several learning rates and seeds, which are trained together; its own seed and rate are ignored.

    Members with the same seed see the same batches. `repeats` is the number of epochs, `part` the part of the text for
    the losses: "test", or "valid" in sweeps of learning rates.
    """

    recipe: Recipe
    lrs: tuple[float, ...]
    seeds: tuple[int, ...]
    repeats: int = 1
    part: str = "test"

    def __post_init__(self) -> None:
        object.__setattr__(self, "recipe", replace(self.recipe, seed=0, lr=1.0))
        whole_number("repeats", self.repeats, 1)
        # Recipes check learning rates and seeds, and convert numpy's numbers to Python's.
        object.__setattr__(self, "lrs", tuple(dict.fromkeys(member.lr for member in self.members)))

    def __repr__(self) -> str:
        r = self.recipe
        text = f"{r.unit.name} at {r.size}, {len(self.lrs)} learning rates, {len(self.seeds)} seeds, {self.part} part"
        return one_line(self, text)

    @property
    def config(self) -> DecoderConfig | GPT2Config:
        return config_of(self.recipe)

    @property
    def members(self) -> list[Recipe]:
        return [replace(self.recipe, lr=lr, seed=seed) for lr in self.lrs for seed in self.seeds]

    @property
    def flops(self) -> float:
        r, config = self.recipe, self.config
        return float(len(self.members) * r.steps * r.batch * config.context * config.token_flops(r.unit, r.match_mlp))

    def run(self, text: str, settings: Mapping[str, Any] | None = None) -> Run:
        """The run of the sweep; `text` is a `text_fingerprint`, and the settings are those of `train_run`."""
        arguments: dict[str, Any] = {"recipe": plain_here(self.recipe), "lrs": list(self.lrs), "text": text}
        arguments |= {"seeds": list(self.seeds), "repeats": self.repeats, "purpose": STORED_PARTS[self.part]}
        return Run(TASK, arguments, settings)


def run_of(arguments: Mapping[str, Any]) -> LadderRun:
    """The ladder's run with the arguments of a sweep's run."""
    lrs, seeds = tuple(arguments["lrs"]), tuple(arguments["seeds"])
    part = {purpose: part for part, purpose in STORED_PARTS.items()}[arguments["purpose"]]
    return LadderRun(Recipe.from_plain(arguments["recipe"]), lrs, seeds, arguments["repeats"], part)


def plain_here(recipe: Recipe) -> dict[str, Any]:
    """The recipe in plain values; a unit that cannot be imported is kept in `HERE`."""
    try:
        return recipe.plain()
    except GatelabError:
        place = f"{recipe.unit.name.replace('.', ' ')} {id(recipe.unit)}"
        setattr(HERE, place, recipe.unit)
        described = {"name": recipe.unit.name, "import": f"{__name__}:HERE.{place}"}
        return {**replace(recipe, unit=as_unit("mlp")).plain(), "unit": described}


def read_text(source: str, tokenizer: str) -> TextData:
    """The text of a ladder, cached until its file changes: 90 % training, 5 % validation, 5 % test."""
    file = Path(source).expanduser()
    stamp = None
    if file.is_file():
        facts = file.stat()
        stamp = facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size
    return read_unchanged(source, tokenizer, stamp)


@lru_cache(maxsize=2)
def read_unchanged(source: str, tokenizer: str, stamp: tuple[int, ...] | None) -> TextData:
    del stamp  # a part of the cache's key
    data = text_data(source, tokenizer)
    if data.valid is not None:
        return data
    half = len(data.test) // 2
    return replace(data, valid=data.test[:half], test=data.test[half:])


def part_of(data: TextData, repeats: int, part: str) -> TextData:
    """The text of a run: 1 / `repeats` of the training part, with `part` as its test part."""
    if repeats > 1:
        data = data.first(1 / repeats)
    if part == "valid":
        return data.tuning()
    return data


def text_fingerprint(source: str, text: TextData) -> str:
    """The hash of a text's tokens; of training and test tokens for enwik8, for compatibility with stored keys."""
    parts = [text.train, text.test]
    if text.valid is not None and not is_checked(source):
        parts.append(text.valid)
    return token_fingerprint(*parts)


def train_run(*, folder: str | None = None, device: str | None = None, **arguments: Any) -> RunOutcome:
    """Train all members of a run with the arguments of `LadderRun.run`; metrics are lists over members.

    `folder` is that of checkpoints, and the `device` None for a GPU if there is one.
    """
    check_source(arguments["recipe"]["unit"])
    asked, text = run_of(arguments), arguments["text"]
    whole = read_text(asked.recipe.data, asked.recipe.tokenizer)
    if text_fingerprint(asked.recipe.data, whole) != text:
        raise GatelabError(f"{asked.recipe.data} is not the text of this ladder's earlier runs; give the same")
    place = None if folder is None else Path(folder) / asked.run(text).key
    how: dict[str, Any] = {"compile": torch.cuda.is_available() and device != "cpu", "save_seconds": SAVE_SECONDS}
    data = part_of(whole, asked.repeats, asked.part)
    histories = train_many(asked.members, data=data, folder=place, device=device, progress=False, **how)
    if place is not None:  # checkpoints of a large model take gigabytes
        shutil.rmtree(place, ignore_errors=True)
    return RunOutcome(run_metrics(asked, histories, whole), device=histories[0].device)


def run_metrics(run: LadderRun, histories: Sequence[History], data: TextData) -> dict[str, Any]:
    first, r = histories[0], run.recipe
    config = config_of(r, data)
    tokens = r.steps * r.batch * config.context
    return {
        "loss": [final_loss(h.test, h.diverged) for h in histories],
        "train": [final_loss(h.train, h.diverged) for h in histories],
        "diverged": [h.diverged for h in histories],
        "steps": first.steps.tolist(),
        "curves": [[rounded(loss) for loss in h.test] for h in histories],
        "parameters": config.body_count(r.unit, r.match_mlp),
        "all_parameters": first.parameters,
        "tokens": tokens,
        "flops": config.token_flops(r.unit, r.match_mlp) * tokens,
        "throughput": rounded(first.throughput),
        "seconds": rounded(first.seconds[-1]),
        "together": first.together,
    }


def final_loss(losses: Array, diverged: int | None) -> float | None:
    """The last loss; None for a training that diverged."""
    if diverged is not None or not len(losses):
        return None
    return float(f"{losses[-1]:.7g}")


def training_rows(record: Record) -> list[dict[str, Any]]:
    """One row of `Ladder.trainings` for each learning rate and seed of a record."""
    run, m = run_of(record.run.arguments), record.metrics

    def number(value: float | None) -> float:
        return math.nan if value is None else float(value)

    losses = m.get("curves", m.get("course", [[]] * len(run.members)))  # "course" in older records
    common = {
        "unit": run.recipe.unit.name, "size": run.recipe.size, "d_model": run.config.d_model, "repeats": run.repeats,
        "part": run.part, "seconds": m["seconds"] / m["together"], "throughput": number(m["throughput"]),
        "device": record.device, **{name: m[name] for name in ("parameters", "tokens", "flops", "together")},
    }  # fmt: skip
    rows = []
    for i, member in enumerate(run.members):
        own = {"lr": member.lr, "seed": member.seed, "diverged": m["diverged"][i]}
        lowest = min((loss for loss in losses[i] if loss is not None), default=math.nan)
        rows.append({**common, **own, "loss": number(m["loss"][i]), "train": number(m["train"][i]), "lowest": lowest})
    return rows
