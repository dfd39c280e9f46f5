"""Types of arrays, the checks of arrays and intervals, and fingerprints of content."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gatelab.errors import GatelabError

Array = NDArray[np.float64]
AnyArray = np.ndarray  # of numbers, whole numbers or truths
Complex = NDArray[np.complex128]
Bytes = NDArray[np.uint8]
Tokens = NDArray[np.uint8 | np.uint16]


def fingerprint(parts: Iterable[str | bytes | AnyArray], digits: int) -> str:
    """A short hash of texts, bytes and arrays, the same on every machine.

    It does not include the shapes and types of arrays; give them as texts where they matter.
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
        elif isinstance(part, bytes):
            digest.update(part)
        else:
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:digits]


def finite_array(what: str, values: Any, ndim: int | None = None, instead: str = "drop or fill them") -> Array:
    """The values as a float64 array: real, finite, with `ndim` dimensions if that is given.

    Lists, tables, arrays and tensors are accepted; masked, complex and ragged values are refused. `instead` is the
    message's advice for values that are not finite.

    >>> finite_array("y", [1, float("nan")])
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: y holds 1 NaN and 0 infinite values, the first in row 1; drop or fill them
    """
    array = real_array(what, values)
    if ndim is not None and array.ndim != ndim:
        raise GatelabError(f"{what} has the shape {array.shape}; give {ndim} dimension{'s' * (ndim != 1)}")
    finite = np.isfinite(array)
    if not finite.all():
        nans = int(np.isnan(array).sum())
        row = f", the first in row {np.argwhere(~finite)[0][0]}" if array.ndim else ""
        raise GatelabError(f"{what} holds {nans} NaN and {int((~finite).sum()) - nans} infinite values{row}; {instead}")
    return array


def real_array(what: str, values: Any) -> Array:
    """The values as a float64 array, which may hold NaN and infinity."""
    refuse_masked(values, what)
    if values is None:  # which numpy would read as NaN
        raise GatelabError(f"{what} is None; give a numeric array")
    detach = getattr(values, "detach", None)
    if detach is not None:  # a tensor; numpy has no bfloat16
        values = detach().cpu()
        values = values.double() if values.is_floating_point() else values
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"their type is {array.dtype}")
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise GatelabError(f"{what} cannot be read as real numbers ({error}); give a numeric array") from None


def refuse_masked(value: Any, what: str) -> None:
    """Refuse arrays with masked values, whose hidden numbers numpy would use."""
    if isinstance(value, np.ma.MaskedArray) and (masked := int(np.ma.count_masked(value))):
        raise GatelabError(
            f"{what} has {masked} masked values of {value.size}; drop their rows or fill them, as with"
            " numpy.ma.filled(array, value)"
        )


def check_interval(interval: Any, what: str = "the interval") -> tuple[float, float]:
    """The interval as two floats a < b."""
    try:
        a, b = (float(end) for end in interval)
    except (TypeError, ValueError, OverflowError):
        a, b = 0.0, 0.0
    if not (a < b and math.isfinite(b - a)):
        raise GatelabError(f"{what} is {interval!r}; give two finite numbers (a, b) with a < b")
    return a, b
