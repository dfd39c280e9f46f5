"""The state of a training: parameters, momenta, the step, and what was measured so far."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gatelab.train import checkpoint
from gatelab.train.history import History
from gatelab.train.members import Members
from gatelab.train.recipe import Recipe
from gatelab.train.schedule import clip_members, learning_rate, optimiser
from gatelab.train.source import Source

_MEASURES = ("train", "test", "running", "accuracy")


def diverges_beyond(outcomes: int) -> float:
    """The loss beyond which a training has diverged: ten times that of a guess among so many outcomes.

    >>> round(diverges_beyond(10), 1)
    23.0
    """
    return 10 * math.log(max(2, outcomes))


class State:
    """All that `advance` changes. Losses stay on the device until they are measured: a GPU is not waited for."""

    def __init__(
        self, recipes: Sequence[Recipe], models: Sequence[nn.Module], source: Source, *, bf16: bool, compile: bool
    ) -> None:
        self.recipes, self.recipe, self.source = list(recipes), recipes[0], source
        self.parameters = sum(p.numel() for p in models[0].parameters())
        self.members = Members(models, source.device, bf16=bf16, compile=compile)
        self.optimiser = optimiser(self.recipe, self.members.params)
        self.step, self.finished = 0, False
        self.bound = diverges_beyond(source.outcomes)
        count = len(recipes)
        self.diverged = torch.full((count,), -1, dtype=torch.int64, device=source.device)
        self.running = torch.zeros(count, dtype=torch.float64, device=source.device)
        self.since = 0  # updates since losses were measured
        self.rows: list[dict[str, Any]] = []
        self._before = 0.0  # seconds of earlier processes
        self._began = time.perf_counter()
        self._mark, self._updates = self._began, 0  # where a stretch of updates alone began, and how many since

    def advance(self) -> None:
        """One update of every member."""
        rate = learning_rate(self.recipe, self.step)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        x, y = self.source.batch(self.step, [r.seed for r in self.recipes])
        losses = self.members.losses(x, y)
        self.optimiser.zero_grad(set_to_none=True)
        losses.sum().backward()
        if self.recipe.clip is not None:
            clip_members(self.members.params.values(), self.recipe.clip)
        self.optimiser.step()
        seen = losses.detach().double()
        self.running += seen
        self._note(~(seen <= self.bound))
        self.step += 1
        self.since += 1
        self._updates += 1

    def measure(self) -> None:
        """Add a row of losses, unless the last one is of this very step."""
        if self.rows and self.rows[-1]["step"] == self.step:
            return
        self._wait()
        now = time.perf_counter()
        trained, samples = now - self._mark, self.source.per_step * len(self.recipes)
        (train, _), (test, accuracy) = (self._loss(part) for part in ("train", "test"))
        self._note(~((train <= self.bound) & (test <= self.bound)))
        running = self.running / self.since if self.since else torch.full_like(self.running, torch.nan)
        values = (train, test, running, accuracy)
        self.rows.append(
            {
                "step": self.step,
                "lr": learning_rate(self.recipe, self.step - 1) if self.step else 0.0,
                "seconds": self.clock(),
                "speed": self._updates * samples / trained if self._updates else math.nan,
                **{name: value.double().cpu().numpy() for name, value in zip(_MEASURES, values, strict=True)},
            }
        )
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
        self.diverged = torch.where((self.diverged < 0) & bad, self.step, self.diverged)

    def all_diverged(self) -> bool:
        return bool((self.diverged >= 0).all())

    def _wait(self) -> None:
        if self.source.device.type == "cuda":
            torch.cuda.synchronize(self.source.device)

    def clock(self) -> float:
        """Seconds of this training, those of earlier processes included."""
        return self._before + time.perf_counter() - self._began

    def speed(self) -> str:
        """Images or tokens a second, of the last stretch that was measured."""
        speeds = [row["speed"] for row in self.rows if row["speed"] == row["speed"]]
        return f"{speeds[-1]:.0f} {self.source.counted}/s" if speeds else ""

    # ---- files

    def tensors(self) -> dict[str, Tensor]:
        made = {f"model.{name}": p for name, p in self.members.params.items()}
        made |= checkpoint.optimiser_tensors(self.optimiser)
        made |= {"diverged": self.diverged, "running": self.running}
        made |= {f"rows.{name}": torch.tensor(np.array([row[name] for row in self.rows])) for name in _MEASURES}
        plain = ("step", "lr", "seconds", "speed")
        made |= {f"rows.{n}": torch.tensor([row[n] for row in self.rows], dtype=torch.float64) for n in plain}
        return made

    def facts(self) -> dict[str, Any]:
        return {"step": self.step, "since": self.since, "finished": self.finished, "seconds": self.clock()}

    def load(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, p in self.members.params.items():
                p.copy_(tensors[f"model.{name}"])
        checkpoint.restore_optimiser(self.optimiser, tensors)
        self.diverged = tensors["diverged"].to(self.source.device)
        self.running = tensors["running"].to(self.source.device)
        names = ("step", "lr", "seconds", "speed", *_MEASURES)
        columns = [tensors[f"rows.{name}"].numpy() for name in names]
        self.rows = [
            {n: v if n in _MEASURES else float(v) for n, v in zip(names, values, strict=True)}
            for values in zip(*columns, strict=True)
        ]
        self.step, self.since, self.finished = facts["step"], facts["since"], facts["finished"]
        self._before, self._began = facts["seconds"], time.perf_counter()
        self._mark = self._began

    # ---- results

    def histories(self) -> tuple[History, ...]:
        return tuple(self._history(i, r) for i, r in enumerate(self.recipes))

    def _history(self, member: int, recipe: Recipe) -> History:
        at = int(self.diverged[member])
        # An entry of the very step at which a loss was found beyond the bound is that loss.
        kept = [
            row for row in self.rows if at < 0 or row["step"] < at or (row["step"] == at and self._fine(row, member))
        ]
        speeds = [row["speed"] for row in self.rows if row["speed"] == row["speed"]]
        return History(
            recipe=recipe,
            steps=np.array([row["step"] for row in kept], np.int64),
            **{name: np.array([row[name][member] for row in kept], float) for name in _MEASURES},
            lr=np.array([row["lr"] for row in kept], float),
            seconds=np.array([row["seconds"] for row in kept], float),
            throughput=float(np.median(speeds)) if speeds else math.nan,
            counted=self.source.counted,
            together=len(self.recipes),
            parameters=self.parameters,
            device=_device_name(self.source.device),
            diverged=None if at < 0 else at,
        )

    def _fine(self, row: Mapping[str, Any], member: int) -> bool:
        return bool(row["train"][member] <= self.bound and row["test"][member] <= self.bound)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
