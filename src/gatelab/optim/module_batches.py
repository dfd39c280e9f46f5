"""Levenberg-Marquardt for many modules of one architecture at once: the search is `solve.marquardt.descend`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gatelab.arrays import AnyArray as Array
from gatelab.display import counted, one_line
from gatelab.errors import GatelabError, whole_number
from gatelab.optim.jacobians import blocks
from gatelab.optim.levenberg import check_parameters
from gatelab.solve.marquardt import Damping, descend
from gatelab.solve.solution import Status

ModelResiduals = Callable[[Callable[..., Any]], Tensor | Sequence[Tensor]]
# Bytes of the Jacobians that are computed at a time; the computation needs a multiple.
_BYTES = 2**25


@dataclass(frozen=True, eq=False)
class TrainedModules:
    """The trained modules, best first, with their losses and statuses."""

    models: tuple[nn.Module, ...]
    losses: tuple[float, ...]
    status: tuple[Status, ...]

    def __repr__(self) -> str:
        return one_line(self, f"{counted(len(self.models), 'model')}, best loss {self.losses[0]:.2g}")

    @property
    def best(self) -> nn.Module:
        """The module with the smallest loss."""
        return self.models[0]


def train_modules(models: Sequence[nn.Module], residuals: ModelResiduals, steps: int = 100) -> TrainedModules:
    """Train modules of one architecture, such as those of several seeds, in one batch.

    Args:
        models: the modules, which are not changed.
        residuals: a function that is called with a model and returns its residuals, or several blocks of them. It runs
            under `torch.vmap`: derivatives by inputs are those of `torch.func`.
        steps: the most steps of each module.

    Returns:
        Trained copies of the modules, best first.

    >>> x = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    >>> models = [nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)).double() for _ in range(3)]
    >>> trained = train_modules(models, lambda model: model(x) - torch.sin(2 * x), steps=20)
    >>> len(trained.losses), trained.losses[0] < 1e-2
    (3, True)
    """
    if not models:
        raise GatelabError("models is empty; give at least one module")
    check_parameters([pair for model in models for pair in model.named_parameters()])
    batch = _ModuleBatch(models, residuals)
    if not bool(torch.isfinite(batch.r).all()):
        raise GatelabError("residuals() has elements that are not finite; start elsewhere")
    most = [whole_number("steps", steps, 0)] * len(models)
    end = descend(batch, most, tolerance=1e-9, floor=-1.0, damping=Damping(least=batch.least))
    rank = np.argsort(end.loss, kind="stable").tolist()
    return TrainedModules(
        tuple(batch.module(models[b], b) for b in rank),
        tuple(float(end.loss[b]) for b in rank),
        tuple(end.status[b] for b in rank),
    )


class _ModuleBatch:
    """Modules as rows of flat parameters, for `descend`."""

    def __init__(self, models: Sequence[nn.Module], residuals: ModelResiduals) -> None:
        parameters, self.buffers = torch.func.stack_module_state([deepcopy(m) for m in models])
        self.residuals, self.form = residuals, deepcopy(models[0]).to("meta")
        self.shapes = {name: p.shape[1:] for name, p in parameters.items()}
        self.theta = torch.cat([p.detach().flatten(1) for p in parameters.values()], 1)
        self.least = torch.finfo(self.theta.dtype).eps ** 1.5
        self.r = torch.vmap(self._single)(self.theta, self.buffers)
        self.jacobian = self.r.new_zeros(*self.r.shape, self.theta.shape[1])
        self.there = self.theta, self.r

    def losses(self) -> Array:
        return self.r.square().sum(-1).cpu().numpy()

    def linearize(self, members: Array) -> None:
        i = torch.from_numpy(members).to(self.theta.device)
        together = max(1, _BYTES // self.jacobian[0].nbytes)
        jacobians = torch.vmap(torch.func.jacfwd(self._single), chunk_size=together)
        self.jacobian[i] = jacobians(self.theta[i], self._some(i))

    def trial(self, members: Array, damping: Array) -> tuple[Array, Array]:
        i = torch.from_numpy(members).to(self.theta.device)
        J, r, p = self.jacobian[i], self.r[i][..., None], self.theta.shape[1]
        size = (torch.linalg.vector_norm(J, dim=(1, 2), keepdim=True) / p**0.5).clamp_min(torch.finfo(r.dtype).tiny)
        root = torch.from_numpy(damping).to(r).sqrt()[:, None, None]
        below = root * torch.eye(p, p + 1, dtype=r.dtype, device=r.device)
        triangle = torch.linalg.qr(torch.cat([torch.cat([J / size, r], -1), below], 1), mode="r")[1]
        step = -torch.linalg.solve_triangular(triangle[:, :p, :p], triangle[:, :p, p:], upper=True) / size
        theta = self.theta[i] + step[..., 0]
        self.there = theta, torch.vmap(self._single)(theta, self._some(i))
        promised = r.square().sum((1, 2)) - (r + J @ step).square().sum((1, 2))
        return self.there[1].square().sum(-1).cpu().numpy(), promised.cpu().numpy()

    def accept(self, members: Array, rows: Array) -> None:
        i, k = (torch.from_numpy(index).to(self.theta.device) for index in (members, rows))
        self.theta[i], self.r[i] = self.there[0][k], self.there[1][k]

    def module(self, model: nn.Module, b: int) -> nn.Module:
        """A copy of a module with the parameters of member b."""
        copy = deepcopy(model)
        nn.utils.vector_to_parameters(self.theta[b], copy.parameters())
        return copy

    def _some(self, i: Tensor) -> dict[str, Tensor]:
        return {name: value[i] for name, value in self.buffers.items()}

    def _single(self, theta: Tensor, buffers: dict[str, Tensor]) -> Tensor:
        parts = theta.split([math.prod(shape) for shape in self.shapes.values()])
        state = {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

        def model(*inputs: Any, **keywords: Any) -> Any:
            return torch.func.functional_call(self.form, (state, buffers), inputs, keywords)

        return blocks(lambda: self.residuals(model), None).flat
