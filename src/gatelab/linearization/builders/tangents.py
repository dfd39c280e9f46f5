"""The tangent of each neuron at a reference input (paper 003, section 3.3.1).

act(w.x) ~ act(w.r) + act'(w.r) w.(x - r),    Phi(w) = [act'(w.r) w, act(w.r)],    Psi(x) = [x - r, 1]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.feedforward import Activation
from gatelab.linearization.monomials import Maps
from gatelab.linearization.registry import maps_method


@maps_method("tangent", every_d=True)
def tangent_maps(activation: Activation, d: int, *, reference: Any) -> Maps:
    """Maps of d + 1 features about the reference; to one of d - 1 entries the one of a bias is appended.

    >>> from gatelab.feedforward.gates import activation
    >>> maps = tangent_maps(activation("gelu"), 2, reference=[1.0, 0.0])
    >>> w = torch.tensor([2.0, 1.0])
    >>> bool(torch.isclose(maps.phi(w) @ maps.psi(torch.tensor([1.0, 0.0])), activation("gelu")(torch.tensor(2.0))))
    True
    """
    point = torch.as_tensor(reference).detach()
    if point.ndim != 1 or len(point) not in (d, d - 1) or not bool(torch.isfinite(point).all()):
        raise GatelabError(
            f"the reference has shape {tuple(point.shape)} for {d} inputs; give one input x of {d} finite numbers, "
            "such as the mean of your inputs"
        )
    point = point.double()
    if len(point) == d - 1:
        point = torch.cat([point, point.new_ones(1)])

    def phi(rows: Tensor) -> Tensor:
        z = rows @ point.to(rows)
        return torch.cat([activation.slope(z)[..., None] * rows, activation(z)[..., None]], dim=-1)

    def psi(rows: Tensor) -> Tensor:
        return torch.cat([rows - point.to(rows), rows.new_ones((*rows.shape[:-1], 1))], dim=-1)

    return Maps(phi, psi, d + 1, d)
