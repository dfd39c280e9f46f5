"""Maps, and the features of powers: (w.x)^k = phi(w) . psi(x), by distinct monomials or by Kronecker powers.

Symmetric features are the C(d+k-1, k) monomials of degree k, each times the root of its multinomial coefficient, in the
order of their largest index: x_i times a prefix of those of degree k - 1 is the block of index i. Kronecker features
are all d^k products. With linear factors, (g.x)^k (u.x) has the psi of degree k + 1, and its phi is the derivative of
((g + e u).x)^(k+1) in e at 0, divided by k + 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gatelab.linearization.polynomials import Polynomial
from gatelab.memory import check_memory


@dataclass(frozen=True, eq=False)
class Maps:
    """A map of weights and a map of inputs with act(w.x) ~ phi(w) . psi(x).

    Both act on the last dimension and keep dtype and device.

    Attributes:
        phi: (..., d) -> (..., m) of rows w of W.
        psi: (..., d) -> (..., m) of inputs x.
        m: the number of features.
        d: the number of inputs.
    """

    phi: Callable[[Tensor], Tensor] = field(repr=False)
    psi: Callable[[Tensor], Tensor] = field(repr=False)
    m: int
    d: int


KINDS = ("symmetric", "kronecker")


def count(d: int, k: int, kind: str = "symmetric") -> int:
    """The number of features of degree k."""
    if kind == "kronecker":
        return d**k
    return math.comb(d + k - 1, k)


def powers(vectors: Sequence[Tensor], degrees: Sequence[int], kind: str = "symmetric") -> list[Tensor]:
    """psi of increasing degrees of one vector (..., d); for g and q factors, phi of (g.x)^(k - q) times the factors."""
    if kind == "kronecker":
        ones, (g, *others) = vectors[0].new_ones((*vectors[0].shape[:-1], 1)), vectors
        return [products(ones, [g] * (k - len(others)) + others) for k in degrees]
    features, factors = [], frozenset(range(1, len(vectors)))
    for k, level in enumerate(_monomials(vectors, degrees[-1])):
        if k in degrees:
            # The roots of the multinomial coefficients.
            roots = torch.from_numpy(np.sqrt(multiplicities(vectors[0].shape[-1], k)[0])).to(level[factors])
            features.append(level[factors] * roots / math.perm(k, len(vectors) - 1))
    return features


def _monomials(vectors: Sequence[Tensor], top: int) -> Iterator[dict[frozenset[int], Tensor]]:
    """The monomials of g of degree 0 to top and, for every subset of factors, their derivatives along each of them."""
    g = vectors[0]
    factors = range(1, len(vectors))
    subsets = [frozenset(s) for n in range(len(vectors)) for s in combinations(factors, n)]
    level = {s: g.new_zeros((*g.shape[:-1], 1)) for s in subsets}
    level[frozenset()] = g.new_ones((*g.shape[:-1], 1))
    yield level
    for k in range(1, top + 1):
        below, level = level, {}
        for s in subsets:
            # Index by index: x_i times the monomials of degree k - 1 in x_0 .. x_i.
            blocks = []
            for i in range(g.shape[-1]):
                n = math.comb(i + k - 1, k - 1)
                block = g[..., i : i + 1] * below[s][..., :n]
                for j in s:
                    block = block + vectors[j][..., i : i + 1] * below[s - {j}][..., :n]
                blocks.append(block)
            level[s] = torch.cat(blocks, dim=-1)
        yield level


@lru_cache(maxsize=64)
def multiplicities(d: int, k: int) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """The multinomial coefficients, and the exponent of the largest index in each monomial."""
    if k == 0:
        return np.ones(1), np.zeros(1, np.int16)
    before, below = multiplicities(d, k - 1)
    many, runs = [], []
    for i in range(d):
        # Multiplication by x_i raises its exponent to r, and k! / prod(exponents!) by a factor k / r.
        n = math.comb(i + k - 1, k - 1)
        run = np.ones(n, np.int16)
        if k > 1:  # monomials beyond this number contain x_i already
            without = math.comb(i + k - 2, k - 1)
            run[without:] += below[without:n]
        many.append(before[:n] * k / run)
        runs.append(run)
    return np.concatenate(many), np.concatenate(runs)


def products(features: Tensor, vectors: Sequence[Tensor]) -> Tensor:
    """features (x) v (x) ..., row by row."""
    for v in vectors:
        features = (features[..., :, None] * v[..., None, :]).flatten(-2)
    return features


def polynomial_maps(polynomial: Polynomial, d: int, features: str = "symmetric", factors: int = 0) -> Maps:
    """The maps of a polynomial; with factors, phi takes (..., 1 + factors, d), and degrees increase by their number."""
    degrees = [k + factors for k in polynomial.degrees]
    number = sum(count(d, k, features) for k in degrees)

    def raised(vectors: Sequence[Tensor]) -> list[Tensor]:
        # Checked here, since m and the product need no features: all of them, those of a lower degree, and their sum.
        rows = max(1, vectors[0].numel() // max(1, d))
        what = f"degree {degrees[-1]} of {d} inputs by {features} features"
        check_memory(8 * 3 * number * rows, what, "lower the degree, or use product(W, X), which needs no features")
        return powers(vectors, degrees, features)

    def phi(rows: Tensor) -> Tensor:
        parts = raised(list(rows.unbind(-2)) if factors else [rows])
        return torch.cat([polynomial.coefficients[k - factors] * p for k, p in zip(degrees, parts, strict=True)], -1)

    def psi(rows: Tensor) -> Tensor:
        return torch.cat(raised([rows]), dim=-1)

    return Maps(phi, psi, number, d)


def gated_maps(maps: Maps, factors: int) -> Maps:
    """Maps of the gate times linear factors; phi takes (..., 1 + factors, d), and each factor multiplies m by d."""
    if not factors:
        return maps

    def phi(rows: Tensor) -> Tensor:
        gate, *others = rows.unbind(-2)
        return products(maps.phi(gate), others)

    return Maps(phi, lambda rows: products(maps.psi(rows), [rows] * factors), maps.m * maps.d**factors, maps.d)


def gate_product(function: Callable[[Tensor], Tensor], weights: Sequence[Tensor], X: Tensor) -> Tensor:
    """function(X G^T) times X U^T for each factor U."""
    gate, *others = weights
    value = function(X @ gate.mT)
    for u in others:
        value = value * (X @ u.mT)
    return value
