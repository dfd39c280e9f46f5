"""Levenberg-Marquardt in the networks' own parameters, many small networks at once.

For a handful of neurons the constraints of directions matter, and for two or more factors the roots of the jump
polynomials, which the spline search ignores. Truncated powers are still well enough conditioned there: knots, lines and
offset move together, and a batch of networks (a leading dimension of `Neurons`) shares every array operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul

import numpy as np

from gatelab.arrays import AnyArray as Array
from gatelab.feedforward import Unit
from gatelab.linalg import splines
from gatelab.solve.free_knots import Directions, Interval, Neurons, Spline, from_spline, project
from gatelab.solve.marquardt import Damping, descend
from gatelab.solve.solution import UNLIMITED, Status

_ROWS_AT_ONCE = 50_000  # so that a million points need little memory
# Growth: the first networks, of one neuron; then the number of parents, of random neurons per parent, and of steps.
_FIRST_NEURONS, _PARENTS, _CHILDREN, _GROWING_STEPS = 32, 6, 6, 10
_DAMPING, _TOLERANCE = Damping(down=5, up=4), 1e-7
# The RMSE of a network after each of its steps.
History = tuple[float, ...]


@dataclass(frozen=True)
class Polished:
    """A batch after polishing, best first: networks, their RMSE, their histories, and which have settled."""

    neurons: Neurons
    rmse: Array
    histories: tuple[History, ...]
    settled: Array


def polish_networks(
    neurons: Neurons,
    unit: Unit,
    x: Array,
    y: Array,
    *,
    steps: int,
    paths: Sequence[History] | None = None,
    most: int = UNLIMITED,
) -> Polished:
    """A batch after at most `steps` damped steps each; `paths` are histories so far, of at most `most` entries."""
    batch = _NetworkBatch(neurons, unit, x, y)
    paths = paths or [()] * len(neurons.knots)
    budget = [min(steps, most - len(path)) for path in paths]
    end = descend(batch, budget, tolerance=_TOLERANCE, damping=_DAMPING, together=True)
    rank = np.argsort(end.loss, kind="stable")
    histories = [(*path, *errors) for path, errors in zip(paths, end.losses, strict=True)]
    settled = np.array([status is not Status.BUDGET for status in end.status])
    return Polished(take(batch.neurons, rank), end.loss[rank], tuple(histories[b] for b in rank), settled[rank])


class _NetworkBatch:
    """Networks in all their parameters, for `descend`: their residuals, and the scaled normal equations."""

    def __init__(self, neurons: Neurons, unit: Unit, x: Array, y: Array) -> None:
        self.unit, self.x, self.y = unit, x, y
        self.neurons = take(neurons, np.arange(len(neurons.knots)))
        self.residual = residual(neurons, unit, x, y)
        self.there = self.neurons, self.residual
        p = neurons.knots.shape[1] * (1 + max(2 * unit.factors, 1)) + 1
        self.gram = np.zeros((len(self.residual), p, p))
        self.gradient, self.scale = np.zeros((2, len(self.residual), p))

    def losses(self) -> Array:
        return _rms(self.residual)

    def linearize(self, members: Array) -> None:
        neurons, r, gram, gradient = take(self.neurons, members), self.residual[members], 0.0, 0.0
        for rows in _slices(len(self.x)):
            j = jacobian(neurons, self.unit, self.x[rows])
            gram = gram + j @ np.swapaxes(j, -1, -2)
            gradient = gradient + (j @ r[..., rows, None])[..., 0]
        scale = np.sqrt(np.maximum(np.einsum("...ii->...i", gram), 1e-300))
        self.gram[members] = gram / (scale[:, :, None] * scale[:, None, :])
        self.gradient[members], self.scale[members] = gradient / scale, scale

    def trial(self, members: Array, damping: Array) -> tuple[Array, None]:
        damped = self.gram[members] + damping[:, None, None] * np.eye(self.scale.shape[1])
        step = np.linalg.solve(damped, self.gradient[members][..., None])[..., 0] / self.scale[members]
        with np.errstate(over="ignore", invalid="ignore"):  # a step that overflows is rejected
            neurons = _moved(take(self.neurons, members), step)
            self.there = neurons, residual(neurons, self.unit, self.x, self.y)
            return _rms(self.there[1]), None

    def accept(self, members: Array, rows: Array) -> None:
        self.residual[members] = self.there[1][rows]
        for name, values in vars(self.neurons).items():
            values[members] = getattr(self.there[0], name)[rows]


def random_neurons(unit: Unit, width: int, interval: Interval, count: int, generator: np.random.Generator) -> Neurons:
    """`count` networks with knots in the interval and slightly left of it, random directions and random lines."""
    a, b = interval
    knots = generator.uniform(a - 0.2 * (b - a), b, (count, width))
    lines = generator.standard_normal((count, width, max(unit.factors, 1), 2))
    lines[..., 1] *= 2 / (b - a) * (unit.factors > 0)
    lines[..., -1, :] /= width
    return Neurons(knots, generator.choice([-1.0, 1.0], (count, width)), lines, np.zeros(count))


def solve_linear(neurons: Neurons, unit: Unit, x: Array, y: Array) -> Neurons:
    """The batch with its last lines and offsets, in which a network is linear, at their least-squares values."""
    first = neurons.knots.shape[-1] * max(2 * unit.factors - 1, 1)
    lines = neurons.lines.copy()
    lines[..., -1, :] = 0.0
    cleared = Neurons(neurons.knots, neurons.sign, lines, np.zeros(len(lines)))
    columns = jacobian(cleared, unit, x)[:, first:]
    scale = np.sqrt(np.maximum(np.mean(columns**2, axis=-1), 1e-300))
    columns = columns / scale[..., None]
    gram = columns @ np.swapaxes(columns, -1, -2) + 1e-9 * len(x) * np.eye(columns.shape[1])
    weights = np.linalg.solve(gram, (columns @ y)[..., None])[..., 0] / scale
    return _moved(cleared, np.pad(weights, ((0, 0), (first, 0))))


def grow(
    unit: Unit,
    x: Array,
    y: Array,
    *,
    width: int,
    interval: Interval,
    generator: np.random.Generator,
    most: int = UNLIMITED,
) -> Polished:
    """Networks grown neuron by neuron: several random neurons are tried with each of the best networks."""

    def polished(batch: Neurons, paths: Sequence[History] | None = None) -> Polished:
        batch = solve_linear(batch, unit, x, y)
        return polish_networks(batch, unit, x, y, steps=_GROWING_STEPS, paths=paths, most=most)

    grown = polished(random_neurons(unit, 1, interval, _FIRST_NEURONS, generator))
    parents = np.repeat(np.arange(_PARENTS), _CHILDREN)
    for _ in range(1, width):
        batch = join(take(grown.neurons, parents), random_neurons(unit, 1, interval, len(parents), generator))
        grown = polished(batch, [grown.histories[p] for p in parents])
    return grown


def refined_network(spline: Spline, directions: Directions) -> Neurons:
    """The spline's network, refined until its own output agrees with the spline to rounding.

    Jumps of high derivatives lose digits; one projection of the difference, a spline too, gives a correction with full
    relative precision.
    """
    x, target = splines.sample(spline.breaks, spline.z)
    neurons = from_spline(spline, directions)
    for _ in range(2):
        gap = residual(neurons, directions.unit, x, target)
        correction = project(x, gap, spline.breaks, spline.degree, spline.multiplicity, directions.constrain)
        change = from_spline(correction, directions)
        lines = neurons.lines.copy()
        lines[:, -1] += change.lines[:, -1]
        neurons = replace(neurons, lines=lines, offset=neurons.offset + change.offset)
    return neurons


def join(a: Neurons, b: Neurons) -> Neurons:
    """Networks of two batches side by side: their neurons together, the sum of their outputs."""
    parts = [np.concatenate((getattr(a, name), getattr(b, name)), axis=1) for name in ("knots", "sign", "lines")]
    return Neurons(*parts, offset=np.asarray(a.offset) + np.asarray(b.offset))


def stack(batch: list[Neurons]) -> Neurons:
    """Single networks or batches as one batch."""
    single = [n if n.knots.ndim == 2 else take(n, None) for n in batch]
    return Neurons(*(np.concatenate([np.asarray(vars(n)[name]) for n in single]) for name in vars(batch[0])))


def take(neurons: Neurons, which: int | slice | Array | None) -> Neurons:
    """Networks of a batch; an index gives a single network, None makes a batch of one."""
    return Neurons(*(np.asarray(values)[which] for values in vars(neurons).values()))


def _rms(r: Array) -> Array:
    return np.sqrt(np.mean(r * r, axis=-1))


def residual(neurons: Neurons, unit: Unit, x: Array, y: Array) -> Array:
    """y minus the networks' output, (..., N)."""
    out = np.broadcast_to(y, (*neurons.knots.shape[:-1], len(y))) - np.asarray(neurons.offset)[..., None]
    for rows in _slices(len(x)):
        _, gate, factors = _parts(neurons, unit, x[rows])
        out[..., rows] -= reduce(mul, [gate, *factors]).sum(-2)
    return out


