"""Burgers' equation with a steep front, viscosity 0.01 / pi, with plain torch and `gl.optim.LevenbergMarquardt`.

    u_t + u u_x = nu u_xx,   x in (-1, 1), t in (0, 1),   u(x, 0) = -sin(pi x),   u(-1, t) = u(1, t) = 0

One learns how initial and boundary values are built in, and to put points where the solution is steep. The reference
is a pseudospectral solution with 2048 modes. A quick try: `python examples/pde_burgers.py 50`; to convergence:

    python examples/pde_burgers.py
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor, nn

import gatelab as gl

NU = 0.01 / np.pi
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


def reference(times: np.ndarray, modes: int = 2048) -> tuple[np.ndarray, np.ndarray]:
    """The points x and the solution (times, x), by Fourier modes."""
    x = -1 + 2 * np.arange(modes) / modes
    k = np.pi * np.arange(modes // 2 + 1)

    def slope(t: float, u: np.ndarray) -> np.ndarray:
        return np.fft.irfft(-0.5j * k * np.fft.rfft(u * u) - NU * k**2 * np.fft.rfft(u))

    return x, solve_ivp(slope, (0, 1), -np.sin(np.pi * x), "DOP853", times, rtol=1e-12, atol=1e-13).y.T


class Solution(nn.Module):
    """-sin(pi x) + t (1 - x^2) network(x, t)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers = [
            nn.Linear(2, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
        ]
        self.body, self.head = nn.Sequential(*layers), nn.Linear(width, 1)

    def forward(self, p: Tensor) -> Tensor:
        x, t = p.T
        return -torch.sin(torch.pi * x) + t * (1 - x * x) * self.head(self.body(p))[:, 0]


def equation(model: nn.Module, p: Tensor) -> Tensor:
    u = model(p)
    u_x, u_t = torch.autograd.grad(u.sum(), p, create_graph=True)[0].T
    u_xx = torch.autograd.grad(u_x.sum(), p, create_graph=True)[0][:, 0]
    return u_t + u * u_x - NU * u_xx


def main(steps: int = 1000, width: int = 30, count: int = 5000) -> None:
    """Train, and print the relative L2 error at five times."""
    x, t = 2 * torch.rand(count) - 1, torch.rand(count)
    x[: count // 2] = 0.05 * torch.tan(torch.pi / 2 * 0.97 * x[: count // 2])  # half of the points near the front
    points, model = torch.stack([x.clamp(-1, 1), t], 1).requires_grad_(), Solution(width)
    times = np.linspace(0.2, 1, 5)
    grid, u = reference(times)
    other = torch.cartesian_prod(torch.from_numpy(times), torch.from_numpy(grid)).flip(1)
    optimizer = gl.optim.LevenbergMarquardt(model)
    began = time.process_time()
    for step in range(1, steps + 1):
        loss = optimizer.step(lambda: equation(model, points))
        if step % 25 == 0 or step == steps:
            with torch.no_grad():
                error = np.linalg.norm(model(other).numpy() - u.ravel()) / np.linalg.norm(u)
            print(f"step {step:4}, {time.process_time() - began:5.0f} s: loss {loss:.1e}, relative error {error:.1e}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
