"""Variable projection for a class of the user's own, by automatic differentiation.

Which parameters are linear is found out, not asked: from the last to the first, a tensor joins those in which the
output is jointly affine if a second difference in a chance direction vanishes. The others move by Levenberg-Marquardt,
with Jacobians row by row from `torch.func`. Nothing is scaled: the class sees the data as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from gatelab.errors import GatelabError
from gatelab.linalg.least_squares import Projection, project


@dataclass(frozen=True)
class ModuleModel:
    """A batch of modules of one class: theta (B, p) holds what is not linear, in the order of `moving`."""

    net: nn.Module
    x: Tensor
    y: Tensor
    ridge: float
    linear: tuple[str, ...]
    moving: tuple[str, ...]

    @classmethod
    def of(cls, net: nn.Module, x: Tensor, y: Tensor, ridge: float) -> ModuleModel:
        names = [name for name, p in net.named_parameters() if p.requires_grad]
        linear = linear_parameters(net, x)
        return cls(net, x, y, ridge, linear, tuple(n for n in names if n not in linear))

    def start(self, net: nn.Module) -> Tensor:
        values = dict(net.named_parameters())
        return torch.cat([torch.zeros(0, dtype=self.x.dtype), *(values[n].detach().flatten() for n in self.moving)])

    def take(self, index: Tensor) -> ModuleModel:
        return self

    def moved(self, theta: Tensor, step: Tensor) -> Tensor:
        return theta + step

    def project(self, theta: Tensor) -> Projection:
        F, at_zero = self._columns(theta)
        penalty = torch.full(F.shape[::2], self.ridge * len(self.x), dtype=F.dtype)
        return project(F, self.y.reshape(1, -1, 1) - at_zero, penalty)

    def normal(self, theta: Tensor, found: Projection) -> tuple[Tensor, Tensor]:
        F, _ = self._columns(theta)
        rows = [
            self._jacobian(self._values(self.moving, t) | self._values(self.linear, c[:, 0]), self.moving)
            for t, c in zip(theta, found.coefficients, strict=True)
        ]
        J = torch.stack(rows)
        return found.reduced_gram(F, J), (J.mT @ found.residual)[..., 0]

    def network(self, theta: Tensor, coefficients: Tensor) -> nn.Module:
        """The module with these parameters: `net` itself, changed."""
        values = self._values(self.moving, theta) | self._values(self.linear, coefficients[:, 0])
        with torch.no_grad():
            for name, p in self.net.named_parameters():
                if name in values:
                    p.copy_(values[name])
        return self.net

    def _columns(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """F (B, N d_out, m) and the output where the linear parameters are zero (B, N d_out, 1)."""
        columns, outputs = [], []
        for t in theta:
            values = self._values(self.moving, t) | self._values(self.linear, None)
            with torch.no_grad():
                outputs.append(functional_call(self.net, values, (self.x,)).reshape(-1, 1))
            columns.append(self._jacobian(values, self.linear) if self.linear else torch.zeros_like(outputs[-1]))
        return torch.stack(columns), torch.stack(outputs)

    def _jacobian(self, values: Mapping[str, Tensor], names: tuple[str, ...]) -> Tensor:
        """d output / d the named parameters, (N d_out, count)."""
        held = {n: v for n, v in values.items() if n not in names}

        def one(moving: dict[str, Tensor], row: Tensor) -> Tensor:
            return functional_call(self.net, held | moving, (row[None],))[0]

        try:
            parts = vmap(jacrev(one), in_dims=(None, 0))({n: values[n] for n in names}, self.x)
        except RuntimeError as error:
            raise GatelabError(
                f"{type(self.net).__name__} cannot be differentiated row by row ({str(error).splitlines()[0]}); "
                "use solver='lbfgs' or 'adam'"
            ) from error
        rows = self.y.numel()
        return torch.cat([parts[n].reshape(rows, -1) for n in names], -1).detach()

    def _values(self, names: tuple[str, ...], flat: Tensor | None) -> dict[str, Tensor]:
        """The named parameters cut from a flat tensor; zeros without one."""
        shapes = {n: p for n, p in self.net.named_parameters() if n in names}
        if flat is None:
            return {n: torch.zeros_like(shapes[n]) for n in names}
        sizes = [shapes[n].numel() for n in names]
        return {n: v.view_as(shapes[n]) for n, v in zip(names, flat[: sum(sizes)].split(sizes), strict=True)}


@torch.no_grad()
def linear_parameters(net: nn.Module, x: Tensor) -> tuple[str, ...]:
    """The names of parameters in which the output is jointly affine, found from the last to the first.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    >>> linear_parameters(net, torch.randn(20, 2).double())
    ('2.weight', '2.bias')
    """
    generator = torch.Generator().manual_seed(0)
    rows = x[: min(len(x), 256)]
    named = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    values = {n: torch.randn(p.shape, generator=generator, dtype=p.dtype) for n, p in named}
    steps = {n: torch.randn(p.shape, generator=generator, dtype=p.dtype) for n, p in named}
    found: list[str] = []
    for name, _ in reversed(named):
        tried = [name, *found]
        low, middle, high = (
            functional_call(net, {n: v + s * steps[n] * (n in tried) for n, v in values.items()}, (rows,))
            for s in (-1.0, 0.0, 1.0)
        )
        if bool((low - 2 * middle + high).abs().max() <= 1e-10 * (high.abs() + low.abs()).max()):
            found = tried
    return tuple(found)
