"""A rung of the ladder: one unit at one size, all its seeds and learning rates trained together, as a run of a sweep.

What a run is called with decides its numbers; where it computes does not, and is no part of its key: the folder of
checkpoints, the device, and where to note how far it is travel with it as settings. So a store that was begun on one
machine goes on on another, several ladders climb in one process, and a worker that is killed costs the steps since its
last checkpoint, GATELAB_SAVE_SECONDS (45) or less ago.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from gatelab.data.text import TextData, is_checked, text_data
from gatelab.display import Listener, ProgressLike, one_line
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.registry import check_source
from gatelab.models import DecoderConfig, GPT2Config
from gatelab.models.block import named
from gatelab.sweep import Run, RunOutcome
from gatelab.train.history import History
from gatelab.train.loop import train_many
from gatelab.train.members import model_options, token_fingerprint
from gatelab.train.recipes import SIZES, Recipe

TASK = "gatelab.train.rungs:train_rung"
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
        # Recipes refuse what is no learning rate and no seed, and have numbers of their own in the place of numpy's.
        object.__setattr__(self, "lrs", tuple(dict.fromkeys(member.lr for member in self.members)))

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

    def run(self, text: str, settings: Mapping[str, Any] | None = None) -> Run:
        """The run of the sweep; `text` is as `text_fingerprint` gives it, and settings are those of `train_rung`."""
        joined, _, valid = text.partition("-")
        arguments: dict[str, Any] = {
            "recipe": plain_here(self.recipe),
            "lrs": list(self.lrs),
            "seeds": list(self.seeds),
            "repeats": self.repeats,
            "purpose": self.purpose,
            "text": joined,
        }
        if valid and self.purpose == "tune":
            arguments["valid"] = valid
        return Run(TASK, arguments, settings)


def plain_here(recipe: Recipe) -> dict[str, Any]:
    """The recipe in plain values; a unit that cannot be imported is named by a place where this process finds it."""
    try:
        return recipe.plain()
    except GatelabError:
        place = f"{recipe.unit.name.replace('.', ' ')} {id(recipe.unit)}"
        setattr(HERE, place, recipe.unit)
        described = {"name": recipe.unit.name, "import": f"{__name__}:HERE.{place}"}
        return {**replace(recipe, unit=as_unit("mlp")).plain(), "unit": described}


def read_text(source: str, tokenizer: str) -> TextData:
    """The text of a ladder, read once a process unless its file changes: 90 % to train on, 5 % to tune, 5 % to test."""
    file = Path(source).expanduser()
    stamp = None
    if file.is_file():
        facts = file.stat()  # the time of its last change, which no copying tool sets back
        stamp = facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size
    return read_unchanged(source, tokenizer, stamp)


@lru_cache(maxsize=2)
def read_unchanged(source: str, tokenizer: str, stamp: tuple[int, ...] | None) -> TextData:
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


def text_fingerprint(source: str, text: TextData) -> str:
    """What runs remember of a ladder's text: the hash of its training and test tokens, then "-" and that of the others.

    Parts are fixed shares of a text, so that the first hash says where one ends; it is all that a climb hangs on. A
    sweep is measured on the validation part. A text that is known by its own hash, such as enwik8, has but one: its
    sweeps have the keys that they always had.
    """
    joined = token_fingerprint(text.train, text.test)
    if text.valid is None or is_checked(source):
        return joined
    return f"{joined}-{token_fingerprint(text.valid)}"


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
    valid: str = "",
    *,
    folder: str | None = None,
    device: str | None = None,
    notes: str | None = None,
) -> RunOutcome:
    """Train all members of a rung; the metrics have a list entry a member, learning rates outermost.

    The first arguments are those of `Rung.run`: `text` and `valid`, which is empty in climbs and for texts that have
    but one such part, are fingerprints of what must be read here. Then come the settings: `folder` is of checkpoints,
    `device` None for a GPU if there is one, `notes` a folder for notes of how far rungs are.
    """
    check_source(recipe["unit"])
    rung = Rung(Recipe.from_plain(recipe), tuple(lrs), tuple(seeds), repeats, purpose)
    whole = read_text(rung.recipe.data, rung.recipe.tokenizer)
    joined, _, others = text_fingerprint(rung.recipe.data, whole).partition("-")
    if joined != text or (valid and others != valid):
        raise GatelabError(f"{rung.recipe.data} is not the text that this ladder was begun with; give that one again")
    key = rung.run(f"{text}-{valid}").key
    place = None if folder is None else Path(folder) / key
    progress: ProgressLike = False
    if notes is not None and Path(notes).is_dir():  # another machine has no such folder
        progress = noting(Path(notes) / key)
    histories = train_many(
        rung.members,
        data=part_of(whole, repeats, purpose),
        folder=place,
        device=device,
        compile=torch.cuda.is_available() and device != "cpu",
        save_seconds=float(os.environ.get(SAVE_VARIABLE, SAVE_SECONDS)),
        progress=progress,
    )
    if place is not None:  # the record says it all, and states of a large model, half-written ones too, are gigabytes
        shutil.rmtree(place, ignore_errors=True)
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
