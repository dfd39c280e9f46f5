"""Poisson's equation in two dimensions, to nine digits, with plain torch and `gl.optim.LevenbergMarquardt`.

    -u_xx - u_yy = f  on the unit square,   u = 0 on its boundary

One learns how to write an equation as residuals: the network times x (1 - x) y (1 - y) is zero on the boundary, and
derivatives are those of `torch.autograd`. Each row of residuals depends on one point, so that a step is cheap. The
residuals are affine in the last layer, which `linear` eliminates.

    python examples/pde_poisson.py
"""

from __future__ import annotations

import sys
import time

import torch
from torch import Tensor, nn

import gatelab as gl

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


def exact(p: Tensor) -> Tensor:
    """The solution; f is its negative Laplacian."""
    x, y = p.T
    return torch.sin(torch.pi * x) * torch.sin(torch.pi * y) * torch.exp(x)


class Solution(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.head = nn.Linear(width, 1)

    def forward(self, p: Tensor) -> Tensor:
        x, y = p.T
        return x * (1 - x) * y * (1 - y) * self.head(self.body(p))[:, 0]


def laplacian(u: Tensor, p: Tensor) -> Tensor:
    (slope,) = torch.autograd.grad(u.sum(), p, create_graph=True)
    return sum(torch.autograd.grad(slope[:, i].sum(), p, create_graph=True)[0][:, i] for i in range(2))  # type: ignore


def main(steps: int = 300, width: int = 20) -> None:
    """Train, and print the relative L2 error."""
    points, other, model = torch.rand(900, 2).requires_grad_(), torch.rand(5000, 2), Solution(width)
    f = -laplacian(exact(points), points).detach()
    optimizer = gl.optim.LevenbergMarquardt(model, linear="head")
    began = time.process_time()
    for step in range(1, steps + 1):
        loss = optimizer.step(lambda: laplacian(model(points), points) + f)
        if step % 25 == 0 or step == steps:
            with torch.no_grad():
                error = (model(other) - exact(other)).norm() / exact(other).norm()
            print(f"step {step:4}, {time.process_time() - began:5.1f} s: loss {loss:.1e}, relative error {error:.1e}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
