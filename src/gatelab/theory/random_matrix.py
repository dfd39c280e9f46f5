"""The law of Marchenko and Pastur: the spectrum of a Gram matrix of chance rows.

Let X have n rows of d independent entries of variance 1, and gamma = n / d. As both grow, the eigenvalues of X X^T / d
fill

    rho(x) = sqrt((x_+ - x) (x - x_-)) / (2 pi gamma x)   on   x_-+ = (1 -+ sqrt(gamma))^2

and for gamma > 1 a share 1 - 1 / gamma of them is zero (V. Marchenko, L. Pastur, Math. USSR-Sbornik 1, 1967). Adding
theta u u^T pulls one eigenvalue out of the bulk if theta > gamma + sqrt(gamma), to theta + theta / (theta - gamma)
(J. Baik, G. Ben Arous, S. Peche, Annals of Probability 33, 2005; paper 002, Theorem B.5).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gatelab.errors import GatelabError

Array = NDArray[np.float64]


def mp_edges(gamma: float) -> tuple[float, float]:
    """The ends of the bulk, for entries of variance 1.

    >>> mp_edges(0.25), mp_edges(4)
    ((0.25, 2.25), (1.0, 9.0))
    """
    root = math.sqrt(_ratio(gamma))
    return (1 - root) ** 2, (1 + root) ** 2


def mp_mass_at_zero(gamma: float) -> float:
    """The share of eigenvalues that are zero because there are more rows than columns.

    >>> mp_mass_at_zero(0.5), mp_mass_at_zero(4)
    (0.0, 0.75)
    """
    return max(0.0, 1 - 1 / _ratio(gamma))


def mp_density(x: ArrayLike, gamma: float) -> Array:
    """The density of the bulk at x; it integrates to one less the mass at zero.

    >>> mp_density([1.0, 5.0], 1.0).round(4)
    array([0.2757, 0.    ])
    """
    low, high = mp_edges(gamma)
    x = np.asarray(x, float)
    inside = (x > low) & (x < high)
    safe = np.where(inside, x, 1.0)
    return np.where(inside, np.sqrt(np.maximum((high - safe) * (safe - low), 0.0)) / (2 * np.pi * gamma * safe), 0.0)


def spiked_edge(theta: float, gamma: float) -> float:
    """The largest eigenvalue of X X^T / d + theta u u^T, u of length one: pulled out, or the end of the bulk.

    >>> spiked_edge(6.0, 4.0), spiked_edge(12.0, 4.0)
    (9.0, 13.5)
    """
    if theta <= _ratio(gamma) + math.sqrt(gamma):
        return mp_edges(gamma)[1]
    return theta + theta / (theta - gamma)


def _ratio(gamma: float) -> float:
    if not (gamma > 0 and math.isfinite(gamma)):
        raise GatelabError(f"gamma is {gamma!r}; it is n / d, a positive number")
    return gamma
