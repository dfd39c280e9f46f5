"""Variable projection: any unit in any dimension, many networks in one batch, on CPU and CUDA alike.

Three parts, each in a file of its own: what is linear is eliminated (`features`, with `linalg.least_squares`), what is
left moves by Levenberg-Marquardt (`marquardt`), and neurons come and go (`insertion`). A network

1. grows from nothing, by a third at a time, each new neuron the best of many candidates for the present residual;
2. goes through rounds: the neurons that matter least give way to new ones, and the change is kept if the error falls;
3. settles.

Every member of a batch has its own generator and its own course: the result is that of fitting it alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.solve.batches import on_threads, parts
from gatelab.solve.common import UnitLike, check_steps
from gatelab.solve.features import ProductModel
from gatelab.solve.insertion import inserted, removed
from gatelab.solve.marquardt import Descent, descend
from gatelab.solve.module_model import ModuleModel
from gatelab.solve.solution import Solution
from gatelab.solve.standard import Standard
from gatelab.units import ModuleUnit, Unit
from gatelab.units import unit as as_unit
from gatelab.units.unit import check_width

if TYPE_CHECKING:
    from gatelab.problems import Problem

_GROWING_STEPS, _ROUND_STEPS, _ROUGH = 10, 12, 1e-3
_SHARE = 0.15
_SETTLED = 1e-6


def varpro(
    unit: UnitLike,
    problem: Problem,
    width: int,
    *,
    seed: int = 0,
    starts: int = 4,
    rounds: int = 8,
    steps: int = 100,
    ridge: float = 0.0,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Solution:
    """The best of `starts` networks, each grown, changed in `rounds` and settled in at most `steps` steps.

    `ridge` adds ridge times the sum of squares of what is linear, for inputs and targets of unit variance.

    >>> import numpy as np
    >>> from gatelab.problems import Problem
    >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> bowl = Problem.from_arrays(x, (x**2).sum(1))
    >>> varpro("bilinear", bowl, 2).history[-1] < 1e-12
    True
    """
    chosen, x, y = as_unit(unit), problem.train.x, problem.train.y
    if isinstance(chosen, ModuleUnit):
        how = _Course(_whole("starts", starts, 1), _whole("rounds", rounds, 0), check_steps(steps))
        return _solve_module(chosen, x, y, check_width(width), seed, how, _ridges(ridge, 1)[0])
    return varpro_many(
        chosen,
        x,
        y,
        [(width, seed)],
        starts=starts,
        rounds=rounds,
        steps=steps,
        ridge=ridge,
        device=device,
        progress=progress,
    )[0]


def varpro_many(
    unit: UnitLike,
    x: np.ndarray,
    y: np.ndarray,
    members: Sequence[tuple[int, int]],
    *,
    starts: int = 4,
    rounds: int = 8,
    steps: int = 100,
    ridge: float | Sequence[float] = 0.0,
    weights: np.ndarray | None = None,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Solution, ...]:
    """A solution for every (width, seed) of `members`, all in one batch; each is what `varpro` would find alone.

    `ridge` is one number or one for each member; `weights` of the rows are (N,) or (members, N), none negative. On a
    CPU the batch is shared out among torch's threads; `progress(done, total)` is called after every phase of a part.

    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> small, large = varpro_many("silu", x, np.sin(3 * x), [(2, 0), (4, 0)], starts=2)
    >>> large.history[-1] < small.history[-1] < 0.1
    True
    """
    chosen = as_unit(unit)
    if not isinstance(chosen, Unit):
        raise GatelabError(f"{chosen.name!r} is a class, which is fitted one at a time; use varpro, or gl.fit")
    how = _Course(_whole("starts", starts, 1), _whole("rounds", rounds, 0), check_steps(steps))
    data = Standard.of(x, y, _weights(weights, len(members), len(x)), _device(device))
    ridges = _ridges(ridge, len(members))
    starts_of = [
        _Start(m, check_width(width), _generator(seed, s), ridges[m])
        for m, (width, seed) in enumerate(members)
        for s in range(how.starts)
    ]
    found: dict[int, tuple[float, Solution]] = {}
    row = 16 * len(x) * 2 * (chosen.factors + 1) * data.x.shape[1]  # what F, J and copies of them take for a neuron
    pieces = [[starts_of[i] for i in part] for part in parts([s.width for s in starts_of], row, data.x.device)]
    tick = _ticker(progress, len(pieces) * (how.rounds + 2))

    def solve(piece: list[_Start]) -> list[tuple[float, Solution]]:
        return _solve(chosen, data, piece, how, tick)

    for piece, solutions in zip(pieces, on_threads(solve, pieces, data.x.device), strict=True):
        for start, (loss, solution) in zip(piece, solutions, strict=True):
            if start.member not in found or loss < found[start.member][0]:
                found[start.member] = (loss, solution)
    return tuple(found[m][1] for m in range(len(members)))


@dataclass(frozen=True)
class _Course:
    starts: int
    rounds: int
    steps: int


@dataclass(frozen=True)
class _Start:
    """One start of one member."""

    member: int
    width: int
    generator: torch.Generator
    ridge: float


def _solve(
    unit: Unit, data: Standard, part: Sequence[_Start], how: _Course, tick: Callable[[], None]
) -> list[tuple[float, Solution]]:
    """Grow, change and settle a batch."""
    device = data.x.device
    weight = None
    if data.root_weight is not None:
        rows = [s.member if len(data.root_weight) > 1 else 0 for s in part]
        weight = data.root_weight[rows]
    ridge = torch.tensor([s.ridge for s in part], dtype=torch.float64, device=device)
    empty = torch.zeros(len(part), 0, dtype=torch.bool, device=device)
    model = ProductModel(unit, data.x, data.y, empty, ridge, weight)
    theta = torch.zeros(len(part), model.maps, 0, data.x.shape[1], dtype=torch.float64, device=device)
    floor = model.project(theta).loss
    generators, widths = [s.generator for s in part], [s.width for s in part]

    def run(steps: Sequence[int], tolerance: float) -> Descent:
        return descend(model, theta, steps, tolerance=tolerance, floor=floor)

    histories: list[list[float]] = [[] for _ in part]
    now = run([0] * len(part), _ROUGH)
    for stage in _stages(max(widths)):
        wanted = [min(stage, w) - int(n) for w, n in zip(widths, model.present.sum(1).tolist(), strict=True)]
        model, theta = inserted(model, theta, now.found, wanted, generators)
        now = run([_GROWING_STEPS if k else 0 for k in wanted], _ROUGH)
        theta = now.theta
        _extend(histories, now)
    tick()
    for _ in range(how.rounds):
        changed = _changed(model, theta, now, generators)
        trial = descend(*changed, [_ROUND_STEPS] * len(part), tolerance=_ROUGH, floor=floor)
        better = (trial.found.loss < now.found.loss).nonzero()[:, 0]
        theta = theta.clone()
        theta[better] = trial.theta[better]
        present = model.present.clone()
        present[better] = changed[0].present[better]
        model = replace(model, present=present)
        now.found.put(better, trial.found.take(better))
        now = replace(now, theta=theta)
        _extend(histories, trial, keep=set(better.tolist()))
        tick()
    now = run([how.steps] * len(part), _SETTLED)
    _extend(histories, now)
    tick()
    return [
        (
            loss,
            Solution(data.undo(model.network(now.theta, now.found.coefficients, b, s.width)), status, tuple(history)),
        )
        for b, (s, loss, status, history) in enumerate(
            zip(part, now.found.loss.tolist(), now.status, _rmse(histories, data), strict=True)
        )
    ]


def _solve_module(
    unit: ModuleUnit, x: np.ndarray, y: np.ndarray, width: int, seed: int, how: _Course, ridge: float
) -> Solution:
    """A class has its own neurons and its own way to begin: all the steps go into the settling of its starts."""
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    nets = [unit.network(width, x.shape[1], y.shape[1], seed=_state(seed, s) % 2**31) for s in range(how.starts)]
    model = ModuleModel.of(nets[0], inputs, targets, ridge)
    theta = torch.stack([model.start(net) for net in nets])
    floor = targets.square().sum().expand(len(theta))
    steps = [how.steps + how.rounds * _ROUND_STEPS] * len(theta)
    now = descend(model, theta, steps, tolerance=_SETTLED, floor=floor)
    loss = now.found.loss.nan_to_num(torch.inf)
    best = int(loss.argmin())
    if not math.isfinite(float(loss[best])):
        raise GatelabError(
            f"the first loss of {unit.name!r} is not finite: look for where the unit divides or overflows"
        )
    history = tuple(math.sqrt(v / targets.numel()) for v in now.losses[best])
    return Solution(model.network(now.theta[best], now.found.coefficients[best]), now.status[best], history)


def _changed(
    model: ProductModel, theta: Tensor, now: Descent, generators: list[torch.Generator]
) -> tuple[ProductModel, Tensor]:
    """The batch with some of its cheapest neurons exchanged for new ones."""
    widths = model.present.sum(1).tolist()
    shares = [2 * _SHARE * float(torch.rand(1, generator=g)) for g in generators]
    count = [max(1, round(s * n)) for s, n in zip(shares, widths, strict=True)]
    fewer = removed(model, now.found, count, generators)
    return inserted(fewer, theta, fewer.project(theta), count, generators)


def _stages(width: int) -> Iterator[int]:
    """Widths on the way to `width`: a third more each time.

    >>> list(_stages(20))
    [2, 3, 4, 5, 6, 8, 10, 13, 17, 20]
    """
    n = min(2, width)
    while n < width:
        yield n
        n += max(1, n // 3)
    yield width


def _extend(histories: list[list[float]], descent: Descent, keep: set[int] | None = None) -> None:
    for b, losses in enumerate(descent.losses):
        if keep is None or b in keep:
            histories[b].extend(losses)


def _rmse(histories: list[list[float]], data: Standard) -> list[tuple[float, ...]]:
    values = data.y.numel()
    return [tuple(data.y_scale * math.sqrt(max(v, 0.0) / values) for v in h) or (math.nan,) for h in histories]


def _ticker(progress: Callable[[int, int], None] | None, total: int) -> Callable[[], None]:
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    return tick


def _state(seed: int, start: int) -> int:
    return int(np.random.SeedSequence((int(seed), start)).generate_state(1, np.uint64)[0]) % 2**63


def _generator(seed: int, start: int) -> torch.Generator:
    return torch.Generator().manual_seed(_state(seed, start))


def _whole(what: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < least:
        raise GatelabError(f"{what} is {value!r}; give a whole number, {least} or more")
    return int(value)


def _ridges(ridge: float | Sequence[float], members: int) -> list[float]:
    values = np.broadcast_to(np.asarray(ridge, dtype=np.float64), (members,)).tolist()
    if not all(math.isfinite(v) and v >= 0 for v in values):
        raise GatelabError(f"ridge is {ridge!r}; give a finite number, 0 or more")
    return values


def _weights(weights: np.ndarray | None, members: int, n: int) -> np.ndarray | None:
    if weights is None:
        return None
    w = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    if w.shape not in {(1, n), (members, n)} or not np.isfinite(w).all() or (w < 0).any() or (w.sum(1) <= 0).any():
        raise GatelabError(
            f"weights have the shape {np.shape(weights)}; give ({n},) or ({members}, {n}) finite numbers, none "
            "negative and not all zero"
        )
    return w


def _device(device: str) -> torch.device:
    try:
        found = torch.device(device)
        torch.zeros(1, dtype=torch.float64, device=found)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise GatelabError(
            f"device is {device!r}, which torch cannot use here ({reason}); give 'cpu', or run where torch has it"
        ) from None
    return found
