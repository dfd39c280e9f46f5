"""Data as a solver likes them, and the way back for a network that was fitted to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gatelab.units import Network, factor_names


@dataclass(frozen=True)
class Standard:
    """The data with inputs and targets of mean zero and unit variance, on the device, and the way back."""

    x: Tensor
    y: Tensor
    root_weight: Tensor | None
    x_mean: Tensor
    x_scale: Tensor
    y_mean: Tensor
    y_scale: float

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, weights: np.ndarray | None, device: torch.device) -> Standard:
        inputs, targets = (torch.tensor(np.asarray(a, dtype=np.float64)) for a in (x, y))
        x_mean, x_scale = inputs.mean(0), _spread(inputs)
        y_mean, y_scale = targets.mean(0), float(_spread(targets).max())
        ones = torch.ones(len(inputs), 1, dtype=torch.float64)
        root = None
        if weights is not None:
            w = torch.tensor(weights, dtype=torch.float64)
            root = (w / w.mean(-1, keepdim=True)).sqrt().to(device)
        scaled = torch.cat([(inputs - x_mean) / x_scale, ones], 1)
        return cls(scaled.to(device), ((targets - y_mean) / y_scale).to(device), root, x_mean, x_scale, y_mean, y_scale)

    @torch.no_grad()
    def undo(self, net: Network) -> Network:
        """The same network as a function of the data as they were given."""
        for name in ("G", *factor_names(net.unit.factors)):
            weight, bias = getattr(net, name), getattr(net, name.lower())
            weight /= self.x_scale
            bias -= weight @ self.x_mean
        net.D.mul_(self.y_scale)
        net.d.mul_(self.y_scale).add_(self.y_mean)
        return net


def _spread(a: Tensor) -> Tensor:
    """The standard deviation of each column, one where a column is constant."""
    largest = a.abs().amax(0).clamp_min(torch.finfo(a.dtype).tiny)
    deviation = (a / largest).std(0, correction=0) * largest
    return torch.where(deviation > 1e-14 * largest, deviation, 1.0)
