"""The state of a training on disk: one safetensors file a part, whole or not at all, found again by what it is of."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.files import write_whole


def fingerprint(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """A name for a training: equal for equal settings and equal data, bit by bit."""
    text = json.dumps(facts, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:20]


class Checkpoint:
    """The file of one part of a training, written when `every` seconds have passed since the last time."""

    def __init__(self, folder: Path, name: str, part: int, every: float) -> None:
        self.path = folder / f"{name}-{part}.safetensors"
        self.every, self.saved = every, time.monotonic()

    def load(self) -> tuple[int, dict[str, Tensor]] | None:
        """The step and the state as of then, or None where nothing was saved."""
        if not self.path.is_file():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                step = int((file.metadata() or {})["step"])
                return step, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, ValueError) as error:
            raise GatelabError(f"{self.path} is no checkpoint of a training ({error}); remove it") from error

    def due(self) -> bool:
        return time.monotonic() - self.saved >= self.every

    def save(self, step: int, state: Mapping[str, Tensor]) -> None:
        content = {key: value.detach().to("cpu").contiguous() for key, value in state.items()}
        write_whole(self.path, save(content, metadata={"step": str(step), "torch": torch.__version__}))
        self.saved = time.monotonic()
