"""Unbiased random features of the series of an activation: Maclaurin features, TensorSketch, complex exponentials.

All methods draw maps of m features with E[Phi(w).Psi(x)] = p(w.x), p a polynomial, or a trigonometric sum, close to act
on |z| <= radius. The constant and the linear term are exact and use 1 and d of the m features.

- Random Maclaurin features (Kar and Karnick 2012) make a power of w.x a product of projections on random signs. A
  feature has degree n with probability p_n ~ |a_n| radius^n, which minimizes the variance where |w| |x| = radius.
- TensorSketch (Pham and Pagh 2013) makes a power of w.x from count sketches: the circular convolution of n independent
  ones, by FFT, is a count sketch of the n-fold tensor product. Each degree has a sketch of a size proportional to
  |a_n| radius^n.
- Complex exponentials: for v ~ N(0, I) and any complex c

      E[ exp(c v.w - c^2 |w|^2 / 2) exp(c v.x - c^2 |x|^2 / 2) ] = exp(c^2 w.x)

  so with c^2 = i omega the real part is an unbiased estimate of cos(omega w.x), with two real features. act minus a
  linear function is fitted by a short series in cos(omega z) and sin(omega z); frequencies are drawn with probability
  p ~ |b| exp(omega radius). They are low because the second moment grows exponentially in omega |w + x|^2: these
  features are useless for long w or x.
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
from gatelab.linearization.polynomials import values
from gatelab.memory import check_memory

_POINTS = 400  # of the fit of waves
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


@lru_cache(maxsize=32)
def waves(
    activation: Activation, radius: float = 1.0, terms: int = 3, base: float = 1.0
) -> tuple[float, float, dict[float, complex]]:
    """act ~ constant + linear z + Re sum_k b_k exp(i omega_k z): the constant, the linear coefficient, {omega_k: b_k}.

    A least-squares fit on [-radius, radius] of 1, z and `terms` harmonics of base/radius at Chebyshev points.
    """
    radius, base = real_number("radius", radius, above=0), real_number("base", base, above=0)
    terms = whole_number("terms", terms, 1, 12, of="frequencies")
    z = radius * np.cos(math.pi * (np.arange(_POINTS) + 0.5) / _POINTS)
    f = base / radius * np.arange(1, terms + 1)
    A = np.concatenate([np.ones((_POINTS, 1)), z[:, None], np.cos(np.outer(z, f)), np.sin(np.outer(z, f))], 1)
    even = np.r_[0, 2 : 2 + terms]
    odd = np.r_[1, 2 + terms : 2 + 2 * terms]
    y = values(activation, z).numpy()
    back = y[::-1]
    # The two parities are fitted separately, so that a missing one is exactly 0.
    b = np.zeros(A.shape[1])
    for columns, part in ((even, (y + back) / 2), (odd, (y - back) / 2)):
        b[columns] = _fit(A[:, columns], part)
    b[np.abs(b) < 1e-12 * np.abs(b).max()] = 0.0
    coefficients = {float(f[k]): complex(b[2 + k], -b[2 + terms + k]) for k in range(terms)}
    drawn = {omega: value for omega, value in coefficients.items() if value}
    if not drawn:
        raise GatelabError(
            f"{activation.name} is linear: there is nothing to draw; use method 'taylor', which is exact"
        )
    return float(b[0]), float(b[1]), drawn


def _fit(A: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least squares; a linear odd part uses the linear column alone."""
    slope = float(A[:, 0] @ y / (A[:, 0] @ A[:, 0]))
    if np.abs(y - slope * A[:, 0]).max() <= 1e-12 * max(1.0, float(np.abs(y).max())):
        return np.concatenate([[slope], np.zeros(A.shape[1] - 1)])
    return np.linalg.lstsq(A, y, rcond=None)[0]


def fourier_maps(
    activation: Activation,
    d: int,
    *,
    m: int,
    seed: int = 0,
    radius: float = 1.0,
    terms: int = 3,
    base: float = 1.0,
) -> Maps:
    """m real features; if the number of random ones is odd, the last is zero."""
    constant, linear, drawn = waves(activation, radius, terms, base)
    M, empty = divmod(random_count(m, d + 1, 2), 2)
    check_memory(8 * M * (d + 6), f"{M} pairs of random features of {d} inputs", "give a smaller m")
    generator = torch.Generator().manual_seed(check_seed(seed))
    sizes = [abs(b) * math.exp(f * radius) for f, b in drawn.items()]
    probabilities = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    chosen = torch.multinomial(probabilities, M, replacement=True, generator=generator)
    v = torch.randn(M, d, generator=generator, dtype=torch.float64)
    omega = torch.tensor(list(drawn), dtype=torch.float64)[chosen]
    b = torch.tensor(list(drawn.values()), dtype=torch.complex128)[chosen] / probabilities[chosen] / M

    def exponentials(rows: Tensor, factor: Tensor | None) -> tuple[Tensor, Tensor]:
        w = omega.to(rows.device, rows.dtype)
        # c = sqrt(i omega) = (1 + i) sqrt(omega / 2): equal real and imaginary parts.
        projected = rows @ (v.to(rows.device, rows.dtype) * (w / 2).sqrt()[:, None]).T
        angle = projected - w / 2 * rows.square().sum(-1, keepdim=True)
        size = torch.exp(projected)
        if factor is not None:
            angle = angle + factor.angle().to(rows.device, rows.dtype)
            size = size * factor.abs().to(rows.device, rows.dtype)
        return size * torch.cos(angle), size * torch.sin(angle)

    def phi(W: Tensor) -> list[Tensor]:
        return [*exponentials(W, b), W.new_zeros(*W.shape[:-1], empty)]

    def psi(X: Tensor) -> list[Tensor]:
        real, imaginary = exponentials(X, None)
        return [real, -imaginary, X.new_zeros(*X.shape[:-1], empty)]

    return with_line(constant, linear, phi, psi, int(m), d)
