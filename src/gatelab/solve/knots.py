"""The knot solver: relu-gated networks of one input, trained as splines with free knots.

Basis x knots x facing: given the knots the network is a least-squares spline in a local basis
(`gatelab.linalg.splines`); the knots move by banded variable projection (`free_knots`); the gates face so that the
spline is exactly a network (`facing`). Small networks, where the constraints of facing matter, are finished in their
own parameters (`polish`).

Smooth first: a spline that is smoother than the unit needs is also a network of that unit, and its knots are better
placed: at a C1 optimum the GLU's own slope jumps vanish, and with them the gradient that would move its knots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from gatelab.errors import GatelabError, unknown_name
from gatelab.linalg import splines
from gatelab.linalg.splines import Array
from gatelab.problems import Problem
from gatelab.solve import facing as gates_facing
from gatelab.solve.facing import Facing, Neurons
from gatelab.solve.free_knots import Density, Spline, density, optimise, project, split_worst, spread
from gatelab.solve.polish import grow, join, polish, random_neurons, residual, solve_linear, stack, take
from gatelab.solve.solution import Solution, Status
from gatelab.units import AnyUnit, Unit

SMALL, WIDE = 12, 50
_THIN = 2000
_FLOOR = 1e-12


def knots(
    unit: AnyUnit,
    problem: Problem,
    width: int,
    *,
    seed: int = 0,
    gates: Literal["trained", "frozen"] = "trained",
    starts: int = 4,
    steps: int = 100,
) -> Solution:
    """Fit a relu-gated network of `width` neurons to 1-D data.

    `gates="frozen"` keeps the knots equally spaced and solves only for what is linear (figure 4 a and d);
    `"trained"` moves them (b and e). `starts` is how many sets of knots are tried, the first of them without chance.

    >>> from gatelab.problems import problem
    >>> from gatelab.units import unit
    >>> knots(unit("glu"), problem("x2", n=200), 3).status
    <Status.FLOOR: 'floor'>
    """
    if gates not in ("trained", "frozen"):
        raise unknown_name("way to treat gates", str(gates), ("trained", "frozen"))
    chosen, interval = _suited(unit, problem)
    order = np.argsort(problem.train.x[:, 0], kind="stable")
    x, y = problem.train.x[order, 0], problem.train.y[order, 0]
    if gates == "frozen":
        found = _frozen(chosen, x, y, interval, width)
    else:
        found = _trained(chosen, x, y, interval, width, np.random.default_rng(seed), starts, steps)
    rmse = _rmse(found.neurons, chosen, x, y)
    if rmse <= _floor(y):
        status = Status.FLOOR
    else:
        status = Status.CONVERGED if found.settled else Status.BUDGET
    return Solution(gates_facing.to_network(found.neurons, chosen), status, (*found.history, rmse))


@dataclass(frozen=True)
class _Candidate:
    rmse: float
    neurons: Neurons
    history: tuple[float, ...]
    settled: bool


def _suited(unit: AnyUnit, problem: Problem) -> tuple[Unit, tuple[float, float]]:
    if not isinstance(unit, Unit) or unit.gate_power is None:
        raise GatelabError(
            f"the knot solver needs a relu-gated unit and {unit.name!r} is not one; use solver='lbfgs' or 'newton'"
        )
    if problem.d_in != 1 or problem.d_out != 1 or problem.interval is None:
        raise GatelabError(
            f"the knot solver needs one input and one output, problem {problem.name!r} has {problem.d_in} and "
            f"{problem.d_out}; use solver='lbfgs' or 'newton'"
        )
    return unit, problem.interval


def _frozen(unit: Unit, x: Array, y: Array, interval: tuple[float, float], width: int) -> _Candidate:
    opened = min(gates_facing.always_open(unit), width)
    breaks = np.linspace(*interval, width - opened + 2)
    way = Facing(unit, interval, np.zeros(width - opened, bool), opened)
    try:
        spline = project(x, y, breaks, _degree(unit), _multiplicity(unit), way.constrain)
    except np.linalg.LinAlgError:
        raise _undetermined(unit, width, x) from None
    return _Candidate(spline.rmse, _exact(spline, way), (spline.rmse,), True)


def _trained(
    unit: Unit,
    x: Array,
    y: Array,
    interval: tuple[float, float],
    width: int,
    generator: np.random.Generator,
    starts: int,
    steps: int,
) -> _Candidate:
    where, tiny = density(x, y, interval, _degree(unit)), width <= SMALL // 2
    # Tiny networks are polished on all data in any case, so that their splines need not see all.
    stride = max(1, len(x) // _THIN) if tiny else 1
    search = partial(_faced, unit, x[::stride], y[::stride], interval, where, generator)
    candidates, facing_is_free = search(width, starts, 6 if tiny else 20 if width <= SMALL else steps)
    candidates = [replace(c, rmse=_rmse(c.neurons, unit, x, y)) for c in candidates]
    if _least(candidates) > _floor(y) and (tiny or (width <= SMALL and not facing_is_free)):
        # A network one neuron narrower is contained in this one: what the search finds there is a start here.
        narrower = search(width - 1, starts, 6)[0] if tiny and width > 1 else []
        found = [c.neurons for c in candidates], [c.neurons for c in narrower]
        candidates.append(_polished(unit, x, y, interval, width, *found, generator))
    if not candidates:
        raise _undetermined(unit, width, x)
    return min(candidates, key=lambda c: c.rmse)


def _faced(
    unit: Unit,
    x: Array,
    y: Array,
    interval: tuple[float, float],
    where: Density,
    generator: np.random.Generator,
    width: int,
    starts: int,
    steps: int,
) -> tuple[list[_Candidate], bool]:
    """Networks from free-knot splines, and whether facing cost nothing; more neurons stay open while it does."""
    candidates: list[_Candidate] = []
    for opened in range(min(gates_facing.always_open(unit), width) + 1):
        free = _free(unit, x, y, interval, width - opened, where, generator, starts if not opened else min(starts, 2))
        if free is None:
            continue
        for way in gates_facing.choose_facing(free, unit, opened, generator, 2 if width <= SMALL else 1):
            try:
                start = project(x, y, free.breaks, free.degree, free.multiplicity, way.constrain)
            except np.linalg.LinAlgError:
                continue
            tolerance = 1e-5 if width <= WIDE else 1e-6
            spline, history, settled = optimise(start, steps=steps, tolerance=tolerance, constrain=way.constrain)
            neurons = _exact(spline, way)
            candidates.append(_Candidate(_rmse(neurons, unit, x, y), neurons, history, settled))
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


def _free(
    unit: Unit,
    x: Array,
    y: Array,
    interval: tuple[float, float],
    inner: int,
    where: Density,
    generator: np.random.Generator,
    starts: int,
) -> Spline | None:
    """The best unconstrained spline with `inner` free knots, found on thinned data, projected on all of them."""
    degree, multiplicity = _degree(unit), _multiplicity(unit)
    stride = max(1, len(x) // max(_THIN, 40 * (inner + 1)))
    thin = (x[::stride], y[::stride])
    least = degree + 2
    # Between few knots, where polishing finds what is missed, and many, where all starts end alike, more take part.
    count = 1 if not inner else 2 * starts if SMALL // 2 < inner <= 2 * SMALL and starts > 1 else starts
    begun: list[Spline] = []
    for start in _starts(where, interval, inner, generator, count, thin, degree):
        try:
            breaks = spread(start(), thin[0], least)
            spline, _, _ = optimise(project(*thin, breaks, degree, 1), steps=8 if starts > 1 else 0, tolerance=1e-4)
        except np.linalg.LinAlgError:
            continue
        begun.append(spline)
    # A race: the two that lead after a few steps go on, if they are close; the better of them in the unit's own space.
    leading = sorted(begun, key=lambda spline: spline.rmse)[:2]
    leading = [spline for spline in leading if spline.rmse <= 1.2 * leading[0].rmse]
    finished = [
        optimise(spline, steps=25 if inner <= WIDE else inner, tolerance=1e-4 if inner <= WIDE else 1e-5)[0]
        for spline in leading
    ]
    for spline in sorted(finished, key=lambda spline: spline.rmse):
        try:
            if multiplicity > 1:
                breaks = spread(spline.breaks, thin[0], least)
                spline, _, _ = optimise(project(*thin, breaks, degree, multiplicity), steps=10, tolerance=1e-4)
            return project(x, y, spline.breaks, degree, multiplicity)
        except np.linalg.LinAlgError:
            continue
    return None


def _starts(
    where: Density,
    interval: tuple[float, float],
    inner: int,
    generator: np.random.Generator,
    count: int,
    thin: tuple[Array, Array],
    degree: int,
) -> Iterator[Callable[[], Array]]:
    """Breaks to start from: the density's, those with one knot fewer after a split of their worst cell, shaken ones."""

    def at(knots_at: Array) -> Array:
        return np.concatenate(([interval[0]], knots_at, [interval[1]]))

    def grown() -> Array:
        fewer = spread(at(where.knots(inner - 1)), thin[0], degree + 2)
        spline, _, _ = optimise(project(*thin, fewer, degree, 1), steps=12, tolerance=1e-4)
        return split_worst(spline)

    yield lambda: at(where.knots(inner))
    grows = count > 1 and SMALL // 2 < inner <= WIDE
    if grows:
        yield grown
    for _ in range(count - 1 - grows):
        yield lambda: at(where.knots(inner, generator))


