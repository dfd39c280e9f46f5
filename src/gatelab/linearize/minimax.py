"""Chebyshev interpolants, and best uniform polynomials by Remez's exchange.

The exchange solves, on a reference of points z_i, sum_k c_k T_k(z_i) + (-1)^i E = act(z_i), and moves the reference to
the extrema of the error until they are all as large as |E|: then, and only then, no polynomial of that degree is better
(Chebyshev's equioscillation). On an interval about 0 GELU, SiLU and ReLU are z/2 + even(z), tanh is odd and sigmoid is
1/2 + odd: the exchange runs on half of the interval with half of the basis, and the other half follows by symmetry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev as basis

from gatelab.display import one_line
from gatelab.errors import GatelabError
from gatelab.linearize.given import values
from gatelab.linearize.polynomials import Array, Interval, Polynomial, check_degree, check_interval
from gatelab.units.activations import Activation

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

    >>> from gatelab.units.activations import activation
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

    >>> from gatelab.units.activations import activation
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
