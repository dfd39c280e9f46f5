"""The Allen-Cahn equation with its sharp fronts, with plain torch and `gl.optim.LevenbergMarquardt`.

    u_t = 0.0001 u_xx + 5 u - 5 u^3,   x in (-1, 1) periodic, t in (0, 1),   u(x, 0) = x^2 cos(pi x)

One learns that features can make a solution periodic, and that `weights` balance blocks of residuals. The reference is
a pseudospectral solution. A quick try: `python examples/pde_allen_cahn.py 50`; to convergence:

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

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


def reference(times: np.ndarray, modes: int = 1024) -> tuple[np.ndarray, np.ndarray]:
    """The points x and the solution (times, x), by Fourier modes."""
    x = -1 + 2 * np.arange(modes) / modes
    k = np.pi * np.arange(modes // 2 + 1)

    def slope(t: float, u: np.ndarray) -> np.ndarray:
        return np.fft.irfft(-1e-4 * k**2 * np.fft.rfft(u)) + 5 * u - 5 * u**3

    # The start has a kink at the ends, so that its modes are those of many more points.
    fine = -1 + 2 * np.arange(2**20) / 2**20
    start = np.fft.irfft(np.fft.rfft(fine**2 * np.cos(np.pi * fine))[: len(k)]) * modes / len(fine)
    return x, solve_ivp(slope, (0, 1), start, "DOP853", times, rtol=1e-12, atol=1e-13).y.T


class Solution(nn.Module):
    """A network of cos(k pi x), k = 1, 2, 3, and t: even and periodic in x, as the solution is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.head = nn.Linear(width, 1)

    def forward(self, p: Tensor) -> Tensor:
        x, t = p.T
        features = [torch.cos(k * torch.pi * x) for k in (1, 2, 3)]
        return self.head(self.body(torch.stack([*features, t], 1)))[:, 0]


def equation(model: nn.Module, p: Tensor) -> Tensor:
    u = model(p)
    u_x, u_t = torch.autograd.grad(u.sum(), p, create_graph=True)[0].T
    u_xx = torch.autograd.grad(u_x.sum(), p, create_graph=True)[0][:, 0]
    return u_t - 1e-4 * u_xx - 5 * u + 5 * u**3


def main(steps: int = 1000, width: int = 40, count: int = 5000) -> None:
    """Train, and print the relative L2 error at five times."""
    points = torch.stack([torch.rand(count), torch.rand(count)], 1).requires_grad_()
    start, model = torch.stack([torch.linspace(0, 1, 400), torch.zeros(400)], 1), Solution(width)
    first = start[:, 0] ** 2 * torch.cos(torch.pi * start[:, 0])
    times = np.linspace(0.2, 1, 5)
    grid, u = reference(times)
    other = torch.cartesian_prod(torch.from_numpy(times), torch.from_numpy(grid)).flip(1)
    optimizer = gl.optim.LevenbergMarquardt(model, weights=[1, 100])
    began = time.process_time()
    for step in range(1, steps + 1):
        loss = optimizer.step(lambda: (equation(model, points), model(start) - first))
        if step % 25 == 0 or step == steps:
            with torch.no_grad():
                error = np.linalg.norm(model(other).numpy() - u.ravel()) / np.linalg.norm(u)
            print(f"step {step:4}, {time.process_time() - began:5.0f} s: loss {loss:.1e}, relative error {error:.1e}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
