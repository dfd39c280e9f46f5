"""The plan of a kernel within a budget of memory: groups of parameters, samples a pass, room for products.

A group's factors of all n samples are kept at once, while passes and products come and go:

    peak = factors of the largest group + max(batch x what a pass keeps for a sample, workspace)

K is a sum over parameters, so that a smaller budget means more groups, each with a forward and backward pass of its own
over all samples. A parameter whose factors alone are too large is left to automatic Jacobians, block by block.

Partial sums of a long computation are kept in a file (`PartialKernel`), so that no part is computed twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from gatelab.arrays import AnyArray, fingerprint
from gatelab.errors import GatelabError
from gatelab.memory import free_memory
from gatelab.ntk.modules.samples import Samples
from gatelab.ntk.modules.surveys import AHEAD, Share, Survey, View
from gatelab.tensors import pack, read, write_packed

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_FEW = (16, 8, 4, 2, 1)  # samples that a pass may be planned for
_KIND, _REMEDY = "partial kernel", "delete it, or give store another path"


Groups = tuple[tuple[Share, ...], ...]


@dataclass(frozen=True)
class PassPlan:
    """What will be done; `peak` is the memory in bytes that it is expected to take beside the model and the kernel.

    `groups` are the parameters whose factors are kept together, `free` those that are left to Jacobians. A pass takes
    `batch` samples, products take `workspace` bytes, and the Jacobians of `block` samples are in memory at once.
    """

    groups: Groups
    free: tuple[str, ...]
    batch: int
    workspace: int
    peak: int
    block: int


@dataclass(frozen=True)
class Budget:
    """What a plan has to keep to: n samples of numbers of `item` bytes, `total` bytes, products of `limit` at most."""

    n: int
    item: int
    total: int
    limit: int

    def too_small(self, needed: int, what: str) -> GatelabError:
        """The error for a budget that does not hold `what`."""
        return GatelabError(
            f"the budget is {self.total / 2**20:.1f} MiB, which does not hold {what};"
            f" give {needed / 2**20:.1f} MiB or more"
        )

    def grouped(self, shares: Sequence[Share], beside: int) -> tuple[Groups, int]:
        """Shares in the order of the model, as many as fit together beside so many bytes; and the largest group's."""
        groups: list[list[Share]] = []
        used = largest = 0
        views: set[View] = set()
        for share in shares:
            need = share.numbers(views) * self.n * self.item
            if not groups or used + need > self.total - beside:
                groups.append([])
                used, views = 0, set()
                need = share.numbers() * self.n * self.item
            groups[-1].append(share)
            used += need
            largest = max(largest, used)
            if share.view is not None:
                views.add(share.view)
        return tuple(tuple(group) for group in groups), largest

    def block(self, jacobian: int, pass_bytes: int) -> int:
        """How many samples' Jacobians of `jacobian` bytes fit: all n, or else two blocks that are multiplied.

        A third of the budget is for the pass that makes them.
        """
        room = self.total - max(2 * pass_bytes, self.total // 3)
        if not jacobian or self.n * jacobian <= room:
            return self.n
        if 2 * jacobian > room:
            raise self.too_small(3 * jacobian + 2 * pass_bytes, "the Jacobians of two samples")
        return room // (2 * jacobian)


def bytes_of(budget: int | float | str | None, device: torch.device, beside: int = 0) -> int:
    """A budget in bytes: a number, a text such as "24GiB", or None for half of what is free beside so many bytes.

    >>> bytes_of("1.5 GiB", torch.device("cpu"))
    1610612736
    """
    if budget is None:
        return max(0, free_memory(device) - beside) // 2
    if isinstance(budget, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmg]i?|)b?\s*", budget.lower())
        if match:
            return int(float(match[1]) * _UNITS[match[2]])
    elif not isinstance(budget, bool) and isinstance(budget, int | float) and 0 < budget < float("inf"):
        return int(budget)
    raise GatelabError(f"budget is {budget!r}; give bytes, or a text such as '24GiB' or '500MB'")


