"""Frozen dataclasses as JSON values and back."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gatelab.arrays import Array, check_interval, finite_array
from gatelab.errors import GatelabError, real_number
from gatelab.plain import from_plain, to_plain
from gatelab.statistics import Interval


class Color(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    name: str
    slope: Interval
    share: float = 1.0


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    errors: Array
    counts: NDArray[np.int64]
    by_unit: dict[str, list[float]]
    pair: tuple[int, str]
    file: Path
    color: Color
    kind: Literal["a", "b"] = "a"
    limit: float | None = None
    either: int | str = 3
    cache: dict[str, Any] = field(default_factory=dict, repr=False)
    PROPERTIES: ClassVar[tuple[str, ...]] = ("total",)

    @property
    def total(self) -> float:
        return float(self.errors[np.isfinite(self.errors)].sum())


WHOLE = Whole(
    parts=(Part("glu", Interval(-2.0, -math.inf, math.nan)),),
    errors=np.array([[1.0, math.nan], [0.5, 0.25]]),
    counts=np.array([1, 2]),
    by_unit={"mlp": [1.0, 2.0]},
    pair=(1, "x"),
    file=Path("a/b.csv"),
    color=Color.RED,
    either="three",
    cache={"not": "written"},
)


def test_a_dataclass_survives_json() -> None:
    text = json.dumps(to_plain(WHOLE), allow_nan=False)
    again = from_plain(Whole, json.loads(text))
    assert again.parts[0].slope.value == -2 and math.isnan(again.parts[0].slope.low)
    np.testing.assert_array_equal(again.errors, WHOLE.errors)
    assert again.counts.dtype == np.int64 and again.limit is None and again.cache == {}
    assert (again.by_unit, again.pair, again.file, again.color, again.either) == (
        WHOLE.by_unit,
        WHOLE.pair,
        WHOLE.file,
        WHOLE.color,
        "three",
    )
    assert json.loads(text)["total"] == 1.75
    assert "cache" not in json.loads(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "c"}, "'c' is not one of"),
        ({"pair": [1]}, "cannot be read"),
        ({"pair": ["1", "x"]}, "'1' is not of type int"),
        ({"parts": [{"name": "glu"}]}, "slope is missing"),
        ({"color": "blue"}, "blue"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(GatelabError, match=message):
        from_plain(Whole, to_plain(WHOLE) | change, "the file x.json")


def test_tensors_and_foreign_values() -> None:
    assert to_plain({"t": torch.tensor([1.0, math.nan]), 3: np.float32(0.5)}) == {"t": [1.0, None], "3": 0.5}
    with pytest.raises(TypeError, match="object"):
        to_plain(object())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, math.inf], "0 NaN and 1 infinite"),
        ([[1, 2], [3]], "cannot be read as real numbers"),
        ([1j], "complex"),
        (["a"], "cannot be read as real numbers"),
        ([10**400], "cannot be read as real numbers"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "datetime64"),
        (torch.tensor([1j]), "cannot be read"),
        (None, "y is None; give a numeric array"),
        (np.ma.masked_equal([1, 2], 2), "1 masked"),
        ([[1.0]], r"shape \(1, 1\); give 1 dimension"),
    ],
)
def test_arrays_that_are_no_numbers_are_refused(values: Any, message: str) -> None:
    with pytest.raises(GatelabError, match=message):
        finite_array("y", values, ndim=1)


def test_arrays_of_every_kind() -> None:
    for values in ([1, 2], (True, 2), np.array([1, 2], dtype=object), torch.tensor([1.0, 2], dtype=torch.bfloat16)):
        array = finite_array("y", values, ndim=1)
        assert array.dtype == np.float64 and array.tolist() == [1.0, 2.0]
    assert finite_array("y", torch.tensor([1.0], requires_grad=True)).tolist() == [1.0]


@pytest.mark.parametrize("interval", [(1, 0), (0, 0), (0, math.inf), "ab", 3, (1, 2, 3), (-1e308, 1e308)])
def test_intervals_that_are_none(interval: Any) -> None:
    with pytest.raises(GatelabError, match="give two finite numbers"):
        check_interval(interval)


@pytest.mark.parametrize("value", [True, "1", None, math.nan, 0, 2.5, math.inf])
def test_numbers_outside(value: Any) -> None:
    with pytest.raises(GatelabError, match=r"rate is .*; give a number above 0 and at most 2"):
        real_number("rate", value, above=0, most=2)
