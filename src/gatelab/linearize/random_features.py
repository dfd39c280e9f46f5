"""What unbiased random features share: the series they are drawn from, and the part of it that needs no chance.

Each of the three kinds (`maclaurin`, `sketch`, `fourier`) draws maps of m features whose product has the expectation

    E[Phi(w).Psi(x)] = p(w.x)        p a finite series that stands for act on |z| <= radius

The distance between p and act is no matter of chance: `Terms.bias` is its largest value on a grid. Constant and linear
term are exact, with 1 and d features that count among the m; what is drawn is the rest. Each module has `variance`,
in closed form, for every pair of a row of W and an input of X.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatelab.errors import GatelabError, check_seed
from gatelab.linearize.minimax import chebyshev
from gatelab.units import Activation

_NOTHING = 1e-14  # times (1 + sqrt 2)^degree, by which powers of z magnify rounding in Chebyshev polynomials


@dataclass(frozen=True)
class Terms:
    """p(z) = constant + linear z + sum_n coefficients[n] z^degrees[n]; `exact`: the linear term is not drawn."""

    d: int
    constant: float
    linear: float
    degrees: tuple[int, ...]
    coefficients: tuple[float, ...]
    radius: float
    bias: float
    exact: bool

    @property
    def head(self) -> int:
        """How many features are not drawn."""
        return (1 if self.constant else 0) + (self.d if self.exact else 0)

    def drawn(self, m: int, least: int = 1) -> int:
        """How many of m features are left to chance."""
        if isinstance(m, bool) or not isinstance(m, int | np.integer) or m < self.head + least:
            raise GatelabError(
                f"m is {m!r}; give {self.head + least} or more: {self.head} features hold the constant and linear part "
                f"exactly, and {least} or more are drawn"
            )
        return int(m) - self.head

    def rest(self, z: Tensor) -> Tensor:
        """What the drawn features estimate."""
        return sum((a * z**n for n, a in zip(self.degrees, self.coefficients, strict=True)), torch.zeros_like(z))

    def head_phi(self, W: Tensor) -> list[Tensor]:
        ones = torch.full_like(W[..., :1], self.constant)
        return ([ones] if self.constant else []) + ([self.linear * W] if self.exact else [])

    def head_psi(self, X: Tensor) -> list[Tensor]:
        return ([torch.ones_like(X[..., :1])] if self.constant else []) + ([X] if self.exact else [])


@lru_cache(maxsize=32)
def terms(activation: Activation, d: int, radius: float, degree: int, exact_linear: bool) -> Terms:
    """The interpolant of act at Chebyshev points of [-radius, radius], in powers of z.

    >>> from gatelab.units import activation
    >>> p = terms(activation("gelu"), 16, 1.0, 10, True)
    >>> p.degrees, p.linear, p.head, p.bias < 1e-6
    ((2, 4, 6, 8, 10), 0.5, 16, True)
    """
    if not (math.isfinite(radius) and radius > 0):
        raise GatelabError(f"radius is {radius!r}; give a positive number that |w.x| does not exceed")
    polynomial = chebyshev(activation, degree, (-float(radius), float(radius)))
    found = np.array(polynomial.coefficients)
    size = np.abs(found) * radius ** np.arange(len(found))
    found[size < _NOTHING * (1 + math.sqrt(2)) ** degree * size.max()] = 0.0  # what parity makes vanish
    found = np.concatenate([found, np.zeros(max(0, 2 - len(found)))])
    linear = float(np.round(found[1], 15))
    exact = bool(exact_linear and linear)
    first = 2 if exact or not linear else 1
    kept = [n for n in range(first, len(found)) if found[n]]
    if not kept:
        raise GatelabError(
            f"{activation.name} is linear to degree {degree}: there is nothing to draw; "
            "use method 'taylor', which is exact"
        )
    return Terms(
        d,
        float(found[0]),
        linear,
        tuple(kept),
        tuple(float(found[n]) for n in kept),
        float(radius),
        float(polynomial.error(activation)),
        exact,
    )


def dice(seed: Any) -> torch.Generator:
    """A generator of its own for every map that is drawn."""
    return torch.Generator().manual_seed(check_seed(seed))


def moments(W: Tensor, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """z = w.x, |w|^2 |x|^2 and sum_i w_i^2 x_i^2 of every pair, each (rows of W, rows of X)."""
    w2, x2 = W.square(), X.square()
    return W @ X.T, w2.sum(1)[:, None] * x2.sum(1), w2 @ x2.T
