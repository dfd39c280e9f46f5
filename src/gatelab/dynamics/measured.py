"""The crossing of measured losses, with an interval over seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gatelab.display import one_line
from gatelab.dynamics.inputs import Array
from gatelab.dynamics.training import Training
from gatelab.errors import GatelabError, check_seed


@dataclass(frozen=True)
class MeasuredCrossing:
    """The last crossing of two mean losses, None where they do not cross; `changes` are all of them.

    `low` and `high` are the percentile interval over draws of the seeds of both units, among those draws that cross,
    and `share` is the share of these.
    """

    step: float | None
    low: float
    high: float
    share: float
    changes: tuple[float, ...]
    seeds: tuple[int, int]

    def __repr__(self) -> str:
        return one_line(self, f"{self}, in {self.share:.0%} of the draws")

    def __str__(self) -> str:
        return "none" if self.step is None else f"{self.step:.3g} [{self.low:.3g}, {self.high:.3g}]"


def measured_crossing(
    a: Training, b: Training, *, level: float = 0.95, draws: int = 1000, seed: int = 0
) -> MeasuredCrossing:
    """Where the mean loss of `b` passes that of `a`, between recorded steps by a straight line in log loss."""
    if a.losses.ndim != 2 or b.losses.ndim != 2:
        raise GatelabError("a crossing is of one learning rate each; take training.at(lr)")
    if not np.array_equal(a.steps, b.steps):
        raise GatelabError("the two trainings recorded different steps; train both with the same `record`")
    if (a.diverged >= 0).any() or (b.diverged >= 0).any():
        raise GatelabError("some networks diverged, and their mean loss with them; train with a smaller lr")
    generator = np.random.default_rng(check_seed(seed))
    found = changes(a.steps, a.mean, b.mean)
    last = []
    for _ in range(draws):
        rows = [t.losses[generator.integers(0, len(t.losses), len(t.losses))].mean(axis=0) for t in (a, b)]
        some = changes(a.steps, rows[0], rows[1])
        if some:
            last.append(some[-1])
    low, high = np.quantile(last, [0.5 - level / 2, 0.5 + level / 2]) if last else (np.nan, np.nan)
    share = len(last) / draws if draws else np.nan
    return MeasuredCrossing(
        found[-1] if found else None, float(low), float(high), share, found, (len(a.seeds), len(b.seeds))
    )


def changes(steps: Array, a: Array, b: Array) -> tuple[float, ...]:
    """The steps at which the order of two curves changes.

    >>> changes(np.arange(3.0), np.array([1.0, 1.0, 1.0]), np.exp([1.0, 0.5, -0.5]))
    (1.5,)
    """
    gap = np.log(a) - np.log(b)
    told = gap != 0
    steps, gap = steps[told], gap[told]
    at = np.flatnonzero(np.sign(gap[1:]) != np.sign(gap[:-1]))
    return tuple(float(steps[i] + (steps[i + 1] - steps[i]) * gap[i] / (gap[i] - gap[i + 1])) for i in at)
