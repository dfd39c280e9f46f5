"""Columns of a table as numbers: what is missing is marked, what is a category is counted or averaged.

    number      its value, the median where it is missing, and then a second column that says where; text that is
                numbers is such a column, and so are dates, in days since 1970, and durations, in days
    levels      a column of zeros and ones for each level, of at most `MOST_LEVELS`
    means       of a column with more levels: the mean target of each, other columns being equal; and beside it, where
                levels have slopes of their own in a number, the line of each at the row's number
    names       of whole numbers that stand for somebody, such as those of persons in a panel: a number, and means

"Other columns being equal": beside a linear map of all numbers and of the columns of few levels, each level adds its
own, drawn towards zero where it has few rows, as far as the spread of levels beside that of rows says. So levels that
were seen at different times or sizes are compared at one. A number in which slopes differ between levels more than
chance would have it (`CHANCE`, by the F-test of a common slope; at most `MOST_SLOPES` such numbers) gives each level a
slope as well, drawn towards zero likewise, about the mean of the number in the level. Where there is none nothing is
added.

Whole numbers of more than `MOST_LEVELS` values, of some rows each, are names where neighbours differ by more than
chance would have it (`CHANCE`, by the F-test of pairs of neighbours, beside a linear map of all columns), and at least
half as much as any two values do: what is smooth in a number, as most things are in an age or a size, is not.

Means and slopes of rows that are trained on are taken without the rows' own fold: a level that has one row would
otherwise tell the target itself. A level that training did not have is, in zeros and ones, none of them; among means it
is the mean of all rows, with no slope. A missing value of a category is a level like any other. Where most rows have a
level of their own, as in an id, such levels are left out: they tell nothing of other rows.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import fdtrc
from scipy.stats import rankdata
from sklearn.utils.validation import validate_data

from gatelab.arrays import Array
from gatelab.data.checks import without_row_labels
from gatelab.data.tables import is_gap, is_number
from gatelab.display import counted, one_line
from gatelab.errors import GatelabError

MOST_LEVELS = 12
# Rows of a name, on average: with fewer nothing is known of it, with more the number alone tells nearly as much.
FEWEST_ROWS, MOST_ROWS = 2, 50
# Numbers in which a column's levels have slopes, at most; how often levels of one slope would be given others, at most.
MOST_SLOPES, CHANCE = 2, 1e-3
# Rounds in which the linear map and the levels are fitted in turn; rows that zero counts for, beside those of a level.
_ROUNDS, _FEWEST_DRAWN, _MOST_DRAWN = 10, 0.1, 1e4
MISSING = "\0missing"  # the level of what is missing; no text that a user has begins like this
# How a column is read as numbers: what they are, or the format of its dates where they are text.
NUMBERS, DURATIONS, DATES = "numbers", "durations", "ISO8601"
_FORMS = (NUMBERS, DATES, "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", DURATIONS)
# Text of digits that is no number, such as a postal code; text that is a duration, as pandas writes it.
_CODE, _DURATION = re.compile(r"\s*[-+]?0[0-9]+\s*"), re.compile(r"\s*[-+]?([0-9.]+ days?|[0-9]+:[0-9]{2}:)")


@dataclass(frozen=True)
class LevelSlopes:
    """What levels add with a number, a column of the table: slope (number - centre), in each level its own.

    The last centre and slopes are zeros, of a level that is not known; zero counts for `drawn` rows beside a slope's.
    """

    number: int
    centres: tuple[float, ...]
    slopes: tuple[tuple[float, ...], ...]
    drawn: float

    def added(self, index: NDArray[np.intp], number: Array) -> Array:
        """What rows of these levels and numbers get, (rows, outputs).

        >>> slopes = LevelSlopes(0, (2.0, 5.0, 0.0), ((1.0,), (-1.0,), (0.0,)), 4.0)
        >>> slopes.added(np.array([0, 1, 2]), np.array([4.0, 4.0, 4.0])).tolist()
        [[2.0], [1.0], [0.0]]
        """
        return np.asarray(self.slopes)[index] * (number - np.asarray(self.centres)[index])[:, None]


@dataclass(frozen=True)
class TableColumn:
    """A column of the table and how it becomes numbers.

    Attributes:
        name: its name, or its number where it has none.
        kind: "number", "levels" or "means".
        form: of a number: how its values are read, one of `NUMBERS`, `DURATIONS` and formats of dates.
        median: of a number: what stands for a missing value.
        marked: of a number: whether a second column says where it is missing.
        levels: of a category, or of a number that is a name: its levels, as text.
        means: of many levels: the mean targets of each, an entry an output, and last those of all rows.
        slopes: of many levels: those in the numbers where they differ.
        single: of a category: how many levels of one row are left out, where they are most of the rows.
    """

    name: str
    kind: Literal["number", "levels", "means"]
    median: float = 0.0
    marked: bool = False
    levels: tuple[str, ...] = ()
    means: tuple[tuple[float, ...], ...] = ()
    slopes: tuple[LevelSlopes, ...] = ()
    form: str = NUMBERS
    single: int = 0

    def __repr__(self) -> str:
        words = {NUMBERS: "a number", DURATIONS: "a duration in days"}.get(self.form, "a date in days")
        if self.kind == "number" and self.levels:
            words = "a name"
        mean = f"{counted(len(self.levels), 'level')}, the mean target of each"
        if self.slopes:
            mean += f", and its slope in {counted(len(self.slopes), 'number')}"
        parts = {
            "number": f"{words}{', marked where it is missing' * self.marked}{f' of {mean}' * bool(self.levels)}",
            "levels": f"{counted(len(self.levels), 'level')}, a column each",
            "means": mean,
        }
        rare = f", {counted(self.single, 'level')} of one row left out" * bool(self.single)
        return one_line(self, f"{self.name}: {parts[self.kind]}{rare}")

    @property
    def averaged(self) -> bool:
        """Whether it becomes the mean target of its level, alone or beside a number."""
        return bool(self.levels) and self.kind != "levels"

    @property
    def width(self) -> int:
        """How many columns of numbers it becomes."""
        means = (len(self.means[0]) if self.means else 0) * (1 + bool(self.slopes))
        return {"number": 1 + self.marked, "levels": len(self.levels), "means": 0}[self.kind] + means

    def encode(self, values: Any, numbers: Mapping[int, Array] | None = None) -> Array:
        """The column of a table that is to be predicted, (rows, width); slopes need the numbers they are in."""
        parts = [self.without_means(values)]
        if self.averaged:
            index = self.positions(values)
            means = np.asarray(self.means)[index]
            parts.append(means)
            if self.slopes:
                assert numbers is not None
                parts.append(sum((s.added(index, numbers[s.number]) for s in self.slopes), means))
        return np.concatenate(parts, axis=1)

    def without_means(self, values: Any) -> Array:
        """What of the column has no target in it: a number, or zeros and ones; of means nothing."""
        if self.kind == "number":
            number = as_numbers(values, self.name, self.form)
            missing = np.isnan(number)
            columns = [np.where(missing, self.median, number)]
            if self.marked:
                columns.append(missing.astype(np.float64))
            return np.stack(columns, axis=1)
        if self.kind == "levels":
            return (self.positions(values)[:, None] == np.arange(len(self.levels))).astype(np.float64)
        return np.empty((len(values), 0))

    def texts(self, values: Any) -> NDArray[np.object_]:
        """The level of each value, as text; of a number that is a name, however it is written."""
        return as_levels(as_numbers(values, self.name, self.form) if self.kind == "number" else values)

    def positions(self, values: Any) -> NDArray[np.intp]:
        """The number of each value's level; one beyond the last where it is none of them."""
        return positions(self.texts(values), self.levels)


