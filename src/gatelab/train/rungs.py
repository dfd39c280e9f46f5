"""A rung of the ladder: one unit at one size, all its seeds and learning rates trained together, as a run of a sweep.

What a run is called with decides its numbers; where it computes does not, and reaches it by the environment variable
GATELAB_RUNGS: the folder of checkpoints, the device, whether to compile, and where to note how far it is. So a store
that was begun on one machine goes on on another, and a worker that is killed costs the steps since its last checkpoint,
GATELAB_SAVE_SECONDS (45) or less ago.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from gatelab.data.text import TextData, text_data
from gatelab.display import Listener, ProgressLike, one_line
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.registry import check_source
from gatelab.models import DecoderConfig, GPT2Config
from gatelab.models.block import named
from gatelab.sweep import Run, RunOutcome
from gatelab.train.history import History
from gatelab.train.loop import train_many
from gatelab.train.members import data_fingerprint, model_options
from gatelab.train.recipes import SIZES, Recipe

TASK = "gatelab.train.rungs:train_rung"
VARIABLE = "GATELAB_RUNGS"
SAVE_VARIABLE, SAVE_SECONDS = "GATELAB_SAVE_SECONDS", 45.0  # between two checkpoints
NOTE_SECONDS = 0.5  # between two notes of how far a rung is
PURPOSES = ("tune", "climb")
HERE = SimpleNamespace()  # units that only this process knows, such as those of a notebook, by name


@dataclass(frozen=True)
class Rung:
    """What is trained together: a recipe at several learning rates and seeds.

    Attributes:
        recipe: of all members; its own seed and learning rate do not count.
        lrs: the learning rates.
        seeds: the seeds; members that share one see the same batches.
        repeats: how often the text is read: with 20, a twentieth of it, twenty times.
        purpose: "tune" measures on the validation part of the text, "climb" on its test part.
    """

    recipe: Recipe
    lrs: tuple[float, ...]
    seeds: tuple[int, ...]
    repeats: int = 1
    purpose: str = "climb"

    def __post_init__(self) -> None:
        object.__setattr__(self, "recipe", replace(self.recipe, seed=0, lr=1.0))
        whole_number("repeats", self.repeats, 1)
        if self.purpose not in PURPOSES:
            raise GatelabError(f"the purpose of a rung is {self.purpose!r}; give {' or '.join(map(repr, PURPOSES))}")
        if not self.lrs or not self.seeds:
            raise GatelabError("a rung has one learning rate and one seed at least")
        _ = self.members  # which refuse what is no learning rate and no seed

    def __repr__(self) -> str:
        r = self.recipe
        text = f"{r.unit.name} at {r.size}, {len(self.lrs)} learning rates, {len(self.seeds)} seeds, {self.purpose}"
        return one_line(self, text)

    @property
    def config(self) -> DecoderConfig | GPT2Config:
        """The sizes of its model, before the data have said their vocabulary."""
        return named(self.recipe.model, dict(SIZES[self.recipe.model]), self.recipe.size, dict(self.recipe.options))

    @property
    def members(self) -> list[Recipe]:
        """A recipe for each learning rate and seed."""
        return [replace(self.recipe, lr=lr, seed=seed) for lr in self.lrs for seed in self.seeds]

    def run(self, text: str) -> Run:
        """The run of the sweep; `text` is the fingerprint of the data."""
        return Run(
            TASK,
            {
                "recipe": plain_here(self.recipe),
                "lrs": list(self.lrs),
                "seeds": list(self.seeds),
                "repeats": self.repeats,
                "purpose": self.purpose,
                "text": text,
            },
        )


def plain_here(recipe: Recipe) -> dict[str, Any]:
    """The recipe in plain values; a unit that cannot be imported is named by a place where this process finds it."""
    try:
        return recipe.plain()
    except GatelabError:
        place = recipe.unit.name.replace(".", " ")
        setattr(HERE, place, recipe.unit)
        described = {"name": recipe.unit.name, "import": f"{__name__}:HERE.{place}"}
        return {**replace(recipe, unit=as_unit("mlp")).plain(), "unit": described}


def read_text(source: str, tokenizer: str) -> TextData:
    """The text of a ladder, read once a process unless its file changes: 90 % to train on, 5 % to tune, 5 % to test."""
    file = Path(source).expanduser()
    stamp = None
    if file.is_file():
        stamp = file.stat().st_mtime_ns, file.stat().st_size
    return read_unchanged(source, tokenizer, stamp)


@lru_cache(maxsize=2)
def read_unchanged(source: str, tokenizer: str, stamp: tuple[int, int] | None) -> TextData:
    """The text of a ladder; the stamp is that of its file."""
    del stamp
    data = text_data(source, tokenizer)
    if data.valid is not None:
        return data
    half = len(data.test) // 2
    return replace(data, valid=data.test[:half], test=data.test[half:])


def rung_of(arguments: Mapping[str, Any]) -> Rung:
    """The rung that a run's arguments tell of."""
    lrs, seeds = tuple(arguments["lrs"]), tuple(arguments["seeds"])
    return Rung(Recipe.from_plain(arguments["recipe"]), lrs, seeds, arguments["repeats"], arguments["purpose"])


