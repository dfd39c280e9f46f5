"""`train`: gradient descent on two-layer networks, all seeds and learning rates in one batch.

The networks are cut into parts that fit a core's cache (or a GPU's memory); each part goes through all its steps by
itself, on a CPU in a thread of its own. So what a part computes depends neither on the number of threads nor on when
it was interrupted: a training that was killed goes on from its checkpoints to bit-equal losses.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from gatelab.display import ProgressLike, reporting
from gatelab.dynamics.runs import Checkpoint, Job, Training, run_parts, training_name
from gatelab.dynamics.spectral import Loss, loss_scale, numbers, positive, samples, seed_numbers, targets
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import AnyUnit, ModuleUnit
from gatelab.feedforward import unit as find_unit
from gatelab.feedforward.definition import check_width
from gatelab.feedforward.registry import describe
from gatelab.memory import check_device, check_memory

RECORDED = 1000  # up to as many steps all are recorded by default


class FurtherOptions(TypedDict, total=False):
    """Keywords of `train` that are seldom given; their defaults are those of `TrainingRequest`."""

    record: int | Sequence[int] | None
    fan_in: int | None
    dtype: torch.dtype
    device: str | torch.device | None
    every: float


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
    checkpoint: str | Path | None = None,
    progress: ProgressLike = None,
    **further: Unpack[FurtherOptions],
) -> Training:
    """Train two-layer networks of `unit` without biases on (1/2)|f - y|^2 by gradient descent from LeCun's weights.

    Networks that diverge are recorded, and a warning says so.

    Args:
        unit: whatever `gl.unit` takes.
        X: the samples, (n, d).
        y: their targets, (n,) or (n, outputs).
        width: how many neurons a network has.
        lr: the learning rate; with several, every seed is trained at each.
        steps: how many updates.
        seeds: how many networks, or which seeds.
        batch_size: makes batches, a function of (seed, step), whose gradient is scaled by n / batch_size, so that `lr`
            means the same; None takes all samples at every step.
        loss: with "mean" loss and gradient are divided by n.
        test: test data (X, y), whose losses are recorded as those of the training data are.
        checkpoint: a folder in which the state is saved; a call that is the same goes on from there, on a CPU to
            bit-equal losses.
        progress: shown on a terminal and in a notebook unless it is False, or a function of (done, total).
        further: `record`, how many steps are recorded, or which (by default every one up to 1000 steps, else 200);
            `fan_in`, d of N(0, 1/d) where X is a rotation of samples of more inputs (`in_span`); `dtype`, torch.float64
            or float32; `device`, the CPU by default; `every`, the seconds between two checkpoints, 10 by default.

    Returns:
        The losses of every network, as a `Training`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((20, 5))
    >>> run = train("glu", X, X[:, 0], width=64, lr=1e-3, steps=50, seeds=4)
    >>> run.losses.shape, bool((run.losses[:, -1] < run.losses[:, 0]).all())
    ((4, 51), True)
    """
    began = time.perf_counter()
    request = TrainingRequest(
        unit, X, y, width, lr, steps, seeds=seeds, batch_size=batch_size, loss=loss, test=test, **further
    )
    job = request.job()
    parts = job.parts()
    with reporting(progress, f"training {job.unit.name}") as report:
        books = run_parts(job, parts, checkpoints(job, checkpoint, request.every, len(parts)), report)
    lrs = tuple(dict.fromkeys(rate for rate, _ in job.members))
    order = tuple(dict.fromkeys(seed for _, seed in job.members))
    shape = (len(lrs), len(order)) if np.ndim(lr) > 0 else (len(order),)

    def joined(name: str, axis: int = 0) -> np.ndarray:
        return torch.cat([book[name] for book in books], axis).numpy()

    def curves(name: str) -> np.ndarray:
        return joined(name, 1).T.reshape(*shape, -1).astype(np.float64)

    training = Training(
        unit=job.unit.name,
        width=job.width,
        lrs=lrs,
        seeds=order,
        steps=np.array(job.record, np.float64),
        losses=curves("losses"),
        test_losses=None if job.test is None else curves("test"),
        diverged=joined("diverged").reshape(shape),
        # Members are ordered by rate, then by seed, and all rates start alike.
        start=joined("start")[: len(order)].swapaxes(1, 2).astype(np.float64),
        seconds=time.perf_counter() - began,
    )
    message = divergence(training)
    if message:
        warnings.warn(message, UserWarning, stacklevel=2)
    return training


def in_span(X: Any) -> np.ndarray:
    """The samples in the span of themselves: (n, min(n, d)) with the same products X X^T.

    Gradient descent moves weights within that span alone, and Gaussian weights look the same in any basis: networks
    on `in_span(X)` with fan_in=d are, in distribution, those on X, at n / d of the cost.

    Args:
        X: the samples, (n, d).

    Returns:
        Their coordinates in an orthonormal basis of the span; X itself where d is at most n.

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


