"""The Allen-Cahn equation with its sharp fronts, with plain torch and `gl.optim.LevenbergMarquardt`.

    u_t = 0.0001 u_xx + 5 u - 5 u^3,   x in (-1, 1) periodic, t in (0, 1),   u(x, 0) = x^2 cos(pi x)

One learns that features can make a solution even and periodic, to add a singular part in closed form, and to weight
what grows. The start has a kink at x = 1, which the heat equation rounds off; errors grow with exp(5 t), and residuals
are weighted by exp(-4 t). The reference is a pseudospectral solution. A quick try:
`python examples/pde_allen_cahn.py 50`; to convergence:

    python examples/pde_allen_cahn.py
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor, nn

import gatelab as gl

NU, STEEP = 1e-4, 0.01
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


def reference(times: np.ndarray, modes: int = 1024) -> np.ndarray:
    """The solution (times, x) at x = 0, 2 / modes, ..., by Fourier modes."""
    k = np.pi * np.arange(modes // 2 + 1)

    def slope(t: float, u: np.ndarray) -> np.ndarray:
        return np.fft.irfft(-NU * k**2 * np.fft.rfft(u)) + 5 * u - 5 * u**3

    # The start has a kink at the ends, so that its modes are those of many more points.
    fine = -1 + 2 * np.arange(2**20) / 2**20
    start = np.fft.irfft(np.fft.rfft(fine**2 * np.cos(np.pi * fine))[: len(k)]) * modes / len(fine)
    return solve_ivp(slope, (0, 1), start, "DOP853", times, rtol=1e-12, atol=1e-13).y.T[:, modes // 2 :]


def kink(p: Tensor) -> Tensor:
    """The solution of the heat equation that is zero at t = 0 and has the slope 2 at x = 1."""
    width = 2 * (NU * p[:, 1]).sqrt()
    z = (1 - p[:, 0]) / width
    return 2 * width * (torch.exp(-z * z) / torch.pi**0.5 - z * torch.special.erfc(z))


class Solution(nn.Module):
    """x^2 cos(pi x) + t network, the inputs being t and functions of cos(pi x), steep at x = 1/2 and at the ends."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers = [nn.Linear(5, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)]
        self.network = nn.Sequential(*layers)

    def forward(self, p: Tensor) -> Tensor:
        (x, t), c = p.T, torch.cos(torch.pi * p[:, 0])
        ends = [torch.log(1 + sign * c + STEEP) / 2.5 + 0.5 for sign in (1, -1)]
        features = [c, torch.asinh(c / (torch.pi * STEEP)) / 4, *ends, 2 * t - 1]
        return x**2 * c + t * self.network(torch.stack(features, 1))[:, 0]


def equation(model: nn.Module, p: Tensor) -> Tensor:
    v = model(p)
    v_x, v_t = torch.autograd.grad(v.sum(), p, create_graph=True)[0].T
    v_xx = torch.autograd.grad(v_x.sum(), p, create_graph=True)[0][:, 0]
    u = v + kink(p.detach())
    return torch.exp(-4 * p[:, 1].detach()) * (v_t - NU * v_xx - 5 * u + 5 * u**3)


def chosen(model: nn.Module, count: int) -> Tensor:
    """Points drawn by their residuals; a quarter of the candidates lies near the front, a quarter near the kink."""
    p = torch.rand(4 * count, 2)
    p[::4, 0] = 0.5 + STEEP * torch.sinh(np.arcsinh(0.5 / STEEP) * (2 * p[::4, 0] - 1))
    p[1::4, 0] = 1 - STEEP * torch.sinh(np.arcsinh(1 / STEEP) * p[1::4, 0])
    size = equation(model, p.requires_grad_()).detach().abs()
    return p.detach()[torch.multinomial(1 + size / size.mean(), count)].requires_grad_()


def main(steps: int = 200, width: int = 22, count: int = 2000) -> None:
    """Train, and print the relative L2 error at ten times."""
    times, model = np.linspace(0.1, 1, 10), Solution(width)
    exact = torch.from_numpy(reference(times)).flatten()
    other = torch.cartesian_prod(torch.from_numpy(times), torch.arange(512) / 512).flip(1)
    optimizer, began = gl.optim.LevenbergMarquardt(model), time.process_time()
    points = chosen(model, count)
    for step in range(1, steps + 1):
        loss = optimizer.step(lambda p=points: equation(model, p))
        if step % 25 == 0 or step == steps:
            error = (model(other) + kink(other) - exact).norm() / exact.norm()
            print(f"step {step:4}, {time.process_time() - began:5.0f} s: loss {loss:.1e}, relative error {error:.1e}")
            points = chosen(model, count)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
