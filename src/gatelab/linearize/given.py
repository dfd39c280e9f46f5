"""Whatever a user calls an activation, as a gate and how many linear factors multiply it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from gatelab.errors import GatelabError, unknown_name
from gatelab.units import units
from gatelab.units.activations import Activation, activation, activations
from gatelab.units.unit import ModuleUnit, Unit

Given = str | Activation | Unit | Callable[[Tensor], Tensor]


def _gelu_tanh(z: Tensor) -> Tensor:
    return functional.gelu(z, approximate="tanh")


GELU_TANH = Activation("gelu-tanh", _gelu_tanh, growth=1)


def meant(given: Given) -> tuple[Activation, int]:
    """The gate, and the number of linear factors: act(g.x) (u.x) has one.

    >>> meant("gelu")[0].name, meant("swiglu")[1], meant("bilinear")[0].name, meant(torch.sin)[0].name
    ('gelu', 1, 'identity', 'sin')
    """
    if isinstance(given, ModuleUnit):
        raise GatelabError(f"the unit {given.name!r} is a class whose formula is not known; give its activation")
    if isinstance(given, Unit):
        if type(given) is not Unit:
            raise GatelabError(f"the unit {given.name!r} is a function of several maps; give its gate as an activation")
        return given.gate, given.factors
    if isinstance(given, type):
        raise GatelabError(f"{given.__name__} is a class; give a function of one tensor, or a module that is one")
    if not isinstance(given, str):
        return activation(given), 0
    name = given.lower()
    if name in ("gelu-tanh", "gelu_tanh"):
        return GELU_TANH, 0
    if name in activations():
        return activation(name), 0
    gated = {u.name: u for u in units()}
    gated["reglu"] = gated["glu"]
    if name in gated:
        return meant(gated[name])
    raise unknown_name("activation or unit", given, {*activations(), "gelu-tanh", *gated})


def values(gate: Callable[[Tensor], Tensor], z: object) -> Tensor:
    """The gate at the numbers z, in float64 on the CPU, checked."""
    with torch.no_grad():
        at = torch.as_tensor(z, dtype=torch.float64)
        found = gate(at)
    if not isinstance(found, Tensor) or found.shape != at.shape or not bool(torch.isfinite(found).all()):
        raise GatelabError(
            f"the activation {getattr(gate, 'name', gate)!r} gives no finite number for each of its inputs in "
            f"[{at.min().item():.4g}, {at.max().item():.4g}]; give a function of one tensor that acts on each entry"
        )
    return found
