"""Conversion of frozen dataclasses to JSON values and back, for results in files."""

from __future__ import annotations

import enum
import math
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import PurePath
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from gatelab.errors import GatelabError

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """A value in JSON's types: dataclasses as objects, arrays as lists, NaN and infinity as null.

    Fields that are hidden from the repr (caches, data) are left out; the properties that a class names in `PROPERTIES`
    are added.

    >>> from gatelab.statistics import Interval
    >>> to_plain({"slope": Interval(-2.1, -2.25, float("nan"))})
    {'slope': {'value': -2.1, 'low': -2.25, 'high': None, 'level': 0.95}}
    """
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "detach"):
        return to_plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | str | float | int):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.repr]
        return {name: to_plain(getattr(value, name)) for name in (*names, *getattr(value, "PROPERTIES", ()))}
    if isinstance(value, Mapping):
        return {str(name): to_plain(part) for name, part in value.items()}
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Iterable):
        return [to_plain(part) for part in value]
    raise TypeError(f"{type(value).__name__} has no counterpart in JSON")


def from_plain(kind: type[T], values: Any, what: str = "") -> T:
    """The value of type `kind` that `to_plain` has written, restored by the annotations of the class.

    Null is NaN where a float is expected. Fields with defaults may be missing, and unknown names are ignored. Other
    mismatches raise a `GatelabError` that names `what`.

    >>> from gatelab.statistics import Interval
    >>> from_plain(Interval, {"value": -2.1, "low": -2.25, "high": None})
    Interval(value=-2.1, low=-2.25, high=nan, level=0.95)
    """
    try:
        return _restored(kind, values)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise GatelabError(f"{what or kind.__name__} cannot be read: {error}") from error


def _restored(kind: Any, values: Any) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if values is None and type(None) in args:
            return None
        return _first_fit([part for part in args if part is not type(None)], values)
    if origin is Literal:
        if values not in args:
            raise ValueError(f"{values!r} is not one of {', '.join(map(repr, args))}")
        return values
    if origin is np.ndarray or kind is np.ndarray:
        dtype = get_args(args[1])[0] if args else np.float64
        return np.array(values, dtype=dtype)  # None becomes NaN
    if origin is tuple and args[-1:] != (...,):
        return tuple(_restored(part, value) for part, value in zip(args, values, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {_restored(args[0], name): _restored(args[1], value) for name, value in values.items()}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        parts = (_restored(args[0], value) for value in values)
        return list(parts) if origin is list else tuple(parts)
    if is_dataclass(kind):
        hints, parts = get_type_hints(kind), {}
        for field in fields(kind):
            if field.init and field.name in values:
                parts[field.name] = _restored(hints[field.name], values[field.name])
            elif field.init and field.default is MISSING and field.default_factory is MISSING:
                raise KeyError(f"{field.name} is missing")
        make: Any = kind
        return make(**parts)
    if kind is float:
        return math.nan if values is None else float(values)
    if kind is bool or kind is str or kind is int:
        if type(values) is not kind:
            raise TypeError(f"{values!r} is not of type {kind.__name__}")
        return values
    if isinstance(kind, type) and issubclass(kind, enum.Enum | PurePath):
        return kind(values)
    return values


def _first_fit(kinds: Sequence[Any], values: Any) -> Any:
    """The value as the first of the kinds that it can be."""
    for kind in kinds[:-1]:
        try:
            return _restored(kind, values)
        except (TypeError, ValueError, KeyError, AttributeError):
            continue
    return _restored(kinds[-1], values)
