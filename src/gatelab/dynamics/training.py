"""`train`: gradient descent on two-layer networks, all seeds and learning rates in one batch.

The networks are cut into parts that fit a core's cache (or a GPU's memory); each part goes through all its steps by
itself, on a CPU in a thread of its own. So what a part computes depends neither on the number of threads nor on when
it was interrupted: a training that was killed goes on from its checkpoints to bit-equal losses.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatelab.display import ProgressLike, reporting
from gatelab.dynamics.runs import Checkpoint, Job, Training, fingerprint, run_parts
from gatelab.dynamics.spectral import Loss, loss_scale, numbers, positive, samples, targets, whole
from gatelab.errors import GatelabError
from gatelab.feedforward import ModuleUnit
from gatelab.feedforward import unit as find_unit
from gatelab.feedforward.definition import check_width
from gatelab.feedforward.registry import describe
from gatelab.memory import check_device, check_memory

RECORDED = 1000  # up to as many steps all are recorded by default


def train(
    unit: Any,
    X: Any,
    y: Any,
    width: int,
    lr: float | Sequence[float],
    steps: int,
    *,
    seeds: int | Sequence[int] = 5,
    batch_size: int | None = None,
    loss: Loss = "sum",
    test: tuple[Any, Any] | None = None,
    record: int | Sequence[int] | None = None,
    fan_in: int | None = None,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device | None = None,
    checkpoint: str | Path | None = None,
    every: float = 10.0,
    progress: ProgressLike = None,
) -> Training:
    """Train two-layer networks of `unit` without biases on (1/2)|f - y|^2 by gradient descent from LeCun's weights.

    `seeds` is how many, or which; with several `lr` every seed is trained at each. `batch_size` makes batches, a
    function of (seed, step), whose gradient is scaled by n / batch_size, so that `lr` means the same. With loss="mean"
    loss and gradient are divided by n. `test` is (X, y); its losses are recorded as those of the training data are:
    at every step up to 1000, else at 200 steps, or at `record` (how many, or which). `fan_in` is d of N(0, 1/d) where
    X is a rotation of samples of more inputs (`in_span`).

    With `checkpoint`, a folder, the state is saved every `every` seconds, and a call that is the same goes on from
    there, on a CPU to bit-equal losses. Networks that diverge are recorded, and said in a warning.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((20, 5))
    >>> run = train("glu", X, X[:, 0], width=64, lr=1e-3, steps=50, seeds=4)
    >>> run.losses.shape, bool((run.losses[:, -1] < run.losses[:, 0]).all())
    ((4, 51), True)
    """
    began = time.perf_counter()
    job = _job(unit, X, y, width, lr, steps, seeds, batch_size, loss, test, record, fan_in, dtype, device)
    parts = job.parts()
    with reporting(progress, f"training {job.unit.name}") as report:
        books = run_parts(job, parts, _files(job, checkpoint, every, len(parts)), report)
    lrs = tuple(dict.fromkeys(rate for rate, _ in job.members))
    order = tuple(dict.fromkeys(seed for _, seed in job.members))
    shape = (len(lrs), len(order)) if _several(lr) else (len(order),)

    def joined(name: str, axis: int = 0) -> np.ndarray:
        return torch.cat([book[name] for book in books], axis).numpy()

    def curves(name: str) -> np.ndarray:
        return joined(name, 1).T.reshape(*shape, -1).astype(np.float64)

    done = Training(
        job.unit.name,
        job.width,
        lrs,
        order,
        np.array(job.record, np.float64),
        curves("losses"),
        None if job.test is None else curves("test"),
        joined("diverged").reshape(shape),
        # Members are ordered by rate, then by seed, and all rates start alike.
        joined("start")[: len(order)].swapaxes(1, 2).astype(np.float64),
        time.perf_counter() - began,
    )
    _say_diverged(done)
    return done


def in_span(X: Any) -> np.ndarray:
    """The samples in the span of themselves: (n, min(n, d)) with the same products X X^T.

    Gradient descent moves weights within that span alone, and Gaussian weights look the same in any basis: networks
    on `in_span(X)` with fan_in=d are, in distribution, those on X, at n / d of the cost.

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


# ---- what was asked for


