"""The least error that n cells allow, how fast it can fall in many dimensions, and how far data set a floor to it.

For piecewise polynomials of degree m - 1 on n cells, as n grows,

    RMSE ~ c_m n^-m ||f^(m)||_{L_sigma} / sqrt(|I|),   sigma = 2 / (2m + 1)

where c_m is the L2 norm on the unit cell of the best monospline, x^m / m! less the splines. For the smoothest splines
that is a Bernoulli polynomial, c_m^2 = |B_2m| / (2m)!, and the symmetry about each knot makes one continuity less no
better: MLP 1/(12 sqrt 5), GLU and relu^2 1/sqrt(30240), GQU and relu^3 1/sqrt(1209600). (A C0 cubic without the GQU's
real roots would have 1/5040.) The order in front is a limit: networks of a few neurons lie below it, or above.

In many dimensions a neuron is a function of a few affine maps of x. On balls of a Sobolev space, which hold the hardest
targets of a given smoothness, shallow networks of relu^k reach in L2

    RMSE ~ n^-(1/2 + (2k + 1) / (2 d))

and no more, however smooth the target (J. W. Siegel and J. Xu, Sharp bounds on the approximation rates, metric entropy
and n-widths of shallow neural networks, Foundations of Computational Mathematics, 2022). For d = 1 that is the order
k + 1 of a spline. A target that is a sum of finitely many ridge functions, f(w.x), is no harder than functions of one
variable, and keeps the order k + 1 in every dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import bernoulli

from gatelab.errors import GatelabError, whole_number
from gatelab.theory.derivatives import interpolate, pilot

_PANELS = (64, 49)  # where both give one norm, the function determines it
_HALVINGS = 36  # of the panels beside a kink
_CONSTRUCTIONS = {2: 120**-0.5, 3: (945 / 2) ** -0.5, 4: 1 / (24 * 630**0.5)}


def constant(order: int) -> float:
    """c_m of the free-knot limit.

    Args:
        order: m, one more than the degree of the pieces.

    Returns:
        The constant.

    >>> round(constant(2) * 12 * 5**0.5, 9), round(constant(3) ** -2, 6), round(constant(4) ** -2, 3)
    (1.0, 30240.0, 1209600.0)
    """
    return math.sqrt(abs(bernoulli(2 * order)[-1]) / math.factorial(2 * order))


def construction_constant(order: int) -> float:
    """The constant of the interpolating constructions: RMSE ~ constant * h^m * rms(f^(m)). Equations 9 and 14.

    Args:
        order: m, from 2 to 4.

    Returns:
        The constant.

    >>> round(construction_constant(3), 4)
    0.046
    """
    return _CONSTRUCTIONS[order]


def norm_of_function(f: Callable, interval: tuple[float, float], order: int, sigma: float) -> float:
    """||f^(order)||_{L_sigma} of a function that can be evaluated anywhere in the interval.

    Kinks and jumps count for nothing, as a free knot takes each.

    Args:
        f: a function from an (N,) array to an (N,) array.
        interval: (a, b).
        order: of the derivative.
        sigma: the exponent of the norm, any positive number.

    Returns:
        The norm.
    """
    smooth, other = (interpolate(f, interval, panels, halvings=_HALVINGS) for panels in _PANELS)
    norm, again = (p.norm(order, sigma) for p in (smooth, other))
    # In units of f: what is far below it is rounding, or what a jump leaves.
    least = 1e-3 * np.abs(smooth.coefficients).max() * (interval[1] - interval[0]) ** (1 / sigma - order)
    if abs(norm - again) > 0.1 * max(norm, again) > 0.1 * least:
        raise GatelabError(
            f"values of the function do not determine its derivative {order}, whose norm they give as {norm:.3g} and"
            f" {again:.3g}: it changes too fast for {smooth.panels} panels, or is not computed in double precision;"
            " choose a smaller interval, a smoother function, or one in float64"
        )
    return norm


def norm_of_data(x: np.ndarray, y: np.ndarray, interval: tuple[float, float], order: int, sigma: float) -> float:
    """The same from rows alone, by a penalised pilot spline that tells noise from function.

    Refused where the rows do not determine it, by more than `Pilot.norm` allows: they are noisy, or have a kink or a
    jump, or are too few.

    Args:
        x: the inputs, (N,).
        y: the targets, (N,).
        interval: (a, b), which holds the inputs.
        order: of the derivative.
        sigma: the exponent of the norm, any positive number.

    Returns:
        The norm.

    >>> x = np.linspace(0, 3, 500)
    >>> round(norm_of_data(x, np.sin(x), (0.0, 3.0), 2, 2.0) / norm_of_function(np.sin, (0.0, 3.0), 2, 2.0), 3)
    1.0
    """
    try:
        fitted = pilot(x, y, interval, order)
    except np.linalg.LinAlgError:
        raise GatelabError(
            f"{len(x)} points are too few or too clustered to estimate derivative {order}; give a function or more data"
        ) from None
    norm = fitted.norm(interval[1] - interval[0], sigma)
    if norm is not None:
        return norm
    if fitted.noisy:
        raise GatelabError(
            f"the data are noisy (sigma about {fitted.noise:.2g}) or too few, and do not determine derivative {order}"
            " of the target; give a function, more rows or less noise"
        )
    raise GatelabError(
        f"{len(x)} rows do not determine derivative {order} of the target, which changes faster than they follow (a"
        " kink, a jump?); give a function or more rows"
    )


def noise_of_data(x: np.ndarray, y: np.ndarray, interval: tuple[float, float]) -> float | None:
    """The standard deviation of noise on the targets of one input, from the rows alone.

    Args:
        x: the inputs, (N,).
        y: the targets, (N,).
        interval: (a, b), which holds the inputs.

    Returns:
        The deviation, or None where the rows are too few.

    >>> generator = np.random.default_rng(0)
    >>> x = generator.uniform(-1, 1, 1000)
    >>> round(noise_of_data(x, np.sin(4 * x) + 0.1 * generator.standard_normal(1000), (-1.0, 1.0)), 2)
    0.1
    """
    try:
        return pilot(x, y, interval, 2).noise
    except np.linalg.LinAlgError:
        return None


def sigma(order: int) -> float:
    """The exponent of the free-knot norm, 2 / (2m + 1)."""
    return 2 / (2 * order + 1)


def free_knot_rmse(norm: float, cells: float | np.ndarray, order: int, length: float) -> float | np.ndarray:
    """The free-knot limit for a norm taken with `sigma(order)`.

    Args:
        norm: of f^(order).
        cells: how many cells, a number or an array.
        order: m.
        length: of the interval.

    Returns:
        The RMSE, of the shape of `cells`.

    >>> float(round(free_knot_rmse(34.909, 100, 2, 2.0), 7))
    9.2e-05
    """
    return constant(order) * np.asarray(cells, float) ** -order * norm / math.sqrt(length)


def worst_case_rate(degree: int, d_in: int) -> float:
    """The exponent of n for the hardest targets.

    Args:
        degree: that of an open neuron, `unit.degree`: 1 for the MLP, 2 for the GLU, 3 for the GQU.
        d_in: the number of inputs.

    Returns:
        The exponent.

    >>> [worst_case_rate(degree, 2) for degree in (1, 2, 3)], worst_case_rate(1, 1)
    ([1.25, 1.75, 2.25], 2.0)
    """
    return 0.5 + (2 * whole_number("degree", degree, 1) + 1) / (2 * whole_number("d_in", d_in, 1))


def ridge_rate(degree: int) -> int:
    """The exponent of n for a sum of finitely many ridge functions, in any dimension: the order on a line.

    Args:
        degree: that of an open neuron.

    Returns:
        The exponent.

    >>> ridge_rate(1), ridge_rate(2), ridge_rate(3)
    (2, 3, 4)
    """
    return whole_number("degree", degree, 1) + 1


def estimation_rmse(noise: float, parameters: float | np.ndarray, data: float | np.ndarray) -> float | np.ndarray:
    """What noise adds to the error on clean test data: P numbers estimated from D values of that noise.

    Least squares spreads a share P / D of the variance of the noise over the fit; for P far below D.

    Args:
        noise: the standard deviation of the noise.
        parameters: P.
        data: D.

    Returns:
        The RMSE that is added.

    >>> float(estimation_rmse(0.5, 100, 10_000))
    0.05
    """
    return noise * np.sqrt(np.asarray(parameters, float) / data)
