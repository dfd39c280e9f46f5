"""Phi and Psi as two trained networks (paper 003, section 4.2).

In the recipe "fresh" every step draws new rows and inputs, and at the end the last layers are solved for with both
bodies A(w), B(x) fixed, by the singular value decomposition of Ca^(-1/2) E[A act(w.x) B^T] Cb^(-1/2), Ca = E[A A^T],
Cb = E[B B^T]; it gets close to the floor. The recipe "paper" has 1024 fixed matrices W with one x each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.display import Listener, ProgressLike, reporting
from gatelab.errors import check_seed, unknown_name, whole_number
from gatelab.feedforward import Activation
from gatelab.interrupts import apart
from gatelab.linearization.floors import check_spread
from gatelab.linearization.monomials import Maps
from gatelab.memory import check_memory

Recipe = Literal["fresh", "paper"]
RECIPES = get_args(Recipe)
_REFIT_ROWS = 4096
_RIDGE = 1e-10
_WIDER = 1.5
_BATCH = 256  # rows and inputs per step


def learned_maps(
    activation: Activation,
    d: int,
    *,
    m: int,
    recipe: Recipe = "fresh",
    seed: int = 0,
    w_scale: float = 1.0,
    x_scale: float = 1.0,
    steps: int = 300,
    epochs: int = 30,
    progress: ProgressLike = None,
) -> Maps:
    """Maps for w ~ N(0, w_scale^2 I), x ~ N(0, x_scale^2 I); `steps` are for recipe "fresh", `epochs` for "paper"."""
    m = whole_number("m", m, 1)
    for name, value in {"steps": steps, "epochs": epochs}.items():
        whole_number(name, value, 1)
    width = max(192, m)
    layers = 2 if d < 8 else 1  # for large d the best maps are nearly quadratic
    if recipe not in RECIPES:
        raise unknown_name("recipe", recipe, RECIPES)
    # Weights, gradients and two momenta in float32; then features and targets of the last step in float64.
    out = d + 2 + min(width, d * (d + 1)) + width
    weights = 2 * d * min(width, d * (d + 1)) + (2 * d + 1) * width + (layers - 1) * width**2 + out * m
    needed = 2 * 16 * weights + 8 * (6 * _REFIT_ROWS * out + 6 * out**2)
    check_memory(needed, f"learning maps of {m} features", "give a smaller m")
    data = TrainingPairs(activation, d, check_spread(w_scale, "w_scale"), check_spread(x_scale, "x_scale"))
    generator = torch.Generator().manual_seed(check_seed(seed))
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), reporting(progress, "training the maps") as report:
        torch.manual_seed(seed)
        report = report or (lambda done, total: None)
        if recipe == "paper":
            phi, psi = _paper(data, m, epochs, generator, report)
        else:
            phi, psi = _fresh(data, m, (width, layers), steps, generator, report)
    return Maps(_function(phi), _function(psi), m, d)


def _function(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """A network with fixed weights as a function of rows of any dtype and device."""
    network = network.requires_grad_(False).eval()

    @cache
    def version(dtype: torch.dtype, device: torch.device) -> nn.Module:
        return deepcopy(network).to(device, dtype)

    return lambda rows: version(rows.dtype, rows.device)(rows)


class Body(nn.Module):
    """Rows -> features: one, the row, its length, neurons, and products, which span degree two of the best maps."""

    def __init__(self, d: int, width: int, layers: int) -> None:
        super().__init__()
        products = min(width, d * (d + 1))
        self.pairs = nn.Linear(d, 2 * products, bias=False)
        sizes = [2 * d + 1] + [width] * layers
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.out = d + 2 + products + width

    def forward(self, rows: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        direction = rows / length.clamp_min(1e-6)
        g, u = self.pairs(direction).chunk(2, -1)
        hidden = torch.cat([rows, length, direction], -1)
        for layer in self.layers:
            hidden = functional.gelu(layer(hidden))
        return torch.cat([torch.ones_like(length), length, rows, length * g * u, hidden], -1)


@dataclass(frozen=True)
class TrainingPairs:
    """Normal rows w and inputs x with standard deviations `w_scale` and `x_scale`, and the values of their pairs."""

    activation: Activation
    d: int
    w_scale: float
    x_scale: float

    def draw(self, n: int, generator: torch.Generator, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """n rows, n inputs and the values of all their pairs."""
        W = self.w_scale * torch.randn(n, self.d, generator=generator, dtype=dtype)
        X = self.x_scale * torch.randn(n, self.d, generator=generator, dtype=dtype)
        return W, X, self.activation(W @ X.T)

    def tails(self, n: int, scale: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """n rows, every second one from a wider distribution, and the square roots of their importance weights."""
        rows = torch.randn(n, self.d, generator=generator, dtype=torch.float64)
        rows[::2] *= _WIDER
        log = rows.square().sum(1, keepdim=True) / 2 * (1 - _WIDER**-2) - self.d * math.log(_WIDER)
        return scale * rows, (2 / (1 + log.exp())).sqrt()


def _fresh(
    data: TrainingPairs, m: int, size: tuple[int, int], steps: int, generator: torch.Generator, report: Listener
) -> tuple[nn.Module, nn.Module]:
    """Phi and Psi by the recipe "fresh"; `size` is the number of neurons and of layers."""
    sides = []
    for _ in range(2):
        body = Body(data.d, *size)
        sides.append(nn.Sequential(body, nn.Linear(body.out, m, bias=False)))
    phi, psi = sides
    parameters = [*phi.parameters(), *psi.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    # Warmup in the first twentieth, then a cosine.
    warm = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / warm, 0.5 * (1 + math.cos(math.pi * min(1.0, s / steps))))
    )
    for step in range(steps):
        W, X, y = data.draw(_BATCH, generator, torch.float32)
        loss = (phi(W) @ psi(X).T - y).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        report(step + 1, steps)
    return _refit(data, phi.double(), psi.double(), m, generator)


@torch.no_grad()
def _refit(
    data: TrainingPairs, phi: nn.Sequential, psi: nn.Sequential, m: int, generator: torch.Generator
) -> tuple[nn.Module, nn.Module]:
    """The best heads for fixed bodies, if they are better on new rows."""
    (W, w), (X, x) = (data.tails(_REFIT_ROWS, scale, generator) for scale in (data.w_scale, data.x_scale))
    A, B = w * phi[0](W), x * psi[0](X)
    y = w * data.activation(W @ X.T) * x.T
    roots = [_root(F.T @ F / len(F)) for F in (A, B)]
    core = roots[0] @ (A.T @ y @ B / (len(A) * len(B))) @ roots[1]
    U, sigma, Vt = apart(torch.linalg.svd, core)
    k = min(m, len(sigma))
    heads = []
    for root, vectors in zip(roots, (U[:, :k], Vt[:k].T), strict=True):
        head = nn.Linear(root.shape[0], m, bias=False, dtype=torch.float64)
        head.weight.zero_()
        head.weight[:k] = (root @ vectors * sigma[:k].sqrt()).T
        heads.append(head)
    refitted = nn.Sequential(phi[0], heads[0]), nn.Sequential(psi[0], heads[1])
    W, X, y = data.draw(_REFIT_ROWS // 2, generator, torch.float64)
    before, after = ((a(W) @ b(X).T - y).square().mean() for a, b in ((phi, psi), refitted))
    if after < before:
        return refitted
    return phi, psi


def _root(gram: Tensor) -> Tensor:
    """gram^(-1/2) on the directions of the data."""
    values, vectors = apart(torch.linalg.eigh, gram)
    filled = values > _RIDGE * values[-1]
    return vectors[:, filled] @ torch.diag(values[filled].rsqrt()) @ vectors[:, filled].T


def _paper(
    data: TrainingPairs, m: int, epochs: int, generator: torch.Generator, report: Listener
) -> tuple[nn.Module, nn.Module]:
    """Phi and Psi by the paper's recipe."""
    N, size, d = 1024, 64, data.d
    W = data.w_scale * torch.randn(N, d, d, generator=generator)
    x = data.x_scale * torch.randn(N, d, generator=generator)
    y = data.activation(torch.einsum("bij,bj->bi", W, x))
    psi, phi = (nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, m)) for _ in range(2))
    optimizer = torch.optim.Adam([*psi.parameters(), *phi.parameters()], lr=1e-3)
    for epoch in range(epochs):
        for rows in torch.randperm(N, generator=generator).split(size):
            outputs = (phi(W[rows]) @ psi(x[rows])[:, :, None])[:, :, 0]
            loss = functional.mse_loss(outputs, y[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        report(epoch + 1, epochs)
    return phi, psi


def population_rmse(
    maps: Maps, activation: Activation, *, seed: int, rows: int = 3000, w_scale: float = 1.0, x_scale: float = 1.0
) -> float:
    """The RMSE over all pairs of `rows` new rows and `rows` new inputs."""
    generator = torch.Generator().manual_seed(check_seed(seed))
    W, X, y = TrainingPairs(activation, maps.d, w_scale, x_scale).draw(rows, generator, torch.float64)
    return float((maps.phi(W) @ maps.psi(X).T - y).square().mean().sqrt())
