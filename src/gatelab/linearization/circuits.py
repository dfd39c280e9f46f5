"""Circuits of minimal depth for polynomials and pieces: one evaluation, and one count of its cost.

A product uses one level, sums use none. A polynomial of degree n needs ceil(log2(n + 1)) levels (Bossuat et al.,
EUROCRYPT 2021): with T_1, T_2, T_4, ... of the input t in [-1, 1], p = q T_g + r by division. Scaling to t costs no
level. `PlainMachine` computes with floats and counts; `SealMachine` computes with ciphertexts of exact scales.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from gatelab.arrays import Array
from gatelab.display import Compact
from gatelab.linearization.polynomials import Interval, Polynomial, to_unit

Series = tuple[float, ...]  # coefficients of T_0, T_1, ...
BABIES = (1, 2, 4, 8, 16)  # sums below these degrees are direct: more never pays


@dataclass(frozen=True)
class Cost:
    """The cost of a circuit under encryption, for an input scaled to [-1, 1] before encryption.

    >>> CircuitForm.of(Polynomial.from_powers([0, 0.5, 0.25, 0, -0.01], (-3, 3))).cost
    Cost(levels=3, products=2, baby=1)

    Attributes:
        levels: the levels used by products and coefficients.
        products: the number of products of ciphertexts.
        baby: the number of baby steps with the fewest products.
    """

    levels: int
    products: int
    baby: int


@dataclass(frozen=True)
class Number:
    """A value of a machine (numbers or a ciphertext), the levels used so far, and the scale."""

    value: Any
    level: int = 0
    scale: float = 1.0


class PlainMachine:
    """Floats, with levels and products counted."""

    def __init__(self) -> None:
        self.products = 0

    def product(self, a: Number, b: Number) -> Number:
        """a b, one level below the lower of them."""
        self.products += 1
        return Number(a.value * b.value, max(a.level, b.level) + 1)

    def combination(self, terms: Sequence[tuple[float, Number]], constant: float, level: int, scale: float) -> Number:
        """constant + sum of plain numbers times numbers, at that level; a scale of 0 is the machine's default."""
        needed = max((u.level + 1 for _, u in terms), default=0)
        assert needed <= level, f"a combination of level {needed} was promised at level {level}"
        return Number(constant + sum(c * u.value for c, u in terms), level)

    def add(self, a: Number, b: Number) -> Number:
        """a + b, of one scale."""
        return Number(a.value + b.value, max(a.level, b.level))

    def shift(self, a: Number, constant: float) -> Number:
        """a plus a plain number, at no cost."""
        return Number(a.value + constant, a.level)

    def lower(self, a: Number, level: int) -> Number:
        """The same at a lower level."""
        return Number(a.value, level)

    def partner(self, a: Number, level: int, scale: float) -> float:
        """The scale of another number whose product with a has that level and scale."""
        return scale


def levels_of(degree: int) -> int:
    """The levels of a polynomial: ceil(log2(degree + 1))."""
    return degree.bit_length()


def trim(series: Sequence[float] | Array) -> Array:
    """The series without trailing zeros; at least one coefficient stays."""
    c = np.asarray(series, dtype=np.float64)
    return np.append(c[:1], np.trim_zeros(c[1:], "b"))


