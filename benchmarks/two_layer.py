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
                    lambda unit=unit, X=X, y=y: [
                        train(unit, X, y, WIDTH, LR, steps, seeds=[seed]) for seed in range(networks)
                    ],
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


def _plain(unit: str, X: np.ndarray, y: np.ndarray, steps: int, networks: int) -> None:
    """What one writes without gatelab."""
    x, target = torch.from_numpy(X), torch.from_numpy(y)[:, None]
    for seed in range(networks):
        torch.manual_seed(seed)
        sizes = [(X.shape[1], WIDTH), (X.shape[1], WIDTH), (WIDTH, 1)]
        G, U, D = (nn.Linear(a, b, bias=False, dtype=torch.float64) for a, b in sizes)
        optimizer = torch.optim.SGD([G.weight, D.weight] + [U.weight] * (unit == "glu"), lr=LR)
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            hidden = torch.relu(G(x)) * (U(x) if unit == "glu" else 1)
            loss = 0.5 * (D(hidden) - target).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
