"""A linearised layer as a module: biases are the weights of an input that is always one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.memory import check_memory

if TYPE_CHECKING:
    from gatelab.linearize.linearization import Linearization


class LinearizedLayer(nn.Module):
    """x (..., d) -> Psi([x, 1]) Phi([W, b])^T (..., n). Phi is a buffer: it moves and is saved with the module."""

    Phi: Tensor

    def __init__(self, made: Linearization, weights: Sequence[Tensor], b: Any, features: bool) -> None:
        super().__init__()
        biases = [None] * len(weights) if b is None else [b] if isinstance(b, Tensor) else list(b)
        if len(biases) != len(weights) or any(v is not None and v.shape != weights[0].shape[:-1] for v in biases):
            raise GatelabError(
                f"the biases do not fit W of shape {tuple(weights[0].shape)}; give one of shape "
                f"{tuple(weights[0].shape[:-1])} for each of {len(weights)} weights"
            )
        self.made, self.lifted, self.biased = made, features, any(v is not None for v in biases)
        rows = [w.detach() for w in weights]
        if self.biased:
            ends = [torch.zeros_like(w[..., 0]) if v is None else v.detach() for w, v in zip(rows, biases, strict=True)]
            rows = [torch.cat([w, v[..., None]], dim=-1) for w, v in zip(rows, ends, strict=True)]
        if not features and made.polynomial is None:
            raise GatelabError(
                f"{made.method} is no polynomial of w.x and has no product without features; leave features on"
            )
        maps = made.features(rows[0].shape[-1])
        if features:
            check_memory(
                2 * rows[0].element_size() * maps.m * rows[0].shape[:-1].numel(),
                f"Phi of {tuple(rows[0].shape)} weights with {maps.m} features a row",
                "lower the degree, or give features=False to keep W and evaluate the polynomial",
                rows[0].device,
            )
        self.count = len(rows)
        kept = made.phi(rows if made.factors else rows[0]) if features else torch.stack(rows)
        self.register_buffer("Phi", kept)

    def forward(self, x: Tensor) -> Tensor:
        if self.biased:
            x = torch.cat([x, x.new_ones((*x.shape[:-1], 1))], dim=-1)
        if self.lifted:
            made = self.made.psi(x) @ self.Phi.mT.to(x.device)
            return made.real if made.is_complex() else made
        assert self.made.polynomial is not None
        value = self.made.polynomial(x @ self.Phi[0].mT)
        for u in self.Phi[1:]:
            value = value * (x @ u.mT)
        return value

    def extra_repr(self) -> str:
        return f"{self.made}, {tuple(self.Phi.shape)}"
