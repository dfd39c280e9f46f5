"""Temporary: claims that are found by their titles, because they do not say their places yet.

Two kinds of them are left. The papers on condition numbers and on linearisation list beside each place the study and
the title of the claim that answers it (`TitledItem`), until their claims have places. And the committed records of
table 1 and of figures 7 and 8 of the paper on scaling were made before claims had places (`older_places`). When both
are gone, so is this file.
"""

from __future__ import annotations

from dataclasses import dataclass

from gatelab.studies.definition import Item

# The headings of the rows whose text is the title of a claim of these studies.
HEADINGS = {
    "scaling/table1": ("table 1", "appendix D"),
    "scaling/fig7": ("figure 7",),
    "scaling/fig8": ("figure 8",),
}


@dataclass(frozen=True)
class TitledItem(Item):
    """A place with the name of the study and the title of the claim that answers it."""

    study: str = ""
    title: str = ""

    @property
    def words(self) -> str:
        """The words that tell whether a quick study answers for it too: those of the title."""
        return self.title


def older_places(study: str, title: str) -> tuple[str, ...]:
    """Where a claim without a place may belong; the paper need not have all of these places.

    >>> older_places("scaling/fig7", "Friedman 1, glu, paper's protocol")
    ("figure 7, Friedman 1, glu, paper's protocol",)
    """
    return tuple(f"{heading}, {title}" for heading in HEADINGS.get(study, ()))
