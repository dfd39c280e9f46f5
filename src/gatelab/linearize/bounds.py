"""Proved bounds on the error of a polynomial over its interval.

Let q be a polynomial of degree N with |act - q| <= delta on the interval. Then q - p is a polynomial, and from its
largest value on M > N Chebyshev points follows that everywhere (Ehlich and Zeller, Math. Z. 86, 1964):

    |act - p| <= (max_grid |act - p| + delta) / cos(pi N / (2 M)) + delta

q need not be made: that it exists follows from Bernstein. An activation that is analytic and at most V in the ellipse
whose half-axes add up to rho half-intervals has delta <= 2 V rho^-N / (rho - 1). V comes from closed forms: GELU is
entire with |Phi(x + iy)| <= 1 + |y| exp(y^2/2) / sqrt(2 pi); |tanh(x + iy)| <= max(1, tan|y|) for |y| < pi/2, of which
sigmoid, SiLU and the tanh form of GELU are made. The powers of relu are polynomials on either side of 0. Rounding, of
the values and of p, is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gatelab.errors import GatelabError
from gatelab.linearize.given import values
from gatelab.linearize.polynomials import Array, Interval, Polynomial
from gatelab.units.activations import Activation

DENSITY = 32  # M / N: costs 0.12 %
MOST = 4096  # N: an activation so hard to approximate has its bound stated with the delta that is left
_SMALL = 1e-3  # delta over the error, where more of N would gain nothing
_RHOS = np.geomspace(1 + 1e-3, 40, 4000)


@dataclass(frozen=True)
class Bound:
    """|act - p| <= value everywhere on the interval; `measured` is the largest error found on the grid."""

    value: float
    measured: float


def bound(polynomial: Polynomial, gate: Activation, interval: Interval | None = None) -> Bound:
    """A proved bound on |act - p| over the interval of the polynomial, or over another.

    >>> from gatelab.linearize.minimax import minimax
    >>> from gatelab.units.activations import activation
    >>> found = bound(minimax(activation("gelu"), 8, 3.0), activation("gelu"))
    >>> found.measured <= found.value < 1.002 * found.measured
    True
    """
    low, high = polynomial.interval if interval is None else interval
    if gate.power is not None or gate.name == "identity":
        cuts = [low, 0.0, high] if low < 0 < high else [low, high]
        n = max(polynomial.degree, gate.power or 1)
        parts = [_on_grid(polynomial, gate, a, b, n, 0.0) for a, b in pairwise(cuts)]
        return Bound(max(b.value for b in parts), max(b.measured for b in parts))
    if gate.name not in _SIZES:
        raise GatelabError(
            f"nothing is known of {gate.name!r} beyond its values, from which no bound can be proved; bounds are for "
            f"{', '.join(sorted((*_SIZES, 'identity', 'relu', 'relu2', 'relu3')))}; measure with polynomial.error"
        )
    n = max(polynomial.degree, 32)
    while True:
        delta = _tail(gate, low, high, n)
        found = _on_grid(polynomial, gate, low, high, n, delta)
        if delta <= max(_SMALL * found.measured, 1e-16) or n >= MOST:
            return found
        n *= 2


def _on_grid(p: Polynomial, gate: Activation, low: float, high: float, n: int, delta: float) -> Bound:
    m = DENSITY * max(n, 1)
    z = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(m) + 0.5) / m)
    f = values(gate, z).numpy()
    measured = float(np.abs(f - p(z)).max())
    rounding = np.finfo(float).eps * (8 * np.abs(f).max() + 4 * (p.degree + 2) * _size(p, low, high))
    return Bound(float((measured + rounding + delta) / math.cos(math.pi / (2 * DENSITY)) + delta), measured)


def _size(p: Polynomial, low: float, high: float) -> float:
    """sum_k |c_k| max |T_k|: what the rounding of Clenshaw's recurrence is in proportion to."""
    centre, half = (p.interval[0] + p.interval[1]) / 2, (p.interval[1] - p.interval[0]) / 2
    t = max(1.0, abs(low - centre) / half, abs(high - centre) / half)
    return float(sum(abs(c) * math.cosh(k * math.acosh(t)) for k, c in enumerate(p.chebyshev)))


def _tail(gate: Activation, low: float, high: float, n: int) -> float:
    """The smallest 2 V rho^-N / (rho - 1) over the ellipses tried."""
    half, far = (high - low) / 2, abs(low + high) / 2
    x, y = far + half * (_RHOS + 1 / _RHOS) / 2, half * (_RHOS - 1 / _RHOS) / 2
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        all_of_it = 2 * _SIZES[gate.name](x, y) * np.exp(-n * np.log(_RHOS)) / (_RHOS - 1)
    return float(np.nanmin(np.where(np.isfinite(all_of_it), all_of_it, np.inf)))


def _tanh_size(y: Array) -> Array:
    """A bound on |tanh(x + iy')| for |y'| <= y; none from pi/2 on, where its poles are."""
    return np.where(y < np.pi / 2, np.maximum(1.0, np.tan(np.minimum(y, np.pi / 2))), np.inf)


def _gelu_size(x: Array, y: Array) -> Array:
    return np.hypot(x, y) * (1 + y * np.exp(np.minimum(y * y / 2, 700)) / math.sqrt(2 * math.pi))


def _gelu_tanh_size(x: Array, y: Array) -> Array:
    # Im(z + a z^3) = y (1 + a (3 x^2 - y^2)), at most y (1 + 3 a x^2) in size while a y^2 <= 1.
    a = 0.044715
    height = np.where(a * y * y <= 1, math.sqrt(2 / math.pi) * y * (1 + 3 * a * x * x), np.inf)
    return np.hypot(x, y) * (1 + _tanh_size(height)) / 2


# |act| in |Re z| <= x, |Im z| <= y, which holds the ellipse.
_SIZES: dict[str, Callable[[Array, Array], Array]] = {
    "gelu": _gelu_size,
    "gelu-tanh": _gelu_tanh_size,
    "tanh": lambda x, y: _tanh_size(y),
    "sigmoid": lambda x, y: (1 + _tanh_size(y / 2)) / 2,
    "silu": lambda x, y: np.hypot(x, y) * (1 + _tanh_size(y / 2)) / 2,
}
