"""Encoding of the columns of a table as numbers: missing values are imputed, categories are one-hot or target-encoded.

More than `MOST_LEVELS` levels become the mean target of each given the other columns and, if the slopes of levels in a
number differ, the line of each level. scikit-learn's TargetEncoder does not adjust for other columns (without that the
RMSE on dietox is 1.46 times as large, by the record in results/tables), and has neither lines (1.19 times) nor integers
that are names, such as of persons in a panel (1.8 % of the log loss on mroz). Means and slopes of training rows are
computed without the row's own fold. If most values are unique, levels with one row are left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from gatelab.arrays import Array
from gatelab.display import Compact, counted
from gatelab.estimators.levels import CHANCE, LevelTerm, chosen_slopes, level_effects, neighbor_similarity
from gatelab.estimators.reading import NUMBERS, as_levels, as_numbers, form_of, named, positions, rows_of
from gatelab.plain import from_plain

MOST_LEVELS = 12
# The mean number of rows per name: fewer give no estimate, and with more the number alone is nearly as good.
FEWEST_ROWS, MOST_ROWS = 2, 50


@dataclass(frozen=True)
class LevelSlopes:
    """The slopes of levels in a number: each level adds slope (number - center), unknown ones zero.

    Shrinkage equals `drawn` rows of slope zero. Saved files have these names.
    """

    number: int
    centres: tuple[float, ...]
    slopes: tuple[tuple[float, ...], ...]
    drawn: float


@dataclass(frozen=True)
class TableColumn(Compact):
    """The encoding of one column of the table."""

    name: str  # or the number if there are no names
    kind: Literal["number", "levels", "means"]
    median: float = 0.0  # for a number: the imputed value
    marked: bool = False  # for a number: whether an indicator column marks missing values
    levels: tuple[str, ...] = ()  # for a category, or for a number that is a name: the levels, as text
    means: tuple[tuple[float, ...], ...] = ()  # for many levels: the mean targets of each, and last those of all rows
    slopes: tuple[LevelSlopes, ...] = ()  # for many levels: the slopes in numbers where they differ
    form: str = NUMBERS  # for a number: how values are read, one of `NUMBERS`, `DURATIONS` and formats of dates
    single: int = 0  # for a category: the number of levels that are left out because they have one row each

    @property
    def averaged(self) -> bool:
        return bool(self.levels) and self.kind != "levels"

    @property
    def width(self) -> int:
        means = (len(self.means[0]) if self.means else 0) * (1 + bool(self.slopes))
        return {"number": 1 + self.marked, "levels": len(self.levels), "means": 0}[self.kind] + means

    def encode(self, values: Any, numbers: Mapping[int, Array]) -> Array:
        """The column of a table to predict, (rows, width); `numbers` has the columns of its slopes."""
        parts = [self.without_means(values)]
        if self.averaged:
            index = self.positions(values)
            means = np.asarray(self.means)[index]
            parts.append(means)
            for s in self.slopes:
                away = numbers[s.number] - np.asarray(s.centres)[index]
                means = means + np.asarray(s.slopes)[index] * away[:, None]
            if self.slopes:
                parts.append(means)
        return np.concatenate(parts, axis=1)

    def without_means(self, values: Any) -> Array:
        """The encoding without target means: a number with its indicator, one-hot levels, or no column."""
        if self.kind == "number":
            number = as_numbers(values, self.name, self.form)
            missing = np.isnan(number)
            return np.stack([np.where(missing, self.median, number), missing], axis=1)[:, : 1 + self.marked]
        if self.kind == "levels":
            return (self.positions(values)[:, None] == np.arange(len(self.levels))).astype(np.float64)
        return np.empty((len(values), 0))

    def texts(self, values: Any) -> NDArray[np.object_]:
        return as_levels(as_numbers(values, self.name, self.form) if self.kind == "number" else values)

    def positions(self, values: Any) -> NDArray[np.intp]:
        return positions(self.texts(values), self.levels)


@dataclass(frozen=True)
class TableColumns(Compact):
    """All columns of a table."""

    columns: tuple[TableColumn, ...]

    @classmethod
    def of(cls, table: Any, y: Array, weight: Array) -> TableColumns:
        """The encoding of a table, a data frame or an array, for targets y (rows, outputs).

        >>> import pandas as pd
        >>> table = pd.DataFrame({"size": [1.0, None, 3.0, 4.0], "kind": ["a", "b", "a", None]})
        >>> columns = TableColumns.of(table, np.arange(4.0)[:, None], np.ones(4))
        >>> [column.kind for column in columns.columns], columns.columns[0].marked, len(columns.columns[1].levels)
        (['number', 'levels'], True, 3)
        >>> columns.encode(pd.DataFrame({"size": [2.0], "kind": ["c"]})).tolist()
        [[2.0, 0.0, 0.0, 0.0, 0.0]]
        """
        columns = cls(tuple(column_of(name, values) for name, values in named(table))).with_names(table, y, weight)
        if columns.averaged:
            return columns.averages(table, y, weight, choose=True)
        return columns

    @property
    def width(self) -> int:
        return sum(column.width for column in self.columns)

    @property
    def averaged(self) -> bool:
        return any(column.averaged for column in self.columns)

    def pairs(self, table: Any) -> list[tuple[TableColumn, Any]]:
        return [(column, part) for column, (_, part) in zip(self.columns, named(table), strict=True)]

    def encode(self, table: Any) -> Array:
        """The rows of a table to predict, as numbers (rows, width)."""
        pairs = self.pairs(table)
        sloped = {slope.number for column in self.columns for slope in column.slopes}
        numbers = {i: pairs[i][0].without_means(pairs[i][1])[:, 0] for i in sloped}
        return np.concatenate([column.encode(part, numbers) for column, part in pairs], axis=1)

    def training(self, table: Any, y: Array, weight: Array, fold: NDArray[np.intp]) -> Array:
        """The training rows as numbers; means and slopes of a row's level are computed without the rows of its fold."""
        encoded = np.empty((len(y), self.width))
        for f in np.unique(fold):
            own, others = np.flatnonzero(fold == f), np.flatnonzero(fold != f)
            columns = self.averages(rows_of(table, others), y[others], weight[others], choose=False)
            encoded[own] = columns.encode(rows_of(table, own))
        return encoded

    def averages(self, table: Any, y: Array, weight: Array, *, choose: bool) -> TableColumns:
        """These columns with the means and slopes of levels on these rows; with `choose`, which numbers have slopes."""
        pairs = self.pairs(table)
        plain = [column.without_means(part) for column, part in pairs]
        indices = {i: column.positions(part) for i, (column, part) in enumerate(pairs) if column.averaged}
        x = np.concatenate([*plain, np.ones((len(y), 1))], axis=1)
        # Rows sorted by content, so that sums do not depend on the order of the table.
        order = np.lexsort([*x.T, *y.T, weight, *indices.values()])
        x, y, weight = x[order], y[order], weight[order]
        numbers = {i: values[order, 0] for i, values in enumerate(plain) if self.columns[i].kind == "number"}
        means = [
            LevelTerm(i, len(self.columns[i].levels), index[order], np.ones(len(y))) for i, index in indices.items()
        ]
        if choose:
            slopes = chosen_slopes(x, means, y, weight, numbers)
        else:
            given = [(term, s) for term in means for s in self.columns[term.column].slopes]
            slopes = [replace(t.along(s.number, numbers[s.number], weight), drawn=s.drawn) for t, s in given]
        effects, _ = level_effects(x, [*means, *slopes], y, weight)
        overall = weight @ y / weight.sum()
        columns = list(self.columns)
        for term, values in zip([*means, *slopes], effects, strict=True):
            column = columns[term.column]
            if term.number is None:
                columns[term.column] = replace(column, means=as_rows(overall + values), slopes=())
            else:
                part = LevelSlopes(term.number, tuple(term.centers.tolist()), as_rows(values / term.unit), term.drawn)
                columns[term.column] = replace(column, slopes=(*column.slopes, part))
        return TableColumns(tuple(columns))

    def with_names(self, table: Any, y: Array, weight: Array) -> TableColumns:
        """These columns, with levels for numbers that are names."""
        pairs = self.pairs(table)
        x = [column.without_means(part) for column, part in pairs]
        whole = [i for i, column in enumerate(self.columns) if column.kind == "number" and are_many(x[i][:, 0])]
        if not whole:
            return self
        left = level_effects(np.concatenate([*x, np.ones((len(y), 1))], axis=1), [], y, weight)[1]
        ranks = rankdata(left, axis=0)  # robust against outliers
        columns = list(self.columns)
        for i in whole:
            if neighbor_similarity(x[i][:, 0], ranks, weight) < CHANCE / len(columns):
                columns[i] = replace(columns[i], levels=tuple(sorted(set(columns[i].texts(pairs[i][1]).tolist()))))
        return TableColumns(tuple(columns))

    def fold(self, table: Any, y: Array, weight: Array, folds: int, seed: int) -> NDArray[np.intp]:
        """A fold for every row, drawn by content: equal rows share one, unless all rows of a level are equal."""
        pairs = self.pairs(table)
        levels = {i: column.positions(part) for i, (column, part) in enumerate(pairs) if column.averaged}
        keys = []
        for i, (column, part) in enumerate(pairs):
            keys += [column.without_means(part), *([levels[i][:, None]] if i in levels else [])]
        group = np.unique(np.concatenate(keys, axis=1), axis=0, return_inverse=True)[1].ravel()
        lone = np.zeros(len(group), dtype=bool)
        for i, level in levels.items():
            groups = np.unique(np.stack([level, group]), axis=1)[0]
            lone |= (np.bincount(groups)[level] == 1) & (level < len(self.columns[i].levels))
        order = np.lexsort([weight, *y.T, group])
        number = np.empty(len(group))
        number[order] = np.arange(len(group)) - np.searchsorted(group[order], group[order])
        group = np.unique(np.stack([group, number * lone], axis=1), axis=0, return_inverse=True)[1].ravel()
        return np.random.default_rng(seed).permutation(group.max() + 1)[group] % folds

    def facts(self) -> list[dict[str, Any]]:
        return [asdict(column) for column in self.columns]

    @classmethod
    def restored(cls, facts: list[dict[str, Any]]) -> TableColumns:
        return from_plain(cls, {"columns": facts}, "the columns")


