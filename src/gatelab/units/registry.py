"""The units by name, and the one place where whatever a user gives becomes a unit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import cast

from torch import Tensor, nn

from gatelab.errors import GatelabError, unknown_name
from gatelab.units.unit import AnyUnit, FunctionUnit, ModuleUnit, Unit

_UNITS = {
    u.name: u
    for u in (
        Unit("relu", 0, "mlp", "relu(Gx+g): piecewise linear, order 2"),
        Unit("relu2", 0, "relu2", "relu(Gx+g)^2: C1 quadratic spline, order 3 at 3n+1 parameters"),
        Unit("relu3", 0, "relu3", "relu(Gx+g)^3: C2 cubic spline, order 4 at 3n+1 parameters"),
        Unit("relu", 1, "glu", "relu(Gx+g)(Ux+u): the paper's GLU (ReGLU), C0 quadratic, order 3"),
        Unit("relu", 2, "gqu", "relu(Gx+g)(Ux+u)(Qx+q): the paper's Gated Quadratic Unit, order 4"),
        Unit("gelu", 1, "geglu", "gelu(Gx+g)(Ux+u)"),
        Unit("silu", 1, "swiglu", "silu(Gx+g)(Ux+u): the block of Llama, Qwen, Gemma"),
        Unit("sigmoid", 1, "sigmoid-glu", "sigmoid(Gx+g)(Ux+u): the first GLU (Dauphin et al. 2017)"),
        Unit("identity", 1, "bilinear", "(Gx+g)(Ux+u): no gate, a quadratic form"),
        Unit("gelu", 0, "gelu", "gelu(Gx+g)"),
        Unit("silu", 0, "silu", "silu(Gx+g)"),
    )
}
_ALIASES = {"reglu": "glu", "relu": "mlp", "relu^2": "relu2", "relu^3": "relu3"}


def units() -> tuple[Unit, ...]:
    """Every registered unit.

    >>> [u.name for u in units()][:5]
    ['mlp', 'relu2', 'relu3', 'glu', 'gqu']
    """
    return tuple(_UNITS.values())


def unit(spec: str | AnyUnit | Callable[..., object] | type[nn.Module]) -> AnyUnit:
    """The unit that `spec` means: a name, a unit, a function of affine maps, or a module class.

    >>> unit("reglu").name
    'glu'
    >>> def squared_sine(z, v):
    ...     return z.sin().square() * v
    >>> unit(squared_sine).factors
    1
    """
    if isinstance(spec, Unit | ModuleUnit):
        return spec
    if isinstance(spec, str):
        name = _ALIASES.get(spec.lower(), spec.lower())
        if name not in _UNITS:
            raise unknown_name("unit", spec, (*_UNITS, *_ALIASES))
        return _UNITS[name]
    if inspect.isclass(spec) and issubclass(spec, nn.Module):
        return ModuleUnit(spec)
    if callable(spec):
        return FunctionUnit(cast(Callable[..., Tensor], spec))
    raise GatelabError(
        f"a unit is a name, a gl.Unit, a function of tensors or an nn.Module class, not {type(spec).__name__}"
    )
