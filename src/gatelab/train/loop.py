"""Training: one loop for one model or for many seeds of it at once, which can be killed at any moment and goes on.

A step is: the batches of (seed, step), the members' losses, the sum's gradient, clipped member by member, the update.
Everything random is a function of the seed and the step, so that a checkpoint is parameters, momenta, the step and what
was measured so far; a training that goes on from one ends, on a CPU, with the very numbers of one that was left alone.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gatelab.display import ProgressLike, Told, reporting
from gatelab.errors import GatelabError
from gatelab.memory import check_device
from gatelab.train import checkpoint
from gatelab.train.history import History
from gatelab.train.members import build, check_members
from gatelab.train.recipe import Recipe
from gatelab.train.schedule import evaluation_steps
from gatelab.train.source import Data, Source, check_kind, fingerprint, load
from gatelab.train.state import State

# To know whether a loss is finite a GPU has to be waited for; there it is asked only so often.
_ASKED = 25


def train(recipe: Recipe, **how: Any) -> History:
    """Train the model of a recipe; `how` are the arguments of `train_many`.

    >>> from gatelab.problems.text import TextData
    >>> import numpy as np
    >>> from gatelab.train import recipe
    >>> counting = TextData("counting", *(np.arange(n, dtype=np.uint16) % 16 for n in (4000, 400)), 16)
    >>> short = recipe("gpt2", "swiglu", "counting", size="tiny", steps=60, batch=8, lr=3e-3, evaluations=4)
    >>> history = train(short, data=counting)
    >>> history.steps.tolist(), bool(history.test[-1] < 1 < history.test[0])
    ([0, 4, 15, 34, 60], True)
    """
    return train_many([recipe], **how)[0]


def train_many(
    recipes: Sequence[Recipe],
    *,
    folder: str | Path | None = None,
    data: Data | None = None,
    device: str | torch.device | None = None,
    progress: ProgressLike = None,
    compile: bool = False,
    save_seconds: float = 30.0,
) -> tuple[History, ...]:
    """Train models of recipes that differ in their seeds alone, all in one pass; a history for each.

    In `folder` the state is kept: every `save_seconds`, at the end and at Ctrl-C. The same call goes on from there, and
    returns at once if nothing is left to do. `data` are those of the recipe unless given; `device` a GPU if there is
    one. `progress` is shown on a terminal and in a notebook unless it is False, or a function of (done, total, text)
    that is called after every step, `text` being the speed once it is known. `compile` uses torch.compile, which pays
    for long runs on a GPU.
    """
    recipes = list(recipes)
    if not recipes or any(replace(r, seed=0) != replace(recipes[0], seed=0) for r in recipes):
        raise GatelabError("train_many takes one recipe or more that differ in their seeds alone")
    if len({r.seed for r in recipes}) < len(recipes):
        raise GatelabError(f"the seeds are {[r.seed for r in recipes]}; give each once, equal seeds are equal runs")
    first = recipes[0]
    given = check_kind(first, load(first) if data is None else data)
    where = _device(device)
    check_members(first, given, len(recipes), where)
    models = [build(r, given) for r in recipes]
    source = Source.of(first, given, where, getattr(models[0].config, "context", 0))
    state = State(recipes, models, source, bf16=_bf16(first, where), compile=compile)
    file = None if folder is None else Path(folder) / checkpoint.NAME
    identity = {} if file is None else {"recipes": [r.plain() for r in recipes], "data": fingerprint(given)}
    if file is not None and (found := checkpoint.read(file)) is not None:
        checkpoint.check_same(file, found[1], identity)
        state.load(*found)
    with reporting(progress, "training") as report:
        _run(state, file, identity, report, save_seconds)
    return state.histories()


def _run(state: State, file: Path | None, identity: dict[str, Any], progress: Told | None, seconds: float) -> None:
    marks, total = set(evaluation_steps(state.recipe)), state.recipe.steps

    def save() -> None:
        if file is not None:
            checkpoint.write(file, state.tensors(), {**identity, **state.facts()})

    if state.finished:
        return
    with _interrupts() as asked:
        saved = state.clock()
        while True:
            if state.step in marks:
                state.measure()
            if state.step == total or (_time_to_ask(state) and state.all_diverged()):
                state.finished = True
                save()
                return
            state.advance()
            if progress:
                progress(state.step, total, state.speed())
            if asked:
                save()
                raise KeyboardInterrupt
            if state.clock() - saved >= seconds:
                save()
                saved = state.clock()


def _time_to_ask(state: State) -> bool:
    return state.members.device.type == "cpu" or state.step % _ASKED == 0


def trained(folder: str | Path, data: Data | None = None) -> tuple[nn.Module, ...]:
    """The models that were trained in `folder`, as far as they had come when it was last written.

    `data` are needed where the recipe's own cannot be found by their name.
    """
    path = Path(folder) / checkpoint.NAME
    found = checkpoint.read(path)
    if found is None:
        raise GatelabError(f"there is no {path}; give the folder of a training")
    tensors, facts = found
    recipes = [Recipe.from_plain(values) for values in facts["recipes"]]
    given = check_kind(recipes[0], load(recipes[0]) if data is None else data)
    models = []
    for i, one in enumerate(recipes):
        model = build(one, given)
        model.load_state_dict({name: tensors[f"model.{name}"][i] for name in model.state_dict()})
        models.append(model)
    return tuple(models)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Ctrl-C waits until a step is whole, since half an update is no state to go on from; a second one does not."""
    asked: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield asked  # signals reach the main thread only; whoever has a handler of his own keeps it
        return

    def note(number: int, frame: Any) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _device(device: str | torch.device | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return check_device(device, torch.float32)


def _bf16(recipe: Recipe, device: torch.device) -> bool:
    return recipe.precision == "bf16" or (recipe.precision == "auto" and device.type == "cuda")
