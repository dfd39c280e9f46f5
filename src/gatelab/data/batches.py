"""Batches as a function of the step, and augmentations of batches of images (N, C, H, W).

A resumed training gets the same batches. Random numbers are drawn on the generator's device and moved, so that a
generator on the CPU gives the same augmentation on every device. The default ranges are those of Zhong et al. (2020)
for erased rectangles and of Szegedy et al. (2015) for resized crops; hues are not changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Generator, Tensor

from gatelab.errors import GatelabError, unknown_name, whole_number

ORDER, AUGMENTATION, OFFSETS = 0, 1, 2


def stream(seed: int, *place: int) -> torch.Generator:
    """A generator for one place in a run; different seeds and places draw independent numbers."""
    values = [whole_number("the seed or step", value, 0) for value in (seed, *place)]
    state = np.random.SeedSequence(values).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))


def batch_rows(n: int, size: int, step: int, seed: int) -> Tensor:
    """The rows of the batch of that step: every epoch is a new permutation of all n rows, cut into whole batches."""
    size = whole_number("the batch size", size, 1, n, of="rows")
    epoch, place = divmod(step, n // size)
    return row_order(n, seed, epoch)[place * size : (place + 1) * size]


def consecutive_rows(n: int, size: int, step: int, seed: int) -> Tensor:
    """The rows of the batch of that step from the concatenated permutations of all epochs, without gaps."""
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
    rows = corners[:, :1] + torch.arange(height, device=images.device)
    columns = corners[:, 1:] + torch.arange(width, device=images.device)
    everyone = torch.arange(n, device=images.device)[:, None, None]
    padded = torch.nn.functional.pad(images, [padding] * 4).permute(0, 2, 3, 1)
    return padded[everyone, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def random_flip(images: Tensor, generator: Generator, p: float = 0.5) -> Tensor:
    """Exchange left and right with probability p."""
    flipped = uniform(generator, len(images), images.device) < p
    return torch.where(flipped[:, None, None, None], images.flip(-1), images)


def random_erasing(images: Tensor, generator: Generator, p: float = 0.5, value: float = 0.0) -> Tensor:
    """Fill a random rectangle with `value`, the mean color of normalized images, with probability p."""
    n, _, height, width = images.shape
    box = boxes(n, height, width, generator, (0.02, 0.33), (0.3, 3.3), strict=True)
    top, left, h, w = box.to(images.device).unbind(1)
    chosen = uniform(generator, n, images.device) < p
    rows, columns = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
    in_rows = (rows >= top[:, None]) & (rows < (top + h)[:, None])
    in_columns = (columns >= left[:, None]) & (columns < (left + w)[:, None])
    erased = (in_rows[:, :, None] & in_columns[:, None, :] & chosen[:, None, None])[:, None]
    return torch.where(erased, images.new_full((), value), images)


def resized_crop(images: Tensor, generator: Generator, scale: tuple[float, float] = (0.08, 1.0)) -> Tensor:
    """A random rectangle of each image, resized to the old size; the whole image if none of ten draws fits."""
    n, _, height, width = images.shape
    box = boxes(n, height, width, generator, scale, (3 / 4, 4 / 3), strict=False).to(images.device)
    top, left, h, w = box.unbind(1)
    whole = h == 0
    h, w = torch.where(whole, height, h), torch.where(whole, width, w)
    rows, columns = bilinear(top, h, height, images), bilinear(left, w, width, images)
    return torch.einsum("nyi,ncij,nxj->ncyx", rows, images, columns)


def color_jitter(images: Tensor, generator: Generator, spans: Sequence[float] = (0.4, 0.4, 0.4)) -> Tensor:
    """Blend each image, from 0 to 1, with black, with its mean gray and with its gray image, in random order."""
    if images.shape[1] != 3:
        raise GatelabError(f"the images have {images.shape[1]} channels; colors need 3: red, green and blue")
    n = len(images)
    weights = 1 + torch.tensor(spans) * (2 * torch.rand(n, 3, generator=generator, device=generator.device).cpu() - 1)
    order = torch.rand(n, 3, generator=generator, device=generator.device).argsort(1).to(images.device)
    weights = weights.to(images)
    for k in range(3):
        kind = order[:, k, None, None, None]
        weight = weights.gather(1, order[:, k, None])[:, :, None, None]
        # The luminance of Rec. 601.
        gray = (images * per_channel((0.299, 0.587, 0.114), images)).sum(1, keepdim=True)
        other = torch.where(kind == 0, torch.zeros_like(gray), torch.where(kind == 1, gray.mean((2, 3), True), gray))
        images = (weight * images + (1 - weight) * other).clamp(0, 1)
    return images


def crop_flip_erase(images: Tensor, mean: Statistics, std: Statistics, generator: Generator) -> Tensor:
    """The paper's augmentation of CIFAR-10."""
    moved = random_flip(random_crop(images, generator), generator)
    return random_erasing(normalized(moved, mean, std), generator)


