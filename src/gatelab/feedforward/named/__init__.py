"""The registered units: every `Unit` at the top of a module in this folder.

Modules with a `POSITION` are listed first, in its order. They do not import torch, so that lists of units are fast.
"""

from __future__ import annotations

from gatelab.discovery import specifications
from gatelab.errors import unknown_name
from gatelab.feedforward.specification import Unit

CATALOGUE = specifications("gatelab.feedforward.named", Unit)
ALIASES = {alias: unit.name for unit in CATALOGUE.values() for alias in unit.aliases}


def units() -> tuple[Unit, ...]:
    """Every registered unit.

    Returns:
        The units in the order in which `gatelab units` lists them.

    >>> [u.name for u in units()][:5]
    ['mlp', 'relu2', 'relu3', 'glu', 'gqu']
    """
    return tuple(CATALOGUE.values())


def unit_name(name: str) -> str:
    """The name under which a unit is registered."""
    own = ALIASES.get(name.lower(), name.lower())
    if own not in CATALOGUE:
        raise unknown_name("unit", name, (*CATALOGUE, *ALIASES))
    return own
