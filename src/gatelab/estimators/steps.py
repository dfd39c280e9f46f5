"""Networks of step gates: products of gates that are shut or open, for targets with steps and for noise.

    y(x) = d + sum over t of D_t[s_t1(x), ..., s_tp(x)],    s(x) = 1 where x_j > c, else 0

Every neuron has p step gates, each of one column, and a coefficient for each of the 2^p ways in which they can stand:
a product unit of p step gates, written out. A step has no derivative, so nothing here descends. Neurons are inserted
one after the other against the residual, as variable projection inserts its own: gate by gate the column and threshold
that explain most of it. Each sees half of the rows and some of the columns, and brings a tenth of its least-squares
coefficients; growth ends where rows held out no longer gain. Others call this boosting of oblivious trees.

What is explained by a threshold is read off sums by column, bin and leaf, one `bincount` for all thresholds at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gatelab.arrays import Array

# Thresholds of a column are at most this many, at quantiles of its values; bins are one more and fit a byte.
BINS = 128
# Shares of the rows and columns that a neuron sees, the most rows of them, and the share of its coefficients it brings.
_ROWS, _COLUMNS, _MOST_ROWS, _RATE = 0.5, 0.7, 25_000, 0.1
# Rows that count for zero in every coefficient; the most neurons; neurons without a gain after which growth ends.
_HELD, _NEURONS, _PATIENCE = 3.0, 600, 30
# Rows whose values are computed at a time.
_BLOCK = 65_536


@dataclass(frozen=True, eq=False)
class StepNetwork:
    """A network of step gates.

    Attributes:
        columns: the column of each gate, (neurons, gates).
        thresholds: above which it is open, (neurons, gates).
        tables: the coefficients by the number that the gates make, the first of them the highest digit,
            (neurons, 2^gates, outputs).
        offset: the outputs without any neuron.
    """

    columns: NDArray[np.int64]
    thresholds: Array
    tables: Array
    offset: Array

    def values(self, x: Array) -> Array:
        """The outputs at raw inputs, (rows, outputs)."""
        if len(x) > _BLOCK:
            return np.concatenate([self.values(x[i : i + _BLOCK]) for i in range(0, len(x), _BLOCK)])
        by_column = np.ascontiguousarray(x.T)
        total = np.tile(self.offset, (len(x), 1))
        for columns, thresholds, table in zip(self.columns, self.thresholds, self.tables, strict=True):
            total += table[_cells([by_column[j] > c for j, c in zip(columns, thresholds, strict=True)], len(x))]
        return total

    def arrays(self) -> dict[str, Array]:
        """Its arrays by name."""
        return {name: getattr(self, name) for name in ("columns", "thresholds", "tables", "offset")}


@dataclass(frozen=True, eq=False)
class BinnedRows:
    """Rows whose inputs are known by the bins that they fall into.

    Attributes:
        codes: the bin of every value, (rows, columns): how many thresholds of its column lie below it.
        thresholds: of each column, ascending.
        y: the targets (rows, outputs).
        weight: of the rows.
    """

    codes: NDArray[np.uint8]
    thresholds: tuple[Array, ...]
    y: Array
    weight: Array

    @classmethod
    def of(cls, x: Array, y: Array, weight: Array) -> BinnedRows:
        """The rows by bins.

        >>> rows = BinnedRows.of(np.array([[1.0], [2.0], [2.0], [4.0]]), np.zeros((4, 1)), np.ones(4))
        >>> rows.codes[:, 0].tolist(), rows.thresholds[0].tolist()
        ([0, 1, 1, 2], [1.5, 3.0])
        """
        thresholds = tuple(thresholds_of(column) for column in x.T)
        codes = np.empty(x.shape, dtype=np.uint8)
        for j, (column, cuts) in enumerate(zip(x.T, thresholds, strict=True)):
            codes[:, j] = np.searchsorted(cuts, column, side="left")
        return cls(codes, thresholds, y, weight)

    def take(self, index: NDArray[np.intp]) -> BinnedRows:
        """Some of the rows."""
        return BinnedRows(self.codes[index], self.thresholds, self.y[index], self.weight[index])


def thresholds_of(column: Array) -> Array:
    """Midway between neighbouring values: all of them, or those at quantiles."""
    values = np.unique(column)
    if len(values) > BINS:
        levels = np.quantile(column, np.linspace(0, 1, BINS + 1)[1:-1], method="lower")
        first = np.unique(np.searchsorted(values, levels))
        first = first[first < len(values) - 1]
    else:
        first = np.arange(len(values) - 1)
    low, high = values[first], values[first + 1]
    return low + (high - low) / 2


def grown(
    rows: BinnedRows,
    held: NDArray[np.bool_],
    *,
    gates: int,
    seed: int,
    base: Array | None = None,
    over: Callable[[], bool] = lambda: False,
) -> tuple[StepNetwork, Array]:
    """A network that grows on the rows that are not held out, until those held out gain no more.

    >>> x = np.random.default_rng(0).uniform(size=(400, 2))
    >>> y = 1.0 * (x[:, :1] > 0.3) * (x[:, 1:] > 0.6)
    >>> network, _ = grown(BinnedRows.of(x, y, np.ones(400)), np.arange(400) < 80, gates=3, seed=0)
    >>> bool(np.abs(network.values(x) - y).mean() < 0.03)
    True
    """
    generator = np.random.default_rng(seed)
    trained = np.flatnonzero(~held)
    useful = np.flatnonzero([len(cuts) > 0 for cuts in rows.thresholds])
    if base is None:
        offset = rows.weight[trained] @ rows.y[trained] / rows.weight[trained].sum()
        values = np.tile(offset, (len(rows.y), 1))
    else:
        offset, values = np.zeros(rows.y.shape[1]), base.copy()
    best, best_values, count = _error(values, rows, held), values[held], 0
    by_column = np.ascontiguousarray(rows.codes.T)
    sample = min(max(20, int(_ROWS * len(trained))), len(trained), _MOST_ROWS)
    columns_seen = int(np.ceil(_COLUMNS * len(useful)))
    neurons: list[tuple[list[tuple[int, int]], Array]] = []
    while len(neurons) < _NEURONS and len(neurons) - count <= _PATIENCE and len(useful) and not over():
        some = generator.choice(trained, sample, replace=False, shuffle=False)
        columns = np.sort(generator.choice(useful, columns_seen, replace=False))
        neuron, table = _neuron(rows, some, columns, rows.y[some] - values[some], gates)
        values += table[_cells([by_column[j] > b for j, b in neuron], len(values))]
        neurons.append((neuron, table))
        error = _error(values, rows, held)
        if error < best:
            best, best_values, count = error, values[held], len(neurons)
    shape = (count, gates)
    network = StepNetwork(
        np.array([[j for j, _ in neuron] for neuron, _ in neurons[:count]], dtype=np.int64).reshape(shape),
        np.array([[rows.thresholds[j][b] for j, b in neuron] for neuron, _ in neurons[:count]]).reshape(shape),
        np.array([table for _, table in neurons[:count]]).reshape(count, 2**gates, rows.y.shape[1]),
        offset,
    )
    return network, best_values


def _neuron(
    rows: BinnedRows, some: NDArray[np.intp], columns: NDArray[np.intp], residual: Array, gates: int
) -> tuple[list[tuple[int, int]], Array]:
    """The gates, as (column, bin), that explain most of the residual at some rows, one after the other; its table."""
    weight = rows.weight[some]
    sums = np.concatenate([weight[:, None], weight[:, None] * residual], axis=1)
    codes = rows.codes[np.ix_(some, columns)].astype(np.intp) + BINS * np.arange(len(columns))
    cell, neuron = np.zeros(len(some), dtype=np.intp), []
    by_cell = _sums(codes, sums, cell, 1)
    for gate in range(gates):
        # Weights and weighted residuals below each threshold and above, (1 + outputs, cells, columns, bins).
        below = by_cell.cumsum(axis=3)
        above = below[..., -1:] - below
        gain = sum((np.square(side[1:]).sum(axis=0) / (side[0] + _HELD)).sum(axis=0) for side in (below, above))
        best, b = np.unravel_index(np.argmax(gain), below.shape[2:])
        j = int(columns[best])
        # The last bin of a column has all rows below it, which explains what no gate explains: any threshold does.
        neuron.append((j, min(int(b), len(rows.thresholds[j]) - 1)))
        opened = rows.codes[some, j] > neuron[-1][1]
        if gate < gates - 1:
            # The sums of the smaller side are made, those of the other are what is left.
            smaller = opened == (2 * np.count_nonzero(opened) <= len(opened))
            part = _sums(codes[smaller], sums[smaller], cell[smaller], 2**gate)
            sides = [by_cell - part, part]
            if smaller.any() and not opened[smaller][0]:
                sides.reverse()
            by_cell = np.stack(sides, axis=2).reshape(part.shape[0], -1, *part.shape[2:])
        cell = 2 * cell + opened
    total = np.stack([np.bincount(cell, part, minlength=2**gates) for part in sums.T])
    return neuron, _RATE * (total[1:] / (total[0] + _HELD)).T


def _sums(codes: NDArray[np.intp], sums: Array, cell: NDArray[np.intp], cells: int) -> Array:
    """The sums of rows by cell, column and bin, (sums, cells, columns, bins)."""
    columns = codes.shape[1]
    index = (codes + (cell * (columns * BINS))[:, None]).ravel()
    parts = [np.bincount(index, np.repeat(part, columns), minlength=cells * columns * BINS) for part in sums.T]
    return np.asarray(parts, dtype=np.float64).reshape(-1, cells, columns, BINS)


def _cells(open_gates: list[NDArray[np.bool_]], rows: int) -> NDArray[np.intp]:
    """The number that the gates make, for every row."""
    cell = np.zeros(rows, dtype=np.intp)
    for gate in open_gates:
        cell *= 2
        cell += gate
    return cell


def _error(values: Array, rows: BinnedRows, held: NDArray[np.bool_]) -> float:
    return float(rows.weight[held] @ np.square(values[held] - rows.y[held]).sum(axis=1))
