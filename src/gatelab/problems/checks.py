"""What every problem is checked for, and the errors that say what was given and what to do."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gatelab.errors import GatelabError, unknown_name

Array = NDArray[np.float64]
PROTOCOLS = ("split", "paper")
MAX_POINTS = 10**8


def checked_interval(interval: Any) -> tuple[float, float]:
    """The interval as two floats a < b, or the error that says what is wrong with it.

    >>> checked_interval((3, 0))
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: the interval (3, 0) is inverted; give (0, 3)
    """
    try:
        a, b = (float(end) for end in interval)
    except (TypeError, ValueError, OverflowError):
        raise GatelabError(f"the interval is {interval!r}; give two numbers (a, b) with a < b") from None
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(b - a)):
        raise GatelabError(f"the interval ({a:g}, {b:g}) is not finite; give two finite numbers a < b")
    if a > b:
        raise GatelabError(f"the interval ({a:g}, {b:g}) is inverted; give ({b:g}, {a:g})")
    if a == b:
        raise GatelabError(f"the interval ({a:g}, {b:g}) is empty; give two numbers a < b")
    return a, b


def matrix(value: Any, what: str) -> Array:
    """A finite float64 copy with one row for each example."""
    if isinstance(value, torch.Tensor):
        # Half-precision tensors have no counterpart in numpy, float64 has. Complex ones are refused below.
        value = value.detach().cpu()
        value = (value if value.is_complex() else value.double()).numpy()
    try:
        raw = np.asarray(value)
        if raw.dtype.kind not in "biufO":
            raise TypeError(f"its type is {raw.dtype}")
        rows = np.array(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise GatelabError(f"{what} cannot be read as real numbers ({error}); give a numeric array") from error
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise GatelabError(f"{what} has the shape {rows.shape}; give (N,) or (N, columns), one row for each example")
    _require_finite(rows, what)
    return rows


def names_of(value: Any) -> tuple[str, ...]:
    """The names of the columns of a table, of pandas or polars, or of a single column; none unless all are text.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"a": [1.0], "b": [2.0]})
    >>> names_of(table), names_of(table["b"]), names_of(table.to_numpy())
    (('a', 'b'), ('b',), ())
    """
    if not hasattr(value, "to_numpy"):
        return ()
    names: list[Any] = list(getattr(value, "columns", ()))
    if not names and len(getattr(value, "shape", ())) == 1:
        names = [getattr(value, "name", None)]
    distinct = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    return tuple(names) if distinct else ()


def _require_finite(rows: Array, what: str) -> None:
    bad = ~np.isfinite(rows)
    if bad.any():
        nans = int(np.isnan(rows).sum())
        first = int(np.argmax(bad.any(axis=1)))
        raise GatelabError(
            f"{what} holds {nans} NaN and {int(bad.sum()) - nans} infinite values, the first in row {first}"
            " (counted from 0); remove or replace those rows"
        )


def varying(rows: Array) -> NDArray[np.bool_]:
    """For each column, whether its values differ by more than rounding.

    >>> varying(np.array([[1.0, 0.1 + 0.2], [2.0, 0.3]]))
    array([ True, False])
    """
    # Halves, since the range of finite numbers can overflow.
    half_range = rows.max(axis=0) / 2 - rows.min(axis=0) / 2
    return half_range > 8 * np.finfo(np.float64).eps * np.abs(rows).max(axis=0)


def first_row(rows: Array) -> str:
    """The first row, as an error shows it."""
    values = [f"{v:.6g}" for v in rows[0]]
    return values[0] if len(values) == 1 else f"({', '.join(values[:5])}{', ...' * (len(values) > 5)})"


def require_varying(y: Array) -> None:
    """Refuse a target that does not vary."""
    y = y.reshape(len(y), -1)
    if not varying(y).any():
        raise GatelabError(
            f"the target is constant = {first_row(y)} on the {len(y)} training rows; a network's output bias d"
            " fits it exactly and no slope exists; choose another target"
        )


def whole(what: str, value: Any, least: int, most: int) -> int:
    """The value as a whole number within its limits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise GatelabError(f"{what} is {value!r}; give a whole number, {least} or more") from None
    if not least <= number <= most:
        raise GatelabError(f"{what} is {number}; give a whole number from {least} to {most}")
    return number


def seeds(seed: Any) -> np.random.SeedSequence:
    """The source of every random draw of a problem."""
    return np.random.SeedSequence(whole("seed", seed, 0, 2**63 - 1))


def deviation(noise: Any) -> float:
    """The standard deviation of noise."""
    value = float(noise) if isinstance(noise, Real) else math.nan
    if not (math.isfinite(value) and value >= 0):
        raise GatelabError(f"noise is {noise!r}; give a standard deviation, 0 or more")
    return value


def checked_protocol(protocol: Any) -> bool:
    """Whether the protocol is the paper's."""
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", str(protocol), PROTOCOLS)
    return protocol == "paper"
