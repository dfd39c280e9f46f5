"""The training loop, for one model or for many seeds and learning rates at once, with checkpoints.

All random numbers are functions of the seed and the step, so a checkpoint consists of parameters, optimizer states, the
step and the measurements. On a CPU, a resumed training ends with the same bits as an uninterrupted one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gatelab.display import Listener, ProgressLike, reporting
from gatelab.errors import GatelabError
from gatelab.interrupts import held_back
from gatelab.memory import check_device
from gatelab.tensors import pack, write_packed
from gatelab.tensors import read as read_content
from gatelab.train.history import History
from gatelab.train.members import Data, Members, Source, build, check_members, data_fingerprint, data_of
from gatelab.train.optimizers import Optimizers, clip_members
from gatelab.train.recipes import Recipe, evaluation_steps, learning_rate

_MEASURES = ("train", "test", "running", "accuracy", "averaged")
_ROW = ("step", "seconds", "speed", *_MEASURES)
_ASKED = 25  # steps between two checks for divergence on a GPU, each of which synchronizes


class State:
    """The state of a training. Losses stay on the device until `measure`, to avoid synchronization."""

    def __init__(
        self, recipes: Sequence[Recipe], models: Sequence[nn.Module], source: Source, *, bf16: bool, compile: bool
    ) -> None:
        self.recipes, self.recipe, self.source = list(recipes), recipes[0], source
        self.parameters = sum(p.numel() for p in models[0].parameters())
        self.members = Members(models, source.device, bf16=bf16, compile=compile)
        self.optimizers = Optimizers(self.recipe, self.members.params)
        self.averages: dict[str, Tensor] = {}
        if self.recipe.average:
            self.averages = {name: p.detach().clone() for name, p in self.members.params.items()}
        self.step, self.finished = 0, False
        self.count = torch.zeros((), dtype=torch.int64, device=source.device)  # `step` on the device
        self.replay: Replay | None = None
        if compile and source.tokens is not None and source.device.type == "cuda" and self.recipe.optimizer != "sgd":
            self.replay = Replay(len(recipes), self.recipe.batch, source.device)
        # Beyond ten times the loss of a uniform guess a training counts as diverged.
        self.bound = 10 * math.log(max(2, source.outcomes))
        self.diverged = torch.full((len(recipes),), -1, dtype=torch.int64, device=source.device)
        self.running = torch.zeros(len(recipes), dtype=torch.float64, device=source.device)
        self.since = 0  # updates since the last measurement
        self.rows: list[dict[str, Any]] = []
        self._before = 0.0  # seconds of earlier processes
        self._began = time.perf_counter()
        self._mark, self._updates = self._began, 0  # the start of uninterrupted updates, and their number

    def advance(self) -> None:
        rates = [learning_rate(r, self.step) for r in self.recipes]
        if self.replay is None:
            self.update(*self.source.batch(self.step, [r.seed for r in self.recipes]), rates)
        else:
            self.replay.advance(self, rates)
        self.step += 1
        self.since += 1
        self._updates += 1

    def update(self, x: Tensor, y: Tensor, rates: Sequence[float | Tensor]) -> None:
        losses = self.members.losses(x, y)
        self.optimizers.zero_grad()
        losses.sum().backward()
        if self.recipe.clip is not None:
            clip_members(self.members.params.values(), self.recipe.clip)
        self.optimizers.step(rates)
        for name, average in self.averages.items():
            average.lerp_(self.members.params[name].detach(), min(1.0, 1 / (self.recipe.average * self.recipe.steps)))
        values = losses.detach().double()
        self.running += values
        self._note(~(values <= self.bound))
        self.count += 1

    def measure(self) -> None:
        """Add a row of losses, unless the last row is from this step."""
        if self.rows and self.rows[-1]["step"] == self.step:
            return
        if self.source.device.type == "cuda":
            torch.cuda.synchronize(self.source.device)
        now = time.perf_counter()
        trained, samples = now - self._mark, self.source.per_step * len(self.recipes)
        (train, _), (test, accuracy) = (self._loss(part) for part in ("train", "test"))
        self._note(~((train <= self.bound) & (test <= self.bound)))
        running = self.running / (self.since or math.nan)
        speed = (self._updates or math.nan) * samples / trained
        averaged = torch.full_like(test, torch.nan)
        if self.averages:
            latest, self.members.params = self.members.params, self.averages
            averaged, _ = self._loss("test")
            self.members.params = latest
        values = (value.double().cpu().numpy() for value in (train, test, running, accuracy, averaged))
        self.rows.append(dict(zip(_ROW, (self.step, self.clock(), speed, *values), strict=True)))
        self.running.zero_()
        self.since = 0
        self._mark, self._updates = time.perf_counter(), 0

    def _loss(self, part: str) -> tuple[Tensor, Tensor]:
        losses, rights, count = 0.0, 0.0, 0
        for x, y in self.source.batches(part):
            loss, right = self.members.measure(x, y)
            losses, rights, count = losses + loss.double() * len(x), rights + right.double() * len(x), count + len(x)
        assert isinstance(losses, Tensor) and isinstance(rights, Tensor)
        return losses / count, rights / count

    def _note(self, bad: Tensor) -> None:
        self.diverged.copy_(torch.where((self.diverged < 0) & bad, self.count, self.diverged))

    def clock(self) -> float:
        """Seconds of this training, including earlier processes."""
        return self._before + time.perf_counter() - self._began

    def speeds(self) -> list[float]:
        return [row["speed"] for row in self.rows if not math.isnan(row["speed"])]

    def tensors(self) -> dict[str, Tensor]:
        """Parameters, optimizer states and measurements by their names in a checkpoint."""
        tensors = {f"model.{name}": p for name, p in {**self.members.params, **self.members.buffers}.items()}
        tensors |= {f"average.{name}": p for name, p in self.averages.items()}
        for k, optimizer in enumerate(self.optimizers.parts):
            for i, state in optimizer.state_dict()["state"].items():
                tensors |= {f"optimiser.{k}.{i}.{key}": value for key, value in state.items() if value is not None}
        tensors |= {"diverged": self.diverged, "running": self.running}
        return tensors | {f"rows.{n}": torch.tensor(np.array([row[n] for row in self.rows], float)) for n in _ROW}

    def facts(self) -> dict[str, Any]:
        return {"step": self.step, "since": self.since, "finished": self.finished, "seconds": self.clock()}

    def load(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        with torch.no_grad():
            for name, p in {**self.members.params, **self.members.buffers}.items():
                p.copy_(tensors[f"model.{name}"])
            for name, p in self.averages.items():
                p.copy_(tensors[f"average.{name}"])
        states: list[dict[int, dict[str, Tensor]]] = [{} for _ in self.optimizers.parts]
        for name in (name for name in tensors if name.startswith("optimiser.")):
            _, k, number, key = name.split(".", 3)
            states[int(k)].setdefault(int(number), {})[key] = tensors[name]
        for optimizer, state in zip(self.optimizers.parts, states, strict=True):
            optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        self.diverged.copy_(tensors["diverged"])
        self.running.copy_(tensors["running"])
        absent = torch.full_like(tensors["rows.test"], torch.nan)  # in older checkpoints
        tensors = {"rows.averaged": absent, **tensors}
        columns = [tensors[f"rows.{name}"].numpy() for name in _ROW]
        self.rows = [dict(zip(_ROW, values, strict=True)) for values in zip(*columns, strict=True)]
        self.step, self.since, self.finished = facts["step"], facts["since"], facts["finished"]
        self.count.fill_(self.step)
        self._before, self._began = facts["seconds"], time.perf_counter()
        self._mark = self._began

    def history(self, member: int, recipe: Recipe) -> History:
        found, rows, speeds = int(self.diverged[member]), self.rows, self.speeds()
        diverged = None if found < 0 else found
        if diverged is not None:
            # The entry of the step at which it diverged is kept if its losses are within the bound.
            fine = [r["train"][member] <= self.bound and r["test"][member] <= self.bound for r in rows]
            rows = [
                r for r, ok in zip(rows, fine, strict=True) if r["step"] < diverged or (ok and r["step"] == diverged)
            ]
        return History(
            recipe=recipe,
            steps=np.array([row["step"] for row in rows], np.int64),
            **{name: np.array([row[name][member] for row in rows], float) for name in _MEASURES},
            lr=np.array([learning_rate(recipe, int(r["step"]) - 1) if r["step"] else 0.0 for r in rows], float),
            seconds=np.array([row["seconds"] for row in rows], float),
            throughput=float(np.median(speeds)) if speeds else math.nan,
            counted=self.source.counted,
            together=len(self.recipes),
            parameters=self.parameters,
            device=device_name(self.source.device),
            diverged=diverged,
        )


class Replay:
    """Updates on a GPU as a CUDA graph, since launching the kernels of a small model takes longer than computing them.

    The first updates run eagerly, which compiles the model and creates the optimizer's state. Then one is recorded, and
    replayed with positions in the text and learning rates that are copied to fixed buffers.
    """

    eager = 3  # updates before the recording

    def __init__(self, members: int, batch: int, device: torch.device) -> None:
        self.starts = torch.zeros(members, batch, dtype=torch.int64, device=device)
        self.rates = torch.zeros(members, dtype=torch.float32, device=device)
        self.stream = torch.cuda.Stream(device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.updates = 0

    def advance(self, state: State, rates: Sequence[float]) -> None:
        self.starts.copy_(state.source.all_starts(state.step, [r.seed for r in state.recipes]), non_blocking=True)
        self.rates.copy_(torch.tensor(rates), non_blocking=True)
        if self.graph is not None:
            self.graph.replay()
            return
        self.updates += 1
        self.stream.wait_stream(torch.cuda.current_stream(self.starts.device))
        with torch.cuda.stream(self.stream):
            self.update(state)
        torch.cuda.current_stream(self.starts.device).wait_stream(self.stream)
        if self.updates == self.eager:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.update(state)

    def update(self, state: State) -> None:
        state.update(*state.source.windows(self.starts), list(self.rates))


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return device.type


def train(recipe: Recipe, **how: Any) -> History:
    """Train the model of a recipe.

    Args:
        recipe: the model, its data and its optimization.
        how: the arguments of `train_many`.

    Returns:
        The losses during training.

    >>> from gatelab.data.text import TextData
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
    marks: Sequence[int] = (),
) -> tuple[History, ...]:
    """Train models whose recipes differ only in seed and learning rate, all together.

    Args:
        recipes: one or more, no two alike.
        folder: for checkpoints, written every `save_seconds`, at the end and at Ctrl-C; the same call resumes.
        data: None for the data that the recipe names.
        device: None for a GPU if there is one, else the CPU.
        progress: False for none, or a function of (done, total, text), the speed, that is called after every step.
        compile: use torch.compile, which is worthwhile for long runs on a GPU.
        save_seconds: the time between checkpoints.
        marks: further steps at which losses are measured.

    Returns:
        A history for each recipe.
    """
    recipes = list(recipes)
    if not recipes or any(replace(r, seed=0, lr=1) != replace(recipes[0], seed=0, lr=1) for r in recipes):
        raise GatelabError("recipes differ in more than seed and learning rate, or there are none; give one or more")
    if len({(r.seed, r.lr) for r in recipes}) < len(recipes):
        raise GatelabError(f"the seeds are {[r.seed for r in recipes]}; give each pair of seed and learning rate once")
    first = recipes[0]
    content = data_of(first, data)
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device is not None:
        place = check_device(device, torch.float32)
    check_members(first, content, len(recipes), place)
    models = [build(r, content) for r in recipes]
    source = Source(first, content, place, getattr(models[0].config, "context", 0))
    bf16 = first.precision == "bf16" or (first.precision == "auto" and place.type == "cuda")
    state = State(recipes, models, source, bf16=bf16, compile=compile)
    file, identity = None, {}
    if folder is not None:
        file = Path(folder) / CHECKPOINT
        identity = {"recipes": [r.plain() for r in recipes], "data": data_fingerprint(content)}
        saved = read_checkpoint(file)
        if saved is not None:
            check_same(file, saved[1], identity)
            state.load(*saved)
    with reporting(progress, "training") as report:
        run(state, file, identity, report, save_seconds, marks)
    return tuple(state.history(i, r) for i, r in enumerate(recipes))


