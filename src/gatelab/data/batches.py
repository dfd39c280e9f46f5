"""Batches as a function of the step, and augmentations of whole batches of images (N, C, H, W).

Training that was cut off goes on with the very batches that it would have had. Each image of a batch is augmented by
draws of its own. Everything is tensor arithmetic on the device of the images. Draws come from a generator and are moved
there, so that a generator on the CPU gives the same augmentation on every device. The formulas and default ranges are
the usual ones: crops after padding by 4; erased rectangles of 2 to 33 % of the area in half of the images (Zhong et al.
2020); resized crops of 8 to 100 % of the area (Szegedy et al. 2015); brightness, contrast and saturation changed by up
to 40 %, in an order drawn for each image. Hues are left alone.
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
    """A generator for one place of a run; equal seeds and places draw equal numbers, all others unrelated ones."""
    values = [whole_number("the seed or step", value, 0) for value in (seed, *place)]
    state = np.random.SeedSequence(values).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))


def batch_rows(n: int, size: int, step: int, seed: int) -> Tensor:
    """Which of n rows make the batch of that step: every epoch is a new order of all rows, cut into batches.

    What is left over at the end of an epoch, fewer than `size`, is in other batches of the next.
    """
    size = whole_number("the batch size", size, 1, n, of="rows")
    epoch, place = divmod(step, n // size)
    return row_order(n, seed, epoch)[place * size : (place + 1) * size]


def consecutive_rows(n: int, size: int, step: int, seed: int) -> Tensor:
    """Which of n rows make the batch of that step, where none is left out: the orders of all epochs, one after another.

    A batch begins where the one before it ended, so that it may lie across epochs, or hold several where n is small.
    """
    size = whole_number("the batch size", size, 1, of="rows")
    first = whole_number("step", step, 0) * size
    end = first + size
    epochs = range(first // n, (end - 1) // n + 1)
    return torch.cat([row_order(n, seed, epoch)[max(first - epoch * n, 0) : end - epoch * n] for epoch in epochs])


@lru_cache(maxsize=64)
def row_order(n: int, seed: int, epoch: int) -> Tensor:
    """The order of the rows in an epoch."""
    return torch.randperm(n, generator=stream(seed, ORDER, epoch))


TRIES = 10
Statistics = Sequence[float]
Augmentation = Callable[[Tensor, Statistics, Statistics, Generator], Tensor]


def normalised(images: Tensor, mean: Statistics, std: Statistics) -> Tensor:
    """Bytes, or numbers from 0 to 1, less the mean of each channel and over its deviation."""
    values = images.float() / 255 if images.dtype == torch.uint8 else images
    return (values - per_channel(mean, values)) / per_channel(std, values)


def random_crop(images: Tensor, generator: Generator, padding: int = 4) -> Tensor:
    """Zeros around each image, then a window of its old size anywhere."""
    n, _, height, width = images.shape
    corners = torch.randint(2 * padding + 1, (n, 2), generator=generator, device=generator.device).to(images.device)
    corners = corners - padding
    rows, r = window(corners[:, 0], height)
    columns, c = window(corners[:, 1], width)
    everyone = torch.arange(n, device=images.device)[:, None, None]
    moved = images.permute(0, 2, 3, 1)[everyone, rows[:, :, None], columns[:, None, :]]
    inside = r[:, :, None, None] & c[:, None, :, None]
    return torch.where(inside, moved, moved.new_zeros(())).permute(0, 3, 1, 2).contiguous()


def random_flip(images: Tensor, generator: Generator, p: float = 0.5) -> Tensor:
    """Left and right exchanged in a share p of the images."""
    flipped = uniform(generator, len(images), images.device) < p
    return torch.where(flipped[:, None, None, None], images.flip(-1), images)


def random_erasing(images: Tensor, generator: Generator, p: float = 0.5, value: float = 0.0) -> Tensor:
    """A rectangle of `value` in a share p of the images: the mean colour where they are normalised."""
    n, _, height, width = images.shape
    top, left, h, w = (
        boxes(n, height, width, generator, (0.02, 0.33), (0.3, 3.3), strict=True).to(images.device).unbind(1)
    )
    chosen = uniform(generator, n, images.device) < p
    rows, columns = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
    in_rows = (rows >= top[:, None]) & (rows < (top + h)[:, None])
    in_columns = (columns >= left[:, None]) & (columns < (left + w)[:, None])
    erased = (in_rows[:, :, None] & in_columns[:, None, :] & chosen[:, None, None])[:, None]
    return torch.where(erased, images.new_full((), value), images)


def resized_crop(images: Tensor, generator: Generator, scale: tuple[float, float] = (0.08, 1.0)) -> Tensor:
    """A rectangle of each image, stretched to the old size by bilinear interpolation.

    Where none of ten draws fits, the whole image stays.
    """
    n, _, height, width = images.shape
    box = boxes(n, height, width, generator, scale, (3 / 4, 4 / 3), strict=False).to(images.device)
    top, left, h, w = box.unbind(1)
    whole = h == 0
    h, w = torch.where(whole, height, h), torch.where(whole, width, w)
    rows, columns = bilinear(top, h, height, images), bilinear(left, w, width, images)
    return torch.einsum("nyi,ncij,nxj->ncyx", rows, images, columns)


def colour_jitter(images: Tensor, generator: Generator, spans: Sequence[float] = (0.4, 0.4, 0.4)) -> Tensor:
    """Each image, from 0 to 1, blended with black, with its mean grey and with its own grey, in an order of its own.

    The weights are drawn within the spans of 1; after each step values are held between 0 and 1.
    """
    if images.shape[1] != 3:
        raise GatelabError(f"the images have {images.shape[1]} channels; colours need 3: red, green and blue")
    n = len(images)
    weights = 1 + torch.tensor(spans) * (2 * torch.rand(n, 3, generator=generator, device=generator.device).cpu() - 1)
    order = torch.rand(n, 3, generator=generator, device=generator.device).argsort(1).to(images.device)
    weights = weights.to(images)
    for k in range(3):
        kind = order[:, k, None, None, None]
        weight = weights.gather(1, order[:, k, None])[:, :, None, None]
        # The luminance of Rec. 601.
        grey = (images * per_channel((0.299, 0.587, 0.114), images)).sum(1, keepdim=True)
        other = torch.where(kind == 0, torch.zeros_like(grey), torch.where(kind == 1, grey.mean((2, 3), True), grey))
        images = (weight * images + (1 - weight) * other).clamp(0, 1)
    return images


def crop_flip_erase(images: Tensor, mean: Statistics, std: Statistics, generator: Generator) -> Tensor:
    """What the paper does to CIFAR-10."""
    moved = random_flip(random_crop(images, generator), generator)
    return random_erasing(normalised(moved, mean, std), generator)


def crop_jitter_flip_erase(images: Tensor, mean: Statistics, std: Statistics, generator: Generator) -> Tensor:
    """What the paper does to Tiny ImageNet."""
    coloured = colour_jitter(resized_crop(images.float() / 255, generator), generator)
    return random_erasing(normalised(random_flip(coloured, generator), mean, std), generator)


AUGMENTATIONS: dict[str, Augmentation] = {
    "none": lambda images, mean, std, generator: normalised(images, mean, std),
    "crop-flip-erase": crop_flip_erase,
    "resized-crop-jitter-flip-erase": crop_jitter_flip_erase,
}


def augmentation(name: str) -> Augmentation:
    """Bytes, mean, deviation and a generator -> images that a model takes: the paper's augmentations by name."""
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

    Each is the first of ten draws that fits, smaller than the image in both directions if `strict`; zeros where none
    does.
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
    """(n, size, size): what each new pixel takes of each old one, when `length` pixels from `start` on become `size`.

    Pixels are squares whose centres lie at halves; beyond the outermost centres of the window the value stays.
    """
    centres = (torch.arange(size, device=like.device, dtype=like.dtype) + 0.5) * (length.to(like.dtype) / size)[:, None]
    last = (length - 1).to(like.dtype)[:, None]
    places = torch.minimum((centres - 0.5).clamp(min=0), last) + start.to(like.dtype)[:, None]
    pixels = torch.arange(size, device=like.device, dtype=like.dtype)
    return (1 - (places[:, :, None] - pixels).abs()).clamp(min=0)


def per_channel(values: Statistics, like: Tensor) -> Tensor:
    """A number for each channel as a tensor (C, 1, 1) of the kind of the images."""
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None, None]


def window(start: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The rows of a window, moved to the nearest inside the image, and whether they were inside."""
    rows = start[:, None] + torch.arange(size, device=start.device)
    return rows.clamp(0, size - 1), (rows >= 0) & (rows < size)


def uniform(generator: Generator, n: int, device: torch.device) -> Tensor:
    """Uniform numbers of a generator, drawn on its device and moved to another."""
    return torch.rand(n, generator=generator, device=generator.device).to(device)
