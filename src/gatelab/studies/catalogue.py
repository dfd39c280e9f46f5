"""The studies by name: a study is any `Study` at the top of a module of a paper's folder."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from gatelab.errors import unknown_name
from gatelab.studies.definition import Study

# The papers, in the order of the report, and last what is of no paper.
PAPERS = ("scaling", "ntk", "linearize", "models")


def all_studies() -> tuple[Study, ...]:
    """Every study, in the order of the papers and of their figures.

    Returns:
        The studies; those of a paper are ordered by their position, and by name where they have none.

    >>> [study.name for study in all_studies()][:3]
    ['scaling/fig1', 'scaling/fig2', 'scaling/fig3']
    """
    return tuple(studies_by_name().values())


def study(name: str) -> Study:
    """The study of a name.

    Args:
        name: The paper and the study, such as "scaling/fig2"; what is not there is an error that names the nearest.

    Returns:
        The study, which can be run.

    >>> study("scaling/fig3").title
    'ReLUs of the spline initialisations'
    """
    if name not in studies_by_name():
        raise unknown_name("study", name, studies_by_name())
    return studies_by_name()[name]


@cache
def studies_by_name() -> dict[str, Study]:
    """All studies that the folders of the papers hold, in the order of `all_studies`, by name."""
    by_name: dict[str, Study] = {}
    for paper in PAPERS:
        package = import_module(f"gatelab.studies.{paper}")
        modules = [import_module(f"{package.__name__}.{info.name}") for info in iter_modules(package.__path__)]
        studies = {s.name: s for module in modules for s in vars(module).values() if isinstance(s, Study)}
        by_name |= {s.name: s for s in sorted(studies.values(), key=lambda s: (s.position, s.name))}
    return by_name
