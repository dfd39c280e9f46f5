"""Variable projection: any unit in any dimension, many networks in one batch, on CPU and CUDA alike.

Three parts, each in a file beside this folder: what is linear is eliminated (`features`, with `linalg.least_squares`),
what is left moves by Levenberg-Marquardt (`marquardt`), and neurons come and go (`insertion`). A network

1. grows from nothing, by a third at a time, each new neuron the best of many candidates for the present residual;
2. goes through rounds: the neurons that matter least give way to new ones, and the change is kept if the error falls;
3. settles.

Every member of a batch has its own generator and its own course: the result is that of fitting it alone.

`steps` cuts this course where a network has used them up: its steps are those of its growth, of the rounds whose change
it kept and of its settling. Steps that do not cover its growth all go into its settling: neurons are then inserted one
after the other without a step between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, count
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gatelab.display import Listener
from gatelab.errors import GatelabError, check_seed, whole_number
from gatelab.feedforward import AnyUnit, FunctionUnit, ModuleUnit, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.definition import check_width
from gatelab.memory import check_device
from gatelab.solve.constructions import embedded, start_network
from gatelab.solve.features import ModuleModel, ProductModel
from gatelab.solve.insertion import draw, inserted, removed
from gatelab.solve.marquardt import Descent, Standard, descend, on_threads, parts
from gatelab.solve.solution import (
    UNLIMITED,
    Solution,
    Status,
    UnitLike,
    check_fit_memory,
    check_steps,
    mean_square,
    tensors,
)
from gatelab.solve.solvers import solver

if TYPE_CHECKING:
    from gatelab.data import Problem

# Steps after each insertion while a network grows, and in a round; both end early where a step gains less than ROUGH.
_GROWING_STEPS, _ROUND_STEPS, _ROUGH = 10, 8, 1e-3
# A round exchanges up to so many neurons, or this share of them if that is more.
_FEW, _SHARE = 4, 0.16
# A network settles for so many steps, and again, so many times in all, while its loss falls below this share.
_SETTLING_STEPS, _SETTLINGS, _FELL, _SETTLED = 100, 6, 0.01, 1e-6
# A loss that is rounding, for targets of unit variance, for each of their values.
_ROUNDING = 1e-24
# Monomials, and their values at the rows, up to which networks of open gates are thought of; and how far beyond the
# rows these open, in their range.
_MONOMIALS, _VALUES, _BEYOND = 200, 2**24, 0.5
# Coefficients beyond it are unlikely, for data of unit variance.
_LARGEST = 1e3


def varpro_bytes(unit: AnyUnit, width: int, n: int, d_in: int, d_out: int) -> int:
    """3 arrays (N, m + p) and 6 squares of m + p for each network: m columns are linear, p move."""
    factors = getattr(unit, "factors", 0)
    lines = isinstance(unit, Unit) and not isinstance(unit, FunctionUnit) and factors > 0 and d_out == 1
    linear = width
    if lines:
        linear *= d_in + 1
    moving = width * (d_in + 1) * (factors + 1 - lines)
    columns = linear + moving + 1
    return 8 * (3 * n * columns + 6 * columns**2)


@solver("varpro", memory=varpro_bytes)
def solve_varpro(
    unit: UnitLike,
    problem: Problem,
    width: int,
    *,
    seed: int = 0,
    starts: int = 4,
    rounds: int = 24,
    steps: int | None = None,
    ridge: float = 0.0,
    device: str = "cpu",
    start: object = None,
    progress: Listener | None = None,
) -> Solution:
    """The best of several networks, each grown, changed in rounds and settled.

    >>> import numpy as np
    >>> from gatelab.data import Problem
    >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> bowl = Problem.from_arrays(x, (x**2).sum(1))
    >>> solve_varpro("bilinear", bowl, 2).history[-1] < 1e-9
    True
    """
    chosen, x, y = as_unit(unit), problem.train.x, problem.train.y
    if isinstance(chosen, ModuleUnit):
        if start is not None:
            raise GatelabError(f"{chosen.name!r} is a class, which begins by itself; leave start out")
        how = _Course.of(starts, rounds, steps)
        return _solve_module(chosen, x, y, check_width(width), seed, how, _ridges(ridge, 1)[0])
    how = {"starts": starts, "rounds": rounds, "steps": steps, "ridge": ridge, "device": device, "start": start}
    (solution,) = varpro_many(chosen, x, y, [(width, seed)], **how, progress=progress)
    if start is None or ridge:
        return solution
    # The prior on large coefficients, and columns that coincide, may have cost what the start had.
    first = embedded(start_network(start, chosen, width, (problem.d_in, problem.d_out)), chosen, width)
    before, after = (mean_square(net, *tensors(problem)) for net in (first, solution.network))
    if after <= before:
        return solution
    return Solution(first, Status.STALLED, (math.sqrt(before),))


def varpro_many(
    unit: UnitLike,
    x: np.ndarray,
    y: np.ndarray,
    members: Sequence[tuple[int, int]],
    *,
    starts: int = 4,
    rounds: int = 24,
    steps: int | None = None,
    ridge: float | Sequence[float] = 0.0,
    weights: np.ndarray | None = None,
    device: str = "cpu",
    start: object = None,
    progress: Listener | None = None,
) -> tuple[Solution, ...]:
    """A solution for every member of a batch; each is what `solve_varpro` would find alone.

    On a CPU the batch is shared out among torch's threads.

    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> small, large = varpro_many("silu", x, np.sin(3 * x), [(2, 0), (4, 0)], starts=1, rounds=1)
    >>> large.history[-1] < small.history[-1] < 0.1
    True
    """
    chosen = as_unit(unit)
    if not isinstance(chosen, Unit):
        raise GatelabError(f"{chosen.name!r} is a class, which is fitted one at a time; use varpro, or gl.fit")
    how, first = _Course.of(starts, rounds, steps), None
    if start is not None:
        narrowest = min((check_width(width) for width, _ in members), default=1)
        how, first = replace(how, starts=1), start_network(start, chosen, narrowest, (x.shape[1], y.shape[1]))
    where = check_device(device)
    widest = max((check_width(width) for width, _ in members), default=1)
    check_fit_memory("varpro", chosen, widest, len(x), (x.shape[1], y.shape[1]), where)
    data = Standard.of(x, y, _weights(weights, len(members), len(x)), where)
    ridges = _ridges(ridge, len(members))
    starts_of = [
        _Start(m, check_width(width), torch.Generator().manual_seed(start_seed(seed, s)), ridges[m])
        for m, (width, seed) in enumerate(members)
        for s in range(how.starts)
    ]
    best: dict[int, tuple[float, Solution]] = {}
    row = 16 * len(x) * 2 * (chosen.factors + 1) * data.x.shape[1]  # what F, J and copies of them take for a neuron
    pieces = [[starts_of[i] for i in part] for part in parts([s.width for s in starts_of], row, data.x.device)]
    phases, total = count(1), len(pieces) * (how.rounds + 2)

    def tick() -> None:
        phase = next(phases)
        if progress:
            progress(phase, total)

    def solve(piece: list[_Start]) -> list[tuple[float, Solution]]:
        batch = _Batch.of(chosen, data, piece, how.steps)
        if first is not None:
            batch.begin(data.maps_of(first)[:, : batch.model.maps])
        batch.run(how.rounds, tick)
        return batch.solutions(data)

    for piece, solutions in zip(pieces, on_threads(solve, pieces, data.x.device), strict=True):
        for begun, (loss, solution) in zip(piece, solutions, strict=True):
            if begun.member not in best or loss < best[begun.member][0]:
                best[begun.member] = (loss, solution)
    if first is not None:
        return tuple(best[m][1] for m in range(len(members)))

    def solve_open(begun: _Start) -> tuple[float, Solution]:
        batch = _Batch.of(chosen, data, [begun], how.steps)
        batch.begin(open_maps(batch.model, begun.width, begun.generator))
        batch.run(0, lambda: None)
        return batch.solutions(data)[0]

    bounds = polynomial_losses(chosen, data, len(members))
    opened = [
        _Start(m, width, torch.Generator().manual_seed(start_seed(seed, how.starts)), ridges[m])
        for m, (width, seed) in enumerate(members)
        if bounds[m] <= max(best[m][0], _ROUNDING * data.y.numel())
    ]
    for begun, (loss, solution) in zip(opened, on_threads(solve_open, opened, data.x.device), strict=True):
        # Of networks that are exact at the rows, the one without gates between them is the target's.
        if solution.status is Status.FLOOR or loss < best[begun.member][0]:
            best[begun.member] = (loss, solution)
    return tuple(best[m][1] for m in range(len(members)))


def open_maps(model: ProductModel, width: int, generator: torch.Generator) -> Tensor:
    """Maps (1, maps, width, d_in + 1) in random directions whose gates are open at every row.

    Products of such gates with lines are polynomials, among them the two neurons that are x^2 + y^2. Candidates for
    insertion have their hyperplanes between the rows, and would not find them.
    """
    theta = draw(model, width, generator).to(model.x.device)
    values = model.x[:, :-1] @ theta[0, :, :-1].mT
    least, most = values.amin(0), values.amax(0)
    theta[0, :, -1] = _BEYOND * (most - least) - least
    return theta[None]


def polynomial_losses(unit: Unit, data: Standard, members: int) -> list[float]:
    """What no network whose gates are all open can pass: the loss of the best polynomial, for each member.

    Infinite, so that such networks are not tried, where the gate is no power of relu or there are too many monomials.
    """
    x = data.x[:, :-1]
    if unit.degree is None:
        return [math.inf] * members
    monomials = math.comb(x.shape[1] + unit.degree, unit.degree)
    if monomials > min(_MONOMIALS, len(x) // 2) or monomials * len(x) > _VALUES:
        return [math.inf] * members
    columns = [torch.ones_like(x[:, 0])]
    for degree in range(1, unit.degree + 1):
        for factors in combinations_with_replacement(range(x.shape[1]), degree):
            columns.append(x[:, list(factors)].prod(-1))
    F, losses = torch.stack(columns, -1), []
    roots = torch.ones_like(x[None, :, 0])
    if data.root_weight is not None:
        roots = data.root_weight
    for root in roots:
        weighted, y = F * root[:, None], data.y * root[:, None]
        basis, _ = torch.linalg.qr(weighted)
        losses.append(float((y - basis @ (basis.mT @ y)).square().sum()))
    return losses * (members // len(losses))


@dataclass(frozen=True)
class _Course:
    """How hard each member is tried: starts, rounds, and the most steps of a network."""

    starts: int
    rounds: int
    steps: int

    @classmethod
    def of(cls, starts: Any, rounds: Any, steps: Any) -> _Course:
        return cls(whole_number("starts", starts, 1), whole_number("rounds", rounds, 0), check_steps(steps))


@dataclass(frozen=True)
class _Start:
    """One start of one member."""

    member: int
    width: int
    generator: torch.Generator
    ridge: float


class _Batch:
    """A batch on its course: the model and where it is now, both replaced as it goes, and the steps that are left."""

    @classmethod
    def of(cls, unit: Unit, data: Standard, part: Sequence[_Start], steps: int) -> _Batch:
        device = data.x.device
        weight = None
        if data.root_weight is not None:
            shared = len(data.root_weight) == 1
            weight = data.root_weight[[0 if shared else s.member for s in part]]
        empty = torch.zeros(len(part), 0, dtype=torch.bool, device=device)
        ridge = torch.tensor([s.ridge for s in part], dtype=torch.float64, device=device)
        return cls(ProductModel(unit, data.x, data.y, empty, ridge, weight), part, steps)

    def __init__(self, model: ProductModel, part: Sequence[_Start], steps: int) -> None:
        self.model, self.ridge = model, model.ridge
        self.widths, self.generators = [s.width for s in part], [s.generator for s in part]
        self.histories: list[list[float]] = [[] for _ in part]
        self.limited = steps < UNLIMITED
        self.left = [steps] * len(part)
        self.grown = [n >= growing_steps(w) for n, w in zip(self.left, self.widths, strict=True)]
        shape = (len(part), model.maps, 0, model.x.shape[1])
        nothing = torch.zeros(shape, dtype=torch.float64, device=model.x.device)
        self.floor = model.project(nothing).loss
        self.now = self.descended(nothing, [0] * len(part), _ROUGH)

    def begin(self, theta: Tensor) -> None:
        """Begin with the neurons of these maps (1, maps, n, d_in + 1), of which no member has more than its width."""
        theta = theta.expand(len(self.widths), -1, -1, -1)
        present = torch.ones(theta.shape[0], theta.shape[2], dtype=torch.bool, device=theta.device)
        self.model = replace(self.model, present=present)
        self.now = self.descended(self.model.normalised(theta), [0] * len(self.widths), _ROUGH)

    def run(self, rounds: int, tick: Callable[[], None]) -> None:
        """Grow, change and settle, with a tick after each phase."""
        self.grow()
        tick()
        for _ in range(rounds):
            self.change()
            tick()
        self.settle()
        tick()

    def solutions(self, data: Standard) -> list[tuple[float, Solution]]:
        """The loss and the solution of each member; where no step was needed, the history is what the start had."""
        now, pairs = self.now, []
        for b, loss in enumerate(now.projection.loss.tolist()):
            losses = self.histories[b] or [loss]
            history = tuple(data.y_scale * math.sqrt(max(v, 0.0) / data.y.numel()) for v in losses)
            network = data.undo(self.model.network(now.theta, now.projection.coefficients, b, self.widths[b]))
            pairs.append((loss, Solution(network, now.status[b], history)))
        return pairs

    def grow(self) -> None:
        """Insert all neurons; between stages the members with enough steps descend."""
        for stage in growing_widths(max(self.widths)):
            present = self.model.present.sum(1).tolist()
            wanted = [max(min(stage, w) - int(n), 0) for w, n in zip(self.widths, present, strict=True)]
            self.model, theta = inserted(self.model, self.now.theta, self.now.projection, wanted, self.generators)
            steps = [_GROWING_STEPS * bool(k and g) for k, g in zip(wanted, self.grown, strict=True)]
            self.now = self.descended(theta, steps, _ROUGH)
            self.remember(self.now, range(len(self.widths)))

    def change(self) -> None:
        """One round: some of the cheapest neurons are exchanged for new ones, and members that gain by it keep it.

        A gain that needs more steps than are left ends the member's course: so more steps continue the same course.
        """
        takes_part = [g and n > 0 for g, n in zip(self.grown, self.left, strict=True)]
        if not any(takes_part):
            return
        most = [min(max(_FEW, round(_SHARE * n)), max(n - 1, 1)) for n in self.model.present.sum(1).tolist()]
        exchanged = [
            int(torch.randint(1, k + 1, (1,), generator=g)) for k, g in zip(most, self.generators, strict=True)
        ]
        theta, here = self.now.theta, self.now.projection
        fewer = removed(self.model, here, exchanged, self.generators)
        other, moved = inserted(fewer, theta, fewer.project(theta), exchanged, self.generators)
        steps = [_ROUND_STEPS * p for p in takes_part]
        trial = descend(other, moved, steps, tolerance=_ROUGH, floor=self.floor)
        gained = [p and g for p, g in zip(takes_part, (trial.projection.loss < here.loss).tolist(), strict=True)]
        fits = [len(losses) <= n for losses, n in zip(trial.losses, self.left, strict=True)]
        self.left = [n * (f or not g) for n, f, g in zip(self.left, fits, gained, strict=True)]
        members = [b for b, (g, f) in enumerate(zip(gained, fits, strict=True)) if g and f]
        better = torch.tensor(members, dtype=torch.long, device=theta.device)
        theta, present = theta.clone(), self.model.present.clone()
        theta[better], present[better] = trial.theta[better], other.present[better]
        here.put(better, trial.projection.take(better))
        self.model, self.now = replace(self.model, present=present), replace(self.now, theta=theta)
        self.remember(trial, members)

    def settle(self) -> None:
        """To the end, and again where the loss has fallen so far that the prior, which follows it, is out of date.

        Where steps were given it also goes on until it has come to rest or they are spent.
        """
        status = [Status.BUDGET] * len(self.widths)
        steps = [min(_SETTLING_STEPS, n) for n in self.left]
        settlings = 0
        while any(steps) or not settlings:
            before = self.now.projection.loss
            self.weigh()
            self.now = self.descended(self.now.theta, steps, _SETTLED)
            self.remember(self.now, range(len(self.widths)))
            status = [
                new if n or new is Status.FLOOR else old
                for old, new, n in zip(status, self.now.status, steps, strict=True)
            ]
            settlings += 1
            fell = (self.now.projection.loss < _FELL * before).tolist()
            goes_on = [
                s is not Status.FLOOR and ((f and settlings < _SETTLINGS) or (self.limited and s is Status.BUDGET))
                for f, s in zip(fell, status, strict=True)
            ]
            steps = [min(_SETTLING_STEPS, n) * o for n, o in zip(self.left, goes_on, strict=True)]
        self.now = replace(self.now, status=tuple(status))

    def weigh(self) -> None:
        """Make coefficients beyond a thousand as unlikely as they should be.

        A gate that is open at few rows leaves its line free to be anything between them, and steep gates side by side
        leave their difference free: what fits the residuals best is a spike. With a prior of N(0, 1000^2) on
        coefficients, for data of unit variance, and the mean squared error as the variance of noise, the ridge is this
        much. It vanishes with the error.
        """
        error = self.now.projection.loss / len(self.model.x)
        self.model = replace(self.model, ridge=self.ridge + error / _LARGEST**2)
        self.now = self.descended(self.now.theta, [0] * len(self.widths), _ROUGH)

    def descended(self, theta: Tensor, steps: Sequence[int], tolerance: float) -> Descent:
        """The batch after at most so many steps of each member from theta."""
        return descend(self.model, theta, steps, tolerance=tolerance, floor=self.floor)

    def remember(self, descent: Descent, members: Sequence[int]) -> None:
        """Count the steps of these members, and add their losses to their histories."""
        for b in members:
            self.histories[b].extend(descent.losses[b])
            self.left[b] -= len(descent.losses[b])


def _solve_module(
    unit: ModuleUnit, x: np.ndarray, y: np.ndarray, width: int, seed: int, how: _Course, ridge: float
) -> Solution:
    """A class has its own neurons and its own way to begin: all the steps go into the settling of its starts."""
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    nets = [unit.network(width, x.shape[1], y.shape[1], seed=start_seed(seed, s) % 2**31) for s in range(how.starts)]
    model = ModuleModel.of(nets[0], inputs, targets, ridge)
    theta = torch.stack([model.start(net) for net in nets])
    floor = targets.square().sum().expand(len(theta))
    steps = how.steps
    if steps == UNLIMITED:
        steps = _SETTLING_STEPS + how.rounds * _ROUND_STEPS
    now = descend(model, theta, [steps] * len(theta), tolerance=_SETTLED, floor=floor)
    loss = now.projection.loss.nan_to_num(torch.inf)
    best = int(loss.argmin())
    if not math.isfinite(float(loss[best])):
        raise GatelabError(
            f"the first loss of {unit.name!r} is not finite: look for where the unit divides or overflows"
        )
    history = tuple(math.sqrt(v / targets.numel()) for v in now.losses[best])
    return Solution(model.network(now.theta[best], now.projection.coefficients[best]), now.status[best], history)


def growing_steps(width: int) -> int:
    """The most steps that a network takes while it grows to `width`; fewer given steps all go into its settling.

    >>> growing_steps(1), growing_steps(20)
    (10, 100)
    """
    return _GROWING_STEPS * len(list(growing_widths(width)))


def growing_widths(width: int) -> Iterator[int]:
    """Widths on the way to `width`: a third more each time.

    >>> list(growing_widths(20))
    [2, 3, 4, 5, 6, 8, 10, 13, 17, 20]
    """
    n = min(2, width)
    while n < width:
        yield n
        n += max(1, n // 3)
    yield width


def start_seed(seed: int, start: int) -> int:
    """The seed of one start: a number of its own for each pair."""
    return int(np.random.SeedSequence((check_seed(seed), start)).generate_state(1, np.uint64)[0]) % 2**63


def _ridges(ridge: float | Sequence[float], members: int) -> list[float]:
    try:
        values = np.broadcast_to(np.asarray(ridge, dtype=np.float64), (members,)).tolist()
    except (TypeError, ValueError):
        values = [math.nan]
    if not all(math.isfinite(v) and v >= 0 for v in values):
        raise GatelabError(
            f"ridge is {ridge!r}; give a finite number, 0 or more" + f", or {members} of them" * (members > 1)
        )
    return values


def _weights(weights: np.ndarray | None, members: int, n: int) -> np.ndarray | None:
    if weights is None:
        return None
    try:
        w = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    except (TypeError, ValueError):
        w = np.empty(0)
    if w.shape not in {(1, n), (members, n)} or not np.isfinite(w).all() or (w < 0).any() or (w.sum(1) <= 0).any():
        raise GatelabError(
            f"weights have the shape {np.shape(weights)}; give ({n},) or ({members}, {n}) finite numbers, none "
            "negative and not all zero"
        )
    return w
