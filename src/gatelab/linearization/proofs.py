"""Proofs for polynomials: a bound on the error, and that no other polynomial of the same degree is better.

With q of degree N and |act - q| <= delta, the largest value of q - p on M > N Chebyshev points bounds it everywhere
(Ehlich and Zeller 1964): |act - p| <= (max_grid |act - p| + delta) / cos(pi N / (2 M)) + delta. By Bernstein's theorem
delta <= 2 V rho^-N / (rho - 1) for an activation that is at most V in the ellipse of rho. The rounding is added.
A polynomial of degree n is best if and only if its error has n + 2 extrema of alternating signs and equal sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gatelab.arrays import Array
from gatelab.display import Compact
from gatelab.errors import GatelabError
from gatelab.feedforward.gates import Activation
from gatelab.linearization.polynomials import Polynomial, from_unit, values

DENSITY = 32  # M / N: costs 0.12 %
MOST = 4096  # the largest N; beyond it the bound includes the remaining delta
_SMALL = 1e-3  # delta over the error, below which a larger N gains nothing
_RHOS = np.geomspace(1 + 1e-3, 40, 4000)
GRID = 20001  # points for the extrema
LEVELED = 1e-4  # relative difference of extrema at which the exchange ends


@dataclass(frozen=True)
class Bound:
    """|act - p| <= value everywhere on the interval.

    Attributes:
        value: the bound.
        measured: the largest error on a grid, which is below the bound.
    """

    value: float
    measured: float


@dataclass(frozen=True)
class Equioscillation(Compact):
    """The alternating extrema of an error.

    Attributes:
        points: the positions of the extrema.
        errors: the signed errors there.
    """

    points: tuple[float, ...]
    errors: tuple[float, ...]

    @property
    def spread(self) -> float:
        """max |e| / min |e| - 1."""
        sizes = np.abs(self.errors)
        return float(sizes.max() / sizes.min() - 1)

    @property
    def level(self) -> float:
        """The smallest |e|: a lower bound on the maximum error of every polynomial of degree len(points) - 2."""
        return float(np.abs(self.errors).min())


def bound(polynomial: Polynomial, gate: Activation) -> Bound:
    """A proved bound on |act - p| over the interval of the polynomial.

    Args:
        polynomial: p.
        gate: the activation; its size in the complex plane must be known.

    Returns:
        A `Bound`.

    >>> from gatelab.linearization import linearize
    >>> from gatelab.feedforward.gates import activation
    >>> proved = bound(linearize("gelu", "minimax", interval=3.0).polynomial, activation("gelu"))
    >>> proved.measured <= proved.value < 1.002 * proved.measured
    True
    """
    low, high = polynomial.interval
    if gate.power is not None or gate.name == "identity":
        cuts = [low, 0.0, high] if low < 0 < high else [low, high]
        n = max(polynomial.degree, gate.power or 1)
        parts = [_on_grid(polynomial, gate, a, b, n, 0.0) for a, b in pairwise(cuts)]
        return Bound(max(b.value for b in parts), max(b.measured for b in parts))
    if gate.name not in _SIZES:
        raise GatelabError(
            f"no bound can be proved for {gate.name!r}, only for {', '.join(_SIZES)} and relu^k; use polynomial.error"
        )
    n = max(polynomial.degree, 32)
    while True:
        delta = _tail(gate, low, high, n)
        proved = _on_grid(polynomial, gate, low, high, n, delta)
        if delta <= max(_SMALL * proved.measured, 1e-16) or n >= MOST:
            return proved
        n *= 2


def equioscillation(polynomial: Polynomial, gate: Activation) -> Equioscillation:
    """The alternating extrema of act - p over the interval: degree + 2 or more, all equal, prove that p is the best.

    Args:
        polynomial: p.
        gate: the activation.

    Returns:
        An `Equioscillation`.

    >>> from gatelab.linearization import linearize
    >>> from gatelab.feedforward.gates import activation
    >>> turns = equioscillation(linearize("gelu", "minimax", interval=3.0).polynomial, activation("gelu"))
    >>> len(turns.points), turns.spread < 1e-3
    (11, True)
    """
    z = from_unit(np.sort(np.cos(np.pi * np.arange(GRID) / (GRID - 1))), polynomial.interval)

    def error(z: Array) -> Array:
        return values(gate, z).numpy() - polynomial(z)

    x, e = extrema(z, error(z), error)
    x, sizes = alternating(x, e, len(x))
    if not len(x):
        raise GatelabError("the polynomial equals the activation on the grid: no error alternates; lower the degree")
    # An end may have an additional small extremum.
    while len(x) > polynomial.degree + 2 and sizes.max() > (1 + 10 * LEVELED) * sizes.min():
        x, sizes = alternating(x, error(x), len(x) - 1)
    return Equioscillation(tuple(x.tolist()), tuple(error(x).tolist()))


def extrema(grid: Array, error: Array, exact: Callable[[Array], Array]) -> tuple[Array, Array]:
    """The local extrema of the error, the inner ones refined by parabolas through three points."""
    size = np.abs(error)
    inner = np.flatnonzero((size[1:-1] >= size[:-2]) & (size[1:-1] > size[2:])) + 1
    left, mid, right = error[inner - 1], error[inner], error[inner + 1]
    a, b = grid[inner - 1] - grid[inner], grid[inner + 1] - grid[inner]
    curve = ((right - mid) / b - (left - mid) / a) / (b - a)
    slope = (left - mid) / a - curve * a
    with np.errstate(divide="ignore", invalid="ignore"):
        move = np.where(curve != 0, -slope / (2 * curve), 0.0)
    moved = grid[inner] + np.clip(np.nan_to_num(move), a, b)
    refined = exact(moved)
    better = np.abs(refined) > np.abs(mid)
    x = np.concatenate([grid[:1], np.where(better, moved, grid[inner]), grid[-1:]])
    e = np.concatenate([error[:1], np.where(better, refined, mid), error[-1:]])
    return x, e


def alternating(x: Array, e: Array, wanted: int) -> tuple[Array, Array]:
    """The largest extremum of each run of one sign; surplus ones are dropped, in pairs unless at an end."""
    turns: list[int] = []
    for i in range(len(x)):
        if e[i] == 0:
            continue
        if turns and np.sign(e[i]) == np.sign(e[turns[-1]]):
            if abs(e[i]) > abs(e[turns[-1]]):
                turns[-1] = i
        else:
            turns.append(i)
    while len(turns) > wanted:
        sizes = np.abs(e[turns])
        pairs = np.maximum(sizes[:-1], sizes[1:])
        k = int(np.argmin(pairs))
        if len(turns) > wanted + 1 and min(sizes[0], sizes[-1]) >= pairs[k]:
            del turns[k : k + 2]
        elif sizes[0] < sizes[-1]:
            turns.pop(0)
        else:
            turns.pop()
    return x[turns], np.abs(e[turns])


def _on_grid(p: Polynomial, gate: Activation, low: float, high: float, n: int, delta: float) -> Bound:
    """The bound from M Chebyshev points, given that a polynomial of degree n is within delta of the activation."""
    m = DENSITY * max(n, 1)
    z = from_unit(np.cos(np.pi * (np.arange(m) + 0.5) / m), (low, high))
    f = values(gate, z).numpy()
    measured = float(np.abs(f - p(z)).max())
    # sum_k |c_k| max |T_k|: the rounding of Clenshaw's recurrence is proportional to it.
    size = float(np.abs(p.chebyshev).sum())
    rounding = np.finfo(float).eps * (8 * np.abs(f).max() + 4 * (p.degree + 2) * size)
    return Bound(float((measured + rounding + delta) / math.cos(math.pi / (2 * DENSITY)) + delta), measured)


def _tail(gate: Activation, low: float, high: float, n: int) -> float:
    """The smallest 2 V rho^-N / (rho - 1) over the ellipses tried."""
    half, center = (high - low) / 2, abs(low + high) / 2
    x, y = center + half * (_RHOS + 1 / _RHOS) / 2, half * (_RHOS - 1 / _RHOS) / 2
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        tails = 2 * _SIZES[gate.name](x, y) * np.exp(-n * np.log(_RHOS)) / (_RHOS - 1)
    return float(np.nanmin(np.where(np.isfinite(tails), tails, np.inf)))


def _tanh_size(y: Array) -> Array:
    """A bound on |tanh(x + iy')| for |y'| <= y; infinite from pi/2, because of the poles."""
    return np.where(y < np.pi / 2, np.maximum(1.0, np.tan(np.minimum(y, np.pi / 2))), np.inf)


def _gelu_tanh_size(x: Array, y: Array) -> Array:
    # Im(z + a z^3) = y (1 + a (3 x^2 - y^2)), at most y (1 + 3 a x^2) in size while a y^2 <= 1.
    a = 0.044715
    height = np.where(a * y * y <= 1, math.sqrt(2 / math.pi) * y * (1 + 3 * a * x * x), np.inf)
    return np.hypot(x, y) * (1 + _tanh_size(height)) / 2


# Bounds on |act| in |Re z| <= x, |Im z| <= y, which contains the ellipse.
_SIZES: dict[str, Callable[[Array, Array], Array]] = {
    "gelu": lambda x, y: np.hypot(x, y) * (1 + y * np.exp(np.minimum(y * y / 2, 700)) / math.sqrt(2 * math.pi)),
    "gelu-tanh": _gelu_tanh_size,
    "tanh": lambda x, y: _tanh_size(y),
    "sigmoid": lambda x, y: (1 + _tanh_size(y / 2)) / 2,
    "silu": lambda x, y: np.hypot(x, y) * (1 + _tanh_size(y / 2)) / 2,
}