@dataclass(frozen=True)
class TableColumns:
    """All columns of a table."""

    columns: tuple[TableColumn, ...]

    def __repr__(self) -> str:
        return one_line(self, f"{counted(len(self.columns), 'column')} as {counted(self.width, 'number')}")

    @classmethod
    def of(cls, table: Any, y: Array, weight: Array) -> TableColumns:
        """How the columns of a table, a data frame or an array, become numbers for targets y (rows, outputs).

        >>> table = pd.DataFrame({"size": [1.0, None, 3.0, 4.0], "kind": ["a", "b", "a", None]})
        >>> columns = TableColumns.of(table, np.arange(4.0)[:, None], np.ones(4))
        >>> columns.columns
        (TableColumn(size: a number, marked where it is missing), TableColumn(kind: 3 levels, a column each))
        >>> columns.encode(pd.DataFrame({"size": [2.0], "kind": ["c"]})).tolist()
        [[2.0, 0.0, 0.0, 0.0, 0.0]]
        """
        columns = cls(tuple(column_of(name, values) for name, values in named(table))).with_names(table, y, weight)
        if columns.averaged:
            return columns.averages(table, y, weight, choose=True)
        return columns

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return sum(column.width for column in self.columns)

    @property
    def averaged(self) -> bool:
        """Whether some column is the mean target of its level, so that rows that are trained on are encoded apart."""
        return any(column.averaged for column in self.columns)

    def encode(self, table: Any) -> Array:
        """The rows of a table that is to be predicted, as numbers (rows, width)."""
        parts = [part for _, part in named(table)]
        sloped = {slope.number for column in self.columns for slope in column.slopes}
        numbers = {i: self.columns[i].without_means(parts[i])[:, 0] for i in sloped}
        values = [column.encode(part, numbers) for column, part in zip(self.columns, parts, strict=True)]
        return np.concatenate(values, axis=1)

    def training(self, table: Any, y: Array, weight: Array, fold: NDArray[np.intp]) -> Array:
        """The rows that are trained on, as numbers: means and slopes of a row's level without the rows of its fold."""
        encoded = np.empty((len(y), self.width))
        for f in np.unique(fold):
            own, others = np.flatnonzero(fold == f), np.flatnonzero(fold != f)
            columns = self.averages(rows_of(table, others), y[others], weight[others], choose=False)
            encoded[own] = columns.encode(rows_of(table, own))
        return encoded

    def averages(self, table: Any, y: Array, weight: Array, *, choose: bool) -> TableColumns:
        """These columns with the means and slopes of levels that some rows give.

        The rows also say which numbers levels have slopes in, if they are to `choose`; else these are as they are.
        """
        parts = [part for _, part in named(table)]
        many = [i for i, column in enumerate(self.columns) if column.averaged]
        plain = {i: column.without_means(parts[i]) for i, column in enumerate(self.columns)}
        indices = [self.columns[i].positions(parts[i]) for i in many]
        x = np.concatenate([*plain.values(), np.ones((len(y), 1))], axis=1)
        # In an order that is that of the rows' content, so that sums are the same to the last bit in any other.
        order = np.lexsort([*x.T, *y.T, weight, *indices])
        x, y, weight = x[order], y[order], weight[order]
        numbers = {i: values[order, 0] for i, values in plain.items() if self.columns[i].kind == "number"}
        means = [
            LevelTerm(i, len(self.columns[i].levels), index[order], np.ones(len(y)))
            for i, index in zip(many, indices, strict=True)
        ]
        slopes: list[LevelTerm] = []
        if not choose:
            pairs = [(term, s) for term in means for s in self.columns[term.column].slopes]
            slopes = [replace(t.along(s.number, numbers[s.number], weight), drawn=s.drawn) for t, s in pairs]
        effects, left = level_effects(x, [*means, *slopes], y, weight)
        while choose and (term := steepest(left, means, slopes, numbers, weight)) is not None:
            slopes.append(term)
            effects, left = level_effects(x, [*means, *slopes], y, weight)
        if choose and slopes:
            # How far slopes are drawn is the same for all parts of the rows: a part alone may find them all alike, and
            # a column that hardly varies in training would be far out of its range later.
            for k, term in enumerate(slopes):
                own = term.factor[:, None] * effects[len(means) + k][term.index]
                slopes[k] = replace(term, drawn=LevelSpread.of(left + own, term, weight).drawn)
            slopes = [term for term in slopes if term.drawn < _MOST_DRAWN]
            effects, left = level_effects(x, [*means, *slopes], y, weight)
        overall = weight @ y / weight.sum()
        columns = list(self.columns)
        for term, values in zip([*means, *slopes], effects, strict=True):
            column = columns[term.column]
            if term.number is None:
                columns[term.column] = replace(column, means=as_rows(overall + values), slopes=())
            else:
                part = LevelSlopes(term.number, tuple(term.centres.tolist()), as_rows(values / term.unit), term.drawn)
                columns[term.column] = replace(column, slopes=(*column.slopes, part))
        return TableColumns(tuple(columns))

    def with_names(self, table: Any, y: Array, weight: Array) -> TableColumns:
        """These columns, with the levels of numbers that are names."""
        parts = [part for _, part in named(table)]
        x = [column.without_means(part) for column, part in zip(self.columns, parts, strict=True)]
        whole = [i for i, column in enumerate(self.columns) if column.kind == "number" and are_many(x[i][:, 0])]
        if not whole:
            return self
        left = level_effects(np.concatenate([*x, np.ones((len(y), 1))], axis=1), [], y, weight)[1]
        ranks = rankdata(left, axis=0)  # so that a few rows far off do not tell
        columns = list(self.columns)
        for i in whole:
            if neighbours_alike(x[i][:, 0], ranks, weight) < CHANCE / len(columns):
                columns[i] = replace(columns[i], levels=tuple(sorted(set(columns[i].texts(parts[i]).tolist()))))
        return TableColumns(tuple(columns))

    def keys(self, table: Any) -> Array:
        """What tells the rows of a table apart, without any target in it: (rows, keys)."""
        parts = []
        for column, (_, part) in zip(self.columns, named(table), strict=True):
            parts.append(column.without_means(part))
            if column.kind == "means":
                parts.append(column.positions(part)[:, None].astype(np.float64))
        return np.concatenate(parts, axis=1)

    def fold(self, table: Any, y: Array, weight: Array, folds: int, seed: int) -> NDArray[np.intp]:
        """A part for every row, for `training`: drawn by content, so that equal rows are in one part in any order.

        Where all rows of a level are equal, as in a table of one column, they are parted one by one: nothing would else
        be known of the level without them.
        """
        keys = self.keys(table)
        group = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
        lone = np.zeros(len(group), dtype=bool)
        for column, (_, part) in zip(self.columns, named(table), strict=True):
            if column.averaged:
                level = column.positions(part)
                pairs = np.unique(np.stack([level, group]), axis=1)[0]
                lone |= (np.bincount(pairs)[level] == 1) & (level < len(column.levels))
        order = np.lexsort([weight, *y.T, group])
        place = np.arange(len(group)) - np.searchsorted(group[order], group[order])
        number = np.empty(len(group))
        number[order] = place
        group = np.unique(np.stack([group, number * lone], axis=1), axis=0, return_inverse=True)[1].ravel()
        return np.random.default_rng(seed).permutation(group.max() + 1)[group] % folds

    def facts(self) -> list[dict[str, Any]]:
        """As plain values, for a file."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def restored(cls, facts: list[dict[str, Any]]) -> TableColumns:
        """From plain values, as `facts` gives them."""
        columns = []
        for fact in facts:
            slopes = [
                LevelSlopes(s["number"], tuple(s["centres"]), as_rows(s["slopes"]), s["drawn"]) for s in fact["slopes"]
            ]
            if any(facts[s.number]["kind"] != "number" for s in slopes):
                raise ValueError(f"the levels of column {fact['name']!r} have slopes in a column that is no number")
            plain = {"levels": tuple(fact["levels"]), "means": as_rows(fact["means"]), "slopes": tuple(slopes)}
            columns.append(TableColumn(**fact | plain))
        return cls(tuple(columns))


def read_table(model: Any, X: Any, *, reset: bool) -> Any:
    """X, a table or an array, as numbers with NaN where they are missing, or a data frame where it holds anything else.

    The model notes the names of columns if `reset`, where it is being fitted; else they must be those.
    """
    X = without_row_labels(as_frame(X), "X")
    if reset:
        warn_of_rounding(X)
    if not is_frame(X) or all(part.dtype.kind in "iufc" for _, part in named(X)):
        return validate_data(
            model, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=1 + reset, reset=reset
        )
    validate_data(model, X, skip_check_array=True, reset=reset)
    if len(X) < 1 + reset:
        raise GatelabError(f"X has {len(X)} rows and a minimum of {1 + reset} is required; give more rows")
    return X


def warn_of_rounding(X: Any) -> None:
    """Warn of whole numbers that double precision cannot hold, such as long ids."""
    if not is_frame(X) and not (isinstance(X, np.ndarray) and X.ndim == 2):
        return
    for name, part in named(X):
        if getattr(part.dtype, "kind", "") in "iu" and np.abs(np.asarray(part, float)).max(initial=0) > 2**53:
            message = f"column {name!r} has whole numbers beyond 2^53, which double precision rounds; "
            warnings.warn(f"{message}if they are ids, give them as text", UserWarning, stacklevel=4)


def is_frame(X: Any) -> bool:
    """Whether it is a data frame of pandas, or of what works like it."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


