"""Complex exponential features: cosines of w.x from Gaussian projections of w and of x.

cos(omega w.x) is no product of a function of w and one of x. But for v ~ N(0, I) and any complex c

    E[ exp(c v.w - c^2 |w|^2 / 2) exp(c v.x - c^2 |x|^2 / 2) ] = exp(c^2 w.x)

so with c^2 = i omega the real part is unbiased for the cosine, out of two real features (cosine and sine). act less
its linear part is a short series in cos(omega z) and sin(omega z), omega = base/radius, 2 base/radius, ...; a draw
takes a frequency with probability p ~ |b| exp(omega radius). Frequencies are low on purpose: with u = w + x the
second moment is

    E[Re^2] = |b|^2 (exp(omega |u|^2) + cos(omega (2 |u|^2 - |w|^2 - |x|^2) + 2 arg b)) / 2

and grows exponentially in omega. For long w or x these features are of no use, which `fourier_variance` shows
beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import Activation
from gatelab.linearization.builders.random_features import dice
from gatelab.linearization.monomials import Maps
from gatelab.linearization.registry import maps_method
from gatelab.memory import check_memory

_POINTS = 400
_NOTHING = 1e-12


@dataclass(frozen=True)
class Waves:
    """p(z) = constant + linear z + Re sum_k coefficients[k] exp(i frequencies[k] z); `bias` is its distance to act."""

    constant: float
    linear: float
    frequencies: tuple[float, ...]
    coefficients: tuple[complex, ...]
    radius: float
    bias: float

    @property
    def probabilities(self) -> Tensor:
        """How likely a draw takes each frequency: |b| exp(omega radius), of sum one."""
        size = [abs(b) * math.exp(f * self.radius) for f, b in zip(self.frequencies, self.coefficients, strict=True)]
        return torch.tensor(size, dtype=torch.float64) / sum(size)

    def __call__(self, z: Tensor) -> Tensor:
        """p(z)."""
        pairs = zip(self.frequencies, self.coefficients, strict=True)
        return self.constant + self.linear * z + sum((b * torch.exp(1j * f * z)).real for f, b in pairs)

    def draws(self, m: int, d: int) -> int:
        """How many pairs of features m leaves: constant and linear part come first."""
        if isinstance(m, bool) or not isinstance(m, int | np.integer) or m < d + 3:
            raise GatelabError(
                f"m is {m!r}; give {d + 3} or more: {d + 1} features hold the constant and the linear part exactly, "
                "and every draw takes two"
            )
        return (int(m) - d - 1) // 2


@lru_cache(maxsize=32)
def waves(activation: Activation, radius: float = 1.0, terms: int = 3, base: float = 1.0) -> Waves:
    """act on [-radius, radius] as a least-squares fit of 1, z and `terms` harmonics of base/radius at Chebyshev points.

    >>> from gatelab.feedforward import activation
    >>> p = waves(activation("gelu"))
    >>> p.frequencies, round(p.linear, 9), p.bias < 1e-5
    ((1.0, 2.0, 3.0), 0.5, True)
    """
    if not (math.isfinite(radius) and radius > 0 and math.isfinite(base) and base > 0):
        raise GatelabError(f"radius is {radius!r} and base {base!r}; give positive numbers")
    terms = whole_number("terms", terms, 1, 12, of="frequencies")
    z = radius * np.cos(math.pi * (np.arange(_POINTS) + 0.5) / _POINTS)
    f = base / radius * np.arange(1, terms + 1)
    A = np.concatenate([np.ones((_POINTS, 1)), z[:, None], np.cos(np.outer(z, f)), np.sin(np.outer(z, f))], 1)
    even = np.r_[0, 2 : 2 + terms]
    odd = np.r_[1, 2 + terms : 2 + 2 * terms]
    with torch.no_grad():
        y = activation(torch.from_numpy(z)).numpy()
    back = y[::-1]
    # The two parities apart: each is exactly 0 where act has none of it.
    b = np.zeros(A.shape[1])
    for columns, part in ((even, (y + back) / 2), (odd, (y - back) / 2)):
        b[columns] = _fit(A[:, columns], part)
    b[np.abs(b) < _NOTHING * np.abs(b).max()] = 0.0
    complex_ = tuple(complex(b[2 + k], -b[2 + terms + k]) for k in range(terms))
    present = [k for k in range(terms) if complex_[k]]
    if not present:
        raise GatelabError(
            f"{activation.name} is linear: there is nothing to draw; use method 'taylor', which is exact"
        )
    series = Waves(
        constant=float(b[0]),
        linear=float(b[1]),
        frequencies=tuple(float(f[k]) for k in present),
        coefficients=tuple(complex_[k] for k in present),
        radius=float(radius),
        bias=0.0,
    )
    grid = torch.from_numpy(np.linspace(-radius, radius, 2001))
    with torch.no_grad():
        return replace(series, bias=float((series(grid) - activation(grid)).abs().max()))


def _fit(A: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least squares; an odd part that is linear is left to the linear column alone."""
    slope = float(A[:, 0] @ y / (A[:, 0] @ A[:, 0]))
    if np.abs(y - slope * A[:, 0]).max() <= 1e-12 * max(1.0, float(np.abs(y).max())):
        return np.concatenate([[slope], np.zeros(A.shape[1] - 1)])
    return np.linalg.lstsq(A, y, rcond=None)[0]


