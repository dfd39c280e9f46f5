"""The Allen-Cahn equation with its sharp fronts, with plain torch and `gl.optim.LevenbergMarquardt`.

    u_t = 0.0001 u_xx + 5 u - 5 u^3,   x in (-1, 1) periodic, t in (0, 1),   u(x, 0) = x^2 cos(pi x)

One learns that features can make a solution even and periodic, to solve in closed form what can be, and to weight what
grows. Without diffusion each point has a solution in closed form, so that the network has to learn h alone, from which
this solution starts; it also takes out most of the growth of errors with exp(5 t). The start has a kink at x = 1, which
the heat equation rounds off. The model is that of the smallest residual at points that training has not seen; the
reference, a pseudospectral solution, is only printed. A quick try: `python examples/pde_allen_cahn.py 50`; to
convergence, with other numbers of steps, neurons and points after it:

    python examples/pde_allen_cahn.py
"""

from __future__ import annotations

import copy
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


def kink(p: Tensor) -> tuple[Tensor, Tensor]:
    """The solution of the heat equation that is zero at t = 0 and has the slope 2 at x = 1, and half of its slope."""
    width = 2 * (NU * p[:, 1]).sqrt()
    z = (1 - p[:, 0]) / width
    slope = torch.special.erfc(z)
    return 2 * width * (torch.exp(-z * z) / torch.pi**0.5 - z * slope), slope


def reaction(h: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The solution of u_t = 5 u - 5 u^3 from h at t = 0, its derivative by h, and the second over the first."""
    growth = torch.exp(10 * t) - 1
    below = 1 + growth * h * h
    return h * ((1 + growth) / below).sqrt(), ((1 + growth) / below**3).sqrt(), -3 * growth * h / below


class Solution(nn.Module):
    """h = x^2 cos(pi x) + kink + t network, the start from which the reaction alone gives u at t."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers = [nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)]
        self.network = nn.Sequential(*layers)

    def forward(self, p: Tensor) -> Tensor:
        (x, t), c, (round_off, slope) = p.T, torch.cos(torch.pi * p[:, 0]), kink(p)
        start = x**2 * c
        ends = [torch.log(1 + sign * c + STEEP) / 2.5 + 0.5 for sign in (1, -1)]
        steep = [torch.asinh(c / (torch.pi * STEEP)) / 4, reaction(start, t)[0]]
        features = [c, *steep, *ends, 2 * t - 1, slope, round_off / NU**0.5 / 2]
        return start + round_off + t * self.network(torch.stack(features, 1))[:, 0]


def equation(model: nn.Module, p: Tensor) -> Tensor:
    h = model(p)
    h_x, h_t = torch.autograd.grad(h.sum(), p, create_graph=True)[0].T
    h_xx = torch.autograd.grad(h_x.sum(), p, create_graph=True)[0][:, 0]
    t = p[:, 1].detach()
    _, first, ratio = reaction(h, t)
    return torch.exp(-4 * t) * first * (h_t - NU * (h_xx + ratio * h_x**2))


def candidates(count: int) -> Tensor:
    """Points, of which a quarter lies near the front and a quarter near the kink."""
    p = torch.rand(count, 2)
    p[::4, 0] = 0.5 + STEEP * torch.sinh(np.arcsinh(0.5 / STEEP) * (2 * p[::4, 0] - 1))
    p[1::4, 0] = 1 - STEEP * torch.sinh(np.arcsinh(1 / STEEP) * p[1::4, 0])
    return p.requires_grad_()


def chosen(model: nn.Module, count: int) -> Tensor:
    """Candidates drawn by their residuals."""
    p = candidates(4 * count)
    size = equation(model, p).detach().abs()
    return p.detach()[torch.multinomial(1 + size / size.mean(), count)].requires_grad_()


def main(steps: int = 350, width: int = 22, count: int = 3000) -> None:
    """Train, and print the relative L2 error at ten times."""
    times, model = np.linspace(0.1, 1, 10), Solution(width)
    exact = torch.from_numpy(reference(times)).flatten()
    other = torch.cartesian_prod(torch.from_numpy(times), torch.arange(512) / 512).flip(1)
    unseen, least, best = candidates(5000), np.inf, model.state_dict()
    optimizer, began = gl.optim.LevenbergMarquardt(model), time.process_time()
    points = chosen(model, count)
    for step in range(1, steps + 1):
        loss = optimizer.step(lambda p=points: equation(model, p))
        if step % 25 == 0 or step == steps:
            residual, seconds = equation(model, unseen).detach().square().mean(), time.process_time() - began
            if residual < least:
                least, best = residual, copy.deepcopy(model.state_dict())
            print(f"step {step:4}, {seconds:5.0f} s: loss {loss:.1e}, at unseen points {residual:.1e}, ", end="")
            print(f"relative error {relative_error(model, other, exact):.1e}", flush=True)
            points = chosen(model, count)
    model.load_state_dict(best)
    print(f"smallest loss at unseen points {least:.1e}: relative error {relative_error(model, other, exact):.1e}")


@torch.no_grad()
def relative_error(model: nn.Module, p: Tensor, exact: Tensor) -> float:
    return float((reaction(model(p), p[:, 1])[0] - exact).norm() / exact.norm())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
