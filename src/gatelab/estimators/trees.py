"""Trees of step gates for classes: boosted on the log-likelihood, or averaged.

A gate is shut or open, 1 where x_j > c, and which gate comes next depends on how it stands: a leaf is the product of
the gates on the way to it, and has a coefficient for each output. Networks of them come in two kinds.

- Boosted, and deeply boosted with more gates to a leaf: outputs are logits. Each tree follows the slope of the
  log-likelihood at the trees before it, and every leaf makes a tenth of a step of Newton. Half of the rows and some of
  the columns of each gate are seen. The networks of all folds grow side by side, and all end where the rows held out
  from them are most likely together: an end of their own would flatter each, by far where rows are few.
- Averaged: outputs are probabilities. Each tree is grown to the end on rows drawn with replacement, and its leaves have
  the shares of their classes. Others call this a random forest; of few noisy rows little is better.

Two classes have one logit, that of the second against the first. Trees see the numbers of bins alone, by scikit-learn's
search for splits, and their gates are then written down as thresholds of the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.tree import DecisionTreeRegressor

from gatelab.arrays import Array
from gatelab.estimators.frames import TableRows
from gatelab.estimators.steps import BinnedRows
from gatelab.interrupts import stop_if_asked

# Gates to a leaf of boosted trees, by kind; all kinds.
DEPTHS = {"boosted": 4, "deeply boosted": 6}
KINDS = (*DEPTHS, "averaged")
# Of boosted trees: shares of rows and of columns of a gate, the share of a step of Newton, the
# curvature that counts for zero in every leaf, the most trees, and trees after which growth ends unless they lower the
# error by more than this share of it.
_ROWS, _COLUMNS, _RATE, _HELD = 0.5, 0.7, 0.1, 1.0
_TREES, _PATIENCE, _GAIN = 400, 20, 0.003
# Of averaged trees: how many a network has where nothing is said; rows that count as the shares of all rows in every
# leaf.
_AVERAGED, _PRIOR = 50, 0.2
# The most rows that a tree sees, and the most leaves that these may be parted into.
_MOST_ROWS, _LEAVES = 25_000, 1000
# Curvature below it counts as this.
_FLAT = 1e-6
# Rows times trees whose values are computed at a time.
_BLOCK = 2**20


@dataclass(frozen=True, eq=False)
class StepTrees:
    """A network of trees of step gates.

    Attributes:
        roots: the first node of every tree.
        columns: whose gate each node has, (nodes,).
        thresholds: above which it is open, (nodes,).
        children: the next node where it is shut and where it is open, (nodes, 2); a leaf is its own.
        tables: the coefficients of leaves, (nodes, outputs).
        offset: the outputs without any tree, (outputs,).
    """

    roots: NDArray[np.int64]
    columns: NDArray[np.int64]
    thresholds: Array
    children: NDArray[np.int64]
    tables: Array
    offset: Array

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

    def arrays(self) -> dict[str, Array]:
        """Its arrays by name."""
        names = ("roots", "columns", "thresholds", "children", "tables", "offset")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class GrownTree:
    """A tree on numbers of bins: its nodes as scikit-learn has them, and the coefficients of its leaves."""

    columns: NDArray[np.int64]
    bins: NDArray[np.int64]
    children: NDArray[np.int64]
    tables: Array


def joined(trees: Sequence[GrownTree], thresholds: Sequence[Array], offset: Array) -> StepTrees:
    """The network of some trees, with the thresholds of their columns in place of bins."""
    sizes = np.array([len(tree.columns) for tree in trees], dtype=np.int64)
    roots = np.cumsum(sizes) - sizes
    no_nodes = np.zeros(0, dtype=np.int64)
    none = GrownTree(no_nodes, no_nodes, no_nodes.reshape(0, 2), np.zeros((0, len(offset))))
    columns, bins, tables = (
        np.concatenate([getattr(t, name) for t in (none, *trees)]) for name in ("columns", "bins", "tables")
    )
    children = np.concatenate([none.children, *(t.children + root for t, root in zip(trees, roots, strict=True))])
    inner = children[:, 0] != np.arange(len(children))
    cuts = np.zeros(len(columns))
    cuts[inner] = [thresholds[j][b] for j, b in zip(columns[inner], bins[inner], strict=True)]
    return StepTrees(roots, columns, cuts, children, tables, offset)


def log_probability(kind: str, values: Array) -> Array:
    """log p (rows, classes) of the outputs of a network.

    >>> log_probability("boosted", np.zeros((1, 1))).round(3).tolist()
    [[-0.693, -0.693]]
    """
    if kind == "averaged":
        return np.log(values)
    if values.shape[1] == 1:
        values = np.concatenate([np.zeros_like(values), values], axis=1)
    shifted = values - values.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def slopes(logits: Array, y: Array) -> tuple[Array, Array]:
    """How steeply -log p falls with each logit, and its curvature, (rows, logits) each.

    The curvature is the diagonal of the Fisher information.
    """
    p = np.exp(log_probability("boosted", logits))[:, -logits.shape[1] :]
    return y[:, -logits.shape[1] :] - p, p * (1 - p)


class TreeGrower:
    """Rows by bins, on which networks of trees grow.

    Args:
        rows: raw inputs, targets of zeros and a one for the class, weights.
        seed: of the rows and columns that trees see.
        over: whether time is up; growth then ends.
    """

    def __init__(self, rows: TableRows, seed: int, over: Callable[[], bool]) -> None:
        binned = BinnedRows.of(rows.x, rows.y, rows.weight)
        self.thresholds, self.y, self.weight = binned.thresholds, rows.y, rows.weight
        self.codes = np.ascontiguousarray(binned.codes, dtype=np.float32)
        self.seed, self.over = seed, over

    def grown(
        self, kind: str, held: Sequence[NDArray[np.bool_]], number: int | None = None, first: int = 0
    ) -> tuple[tuple[StepTrees, ...], list[Array]]:
        """Networks side by side."""
        seeds = [self.seed + 1 + first + i for i in range(len(held))]
        if kind == "averaged":
            pairs = [self.averaged(h, number, s) for h, s in zip(held, seeds, strict=True)]
        else:
            pairs = self.boosted(held, number, seeds, DEPTHS[kind])
        return tuple(network for network, _ in pairs), [log_probability(kind, values) for _, values in pairs]

    def averaged(self, held: NDArray[np.bool_], number: int | None, seed: int) -> tuple[StepTrees, Array]:
        """A network of averaged trees, and its probabilities at the rows held out."""
        generator = np.random.default_rng(seed)
        trained = np.flatnonzero(~held)
        share = self.weight[trained] @ self.y[trained] + 0.5
        share = share / share.sum()
        if number is None:
            number = _AVERAGED
        sample = min(len(trained), _MOST_ROWS)
        total = np.zeros((np.count_nonzero(held), len(share)))
        trees: list[GrownTree] = []
        while len(trees) < number and not (trees and self.over()):
            times = np.bincount(generator.choice(trained, sample), minlength=len(held))
            some = np.flatnonzero(times)
            weight = self.weight[some] * times[some]
            tree, leaf = self.tree(some, self.y[some], weight, generator, max_features="sqrt")
            own = leaf[some]
            sums = leaf_sums(own, weight[:, None] * self.y[some], len(tree.columns)) + _PRIOR * share
            tables = sums / sums.sum(axis=1, keepdims=True)
            total += tables[leaf[held]]
            trees.append(GrownTree(tree.columns, tree.bins, tree.children, tables))
        trees = [GrownTree(t.columns, t.bins, t.children, t.tables / len(trees)) for t in trees]
        return joined(trees, self.thresholds, np.zeros(len(share))), total / len(trees)

    def boosted(
        self, held: Sequence[NDArray[np.bool_]], number: int | None, seeds: Sequence[int], depth: int
    ) -> list[tuple[StepTrees, Array]]:
        """Networks of boosted trees, all of one number, and their logits at the rows held out."""
        most = _TREES if number is None else number
        generators = [np.random.default_rng(seed) for seed in seeds]
        offsets = [self.offset(~h) for h in held]
        values = [np.tile(offset, (len(self.y), 1)) for offset in offsets]
        trees: list[list[GrownTree]] = [[] for _ in held]
        best, count = self.error(values, held), 0
        mark, marked = best, 0
        outside = [v[h] for v, h in zip(values, held, strict=True)]
        for grown in range(1, most + 1):
            if self.over() or (number is None and grown - 1 - marked >= _PATIENCE):
                break
            for generator, network, v, h in zip(generators, trees, values, held, strict=True):
                network.append(self.boost(generator, v, np.flatnonzero(~h), depth))
            error = self.error(values, held)
            if error < (1 - _GAIN) * mark:
                mark, marked = error, grown
            if error < best or number is not None:
                best, count = error, grown
                outside = [v[h] for v, h in zip(values, held, strict=True)]
        networks = [joined(t[:count], self.thresholds, o) for t, o in zip(trees, offsets, strict=True)]
        return list(zip(networks, outside, strict=True))

    def boost(self, generator: np.random.Generator, logits: Array, trained: NDArray[np.intp], depth: int) -> GrownTree:
        """One more tree for logits of all rows, which it is added to."""
        sample = min(max(20, int(_ROWS * len(trained))), len(trained), _MOST_ROWS)
        some = np.sort(generator.choice(trained, sample, replace=False, shuffle=False))
        slope, curvature = slopes(logits[some], self.y[some])
        weight = self.weight[some]
        # Where gates are is by squares of the steps that rows would make on their own, weighed by their curvature.
        steepness = np.maximum(curvature.mean(axis=1), _FLAT)
        tree, leaf = self.tree(
            some, slope / steepness[:, None], weight * steepness, generator, max_features=_COLUMNS, max_depth=depth
        )
        tables = newton_steps(leaf[some], weight[:, None] * slope, weight[:, None] * curvature, len(tree.columns))
        logits += tables[leaf]
        return GrownTree(tree.columns, tree.bins, tree.children, tables)

    def tree(
        self, some: NDArray[np.intp], y: Array, weight: Array, generator: np.random.Generator, **options: object
    ) -> tuple[GrownTree, NDArray[np.intp]]:
        """A tree on some of the rows, without coefficients, and the leaf of every row."""
        stop_if_asked()
        with config_context(skip_parameter_validation=True):
            model = DecisionTreeRegressor(
                random_state=int(generator.integers(2**31)),
                min_samples_leaf=max(1, len(some) // _LEAVES),
                **options,  # pyright: ignore[reportArgumentType]
            )
            model.fit(self.codes[some], np.ascontiguousarray(y), sample_weight=weight, check_input=False)
        nodes = model.tree_
        children = np.stack([nodes.children_left, nodes.children_right], axis=1)
        leaf = children[:, 0] < 0
        children[leaf] = np.flatnonzero(leaf)[:, None]
        columns = np.where(leaf, 0, nodes.feature)
        bins = np.where(leaf, 0.0, nodes.threshold).astype(np.int64)
        tree = GrownTree(columns, bins, children, np.zeros((len(leaf), 0)))
        return tree, nodes.apply(self.codes)

    def offset(self, trained: NDArray[np.bool_]) -> Array:
        """The logits of the shares of the classes; half a row more of each, for one that is not there is possible."""
        share = np.log(self.weight[trained] @ self.y[trained] + 0.5)
        if len(share) == 2:
            return share[1:] - share[:1]
        return share - share.mean()

    def error(self, values: Sequence[Array], held: Sequence[NDArray[np.bool_]]) -> float:
        """The weighted sum of -log p of the rows held out, of each network's at its logits."""
        return -sum(
            float(self.weight[h] @ (self.y[h] * log_probability("boosted", v[h])).sum(axis=1))
            for v, h in zip(values, held, strict=True)
        )


def newton_steps(leaf: NDArray[np.intp], slope: Array, curvature: Array, nodes: int) -> Array:
    """A tenth of the step of Newton in every leaf (nodes, logits): slopes over curvature, with some that is held."""
    return _RATE * leaf_sums(leaf, slope, nodes) / (leaf_sums(leaf, curvature, nodes) + _HELD)


def leaf_sums(leaf: NDArray[np.intp], values: Array, nodes: int) -> Array:
    """The sums of values (rows, k) by leaf, (nodes, k)."""
    return np.stack([np.bincount(leaf, column, minlength=nodes) for column in values.T], axis=1).astype(np.float64)
