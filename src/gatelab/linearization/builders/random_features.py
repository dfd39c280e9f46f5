"""Unbiased random features of the series of an activation: Maclaurin features and TensorSketch.

Both draw maps of m features whose product has the expectation

    E[Phi(w).Psi(x)] = p(w.x)        p the interpolant of act at Chebyshev points of |z| <= radius

The constant and the linear term are exact, with 1 and d features that count among the m; what is drawn is the rest.

Random Maclaurin features (Kar and Karnick, AISTATS 2012) make a power of w.x a product of random projections. For signs
omega_1 .. omega_n, independent and even, E[prod_j (omega_j.w)(omega_j.x)] = (w.x)^n. A feature draws its degree n with
probability p_n ~ |a_n| radius^n, which has the least variance where |w| |x| = radius, and is that product times
a_n / p_n.

TensorSketch (Pham and Pagh, KDD 2013) makes a power of w.x from count sketches, multiplied by FFT. A count sketch
throws entry i of x, with a sign, into one of k buckets. The circular convolution of n independent ones is a count
sketch of the n-fold tensor product, made in n FFTs and never in d^n entries. Degrees have sketches of their own, sized
like |a_n| radius^n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatelab.errors import GatelabError, check_seed, real_number, whole_number
from gatelab.feedforward import Activation
from gatelab.linearization.builders.uniform import chebyshev
from gatelab.linearization.monomials import Maps
from gatelab.memory import check_memory

_NOTHING = 1e-14  # times (1 + sqrt 2)^degree, by which powers of z magnify rounding in Chebyshev polynomials
Parts = Callable[[Tensor], list[Tensor]]


@lru_cache(maxsize=32)
def power_terms(
    activation: Activation, radius: float, degree: int, exact_linear: bool
) -> tuple[float | None, float | None, dict[int, float]]:
    """The constant and the linear coefficient that are exact, None where there is none, and those that are drawn.

    >>> from gatelab.feedforward import activation
    >>> constant, linear, drawn = power_terms(activation("gelu"), 1.0, 10, True)
    >>> constant, linear, list(drawn)
    (None, 0.5, [2, 4, 6, 8, 10])
    """
    radius = real_number("radius, which |w.x| does not exceed,", radius, above=0)
    a = np.array(chebyshev(activation, degree, (-radius, radius)).coefficients)
    size = np.abs(a) * radius ** np.arange(len(a))
    a[size < _NOTHING * (1 + math.sqrt(2)) ** degree * size.max()] = 0.0  # what parity makes vanish
    terms = {n: float(value) for n, value in enumerate(a) if value}
    constant, linear = terms.pop(0, None), float(np.round(terms.get(1, 0.0), 15)) or None
    if exact_linear or linear is None:
        terms.pop(1, None)
    else:
        linear = None
    if not terms:
        raise GatelabError(
            f"{activation.name} is linear to degree {degree}: there is nothing to draw; "
            "use method 'taylor', which is exact"
        )
    return constant, linear, terms


def dice(seed: Any) -> torch.Generator:
    """A generator of its own for every map that is drawn."""
    return torch.Generator().manual_seed(check_seed(seed))


def count_drawn(m: Any, exact: int, least: int) -> int:
    """How many of m features are drawn beside those that are exact."""
    return whole_number("m", m, exact + least, of=f"features, {exact} of which are exact") - exact


def beside_line(constant: float | None, linear: float | None, phi: Parts, psi: Parts, m: int, d: int) -> Maps:
    """Maps of a constant and a linear term, each with features of its own unless it is None, and of what is drawn."""

    def all_phi(W: Tensor) -> Tensor:
        parts = [] if constant is None else [torch.full_like(W[..., :1], constant)]
        parts += [] if linear is None else [linear * W]
        return torch.cat(parts + phi(W), -1)

    def all_psi(X: Tensor) -> Tensor:
        parts = [] if constant is None else [torch.ones_like(X[..., :1])]
        parts += [] if linear is None else [X]
        return torch.cat(parts + psi(X), -1)

    return Maps(all_phi, all_psi, m, d)


def maclaurin_maps(
    activation: Activation,
    d: int,
    *,
    m: int,
    seed: int = 0,
    radius: float = 1.0,
    degree: int = 10,
    exact_linear: bool = True,
) -> Maps:
    """m features in all, unbiased for the degree's interpolant of act on |w.x| <= radius.

    >>> from gatelab.feedforward import activation
    >>> maps = maclaurin_maps(activation("gelu"), 16, m=256)
    >>> maps.phi(torch.ones(3, 16)).shape
    torch.Size([3, 256])
    """
    constant, linear, terms = power_terms(activation, radius, degree, exact_linear)
    M = count_drawn(m, (constant is not None) + d * (linear is not None), 1)
    # Signs of degree two or more, drawn as one array and scaled in another.
    check_memory(8 * 3 * M * d, f"a drawing of {M} features of {d} inputs", "give a smaller m")
    generator = dice(seed)
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

    return beside_line(constant, linear, phi, psi, int(m), d)


@dataclass(frozen=True, eq=False)
class TensorSketch:
    """n count sketches of d entries into k buckets: `bucket` and `sign`, each (n, d)."""

    bucket: Tensor
    sign: Tensor
    size: int

    @staticmethod
    def drawn(degree: int, d: int, size: int, generator: torch.Generator) -> TensorSketch:
        """A sketch of the power `degree` of rows of d entries."""
        bucket = torch.randint(0, size, (degree, d), generator=generator)
        sign = 2.0 * torch.randint(0, 2, (degree, d), generator=generator).double() - 1
        return TensorSketch(bucket, sign, size)

    def __call__(self, rows: Tensor) -> Tensor:
        """(n, d) -> (n, size): the sketch of the tensor power of every row."""
        waves = []
        for bucket, sign in zip(self.bucket.to(rows.device), self.sign.to(rows.device, rows.dtype), strict=True):
            count = rows.new_zeros(*rows.shape[:-1], self.size).index_add(-1, bucket, rows * sign)
            waves.append(torch.fft.rfft(count))
        return torch.fft.irfft(math.prod(waves[1:], start=waves[0]), n=self.size)


def buckets(count: int, sizes: list[float]) -> list[int]:
    """How many of `count` buckets each sketch has: one at least, the others in proportion, largest remainders first.

    >>> buckets(10, [3.0, 1.0])
    [7, 3]
    """
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
    exact_linear: bool = True,
) -> Maps:
    """m features in all, unbiased for the degree's interpolant of act on |w.x| <= radius.

    >>> from gatelab.feedforward import activation
    >>> maps = tensorsketch_maps(activation("gelu"), 16, m=256)
    >>> maps.psi(torch.ones(3, 16)).shape
    torch.Size([3, 256])
    """
    constant, linear, terms = power_terms(activation, radius, degree, exact_linear)
    count = count_drawn(m, (constant is not None) + d * (linear is not None), len(terms))
    sizes = buckets(count, [abs(a) * radius**n for n, a in terms.items()])
    generator = dice(seed)
    sketches = [TensorSketch.drawn(n, d, k, generator) for n, k in zip(terms, sizes, strict=True)]

    def psi(rows: Tensor) -> list[Tensor]:
        return [sketch(rows) for sketch in sketches]

    def phi(rows: Tensor) -> list[Tensor]:
        return [a * sketch(rows) for a, sketch in zip(terms.values(), sketches, strict=True)]

    return beside_line(constant, linear, phi, psi, int(m), d)
