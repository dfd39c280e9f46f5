"""Trees of step gates, boosted on a loss or averaged, for steps and noise in targets and classes.

A gate is 1 if x_j > c and 0 otherwise; a leaf is the product of the gates on its path. In trees for squares all nodes
of a level have the same gate, so that values are looked up in a table; for classes this was less accurate, and for
squares the other kind was (7 % on mpg). Every leaf of a boosted tree makes a tenth of a Newton step, and the networks
of several folds grow side by side and end together, where the loss on all held-out rows is smallest: a separate end for
each fold would be biased on few rows. Averaged trees are a random forest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.tree import DecisionTreeRegressor

from gatelab.arrays import Array
from gatelab.interrupts import stop_if_asked

# The largest number of thresholds of a column, at quantiles of its values; numbers of bins fit into a byte.
BINS = 128
# Gates per leaf of boosted trees for classes, by kind; all kinds.
DEPTHS = {"boosted": 4, "deeply boosted": 6}
KINDS = (*DEPTHS, "averaged")
# Boosted trees: the shares of rows per tree and of columns per gate, and the share of a Newton step.
_ROWS, _COLUMNS, _RATE = 0.5, 0.7, 0.1
# Averaged trees: the default number per network, and the prior rows per leaf, of the overall class frequencies.
_AVERAGED, _PRIOR = 50, 0.2
# The largest numbers of rows and of leaves of a tree.
_MOST_ROWS, _LEAVES = 25_000, 1000
# The smallest curvature.
_FLAT = 1e-6
# Rows times trees whose values are computed at a time.
_BLOCK = 2**20


@dataclass(frozen=True, eq=False)
class StepTrees:
    """Trees by their nodes, of which a leaf is its own child; values are probabilities if `averaged`, else logits."""

    roots: NDArray[np.int64]
    columns: NDArray[np.int64]
    thresholds: Array
    children: NDArray[np.int64]
    tables: Array
    offset: Array
    averaged: bool = False

    def __len__(self) -> int:
        return len(self.roots)

    def values(self, x: Array) -> Array:
        """The outputs at raw inputs, (rows, outputs)."""
        most = max(1, _BLOCK // max(1, len(self.roots)))
        if len(x) > most:
            return np.concatenate([self.values(x[i : i + most]) for i in range(0, len(x), most)])
        node = np.tile(self.roots, (len(x), 1))
        rows = np.arange(len(x))[:, None]
        while True:
            opened = x[rows, self.columns[node]] > self.thresholds[node]
            following = self.children[node, opened.astype(np.intp)]
            if np.array_equal(following, node):
                return self.offset + self.tables[node].sum(axis=1)
            node = following

    def log_probability(self, x: Array) -> Array:
        values = self.values(x)
        return np.log(values) if self.averaged else class_log_probability(values)

    @classmethod
    def of(cls, trees: Sequence[Tree], rows: BinnedRows, offset: Array) -> StepTrees:
        sizes = np.array([len(tree.columns) for tree in trees], dtype=np.int64)
        roots = np.cumsum(sizes) - sizes
        if not len(trees):
            return cls(roots, roots, np.zeros(0), roots.reshape(0, 2), np.zeros((0, len(offset))), offset)
        columns, bins, tables = (np.concatenate([getattr(t, n) for t in trees]) for n in ("columns", "bins", "tables"))
        children = np.concatenate([tree.children + root for tree, root in zip(trees, roots, strict=True)])
        inner = children[:, 0] != np.arange(len(children))
        cuts = np.zeros(len(columns))
        cuts[inner] = [rows.thresholds[j][b] for j, b in zip(columns[inner], bins[inner], strict=True)]
        return cls(roots, columns, cuts, children, tables, offset)


@dataclass(frozen=True, eq=False)
class StepNetwork:
    """Trees with one gate per level (trees, gates), and tables indexed by the gates as binary digits."""

    columns: NDArray[np.int64]
    thresholds: Array
    tables: Array
    offset: Array

    def __len__(self) -> int:
        return len(self.columns)

    def values(self, x: Array) -> Array:
        """The outputs at raw inputs, (rows, outputs)."""
        by_column = np.ascontiguousarray(x.T)
        total = np.tile(self.offset, (len(x), 1))
        for columns, thresholds, table in zip(self.columns, self.thresholds, self.tables, strict=True):
            total += table[_cells(by_column, columns.tolist(), thresholds.tolist())]
        return total

    @classmethod
    def of(cls, trees: Sequence[Tree], rows: BinnedRows, offset: Array, gates: int) -> StepNetwork:
        shape = (len(trees), gates)
        columns = np.array([tree.columns for tree in trees], dtype=np.int64).reshape(shape)
        bins = np.array([tree.bins for tree in trees], dtype=np.int64).reshape(shape)
        cuts = np.array([rows.thresholds[j][b] for j, b in zip(columns.flat, bins.flat, strict=True)]).reshape(shape)
        tables = np.array([tree.tables for tree in trees]).reshape(len(trees), 2**gates, len(offset))
        return cls(columns, cuts, tables, offset)


def _cells(by_column: NDArray[Any], columns: Sequence[int], thresholds: Sequence[float]) -> NDArray[np.intp]:
    cell = np.zeros(by_column.shape[1], dtype=np.intp)
    for j, c in zip(columns, thresholds, strict=True):
        cell *= 2
        cell += by_column[j] > c
    return cell


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree on numbers of bins: its nodes, or its gates by level, and the coefficients of its leaves."""

    columns: NDArray[np.int64]
    bins: NDArray[np.int64]
    tables: Array
    children: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class BinnedRows:
    """Rows as numbers of bins: the number of thresholds of the column below each value."""

    codes: NDArray[np.uint8]
    thresholds: tuple[Array, ...]
    y: Array
    weight: Array

    @classmethod
    def of(cls, x: Array, y: Array, weight: Array) -> BinnedRows:
        """
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
        return BinnedRows(self.codes[index], self.thresholds, self.y[index], self.weight[index])

    @cached_property
    def by_column(self) -> NDArray[np.uint8]:
        return np.ascontiguousarray(self.codes.T)

    @cached_property
    def for_trees(self) -> NDArray[np.float32]:
        return np.ascontiguousarray(self.codes, dtype=np.float32)

    def tree(
        self, some: NDArray[np.intp], y: Array, weight: Array, generator: np.random.Generator, **options: object
    ) -> tuple[Tree, NDArray[np.intp]]:
        """A scikit-learn tree on some of the rows, without coefficients, and the leaf of every row."""
        with config_context(skip_parameter_validation=True):
            model = DecisionTreeRegressor(
                random_state=int(generator.integers(2**31)),
                min_samples_leaf=max(1, len(some) // _LEAVES),
                **options,  # pyright: ignore[reportArgumentType]
            )
            model.fit(self.for_trees[some], np.ascontiguousarray(y), sample_weight=weight, check_input=False)
        nodes = model.tree_
        children = np.stack([nodes.children_left, nodes.children_right], axis=1)
        leaf = children[:, 0] < 0
        children[leaf] = np.flatnonzero(leaf)[:, None]
        bins = np.where(leaf, 0.0, nodes.threshold).astype(np.int64)
        tree = Tree(np.where(leaf, 0, nodes.feature), bins, np.zeros((len(leaf), 0)), children)
        return tree, nodes.apply(self.for_trees)

    def level_tree(
        self, some: NDArray[np.intp], y: Array, weight: Array, generator: np.random.Generator, held: float, gates: int
    ) -> tuple[Tree, NDArray[np.intp]]:
        """A tree with one gate per level, the one that explains y best at some rows, by sums over bins and leaves."""
        useful = np.flatnonzero([len(cuts) > 0 for cuts in self.thresholds])
        columns = np.sort(generator.choice(useful, int(np.ceil(_COLUMNS * len(useful))), replace=False))
        sums = np.concatenate([weight[:, None], weight[:, None] * y], axis=1)
        codes = self.codes[np.ix_(some, columns)].astype(np.intp) + BINS * np.arange(len(columns))
        cell, chosen, bins = np.zeros(len(some), dtype=np.intp), [], []
        by_cell = _sums(codes, sums, cell, 1)
        for gate in range(gates):
            # Weights and weighted values below each threshold and above, (1 + outputs, cells, columns, bins).
            below = by_cell.cumsum(axis=3)
            above = below[..., -1:] - below
            gain = sum((np.square(side[1:]).sum(axis=0) / (side[0] + held)).sum(axis=0) for side in (below, above))
            best, b = np.unravel_index(np.argmax(gain), below.shape[2:])
            j = int(columns[best])
            # The last bin of a column has all rows below it, as without a gate: any threshold is as good.
            chosen.append(j)
            bins.append(min(int(b), len(self.thresholds[j]) - 1))
            opened = self.codes[some, j] > bins[-1]
            if gate < gates - 1:
                # Sums are computed for the smaller side; the others are the remainder.
                smaller = opened == (2 * np.count_nonzero(opened) <= len(opened))
                part = _sums(codes[smaller], sums[smaller], cell[smaller], 2**gate)
                sides = [by_cell - part, part]
                if smaller.any() and not opened[smaller][0]:
                    sides.reverse()
                by_cell = np.stack(sides, axis=2).reshape(part.shape[0], -1, *part.shape[2:])
            cell = 2 * cell + opened
        return Tree(np.array(chosen), np.array(bins), np.zeros((2**gates, 0))), _cells(self.by_column, chosen, bins)


def thresholds_of(column: Array) -> Array:
    """The midpoints between neighboring values: all of them, or those at quantiles."""
    values = np.unique(column)
    first = np.arange(len(values) - 1)
    if len(values) > BINS:
        levels = np.quantile(column, np.linspace(0, 1, BINS + 1)[1:-1], method="lower")
        first = np.unique(np.searchsorted(values, levels))
        first = first[first < len(values) - 1]
    low, high = values[first], values[first + 1]
    return low + (high - low) / 2


def _sums(codes: NDArray[np.intp], sums: Array, cell: NDArray[np.intp], cells: int) -> Array:
    """The sums of rows by cell, column and bin, (sums, cells, columns, bins)."""
    columns = codes.shape[1]
    index = (codes + (cell * (columns * BINS))[:, None]).ravel()
    parts = [np.bincount(index, np.repeat(part, columns), minlength=cells * columns * BINS) for part in sums.T]
    return np.asarray(parts, dtype=np.float64).reshape(-1, cells, columns, BINS)


def leaf_sums(leaf: NDArray[np.intp], values: Array, leaves: int) -> Array:
    """The sums of values (rows, k) by leaf, (leaves, k)."""
    return np.stack([np.bincount(leaf, column, minlength=leaves) for column in values.T], axis=1).astype(np.float64)


def class_log_probability(logits: Array) -> Array:
    """log p (rows, classes) of c logits; a single logit is that of the second class relative to the first."""
    if logits.shape[1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
    shifted = logits - logits.max(axis=1, keepdims=True)  # scipy's log_softmax takes several times as long for few rows
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


class Squares:
    """Squared errors, by trees with one gate per level.

    `held` is the ridge on the value of a leaf; growth ends after `patience` trees that do not lower the error by more
    than the share `gain`.
    """

    held, most, patience, gain = 3.0, 600, 31, 0.0

    def slopes(self, values: Array, y: Array) -> tuple[Array, Array]:
        return y - values, np.ones_like(y)

    def error(self, values: Array, y: Array) -> Array:
        return np.square(values - y).sum(axis=1)

    def offset(self, y: Array, weight: Array) -> Array:
        return weight @ y / weight.sum()

    def tree(self, rows: BinnedRows, some: Any, y: Array, weight: Array, generator: Any, depth: int) -> Any:
        return rows.level_tree(some, y, weight, generator, self.held, depth)

    def network(self, trees: Sequence[Tree], rows: BinnedRows, offset: Array, depth: int) -> Any:
        return StepNetwork.of(trees, rows, offset, depth)


class Deviance(Squares):
    """-log p of classes, whose curvature is the diagonal of the Fisher information, by scikit-learn's trees."""

    held, most, patience, gain = 1.0, 400, 20, 0.003

    def slopes(self, values: Array, y: Array) -> tuple[Array, Array]:
        p = np.exp(class_log_probability(values))[:, -values.shape[1] :]
        return y[:, -values.shape[1] :] - p, p * (1 - p)

    def error(self, values: Array, y: Array) -> Array:
        return -(y * class_log_probability(values)).sum(axis=1)

    def offset(self, y: Array, weight: Array) -> Array:
        # Half a row of each class is added: a class may be absent.
        share = np.log(weight @ y + 0.5)
        return share[1:] - share[:1] if len(share) == 2 else share - share.mean()

    def tree(self, rows: BinnedRows, some: Any, y: Array, weight: Array, generator: Any, depth: int) -> Any:
        return rows.tree(some, y, weight, generator, max_features=_COLUMNS, max_depth=depth)

    def network(self, trees: Sequence[Tree], rows: BinnedRows, offset: Array, depth: int) -> Any:
        return StepTrees.of(trees, rows, offset)


