"""Polynomials with a small maximum error over an interval: Chebyshev interpolants, and the best by Remez's exchange.

The exchange solves, on a reference of points z_i, sum_k c_k T_k(z_i) + (-1)^i E = act(z_i), and moves the reference to
the extrema of the error until all are equal to |E|: then, and only then, no polynomial of this degree is better
(Chebyshev's equioscillation). On an interval symmetric about 0, GELU, SiLU and ReLU are z/2 + even(z), tanh is odd and
sigmoid is 1/2 + odd: the exchange runs on half of the interval with half of the basis.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.polynomial import chebyshev as basis

from gatelab.arrays import Array
from gatelab.errors import GatelabError
from gatelab.feedforward.gates import Activation
from gatelab.linearization.polynomials import Interval, Polynomial, check_degree, check_interval, from_unit, values
from gatelab.linearization.proofs import LEVELED, alternating, extrema

ROUNDS = 60
_GRID = 40  # average number of points between two neighbors of the reference
_ROUNDING = 20 * np.finfo(float).eps


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
    if c == 0:
        parity, known = _parity(f, h)
    if degree == 0 and parity == 0:
        # A constant cannot have the linear part.
        parity, known = None, np.zeros(2)
    degrees = [k for k in range(degree + 1) if parity is None or k % 2 == parity]
    coefficients = np.zeros(degree + 1)
    coefficients[:2] = known[: degree + 1]
    if degrees:
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
        angle = np.pi if start else np.pi / 2
        return np.sort(np.cos(angle * np.arange(count) / last))

    x = spaced(n + 1, max(n, 1))
    if start == 0 and degrees[0] % 2 == 1:
        # An odd basis vanishes at 0, which cannot be in the reference: use the extrema of T on (0, 1].
        x = spaced(n + 1, n + 0.5)
    grid = np.union1d(spaced(_GRID * (n + 2) + 1, _GRID * (n + 2)), kinks)
    grid_columns, grid_values = columns(grid), f(grid)
    rounding = _ROUNDING * max(np.abs(grid_values).max(), 1e-300)
    least = np.inf
    for _ in range(ROUNDS):
        system = np.hstack([columns(x), ((-1.0) ** np.arange(n + 1))[:, None]])
        c = np.linalg.solve(system, f(x))[:n]
        error = grid_values - grid_columns @ c
        worst = np.abs(error).max()
        least = min(least, worst)
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
    raise GatelabError(
        f"the exchange did not converge in {ROUNDS} rounds (degree {degrees[-1]}, error {least:.3g}); "
        "use method 'chebyshev', or a lower degree"
    )
