"""The methods by name: functions of a gate that give a `Polynomial`, or of a gate and d that give `Maps`.

A new one is a function in a module of `gatelab.linearization.builders` and an entry here; its other arguments are its
options. Maps whose number of features m is an option are made for d inputs; others for as many as rows have.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gatelab.errors import GatelabError, unknown_name
from gatelab.linearization.builders.mean_square import fit, hermite
from gatelab.linearization.builders.random_features import fourier_maps, maclaurin_maps, tensorsketch_maps
from gatelab.linearization.builders.singular_functions import optimal_maps
from gatelab.linearization.builders.taylor_series import tangent_maps, taylor
from gatelab.linearization.builders.trained_maps import learned_maps
from gatelab.linearization.builders.uniform import chebyshev, minimax

METHODS: dict[str, Callable[..., Any]] = {
    "taylor": taylor,
    "chebyshev": chebyshev,
    "minimax": minimax,
    "hermite": hermite,
    "fit": fit,
    "tangent": tangent_maps,
    "maclaurin": maclaurin_maps,
    "tensorsketch": tensorsketch_maps,
    "fourier": fourier_maps,
    "optimal": optimal_maps,
    "learned": learned_maps,
}
# What is asked for and is no method, and why.
NO_METHODS = {
    "monte-carlo": (
        "monte-carlo estimates the scalar GELU(z) and does not factor into Phi(w) and Psi(x): the indicator {Z <= w.x} "
        "needs w and x together. For scalars use gatelab.linearization.monte_carlo(torch.tensor([0.5]), 1000, 'naive', "
        "torch.Generator().manual_seed(0)); unbiased methods that do factor are 'maclaurin', 'tensorsketch' and "
        "'fourier'"
    )
}


@dataclass(frozen=True)
class Method:
    """A way to linearize: its name and its function."""

    name: str
    build: Callable[..., Any]

    @cached_property
    def polynomial(self) -> bool:
        """Whether it gives a `Polynomial`; else it takes the number of inputs and gives `Maps`."""
        return "d" not in inspect.signature(self.build).parameters

    @cached_property
    def options(self) -> Mapping[str, inspect.Parameter]:
        """The arguments that a caller may give."""
        return dict(list(inspect.signature(self.build).parameters.items())[1 if self.polynomial else 2 :])

    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse options that the method does not have, and calls without those that it needs."""
        for option in options:
            if option not in self.options:
                raise unknown_name(f"option of {self.name}", option, self.options)
        for option, parameter in self.options.items():
            if parameter.default is parameter.empty and option not in options:
                raise GatelabError(f"{self.name} needs {option}=...; it takes {', '.join(self.options)}")


def find_method(name: str) -> Method:
    """The method of that name; upper case and underscores are allowed."""
    key = str(name).lower().replace("_", "-")
    if key in NO_METHODS:
        raise GatelabError(NO_METHODS[key])
    if key not in METHODS:
        raise unknown_name("method", name, METHODS)
    return Method(key, METHODS[key])


def methods() -> tuple[str, ...]:
    """The names that `linearize` knows.

    Returns:
        Those of polynomials first, then those of other maps, each in the order of the alphabet.

    >>> methods()[:5]
    ('chebyshev', 'fit', 'hermite', 'minimax', 'taylor')
    """
    return tuple(sorted(METHODS, key=lambda name: (not find_method(name).polynomial, name)))
