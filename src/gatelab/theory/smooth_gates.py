"""Singularities of a target, and how fast networks of sigmoid and silu gates approach it.

A neuron silu(Gx + g) has poles at (iπ(2k+1) - g) / G, a column over -g/G. A function that is analytic up to a
singularity at z has an error like exp(-N γ(z)) with N parameters, γ(z) = log|w + (w² - 1)^1/2| being Green's function
of the interval in the coordinate w in which it is [-1, 1]. Neurons can also remove the nearest poles: one neuron with a
factor per pair, two without. The next pole of such a neuron, at three times the height, remains. The predicted error is

    exp(-max_k γ_k (N - c k)),    N = (3 + q) n + 1,    c = 4 with a factor (q = 1) and 6 without (q = 0),

γ_1 <= γ_2 <= ... in the order in which singularities are removed. N leaves out the scale of a factor, which D repeats.
It is a conjecture, tested in docs/derivations/smooth-gates.md.
"""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import AAA

from gatelab.arrays import AnyArray as Array
from gatelab.arrays import check_interval
from gatelab.errors import GatelabError

Decline = Literal["exponential", "root-exponential", "faster"]
# Points of the function; the loose and the tight tolerance of AAA and the most points that it may need.
_POINTS, _TOLERANCES, _TERMS = 600, (1e-9, 1e-13), 80
# Poles that both tolerances give, to this share of their distance; others nearer than this belong to a kink or a branch
# point on the interval; farther ones are not reliable; smaller residues are rounding.
_SAME, _TOUCHING, _FAR, _ROUNDING = 1e-2, 0.05, 4.0, 1e-12


@dataclass(frozen=True)
class Singularities:
    """Poles of a function in the upper half plane, the nearest first, their residues, and the decline that they imply.

    `decline` is "exponential" with poles, "root-exponential" with a kink or branch point on the interval, and "faster"
    than exponential for a function that has no singularity nearby.
    """

    poles: tuple[complex, ...]
    residues: tuple[complex, ...]
    decline: Decline


def green(z: NDArray[np.complex128] | complex, interval: tuple[float, float]) -> Array:
    """Green's function of the interval at complex z: the rate at which polynomials converge up to z.

    Args:
        z: one or more complex numbers.
        interval: (a, b).

    Returns:
        The values, zero on the interval.

    >>> float(green(0.2j, (-1.0, 1.0)).round(6)) == round(float(np.log(0.2 + 1.04**0.5)), 6)
    True
    """
    low, high = check_interval(interval)
    w = (2 * np.asarray(z, complex) - low - high) / (high - low)
    return np.abs(np.log(np.abs(w + np.sqrt(w - 1) * np.sqrt(w + 1))))


def singularities(f: Callable[[Array], Array], interval: tuple[float, float]) -> Singularities:
    """The poles of a function, by the AAA algorithm on values in the interval.

    Poles that depend on the tolerance are not the function's. Branch points near the interval are not recognized.

    Args:
        f: a function from an (N,) array to an (N,) array, in double precision.
        interval: (a, b).

    Returns:
        The poles and the form of decline.

    >>> found = singularities(lambda x: 1 / (1 + 25 * x**2), (-1.0, 1.0))
    >>> found.decline, [round(abs(pole), 6) for pole in found.poles]
    ('exponential', [0.2])
    """
    low, high = check_interval(interval)
    x = (low + high) / 2 - (high - low) / 2 * np.cos((np.arange(_POINTS) + 0.5) * np.pi / _POINTS)
    y = np.asarray(f(x), float)
    (rough, _), (poles, residues) = (_poles(x, y, tolerance) for tolerance in _TOLERANCES)
    distance = np.abs(poles[:, None] - rough)
    room = _SAME * np.minimum(np.abs(poles.imag) + np.maximum(np.abs(poles.real) - 1, 0), 1.0)
    same, near = distance < room[:, None], green(rough, interval)
    if (near < _TOUCHING).any() and not same[:, np.argmin(near)].any():
        return Singularities((), (), "root-exponential")
    gamma = green(poles, interval)
    chosen = np.flatnonzero(same.any(axis=1) & (poles.imag >= 0) & (gamma < _FAR))
    if not len(chosen):
        return Singularities((), (), "faster")
    order = chosen[np.argsort(gamma[chosen])]
    return Singularities(tuple(poles[order].tolist()), tuple(residues[order].tolist()), "exponential")


def _poles(x: Array, y: Array, tolerance: float) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Poles of the rational approximation with their residues, if these are more than rounding."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rational = AAA(x, y, rtol=tolerance, max_terms=_TERMS)
        poles, residues = rational.poles(), rational.residues()
    real = np.abs(residues) > _ROUNDING * np.abs(y).max()
    return poles[real], residues[real]


def smooth_error(poles: tuple[complex, ...], interval: tuple[float, float], factors: int, widths: Array) -> Array:
    """The conjectured error of n neurons with a sigmoid or silu gate, relative to the size of the target.

    Args:
        poles: of the target in the upper half plane.
        interval: (a, b).
        factors: 0 or 1.
        widths: numbers of neurons.

    Returns:
        An error for each width.

    >>> [f"{error:.0e}" for error in smooth_error((0.2j,), (-1.0, 1.0), 1, np.array([2, 4, 6]))]
    ['6e-02', '4e-04', '3e-07']
    """
    if not poles or factors not in (0, 1):
        raise GatelabError(f"{len(poles)} poles and {factors} factors have no predicted error; give poles and 0 or 1")
    cost, numbers = (6, 4)[factors], (3 + factors) * np.asarray(widths, float) + 1
    # Each entry: a singularity, the lowest pole of its column, and its height over that.
    column = [(float(green(p, interval)), i, p, 1) for i, p in enumerate(poles)]
    heapq.heapify(column)
    best = np.zeros_like(numbers)
    for k in range(int(numbers.max()) // cost + 1):
        gamma, _, pole, height = column[0]
        best = np.maximum(best, gamma * (numbers - cost * k))
        # A neuron removes it and leaves the next of its column; one that removes a later pole adds a column.
        places = [(pole, height + 2)]
        if height > 1:
            places.append((complex(pole.real, height * pole.imag), 3))
        heapq.heappop(column)
        for j, (foot, next_height) in enumerate(places):
            gamma = float(green(complex(foot.real, next_height * foot.imag), interval))
            heapq.heappush(column, (gamma, len(poles) + 2 * k + j, foot, next_height))
    return np.exp(-best)
