"""`train`: gradient descent on two-layer networks, all seeds in one batch.

The networks are split into parts that fit into a core's cache (or a GPU's memory), each trained in a thread of its own
on a CPU.
"""

from __future__ import annotations

import itertools
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatelab.arrays import Array, finite_array
from gatelab.display import Compact, ProgressLike, reporting
from gatelab.dynamics.networks import Stack
from gatelab.dynamics.spectral import Loss, loss_scale, samples, seed_numbers, targets
from gatelab.errors import GatelabError, real_number, whole_number
from gatelab.feedforward.definition import check_width
from gatelab.feedforward.registry import product_unit
from gatelab.interrupts import on_threads, stop_if_asked
from gatelab.memory import check_device, check_memory
from gatelab.statistics import LEVEL, t_reach

RECORDED = 1000  # up to this number of steps all are recorded by default
CACHE = 2 << 20  # bytes of an array of neurons in a part on a CPU, to stay in a core's cache
CUDA = 2 << 30  # the same on a GPU
EXPLODED = 1e6  # a loss of this multiple of the initial loss is divergence
BLOCK = 32  # steps between checks for divergence


@dataclass(frozen=True, eq=False)
class Training(Compact):
    """The `losses` of networks of one unit, (seeds, recorded steps), at `steps`.

    `diverged` is the step at which a network's loss was not finite or a million times the initial loss, or -1; from
    there on its losses are infinite. `start` are the initial outputs, (seeds, n, outputs).
    """

    unit: str
    width: int
    lr: float
    seeds: tuple[int, ...]
    steps: Array
    losses: Array
    diverged: np.ndarray
    start: Array
    seconds: float

    @property
    def mean(self) -> Array:
        """The mean over the seeds, infinite if one diverged."""
        return self.losses.mean(axis=0)

    def interval(self, level: float = LEVEL) -> tuple[Array, Array]:
        """The ends of the t-interval of the mean over the seeds, at every step; NaN for a single seed."""
        count, reach = len(self.seeds), np.nan
        with np.errstate(invalid="ignore"):
            if count > 1:
                reach = t_reach(level, count - 1) * self.losses.std(axis=0, ddof=1) / count**0.5
            return self.mean - reach, self.mean + reach


