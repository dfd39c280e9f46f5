"""Derivatives of a function that is known by its values alone, for the limits that need ||f^(m)||.

On each of many equal panels the function is interpolated at Chebyshev points and the interpolant is
differentiated exactly. Panels rather than one interpolant of high degree, since a function with fast and slow
parts would need a degree p in the hundreds, and the k-th derivative magnifies rounding by about p^(2k).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.polynomial.legendre import leggauss
from numpy.typing import ArrayLike, NDArray

from gatelab.errors import GatelabError

Array = NDArray[np.float64]
_NODES = 32


@dataclass(frozen=True, eq=False)
class PiecewiseChebyshev:
    """A piecewise polynomial on equal panels; column i of `coefficients` is the Chebyshev series of panel i.

    >>> f = interpolate(np.sin, (0, 3))
    >>> f.degree, f.panels
    (10, 64)
    >>> round(float(f.derivative(1)(0.0)), 9)
    1.0
    """

    coefficients: Array
    interval: tuple[float, float]

    @property
    def degree(self) -> int:
        return self.coefficients.shape[0] - 1

    @property
    def panels(self) -> int:
        return self.coefficients.shape[1]

    @property
    def half_width(self) -> float:
        return (self.interval[1] - self.interval[0]) / (2 * self.panels)

    @property
    def tail(self) -> float:
        """The largest of the last two coefficients of any panel, relative to the largest of all.

        Near 1e-14 for a resolved function. Above about 1e-8 the function is rougher than the panels can
        follow (a kink or a jump inside a panel, a very fast oscillation) and its high derivatives are not to
        be trusted.
        """
        size = np.abs(self.coefficients)
        return float(size[-2:].max() / max(size.max(), np.finfo(np.float64).tiny))

    def __call__(self, x: ArrayLike) -> Array:
        """The values at x, an array of any shape inside the interval."""
        x = np.asarray(x, dtype=np.float64)
        a, b = self.interval
        if not ((x >= a) & (x <= b)).all():
            raise GatelabError(f"x leaves the interval [{a:g}, {b:g}] of the interpolant; evaluate inside it")
        u = (x - a) / (2 * self.half_width)
        panel = np.clip(u.astype(int), 0, self.panels - 1)
        values = chebyshev.chebval(2 * (u - panel) - 1, self.coefficients[:, panel], tensor=False)
        return np.asarray(values, dtype=np.float64)

    def derivative(self, order: int = 1) -> PiecewiseChebyshev:
        """The derivative of the given order, again piecewise; rounding may make it jump from panel to panel.

        >>> cube = interpolate(lambda x: x**3, (-1, 1))
        >>> cube.derivative(2)(np.array([-1.0, 0.5])).round(6)
        array([-6.,  3.])
        """
        if not 0 <= order < self.degree:
            raise GatelabError(
                f"order is {order}; give 0 to {self.degree - 1}, or interpolate with a degree beyond {self.degree}"
            )
        slope = chebyshev.chebder(self.coefficients, m=order, scl=1 / self.half_width, axis=0)
        return PiecewiseChebyshev(np.asarray(slope, dtype=np.float64), self.interval)

    def norm(self, order: int, sigma: float) -> float:
        """(integral of |f^(order)|^sigma)^(1/sigma) over the interval, any sigma > 0.

        Below one this is no norm in the strict sense, but what the error of free knots is proportional to.
        The integrand then has cusps at the zeros of f^(order), so the panels are cut there.

        >>> round(interpolate(lambda x: x**4, (0, 1)).norm(2, 2.0), 4)  # sqrt(144 / 5)
        5.3666
        """
        if not (math.isfinite(sigma) and sigma > 0):
            raise GatelabError(f"sigma is {sigma}; give a positive number, such as 2/(2*order + 1)")
        series = self.derivative(order).coefficients
        t, weights = leggauss(_NODES)
        # x = mid + half * phi(t), phi' ~ (1 - t^2)^2, makes a cusp at a piece's end smooth enough for Gauss.
        phi, slope = (15 * t - 10 * t**3 + 3 * t**5) / 8, 15 / 8 * (1 - t**2) ** 2
        values, measures = [], []
        for i in range(self.panels):
            cuts = _cuts(series[:, i])
            half = np.diff(cuts)[:, None] / 2
            values.append(np.abs(chebyshev.chebval(cuts[:-1, None] + half * (1 + phi), series[:, i])).ravel())
            measures.append((self.half_width * half * slope * weights).ravel())
        size, measure = np.concatenate(values), np.concatenate(measures)
        largest = float(size.max())
        if largest == 0.0:
            return 0.0
        # Scaled by the maximum: the power 1/sigma would overflow long before the norm does.
        return largest * float((size / largest) ** sigma @ measure) ** (1 / sigma)


def _cuts(series: Array) -> Array:
    """The ends of a panel and the zeros between; of complex zeros the real part, where a cusp is near."""
    zeros = np.real(chebyshev.chebroots(series))
    return np.unique(np.concatenate([[-1.0], zeros[np.abs(zeros) < 1], [1.0]]))


def interpolate(
    f: Callable[[Array], Any], interval: tuple[float, float], panels: int = 64, degree: int = 10
) -> PiecewiseChebyshev:
    """The piecewise Chebyshev interpolant of f, a function from an (N,) array to an (N,) array.

    >>> f = interpolate(lambda x: 1 / (1 + x**2), (-1, 1))
    >>> float(f(0.5).round(12)), f.tail < 1e-12
    (0.8, True)
    """
    a, b = _checked_interval(interval)
    if panels < 1 or degree < 1:
        raise GatelabError(f"panels is {panels} and degree is {degree}; give whole numbers, 1 or more")
    s = chebyshev.chebpts1(degree + 1)
    half = (b - a) / (2 * panels)
    middles = a + half * (2 * np.arange(panels) + 1)
    x = (middles + half * s[:, None]).ravel()
    values = _finite_values(f, x).reshape(degree + 1, panels)
    # The Chebyshev polynomials are orthogonal over these points, so that no system has to be solved.
    coefficients = chebyshev.chebvander(s, degree).T @ values * (2 / (degree + 1))
    coefficients[0] /= 2
    # Below the rounding of the values a coefficient says nothing, yet differentiation would magnify it.
    noise = 4 * np.finfo(np.float64).eps * np.abs(values).max(axis=0)
    return PiecewiseChebyshev(np.where(np.abs(coefficients) > noise, coefficients, 0.0), (a, b))


def derivative(
    f: Callable[[Array], Any], interval: tuple[float, float], order: int, panels: int = 64, degree: int = 10
) -> PiecewiseChebyshev:
    """The derivative of f of the given order on the interval, from values of f alone.

    Good to about 1e-5 of its largest value up to order 4, where the panels resolve f and f is not much larger
    than its variation; a large constant part costs digits, since rounding is relative to it.

    >>> second = derivative(np.sin, (0, 3), 2)
    >>> np.abs(second(np.array([0.5, 1.5])) + np.sin([0.5, 1.5])) < 1e-8
    array([ True,  True])
    """
    return interpolate(f, interval, panels, degree).derivative(order)


def _checked_interval(interval: tuple[float, float]) -> tuple[float, float]:
    try:
        a, b = (float(end) for end in interval)
    except (TypeError, ValueError, OverflowError):
        raise GatelabError(f"the interval is {interval!r}; give two numbers (a, b) with a < b") from None
    if not (math.isfinite(a) and math.isfinite(b) and a < b):
        raise GatelabError(f"the interval is ({a:g}, {b:g}); give two finite numbers a < b")
    return a, b


def _finite_values(f: Callable[[Array], Any], x: Array) -> Array:
    with np.errstate(all="ignore"):
        values = np.asarray(f(x.copy()), dtype=np.float64)
    if values.shape != x.shape:
        raise GatelabError(
            f"the function returned the shape {values.shape} for an array of shape {x.shape};"
            " it must return one number for each x"
        )
    bad = ~np.isfinite(values)
    if bad.any():
        raise GatelabError(
            f"the function is not finite at {int(bad.sum())} of {len(x)} points, the first of them at"
            f" x = {x[bad].min():.6g}; choose an interval where it is defined"
        )
    return values
