"""The spectrum of a kernel on Gaussian rows, their lengths kept: a deformed law of Marchenko and Pastur.

A kernel that is homogeneous in each argument is K = W H W with W = diag(w_i), w_i^2 = a_i = (|x_i|^2 / d)^p, and
H = h(u_i . u_j) of the directions. By `gatelab.theory.harmonics` H is a sum of Gram matrices in N_k dimensions, of size
b_k, so K = W Z S Z^T W with independent rows Z, and S holding each b_k / N_k N_k times: a separable covariance. Its
resolvent Q(z) = (K - z)^-1 is, for large n, that of the diagonal matrix phi(e) W^2, where (D. Paul, J. Silverstein,
J. Multivariate Analysis 100, 2009)

    phi(e) = sum_k b_k / (1 + e b_k / N_k)           e = tr W^2 Q = sum_i a_i / (phi(e) a_i - z)

From its solution e(z) for z above the real axis follow

    density        Im tr Q / (n pi)
    count below x  -Im L / pi,   L = sum_i log(phi a_i - z) + sum_k N_k log(1 + e b_k / N_k) - e phi(e)
    the spike      degree 0, b_0 w w^T of rank one, pulls an eigenvalue out of the bulk to the z with e(z) = -1 / b_0

(L is log det(K - z), stationary in e.) Lengths are unbounded, so the bulk has no sharp ends; the extreme eigenvalues
are put where half an eigenvalue is expected beyond them. That lies between 0.28, where the mean is at an end of Airy's
type, and 0.56, where it is in an exponential tail. Nothing is simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from gatelab.display import one_line
from gatelab.theory.harmonics import Harmonics, gaussian_lengths, harmonics

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
_BEYOND = 0.5
# How far above the real axis, in units of x, the equation is solved: its blur is far below what the law can resolve.
_HEIGHT = 1e-6


@dataclass(frozen=True, eq=False)
class KernelLaw:
    """What to expect of the eigenvalues of K = (|x_i| |x_j| / d)^p h(cos) on n Gaussian rows in d dimensions."""

    n: int
    d: int
    power: float
    parts: Harmonics
    squares: Array = field(repr=False)
    masses: Array = field(repr=False)

    def __repr__(self) -> str:
        return one_line(self, f"{self.n} Gaussian rows in {self.d} dimensions, power {self.power:g}")

    def count(self, x: ArrayLike) -> Array:
        """How many of the n eigenvalues of the bulk lie below each x > 0."""
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
        """Where half an eigenvalue is expected below; 0 where the kernel has fewer harmonics than rows."""
        b, N = self._bulk()
        if self.parts.tail == 0 and N[b > 0].sum() < self.n:
            return 0.0
        return self._quantile(_BEYOND)

    def end_of_bulk(self) -> float:
        """Where half an eigenvalue of the bulk is expected above."""
        return self._quantile(self.n - _BEYOND)

    def spike(self) -> tuple[float, float]:
        """(strength, place) of the rank-one part: b_0 over the least that stands out, and where its eigenvalue stands.

        Below strength 1 the spike drowns in the bulk and the place is NaN.
        """
        b0 = float(self.parts.coefficients[0])
        b, N = self._bulk()
        if b0 <= 1e-9 * self.parts.total:
            return 0.0, math.nan
        least = max(float((b / N).max()) * (1 + 1e-9), 1e-12 * b0)
        great = 2 * max(b0, least)
        while self._pulled(great)[0] < 0:
            great *= 2
        # With nothing in the bulk but a multiple of W^2 a spike of any strength stands out.
        drowned = self._pulled(least)[0] < 0
        critical = (
            _root(lambda log: self._pulled(math.exp(log))[0], math.log(least), math.log(great))
            if drowned
            else -math.inf
        )
        return b0 / math.exp(critical) if drowned else math.inf, self._pulled(b0)[1] if math.log(
            b0
        ) > critical else math.nan

    def _pulled(self, b0: float) -> tuple[float, float]:
        """(slope, z) at e = -1 / b0: a spike of that size stands at z if the slope dz/de is positive.

        Rows longer than any that are expected are cut to the longest expected.
        """
        above = self.n - self.masses.cumsum()
        a = np.minimum(self.squares, self.squares[int(np.abs(above - _BEYOND).argmin())])
        phi, change = (float(v[0].real) for v in self._phi(np.array([-1 / b0 + 0j])))
        size = b0 * float((self.masses * a).sum())
        gaps = phi * (a.max() - a)
        over = _root(lambda y: b0 * float((self.masses * a / (y + gaps)).sum()) - 1, 1e-12 * size, 1.01 * size)
        slope = 1 + change * float((self.masses * (a / (over + gaps)) ** 2).sum())
        return slope, phi * float(a.max()) + over

    def largest(self) -> float:
        """The spike where it stands out, else the end of the bulk."""
        strength, place = self.spike()
        end = self.end_of_bulk()
        return max(place, end) if strength > 1 else end

    def _bulk(self) -> tuple[Array, Array]:
        return self.parts.coefficients[1:], self.parts.dimensions[1:]

    def _phi(self, e: Complex) -> tuple[Complex, Complex]:
        """phi and its derivative."""
        b, N = self._bulk()
        share = b / (1 + e[:, None] * (b / N))
        return self.parts.tail + share.sum(-1), -(share * share / N).sum(-1)

    def _solved(self, x: Array) -> tuple[Complex, Complex]:
        """z = x + i height and e(z), followed down by Newton's method from where damped iteration holds."""
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
                if bool((np.abs(step) < 1e-12 * np.abs(e)).all()):
                    break
            if bool((height <= _HEIGHT * x).all()):
                return z, e
            height = np.maximum(0.4 * height, _HEIGHT * x)

    def _map(self, e: Complex, z: Complex) -> tuple[Complex, Complex]:
        """The right side of the equation for e, and its derivative."""
        phi, change = self._phi(e)
        Q = self.squares / (phi[:, None] * self.squares - z[:, None])
        return (self.masses * Q).sum(-1), -(self.masses * Q * Q).sum(-1) * change

    def _quantile(self, count: float) -> float:
        """The x below which `count` eigenvalues lie, by repeated sectioning of a logarithmic range."""
        n_over = self.n / self.d
        low = 1e-3 * (self.parts.tail or 1e-9 * self.parts.total) * float(self.squares.min())
        high = 2 * self.parts.total * float(self.squares.max()) * (1 + math.sqrt(n_over)) ** 2
        while high > low * (1 + 1e-5):
            x = np.geomspace(low, high, 14)
            i = int(np.searchsorted(self.count(x)[1:-1], count))
            low, high = float(x[i]), float(x[i + 1])
        return math.sqrt(low * high)


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(f, low, high))  # pyright: ignore[reportArgumentType]


def kernel_law(h: Callable[[Array], Array], power: float, n: int, d: int) -> KernelLaw:
    """The law of the kernel (|x_i| |x_j| / d)^power h(cos of x_i and x_j) on n Gaussian rows in d dimensions.

    >>> law = kernel_law(lambda t: t, power=1, n=100, d=400)  # X X^T / d
    >>> round(law.smallest(), 2), round(law.largest(), 2)  # Marchenko and Pastur: 0.25, 2.25 for n and d without end
    (0.26, 2.2)
    """
    squares, masses = gaussian_lengths(d)
    return KernelLaw(n, d, power, harmonics(h, d, n), squares**power, n * masses)
