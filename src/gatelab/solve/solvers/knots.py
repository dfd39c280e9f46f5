"""The knot solver: relu-gated networks of one input, trained as splines with free knots.

Given the knots, the network is a least-squares spline. The knots move by banded variable projection, and directions of
the gates are chosen such that the spline is exactly a network (`free_knots`); small networks, where these constraints
matter, are finished in their own parameters (`polish`). The search starts with splines that are smoother than the unit
requires, whose knots are better placed: at a C1 optimum the slope jumps of a GLU vanish, and with them the gradient of
its knots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from gatelab.arrays import AnyArray as Array
from gatelab.data import Problem
from gatelab.errors import GatelabError, check_seed, unknown_name, whole_number
from gatelab.feedforward import AnyUnit, Network, Unit
from gatelab.feedforward.definition import check_width
from gatelab.solve import free_knots, polish
from gatelab.solve.constructions import start_network
from gatelab.solve.free_knots import Constrain, Density, Directions, Interval, Neurons, Spline, always_open, project
from gatelab.solve.polish import History, Polished, join, polish_networks, random_neurons, solve_linear, stack, take
from gatelab.solve.solution import UNLIMITED, Solution, Status, check_steps, mean_square

# The largest widths of tiny networks, which have many local optima, of small ones, where directions have a cost, and of
# networks that are not wide.
TINY, SMALL, WIDE = 6, 12, 50
# Errors below this share of the target are rounding; errors that differ by less than this share are equal.
_ROUNDING, _EQUAL = 1e-12, 1e-9
# Rows on which knots are searched: the larger of a total and a number per cell.
_SEARCH_ROWS, _SEARCH_ROWS_PER_CELL = 2000, 40
# Values of neurons that are computed at a time for the exact error.
_VALUES_AT_ONCE = 2**22

# Steps of a free spline: with one knot fewer before a split, of all starts, of the leading ones, and of the best one in
# the unit's own space. Wide splines take one step per knot.
_SPLIT_STEPS, _RACE_STEPS, _LEADING_STEPS, _OWN_SPACE_STEPS = 12, 8, 25, 10
# The number of leading splines, and the largest ratio of their errors to the smallest.
_LEADING, _CLOSE = 2, 1.2
# The relative gain that three steps in a row must exceed: of free splines, of wide ones, of networks, of wide networks.
_FREE_TOLERANCE, _WIDE_TOLERANCE, _TOLERANCE, _WIDE_NETWORK_TOLERANCE = 1e-4, 1e-5, 1e-5, 1e-6

# Steps of a spline with directions, for tiny, small and other networks, and of the best one in the end.
_TINY_STEPS, _SMALL_STEPS, _STEPS, _LAST_STEPS = 6, 20, 100, 100
# Steps to the knots of an exact spline.
_SIMPLE_STEPS = 25
# Directions are free if they raise the error by less than this factor. Otherwise fewer starts are tried with more
# neurons always open. Then the number of choices of directions for small networks and for others.
_FREE, _STARTS_WHEN_OPEN, _SMALL_CHOICES, _CHOICES = 1.01, 2, 2, 1
# Additional jumps that lower the error of the smooth spline by less than this factor are useless.
_NO_GAIN = 1.01

# Random networks to polish, tiny or small, and random neurons per network that is one neuron narrower.
_TINY_DRAWN, _SMALL_DRAWN, _DRAWN_PER_NARROWER = 32, 12, 8
# Networks with one factor fewer that are polished too, and their steps before.
_CONTAINED, _CONTAINED_STEPS = 6, 30
# Rows of the first polishing per neuron, with two additional neurons.
_ROWS_PER_NEURON = 25


def memory(unit: AnyUnit, width: int, n: int, d_in: int, d_out: int) -> int:
    """3 arrays (N, width) for the exact error, 3 (width, width) for the gates' directions."""
    return 8 * 3 * width * (n + width)


