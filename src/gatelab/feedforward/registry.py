"""The units by name, and the one place where whatever a user gives becomes a unit.

Units as plain values, for runs that are hashed, stored and computed elsewhere.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, cast

from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.feedforward.catalogue import CATALOGUE, unit_name
from gatelab.feedforward.definition import AnyUnit, FunctionUnit, ModuleUnit, Unit
from gatelab.feedforward.gates import activation, activations

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


def describe(unit: AnyUnit) -> dict[str, Any]:
    """The unit in plain values: gate and factors, or for a user's own the name it can be imported by.

    >>> describe(as_unit("glu"))
    {'name': 'glu', 'gate': 'relu', 'factors': 1}
    >>> describe(as_unit(lambda z: z))
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: the unit '<lambda>' cannot be found by name from another process; ...
    """
    if isinstance(unit, FunctionUnit | ModuleUnit):
        own = unit.gate.function if isinstance(unit, FunctionUnit) else unit.module
        dotted = f"{getattr(own, '__module__', '?')}:{getattr(own, '__qualname__', '?')}"
        if dotted.startswith("__main__:") or _find(dotted) is not own:
            raise GatelabError(
                f"the unit {unit.name!r} cannot be found by name from another process; to keep its runs in a store, "
                "move it into a module of its own and import it from there"
            )
        return {"name": unit.name, "import": dotted}
    if unit.gate.name not in activations() or activation(unit.gate.name) != unit.gate:
        raise GatelabError(
            f"the gate of unit {unit.name!r} is a function of your own; to keep its runs in a store, give the whole "
            "unit as a function in a module"
        )
    return {"name": unit.name, "gate": unit.gate.name, "factors": unit.factors}


def restore(description: Mapping[str, Any]) -> AnyUnit:
    """The unit that was described.

    >>> restore(describe(as_unit("gqu"))) == as_unit("gqu")
    True
    """
    if "import" in description:
        return unit(_find(description["import"]))
    return Unit(description["gate"], description["factors"], description["name"])


def _find(dotted: str) -> Any:
    module, _, name = dotted.partition(":")
    try:
        return reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError):
        return None
