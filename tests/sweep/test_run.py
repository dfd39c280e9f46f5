"""Keys that mean the same everywhere, and values that are plain or refused by name."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import pickle
import random
from typing import Any

import numpy as np
import pytest

from gatelab import GatelabError
from gatelab.sweep import Record, Run
from gatelab.sweep.run import decode, encode, records_table

# Keys as they were when the first records were stored. A change here orphans every store there is.
PINNED: list[tuple[str, dict[str, Any], str]] = [
    ("lab:fit", {}, "408182362bab73942649425ac31d4ab1"),
    ("lab:fit", {"unit": "glu", "width": 8, "seed": 0}, "618f1a47a4b823fb8de5a417686792f9"),
    ("lab:fit", {"width": 8.0}, "65c687f1fd77ce50e995a38ad2e1c9c4"),
    (
        "lab:fit",
        {"x": [0.1, 1e-300, 1e22, -0.0, float("inf"), float("nan")], "é": "ﬁ Å \U0001f600\ud800"},
        "90954e847160038b9e9b96101908e580",
    ),
    ("lab.deep:Class.fit", {"a": {"b": [None, True, {"c": 2**80}]}}, "25b79cce55685ac0d68f2ea441042664"),
]


@pytest.mark.parametrize(("task", "arguments", "key"), PINNED)
def test_key_is_what_it_always_was(task: str, arguments: dict[str, Any], key: str) -> None:
    assert Run(task, arguments).key == key


def test_what_is_the_same_run_and_what_is_not() -> None:
    def key(value: object) -> str:
        return Run("lab:fit", {"x": value}).key

    same: list[tuple[object, object]] = [((1, 2), [1, 2]), (0.0, -0.0), ("\u00e9", "e\u0301"), (np.float64(0.1), 0.1)]
    same += [(np.int32(3), 3), (np.bool_(True), True), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (math.nan, -math.nan)]
    different: list[tuple[object, object]] = [(1, 1.0), (1, True), (0, False), (None, "None"), ("1", 1), ([], {})]
    different += [(math.inf, -math.inf), (math.nan, None), (0.1, math.nextafter(0.1, 1)), ([1, [2]], [[1], 2])]
    assert [pair for pair in same if key(pair[0]) != key(pair[1])] == []
    assert [pair for pair in different if key(pair[0]) == key(pair[1])] == []
    assert Run("lab:fit", {"x": 1}).key != Run("lab:fi", {"x": 1}).key


def _random_value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(8 if depth else 6)
    if kind == 6:
        return tuple(_random_value(rng, depth - 1) for _ in range(rng.randrange(4)))
    if kind == 7:
        return {f"k{rng.randrange(99)}": _random_value(rng, depth - 1) for _ in range(rng.randrange(4))}
    floats = rng.choice([rng.uniform(-1, 1) * 10 ** rng.randrange(-300, 300), float("-inf"), 5e-324, 0.0])
    return [None, rng.random() < 0.5, rng.getrandbits(70) - 2**69, floats, rng.choice("aé\ud800\0"), "$text"][kind]


def test_text_reads_back_and_is_strict_json() -> None:
    rng = random.Random(0)
    for _ in range(500):
        value = {"v": _random_value(rng, 3)}
        text = encode(value)
        assert decode(text) == value and encode(decode(text)) == text
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        assert text.isascii()


class Color(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"a": {"b": [1, {2}]}}, r"arguments\.a\.b\[1\] is \{2\} \(set\)"),
        ({"f": abs}, r"arguments\.f is .*builtin_function"),
        ({"c": Color.RED}, r"arguments\.c .*Color"),
        ({"a": {1: 2}}, r"arguments\.a has the key 1 \(int\)"),
        ({"a": {"$float": "1"}}, r"arguments\.a has the key '\$float'"),
        ([1], "the arguments are a list"),
    ],
)
def test_what_is_not_plain_is_refused_by_its_path(arguments: Any, path: str) -> None:
    with pytest.raises(GatelabError, match=path):
        Run("lab:fit", arguments)


@pytest.mark.parametrize(
    "task", ["fit", "lab.fit", "lab:", ":fit", "lab:fit()", "a b:c", "__main__:fit", 3, "lab:fit\n"]
)
def test_task_names(task: Any) -> None:
    with pytest.raises(GatelabError, match="the task is"):
        Run(task)


def test_runs_are_values() -> None:
    given = {"widths": [1, 2]}
    run = Run("lab:fit", given)
    given["widths"].append(3)
    run.arguments["more"] = 1
    assert run.arguments == {"widths": (1, 2)}
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.task = "lab:other"  # pyright: ignore[reportAttributeAccessIssue]
    assert {run, Run("lab:fit", {"widths": (1, 2)})} == {run}
    copy = pickle.loads(pickle.dumps(run))
    assert copy == run and copy.key == run.key and hash(copy) == hash(run)


# Records as a table


def record(width: int, unit: str = "glu", status: str = "done", **metrics: object) -> Record:
    return Record(Run("lab:fit", {"unit": unit, "width": width}), status, metrics)  # type: ignore[arg-type]


def test_columns_keep_their_type_where_some_records_lack_them() -> None:
    table = records_table([record(1, rmse=0.5, fine=True, name=1), record(2, steps=7, name="x")])
    assert str(table["metric.fine"].dtype) == "boolean" and str(table["metric.steps"].dtype) == "Int64"
    assert table["metric.rmse"].dtype == float and list(table["metric.name"]) == ["1", "x"]
    assert list(records_table([]).columns) == ["key", "task", "status"]
