"""A small GPT trained from scratch with GELU and with other functions in its place."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatelab.arrays import Array
from gatelab.data.text import TextData
from gatelab.feedforward import Activation, Unit
from gatelab.linearization import calibrate, find_published, linearize
from gatelab.models.layouts import blocks
from gatelab.models.replace import trace
from gatelab.statistics import LEVEL, t_interval
from gatelab.studies.linearize.transformer_ways import PUBLISHED, ModelPieces, first_below, named
from gatelab.train import History, recipe, train_many, trained

TRAINED = ("minimax 4", "minimax 8", "hermite 4", "mpcformer", "taylor 10", "identity")
LEARNING_RATE = 2e-3
Runs = dict[str, tuple[History, ...]]


@dataclass(frozen=True)
class Size:
    """How long and how wide the small GPT is trained."""

    steps: int = 250
    batch: int = 8
    context: int = 32
    d_model: int = 64
    width: int = 192
    seeds: int = 3
    test: int = 64

    def recipes(self, unit: Unit | str) -> list[Any]:
        """How a GPT of this size with that unit is trained, a recipe a seed."""
        options = {"context": self.context, "d_model": self.d_model, "width": self.width, "heads": 2}
        first = recipe(
            "gpt2", unit, "letters", size="tiny", options=options, steps=self.steps, batch=self.batch,
            lr=LEARNING_RATE, evaluations=12, test_size=self.test, tokenizer="bytes", precision="float32",
        )  # fmt: skip
        return [first.with_seed(seed) for seed in range(self.seeds)]


def train_plain(size: Size, data: TextData) -> tuple[tuple[History, ...], tuple[Any, ...]]:
    """The GPT with GELU, a history and a model for each seed."""
    with tempfile.TemporaryDirectory() as folder:
        histories = train_many(size.recipes("gelu"), data=data, folder=folder, device="cpu")
        return histories, trained(folder, data)


def train_with(name: str, function: Callable[[Tensor], Tensor], size: Size, data: TextData) -> tuple[History, ...]:
    """The same with another function in GELU's place, from the same weights on the same batches."""
    unit = Unit(activation=Activation(name, function, growth=None), name=name)
    return train_many(size.recipes(unit), data=data, device="cpu")


def training(
    size: Size, data: TextData, names: Sequence[str], tick: Callable[[], None]
) -> tuple[Runs, tuple[Any, ...]]:
    """Histories of GELU and of each other function, and the models with GELU.

    Polynomials serve the pre-activations that GELU's models end with: what is known before training is narrower.
    """
    histories, models = train_plain(size, data)
    tick()
    tokens, _ = data.batch(0, size.test, size.context)
    z = torch.cat([pre_activations(model, tokens) for model in models])
    runs: Runs = {"gelu": histories}
    for name in names:
        runs[name] = train_with(name, function_named(name, z), size, data)
        tick()
    return runs, models


def pre_activations(model: Any, tokens: Tensor) -> Tensor:
    """Those of all blocks, one after the other."""
    inputs = trace(model, lambda m: m(tokens)).inputs
    return torch.cat([b.before(x).flatten() for b, x in zip(blocks(model), inputs, strict=True)])


def function_named(name: str, z: Tensor) -> Callable[[Tensor], Tensor]:
    """What is trained in GELU's place; a polynomial is made for the pre-activations z."""
    if name == "identity":
        return torch.clone
    if name in PUBLISHED:
        return ModelPieces(find_published(name))
    method, degree = name.split()
    options: dict[str, Any] = {"minimax": {"interval": calibrate(z)}, "hermite": {"data": z}}.get(method, {})
    polynomial = linearize("gelu", method, degree=int(degree), **options).polynomial
    assert polynomial is not None
    return polynomial


def losses(histories: Sequence[History]) -> Array:
    """(seeds, entries): test losses; what came after a divergence is missing."""
    longest = max(len(h.test) for h in histories)
    return np.stack([np.pad(h.test, (0, longest - len(h.test)), constant_values=np.nan) for h in histories])


def curve_rows(runs: Mapping[str, Sequence[History]]) -> list[dict[str, Any]]:
    """Every loss that was measured."""
    return [
        {"activation": name, "seed": h.recipe.seed, "step": int(step), "train": float(train), "test": float(test)}
        for name, histories in runs.items()
        for h in histories
        for step, train, test in zip(h.steps, h.train, h.test, strict=True)
    ]


def training_rows(runs: Mapping[str, tuple[History, ...]]) -> list[dict[str, Any]]:
    """Ends of the curves: test loss, its distance to GELU of the same seed with an interval, and steps needed.

    The intervals hold together with 95% (Bonferroni): one of many functions is below GELU at random soon enough.
    `steps` is how long a function takes to the loss that GELU of the same seed has half-way, over that half.
    """
    plain, rows = losses(runs["gelu"]), []
    level = 1 - (1 - LEVEL) / (len(runs) - 1)
    grid = max((h.steps for h in runs["gelu"]), key=len).astype(float)
    half = grid[-1] / 2
    targets = [float(np.interp(half, grid, own)) for own in plain]
    for name, histories in runs.items():
        # A run that diverged has no end.
        ends = np.array([h.test[-1] if h.diverged is None else np.nan for h in histories])
        away = t_interval(ends - plain[:, -1], level)
        pairs = zip(losses(histories), targets, strict=True)
        times = [first_step(grid[: len(loss)], loss, target) / half for loss, target in pairs]
        rows.append(
            {
                "activation": name,
                "seeds": len(ends),
                "diverged": sum(h.diverged is not None for h in histories),
                "test loss": float(ends.mean()),
                **named("less gelu", away),
                "steps": float(np.mean(times)),
            }
        )
    return rows


def first_step(steps: Array, loss: Array, level: float) -> float:
    """The step, between two entries by a line, at which the loss first is at the level; infinite if never.

    >>> first_step(np.array([0.0, 10.0]), np.array([3.0, 1.0]), 2.0)
    5.0
    """
    i = first_below(loss, level)
    if i is None:
        return np.inf
    if i == 0:
        return float(steps[0])
    share = (loss[i - 1] - level) / (loss[i - 1] - loss[i])
    return float(steps[i - 1] + share * (steps[i] - steps[i - 1]))
