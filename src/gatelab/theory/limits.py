"""The smallest error with n cells, its rate in many dimensions, and the error due to noise.

By docs/derivations/spline-limit.md, for piecewise polynomials of degree m - 1 on n cells, RMSE ~ c_m n^-m
||f^(m)||_{L_sigma} / sqrt(|I|) as n grows, with sigma = 2 / (2m + 1) and c_m the L2 norm on the unit cell of the best
monospline, a Bernoulli polynomial: c_m^2 = |B_2m| / (2m)!. For the hardest targets in d dimensions, shallow networks of
relu^k have the L2 error n^-(1/2 + (2k + 1) / (2 d)) (J. W. Siegel and J. Xu, Foundations of Computational Mathematics,
2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import bernoulli

from gatelab.errors import GatelabError, whole_number
from gatelab.theory.derivatives import interpolate, pilot

_PANELS = (64, 49)  # both must give the same norm
_HALVINGS = 36  # of panels next to a kink
# RMSE ~ constant * h^m * rms(f^(m)) of the interpolating constructions (equations 9 and 14), by the order m.
CONSTRUCTION_CONSTANTS = {2: 120**-0.5, 3: (945 / 2) ** -0.5, 4: 1 / (24 * 630**0.5)}


def constant(order: int) -> float:
    """c_m of the free-knot limit.

    Args:
        order: m, the degree of the pieces plus one.

    Returns:
        The constant.

    >>> round(constant(2) * 12 * 5**0.5, 9), round(constant(3) ** -2, 6), round(constant(4) ** -2, 3)
    (1.0, 30240.0, 1209600.0)
    """
    return math.sqrt(abs(bernoulli(2 * order)[-1]) / math.factorial(2 * order))


def norm_of_function(f: Callable, interval: tuple[float, float], order: int, sigma: float) -> float:
    """||f^(order)||_{L_sigma} of a function on (N,) arrays; kinks and jumps, which take one knot each, do not count."""
    smooth, other = (interpolate(f, interval, panels, halvings=_HALVINGS) for panels in _PANELS)
    norm, again = (p.norm(order, sigma) for p in (smooth, other))
    # Norms far below this size, in units of f, are rounding or the remainder of a jump.
    least = 1e-3 * np.abs(smooth.coefficients).max() * (interval[1] - interval[0]) ** (1 / sigma - order)
    if abs(norm - again) > 0.1 * max(norm, again) > 0.1 * least:
        raise GatelabError(
            f"values of the function do not determine its derivative {order}, whose norm is {norm:.3g} or {again:.3g}:"
            f" it changes too fast for {smooth.panels} panels, or is not computed in double precision; give a smaller"
            " interval, a smoother function, or one in float64"
        )
    return norm


def norm_of_data(x: np.ndarray, y: np.ndarray, interval: tuple[float, float], order: int, sigma: float) -> float:
    """The norm of a derivative estimated from rows (N,) by a penalized spline, if they determine it."""
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
        f"{len(x)} rows do not determine derivative {order} of the target, which changes too fast (a kink, a jump?);"
        " give a function or more rows"
    )


def noise_of_data(x: np.ndarray, y: np.ndarray, interval: tuple[float, float]) -> float | None:
    """The estimated standard deviation of the noise on targets of one input; None if there are too few rows."""
    try:
        return pilot(x, y, interval, 2).noise
    except np.linalg.LinAlgError:
        return None


def sigma(order: int) -> float:
    """The exponent of the free-knot norm, 2 / (2m + 1)."""
    return 2 / (2 * order + 1)


def free_knot_rmse(norm: float, cells: float | np.ndarray, order: int, length: float) -> float | np.ndarray:
    """The free-knot limit for a norm of f^(order) with the exponent `sigma(order)`, on an interval of this length."""
    return constant(order) * np.asarray(cells, float) ** -order * norm / math.sqrt(length)


def worst_case_rate(degree: int, d_in: int) -> float:
    """The exponent of n for the hardest targets.

    Args:
        degree: the degree of an open neuron, `unit.degree`: 1 for the MLP, 2 for the GLU, 3 for the GQU.
        d_in: the number of inputs.

    Returns:
        The exponent.

    >>> [worst_case_rate(degree, 2) for degree in (1, 2, 3)], worst_case_rate(1, 1)
    ([1.25, 1.75, 2.25], 2.0)
    """
    return 0.5 + (2 * whole_number("degree", degree, 1) + 1) / (2 * whole_number("d_in", d_in, 1))
