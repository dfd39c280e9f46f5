"""Spectra of random kernels: the Marchenko-Pastur law, its deformation for rows of varying length, and paper 002's.

On Gaussian rows a kernel is K = W H W with W = diag(w_i), w_i^2 = a_i = (|x_i|^2 / d)^p, and H = h(u_i . u_j) of the
directions, h = sum_k b_k P_k in Gegenbauer polynomials. Degree k is a Gram matrix in N_k dimensions, so that K is a
separable covariance (docs/derivations/tangent-kernel.md), and the resolvent (K - z)^-1 is (Paul and Silverstein 2009)
that of the diagonal matrix phi(e) W^2, with e = sum_i a_i / (phi(e) a_i - z) and
phi(e) = sum_k b_k / (1 + e b_k / N_k). Degree 0 has rank one and pulls an eigenvalue out of the bulk to the z with
e(z) = -1 / b_0. Lengths are unbounded, so that the bulk has no sharp ends: the extreme eigenvalues are estimated as the
points beyond which half an eigenvalue is expected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import gammainccinv, gammaincinv, ndtr

from gatelab.arrays import Array, Complex
from gatelab.display import Compact
from gatelab.linalg.quadrature import gegenbauer_polynomials, gegenbauer_rule

_NODES = 300
_DEGREES = 24
# A degree with this many times more harmonics than rows is a multiple of the identity to 1 %, and is part of the tail.
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
    """The expansion of h on the sphere in d >= 2 dimensions, up to the degrees that n rows resolve."""
    t, weights = gegenbauer_rule(d, _NODES)
    values = h(t)
    coefficients, dimensions = [], []
    N = 1.0
    for k, P in enumerate(islice(gegenbauer_polynomials(t, d), _DEGREES + 1)):
        if k > 2 and _PLENTY * n < N:
            break
        coefficients.append(N * float((weights * values * P).sum()))
        dimensions.append(N)
        N = float(d) if k == 0 else N * (2 * k + d) / (2 * k + d - 2) * (k + d - 2) / (k + 1)
    total = float(h(np.ones(1))[0])
    b = np.array(coefficients)
    b[np.abs(b) < 1e-9 * total] = 0.0  # zero by parity, up to rounding
    tail = total - float(b.sum())
    return Harmonics(b, np.array(dimensions), tail if tail > 1e-9 * total else 0.0)


def gaussian_lengths(d: int) -> tuple[Array, Array]:
    """Quantiles of |x|^2 / d of Gaussian rows, at 250 equally spaced normal scores, and their masses."""
    edges = np.linspace(-5.5, 5.5, 251)
    masses = np.diff(ndtr(edges))
    middle = (edges[1:] + edges[:-1]) / 2
    below = gammaincinv(d / 2, ndtr(np.minimum(middle, 0.0)))
    above = gammainccinv(d / 2, ndtr(-np.maximum(middle, 0.0)))
    return np.where(middle < 0, below, above) * 2 / d, masses / masses.sum()


_BEYOND = 0.5
# The imaginary part of z, relative to x, at which the equation is solved.
_HEIGHT = 1e-6


def mp_edges(gamma: float) -> tuple[float, float]:
    """The ends of the bulk, for entries of variance 1."""
    root = math.sqrt(gamma)
    return (1 - root) ** 2, (1 + root) ** 2


def mp_density(x: ArrayLike, gamma: float) -> Array:
    """The density of the bulk at x; it integrates to one minus the mass at zero."""
    low, high = mp_edges(gamma)
    x = np.asarray(x, float)
    inside = (x > low) & (x < high)
    safe = np.where(inside, x, 1.0)
    return np.where(inside, np.sqrt(np.maximum((high - safe) * (safe - low), 0.0)) / (2 * np.pi * gamma * safe), 0.0)


def spiked_edge(theta: float, gamma: float) -> float:
    """The largest eigenvalue of X X^T / d + theta u u^T, |u| = 1, a spike or the end of the bulk (Baik et al. 2005)."""
    if theta <= gamma + math.sqrt(gamma):
        return mp_edges(gamma)[1]
    return theta + theta / (theta - gamma)


@dataclass(frozen=True, eq=False)
class LimitSpectrum(Compact):
    """The limiting spectrum of K = (|x_i| |x_j| / d)^p h(cos) on n Gaussian rows in d dimensions."""

    n: int
    d: int
    power: float
    parts: Harmonics = field(repr=False)
    squares: Array = field(repr=False)
    masses: Array = field(repr=False)

    def count(self, x: ArrayLike) -> Array:
        """The number of the n eigenvalues of the bulk below each x > 0: -Im log det(K - z) / pi, stationary in e."""
        z, e = self._solved(np.atleast_1d(np.asarray(x, float)))
        b, N = self._bulk()
        phi = self._phi(e)[0]
        L = (self.masses * np.log(phi[:, None] * self.squares - z[:, None])).sum(-1)
        L = L + (N * np.log(1 + e[:, None] * (b / N))).sum(-1) + e * (self.parts.tail - phi)
        return np.clip(-L.imag / np.pi, 0.0, self.n)

    def density(self, x: ArrayLike) -> Array:
        """The density of the bulk's eigenvalues at each x > 0."""
        z, e = self._solved(np.atleast_1d(np.asarray(x, float)))
        Q = (self.masses / (self._phi(e)[0][:, None] * self.squares - z[:, None])).sum(-1)
        return np.maximum(Q.imag, 0.0) / (np.pi * self.n)

    def smallest(self) -> float:
        """The point below which half an eigenvalue is expected; 0 if the kernel has fewer harmonics than rows."""
        b, N = self._bulk()
        if self.parts.tail == 0 and N[b > 0].sum() < self.n:
            return 0.0
        return self._quantile(_BEYOND)

    def end_of_bulk(self) -> float:
        """The point above which half an eigenvalue of the bulk is expected."""
        return self._quantile(self.n - _BEYOND)

    def spike(self) -> tuple[float, float]:
        """(strength, place) of the rank-one part: b_0 divided by its critical value, and the position of the spike.

        Below strength 1 the spike is inside the bulk and the place is NaN.
        """
        b0 = float(self.parts.coefficients[0])
        b, N = self._bulk()
        if b0 <= 1e-9 * self.parts.total:
            return 0.0, math.nan
        least = max(float((b / N).max()) * (1 + 1e-9), 1e-12 * b0)
        great = 2 * max(b0, least)
        while self._pulled(great)[0] < 0:
            great *= 2
        if self._pulled(least)[0] >= 0:
            # If the bulk is a multiple of W^2, a spike of any strength is outside.
            return math.inf, self._pulled(b0)[1]
        critical: Any = brentq(lambda log: self._pulled(math.exp(log))[0], math.log(least), math.log(great))
        return b0 / math.exp(critical), self._pulled(b0)[1] if math.log(b0) > critical else math.nan

    def _pulled(self, b0: float) -> tuple[float, float]:
        """(slope, z) at e = -1 / b0, without lengths beyond the longest expected: a spike is at z if dz/de > 0."""
        above = self.n - self.masses.cumsum()
        a = np.minimum(self.squares, self.squares[int(np.abs(above - _BEYOND).argmin())])
        phi, change = (float(v[0].real) for v in self._phi(np.array([-1 / b0 + 0j])))
        size = b0 * float((self.masses * a).sum())
        gaps = phi * (a.max() - a)
        over: Any = brentq(lambda y: b0 * float((self.masses * a / (y + gaps)).sum()) - 1, 1e-12 * size, 1.01 * size)
        slope = 1 + change * float((self.masses * (a / (over + gaps)) ** 2).sum())
        return slope, phi * float(a.max()) + over

    def largest(self) -> float:
        """The spike if it is outside the bulk, otherwise the end of the bulk."""
        (strength, place), end = self.spike(), self.end_of_bulk()
        if strength > 1:
            return max(place, end)
        return end

    def _bulk(self) -> tuple[Array, Array]:
        """b_k and N_k of all degrees but 0."""
        return self.parts.coefficients[1:], self.parts.dimensions[1:]

    def _phi(self, e: Complex) -> tuple[Complex, Complex]:
        """phi and its derivative."""
        b, N = self._bulk()
        share = b / (1 + e[:, None] * (b / N))
        return self.parts.tail + share.sum(-1), -(share * share / N).sum(-1)

    def _solved(self, x: Array) -> tuple[Complex, Complex]:
        """z = x + i height and e(z), by Newton's method for decreasing heights after a damped iteration."""
        height = 10 * x
        e = float((self.masses * self.squares).sum()) / -(x + 1j * height)
        for _ in range(60):
            e = 0.5 * (e + self._map(e, x + 1j * height)[0])
        while True:
            z = x + 1j * height
            for _ in range(12):
                value, slope = self._map(e, z)
                step = (value - e) / (1 - slope)
                e = e + step
                if (np.abs(step) < 1e-12 * np.abs(e)).all():
                    break
            if (height <= _HEIGHT * x).all():
                return z, e
            height = np.maximum(0.4 * height, _HEIGHT * x)

    def _map(self, e: Complex, z: Complex) -> tuple[Complex, Complex]:
        """The right side of the equation for e, and its derivative."""
        phi, change = self._phi(e)
        Q = self.squares / (phi[:, None] * self.squares - z[:, None])
        return (self.masses * Q).sum(-1), -(self.masses * Q * Q).sum(-1) * change

    def _quantile(self, count: float) -> float:
        """The x below which `count` eigenvalues lie, by repeated subdivision of a logarithmic range."""
        low = 1e-3 * (self.parts.tail or 1e-9 * self.parts.total) * float(self.squares.min())
        high = 2 * self.parts.total * float(self.squares.max()) * (1 + math.sqrt(self.n / self.d)) ** 2
        while high > low * (1 + 1e-5):
            x = np.geomspace(low, high, 14)
            i = int(np.searchsorted(self.count(x)[1:-1], count))
            low, high = float(x[i]), float(x[i + 1])
        return math.sqrt(low * high)


