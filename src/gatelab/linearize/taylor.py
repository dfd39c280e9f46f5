"""Taylor series at 0 by power series arithmetic.

    GELU(z) = z/2 + (1/sqrt(2 pi)) sum_n (-1)^n z^(2n+2) / (2^n n! (2n+1))       (paper 003, eq. 2)

tanh, sigmoid and SiLU follow from their differential equations, y' = 1 - y^2 and y' = y - y^2; the tanh form of GELU
from y' = (1 - y^2) g'. Any other smooth function is differentiated by automatic differentiation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.linearize.given import values
from gatelab.linearize.polynomials import Array, Interval, Polynomial, check_degree
from gatelab.units.activations import Activation

MOST_AUTOMATIC = 12  # each derivative of a derivative costs twice the one before
_NEAR = 0.02  # where a series of a smooth function must be right


def taylor(gate: Activation, degree: int = 10, interval: Interval = (-3.0, 3.0)) -> Polynomial:
    """The series to that degree; the interval is where it is meant to be used and changes nothing in it.

    >>> from gatelab.units.activations import activation
    >>> [round(a * math.sqrt(2 * math.pi), 6) for a in taylor(activation("gelu"), 6).coefficients[2::2]]
    [1.0, -0.166667, 0.025]
    """
    degree = check_degree(degree)
    return Polynomial.from_powers(series(gate, degree), interval, activation=gate.name, method="taylor")


def series(gate: Activation, degree: int) -> Array:
    """The coefficients of 1, z, ..., z^degree."""
    if gate.power is not None:
        raise GatelabError(
            f"{gate.name} has a kink at 0 and no Taylor series there; use method 'minimax', 'chebyshev' or 'hermite'"
        )
    known: dict[str, Callable[[int], Array]] = {
        "gelu": _gelu,
        "gelu-tanh": _gelu_tanh,
        "tanh": lambda n: _tanh_of(np.eye(1, n + 1, 1)[0]),
        "sigmoid": _sigmoid,
        "silu": lambda n: np.concatenate([[0.0], _sigmoid(n)])[: n + 1],
        "identity": lambda n: np.eye(1, n + 1, 1)[0],
    }
    made = known[gate.name](degree) if gate.name in known else _automatic(gate, degree)
    return _checked(gate, made)


def _gelu(degree: int) -> Array:
    made = np.zeros(degree + 1)
    made[1:2] = 0.5
    for n in range((degree - 2) // 2 + 1 if degree >= 2 else 0):
        made[2 * n + 2] = (-1) ** n / (2**n * math.factorial(n) * (2 * n + 1)) / math.sqrt(2 * math.pi)
    return made


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
        rest = -np.convolve(y[: k + 1], y[: k + 1])[: k + 1]
        rest[0] += 1
        y[k + 1] = np.dot(rest, slope[k::-1]) / (k + 1)
    return y


def _sigmoid(degree: int) -> Array:
    made = _tanh_of(np.eye(1, degree + 1, 1)[0] / 2) / 2
    made[0] += 0.5
    return made


def _automatic(gate: Activation, degree: int) -> Array:
    if degree > MOST_AUTOMATIC:
        raise GatelabError(
            f"degree {degree} of {gate.name!r}: derivatives beyond {MOST_AUTOMATIC} are not taken automatically; "
            f"give a degree of at most {MOST_AUTOMATIC}, or use method 'chebyshev' or 'minimax'"
        )
    with torch.enable_grad():
        z = torch.zeros((), dtype=torch.float64, requires_grad=True)
        y: Tensor = gate(z)
        made = [float(y.detach())]
        for k in range(1, degree + 1):
            if not y.requires_grad:
                made.append(0.0)
                continue
            (slope,) = torch.autograd.grad(y, z, create_graph=True, allow_unused=True)
            y = torch.zeros((), dtype=torch.float64) if slope is None else slope
            made.append(float(y.detach()) / math.factorial(k))
    return np.array(made)


def _checked(gate: Activation, made: Array) -> Array:
    """Refuse series of functions that have none: automatic derivatives of |z| exist, and say nothing."""
    at = np.array([-_NEAR, _NEAR])
    gap = np.abs(values(gate, at).numpy() - np.polynomial.polynomial.polyval(at, made)).max()
    # What a smooth function's next term may be: of its own size times the distance to that power, and rounding.
    allowed = 100 * max(1.0, np.abs(made).max()) * _NEAR ** len(made) + 1e-12
    if not np.isfinite(made).all() or gap > allowed:
        raise GatelabError(
            f"{gate.name!r} has no Taylor series at 0 (at ±{_NEAR} it is off by {gap:.2g}); use method 'minimax', "
            "'chebyshev' or 'hermite', which ask for no derivatives"
        )
    return made