def as_frame(X: Any) -> Any:
    """A table of polars or pyarrow, or an array of dates, as a data frame of pandas; anything else as it is."""
    if hasattr(X, "collect_schema") and not hasattr(X, "to_pandas"):
        raise GatelabError(f"X is a {type(X).__name__}, which is not computed yet; give X.collect()")
    if isinstance(X, np.ndarray) and X.dtype.kind in "Mm" and X.ndim == 2:
        return pd.DataFrame(X)
    to_pandas = getattr(X, "to_pandas", None)
    if is_frame(X) or to_pandas is None:
        return X
    try:
        return to_pandas()
    except ImportError as error:
        raise GatelabError(
            f"X is a {type(X).__module__.partition('.')[0]} table, which becomes one of pandas by pyarrow ({error}): "
            "pip install 'gatelab[parquet]', or give a data frame of pandas"
        ) from error


def column_of(name: str, values: Any) -> TableColumn:
    """How a column becomes numbers; means are still to be taken."""
    form = form_of(values)
    if form is not None:
        number = as_numbers(values, name, form)
        missing = np.isnan(number)
        if missing.all():
            return TableColumn(name, "number", form=form)
        return TableColumn(name, "number", float(np.median(number[~missing])), bool(missing.any()), form=form)
    levels, rows = np.unique(as_levels(values), return_counts=True)
    single = int(np.count_nonzero(rows == 1))
    if len(levels) <= MOST_LEVELS or 2 * single <= len(values):
        single = 0
    else:
        levels = levels[rows > 1]
    kind = "levels"
    if len(levels) > MOST_LEVELS:
        kind = "means"
    return TableColumn(name, kind, levels=tuple(levels.tolist()), single=single)


