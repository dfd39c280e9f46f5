"""The knot solver: relu-gated networks of one input, trained as splines with free knots.

Basis x knots x facing: given the knots the network is a least-squares spline in a local basis
(`gatelab.linalg.splines`); the knots move by banded variable projection (`free_knots`); the gates face so that the
spline is exactly a network (`facing`). Small networks, where the constraints of facing matter, are finished in their
own parameters (`polish`).

Smooth first: a spline that is smoother than the unit needs is also a network of that unit, and its knots are better
placed: at a C1 optimum the GLU's own slope jumps vanish, and with them the gradient that would move its knots.

A network's steps are all those on its way: of the spline it began as, of the spline that faces, of its polishing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from gatelab.arrays import Array
from gatelab.data import Problem
from gatelab.errors import GatelabError, check_seed, unknown_name, whole_number
from gatelab.feedforward import AnyUnit, Unit
from gatelab.linalg import splines
from gatelab.solve import free_knots as gates_facing
from gatelab.solve.free_knots import Density, Facing, Neurons, Spline, density, optimise, project, split_worst, spread
from gatelab.solve.marquardt import one_blas_thread
from gatelab.solve.polish import (
    Path,
    Polished,
    grow,
    join,
    polish_networks,
    random_neurons,
    residual,
    solve_linear,
    stack,
    take,
)
from gatelab.solve.solution import UNLIMITED, Solution, Status, check_steps, mean_square

SMALL, WIDE = 12, 50
_THIN = 2000
_CHUNK = 2**22
_FLOOR = 1e-12
# Errors that differ by less than this share are the same, rounded twice.
_EQUAL = 1e-9
# Steps of the spline that faces, for tiny, small and other networks, and of what the best of a few goes on with.
_TINY_STEPS, _SMALL_STEPS, _STEPS, _LAST_STEPS = 6, 20, 100, 100
# Where a spline can be exact its knots are found in a few steps.
_SIMPLE_STEPS = 25


def solve_knots(
    unit: AnyUnit,
    problem: Problem,
    width: int,
    *,
    seed: int = 0,
    gates: Literal["trained", "frozen"] = "trained",
    starts: int = 4,
    steps: int | None = None,
) -> Solution:
    """Fit a relu-gated network of `width` neurons to 1-D data, in at most `steps` steps.

    `gates="frozen"` keeps the knots equally spaced and solves only for what is linear (figure 4 a and d);
    `"trained"` moves them (b and e). `starts` is how many sets of knots are tried, the first of them not random.
    `steps` counts every iteration that the network went through from its start to its end; None lets a small network
    settle and gives others 100 steps after their spline was found.

    >>> from gatelab.data import problem
    >>> from gatelab.feedforward import unit
    >>> knots(unit("glu"), problem("x2", n=200), 3).status
    <Status.FLOOR: 'floor'>
    """
    if gates not in ("trained", "frozen"):
        raise unknown_name("way to treat gates", str(gates), ("trained", "frozen"))
    chosen, interval = _suited(unit, problem)
    order = np.argsort(problem.train.x[:, 0], kind="stable")
    x, y = problem.train.x[order, 0], problem.train.y[order, 0]
    generator = np.random.default_rng(check_seed(seed))
    task = _Task(chosen, x, y, interval, generator, whole_number("starts", starts, 1), check_steps(steps))
    with one_blas_thread:
        best = _frozen(task, width) if gates == "frozen" else _trained(task, width)
    rmse = _rmse(best.neurons, chosen, x, y)
    if rmse <= _floor(y):
        status = Status.FLOOR
    else:
        status = Status.CONVERGED if best.settled else Status.BUDGET
    return Solution(gates_facing.to_network(best.neurons, chosen), status, (*best.history[:-1], rmse))


@dataclass(frozen=True)
class _Task:
    """What is fitted, the sorted data, and the most steps that any network may take."""

    unit: Unit
    x: Array
    y: Array
    interval: tuple[float, float]
    generator: np.random.Generator
    starts: int
    steps: int

    def left(self, history: Path, own: int) -> int:
        """The steps of a stage that takes `own` by itself, for a network with this history."""
        return min(own, self.steps - len(history))

    def last(self, history: Path, own: int) -> int:
        """The steps of the last stage: all that are left where steps were given, else its own."""
        return own if self.steps == UNLIMITED else self.steps - len(history)


@dataclass(frozen=True)
class _Candidate:
    """A network on its way; `spline` and how it faces are there so long as it is one."""

    rmse: float
    neurons: Neurons
    history: Path
    settled: bool
    spline: tuple[Spline, Facing] | None = None


def _suited(unit: AnyUnit, problem: Problem) -> tuple[Unit, tuple[float, float]]:
    if not isinstance(unit, Unit) or unit.gate_power is None:
        raise GatelabError(f"the knot solver needs a relu-gated unit and {unit.name!r} is not one; use solver='varpro'")
    if problem.d_in != 1 or problem.d_out != 1 or problem.interval is None:
        raise GatelabError(
            f"the knot solver needs one input and one output, problem {problem.name!r} has {problem.d_in} and "
            f"{problem.d_out}; use solver='varpro'"
        )
    return unit, problem.interval


def _frozen(task: _Task, width: int) -> _Candidate:
    unit, x, y = task.unit, task.x, task.y
    opened = min(gates_facing.always_open(unit), width)
    breaks = np.linspace(*task.interval, width - opened + 2)
    way = Facing(unit, task.interval, np.zeros(width - opened, bool), opened)
    try:
        spline = project(x, y, breaks, _degree(unit), _multiplicity(unit), way.constrain)
    except np.linalg.LinAlgError:
        raise _undetermined(unit, width, x) from None
    return _Candidate(spline.rmse, _exact(spline, way), (spline.rmse,), True)


def _trained(task: _Task, width: int) -> _Candidate:
    unit, x, y = task.unit, task.x, task.y
    where, tiny = density(x, y, task.interval, _degree(unit)), width <= SMALL // 2
    # Tiny networks are finished on all data in any case, so that their splines need not see all.
    stride = max(1, len(x) // _THIN) if tiny else 1
    search = replace(task, x=x[::stride], y=y[::stride])
    own = _TINY_STEPS if tiny else _SMALL_STEPS if width <= SMALL else _STEPS
    candidates, facing_is_free = _faced(search, where, width, own)
    candidates = [replace(c, rmse=_rmse(c.neurons, unit, x, y), settled=c.settled and stride == 1) for c in candidates]
    if _least(candidates) > _floor(y) and (tiny or (width <= SMALL and not facing_is_free)):
        # A network one neuron narrower is contained in this one: what the search finds there is a start here.
        narrower = _faced(search, where, width - 1, _TINY_STEPS)[0] if tiny and width > 1 else []
        candidates.append(_polished(task, width, candidates, narrower))
    if not candidates:
        raise _undetermined(unit, width, x)
    best = min(candidates, key=lambda c: c.rmse)
    if best.rmse > _floor(y):
        # What the polishing of a network that is not tiny has not settled by now would take seconds.
        own = _LAST_STEPS if tiny or (width <= SMALL and best.spline is not None) else 0
        finished = _finished(task, best, own)
        if finished.rmse <= (1 + _EQUAL) * best.rmse:
            best = finished
    return best if best.rmse > _floor(y) else _simplest(task, width, best)


def _finished(task: _Task, best: _Candidate, own: int) -> _Candidate:
    """The best candidate on all data, until it settles or its steps are spent."""
    steps = task.last(best.history, own)
    if best.settled or steps <= 0:
        return best
    if best.spline is None:
        done = polish_networks(stack([best.neurons]), task.unit, task.x, task.y, steps=steps, paths=[best.history])
        return _from_polish(task, done)
    spline, way = best.spline
    start = project(task.x, task.y, spline.breaks, spline.degree, spline.multiplicity, way.constrain)
    return _moved_on(task, start, way, best.history, steps)


def _simplest(task: _Task, width: int, best: _Candidate) -> _Candidate:
    """Of networks at rounding the one with the fewest knots, `best` if there is none simpler.

    Knots beyond those that the target needs can lie anywhere between two rows: what the network does there is not
    determined by the data. So neighbouring knots are drawn together, and neurons that are left over get weight zero.
    """
    unit, (a, b) = task.unit, task.interval
    opened = gates_facing.always_open(unit)
    least = min(_degree(unit) + 2, (len(task.x) - 1) // 2)
    among = (best.neurons.knots > task.x[least]) & (best.neurons.knots < task.x[-least - 1])
    inside = np.sort(best.neurons.knots[among])
    for inner in range(min(width - opened, len(inside), SMALL) + 1):
        breaks = spread(np.array([a, *_centres(inside, inner), b]), task.x, least)
        way = Facing(unit, task.interval, np.zeros(inner, bool), opened)
        try:
            start = project(task.x, task.y, breaks, _degree(unit), _multiplicity(unit), way.constrain)
        except np.linalg.LinAlgError:
            continue
        simple = _moved_on(task, start, way, (), task.left((), _SIMPLE_STEPS))
        if simple.rmse <= _floor(task.y):
            return replace(simple, neurons=_padded(simple.neurons, width))
    return best


def _centres(values: Array, groups: int) -> list[float]:
    """The means of sorted values in so many groups, cut where the gaps are largest."""
    if not groups:
        return []
    cuts = np.sort(np.argsort(np.diff(values))[len(values) - groups :]) + 1
    return [float(part.mean()) for part in np.split(values, cuts)]


def _padded(neurons: Neurons, width: int) -> Neurons:
    """The same function with more neurons: copies of the first, of weight zero."""
    more = width - len(neurons.knots)
    lines = np.concatenate((neurons.lines, np.repeat(neurons.lines[:1], more, axis=0)))
    lines[width - more :, -1] = 0.0
    knots_at, sign = (np.concatenate((a, np.repeat(a[:1], more))) for a in (neurons.knots, neurons.sign))
    return Neurons(knots_at, sign, lines, neurons.offset)


def _moved_on(task: _Task, start: Spline, way: Facing, history: Path, steps: int) -> _Candidate:
    """A spline that faces after at most so many steps more, as a network."""
    tolerance = 1e-5 if way.width <= WIDE else 1e-6
    spline, path, settled = optimise(start, steps=steps, tolerance=tolerance, constrain=way.constrain)
    neurons = _exact(spline, way)
    rmse = _rmse(neurons, task.unit, task.x, task.y)
    return _Candidate(rmse, neurons, (*history, *path), settled, (spline, way))


def _faced(task: _Task, where: Density, width: int, own: int) -> tuple[list[_Candidate], bool]:
    """Networks from free-knot splines, and whether facing cost nothing; more neurons stay open while it does."""
    unit, x, y = task.unit, task.x, task.y
    candidates: list[_Candidate] = []
    for opened in range(min(gates_facing.always_open(unit), width) + 1):
        free, history = _free(task, where, width - opened, task.starts if not opened else min(task.starts, 2))
        if free is None:
            continue
        for way in gates_facing.choose_facing(free, unit, opened, task.generator, 2 if width <= SMALL else 1):
            try:
                start = project(x, y, free.breaks, free.degree, free.multiplicity, way.constrain)
            except np.linalg.LinAlgError:
                continue
            candidates.append(_moved_on(task, start, way, history, task.left(history, own)))
        if _least(candidates) <= max(1.01 * free.rmse, _floor(y)):
            return candidates, opened == 0
    return candidates, False


def _least(candidates: list[_Candidate]) -> float:
    return min((c.rmse for c in candidates), default=np.inf)


def _exact(spline: Spline, way: Facing) -> Neurons:
    """The spline's network, refined until its own output agrees with the spline to rounding.

    Jumps of high derivatives lose digits (n^3 eps for a cubic), and truncated powers carry the loss across the
    interval. The difference is itself a spline of the same space, so that one projection of it gives a correction
    with full relative precision: iterative refinement, as for linear systems.
    """
    x, target = splines.sample(spline.breaks, spline.z)
    neurons = gates_facing.from_spline(spline, way)
    for _ in range(2):
        gap = residual(neurons, way.unit, x, target)
        correction = project(x, gap, spline.breaks, spline.degree, spline.multiplicity, way.constrain)
        change = gates_facing.from_spline(correction, way)
        lines = neurons.lines.copy()
        lines[:, -1] += change.lines[:, -1]
        neurons = Neurons(neurons.knots, neurons.sign, lines, neurons.offset + change.offset)
    return neurons


def _free(task: _Task, where: Density, inner: int, starts: int) -> tuple[Spline | None, Path]:
    """The best unconstrained spline with `inner` free knots, found on thinned data, projected on all of them."""
    degree, multiplicity = _degree(task.unit), _multiplicity(task.unit)
    stride = max(1, len(task.x) // max(_THIN, 40 * (inner + 1)))
    thin = (task.x[::stride], task.y[::stride])
    least = degree + 2
    # Between few knots, where polishing finds what is missed, and many, where all starts end alike, more take part.
    count = 1 if not inner else 2 * starts if SMALL // 2 < inner <= 2 * SMALL and starts > 1 else starts
    begun: list[tuple[Spline, Path]] = []
    for start in _starts(task, where, inner, count, thin):
        try:
            breaks, history = start()
            spline = project(*thin, spread(breaks, thin[0], least), degree, 1)
            begun.append(_stage(task, spline, history, 8 if starts > 1 else 0, 1e-4))
        except np.linalg.LinAlgError:
            continue
    # A race: the two that lead after a few steps go on, if they are close; the better of them in the unit's own space.
    leading = sorted(begun, key=lambda one: one[0].rmse)[:2]
    leading = [one for one in leading if one[0].rmse <= 1.2 * leading[0][0].rmse]
    own, tolerance = (25, 1e-4) if inner <= WIDE else (inner, 1e-5)
    finished = [_stage(task, spline, history, own, tolerance) for spline, history in leading]
    for spline, history in sorted(finished, key=lambda one: one[0].rmse):
        try:
            if multiplicity > 1:
                breaks = spread(spline.breaks, thin[0], least)
                spline = project(*thin, breaks, degree, multiplicity)
                spline, history = _stage(task, spline, history, 10, 1e-4)
            return project(task.x, task.y, spline.breaks, degree, multiplicity), history
        except np.linalg.LinAlgError:
            continue
    return None, ()


def _stage(task: _Task, start: Spline, history: Path, own: int, tolerance: float) -> tuple[Spline, Path]:
    """A free spline after `own` steps, or as many as are left, and its history with them."""
    spline, path, _ = optimise(start, steps=task.left(history, own), tolerance=tolerance)
    return spline, (*history, *path)


def _starts(
    task: _Task, where: Density, inner: int, count: int, thin: tuple[Array, Array]
) -> Iterator[Callable[[], tuple[Array, Path]]]:
    """Breaks to start from: the density's, those with one knot fewer after a split of their worst cell, shaken ones."""
    degree = _degree(task.unit)

    def breaks_of(inner_knots: Array) -> Array:
        return np.concatenate(([task.interval[0]], inner_knots, [task.interval[1]]))

    def grown() -> tuple[Array, Path]:
        fewer = spread(breaks_of(where.knots(inner - 1)), thin[0], degree + 2)
        spline, history = _stage(task, project(*thin, fewer, degree, 1), (), 12, 1e-4)
        return split_worst(spline), history

    yield lambda: (breaks_of(where.knots(inner)), ())
    grows = count > 1 and SMALL // 2 < inner <= WIDE
    if grows:
        yield grown
    for _ in range(count - 1 - grows):
        yield lambda: (breaks_of(where.knots(inner, task.generator)), ())


