"""What every problem is checked for, and the errors that say what was given and what to do."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gatelab.arrays import Array, finite_array, refuse_masked
from gatelab.errors import GatelabError, check_seed, unknown_name

PROTOCOLS = ("split", "paper")
MAX_POINTS = 10**8
# Squares of errors and fourth powers of widths are computed: beyond, they overflow or vanish.
LEAST, MOST = 1e-60, 1e60
# How pandas and R head the column of row labels in a CSV file, and pandas when it reads that file.
UNNAMED = re.compile(r"(Unnamed: \d+(\.\d+)?)?")
EPS = float(np.finfo(np.float64).eps)


def matrix(value: Any, what: str) -> Array:
    """A finite float64 copy with one row for each example."""
    try:
        rows = finite_array(what, without_row_labels(value, what), instead="remove or replace those rows")
    except GatelabError as error:
        raise GatelabError(f"{error}; gl.GatedRegressor takes columns of text, dates and gaps as they are") from error
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise GatelabError(f"{what} has the shape {rows.shape}; give (N,) or (N, columns), one row for each example")
    return rows


def names_of(value: Any) -> tuple[str, ...]:
    """The names of the columns of a table, of pandas, polars or pyarrow, or of one column; none unless all are text."""
    names: list[Any] = list(getattr(value, "column_names", ()))  # of pyarrow, whose columns are arrays
    if not names and not hasattr(value, "to_numpy"):
        return ()
    names = names or list(getattr(value, "columns", ()))
    if not names and len(getattr(value, "shape", ())) == 1:
        names = [getattr(value, "name", None)]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return ()
    return tuple(names)


def for_numpy(value: Any, what: str) -> Any:
    """What numpy can read: of a tensor its array, without gradient; masked and complex values are refused."""
    refuse_masked(value, what)
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    if np.iscomplexobj(value):
        raise GatelabError(f"{what} is complex; give real numbers")
    return value


def unnamed(names: Sequence[str]) -> list[int]:
    """The columns without a name among others that have one, as the index of a data frame is in a file."""
    bare = [i for i, name in enumerate(names) if UNNAMED.fullmatch(str(name).strip())]
    return bare if len(bare) < len(names) else []


def are_row_labels(values: Any) -> bool:
    """Whether values number or name the rows: no two are equal, and those that are numbers are whole."""
    texts = [str(value).strip() for value in values]
    try:
        numbers = np.array(texts, dtype=np.float64)
    except ValueError:
        return len(set(texts)) == len(texts)
    return bool((numbers == np.floor(numbers)).all()) and len(np.unique(numbers)) == len(numbers)


def without_row_labels(value: Any, what: str) -> Any:
    """A data frame without unnamed columns that only number its rows, with a warning; anything else as it is."""
    if not (hasattr(value, "columns") and hasattr(value, "iloc")):
        return value
    labels = [i for i in unnamed(list(value.columns)) if are_row_labels(value.iloc[:, i])]
    if not labels:
        return value
    names = ", ".join(repr(value.columns[i]) for i in labels)
    warn_of_columns(f"{what}: the column {names} labels the rows and is left out; rename it to use it")
    return value.iloc[:, [i for i in range(value.shape[1]) if i not in labels]]


def warn_of_columns(message: str) -> None:
    """Warn of how the columns of a table are read."""
    # The level of whoever called from_arrays, from_file or fit is not one number, so that it points at gatelab.
    warnings.warn(message, UserWarning, stacklevel=2)


def require_range(x: Array, y: Array) -> None:
    """Refuse inputs and targets whose squares or powers are beyond double precision."""
    for rows, what in ((x, "inputs"), (y, "targets")):
        size = np.abs(rows).max(axis=0)
        extreme = (size > MOST) | ((size > 0) & (size < LEAST))
        if extreme.any():
            raise GatelabError(
                f"the {what} reach {size[extreme][0]:.3g}; sizes from {LEAST:g} to {MOST:g} work: give them in other"
                " units, or standardise=True"
            )


def varying(rows: Array) -> NDArray[np.bool_]:
    """For each column, whether its values differ by more than rounding."""
    # Halves, since the range of finite numbers can overflow.
    half_range = rows.max(axis=0) / 2 - rows.min(axis=0) / 2
    return half_range > 8 * EPS * np.abs(rows).max(axis=0)


def first_row(rows: Array, most: int | None = 5) -> str:
    """The first row as an error shows it, with `most` of its values at most."""
    values = [f"{v:.6g}" for v in rows[0]]
    if len(values) == 1:
        return values[0]
    return f"({', '.join(values[:most])}{', ...' * (len(values) > (most or len(values)))})"


def require_varying(y: Array) -> None:
    """Refuse a target that does not vary."""
    y = y.reshape(len(y), -1)
    if varying(y).any():
        return
    # Up to a few units of the last digit a target is a constant that was computed with rounding.
    if (np.ptp(y, axis=0) > 4 * EPS * np.abs(y).max(axis=0)).any():
        raise GatelabError(
            f"the target differs by {np.ptp(y, axis=0).max():.3g} about {first_row(y)}, which float64 can hardly"
            " hold; subtract that first"
        )
    raise GatelabError(
        f"the target is constant = {first_row(y)} on the {len(y)} training rows; a network's output bias d"
        " fits it exactly and no slope exists; choose another target"
    )


def seeds(seed: Any) -> np.random.SeedSequence:
    """The source of every random draw of a problem."""
    return np.random.SeedSequence(check_seed(seed))


def checked_protocol(protocol: Any, **given: Any) -> bool:
    """Whether the protocol is the paper's, which tests on the training data and takes none of the test's options."""
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", str(protocol), PROTOCOLS)
    for name, value in given.items():
        if protocol == "paper" and value is not None:
            raise GatelabError(f"the paper's protocol tests on the training data; leave {name} out, or the protocol")
    return protocol == "paper"
