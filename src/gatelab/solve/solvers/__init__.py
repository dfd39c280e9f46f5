"""The solvers: a file of this folder each, which registers its functions with the decorator `solver`.

`SOLVERS` has them by name. The names are read from the text of the files, so that lists and help import nothing that
computes; a file is imported when one of its solvers is asked for. A solver is a function

    solve(unit, problem, width, *, seed, ...) -> Solution

whose further options are keywords; `gl.fit(..., solver="name")` and `gatelab fit --solver name` then have it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from gatelab.feedforward import AnyUnit
    from gatelab.solve.solution import Solution

Solver = Callable[..., "Solution"]
# The bytes that a fit takes: of a unit, a width, the number of rows, of inputs and of outputs.
Memory = Callable[["AnyUnit", int, int, int, int], int]
Function = TypeVar("Function", bound=Solver)

_DECORATOR = re.compile(r'^@solver\(\s*"([^"]+)"', re.M)


@dataclass(eq=False, repr=False)
class Solvers(Mapping[str, Solver]):
    """The registered solvers by name, in the order of the alphabet."""

    _functions: dict[str, Solver] = field(default_factory=dict)
    _memory: dict[str, Memory] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Solvers({', '.join(self)})"

    @cached_property
    def files(self) -> dict[str, str]:
        """The module of each solver in this folder, read from the text of the files."""
        names: dict[str, str] = {}
        for info in iter_modules(__path__):
            spec: Any = info.module_finder.find_spec(info.name, None)
            names |= dict.fromkeys(_DECORATOR.findall(spec.loader.get_source(info.name)), info.name)
        return names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self.files, *self._functions}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self.files or name in self._functions

    def __getitem__(self, name: str) -> Solver:
        if name not in self._functions and name in self.files:
            import_module(f"{__name__}.{self.files[name]}")
        return self._functions[name]

    def add(self, name: str, function: Solver, memory: Memory | None) -> None:
        """Register a solver; the one that had the name before gives way."""
        self._functions[name] = function
        if memory is not None:
            self._memory[name] = memory

    def memory(self, name: str) -> Memory | None:
        """How the memory of a registered solver is estimated; None where nobody has said."""
        if name in self:
            _ = self[name]
        return self._memory.get(name)


SOLVERS = Solvers()


def solver(name: str, *, memory: Memory | None = None, **options: Any) -> Callable[[Function], Function]:
    """Register the decorated function as the solver of that name.

    >>> SOLVERS["frozen"].keywords, SOLVERS["frozen"].func is SOLVERS["knots"]
    ({'gates': 'frozen'}, True)
    """

    def register(function: Function) -> Function:
        SOLVERS.add(name, partial(function, **options) if options else function, memory)
        return function

    return register
