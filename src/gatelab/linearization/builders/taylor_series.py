"""Taylor series at 0 by power series arithmetic, and the tangent of each neuron at a reference input (paper 003).

tanh, sigmoid and SiLU follow from the differential equation y' = 1 - y^2, the tanh form of GELU from y' = (1 - y^2) g'.
Other smooth functions use automatic differentiation. The tangent is the series of first order of act(w.x) at r:
Phi(w) = [act'(w.r) w, act(w.r)], Psi(x) = [x - r, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatelab.arrays import Array, finite_array
from gatelab.errors import GatelabError
from gatelab.feedforward.gates import Activation
from gatelab.linearization.monomials import Maps
from gatelab.linearization.polynomials import Interval, Polynomial, check_degree, values

MOST_AUTOMATIC = 12  # the cost doubles with each derivative
_NEAR = 0.02  # a point where the series of a smooth function must agree with it


def taylor(gate: Activation, degree: int = 10, interval: Interval = (-3.0, 3.0)) -> Polynomial:
    """The series to this degree; the interval does not change it."""
    degree = check_degree(degree)
    return Polynomial.from_powers(power_series(gate, degree), interval, activation=gate.name, method="taylor")


def power_series(gate: Activation, degree: int) -> Array:
    """The coefficients of 1, z, ..., z^degree."""
    if gate.power is not None:
        raise GatelabError(f"{gate.name} has a kink at 0 and no Taylor series; use 'minimax', 'chebyshev' or 'hermite'")
    coefficients = _KNOWN.get(gate.name, partial(_automatic, gate))(degree)
    # Functions without a series, such as |z|, may have automatic derivatives: compare values near 0. The error of a
    # smooth function's series is about its next term, plus rounding.
    ends = np.array([-_NEAR, _NEAR])
    gap = np.abs(values(gate, ends).numpy() - np.polynomial.polynomial.polyval(ends, coefficients)).max()
    allowed = 100 * max(1.0, np.abs(coefficients).max()) * _NEAR ** len(coefficients) + 1e-12
    if not np.isfinite(coefficients).all() or gap > allowed:
        raise GatelabError(f"{gate.name!r} has no Taylor series at 0; use 'minimax', 'chebyshev' or 'hermite'")
    return coefficients


def _gelu(degree: int) -> Array:
    coefficients = np.zeros(degree + 1)
    coefficients[1:2] = 0.5
    for n in range(degree // 2):
        coefficients[2 * n + 2] = (-1) ** n / (2**n * math.factorial(n) * (2 * n + 1)) / math.sqrt(2 * math.pi)
    return coefficients


def _gelu_tanh(degree: int) -> Array:
    g = np.zeros(degree + 1)
    g[1:2], g[3:4] = math.sqrt(2 / math.pi), 0.044715 * math.sqrt(2 / math.pi)
    bell = (np.eye(1, degree + 1)[0] + _tanh_of(g)) / 2
    return np.concatenate([[0.0], bell])[: degree + 1]


def _tanh_of(g: Array) -> Array:
    """The series of tanh(g(z)), g(0) = 0: (k + 1) y_{k+1} is the k-th coefficient of (1 - y^2) g'."""
    n = len(g)
    slope = np.arange(1, n) * g[1:]
    y = np.zeros(n)
    for k in range(n - 1):
        bell = -np.convolve(y[: k + 1], y[: k + 1])[: k + 1]
        bell[0] += 1
        y[k + 1] = np.dot(bell, slope[k::-1]) / (k + 1)
    return y


def _sigmoid(degree: int) -> Array:
    coefficients = _tanh_of(_line(degree) / 2) / 2
    coefficients[0] += 0.5
    return coefficients


def _line(degree: int) -> Array:
    """The series of z itself."""
    return np.eye(1, degree + 1, 1)[0]


_KNOWN: dict[str, Callable[[int], Array]] = {
    "gelu": _gelu,
    "gelu-tanh": _gelu_tanh,
    "tanh": lambda n: _tanh_of(_line(n)),
    "sigmoid": _sigmoid,
    "silu": lambda n: np.concatenate([[0.0], _sigmoid(n)])[: n + 1],
    "identity": _line,
}


def _automatic(gate: Activation, degree: int) -> Array:
    if degree > MOST_AUTOMATIC:
        raise GatelabError(f"degree {degree} of {gate.name!r}: give at most {MOST_AUTOMATIC}, or use method 'minimax'")
    with torch.enable_grad():
        z = torch.zeros((), dtype=torch.float64, requires_grad=True)
        y: Tensor = gate(z)
        coefficients = [float(y.detach())]
        for k in range(1, degree + 1):
            slope = None
            if y.requires_grad:
                (slope,) = torch.autograd.grad(y, z, create_graph=True, allow_unused=True)
            if slope is None:  # the derivative of a constant
                slope = torch.zeros((), dtype=torch.float64)
            y = slope
            coefficients.append(float(y.detach()) / math.factorial(k))
    return np.array(coefficients)


def tangent_maps(activation: Activation, d: int, *, reference: Any) -> Maps:
    """Maps of d + 1 features at the reference; with d - 1 entries, it is extended by the 1 of the bias."""
    point = torch.from_numpy(finite_array("the reference", reference, 1, "give finite numbers"))
    if len(point) not in (d, d - 1):
        raise GatelabError(f"the reference has {len(point)} entries; give one input x of {d} finite numbers")
    if len(point) == d - 1:
        point = torch.cat([point, point.new_ones(1)])

    def phi(rows: Tensor) -> Tensor:
        z = rows @ point.to(rows)
        return torch.cat([activation.slope(z)[..., None] * rows, activation(z)[..., None]], dim=-1)

    def psi(rows: Tensor) -> Tensor:
        return torch.cat([rows - point.to(rows), rows.new_ones((*rows.shape[:-1], 1))], dim=-1)

    return Maps(phi, psi, d + 1, d)
