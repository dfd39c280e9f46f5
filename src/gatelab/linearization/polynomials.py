"""A polynomial that approximates an activation, in two bases, with its interval.

Coefficients are stored in powers of z and in Chebyshev polynomials of the interval. The conversion uses rational
arithmetic, since floats would lose a factor (1 + sqrt 2)^degree of accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev as basis
from numpy.polynomial.polynomial import polymulx
from torch import Tensor
from torch.nn import functional

from gatelab import arrays
from gatelab.arrays import Array, finite_array
from gatelab.display import Compact
from gatelab.errors import GatelabError, real_number, unknown_name, whole_number
from gatelab.feedforward.definition import FunctionUnit, ModuleUnit, Unit
from gatelab.feedforward.gates import Activation, activation, activations
from gatelab.feedforward.named import ALIASES, CATALOGUE
from gatelab.feedforward.registry import product_unit

Interval = tuple[float, float]
NEAR, FAR = 1e-6, 1e6  # the shortest interval and its largest distance from 0 for which powers stay in float64
ActivationLike = str | Activation | Unit | Callable[[Tensor], Tensor]


GELU_TANH = Activation("gelu-tanh", partial(functional.gelu, approximate="tanh"), growth=1)


@dataclass(frozen=True)
class Polynomial(Compact):
    """p(z) = sum_k coefficients[k] z^k = sum_k chebyshev[k] T_k(t), t in [-1, 1] over the interval.

    Attributes:
        coefficients: the coefficients of 1, z, z^2, ...
        chebyshev: the coefficients of T_0, T_1, ... of the interval.
        interval: (low, high), the range of its inputs.
        activation: the name of the activation.
        method: the name of the method.

    >>> p = Polynomial.from_powers([0, 0.5, 0.25], (-2, 2))
    >>> p.chebyshev, p.degree, float(p(3.0))
    ((0.5, 1.0, 0.5), 2, 3.75)
    """

    coefficients: tuple[float, ...]
    chebyshev: tuple[float, ...]
    interval: Interval
    activation: str = ""
    method: str = ""

    @classmethod
    def from_powers(cls, coefficients: Iterable[Any], interval: Interval, **about: Any) -> Polynomial:
        """From the coefficients of 1, z, z^2, ..."""
        low, high = map(Fraction, interval := check_interval(interval))
        powers = _coefficients(coefficients)
        series = _composed(_exact(powers), (low + high) / 2, (high - low) / 2, basis.chebmulx)
        return cls(powers, _rounded(series, len(powers), interval), interval, **about)

    @classmethod
    def from_chebyshev(cls, coefficients: Iterable[Any], interval: Interval, **about: Any) -> Polynomial:
        """From the coefficients of T_0, T_1, ... of the interval."""
        low, high = map(Fraction, interval := check_interval(interval))
        series = _coefficients(coefficients)
        of_t = basis.cheb2poly(_exact(series))
        powers = _composed(of_t, (low + high) / (low - high), 2 / (high - low), polymulx)
        return cls(_rounded(powers, len(series), interval), series, interval, **about)

    @property
    def degree(self) -> int:
        """The highest power whose coefficient is not zero."""
        return self.degrees[-1]

    @property
    def degrees(self) -> tuple[int, ...]:
        """The powers whose coefficients are not zero."""
        return tuple(k for k, a in enumerate(self.coefficients) if a) or (0,)

    def __call__(self, z: Any) -> Any:
        """The value at numbers, arrays or tensors, by Clenshaw's recurrence in the Chebyshev basis."""
        if not isinstance(z, Tensor):
            z = np.asarray(z, dtype=np.float64)
        t = to_unit(z, self.interval)
        after = later = 0 * t
        for c in self.chebyshev[:0:-1]:
            after, later = 2 * t * after - later + c, after
        return t * after - later + self.chebyshev[0]

    def error(self, function: Callable[[Tensor], Tensor], points: int = 20001) -> float:
        """The largest error on a uniform grid over the interval; `bound` proves an upper bound."""
        z = torch.linspace(*self.interval, points, dtype=torch.float64)
        return float((function(z) - self(z)).abs().max())


def _coefficients(values: Iterable[Any]) -> tuple[float, ...]:
    instead = "give finite numbers, one for each degree"
    return tuple(finite_array("the list of coefficients", list(values), 1, instead).tolist())


def _exact(values: Iterable[float]) -> Any:
    """An array of fractions, for exact conversion by numpy."""
    return np.array([Fraction(value) for value in values], dtype=object)