@maps_method("fourier")
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
    """m real features in all; an odd one that is left over is zero.

    >>> from gatelab.feedforward import activation
    >>> maps = fourier_maps(activation("gelu"), 16, m=256)
    >>> maps.phi(torch.ones(3, 16)).shape
    torch.Size([3, 256])
    """
    p = waves(activation, radius, terms, base)
    M = p.draws(m, d)
    check_memory(8 * M * (d + 6), f"a drawing of {M} pairs of features of {d} inputs", "give a smaller m")
    generator = dice(seed)
    chosen = torch.multinomial(p.probabilities, M, replacement=True, generator=generator)
    v = torch.randn(M, d, generator=generator, dtype=torch.float64)
    omega = torch.tensor(p.frequencies, dtype=torch.float64)[chosen]
    b = torch.tensor(p.coefficients, dtype=torch.complex128)[chosen] / p.probabilities[chosen] / M
    empty = int(m) - d - 1 - 2 * M

    def exponentials(rows: Tensor, factor: Tensor | None) -> tuple[Tensor, Tensor]:
        w = omega.to(rows.device, rows.dtype)
        # c = sqrt(i omega) = (1 + i) sqrt(omega / 2): modulus and angle of the exponential grow alike.
        projected = rows @ (v.to(rows.device, rows.dtype) * (w / 2).sqrt()[:, None]).T
        angle = projected - w / 2 * rows.square().sum(-1, keepdim=True)
        size = torch.exp(projected)
        if factor is not None:
            angle = angle + factor.angle().to(rows.device, rows.dtype)
            size = size * factor.abs().to(rows.device, rows.dtype)
        return size * torch.cos(angle), size * torch.sin(angle)

    def phi(W: Tensor) -> Tensor:
        real, imaginary = exponentials(W, b)
        none = W.new_zeros(*W.shape[:-1], empty)
        return torch.cat([torch.full_like(W[..., :1], p.constant), p.linear * W, real, imaginary, none], -1)

    def psi(X: Tensor) -> Tensor:
        real, imaginary = exponentials(X, None)
        none = X.new_zeros(*X.shape[:-1], empty)
        return torch.cat([torch.ones_like(X[..., :1]), X, real, -imaginary, none], -1)

    return Maps(phi, psi, int(m), d)


def fourier_variance(
    activation: Activation,
    W: Tensor,
    X: Tensor,
    *,
    m: int,
    radius: float = 1.0,
    terms: int = 3,
    base: float = 1.0,
) -> Tensor:
    """Var[Phi(w).Psi(x)] over the draws, (rows of W, rows of X), in closed form."""
    p = waves(activation, radius, terms, base)
    M = p.draws(m, W.shape[1])
    z = W @ X.T
    lengths = W.square().sum(1)[:, None] + X.square().sum(1)
    u = lengths + 2 * z
    total = -(p(z) - p.constant - p.linear * z).square()
    for f, b, probability in zip(p.frequencies, p.coefficients, p.probabilities.tolist(), strict=True):
        turn = 2 * math.atan2(b.imag, b.real)
        total = total + abs(b) ** 2 / probability * (torch.exp(f * u) + torch.cos(f * (2 * u - lengths) + turn)) / 2
    return total / M
