"""Automatic Jacobians: the gradient of each sample by any parameter, however it is used.

`vmap(grad)` where the model can be mapped over samples, else sample by sample: the numbers are the same, the time is
not. Where the Jacobian of all samples is too large, blocks of it are multiplied pair by pair and made anew for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from gatelab.errors import GatelabError
from gatelab.linalg.interruptible import apart
from gatelab.memory import ran_out
from gatelab.ntk.empirical.contract import add_gram, add_tile, product
from gatelab.ntk.empirical.record import plain_gradients
from gatelab.ntk.empirical.samples import Samples


def add_jacobians(
    K: Tensor,
    samples: Samples,
    free: dict[str, nn.Parameter],
    column: int,
    block: int,
    batch: int,
    tick: Callable[[], None],
) -> None:
    """Add the part of the parameters `free` to K; `tick` is called for each block that was made."""
    cuts = [slice(k, min(k + block, samples.n)) for k in range(0, samples.n, block)]
    for a, i in enumerate(cuts):
        left = jacobian(samples, free, column, i, batch)
        tick()
        add_gram(K[i, i], left)
        for j in cuts[a + 1 :]:
            add_tile(K, i, j, product(left, jacobian(samples, free, column, j, batch)))
            tick()


def blocks(n: int, block: int) -> int:
    """How many blocks of Jacobians `add_jacobians` makes.

    >>> blocks(10, 4)
    6
    """
    count = -(-n // block)
    return count * (count + 1) // 2


def jacobian(samples: Samples, free: dict[str, nn.Parameter], column: int, which: slice, batch: int) -> Tensor:
    """The gradients (N, P) of the samples in `which`, `batch` at a time."""
    width = sum(p.numel() for p in free.values())
    whole = torch.empty(which.stop - which.start, width, dtype=samples.dtype, device=samples.device)
    for start in range(which.start, which.stop, batch):
        part = slice(start, min(start + batch, which.stop))
        here = slice(part.start - which.start, part.stop - which.start)
        try:
            whole[here] = apart(_mapped, samples, free, column, part)
        except (MemoryError, GatelabError):
            raise
        except Exception as error:
            # What vmap cannot map, it says in many ways; the loop below fails where the model itself does.
            if ran_out(error):
                raise
            for k in range(part.start, part.stop):
                whole[k - which.start] = _single(samples, free, column, k)
    return whole


def _mapped(samples: Samples, free: dict[str, nn.Parameter], column: int, which: slice) -> Tensor:
    def value(parameters: dict[str, Tensor], inputs: dict[str, Tensor], index: Tensor) -> Tensor:
        def call(*args: Tensor, **kwargs: Tensor) -> object:
            return functional_call(samples.model, parameters, args, kwargs)

        one = {k: v.unsqueeze(0) for k, v in inputs.items()}
        return samples.run(one, index.unsqueeze(0), call)[0, column]

    parameters = {name: p.detach() for name, p in free.items()}
    with torch.no_grad(), warnings.catch_warnings():  # the other parameters are constants here
        warnings.filterwarnings("ignore", "There is a performance drop")
        found = vmap(grad(value), in_dims=(None, 0, 0))(parameters, samples.take(which), samples.index(which))
    return torch.cat([found[name].flatten(1) for name in free], 1)


def _single(samples: Samples, free: dict[str, nn.Parameter], column: int, k: int) -> Tensor:
    which = slice(k, k + 1)
    with torch.enable_grad():
        value = samples.run(samples.take(which), samples.index(which))[0, column]
    parameters = list(free.values())
    return torch.cat([g.flatten() for g in plain_gradients(value, parameters)])
