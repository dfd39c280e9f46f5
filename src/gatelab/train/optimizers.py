"""Optimizers of stacked members, each with its own learning rate.

SGD and AdamW are torch's, on views of the members in the stack. torch.optim.Muon (torch 2.9 and later) processes
matrices one by one; this implementation takes a stack of them in a few batched products.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gatelab.train.recipes import Recipe

# The values of torch.optim.Muon for the Newton-Schulz iteration and the momentum.
COEFFICIENTS, ITERATIONS, MOMENTUM, EPSILON = (3.4445, -4.7750, 2.0315), 5, 0.95, 1e-7


class Optimizers:
    """The optimizers of parameters stacked over members."""

    def __init__(self, recipe: Recipe, params: Mapping[str, Tensor]) -> None:
        self.params = list(params.values())
        self.muon: Muon | None = None
        by_entry = dict(params)
        if recipe.optimizer == "muon":
            # The weights of taps act per column, and are no matrices of a map.
            blocks = [name for name in params if name.startswith("blocks.") and not name.endswith(".taps")]
            hidden = [name for name in blocks if params[name].ndim == 3]
            self.muon = Muon({name: by_entry.pop(name) for name in hidden}, recipe.weight_decay)
        self.whole = list(by_entry.values())
        self.views = [[p.detach()[member] for p in self.whole] for member in range(len(self.params[0]))]
        groups: list[dict[str, Any]] = []
        for views in self.views:
            # Weight decay applies to matrices, not to norms and biases.
            groups.append({"params": [p for p in views if p.ndim > 1], "weight_decay": recipe.weight_decay})
            groups.append({"params": [p for p in views if p.ndim <= 1], "weight_decay": 0.0})
        how: dict[str, Any] = {"lr": recipe.lr, "fused": self.params[0].is_cuda}
        if recipe.optimizer == "sgd":
            self.entries: torch.optim.Optimizer = torch.optim.SGD(groups, momentum=recipe.momentum, **how)
        else:
            self.entries = torch.optim.AdamW(groups, betas=(0.9, recipe.beta2), capturable=how["fused"], **how)

    @property
    def parts(self) -> list[torch.optim.Optimizer]:
        """The optimizers, in the order of their states in a checkpoint."""
        return [part for part in (self.entries, self.muon) if part is not None]

    def zero_grad(self) -> None:
        for p in self.params:
            p.grad = None

    def step(self, rates: Sequence[float | Tensor]) -> None:
        """One update at the given learning rate of each member: numbers, or tensors if a graph is recorded."""
        for member, views in enumerate(self.views):
            for view, p in zip(views, self.whole, strict=True):
                view.grad = None
                if p.grad is not None:
                    view.grad = p.grad[member]
            for group in self.entries.param_groups[2 * member : 2 * member + 2]:
                group["lr"] = rates[member]
        self.entries.step()
        if self.muon is not None:
            self.muon.param_groups[0]["rates"] = list(rates)
            self.muon.step()


class Muon(torch.optim.Optimizer):
    """`torch.optim.Muon` with the rates of AdamW ("match_rms_adamw"), on stacks (members, rows, columns) of matrices.

    A parameter whose name ends in qkv.weight is treated as three matrices.
    """

    def __init__(self, params: Mapping[str, Tensor], weight_decay: float) -> None:
        self.counts = [3 if name.endswith("qkv.weight") else 1 for name in params]
        super().__init__([{"params": list(params.values())}], {"rates": [], "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        for p, count in zip(group["params"], self.counts, strict=True):
            if p.grad is None:
                continue
            state = self.state[p]
            if not state:
                state["momentum"] = torch.zeros_like(p)
            momentum = state["momentum"]
            momentum.lerp_(p.grad, 1 - MOMENTUM)
            update = p.grad.lerp(momentum, MOMENTUM).unflatten(1, (count, -1))
            rows, columns = update.shape[-2:]
            rates = torch.stack([torch.as_tensor(rate, dtype=p.dtype, device=p.device) for rate in group["rates"]])
            rates = rates[:, None, None]
            p.mul_(1 - rates * group["weight_decay"])
            p.sub_(0.2 * max(rows, columns) ** 0.5 * rates * orthogonalized(update).to(p.dtype).flatten(1, 2))


def orthogonalized(matrices: Tensor) -> Tensor:
    """Matrices (..., rows, columns) with singular values near 1, by five Newton-Schulz steps; in bf16 on a GPU."""
    a, b, c = COEFFICIENTS
    x = matrices
    if x.is_cuda:
        x = x.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=EPSILON)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    if tall:
        x = x.mT
    return x


def clip_members(params: Iterable[Tensor], most: float) -> None:
    """Clip the gradient norm of each member to `most`, independently of the others."""
    stacks = [(p.detach(), p.grad) for p in params if p.grad is not None]
    for member in range(len(stacks[0][0])):
        # One call per member needs a few kernels for all its matrices.
        views = [p[member] for p, _ in stacks]
        for view, (_, gradients) in zip(views, stacks, strict=True):
            view.grad = gradients[member]
        torch.nn.utils.clip_grad_norm_(views, most)