def warn_of_levels(columns: TableColumns) -> None:
    """Warn of levels that have one row each: their mean target would be that of the row itself."""
    for column in columns.columns:
        if column.single:
            message = f"column {column.name!r}: {column.single} values are there once, as in an id or a free text, and "
            message += f"are left out: they tell nothing of other rows ({counted(len(column.levels), 'level')} left); "
            message += "if they are numbers or dates, convert them: pandas.to_numeric, pandas.to_datetime"
            warnings.warn(message, UserWarning, stacklevel=4)


def are_many(numbers: Array) -> bool:
    """Whether these are whole numbers of many values, with some rows each.

    >>> [are_many(np.arange(2000.0) // k) for k in (1, 2, 50, 100)], are_many(np.arange(40) // 2 / 2)
    ([False, True, True, False], False)
    """
    if not np.array_equal(numbers, np.round(numbers)):
        return False
    count = len(np.unique(numbers))
    return count > MOST_LEVELS and FEWEST_ROWS * count <= len(numbers) <= MOST_ROWS * count


def neighbours_alike(numbers: Array, left: Array, weight: Array) -> float:
    """How often rows of neighbouring numbers, were they alike, would differ as much as these do: the F-test of pairs.

    It is 1 as well where neighbours differ by less than half of what any two values do. It is small for names, whose
    neighbours have nothing in common in what a linear map leaves of the targets, and not for what is smooth.

    >>> rows, noise = np.arange(400) // 4, np.random.default_rng(0).standard_normal((500, 1))
    >>> names, smooth = noise[400:][rows], np.sin(rows / 8)[:, None]
    >>> [bool(neighbours_alike(rows, y + noise[:400], np.ones(400)) < 1e-3) for y in (names, smooth)]
    [True, False]
    """
    values, index = np.unique(numbers, return_inverse=True)
    term = LevelTerm(0, len(values), index, np.ones(len(index)))
    rows, sums = term.sums(weight[:, None]), term.sums(weight[:, None] * left)
    means = sums / rows
    within = float(weight @ np.square(left - means[index]).sum(1))
    free, pairs = weight.sum() - len(values), len(values) // 2
    first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    between = float((np.square(means[first] - means[second]) / (1 / rows[first] + 1 / rows[second])).sum())
    about = means - weight @ left / weight.sum()
    spread = float((rows * np.square(about)).sum()) / (len(values) - 1)
    noise = within / max(free, 1.0)
    if free < 1 or between / pairs - noise < (spread - noise) / 2:
        return 1.0
    return float(fdtrc(pairs, free, between / pairs / max(noise, 1e-300)))


