"""Augmentations of batches against loops over images with the same draws, and the draws against what they promise."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from gatelab.data import batches

BYTES = torch.randint(0, 256, (50, 3, 12, 10), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
IMAGES = BYTES.double() / 255


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
    assert {tuple(c) for c in torch.randint(3, (50, 2), generator=generator(1)).tolist()} == {
        (i, j) for i in range(3) for j in range(3)
    }


def test_flips():
    draws = torch.rand(50, generator=generator(2)) < 0.5
    assert 10 < draws.sum() < 40
    for image, flip, result in zip(IMAGES, draws, batches.random_flip(IMAGES, generator(2)), strict=True):
        assert torch.equal(result, image.flip(-1) if flip else image)


def test_erasing():
    g = generator(3)
    boxes = batches.boxes(50, 12, 10, g)
    chosen = torch.rand(50, generator=g) < 0.5
    assert 10 < chosen.sum() < 40
    erased = batches.random_erasing(IMAGES + 7, generator(3))
    for image, (top, left, h, w), hit, result in zip(IMAGES, boxes.tolist(), chosen, erased, strict=True):
        expected = image + 7
        if hit:
            expected[:, top : top + h, left : left + w] = 0.0
        assert torch.equal(result, expected)


def test_normalized():
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
    for result in (batches.normalized(BYTES, mean, std), batches.normalized(IMAGES.float(), mean, std)):
        for c in range(3):
            assert torch.allclose(result[:, c], ((IMAGES[:, c] - mean[c]) / std[c]).float(), atol=1e-6)


def test_the_whole_augmentation_is_its_parts_in_order():
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
    result = batches.crop_flip_erase(BYTES, mean, std, generator(6))
    g = generator(6)
    expected = batches.normalized(batches.random_flip(batches.random_crop(BYTES, g), g), mean, std)
    expected = batches.random_erasing(expected, g)
    assert result.dtype == torch.float32 and torch.equal(result, expected)
    assert not torch.equal(result, batches.crop_flip_erase(BYTES, mean, std, generator(7)))


def test_rectangles_keep_what_they_promise():
    """20 000 rectangles in 64 x 64: rounding moves h and w by 1/2, so areas and shapes by a little more than asked.

    The means of uniform draws are held to 5 standard errors (a false alarm in a million) plus the effect of rounding
    and of refusing those that do not fit, both below 0.01 here.
    """
    n, scale, ratio = 20_000, (0.1, 0.3), (0.5, 2.0)
    top, left, h, w = batches.boxes(n, 64, 64, generator(8), scale, ratio).double().unbind(1)
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
def test_the_same_on_a_gpu():
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
    here = batches.crop_flip_erase(BYTES, mean, std, generator(9))
    there = batches.crop_flip_erase(BYTES.cuda(), mean, std, generator(9))
    assert there.is_cuda and torch.allclose(here, there.cpu(), atol=1e-4)
