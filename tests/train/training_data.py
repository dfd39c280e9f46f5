"""Small data for trainings, and a training as a program of its own, for tests that kill it.

python training_data.py FOLDER OPTIMIZER STEPS
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch

from gatelab.data.images import ImageData, Images
from gatelab.data.text import TextData
from gatelab.train import Recipe, recipe, train_many
from gatelab.train.recipes import TEXT_MODELS


def images(n: int = 120, side: int = 8) -> ImageData:
    """Three kinds of stripes under noise; learnable, and small enough to be learnt by heart."""
    generator = torch.Generator().manual_seed(0)

    def part(count: int) -> Images:
        labels = torch.randint(3, (count,), generator=generator)
        phase = torch.arange(side)[None, :] * (labels[:, None] + 1)
        wave = (128 + 60 * torch.sin(phase.float()))[:, None, None, :].expand(-1, 3, side, side)
        noise = 55 * torch.randn(count, 3, side, side, generator=generator)
        return Images((wave + noise).clamp(0, 255).to(torch.uint8), labels)

    return ImageData("stripes", part(n), part(60), ("a", "b", "c"), (0.5,) * 3, (0.3,) * 3, "crop-flip-erase")


def text() -> TextData:
    sentence = np.frombuffer(b"the gate opens and the line passes; the gate closes and nothing does. " * 60, np.uint8)
    return TextData("gates", sentence[:3600].astype(np.uint16), sentence[3600:].astype(np.uint16), 256)


def small(model: str = "mixer", unit: str = "glu", **others: object) -> Recipe:
    values: dict = {"size": "tiny", "steps": 16, "batch": 16, "evaluations": 5, **others}
    return recipe(model, unit, "gates" if model in TEXT_MODELS else "stripes", **values)


def main() -> None:
    folder, optimizer, steps = sys.argv[1:]
    torch.set_num_threads(1)
    made = small(optimizer=optimizer, steps=int(steps))

    def report(done: int, total: int, text: str) -> None:
        print(done, flush=True)
        if done == total - 4:  # so that a slow test can still kill it
            time.sleep(300)

    train_many([made, made.with_seed(1)], folder=folder, data=images(), progress=report, save_seconds=0.0)


if __name__ == "__main__":
    main()
