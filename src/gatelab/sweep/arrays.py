"""Arrays beside the store: one safetensors file a run, whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError

from gatelab import tensors
from gatelab.errors import GatelabError

_KEY = re.compile(r"[0-9a-f]{32}")


def arrays_path(folder: Path, key: str) -> Path:
    """Where a run's arrays are."""
    if not _KEY.fullmatch(key):
        raise GatelabError(f"the key is {key!r}; give the 32 hexadecimal digits of Run.key")
    return folder / f"{key}.safetensors"


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The content of the file, which is also how arrays travel from a worker to the one who writes.

    >>> len(pack({"G": np.zeros(3)})) > 3 * 8
    True
    """
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise GatelabError(f"array {name!r} is a {type(array).__name__}; give a numpy array (tensor.numpy())")
    try:
        return tensors.pack(arrays)
    except (SafetensorError, KeyError, TypeError) as error:
        kinds = ", ".join(f"{n}: {a.dtype}" for n, a in arrays.items())
        raise GatelabError(f"these arrays cannot be stored ({kinds}); give arrays of numbers or bools") from error


def write_arrays(path: Path, content: bytes) -> Path:
    """Write all or nothing, and to the disk: a record that is kept must not point at a file that was lost."""
    return tensors.write_packed(path, content)


def read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays, or None where none were stored."""
    if not path.exists():
        return None
    return tensors.read(path, "delete it and compute the run again").arrays
