"""Recipes: the model, data and optimization of a training in plain values, which determine its bits on a CPU.

Values that the paper does not state, such as learning rates, are defaults per model and optimizer, never per unit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from gatelab.arrays import fingerprint
from gatelab.data.tokens import TOKENIZERS
from gatelab.display import one_line, shorten
from gatelab.errors import GatelabError, real_number, unknown_name, whole_number
from gatelab.feedforward import AnyUnit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.registry import describe, restore
from gatelab.models import DECODER_SIZES, GPT2_SIZES, MIXER_SIZES, VIT_SIZES


def learning_rate(recipe: Recipe, step: int) -> float:
    """The rate of the update after `step` updates: linear warm-up, then the recipe's schedule.

    >>> from gatelab.train import recipe as usual
    >>> r = usual("mixer", "glu", lr=1.0, steps=100, warmup=10)
    >>> [round(learning_rate(r, t), 3) for t in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    if step < recipe.warmup:
        return recipe.lr * (step + 1) / recipe.warmup
    if recipe.schedule == "constant":
        return recipe.lr
    share = (step - recipe.warmup) / (recipe.steps - recipe.warmup)
    return recipe.lr * (1 + math.cos(math.pi * share)) / 2


def evaluation_steps(recipe: Recipe) -> tuple[int, ...]:
    """The steps at which losses are measured: steps (i / n)^2, since losses change most at the start.

    >>> from gatelab.train import recipe as usual
    >>> evaluation_steps(usual("mixer", "glu", steps=100, evaluations=5))
    (0, 4, 16, 36, 64, 100)
    """
    n = recipe.evaluations
    return tuple(sorted({round(recipe.steps * (i / n) ** 2) for i in range(n + 1)}))


SIZES: Mapping[str, Any] = {"mixer": MIXER_SIZES, "vit": VIT_SIZES, "gpt2": GPT2_SIZES, "decoder": DECODER_SIZES}
TEXT_MODELS = ("gpt2", "decoder")
OPTIMIZERS, SCHEDULES, PRECISIONS = ("sgd", "adamw", "muon"), ("cosine", "constant"), ("auto", "float32", "bf16")
SAMPLINGS = ("anywhere", "epochs")
# The data of each model, the learning rate of SGD, and learning rate, weight decay and second beta of AdamW. Muon has
# those of AdamW, since its updates have the same size.
DEFAULTS = {
    "mixer": ("cifar10", 0.1, 1e-3, 0.01, 0.999),
    "vit": ("cifar10", 0.05, 1e-3, 0.01, 0.999),
    "gpt2": ("fineweb-edu", 0.1, 1e-3, 0.1, 0.95),
    "decoder": ("fineweb-edu", 0.1, 3e-3, 0.1, 0.95),
}


@dataclass(frozen=True)
class Recipe:
    """A `model` with a `unit`, its `data` and its optimization; `recipe` fills in default values.

    `optimizer` is "sgd" with `momentum`, "adamw" with `beta2`, or "muon", which is Muon for the matrices of the blocks
    and AdamW otherwise; `weight_decay` applies to matrices. The learning rate rises to `lr` over `warmup` steps, and
    then follows the `schedule`, "cosine" or "constant". `options` replace single values of the model's `size`. `batch`
    is the number of images or windows of text. Gradient norms are clipped to `clip`; `augment` crops and mirrors
    images. The `sampling` of text is "anywhere", or "epochs" for every token once per epoch. Losses are measured at
    `evaluations` + 1 steps, denser at the start, on at most `test_size` images or windows, and with an `average` above
    0 also for a moving average of the weights over about that share of the steps. The `precision` "auto" is bf16 on a
    GPU and float32 elsewhere. With `match_mlp`, units have the number of parameters of a plain layer.
    """

    model: str
    unit: AnyUnit
    data: str
    optimizer: str
    lr: float
    size: str = "small"
    options: tuple[tuple[str, int], ...] = ()
    steps: int = 2000
    batch: int = 128
    seed: int = 0
    schedule: str = "cosine"
    warmup: int = 100
    momentum: float = 0.9
    weight_decay: float = 0.0
    beta2: float = 0.999
    clip: float | None = 1.0
    augment: bool = True
    tokenizer: str = "gpt2"
    sampling: str = "anywhere"
    evaluations: int = 40
    test_size: int = 2000
    precision: str = "auto"
    match_mlp: bool = True
    average: float = 0.0

    def __repr__(self) -> str:
        how = f"{self.optimizer}, {self.steps} steps, seed {self.seed}"
        return one_line(self, f"{self.size} {self.model} with {self.unit.name} on {shorten(self.data)}: {how}")

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", as_unit(self.unit))
        options = {str(k): v.item() if isinstance(v, np.generic) else v for k, v in dict(self.options).items()}
        object.__setattr__(self, "options", tuple(sorted(options.items())))
        for name, value in list(vars(self).items()):
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())
        check_recipe(self)

    @property
    def is_text(self) -> bool:
        return self.model in TEXT_MODELS

    def with_seed(self, seed: int) -> Recipe:
        """The recipe with another seed."""
        return replace(self, seed=seed)

    def plain(self) -> dict[str, Any]:
        """The recipe in JSON's types.

        >>> third = recipe("mixer", "glu", "cifar10", seed=3)
        >>> Recipe.from_plain(third.plain()) == third
        True
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["optimiser"] = values.pop("optimizer")  # the spelling of all records, and of their keys
        if self.sampling == SAMPLINGS[0]:
            del values["sampling"]  # keys of recipes without this value stay the same
        if not self.average:
            del values["average"]
        return {**values, "unit": describe(self.unit), "options": dict(self.options)}

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> Recipe:
        """Read the recipe that `plain` wrote."""
        known = {f.name for f in fields(Recipe)}
        values = {"sampling": SAMPLINGS[0], "average": 0.0, **values}
        if "optimiser" in values:
            values["optimizer"] = values.pop("optimiser")
        if set(values) != known:
            raise GatelabError(f"a recipe has the values {', '.join(sorted(known))}, not {', '.join(sorted(values))}")
        unit = restore({**values["unit"], "source": None})  # records are read even if the unit has changed since
        return Recipe(**{**values, "unit": unit, "options": tuple(values["options"].items())})

    def key(self) -> str:
        """A hash of the recipe, twelve hexadecimal digits."""
        return fingerprint([json.dumps(self.plain(), sort_keys=True)], 12)


def recipe(
    model: str, unit: Any, data: str | None = None, *, optimizer: str = "adamw", lr: float | None = None, **others: Any
) -> Recipe:
    """A recipe with the default learning rate, weight decay and betas of its model and optimizer.

    Args:
        model: "mixer", "vit", "gpt2" or "decoder".
        unit: a name or another argument of `gl.unit`.
        data: the name of the data; by default "cifar10" for images and "fineweb-edu" for text.
        optimizer: "adamw", "sgd" or "muon".
        lr: the learning rate; None for the default of the model and optimizer.
        others: other values of a `Recipe`, by name.

    Returns:
        The recipe, every value checked.

    >>> recipe("vit", "reglu", optimizer="sgd").lr
    0.05
    >>> recipe("gpt2", "swiglu").weight_decay
    0.1
    """
    if model not in SIZES:
        raise unknown_name("model", model, SIZES)
    if optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", optimizer, OPTIMIZERS)
    usual_data, sgd_rate, *adamw = DEFAULTS[model]
    usual: dict[str, Any] = dict(zip(("lr", "weight_decay", "beta2"), adamw, strict=True))
    if optimizer == "sgd":
        usual = {"lr": sgd_rate}
    if lr is not None:
        usual["lr"] = lr
    options = others.pop("options", ())
    known = {f.name for f in fields(Recipe)}
    for name in others.keys() - known:
        raise unknown_name("value of a recipe", name, known)
    if "warmup" not in others and "steps" in others:
        others["warmup"] = min(100, whole_number("steps", others["steps"], 1) // 10)
    return Recipe(
        model, unit, data or usual_data, optimizer, options=tuple(dict(options).items()), **{**usual, **others}
    )


def check_recipe(r: Recipe) -> None:
    """Raise for unknown names and numbers out of range."""
    for kind, name, known in (
        ("model", r.model, SIZES),
        ("optimizer", r.optimizer, OPTIMIZERS),
        ("schedule", r.schedule, SCHEDULES),
        ("sampling", r.sampling, SAMPLINGS),
        ("precision", r.precision, PRECISIONS),
        ("tokenizer", r.tokenizer, TOKENIZERS),
    ):
        if name not in known:
            raise unknown_name(kind, str(name), known)
    if r.size not in SIZES[r.model]:
        raise unknown_name(f"size of the {r.model}", str(r.size), SIZES[r.model])
    for name, least in (("steps", 1), ("batch", 1), ("seed", 0), ("warmup", 0), ("evaluations", 1), ("test_size", 1)):
        whole_number(name, getattr(r, name), least)
    bounds = {"lr": {"above": 0}, "momentum": {"least": 0, "below": 1}, "weight_decay": {"least": 0}}
    bounds |= {"beta2": {"above": 0, "below": 1}, "average": {"least": 0, "most": 1}}
    if r.clip is not None:
        bounds["clip"] = {"above": 0}
    for name, ends in bounds.items():
        real_number(name, getattr(r, name), **ends)
    if r.warmup > r.steps:
        raise GatelabError(f"warmup is {r.warmup} steps of {r.steps}; give at most that number")
    if dict(r.options).get("dropout"):
        raise GatelabError("dropout uses torch's global generator, whose state checkpoints do not hold; leave it at 0")
