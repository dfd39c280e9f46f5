"""Batches as a function of the step: training that was cut off goes on with the very batches that it would have had."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from gatelab.errors import GatelabError

ORDER, AUGMENTATION, OFFSETS = 0, 1, 2


def stream(seed: int, *place: int) -> torch.Generator:
    """A generator for one place of a run; equal seeds and places draw equal numbers, all others unrelated ones.

    >>> torch.rand(1, generator=stream(0, 5)) == torch.rand(1, generator=stream(0, 5))
    tensor([True])
    """
    for value in (seed, *place):
        if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 0:
            raise GatelabError(f"the seed or step is {value!r}; give a whole number, 0 or more")
    state = np.random.SeedSequence([int(seed), *map(int, place)]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))


def batch_rows(n: int, size: int, step: int, seed: int) -> Tensor:
    """Which of n rows make the batch of that step: every epoch is a new order of all rows, cut into batches.

    What is left over at the end of an epoch, fewer than `size`, is in other batches of the next.

    >>> sorted(batch_rows(6, 3, 0, seed=0).tolist() + batch_rows(6, 3, 1, seed=0).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    if isinstance(size, bool) or not hasattr(size, "__index__") or not 1 <= int(size) <= n:
        raise GatelabError(f"the batch size is {size!r} of {n} rows; give a whole number from 1 to {n}")
    epoch, place = divmod(step, n // size)
    return _order(n, seed, epoch)[place * size : (place + 1) * size]


@lru_cache(maxsize=64)
def _order(n: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(n, generator=stream(seed, ORDER, epoch))