def _job(
    unit: Any,
    X: Any,
    y: Any,
    width: Any,
    lr: Any,
    steps: Any,
    seeds: Any,
    batch_size: Any,
    loss: Loss,
    test: Any,
    record: Any,
    fan_in: Any,
    dtype: torch.dtype,
    device: Any,
) -> Job:
    known = find_unit(unit)
    x = samples(X)
    n, d = x.shape
    Y = targets(y, n)
    loss_scale(loss, n)
    steps = whole(steps, "steps", 1)
    rates = [positive(value, "lr") for value in (lr if _several(lr) else [lr])]
    which = range(whole(seeds, "seeds", 1)) if np.ndim(seeds) == 0 else [whole(s, "a seed", 0) for s in seeds]
    # Each member is a pair in a list before it is a network.
    check_memory(200 * len(rates) * len(which), f"a list of {len(rates) * len(which)} networks", "give fewer seeds")
    if not rates or not len(which) or len(set(which)) < len(which) or len(set(rates)) < len(rates):
        raise GatelabError(f"lr is {lr!r} and seeds is {seeds!r}; give at least one of each, none twice")
    if batch_size is not None and whole(batch_size, "batch_size", 1) > n:
        raise GatelabError(f"batch_size is {batch_size} of {n} samples; give at most {n}, or leave it out")
    if fan_in is not None and isinstance(known, ModuleUnit):
        raise GatelabError(f"fan_in is of our own initialisation; the class {known.name!r} has its own")
    if dtype not in (torch.float32, torch.float64):
        raise GatelabError(f"dtype is {dtype}; give torch.float64 or torch.float32")
    where, width = check_device(device, dtype), check_width(width)
    members = len(rates) * len(which)
    recorded = _recorded(record, steps, members)
    _check_memory(known, width, x.shape, Y.shape[1], members, batch_size, dtype, where)

    def put(array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device=where, dtype=dtype)

    return Job(
        known,
        width,
        put(x),
        put(Y.T),
        None if test is None else _test(test, d, Y.shape[1], put),
        tuple((rate, seed) for rate in rates for seed in which),
        steps,
        recorded,
        None if batch_size is None else int(batch_size),
        loss,
        d if fan_in is None else whole(fan_in, "fan_in", 1),
    )


def _check_memory(
    unit: Any,
    width: int,
    shape: tuple[int, ...],
    outputs: int,
    members: int,
    batch_size: int | None,
    dtype: torch.dtype,
    where: torch.device,
) -> None:
    """Of one network the maps, the neurons' values and their derivatives; of all of them the outputs at the start."""
    n, d = shape
    maps = getattr(unit, "factors", 0) + 1
    one = width * (3 * maps * d + (maps + 2) * (batch_size or n)) + 4 * n * d
    check_memory(
        dtype.itemsize * (one + 2 * members * n * outputs),
        f"training {unit.name} of width {width} on {n} samples of {d} inputs, {members} networks,",
        "give a smaller width, fewer samples or fewer seeds",
        where,
    )


def _several(lr: Any) -> bool:
    return np.ndim(lr) > 0


def _test(test: Any, d: int, k: int, put: Callable[[np.ndarray], Tensor]) -> tuple[Tensor, Tensor]:
    if not isinstance(test, tuple | list) or len(test) != 2:
        raise GatelabError("test is not a pair; give (X, y) of the test data")
    x = samples(test[0], "the test samples")
    Y = targets(test[1], len(x))
    if x.shape[1] != d or Y.shape[1] != k:
        raise GatelabError(
            f"the test data have {x.shape[1]} inputs and {Y.shape[1]} outputs; the training data have {d} and {k}"
        )
    return put(x), put(Y.T)


def _recorded(record: Any, steps: int, members: int) -> tuple[int, ...]:
    """Rising steps; the first and the last are always among those that we choose."""
    if record is None:
        record = steps + 1 if steps <= RECORDED else 200
    if np.ndim(record) == 0:
        count = min(whole(record, "record", 2), steps + 1)
        # A number for every network in two precisions, and the steps themselves as Python's integers.
        check_memory(count * (100 + 16 * members), f"a record of {count} steps of {members} networks", "record fewer")
        if count == steps + 1:
            return tuple(range(steps + 1))
        return tuple(sorted({0, *np.round(np.geomspace(1, steps, count - 1)).astype(int).tolist()}))
    chosen = numbers(record, "record")
    if chosen.ndim != 1 or not chosen.size or (chosen != np.round(chosen)).any() or chosen.min() < 0:
        raise GatelabError(f"record is {record!r}; give how many steps, or a list of whole steps")
    if chosen.max() > steps:
        raise GatelabError(f"record asks for step {chosen.max():.0f} of {steps}; give steps up to the last")
    return tuple(sorted({int(s) for s in chosen}))


def _files(job: Job, folder: Any, every: float, count: int) -> list[Checkpoint | None]:
    if folder is None:
        return [None] * count
    facts = {
        "unit": describe(job.unit),
        "width": job.width,
        "members": job.members,
        "steps": job.steps,
        "record": job.record,
        "batch_size": job.batch_size,
        "loss": job.loss,
        "fan_in": job.fan_in,
    }
    tensors = {"X": job.X, "Y": job.Y}
    if job.test is not None:
        tensors |= {"X_test": job.test[0], "Y_test": job.test[1]}
    name = fingerprint(facts, tensors)
    return [Checkpoint(Path(folder), name, i, every) for i in range(count)]


def _say_diverged(done: Training) -> None:
    bad = done.diverged.ravel()
    if not (bad >= 0).any():
        return
    rows = done.diverged.reshape(len(done.lrs), len(done.seeds))
    at = [f"{rate:.3g}" for rate, row in zip(done.lrs, rows, strict=True) if (row >= 0).any()]
    warnings.warn(
        f"{int((bad >= 0).sum())} of {bad.size} networks of {done.unit!r} diverged, the first at step "
        f"{int(bad[bad >= 0].min())} (lr {', '.join(at)}); their losses are infinite from there on. "
        "gl.dynamics.stable_step(K) has the largest step that is stable",
        UserWarning,
        stacklevel=3,
    )
