"""How a batch is cut into parts: by threads and widths on a CPU, by memory everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

_CPU_BYTES, _CUDA_BYTES = 1 << 30, 48 << 30
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


def parts(widths: Sequence[int], bytes_per_neuron: int, device: torch.device) -> list[list[int]]:
    """The indices of `widths` in parts, the widest first.

    A part is padded to its first width. A GPU has more to gain from one large part than to lose by padding. A CPU has
    not, and there a part of one width is, bit by bit, the loop of its members.

    >>> parts([8, 2, 8, 2], 1000, torch.device("cuda"))
    [[0, 2, 1, 3]]
    """
    cpu = device.type == "cpu"
    order = sorted(range(len(widths)), key=lambda i: -widths[i])
    share = sum(w**2 for w in widths) / (torch.get_num_threads() if cpu else 1)
    out: list[list[int]] = []
    spent = 0.0
    for i in order:
        first = widths[out[-1][0]] if out else 0
        room = (_CPU_BYTES if cpu else _CUDA_BYTES) // (bytes_per_neuron * max(first, 1))
        full = not out or len(out[-1]) >= max(room, 1) or spent + widths[i] ** 2 / 2 > share
        if full or (cpu and widths[i] < first):
            out.append([])
            spent = 0.0
        out[-1].append(i)
        spent += widths[i] ** 2
    return out


def on_threads(work: Callable[[_Part], _Result], pieces: Sequence[_Part], device: torch.device) -> Iterator[_Result]:
    """The results in order, the pieces on a CPU shared out among as many threads as torch has.

    Each computes with one thread of torch, even if there is but one: that keeps all cores busy, where sharing out every
    small product of matrices would keep them waiting for each other.
    """
    threads = min(torch.get_num_threads(), len(pieces))
    if device.type != "cpu" or torch.get_num_threads() == 1:
        yield from map(work, pieces)
        return
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield from pool.map(work, pieces)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
