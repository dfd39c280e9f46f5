"""Burgers' equation with a steep front, viscosity 0.01 / pi, with plain torch and `gl.optim.LevenbergMarquardt`.

    u_t + u u_x = nu u_xx,   x in (-1, 1), t in (0, 1),   u(x, 0) = -sin(pi x),   u(-1, t) = u(1, t) = 0

One learns how initial and boundary values are built in, to stretch the front, and to draw new points where residuals
are large. The solution is odd in x: the network has x from 0 to 1. The reference is the integral of Cole and Hopf.
A quick try: `python examples/pde_burgers.py 50`; to convergence:

    python examples/pde_burgers.py
"""

from __future__ import annotations

import math
import sys
import time

import torch
from torch import Tensor, nn

import gatelab as gl

NU, STEEP = 0.01 / math.pi, 0.01
REACH = math.asinh(1 / STEEP)
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


def reference(p: Tensor) -> Tensor:
    """The solution, by the trapezoidal rule for the integral over y."""
    (x, t), y = p.T[..., None], torch.linspace(-2.5, 2.5, 2001)
    weights = torch.softmax(-torch.cos(torch.pi * y) / (2 * torch.pi * NU) - (x - y) ** 2 / (4 * NU * t), 1)
    return -weights @ torch.sin(torch.pi * y)


class Solution(nn.Module):
    """-sin(pi x) + t x (1 - x) network(x, asinh(x / STEEP), t)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers = [nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)]
        self.network = nn.Sequential(*layers)

    def forward(self, p: Tensor) -> Tensor:
        x, t = p.T
        features = 2 * torch.stack([x, torch.asinh(x / STEEP) / REACH, t], 1) - 1
        return -torch.sin(torch.pi * x) + t * x * (1 - x) * self.network(features)[:, 0]


def equation(model: nn.Module, p: Tensor) -> Tensor:
    u = model(p)
    u_x, u_t = torch.autograd.grad(u.sum(), p, create_graph=True)[0].T
    u_xx = torch.autograd.grad(u_x.sum(), p, create_graph=True)[0][:, 0]
    return u_t + u * u_x - NU * u_xx


def chosen(model: nn.Module, count: int) -> Tensor:
    """Points drawn by their residuals; half of the candidates lie near the front."""
    p = torch.rand(4 * count, 2)
    p[::2, 0] = STEEP * torch.sinh(REACH * p[::2, 0])
    size = equation(model, p.requires_grad_()).detach().abs()
    return p.detach()[torch.multinomial(1 + size / size.mean(), count)].requires_grad_()


def main(steps: int = 300, width: int = 24, count: int = 2000) -> None:
    """Train, and print the relative L2 error at ten times."""
    model, other = Solution(width), torch.cartesian_prod(torch.linspace(0, 1, 513), torch.linspace(0.1, 1, 10))
    exact, optimizer, began = reference(other), gl.optim.LevenbergMarquardt(model), time.process_time()
    points = chosen(model, count)
    for step in range(1, steps + 1):
        loss = optimizer.step(lambda p=points: equation(model, p))
        if step % 25 == 0 or step == steps:
            error = (model(other) - exact).norm() / exact.norm()
            print(f"step {step:4}, {time.process_time() - began:5.0f} s: loss {loss:.1e}, relative error {error:.1e}")
            points = chosen(model, count)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