def column_of(name: str, values: Any) -> TableColumn:
    form = form_of(values)
    if form is not None:
        number = as_numbers(values, name, form)
        missing = np.isnan(number)
        if missing.all():
            return TableColumn(name, "number", form=form)
        return TableColumn(name, "number", float(np.median(number[~missing])), bool(missing.any()), form=form)
    levels, rows = np.unique(as_levels(values), return_counts=True)
    single = int(np.count_nonzero(rows == 1))
    single *= len(levels) > MOST_LEVELS and 2 * single > len(values)
    if single:
        levels = levels[rows > 1]
    kind = "means" if len(levels) > MOST_LEVELS else "levels"
    return TableColumn(name, kind, levels=tuple(levels.tolist()), single=single)


def warn_of_levels(columns: TableColumns) -> None:
    """Warn of levels with one row each, whose mean target would be that of the row itself."""
    for column in columns.columns:
        if column.single:
            message = f"column {column.name!r}: {column.single} values are unique, as in an id or free text, and are "
            message += f"left out ({counted(len(column.levels), 'level')} left); if they are numbers or dates, convert "
            warnings.warn(f"{message}them: pandas.to_numeric, pandas.to_datetime", UserWarning, stacklevel=4)


def are_many(numbers: Array) -> bool:
    """Whether these are integers of many values, with several rows each.

    >>> [are_many(np.arange(2000.0) // k) for k in (1, 2, 50, 100)], are_many(np.arange(40) // 2 / 2)
    ([False, True, True, False], False)
    """
    if not np.array_equal(numbers, np.round(numbers)):
        return False
    count = len(np.unique(numbers))
    return count > MOST_LEVELS and FEWEST_ROWS * count <= len(numbers) <= MOST_ROWS * count


def as_rows(values: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in values)
