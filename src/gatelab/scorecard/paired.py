"""Whether one network's error is less than another's: the same test rows are drawn again for both.

Two networks err on the same hard rows, so that their errors go up and down together; drawn apart, their intervals
overlap long after the difference is certain. Test rows are drawn with replacement, the same for every network, and the
seeds of each network apart. Intervals are percentiles of 2000 draws. With the usual three seeds they cover somewhat
less than they say. Pure functions of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gatelab.display import one_line

Array = NDArray[np.float64]
LEVEL = 0.95
DRAWS = 2000
_PART = 2**22  # numbers held at once


@dataclass(frozen=True)
class Estimate:
    """A value and the interval that it lies in, at `LEVEL`."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True, eq=False)
class Draws:
    """RMSE of every network as measured, and in every draw of test rows and seeds, (networks, draws)."""

    measured: Array
    drawn: Array

    def __repr__(self) -> str:
        return one_line(self, f"{len(self.measured)} networks, {self.drawn.shape[1]} draws")

    def rmse(self, i: int) -> Estimate:
        return _estimate(float(self.measured[i]), self.drawn[i])

    def ratio(self, i: int, j: int) -> Estimate:
        """The error of network i over that of network j; the interval of a network with itself is 1."""
        return _estimate(float(self.measured[i] / self.measured[j]), self.drawn[i] / self.drawn[j])


def draw(squares: Sequence[Array], *, least: float = 0.0, draws: int = DRAWS, seed: int = 0) -> Draws:
    """Draws of the mean over seeds of the RMSE, from squared errors (seeds, rows) of each network.

    RMSEs below `least` count as `least`: of errors that are all rounding none is the smaller.

    >>> rng = np.random.default_rng(0)
    >>> hard = rng.exponential(size=200)                     # how hard each row is, for both networks
    >>> found = draw([hard[None], 1.1 * hard[None]])
    >>> print(found.rmse(0)); print(found.ratio(1, 0))
    1.06 [0.996, 1.13]
    1.05 [1.05, 1.05]
    """
    rows = squares[0].shape[1]
    least = max(least, float(np.finfo(np.float64).tiny))
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(rows, np.full(rows, 1 / rows), size=draws)
    measured, drawn = [], []
    for given in squares:
        per_seed = np.empty((draws, len(given)))
        step = max(1, _PART // rows)
        for i in range(0, draws, step):
            per_seed[i : i + step] = np.sqrt(counts[i : i + step] @ given.T / rows)
        picked = generator.integers(len(given), size=(draws, len(given)))
        drawn.append(np.maximum(np.take_along_axis(per_seed, picked, axis=1), least).mean(axis=1))
        measured.append(np.maximum(np.sqrt(given.mean(axis=1)), least).mean())
    return Draws(np.array(measured), np.array(drawn))


def _estimate(value: float, drawn: Array) -> Estimate:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high))
