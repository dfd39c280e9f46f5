"""The methods by name: functions of a gate that return a `Polynomial`, or of a gate and d that return `Maps`.

A new method is a function in a module of `gatelab.linearization.builders` and an entry here; its other arguments are
its options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gatelab.errors import GatelabError, unknown_name
from gatelab.linearization.builders.least_error import chebyshev, fit, hermite, minimax
from gatelab.linearization.builders.random_features import maclaurin_maps, tensorsketch_maps
from gatelab.linearization.builders.singular_functions import optimal_maps
from gatelab.linearization.builders.taylor_series import tangent_maps, taylor
from gatelab.linearization.builders.trained_maps import learned_maps

METHODS: dict[str, Callable[..., Any]] = {
    "taylor": taylor,
    "chebyshev": chebyshev,
    "minimax": minimax,
    "hermite": hermite,
    "fit": fit,
    "tangent": tangent_maps,
    "maclaurin": maclaurin_maps,
    "tensorsketch": tensorsketch_maps,
    "optimal": optimal_maps,
    "learned": learned_maps,
}


@dataclass(frozen=True)
class Method:
    """A method: its name and its function."""

    name: str
    build: Callable[..., Any]

    @cached_property
    def polynomial(self) -> bool:
        """Whether it returns a `Polynomial`; otherwise it takes the number of inputs and returns `Maps`."""
        return "d" not in inspect.signature(self.build).parameters

    @cached_property
    def options(self) -> Mapping[str, inspect.Parameter]:
        """The options of the method."""
        return dict(list(inspect.signature(self.build).parameters.items())[1 if self.polynomial else 2 :])

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise for unknown options, and for required options that are missing."""
        for option in options:
            if option not in self.options:
                raise unknown_name(f"option of {self.name}", option, self.options)
        for option, parameter in self.options.items():
            if parameter.default is parameter.empty and option not in options:
                raise GatelabError(f"{self.name} needs {option}=...; it takes {', '.join(self.options)}")


def find_method(name: str) -> Method:
    """The method of this name; upper case and underscores are allowed."""
    key = str(name).lower().replace("_", "-")
    if key == "monte-carlo":  # a name that users try
        raise GatelabError("monte-carlo does not factor into Phi(w) and Psi(x); use 'maclaurin' or 'tensorsketch'")
    if key not in METHODS:
        raise unknown_name("method", name, METHODS)
    return Method(key, METHODS[key])


def methods() -> tuple[str, ...]:
    """The names of the methods of `linearize`.

    Returns:
        Methods that make polynomials first, then the others, each in alphabetical order.

    >>> methods()[:5]
    ('chebyshev', 'fit', 'hermite', 'minimax', 'taylor')
    """
    return tuple(sorted(METHODS, key=lambda name: (not find_method(name).polynomial, name)))
