"""TensorSketch (Pham and Pagh, KDD 2013): a power of w.x from count sketches, multiplied by FFT.

A count sketch throws entry i of x, with a sign, into one of k buckets. The circular convolution of n independent ones
is a count sketch of the n-fold tensor product, made in n FFTs and never in d^n entries. With a = (w.x)^2,
q = sum_i w_i^2 x_i^2, b = |w|^2 |x|^2 - q, c = a - q, and g = 2 for even k, 1 for odd,

    k E[(estimate)^2] = k a^n + (a+b)^n + (a+c)^n - 2 a^n + (g/k) ((a+b+c)^n - (a+b)^n - (a+c)^n + a^n)

which follows from pairing the indices of each factor: equal ones meet in one bucket always, the two crossed pairings
if their buckets differ by amounts that sum to 0. Degrees have sketches of their own, sized like |a_n| radius^n.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gatelab.linearize.maps import Maps
from gatelab.linearize.random_features import Terms, dice, moments, terms
from gatelab.units import Activation


@dataclass(frozen=True, eq=False)
class Sketch:
    """n count sketches of d entries into k buckets: `bucket` and `sign`, each (n, d)."""

    bucket: Tensor
    sign: Tensor
    size: int

    @staticmethod
    def drawn(degree: int, d: int, size: int, generator: torch.Generator) -> Sketch:
        bucket = torch.randint(0, size, (degree, d), generator=generator)
        sign = 2.0 * torch.randint(0, 2, (degree, d), generator=generator).double() - 1
        return Sketch(bucket, sign, size)

    def __call__(self, rows: Tensor) -> Tensor:
        """(n, d) -> (n, size): the sketch of the tensor power of every row."""
        product = None
        for bucket, sign in zip(self.bucket.to(rows.device), self.sign.to(rows.device, rows.dtype), strict=True):
            count = rows.new_zeros(*rows.shape[:-1], self.size).index_add(-1, bucket, rows * sign)
            wave = torch.fft.rfft(count)
            product = wave if product is None else product * wave
        assert product is not None
        return torch.fft.irfft(product, n=self.size)


def build(
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

    >>> from gatelab.units import activation
    >>> maps = build(activation("gelu"), 16, m=256)
    >>> maps.psi(torch.ones(3, 16)).shape
    torch.Size([3, 256])
    """
    p = terms(activation, d, radius, degree, exact_linear)
    sizes = _sizes(p, m)
    generator = dice(seed)
    sketches = [Sketch.drawn(n, d, k, generator) for n, k in zip(p.degrees, sizes, strict=True)]

    def phi(W: Tensor) -> Tensor:
        return torch.cat(p.head_phi(W) + [a * s(W) for a, s in zip(p.coefficients, sketches, strict=True)], -1)

    def psi(X: Tensor) -> Tensor:
        return torch.cat(p.head_psi(X) + [s(X) for s in sketches], -1)

    return Maps(phi, psi, int(m), d)


def variance(
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
    pairs = zip(p.degrees, p.coefficients, _sizes(p, m), strict=True)
    return torch.stack([a * a * sketch_variance(W, X, n, k) for n, a, k in pairs]).sum(0)


def sketch_variance(W: Tensor, X: Tensor, degree: int, size: int) -> Tensor:
    """The variance of one sketch of (w.x)^degree into `size` buckets."""
    z, lengths, q = moments(W, X)
    a = z.square()
    b, c = lengths - q, a - q
    n, k, g = degree, size, 2 if size % 2 == 0 else 1
    one = (a + b) ** n + (a + c) ** n - 2 * a**n
    both = (a + b + c) ** n - (a + b) ** n - (a + c) ** n + a**n
    return one / k + g * both / k**2


def _sizes(p: Terms, m: int) -> list[int]:
    """Buckets of each degree: one at least, the others shared out like |a_n| radius^n, largest remainders first."""
    spare = p.drawn(m, least=len(p.degrees)) - len(p.degrees)
    size = [abs(a) * p.radius**n for n, a in zip(p.degrees, p.coefficients, strict=True)]
    ideal = [spare * s / sum(size) for s in size]
    whole = [int(v) for v in ideal]
    order = sorted(range(len(size)), key=lambda i: whole[i] - ideal[i])
    for i in order[: spare - sum(whole)]:
        whole[i] += 1
    return [1 + v for v in whole]
