"""The registered problems: every `ProblemSpec` at the top of a module in this folder.

A problem of the kind "data" needs a `Dataset` of the same name. Modules with a `POSITION` are listed first, in its
order. They do not import torch, so that lists of problems are fast.
"""

from __future__ import annotations

from gatelab.data.specification import Dataset, ProblemSpec
from gatelab.discovery import specifications

CATALOGUE = specifications("gatelab.data.named", ProblemSpec)
DATASETS = specifications("gatelab.data.named", Dataset)


def problems() -> tuple[ProblemSpec, ...]:
    """Every registered problem.

    Returns:
        The problems in the order in which `gatelab problems` lists them.

    >>> [spec.name for spec in problems()][:4]
    ['paper-1d', 'x2', 'x3', 'cos4x']
    """
    return tuple(CATALOGUE.values())
