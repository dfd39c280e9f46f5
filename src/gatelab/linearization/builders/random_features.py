"""Unbiased random features of the series of an activation: Maclaurin features and TensorSketch.

Both methods draw maps of m features with E[Phi(w).Psi(x)] = p(w.x), p a polynomial close to act on |z| <= radius. The
constant and the linear term are exact and use 1 and d of the m features.

- Random Maclaurin features (Kar and Karnick 2012) make a power of w.x a product of projections on random signs. A
  feature has degree n with probability p_n ~ |a_n| radius^n, which minimizes the variance where |w| |x| = radius.
- TensorSketch (Pham and Pagh 2013) makes a power of w.x from count sketches: the circular convolution of n independent
  ones, by FFT, is a count sketch of the n-fold tensor product. Each degree has a sketch of a size proportional to
  |a_n| radius^n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatelab.errors import GatelabError, check_seed, real_number, whole_number
from gatelab.feedforward import Activation
from gatelab.linearization.builders.least_error import chebyshev
from gatelab.linearization.monomials import Maps
from gatelab.memory import check_memory

_NOTHING = 1e-14  # times (1 + sqrt 2)^degree, the amplification of rounding in the conversion to powers of z
Parts = Callable[[Tensor], list[Tensor]]


@lru_cache(maxsize=32)
def power_terms(
    activation: Activation, radius: float, degree: int
) -> tuple[float | None, float | None, dict[int, float]]:
    """The constant and the linear coefficient, None if zero, and the other coefficients by degree."""
    radius = real_number("radius, which |w.x| does not exceed,", radius, above=0)
    a = np.array(chebyshev(activation, degree, (-radius, radius)).coefficients)
    size = np.abs(a) * radius ** np.arange(len(a))
    a[size < _NOTHING * (1 + math.sqrt(2)) ** degree * size.max()] = 0.0  # zero by parity, up to rounding
    terms = {n: float(value) for n, value in enumerate(a) if value}
    constant, linear = terms.pop(0, None), float(np.round(terms.pop(1, 0.0), 15)) or None
    if not terms:
        raise GatelabError(
            f"{activation.name} is linear to degree {degree}: there is nothing to draw; "
            "use method 'taylor', which is exact"
        )
    return constant, linear, terms


def random_count(m: Any, exact: int, least: int) -> int:
    """The number of random features among m."""
    return whole_number("m", m, exact + least, of=f"features, {exact} of which are exact") - exact


def with_line(constant: float | None, linear: float | None, phi: Parts, psi: Parts, m: int, d: int) -> Maps:
    """Maps with exact features for the constant and the linear term, unless None, followed by random features."""

    def line(rows: Tensor, constant: float | None, linear: float | None) -> list[Tensor]:
        parts = [] if constant is None else [torch.full_like(rows[..., :1], constant)]
        return parts if linear is None else [*parts, linear * rows]

    ones = [None if value is None else 1.0 for value in (constant, linear)]
    return Maps(
        lambda W: torch.cat(line(W, constant, linear) + phi(W), -1),
        lambda X: torch.cat(line(X, *ones) + psi(X), -1),
        m,
        d,
    )


def maclaurin_maps(
    activation: Activation,
    d: int,
    *,
    m: int,
    seed: int = 0,
    radius: float = 1.0,
    degree: int = 10,
) -> Maps:
    """m features, unbiased for the interpolant of this degree of act on |w.x| <= radius."""
    constant, linear, terms = power_terms(activation, radius, degree)
    M = random_count(m, (constant is not None) + d * (linear is not None), 1)
    # Signs of degree two or more, and a copy.
    check_memory(8 * 3 * M * d, f"{M} random features of {d} inputs", "give a smaller m")
    generator = torch.Generator().manual_seed(check_seed(seed))
    sizes = torch.tensor([abs(a) * radius**n for n, a in terms.items()], dtype=torch.float64)
    probabilities = sizes / sizes.sum()
    draws = torch.multinomial(probabilities, M, replacement=True, generator=generator)
    counts = torch.bincount(draws, minlength=len(probabilities)).tolist()
    signs = [
        2.0 * torch.randint(0, 2, (n, count, d), generator=generator, dtype=torch.float64) - 1
        for n, count in zip(terms, counts, strict=True)
    ]
    scales = [a / p / M for a, p in zip(terms.values(), probabilities.tolist(), strict=True)]

    def psi(rows: Tensor) -> list[Tensor]:
        out = []
        for omegas in signs:
            first, *others = omegas.to(rows.device, rows.dtype)
            value = rows @ first.T
            for omega in others:
                value = value * (rows @ omega.T)
            out.append(value)
        return out

    def phi(rows: Tensor) -> list[Tensor]:
        return [scale * value for scale, value in zip(scales, psi(rows), strict=True)]

    return with_line(constant, linear, phi, psi, int(m), d)


class TensorSketch:
    """A random sketch of the power `degree` of rows of d entries: a count sketch into `size` buckets per factor."""

    def __init__(self, degree: int, d: int, size: int, generator: torch.Generator) -> None:
        self.size = size
        self.bucket = torch.randint(0, size, (degree, d), generator=generator)
        self.sign = 2.0 * torch.randint(0, 2, (degree, d), generator=generator).double() - 1

    def __call__(self, rows: Tensor) -> Tensor:
        """(n, d) -> (n, size): the sketch of the n-fold tensor power of every row."""
        waves = []
        for bucket, sign in zip(self.bucket.to(rows.device), self.sign.to(rows.device, rows.dtype), strict=True):
            count = rows.new_zeros(*rows.shape[:-1], self.size).index_add(-1, bucket, rows * sign)
            waves.append(torch.fft.rfft(count))
        return torch.fft.irfft(math.prod(waves[1:], start=waves[0]), n=self.size)


def buckets(count: int, sizes: list[float]) -> list[int]:
    """The buckets of each sketch: at least one, the others in proportion to `sizes`, by largest remainders."""
    spare = count - len(sizes)
    ideal = [spare * size / sum(sizes) for size in sizes]
    whole = [int(v) for v in ideal]
    order = sorted(range(len(sizes)), key=lambda i: whole[i] - ideal[i])
    for i in order[: spare - sum(whole)]:
        whole[i] += 1
    return [1 + v for v in whole]


def tensorsketch_maps(
    activation: Activation,
    d: int,
    *,
    m: int,
    seed: int = 0,
    radius: float = 1.0,
    degree: int = 10,
) -> Maps:
    """m features, unbiased for the interpolant of this degree of act on |w.x| <= radius."""
    constant, linear, terms = power_terms(activation, radius, degree)
    count = random_count(m, (constant is not None) + d * (linear is not None), len(terms))
    sizes = buckets(count, [abs(a) * radius**n for n, a in terms.items()])
    generator = torch.Generator().manual_seed(check_seed(seed))
    sketches = [TensorSketch(n, d, k, generator) for n, k in zip(terms, sizes, strict=True)]

    def psi(rows: Tensor) -> list[Tensor]:
        return [sketch(rows) for sketch in sketches]

    def phi(rows: Tensor) -> list[Tensor]:
        return [a * sketch(rows) for a, sketch in zip(terms.values(), sketches, strict=True)]

    return with_line(constant, linear, phi, psi, int(m), d)
