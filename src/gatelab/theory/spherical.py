"""Kernels on the sphere as sums of harmonics, and the lengths of Gaussian rows.

A function h of the cosine of two directions in d dimensions is

    h(t) = sum_k b_k P_k(t)      P_k Gegenbauer polynomials with P_k(1) = 1

and P_k(u . v) is the inner product of two vectors of N_k harmonics, N_0 = 1, N_1 = d, N_2 = (d - 1)(d + 2) / 2. For
random directions each degree is thus a Gram matrix of nearly independent rows in N_k dimensions, orthogonal to those of
the other degrees (I. Schoenberg, Duke Math. J. 9, 1942).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainccinv, gammaincinv, ndtr

from gatelab.arrays import Array
from gatelab.linalg.quadrature import gegenbauer_polynomials, gegenbauer_rule

_NODES = 300
_DEGREES = 24
# A degree with this many times more harmonics than rows is a multiple of the identity to 1 %, and goes to the tail.
_PLENTY = 1e5


@dataclass(frozen=True, eq=False)
class Harmonics:
    """b_k and N_k of the first degrees, and `tail`, the sum of the b_k of all others."""

    coefficients: Array
    dimensions: Array
    tail: float

    @property
    def total(self) -> float:
        """h(1)."""
        return float(self.coefficients.sum()) + self.tail


def harmonics(h: Callable[[Array], Array], d: int, n: int) -> Harmonics:
    """The expansion of h on the sphere in d >= 2 dimensions, as far as n rows can tell the degrees apart.

    >>> parts = harmonics(lambda t: t * t, 10, 50)
    >>> parts.coefficients.round(12)[:3], parts.dimensions[:3]
    (array([0.1, 0. , 0.9]), array([ 1., 10., 54.]))
    """
    t, weights = gegenbauer_rule(d, _NODES)
    values = h(t)
    coefficients, dimensions = [], []
    N = 1.0
    for k, P in zip(range(_DEGREES + 1), gegenbauer_polynomials(t, d), strict=False):
        if k > 2 and _PLENTY * n < N:
            break
        coefficients.append(N * float((weights * values * P).sum()))
        dimensions.append(N)
        if k == 0:
            N = float(d)
        else:
            N = N * (2 * k + d) / (2 * k + d - 2) * (k + d - 2) / (k + 1)
    total = float(h(np.ones(1))[0])
    b = np.array(coefficients)
    b[np.abs(b) < 1e-9 * total] = 0.0  # parity makes every other one vanish: what is left there is rounding
    tail = total - float(b.sum())
    if tail <= 1e-9 * total:
        tail = 0.0
    return Harmonics(b, np.array(dimensions), tail)


def gaussian_lengths(d: int, points: int = 250, reach: float = 5.5) -> tuple[Array, Array]:
    """|x|^2 / d of Gaussian rows as quantiles and their masses, which sum to one.

    The quantiles lie evenly in the standard deviations of a normal variable: far tails, where a row in a thousand lies,
    are resolved as well as the middle.

    >>> squares, masses = gaussian_lengths(50)
    >>> float((masses * squares).sum().round(3)), float((masses * squares**2).sum().round(3))
    (1.0, 1.04)
    """
    edges = np.linspace(-reach, reach, points + 1)
    masses = np.diff(ndtr(edges))
    middle = (edges[1:] + edges[:-1]) / 2
    below = gammaincinv(d / 2, ndtr(np.minimum(middle, 0.0)))
    above = gammainccinv(d / 2, ndtr(-np.maximum(middle, 0.0)))
    return np.where(middle < 0, below, above) * 2 / d, masses / masses.sum()
