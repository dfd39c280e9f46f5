"""Texts and files that a user gives, as values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gatelab.errors import GatelabError

if TYPE_CHECKING:
    import numpy as np

    from gatelab.problems import Problem

POINTS, SAMPLING, NOISE, PROBLEM = 10_000, "random", 0.0, "paper-1d"
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
    data: Path | None,
    *,
    interval: tuple[float, float] | None,
    points: int,
    sampling: str,
    noise: float,
) -> Problem:
    """The problem that the options mean: the data of a file, or a name or formula with how it is sampled."""
    from gatelab.problems import Problem as Given
    from gatelab.problems import problem as named

    if data is None:
        return named(problem or PROBLEM, interval=interval, n=points, sampling=sampling, noise=noise)
    if problem is not None:
        raise GatelabError(f"both the problem {problem!r} and --data {data} are given; leave one of them out")
    if (points, sampling, noise) != (POINTS, SAMPLING, NOISE):
        raise GatelabError(f"--points, --sampling and --noise are for formulas; leave them out with --data {data}")
    table = read_table(data)
    try:
        return Given.from_arrays(table[:, 0], table[:, 1], interval=interval, name=data.name)
    except GatelabError as error:
        raise GatelabError(f"{data}: {error}") from error


def read_table(path: Path) -> np.ndarray:
    """The two columns x, y of a CSV file, with or without a header, or of an .npy file."""
    import numpy as np

    if not path.is_file():
        raise GatelabError(
            f"there is no file {path}; give a CSV file of two columns x,y or an .npy file of N x 2 numbers"
        )
    table = _npy(path) if path.suffix.lower() == ".npy" else _csv(path)
    if table.ndim != 2 or table.shape[1] != 2:
        raise GatelabError(
            f"{path} holds an array of shape {table.shape}; this version fits one input and one output, "
            "give two columns x and y"
        )
    if table.dtype.kind not in "biuf":
        raise GatelabError(f"{path} holds {table.dtype}, not real numbers; give two columns of numbers x and y")
    return table.astype(np.float64)


def _npy(path: Path) -> np.ndarray:
    import numpy as np

    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (ValueError, EOFError) as error:
        raise GatelabError(f"{path} is not a plain .npy array; write it with numpy.save, N x 2 numbers") from error


def _csv(path: Path) -> np.ndarray:
    import numpy as np

    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise GatelabError(f"{path} is not a text file; give a CSV file of two columns x,y") from None
    rows = [(i, [cell.strip() for cell in line.split(",")]) for i, line in enumerate(lines, 1) if line.strip()]
    if rows and not any(_number(cell) is not None for cell in rows[0][1]):
        rows = rows[1:]  # a header
    if not rows:
        raise GatelabError(f"{path} has no rows; give a CSV file of two columns x,y, one example a line")
    table = []
    for i, cells in rows:
        if len(cells) != 2:
            raise GatelabError(
                f"{path} line {i} has {len(cells)} column{'s' * (len(cells) != 1)}; this version fits one input and "
                "one output, give two columns x,y with commas between"
            )
        numbers = [_number(cell) for cell in cells]
        if None in numbers:
            raise GatelabError(
                f"{path} line {i}: {cells[numbers.index(None)]!r} is not a number; mend or remove the line"
            )
        table.append(numbers)
    return np.array(table, dtype=np.float64)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
