"""The registered units by name, read from the files of `gatelab.feedforward.named`, without torch."""

from __future__ import annotations

from gatelab.discovery import specifications
from gatelab.errors import unknown_name
from gatelab.feedforward.specification import UnitSpec

CATALOGUE = specifications("gatelab.feedforward.named", UnitSpec)
ALIASES = {alias: spec.name for spec in CATALOGUE.values() for alias in spec.aliases}


def unit_name(name: str) -> str:
    """The name under which a unit is registered.

    >>> unit_name("ReGLU")
    'glu'
    """
    own = ALIASES.get(name.lower(), name.lower())
    if own not in CATALOGUE:
        raise unknown_name("unit", name, (*CATALOGUE, *ALIASES))
    return own
