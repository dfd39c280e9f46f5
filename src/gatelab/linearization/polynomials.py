"""Whatever a user calls an activation, as a gate and how many linear factors multiply it.

What a polynomial costs under encryption: counted on a plan that is carried out, not stated from a formula.

Baby steps and giant steps in the Chebyshev basis (Paterson and Stockmeyer): T_1 .. T_k of the scaled input, then
T_2k, T_4k, ..., and p = q T_g + r by division until less than k is left. Products of two encrypted numbers are counted;
a level is used by each product, and by the product of an encrypted number with a plain one.

A polynomial that stands for an activation: both bases, the interval it was made for, and where it came from.

Coefficients are kept in powers of z and in Chebyshev polynomials of the interval, each converted from the other in
rational arithmetic: from one basis to the other floats would lose (1 + sqrt 2)^degree in accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor
from torch.nn import functional

from gatelab.display import one_line
from gatelab.errors import GatelabError, unknown_name
from gatelab.feedforward import units
from gatelab.feedforward.definition import ModuleUnit, Unit
from gatelab.feedforward.gates import Activation, activation, activations

Given = str | Activation | Unit | Callable[[Tensor], Tensor]


def _gelu_tanh(z: Tensor) -> Tensor:
    return functional.gelu(z, approximate="tanh")


GELU_TANH = Activation("gelu-tanh", _gelu_tanh, growth=1)


def meant(given: Given) -> tuple[Activation, int]:
    """The gate, and the number of linear factors: act(g.x) (u.x) has one.

    >>> meant("gelu")[0].name, meant("swiglu")[1], meant("bilinear")[0].name, meant(torch.sin)[0].name
    ('gelu', 1, 'identity', 'sin')
    """
    if isinstance(given, ModuleUnit):
        raise GatelabError(f"the unit {given.name!r} is a class whose formula is not known; give its activation")
    if isinstance(given, Unit):
        if type(given) is not Unit:
            raise GatelabError(f"the unit {given.name!r} is a function of several maps; give its gate as an activation")
        return given.gate, given.factors
    if isinstance(given, type):
        raise GatelabError(f"{given.__name__} is a class; give a function of one tensor, or a module that is one")
    if not isinstance(given, str):
        return activation(given), 0
    name = given.lower()
    if name in ("gelu-tanh", "gelu_tanh"):
        return GELU_TANH, 0
    if name in activations():
        return activation(name), 0
    gated = {u.name: u for u in units()}
    gated["reglu"] = gated["glu"]
    if name in gated:
        return meant(gated[name])
    raise unknown_name("activation or unit", given, {*activations(), "gelu-tanh", *gated})


def values(gate: Callable[[Tensor], Tensor], z: object) -> Tensor:
    """The gate at the numbers z, in float64 on the CPU, checked."""
    with torch.no_grad():
        at = torch.as_tensor(z, dtype=torch.float64)
        found = gate(at)
    if not isinstance(found, Tensor) or found.shape != at.shape or not bool(torch.isfinite(found).all()):
        raise GatelabError(
            f"the activation {getattr(gate, 'name', gate)!r} gives no finite number for each of its inputs in "
            f"[{at.min().item():.4g}, {at.max().item():.4g}]; give a function of one tensor that acts on each entry"
        )
    return found


@dataclass(frozen=True)
class Cost:
    """`depth`: products of encrypted numbers one after the other; `levels`: with those by plain numbers; `products`:
    of encrypted numbers in all; `baby`: k."""

    depth: int
    levels: int
    products: int
    baby: int


@dataclass(frozen=True)
class _Number:
    value: Any
    depth: int
    levels: int


class _Counter:
    def __init__(self) -> None:
        self.products = 0

    def times(self, a: _Number, b: _Number) -> _Number:
        self.products += 1
        return _Number(a.value * b.value, max(a.depth, b.depth) + 1, max(a.levels, b.levels) + 1)


def cost(polynomial: Polynomial) -> Cost:
    """The cheapest of the plans: least depth first, then fewest products.

    >>> cost(Polynomial.from_powers([0, 0.5, 0.25, 0, -0.01], (-3, 3)))
    Cost(depth=2, levels=4, products=2, baby=1)
    """
    plans = [evaluate(polynomial, 0.0, 2**j)[1] for j in range(8) if 2**j <= 2 * max(polynomial.degree, 1)]
    return min(plans, key=lambda c: (c.depth, c.levels, c.products, c.baby))


def evaluate(polynomial: Polynomial, z: Any, baby: int) -> tuple[Any, Cost]:
    """p(z) by the plan with that k, and what it cost."""
    low, high = polynomial.interval
    count = _Counter()
    t = (np.asarray(z, dtype=np.float64) - (low + high) / 2) / ((high - low) / 2)
    known = {1: _Number(t, 0, 1)}  # to scale the input is a product with a plain number

    def basis(k: int) -> _Number:
        """T_{a+b} = 2 T_a T_b - T_{a-b}, a the greatest power of two below k: depth ceil(log2 k)."""
        if k not in known:
            a = 1 << ((k - 1).bit_length() - 1)
            left, right = basis(a), basis(k - a)
            made = count.times(left, right)
            less = basis(2 * a - k).value if 2 * a != k else 1.0
            known[k] = _Number(2 * made.value - less, made.depth, made.levels)
        return known[k]

    def inside(c: np.ndarray) -> _Number:
        c = chebyshev.chebtrim(c)
        degree = len(c) - 1
        if degree < max(baby, 2) or degree == baby:
            terms = [basis(k) for k in range(1, degree + 1) if c[k]]
            value = c[0] + sum(c[k] * basis(k).value for k in range(1, degree + 1) if c[k])
            depth, levels = (max((getattr(u, w) for u in terms), default=0) for w in ("depth", "levels"))
            return _Number(value + 0 * t, depth, levels + bool(terms))
        g = 1 << (degree.bit_length() - 1)
        quotient, rest = chebyshev.chebdiv(c, np.eye(1, g + 1, g)[0])
        above, below = inside(quotient), inside(rest)
        # A constant times T_g is a product with a plain number.
        if len(chebyshev.chebtrim(quotient)) == 1:
            high_part = _Number(quotient[0] * basis(g).value, basis(g).depth, basis(g).levels + 1)
        else:
            high_part = count.times(above, basis(g))
        return _Number(
            high_part.value + below.value, max(high_part.depth, below.depth), max(high_part.levels, below.levels)
        )

    found = inside(np.asarray(polynomial.chebyshev))
    return found.value, Cost(found.depth, found.levels, count.products, baby)


Interval = tuple[float, float]
NEAR, FAR = 1e-6, 1e6  # how close the ends of an interval may be, and how far from 0: beyond, powers leave float64


@dataclass(frozen=True)
class Polynomial:
    """p(z) = sum_k coefficients[k] z^k = sum_k chebyshev[k] T_k(t), t in [-1, 1] over the interval.

    >>> p = Polynomial.from_powers([0, 0.5, 0.25], (-2, 2))
    >>> p.chebyshev, p.degree, float(p(3.0))
    ((0.5, 1.0, 0.5), 2, 3.75)
    """

    coefficients: tuple[float, ...]
    chebyshev: tuple[float, ...]
    interval: Interval
    activation: str = ""
    method: str = ""
    margin: float = 0.0

    def __repr__(self) -> str:
        return one_line(
            self,
            f"{self.method or 'given'} of {self.activation or 'a function'}, degree {self.degree}, on "
            f"[{self.interval[0]:g}, {self.interval[1]:g}]",
        )

    def __post_init__(self) -> None:
        if not self.coefficients or len(self.coefficients) != len(self.chebyshev):
            raise GatelabError(
                f"{len(self.coefficients)} coefficients in powers and {len(self.chebyshev)} in Chebyshev polynomials; "
                "give one of each for every degree"
            )
        if not all(map(math.isfinite, (*self.coefficients, *self.chebyshev))):
            raise GatelabError("a coefficient of the polynomial is not finite; lower the degree or the interval")
        check_interval(self.interval)

    @classmethod
    def from_powers(cls, coefficients: Iterable[Any], interval: Interval, **about: Any) -> Polynomial:
        """Of the coefficients of 1, z, z^2, ..."""
        given = tuple(float(a) for a in coefficients)
        interval = check_interval(interval)
        return cls(given, _to_chebyshev(given, interval), interval, **about)

    @classmethod
    def from_chebyshev(cls, coefficients: Iterable[Any], interval: Interval, **about: Any) -> Polynomial:
        """Of the coefficients of T_0, T_1, ... of the interval."""
        given = tuple(float(c) for c in coefficients)
        interval = check_interval(interval)
        return cls(_to_powers(given, interval), given, interval, **about)

    @property
    def degree(self) -> int:
        return max((k for k, a in enumerate(self.coefficients) if a), default=0)

    @property
    def degrees(self) -> tuple[int, ...]:
        """The powers whose coefficients are not zero: those that need features."""
        return tuple(k for k, a in enumerate(self.coefficients) if a) or (0,)

    def __call__(self, z: Any) -> Any:
        """The value at numbers, arrays or tensors, by Clenshaw's recurrence in the Chebyshev basis."""
        if not isinstance(z, Tensor):
            z = np.asarray(z, dtype=np.float64)
        low, high = self.interval
        t = (z - (low + high) / 2) / ((high - low) / 2)
        after = later = 0 * t
        for c in self.chebyshev[:0:-1]:
            after, later = 2 * t * after - later + c, after
        return t * after - later + self.chebyshev[0]

    def derivative(self, z: Any) -> Any:
        """p'(z)."""
        made = np.polynomial.chebyshev.chebder(self.chebyshev) * 2 / (self.interval[1] - self.interval[0])
        return Polynomial.from_chebyshev(made, self.interval)(z)

    def on(self, interval: Interval, margin: float = 0.0) -> Polynomial:
        """The same function of z, described on another interval."""
        return replace(
            Polynomial.from_powers(self.coefficients, interval),
            coefficients=self.coefficients,
            activation=self.activation,
            method=self.method,
            margin=margin,
        )

    def error(self, function: Callable[[Tensor], Tensor], points: int = 20001) -> float:
        """The largest error on an even grid over the interval: measured, from below; `bounds` proves one from above."""
        z = torch.linspace(*self.interval, points, dtype=torch.float64)
        return float((function(z) - self(z)).abs().max())


