"""Packages that import their parts when these are asked for: torch takes seconds, and a list of names needs none of it.

A package calls `lazy` with the places of its public names, and imports the same names under `TYPE_CHECKING`, for
editors and type checkers.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False  # as type checkers know it; this is imported first of all, and the module typing takes its time
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class LazyPackage(ModuleType):
    """A package whose public names are imported on first use. No module of it may have the name of such a function."""

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_modules", ()):
            return import_module(f"{self.__name__}.{name}")
        place = self.__dict__.get("_places", {}).get(name)
        if place is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(import_module(place), name)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__dict__["_places"], *self.__dict__["_modules"]})


def import_on_use(package: str, parts: Mapping[str, Sequence[str]], modules: Sequence[str] = ()) -> None:
    """Let a package import on first use the names in `parts`, by the modules that hold them, and whole `modules`.

    >>> import gatelab
    >>> type(gatelab).__name__, callable(gatelab.units), gatelab.models.__name__
    ('LazyPackage', True, 'gatelab.models')
    """
    module = sys.modules[package]
    module.__dict__["_places"] = {name: f"{package}.{part}" for part, names in parts.items() for name in names}
    module.__dict__["_modules"] = tuple(modules)
    module.__class__ = LazyPackage
