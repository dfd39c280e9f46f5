"""The interval that a polynomial must serve, from pre-activations that were seen.

Taylor series at 0 by power series arithmetic.

    GELU(z) = z/2 + (1/sqrt(2 pi)) sum_n (-1)^n z^(2n+2) / (2^n n! (2n+1))       (paper 003, eq. 2)

tanh, sigmoid and SiLU follow from their differential equations, y' = 1 - y^2 and y' = y - y^2; the tanh form of GELU
from y' = (1 - y^2) g'. Any other smooth function is differentiated by automatic differentiation.

The best polynomial for Gaussian pre-activations, and the best for given ones.

For z ~ N(0, s^2) the best degree-n polynomial in mean square is sum_k h_k He_k(z/s) / sqrt(k!) with
h_k = E[act(s t) He_k(t)] / sqrt(k!), and what it leaves is E[act^2] - sum h_k^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev, hermite_e
from torch import Tensor

from gatelab.arrays import Array
from gatelab.errors import GatelabError
from gatelab.feedforward.gates import Activation
from gatelab.linearization.polynomials import FAR, NEAR, Interval, Polynomial, check_degree, check_interval, values


def numbers(data: Any) -> Array:
    """Pre-activations as one row of float64, checked."""
    if isinstance(data, Tensor):
        data = data.detach().cpu().numpy()
    try:
        z = np.asarray(data, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise GatelabError(f"the data are {type(data).__name__}; give an array of pre-activations") from None
    if not z.size:
        raise GatelabError("the data are empty; give pre-activations, such as W @ x + b of a layer")
    if not np.isfinite(z).all():
        raise GatelabError(f"entry {int(np.argmin(np.isfinite(z)))} of the data is not finite; leave such rows out")
    return z


def calibrate(data: Any, margin: float = 0.1, symmetric: bool = False) -> Interval:
    """The range of the data, widened by `margin` of its half-width on both sides; about 0 if `symmetric`.

    >>> calibrate([-1.0, 3.0], margin=0.5), calibrate([-1.0, 3.0], margin=0.0, symmetric=True)
    ((-2.0, 4.0), (-3.0, 3.0))
    """
    z = numbers(data)
    if not np.isfinite(margin) or margin < 0:
        raise GatelabError(f"the margin is {margin!r}; give 0 or more, a part of the half-width such as 0.1")
    low, high = float(z.min()), float(z.max())
    if symmetric:
        high = max(-low, high)
        low = -high
    if low == high:
        raise GatelabError(f"all pre-activations are {low}; give some that differ")
    more = margin * (high - low) / 2
    return low - more, high + more


MOST_AUTOMATIC = 12  # each derivative of a derivative costs twice the one before
_NEAR = 0.02  # where a series of a smooth function must be right


def taylor(gate: Activation, degree: int = 10, interval: Interval = (-3.0, 3.0)) -> Polynomial:
    """The series to that degree; the interval is where it is meant to be used and changes nothing in it.

    >>> from gatelab.feedforward.gates import activation
    >>> [round(a * math.sqrt(2 * math.pi), 6) for a in taylor(activation("gelu"), 6).coefficients[2::2]]
    [1.0, -0.166667, 0.025]
    """
    degree = check_degree(degree)
    return Polynomial.from_powers(power_series(gate, degree), interval, activation=gate.name, method="taylor")


def power_series(gate: Activation, degree: int) -> Array:
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


REACH = 14.0  # in deviations: beyond lies 1e-44 of the mass
PANELS, POINTS = 112, 20
USED = 5.0  # deviations that the interval of a Hermite polynomial covers by default


def _nodes() -> tuple[Array, Array]:
    """Gauss and Legendre's rule on panels of 1/8 deviation that end at 0: a kink there costs nothing, others little."""
    t, w = np.polynomial.legendre.leggauss(POINTS)
    edges = np.linspace(-REACH, REACH, 2 * PANELS + 1)
    half = np.diff(edges)[:, None] / 2
    z = (edges[:-1, None] + half * (1 + t)).ravel()
    return z, (half * w).ravel() * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def hermite_series(gate: Activation, degree: int, scale: float = 1.0) -> tuple[Array, float]:
    """h_0 .. h_degree of act(scale t), and E[act(scale t)^2].

    >>> from gatelab.feedforward.gates import activation
    >>> h, square = hermite_series(activation("gelu"), 2)
    >>> round(math.sqrt(square - sum(h**2)), 4)
    0.0782
    """
    scale = check_scale(scale)
    t, w = _nodes()
    f = values(gate, scale * t).numpy()
    h, before, now = np.empty(degree + 1), np.zeros_like(t), np.ones_like(t)
    for k in range(degree + 1):
        h[k] = np.dot(w, f * now)
        before, now = now, (t * now - math.sqrt(k) * before) / math.sqrt(k + 1)
    return h, float(np.dot(w, f * f))


def hermite(
    gate: Activation, degree: int = 8, scale: float = 1.0, interval: Interval | None = None, data: Any = None
) -> Polynomial:
    """The best polynomial in mean square for N(0, scale^2); the scale of `data` about 0 where they are given.

    The interval, five deviations where none is given, is where it is described; it changes nothing in it.
    """
    degree = check_degree(degree, 100)
    if data is not None:
        scale = float(np.sqrt(np.mean(numbers(data) ** 2)))
    scale = check_scale(scale)
    h, _ = hermite_series(gate, degree, scale)
    h = np.where(np.abs(h) < 1e-15 * np.abs(h).max(initial=1e-300), 0.0, h)
    plain = h / np.sqrt([float(math.factorial(k)) for k in range(degree + 1)])
    powers = np.zeros(degree + 1)
    made = hermite_e.herme2poly(plain)  # without zeros at its end
    powers[: len(made)] = made / scale ** np.arange(len(made))
    about = {"activation": gate.name, "method": "hermite"}
    return Polynomial.from_powers(powers, check_interval(interval or USED * scale), **about)


def fit(gate: Activation, degree: int = 8, *, data: Any, interval: Interval | None = None) -> Polynomial:
    """The best polynomial in mean square on the given pre-activations, by least squares in the Chebyshev basis."""
    degree = check_degree(degree, 100)
    z = numbers(data)
    if len(np.unique(z)) <= degree:
        raise GatelabError(
            f"{len(np.unique(z))} different pre-activations do not determine a polynomial of degree {degree}; "
            "give more of them or a lower degree"
        )
    low, high = check_interval(interval) if interval is not None else calibrate(z, margin=0.0)
    t = (z - (low + high) / 2) / ((high - low) / 2)
    basis = torch.from_numpy(chebyshev.chebvander(t, degree))
    made = torch.linalg.lstsq(basis, values(gate, z)[:, None], driver="gelsd").solution[:, 0]
    return Polynomial.from_chebyshev(made.tolist(), (low, high), activation=gate.name, method="fit")


def check_scale(scale: Any) -> float:
    if not isinstance(scale, int | float | np.number) or not math.isfinite(scale) or scale <= 0:
        raise GatelabError(f"the scale is {scale!r}; give the deviation of the pre-activations, a number above 0")
    if not NEAR <= scale <= FAR / USED:
        raise GatelabError(
            f"the scale is {scale:g}; give a deviation from {NEAR:g} to {FAR / USED:g}: scale the pre-activations"
        )
    return float(scale)
