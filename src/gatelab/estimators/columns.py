"""Columns of a table as numbers: what is missing is marked, what is a category is counted or averaged.

    number      its value, the median where it is missing, and then a second column that says where
    levels      a column of zeros and ones for each level, of at most `MOST_LEVELS`
    means       of a column with more levels: the mean target of each, drawn towards that of all rows where it has few

Means of rows that are trained on are taken without the rows' own fold: a level that has one row would otherwise tell
the target itself. A level that training did not have is, in zeros and ones, none of them; among means it is the mean of
all rows. A missing value of a category is a level like any other.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from gatelab.arrays import Array
from gatelab.display import counted, one_line
from gatelab.errors import GatelabError

MOST_LEVELS = 12
DRAWN = 10.0  # rows that the mean of all counts for, beside those of a level
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
        return cls(tuple(column_of(name, values, y, weight) for name, values in named(table)))

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
        encoded = []
        for column, (_, part) in zip(self.columns, named(table), strict=True):
            if column.kind != "means":
                encoded.append(column.encode(part))
                continue
            index = positions(as_levels(part), column.levels)
            values = np.empty((len(index), column.width))
            for f in np.unique(fold):
                own = fold == f
                others = means_of(index[~own], len(column.levels), y[~own], weight[~own])
                values[own] = others[index[own]]
            encoded.append(values)
        return np.concatenate(encoded, axis=1)

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


def column_of(name: str, values: Any, y: Array, weight: Array) -> TableColumn:
    """How a column becomes numbers."""
    if not is_category(values):
        number = as_numbers(values, name)
        missing = np.isnan(number)
        if missing.all():
            return TableColumn(name, "number", 0.0, False)
        return TableColumn(name, "number", float(np.median(number[~missing])), bool(missing.any()))
    texts = as_levels(values)
    levels = tuple(sorted(set(texts.tolist())))
    if len(levels) <= MOST_LEVELS:
        return TableColumn(name, "levels", levels=levels)
    means = means_of(positions(texts, levels), len(levels), y, weight)
    return TableColumn(name, "means", levels=levels, means=tuple(tuple(map(float, row)) for row in means))


def means_of(index: NDArray[np.intp], levels: int, y: Array, weight: Array) -> Array:
    """The mean targets of each level, drawn towards those of all rows, which come last: (levels + 1, outputs).

    A level of w rows counts for w beside the `DRAWN` of all.
    """
    overall = weight @ y / weight.sum()
    rows = np.bincount(index, weight, minlength=levels + 1)[:levels]
    sums = np.stack([np.bincount(index, weight * column, minlength=levels + 1)[:levels] for column in y.T], axis=1)
    means = (sums + DRAWN * overall) / (rows + DRAWN)[:, None]
    return np.concatenate([means, overall[None]])


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
