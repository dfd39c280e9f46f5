"""Three differential equations posed for networks, and their solutions to ten digits.

An equation takes the outputs of a network to a function that has all initial and boundary values, so that only the
residuals of the equation are left to train. Its `features`, the inputs of the network, stretch the steep parts of the
solution, and half of the points lie there.

- Poisson: -u_xx - u_yy = f on the unit square, u = 0 on its boundary; u = sin(pi x) sin(pi y) exp(x).
- Burgers: u_t + u u_x = nu u_xx on (-1, 1), u = 0 at the ends and -sin(pi x) at t = 0; odd in x, which is from 0 to 1.
  The reference is the integral of Cole and Hopf by the trapezoidal rule.
- Allen-Cahn: u_t = nu u_xx + 5 u - 5 u^3 on (-1, 1), periodic, u = x^2 cos(pi x) at t = 0; even in x, which is from 0
  to 1. The start has a kink at the ends, whose smoothing by the heat equation is added to the network. The reference
  is a cosine series with time steps of order four (ETDRK4, A. Kassam and L. Trefethen, 2005).

The usual settings are nu = 0.01/pi for Burgers and 0.0001 for Allen-Cahn; fronts are about as wide as `steep`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

import numpy as np
import torch
from scipy import fft
from torch import Tensor, nn

Array = np.ndarray[Any, np.dtype[np.float64]]
TIMES, SPACES = 10, 512  # intervals of the references in time and space


@dataclass(frozen=True)
class Equation:
    """An equation for networks of features."""

    inputs: int  # the number of features
    features: Callable[[Tensor], Tensor]  # the inputs of the network (N, inputs) at points (N, 2)
    solution: Callable[[Tensor, Tensor], Tensor]  # u (N,) at points, from the outputs (N,) of the network there
    residual: Callable[[Tensor, Tensor], Tensor]  # the residuals (N,) at points that require gradients, from u there
    stretched: Callable[[Tensor], Tensor]  # the first coordinate of points near steep parts, from uniform ones
    reference: Callable[[], tuple[Tensor, Tensor]]  # points and the solution there

    def points(self, uniform: Tensor) -> Tensor:
        """Points (N, 2) that require gradients, from uniform ones in the unit square: the first half is stretched."""
        half, p = len(uniform) // 2, uniform.clone()
        p[:half, 0] = self.stretched(uniform[:half, 0])
        return p.requires_grad_()

    def values(self, network: nn.Module, p: Tensor) -> Tensor:
        """u (N,) of a network at points."""
        return self.solution(p, network(self.features(p))[:, 0])


def slopes(u: Tensor, p: Tensor) -> Tensor:
    """The derivatives (2, N) of u (N,) by the points (N, 2)."""
    return torch.autograd.grad(u.sum(), p, create_graph=True)[0].T


def time_grid(values: Array) -> tuple[Tensor, Tensor]:
    """Points (x, t) and the values there, from those (TIMES, SPACES + 1) on a grid without t = 0."""
    x, t = np.linspace(0, 1, SPACES + 1), np.linspace(0, 1, TIMES + 1)[1:]
    points = np.stack(np.meshgrid(x, t), -1).reshape(-1, 2)
    return torch.from_numpy(points), torch.from_numpy(values.reshape(-1))


# ---- Poisson


def poisson_exact(p: Tensor) -> Tensor:
    x, y = p.T
    return torch.sin(math.pi * x) * torch.sin(math.pi * y) * torch.exp(x)


def poisson_residual(p: Tensor, u: Tensor) -> Tensor:
    u_x, u_y = slopes(u - poisson_exact(p), p)
    return slopes(u_x, p)[0] + slopes(u_y, p)[1]


def poisson_reference() -> tuple[Tensor, Tensor]:
    points = torch.cartesian_prod(*2 * [torch.linspace(0, 1, 65, dtype=torch.float64)])
    return points, poisson_exact(points)


# ---- Burgers


def cole_hopf(x: Array, t: float, nu: float, nodes: int = 4001) -> Array:
    """The solution of Burgers' equation at points from -1 to 1."""
    y = np.linspace(-5, 5, nodes)
    exponents = -np.cos(np.pi * y) / (2 * np.pi * nu) - (x[:, None] - y) ** 2 / (4 * nu * t)
    weights = np.exp(exponents - exponents.max(1, keepdims=True))
    return -(weights @ np.sin(np.pi * y)) / weights.sum(1)


def burgers_residual(p: Tensor, u: Tensor, nu: float) -> Tensor:
    u_x, u_t = slopes(u, p)
    return u_t + u * u_x - nu * slopes(u_x, p)[0]