def _composed(powers: Any, start: Fraction, slope: Fraction, times: Callable[[Any], Any]) -> Any:
    """sum_k powers[k] (start + slope u)^k by Horner's rule; `times` multiplies by u in the basis of the result."""
    total = _exact([0])
    for a in reversed(powers):
        total = basis.chebadd(start * total, slope * times(total))
        total[0] += a
    return total


def _rounded(exact: Any, count: int, interval: Interval) -> tuple[float, ...]:
    try:
        return tuple(float(exact[k]) if k < len(exact) else 0.0 for k in range(count))
    except OverflowError:
        raise GatelabError(
            f"the coefficients of degree {count - 1} on {interval} leave float64; lower the degree"
        ) from None


def gate_and_factors(unit: ActivationLike) -> tuple[Activation, int]:
    """The gate of an activation or unit, and its number of linear factors: act(g.x) (u.x) has one."""
    if isinstance(unit, type):
        raise GatelabError(f"{unit.__name__} is a class; give a function of one tensor, or a module that is one")
    if isinstance(unit, str):
        name = unit.lower().replace("_", "-")
        if name == GELU_TANH.name:
            return GELU_TANH, 0
        units = {*CATALOGUE, *ALIASES}
        if name not in activations() and unit.lower() not in units:
            raise unknown_name("activation or unit", unit, {*activations(), GELU_TANH.name, *units})
        unit = name if name in activations() else product_unit(unit)
    if isinstance(unit, ModuleUnit | FunctionUnit):
        raise GatelabError(f"the unit {unit.name!r} is not a gate times factors; give its gate as an activation")
    if isinstance(unit, Unit):
        return unit.gate, unit.factors
    return activation(unit), 0


def values(gate: Callable[[Tensor], Tensor], z: object) -> Tensor:
    """The gate at the numbers z, in float64 on the CPU; raises unless all values are finite."""
    with torch.no_grad():
        points = torch.as_tensor(z, dtype=torch.float64)
        outputs = gate(points)
    if not isinstance(outputs, Tensor) or outputs.shape != points.shape or not bool(torch.isfinite(outputs).all()):
        raise GatelabError(
            f"{getattr(gate, 'name', gate)!r} does not return one finite number per input; give another function"
        )
    return outputs


def check_interval(interval: Any) -> Interval:
    """(low, high), or (-R, R) for a number R, such that powers of z stay in float64."""
    if isinstance(interval, Real):
        interval = (-interval, interval)
    low, high = arrays.check_interval(interval)
    if max(-low, high) > FAR or high - low < NEAR:
        raise GatelabError(
            f"the interval is ({low:g}, {high:g}); give one of {NEAR:g} or more between -{FAR:g} and {FAR:g}"
        )
    return low, high


def to_unit(z: Any, interval: Interval) -> Any:
    """t in [-1, 1] of z in the interval."""
    low, high = interval
    return (z - (low + high) / 2) / ((high - low) / 2)


def from_unit(t: Any, interval: Interval) -> Any:
    """z in the interval of t in [-1, 1]."""
    low, high = interval
    return (low + high) / 2 + (high - low) / 2 * t


def check_degree(degree: Any, most: int = 200) -> int:
    return whole_number("the degree", degree, 0, most)


def numbers(data: Any) -> Array:
    """Pre-activations as a flat array of finite float64."""
    z = finite_array("the array of data", data, instead="leave such rows out").ravel()
    if not z.size:
        raise GatelabError("the data are empty; give pre-activations, such as W @ x + b of a layer")
    return z


def calibrate(data: Any, margin: float = 0.1, symmetric: bool = False) -> Interval:
    """The range of pre-activations with a margin, as the interval for a polynomial.

    Args:
        data: pre-activations, an array or a tensor of any shape.
        margin: the margin on both sides, in half-widths of the range.
        symmetric: whether to return (-R, R).

    Returns:
        (low, high).

    >>> calibrate([-1.0, 3.0], margin=0.5), calibrate([-1.0, 3.0], margin=0.0, symmetric=True)
    ((-2.0, 4.0), (-3.0, 3.0))
    """
    z = numbers(data)
    margin = real_number("the margin", margin, least=0)
    low, high = float(z.min()), float(z.max())
    if symmetric:
        high = max(-low, high)
        low = -high
    if low == high:
        raise GatelabError(f"all pre-activations are {low}; give different ones")
    more = margin * (high - low) / 2
    return low - more, high + more
