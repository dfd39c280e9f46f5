"""One search for both estimators: candidates of (unit, width, ridge) judged by a loss on rows held out.

How networks are fitted, in which order candidates come and which are averaged is the regressor's (`squares`) and the
classifier's (`classes`) own. Rows with the same inputs are held out together, for their targets would give it away.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.estimators.committee import Member
from gatelab.estimators.frames import TableRows
from gatelab.estimators.trees import BinnedRows
from gatelab.feedforward import Unit

# A class with fewer different inputs than this is never held out.
_FEWEST_INPUTS = 3


@dataclass(frozen=True, eq=False)
class Candidate:
    """Networks of one kind, by fold, with their values at the rows that each has not seen, and the error there.

    `unit` is None for trees alone, and `width` their number; `gates` are "trained", "drawn", "both" for trained ones
    with steps on top, or the kind of trees. A classifier's networks have their losses in training, and the relevance
    that inputs are multiplied by, None where they are not weighed.
    """

    unit: Unit | None
    width: int
    ridge: float = 0.0
    gates: str = "trained"
    members: tuple[Member, ...] = ()
    values: Any = None
    error: float = math.nan
    steepness: float = 0.0
    training: Any = None
    relevance: Any = None

    @property
    def name(self) -> str:
        if self.unit is None:
            return self.gates if self.gates == "steps" else f"{self.gates} steps"
        return f"{self.unit.name} + steps" if self.gates == "both" else self.unit.name


class Search:
    """Rows with their folds, of which the first `used` judge candidates, the clock, and what was tried."""

    def __init__(
        self,
        rows: TableRows,
        raw: Array,
        folds: tuple[NDArray[np.intp], int],
        used: int,
        *,
        loss: Callable[[Array, Array, Array], float],
        seed: int,
        device: str,
        end: float,
        show: Callable[..., object],
    ) -> None:
        self.rows, self.raw, (self.fold, self.folds), self.used = rows, raw, folds, used
        self.loss, self.seed, self.device, self.end, self.show = loss, seed, device, end, show
        self.tried: list[Candidate] = []

    def over(self, seconds: float = 0.0) -> bool:
        """Whether there are not so many seconds left."""
        return time.monotonic() + seconds >= self.end

    @cached_property
    def binned(self) -> BinnedRows:
        return BinnedRows.of(self.raw, self.rows.y, self.rows.weight)

    def outside(self, f: int) -> NDArray[np.intp]:
        """The rows that a fold holds out."""
        return np.flatnonzero(self.fold == f)

    def truth(self, folds: int) -> tuple[Array, Array]:
        """Targets and weights of the rows held out by the first folds, fold by fold."""
        index = np.concatenate([self.outside(f) for f in range(folds)])
        return self.rows.y[index], self.rows.weight[index]

    def judged(self, candidate: Candidate, members: Sequence[Member], values: Sequence[Array]) -> Candidate:
        """A candidate with its members, their values at the rows held out, by fold, and the loss there."""
        joined = np.concatenate(values)
        error = self.loss(joined, *self.truth(len(values)))
        return replace(candidate, members=tuple(members), values=joined, error=error)

    def enter(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        for candidate in candidates:
            self.show(self.row(candidate))
            self.tried.append(candidate)
        return candidates

    @staticmethod
    def row(candidate: Candidate) -> dict[str, Any]:
        """What was tried, as plain values."""
        return {"unit": candidate.name, "width": candidate.width, "ridge": candidate.ridge}

    def of_kind(self, *gates: str) -> list[Candidate]:
        return [c for c in self.tried if c.gates in gates]

    @property
    def best(self) -> Candidate:
        return min(self.tried, key=lambda c: c.error)


def folds_of(
    rows: TableRows, folds: int, seed: int, *, most: int | None = None, classes: bool = False
) -> tuple[NDArray[np.intp], int]:
    """A fold for each of at most so many rows, else -1, and how many there are; classes have their share in every one.

    >>> x = np.repeat(np.arange(4.0), 2)[:, None]
    >>> folds_of(TableRows(x, x, np.ones(8)), 2, 0)[0].tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    generator = np.random.default_rng(seed)
    sample = np.arange(len(rows))
    if most is not None and len(rows) > most:
        sample = np.sort(generator.permutation(len(rows))[:most])
    groups, first, group = np.unique(rows.x[sample], axis=0, return_index=True, return_inverse=True)
    place = generator.permutation(len(groups))
    if classes:
        label = rows.y[sample].argmax(1)[first]
        order = place[np.argsort(label[place], kind="stable")]
        order = order[np.bincount(label)[label[order]] >= _FEWEST_INPUTS]
        place = np.full(len(groups), -1)
        place[order] = np.arange(len(order))
    number = min(folds, int(np.count_nonzero(place >= 0)))
    fold = np.full(len(rows), -1, dtype=np.intp)
    if number > 1:
        fold[sample] = np.where(place < 0, -1, place % number)[group.ravel()]
    return fold, number
