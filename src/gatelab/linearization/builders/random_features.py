"""Unbiased random features of the series of an activation: Maclaurin features and TensorSketch.

Both draw maps of m features whose product has the expectation

    E[Phi(w).Psi(x)] = p(w.x)        p a finite series that stands for act on |z| <= radius

The distance between p and act is not random: `Terms.bias` is its largest value on a grid. The constant and the linear
term are exact, with 1 and d features that count among the m; what is drawn is the rest. The variance of either is known
in closed form, for every pair of a row of W and an input of X.

Random Maclaurin features (Kar and Karnick, AISTATS 2012) make a power of w.x a product of random projections. For signs
omega_1 .. omega_n, independent and even, E[prod_j (omega_j.w)(omega_j.x)] = (w.x)^n. A feature draws its degree n with
probability p_n ~ |a_n| radius^n and is that product times a_n / p_n. Of M drawn features the mean has the variance

    ( sum_n a_n^2 / p_n (|w|^2 |x|^2 + 2 (w.x)^2 - 2 sum_i w_i^2 x_i^2)^n  -  remainder(w.x)^2 ) / M

TensorSketch (Pham and Pagh, KDD 2013) makes a power of w.x from count sketches, multiplied by FFT. A count sketch
throws entry i of x, with a sign, into one of k buckets. The circular convolution of n independent ones is a count
sketch of the n-fold tensor product, made in n FFTs and never in d^n entries. With a = (w.x)^2, q = sum_i w_i^2 x_i^2,
b = |w|^2 |x|^2 - q, c = a - q, and g = 2 for even k, 1 for odd,

    k E[(estimate)^2] = k a^n + (a+b)^n + (a+c)^n - 2 a^n + (g/k) ((a+b+c)^n - (a+b)^n - (a+c)^n + a^n)

which follows from pairing the indices of each factor: equal ones meet in one bucket always, the two crossed pairings
if their buckets differ by amounts that sum to 0. Degrees have sketches of their own, sized like |a_n| radius^n.
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
from gatelab.feedforward import Activation
from gatelab.linearization.builders.uniform import chebyshev
from gatelab.linearization.monomials import Maps
from gatelab.linearization.registry import maps_method
from gatelab.memory import check_memory

_NOTHING = 1e-14  # times (1 + sqrt 2)^degree, by which powers of z magnify rounding in Chebyshev polynomials


@dataclass(frozen=True)
class Terms:
    """p(z) = constant + linear z + sum_n coefficients[n] z^degrees[n], near act to `bias` on |z| <= radius.

    `exact` says that the linear term is not drawn.
    """

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
        return bool(self.constant) + self.d * self.exact

    def drawn(self, m: int, least: int = 1) -> int:
        """How many of m features are drawn."""
        if isinstance(m, bool) or not isinstance(m, int | np.integer) or m < self.head + least:
            raise GatelabError(
                f"m is {m!r}; give {self.head + least} or more: {self.head} features hold the constant and linear part "
                f"exactly, and {least} or more are drawn"
            )
        return int(m) - self.head

    @property
    def sizes(self) -> list[float]:
        """|a_n| radius^n: what each degree may amount to."""
        return [abs(a) * self.radius**n for n, a in zip(self.degrees, self.coefficients, strict=True)]

    @property
    def probabilities(self) -> Tensor:
        """The p_n of Maclaurin features that have the least variance where |w| |x| = radius."""
        sizes = torch.tensor(self.sizes, dtype=torch.float64)
        return sizes / sizes.sum()

    def buckets(self, m: int) -> list[int]:
        """The sizes of the sketches of m features: one at least, the others shared out, largest remainders first."""
        spare = self.drawn(m, least=len(self.degrees)) - len(self.degrees)
        sizes = self.sizes
        ideal = [spare * size / sum(sizes) for size in sizes]
        whole = [int(v) for v in ideal]
        order = sorted(range(len(sizes)), key=lambda i: whole[i] - ideal[i])
        for i in order[: spare - sum(whole)]:
            whole[i] += 1
        return [1 + v for v in whole]

    def remainder(self, z: Tensor) -> Tensor:
        """What the drawn features estimate."""
        return sum((a * z**n for n, a in zip(self.degrees, self.coefficients, strict=True)), torch.zeros_like(z))

    def head_phi(self, W: Tensor) -> list[Tensor]:
        """The features of rows of W that are not drawn."""
        parts = []
        if self.constant:
            parts.append(torch.full_like(W[..., :1], self.constant))
        if self.exact:
            parts.append(self.linear * W)
        return parts

    def head_psi(self, X: Tensor) -> list[Tensor]:
        """The features of inputs that are not drawn."""
        parts = []
        if self.constant:
            parts.append(torch.ones_like(X[..., :1]))
        if self.exact:
            parts.append(X)
        return parts


@lru_cache(maxsize=32)
def terms(activation: Activation, d: int, radius: float, degree: int, exact_linear: bool) -> Terms:
    """The interpolant of act at Chebyshev points of [-radius, radius], in powers of z.

    >>> from gatelab.feedforward import activation
    >>> p = terms(activation("gelu"), 16, 1.0, 10, True)
    >>> p.degrees, p.linear, p.head, p.bias < 1e-6
    ((2, 4, 6, 8, 10), 0.5, 16, True)
    """
    if not (math.isfinite(radius) and radius > 0):
        raise GatelabError(f"radius is {radius!r}; give a positive number that |w.x| does not exceed")
    polynomial = chebyshev(activation, degree, (-float(radius), float(radius)))
    coefficients = np.array(polynomial.coefficients)
    size = np.abs(coefficients) * radius ** np.arange(len(coefficients))
    coefficients[size < _NOTHING * (1 + math.sqrt(2)) ** degree * size.max()] = 0.0  # what parity makes vanish
    coefficients = np.concatenate([coefficients, np.zeros(max(0, 2 - len(coefficients)))])
    linear = float(np.round(coefficients[1], 15))
    exact = bool(exact_linear and linear)
    first = 2 if exact or not linear else 1
    degrees = [n for n in range(first, len(coefficients)) if coefficients[n]]
    if not degrees:
        raise GatelabError(
            f"{activation.name} is linear to degree {degree}: there is nothing to draw; "
            "use method 'taylor', which is exact"
        )
    return Terms(
        d=d,
        constant=float(coefficients[0]),
        linear=linear,
        degrees=tuple(degrees),
        coefficients=tuple(float(coefficients[n]) for n in degrees),
        radius=float(radius),
        bias=float(polynomial.error(activation)),
        exact=exact,
    )


def dice(seed: Any) -> torch.Generator:
    """A generator of its own for every map that is drawn."""
    return torch.Generator().manual_seed(check_seed(seed))


def moments(W: Tensor, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """z = w.x, |w|^2 |x|^2 and sum_i w_i^2 x_i^2 of every pair, each (rows of W, rows of X)."""
    w2, x2 = W.square(), X.square()
    return W @ X.T, w2.sum(1)[:, None] * x2.sum(1), w2 @ x2.T


@maps_method("maclaurin")
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
    p = terms(activation, d, radius, degree, exact_linear)
    M = p.drawn(m)
    # Signs of degree two or more, drawn as one array and scaled in another.
    check_memory(8 * 3 * M * d, f"a drawing of {M} features of {d} inputs", "give a smaller m")
    generator = dice(seed)
    probabilities = p.probabilities
    draws = torch.multinomial(probabilities, M, replacement=True, generator=generator)
    counts = torch.bincount(draws, minlength=len(probabilities))
    signs, scales = [], []
    for n, a, probability, count in zip(p.degrees, p.coefficients, probabilities, counts.tolist(), strict=True):
        signs.append(2.0 * torch.randint(0, 2, (n, count, d), generator=generator, dtype=torch.float64) - 1)
        scales.append(a / float(probability) / M)

    def products(rows: Tensor) -> list[Tensor]:
        out = []
        for omegas in signs:
            first, *others = omegas.to(rows.device, rows.dtype)
            value = rows @ first.T
            for omega in others:
                value = value * (rows @ omega.T)
            out.append(value)
        return out

    def phi(W: Tensor) -> Tensor:
        return torch.cat(p.head_phi(W) + [s * v for s, v in zip(scales, products(W), strict=True)], -1)

    def psi(X: Tensor) -> Tensor:
        return torch.cat(p.head_psi(X) + products(X), -1)

    return Maps(phi, psi, int(m), d)


def maclaurin_variance(
    activation: Activation,
    W: Tensor,
    X: Tensor,
    *,
    m: int,
    radius: float = 1.0,
    degree: int = 10,
    exact_linear: bool = True,
) -> Tensor:
    """Var[Phi(w).Psi(x)] over the draws, (rows of W, rows of X), in closed form."""
    p = terms(activation, W.shape[1], radius, degree, exact_linear)
    M = p.drawn(m)
    z, lengths, fourth = moments(W, X)
    square = lengths + 2 * z.square() - 2 * fourth
    total = -p.remainder(z).square()
    for n, a, probability in zip(p.degrees, p.coefficients, p.probabilities.tolist(), strict=True):
        total = total + a * a / probability * square**n
    return total / M


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


@maps_method("tensorsketch")
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
    p = terms(activation, d, radius, degree, exact_linear)
    sizes = p.buckets(m)
    generator = dice(seed)
    sketches = [TensorSketch.drawn(n, d, k, generator) for n, k in zip(p.degrees, sizes, strict=True)]

    def phi(W: Tensor) -> Tensor:
        return torch.cat(p.head_phi(W) + [a * s(W) for a, s in zip(p.coefficients, sketches, strict=True)], -1)

    def psi(X: Tensor) -> Tensor:
        return torch.cat(p.head_psi(X) + [s(X) for s in sketches], -1)

    return Maps(phi, psi, int(m), d)


def tensorsketch_variance(
    activation: Activation,
    W: Tensor,
    X: Tensor,
    *,
    m: int,
    radius: float = 1.0,
    degree: int = 10,
    exact_linear: bool = True,
) -> Tensor:
    """Var[Phi(w).Psi(x)] over the draws, (rows of W, rows of X), in closed form."""
    p = terms(activation, W.shape[1], radius, degree, exact_linear)
    pairs = zip(p.degrees, p.coefficients, p.buckets(m), strict=True)
    return torch.stack([a * a * sketch_variance(W, X, n, k) for n, a, k in pairs]).sum(0)


def sketch_variance(W: Tensor, X: Tensor, degree: int, size: int) -> Tensor:
    """The variance of one sketch of (w.x)^degree into `size` buckets."""
    z, lengths, q = moments(W, X)
    a = z.square()
    b, c = lengths - q, a - q
    n, k, g = degree, size, 2 - size % 2
    either = (a + b) ** n + (a + c) ** n - 2 * a**n
    both = (a + b + c) ** n - (a + b) ** n - (a + c) ** n + a**n
    return either / k + g * both / k**2
