"""Models that differ only in seed and learning rate, stacked, and their data on the training device.

The gradient of the sum of the members' losses holds the gradient of each, and the optimizers act per entry or per
matrix: up to rounding, each member trains as it would alone, in much larger products.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from gatelab.arrays import Tokens, fingerprint
from gatelab.data.batches import stream
from gatelab.data.images import ImageData, image_data
from gatelab.data.text import TextData, text_data, windows
from gatelab.errors import GatelabError
from gatelab.memory import check_memory
from gatelab.models import GPT2, Decoder, Mixer, ViT
from gatelab.models.block import Attention, cross_entropy, named
from gatelab.train.recipes import SIZES, Recipe

Data = ImageData | TextData
PARTS = ("train", "test")
_MEASURED = 3  # the number of the random stream, different from those of `data.batches`
# Images and windows of tokens per pass of a measurement, which fit into memory during training.
_AT_ONCE = {"images": 500, "tokens": 32}


def data_of(recipe: Recipe, data: Data | None) -> Data:
    """The given data, or those that a recipe names; raises if the model takes another kind."""
    if data is None:
        data = text_data(recipe.data, recipe.tokenizer) if recipe.is_text else image_data(recipe.data)
    if recipe.is_text != isinstance(data, TextData):
        kind = "text" if isinstance(data, TextData) else "images"
        raise GatelabError(f"the model {recipe.model!r} does not take {kind}; give data of the other kind")
    return data


class Source:
    """Data for one training on its device, with windows of length `context` for text.

    The training loss of the gap is measured on the same fixed samples in every run, without augmentation, as many as
    there are test samples.
    """

    def __init__(self, recipe: Recipe, data: Data, device: torch.device, context: int) -> None:
        tokens, self.counted, self.per_step = None, "images", recipe.batch
        if isinstance(data, TextData):
            measured = {part: measured_windows(data, part, context, recipe.test_size) for part in PARTS}
            kind = np.uint8 if data.train.dtype == np.uint8 else np.int32
            tokens = torch.from_numpy(data.train.astype(kind)).to(device)
            self.outcomes, self.counted, self.per_step = data.vocabulary, "tokens", recipe.batch * context
        else:
            if recipe.batch > len(data.train):
                raise GatelabError(f"batch is {recipe.batch} of {len(data.train)} training images; give at most that")
            data = data.to(device)
            measured, self.outcomes = measured_images(data, recipe.test_size), len(data.classes)
        self.data, self.recipe, self.context, self.device, self.tokens = data, recipe, context, device, tokens
        self.measured = {part: (x.to(device), y.to(device)) for part, (x, y) in measured.items()}

    def batch(self, step: int, seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The batches of a step, stacked over seeds."""
        if isinstance(self.data, TextData):
            return self.windows(self.all_starts(step, seeds).to(self.device))
        augment = self.recipe.augment
        pairs = [self.data.batch(step, self.recipe.batch, seed=seed, augment=augment) for seed in seeds]
        x, y = (torch.stack(part) for part in zip(*pairs, strict=True))
        return x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)

    def all_starts(self, step: int, seeds: Sequence[int]) -> Tensor:
        """The first positions of the windows of a step, (seeds, batch)."""
        assert isinstance(self.data, TextData)
        starts = self.data.epoch_starts if self.recipe.sampling == "epochs" else self.data.starts
        return torch.stack([starts(step, self.recipe.batch, self.context, seed) for seed in seeds])

    def windows(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        """The windows at these positions, (..., context), and the next token of each entry."""
        assert self.tokens is not None
        wide = self.tokens[starts[..., None] + torch.arange(self.context + 1, device=self.device)].long()
        return wide[..., :-1], wide[..., 1:]

    def batches(self, part: str) -> Iterator[tuple[Tensor, Tensor]]:
        """The samples of a measurement, in batches."""
        size = _AT_ONCE[self.counted]
        for x, y in zip(*(tensor.split(size) for tensor in self.measured[part]), strict=True):
            yield (x if isinstance(self.data, TextData) else self.data.normalized(x)), y


def data_fingerprint(data: Data) -> str:
    """A hash of every part of the data, which a checkpoint stores."""
    if isinstance(data, TextData):
        parts = [part for part in (data.train, data.test, data.valid) if part is not None]
        names = [f"{len(part)} {token_fingerprint(part)} " for part in parts]
        return fingerprint([f"{data.vocabulary} ", *names], 16)
    return fingerprint((t.cpu().numpy() for part in (data.train, data.test) for t in (part.images, part.labels)), 16)


def token_fingerprint(*parts: Tokens) -> str:
    """The hash of tokens, independent of their integer type: they are hashed as uint16 if they fit."""
    pieces = (t[i : i + 2**22] for t in parts for i in range(0, len(t), 2**22))
    fitting = ((t, t.dtype.itemsize <= 2 or t.max() < 2**16) for t in pieces)
    return fingerprint((t.astype(np.uint16 if fits else np.uint32) for t, fits in fitting), 16)


def measured_images(data: ImageData, most: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Test images and the same number of training images, fixed for all runs."""
    count = min(most, len(data.test))
    rows = torch.randperm(len(data.train), generator=stream(0, _MEASURED))[:count].sort().values
    rows = rows.to(data.train.images.device)
    return {
        "train": (data.train.images[rows], data.train.labels[rows]),
        "test": (data.test.images[:count], data.test.labels[:count]),
    }


def measured_windows(data: TextData, part: str, context: int, most: int) -> tuple[Tensor, Tensor]:
    """Windows that do not overlap, spread over the whole part; the same number for both parts."""
    parts = {"train": data.train, "test": data.test}
    counts = {name: (len(tokens) - 1) // context for name, tokens in parts.items()}
    if min(counts.values()) < 1:
        raise GatelabError(
            f"{data.name} has {len(data.train)} training and {len(data.test)} test tokens, too few for a window of"
            f" {context} and the token after it; give a longer text or options context=..."
        )
    chosen = np.linspace(0, counts[part] - 1, min(most, *counts.values())).round().astype(np.int64) * context
    return windows(parts[part], torch.from_numpy(chosen), context)


def build(recipe: Recipe, data: Data) -> nn.Module:
    """The untrained model of a recipe, with the input and output sizes of the data."""
    kind = {"mixer": Mixer, "vit": ViT, "gpt2": GPT2, "decoder": Decoder}[recipe.model]
    return kind(recipe.size, recipe.unit, match_mlp=recipe.match_mlp, seed=recipe.seed, **model_options(recipe, data))


def check_members(recipe: Recipe, data: Data, count: int, device: torch.device) -> None:
    """Raise if memory is insufficient for models, copies, gradients and momenta, and for text logits."""
    config = config_of(recipe, data)
    parameters = config.parameter_count(recipe.unit, recipe.match_mlp)
    logits = 3 * recipe.batch * config.context * config.vocabulary if recipe.is_text else 0
    what = f"training {count} of {recipe.model} with {parameters} parameters"
    remedy = "give smaller sizes, a smaller batch or fewer seeds at once"
    check_memory(4 * count * (5 * parameters + logits), what, remedy, device)


def config_of(recipe: Recipe, data: Data | None = None) -> Any:
    """The sizes of the model of a recipe; for text with the default vocabulary without data."""
    return named(recipe.model, dict(SIZES[recipe.model]), recipe.size, model_options(recipe, data))


def model_options(recipe: Recipe, data: Data | None) -> dict[str, Any]:
    """The options of a model: sizes given by the data, and the options of the recipe."""
    options = dict(recipe.options)
    if data is None:
        return options
    if isinstance(data, TextData):
        return {"vocabulary": data.vocabulary, **options}
    _, channels, side, _ = data.train.images.shape
    size = SIZES[recipe.model][recipe.size]
    # The number of patches is that of the model's size, or as near as whole pixels allow.
    wanted = side * size.patch / size.image_size
    patch = min((p for p in range(1, side + 1) if side % p == 0), key=lambda p: abs(p - wanted))
    return {"image_size": side, "channels": channels, "classes": len(data.classes), "patch": patch, **options}


class Members:
    """Stacked parameters (members, ...) and the passes through all members at once.

    A decoder accepts stacked parameters; of other models, several members use vmap and a single one the plain module.
    """

    def __init__(self, models: Sequence[nn.Module], device: torch.device, *, bf16: bool, compile: bool) -> None:
        stacked, self.buffers = stack_module_state([m.to(device) for m in models])  # type: ignore[arg-type]
        self.params: dict[str, Tensor] = {name: p.detach().requires_grad_() for name, p in stacked.items()}
        self.count, self.device, self.bf16 = len(models), device, bf16
        self.skeleton = copy.deepcopy(models[0]).to("meta")
        self.skeleton.eval()  # as in training: recipes have no dropout
        for part in self.skeleton.modules():
            if isinstance(part, Attention):
                part.fused = self.count == 1
        self._losses: Callable[..., Tensor] = self._loss
        self.takes_stacks = isinstance(self.skeleton, Decoder)
        if isinstance(self.skeleton, Decoder):
            self.skeleton.train()  # for running means; measurements have no gradients and leave them as they are
            if compile:
                self.skeleton.compile_parts()
            return
        if self.count > 1:
            self._losses = vmap(self._loss)
        # The stacked pass is compiled as a whole, since torch silently skips compilation inside vmap. Shapes are
        # static: with dynamic shapes, compilation fails for a second model of another size.
        if compile:
            self._losses = torch.compile(self._losses, dynamic=False)

    def losses(self, x: Tensor, y: Tensor) -> Tensor:
        with self._precision():
            if self.takes_stacks:
                return functional_call(self.skeleton, {**self.params, **self.buffers}, (x, y))
            if self.count == 1:
                return self._losses(self._only(), x[0], y[0])[None]
            return self._losses(self.params, x, y)

    @torch.no_grad()
    def measure(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and accuracy of each member on one common batch."""

        def measured(params: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            logits = functional_call(self.skeleton, params, (x,))
            return cross_entropy(logits, y), (logits.argmax(-1) == y).float().mean()

        with self._precision():
            if self.takes_stacks:
                # Without compilation, which would take longer than the measurement for this batch size.
                with torch.compiler.set_stance("force_eager"):
                    state = {**self.params, **self.buffers}
                    logits = functional_call(self.skeleton, state, (x.expand(self.count, *x.shape),))
                losses = torch.stack([cross_entropy(each, y) for each in logits])
                return losses, (logits.argmax(-1) == y).flatten(1).float().mean(1)
            if self.count == 1:
                loss, right = measured(self._only(), x, y)
                return loss[None], right[None]
            return vmap(measured, in_dims=(0, None, None))(self.params, x, y)

    def _loss(self, params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(self.skeleton, params, (x,)), y)

    def _only(self) -> dict[str, Tensor]:
        return {name: p.squeeze(0) for name, p in self.params.items()}

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16)
