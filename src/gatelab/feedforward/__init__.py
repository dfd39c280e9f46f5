"""The product unit and its registry, networks, initializers and the transformer's block form.

A unit is a frozen value (`Unit`); `unit("glu")` finds one by name and also wraps a user's function or class, so that
every function of gatelab accepts either. `unit.network(width)` makes the module; `check_unit` runs the conformance
suite.
"""

from typing import TYPE_CHECKING

from gatelab.lazy import import_on_use

if TYPE_CHECKING:
    from gatelab.feedforward.conformance import Check, check_unit
    from gatelab.feedforward.definition import AnyUnit, FunctionUnit, ModuleUnit
    from gatelab.feedforward.gates import Activation, activation, activations
    from gatelab.feedforward.named import units
    from gatelab.feedforward.network import INITIALIZERS, FeedForward, Network, factor_names, initialize, two_thirds
    from gatelab.feedforward.registry import unit
    from gatelab.feedforward.specification import Unit

import_on_use(
    __name__,
    {
        "gates": ("Activation", "activation", "activations"),
        "conformance": ("Check", "check_unit"),
        "network": ("INITIALIZERS", "initialize", "Network", "factor_names", "FeedForward", "two_thirds"),
        "registry": ("unit",),
        "named": ("units",),
        "specification": ("Unit",),
        "definition": ("AnyUnit", "FunctionUnit", "ModuleUnit"),
    },
)

__all__ = [
    "INITIALIZERS",
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
    "initialize",
    "two_thirds",
    "unit",
    "units",
]
