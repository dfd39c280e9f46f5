"""Reading of tables: columns by name, numbers, dates and durations, also as text, and categories as text."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from gatelab.arrays import Array
from gatelab.data.rows import without_row_labels
from gatelab.data.tables import is_gap, is_number
from gatelab.errors import GatelabError

MISSING = "\0missing"  # the level of missing values, different from any text of a user
# How a column is read as numbers: its kind, or the format of dates as text.
NUMBERS, DURATIONS, DATES = "numbers", "durations", "ISO8601"
_FORMS = (NUMBERS, DATES, "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", DURATIONS)
_KINDS = {"M": DATES, "m": DURATIONS} | dict.fromkeys("iufc", NUMBERS)
# Text of digits that is a code, such as a postal code; text that is a duration in the format of pandas.
_CODE, _DURATION = re.compile(r"\s*[-+]?0[0-9]+\s*"), re.compile(r"\s*[-+]?([0-9.]+ days?|[0-9]+:[0-9]{2}:)")


def read_table(model: Any, X: Any, *, reset: bool) -> Any:
    """X, a table or an array, as numbers with NaN for missing values, or as a data frame if it has other columns.

    With `reset`, for a fit, the model stores the names of columns; otherwise they are compared.
    """
    X = without_row_labels(as_frame(X), "X")
    if reset:
        _warn_of_rounding(X)
    if not _is_frame(X) or all(part.dtype.kind in "iufc" for _, part in named(X)):
        return validate_data(
            model, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=1 + reset, reset=reset
        )
    validate_data(model, X, skip_check_array=True, reset=reset)
    if len(X) < 1 + reset:
        raise GatelabError(f"X has {len(X)} rows and a minimum of {1 + reset} is required; give more rows")
    return X


def _warn_of_rounding(X: Any) -> None:
    if not _is_frame(X) and not (isinstance(X, np.ndarray) and X.ndim == 2):
        return
    for name, part in named(X):
        if getattr(part.dtype, "kind", "") in "iu" and np.abs(np.asarray(part, float)).max(initial=0) > 2**53:
            message = f"column {name!r} has whole numbers beyond 2^53, which double precision rounds; "
            warnings.warn(f"{message}if they are ids, give them as text", UserWarning, stacklevel=4)


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and hasattr(X, "iloc")


def as_frame(X: Any) -> Any:
    """A table of polars or pyarrow, or an array of dates, as a pandas data frame; other values unchanged."""
    if hasattr(X, "collect_schema") and not hasattr(X, "to_pandas"):
        raise GatelabError(f"X is a {type(X).__name__}, which is not computed yet; give X.collect()")
    if isinstance(X, np.ndarray) and X.dtype.kind in "Mm" and X.ndim == 2:
        return pd.DataFrame(X)
    to_pandas = getattr(X, "to_pandas", None)
    if _is_frame(X) or to_pandas is None:
        return X
    try:
        return to_pandas()
    except ImportError as error:
        raise GatelabError(
            f"X is a {type(X).__module__.partition('.')[0]} table, which becomes one of pandas by pyarrow ({error}): "
            "pip install 'gatelab[parquet]', or give a data frame of pandas"
        ) from error


def named(table: Any) -> list[tuple[str, Any]]:
    """The columns of a data frame or an array, with their names."""
    if _is_frame(table):
        return [(str(name), table.iloc[:, i]) for i, name in enumerate(table.columns)]
    return [(str(i), values) for i, values in enumerate(np.asarray(table).T)]


def rows_of(values: Any, index: Any) -> Any:
    """Some rows of an array or a table."""
    if hasattr(values, "iloc"):
        return values.iloc[index]
    return np.asarray(values)[index]


def form_of(values: Any) -> str | None:
    """How a column is read as numbers: `NUMBERS`, `DURATIONS` or the format of its dates; None for a category.

    >>> texts = (["1.5", "?"], ["02134", "90210"], ["2024-02-29", ""], ["31/1/2024", "1/2/2024"], ["1 day", "05:00:00"])
    >>> [form_of(pd.Series(v)) for v in (*texts, ["a", "b"], [1, 2], [True, None], [1.5, None])]
    ['numbers', None, 'ISO8601', '%d/%m/%Y', 'durations', None, 'numbers', None, 'numbers']
    """
    plain = pd.Series(values)
    if isinstance(plain.dtype, pd.CategoricalDtype) or plain.dtype.kind == "b":
        return None
    if plain.dtype.kind in _KINDS:
        return _KINDS[plain.dtype.kind]
    cells = [cell for cell in _cells(plain) if cell is not None]
    if any(isinstance(cell, bool) or (isinstance(cell, str) and _CODE.fullmatch(cell)) for cell in cells):
        return None
    if not cells:
        return None if plain.notna().any() else NUMBERS
    forms = [form for form in _FORMS if not np.isnan(_read(cells, form)).any()]
    if not forms or (len(forms) > 1 and DATES not in forms):
        return None  # not all values have one form, or days and months are ambiguous
    return forms[0]


def _cells(plain: pd.Series) -> list[Any]:
    """The values of a column, None if missing, periods as their start times."""
    cells = plain.astype(object).where(plain.notna(), None)
    gaps = [cell is None or (isinstance(cell, str) and is_gap(cell)) for cell in cells]
    return [None if gap else getattr(cell, "start_time", cell) for cell, gap in zip(cells, gaps, strict=True)]


def _read(cells: Sequence[Any], form: str) -> Array:
    """Values as float64, dates and durations in days, NaN if they are missing or of another form.

    >>> _read(["2", 0.5, "two"], NUMBERS), _read(["1970-01-03", None], DATES), _read(["36:00:00"], DURATIONS)
    (array([2. , 0.5, nan]), array([ 2., nan]), array([1.5]))
    """
    if form == NUMBERS:
        return np.array([float(cell) if _is_numeric(cell) else np.nan for cell in cells], dtype=np.float64)
    if form == DURATIONS:
        some = [c if isinstance(c, timedelta) or (isinstance(c, str) and _DURATION.match(c)) else None for c in cells]
        return _days(pd.to_timedelta(pd.Series(some, dtype=object), errors="coerce"))
    some = [c if isinstance(c, date) or (isinstance(c, str) and not _is_numeric(c)) else None for c in cells]
    return _days(pd.to_datetime(pd.Series(some, dtype=object), errors="coerce", format=form, utc=True))


def _days(times: pd.Series) -> Array:
    """Durations in days, and dates in days since 1970, in UTC, which is also the default time zone."""
    if times.dtype.kind == "M":
        times = pd.to_datetime(times, utc=True).dt.tz_localize(None)
        return (np.asarray(times) - np.datetime64(0, "D")) / np.timedelta64(1, "D")
    return np.asarray(times) / np.timedelta64(1, "D")


def _is_numeric(cell: Any) -> bool:
    if isinstance(cell, str):
        return "_" not in cell and is_number(cell)
    return isinstance(cell, Real | Decimal)


def as_numbers(values: Any, name: str, form: str = NUMBERS) -> Array:
    """A column as float64, in the form of the fit, NaN for missing values; infinities are refused."""
    plain = pd.Series(values)
    if form == NUMBERS and isinstance(values, np.ndarray) and values.dtype == np.float64:
        number = values
    elif form == NUMBERS and plain.dtype.kind in "biuf":
        number = plain.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    elif plain.dtype.kind in "Mm" and (plain.dtype.kind == "m") == (form == DURATIONS) and form != NUMBERS:
        number = _days(plain)
    else:
        cells = _cells(plain)
        number = _read(cells, form)
        odd = [cell for cell, unread in zip(cells, np.isnan(number), strict=True) if unread and cell is not None]
        if odd:
            was = form if form in (NUMBERS, DURATIONS) else "dates"
            raise GatelabError(
                f"column {name!r} was {was} when the model was fitted and holds {str(odd[0])[:40]!r} now; give {was}"
            )
    if np.isinf(number).any():
        raise GatelabError(f"column {name!r} has infinite values; give numbers, or NaN where a value is missing")
    return number


def as_levels(values: Any) -> NDArray[np.object_]:
    """A column of categories as text, in which 1, 1.0 and "1" are one level, and missing values are a level.

    >>> as_levels(["a", 1, 1.0, True, 0.5, None]).tolist()
    ['a', '1', '1', 'True', '0.5', '\\x00missing']
    """
    plain = np.asarray(values, dtype=object)
    texts = [MISSING if missing else _level(v) for v, missing in zip(plain, pd.isna(plain), strict=True)]
    return np.array(texts, dtype=object)


def _level(value: Any) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def positions(texts: NDArray[np.object_], levels: tuple[str, ...]) -> NDArray[np.intp]:
    """The number of each value's level, also as files may write it; one beyond the last if it is unknown."""
    index = pd.Index(levels, dtype=object).get_indexer(pd.Index(texts, dtype=object))
    unknown = np.flatnonzero(index < 0)
    if len(unknown):
        places = {_spelled(level): i for i, level in enumerate(levels)}
        places = {"1": places.get("true", -1), "0": places.get("false", -1)} | places
        index[unknown] = [places.get(_as_in_files(text), -1) for text in texts[unknown]]
    return np.where(index < 0, len(levels), index).astype(np.intp)


def _spelled(text: str) -> str:
    text = text.strip()
    return text.lower() if text.lower() in ("true", "false") else text


def _as_in_files(text: str) -> str:
    if _is_numeric(text):
        return _level(float(text))
    return MISSING if is_gap(text) else _spelled(text)
