"""Every figure, every row of every table and every number that the three papers print, and the claims that answer them.

The file `printed.csv` in the folder of a paper lists what the paper prints, a place per row; a claim says the place
that it answers. The inventory joins the two: nothing in it is written down twice. The tests compare it with copies of
the printed tables, with the studies when they are run, and with the committed records.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gatelab.errors import GatelabError
from gatelab.studies import claims, definition
from gatelab.studies.definition import Item
from gatelab.studies.engine import PAPERS, studies_by_name

__all__ = ["FULL_ONLY", "ITEMS", "Answer", "Item", "answers", "faults", "in_quick", "namesake", "printed", "read_items"]

Claim = definition.Claim | claims.Claim
# Words of places that only a full study answers: measured data, records made on a GPU, and the longest training.
FULL_ONLY = ("airfoil", "California", "MNIST", "CIFAR-10", "FineWeb-Edu", "weights of deviation 0.02", "30 epochs")


@cache
def read_items(paper: str) -> tuple[Item, ...]:
    """What a paper prints, from the file in the folder of its studies."""
    with (Path(__file__).with_name(paper) / "printed.csv").open(encoding="utf-8", newline="") as file:
        return tuple(Item(paper, **{**row, "measurable": row["measurable"] == "yes"}) for row in csv.DictReader(file))


ITEMS: tuple[Item, ...] = tuple(item for paper in PAPERS for item in read_items(paper))


def printed(paper: str, place: str) -> str:
    """What a paper prints at a place.

    >>> printed("scaling", "figure 2, MLP against n")
    '-2.13'
    """
    for item in read_items(paper):
        if item.place == place:
            return item.printed
    raise GatelabError(f"the paper {paper} has no place {place!r}")


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
        elif not agrees(item.printed, answered[item].claim.paper):
            theirs = answered[item].claim.paper
            sentences.append(f"{item.paper}, {item.place}: {item.printed!r} is printed and the claim has {theirs!r}")
    return tuple(sentences)


def agrees(printed: str, paper: float | str | None) -> bool:
    """Whether a claim has on the paper's side what is printed: these words, or one of these numbers.

    The value of a printed formula is the study's own affair.

    >>> agrees("0.0891 against 0.0822", "0.0891 against 0.0822"), agrees("6, 40, -336", 40), agrees("-2.13", -2.1)
    (True, True, False)
    """
    if not isinstance(paper, float | int):
        return printed in (paper or "")
    try:
        return not printed or paper in [float(number) for number in printed.split(", ")]
    except ValueError:
        return True


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
    return name if name in studies_by_name() else ""
