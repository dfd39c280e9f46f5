"""Data on the device where models are trained: batches by (seed, step), and fixed batches to measure losses on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.problems.batches import stream
from gatelab.problems.images import ImageData, image_data
from gatelab.problems.text import TextData, text_data
from gatelab.train.recipe import Recipe

Data = ImageData | TextData
PARTS = ("train", "test")
_MEASURED = 3  # the place in a seed's streams beside those of `problems.batches`
_AT_ONCE = {"images": 500, "windows": 32}  # measured in one pass: what fits beside the training of several members


def load(recipe: Recipe) -> Data:
    """The data that a recipe names."""
    if recipe.is_text:
        return text_data(recipe.data, recipe.tokenizer)
    return image_data(recipe.data)


def check_kind(recipe: Recipe, data: Data) -> Data:
    """Refuse text for a model of images, and images for one of text."""
    if recipe.is_text != isinstance(data, TextData):
        kind = "text" if isinstance(data, TextData) else "images"
        raise GatelabError(f"the model {recipe.model!r} does not take {kind}; give it data of its own kind")
    return data


@dataclass(frozen=True, eq=False)
class Source:
    """Data for one training. `counted` is what throughput counts: images, or tokens.

    Images go to the device once, as bytes, and batches are cut and augmented there. The training loss that the gap
    takes is measured on as many training samples as there are test samples (or all, if they are fewer), the same ones
    in every run, as they are: the loss of the running batches is of augmented images, and of parameters that have moved
    since, so that its difference to the test loss is not one of generalisation alone.
    """

    data: Data
    recipe: Recipe
    context: int
    measured: dict[str, tuple[Tensor, Tensor]]
    device: torch.device

    @staticmethod
    def of(recipe: Recipe, data: Data, device: torch.device, context: int) -> Source:
        if isinstance(data, TextData):
            measured = {part: _windows(data, part, context, recipe.test_size) for part in PARTS}
        else:
            if recipe.batch > len(data.train):
                raise GatelabError(f"batch is {recipe.batch} of {len(data.train)} training images; give no more")
            data = data.to(device)
            measured = _images(data, recipe.test_size)
        measured = {part: (x.to(device), y.to(device)) for part, (x, y) in measured.items()}
        return Source(data, recipe, context, measured, device)

    @property
    def counted(self) -> str:
        return "tokens" if self.recipe.is_text else "images"

    @property
    def per_step(self) -> int:
        return self.recipe.batch * (self.context if self.recipe.is_text else 1)

    @property
    def outcomes(self) -> int:
        """Classes, or tokens of the vocabulary: a guess among them has the loss log(outcomes)."""
        return self.data.vocabulary if isinstance(self.data, TextData) else len(self.data.classes)

    def batch(self, step: int, seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The batches of that step, one for each seed, stacked."""
        pairs = [self._one(step, seed) for seed in seeds]
        x, y = (torch.stack(part) for part in zip(*pairs, strict=True))
        return x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)

    def _one(self, step: int, seed: int) -> tuple[Tensor, Tensor]:
        if isinstance(self.data, TextData):
            return self.data.batch(step, self.recipe.batch, self.context, seed=seed)
        return self.data.batch(step, self.recipe.batch, seed=seed, augment=self.recipe.augment)

    def batches(self, part: str) -> Iterator[tuple[Tensor, Tensor]]:
        """What a loss is measured on, in parts."""
        size = _AT_ONCE["windows" if self.recipe.is_text else "images"]
        for x, y in zip(*(tensor.split(size) for tensor in self.measured[part]), strict=True):
            yield (x if isinstance(self.data, TextData) else self.data.normalised(x)), y


def fingerprint(data: Data) -> str:
    """What a checkpoint remembers of its data: their hash."""
    hashed = hashlib.sha256()
    if isinstance(data, TextData):
        for tokens in (data.train, data.test):
            hashed.update(np.ascontiguousarray(tokens).data)
    else:
        for part in (data.train, data.test):
            for tensor in (part.images, part.labels):
                hashed.update(tensor.cpu().contiguous().numpy().data)
    return hashed.hexdigest()[:16]


def _images(data: ImageData, most: int) -> dict[str, tuple[Tensor, Tensor]]:
    count = min(most, len(data.test))
    rows = torch.randperm(len(data.train), generator=stream(0, _MEASURED))[:count].sort().values
    rows = rows.to(data.train.images.device)
    return {
        "train": (data.train.images[rows], data.train.labels[rows]),
        "test": (data.test.images[:count], data.test.labels[:count]),
    }


def _windows(data: TextData, part: str, context: int, most: int) -> tuple[Tensor, Tensor]:
    """Windows that do not overlap, spread over the whole part, as many as the test part has."""
    tokens = data.train if part == "train" else data.test
    counts = [(len(t) - 1) // context for t in (data.train, data.test)]
    if min(counts) < 1:
        raise GatelabError(
            f"{data.name} has {len(data.train)} training and {len(data.test)} test tokens, too few for a window of"
            f" {context} and the token after it; give a longer text or options context=..."
        )
    here = (len(tokens) - 1) // context
    chosen = np.linspace(0, here - 1, min(most, *counts)).round().astype(np.int64) * context
    wide = torch.from_numpy(tokens[chosen[:, None] + np.arange(context + 1)].astype(np.int64))
    return wide[:, :-1], wide[:, 1:]
