"""The glossary, read from the page of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from gatelab.errors import unknown_name

# In a checkout the page is in docs/; in the wheel it is inside the package.
_PLACES = (
    Path(__file__).resolve().parents[2] / "docs" / "glossary.md",
    Path(__file__).resolve().with_name("glossary.md"),
)


def definitions() -> dict[str, str]:
    """Every word with its entry, as plain text in one paragraph.

    >>> definitions()["knot"].partition(",")[0]
    'The input at which a relu gate opens or closes'
    """
    page = next(path for path in _PLACES if path.is_file()).read_text(encoding="utf-8")
    _, *entries = re.split(r"^## ", page, flags=re.M)
    pairs = (entry.split("\n", 1) for entry in entries)
    return {word.strip(): " ".join(text.split()) for word, text in pairs}


def define(word: str) -> str:
    """The entry of one word; case does not matter.

    >>> define("Knot").endswith("relu(2x - 1) has its knot at x = 0.5.")
    True
    >>> define("knott")
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: no word of the glossary is called 'knott'; did you mean 'knot'? Known: backend, ...
    """
    entries = definitions()
    name = " ".join(word.lower().split())
    if name not in entries:
        raise unknown_name("word of the glossary", word, entries)
    return entries[name]
