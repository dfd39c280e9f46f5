"""The units by name, and the one place where whatever a user gives becomes a unit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import cast

from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.units.catalogue import CATALOGUE, unit_name
from gatelab.units.unit import AnyUnit, FunctionUnit, ModuleUnit, Unit

_UNITS = {spec.name: Unit(spec.gate, spec.factors, spec.name, spec.description) for spec in CATALOGUE.values()}


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
        return _UNITS[unit_name(spec)]
    if inspect.isclass(spec) and issubclass(spec, nn.Module):
        return ModuleUnit(spec)
    if callable(spec):
        return FunctionUnit(cast(Callable[..., Tensor], spec))
    raise GatelabError(
        f"a unit is a name, a gl.Unit, a function of tensors or an nn.Module class, not {type(spec).__name__}"
    )