def burgers(nu: float, steep: float) -> Equation:
    """Burgers' equation for networks of x, asinh(x / steep) and t."""
    reach = math.asinh(1 / steep)

    def features(p: Tensor) -> Tensor:
        x, t = p.T
        return 2 * torch.stack([x, torch.asinh(x / steep) / reach, t], 1) - 1

    def solution(p: Tensor, outputs: Tensor) -> Tensor:
        x, t = p.T
        return -torch.sin(math.pi * x) + t * x * (1 - x) * outputs

    def reference() -> tuple[Tensor, Tensor]:
        x = np.linspace(0, 1, SPACES + 1)
        return time_grid(np.stack([cole_hopf(x, (k + 1) / TIMES, nu) for k in range(TIMES)]))

    return Equation(
        3, features, solution, partial(burgers_residual, nu=nu),
        lambda uniform: steep * torch.sinh(uniform * reach), reference,
    )  # fmt: skip


# ---- Allen-Cahn


dct, idct = (cast(Callable[[Array], Array], partial(f, type=1)) for f in (fft.dct, fft.idct))


@cache
def cosine_series(nu: float, modes: int = 1024, steps: int = 1000) -> Array:
    """The solution of the Allen-Cahn equation at the times of the references (TIMES, modes + 1), x from 0 to 1."""
    fine = np.linspace(0, 1, 2**20 + 1)  # with modes + 1 points the kink would alias
    c = dct(fine**2 * np.cos(np.pi * fine))[: modes + 1] * (modes / 2**20)
    h, rates = 1 / steps, 5 - nu * (np.pi * np.arange(modes + 1)) ** 2
    z = h * rates[:, None] + np.exp(1j * np.pi * (np.arange(32) + 0.5) / 32)  # means over a circle avoid cancellation
    whole, half, e = np.exp(h * rates), np.exp(h * rates / 2), np.exp(z)
    middle, first, second, last = (
        h * part.mean(1).real
        for part in (
            (np.exp(z / 2) - 1) / z,
            (-4 - z + e * (4 - 3 * z + z**2)) / z**3,
            2 * (2 + z + e * (z - 2)) / z**3,
            (-4 - 3 * z - z**2 + e * (4 - z)) / z**3,
        )
    )

    def cubic(c: Array) -> Array:
        return -5 * dct(idct(c) ** 3)

    values = []
    for step in range(1, steps + 1):
        start = cubic(c)
        a = half * c + middle * start
        at_a = cubic(a)
        at_b = cubic(half * c + middle * at_a)
        at_end = cubic(half * a + middle * (2 * at_b - start))
        c = whole * c + first * start + second * (at_a + at_b) + last * at_end
        if step % (steps // TIMES) == 0:
            values.append(idct(c))
    return np.stack(values)


def kink(p: Tensor, nu: float) -> Tensor:
    """The solution of the heat equation that is zero at t = 0 and has the slope 2 at x = 1."""
    x, t = p.T
    width = 2 * (nu * t).sqrt()
    z = (1 - x) / width
    return 2 * width * (torch.exp(-z * z) / math.pi**0.5 - z * torch.special.erfc(z))


def allen_cahn_residual(p: Tensor, u: Tensor, nu: float) -> Tensor:
    u_x, u_t = slopes(u, p)
    return u_t - nu * slopes(u_x, p)[0] - 5 * u + 5 * u**3


def allen_cahn(nu: float, steep: float) -> Equation:
    """The Allen-Cahn equation for networks of t and functions of cos(pi x), steep at x = 1/2 and at both ends."""

    def features(p: Tensor) -> Tensor:
        x, t = p.T
        c = torch.cos(math.pi * x)
        ends = [torch.log(1 + sign * c + steep) / 2.5 + 0.5 for sign in (1, -1)]
        return torch.stack([c, torch.asinh(c / (math.pi * steep)) / 4, *ends, 2 * t - 1], 1)

    def solution(p: Tensor, outputs: Tensor) -> Tensor:
        x, t = p.T
        return x**2 * torch.cos(math.pi * x) + kink(p, nu) + t * outputs

    def stretched(uniform: Tensor) -> Tensor:
        half = len(uniform) // 2  # near the front, the others near the kink
        front = 0.5 + steep * torch.sinh((2 * uniform[:half] - 1) * math.asinh(0.5 / steep))
        return torch.cat([front, 1 - steep * torch.sinh(uniform[half:] * math.asinh(1 / steep))])

    def reference() -> tuple[Tensor, Tensor]:
        values = cosine_series(nu)
        return time_grid(np.ascontiguousarray(values[:, :: (values.shape[1] - 1) // SPACES]))

    return Equation(5, features, solution, partial(allen_cahn_residual, nu=nu), stretched, reference)


POISSON = Equation(
    2, lambda p: 2 * p - 1, lambda p, outputs: (p * (1 - p)).prod(1) * outputs, poisson_residual,
    lambda uniform: uniform, poisson_reference,
)  # fmt: skip
