"""Specifications in a folder: whoever adds a file to it has added to the list, and need not name it anywhere else."""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Protocol, TypeVar

from gatelab.errors import GatelabError


class Specification(Protocol):
    """A value that has a name."""

    @property
    def name(self) -> str: ...


S = TypeVar("S", bound=Specification)


def modules_in(folder: str) -> Iterator[ModuleType]:
    """The modules of a package, imported, by their `POSITION` and then by name; those without a position come last.

    >>> [module.__name__.rpartition(".")[2] for module in modules_in("gatelab.data.named")]
    ['formulas', 'measured']
    """
    names = sorted(info.name for info in iter_modules(import_module(folder).__path__) if not info.ispkg)
    modules = [import_module(f"{folder}.{name}") for name in names]
    yield from sorted(modules, key=lambda module: getattr(module, "POSITION", math.inf))


def specifications(folder: str, kind: type[S]) -> dict[str, S]:
    """Every value of a kind at the top of a module of the package, by its name.

    >>> from gatelab.feedforward.specification import Unit
    >>> list(specifications("gatelab.feedforward.named", Unit))[:3]
    ['mlp', 'relu2', 'relu3']
    """
    by_name: dict[str, S] = {}
    for module in modules_in(folder):
        for value in vars(module).values():
            if not isinstance(value, kind):
                continue
            if by_name.setdefault(value.name, value) != value:
                raise GatelabError(f"{module.__name__} has {value.name!r}, which another file of {folder} has too")
    return by_name