def boosted_trees(
    rows: BinnedRows,
    loss: Squares,
    held: Sequence[NDArray[np.bool_]],
    seeds: Sequence[int],
    depth: int,
    *,
    number: int | None = None,
    base: Array | None = None,
    over: Callable[[], bool] = lambda: False,
) -> list[tuple[Any, Array]]:
    """Networks with equal numbers of trees, on top of a base, and their outputs on the held-out rows of each."""

    def error() -> float:
        pairs = zip(values, held, strict=True)
        return sum(float(rows.weight[h] @ loss.error(v[h], rows.y[h])) for v, h in pairs)

    generators = [np.random.default_rng(seed) for seed in seeds]
    if base is None:
        offsets = [loss.offset(rows.y[~h], rows.weight[~h]) for h in held]
        values = [np.tile(offset, (len(rows.y), 1)) for offset in offsets]
    else:
        offsets, values = [np.zeros(base.shape[1]) for _ in held], [base.copy() for _ in held]
    trees: list[list[Tree]] = [[] for _ in held]
    best = mark = error()
    count = marked = 0
    outside = [v[h] for v, h in zip(values, held, strict=True)]
    splits = any(len(cuts) for cuts in rows.thresholds)
    for grown in range(1, (loss.most if number is None else number) + 1):
        if over() or not splits or (number is None and grown - 1 - marked >= loss.patience):
            break
        for generator, network, v, h in zip(generators, trees, values, held, strict=True):
            network.append(boost(rows, loss, generator, v, np.flatnonzero(~h), depth))
        now = error()
        if now < (1 - loss.gain) * mark:
            mark, marked = now, grown
        if now < best or number is not None:
            best, count = now, grown
            outside = [v[h] for v, h in zip(values, held, strict=True)]
    networks = [loss.network(t[:count], rows, offset, depth) for t, offset in zip(trees, offsets, strict=True)]
    return list(zip(networks, outside, strict=True))


