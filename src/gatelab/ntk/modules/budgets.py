"""The plan of a kernel within a budget of memory: groups of parameters, samples a pass, memory for products.

A group's factors of all n samples are kept at once, while passes and products come and go:

    peak = factors of the largest group + max(batch x what a pass keeps for a sample, workspace)

K is a sum over parameters, so that a smaller budget means more groups, each with a forward and backward pass of its own
over all samples. A parameter whose factors alone are too large is left to automatic Jacobians, block by block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from gatelab.errors import GatelabError
from gatelab.memory import free_memory
from gatelab.ntk.modules.samples import Samples
from gatelab.ntk.modules.surveys import AHEAD, Share, Survey

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_BATCHES = (16, 8, 4, 2, 1)  # samples that a pass may be planned for
# Products larger than this gain nothing: on a GPU they fill it, on a CPU they leave the caches.
_LIMIT, _LIMIT_OF_GPU = 64 * 2**20, 2 * 2**30


@dataclass(frozen=True)
class PassPlan:
    """What will be done: `groups` are the parameters whose factors are kept together, `free` go by Jacobians.

    A pass takes `batch` samples, products take `workspace` bytes, and the Jacobians of `block` samples are in memory at
    once.
    """

    groups: tuple[tuple[Share, ...], ...]
    free: tuple[str, ...]
    batch: int
    workspace: int
    block: int


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


def make_plan(survey: Survey, sizes: dict[str, int], samples: Samples, total: int, batch: int | None) -> PassPlan:
    """The plan for parameters of these `sizes`, in numbers, within `total` bytes; `batch` is chosen if None."""
    n, item, each = samples.n, samples.dtype.itemsize, survey.pass_bytes
    limit = _LIMIT_OF_GPU if samples.device.type == "cuda" else _LIMIT

    def require(needed: int, what: str) -> None:
        if needed > total:
            raise GatelabError(
                f"the budget is {total / 2**20:.1f} MiB, which does not hold {what}; give {needed / 2**20:.1f} MiB or"
                " more"
            )

    # The passes ahead have the gradients of all parameters, and those of three samples by one of them.
    ahead = AHEAD * each + (2 * sum(sizes.values()) + AHEAD * max(sizes.values())) * item
    require(max(ahead, (batch or 1) * each), "three samples and a gradient of all parameters")
    row = max((2 * n * share.shape[1] * item for share in survey.shares if not share.summed), default=0)
    room = total - max((batch or 1) * each, row)
    large = [share.name for share in survey.shares if share.numbers * n * item > room]
    free = tuple(dict.fromkeys((*survey.free, *large)))
    shares = [share for share in survey.shares if share.name not in free]

    def grouped(batch: int) -> list[list[Share]]:
        """Shares in the order of the model, as many as fit together beside a pass of so many samples."""
        groups: list[list[Share]] = []
        used = 0
        for share in shares:
            need = share.numbers * n * item
            if not groups or used + need > total - max(batch * each, row):
                groups.append([])
                used = 0
            groups[-1].append(share)
            used += need
        return groups

    # Each group costs passes over all samples, which take the longer the fewer samples go at a time.
    groups = grouped(min((batch,) if batch else _BATCHES, key=lambda size: len(grouped(size)) * (1 + 2 / size)))
    largest = max((sum(share.numbers for share in group) * n * item for group in groups), default=0)
    workspace = min(total - largest, limit)
    size = batch or max(1, min(n, min(total - largest, 4 * limit) // max(1, each)))
    # Jacobians of all samples, or else two blocks that are multiplied; a third is for the pass that makes them.
    jacobian = sum(sizes[name] for name in free) * item
    room, block = total - max(2 * each, total // 3), n
    if n * jacobian > room:
        if 2 * jacobian > room:
            require(3 * jacobian + 2 * each, "the Jacobians of two samples")
        block = room // (2 * jacobian)
    return PassPlan(tuple(map(tuple, groups)), free, size, workspace, block)
