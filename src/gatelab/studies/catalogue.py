"""The studies by name."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from gatelab.errors import unknown_name
from gatelab.studies.definition import Study

# The papers, in the order of the report. A study is any `Study` at the top of a module of theirs.
PAPERS = ("scaling", "ntk", "linearize")


@cache
def _by_name() -> dict[str, Study]:
    by_name: dict[str, Study] = {}
    for paper in PAPERS:
        package = import_module(f"gatelab.studies.{paper}")
        modules = [import_module(f"{package.__name__}.{info.name}") for info in iter_modules(package.__path__)]
        studies = {s.name: s for module in modules for s in vars(module).values() if isinstance(s, Study)}
        by_name |= {s.name: s for s in sorted(studies.values(), key=lambda s: (s.position, s.name))}
    return by_name


def all_studies() -> tuple[Study, ...]:
    """Every study, in the order of the papers.

    >>> [s.name for s in studies()][:3]
    ['scaling/fig1', 'scaling/fig2', 'scaling/fig3']
    """
    return tuple(_by_name().values())


def study(name: str) -> Study:
    """The study of that name."""
    if name not in _by_name():
        raise unknown_name("study", name, _by_name())
    return _by_name()[name]
