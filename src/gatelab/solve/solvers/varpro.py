"""Variable projection: any unit in any dimension, many networks in one batch, on CPU and CUDA.

Linear parameters are eliminated (`features`), the others move by Levenberg-Marquardt (`marquardt`). A network grows by
a third at a time, each new neuron the best of many candidates for the current residual (`insertion`), goes through
rounds that exchange the neurons that matter least if the error falls, and settles. `steps` bounds the sum of the steps
of growth, of the rounds whose change was kept and of settling; if it is too small for the growth, neurons are inserted
without steps in between. Every member of a batch has its own generator and steps, as in a single fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, count
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from gatelab.arrays import AnyArray as Array
from gatelab.arrays import finite_array
from gatelab.data import Problem
from gatelab.display import Listener
from gatelab.errors import GatelabError, check_seed, whole_number
from gatelab.feedforward import AnyUnit, FunctionUnit, ModuleUnit, Network, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.definition import check_width
from gatelab.interrupts import on_threads as shared_out
from gatelab.memory import check_device
from gatelab.solve.constructions import embedded, start_network
from gatelab.solve.features import ModuleModel, ProductModel, Standard
from gatelab.solve.insertion import draw, insert, remove
from gatelab.solve.marquardt import Descent, ProjectedBatch, descend
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

# Steps after each insertion while a network grows, and in a round; both end early if a step gains less than ROUGH.
_GROWING_STEPS, _ROUND_STEPS, _ROUGH = 10, 8, 1e-3
# A round exchanges up to FEW neurons, or this share of them if that is more.
_FEW, _SHARE = 4, 0.16
# A network settles for this many steps, repeatedly up to SETTLINGS times while its loss falls below this share.
_SETTLING_STEPS, _SETTLINGS, _FELL, _SETTLED = 100, 6, 0.01, 1e-6
# A residual of this share of the target is rounding, and so is this loss per value for targets of unit variance.
_FLOOR, _ROUNDING = 1e-13, 1e-24
# Networks of open gates are tried up to this many monomials and values of them at the rows; their gates open this far
# beyond the rows, relative to their range.
_MONOMIALS, _VALUES, _BEYOND = 200, 2**24, 0.5
# The standard deviation of the prior on coefficients, for data of unit variance.
_LARGEST = 1e3
# The largest size of a part of a batch.
_CPU_BYTES, _CUDA_BYTES = 1 << 30, 48 << 30
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


def memory(unit: AnyUnit, width: int, n: int, d_in: int, d_out: int) -> int:
    """3 arrays (N, m + p) and 6 squares of m + p for each network: m columns are linear, p move."""
    factors = getattr(unit, "factors", 0)
    lines = isinstance(unit, Unit) and not isinstance(unit, FunctionUnit) and factors > 0 and d_out == 1
    linear = width * (d_in + 1) if lines else width
    columns = linear + width * (d_in + 1) * (factors + 1 - lines) + 1
    return 8 * (3 * n * columns + 6 * columns**2)


def solve(
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
    """The best of several networks, each grown, changed in rounds and settled."""
    chosen, x, y = as_unit(unit), problem.train.x, problem.train.y
    if isinstance(chosen, ModuleUnit):
        if start is not None:
            raise GatelabError(f"{chosen.name!r} is a class that initializes itself; leave start out")
        starts, rounds = whole_number("starts", starts, 1), whole_number("rounds", rounds, 0)
        most = _SETTLING_STEPS + rounds * _ROUND_STEPS
        if steps is not None:
            most = check_steps(steps)
        sizes, seeds = (check_width(width), problem.d_in, problem.d_out), (start_seed(seed, s) for s in range(starts))
        nets = [chosen.network(*sizes, seed=s % 2**31) for s in seeds]
        return _solve_module(chosen.name, nets, tensors(problem), most, float(_ridges(ridge, 1)[0]))
    how = {"starts": starts, "rounds": rounds, "steps": steps, "ridge": ridge, "device": device, "start": start}
    (solution,) = varpro_many(chosen, x, y, [(width, seed)], **how, progress=progress)
    if start is None or ridge:
        return solution
    # The prior on large coefficients, or coinciding columns, may have made the start worse.
    first = embedded(start_network(start, chosen, width, (problem.d_in, problem.d_out)), chosen, width)
    before, after = (mean_square(net, *tensors(problem)) for net in (first, solution.network))
    if after <= before:
        return solution
    return Solution(first, Status.STALLED, (math.sqrt(before),))


class _Start(NamedTuple):
    member: int
    width: int
    generator: torch.Generator
    ridge: float


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
    """One solution per member (width, seed) of a batch, each equal to that of `solve`.

    On a CPU the batch is distributed over torch's threads.
    """
    chosen, sizes = as_unit(unit), (x.shape[1], y.shape[1])
    if not isinstance(chosen, Unit):
        raise GatelabError(f"{chosen.name!r} is a class, which is fitted one at a time; use gl.fit")
    starts, rounds, most = whole_number("starts", starts, 1), whole_number("rounds", rounds, 0), check_steps(steps)
    widths, where, first = [check_width(width) for width, _ in members] or [1], check_device(device), None
    if start is not None:
        starts, first = 1, start_network(start, chosen, min(widths), sizes)
    check_fit_memory("varpro", chosen, max(widths), len(x), sizes, where)
    data = Standard.of(x, y, _weights(weights, len(members), len(x)), where)
    search = _Search(chosen, data, most, members, _ridges(ridge, len(members)), {})
    search.run(starts, rounds, first, progress)
    if first is None:
        search.try_open(starts)
    return tuple(search.best[m][1] for m in range(len(members)))


class _Search(NamedTuple):
    """The members (width, seed) of a batch with their ridges, and the loss and solution of the best start of each."""

    unit: Unit
    data: Standard
    steps: int
    members: Sequence[tuple[int, int]]
    ridges: Array
    best: dict[int, tuple[float, Solution]]

    def start(self, member: int, s: int) -> _Start:
        width, seed = self.members[member]
        return _Start(member, width, torch.Generator().manual_seed(start_seed(seed, s)), float(self.ridges[member]))

    def run(self, starts: int, rounds: int, first: Network | None, progress: Listener | None) -> None:
        """Solve all starts, or one that begins with the network `first`."""
        data, device = self.data, self.data.x.device
        tried = [self.start(m, s) for m in range(len(self.members)) for s in range(starts)]
        # F, J and copies of them.
        bytes_per_neuron = 16 * len(data.x) * 2 * (self.unit.factors + 1) * data.x.shape[1]
        pieces = [[tried[i] for i in part] for part in parts([s.width for s in tried], bytes_per_neuron, device)]
        phases, total = count(1), len(pieces) * (rounds + 2)

        def tick() -> None:
            phase = next(phases)
            if progress:
                progress(phase, total)

        def solved(piece: list[_Start]) -> list[tuple[float, Solution]]:
            batch = _Batch(self.unit, data, piece, self.steps)
            if first is not None:
                batch.begin(data.maps_of(first)[:, : batch.at.model.maps])
            batch.run(rounds, tick)
            return batch.solutions(data)

        for piece, solutions in zip(pieces, on_threads(solved, pieces, device), strict=True):
            for one, found in zip(piece, solutions, strict=True):
                if one.member not in self.best or found[0] < self.best[one.member][0]:
                    self.best[one.member] = found

    def try_open(self, s: int) -> None:
        """Try networks of open gates where a polynomial is as good as the best network."""

        def solved(one: _Start) -> tuple[float, Solution]:
            batch = _Batch(self.unit, self.data, [one], self.steps)
            batch.begin(open_maps(batch.at.model, one.width, one.generator))
            batch.run(0, lambda: None)
            return batch.solutions(self.data)[0]

        bounds = polynomial_losses(self.unit, self.data, len(self.members))
        rounding = _ROUNDING * self.data.y.numel()
        opened = [self.start(m, s) for m, bound in enumerate(bounds) if bound <= max(self.best[m][0], rounding)]
        for one, found in zip(opened, on_threads(solved, opened, self.data.x.device), strict=True):
            # Of networks that are exact at the rows to rounding, the one without gates between them generalizes.
            if found[0] <= rounding or found[0] < self.best[one.member][0]:
                self.best[one.member] = found


def parts(widths: Sequence[int], bytes_per_neuron: int, device: torch.device) -> list[list[int]]:
    """The indices of `widths` in parts, the widest first; on a CPU of one width each, as in single fits."""
    cpu = device.type == "cpu"
    threads, most = (torch.get_num_threads(), _CPU_BYTES) if cpu else (1, _CUDA_BYTES)
    share = sum(w**2 for w in widths) / threads
    out: list[list[int]] = []
    first, spent = 0, 0.0
    for i in sorted(range(len(widths)), key=lambda i: -widths[i]):
        members = max(most // (bytes_per_neuron * max(first, 1)), 1)
        full = not out or len(out[-1]) >= members or spent + widths[i] ** 2 / 2 > share
        if full or (cpu and widths[i] < first):
            out.append([])
            first, spent = widths[i], 0.0
        out[-1].append(i)
        spent += widths[i] ** 2
    return out


def on_threads(work: Callable[[_Part], _Result], pieces: Sequence[_Part], device: torch.device) -> Iterator[_Result]:
    """The results in order; on a CPU each of torch's threads computes pieces with one thread of torch."""
    if device.type != "cpu":
        return map(work, pieces)
    return shared_out(work, pieces, min(torch.get_num_threads(), len(pieces)))


