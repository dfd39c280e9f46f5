"""Arrays of a run as bytes, in the form of a safetensors file: how they travel from a worker and lie in the store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError

from gatelab import tensors
from gatelab.errors import GatelabError

LARGEST = 990_000_000
"""Bytes of one run: SQLite keeps a value of up to 10^9 with what belongs to its row."""
REMEDY = "delete the record and compute the run again"


def pack(arrays: Mapping[str, np.ndarray] | bytes) -> bytes:
    """The bytes of these arrays; what is packed already stays as it is.

    >>> len(pack({"G": np.zeros(3)})) > 3 * 8
    True
    """
    if isinstance(arrays, bytes):
        _check_size(len(arrays))
        return arrays
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise GatelabError(f"array {name!r} is a {type(array).__name__}; give a numpy array (tensor.numpy())")
    _check_size(sum(array.nbytes for array in arrays.values()))
    try:
        return tensors.pack(arrays)
    except (SafetensorError, KeyError, TypeError) as error:
        kinds = ", ".join(f"{n}: {a.dtype}" for n, a in arrays.items())
        raise GatelabError(f"these arrays cannot be stored ({kinds}); give arrays of numbers or bools") from error


def _check_size(size: int) -> None:
    if size > LARGEST:
        raise GatelabError(f"these arrays have {size / 1e9:.2f} GB; a run may have {LARGEST / 1e9:.2f}, keep fewer")


def old_folder(store: Path) -> Path:
    """Where stores of the first two schemas kept arrays: a folder beside the file, with one file a run."""
    return store.with_name(f"{store.name}.arrays")


def read_old(folder: Path, key: str) -> bytes | None:
    """The bytes of one run in such a folder, None where it has none; an error where they are no arrays."""
    path = folder / f"{key}.safetensors"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise GatelabError(f"{path} cannot be read ({error.strerror or error}); {REMEDY}") from error
    tensors.unpack(content, str(path), REMEDY)
    return content
