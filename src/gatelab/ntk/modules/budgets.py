"""The plan of a kernel within a budget of memory: groups of parameters, samples a pass, room for products.

A group's factors of all n samples are kept at once, while passes and products come and go:

    peak = factors of the largest group + max(batch x what a pass keeps for a sample, workspace)

K is a sum over parameters, so that a smaller budget means more groups, each with a forward and backward pass of its own
over all samples. A parameter whose factors alone are too large is left to automatic Jacobians, block by block.

Partial sums of a long computation in a file: what is done is not done again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.files import write_whole
from gatelab.memory import free_memory
from gatelab.ntk.modules.samples import Samples
from gatelab.ntk.modules.surveys import AHEAD, Share, Survey

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_FEW = (16, 8, 4, 2, 1)  # samples that a pass may be planned for


@dataclass(frozen=True)
class PassPlan:
    """What will be done; `peak` is the memory in bytes that it is expected to take beside the model and the kernel."""

    groups: tuple[tuple[Share, ...], ...]
    free: tuple[str, ...]
    batch: int
    workspace: int
    peak: int
    block: int  # samples whose Jacobians are held at once


def bytes_of(budget: int | float | str | None, device: torch.device, beside: int = 0) -> int:
    """A budget in bytes: a number, a text such as "24GiB", or None for half of what is free beside so many bytes.

    >>> bytes_of("1.5 GiB", torch.device("cpu"))
    1610612736
    """
    if budget is None:
        return max(0, free_memory(device) - beside) // 2
    if isinstance(budget, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmg]i?|)b?\s*", budget.lower())
        if found:
            return int(float(found[1]) * _UNITS[found[2]])
    elif not isinstance(budget, bool) and isinstance(budget, int | float) and 0 < budget < float("inf"):
        return int(budget)
    raise GatelabError(f"budget is {budget!r}; give bytes, or a text such as '24GiB' or '500MB'")


def make_plan(
    seen: Survey, sizes: dict[str, int], n: int, item: int, budget: int, limit: int, batch: int | None = None
) -> PassPlan:
    """Groups, batch and workspace for parameters of these `sizes` (in numbers), `item` bytes each."""
    least = max(AHEAD * seen.pass_bytes + 2 * sum(sizes.values()) * item, (batch or 1) * seen.pass_bytes)
    if least > budget:
        raise _too_small(budget, least, "three samples and a gradient of all parameters")
    row = max((2 * n * share.shape[1] * item for share in seen.shares if not share.summed), default=0)
    needs = {share.name: share.floats(set()) * n * item for share in seen.shares}
    room = budget - max((batch or 1) * seen.pass_bytes, row)
    free = tuple({*seen.free, *(name for name, need in needs.items() if need > room)})
    shares = [share for share in seen.shares if share.name not in free]

    def grouped(few: int) -> tuple[tuple[tuple[Share, ...], ...], int]:
        return _group(shares, n * item, budget - max(few * seen.pass_bytes, row))

    # Each group costs passes over all samples, which take the longer the fewer samples go at a time.
    few = min([batch] if batch else _FEW, key=lambda few: len(grouped(few)[0]) * (1 + 2 / few))
    groups, largest = grouped(few)
    rest = budget - largest
    size = batch or max(1, min(n, min(rest, 4 * limit) // max(1, seen.pass_bytes)))
    work = min(rest, limit)
    block = _block(sum(sizes[name] for name in free) * item, n, budget, seen.pass_bytes)
    peak = max(least, largest + max(size * seen.pass_bytes, work) if shares else 0)
    return PassPlan(groups, free, size, work, budget if free else peak, block)


def _group(shares: Sequence[Share], each: int, room: int) -> tuple[tuple[tuple[Share, ...], ...], int]:
    """Shares in the order of the model, as many as fit together; and the bytes of the largest group."""
    groups: list[list[Share]] = []
    used = largest = 0
    taken: set[tuple[int, int]] = set()
    for share in shares:
        need = share.floats(taken) * each
        if not groups or used + need > room:
            groups.append([])
            used, taken = 0, set()
            need = share.floats(taken) * each
        groups[-1].append(share)
        used += need
        largest = max(largest, used)
        if share.alias:
            taken.add(share.alias)
    return tuple(tuple(group) for group in groups), largest


def _block(jacobian: int, n: int, budget: int, pass_bytes: int) -> int:
    """How many samples' Jacobians of `jacobian` bytes fit: all n, or else two blocks that are multiplied.

    A third of the budget is for the pass that makes them.
    """
    if not jacobian:
        return n
    room = budget - max(2 * pass_bytes, budget // 3)
    if n * jacobian <= room:
        return n
    if 2 * jacobian > room:
        raise _too_small(budget, 3 * jacobian + 2 * pass_bytes, "the Jacobians of two samples")
    return room // (2 * jacobian)


def _too_small(budget: int, needed: int, what: str) -> GatelabError:
    return GatelabError(
        f"the budget is {budget / 2**20:.1f} MiB, which does not hold {what}; give {needed / 2**20:.1f} MiB or more"
    )


class PartialKernel:
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