def open_maps(model: ProductModel, width: int, generator: torch.Generator) -> Tensor:
    """Maps (1, maps, width, d_in + 1) in random directions whose gates are open at every row."""
    theta = draw(model, width, generator).to(model.x.device)
    values = model.x[:, :-1] @ theta[0, :, :-1].mT
    least, most = values.amin(0), values.amax(0)
    theta[0, :, -1] = _BEYOND * (most - least) - least
    return theta[None]


def polynomial_losses(unit: Unit, data: Standard, members: int) -> list[float]:
    """The loss of the best polynomial, a lower bound for networks of open gates, or infinity to try none."""
    x, degree = data.x[:, :-1], unit.degree
    monomials = math.inf if degree is None else math.comb(x.shape[1] + degree, degree)
    if degree is None or monomials > min(_MONOMIALS, len(x) // 2) or monomials * len(x) > _VALUES:
        return [math.inf] * members
    powers = [f for k in range(1, degree + 1) for f in combinations_with_replacement(range(x.shape[1]), k)]
    F = torch.stack([torch.ones_like(x[:, 0]), *(x[:, list(factors)].prod(-1) for factors in powers)], -1)
    losses = []
    for root in torch.ones_like(x[None, :, 0]) if data.root_weight is None else data.root_weight:
        basis, _ = torch.linalg.qr(F * root[:, None])
        y = data.y * root[:, None]
        losses.append(float((y - basis @ (basis.mT @ y)).square().sum()))
    return losses * (members // len(losses))


class _Batch:
    """Networks during a fit: their parameters, their histories and their remaining steps."""

    def __init__(self, unit: Unit, data: Standard, part: Sequence[_Start], steps: int) -> None:
        weight, device = data.root_weight, data.x.device
        if weight is not None:
            weight = weight[[s.member % len(weight) for s in part]]
        self.ridge = torch.tensor([s.ridge for s in part], dtype=torch.float64, device=device)
        nobody = torch.zeros(len(part), 0, dtype=torch.bool, device=device)
        model = ProductModel(unit, data.x, data.y, nobody, self.ridge, weight)
        self.at = ProjectedBatch(model, data.x.new_zeros(len(part), model.maps, 0, data.x.shape[1]))
        self.floor = _FLOOR**2 * self.at.losses()
        self.status = [Status.BUDGET] * len(part)
        self.widths, self.generators = np.array([s.width for s in part]), [s.generator for s in part]
        self.histories: list[list[float]] = [[] for _ in part]
        self.limited, self.left = steps < UNLIMITED, np.full(len(part), steps)
        self.grown = np.array([steps >= growing_steps(s.width) for s in part])

    def begin(self, theta: Tensor) -> None:
        """Start with the neurons of these maps (1, maps, n, d_in + 1), at most as many as any member's width."""
        theta = theta.expand(len(self.widths), -1, -1, -1)
        present = torch.ones(theta.shape[0], theta.shape[2], dtype=torch.bool, device=theta.device)
        model = replace(self.at.model, present=present)
        self.at = ProjectedBatch(model, model.normalized(theta))

    def run(self, rounds: int, tick: Callable[[], None]) -> None:
        """Grow, change and settle; `tick` is called after each phase."""
        for phase in (self.grow, *[self.change] * rounds, self.settle):
            phase()
            tick()

    def solutions(self, data: Standard) -> list[tuple[float, Solution]]:
        """The loss and the solution of each member; without steps, the history is the loss of the start."""
        at, pairs = self.at, []
        for b, loss in enumerate(at.losses().tolist()):
            losses = self.histories[b] or [loss]
            history = tuple(data.y_scale * math.sqrt(max(v, 0.0) / data.y.numel()) for v in losses)
            network = data.undo(at.model.network(at.theta, at.projection.coefficients, b, int(self.widths[b])))
            pairs.append((loss, Solution(network, self.status[b], history)))
        return pairs

    def grow(self) -> None:
        """Insert all neurons in stages; members with enough steps descend in between."""
        for stage in growing_widths(int(self.widths.max())):
            wanted = np.maximum(np.minimum(stage, self.widths) - self.neurons(), 0)
            model, theta = insert(self.at.model, self.at.theta, self.at.projection, wanted.tolist(), self.generators)
            self.at = ProjectedBatch(model, theta)
            end = self.descend(self.at, np.where((wanted > 0) & self.grown, _GROWING_STEPS, 0), _ROUGH)
            self.remember(end, range(len(wanted)))

    def neurons(self) -> Array:
        return self.at.model.present.sum(1).cpu().numpy()

    def change(self) -> None:
        """One round: exchange some of the cheapest neurons for new ones, in the members where the loss falls.

        A gain that needs more than the remaining steps ends the rounds of a member.
        """
        takes_part = self.grown & (self.left > 0)
        if not takes_part.any():
            return
        at, exchanged = self.at, []
        for n, g in zip(self.neurons().tolist(), self.generators, strict=True):
            most = min(max(_FEW, round(_SHARE * n)), max(n - 1, 1))
            exchanged.append(int(torch.randint(1, most + 1, (1,), generator=g)))
        fewer = remove(at.model, at.projection, exchanged, self.generators)
        trial = ProjectedBatch(*insert(fewer, at.theta, fewer.project(at.theta), exchanged, self.generators))
        end = self.descend(trial, np.where(takes_part, _ROUND_STEPS, 0), _ROUGH)
        gained = takes_part & (end.loss < at.losses())
        fits = np.array([len(losses) for losses in end.losses]) <= self.left
        self.left[gained & ~fits] = 0
        members = np.flatnonzero(gained & fits)
        better, present = torch.from_numpy(members).to(at.theta.device), at.model.present.clone()
        present[better], at.theta[better] = trial.model.present[better], trial.theta[better]
        at.projection.put(better, trial.projection.take(better))
        at.model = replace(at.model, present=present)
        self.remember(end, members.tolist())

    def settle(self) -> None:
        """Descend to the end, again if the loss has fallen so far that the prior is outdated or given steps remain."""
        steps = np.minimum(_SETTLING_STEPS, self.left)
        for settling in count(1):
            before = self.at.losses()
            self.weigh()
            end = self.descend(self.at, steps, _SETTLED)
            self.remember(end, range(len(steps)))
            for b, status in enumerate(end.status):
                if steps[b] or status is Status.FLOOR:
                    self.status[b] = status
            fell = (end.loss < _FELL * before) & (settling < _SETTLINGS)
            unfinished = np.array([self.limited and status is Status.BUDGET for status in self.status])
            exact = np.array([status is Status.FLOOR for status in self.status])
            steps = np.where((fell | unfinished) & ~exact, np.minimum(_SETTLING_STEPS, self.left), 0)
            if not steps.any():
                return

    def weigh(self) -> None:
        """Update the prior on coefficients, N(0, 1000^2), a ridge that vanishes with the error.

        Without it the fit has spikes where the lines of gates are hardly determined.
        """
        model, error = self.at.model, self.at.projection.loss / len(self.at.model.x)
        self.at = ProjectedBatch(replace(model, ridge=self.ridge + error / _LARGEST**2), self.at.theta)

    def descend(self, batch: ProjectedBatch, steps: Array, tolerance: float) -> Descent:
        return descend(batch, steps.tolist(), tolerance=tolerance, floor=self.floor)

    def remember(self, end: Descent, members: Sequence[int]) -> None:
        """Count the steps of these members and append their losses to their histories."""
        for b in members:
            self.histories[b].extend(end.losses[b])
            self.left[b] -= len(end.losses[b])


def _solve_module(name: str, nets: list, data: tuple[Tensor, Tensor], steps: int, ridge: float) -> Solution:
    """Fit a user's class: neurons are neither inserted nor removed, and all steps go into the settling."""
    x, y = data
    model = ModuleModel.of(nets[0], x, y, ridge)
    batch = ProjectedBatch(model, torch.stack([model.start(net) for net in nets]))
    floor = _FLOOR**2 * float(y.square().sum())
    end = descend(batch, [steps] * len(nets), tolerance=_SETTLED, floor=floor)
    best = int(np.nan_to_num(end.loss, nan=np.inf).argmin())
    if not math.isfinite(end.loss[best]):
        raise GatelabError(f"the first loss of {name!r} is not finite: look for where the unit divides or overflows")
    history = tuple(math.sqrt(v / y.numel()) for v in end.losses[best])
    return Solution(model.network(batch.theta[best], batch.projection.coefficients[best]), end.status[best], history)


def growing_steps(width: int) -> int:
    """The maximum number of steps while a network grows to `width`."""
    return _GROWING_STEPS * len(list(growing_widths(width)))


def growing_widths(width: int) -> Iterator[int]:
    """Widths up to `width`, each a third larger than the last."""
    n = min(2, width)
    while n < width:
        yield n
        n += max(1, n // 3)
    yield width


def start_seed(seed: int, start: int) -> int:
    """The seed of one start, different for each pair."""
    return int(np.random.SeedSequence((check_seed(seed), start)).generate_state(1, np.uint64)[0]) % 2**63


def _ridges(ridge: float | Sequence[float], members: int) -> Array:
    try:
        values = np.broadcast_to(np.asarray(ridge, dtype=np.float64), (members,))
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if not (np.isfinite(values) & (values >= 0)).all():
        raise GatelabError(
            f"ridge is {ridge!r}; give a finite number, 0 or more" + f", or {members} of them" * (members > 1)
        )
    return values


def _weights(weights: np.ndarray | None, members: int, n: int) -> Array | None:
    if weights is None:
        return None
    w = np.atleast_2d(finite_array("weights", weights))
    if w.shape not in {(1, n), (members, n)} or (w < 0).any() or (w.sum(1) <= 0).any():
        raise GatelabError(
            f"weights have the shape {np.shape(weights)}; give ({n},) or ({members}, {n}) finite numbers, none "
            "negative and not all zero"
        )
    return w