@dataclass(frozen=True)
class LevelTerm:
    """What levels add to rows: a coefficient of each level times a factor of the row, which is one for means.

    The levels are those of a `column` of the table, `index` has that of each row, one beyond the last where it is not
    known, and zero counts for `drawn` rows, 0 where the spread of levels is to say it. For slopes the factor is the
    column `number` less its mean in the level, of which `centres` are (last zero), in units of its deviation, `unit`.
    """

    column: int
    levels: int
    index: NDArray[np.intp]
    factor: Array
    number: int | None = None
    centres: Array = field(default_factory=lambda: np.zeros(1))
    unit: float = 1.0
    drawn: float = 0.0

    def sums(self, values: Array) -> Array:
        """The sum of values of the rows (rows, outputs) in each level, (levels, outputs)."""
        sums = [np.bincount(self.index, column, minlength=self.levels)[: self.levels] for column in values.T]
        return np.stack(sums, axis=1).astype(np.float64, copy=False)

    def along(self, number: int, values: Array, weight: Array) -> LevelTerm:
        """The term of these levels' slopes in a number with these values."""
        rows, sums = self.sums(np.stack([weight, weight * values], axis=1)).T
        centres = np.append(sums / np.where(rows > 0, rows, 1.0), 0.0)
        factor = np.where(self.index < self.levels, values - centres[self.index], 0.0)
        factor[np.abs(factor) < 1e-12 * np.abs(values).max()] = 0.0  # the rounding of a number that is the same
        unit = float(np.sqrt(weight @ factor**2 / weight.sum())) or 1.0
        return replace(self, factor=factor / unit, number=number, centres=centres, unit=unit)