def part_of(data: TextData, repeats: int, purpose: str) -> TextData:
    """The text as a rung reads it."""
    if repeats > 1:
        data = data.first(1 / repeats)
    if purpose == "tune":
        return data.tuning()
    return data


@contextmanager
def computing(
    folder: str | Path | None, device: str | None, compile: bool | None, notes: str | Path | None = None
) -> Iterator[None]:
    """Tell this process and those that it begins where and how rungs are computed, and where notes of them go."""
    place, note = (None if path is None else str(Path(path).resolve()) for path in (folder, notes))
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = json.dumps({"folder": place, "device": device, "compile": compile, "notes": note})
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


def noting(path: Path) -> Listener:
    """What a training calls after every step: writes which share of the steps is done, twice a second at most."""
    last = -math.inf

    def note(done: int, total: int, *_: object) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= NOTE_SECONDS:
            last = now
            path.write_text(f"{done / total:.4f}", encoding="utf-8")

    return note


def noted(path: Path) -> float:
    """The share of a rung that is done, by its note; 0 where there is none, or where it is just being written."""
    try:
        return float(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0.0


def train_rung(
    recipe: Mapping[str, Any],
    lrs: Sequence[float],
    seeds: Sequence[int],
    repeats: int,
    purpose: str,
    text: str,
) -> RunOutcome:
    """Train all members of a rung; the metrics have a list entry a member, learning rates outermost.

    Args:
        recipe: as `Recipe.plain` has it.
        lrs: the learning rates.
        seeds: the seeds.
        repeats: how often the text is read.
        purpose: "tune" or "climb".
        text: the fingerprint of the data, which must be what is read here.

    Returns:
        Test losses in nats a token at the end and along the way, and what the training took.
    """
    check_source(recipe["unit"])
    rung = Rung(Recipe.from_plain(recipe), tuple(lrs), tuple(seeds), repeats, purpose)
    whole = read_text(rung.recipe.data, rung.recipe.tokenizer)
    if data_fingerprint(whole) != text:
        raise GatelabError(f"{rung.recipe.data} is not the text that this ladder was begun with; give that one again")
    settings = json.loads(os.environ.get(VARIABLE, "{}"))
    device, folder, compile = (settings.get(name) for name in ("device", "folder", "compile"))
    if compile is None:
        compile = torch.cuda.is_available() and device != "cpu"
    if folder is not None:
        folder = Path(folder) / rung.run(text).key
    progress: ProgressLike = False
    if settings.get("notes") is not None and Path(settings["notes"]).is_dir():  # another machine has no such folder
        progress = noting(Path(settings["notes"]) / rung.run(text).key)
    histories = train_many(
        rung.members,
        data=part_of(whole, repeats, purpose),
        folder=folder,
        device=device,
        compile=compile,
        save_seconds=float(os.environ.get(SAVE_VARIABLE, SAVE_SECONDS)),
        progress=progress,
    )
    if folder is not None:  # the record says it all, and states of a large model, half-written ones too, are gigabytes
        shutil.rmtree(folder, ignore_errors=True)
    return RunOutcome(rung_metrics(rung, histories, whole), device=histories[0].device)


def rung_metrics(rung: Rung, histories: Sequence[History], data: TextData) -> dict[str, Any]:
    """What a record of a rung has."""
    first = histories[0]
    config = named(
        rung.recipe.model, dict(SIZES[rung.recipe.model]), rung.recipe.size, model_options(rung.recipe, data)
    )
    tokens = rung.recipe.steps * rung.recipe.batch * config.context
    flops = config.token_flops(rung.recipe.unit, rung.recipe.match_mlp)
    return {
        "loss": [final(h.test, h.diverged) for h in histories],
        "train": [final(h.train, h.diverged) for h in histories],
        "diverged": [h.diverged for h in histories],
        "steps": first.steps.tolist(),
        "course": [rounded(h.test) for h in histories],
        "parameters": config.body_count(rung.recipe.unit, rung.recipe.match_mlp),
        "all_parameters": first.parameters,
        "tokens": tokens,
        "flops": flops * tokens,
        "throughput": rounded([first.throughput])[0],
        "seconds": rounded([first.seconds[-1]])[0],
        "together": first.together,
    }


def final(losses: np.ndarray, diverged: int | None) -> float | None:
    """The loss at the end; None of a training that diverged."""
    if diverged is not None or not len(losses):
        return None
    return float(f"{losses[-1]:.7g}")


def rounded(values: Sequence[float] | np.ndarray) -> list[float | None]:
    """Six digits are enough for a course; what is not a number is None."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values]
