"""The registry of methods: a name, the function that builds, and what it builds.

Methods live in the modules of `gatelab.linearization.builders` and register themselves with one of two decorators:

    @polynomial_method("minimax")     a function gate -> Polynomial, whose maps follow for every number of inputs
    @maps_method("fourier")           a function (activation, d) -> Maps, made for d inputs

The options of a method are the other arguments of its function. The folder is read when a method is first asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from gatelab.errors import GatelabError, unknown_name

_Builder = TypeVar("_Builder", bound=Callable[..., Any])
_METHODS: dict[str, Method] = {}
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
    """A way to linearise.

    Attributes:
        name: what it is called in `linearize` and on the command line.
        build: the function; its first argument is the gate, and of maps its second the number of inputs.
        polynomial: whether `build` gives a `Polynomial`; else it gives `Maps`.
        every_d: whether the maps can be built for any number of inputs later on, so that none need be given.
        more: a class whose fields `build` takes as further options, in its **keywords.
    """

    name: str
    build: Callable[..., Any]
    polynomial: bool
    every_d: bool
    more: type | None = None

    @property
    def options(self) -> Mapping[str, inspect.Parameter]:
        """The arguments of `build` that a caller may give."""
        first = 1 if self.polynomial else 2
        known = dict(list(inspect.signature(self.build).parameters.items())[first:])
        if self.more is not None:
            known = {name: p for name, p in known.items() if p.kind is not p.VAR_KEYWORD}
            known.update(inspect.signature(self.more).parameters)
        return known

    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse options that the method does not have, and calls without those that it needs."""
        known = self.options
        for option in options:
            if option not in known:
                raise unknown_name(f"option of {self.name}", option, known)
        for option, parameter in known.items():
            if parameter.default is parameter.empty and option not in options:
                raise GatelabError(f"{self.name} needs {option}=...; it takes {', '.join(known)}")


def polynomial_method(name: str) -> Callable[[_Builder], _Builder]:
    """Register the decorated function, gate -> `Polynomial`, as a method.

    Args:
        name: what the method is called.

    Returns:
        The decorator, which leaves the function as it is.
    """
    return partial(_register, name, polynomial=True, every_d=True)


def maps_method(name: str, *, every_d: bool = False, more: type | None = None) -> Callable[[_Builder], _Builder]:
    """Register the decorated function, (activation, d) -> `Maps`, as a method.

    Args:
        name: what the method is called.
        every_d: build the maps when rows come, for as many inputs as they have.
        more: a class whose fields are further options, which the function takes as **keywords.

    Returns:
        The decorator, which leaves the function as it is.
    """
    return partial(_register, name, polynomial=False, every_d=every_d, more=more)


def _register(name: str, build: _Builder, *, polynomial: bool, every_d: bool, more: type | None = None) -> _Builder:
    other = _METHODS.get(name)
    if other is not None and other.build.__module__ != build.__module__:
        raise GatelabError(
            f"two methods are called {name!r}, in {other.build.__module__} and in {build.__module__}; rename one"
        )
    _METHODS[name] = Method(name, build, polynomial, every_d, more)
    return build


@cache
def _discover() -> None:
    """Import every module of the folder of methods."""
    folder = import_module("gatelab.linearization.builders")
    for module in iter_modules(folder.__path__):
        import_module(f"{folder.__name__}.{module.name}")


def find_method(name: str) -> Method:
    """The method of that name; upper case and underscores are allowed.

    >>> find_method("minimax").polynomial, list(find_method("Minimax").options)
    (True, ['degree', 'interval'])
    """
    _discover()
    key = str(name).lower().replace("_", "-")
    if key in NO_METHODS:
        raise GatelabError(NO_METHODS[key])
    if key not in _METHODS:
        raise unknown_name("method", name, _METHODS)
    return _METHODS[key]


def methods() -> tuple[str, ...]:
    """The names that `linearize` knows.

    Returns:
        Those of polynomials first, then those of other maps, each in the order of the alphabet.

    >>> methods()[:5]
    ('chebyshev', 'fit', 'hermite', 'minimax', 'taylor')
    """
    _discover()
    return tuple(sorted(_METHODS, key=lambda name: (not _METHODS[name].polynomial, name)))
