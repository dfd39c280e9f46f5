"""The types of arrays: numpy's, by what they hold; and fingerprints of what is in them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
AnyArray = np.ndarray  # of numbers, whole numbers or truths
Complex = NDArray[np.complex128]
Bytes = NDArray[np.uint8]
Tokens = NDArray[np.uint8 | np.uint16]


def fingerprint(parts: Iterable[str | bytes | AnyArray], digits: int) -> str:
    """A short name for some content: equal for equal texts, bytes and arrays in the same order, on every machine.

    Shapes and types of arrays are no part of it; give them as texts where they matter.

    >>> fingerprint(["x2", np.arange(3)], 12) == fingerprint([b"x2", np.arange(3).tobytes()], 12)
    True
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
