"""Plain values and the one text that stands for each of them.

Plain are None, bool, int, float, str, lists and tuples of plain values, and dicts of them with str keys. `encode` gives
the canonical text: strict JSON in ASCII without spaces, keys sorted, strings in Unicode's form NFC, floats as the
shortest digits that read back to the same bits. It depends on nothing but the value, so a hash of it is the same in
every process, on every machine and under every version of Python.

Three choices are ours. 3 and 3.0 differ, since a function may treat them differently. -0.0 is 0.0, since nobody who
swept over a sign meant that one. JSON has no NaN and no infinity: they become `{"$float":"nan"}`, and names that begin
with a dollar are kept for this.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np

from gatelab.errors import GatelabError

Plain = Any  # None | bool | int | float | str | Sequence[Plain] | Mapping[str, Plain]: checked when it is encoded
_BITS = 1024  # beyond, Python's own limit on the digits of an int comes near
_DEPTH = 50
_dumps = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def encode(value: Plain, name: str = "value") -> str:
    """The canonical text of a plain value; `name` is what the error calls it.

    >>> encode({"width": 8, "rate": 1e-3, "units": ("glu", None)})
    '{"rate":0.001,"units":["glu",null],"width":8}'
    >>> encode(float("nan")), encode(-0.0), encode(3) == encode(3.0)
    ('{"$float":"nan"}', '0.0', False)
    >>> encode({"units": ["glu", {1, 2}]}, "arguments")
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: arguments.units[1] is {1, 2} (set), which is not a plain value; give None, bool, int,
    float, str, or lists and dicts of them
    """
    return _dumps(_canonical(value, name, 0))


def decode(text: str) -> Plain:
    """The value that a canonical text stands for; sequences come back as tuples, so that nothing in it is shared.

    >>> decode(encode({"a": [1, float("inf")]}))
    {'a': (1, inf)}
    """
    return _restore(json.loads(text))


def _canonical(value: Plain, path: str, depth: int) -> Any:
    if depth > _DEPTH:
        raise GatelabError(f"{path} is nested more than {_DEPTH} levels deep (or contains itself); give flatter values")
    if isinstance(value, np.generic):
        value = value.item()
    # Exact types: an Enum that is also a str would be stored as one thing and handed back as another.
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return unicodedata.normalize("NFC", value)
    if kind is float:
        return value + 0.0 if math.isfinite(value) else {"$float": repr(value)}
    if kind is int:
        if value.bit_length() > _BITS:
            raise GatelabError(f"{path} is an integer of {value.bit_length()} bits; give at most {_BITS}, or a str")
        return value
    if kind is list or kind is tuple:
        return [_canonical(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
    if isinstance(value, Mapping):
        return _canonical_mapping(value, path, depth)
    raise GatelabError(
        f"{path} is {_short(value)} ({kind.__name__}), which is not a plain value; give None, bool, int, float, str, "
        "or lists and dicts of them"
    )


def _canonical_mapping(value: Mapping[Any, Plain], path: str, depth: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, v in value.items():
        if type(key) is not str:
            raise GatelabError(f"{path} has the key {_short(key)} ({type(key).__name__}); keys must be str")
        name = unicodedata.normalize("NFC", key)
        if name.startswith("$"):
            raise GatelabError(f"{path} has the key {key!r}; names that begin with $ are reserved, choose another")
        if name in result:
            raise GatelabError(f"{path} has the key {key!r} twice, in two spellings of one Unicode text; keep one")
        result[name] = _canonical(v, f"{path}.{name}", depth + 1)
    return result


def _restore(value: Any) -> Plain:
    if isinstance(value, list):
        return tuple(_restore(v) for v in value)
    if isinstance(value, dict):
        if "$float" in value:
            return float(value["$float"])
        return {k: _restore(v) for k, v in value.items()}
    return value


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # a class whose repr fails must not hide what we have to say about it
        text = object.__repr__(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."
