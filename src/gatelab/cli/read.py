"""Texts and files that a user gives, as values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gatelab.errors import GatelabError

if TYPE_CHECKING:
    from gatelab.problems import Problem

SAMPLING, NOISE, PROBLEM = "random", 0.0, "paper-1d"
MANY = 100_000
_RANGE = re.compile(r"([0-9]{1,9}):([0-9]{1,9})(?::([0-9]{1,9}))?")
_HOW = "give a range 1:50, a range with a step 50:200:10, or a list 4,8,16"


def widths(text: str) -> list[int]:
    """The widths that a text means, both ends included.

    >>> widths("1:4"), widths("50:200:50"), widths("4,8,16"), widths("1:3,10")
    ([1, 2, 3, 4], [50, 100, 150, 200], [4, 8, 16], [1, 2, 3, 10])
    """
    found: set[int] = set()
    shown = text if len(text) <= 60 else f"{text[:60]}..."
    for part in text.replace(" ", "").split(","):
        some = _range(part, shown)
        # Counted before they are made: a slip of the hand must not fill the memory.
        if len(found) + len(some) > MANY:
            raise GatelabError(f"the widths {shown!r} are more than {MANY}; give fewer, or a step such as 50:200:10")
        found.update(some)
    return sorted(found)


def _range(part: str, text: str) -> range:
    match = _RANGE.fullmatch(f"{part}:{part}" if part.isdecimal() else part)
    if not match:
        raise GatelabError(f"the widths {text!r} cannot be read at {part[:60]!r}; {_HOW}")
    first, last, step = (int(number or 1) for number in match.groups())
    if first < 1:
        raise GatelabError(f"the widths {text!r} start at {first}; a network has 1 neuron or more")
    if last < first:
        raise GatelabError(f"the widths {text!r} run from {first} down to {last}; write {last}:{first}")
    if step < 1:
        raise GatelabError(f"the widths {text!r} have step 0; give a step of 1 or more")
    return range(first, last + 1, step)


def target(
    problem: str | None,
    data: Path | None = None,
    *,
    interval: tuple[float, float] | None = None,
    points: int | None = None,
    sampling: str = SAMPLING,
    noise: float = NOISE,
    target: str | None = None,
    inputs: str | None = None,
    standardise: bool | None = None,
    protocol: str = "split",
) -> Problem:
    """The problem that the options mean: the data of a file, or a name or formula with how it is sampled."""
    from gatelab.problems import Problem as Given
    from gatelab.problems import problem as named

    if data is None:
        if target is not None or inputs is not None:
            raise GatelabError("--target and --inputs name columns of a file; give it with --data FILE")
        chosen = {"n": points, "sampling": sampling, "noise": noise}
        return named(problem or PROBLEM, interval=interval, standardise=standardise, protocol=protocol, **chosen)
    if problem is not None:
        raise GatelabError(f"both the problem {problem!r} and --data {data} are given; leave one of them out")
    if (points, sampling, noise) != (None, SAMPLING, NOISE):
        raise GatelabError(f"--points, --sampling and --noise are for formulas; leave them out with --data {data}")
    return Given.from_file(
        data,
        target=column_names(target),
        inputs=column_names(inputs),
        interval=interval,
        standardise=bool(standardise),
        protocol=protocol,
    )


def column_names(text: str | None) -> list[str] | None:
    """Columns with commas between."""
    return None if text is None else [name.strip() for name in text.split(",")]
