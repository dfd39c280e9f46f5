"""Every place of the three papers, and the claims that answer them.

The file `printed.csv` in the folder of a paper lists its figures, rows of tables and numbers, one place per row; a
claim names the place that it answers.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gatelab.errors import GatelabError
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Item
from gatelab.studies.engine import PAPERS, studies_by_name

# Words of places that only a full study answers: measured data, records made on a GPU, and the longest training.
FULL_ONLY = ("airfoil", "California", "MNIST", "30 epochs")


@cache
def read_items(paper: str) -> tuple[Item, ...]:
    """The places of a paper, from the file in the folder of its studies."""
    with (Path(__file__).with_name(paper) / "printed.csv").open(encoding="utf-8", newline="") as file:
        return tuple(Item(paper, **{**row, "measurable": row["measurable"] == "yes"}) for row in csv.DictReader(file))


ITEMS: tuple[Item, ...] = tuple(item for paper in PAPERS for item in read_items(paper))


def printed(paper: str, place: str) -> str:
    """The number or formula that a paper prints at a place, such as "figure 2, MLP against n"."""
    for item in read_items(paper):
        if item.place == place:
            return item.printed
    raise GatelabError(f"the paper {paper} has no place {place!r}")


class Answer(NamedTuple):
    """The study that answers a place of a paper, and its claim."""

    study: str
    claim: Claim


def answers(claims: Mapping[str, Iterable[Claim]], items: Sequence[Item] = ITEMS) -> dict[Item, Answer]:
    """Join the places of the papers with the claims of studies; a place that cannot be answered raises."""
    by_place = {(item.paper, item.place): item for item in items}
    joined: dict[Item, Answer] = {}
    for study, own in claims.items():
        paper = study.partition("/")[0]
        for claim in own:
            for place in claim.places:
                item = by_place.get((paper, place))
                if item is None:
                    raise GatelabError(f"{study} answers {place!r} ({claim.what}), which its paper does not have")
                if item.missing:
                    raise GatelabError(f"{study} answers {place!r}, which is listed as not measured: {item.missing}")
                if item in joined:
                    raise GatelabError(f"{place!r} is answered twice: by {joined[item].study} and by {study}")
                joined[item] = Answer(study, claim)
    return joined


def in_quick(item: Item) -> bool:
    """Whether quick studies answer an item, or only full ones."""
    return not any(word in item.place for word in FULL_ONLY)


def namesake(item: Item) -> str:
    """The study of the figure or table that contains an item, for items without a claim.

    >>> namesake(Item("scaling", "figure 2", "MLP against n")), namesake(Item("scaling", "abstract", "L(P)"))
    ('scaling/fig2', '')
    """
    name = f"{item.paper}/{item.heading.replace('figure ', 'fig').replace('table ', 'table')}"
    return name if name in studies_by_name() else ""
