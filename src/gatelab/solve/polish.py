"""Levenberg-Marquardt in a small network's own parameters.

For a handful of neurons the constraints of facing, and for two or more factors the roots of the jump polynomials, carry
weight that the spline search does not see. There the truncated powers are still well enough conditioned for the plain
method: all of knots, lines and offset move at once, with the Jacobian in closed form.
"""

from __future__ import annotations

import numpy as np

from gatelab.linalg.splines import Array
from gatelab.solve.facing import Neurons
from gatelab.units import Unit

_CHUNK = 50_000


def residual(neurons: Neurons, unit: Unit, x: Array, y: Array) -> Array:
    """y minus the network's output, in slices so that a million points need little memory."""
    out = y - neurons.offset
    for rows in _slices(len(x)):
        _, gate, factors = _parts(neurons, unit, x[rows])
        out[rows] -= (gate * np.prod(factors, axis=0)).sum(0)
    return out


def random_neurons(unit: Unit, width: int, interval: tuple[float, float], generator: np.random.Generator) -> Neurons:
    """Knots over the interval and a little beyond, gates facing either way, lines of the size of the interval."""
    a, b = interval
    knots = generator.uniform(a - 0.2 * (b - a), b, width)
    lines = generator.standard_normal((width, max(unit.factors, 1), 2))
    lines[..., 1] *= 2 / (b - a) * (unit.factors > 0)
    lines[:, -1] /= width
    return Neurons(knots, generator.choice([-1.0, 1.0], width), lines, 0.0)


def polish(
    neurons: Neurons, unit: Unit, x: Array, y: Array, *, steps: int, tolerance: float = 1e-7
) -> tuple[Neurons, tuple[float, ...], bool]:
    """The network after at most `steps` damped steps, its RMSE after each, and whether it has settled."""
    r = residual(neurons, unit, x, y)
    error, damping, history, idle = float(np.sqrt(np.mean(r * r))), 1e-2, [], 0
    system: tuple[Array, Array] | None = None
    for _ in range(steps):
        if system is None:
            system = _normal_system(neurons, unit, x, r)
        gram, gradient = system
        scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
        scaled = gram / np.outer(scale, scale)
        step = np.linalg.solve(scaled + damping * np.eye(len(scale)), gradient / scale) / scale
        trial = _moved(neurons, step)
        r_trial = residual(trial, unit, x, y)
        trial_error = float(np.sqrt(np.mean(r_trial * r_trial)))
        if trial_error < error:
            idle = idle + 1 if trial_error > (1 - tolerance) * error else 0
            neurons, r, error, system = trial, r_trial, trial_error, None
            damping = max(damping / 5, 1e-12)
        else:
            damping = max(damping * 4, 1e-8)
        history.append(error)
        if idle == 3 or damping > 1e8:
            return neurons, tuple(history), True
    return neurons, tuple(history), False


def _parts(neurons: Neurons, unit: Unit, x: Array) -> tuple[Array, Array, Array]:
    """x - t, sign^k relu^k, and the factors, with shapes (n, N), (n, N), (max(q, 1), n, N)."""
    k = unit.gate_power
    assert k is not None
    distance = x - neurons.knots[:, None]
    opened = np.maximum(neurons.sign[:, None] * distance, 0.0)
    gate = (neurons.sign**k)[:, None] * opened**k
    factors = neurons.lines[:, :, 0].T[:, :, None] + neurons.lines[:, :, 1].T[:, :, None] * distance
    return distance, gate, factors


def _jacobian(neurons: Neurons, unit: Unit, x: Array) -> Array:
    """Rows: knots, then c and (with factors) b of each line, then the offset; columns: data."""
    k, q = unit.gate_power, unit.factors
    assert k is not None
    distance, gate, factors = _parts(neurons, unit, x)
    product = np.prod(factors, axis=0)
    by_gate = np.divide(k * gate, distance, out=np.zeros_like(gate), where=gate != 0)
    by_knot = -by_gate * product
    rows = []
    for i in range(len(factors)):
        rest = gate * np.prod(np.delete(factors, i, axis=0), axis=0)
        rows.append(rest)
        if q:
            rows.append(rest * distance)
            by_knot = by_knot - rest * neurons.lines[:, i, 1][:, None]
    return np.concatenate((by_knot, *rows, np.ones((1, len(x)))))


def _normal_system(neurons: Neurons, unit: Unit, x: Array, r: Array) -> tuple[Array, Array]:
    gram, gradient = 0.0, 0.0
    for rows in _slices(len(x)):
        j = _jacobian(neurons, unit, x[rows])
        gram, gradient = gram + j @ j.T, gradient + j @ r[rows]
    return np.asarray(gram), np.asarray(gradient)


def _moved(neurons: Neurons, step: Array) -> Neurons:
    n = len(neurons.knots)
    blocks = step[n:-1].reshape(-1, n)
    lines = neurons.lines.copy()
    per_line = len(blocks) // lines.shape[1]
    for i, block in enumerate(blocks):
        lines[:, i // per_line, i % per_line] += block
    return Neurons(neurons.knots + step[:n], neurons.sign, lines, neurons.offset + float(step[-1]))


def _slices(n: int) -> list[slice]:
    return [slice(i, i + _CHUNK) for i in range(0, n, _CHUNK)]
