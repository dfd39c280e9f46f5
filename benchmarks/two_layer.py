"""Two-layer networks in one batch, against one after the other: our own runs, and a plain loop of torch's modules."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from benchmarks.harness import Row, Table, best_times, threads
from gatelab.dynamics import train

NETWORKS, WIDTH, POINTS = 64, 64, 500
LR = 1e-5


class Plain(nn.Module):
    """What one writes without gatelab."""

    def __init__(self, gated: bool, d: int) -> None:
        super().__init__()
        self.G = nn.Linear(d, WIDTH, bias=False, dtype=torch.float64)
        self.U = nn.Linear(d, WIDTH, bias=False, dtype=torch.float64) if gated else None
        self.D = nn.Linear(WIDTH, 1, bias=False, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.G(x))
        return self.D(h if self.U is None else h * self.U(x))


def run(steps: int = 200, networks: int = NETWORKS) -> Iterator[Table]:
    """All cores for everyone: torch shares out what it can of single networks, we share out parts of the batch."""
    rows: list[Row] = []
    with threads() as cores:
        for d in (1, 10):
            X = np.random.default_rng(0).standard_normal((POINTS, d))
            y = np.sin(3 * X[:, 0])
            for unit in ("mlp", "glu"):
                batch, own, plain = best_times(
                    lambda unit=unit, X=X, y=y: train(unit, X, y, WIDTH, LR, steps, seeds=networks),
                    lambda unit=unit, X=X, y=y: _one_by_one(unit, X, y, steps, networks),
                    lambda unit=unit, X=X, y=y: _plain(unit, X, y, steps, networks),
                )
                row = {"unit": unit, "inputs": d, "one batch": batch, "our single runs": own}
                row |= {"torch.nn and SGD": plain, "over own": own / batch, "over torch": plain / batch}
                rows.append(row)
    yield (
        f"Seconds for {networks} networks of width {WIDTH}, {POINTS} points, {steps} steps, {cores} threads",
        rows,
        "least of three, taken in turn; our single runs have the same hand-written gradients as the batch",
    )


def _one_by_one(unit: str, X: np.ndarray, y: np.ndarray, steps: int, networks: int) -> None:
    for seed in range(networks):
        train(unit, X, y, WIDTH, LR, steps, seeds=[seed])


def _plain(unit: str, X: np.ndarray, y: np.ndarray, steps: int, networks: int) -> None:
    x, target = torch.from_numpy(X), torch.from_numpy(y)[:, None]
    for seed in range(networks):
        torch.manual_seed(seed)
        net = Plain(unit == "glu", X.shape[1])
        optimizer = torch.optim.SGD(net.parameters(), lr=LR)
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = 0.5 * (net(x) - target).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