def run(
    state: State,
    file: Path | None,
    identity: dict[str, Any],
    progress: Listener | None,
    seconds: float,
    further: Sequence[int] = (),
) -> None:
    """Run the remaining steps, with checkpoints in `file` every few seconds; `identity` is stored in them."""
    marks, total = {*evaluation_steps(state.recipe), *further}, state.recipe.steps

    def save() -> None:
        if file is not None:
            write_packed(file, pack(state.tensors(), _KIND, {"format": _FORMAT, **identity, **state.facts()}))

    if state.finished:
        return
    saved = state.clock()
    while True:
        with held_back() as interrupts:  # a checkpoint must not hold half an update
            if state.step in marks:
                state.measure()
            asked = state.source.device.type == "cpu" or state.step % _ASKED == 0
            if state.step == total or (asked and bool((state.diverged >= 0).all())):
                state.finished = True
                save()
                return
            state.advance()
            if progress:
                progress(state.step, total, "".join(f"{v:.0f} {state.source.counted}/s" for v in state.speeds()[-1:]))
            if interrupts or state.clock() - saved >= seconds:
                save()
                saved = state.clock()


def load_models(folder: str | Path, data: Data | None = None) -> tuple[nn.Module, ...]:
    """The models of the last checkpoint in a folder.

    Args:
        folder: of a training.
        data: needed if the recipe's data are not available by name.

    Returns:
        A model for each recipe.
    """
    path = Path(folder) / CHECKPOINT
    saved = read_checkpoint(path)
    if saved is None:
        raise GatelabError(f"there is no {path}; give the folder of a training")
    tensors, facts = saved
    recipes = [Recipe.from_plain(values) for values in facts["recipes"]]
    content = data_of(recipes[0], data)
    models = []
    for i, recipe in enumerate(recipes):
        model = build(recipe, content)
        try:
            model.load_state_dict({name: tensors[f"model.{name}"][i] for name in model.state_dict()})
        except RuntimeError:
            raise GatelabError(f"{path} has a model for other data; give its training data") from None
        models.append(model)
    return tuple(models)


CHECKPOINT = "checkpoint.safetensors"
_KIND, _FORMAT = "train", 2


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    if not path.exists():
        return None
    content = read_content(path, "delete it to start again", "pt")
    if content.kind != _KIND or content.facts.get("format") != _FORMAT:
        raise GatelabError(f"{path} is not a checkpoint of this version of gatelab; delete it to start again")
    return content.arrays, content.facts


def check_same(path: Path, facts: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise if a checkpoint belongs to other recipes or data."""
    if facts["recipes"] != wanted["recipes"]:
        pairs = zip(facts["recipes"], wanted["recipes"], strict=False)
        odd = sorted({k for a, b in pairs for k in a if a[k] != b.get(k)}) or ["seeds"]
        raise GatelabError(f"{path} holds another recipe (it differs in {', '.join(odd)}); give another folder")
    if facts["data"] != wanted["data"]:
        raise GatelabError(f"{path} is from other data, or split otherwise; give the same data or another folder")