def train(
    unit: Any,
    X: Any,
    y: Any,
    width: int,
    lr: float,
    steps: int,
    *,
    seeds: int | Sequence[int] = 5,
    loss: Loss = "sum",
    record: int | Sequence[int] | None = None,
    fan_in: int | None = None,
    device: str | torch.device | None = None,
    progress: ProgressLike = None,
) -> Training:
    """Train two-layer networks without biases on (1/2)|f - y|^2 by gradient descent from LeCun initialization.

    Warns if networks diverge.

    Args:
        unit: a name or any other argument of `gl.unit`, except a class.
        X: the samples, (n, d).
        y: the targets, (n,) or (n, outputs).
        width: the number of neurons.
        lr: the learning rate.
        steps: the number of updates.
        seeds: the number of networks, or a list of seeds.
        loss: "sum", or "mean" to divide loss and gradient by n.
        record: the number of recorded steps, or a list of them; by default all up to 1000 steps, otherwise 200.
        fan_in: d of N(0, 1/d), if X is a rotation of samples with more inputs (`in_span`).
        device: the CPU by default.
        progress: False for none, or a function of (done, total); see `gatelab.display`.

    Returns:
        The losses of every network, as a `Training`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((20, 5))
    >>> run = train("glu", X, X[:, 0], width=64, lr=1e-3, steps=50, seeds=4)
    >>> run.losses.shape, bool((run.losses[:, -1] < run.losses[:, 0]).all())
    ((4, 51), True)
    """
    began = time.perf_counter()
    known, x = product_unit(unit), samples(X)
    n, d = x.shape
    Y = targets(y, n)
    lr, order = real_number("lr", lr, above=0), seed_numbers(seeds)
    steps, width, scale = whole_number("steps", steps, 1), check_width(width), loss_scale(loss, n)
    device = check_device(device, torch.float64)
    if record is None:
        record = steps + 1 if steps <= RECORDED else 200
    count = min(whole_number("record", record, 2), steps + 1) if np.ndim(record) == 0 else np.size(record)
    networks, maps = len(order), known.factors + 1
    # The maps, neurons and derivatives of one network; the initial outputs, records and weights of all.
    one = width * (3 * maps * d + (maps + 2) * n) + 4 * n * d
    need = 8 * (one + 2 * networks * n * Y.shape[1]) + 200 * networks + count * (100 + 16 * networks)
    what = f"training {networks} networks of {known.name}, width {width}, on {n} samples, {count} steps recorded,"
    check_memory(need, what, "give a smaller width, fewer samples, fewer seeds or a shorter record", device)
    if not networks or len(set(order)) < len(order):
        raise GatelabError(f"seeds is {seeds!r}; give at least one, none twice")
    rows, columns = torch.from_numpy(x).to(device), torch.from_numpy(np.ascontiguousarray(Y.T)).to(device)
    recorded, fan_in = recorded_steps(record, steps), whole_number("fan_in", d if fan_in is None else fan_in, 1)
    # The size of a part depends on the width and the samples, not on the number of threads.
    size = max(1, (CACHE if device.type == "cpu" else CUDA) // (width * n * rows.element_size()))
    pieces = [order[i : i + size] for i in range(0, networks, size)]
    blocks, lock = itertools.count(1), threading.Lock()
    with reporting(progress, f"training {known.name}") as report:

        def tick() -> None:
            with lock:
                if report:
                    report(next(blocks), -(-steps // BLOCK) * len(pieces))

        def work(seeds: Sequence[int]) -> tuple[np.ndarray, ...]:
            nets = Stack(known, width, d, len(columns), seeds, lr, fan_in, device=device)
            return train_part(nets, rows, columns, scale, steps, recorded, tick)

        # One torch thread per part, even for a single part, so that results are equal bit for bit.
        threads = {"cpu": min(torch.get_num_threads(), len(pieces))}.get(device.type, 1)
        parts = list(on_threads(work, pieces, threads))
    losses, diverged, start = (np.concatenate(part) for part in zip(*parts, strict=True))
    wild = diverged[diverged >= 0]
    if wild.size:
        which = f"{wild.size} of {networks} networks of {known.name!r} diverged, the first at step {wild.min()}"
        remedy = "give at most that of gl.dynamics.stable_step(K)"
        warnings.warn(f"{which} (lr {lr:.3g}), with infinite losses from there; {remedy}", UserWarning, stacklevel=2)
    steps_at, seconds = np.array(recorded, float), time.perf_counter() - began
    return Training(known.name, width, lr, tuple(order), steps_at, losses, diverged, start=start, seconds=seconds)


def in_span(X: Any) -> np.ndarray:
    """The samples in a basis of their span: (n, min(n, d)) with the same products X X^T.

    Networks on `in_span(X)` with fan_in=d have the same distribution as on X, at n / d of the cost.

    Args:
        X: the samples, (n, d).

    Returns:
        Their coordinates in an orthonormal basis of the span; X itself if d is at most n.

    >>> X = np.random.default_rng(0).standard_normal((3, 100))
    >>> Z = in_span(X)
    >>> Z.shape, bool(np.allclose(Z @ Z.T, X @ X.T))
    ((3, 3), True)
    """
    x = samples(X)
    if x.shape[1] <= len(x):
        return x
    _, R = np.linalg.qr(x.T)
    return R.T


def recorded_steps(record: Any, steps: int) -> tuple[int, ...]:
    """The recorded steps in increasing order; a number of steps includes the first and the last."""
    if np.ndim(record) == 0:
        if record > steps:
            return tuple(range(steps + 1))
        return tuple(sorted({0, *np.round(np.geomspace(1, steps, record - 1)).astype(int).tolist()}))
    chosen = finite_array("record", record)
    if chosen.ndim != 1 or not chosen.size or (chosen != np.round(chosen)).any() or chosen.min() < 0:
        raise GatelabError(f"record is {record!r}; give a number of steps, or a list of whole steps")
    if chosen.max() > steps:
        raise GatelabError(f"record has step {chosen.max():.0f} of {steps}; give steps up to the last")
    return tuple(sorted({int(s) for s in chosen}))


@torch.no_grad()
def train_part(
    nets: Stack, X: Tensor, Y: Tensor, scale: float, steps: int, record: tuple[int, ...], tick: Callable[[], None]
) -> tuple[np.ndarray, ...]:
    """Train some networks on targets (k, n): the losses (networks, recorded steps), `diverged` and `start`."""
    places = {step: place for place, step in enumerate(record)}
    losses = torch.full((len(places), len(nets.V)), torch.nan, dtype=X.dtype)
    diverged = torch.full((len(nets.V),), -1, dtype=torch.int64)

    def losses_of(outputs: Tensor) -> Tensor:
        return (outputs - Y).square().sum((1, 2)).mul_(0.5 * scale).cpu()

    start = nets.outputs(X).clone()
    limit = EXPLODED * torch.maximum(losses_of(start), losses_of(0 * start))

    def look(first: int, seen: Tensor) -> None:
        """Record and stop networks that diverged since step `first`."""
        bad = ~(seen.cpu() <= limit)
        fresh = bad.any(0) & (diverged < 0)
        if fresh.any():
            diverged[fresh] = first + bad.int().argmax(0)[fresh]
            nets.stop((diverged >= 0).to(X.device))

    for first in range(0, steps, BLOCK):
        seen = []
        for t in range(first, min(first + BLOCK, steps)):
            stop_if_asked()
            seen.append(nets.step(X, Y, scale))
            if t in places:
                losses[places[t]] = seen[-1].cpu()
        look(first, torch.stack(seen))
        tick()
    look(steps, losses_of(nets.outputs(X))[None])
    if steps in places:
        losses[places[steps]] = losses_of(nets.outputs(X))
    losses[(diverged >= 0) & (torch.tensor(record)[:, None] >= diverged)] = torch.inf
    return losses.T.numpy(), diverged.numpy(), start.mT.cpu().numpy()
