"""Batches of two-layer networks of one unit: forward, loss and gradient as a few products over the whole stack.

    f(x) = V [ act(W x) * (P1 x) * ... * (Pq x) ]          W, P ~ N(0, 1/d), V ~ N(0, 1/m), no biases

The maps of all networks are one tall matrix, so that their values are one product X -> Z. With one output the gradient
of row i of a map is V_i sum_n S_in r_n x_n, S the neuron's partial derivative and r the residual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gatelab.feedforward import Unit
from gatelab.feedforward.definition import neuron_slopes

# Gates with fused loops in torch: forward into `out`, and slope times a factor into `out`.
_aten: Any = torch.ops.aten
_FUSED: dict[Callable[..., Tensor], tuple[Callable[..., Any], Callable[..., Any]]] = {
    torch.relu: (
        lambda z, out: torch.clamp_min(z, 0.0, out=out),
        lambda factor, z, out: _aten.threshold_backward.grad_input(factor, z, 0, grad_input=out),
    ),
    functional.gelu: (
        lambda z, out: _aten.gelu.out(z, out=out),
        lambda factor, z, out: _aten.gelu_backward.grad_input(factor, z, grad_input=out),
    ),
    functional.silu: (
        lambda z, out: _aten.silu.out(z, out=out),
        lambda factor, z, out: _aten.silu_backward.grad_input(factor, z, grad_input=out),
    ),
}


def is_product(unit: Unit) -> bool:
    """Whether the neuron is a gate times factors, not a user's function of several maps."""
    return type(unit).neuron is Unit.neuron


def draw(unit: Unit, width: int, d: int, outputs: int, seed: int, fan_in: int) -> tuple[Tensor, Tensor]:
    """The weights of one network, (q + 1, m, d) and (k, m): the draws of `unit.network(init="lecun")`, in its order."""
    generator = torch.Generator().manual_seed(seed)

    def normal(rows: int, columns: int, fan: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator, dtype=torch.float64) / fan**0.5

    maps = torch.stack([normal(width, d, fan_in) for _ in range(unit.factors + 1)])
    return maps, normal(outputs, width, width)


def neuron_partials(unit: Unit, Z: Tensor) -> tuple[Tensor, Tensor]:
    """The neuron's value and its derivatives in each map, for Z of shape (q + 1, ...)."""
    if is_product(unit):
        gate, factors = Z[0], list(Z[1:])
        value = unit.gate(gate)
        partials = [reduce(torch.mul, [unit.gate.slope(gate), *factors])]
        partials += [reduce(torch.mul, [value, *factors[:j], *factors[j + 1 :]]) for j in range(len(factors))]
        return unit.neuron(gate, *factors), torch.stack(partials)
    value, partials = neuron_slopes(unit, Z)
    return value, torch.stack(partials)


class Stack:
    """s networks of these seeds: `maps` (q + 1, s, m, d) and `V` (s, k, m), which `step` changes in place."""

    def __init__(
        self,
        unit: Unit,
        width: int,
        d: int,
        outputs: int,
        seeds: Sequence[int],
        lr: float,
        fan_in: int,
        device: torch.device,
    ) -> None:
        maps, V = zip(*(draw(unit, width, d, outputs, seed, fan_in) for seed in seeds), strict=True)
        self.unit, self.maps, self.V = unit, torch.stack(maps, 1).to(device), torch.stack(V).to(device)
        self.lr = torch.full((len(seeds), 1, 1), lr, dtype=torch.float64, device=device)
        self.fused = _FUSED.get(unit.gate.function) if is_product(unit) else None
        self._arrays: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def stop(self, which: Tensor) -> None:
        """Set weights and learning rates to zero, since arithmetic with overflowed numbers is slow."""
        self.lr[which] = 0.0
        self.maps[:, which] = 0.0
        self.V[which] = 0.0

    def outputs(self, X: Tensor) -> Tensor:
        """(s, k, n) for samples (n, d)."""
        return torch.bmm(self.V, self._neurons(self._maps_of(X)))

    def step(self, X: Tensor, Y: Tensor, weight: float) -> Tensor:
        """One step of gradient descent on weight/2 |f - y|^2, X (n, d) and Y (k, n); the losses before it, (s,)."""
        Z = self._maps_of(X)
        H = self._neurons(Z)
        R = self._array("R", (len(self.V), self.V.shape[1], Z.shape[-1]))
        torch.bmm(self.V, H, out=R)
        R.sub_(Y)
        losses = R.square().sum((1, 2)).mul_(0.5 * weight)
        R.mul_(self.lr * weight)
        dV = torch.bmm(R, H.transpose(1, 2))
        S = self._partials(Z, H)
        V, (n, d) = self.V.transpose(1, 2), X.shape
        if self.V.shape[1] == 1:
            RX = torch.mul(R.transpose(1, 2), X, out=self._array("RX", (len(V), n, d)))
            B = self._array("B", (len(V), V.shape[1], d))
            for maps, partial in zip(self.maps, S, strict=True):
                torch.bmm(partial, RX, out=B)
                maps.addcmul_(B, V, value=-1.0)
        else:
            dH = torch.bmm(V, R, out=self._array("dH", tuple(S[0].shape)))
            for maps, partial in zip(self.maps, S, strict=True):
                maps.view(-1, d).addmm_(partial.mul_(dH).view(-1, n), X, alpha=-1.0)
        self.V.sub_(dV)
        return losses

    def _maps_of(self, X: Tensor) -> Tensor:
        """Z, (q + 1, s, m, n)."""
        Z = self._array("Z", (*self.maps.shape[:3], len(X)))
        torch.mm(self.maps.view(-1, X.shape[1]), X.T, out=Z.view(-1, len(X)))
        return Z

    def _neurons(self, Z: Tensor) -> Tensor:
        """The neurons' values; with factors, the gate's value stays in the array "gate"."""
        H = self._array("H", tuple(Z.shape[1:]))
        if self.fused is None:
            return H.copy_(self.unit.neuron(*Z))
        if len(Z) == 1:
            self.fused[0](Z[0], H)
            return H
        gate = self._array("gate", tuple(Z.shape[1:]))
        self.fused[0](Z[0], gate)
        torch.mul(gate, Z[1], out=H)
        for factor in Z[2:]:
            H.mul_(factor)
        return H

    def _partials(self, Z: Tensor, H: Tensor) -> list[Tensor]:
        """The neuron's derivative in each map, (s, m, n) each; H may be overwritten."""
        if self.fused is None:
            return list(neuron_partials(self.unit, Z)[1])
        if len(Z) == 1:
            ones = torch.ones((), dtype=Z.dtype, device=Z.device).expand_as(Z[0])
            self.fused[1](ones, Z[0], H)
            return [H]
        factors = list(Z[1:])
        gate = self._array("gate", tuple(Z.shape[1:]))
        self.fused[1](reduce(torch.mul, factors), Z[0], H)
        return [H, *(reduce(torch.mul, [gate, *factors[:j], *factors[j + 1 :]]) for j in range(len(factors)))]

    def _array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """An array of this name and shape, allocated once: allocation at every step is slow."""
        if (name, shape) not in self._arrays:
            self._arrays[name, shape] = torch.empty(shape, dtype=self.maps.dtype, device=self.maps.device)
        return self._arrays[name, shape]
