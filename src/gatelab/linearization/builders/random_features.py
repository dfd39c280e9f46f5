"""Unbiased random features: E[Phi(w).Psi(x)] = p(w.x), p a polynomial close to act on |w.x| <= radius.

Maclaurin features (Kar and Karnick 2012) make a power of w.x a product of projections on random signs; degree n has
probability p_n ~ |a_n| radius^n. TensorSketch (Pham and Pagh 2013) makes it from n count sketches, whose circular
convolution by FFT is a count sketch of the n-fold tensor product. The constant and the linear term are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial, reduce

import numpy as np
import torch
from torch import Tensor

from gatelab.errors import GatelabError, check_seed, real_number, whole_number
from gatelab.feedforward import Activation
from gatelab.linearization.builders.least_error import chebyshev
from gatelab.linearization.monomials import Maps
from gatelab.memory import check_memory

_NOTHING = 1e-14  # times (1 + sqrt 2)^degree, the amplification of rounding in the conversion to powers of z
Feature = Callable[[Tensor], Tensor]
Draw = Callable[[dict[int, float], int, torch.Generator], list[tuple[float, Feature]]]


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
        raise GatelabError(f"{activation.name} is linear, with nothing to draw; use method 'taylor', which is exact")
    return constant, linear, terms


def random_maps(
    activation: Activation, d: int, m: int, seed: int, radius: float, degree: int, draw: Draw, least: int | None = None
) -> Maps:
    """Exact features of the constant and the linear term, then those that `draw` makes of the others, with factors."""
    constant, linear, terms = power_terms(activation, radius, degree)
    features: list[tuple[float, Feature]] = []
    if constant is not None:
        features.append((constant, lambda rows: torch.ones_like(rows[..., :1])))
    if linear is not None:
        features.append((linear, lambda rows: rows))
    exact = (constant is not None) + d * (linear is not None)
    m = whole_number("m", m, exact + (least or len(terms)), of=f"features, {exact} of which are exact")
    features += draw(terms, m - exact, torch.Generator().manual_seed(check_seed(seed)))
    return Maps(
        lambda W: torch.cat([factor * feature(W) for factor, feature in features], -1),
        lambda X: torch.cat([feature(X) for _, feature in features], -1),
        m,
        d,
    )


def maclaurin_maps(
    activation: Activation, d: int, *, m: int, seed: int = 0, radius: float = 1.0, degree: int = 10
) -> Maps:
    """m features, unbiased for the interpolant of this degree of act on |w.x| <= radius."""

    def draw(terms: dict[int, float], count: int, generator: torch.Generator) -> list[tuple[float, Feature]]:
        # Signs of degree two or more, and a copy.
        check_memory(8 * 3 * count * d, f"{count} random features of {d} inputs", "give a smaller m")
        sizes = torch.tensor([abs(a) * radius**n for n, a in terms.items()], dtype=torch.float64)
        shares = sizes / sizes.sum()
        numbers = torch.multinomial(shares, count, replacement=True, generator=generator).bincount(minlength=len(terms))
        features = []
        for (n, a), share, number in zip(terms.items(), shares.tolist(), numbers.tolist(), strict=True):
            signs = 2.0 * torch.randint(0, 2, (n, number, d), generator=generator, dtype=torch.float64) - 1
            features.append((a / share / count, partial(projections, signs)))
        return features

    return random_maps(activation, d, m, seed, radius, degree, draw, least=1)


def projections(signs: Tensor, rows: Tensor) -> Tensor:
    """Products of projections of the rows on the signs (n, count, d)."""
    first, *others = (rows @ omega.T for omega in signs.to(rows.device, rows.dtype))
    return reduce(torch.mul, others, first)


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
    activation: Activation, d: int, *, m: int, seed: int = 0, radius: float = 1.0, degree: int = 10
) -> Maps:
    """m features, unbiased for the interpolant of this degree of act on |w.x| <= radius."""

    def draw(terms: dict[int, float], count: int, generator: torch.Generator) -> list[tuple[float, Feature]]:
        sizes = buckets(count, [abs(a) * radius**n for n, a in terms.items()])
        return [(a, TensorSketch(n, d, size, generator)) for (n, a), size in zip(terms.items(), sizes, strict=True)]

    return random_maps(activation, d, m, seed, radius, degree, draw)