def solve(
    unit: AnyUnit,
    problem: Problem,
    width: int,
    *,
    seed: int = 0,
    gates: Literal["trained", "frozen"] = "trained",
    starts: int = 4,
    steps: int | None = None,
    start: object = None,
) -> Solution:
    """Fit a relu-gated network to data with one input and one output."""
    if gates not in ("trained", "frozen"):
        raise unknown_name("way to treat gates", str(gates), ("trained", "frozen"))
    if not isinstance(unit, Unit) or unit.gate_power is None:
        raise GatelabError(f"the knot solver needs a relu-gated unit and {unit.name!r} is not one; use solver='varpro'")
    if problem.d_in != 1 or problem.d_out != 1 or problem.interval is None:
        raise GatelabError(
            f"the knot solver needs one input and one output, problem {problem.name!r} has {problem.d_in} and "
            f"{problem.d_out}; use solver='varpro'"
        )
    order, width, seed = np.argsort(problem.train.x[:, 0], kind="stable"), check_width(width), check_seed(seed)
    x, y, generator = problem.train.x[order, 0], problem.train.y[order, 0], np.random.default_rng(seed)
    starts, most = whole_number("starts", starts, 1), check_steps(steps)
    task = KnotTask(unit, x, y, problem.interval, seed, generator, starts=starts, steps=most)
    # Products of many small matrices do not parallelize: a network of ten neurons took five times as long on two cores
    # as on one. The limit is global to the process, so that fits in threads take turns.
    with _TURN, _blas_libraries().limit(limits=1, user_api="blas"):
        if gates == "frozen":
            best = task.frozen_network(width)
        elif start is None:
            best = (task.best_network, task.power_network)[not unit.factors](width)
        else:
            best = task.network_after(start_network(start, unit, width, (1, 1)), width)
    rmse, status = task.rmse(best.neurons), Status.BUDGET
    if rmse <= task.floor:
        status = Status.FLOOR
    elif best.settled:
        status = Status.CONVERGED
    return Solution(free_knots.to_network(best.neurons, unit), status, (*best.history[:-1], rmse))


_TURN = Lock()
_blas_libraries = cache(ThreadpoolController)


class _Candidate(NamedTuple):
    """A network during the search, with its spline and directions if it has not been polished."""

    rmse: float
    neurons: Neurons
    history: History
    settled: bool
    spline: tuple[Spline, Directions] | None = None


Races = dict[tuple[int, int, int, int], tuple[list[tuple[Spline, History]], Any]]


