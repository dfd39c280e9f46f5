"""Partial sums of a long computation in a file: what is done is not done again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.files import write_whole
from gatelab.ntk.empirical.samples import Samples


class Progress:
    """The kernel so far and the names of the parts that are in it, kept in a file where one is given."""

    def __init__(self, path: str | Path | None, samples: Samples, parameters: dict[str, nn.Parameter], values: Tensor):
        self.path = None if path is None else Path(path)
        self.K = torch.zeros(samples.n, samples.n, dtype=torch.float64, device=samples.device)
        self.done: set[str] = set()
        if self.path is None:
            return
        self.values = values.double().cpu().contiguous()
        self.key = fingerprint(samples, parameters)
        if self.path.exists():
            self._load()

    def add(self, done: set[str]) -> None:
        """Note parts as done, K as it is; the file is replaced as a whole."""
        self.done |= done
        if self.path is None:
            return
        about = {
            "key": self.key,
            "done": json.dumps(sorted(self.done)),
            "what": "gatelab empirical kernel, partial sums",
        }
        tensors = {"K": self.K.cpu(), "values": self.values}
        write_whole(self.path, lambda part: save_file(tensors, part, about))

    def _load(self) -> None:
        assert self.path is not None
        try:
            with safe_open(self.path, "pt") as file:
                about = file.metadata() or {}
                K, values = file.get_tensor("K"), file.get_tensor("values")
            done = set(json.loads(about["done"]))
            key = about["key"]
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise GatelabError(
                f"{self.path} is no partial kernel ({error}); delete it, or give store another path"
            ) from error
        same = key == self.key and values.shape == self.values.shape
        if not same or not torch.allclose(values, self.values, rtol=1e-3, atol=1e-3 * float(values.abs().max())):
            raise GatelabError(
                f"{self.path} holds the kernel of another model, other inputs or other outputs; delete it, or give"
                " store another path"
            )
        self.K.copy_(K)
        self.done = done


def fingerprint(samples: Samples, parameters: dict[str, nn.Parameter]) -> str:
    """A hash of the model's parameters and buffers, the inputs, and the outputs as far as they are plain values."""
    total = hashlib.sha256(type(samples.model).__name__.encode())
    chosen = samples.outputs
    total.update(getattr(chosen, "__qualname__", repr(None if isinstance(chosen, Tensor) else chosen)).encode())
    total.update(repr(sorted(parameters)).encode())
    tensors = [*samples.model.state_dict().items(), *samples.inputs.items()]
    for name, tensor in tensors + ([("outputs", chosen)] if isinstance(chosen, Tensor) else []):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