def limit_spectrum(h: Callable[[Array], Array], power: float, n: int, d: int) -> LimitSpectrum:
    """The law of the kernel (|x_i| |x_j| / d)^power h(cos of x_i and x_j) on n Gaussian rows in d dimensions."""
    squares, masses = gaussian_lengths(d)
    return LimitSpectrum(n, d, power, harmonics(h, d, n), squares**power, n * masses)


def paper_extremes(order: int, n: int, d: int, width: int | None) -> tuple[float, float]:
    """The estimates of (lambda_max, lambda_min) in paper 002's Propositions B.6 and B.9, for order 0 or 1.

    With r_i^2 replaced by its mean d, K_0 ~ c1 G + c2 r r^T + c3 diag(r^2) and
    K_1 ~ a1 (r r^T)*G + a2 G*G + a3 diag(r^4). `width` is m; None is the limit of K / m.
    """
    gamma = n / d
    m, dm = (1.0, 0.0) if width is None else (float(width), float(d))
    low = mp_edges(gamma)[0] if gamma < 1 else 0.0
    if order == 0:
        c1, c2 = (m + dm) / (4 * d), m / (2 * math.pi * d)
        c3 = c1 - c2
        theta = 2 * n * m / (math.pi * (m + dm))
        return c1 * d * spiked_edge(theta, gamma) + c3 * d, c1 * d * low + c3 * d
    a1, a2 = (m + dm) / (2 * math.pi * d * d), (m + 2 * dm) / (4 * d * d)
    a3 = a2 - a1
    diagonal = a3 * d * (d + 2)
    squares = max(0.0, 1 - math.sqrt(2 * n) / d) ** 2
    # For lambda_max the lower bound, as in the paper's figure.
    return a2 * d * d * (1 + (n + 1) / d) + diagonal, diagonal + a2 * d * d * squares + a1 * d * d * low