def _polished(
    unit: Unit,
    x: Array,
    y: Array,
    interval: tuple[float, float],
    width: int,
    found: list[Neurons],
    narrower: list[Neurons],
    generator: np.random.Generator,
) -> _Candidate:
    """A small network in its own parameters, from what the spline search found and from chance."""
    few = slice(None, None, max(1, len(x) // (25 * (width + 2))))
    chance = [random_neurons(unit, width, interval, 32 if width <= SMALL // 2 else 12, generator)]
    for one in narrower:
        chance.append(join(stack([one] * 8), random_neurons(unit, 1, interval, 8, generator)))
    batch = stack([*found, solve_linear(stack(chance), unit, x[few], y[few])])
    if width <= SMALL // 2:
        batch = stack([batch, grow(unit, width, interval, x[few], y[few], generator)])
    # Coarse to fine: most of the search on some hundred points, the last steps on all.
    coarse = 25 * (width + 2)
    for points, keep, steps in ((coarse, 16, 8), (coarse, 2, 22), (4 * coarse, 1, 25), (len(x), 1, 6)):
        stride = max(1, len(x) // points)
        done = polish(batch, unit, x[::stride], y[::stride], steps=steps)
        batch = done.best(keep)
    return _Candidate(float(done.rmse[0]), take(done.neurons, 0), done.history, bool(done.settled[0]))


def _rmse(neurons: Neurons, unit: Unit, x: Array, y: Array) -> float:
    return float(np.sqrt(np.mean(np.square(residual(neurons, unit, x, y)))))


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
