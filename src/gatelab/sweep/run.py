"""`Run`, a function and its arguments, and `Record`, its result. Plain values and their canonical text.

Plain values are None, bool, int, float, str, lists and tuples of plain values, and dicts of them with str keys. Their
text is strict JSON in ASCII without spaces, with sorted keys, strings in Unicode's form NFC, and floats as the shortest
digits that read back to the same bits, so that its hash is the same on every machine. 3 and 3.0 differ, -0.0 becomes
0.0, and NaN becomes `{"$float":"nan"}`.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gatelab.arrays import fingerprint
from gatelab.display import Compact, one_line, shorten
from gatelab.errors import GatelabError

if TYPE_CHECKING:
    import pandas as pd

Plain = Any  # None | bool | int | float | str | Sequence[Plain] | Mapping[str, Plain]: checked when it is encoded
_dumps = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def encode(value: Plain, name: str = "value") -> str:
    """The canonical text of a plain value; `name` is its name in error messages.

    >>> encode({"width": 8, "rate": 1e-3, "units": ("glu", None)})
    '{"rate":0.001,"units":["glu",null],"width":8}'
    >>> encode(float("nan")), encode(-0.0), encode(3) == encode(3.0)
    ('{"$float":"nan"}', '0.0', False)
    """
    return _dumps(_canonical(value, name))


def decode(text: str) -> Plain:
    """The value of a canonical text; sequences become tuples."""
    return _restore(json.loads(text))


def _canonical(value: Plain, path: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    # Exact types: an Enum that is also a str would come back as a str.
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is str:
        return unicodedata.normalize("NFC", value)
    if kind is float:
        return value + 0.0 if math.isfinite(value) else {"$float": repr(value)}
    if kind is list or kind is tuple:
        return [_canonical(v, f"{path}[{i}]") for i, v in enumerate(value)]
    if not isinstance(value, Mapping):
        raise GatelabError(
            f"{path} is {shorten(repr(value), 60)} ({kind.__name__}), which is not a plain value; give None, bool, "
            "int, float, str, or lists and dicts of them"
        )
    result: dict[str, Any] = {}
    for key, v in value.items():
        if type(key) is not str or key.startswith("$"):
            raise GatelabError(
                f"{path} has the key {shorten(repr(key), 60)} ({type(key).__name__}); keys must be str, and those that "
                "begin with $ are reserved"
            )
        name = unicodedata.normalize("NFC", key)
        result[name] = _canonical(v, f"{path}.{name}")
    return result


def _restore(value: Any) -> Plain:
    if isinstance(value, list):
        return tuple(_restore(v) for v in value)
    if isinstance(value, dict):
        if "$float" in value:
            return float(value["$float"])
        return {k: _restore(v) for k, v in value.items()}
    return value


RunStatus = Literal["done", "failed"]
_TASK = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True, init=False)
class Run:
    """A function by its dotted name, `task`, and its keyword arguments, which are plain values.

    Equal runs have equal keys, in every process and on every machine; `gatelab.sweep.run` defines equality.

    >>> run = Run("math:hypot", {"width": 8, "unit": "glu"})
    >>> run.key
    '321b368a869f54f8960a1badcb28244f'
    >>> run == Run("math:hypot", {"unit": "glu", "width": 8}), run == Run("math:hypot", {"unit": "glu", "width": 8.0})
    (True, False)
    >>> run.arguments
    {'unit': 'glu', 'width': 8}
    """

    task: str
    text: str
    """The arguments as canonical JSON, which is hashed, stored and sent to workers."""
    key: str = field(compare=False, repr=False)
    settings: Mapping[str, Any] = field(compare=False, repr=False)
    """Further keywords, such as the device, that do not change the result: neither hashed nor stored."""

    def __repr__(self) -> str:
        return one_line(self, f"{self.task} {self.text}")

    def __init__(
        self, task: str, arguments: Mapping[str, Plain] | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        if not isinstance(task, str) or not _TASK.fullmatch(task):
            raise GatelabError(
                f"the task is {task!r}; give the dotted name of a function, as 'package.module:function'"
            )
        if task.startswith("__main__:"):
            raise GatelabError(
                f"the task is {task!r}, which other processes cannot import; move the function into a module"
            )
        if arguments is not None and not isinstance(arguments, Mapping):
            raise GatelabError(f"the arguments are a {type(arguments).__name__}; give a dict of names and plain values")
        text = encode(dict(arguments or {}), "arguments")
        key = fingerprint([f"{task}\n{text}"], 32)
        self.__dict__.update(task=task, text=text, key=key, settings=dict(settings or {}))

    @classmethod
    def stored(cls, task: str, text: str, key: str) -> Run:
        """A run from canonical text, without checks."""
        run = cls.__new__(cls)
        run.__dict__.update(task=task, text=text, key=key, settings={})
        return run

    @property
    def arguments(self) -> dict[str, Any]:
        """A new dict of the arguments at each call."""
        return decode(self.text)


@dataclass(frozen=True)
class RunOutcome(Compact):
    """A task's result with more than metrics: a history, such as losses, and arrays for the store, such as parameters.

    Arrays may be bytes made by `gatelab.tensors.pack`.
    """

    metrics: Mapping[str, Plain]
    history: tuple[float, ...] = ()
    device: str = "cpu"
    arrays: Mapping[str, np.ndarray] | bytes | None = None


@dataclass(frozen=True)
class Record:
    """A run and its result. A failed run has a record too, with its traceback; `versions` includes torch and Python."""

    run: Run
    status: RunStatus
    metrics: Mapping[str, Plain] = field(default_factory=dict, hash=False)
    history: tuple[float, ...] = field(default=(), hash=False)
    error: str | None = None
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    device: str = "cpu"
    time: str = ""
    """The time of its end: UTC, ISO 8601."""

    def __repr__(self) -> str:
        return one_line(self, f"{self.task}, {self.status} in {self.seconds:.2g} s")

    @property
    def key(self) -> str:
        return self.run.key

    @property
    def task(self) -> str:
        return self.run.task

    @property
    def arguments(self) -> dict[str, Any]:
        return self.run.arguments

    @property
    def ok(self) -> bool:
        return self.status == "done"

    def row(self) -> dict[str, Any]:
        """A flat row for tables: `argument.*` and `metric.*` with nested names joined by dots, sequences as JSON.

        >>> Record(Run("math:hypot", {"net": {"width": 8}}), "done", {"rmse": 0.5}).row()["argument.net.width"]
        8
        """
        return {
            "key": self.key,
            "task": self.task,
            "status": self.status,
            **_flat("argument", self.arguments),
            **_flat("metric", self.metrics),
            "seconds": self.seconds,
            "device": self.device,
            "time": self.time,
            **_flat("version", self.versions),
            "error": self.error,
        }


def _flat(prefix: str, values: Mapping[str, Plain]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            row |= _flat(f"{prefix}.{name}", value)
        elif isinstance(value, list | tuple):
            row[f"{prefix}.{name}"] = encode(value)
        else:
            row[f"{prefix}.{name}"] = value
    return row


def records_table(records: Iterable[Record]) -> pd.DataFrame:
    """A table with the columns of `Record.row`, which keep their types; those of several types become text."""
    import pandas as pd

    rows = [record.row() for record in records]
    names = dict.fromkeys(name for row in rows for name in row) or ("key", "task", "status")
    return pd.DataFrame({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> Any:
    import pandas as pd

    kinds = {type(v) for v in values if v is not None}
    if kinds == {bool}:
        return pd.array(values, dtype="boolean")
    if kinds == {int} and all(v is None or v.bit_length() < 64 for v in values):
        return pd.array(values, dtype="Int64")
    if float in kinds and kinds <= {int, float}:
        return [math.nan if v is None else float(v) for v in values]
    return pd.array([None if v is None else str(v) for v in values], dtype="string")