@dataclass(frozen=True, eq=False)
class TrainingRequest:
    """The arguments of `train` as a user gives them; `job` checks them."""

    unit: Any
    X: Any
    y: Any
    width: int
    lr: float | Sequence[float]
    steps: int
    seeds: int | Sequence[int]
    batch_size: int | None
    loss: Loss
    test: tuple[Any, Any] | None
    record: int | Sequence[int] | None = None
    fan_in: int | None = None
    dtype: torch.dtype = torch.float64
    device: str | torch.device | None = None
    every: float = 10.0

    def job(self) -> Job:
        """What is to be trained, every argument checked and the memory that it takes counted."""
        known = find_unit(self.unit)
        x = samples(self.X)
        n, d = x.shape
        Y = targets(self.y, n)
        loss_scale(self.loss, n)
        steps = whole_number("steps", self.steps, 1)
        members = self.members()
        if self.batch_size is not None and whole_number("batch_size", self.batch_size, 1) > n:
            raise GatelabError(f"batch_size is {self.batch_size} of {n} samples; give at most {n}, or leave it out")
        if self.fan_in is not None and isinstance(known, ModuleUnit):
            raise GatelabError(f"fan_in is of our own initialisation; the class {known.name!r} has its own")
        if self.dtype not in (torch.float32, torch.float64):
            raise GatelabError(f"dtype is {self.dtype}; give torch.float64 or torch.float32")
        device, width = check_device(self.device, self.dtype), check_width(self.width)
        record = recorded_steps(self.record, steps, len(members))
        self.check_memory(known, (n, d, Y.shape[1]), len(members), device)

        def put(array: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device=device, dtype=self.dtype)

        return Job(
            unit=known,
            width=width,
            X=put(x),
            Y=put(Y.T),
            test=self.test_data(d, Y.shape[1], put),
            members=members,
            steps=steps,
            record=record,
            batch_size=None if self.batch_size is None else int(self.batch_size),
            loss=self.loss,
            fan_in=d if self.fan_in is None else whole_number("fan_in", self.fan_in, 1),
        )

    def members(self) -> tuple[tuple[float, int], ...]:
        """Every learning rate with every seed."""
        given_rates: Any = self.lr
        if np.ndim(given_rates) == 0:
            given_rates = [given_rates]
        rates = [positive(value, "lr") for value in given_rates]
        seeds = seed_numbers(self.seeds)
        # Each member is a pair in a list before it is a network.
        check_memory(200 * len(rates) * len(seeds), f"a list of {len(rates) * len(seeds)} networks", "give fewer seeds")
        if not rates or not len(seeds) or len(set(seeds)) < len(seeds) or len(set(rates)) < len(rates):
            raise GatelabError(f"lr is {self.lr!r} and seeds is {self.seeds!r}; give at least one of each, none twice")
        return tuple((rate, seed) for rate in rates for seed in seeds)

    def check_memory(self, unit: AnyUnit, shape: tuple[int, int, int], members: int, device: torch.device) -> None:
        """Refuse what does not fit; `shape` is samples, inputs and outputs.

        Of one network the maps, the neurons' values and their derivatives count; of all of them the outputs at the
        start.
        """
        n, d, outputs = shape
        maps = getattr(unit, "factors", 0) + 1
        network = self.width * (3 * maps * d + (maps + 2) * (self.batch_size or n)) + 4 * n * d
        check_memory(
            self.dtype.itemsize * (network + 2 * members * n * outputs),
            f"training {unit.name} of width {self.width} on {n} samples of {d} inputs, {members} networks,",
            "give a smaller width, fewer samples or fewer seeds",
            device,
        )

    def test_data(self, d: int, outputs: int, put: Callable[[np.ndarray], Tensor]) -> tuple[Tensor, Tensor] | None:
        """The test data, if there are any: of d inputs and as many outputs as the training data."""
        if self.test is None:
            return None
        if not isinstance(self.test, tuple | list) or len(self.test) != 2:
            raise GatelabError("test is not a pair; give (X, y) of the test data")
        x = samples(self.test[0], "the test samples")
        Y = targets(self.test[1], len(x))
        if x.shape[1] != d or Y.shape[1] != outputs:
            raise GatelabError(
                f"the test data have {x.shape[1]} inputs and {Y.shape[1]} outputs; the training data have {d} and"
                f" {outputs}"
            )
        return put(x), put(Y.T)


def recorded_steps(record: Any, steps: int, members: int) -> tuple[int, ...]:
    """Rising steps; the first and the last are always among those that we choose.

    >>> recorded_steps(3, 100, members=1), recorded_steps([7, 3], 100, members=1)
    ((0, 1, 100), (3, 7))
    """
    if record is None:
        record = steps + 1 if steps <= RECORDED else 200
    if np.ndim(record) == 0:
        count = min(whole_number("record", record, 2), steps + 1)
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


def checkpoints(job: Job, folder: str | Path | None, every: float, count: int) -> list[Checkpoint | None]:
    """The file of each part in `folder`, under the name of what is trained; None for each without a folder."""
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
    name = training_name(facts, tensors)
    return [Checkpoint(Path(folder), name, i, every) for i in range(count)]


def divergence(training: Training) -> str:
    """Which networks diverged, in a sentence; empty where none did."""
    first = training.diverged[training.diverged >= 0]
    if not first.size:
        return ""
    rows = training.diverged.reshape(len(training.lrs), len(training.seeds))
    rates = [f"{rate:.3g}" for rate, row in zip(training.lrs, rows, strict=True) if (row >= 0).any()]
    return (
        f"{first.size} of {training.diverged.size} networks of {training.unit!r} diverged, the first at step "
        f"{int(first.min())} (lr {', '.join(rates)}); their losses are infinite from there on. "
        "gl.dynamics.stable_step(K) has the largest step that is stable"
    )