def _polished(task: _Task, width: int, wide: list[_Candidate], narrower: list[_Candidate]) -> _Candidate:
    """A small network in its own parameters, from what the spline search found and from random starts."""
    unit, x, y, generator = task.unit, task.x, task.y, task.generator
    few = slice(None, None, max(1, len(x) // (25 * (width + 2))))
    tiny = width <= SMALL // 2
    count = 32 if tiny else 12
    drawn = [random_neurons(unit, width, task.interval, count, generator)]
    for one in narrower:
        drawn.append(join(stack([one.neurons] * 8), random_neurons(unit, 1, task.interval, 8, generator)))
    batch = stack([*(c.neurons for c in wide), solve_linear(stack(drawn), unit, x[few], y[few])])
    paths: list[Path] = [*(c.history for c in wide), *[()] * count, *(c.history for c in narrower for _ in range(8))]
    if tiny:
        grown = grow(unit, width, task.interval, x[few], y[few], generator, task.steps)
        batch, paths = stack([batch, grown.neurons]), [*paths, *grown.histories]
    # Coarse to fine: most of the search on some hundred points, the last steps on all.
    coarse = 25 * (width + 2)
    for points, keep, steps in ((coarse, 16, 8), (coarse, 2, 22), (4 * coarse, 1, 75), (len(x), 1, 6)):
        stride = max(1, len(x) // points)
        done = polish_networks(batch, unit, x[::stride], y[::stride], steps=steps, paths=paths, most=task.steps)
        batch, paths = done.best(keep), list(done.histories[:keep])
    return _from_polish(task, done)


def _from_polish(task: _Task, done: Polished) -> _Candidate:
    neurons = take(done.neurons, 0)
    rmse = _rmse(neurons, task.unit, task.x, task.y)
    return _Candidate(rmse, neurons, done.histories[0], bool(done.settled[0]))


def _rmse(neurons: Neurons, unit: Unit, x: Array, y: Array) -> float:
    """The RMSE of the network's own forward pass: large parameters lose digits there that neurons have."""
    net = gates_facing.to_network(neurons, unit)
    rows = max(1, _CHUNK // net.width)
    inputs, targets = (torch.from_numpy(np.ascontiguousarray(a)[:, None]).split(rows) for a in (x, y))
    square = sum(len(a) * mean_square(net, a, b) for a, b in zip(inputs, targets, strict=True))
    return float(np.sqrt(square / len(x)))


def _floor(y: Array) -> float:
    return _FLOOR * float(np.abs(y).max())


def _degree(unit: Unit) -> int:
    assert unit.degree is not None
    return unit.degree


def _multiplicity(unit: Unit) -> int:
    """How many derivatives may jump at a knot by linear freedom alone; factors beyond the first follow the gate."""
    return min(unit.factors, 1) + 1


def _undetermined(unit: Unit, width: int, x: Array) -> GatelabError:
    return GatelabError(
        f"{len(np.unique(x))} distinct points do not determine a {unit.name!r} network of width {width}; "
        "give more data or a smaller width"
    )