@dataclass(frozen=True)
class KnotTask:
    """The unit, the sorted data, the number of starts and the maximum number of steps of a network.

    `races` caches smooth splines and the generator's state after them, by rows, knots, starts and the state before.
    """

    unit: Unit
    x: Array
    y: Array
    interval: Interval
    seed: int
    generator: np.random.Generator
    starts: int
    steps: int
    races: Races = field(default_factory=dict)

    @property
    def degree(self) -> int:
        assert self.unit.degree is not None
        return self.unit.degree

    @property
    def multiplicity(self) -> int:
        """The number of derivatives that may jump at a knot independently; factors beyond the first follow the gate."""
        return min(self.unit.factors, 1) + 1

    @property
    def floor(self) -> float:
        """The error that is due to rounding alone."""
        return _ROUNDING * float(np.abs(self.y).max())

    def with_rows(self, count: int) -> KnotTask:
        """The task on about `count` equally spaced rows."""
        stride = max(1, len(self.x) // count)
        return replace(self, x=self.x[::stride], y=self.y[::stride])

    def steps_left(self, history: History, own: int) -> int:
        """The steps of a stage of at most `own` steps, for a network with this history."""
        return min(own, self.steps - len(history))

    def rmse(self, neurons: Neurons) -> float:
        """The RMSE of the network's forward pass, which loses digits that `Neurons` keep if parameters are large."""
        net = free_knots.to_network(neurons, self.unit)
        rows = max(1, _VALUES_AT_ONCE // net.width)
        x, y = (torch.from_numpy(np.ascontiguousarray(a)[:, None]).split(rows) for a in (self.x, self.y))
        square = sum(len(a) * mean_square(net, a, b) for a, b in zip(x, y, strict=True))
        return float(np.sqrt(square / len(self.x)))

    def spline(self, breaks: Array, multiplicity: int, constrain: Constrain | None = None) -> Spline:
        """The best spline of the unit's degree on these breaks."""
        return project(self.x, self.y, breaks, self.degree, multiplicity, constrain)

    def undetermined(self, width: int) -> GatelabError:
        return GatelabError(
            f"{len(np.unique(self.x))} distinct points do not determine a {self.unit.name!r} network of width {width}; "
            "give more data or a smaller width, or use solver='varpro'"
        )

    def frozen_network(self, width: int) -> _Candidate:
        """The network with equally spaced knots."""
        opened = min(always_open(self.unit), width)
        directions = Directions(self.unit, self.interval, np.zeros(width - opened, bool), opened)
        try:
            breaks = np.linspace(*self.interval, width - opened + 2)
            spline = self.spline(breaks, self.multiplicity, directions.constrain)
        except np.linalg.LinAlgError:
            raise self.undetermined(width) from None
        return _Candidate(spline.rmse, polish.refined_network(spline, directions), (spline.rmse,), True)

    def best_network(self, width: int) -> _Candidate:
        """The best network with free knots: from splines, polished if small, simplified if exact."""
        knot_density = free_knots.density(self.x, self.y, self.interval, self.degree)
        tiny, small = width <= TINY, width <= SMALL
        # Tiny networks are finished on all data, so that their splines need fewer rows.
        search, steps = self, (_STEPS, _SMALL_STEPS)[small]
        if tiny:
            search, steps = self.with_rows(_SEARCH_ROWS), _TINY_STEPS
        candidates, free = self.contained_networks(width, steps), True
        if small or not _smooth_is_best(candidates):
            first, free = search.spline_networks(knot_density, width, steps)
            whole = len(search.x) == len(self.x)
            candidates += [c._replace(rmse=self.rmse(c.neurons), settled=c.settled and whole) for c in first]
        if _least(candidates) > self.floor and (tiny or (small and not free)):
            narrower: list[_Candidate] = []
            if tiny and width > 1:
                # A network that is one neuron narrower is contained in this one and serves as a start.
                narrower, _ = search.spline_networks(knot_density, width - 1, _TINY_STEPS)
            candidates.append(self.polished_network(width, candidates, narrower))
        if not candidates:
            raise self.undetermined(width)
        best = min(candidates, key=lambda c: c.rmse)
        if best.rmse > self.floor:
            # Polishing a network that is not tiny until it settles would take seconds.
            goes_on = tiny or (small and best.spline is not None)
            finished = self.finished_network(best, _LAST_STEPS * goes_on)
            if finished.rmse <= (1 + _EQUAL) * best.rmse:
                best = finished
        if best.rmse > self.floor:
            return best
        return self.simplest_network(width, best)

    def power_network(self, width: int) -> _Candidate:
        """The best network of the power of relu of this degree; its races are taken over."""
        values = (self.x.tobytes(), self.y.tobytes(), self.interval, self.seed, self.starts, self.steps)
        best, races = _power_network(self.degree, width, *values)
        self.races.update(races)
        return best

    def network_after(self, start: Network, width: int) -> _Candidate:
        """The best network from a start: the start itself, or its spline with the worst cells split, polished."""
        first = free_knots.from_network(start)
        wide = free_knots.padded(first, width)
        error = self.rmse(wide)
        contained = _Candidate(error, wide, (error,), False)
        candidates = [contained]
        a, b = self.interval
        inside = (first.knots > a) & (first.knots < b)
        order = np.argsort(first.knots[inside])
        left, opened = first.sign[inside][order] < 0, int((~inside).sum())
        breaks = np.concatenate(([a], first.knots[inside][order], [b]))
        try:
            for _ in range(width - len(first.knots)):
                breaks = free_knots.split_worst(self.spline(self.spread(breaks), self.multiplicity))
            spline = self.spline(self.spread(breaks), self.multiplicity)
            choices = free_knots.choose_directions(spline, self.unit, opened, self.generator, _SMALL_CHOICES)
            if len(left) == len(spline.knots):
                choices.append(Directions(self.unit, self.interval, left, opened))
            candidates += [self.moved_network(spline.breaks, choice, (error,), _STEPS) for choice in choices]
        except np.linalg.LinAlgError:
            pass  # knots coincide or have no data between them: only polishing is possible
        if width <= SMALL and error > self.floor:
            narrower = [contained._replace(neurons=first)] * (len(first.knots) == width - 1)
            candidates.append(self.polished_network(width, candidates, narrower))
        best = min(candidates, key=lambda c: c.rmse)
        if best.rmse > self.floor and width <= SMALL:
            best = min(best, self.finished_network(best, _LAST_STEPS), key=lambda c: c.rmse)
        return best

    def contained_networks(self, width: int, steps: int) -> list[_Candidate]:
        """The best network of the contained power of relu, which no fit is worse than, and a fit from its knots."""
        if not self.unit.factors:
            return []
        power = free_knots.relu_power(self.degree)
        smooth = self.power_network(width)
        neurons = free_knots.widened(smooth.neurons, power, self.unit)
        contained = smooth._replace(rmse=self.rmse(neurons), neurons=neurons, spline=None, settled=False)
        if smooth.spline is None:
            return [contained]
        spline, directions = smooth.spline
        try:
            moved = self.moved_network(spline.breaks, replace(directions, unit=self.unit), smooth.history, steps)
        except np.linalg.LinAlgError:
            return [contained]
        return [contained._replace(settled=moved.settled), moved]

    def spline_networks(self, knot_density: Density, width: int, steps: int) -> tuple[list[_Candidate], bool]:
        """Networks from free splines, and whether directions are free; if not, more neurons stay open."""
        count = _SMALL_CHOICES if width <= SMALL else _CHOICES
        candidates: list[_Candidate] = []
        for opened in range(min(always_open(self.unit), width) + 1):
            starts = min(self.starts, _STARTS_WHEN_OPEN) if opened else self.starts
            free, history = self.free_spline(knot_density, width - opened, starts)
            if free is None:
                continue
            for directions in free_knots.choose_directions(free, self.unit, opened, self.generator, count):
                try:
                    candidates.append(self.moved_network(free.breaks, directions, history, steps))
                except np.linalg.LinAlgError:
                    continue
            if _least(candidates) <= max(_FREE * free.rmse, self.floor):
                return candidates, opened == 0
        return candidates, False

    def moved_network(self, breaks: Array, directions: Directions, history: History, own: int) -> _Candidate:
        """The spline on these breaks with these directions after at most `own` further steps, as a network."""
        start = self.spline(breaks, self.multiplicity, directions.constrain)
        tolerance = _TOLERANCE if directions.width <= WIDE else _WIDE_NETWORK_TOLERANCE
        steps = self.steps_left(history, own)
        constrain = directions.constrain
        spline, path, settled = free_knots.optimize(start, steps=steps, tolerance=tolerance, constrain=constrain)
        neurons = polish.refined_network(spline, directions)
        return _Candidate(self.rmse(neurons), neurons, (*history, *path), settled, (spline, directions))

    def free_spline(self, knot_density: Density, inner: int, starts: int) -> tuple[Spline | None, History]:
        """The best unconstrained spline with `inner` free knots, searched on thinned data, projected on all data."""
        thin = self.thinned(inner)
        for spline, history in self.smooth_splines(knot_density, inner, starts):
            try:
                if self.multiplicity > 1:
                    spline = thin.spline(thin.spread(spline.breaks), self.multiplicity)
                    spline, history = self.stage(spline, history, _OWN_SPACE_STEPS, _FREE_TOLERANCE)
                return self.spline(spline.breaks, self.multiplicity), history
            except np.linalg.LinAlgError:
                continue
        return None, ()

    def thinned(self, inner: int) -> KnotTask:
        """The task on the rows for a search of `inner` knots."""
        return self.with_rows(max(_SEARCH_ROWS, _SEARCH_ROWS_PER_CELL * (inner + 1)))

    def smooth_splines(self, knot_density: Density, inner: int, starts: int) -> list[tuple[Spline, History]]:
        """The smoothest free splines with `inner` knots on thinned data, the best first; `races` has known ones."""
        key = (len(self.x), inner, starts, self.generator.bit_generator.state["state"]["state"])
        if key in self.races:
            splines_found, self.generator.bit_generator.state = self.races[key]
            return splines_found
        thin = self.thinned(inner)
        count = starts if inner else 1
        if TINY < inner <= 2 * SMALL and starts > 1:
            # With fewer knots polishing finds missed optima, and with more all starts end alike.
            count = 2 * starts
        begun: list[tuple[Spline, History]] = []
        for breaks, history in thin.first_breaks(knot_density, inner, count):
            try:
                spline = thin.spline(thin.spread(breaks), 1)
                begun.append(self.stage(spline, history, _RACE_STEPS * (starts > 1), _FREE_TOLERANCE))
            except np.linalg.LinAlgError:
                continue
        leading = sorted(begun, key=_error)[:_LEADING]
        steps, tolerance = (inner, _WIDE_TOLERANCE) if inner > WIDE else (_LEADING_STEPS, _FREE_TOLERANCE)
        finished = [self.stage(*one, steps, tolerance) for one in leading if _error(one) <= _CLOSE * _error(leading[0])]
        self.races[key] = sorted(finished, key=_error), self.generator.bit_generator.state
        return self.races[key][0]

    def spread(self, breaks: Array) -> Array:
        """Breaks moved as little as needed so that every cell has enough data for a polynomial."""
        return free_knots.spread(breaks, self.x, self.degree + 2)

    def stage(self, start: Spline, history: History, steps: int, tolerance: float) -> tuple[Spline, History]:
        """A free spline after at most `steps` further steps, and its history."""
        spline, path, _ = free_knots.optimize(start, steps=self.steps_left(history, steps), tolerance=tolerance)
        return spline, (*history, *path)

    def first_breaks(self, knot_density: Density, inner: int, count: int) -> Iterator[tuple[Array, History]]:
        """Breaks to start from: of the density, of one knot fewer with the worst cell split, and perturbed ones."""
        a, b = self.interval
        yield np.concatenate(([a], knot_density.knots(inner), [b])), ()
        grows = count > 1 and TINY < inner <= WIDE
        if grows:
            try:
                fewer = self.spread(np.concatenate(([a], knot_density.knots(inner - 1), [b])))
                spline, history = self.stage(self.spline(fewer, 1), (), _SPLIT_STEPS, _FREE_TOLERANCE)
                yield free_knots.split_worst(spline), history
            except np.linalg.LinAlgError:
                pass
        for _ in range(count - 1 - grows):
            yield np.concatenate(([a], knot_density.knots(inner, self.generator), [b])), ()

    def polished_network(self, width: int, wide: Sequence[_Candidate], narrower: Sequence[_Candidate]) -> _Candidate:
        """A small network in its own parameters, from the results of the spline search and from random starts."""
        unit, interval, generator, most = self.unit, self.interval, self.generator, self.steps
        tiny, coarse = width <= TINY, _ROWS_PER_NEURON * (width + 2)
        drawn, more = _TINY_DRAWN if tiny else _SMALL_DRAWN, _DRAWN_PER_NARROWER
        few = self.with_rows(coarse)
        starts = [random_neurons(unit, width, interval, drawn, generator)]
        for candidate in narrower:
            neurons = random_neurons(unit, 1, interval, more, generator)
            starts.append(join(stack([candidate.neurons] * more), neurons))
        batch = stack([*(c.neurons for c in wide), solve_linear(stack(starts), unit, few.x, few.y)])
        paths = [*(c.history for c in wide), *[()] * drawn, *(c.history for c in narrower for _ in range(more))]
        if tiny:
            grown = polish.grow(unit, few.x, few.y, width=width, interval=interval, generator=generator, most=most)
            batch, paths = stack([batch, grown.neurons]), [*paths, *grown.histories]
        if tiny and unit.factors:
            # A network with one factor fewer is contained in this one, and for few neurons may be a better start.
            fewer, apart = Unit(unit.gate, unit.factors - 1), np.random.default_rng((self.seed, unit.factors))
            contained = solve_linear(random_neurons(fewer, width, interval, drawn, apart), fewer, few.x, few.y)
            polished = polish_networks(contained, fewer, few.x, few.y, steps=_CONTAINED_STEPS, most=most)
            batch = stack([batch, free_knots.widened(take(polished.neurons, slice(_CONTAINED)), fewer, unit)])
            paths += polished.histories[:_CONTAINED]
        # Coarse to fine, with (rows, steps, survivors): most of the search on some hundred rows, the last steps on all.
        for rows, steps, survivors in ((coarse, 8, 16), (coarse, 22, 2), (4 * coarse, 75, 1), (len(self.x), 6, 1)):
            some = self.with_rows(rows)
            polished = polish_networks(batch, unit, some.x, some.y, steps=steps, paths=paths, most=most)
            batch, paths = take(polished.neurons, slice(survivors)), list(polished.histories[:survivors])
        return self.best_polished(polished)

    def best_polished(self, polished: Polished) -> _Candidate:
        """The first network of a polished batch."""
        neurons = take(polished.neurons, 0)
        return _Candidate(self.rmse(neurons), neurons, polished.histories[0], bool(polished.settled[0]))

    def finished_network(self, best: _Candidate, own: int) -> _Candidate:
        """The best candidate on all data, until it settles or its steps run out: `own` unless steps were given."""
        steps = self.steps - len(best.history)
        if self.steps == UNLIMITED:
            steps = own
        if best.settled or steps <= 0:
            return best
        if best.spline is not None:
            spline, directions = best.spline
            return self.moved_network(spline.breaks, directions, best.history, steps)
        batch = stack([best.neurons])
        return self.best_polished(polish_networks(batch, self.unit, self.x, self.y, steps=steps, paths=[best.history]))

    def simplest_network(self, width: int, best: _Candidate) -> _Candidate:
        """The exact network with the fewest knots: superfluous ones, which lie anywhere between rows, are merged."""
        opened, ends = always_open(self.unit), self.interval
        least = min(self.degree + 2, (len(self.x) - 1) // 2)
        among = (best.neurons.knots > self.x[least]) & (best.neurons.knots < self.x[-least - 1])
        inside = np.sort(best.neurons.knots[among])
        for inner in range(min(width - opened, len(inside), SMALL) + 1):
            breaks = free_knots.spread(
                np.array([ends[0], *free_knots.group_means(inside, inner), ends[1]]), self.x, least
            )
            directions = Directions(self.unit, ends, np.zeros(inner, bool), opened)
            try:
                simple = self.moved_network(breaks, directions, (), _SIMPLE_STEPS)
            except np.linalg.LinAlgError:
                continue
            if simple.rmse <= self.floor:
                return simple._replace(neurons=free_knots.padded(simple.neurons, width))
        return best


def _smooth_is_best(contained: Sequence[_Candidate]) -> bool:
    """Whether the knots of the contained power of relu are best: directions are free, additional jumps gain little."""
    if len(contained) < 2:
        return False
    smooth, moved = contained
    assert moved.spline is not None
    return not moved.spline[1].open and smooth.rmse <= _NO_GAIN * moved.rmse


@lru_cache(maxsize=4)
def _power_network(
    degree: int, width: int, x: bytes, y: bytes, interval: Interval, seed: int, starts: int, steps: int
) -> tuple[_Candidate, Races]:
    """The best network of a power of relu. The last ones are kept: units that contain it start from it."""
    a, b = (np.frombuffer(values).copy() for values in (x, y))
    power, generator = free_knots.relu_power(degree), np.random.default_rng(seed)
    task = KnotTask(power, a, b, interval, seed, generator, starts=starts, steps=steps)
    return task.best_network(width), task.races


def _least(candidates: Sequence[_Candidate]) -> float:
    return min((c.rmse for c in candidates), default=np.inf)


def _error(member: tuple[Spline, History]) -> float:
    return member[0].rmse
