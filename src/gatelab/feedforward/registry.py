"""Units by name: the one place where whatever a user gives becomes a unit.

`describe` and `restore` make plain values of units and units of plain values, for runs that are hashed, stored and
computed elsewhere.
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
from gatelab.feedforward.sources import source_key

UNITS = {spec.name: Unit(spec.gate_name, spec.factors, spec.name, spec.description) for spec in CATALOGUE.values()}


def units() -> tuple[Unit, ...]:
    """Every registered unit.

    Returns:
        The units in the order of the list that `gatelab units` prints.

    >>> [u.name for u in units()][:5]
    ['mlp', 'relu2', 'relu3', 'glu', 'gqu']
    """
    return tuple(UNITS.values())


def unit(spec: str | AnyUnit | Callable[..., object] | type[nn.Module]) -> AnyUnit:
    """The unit that is meant.

    Args:
        spec: a registered name, a unit, a function of the affine maps Gx + g, Ux + u, ..., or a module class that is
            built as `cls(width, d_in, d_out)`.

    Returns:
        The unit: a `Unit`, of a function a `FunctionUnit`, of a class a `ModuleUnit`.

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
        return UNITS[unit_name(spec)]
    if inspect.isclass(spec) and issubclass(spec, nn.Module):
        return ModuleUnit(spec)
    if callable(spec):
        return FunctionUnit(cast(Callable[..., Tensor], spec))
    raise GatelabError(
        f"a unit is a name, a gl.Unit, a function of tensors or an nn.Module class, not {type(spec).__name__}"
    )


def describe(chosen: AnyUnit) -> dict[str, Any]:
    """The unit in plain values; `restore` makes it again.

    Args:
        chosen: the unit.

    Returns:
        Its name with its gate and factors, or, for a user's own, with the name that it can be imported by and the hash
        of its source: what a store keeps of the unit is not that of the unit after a change.

    >>> describe(unit("glu"))
    {'name': 'glu', 'gate': 'relu', 'factors': 1}
    >>> describe(unit(lambda z: z))
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: the unit '<lambda>' cannot be found by name from another process; ...
    """
    if isinstance(chosen, FunctionUnit | ModuleUnit):
        own: Any = getattr(chosen, "module", None)
        if isinstance(chosen, FunctionUnit):
            own = chosen.gate.function
        dotted = f"{getattr(own, '__module__', '?')}:{getattr(own, '__qualname__', '?')}"
        if dotted.startswith("__main__:") or imported(dotted) is not own:
            raise GatelabError(
                f"the unit {chosen.name!r} cannot be found by name from another process; to keep its runs in a file, "
                "or to compute them elsewhere, move it into a module of its own and import it from there"
            )
        return {"name": chosen.name, "import": dotted, **source_of(own)}
    if chosen.gate.name not in activations() or activation(chosen.gate.name) != chosen.gate:
        raise GatelabError(
            f"the gate of unit {chosen.name!r} is a function of your own; to keep its runs in a store, give the whole "
            "unit as a function in a module"
        )
    return {"name": chosen.name, "gate": chosen.gate.name, "factors": chosen.factors}


def source_of(own: Any) -> dict[str, str]:
    """The hash of the source of a user's unit, under its name in a description; compiled functions have none."""
    return {} if inspect.isbuiltin(own) else {"source": source_key(own)}


def check_source(description: Mapping[str, Any]) -> None:
    """Refuse to compute a run of a user's unit that was planned with another source than this process imports."""
    planned = description.get("source")
    if planned is not None and source_of(imported(description["import"])) != {"source": planned}:
        raise GatelabError(
            f"the source of the unit {description['name']!r} has changed since this run was planned; start Python "
            "anew, and give every machine the same file"
        )


def restore(description: Mapping[str, Any]) -> AnyUnit:
    """The unit that was described.

    Args:
        description: what `describe` gave.

    Returns:
        The unit; one of a user's own is imported.

    >>> restore(describe(unit("gqu"))) == unit("gqu")
    True
    """
    if "import" in description:
        return unit(imported(description["import"]))
    return Unit(description["gate"], description["factors"], description["name"])


def imported(dotted: str) -> Any:
    """What is called so in a module, such as "package.module:Class.name"; None where there is nothing."""
    module, _, name = dotted.partition(":")
    try:
        return reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError):
        return None