def boost(
    rows: BinnedRows, loss: Squares, generator: Any, values: Array, trained: NDArray[np.intp], depth: int
) -> Tree:
    """The next tree; adds its values to the outputs of all rows."""
    stop_if_asked()
    sample = min(max(20, int(_ROWS * len(trained))), len(trained), _MOST_ROWS)
    some = np.sort(generator.choice(trained, sample, replace=False, shuffle=False))
    slope, curvature = loss.slopes(values[some], rows.y[some])
    weight = rows.weight[some]
    # Gates are chosen by the squares of the rows' own Newton steps, weighted by curvature.
    steepness = np.maximum(curvature.mean(axis=1), _FLAT)
    tree, leaf = loss.tree(rows, some, slope / steepness[:, None], weight * steepness, generator, depth)
    leaves = len(tree.tables)
    rise, bend = (leaf_sums(leaf[some], weight[:, None] * part, leaves) for part in (slope, curvature))
    tables = _RATE * rise / (bend + loss.held)
    values += tables[leaf]
    return replace(tree, tables=tables)


def averaged_trees(
    rows: BinnedRows, held: NDArray[np.bool_], seed: int, number: int | None, over: Callable[[], bool]
) -> StepTrees:
    generator = np.random.default_rng(seed)
    trained = np.flatnonzero(~held)
    share = rows.weight[trained] @ rows.y[trained] + 0.5
    share = share / share.sum()
    trees: list[Tree] = []
    while len(trees) < (number or _AVERAGED) and not (trees and over()):
        stop_if_asked()
        times = np.bincount(generator.choice(trained, min(len(trained), _MOST_ROWS)), minlength=len(held))
        some = np.flatnonzero(times)
        weight = rows.weight[some] * times[some]
        tree, leaf = rows.tree(some, rows.y[some], weight, generator, max_features="sqrt")
        sums = leaf_sums(leaf[some], weight[:, None] * rows.y[some], len(tree.columns)) + _PRIOR * share
        trees.append(replace(tree, tables=sums / sums.sum(axis=1, keepdims=True)))
    trees = [replace(tree, tables=tree.tables / len(trees)) for tree in trees]
    return replace(StepTrees.of(trees, rows, np.zeros(len(share))), averaged=True)
