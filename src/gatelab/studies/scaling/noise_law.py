"""The noise law in the number of parameters P and of data D.

With noise of deviation s on the training targets the error on clean test data has two sources that add up in squares:
the approximation error of P parameters, and the estimation error from D data,

    RMSE^2 = (A / P^a)^2 + (c s)^2 P / D,      c near 1 by theory for P far below D.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from gatelab.arrays import Array
from gatelab.theory import estimation_rmse


@dataclass(frozen=True)
class NoiseLaw:
    """RMSE^2 = (A / P^a)^2 + (c s)^2 P / D; `rmse` is that of log RMSE."""

    A: float
    a: float
    c: float
    noise: float
    rmse: float = np.nan

    def predict(self, P: Array | float, D: Array | float) -> Array:
        """The RMSE of P parameters on D data."""
        return np.hypot(*self.parts(P, D))

    def parts(self, P: Array | float, D: Array | float) -> tuple[Array, Array]:
        """The approximation error and the estimation error."""
        P, D = np.asarray(P, float), np.asarray(D, float)
        return self.A * P**-self.a, self.c * np.asarray(estimation_rmse(self.noise, P, D))


def fit_noise_law(P: Array, D: Array, L: Array, noise: float) -> NoiseLaw:
    """The noise law of the least squares of log L.

    >>> P, D = (z.ravel() for z in np.meshgrid([10.0, 30.0, 90.0], [300.0, 1000.0, 3000.0]))
    >>> law = fit_noise_law(P, D, NoiseLaw(20.0, 1.1, 0.9, 0.5).predict(P, D), 0.5)
    >>> round(law.A, 6), round(law.a, 6), round(law.c, 6)
    (20.0, 1.1, 0.9)
    """
    P, D, L = (np.asarray(z, float) for z in (P, D, L))

    def law(x: Array) -> NoiseLaw:
        return NoiseLaw(float(np.exp(x[0])), float(x[1]), float(np.exp(x[2])), noise)

    starts = [np.array([np.log(L.max()) + a * np.log(P.min()), a, 0.0]) for a in (0.5, 1.0, 2.0)]
    ends = (least_squares(lambda x: np.log(law(x).predict(P, D) / L), start) for start in starts)
    best = min(ends, key=lambda end: end.cost)
    return replace(law(best.x), rmse=float(np.sqrt(np.mean(best.fun**2))))
