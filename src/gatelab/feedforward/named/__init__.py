"""The units that have a name: every `Unit` at the top of a module here is registered.

Modules with a `POSITION` are listed first, in its order. None imports torch: lists of units come at once.
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
        The units in the order of the list that `gatelab units` prints.

    >>> [u.name for u in units()][:5]
    ['mlp', 'relu2', 'relu3', 'glu', 'gqu']
    """
    return tuple(CATALOGUE.values())


def unit_name(name: str) -> str:
    """The name under which a unit is registered.

    >>> unit_name("ReGLU")
    'glu'
    """
    own = ALIASES.get(name.lower(), name.lower())
    if own not in CATALOGUE:
        raise unknown_name("unit", name, (*CATALOGUE, *ALIASES))
    return own
