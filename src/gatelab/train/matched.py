"""The gap at equal training loss: what one unit's runs have more of it than another's, with an interval over seeds.

A faster unit has other training losses at the same step, so that clouds of points differ even where the gap is one
function of the training loss. Here each run is such a function, from the points where its training loss was lower than
ever before, straight between them; runs are compared by its mean over the losses that all of them pass through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from scipy.stats import t as student

from gatelab.display import one_line
from gatelab.errors import GatelabError, check_seed
from gatelab.train.energy import arrangements

Array = NDArray[np.float64]
_LEVELS = 200


@dataclass(frozen=True, eq=False)
class Matched:
    """Mean gap of the second group less that of the first, at training losses from `low_loss` to `high_loss`.

    In nats, with a bootstrap interval over runs; `relative` is the difference over the first group's mean gap,
    `standardised` over the deviation between runs of one group. `p` exchanges whole runs and cannot be below `least_p`.
    `first` and `second` are the mean gaps of the runs.
    """

    difference: float
    low: float
    high: float
    relative: float
    standardised: float
    p: float
    least_p: float
    low_loss: float
    high_loss: float
    first: Array
    second: Array

    def __repr__(self) -> str:
        return one_line(self, str(self))

    def __str__(self) -> str:
        ends = "" if np.isnan(self.low) else f" [{self.low:+.3f}, {self.high:+.3f}]"
        return f"{self.difference:+.3f}{ends} nats ({self.relative:+.0%}), p = {self.p:.3g}"


def matched_gap(
    a: Sequence[ArrayLike], b: Sequence[ArrayLike], *, draws: int = 4000, level: float = 0.95, seed: int = 0
) -> Matched:
    """Compare runs of points (training loss, gap) at equal training loss; None of `a` or `b` may be empty.

    >>> losses = np.linspace(2, 0.5, 16)
    >>> def run(extra):
    ...     return np.stack([losses, 2 - losses + extra], 1)
    >>> found = matched_gap([run(0.0), run(0.02), run(-0.02)], [run(0.1), run(0.13), run(0.07)])
    >>> round(found.difference, 3), round(found.p, 2)
    (0.1, 0.1)
    """
    curves = [[_curve(run) for run in group] for group in (a, b)]
    if not all(curves):
        raise GatelabError(f"there are {len(a)} and {len(b)} runs; give one of each at least")
    everyone = [*curves[0], *curves[1]]
    low, high = max(c[0, 0] for c in everyone), min(c[-1, 0] for c in everyone)
    if not low < high:
        raise GatelabError(
            f"the runs have no training losses in common (one ends at {low:.3g}, one begins at {high:.3g});"
            " train for more steps"
        )
    levels = np.linspace(low, high, _LEVELS)
    first, second = (np.array([np.interp(levels, c[:, 0], c[:, 1]).mean() for c in group]) for group in curves)
    difference = float(second.mean() - first.mean())
    ends = _bootstrap(first, second, draws, level, seed)
    p, least = _exchanged(first, second)
    deviation = _pooled(first, second)
    return Matched(
        difference,
        *ends,
        relative=difference / float(first.mean()) if first.mean() else np.nan,
        standardised=difference / deviation if deviation else np.nan,
        p=p,
        least_p=least,
        low_loss=float(low),
        high_loss=float(high),
        first=first,
        second=second,
    )


def _curve(points: ArrayLike) -> Array:
    """The points at which the training loss was lower than ever before, by rising training loss."""
    run = np.asarray(points, float)
    if run.ndim != 2 or run.shape[1] != 2 or not len(run) or not np.isfinite(run).all():
        raise GatelabError(f"a run is points (training loss, gap), finite, not an array of shape {run.shape}")
    before = np.concatenate([[np.inf], np.minimum.accumulate(run[:, 0])[:-1]])
    return run[run[:, 0] < before][::-1]


def _bootstrap(first: Array, second: Array, draws: int, level: float, seed: int) -> tuple[float, float]:
    """Percentiles of the difference over drawn runs, wider than the usual ones by as much as few runs ask for.

    A percentile interval of n values is too short, as if t quantiles were normal ones and n were n - 1; the percentiles
    are moved outwards by that (Hesterberg 2015). No interval without two runs of each.
    """
    n = min(len(first), len(second))
    if n < 2:
        return np.nan, np.nan
    generator = np.random.default_rng(check_seed(seed))
    drawn = [g[generator.integers(len(g), size=(draws, len(g)))].mean(1) for g in (first, second)]
    reach = float(student.ppf(0.5 + level / 2, n - 1)) * (n / (n - 1)) ** 0.5
    tail = float(norm.cdf(-reach))
    low, high = np.quantile(drawn[1] - drawn[0], [tail, 1 - tail])
    return float(low), float(high)


def _exchanged(first: Array, second: Array) -> tuple[float, float]:
    """How often exchanged labels put the means as far apart, and the least that this can be."""
    values = np.concatenate([first, second])
    masks, exact = arrangements(len(values), len(first), 9999, 0)
    share = masks.astype(float)
    means = (share @ values) / len(first) - ((1 - share) @ values) / len(second)
    seen = abs(first.mean() - second.mean())
    count = int((np.abs(means) >= seen - 1e-12 * max(1.0, float(np.abs(values).max()))).sum())
    mirrored = 2 if len(first) == len(second) else 1
    if exact:
        return count / len(masks), mirrored / len(masks)
    return (count + 1) / (len(masks) + 1), 1 / (len(masks) + 1)


def _pooled(first: Array, second: Array) -> float:
    """The deviation between runs of one group, of both groups together."""
    free = len(first) + len(second) - 2
    if free < 1:
        return 0.0
    squares = ((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum()
    return float((squares / free) ** 0.5)
