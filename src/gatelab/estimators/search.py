"""The choice of unit, width and ridge: by error on rows that were held out, the cheapest first.

Widths double. Each width is one batch of quick fits, for every ridge that is still in the race and every fold, whose
rows are held out by a weight of zero. It ends where wider networks gain nothing, or where their trend does not lead
below what is there already: noisy data are done in a moment. Networks with drawn gates, which cost next to nothing,
are the first to be beaten. Rows with the same inputs are held out together, for their targets would give it away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.display import one_line
from gatelab.estimators.frames import TableRows, drawn, neuron_columns, reach
from gatelab.feedforward import Unit
from gatelab.solve import Solution, predict
from gatelab.solve.solvers.varpro import growing_steps, varpro_many

RIDGES = (0.0, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
# Folds, of which so many are used that each has all rows and all together this many; and the most rows that take part.
_FOLDS, _TRIED_ROWS, _MOST_ROWS = 5, 2500, 5000
# Rows times columns squared of the widest network that is tried: a step of it takes some tenths of a second.
_MOST_WORK = 1.2e8
# Steps beyond those of growth: for one round and some to settle.
_QUICK_ROUNDS, _QUICK_STEPS = 1, 28
# Narrow networks are cheap and end in bad places more often.
_NARROW, _NARROW_STARTS = 8, 2
# A ridge that is worse than the best by this factor at two widths in a row is out; errors this near are equal.
_HOPELESS, _EQUAL = 1.5, 1.01
# Of the standard deviation of the targets: nobody needs less. No doubling of the width has brought more than the other.
ENOUGH, _HOPE = 2e-6, 0.01
# Drawn gates: their slopes, the fewest rows for which they are tried, and the most columns of the linear problem.
_STEEPNESS, _FEWEST_ROWS, _MOST_COLUMNS = (1.0, 2.0), 100, 800


@dataclass(frozen=True)
class Candidate:
    """A network that was or can be fitted, and its error on rows held out, in standard deviations of the targets."""

    unit: Unit
    width: int
    ridge: float
    gates: Literal["trained", "drawn"] = "trained"
    steepness: float = 0.0
    rmse: float = np.nan

    def __repr__(self) -> str:
        return one_line(
            self,
            f"{self.unit.name}, width {self.width}, ridge {self.ridge:g}, {self.gates} gates: RMSE {self.rmse:.2g}",
        )

    def row(self) -> dict[str, Any]:
        """What was tried, as plain values."""
        names = ("width", "ridge", "gates", "rmse")
        return {"unit": self.unit.name} | {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class Trial:
    """The rows with their folds, and how to fit: what every candidate is tried on."""

    rows: TableRows
    fold: NDArray[np.intp]
    used: int
    seed: int
    device: str

    @classmethod
    def of(cls, rows: TableRows, seed: int, device: str) -> Trial | None:
        """None where the rows have less than two different inputs to part."""
        generator = np.random.default_rng(seed)
        if len(rows) > _MOST_ROWS:
            rows = rows.take(np.sort(generator.permutation(len(rows))[:_MOST_ROWS]))
        groups, group = np.unique(rows.x, axis=0, return_inverse=True)
        if len(groups) < 2:
            return None
        folds = min(_FOLDS, len(groups))
        fold = generator.permutation(len(groups))[group.ravel()] % folds
        return cls(rows, fold, max(1, min(folds, _TRIED_ROWS // len(rows))), seed, device)

    def trained(self, unit: Unit, width: int, ridges: Sequence[float]) -> list[Candidate]:
        """One batch: every ridge with every fold."""
        weights = [np.where(self.fold == f, 0.0, self.rows.weight) for f in range(self.used)]
        starts = _NARROW_STARTS if width <= _NARROW else 1
        solutions = solved(
            unit,
            self.rows.x,
            self.rows.y,
            [(width, self.seed)] * (len(ridges) * self.used),
            ridge=[r for r in ridges for _ in range(self.used)],
            weights=np.stack(weights * len(ridges)),
            device=self.device,
            starts=starts,
            rounds=_QUICK_ROUNDS,
            steps=growing_steps(width) + _QUICK_STEPS,
        )
        networks = [s.network for s in solutions]
        return [
            Candidate(unit, width, ridge, rmse=self.rmse(networks[i * self.used : (i + 1) * self.used]))
            for i, ridge in enumerate(ridges)
        ]

    def drawn(self, unit: Unit) -> Iterator[Candidate]:
        """Networks with drawn gates of three widths and two slopes, where there are rows enough."""
        columns = neuron_columns(unit, self.rows)
        if len(self.rows) < _FEWEST_ROWS or not columns:
            return
        for share in (8, 4, 2):
            width = min(len(self.rows) // share, _MOST_COLUMNS) // columns
            if not width:
                continue
            for steepness in _STEEPNESS:
                networks = [
                    drawn(unit, self.rows.take(np.flatnonzero(self.fold != f)), width, steepness, self.seed)
                    for f in range(self.used)
                ]
                yield Candidate(unit, width, 0.0, "drawn", steepness, self.rmse(networks))

    def rmse(self, networks: Sequence[Any]) -> float:
        """The error of networks on the rows that each has not seen, one a fold; infinite where it is no number."""
        square = weight = 0.0
        for f, network in enumerate(networks):
            out = self.fold == f
            values = np.clip(predict(network, self.rows.x[out]), *reach(self.rows.y[~out]))
            error = np.square(values - self.rows.y[out]).mean(axis=1)
            square += self.rows.weight[out] @ error
            weight += self.rows.weight[out].sum()
        rmse = float(np.sqrt(square / weight))
        if not np.isfinite(rmse):
            return np.inf
        return rmse


def widths_for(unit: Unit, rows: TableRows) -> list[int]:
    """1, 2, 4, ... up to half as many parameters as values, and to what takes seconds.

    >>> rows = TableRows(np.zeros((200, 2)), np.zeros((200, 1)), np.ones(200))
    >>> widths_for(Unit("silu", 1), rows)
    [1, 2, 4, 8]
    """
    n, inputs, outputs = len(rows), rows.x.shape[1], rows.y.shape[1]
    widths = [1]
    while (
        unit.parameter_count(2 * widths[-1], inputs, outputs) <= n * outputs / 2
        and n * (2 * widths[-1] * (inputs + 1)) ** 2 <= _MOST_WORK
    ):
        widths.append(2 * widths[-1])
    return widths


def choose(
    units: Sequence[Unit],
    rows: TableRows,
    *,
    width: int | None,
    ridge: float | None,
    seed: int,
    device: str,
    show: Callable[[Candidate], None],
) -> tuple[Candidate, list[Candidate]]:
    """The candidate to fit to all rows, and everything that was tried; what is given is not chosen."""
    ridges = RIDGES
    if ridge is not None:
        ridges = (ridge,)
    trial = Trial.of(rows, seed, device)
    if trial is None:
        return Candidate(units[0], width or 1, ridges[-1]), []
    tried: list[Candidate] = []

    def keep(candidate: Candidate) -> None:
        show(candidate)
        tried.append(candidate)

    for unit in units:
        if width is None and ridge in (None, 0.0):
            for candidate in trial.drawn(unit):
                keep(candidate)
        widths = [width] if width else widths_for(unit, trial.rows)
        bests, rival = [], min((c.rmse for c in tried), default=np.inf)
        ridges_left, hopeless_before = list(ridges), set[float]()
        for i, n in enumerate(widths):
            rung = trial.trained(unit, n, ridges_left)
            for candidate in rung:
                keep(candidate)
            bests.append(min(c.rmse for c in rung))
            hopeless = {c.ridge for c in rung if c.rmse > _HOPELESS * bests[-1]}
            ridges_left, hopeless_before = [r for r in ridges_left if r not in hopeless & hopeless_before], hopeless
            if _ended(bests, len(widths) - 1 - i, rival):
                break
    best = min(c.rmse for c in tried)
    equal = [c for c in tried if c.rmse <= _EQUAL * best] or tried
    return min(equal, key=lambda c: (c.gates == "drawn", c.width, -c.ridge)), tried


def _ended(bests: list[float], doublings: int, rival: float) -> bool:
    """Whether wider networks of this unit are not worth a try, given the error of a rival that is there already.

    >>> _ended([0.3, 0.2, 0.2, 0.21], 4, 1.0), _ended([0.3, 0.2, 0.1], 4, 1e-8), _ended([0.3, 0.2, 0.1], 4, 0.1)
    (True, True, False)
    """
    if min(bests) <= ENOUGH or rival <= ENOUGH < _HOPE * bests[-1]:
        return True
    idle = [after * _EQUAL > before for before, after in pairwise(np.minimum.accumulate(bests))]
    if len(idle) > 1 and all(idle[-2:]):
        return True
    # The first widths say little of the trend, and a bad start says less.
    rate = _HOPE
    if len(bests) > 2:
        rate = min(bests[-1] / bests[-2], 0.9)
    return bests[-1] * rate**doublings > rival


def solved(*args: Any, rounds: int, **options: Any) -> tuple[Solution, ...]:
    """`varpro_many`; with so few rows that its algebra for the exchange of neurons breaks down, without exchange."""
    try:
        return varpro_many(*args, rounds=rounds, **options)
    except torch.linalg.LinAlgError:  # pyright: ignore[reportPrivateImportUsage]
        return varpro_many(*args, rounds=0, **options)


def scaled_weights(rows: TableRows) -> Array | None:
    """The rows' weights for the solver, None where all are equal: it is faster without."""
    if (rows.weight == rows.weight[0]).all():
        return None
    return rows.weight