def _parts(neurons: Neurons, unit: Unit, x: Array) -> tuple[Array, Array, list[Array]]:
    """x - t, sign^k relu^k, and the factors, each (..., n, N)."""
    k = unit.gate_power
    assert k is not None
    distance = x - neurons.knots[..., None]
    opened = np.maximum(neurons.sign[..., None] * distance, 0.0)
    gate = reduce(mul, [(neurons.sign**k)[..., None] * opened, *[opened] * (k - 1)])
    lines = neurons.lines[..., None]
    if unit.factors == 0:
        return distance, gate, [lines[..., 0, 0, :]]
    return distance, gate, [lines[..., i, 0, :] + lines[..., i, 1, :] * distance for i in range(unit.factors)]


def jacobian(neurons: Neurons, unit: Unit, x: Array) -> Array:
    """(..., parameters, N): knots, then c and (with factors) b of each line, then the offset."""
    k, q = unit.gate_power, unit.factors
    assert k is not None
    distance, gate, factors = _parts(neurons, unit, x)
    by_gate = np.divide(k * gate, distance, out=np.zeros_like(gate), where=gate != 0)
    by_knot = -by_gate * reduce(mul, factors)
    rows = []
    for i in range(len(factors)):
        others = reduce(mul, [gate, *factors[:i], *factors[i + 1 :]])
        rows.append(others)
        if q:
            rows.append(others * distance)
            by_knot -= others * neurons.lines[..., i, 1][..., None]
    return np.concatenate((by_knot, *rows, np.ones_like(gate[..., :1, :])), axis=-2)


def _moved(neurons: Neurons, step: Array) -> Neurons:
    n, lines = neurons.knots.shape[-1], neurons.lines.copy()
    blocks = step[..., n:-1].reshape(*step.shape[:-1], -1, n)
    per_line = blocks.shape[-2] // lines.shape[-2]
    for i in range(blocks.shape[-2]):
        lines[..., i // per_line, i % per_line] += blocks[..., i, :]
    return Neurons(neurons.knots + step[..., :n], neurons.sign, lines, neurons.offset + step[..., -1])


def _slices(n: int) -> list[slice]:
    return [slice(i, i + _ROWS_AT_ONCE) for i in range(0, n, _ROWS_AT_ONCE)]
