"""`GatelabError`, the error for invalid input, and the checks of numbers and names that raise it.

Every message has the given value and a remedy. The command line turns a `GatelabError` into one line on stderr and exit
code 2; any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import math
import operator

TYPE_CHECKING = False  # known to type checkers; importing the module typing here would slow down every start
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

MOST = 2**63 - 1


class GatelabError(ValueError):
    """Input that gatelab cannot work with.

    >>> raise GatelabError("width is 0; give a whole number of neurons, 1 or more")
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: width is 0; give a whole number of neurons, 1 or more
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> GatelabError:
    """The error for an unknown name, with the nearest known ones.

    >>> print(unknown_name("unit", "gllu", ["glu", "gqu", "mlp"]))
    no unit is called 'gllu'; did you mean 'glu'? Known: glu, gqu, mlp
    """
    from difflib import get_close_matches  # imported here to keep the start fast

    known = sorted(known)
    near = get_close_matches(str(name).lower(), known, n=3, cutoff=0.6)
    guess = f"; did you mean {' or '.join(map(repr, near))}?" * bool(near) or "."
    return GatelabError(f"no {kind} is called {name!r}{guess} Known: {', '.join(known)}")


def whole_number(what: str, value: Any, least: int, most: int = MOST, *, of: str = "") -> int:
    """The value as an int from `least` to `most`; numpy's integers are accepted, True and False are not.

    `of` names the counted things in the message.

    >>> whole_number("seed", 7, 0)
    7
    >>> whole_number("width", 0, 1, of="neurons")
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: width is 0; give a whole number of neurons, 1 or more
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or not least <= number <= most:
        counted, span = f" of {of}" * bool(of), f"from {least} to {most}"
        if most == MOST >= number:
            span = f"{least} or more"
        raise GatelabError(f"{what} is {value!r}; give a whole number{counted}, {span}")
    return number


def real_number(
    what: str,
    value: Any,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> float:
    """The value as a finite float within the given bounds; True and False are not accepted.

    >>> real_number("share", 0.3, above=0, most=1)
    0.3
    >>> real_number("share", 1.5, above=0, most=1)
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: share is 1.5; give a number above 0 and at most 1
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    inside = least <= number <= most and above < number < below
    if isinstance(value, bool | str) or not (inside and math.isfinite(number)):
        ends = {"above": above, "at least": least, "below": below, "at most": most}
        span = " and ".join(f"{word} {end:g}" for word, end in ends.items() if math.isfinite(end))
        raise GatelabError(f"{what} is {value!r}; give {'a number ' + span if span else 'a finite number'}")
    return number


def check_seed(seed: Any) -> int:
    """The seed as an int of 0 or more."""
    return whole_number("seed", seed, 0)


def check_seeds(seeds: Any, first: Any = 0) -> list[int]:
    """As many seeds from `first` on, or those of a sequence.

    >>> check_seeds(2, 5), check_seeds([3, 4])
    ([5, 6], [3, 4])
    """
    if hasattr(seeds, "__iter__") and len(seeds):
        return list(dict.fromkeys(map(check_seed, seeds)))
    return [check_seed(first) + i for i in range(whole_number("seeds", seeds, 1))]
