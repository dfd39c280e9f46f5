"""Augmentations of batches against loops over images with the same draws, and the draws against what they promise."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from gatelab.data import batches
from gatelab.errors import GatelabError

BYTES = torch.randint(0, 256, (50, 3, 12, 10), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
IMAGES = BYTES.double() / 255
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_crops():
    corners = torch.randint(9, (50, 2), generator=generator(1))
    for images in (BYTES, IMAGES):
        cropped = batches.random_crop(images, generator(1))
        assert cropped.dtype == images.dtype
        for image, (top, left), result in zip(images, corners.tolist(), cropped, strict=True):
            padded = functional.pad(image, (4, 4, 4, 4))
            assert torch.equal(result, padded[:, top : top + 12, left : left + 10])


def test_flips():
    draws = torch.rand(50, generator=generator(2)) < 0.5
    assert 10 < draws.sum() < 40
    for image, flip, result in zip(IMAGES, draws, batches.random_flip(IMAGES, generator(2)), strict=True):
        assert torch.equal(result, image.flip(-1) if flip else image)
    assert torch.equal(batches.random_flip(IMAGES, generator(), p=0.0), IMAGES)
    assert torch.equal(batches.random_flip(IMAGES, generator(), p=1.0), IMAGES.flip(-1))


def test_erasing():
    g = generator(3)
    boxes = batches.boxes(50, 12, 10, g, (0.02, 0.33), (0.3, 3.3), strict=True)
    chosen = torch.rand(50, generator=g) < 0.5
    assert 10 < chosen.sum() < 40
    erased = batches.random_erasing(IMAGES, generator(3), value=-7.0)
    for image, (top, left, h, w), hit, result in zip(IMAGES, boxes.tolist(), chosen, erased, strict=True):
        expected = image.clone()
        if hit:
            expected[:, top : top + h, left : left + w] = -7.0
        assert torch.equal(result, expected)


def test_resized_crops():
    boxes = batches.boxes(50, 12, 10, generator(4), (0.08, 1.0), (3 / 4, 4 / 3), strict=False)
    assert len(boxes.unique(dim=0)) > 30
    cropped = batches.resized_crop(IMAGES, generator(4))
    for image, (top, left, h, w), result in zip(IMAGES, boxes.tolist(), cropped, strict=True):
        window = image[None, :, top : top + h, left : left + w] if h else image[None]
        expected = functional.interpolate(window, (12, 10), mode="bilinear", align_corners=False)[0]
        assert torch.allclose(result, expected, atol=1e-12)
    too_large = batches.resized_crop(IMAGES, generator(), scale=(1.5, 2.0))
    assert torch.allclose(too_large, IMAGES, atol=1e-14)


def _jittered(image, weights, order):
    """One image, one step after the other."""
    for kind in order:
        grey = 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]
        other = [torch.zeros_like(grey), torch.full_like(grey, float(grey.mean())), grey][kind]
        image = (weights[kind] * image + (1 - weights[kind]) * other).clamp(0, 1)
    return image


def test_colours():
    g = generator(5)
    weights = 1 + 0.4 * (2 * torch.rand(50, 3, generator=g) - 1)
    order = torch.rand(50, 3, generator=g).argsort(1)
    assert len(order.unique(dim=0)) == 6
    jittered = batches.color_jitter(IMAGES, generator(5))
    for image, w, o, result in zip(IMAGES, weights.double(), order.tolist(), jittered, strict=True):
        assert torch.allclose(result, _jittered(image, w, o), atol=1e-6)
    assert torch.allclose(batches.color_jitter(IMAGES, generator(), (0, 0, 0)), IMAGES, atol=1e-6)
    with pytest.raises(GatelabError, match="have 1 channels; colors need 3"):
        batches.color_jitter(IMAGES[:, :1], generator())


def test_normalized():
    for result in (batches.normalized(BYTES, MEAN, STD), batches.normalized(IMAGES.float(), MEAN, STD)):
        for c in range(3):
            assert torch.allclose(result[:, c], ((IMAGES[:, c] - MEAN[c]) / STD[c]).float(), atol=1e-6)


@pytest.mark.parametrize("name", list(batches.AUGMENTATIONS))
def test_whole_augmentations_are_their_parts_in_order(name):
    result = batches.augmentation(name)(BYTES, MEAN, STD, generator(6))
    g = generator(6)
    if name == "none":
        expected = batches.normalized(BYTES, MEAN, STD)
    elif name == "crop-flip-erase":
        expected = batches.normalized(batches.random_flip(batches.random_crop(BYTES, g), g), MEAN, STD)
        expected = batches.random_erasing(expected, g)
    else:
        expected = batches.color_jitter(batches.resized_crop(BYTES.float() / 255, g), g)
        expected = batches.random_erasing(batches.normalized(batches.random_flip(expected, g), MEAN, STD), g)
    assert result.dtype == torch.float32 and torch.equal(result, expected)
    assert torch.equal(result, batches.augmentation(name)(BYTES, MEAN, STD, generator(6)))
    if name != "none":
        assert not torch.equal(result, batches.augmentation(name)(BYTES, MEAN, STD, generator(7)))


def test_rectangles_keep_what_they_promise():
    """Means to 5 standard errors (a false alarm in a million) plus 0.01 for rounding and for those that do not fit."""
    n, scale, ratio = 20_000, (0.1, 0.3), (0.5, 2.0)
    top, left, h, w = batches.boxes(n, 64, 64, generator(8), scale, ratio, strict=True).double().unbind(1)
    assert (h > 0).all() and (top >= 0).all() and (top + h <= 64).all() and (left + w <= 64).all()
    area, shape = h * w / 4096, torch.log(h / w)
    assert scale[0] - 0.02 < area.min() < scale[0] + 0.02 and scale[1] - 0.02 < area.max() < scale[1] + 0.02
    assert abs(float(area.mean()) - 0.2) < 5 * 0.2 / math.sqrt(12 * n) + 0.01
    assert abs(float(shape.mean())) < 5 * 2 * math.log(2) / math.sqrt(12 * n) + 0.01
    assert abs(float(shape.std()) - 2 * math.log(2) / math.sqrt(12)) < 0.02
    for start, room in ((top, 64 - h), (left, 64 - w)):
        place = (start + 0.5) / (room + 1)
        assert abs(float(place.mean()) - 0.5) < 5 / math.sqrt(12 * n)
        assert start.min() == 0 and (start == room).any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", list(batches.AUGMENTATIONS))
def test_the_same_on_a_gpu(name):
    here = batches.augmentation(name)(BYTES, MEAN, STD, generator(9))
    there = batches.augmentation(name)(BYTES.cuda(), MEAN, STD, generator(9))
    assert there.is_cuda and torch.allclose(here, there.cpu(), atol=1e-4)