def make_plan(survey: Survey, sizes: dict[str, int], budget: Budget, batch: int | None = None) -> PassPlan:
    """Groups, batch and workspace for parameters of these `sizes`, in numbers; `batch` is chosen if None."""
    n, item, each = budget.n, budget.item, survey.pass_bytes
    least = max(AHEAD * each + 2 * sum(sizes.values()) * item, (batch or 1) * each)
    if least > budget.total:
        raise budget.too_small(least, "three samples and a gradient of all parameters")
    row = max((2 * n * share.shape[1] * item for share in survey.shares if not share.summed), default=0)
    room = budget.total - max((batch or 1) * each, row)
    large = [share.name for share in survey.shares if share.numbers() * n * item > room]
    free = tuple(dict.fromkeys((*survey.free, *large)))
    shares = [share for share in survey.shares if share.name not in free]

    def grouped(few: int) -> tuple[Groups, int]:
        return budget.grouped(shares, beside=max(few * each, row))

    # Each group costs passes over all samples, which take the longer the fewer samples go at a time.
    few = min([batch] if batch else _FEW, key=lambda few: len(grouped(few)[0]) * (1 + 2 / few))
    groups, largest = grouped(few)
    room = budget.total - largest
    size = batch or max(1, min(n, min(room, 4 * budget.limit) // max(1, each)))
    workspace = min(room, budget.limit)
    block = budget.block(sum(sizes[name] for name in free) * item, each)
    if free:
        peak = budget.total
    elif shares:
        peak = max(least, largest + max(size * each, workspace))
    else:
        peak = least
    return PassPlan(groups, free, size, workspace, peak, block)


class PartialKernel:
    """The kernel so far and the names of the parts that are in it, kept in a file where one is given."""

    def __init__(self, path: str | Path | None, samples: Samples, parameters: dict[str, nn.Parameter], values: Tensor):
        self.K = torch.zeros(samples.n, samples.n, dtype=torch.float64, device=samples.device)
        self.parts: set[str] = set()
        self.path: Path | None = None
        if path is None:
            return
        self.path = Path(path)
        self.values = values.double().cpu().contiguous()
        self.key = kernel_name(samples, parameters)
        if self.path.exists():
            self.load(self.path)

    def add(self, parts: set[str]) -> None:
        """Note parts that are in K now; the file is replaced as a whole."""
        self.parts |= parts
        if self.path is not None:
            facts = {"key": self.key, "parts": sorted(self.parts)}
            write_packed(self.path, pack({"K": self.K, "values": self.values}, _KIND, facts))

    def load(self, path: Path) -> None:
        """Go on from a file, if it is of the same model, inputs and outputs."""
        content = read(path, _REMEDY, "pt")
        if content.kind != _KIND:
            raise GatelabError(f"{path} is no partial kernel; {_REMEDY}")
        values = content.arrays["values"]
        same = content.facts["key"] == self.key and values.shape == self.values.shape
        if not same or not torch.allclose(values, self.values, rtol=1e-3, atol=1e-3 * float(values.abs().max())):
            raise GatelabError(f"{path} holds the kernel of another model, other inputs or other outputs; {_REMEDY}")
        self.K.copy_(content.arrays["K"])
        self.parts = set(content.facts["parts"])


def kernel_name(samples: Samples, parameters: dict[str, nn.Parameter]) -> str:
    """A name for the model's parameters and buffers, the inputs, and the outputs as far as they are plain values."""
    chosen = samples.outputs
    tensors = [*samples.model.state_dict().items(), *samples.inputs.items()]
    if isinstance(chosen, Tensor):
        tensors.append(("outputs", chosen))
        chosen = None
    parts: list[str | AnyArray] = [
        type(samples.model).__name__,
        getattr(chosen, "__qualname__", repr(chosen)),
        repr(sorted(parameters)),
    ]
    for name, tensor in tensors:
        numbers = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        parts += [f"{name} {tensor.dtype} {tuple(tensor.shape)}", numbers]
    return fingerprint(parts, 64)
