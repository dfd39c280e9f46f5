"""Models that differ in their seed alone, as one: their parameters stacked, one pass for all of them.

A sum of the members' losses has the gradients of each, and both optimisers act entry by entry: trained together they
do what each would do alone, to rounding, in far larger matrix products.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from gatelab.memory import check_memory
from gatelab.models import GPT2, Mixer, ViT
from gatelab.models.block import Attention, cross_entropy, named
from gatelab.problems.images import ImageData
from gatelab.problems.text import TextData
from gatelab.train.recipe import SIZES, Recipe


def build(recipe: Recipe, data: ImageData | TextData) -> nn.Module:
    """The model of a recipe, before training, as large as its data ask for."""
    kind = {"mixer": Mixer, "vit": ViT, "gpt2": GPT2}[recipe.model]
    return kind(recipe.size, recipe.unit, match_mlp=recipe.match_mlp, seed=recipe.seed, **_options(recipe, data))


def check_members(recipe: Recipe, data: ImageData | TextData, count: int, device: torch.device) -> None:
    """Refuse so many members that would not fit, before one of them is built.

    Of each the model as it is built, its place in the stack, its gradient and two momenta; of text the logits too,
    with their softmax and gradient. What else the passes keep depends on the model, and is not counted.
    """
    config = named(recipe.model, dict(SIZES[recipe.model]), recipe.size, _options(recipe, data))
    parameters = config.parameter_count(recipe.unit, recipe.match_mlp)
    logits = 3 * recipe.batch * config.context * config.vocabulary if recipe.is_text else 0
    check_memory(
        4 * count * (5 * parameters + logits),
        f"training {count} of {recipe.model} with {parameters} parameters",
        "give smaller sizes, a smaller batch or fewer seeds at once",
        device,
    )


def _options(recipe: Recipe, data: ImageData | TextData) -> dict[str, Any]:
    return {**_shape(recipe, data), **dict(recipe.options)}


def _shape(recipe: Recipe, data: ImageData | TextData) -> dict[str, int]:
    if isinstance(data, TextData):
        return {"vocabulary": data.vocabulary}
    _, channels, side, _ = data.train.images.shape
    size = SIZES[recipe.model][recipe.size]
    # As many patches as the size has for its own images, or as near to that as whole pixels allow.
    wanted = side * size.patch / size.image_size
    patch = min((p for p in range(1, side + 1) if side % p == 0), key=lambda p: abs(p - wanted))
    return {"image_size": side, "channels": channels, "classes": len(data.classes), "patch": patch}


class Members:
    """Stacked parameters (members, ...) and the passes through all members at once.

    A single member goes through the plain module: what is said of one model does not hang on vmap.
    """

    def __init__(self, models: Sequence[nn.Module], device: torch.device, *, bf16: bool, compile: bool) -> None:
        stacked, _ = stack_module_state([m.to(device) for m in models])  # type: ignore[arg-type]
        self.params: dict[str, Tensor] = {name: p.detach().requires_grad_() for name, p in stacked.items()}
        self.count, self.device, self.bf16 = len(models), device, bf16
        self.skeleton = copy.deepcopy(models[0]).to("meta")
        self.skeleton.eval()  # as in training: a recipe has no dropout
        for part in self.skeleton.modules():
            if isinstance(part, Attention):
                part.fused = self.count == 1
        every: Callable[..., Tensor] = self._loss if self.count == 1 else vmap(self._loss)
        # The stacked pass as a whole: what is compiled inside of vmap would run as it is, and say nothing of it.
        # For these shapes alone: after a second model of another size torch would compile for sizes that it does not
        # know, of `forward` as a whole, and fail to infer them.
        self._losses: Callable[..., Tensor] = torch.compile(every, dynamic=False) if compile else every

    def losses(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of each member on its own batch: x (members, batch, ...), y alike."""
        with self._precision():
            if self.count == 1:
                return self._losses(self._only(), x[0], y[0])[None]
            return self._losses(self.params, x, y)

    @torch.no_grad()
    def measure(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and share of right answers of each member on one batch that all of them see."""

        def one(params: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            logits = functional_call(self.skeleton, params, (x,))
            return cross_entropy(logits, y), (logits.argmax(-1) == y).float().mean()

        with self._precision():
            if self.count == 1:
                loss, right = one(self._only(), x, y)
                return loss[None], right[None]
            return vmap(one, in_dims=(0, None, None))(self.params, x, y)

    def model(self, member: int, like: nn.Module) -> nn.Module:
        """The parameters of one member put into a model."""
        like.load_state_dict({name: p[member].detach().cpu() for name, p in self.params.items()})
        return like

    def _loss(self, params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(self.skeleton, params, (x,)), y)

    def _only(self) -> dict[str, Tensor]:
        return {name: p.squeeze(0) for name, p in self.params.items()}

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16)
