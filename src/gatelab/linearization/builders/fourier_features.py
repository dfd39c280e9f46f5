"""Complex exponential features: cosines of w.x from Gaussian projections of w and of x.

cos(omega w.x) is no product of a function of w and one of x. But for v ~ N(0, I) and any complex c

    E[ exp(c v.w - c^2 |w|^2 / 2) exp(c v.x - c^2 |x|^2 / 2) ] = exp(c^2 w.x)

so with c^2 = i omega the real part is unbiased for the cosine, out of two real features (cosine and sine). act less
its linear part is a short series in cos(omega z) and sin(omega z), omega = base/radius, 2 base/radius, ...; a draw
takes a frequency with probability p ~ |b| exp(omega radius). Frequencies are low on purpose: with u = w + x the
second moment is

    E[Re^2] = |b|^2 (exp(omega |u|^2) + cos(omega (2 |u|^2 - |w|^2 - |x|^2) + 2 arg b)) / 2

and grows exponentially in omega. For long w or x these features are of no use.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from gatelab.errors import GatelabError, real_number, whole_number
from gatelab.feedforward import Activation
from gatelab.linearization.builders.random_features import beside_line, count_drawn, dice
from gatelab.linearization.monomials import Maps
from gatelab.linearization.polynomials import values
from gatelab.memory import check_memory

_POINTS = 400
_NOTHING = 1e-12


@lru_cache(maxsize=32)
def waves(
    activation: Activation, radius: float = 1.0, terms: int = 3, base: float = 1.0
) -> tuple[float, float, dict[float, complex]]:
    """act on [-radius, radius] as constant + linear z + Re sum_k b_k exp(i omega_k z): those two, and {omega_k: b_k}.

    A least-squares fit of 1, z and `terms` harmonics of base/radius at Chebyshev points.

    >>> from gatelab.feedforward import activation
    >>> constant, linear, drawn = waves(activation("gelu"))
    >>> list(drawn), round(linear, 9)
    ([1.0, 2.0, 3.0], 0.5)
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
    # The two parities apart: each is exactly 0 where act has none of it.
    b = np.zeros(A.shape[1])
    for columns, part in ((even, (y + back) / 2), (odd, (y - back) / 2)):
        b[columns] = _fit(A[:, columns], part)
    b[np.abs(b) < _NOTHING * np.abs(b).max()] = 0.0
    coefficients = {float(f[k]): complex(b[2 + k], -b[2 + terms + k]) for k in range(terms)}
    drawn = {omega: value for omega, value in coefficients.items() if value}
    if not drawn:
        raise GatelabError(
            f"{activation.name} is linear: there is nothing to draw; use method 'taylor', which is exact"
        )
    return float(b[0]), float(b[1]), drawn


def _fit(A: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least squares; an odd part that is linear is left to the linear column alone."""
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
    """m real features in all; an odd one that is left over is zero.

    >>> from gatelab.feedforward import activation
    >>> maps = fourier_maps(activation("gelu"), 16, m=256)
    >>> maps.phi(torch.ones(3, 16)).shape
    torch.Size([3, 256])
    """
    constant, linear, drawn = waves(activation, radius, terms, base)
    M, empty = divmod(count_drawn(m, d + 1, 2), 2)
    check_memory(8 * M * (d + 6), f"a drawing of {M} pairs of features of {d} inputs", "give a smaller m")
    generator = dice(seed)
    sizes = [abs(b) * math.exp(f * radius) for f, b in drawn.items()]
    probabilities = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    chosen = torch.multinomial(probabilities, M, replacement=True, generator=generator)
    v = torch.randn(M, d, generator=generator, dtype=torch.float64)
    omega = torch.tensor(list(drawn), dtype=torch.float64)[chosen]
    b = torch.tensor(list(drawn.values()), dtype=torch.complex128)[chosen] / probabilities[chosen] / M

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

    def phi(W: Tensor) -> list[Tensor]:
        return [*exponentials(W, b), W.new_zeros(*W.shape[:-1], empty)]

    def psi(X: Tensor) -> list[Tensor]:
        real, imaginary = exponentials(X, None)
        return [real, -imaginary, X.new_zeros(*X.shape[:-1], empty)]

    return beside_line(constant, linear, phi, psi, int(m), d)
