"""Columns of a table as numbers: what is missing is marked, what is a category is counted or averaged.

    number      its value, the median where it is missing, and then a second column that says where
    levels      a column of zeros and ones for each level, of at most `MOST_LEVELS`
    means       of a column with more levels: the mean target of each, other columns being equal

"Other columns being equal": beside a linear map of all numbers and of the columns of few levels, each level adds its
own, drawn towards zero where it has few rows, as far as the spread of levels beside that of rows says. So levels that
were seen at different times or sizes are compared at one.

Means of rows that are trained on are taken without the rows' own fold: a level that has one row would otherwise tell
the target itself. A level that training did not have is, in zeros and ones, none of them; among means it is the mean of
all rows. A missing value of a category is a level like any other.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from gatelab.arrays import Array
from gatelab.display import counted, one_line
from gatelab.errors import GatelabError

MOST_LEVELS = 12
# Rounds in which the linear map and the levels are fitted in turn; rows that zero counts for, beside those of a level.
_ROUNDS, _FEWEST_DRAWN, _MOST_DRAWN = 10, 0.1, 1e4
MISSING = "\0missing"  # the level of what is missing; no text that a user has begins like this


@dataclass(frozen=True)
class TableColumn:
    """A column of the table and how it becomes numbers.

    Attributes:
        name: its name, or its number where it has none.
        kind: "number", "levels" or "means".
        median: of a number: what stands for a missing value.
        marked: of a number: whether a second column says where it is missing.
        levels: of a category: its levels, as text.
        means: of many levels: the mean targets of each, an entry an output, and last those of all rows.
    """

    name: str
    kind: Literal["number", "levels", "means"]
    median: float = 0.0
    marked: bool = False
    levels: tuple[str, ...] = ()
    means: tuple[tuple[float, ...], ...] = ()

    def __repr__(self) -> str:
        parts = {
            "number": "a number, marked where it is missing" if self.marked else "a number",
            "levels": f"{counted(len(self.levels), 'level')}, a column each",
            "means": f"{counted(len(self.levels), 'level')}, the mean target of each",
        }
        return one_line(self, f"{self.name}: {parts[self.kind]}")

    @property
    def width(self) -> int:
        """How many columns of numbers it becomes."""
        return {
            "number": 1 + self.marked,
            "levels": len(self.levels),
            "means": len(self.means[0]) if self.means else 0,
        }[self.kind]

    def encode(self, values: Any) -> Array:
        """The column of a table that is to be predicted, (rows, width)."""
        if self.kind == "number":
            number = as_numbers(values, self.name)
            missing = np.isnan(number)
            columns = [np.where(missing, self.median, number)]
            if self.marked:
                columns.append(missing.astype(np.float64))
            return np.stack(columns, axis=1)
        index = positions(as_levels(values), self.levels)
        if self.kind == "levels":
            return (index[:, None] == np.arange(len(self.levels))).astype(np.float64)
        return np.asarray(self.means)[index]


@dataclass(frozen=True)
class TableColumns:
    """All columns of a table."""

    columns: tuple[TableColumn, ...]

    def __repr__(self) -> str:
        return one_line(self, f"{counted(len(self.columns), 'column')} as {counted(self.width, 'number')}")

    @classmethod
    def of(cls, table: Any, y: Array, weight: Array) -> TableColumns:
        """How the columns of a table become numbers.

        Args:
            table: a data frame, or an array of numbers.
            y: the targets (rows, outputs).
            weight: of the rows.

        Returns:
            The `TableColumns`.

        >>> table = pd.DataFrame({"size": [1.0, None, 3.0, 4.0], "kind": ["a", "b", "a", None]})
        >>> columns = TableColumns.of(table, np.arange(4.0)[:, None], np.ones(4))
        >>> columns.columns
        (TableColumn(size: a number, marked where it is missing), TableColumn(kind: 3 levels, a column each))
        >>> columns.encode(pd.DataFrame({"size": [2.0], "kind": ["c"]})).tolist()
        [[2.0, 0.0, 0.0, 0.0, 0.0]]
        """
        columns = [column_of(name, values) for name, values in named(table)]
        if any(column.kind == "means" for column in columns):
            means = iter(cls(tuple(columns)).level_means(table, y, weight))
            for i, column in enumerate(columns):
                if column.kind == "means":
                    columns[i] = replace(column, means=tuple(tuple(map(float, row)) for row in next(means)))
        return cls(tuple(columns))

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return sum(column.width for column in self.columns)

    @property
    def averaged(self) -> bool:
        """Whether some column is the mean target of its level, so that rows that are trained on are encoded apart."""
        return any(column.kind == "means" for column in self.columns)

    @property
    def plain(self) -> bool:
        """Whether every column is a number that is nowhere missing, so that nothing changes."""
        return all(column.kind == "number" and not column.marked for column in self.columns)

    def encode(self, table: Any) -> Array:
        """The rows of a table that is to be predicted, as numbers (rows, width)."""
        values = [column.encode(part) for column, (_, part) in zip(self.columns, named(table), strict=True)]
        return np.concatenate(values, axis=1)

    def training(self, table: Any, y: Array, weight: Array, fold: NDArray[np.intp]) -> Array:
        """The rows that are trained on, as numbers: means of a row's level without the rows of its fold."""
        parts = [part for _, part in named(table)]
        many = [i for i, column in enumerate(self.columns) if column.kind == "means"]
        encoded = [column.encode(part) for column, part in zip(self.columns, parts, strict=True)]
        index = {i: positions(as_levels(parts[i]), self.columns[i].levels) for i in many}
        for f in np.unique(fold):
            own = fold == f
            others = self.level_means(rows_of(table, np.flatnonzero(~own)), y[~own], weight[~own])
            for i, means in zip(many, others, strict=True):
                encoded[i][own] = means[index[i][own]]
        return np.concatenate(encoded, axis=1)

    def level_means(self, table: Any, y: Array, weight: Array) -> list[Array]:
        """The means of each column of many levels, (levels + 1, outputs) each."""
        parts = list(zip(self.columns, named(table), strict=True))
        plain = [column.encode(part) for column, (_, part) in parts if column.kind != "means"]
        many = [(column, part) for column, (_, part) in parts if column.kind == "means"]
        indices = [positions(as_levels(part), column.levels) for column, part in many]
        x = np.concatenate([*plain, np.ones((len(y), 1))], axis=1)
        # In an order that is that of the rows' content, so that sums are the same to the last bit in any other.
        order = np.lexsort([*x.T, *y.T, weight, *indices])
        x, y, weight, indices = x[order], y[order], weight[order], [index[order] for index in indices]
        effects = level_effects(x, indices, [len(column.levels) for column, _ in many], y, weight)
        return [weight @ y / weight.sum() + part for part in effects]

    def keys(self, table: Any) -> Array:
        """What tells the rows of a table apart, without any target in it: (rows, keys)."""
        parts = []
        for column, (_, part) in zip(self.columns, named(table), strict=True):
            if column.kind == "means":
                parts.append(positions(as_levels(part), column.levels)[:, None].astype(np.float64))
            else:
                parts.append(column.encode(part))
        return np.concatenate(parts, axis=1)

    def fold(self, table: Any, folds: int, seed: int) -> NDArray[np.intp]:
        """A part for every row, for `training`: drawn by content, so that equal rows are in one part in any order."""
        groups, group = np.unique(self.keys(table), axis=0, return_inverse=True)
        return np.random.default_rng(seed).permutation(len(groups))[group.ravel()] % folds

    def facts(self) -> list[dict[str, Any]]:
        """As plain values, for a file."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def restored(cls, facts: list[dict[str, Any]]) -> TableColumns:
        """From plain values, as `facts` gives them."""
        return cls(
            tuple(
                TableColumn(
                    **{
                        **fact,
                        "levels": tuple(fact["levels"]),
                        "means": tuple(tuple(row) for row in fact["means"]),
                    }
                )
                for fact in facts
            )
        )


def read_table(model: Any, X: Any, *, reset: bool) -> Any:
    """X as numbers with NaN where they are missing, or as the data frame that it is where it holds categories.

    Args:
        model: the estimator, which notes the names of columns or has noted them.
        X: a data frame or an array.
        reset: whether the model is being fitted.

    Returns:
        What `TableColumns` takes.
    """
    if not (hasattr(X, "columns") and hasattr(X, "iloc")) or not any(is_category(part) for _, part in named(X)):
        return validate_data(
            model, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=1 + reset, reset=reset
        )
    validate_data(model, X, skip_check_array=True, reset=reset)
    if len(X) < 1 + reset:
        raise GatelabError(f"X has {len(X)} rows and a minimum of {1 + reset} is required; give more rows")
    return X


def column_of(name: str, values: Any) -> TableColumn:
    """How a column becomes numbers; means are still to be taken."""
    if not is_category(values):
        number = as_numbers(values, name)
        missing = np.isnan(number)
        if missing.all():
            return TableColumn(name, "number", 0.0, False)
        return TableColumn(name, "number", float(np.median(number[~missing])), bool(missing.any()))
    levels = tuple(sorted(set(as_levels(values).tolist())))
    if len(levels) <= MOST_LEVELS:
        return TableColumn(name, "levels", levels=levels)
    return TableColumn(name, "means", levels=levels)


def level_effects(x: Array, indices: list[NDArray[np.intp]], levels: list[int], y: Array, weight: Array) -> list[Array]:
    """What each level adds to a linear map of other columns: min |y - x b - sum of effects|^2 + drawn |effects|^2.

    Args:
        x: other columns (rows, p), a constant among them.
        indices: the number of each row's level, for each column of levels.
        levels: how many there are in each.
        y: the targets (rows, outputs).
        weight: of the rows, which count as often.

    Returns:
        The effects (levels + 1, outputs) of each column; the last one, of a level that is not known, is zero.
    """
    scale = np.sqrt(weight @ x**2 / weight.sum())
    x = x / np.where(scale > 0, scale, 1.0)
    square = x.T @ (weight[:, None] * x)
    square[np.diag_indices_from(square)] += 1e-9 * weight.sum()
    effects = [np.zeros((count + 1, y.shape[1])) for count in levels]
    for _ in range(_ROUNDS):
        left = y - sum(part[index] for part, index in zip(effects, indices, strict=True))
        line = x @ np.linalg.solve(square, x.T @ (weight[:, None] * left))
        for k, index in enumerate(indices):
            others = sum(e[i] for j, (e, i) in enumerate(zip(effects, indices, strict=True)) if j != k)
            effects[k][:-1] = shrunken_means(y - line - others, index, levels[k], weight)
    return effects


def shrunken_means(values: Array, index: NDArray[np.intp], levels: int, weight: Array) -> Array:
    """Means of each level (levels, outputs), drawn to zero by their own spread beside that of rows: Henderson's way.

    >>> values = np.array([[1.0], [1.2], [-1.0], [-1.2]])
    >>> shrunken_means(values, np.array([0, 0, 1, 1]), 2, np.ones(4)).round(2).tolist()
    [[1.05], [-1.05]]
    """
    rows = np.bincount(index, weight, minlength=levels)
    sums = np.stack([np.bincount(index, weight * column, minlength=levels) for column in values.T], axis=1)
    means = sums / np.maximum(rows, 1e-300)[:, None]
    within = float(weight @ np.square(values - means[index]).sum(1)) / max(weight.sum() - np.count_nonzero(rows), 1.0)
    spread = weight.sum() - (rows @ rows) / weight.sum()
    between = float(rows @ np.square(means).sum(1)) - within * (np.count_nonzero(rows) - 1)
    drawn = _MOST_DRAWN
    if between > 0:
        drawn = float(np.clip(within * spread / between, _FEWEST_DRAWN, _MOST_DRAWN))
    return sums / (rows + drawn)[:, None]


def named(table: Any) -> list[tuple[str, Any]]:
    """The columns of a data frame or an array, with their names."""
    if hasattr(table, "columns") and hasattr(table, "iloc"):
        return [(str(name), table.iloc[:, i]) for i, name in enumerate(table.columns)]
    return [(str(i), values) for i, values in enumerate(np.asarray(table).T)]


def rows_of(values: Any, index: Any) -> Any:
    """Some rows of an array or a table."""
    if hasattr(values, "iloc"):
        return values.iloc[index]
    return np.asarray(values)[index]


def is_category(values: Any) -> bool:
    """Whether a column holds categories: text, truth values, or pandas' type for them.

    >>> [is_category(pd.Series(v)) for v in (["a", "b"], [1, 2], [True, None], [1.5, None])]
    [True, False, True, False]
    """
    plain = pd.Series(values)
    if isinstance(plain.dtype, pd.CategoricalDtype | pd.StringDtype | pd.BooleanDtype) or plain.dtype.kind == "b":
        return True
    if plain.dtype.kind != "O":
        return False
    kinds = {type(value) for value in plain.dropna()}
    return bool in kinds or not all(issubclass(kind, int | float | np.number) for kind in kinds)


def as_numbers(values: Any, name: str) -> Array:
    """A column as float64, NaN where it is missing; dates, text and infinities are refused."""
    if isinstance(values, np.ndarray) and values.dtype == np.float64 and not np.isinf(values).any():
        return values
    plain = pd.Series(values)
    if plain.dtype.kind in "mM":
        raise GatelabError(
            f"column {name!r} holds dates; give numbers, such as days since a day: (dates - first).dt.days"
        )
    try:
        number = plain.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise GatelabError(
            f"column {name!r} was numbers when the model was fitted and holds text now; give what it was fitted to"
        ) from None
    if np.isinf(number).any():
        raise GatelabError(f"column {name!r} has infinite values; give numbers, or NaN where a value is missing")
    return number


def as_levels(values: Any) -> NDArray[np.object_]:
    """A column of categories as text; what is missing is a level of its own."""
    plain = np.asarray(values, dtype=object)
    texts = [MISSING if missing else level_text(v) for v, missing in zip(plain, pd.isna(plain), strict=True)]
    return np.array(texts, dtype=object)


def level_text(value: Any) -> str:
    """A level as text: 1 and 1.0 and "1" are one level.

    >>> [level_text(v) for v in ("a", 1, 1.0, True, 0.5)]
    ['a', '1', '1', 'True', '0.5']
    """
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def positions(texts: NDArray[np.object_], levels: tuple[str, ...]) -> NDArray[np.intp]:
    """The number of each value's level; one beyond the last where it is none of them."""
    index = pd.Index(levels, dtype=object).get_indexer(pd.Index(texts, dtype=object))
    return np.where(index < 0, len(levels), index).astype(np.intp)