@dataclass(frozen=True)
class LevelSpread:
    """How the coefficients of levels differ, beside how rows do.

    `rows` and `sums` are those of squared factors and of factor times value in each level, `within` the variance of
    rows about their level, `square` the weighted sum of squares of coefficients (of slopes about a common one), `free`
    and `left` the degrees of freedom of levels and rows, `given` how many rows zero counts for, 0 if that is open.
    """

    rows: Array
    sums: Array
    within: float
    square: float
    free: float
    left: float
    total: float
    given: float

    @classmethod
    def of(cls, values: Array, term: LevelTerm, weight: Array) -> LevelSpread:
        """The spread of values (rows, outputs) that levels have by this term; rows of none tell nothing of it."""
        weight = np.where(term.index < term.levels, weight, 0.0)
        index = np.minimum(term.index, term.levels - 1)
        rows = term.sums((weight * term.factor**2)[:, None])[:, 0]
        sums = term.sums((weight * term.factor)[:, None] * values)
        told = rows > 1e-9 * rows.max()  # in the other levels there are no rows, or their number is the same in all
        means = np.where(told[:, None], sums, 0.0) / np.where(told, rows, 1.0)[:, None]
        common, left = np.zeros(values.shape[1]), weight.sum() - np.count_nonzero(told)
        if term.number is not None:
            counts = term.sums(weight[:, None])
            values = values - (term.sums(weight[:, None] * values) / np.where(counts > 0, counts, 1.0))[index]
            common, left = sums.sum(0) / max(rows.sum(), 1e-300), left - np.count_nonzero(counts)
        within = float(weight @ np.square(values - term.factor[:, None] * means[index]).sum(1)) / max(left, 1.0)
        square = float(rows @ np.square(means - common).sum(1))
        return cls(rows, sums, within, square, np.count_nonzero(told) - 1.0, left, total=weight.sum(), given=term.drawn)

    @property
    def ratio(self) -> float:
        """How many times as much coefficients of levels differ as they would by chance: F."""
        return self.square / max(self.within * self.free, 1e-300)

    @property
    def chance(self) -> float:
        """How often levels that are alike would differ as much, were rows normal; 1 where it cannot be told."""
        if self.free < 1 or self.left < 1:
            return 1.0
        return float(fdtrc(self.free, self.left, self.ratio))

    @property
    def drawn(self) -> float:
        """How many rows zero counts for, beside those of a level."""
        if self.given > 0:
            return self.given
        spread = self.total - (self.rows @ self.rows) / self.total
        between = self.square - self.within * self.free
        if between > 0:
            return float(np.clip(self.within * spread / between, _FEWEST_DRAWN, _MOST_DRAWN))
        return _MOST_DRAWN

    def coefficients(self) -> Array:
        """Those of each level (levels, outputs), drawn to zero by their spread beside that of rows: Henderson's way.

        >>> values = np.array([[1.0], [1.2], [-1.0], [-1.2]])
        >>> term = LevelTerm(0, 2, np.array([0, 0, 1, 1]), np.ones(4))
        >>> LevelSpread.of(values, term, np.ones(4)).coefficients().round(2).tolist()
        [[1.05], [-1.05]]
        """
        return self.sums / (self.rows + self.drawn)[:, None]


