"""Checks of the data of problems."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gatelab.arrays import Array, finite_array
from gatelab.errors import GatelabError, check_seed, unknown_name

PROTOCOLS = ("split", "paper")
MAX_POINTS = 10**8
# Beyond these sizes, squares of errors and fourth powers of widths overflow or underflow.
LEAST, MOST = 1e-60, 1e60
# The header of row labels in CSV files of pandas and R, and pandas' name for it.
UNNAMED = re.compile(r"(Unnamed: \d+(\.\d+)?)?")
EPS = float(np.finfo(np.float64).eps)


def matrix(value: Any, what: str) -> Array:
    """A finite float64 copy with one row per example."""
    try:
        rows = finite_array(what, without_row_labels(value, what), instead="remove or replace those rows")
    except GatelabError as error:
        raise GatelabError(f"{error}; gl.GatedRegressor accepts columns of text, dates and missing values") from error
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise GatelabError(f"{what} has the shape {rows.shape}; give (N,) or (N, columns), one row per example")
    return rows


def names_of(value: Any) -> tuple[str, ...]:
    """The column names of a pandas, polars or pyarrow table, or the name of one column; none unless all are text."""
    names: list[Any] = list(getattr(value, "column_names", ()))  # pyarrow
    if not names and not hasattr(value, "to_numpy"):
        return ()
    names = names or list(getattr(value, "columns", ()))
    if not names and len(getattr(value, "shape", ())) == 1:
        names = [getattr(value, "name", None)]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return ()
    return tuple(names)


def unnamed(names: Sequence[str]) -> list[int]:
    """The columns without a name among others with names, such as the index of a data frame in a file."""
    bare = [i for i, name in enumerate(names) if UNNAMED.fullmatch(str(name).strip())]
    return bare if len(bare) < len(names) else []


def are_row_labels(values: Any) -> bool:
    """Whether values can label rows: they are distinct, and integers if they are numbers."""
    texts = [str(value).strip() for value in values]
    try:
        numbers = np.array(texts, dtype=np.float64)
    except ValueError:
        return len(set(texts)) == len(texts)
    return bool((numbers == np.floor(numbers)).all()) and len(np.unique(numbers)) == len(numbers)


def without_row_labels(value: Any, what: str) -> Any:
    """Drop the unnamed columns of a data frame that label its rows, with a warning; return other values unchanged."""
    if not (hasattr(value, "columns") and hasattr(value, "iloc")):
        return value
    labels = [i for i in unnamed(list(value.columns)) if are_row_labels(value.iloc[:, i])]
    if not labels:
        return value
    names = ", ".join(repr(value.columns[i]) for i in labels)
    warn_of_columns(f"{what}: the column {names} labels the rows and is left out; rename it to use it")
    return value.iloc[:, [i for i in range(value.shape[1]) if i not in labels]]


def warn_of_columns(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=2)


def require_range(x: Array, y: Array) -> None:
    """Refuse inputs and targets whose powers overflow or underflow."""
    for rows, what in ((x, "inputs"), (y, "targets")):
        size = np.abs(rows).max(axis=0)
        extreme = (size > MOST) | ((size > 0) & (size < LEAST))
        if extreme.any():
            raise GatelabError(
                f"the {what} reach {size[extreme][0]:.3g}; sizes from {LEAST:g} to {MOST:g} work: give them in other"
                " units, or standardize=True"
            )


def varying(rows: Array) -> NDArray[np.bool_]:
    """For each column, whether its values differ by more than rounding."""
    # Halves, since the range of finite numbers may overflow.
    half_range = rows.max(axis=0) / 2 - rows.min(axis=0) / 2
    return half_range > 8 * EPS * np.abs(rows).max(axis=0)


def first_row(rows: Array, most: int | None = 5) -> str:
    """The first row for an error message, with at most `most` values."""
    values = [f"{v:.6g}" for v in rows[0]]
    if len(values) == 1:
        return values[0]
    return f"({', '.join(values[:most])}{', ...' * (len(values) > (most or len(values)))})"


def require_varying(y: Array) -> None:
    y = y.reshape(len(y), -1)
    if not varying(y).any():
        raise GatelabError(
            f"the target is constant = {first_row(y)} on the {len(y)} training rows, up to"
            f" {np.ptp(y, axis=0).max():.3g}, which an output bias fits; choose another target, or subtract that first"
        )


def seeds(seed: Any) -> np.random.SeedSequence:
    return np.random.SeedSequence(check_seed(seed))


def checked_protocol(protocol: Any, **given: Any) -> bool:
    """Whether the protocol is the paper's, which tests on the training data and excludes the options of a test."""
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", str(protocol), PROTOCOLS)
    for name, value in given.items():
        if protocol == "paper" and value is not None:
            raise GatelabError(f"the paper's protocol tests on the training data; leave {name} out, or the protocol")
    return protocol == "paper"