def check_interval(interval: Any) -> Interval:
    """(low, high), or R for (-R, R)."""
    try:
        low, high = (-float(interval), float(interval)) if np.ndim(interval) == 0 else map(float, interval)
    except (TypeError, ValueError):
        raise GatelabError(f"the interval is {interval!r}; give (low, high), or R for (-R, R)") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise GatelabError(f"the interval is ({low}, {high}); give two finite numbers, the smaller first")
    if max(-low, high) > FAR or high - low < NEAR:
        raise GatelabError(
            f"the interval is ({low:g}, {high:g}); its ends must lie within -{FAR:g} and {FAR:g} and be {NEAR:g} apart "
            "or more: scale the pre-activations"
        )
    return low, high


def check_degree(degree: Any, most: int = 200) -> int:
    if isinstance(degree, bool) or not hasattr(degree, "__index__") or not 0 <= int(degree) <= most:
        raise GatelabError(f"the degree is {degree!r}; give a whole number from 0 to {most}")
    return int(degree)


def _to_powers(chebyshev: Sequence[float], interval: Interval) -> tuple[float, ...]:
    """T_0 = 1, T_1 = t, T_{k+1} = 2 t T_k - T_{k-1} with t = (z - c) / h, exactly, rounded at the end."""
    low, high = map(Fraction, interval)
    c, h = (low + high) / 2, (high - low) / 2
    total = [Fraction(0)] * len(chebyshev)
    before, now = [Fraction(0)], [Fraction(1)]
    for k, a in enumerate(map(Fraction, chebyshev)):
        for i, v in enumerate(now):
            total[i] += a * v
        factor = (1 if k == 0 else 2) / h
        following = [Fraction(0)] * (len(now) + 1)
        for i, v in enumerate(now):
            following[i + 1] += factor * v
            following[i] -= factor * c * v
        for i, v in enumerate(before if k else ()):
            following[i] -= v
        before, now = now, following
    return _rounded(total, interval)


def _to_chebyshev(powers: Sequence[float], interval: Interval) -> tuple[float, ...]:
    """Horner's rule in the Chebyshev basis, z = c + h t and t T_k = (T_{k+1} + T_{|k-1|}) / 2, exactly."""
    low, high = map(Fraction, interval)
    c, h = (low + high) / 2, (high - low) / 2
    total = [Fraction(0)] * len(powers)
    for a in map(Fraction, reversed(powers)):
        following = [c * v for v in total]
        for k, v in enumerate(total):
            if not v:
                continue
            for i in (k + 1, abs(k - 1)):
                following[i] += h * v / 2
        following[0] += a
        total = following
    return _rounded(total, interval)


def _rounded(exact: Sequence[Fraction], interval: Interval) -> tuple[float, ...]:
    try:
        return tuple(map(float, exact))
    except OverflowError:
        raise GatelabError(
            f"the coefficients of degree {len(exact) - 1} on ({interval[0]:g}, {interval[1]:g}) leave float64; lower "
            "the degree or change the interval"
        ) from None