def steepest(
    left: Array, means: Sequence[LevelTerm], slopes: Sequence[LevelTerm], numbers: Mapping[int, Array], weight: Array
) -> LevelTerm | None:
    """The slopes of levels, in a number without any yet, that differ most beyond chance in what is `left` of y.

    None where chance explains all of them, or levels have `MOST_SLOPES`.
    """
    ratio, best = 0.0, None
    for mean in means:
        taken = [term.number for term in slopes if term.column == mean.column]
        for number in sorted(numbers.keys() - taken):
            term = mean.along(number, numbers[number], weight)
            spread = LevelSpread.of(left, term, weight)
            if len(taken) < MOST_SLOPES and spread.chance < CHANCE / len(numbers) and spread.ratio > ratio:
                ratio, best = spread.ratio, term
    return best


def level_effects(x: Array, terms: Sequence[LevelTerm], y: Array, weight: Array) -> tuple[list[Array], Array]:
    """What levels add to a linear map of x, a constant in it: min |y - x b - sum of terms|^2 + drawn |coefficients|^2.

    The coefficients (levels + 1, outputs) of each term, the last of them zero, for a level that is not known; and what
    is left of the targets (rows, outputs).
    """
    scale = np.sqrt(weight @ x**2 / weight.sum())
    x = x / np.where(scale > 0, scale, 1.0)
    square = x.T @ (weight[:, None] * x)
    square[np.diag_indices_from(square)] += 1e-9 * weight.sum()
    effects = [np.zeros((term.levels + 1, y.shape[1])) for term in terms]
    added = [np.zeros(y.shape) for _ in terms]
    line = np.zeros(y.shape)
    for _ in range(_ROUNDS):
        line = x @ np.linalg.solve(square, x.T @ (weight[:, None] * (y - sum(added))))
        for k, term in enumerate(terms):
            others = sum(part for j, part in enumerate(added) if j != k)
            effects[k][:-1] = LevelSpread.of(y - line - others, term, weight).coefficients()
            added[k] = term.factor[:, None] * effects[k][term.index]
    return effects, y - line - sum(added)


def as_rows(values: Any) -> tuple[tuple[float, ...], ...]:
    """Rows of numbers as plain values.

    >>> as_rows(np.eye(2))
    ((1.0, 0.0), (0.0, 1.0))
    """
    return tuple(tuple(map(float, row)) for row in values)


def named(table: Any) -> list[tuple[str, Any]]:
    """The columns of a data frame or an array, with their names."""
    if is_frame(table):
        return [(str(name), table.iloc[:, i]) for i, name in enumerate(table.columns)]
    return [(str(i), values) for i, values in enumerate(np.asarray(table).T)]


def rows_of(values: Any, index: Any) -> Any:
    """Some rows of an array or a table."""
    if hasattr(values, "iloc"):
        return values.iloc[index]
    return np.asarray(values)[index]


def form_of(values: Any) -> str | None:
    """How a column is read as numbers: `NUMBERS`, `DURATIONS` or the format of its dates; None where it is a category.

    >>> texts = (["1.5", "?"], ["02134", "90210"], ["2024-02-29", ""], ["31/1/2024", "1/2/2024"], ["1 day", "05:00:00"])
    >>> [form_of(pd.Series(v)) for v in (*texts, ["a", "b"], [1, 2], [True, None], [1.5, None])]
    ['numbers', None, 'ISO8601', '%d/%m/%Y', 'durations', None, 'numbers', None, 'numbers']
    """
    plain = pd.Series(values)
    if isinstance(plain.dtype, pd.CategoricalDtype) or plain.dtype.kind == "b":
        return None
    by_kind = {"M": DATES, "m": DURATIONS} | dict.fromkeys("iufc", NUMBERS)
    if plain.dtype.kind in by_kind:
        return by_kind[plain.dtype.kind]
    cells = [cell for cell in cells_of(plain) if cell is not None]
    if any(isinstance(cell, bool) or (isinstance(cell, str) and _CODE.fullmatch(cell)) for cell in cells):
        return None
    if not cells:
        return None if plain.notna().any() else NUMBERS
    forms = [form for form in _FORMS if not np.isnan(read(cells, form)).any()]
    if not forms or (len(forms) > 1 and DATES not in forms):
        return None  # nothing reads all of them, or days and months cannot be told apart: no day is beyond the twelfth
    return forms[0]


