"""The search of both estimators: candidates of (unit, width, ridge) by a loss on held-out rows.

The training of networks, the order of candidates and the choice of those to average are in `squares` for the regressor
and in `classes` for the classifier. Rows with equal inputs are held out together.
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

# Classes with fewer distinct inputs are never held out.
_FEWEST_INPUTS = 3


@dataclass(frozen=True, eq=False)
class Candidate:
    """Networks of one kind, one per fold, with their values on held-out rows and the error of these.

    `unit` is None for trees, and `width` is then their number; `gates` is "trained", "drawn", "both" for trained gates
    plus trees, or the kind of trees. A classifier's networks also have their training losses and the relevance factors
    of the inputs, if any.
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
    """A search on rows with folds, of which the first `used` evaluate candidates; `tried` has the candidates so far."""

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
        end: float = math.inf,
        show: Callable[..., object] = lambda row: None,
    ) -> None:
        self.rows, self.raw, (self.fold, self.folds), self.used = rows, raw, folds, used
        self.loss, self.seed, self.device, self.end, self.show = loss, seed, device, end, show
        self.tried: list[Candidate] = []

    def over(self, seconds: float = 0.0) -> bool:
        """Whether fewer than these seconds are left."""
        return time.monotonic() + seconds >= self.end

    @cached_property
    def binned(self) -> BinnedRows:
        return BinnedRows.of(self.raw, self.rows.y, self.rows.weight)

    def outside(self, f: int) -> NDArray[np.intp]:
        """The held-out rows of a fold."""
        return np.flatnonzero(self.fold == f)

    def truth(self, folds: int) -> tuple[Array, Array]:
        """Targets and weights of the held-out rows of the first folds, fold by fold."""
        index = np.concatenate([self.outside(f) for f in range(folds)])
        return self.rows.y[index], self.rows.weight[index]

    def evaluate(self, candidate: Candidate, members: Sequence[Member], values: Sequence[Array]) -> Candidate:
        """The candidate with its members, their values on the held-out rows of each fold, and the loss of these."""
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
        """A candidate as plain values."""
        return {"unit": candidate.name, "width": candidate.width, "ridge": candidate.ridge}

    def of_kind(self, *gates: str) -> list[Candidate]:
        return [c for c in self.tried if c.gates in gates]

    @property
    def best(self) -> Candidate:
        return min(self.tried, key=lambda c: c.error)


def folds_of(
    rows: TableRows, folds: int, seed: int, *, most: int | None = None, classes: bool = False
) -> tuple[NDArray[np.intp], int]:
    """The fold of each row, or -1 beyond the `most` rows, and the number of folds, stratified by classes if asked.

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