class ChebyshevCircuit:
    """sum_k c_k T_k(t) on a machine; sums of degree below `baby` are direct where the level allows it."""

    def __init__(self, machine: PlainMachine, t: Number, baby: int) -> None:
        self.machine, self.baby, self.known = machine, baby, {1: t}
        self.start = t.level

    def basis(self, k: int) -> Number:
        """T_{a+b} = 2 T_a T_b - T_{a-b}, a the greatest power of two below k: ceil(log2 k) levels."""
        if k not in self.known:
            a = 1 << ((k - 1).bit_length() - 1)
            product = self.machine.product(self.basis(a), self.basis(k - a))
            doubled = self.machine.add(product, product)
            if 2 * a == k:
                self.known[k] = self.machine.shift(doubled, -1.0)
            else:
                terms = [(-1.0, self.basis(2 * a - k))]
                negative = self.machine.combination(terms, 0.0, doubled.level, doubled.scale)
                self.known[k] = self.machine.add(doubled, negative)
        return self.known[k]

    def series(self, series: Sequence[float]) -> Number:
        """The sum at the least level."""
        c = trim(series)
        return self.total(c, self.start + levels_of(len(c) - 1))

    def total(self, series: Sequence[float] | Array, level: int, scale: float = 0.0) -> Number:
        """The sum at that level: direct where it is short, else q T_g + r."""
        c = trim(series)
        degree = len(c) - 1
        used = [k for k in range(1, degree + 1) if c[k]]
        free = level - self.start - 1
        if degree <= 1 or (degree < self.baby and all((k - 1).bit_length() <= free for k in used)):
            return self.machine.combination([(float(c[k]), self.basis(k)) for k in used], float(c[0]), level, scale)
        g = 1 << (degree.bit_length() - 1)
        # T_{g+j} = 2 T_g T_j - T_{g-j}: the quotient is twice the part above g, mirrored in the remainder.
        quotient, remainder = 2 * c[g:], c[:g].copy()
        quotient[0] = c[g]
        remainder[g - np.arange(1, degree - g + 1)] -= c[g + 1 :]
        giant = self.basis(g)
        if len(trim(quotient)) == 1:
            top = self.machine.combination([(float(quotient[0]), giant)], 0.0, level, scale)
        else:
            above = self.total(quotient, level - 1, self.machine.partner(giant, level, scale))
            top = self.machine.product(above, giant)
        if not np.any(remainder[1:]):
            return self.machine.shift(top, float(remainder[0]))
        return self.machine.add(top, self.total(remainder, level, scale))


@dataclass(frozen=True)
class FormTerm:
    """left(t) right(t); no factor is a constant."""

    left: Series
    right: Series


@dataclass(frozen=True)
class CircuitForm(Compact):
    """base(t) + sum left(t) right(t), t in [-1, 1] over the interval; a polynomial is a base alone."""

    method: str
    interval: Interval
    base: Series
    terms: tuple[FormTerm, ...] = ()

    @classmethod
    def of(cls, polynomial: Polynomial) -> CircuitForm:
        """The circuit of a polynomial."""
        return cls(polynomial.method, polynomial.interval, polynomial.chebyshev)

    @property
    def degree(self) -> int:
        """The highest degree of the base and the products."""
        return max(len(self.base) - 1, *(len(term.left) + len(term.right) - 2 for term in self.terms), 0)

    def __call__(self, z: Any) -> Array:
        """The values at the numbers z, equal to those of the circuit up to rounding."""
        t = to_unit(np.asarray(z, dtype=np.float64), self.interval)
        with np.errstate(over="ignore", invalid="ignore"):
            return self.combined(lambda series: chebyshev.chebval(t, series))

    def combined(self, values_of: Callable[[Series], Any]) -> Array:
        """The values, with `values_of` evaluating a series of t."""
        total = np.asarray(values_of(self.base), dtype=np.float64)
        for term in self.terms:
            total = total + values_of(term.left) * values_of(term.right)
        return total

    def run(self, machine: PlainMachine, t: Number, baby: int | None = None) -> Number:
        """Evaluate on a machine with the fewest levels, and the fewest products unless `baby` is given."""
        circuit = ChebyshevCircuit(machine, t, baby or self.cost.baby)
        if not self.terms:
            return circuit.series(self.base)
        factors = [(circuit.series(term.left), circuit.series(term.right)) for term in self.terms]
        level = max(number.level for pair in factors for number in pair)
        lowered = [[machine.lower(number, level) for number in pair] for pair in factors]
        total = reduce(machine.add, [machine.product(left, right) for left, right in lowered])
        degree = len(trim(self.base)) - 1
        if degree > 0:
            level = max(total.level, t.level + levels_of(degree))
            return machine.add(machine.lower(total, level), circuit.total(self.base, level, total.scale))
        if self.base[0]:
            return machine.shift(total, float(self.base[0]))
        return total

    @cached_property
    def cost(self) -> Cost:
        """Levels and products of the cheapest circuit, by running each on plain numbers."""
        costs = []
        for baby in BABIES:
            machine = PlainMachine()
            costs.append(Cost(self.run(machine, Number(0.25), baby).level, machine.products, baby))
        return min(costs, key=lambda c: (c.levels, c.products, c.baby))
