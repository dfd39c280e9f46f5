"""The solvers: one file of this folder per solver, with the solver's name.

A file has a function

    solve(unit, problem, width, *, seed, ...) -> Solution

whose further options are keywords, and `memory(unit, width, rows, d_in, d_out)`, the bytes that a fit takes.
`gl.fit(..., solver="name")` and `gatelab fit --solver name` then find it. Files are imported on first use, so that
lists and help stay fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gatelab.solve.solution import Solution

Solver = Callable[..., "Solution"]


class Solvers(Mapping[str, Solver]):
    """The solvers by name, in alphabetical order."""

    def __repr__(self) -> str:
        return f"Solvers({', '.join(self)})"

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(info.name for info in iter_modules(__path__)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Solver:
        return self.module(name).solve

    def module(self, name: str) -> Any:
        """The file of a solver."""
        path = f"{__name__}.{name}"
        if path not in sys.modules and name not in set(iter(self)):
            raise KeyError(name)
        return import_module(path)


SOLVERS = Solvers()
