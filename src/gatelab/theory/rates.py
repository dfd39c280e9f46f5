"""How fast the error can fall in many dimensions, and how far data set a floor to it.

A neuron is a function of a few affine maps of x. On balls of a Sobolev space, which hold the hardest targets of a given
smoothness, shallow networks of relu^k reach in L2

    RMSE ~ n^-(1/2 + (2k + 1) / (2 d))

and no more, however smooth the target (J. W. Siegel and J. Xu, Sharp bounds on the approximation rates, metric entropy
and n-widths of shallow neural networks, Foundations of Computational Mathematics, 2022). For d = 1 that is the order
k + 1 of a spline. A target that is a sum of finitely many ridge functions, f(w.x), is no harder than functions of one
variable, and keeps the order k + 1 in every dimension.
"""

from __future__ import annotations

import numpy as np

from gatelab.errors import GatelabError


def worst_case_rate(degree: int, d_in: int) -> float:
    """The exponent of n for the hardest targets of d_in inputs; `degree` is that of an open neuron.

    The degree is `unit.degree`: 1 for the MLP, 2 for the GLU, 3 for the GQU.

    >>> [worst_case_rate(degree, 2) for degree in (1, 2, 3)], worst_case_rate(1, 1)
    ([1.25, 1.75, 2.25], 2.0)
    """
    if degree < 1 or d_in < 1:
        raise GatelabError(f"degree is {degree} and d_in {d_in}; both are 1 or more")
    return 0.5 + (2 * degree + 1) / (2 * d_in)


def ridge_rate(degree: int) -> int:
    """The exponent of n for a sum of finitely many ridge functions, in any dimension: the order on a line.

    >>> ridge_rate(1), ridge_rate(2), ridge_rate(3)
    (2, 3, 4)
    """
    if degree < 1:
        raise GatelabError(f"degree is {degree}; it is 1 or more")
    return degree + 1


def estimation_rmse(noise: float, parameters: float | np.ndarray, data: float | np.ndarray) -> float | np.ndarray:
    """What noise adds to the error on clean test data: P numbers estimated from D values of that noise.

    Least squares spreads a share P / D of the variance of the noise over the fit; for P far below D.

    >>> float(estimation_rmse(0.5, 100, 10_000))
    0.05
    """
    return noise * np.sqrt(np.asarray(parameters, float) / data)