def cells_of(values: Any) -> list[Any]:
    """The values of a column, None where one is missing, periods as the time at which they begin."""
    plain = pd.Series(values)
    cells = plain.astype(object).where(plain.notna(), None)
    gaps = [cell is None or (isinstance(cell, str) and is_gap(cell)) for cell in cells]
    return [None if gap else getattr(cell, "start_time", cell) for cell, gap in zip(cells, gaps, strict=True)]


def read(cells: Sequence[Any], form: str) -> Array:
    """Values as float64, dates and durations in days, NaN where they are missing or not of this form.

    >>> read(["2", 0.5, "two"], NUMBERS), read(["1970-01-03", None], DATES), read(["36:00:00"], DURATIONS)
    (array([2. , 0.5, nan]), array([ 2., nan]), array([1.5]))
    """
    if form == NUMBERS:
        return np.array([float(cell) if is_numeric(cell) else np.nan for cell in cells], dtype=np.float64)
    if form == DURATIONS:
        some = [c if isinstance(c, timedelta) or (isinstance(c, str) and _DURATION.match(c)) else None for c in cells]
        return days_of(pd.to_timedelta(pd.Series(some, dtype=object), errors="coerce"))
    some = [c if isinstance(c, date) or (isinstance(c, str) and not is_numeric(c)) else None for c in cells]
    return days_of(pd.to_datetime(pd.Series(some, dtype=object), errors="coerce", format=form, utc=True))


def days_of(times: pd.Series) -> Array:
    """Durations in days, and dates in days since 1970 began, in UTC; without a time zone they are taken for UTC."""
    if times.dtype.kind == "M":
        times = pd.to_datetime(times, utc=True).dt.tz_localize(None)
        return (np.asarray(times) - np.datetime64(0, "D")) / np.timedelta64(1, "D")
    return np.asarray(times) / np.timedelta64(1, "D")


def is_numeric(cell: Any) -> bool:
    """Whether a value is a real number, or text that is one.

    >>> [is_numeric(cell) for cell in (1, "1e3", " 2 ", "1_000", "one", None)]
    [True, True, True, False, False, False]
    """
    if isinstance(cell, str):
        return "_" not in cell and is_number(cell)
    return isinstance(cell, Real | Decimal)


def as_numbers(values: Any, name: str, form: str = NUMBERS) -> Array:
    """A column as float64, of the form that it was fitted in, NaN where it is missing; infinities are refused."""
    plain = pd.Series(values)
    if form == NUMBERS and isinstance(values, np.ndarray) and values.dtype == np.float64:
        number = values
    elif form == NUMBERS and plain.dtype.kind in "biuf":
        number = plain.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    elif plain.dtype.kind in "Mm" and (plain.dtype.kind == "m") == (form == DURATIONS) and form != NUMBERS:
        number = days_of(plain)
    else:
        cells = cells_of(plain)
        number = read(cells, form)
        odd = [cell for cell, unread in zip(cells, np.isnan(number), strict=True) if unread and cell is not None]
        if odd:
            was = {NUMBERS: "numbers", DURATIONS: "durations"}.get(form, "dates")
            raise GatelabError(
                f"column {name!r} was {was} when the model was fitted and holds {str(odd[0])[:40]!r} now; give what it "
                "was fitted to"
            )
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
    """The number of each value's level; one beyond the last where it is none of them.

    >>> positions(np.array(["2.0", "b", "c", "TRUE"], dtype=object), ("2", " b", "True")).tolist()
    [0, 1, 3, 2]
    """
    known = pd.Index(levels, dtype=object)
    index = known.get_indexer(pd.Index(texts, dtype=object))
    unknown = np.flatnonzero(index < 0)
    if len(unknown):
        places = {spelled(level): i for i, level in enumerate(levels)}
        places = {"1": places.get("true", -1), "0": places.get("false", -1)} | places
        index[unknown] = [places.get(as_in_files(text), -1) for text in texts[unknown]]
    return np.where(index < 0, len(levels), index).astype(np.intp)


def spelled(text: str) -> str:
    """A level without what files differ in: spaces around it, and True as TRUE or true."""
    text = text.strip()
    return text.lower() if text.lower() in ("true", "false") else text


def as_in_files(text: str) -> str:
    """The level that a file may mean by a text: 2 by 2.0, beside gaps, and nothing by NA."""
    if is_numeric(text):
        return level_text(float(text))
    return MISSING if is_gap(text) else spelled(text)
