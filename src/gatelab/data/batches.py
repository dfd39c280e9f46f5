"""Batches as a function of the step, and augmentations of batches of images (N, C, H, W).

A resumed training gets the same batches. Each image is augmented independently, on the device of the images; random
numbers come from a generator and are moved there, so that a generator on the CPU gives the same augmentation on every
device. The ranges are the usual ones: crops after padding by 4, and erased rectangles of 2 to 33 % of the area in half
of the images (Zhong et al. 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Generator, Tensor

from gatelab.errors import whole_number

ORDER, AUGMENTATION, OFFSETS = 0, 1, 2


def stream(seed: int, *place: int) -> torch.Generator:
    """A generator for one place in a run; different seeds and places draw independent numbers."""
    values = [whole_number("the seed or step", value, 0) for value in (seed, *place)]
    state = np.random.SeedSequence(values).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))


def batch_rows(n: int, size: int, step: int, seed: int) -> Tensor:
    """The rows of the batch of that step: every epoch is a new permutation of all n rows, cut into batches.

    The last rows of an epoch, fewer than `size`, are left out.
    """
    size = whole_number("the batch size", size, 1, n, of="rows")
    epoch, place = divmod(step, n // size)
    return row_order(n, seed, epoch)[place * size : (place + 1) * size]


def consecutive_rows(n: int, size: int, step: int, seed: int) -> Tensor:
    """The rows of the batch of that step from the concatenated permutations of all epochs, without gaps.

    A batch may therefore extend over two or more epochs.
    """
    size = whole_number("the batch size", size, 1, of="rows")
    first = whole_number("step", step, 0) * size
    end = first + size
    epochs = range(first // n, (end - 1) // n + 1)
    return torch.cat([row_order(n, seed, epoch)[max(first - epoch * n, 0) : end - epoch * n] for epoch in epochs])


@lru_cache(maxsize=64)
def row_order(n: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(n, generator=stream(seed, ORDER, epoch))


TRIES = 10
Statistics = Sequence[float]
Augmentation = Callable[[Tensor, Statistics, Statistics, Generator], Tensor]


def normalized(images: Tensor, mean: Statistics, std: Statistics) -> Tensor:
    """Bytes, or numbers from 0 to 1, minus the mean of each channel, divided by its standard deviation."""
    values = images.float() / 255 if images.dtype == torch.uint8 else images
    return (values - per_channel(mean, values)) / per_channel(std, values)


def random_crop(images: Tensor, generator: Generator, padding: int = 4) -> Tensor:
    """Pad each image with zeros, then crop a random window of its old size."""
    n, _, height, width = images.shape
    corners = torch.randint(2 * padding + 1, (n, 2), generator=generator, device=generator.device).to(images.device)
    rows = corners[:, 0, None] + torch.arange(height, device=images.device)
    columns = corners[:, 1, None] + torch.arange(width, device=images.device)
    everyone = torch.arange(n, device=images.device)[:, None, None]
    padded = torch.nn.functional.pad(images, [padding] * 4).permute(0, 2, 3, 1)
    return padded[everyone, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def random_flip(images: Tensor, generator: Generator) -> Tensor:
    """Exchange left and right in half of the images."""
    flipped = half(generator, images)
    return torch.where(flipped[:, None, None, None], images.flip(-1), images)


def random_erasing(images: Tensor, generator: Generator) -> Tensor:
    """Fill a random rectangle with zeros, the mean color of normalized images, in half of the images."""
    n, _, height, width = images.shape
    top, left, h, w = boxes(n, height, width, generator).to(images.device).unbind(1)
    chosen = half(generator, images)
    rows, columns = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
    in_rows = (rows >= top[:, None]) & (rows < (top + h)[:, None])
    in_columns = (columns >= left[:, None]) & (columns < (left + w)[:, None])
    erased = (in_rows[:, :, None] & in_columns[:, None, :] & chosen[:, None, None])[:, None]
    return torch.where(erased, torch.zeros_like(images), images)


def crop_flip_erase(images: Tensor, mean: Statistics, std: Statistics, generator: Generator) -> Tensor:
    """The paper's augmentation of CIFAR-10."""
    moved = random_flip(random_crop(images, generator), generator)
    return random_erasing(normalized(moved, mean, std), generator)


def boxes(
    n: int,
    height: int,
    width: int,
    generator: Generator,
    scale: tuple[float, float] = (0.02, 0.33),
    ratio: tuple[float, float] = (0.3, 3.3),
) -> Tensor:
    """n rectangles (top, left, h, w) in an image: area uniform in `scale`, log h/w uniform in log `ratio`.

    Each is the first of ten draws that is smaller than the image in both directions; zeros if none is.
    """
    area, shape, y, x = torch.rand(4, n, TRIES, generator=generator, device=generator.device, dtype=torch.float64).cpu()
    area = height * width * (scale[0] + area * (scale[1] - scale[0]))
    shape = torch.exp(math.log(ratio[0]) + shape * math.log(ratio[1] / ratio[0]))
    h, w = torch.round(torch.sqrt(area * shape)), torch.round(torch.sqrt(area / shape))
    fits = (h >= 1) & (w >= 1) & (h < height) & (w < width)
    drawn = torch.stack([torch.floor(y * (height - h + 1)), torch.floor(x * (width - w + 1)), h, w], -1)
    first = fits.to(torch.uint8).argmax(1)
    chosen = drawn[torch.arange(n), first]
    return torch.where(fits.any(1)[:, None], chosen, torch.zeros_like(chosen)).long()


def per_channel(values: Statistics, like: Tensor) -> Tensor:
    """One number per channel as a tensor (C, 1, 1) like the images."""
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None, None]


def half(generator: Generator, images: Tensor) -> Tensor:
    """A random half of the images (N,), drawn on the generator's device and moved."""
    return (torch.rand(len(images), generator=generator, device=generator.device) < 0.5).to(images.device)