def crop_jitter_flip_erase(images: Tensor, mean: Statistics, std: Statistics, generator: Generator) -> Tensor:
    """The paper's augmentation of Tiny ImageNet."""
    colored = color_jitter(resized_crop(images.float() / 255, generator), generator)
    return random_erasing(normalized(random_flip(colored, generator), mean, std), generator)


AUGMENTATIONS: dict[str, Augmentation] = {
    "none": lambda images, mean, std, generator: normalized(images, mean, std),
    "crop-flip-erase": crop_flip_erase,
    "resized-crop-jitter-flip-erase": crop_jitter_flip_erase,
}


def augmentation(name: str) -> Augmentation:
    """The function (bytes, mean, deviation, generator) -> images of one of the paper's augmentations."""
    if name not in AUGMENTATIONS:
        raise unknown_name("augmentation", name, AUGMENTATIONS)
    return AUGMENTATIONS[name]


def boxes(
    n: int,
    height: int,
    width: int,
    generator: Generator,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    *,
    strict: bool,
) -> Tensor:
    """n rectangles (top, left, h, w) in an image: area uniform in `scale`, log h/w uniform in log `ratio`.

    Each is the first of ten draws that fits, smaller than the image in both directions if `strict`; zeros if none does.
    """
    area, shape, y, x = torch.rand(4, n, TRIES, generator=generator, device=generator.device, dtype=torch.float64).cpu()
    area = height * width * (scale[0] + area * (scale[1] - scale[0]))
    shape = torch.exp(math.log(ratio[0]) + shape * math.log(ratio[1] / ratio[0]))
    h, w = torch.round(torch.sqrt(area * shape)), torch.round(torch.sqrt(area / shape))
    most_h, most_w = height - strict, width - strict
    fits = (h >= 1) & (w >= 1) & (h <= most_h) & (w <= most_w)
    drawn = torch.stack([torch.floor(y * (height - h + 1)), torch.floor(x * (width - w + 1)), h, w], -1)
    first = fits.to(torch.uint8).argmax(1)
    chosen = drawn[torch.arange(n), first]
    return torch.where(fits.any(1)[:, None], chosen, torch.zeros_like(chosen)).long()


def bilinear(start: Tensor, length: Tensor, size: int, like: Tensor) -> Tensor:
    """(n, size, size): the weights of old pixels in new ones, when `length` pixels from `start` on become `size`.

    The centers of pixels are at halves; values are constant beyond the outermost centers of the window.
    """
    centers = (torch.arange(size, device=like.device, dtype=like.dtype) + 0.5) * (length.to(like.dtype) / size)[:, None]
    last = (length - 1).to(like.dtype)[:, None]
    places = torch.minimum((centers - 0.5).clamp(min=0), last) + start.to(like.dtype)[:, None]
    pixels = torch.arange(size, device=like.device, dtype=like.dtype)
    return (1 - (places[:, :, None] - pixels).abs()).clamp(min=0)


def per_channel(values: Statistics, like: Tensor) -> Tensor:
    """One number per channel as a tensor (C, 1, 1) like the images."""
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None, None]


def uniform(generator: Generator, n: int, device: torch.device) -> Tensor:
    """Uniform random numbers, drawn on the generator's device and moved."""
    return torch.rand(n, generator=generator, device=generator.device).to(device)
