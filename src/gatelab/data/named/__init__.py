"""The problems that have a name: every `ProblemSpec` at the top of a module here is registered.

A problem of the kind "data" has a `Dataset` of its name beside it. Modules with a `POSITION` are listed first, in its
order. None imports torch: lists of problems come at once.
"""

from __future__ import annotations

from gatelab.data.specification import Dataset, ProblemSpec
from gatelab.discovery import specifications

CATALOGUE = specifications("gatelab.data.named", ProblemSpec)
DATASETS = specifications("gatelab.data.named", Dataset)


def problems() -> tuple[ProblemSpec, ...]:
    """Every registered problem.

    Returns:
        The problems in the order of the list that `gatelab problems` prints.

    >>> [spec.name for spec in problems()][:4]
    ['paper-1d', 'x2', 'x3', 'cos4x']
    """
    return tuple(CATALOGUE.values())
