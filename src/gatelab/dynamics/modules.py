"""Many networks of a user's class at once: gradients by `vmap` over stacked parameters."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from gatelab.errors import GatelabError
from gatelab.units import ModuleUnit


class ModuleStack:
    """s modules with the interface of `two_layer.Stack`; each is initialised as its class does under its seed."""

    def __init__(
        self,
        unit: ModuleUnit,
        width: int,
        d: int,
        outputs: int,
        seeds: Sequence[int],
        lr: Tensor,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        nets = [unit.network(width, d, outputs, seed=seed, dtype=dtype).to(device) for seed in seeds]
        if any(True for _ in nets[0].buffers()):
            raise GatelabError(
                f"the unit {unit.name!r} has buffers (running averages, say), and many networks in one batch cannot "
                "keep theirs apart; leave them out, or train its networks by yourself"
            )
        stacked, _ = stack_module_state(nets)
        self.parameters = {name: value.detach() for name, value in stacked.items()}
        self.lr = lr.to(device)
        # Without storage of its own: only its structure is called.
        skeleton = copy.deepcopy(nets[0]).to("meta")

        def squares(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return 0.5 * (functional_call(skeleton, (parameters,), (x,)).T - y).square().sum()

        def call(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
            return functional_call(skeleton, (parameters,), (x,)).T

        self._both, self._call = grad_and_value(squares), call

    def state(self) -> dict[str, Tensor]:
        return {name: value.contiguous() for name, value in self.parameters.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        for name, value in self.parameters.items():
            value.copy_(state[name])

    def stop(self, which: Tensor) -> None:
        self.lr[which] = 0.0
        for value in self.parameters.values():
            value[which] = 0.0

    def outputs(self, X: Tensor) -> Tensor:
        """(s, k, n) for samples (n, d)."""
        with torch.no_grad():
            return vmap(self._call, (0, None))(self.parameters, X)

    def step(self, X: Tensor, Y: Tensor, weight: float) -> Tensor:
        """One step on weight/2 |f - y|^2; the losses before it."""
        shared = None if X.ndim == 2 else 0
        gradients, losses = vmap(self._both, (0, shared, None if Y.ndim == 2 else 0))(self.parameters, X, Y)
        for name, value in self.parameters.items():
            rate = (self.lr * weight).view(-1, *[1] * (value.ndim - 1))
            value.sub_(gradients[name] * rate)
        return losses * weight
