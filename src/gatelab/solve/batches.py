"""How a batch is cut into parts: by threads and widths on a CPU, by memory everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import torch
from threadpoolctl import ThreadpoolController

from gatelab.linalg.interruptible import on_threads as shared_out

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
    small product of matrices would keep them waiting for each other. And the main thread is free to hear Ctrl-C.
    """
    if device.type != "cpu":
        return map(work, pieces)
    return shared_out(work, pieces, min(torch.get_num_threads(), len(pieces)))


class _OneBlasThread:
    """A context in which numpy's and scipy's products of matrices use one thread each.

    Products of many small matrices, shared out among cores, keep the cores waiting for each other: a network of ten
    neurons took five times as long on two as on one. The setting belongs to the process, so that the first to enter
    makes it and the last to leave takes it back.
    """

    def __init__(self) -> None:
        self._lock, self._users = Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._limit = _libraries().limit(limits=1, user_api="blas")
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._limit.restore_original_limits()


one_blas_thread = _OneBlasThread()


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
