"""A polynomial of w.x as maps: features of every power that it has."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.linearize.maps import Maps
from gatelab.linearize.monomials import blocks, check_count, check_kind, count, powers, symmetric
from gatelab.linearize.polynomials import Polynomial


def lifted(polynomial: Polynomial, d: int, features: str = "symmetric", factors: int = 0) -> Maps:
    """phi holds the coefficients, as in the paper; psi holds the powers of x alone.

    With factors, phi takes (..., 1 + factors, d), the gate's row first, and degrees rise by their number.

    >>> p = Polynomial.from_powers([0, 0.5, 0.25], (-2, 2))
    >>> maps = lifted(p, 3)
    >>> w, x = torch.tensor([1.0, 0, 2]), torch.tensor([0.5, 1, 1])
    >>> maps.m, float(maps.phi(w) @ maps.psi(x)), float(p(w @ x))
    (9, 2.8125, 2.8125)
    """
    check_kind(features)
    degrees = polynomial.degrees
    number = sum(count(d, k + factors, features) for k in degrees)

    def refuse(rows: Tensor) -> None:
        # Asked when features are wanted: to know m, or the product, none are needed.
        check_count(d, degrees[-1] + factors, number, features, rows.numel() // max(1, d * (factors + 1)))

    def raised(vectors: Sequence[Tensor]) -> list[Tensor]:
        wanted = [k + factors for k in degrees]
        return symmetric(vectors, wanted) if features == "symmetric" else [powers(vectors, k, features) for k in wanted]

    def phi(rows: Tensor) -> Tensor:
        refuse(rows)
        made = raised(list(rows.unbind(-2)) if factors else [rows])
        return torch.cat([polynomial.coefficients[k] * part for k, part in zip(degrees, made, strict=True)], dim=-1)

    def psi(rows: Tensor) -> Tensor:
        refuse(rows)
        return torch.cat(raised([rows]), dim=-1)

    return Maps(phi, psi, number, d)


def product(polynomial: Polynomial, weights: Sequence[Tensor], X: Tensor, chunk: int) -> Tensor:
    """sum of the products of all symmetric features of X (N, d) and of n rows, a block of them at a time.

    Rows and blocks are such that none holds more than about `chunk` numbers.
    """
    d, factors = X.shape[1], len(weights) - 1
    out = X.new_zeros((len(X), len(weights[0])))
    for k in polynomial.degrees:
        degree = k + factors
        below = count(d, degree - 1) if degree else 1
        if below > chunk:
            raise GatelabError(
                f"degree {degree} of {d} inputs needs {below} features of the degree below at once, chunk is {chunk}; "
                "give a larger chunk, or leave features=True out: the product of a polynomial needs none"
            )
        rows = max(1, min(chunk // below, int(chunk**0.5)))
        for i in range(0, len(X), rows):
            for j in range(0, len(weights[0]), rows):
                pair = ([X[i : i + rows]], [w[j : j + rows] for w in weights])
                for psi, phi in blocks(pair, degree, chunk // rows):
                    out[i : i + rows, j : j + rows].addmm_(psi, phi.T, alpha=polynomial.coefficients[k])
    return out


def evaluate(polynomial: Polynomial, weights: Sequence[Tensor], X: Tensor, chunk: int) -> Tensor:
    """The same without features, p(x.g) (x.u) ..., rows of X such that no part holds more than `chunk` numbers."""
    rows = max(1, chunk // max(1, len(weights[0])))
    out = X.new_empty((len(X), len(weights[0])))
    for i in range(0, len(X), rows):
        part = X[i : i + rows]
        value = polynomial(part @ weights[0].T)
        for u in weights[1:]:
            value = value * (part @ u.T)
        out[i : i + rows] = value
    return out
