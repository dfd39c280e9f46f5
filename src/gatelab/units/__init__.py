"""WHAT we study: the product unit and its registry, networks, initialisers, the transformer block form.

A unit is a frozen value (`Unit`); `unit("glu")` finds one by name and also wraps a user's own function or class, so
that every call of gatelab takes either. `unit.network(width)` makes the module; `check_unit` runs the conformance
suite.
"""

from typing import TYPE_CHECKING

from gatelab.lazy import lazy

if TYPE_CHECKING:
    from gatelab.units.activations import Activation, activation, activations
    from gatelab.units.check import Check, check_unit
    from gatelab.units.feedforward import FeedForward, two_thirds
    from gatelab.units.init import INITIALISERS, initialise
    from gatelab.units.network import Network, factor_names
    from gatelab.units.registry import unit, units
    from gatelab.units.unit import AnyUnit, FunctionUnit, ModuleUnit, Unit

lazy(
    __name__,
    {
        "activations": ("Activation", "activation", "activations"),
        "check": ("Check", "check_unit"),
        "feedforward": ("FeedForward", "two_thirds"),
        "init": ("INITIALISERS", "initialise"),
        "network": ("Network", "factor_names"),
        "registry": ("unit", "units"),
        "unit": ("AnyUnit", "FunctionUnit", "ModuleUnit", "Unit"),
    },
)

__all__ = [
    "INITIALISERS",
    "Activation",
    "AnyUnit",
    "Check",
    "FeedForward",
    "FunctionUnit",
    "ModuleUnit",
    "Network",
    "Unit",
    "activation",
    "activations",
    "check_unit",
    "factor_names",
    "initialise",
    "two_thirds",
    "unit",
    "units",
]
