"""Every figure, every row of every table and every number that the three papers print, and the claim that answers it.

An item names a study and one of its claims. Where a paper has a definition or a picture with nothing to measure, the
item says so. The tests hold the inventory against copies of the printed tables, against the studies when they are run,
and against the committed records.
"""

from __future__ import annotations

from collections.abc import Iterable

from gatelab.studies.definition import Claim, Item
from gatelab.studies.linearize import printed as printed_linearize
from gatelab.studies.ntk import printed as printed_ntk
from gatelab.studies.scaling import printed as printed_scaling

ITEMS: tuple[Item, ...] = (*printed_scaling.ITEMS, *printed_ntk.ITEMS, *printed_linearize.ITEMS)
# Studies of what no paper has; the last one answers a question that the third leaves open.
BEYOND = ("scaling/law", "ntk/orders", "linearize/floor", "linearize/transformer")
# Words of claims that only a full study has: measured data, records made on a GPU, and the longest training.
FULL_ONLY = ("airfoil", "California", "MNIST", "CIFAR-10", "FineWeb-Edu", "weights of deviation 0.02", "30 epochs")


def in_quick(item: Item) -> bool:
    """Whether a quick study makes the claim too.

    >>> sum(not in_quick(item) for item in ITEMS if item.study == "linearize/learned2d")
    2
    """
    return not any(word in item.claim for word in FULL_ONLY)


def items_of(study: str) -> tuple[Item, ...]:
    """What a study answers for.

    >>> [item.place for item in items_of("scaling/fig10")]
    ['figure 10']
    """
    return tuple(item for item in ITEMS if item.study == study)


def unanswered(items: Iterable[Item], claims: Iterable[Claim]) -> tuple[str, ...]:
    """A sentence for every item without its claim, or whose claim has not the printed number on the paper's side."""
    by_name = {claim.what: claim for claim in claims}
    said = []
    for item in items:
        if not item.claim:
            continue
        name = f"{item.paper}, {item.place}, {item.row}"
        if item.claim not in by_name:
            said.append(f"{name}: {item.study} makes no claim {item.claim!r}")
        elif item.printed not in by_name[item.claim].paper:
            said.append(f"{name}: {item.printed!r} is printed and the claim has {by_name[item.claim].paper!r}")
    return tuple(said)


__all__ = ["BEYOND", "FULL_ONLY", "ITEMS", "Item", "in_quick", "items_of", "unanswered"]
