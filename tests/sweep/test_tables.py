"""Records as a table, and two sets of records side by side."""

from __future__ import annotations

import math

from gatelab.sweep import Record, Run
from gatelab.sweep.tables import RecordPair, compare_records, records_table


def record(width: int, unit: str = "glu", status: str = "done", **metrics: object) -> Record:
    return Record(Run("lab:fit", {"unit": unit, "width": width}), status, metrics)  # type: ignore[arg-type]


def test_the_same_runs_of_two_stores_are_paired_by_their_keys() -> None:
    first = [record(1, rmse=0.5), record(2, rmse=0.25)]
    second = [record(2, rmse=0.125), record(3, rmse=0.1)]
    comparison = compare_records(first, second)
    assert [pair.differing() for pair in comparison.pairs] == [["rmse"]]
    assert comparison.pairs[0].plain()["metrics"] == [{"rmse": 0.25}, {"rmse": 0.125}]
    assert comparison.only_first == (first[0],) and comparison.only_second == (second[1],)


def test_runs_of_two_units_are_paired_by_all_else() -> None:
    comparison = compare_records([record(1), record(2)], [record(2, "mlp")], ignoring="unit")
    assert [pair.second.arguments["unit"] for pair in comparison.pairs] == ["mlp"]
    assert [r.arguments["width"] for r in comparison.only_first] == [1] and comparison.only_second == ()


def test_nan_is_nan_and_a_failure_is_an_outcome() -> None:
    assert RecordPair(record(1, rmse=math.nan), record(1, rmse=math.nan)).differing() == []
    assert RecordPair(record(1, rmse=math.nan), record(1, rmse=0.5)).differing() == ["rmse"]
    assert RecordPair(record(1), record(1, steps=3)).differing() == ["steps"]
    assert RecordPair(record(1), record(1, status="failed")).differing() == ["outcome"]


def test_columns_keep_their_type_where_some_records_lack_them() -> None:
    table = records_table([record(1, rmse=0.5, fine=True, name=1), record(2, steps=7, name="x")])
    assert str(table["metric.fine"].dtype) == "boolean" and str(table["metric.steps"].dtype) == "Int64"
    assert table["metric.rmse"].dtype == float and list(table["metric.name"]) == ["1", "x"]
    assert list(records_table([]).columns) == ["key", "task", "status"]
