"""Packages that import their parts on first use: importing torch takes seconds, which a list of names does not need.

A package calls `import_on_use` with the modules of its public names, and imports the same names under `TYPE_CHECKING`,
for editors and type checkers.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False  # known to type checkers; importing the module typing here would slow down every start
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class LazyPackage(ModuleType):
    """A package whose public names are imported on first use. No module of it may have the name of such a function."""

    def __getattr__(self, name: str) -> Any:
        place = self.__dict__.get("_places", {}).get(name)
        if place is None and name in self.__dict__.get("__all__", ()):
            return import_module(f"{self.__name__}.{name}")
        if place is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(import_module(place), name)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__dict__["__all__"]})


def import_on_use(package: str, parts: Mapping[str, Sequence[str]]) -> None:
    """Let a package import the names in `parts` on first use, by the modules that hold them.

    Names of `__all__` that are not in `parts` are modules of the package.

    >>> import gatelab
    >>> type(gatelab).__name__, callable(gatelab.units), gatelab.models.__name__
    ('LazyPackage', True, 'gatelab.models')
    """
    module = sys.modules[package]
    module.__dict__["_places"] = {name: f"{package}.{part}" for part, names in parts.items() for name in names}
    module.__class__ = LazyPackage
