"""One row, panel or number of a paper, and the claim that answers for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """What a paper shows at a place, and where it is measured again.

    `printed` is the number as the paper prints it, "" where there is a statement or a picture without one. `claim` is
    the `what` of a claim of `study`; where there is nothing to measure, both are "" and `why` says so. `why` also says
    what is lost in our copy of the paper or stands elsewhere.
    """

    paper: str
    place: str
    row: str
    printed: str
    study: str
    claim: str
    why: str = ""
