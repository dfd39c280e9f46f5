"""Polynomials of least error: in the maximum over an interval, and in the mean square.

Remez's exchange solves sum_k c_k T_k(z_i) + (-1)^i E = act(z_i) on a reference of points z_i and moves the reference to
the extrema of the error until all are equal to |E|. On an interval symmetric about 0, GELU, SiLU and ReLU are z/2 plus
an even function, tanh is odd and sigmoid is 1/2 plus an odd one: the exchange runs on half of the interval and basis.
For z ~ N(0, s^2) the mean square is least for sum_k h_k He_k(z/s) / sqrt(k!), h_k = E[act(s t) He_k(t)] / sqrt(k!).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev as basis
from numpy.polynomial import hermite_e

from gatelab.arrays import Array
from gatelab.errors import GatelabError, real_number
from gatelab.feedforward.gates import Activation
from gatelab.linalg.quadrature import hermite_functions, panel_rule
from gatelab.linearization.polynomials import (
    FAR,
    NEAR,
    Interval,
    Polynomial,
    calibrate,
    check_degree,
    check_interval,
    from_unit,
    numbers,
    to_unit,
    values,
)
from gatelab.linearization.proofs import LEVELED, alternating, extrema

ROUNDS = 60  # of the exchange
_GRID = 40  # average number of points between two neighbors of the reference
_ROUNDING = 20 * np.finfo(float).eps
REACH = 14.0  # in standard deviations; 1e-44 of the mass is outside
PANELS, POINTS = 112, 20
USED = 5.0  # standard deviations covered by the default interval of a Hermite polynomial


def chebyshev(gate: Activation, degree: int = 8, interval: Interval | float = (-3.0, 3.0)) -> Polynomial:
    """The interpolant at the Chebyshev points; its error is a few times that of the best polynomial."""
    degree, interval = check_degree(degree), check_interval(interval)
    t = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    f = values(gate, from_unit(t, interval)).numpy()
    coefficients = 2 / (degree + 1) * (f @ basis.chebvander(t, degree))
    coefficients[0] /= 2
    coefficients[np.abs(coefficients) < 4 * np.finfo(float).eps * np.abs(f).max(initial=1e-300)] = 0
    return Polynomial.from_chebyshev(coefficients, interval, activation=gate.name, method="chebyshev")


def minimax(gate: Activation, degree: int = 8, interval: Interval | float = (-3.0, 3.0)) -> Polynomial:
    """The polynomial whose largest error over the interval is smallest."""
    degree, (low, high) = check_degree(degree, 100), check_interval(interval)
    c, h = (low + high) / 2, (high - low) / 2

    def f(t: Array) -> Array:
        return values(gate, c + h * t).numpy()

    parity, known = None, np.zeros(2)
    if c == 0 and degree:  # a constant cannot have the linear part
        parity, known = _parity(f, h)
    degrees = [k for k in range(degree + 1) if parity is None or k % 2 == parity]
    coefficients = np.zeros(degree + 1)
    coefficients[:2] = known[: degree + 1]
    start = -1.0 if parity is None else 0.0
    kinks = np.array([-c / h] if low < 0 < high else [])
    coefficients[degrees] += _exchange(lambda t: f(t) - known[0] - known[1] * t, degrees, start, kinks)
    return Polynomial.from_chebyshev(coefficients, (low, high), activation=gate.name, method="minimax")


def _parity(f: Callable[[Array], Array], h: float) -> tuple[int | None, Array]:
    """0 if f minus a multiple of z is even, 1 if f minus a constant is odd, and the subtracted part, as T_0 and T_1."""
    t = np.linspace(0, 1, 101)[1:]
    up, down = f(t), f(-t)
    size = max(np.abs(up).max(), np.abs(down).max(), 1e-300)
    odd, even = (up - down) / 2, (up + down) / 2
    slope, level = odd[-1], float(f(np.zeros(1))[0])
    if np.abs(odd - slope * t).max() < _ROUNDING * size:
        # Remove the rounding of slopes such as 1/2 of GELU.
        plain = round(slope / h, 12) * h
        if abs(plain - slope) < 1e-13 * h:
            slope = plain
        return 0, np.array([0.0, slope])
    if np.abs(even - level).max() < _ROUNDING * size:
        return 1, np.array([level, 0.0])
    return None, np.zeros(2)


def _exchange(f: Callable[[Array], Array], degrees: list[int], start: float, kinks: Array) -> Array:
    """Coefficients of T_k, k in degrees, best for f on [start, 1]; kinks are added to the grid."""
    n = len(degrees)

    def columns(t: Array) -> Array:
        return np.asarray(basis.chebvander(t, degrees[-1])[:, degrees], dtype=np.float64)

    def spaced(count: int, last: float) -> Array:
        """cos(pi i / last), i < count, in increasing order; with half the angle on [0, 1]."""
        angle = np.pi / 2 * (1 - start)
        return np.sort(np.cos(angle * np.arange(count) / last))

    x = spaced(n + 1, max(n, 1))
    if start == 0 and degrees[0] % 2 == 1:
        # An odd basis vanishes at 0, which cannot be in the reference: use the extrema of T on (0, 1].
        x = spaced(n + 1, n + 0.5)
    grid = np.union1d(spaced(_GRID * (n + 2) + 1, _GRID * (n + 2)), kinks)
    grid_columns, grid_values = columns(grid), f(grid)
    rounding = _ROUNDING * max(np.abs(grid_values).max(), 1e-300)
    for _ in range(ROUNDS):
        system = np.hstack([columns(x), ((-1.0) ** np.arange(n + 1))[:, None]])
        c = np.linalg.solve(system, f(x))[:n]
        error = grid_values - grid_columns @ c
        worst = np.abs(error).max()
        # Below rounding the signs are random: the polynomial is as good as float64 allows.
        if worst < rounding:
            return np.asarray(c, dtype=np.float64)
        turns, sizes = alternating(*extrema(grid, error, lambda t, c=c: f(t) - columns(t) @ c), n + 1)
        if len(turns) < n + 1:
            # If f is interpolated exactly on the reference, E = 0, no error alternates: change the reference.
            x = start + (1 - start) * ((x - start) / (1 - start)) ** 0.9
            continue
        x = turns
        if sizes.max() - sizes.min() < LEVELED * sizes.min() + rounding:
            # An unknown kink may have an extremum between grid points: search on a finer grid around each.
            near = np.clip(turns + np.diff(grid).max() * np.linspace(-1, 1, 801)[:, None], start, 1.0).ravel()
            missed = np.abs(f(near) - columns(near) @ c).reshape(801, n + 1)
            if missed.max() <= (1 + 2 * LEVELED) * sizes.max() + rounding:
                return np.asarray(c, dtype=np.float64)
            grid = np.union1d(grid, near.reshape(801, n + 1)[missed.argmax(axis=0), np.arange(n + 1)])
            grid_columns, grid_values = columns(grid), f(grid)
    raise GatelabError(f"the exchange did not converge in {ROUNDS} rounds; use method 'chebyshev' or a lower degree")


def hermite(
    gate: Activation, degree: int = 8, scale: float | None = None, interval: Interval | None = None, data: Any = None
) -> Polynomial:
    """The polynomial of least mean square error for N(0, scale^2); the scale is 1 by default, or the RMS of `data`."""
    degree = check_degree(degree, 100)
    if data is not None and scale is not None:
        raise GatelabError(f"scale is {scale!r} and data are given, which determine the scale; leave one out")
    if data is not None:
        scale = float(np.sqrt(np.mean(numbers(data) ** 2)))
    elif scale is None:
        scale = 1.0
    scale = real_number("the scale, a standard deviation of pre-activations,", scale, least=NEAR, most=FAR / USED)
    h, _ = hermite_series(gate, degree, scale)
    h = np.where(np.abs(h) < 1e-15 * np.abs(h).max(initial=1e-300), 0.0, h)
    plain = h / np.sqrt([float(math.factorial(k)) for k in range(degree + 1)])
    powers = np.zeros(degree + 1)
    standard = hermite_e.herme2poly(plain)  # in powers of t, without trailing zeros
    powers[: len(standard)] = standard / scale ** np.arange(len(standard))
    where = check_interval(interval or USED * scale)
    return Polynomial.from_powers(powers, where, activation=gate.name, method="hermite")


def fit(gate: Activation, degree: int = 8, *, data: Any, interval: Interval | None = None) -> Polynomial:
    """The least-squares polynomial on the given pre-activations, in the Chebyshev basis."""
    degree = check_degree(degree, 100)
    z = numbers(data)
    if len(np.unique(z)) <= degree:
        raise GatelabError(f"{len(np.unique(z))} numbers do not determine degree {degree}; give more of them")
    interval = check_interval(calibrate(z, margin=0.0) if interval is None else interval)
    columns = torch.from_numpy(basis.chebvander(to_unit(z, interval), degree))
    coefficients = torch.linalg.lstsq(columns, values(gate, z)[:, None], driver="gelsd").solution[:, 0]
    return Polynomial.from_chebyshev(coefficients.tolist(), interval, activation=gate.name, method="fit")


def hermite_series(gate: Activation, degree: int, scale: float = 1.0) -> tuple[Array, float]:
    """h_0 .. h_degree of act(scale t), and E[act(scale t)^2]; panels end at 0, where a kink costs no accuracy."""
    t, lengths = panel_rule(np.linspace(-REACH, REACH, 2 * PANELS + 1), POINTS)
    w = lengths * np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    f = values(gate, scale * t).numpy()
    h = [np.dot(w, f * he) for he in hermite_functions(t, np.ones_like(t), degree + 1)]
    return np.array(h), float(np.dot(w, f * f))
