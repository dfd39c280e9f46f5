"""Specifications in a folder: a file that is added to the folder is registered without further entries."""

from __future__ import annotations

import math
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from gatelab.errors import GatelabError

S = TypeVar("S")


def specifications(folder: str, kind: type[S]) -> dict[str, S]:
    """Every value of a kind at the top of a module of the package, by its name.

    Modules are read in the order of their `POSITION`, those without one last and by name.

    >>> from gatelab.feedforward.specification import Unit
    >>> list(specifications("gatelab.feedforward.named", Unit))[:3]
    ['mlp', 'relu2', 'relu3']
    """
    names = sorted(info.name for info in iter_modules(import_module(folder).__path__))
    modules = [import_module(f"{folder}.{name}") for name in names]
    modules.sort(key=lambda module: getattr(module, "POSITION", math.inf))
    by_name: dict[str, Any] = {}
    for module in modules:
        for value in vars(module).values():
            if not isinstance(value, kind):
                continue
            name: str = value.name  # pyright: ignore[reportAttributeAccessIssue]
            if by_name.setdefault(name, value) != value:
                raise GatelabError(f"{module.__name__} has {name!r}, which another file of {folder} has too")
    return by_name
