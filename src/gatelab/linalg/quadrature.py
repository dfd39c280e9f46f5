"""Quadrature rules and the recurrences of orthogonal polynomials, for arrays and tensors.

Gauss rules of a density come from the three-term recurrence of its orthonormal polynomials: the coefficients form a
tridiagonal matrix, whose eigenvalues are the nodes (G. Golub, J. Welsch, Math. Comp. 23, 1969).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.linalg import eigh_tridiagonal

from gatelab.arrays import Array

if TYPE_CHECKING:
    from torch import Tensor

Values = TypeVar("Values", Array, "Tensor")
_FINE = 600  # nodes of the grid that approximates the chi distribution
_REACH = 9.0  # beyond sqrt(d) +- 9 the chi distribution has a mass of 1e-18 or less
_ARCS = 16
_PER_ARC = 32
MOST_DEGREES = 24 * _ARCS  # the highest degree that `cosine_rule` resolves


def on_intervals(start: Values, end: Values, nodes: Values, weights: Values) -> tuple[Values, Values]:
    """A rule on [-1, 1] moved to every interval."""
    half = (end - start)[..., None] / 2
    return start[..., None] + half * (nodes + 1), half * weights


def panel_rule(edges: Array, points: int) -> tuple[Array, Array]:
    """The Gauss-Legendre rule with `points` nodes on each panel between neighboring edges, as one row."""
    z, lengths = on_intervals(edges[:-1], edges[1:], *leggauss(points))
    return z.ravel(), lengths.ravel()


def gauss_rule(diagonal: Array, beside: Array) -> tuple[Array, Array]:
    """The Gauss rule of a density of mass one, from the recurrence of its orthonormal polynomials."""
    nodes, modes = eigh_tridiagonal(diagonal, beside)
    return nodes, modes[0] ** 2


def hermite_functions(z: Values, first: Values, terms: int) -> Iterator[Values]:
    """first * he_k(z) for k = 0 .. terms - 1, he_k the Hermite polynomials of unit norm under N(0, 1)."""
    before, now = 0 * first, first
    for k in range(terms):
        yield now
        before, now = now, (z * now - math.sqrt(k) * before) / math.sqrt(k + 1)


def gegenbauer_polynomials(t: Array, d: int) -> Iterator[Array]:
    """P_0(t), P_1(t), ..., orthogonal for the cosine of two random directions in d dimensions, P_k(1) = 1."""
    before, now, k = np.ones_like(t), t, 1
    yield before
    while True:
        yield now
        before, now = now, ((2 * k + d - 2) * t * now - k * before) / max(k + d - 2, 1)
        k += 1


def gegenbauer_beside(count: int, a: float) -> Array:
    """b_1 .. b_count of polynomials that are orthonormal under (1 - t^2)^(a - 1/2), whose a_n are zero."""
    k = np.arange(2, count + 1)
    squares = np.concatenate([[1 / (2 * (1 + a))], k * (k + 2 * a - 1) / (4 * (k + a) * (k + a - 1))])
    return np.sqrt(squares[:count])


def gegenbauer_rule(d: int, nodes: int) -> tuple[Array, Array]:
    """The Gauss rule of the cosine of two random directions in d dimensions, density ~ (1 - t^2)^((d - 3) / 2)."""
    return gauss_rule(np.zeros(nodes), gegenbauer_beside(nodes - 1, (d - 2) / 2))


@lru_cache(maxsize=32)
def chi_rule(d: int, nodes: int) -> tuple[Array, Array]:
    """The Gauss rule of the length of a standard normal vector in d dimensions, by Lanczos on a fine grid."""
    low, high = max(0.0, math.sqrt(d) - _REACH), math.sqrt(d) + _REACH
    x, w = leggauss(_FINE)
    r = low + (high - low) * (x + 1) / 2
    log = (d - 1) * np.log(r) - r**2 / 2
    w = w * np.exp(log - log.max())
    vectors = np.empty((nodes, _FINE))
    diagonal, beside = np.empty(nodes), np.empty(nodes - 1)
    vectors[0] = np.sqrt(w / w.sum())
    for k in range(nodes):
        v = r * vectors[k]
        diagonal[k] = v @ vectors[k]
        for _ in range(2):  # twice is enough to keep the basis orthogonal to rounding
            v = v - vectors[: k + 1].T @ (vectors[: k + 1] @ v)
        if k + 1 < nodes:
            beside[k] = np.linalg.norm(v)
            vectors[k + 1] = v / beside[k]
    return gauss_rule(diagonal, beside)


@lru_cache(maxsize=32)
def cosine_rule(d: int, steepest: float) -> tuple[Array, Array]:
    """Nodes in (0, 1] and masses (sum 1/2) of the cosine between two random directions.

    t = sin(phi), with panels that halve towards 0 until z = steepest * t is resolved: a kink at z = 0 is an end.
    """
    if d == 1:
        return np.ones(1), np.full(1, 0.5)
    first = math.pi / 2 / _ARCS
    halvings = max(4, math.ceil(math.log2(max(steepest * first, 1.0))) + 3)
    edges = np.concatenate([[0.0], first * 0.5 ** np.arange(halvings, 0, -1), first * np.arange(1, _ARCS + 1)])
    phi, lengths = panel_rule(edges, _PER_ARC)
    with np.errstate(divide="ignore"):
        masses = lengths * np.exp((d - 2) * np.log(np.cos(phi)))
    positive = masses > 0
    return np.sin(phi[positive]), masses[positive] / (2 * masses.sum())
