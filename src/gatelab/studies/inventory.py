"""Every figure, every row of every table and every number that the three papers print, and the claims that answer them.

Each paper's `printed.py` lists what it prints, by place; a claim says the place that it answers. The inventory is what
the two give together: nothing in it is written down twice. The tests hold it against copies of the printed tables,
against the studies when they are run, and against the committed records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gatelab.errors import GatelabError
from gatelab.studies.definition import Claim, Item, studies_by_name
from gatelab.studies.linearize import printed as printed_linearize
from gatelab.studies.ntk import printed as printed_ntk
from gatelab.studies.scaling import printed as printed_scaling

__all__ = ["FULL_ONLY", "ITEMS", "Answer", "Item", "answers", "faults", "in_quick", "namesake"]

ITEMS: tuple[Item, ...] = (*printed_scaling.ITEMS, *printed_ntk.ITEMS, *printed_linearize.ITEMS)
# Words of places that only a full study answers: measured data, records made on a GPU, and the longest training.
FULL_ONLY = ("airfoil", "California", "MNIST", "CIFAR-10", "FineWeb-Edu", "weights of deviation 0.02", "30 epochs")


@dataclass(frozen=True)
class Answer:
    """What answers for a place of a paper.

    Attributes:
        study: The name of the study.
        claim: The claim of it.
    """

    study: str
    claim: Claim


def answers(claims: Mapping[str, Iterable[Claim]], items: Sequence[Item] = ITEMS) -> dict[Item, Answer]:
    """Join what the papers print with what studies claim, by place.

    A claim at a place that its paper does not have is an error, and so is one at a place that is answered already or
    listed as not measured.
    """
    by_place = {(item.paper, item.place): item for item in items}
    joined: dict[Item, Answer] = {}
    for study, own in claims.items():
        paper = study.partition("/")[0]
        for claim in own:
            for place in claim.places:
                item = by_place.get((paper, place))
                if item is None:
                    raise GatelabError(f"{study} answers {place!r} ({claim.what}), a place that its paper has not")
                if item.missing:
                    raise GatelabError(f"{study} answers {place!r}, which is listed as not measured: {item.missing}")
                if item in joined:
                    raise GatelabError(f"{place!r} is answered twice: by {joined[item].study} and by {study}")
                joined[item] = Answer(study, claim)
    return joined


def faults(items: Iterable[Item], answered: Mapping[Item, Answer]) -> tuple[str, ...]:
    """What is wrong with the answers to some items.

    Items that cannot be or were not measured need no answer; a claim must have the printed number on the paper's side.
    """
    sentences = []
    for item in items:
        if not item.measurable or item.missing:
            continue
        if item not in answered:
            sentences.append(f"{item.paper}, {item.place}: no claim answers it")
        elif item.printed not in answered[item].claim.paper:
            theirs = answered[item].claim.paper
            sentences.append(f"{item.paper}, {item.place}: {item.printed!r} is printed and the claim has {theirs!r}")
    return tuple(sentences)


def in_quick(item: Item) -> bool:
    """Whether quick studies answer for an item too, or full ones alone.

    >>> sum(not in_quick(item) for item in ITEMS if item.place.startswith("table 1, airfoil"))
    8
    """
    return not any(word in item.place for word in FULL_ONLY)


def namesake(item: Item) -> str:
    """The study of the figure or table at which an item stands, for items that no claim answers yet.

    >>> namesake(Item("scaling", "figure 2", "MLP against n")), namesake(Item("scaling", "abstract", "L(P)"))
    ('scaling/fig2', '')
    """
    name = f"{item.paper}/{item.heading.replace('figure ', 'fig').replace('table ', 'table')}"
    if name not in studies_by_name():
        return ""
    return name
