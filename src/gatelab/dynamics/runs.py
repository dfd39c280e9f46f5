"""What a training of two-layer networks gives (`Training`), and the work of it.

The batch is cut into parts. Each goes through all its steps, with a look at the losses now and then, and its state is
kept on disk: one safetensors file a part, whole or not at all, found again by what it is of.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gatelab.arrays import AnyArray, Array, fingerprint
from gatelab.data.batches import ORDER, stream
from gatelab.display import Listener, counted, one_line
from gatelab.dynamics.networks import ModuleStack, Stack
from gatelab.dynamics.spectral import Loss, loss_scale
from gatelab.errors import GatelabError
from gatelab.feedforward import ModuleUnit, Unit
from gatelab.interrupts import on_threads, stop_if_asked
from gatelab.statistics import LEVEL, t_reach
from gatelab.tensors import pack, read, write_packed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CACHE = 2 << 20  # bytes of one array of neurons in a part: it and its like stay in a core's cache
CUDA = 2 << 30
EXPLODED = 1e6  # times the loss at the start: beyond it nothing comes back
BLOCK = 32  # steps between looks at losses and the clock
_KIND = "dynamics"

Member = tuple[float, int]  # a learning rate and a seed
Book = dict[str, Tensor]  # what a part writes down


@dataclass(frozen=True, eq=False)
class Training:
    """Losses of networks of one unit, a row a seed: `losses` is (seeds, recorded steps).

    `unit` is the name of the unit, `lrs` are the learning rates, `steps` the recorded ones, and `seconds` is how long
    the training took. With several learning rates it is (rates, seeds, recorded steps), and so is all else that has a
    row a seed. `test_losses` is None without test data. `diverged` is the step at which a network's loss was no longer
    finite, or a million times what it was at the start, and -1 where it never was; from there on its losses are
    infinite. `start` are the outputs before the first step, (seeds, n, outputs).
    """

    unit: str
    width: int
    lrs: tuple[float, ...]
    seeds: tuple[int, ...]
    steps: Array
    losses: Array
    test_losses: Array | None
    diverged: np.ndarray
    start: Array
    seconds: float

    def __repr__(self) -> str:
        return one_line(
            self,
            f"{self.unit}, width {self.width}: {counted(len(self.seeds), 'seed')}, {counted(len(self.lrs), 'rate')}, "
            f"{self.steps[-1]:.0f} steps",
        )

    @property
    def mean(self) -> Array:
        """The mean over the seeds, infinite where one diverged."""
        return self.losses.mean(axis=-2)

    def interval(self, level: float = LEVEL) -> tuple[Array, Array]:
        """The ends of the t-interval of the mean over the seeds, at every step; NaN for a single seed."""
        count = len(self.seeds)
        if count < 2:
            empty = np.full_like(self.mean, np.nan)
            return empty, empty
        with np.errstate(invalid="ignore"):
            reach = t_reach(level, count - 1) * self.losses.std(axis=-2, ddof=1) / count**0.5
        return self.mean - reach, self.mean + reach

    def at(self, lr: float) -> Training:
        """Of several learning rates the one nearest to `lr`."""
        if self.losses.ndim == 2:
            raise GatelabError("this training has one learning rate; its losses are `losses`")
        i = int(np.argmin(np.abs(np.log(np.array(self.lrs) / lr))))
        test = None if self.test_losses is None else self.test_losses[i]
        return replace(self, lrs=(self.lrs[i],), losses=self.losses[i], test_losses=test, diverged=self.diverged[i])

    def table(self) -> pd.DataFrame:
        """A row for every learning rate, seed and recorded step."""
        losses = self.losses.reshape(len(self.lrs), len(self.seeds), len(self.steps))
        index = pd.MultiIndex.from_product([self.lrs, self.seeds, self.steps], names=["lr", "seed", "step"])
        columns = {"loss": losses.ravel()}
        if self.test_losses is not None:
            columns["test_loss"] = self.test_losses.ravel()
        return pd.DataFrame(columns, index=index).reset_index()

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """The mean with its interval, a curve a rate; written to `path` or drawn into your own `ax` if given."""
        from gatelab.plotting import saved
        from gatelab.plotting.kernels import LossCurve, losses_figure

        parts = [self] if self.losses.ndim == 2 else [self.at(lr) for lr in self.lrs]
        curves = [LossCurve(f"lr {p.lrs[0]:.3g}", p.steps, p.mean, *p.interval()) for p in parts]
        title = f"{self.unit} of width {self.width}, {len(self.seeds)} seeds"
        return saved(losses_figure(curves, title, ax=ax), path)


def training_name(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """A name for a training: equal for equal settings and equal data, bit by bit."""
    parts: list[str | AnyArray] = [json.dumps(facts, sort_keys=True, default=str)]
    for name in sorted(tensors):
        value = tensors[name].detach().cpu()
        parts += [f"{name} {value.dtype} {tuple(value.shape)}", value.numpy()]
    return fingerprint(parts, 20)


class Checkpoint:
    """The file of one part of a training, written when `every` seconds have passed since the last time."""

    def __init__(self, folder: Path, name: str, part: int, every: float) -> None:
        self.path = folder / f"{name}-{part}.safetensors"
        self.every, self.saved = every, time.monotonic()

    def load(self) -> tuple[int, dict[str, Tensor]] | None:
        """The step and the state as of then, or None where nothing was saved."""
        if not self.path.is_file():
            return None
        content = read(self.path, "remove it", "pt")
        if content.kind != _KIND:
            raise GatelabError(f"{self.path} is no checkpoint of a training; remove it")
        return content.facts["step"], content.arrays

    def due(self) -> bool:
        """Whether it is time to save."""
        return time.monotonic() - self.saved >= self.every

    def save(self, step: int, state: Mapping[str, Tensor]) -> None:
        """Write the state as of a step."""
        write_packed(self.path, pack(state, _KIND, {"step": step, "torch": torch.__version__}))
        self.saved = time.monotonic()


class Networks(Protocol):
    """Networks that are trained together: a `Stack`, or a `ModuleStack` for a user's class."""

    def state(self) -> dict[str, Tensor]: ...
    def load(self, state: dict[str, Tensor]) -> None: ...
    def stop(self, which: Tensor) -> None: ...
    def outputs(self, X: Tensor) -> Tensor: ...
    def step(self, X: Tensor, Y: Tensor, weight: float) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Job:
    """What is to be trained, checked: Y is (k, n), and a member is a learning rate and a seed."""

    unit: Unit | ModuleUnit
    width: int
    X: Tensor
    Y: Tensor
    test: tuple[Tensor, Tensor] | None
    members: tuple[Member, ...]
    steps: int
    record: tuple[int, ...]
    batch_size: int | None
    loss: Loss
    fan_in: int

    @property
    def scale(self) -> float:
        """What the loss is times (1/2)|f - y|^2."""
        return loss_scale(self.loss, len(self.X))

    def parts(self) -> list[tuple[Member, ...]]:
        """Members that are trained together; cut by size alone, so that the bits of a result are."""
        each = self.width * (self.batch_size or len(self.X)) * self.X.element_size()
        size = max(1, {"cpu": CACHE}.get(self.X.device.type, CUDA) // each)
        return [self.members[i : i + size] for i in range(0, len(self.members), size)]

    def networks(self, part: Sequence[Member]) -> Networks:
        """The networks of some members before their first step."""
        lr = torch.tensor([rate for rate, _ in part], dtype=self.X.dtype)
        seeds = [seed for _, seed in part]
        d, k = self.X.shape[1], len(self.Y)
        how: dict[str, Any] = {"dtype": self.X.dtype, "device": self.X.device}
        if isinstance(self.unit, ModuleUnit):
            return ModuleStack(self.unit, self.width, d, k, seeds, lr, **how)
        return Stack.drawn(self.unit, self.width, d, k, seeds, lr, fan_in=self.fan_in, **how)


class Meter:
    """Progress of all parts together, told from any thread."""

    def __init__(self, progress: Listener | None, total: int) -> None:
        self.progress, self.total, self.steps = progress, total, 0
        self._lock = threading.Lock()

    def __call__(self, steps: int) -> None:
        with self._lock:
            self.steps += steps
            if self.progress:
                self.progress(self.steps, self.total)


def run_parts(
    job: Job, parts: Sequence[Sequence[Member]], files: Sequence[Checkpoint | None], progress: Listener | None
) -> list[Book]:
    """What every part wrote down. One thread of torch computes each, even a single one: so bits agree."""
    meter = Meter(progress, job.steps * len(parts))
    work = [TrainingPart(job, part, file, meter) for part, file in zip(parts, files, strict=True)]
    if job.X.device.type != "cpu":
        return [part.run() for part in work]
    return list(on_threads(TrainingPart.run, work, min(torch.get_num_threads(), len(parts))))


class TrainingPart:
    """Some members from their first step, or their checkpoint, to the last."""

    def __init__(self, job: Job, members: Sequence[Member], file: Checkpoint | None, meter: Meter) -> None:
        self.job, self.members, self.file, self.meter = job, members, file, meter
        self.places = {step: place for place, step in enumerate(job.record)}
        self.orders: tuple[int, Tensor] | None = None

    @torch.no_grad()
    def run(self) -> Book:
        """`losses` and `test` (recorded steps, members), `diverged` (members,) and `start` (members, k, n)."""
        job, file = self.job, self.file
        saved = None
        if file is not None:
            saved = file.load()
        step, state = saved or (0, {})
        if step == job.steps:
            self.meter(step)
            return state
        self.nets = job.networks(self.members)
        self.book = {k: v for k, v in state.items() if not k.startswith("net.")} or self._blank()
        if saved:
            self.nets.load({k.removeprefix("net."): v for k, v in state.items() if k.startswith("net.")})
            self.nets.stop(self._diverged())
            self.meter(step)
        while step < job.steps:
            end = min(job.steps, step + BLOCK)
            self._look(step, torch.stack([self._step(t) for t in range(step, end)]))
            self.meter(end - step)
            step = end
            if file is not None and step < job.steps and file.due():
                file.save(step, self.book | {f"net.{k}": v for k, v in self.nets.state().items()})
        return self._finished()

    def _blank(self) -> Book:
        start = self.nets.outputs(self.job.X)
        shape = len(self.job.record), len(self.members)
        book = {
            "start": start.cpu().clone(),
            "losses": torch.full(shape, torch.nan, dtype=start.dtype),
            "diverged": torch.full((shape[1],), -1, dtype=torch.int64),
            "limit": EXPLODED * torch.maximum(self._losses(start, self.job.Y), self._losses(0 * start, self.job.Y)),
        }
        if self.job.test is not None:
            book["test"] = torch.full(shape, torch.nan, dtype=start.dtype)
        return book

    def _losses(self, outputs: Tensor, Y: Tensor) -> Tensor:
        scale = loss_scale(self.job.loss, Y.shape[1])
        return (outputs - Y).square().sum((1, 2)).mul_(0.5 * scale).cpu()

    def _step(self, t: int) -> Tensor:
        """One step; the losses that it saw, which with batches are those of the batches."""
        stop_if_asked()
        job = self.job
        if job.batch_size is None:
            self._record_test(t)
            losses = self.nets.step(job.X, job.Y, job.scale)
            if t in self.places:
                self.book["losses"][self.places[t]] = losses.cpu()
            return losses
        self._record(t)
        rows = self._rows(t, job.batch_size)
        return self.nets.step(job.X[rows], job.Y[:, rows].transpose(0, 1), job.scale * len(job.X) / job.batch_size)

    def _rows(self, t: int, size: int) -> Tensor:
        """The rows of every member's batch: those of `data.batches.batch_rows`, an epoch for all at a time."""
        n = len(self.job.X)
        epoch, place = divmod(t, n // size)
        if self.orders is None or self.orders[0] != epoch:
            orders = [torch.randperm(n, generator=stream(seed, ORDER, epoch)) for _, seed in self.members]
            self.orders = epoch, torch.stack(orders).to(self.job.X.device)
        return self.orders[1][:, place * size : (place + 1) * size]

    def _record(self, t: int) -> None:
        if t in self.places:
            self.book["losses"][self.places[t]] = self._losses(self.nets.outputs(self.job.X), self.job.Y)
            self._record_test(t)

    def _record_test(self, t: int) -> None:
        if self.job.test is not None and t in self.places:
            X, Y = self.job.test
            self.book["test"][self.places[t]] = self._losses(self.nets.outputs(X), Y)

    def _diverged(self) -> Tensor:
        return (self.book["diverged"] >= 0).to(self.job.X.device)

    def _look(self, step: int, losses: Tensor) -> None:
        """Find members that diverged in the steps from `step` on, write down where, and stop them."""
        bad = ~(losses.cpu() <= self.book["limit"])
        fresh = bad.any(0) & (self.book["diverged"] < 0)
        if fresh.any():
            self.book["diverged"][fresh] = step + bad.int().argmax(0)[fresh]
            self.nets.stop(self._diverged())

    def _finished(self) -> Book:
        job, book = self.job, self.book
        self._look(job.steps, self._losses(self.nets.outputs(job.X), job.Y)[None])
        self._record(job.steps)
        recorded = torch.tensor(job.record)[:, None]
        late = (book["diverged"] >= 0) & (recorded >= book["diverged"])
        for name in {"losses", "test"} & book.keys():
            book[name][late] = torch.inf
        if self.file is not None:
            self.file.save(job.steps, book)
        return book
