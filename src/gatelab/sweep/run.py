"""`Run`: what to compute, as a value. `Record`: what came of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from gatelab.display import one_line
from gatelab.errors import GatelabError
from gatelab.sweep.plain import Plain, decode, encode

RunStatus = Literal["done", "failed"]
_TASK = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True, init=False)
class Run:
    """A function by its dotted name and the plain values it is called with, as keywords.

    Equal runs have equal keys, in every process and on every machine; see `gatelab.sweep.plain` for what is equal.

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
    """The arguments as canonical JSON: what is hashed, stored and sent to workers."""
    key: str = field(compare=False, repr=False)

    def __repr__(self) -> str:
        return one_line(self, f"{self.task} {self.text}")

    def __init__(self, task: str, arguments: Mapping[str, Plain] | None = None) -> None:
        if not isinstance(task, str) or not _TASK.fullmatch(task):
            raise GatelabError(
                f"the task is {task!r}; give the dotted name of a function, as 'package.module:function'"
            )
        if task.startswith("__main__:"):
            raise GatelabError(
                f"the task is {task!r}, which other processes cannot import; move the function into a module of its own"
            )
        if arguments is not None and not isinstance(arguments, Mapping):
            raise GatelabError(f"the arguments are a {type(arguments).__name__}; give a dict of names and plain values")
        self._set(task, encode(dict(arguments or {}), "arguments"))

    def _set(self, task: str, text: str, key: str | None = None) -> None:
        object.__setattr__(self, "task", task)
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "key", key or hashlib.sha256(f"{task}\n{text}".encode()).hexdigest()[:32])

    @classmethod
    def stored(cls, task: str, text: str, key: str | None = None) -> Run:
        """A run from text that is canonical already, as the store and the workers have it; nothing is checked."""
        run = cls.__new__(cls)
        run._set(task, text, key)
        return run

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments, made anew at each call: whoever changes them changes no run."""
        return decode(self.text)


@dataclass(frozen=True)
class Outcome:
    """What a task may return instead of a plain mapping of metrics: more than numbers.

    `arrays` (a fitted network's parameters, say) are kept in the store with the record and dropped without one; bytes
    that `gatelab.tensors.pack` made are kept as they are, with what they say of themselves.
    """

    metrics: Mapping[str, Plain]
    history: tuple[float, ...] = ()
    device: str = "cpu"
    arrays: Mapping[str, np.ndarray] | bytes | None = None

    def __repr__(self) -> str:
        return one_line(self, f"{', '.join(f'{k} {v}' for k, v in self.metrics.items())}")


@dataclass(frozen=True)
class Record:
    """One run and what came of it. A failed run is a record too: `error` holds its traceback or the limit it broke."""

    run: Run
    status: RunStatus
    metrics: Mapping[str, Plain] = field(default_factory=dict, hash=False)
    history: tuple[float, ...] = field(default=(), hash=False)
    error: str | None = None
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    device: str = "cpu"
    time: str = ""
    """When it ended: UTC, ISO 8601."""

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

    def row(self) -> dict[str, bool | int | float | str | None]:
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
