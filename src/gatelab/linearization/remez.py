"""Proved bounds on the error of a polynomial over its interval.

Let q be a polynomial of degree N with |act - q| <= delta on the interval. Then q - p is a polynomial, and from its
largest value on M > N Chebyshev points follows that everywhere (Ehlich and Zeller, Math. Z. 86, 1964):

    |act - p| <= (max_grid |act - p| + delta) / cos(pi N / (2 M)) + delta

q need not be made: that it exists follows from Bernstein. An activation that is analytic and at most V in the ellipse
whose half-axes add up to rho half-intervals has delta <= 2 V rho^-N / (rho - 1). V comes from closed forms: GELU is
entire with |Phi(x + iy)| <= 1 + |y| exp(y^2/2) / sqrt(2 pi); |tanh(x + iy)| <= max(1, tan|y|) for |y| < pi/2, of which
sigmoid, SiLU and the tanh form of GELU are made. The powers of relu are polynomials on either side of 0. Rounding, of
the values and of p, is added.

Chebyshev interpolants, and best uniform polynomials by Remez's exchange.

The exchange solves, on a reference of points z_i, sum_k c_k T_k(z_i) + (-1)^i E = act(z_i), and moves the reference to
the extrema of the error until they are all as large as |E|: then, and only then, no polynomial of that degree is better
(Chebyshev's equioscillation). On an interval about 0 GELU, SiLU and ReLU are z/2 + even(z), tanh is odd and sigmoid is
1/2 + odd: the exchange runs on half of the interval with half of the basis, and the other half follows by symmetry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.polynomial import chebyshev as basis

from gatelab.arrays import Array
from gatelab.display import one_line
from gatelab.errors import GatelabError
from gatelab.feedforward.gates import Activation
from gatelab.linearization.polynomials import Interval, Polynomial, check_degree, check_interval, values

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

    >>> from gatelab.linearization.remez import minimax
    >>> from gatelab.feedforward.gates import activation
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


ROUNDS = 60
LEVELLED = 1e-4  # extrema as equal as this end the exchange
_GRID = 40  # points between two neighbours of the reference, on the average
_ROUNDING = 20 * np.finfo(float).eps


@dataclass(frozen=True)
class Equioscillation:
    """The alternating extrema of an error: where, how large, and max |e| / min |e| - 1 over them."""

    points: tuple[float, ...]
    errors: tuple[float, ...]

    def __repr__(self) -> str:
        return one_line(self, f"{len(self.points)} extrema, smallest {self.level:.3g}, spread {self.spread:.1g}")

    @property
    def spread(self) -> float:
        sizes = np.abs(self.errors)
        return float(sizes.max() / sizes.min() - 1)

    @property
    def level(self) -> float:
        """The smallest of them: no polynomial of two degrees less than there are points has a smaller maximum."""
        return float(np.abs(self.errors).min())


def chebyshev(gate: Activation, degree: int = 8, interval: Interval | float = (-3.0, 3.0)) -> Polynomial:
    """The interpolant at the Chebyshev points: within a few times of the best, at the cost of a transform."""
    degree, (low, high) = check_degree(degree), check_interval(interval)
    t = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    f = values(gate, (low + high) / 2 + (high - low) / 2 * t).numpy()
    made = 2 / (degree + 1) * (f @ basis.chebvander(t, degree))
    made[0] /= 2
    made[np.abs(made) < 4 * np.finfo(float).eps * np.abs(f).max(initial=1e-300)] = 0
    return Polynomial.from_chebyshev(made, (low, high), activation=gate.name, method="chebyshev")


def minimax(gate: Activation, degree: int = 8, interval: Interval | float = (-3.0, 3.0)) -> Polynomial:
    """The polynomial whose largest error over the interval is smallest.

    >>> from gatelab.feedforward.gates import activation
    >>> gelu = activation("gelu")
    >>> f"{minimax(gelu, 8, 3.0).error(gelu):.3g}"
    '0.00187'
    """
    degree, (low, high) = check_degree(degree, 100), check_interval(interval)
    c, h = (low + high) / 2, (high - low) / 2

    def f(t: Array) -> Array:
        return values(gate, c + h * t).numpy()

    parity, known = _parity(f, h) if c == 0 else (None, np.zeros(2))
    degrees = [k for k in range(degree + 1) if parity is None or k % 2 == parity]
    made = np.zeros(degree + 1)
    made[: min(2, degree + 1)] = known[: degree + 1]
    if degrees:
        # Where the linear part cannot be had (degree 0), nothing is known beforehand.
        used = known if degree else np.zeros(2)
        if not degree:
            degrees = [0]
        half = parity is not None and degree > 0
        kinks = np.array([-c / h] if low < 0 < high else [])
        made[degrees] += _exchange(lambda t: f(t) - used[0] - used[1] * t, degrees, 0.0 if half else -1.0, kinks)
    return Polynomial.from_chebyshev(made, (low, high), activation=gate.name, method="minimax")


def _parity(f: Callable[[Array], Array], h: float) -> tuple[int | None, Array]:
    """0 where f minus a multiple of z is even, 1 where f minus a constant is odd, and that part, as T_0 and T_1."""
    t = np.linspace(0, 1, 101)[1:]
    up, down = f(t), f(-t)
    size = max(np.abs(up).max(), np.abs(down).max(), 1e-300)
    odd, even = (up - down) / 2, (up + down) / 2
    slope, level = odd[-1], float(f(np.zeros(1))[0])
    if np.abs(odd - slope * t).max() < _ROUNDING * size:
        return 0, np.array([0.0, _plain(slope, h)])
    if np.abs(even - level).max() < _ROUNDING * size:
        return 1, np.array([level, 0.0])
    return None, np.zeros(2)


def _plain(slope: float, h: float) -> float:
    """The slope 1/2 of GELU as it is, not as rounding left it."""
    return round(slope / h, 12) * h if abs(round(slope / h, 12) * h - slope) < 1e-13 * h else slope


def _exchange(f: Callable[[Array], Array], degrees: list[int], start: float, kinks: Array) -> Array:
    """Coefficients of T_k, k in degrees, best for f on [start, 1]; a kink may hold an extremum that no grid sees."""
    n = len(degrees)
    # An odd basis vanishes at 0, which can be no point of the reference: extrema are those of T on (0, 1].
    odd = start == 0 and degrees[0] % 2 == 1
    x = _extremal(start, n + 1, n + 0.5 if odd else max(n, 1))
    grid = np.union1d(_extremal(start, _GRID * (n + 2) + 1, _GRID * (n + 2)), kinks)
    at = basis.chebvander(grid, degrees[-1])[:, degrees]
    values_at = f(grid)
    floor = _ROUNDING * max(np.abs(values_at).max(), 1e-300)
    least = np.inf
    for _ in range(ROUNDS):
        system = np.hstack([basis.chebvander(x, degrees[-1])[:, degrees], ((-1.0) ** np.arange(n + 1))[:, None]])
        c = np.linalg.solve(system, f(x))[:n]
        error = values_at - at @ c
        worst = np.abs(error).max()
        least = min(least, worst)
        # Below rounding signs mean nothing: what was found is as good as float64 can tell.
        if worst < floor:
            return np.asarray(c, dtype=np.float64)
        found = _extrema(grid, error, lambda t, c=c: f(t) - basis.chebvander(t, degrees[-1])[:, degrees] @ c)
        at_extrema, sizes = _alternating(*found, n + 1)
        if len(at_extrema) < n + 1:
            # A reference on which f happens to be met exactly, E = 0, shows no alternation: another is taken.
            x = start + (1 - start) * ((x - start) / (1 - start)) ** 0.9
            continue
        x = at_extrema
        if sizes.max() - sizes.min() < LEVELLED * sizes.min() + floor:
            return np.asarray(c, dtype=np.float64)
    raise GatelabError(
        f"the exchange did not level the error within {ROUNDS} rounds (degree {degrees[-1]}, error {least:.3g}); "
        "use method 'chebyshev', or a lower degree"
    )


def _extremal(start: float, count: int, last: float) -> Array:
    """cos(pi i / last), i < count, rising; of half the angle where only (0, 1] is wanted."""
    return np.sort(np.cos((np.pi if start else np.pi / 2) * np.arange(count) / last))


def _extrema(grid: Array, error: Array, exact: Callable[[Array], Array]) -> tuple[Array, Array]:
    """The local extrema of the error, the inner ones moved to the tops of the parabolas through three points."""
    size = np.abs(error)
    inner = np.flatnonzero((size[1:-1] >= size[:-2]) & (size[1:-1] > size[2:])) + 1
    left, mid, right = error[inner - 1], error[inner], error[inner + 1]
    a, b = grid[inner - 1] - grid[inner], grid[inner + 1] - grid[inner]
    curve = ((right - mid) / b - (left - mid) / a) / (b - a)
    slope = (left - mid) / a - curve * a
    with np.errstate(divide="ignore", invalid="ignore"):
        move = np.where(curve != 0, -slope / (2 * curve), 0.0)
    moved = grid[inner] + np.clip(np.nan_to_num(move), a, b)
    refined = exact(moved) if len(moved) else mid
    better = np.abs(refined) > np.abs(mid)
    x = np.concatenate([grid[:1], np.where(better, moved, grid[inner]), grid[-1:]])
    e = np.concatenate([error[:1], np.where(better, refined, mid), error[-1:]])
    return x, e


def _alternating(x: Array, e: Array, wanted: int) -> tuple[Array, Array]:
    """The largest extremum of each run of one sign; of too many, the smallest give way, in pairs unless at an end."""
    keep: list[int] = []
    for i in range(len(x)):
        if e[i] == 0:
            continue
        if keep and np.sign(e[i]) == np.sign(e[keep[-1]]):
            if abs(e[i]) > abs(e[keep[-1]]):
                keep[-1] = i
        else:
            keep.append(i)
    while len(keep) > wanted:
        sizes = np.abs(e[keep])
        if len(keep) == wanted + 1:
            keep.pop(0 if sizes[0] < sizes[-1] else -1)
            continue
        pairs = np.maximum(sizes[:-1], sizes[1:])
        k = int(np.argmin(pairs))
        if min(sizes[0], sizes[-1]) < pairs[k]:
            keep.pop(0 if sizes[0] < sizes[-1] else -1)
        else:
            del keep[k : k + 2]
    return x[keep], np.abs(e[keep])


def equioscillation(polynomial: Polynomial, gate: Activation, points: int = 20001) -> Equioscillation:
    """The alternating extrema of act - p over the interval: degree + 2 of them or more, all equal, prove p best.

    >>> from gatelab.feedforward.gates import activation
    >>> found = equioscillation(minimax(activation("gelu"), 8, 3.0), activation("gelu"))
    >>> len(found.points), found.spread < 1e-3
    (11, True)
    """
    low, high = polynomial.interval
    t = np.sort(np.cos(np.pi * np.arange(points) / (points - 1)))
    z = (low + high) / 2 + (high - low) / 2 * t

    def error(at: Array) -> Array:
        return values(gate, at).numpy() - polynomial(at)

    x, e = _extrema(z, error(z), error)
    at, sizes = _alternating(x, e, len(x))
    # An end may hold a small extremum more than are needed.
    while len(at) > polynomial.degree + 2 and sizes.max() > (1 + 10 * LEVELLED) * sizes.min():
        at, sizes = _alternating(at, error(at), len(at) - 1)
    return Equioscillation(tuple(at.tolist()), tuple(error(at).tolist()))
