"""What a polynomial costs under encryption: counted on a plan that is carried out, not stated from a formula.

Baby steps and giant steps in the Chebyshev basis (Paterson and Stockmeyer): T_1 .. T_k of the scaled input, then
T_2k, T_4k, ..., and p = q T_g + r by division until less than k is left. Products of two encrypted numbers are counted;
a level is used by each product, and by the product of an encrypted number with a plain one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from gatelab.linearize.polynomials import Polynomial


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
