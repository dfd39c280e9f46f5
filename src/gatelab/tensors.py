"""Safetensors files of arrays with plain values.

The plain values are JSON text under the key `gatelab.KIND` of the metadata, where KIND is the type of the saved object.
Reading a file never executes code; a pickle is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import SafetensorError, safe_open

from gatelab.display import Compact
from gatelab.errors import GatelabError
from gatelab.files import write_whole

_PREFIX = "gatelab."
_PICKLES = (b"PK\x03\x04", b"\x80")  # the first bytes of files of torch.save and of pickle


@dataclass(frozen=True, eq=False)
class Content(Compact):
    """The content of a file: arrays by name, the type of the saved object (empty if unknown) and the plain values."""

    arrays: dict[str, Any]
    kind: str
    facts: dict[str, Any]


def pack(arrays: Mapping[str, Any], kind: str = "", facts: Mapping[str, Any] | None = None) -> bytes:
    """The bytes of a file with these arrays, of numpy or torch, and these plain values."""
    about = None
    if kind:
        about = {f"{_PREFIX}{kind}": json.dumps(facts or {}, default=_item)}
    if any(isinstance(a, np.ndarray) for a in arrays.values()) or not arrays:
        from safetensors.numpy import save

        # save() reads the memory in order: transposed views must be copied first.
        return save({name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}, metadata=about)
    from safetensors.torch import save as save_tensors

    # Copies, since two views of the same memory cannot be stored.
    copies = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in arrays.items()}
    return save_tensors(copies, metadata=about)


def write_packed(path: str | Path, content: bytes) -> Path:
    """Write the whole file and flush it to the disk, so that it survives a power cut."""

    def put(part: Path) -> None:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    return write_whole(path, put)


def unpack(content: bytes, name: str, remedy: str) -> dict[str, np.ndarray]:
    """The arrays in the bytes of such a file; `name` and `remedy` are for the error message."""
    from safetensors.numpy import load

    try:
        return load(content)
    # KeyError: types that numpy does not have.
    except (KeyError, SafetensorError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise GatelabError(f"{name} cannot be read (incomplete safetensors file: {reason}); {remedy}") from error


def kind_of(path: str | Path, remedy: str) -> str:
    """The type of the saved object, empty if gatelab did not write the file; its arrays are not read."""
    return read(path, remedy, with_arrays=False).kind


def read(
    path: str | Path, remedy: str, framework: Literal["numpy", "pt"] = "numpy", *, with_arrays: bool = True
) -> Content:
    """The content of a file, with arrays of numpy or tensors of torch; `remedy` is for the error message.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_packed(Path(folder) / "a", pack({"G": np.ones(2)}, "Fit", {"width": 2}))
    ...     content = read(file, "save it again")
    >>> content.kind, content.facts, content.arrays["G"]
    ('Fit', {'width': 2}, array([1., 1.]))
    """
    path = Path(path)
    if not path.is_file():
        raise GatelabError(f"there is no file {path}; {remedy}")
    try:
        with safe_open(path, framework=framework) as file:
            about = file.metadata() or {}
            names = file.keys() if with_arrays else ()
            arrays = {name: file.get_tensor(name) for name in names}
        key = next((key for key in about if key.startswith(_PREFIX)), "")
        facts = json.loads(about.get(key, "{}"))
        if not isinstance(facts, dict):
            raise ValueError(f"its metadata are {facts!r} instead of names with values")
    # TypeError and AttributeError: types that numpy does not have.
    except (AttributeError, OSError, SafetensorError, TypeError, ValueError) as error:
        raise GatelabError(f"{path} cannot be read ({_reason(path, error)}); {remedy}") from error
    return Content(arrays, key.removeprefix(_PREFIX), facts)


def _reason(path: Path, error: Exception) -> str:
    try:
        with path.open("rb") as file:
            beginning = file.read(4)
    except OSError as unreadable:
        return str(unreadable.strerror or unreadable)
    if beginning.startswith(_PICKLES):
        return "it looks like a pickle, which can execute code and is never loaded"
    return f"incomplete safetensors file: {' '.join(str(error).split())}"


def check_format(path: str | Path, facts: Mapping[str, Any], known: int) -> None:
    """Refuse files of a newer gatelab, and unknown formats."""
    if (number := facts.get("format")) != known:
        raise GatelabError(
            f"{path} is damaged or was written by another version of gatelab (format {number!r}; this one reads"
            f" {known}); update gatelab, or save it again"
        )


def check_finite(path: str | Path, arrays: Mapping[str, Any], remedy: str) -> None:
    """Refuse arrays with NaN or infinite values."""
    for name, array in arrays.items():
        values = np.asarray(array)
        if values.dtype.kind == "f" and (bad := int((~np.isfinite(values)).sum())):
            raise GatelabError(f"{path}: {bad} of {values.size} values of {name} are NaN or infinite; {remedy}")


def _item(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise GatelabError(f"{value!r} cannot be saved; give parameters that are numbers or text")
