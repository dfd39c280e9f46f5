"""Units of docs/results/ladder-design.md that gatelab does not name, as functions, and the list of eighteen.

xIELU has learned constants in its paper (Huang and Schlag, 2024); here they are those that it starts from.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from gatelab.feedforward import AnyUnit, Unit
from gatelab.feedforward import unit as as_unit


def drelu(z: Tensor, v: Tensor) -> Tensor:
    """relu(Gx) relu(Ux), of TurboSparse (Song et al., 2024)."""
    return torch.relu(z) * torch.relu(v)


def mish(z: Tensor) -> Tensor:
    """z tanh(log(1 + e^z))."""
    return functional.mish(z)


def xielu(z: Tensor) -> Tensor:
    """0.8 z^2 + z / 2 above 0, and 0.8 (e^z - 1 - z) + z / 2 below."""
    below = torch.clamp(z, max=0.0)
    return 0.8 * (torch.relu(z).square() + torch.expm1(below) - below) + 0.5 * z


def signed_relu2(z: Tensor) -> Tensor:
    """relu(z)^2 - relu(-z)^2 / 4: the size of leaky relu2, with the sign of z."""
    return torch.relu(z).square() - torch.relu(-z).square() / 4


OWN: dict[str, AnyUnit] = {
    "drelu": as_unit(drelu),
    "relu2-glu": Unit("relu2", 1, "relu2-glu"),
    "xielu": as_unit(xielu),
    "signed-relu2": as_unit(signed_relu2),
    "mish": as_unit(mish),
    "tanh": Unit("tanh"),
}
PLAIN = ("relu", "gelu", "silu", "mish", "tanh", "relu2", "relu3", "leaky-relu2", "signed-relu2", "xielu")
GATED = ("reglu", "geglu", "swiglu", "sigmoid-glu", "bilinear", "drelu", "relu2-glu", "gqu")
EIGHTEEN = PLAIN + GATED


def unit_named(name: str) -> AnyUnit:
    """A unit of this file or of gatelab.

    >>> unit_named("drelu").factors, unit_named("reglu").name
    (1, 'glu')
    """
    return OWN.get(name) or as_unit(name)
