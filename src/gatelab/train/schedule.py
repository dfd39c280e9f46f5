"""When the learning rate rises and falls, when losses are measured, and the two optimisers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from gatelab.train.recipe import Recipe


def learning_rate(recipe: Recipe, step: int) -> float:
    """The rate of the update that follows `step` updates: a line up over the warm-up, then half a cosine down to 0.

    >>> from gatelab.train.recipe import recipe as made
    >>> r = made("mixer", "glu", lr=1.0, steps=100, warmup=10)
    >>> [round(learning_rate(r, t), 3) for t in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    if step < recipe.warmup:
        return recipe.lr * (step + 1) / recipe.warmup
    if recipe.schedule == "constant":
        return recipe.lr
    share = (step - recipe.warmup) / (recipe.steps - recipe.warmup)
    return recipe.lr * (1 + math.cos(math.pi * share)) / 2


def evaluation_steps(recipe: Recipe) -> tuple[int, ...]:
    """The numbers of updates after which losses are measured: steps (i / n)^2, since losses change most at the start.

    >>> from gatelab.train.recipe import recipe as made
    >>> evaluation_steps(made("mixer", "glu", steps=100, evaluations=5))
    (0, 4, 16, 36, 64, 100)
    """
    n = recipe.evaluations
    return tuple(sorted({round(recipe.steps * (i / n) ** 2) for i in range(n + 1)}))


def optimiser(recipe: Recipe, params: Mapping[str, Tensor]) -> torch.optim.Optimizer:
    """SGD or AdamW on stacked parameters (members, ...); weight decay is on matrices alone, not on norms and biases."""
    matrices = [p for p in params.values() if p.ndim > 2]
    others = [p for p in params.values() if p.ndim <= 2]
    groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}]
    fused = next(iter(params.values())).is_cuda
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, fused=fused)
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, recipe.beta2), fused=fused)


def clip_members(params: Iterable[Tensor], most: float) -> None:
    """Shorten the gradient of each member to the length `most` where it is longer; no member feels another.

    >>> p = torch.zeros(2, 1, requires_grad=True)
    >>> p.grad = torch.tensor([[3.0], [0.5]])
    >>> clip_members([p], 1.0)
    >>> p.grad.ravel()
    tensor([1.0000, 0.5000])
    """
    grads = [p.grad for p in params if p.grad is not None]
    squares = torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0)
    shares = (most / (squares.sqrt() + 1e-12)).clamp(max=1.0)
    for g in grads:
        g.mul_(shares.view(-1, *[1] * (g.ndim - 1)))
