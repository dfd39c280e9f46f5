"""Polynomials with the least mean square error, for Gaussian or for given pre-activations.

For z ~ N(0, s^2) the best polynomial of degree n is sum_k h_k He_k(z/s) / sqrt(k!) with h_k = E[act(s t) He_k(t)] /
sqrt(k!), and its squared error is E[act^2] - sum h_k^2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev, hermite_e

from gatelab.arrays import Array
from gatelab.errors import GatelabError, real_number
from gatelab.feedforward.gates import Activation
from gatelab.linalg.quadrature import hermite_functions, panel_rule
from gatelab.linearization.polynomials import (
    FAR,
    NEAR,
    Interval,
    Polynomial,
    calibrate,
    check_degree,
    check_interval,
    numbers,
    to_unit,
    values,
)

REACH = 14.0  # in standard deviations; 1e-44 of the mass is outside
PANELS, POINTS = 112, 20
USED = 5.0  # standard deviations covered by the default interval of a Hermite polynomial


def hermite(
    gate: Activation, degree: int = 8, scale: float | None = None, interval: Interval | None = None, data: Any = None
) -> Polynomial:
    """The polynomial of least mean square error for N(0, scale^2); the scale is 1 by default, or the RMS of `data`.

    The interval, five standard deviations by default, does not change the polynomial.
    """
    degree = check_degree(degree, 100)
    if data is not None and scale is not None:
        raise GatelabError(f"scale is {scale!r} and data are given, which determine the scale; leave one out")
    if data is not None:
        scale = float(np.sqrt(np.mean(numbers(data) ** 2)))
    scale = check_scale(1.0 if scale is None else scale)
    h, _ = hermite_series(gate, degree, scale)
    h = np.where(np.abs(h) < 1e-15 * np.abs(h).max(initial=1e-300), 0.0, h)
    plain = h / np.sqrt([float(math.factorial(k)) for k in range(degree + 1)])
    powers = np.zeros(degree + 1)
    standard = hermite_e.herme2poly(plain)  # in powers of t, without trailing zeros
    powers[: len(standard)] = standard / scale ** np.arange(len(standard))
    where = check_interval(interval or USED * scale)
    return Polynomial.from_powers(powers, where, activation=gate.name, method="hermite")


def fit(gate: Activation, degree: int = 8, *, data: Any, interval: Interval | None = None) -> Polynomial:
    """The least-squares polynomial on the given pre-activations, in the Chebyshev basis."""
    degree = check_degree(degree, 100)
    z = numbers(data)
    if len(np.unique(z)) <= degree:
        raise GatelabError(
            f"{len(np.unique(z))} different pre-activations do not determine a polynomial of degree {degree}; "
            "give more of them or a lower degree"
        )
    interval = check_interval(calibrate(z, margin=0.0) if interval is None else interval)
    basis = torch.from_numpy(chebyshev.chebvander(to_unit(z, interval), degree))
    coefficients = torch.linalg.lstsq(basis, values(gate, z)[:, None], driver="gelsd").solution[:, 0]
    return Polynomial.from_chebyshev(coefficients.tolist(), interval, activation=gate.name, method="fit")


def hermite_series(gate: Activation, degree: int, scale: float = 1.0) -> tuple[Array, float]:
    """h_0 .. h_degree of act(scale t), and E[act(scale t)^2].

    Panels of 1/8 standard deviation end at 0, so that a kink there costs no accuracy.
    """
    scale = check_scale(scale)
    t, lengths = panel_rule(np.linspace(-REACH, REACH, 2 * PANELS + 1), POINTS)
    w = lengths * np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    f = values(gate, scale * t).numpy()
    h = [np.dot(w, f * he) for he in hermite_functions(t, np.ones_like(t), degree + 1)]
    return np.array(h), float(np.dot(w, f * f))


def check_scale(scale: Any) -> float:
    """The standard deviation of the pre-activations."""
    return real_number("the scale, a standard deviation of pre-activations,", scale, least=NEAR, most=FAR / USED)
