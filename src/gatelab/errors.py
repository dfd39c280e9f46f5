"""The one kind of error a user can cause, and the way out that it carries.

Every message says what was given, what was expected and what to do. The command line turns a `GatelabError` into one
line on stderr and exit code 2; anything else that escapes is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class GatelabError(ValueError):
    """Input that gatelab cannot work with.

    >>> raise GatelabError("width is 0; give a whole number of neurons, 1 or more")
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: width is 0; give a whole number of neurons, 1 or more
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> GatelabError:
    """The error for a name that is not registered, with the nearest ones.

    >>> print(unknown_name("unit", "gllu", ["glu", "gqu", "mlp"]))
    no unit is called 'gllu'; did you mean 'glu'? Known: glu, gqu, mlp
    """
    known = sorted(known)
    near = get_close_matches(name.lower(), known, n=3, cutoff=0.6)
    guess = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else "."
    return GatelabError(f"no {kind} is called {name!r}{guess} Known: {', '.join(known)}")
