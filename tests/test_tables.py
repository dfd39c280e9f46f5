"""The benchmark on tables: sets and their facts, and the record that goes on."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression

from gatelab.errors import GatelabError

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import datasets, tables  # noqa: E402
from benchmarks.datasets import CLASSES, REGRESSION, DataSet, Facts, facts_of, load, source  # noqa: E402
from benchmarks.estimators import Method, as_numbers  # noqa: E402
from benchmarks.tables import Record, complete, key_of, splits  # noqa: E402

SHIPPED = [s for s in (*REGRESSION, *CLASSES) if s.package == "scikit-learn"]
DIABETES = next(s for s in REGRESSION if s.name == "diabetes")
IRIS = next(s for s in CLASSES if s.name == "iris")


# Sets.


@pytest.mark.parametrize("dataset", SHIPPED, ids=lambda s: s.name)
def test_what_scikit_learn_ships_has_the_facts_of_its_record(dataset: DataSet) -> None:
    assert dataset.development
    table = load(dataset)
    assert table.X.shape == (dataset.rows, dataset.facts.columns)
    assert len(table.y) == dataset.rows


def test_another_version_of_a_set_is_noticed() -> None:
    with pytest.raises(GatelabError, match=r"diabetes has .*442.* says .*441"):
        load(replace(DIABETES, facts=DIABETES.facts._replace(rows=441)))
    with pytest.raises(GatelabError, match="another version"):
        load(replace(DIABETES, facts=DIABETES.facts._replace(mean=152.2)))


@pytest.fixture
def mixed(monkeypatch: pytest.MonkeyPatch) -> DataSet:
    """A set with names, numbers that are names, missing values, rows without a target and a column to leave out."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "number": draw.standard_normal(60) / 3,
            "name": draw.choice(["a", "b b", 'c "c", c'], 60),
            "code": draw.integers(0, 4, 60),
            "count": draw.integers(0, 9, 60),
            "row": np.arange(60),
            "y": draw.standard_normal(60),
        }
    )
    frame.loc[3:5, "number"] = np.nan
    frame.loc[5:8, "name"] = None
    frame.loc[10, "y"] = np.nan
    monkeypatch.setitem(datasets.READERS, "made", lambda _: frame)
    columns: dict[str, Any] = {"dropped": ("row",), "categories": ("code",), "most": 40}
    blank = DataSet("mixed", "regression", "made", "made", "y", Facts(0, 0, 0, 0, 0.0), **columns)
    dataset = replace(blank, facts=facts_of(blank, source(blank)))
    assert (dataset.facts.rows, dataset.facts.columns, dataset.facts.categories, dataset.facts.missing) == (59, 4, 2, 7)
    return dataset


def test_a_table_is_the_same_from_its_export(mixed: DataSet, tmp_path: Path) -> None:
    sets = [mixed, DIABETES, IRIS]
    assert len(datasets.export(tmp_path, sets)) == 3
    for dataset in sets:
        here, there = load(dataset), load(dataset, str(tmp_path))
        pd.testing.assert_frame_equal(here.X, there.X, check_exact=True)
        np.testing.assert_array_equal(here.y, there.y)
    assert len(load(mixed).y) == 40
    assert list(load(mixed).X.dtypes.astype(str)) == ["float64", "category", "category", "float64"]


def test_parts_test_every_row_once_and_classes_alike() -> None:
    table = load(IRIS)
    parts = splits(table)
    assert sorted(np.concatenate([test for _, test in parts])) == list(range(150))
    assert all(set(train).isdisjoint(test) for train, test in parts)
    shares = [np.bincount(table.y[test]) / len(test) for _, test in parts]
    np.testing.assert_allclose(shares, 1 / 3, atol=0.02)


def test_numbers_are_made_of_names_and_of_what_is_missing(mixed: DataSet) -> None:
    table = load(mixed)
    few = table.X.iloc[:20]
    model = as_numbers(LinearRegression()).fit(few, table.y[:20])
    stranger = table.X.iloc[20:].copy()
    stranger["code"] = pd.Categorical(["nine"] * len(stranger))
    assert np.isfinite(model.predict(stranger)).all()


# The record.


def counted_method(calls: list[int], name: str = "mean", settings: str = "", stop_after: int = 99) -> Method:
    def make() -> Any:
        calls.append(1)
        if len(calls) > stop_after:
            raise KeyboardInterrupt
        return as_numbers(DummyRegressor())

    return Method(name, "scikit-learn", settings, make)


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    path, calls = tmp_path / "record.json", []
    with pytest.raises(KeyboardInterrupt):
        complete(Record(path), [DIABETES], [counted_method(calls, stop_after=2)])
    assert len(Record(path).entries) == 2
    assert complete(Record(path), [DIABETES], [counted_method(calls)]) == 1
    assert complete(Record(path), [DIABETES], [counted_method(calls)]) == 0
    assert len(calls) == 4
    entry = Record(path).entries[key_of({"set": "diabetes", "method": "mean", "split": 1, "seed": tables.SPLIT_SEED})]
    table = load(DIABETES)
    train, test = splits(table)[1]
    assert entry["rmse"] == pytest.approx(np.sqrt(np.mean((table.y[test] - table.y[train].mean()) ** 2)))
    assert entry["cpu_s"] >= 0 and (entry["train"], entry["test"]) == (len(train), len(test))


def test_other_settings_and_failures_are_done_again(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json")
    complete(record, [DIABETES], [counted_method([])])
    assert complete(record, [DIABETES], [counted_method([], settings="another")]) == 3

    def failing() -> Any:
        return as_numbers(DummyRegressor(strategy="no such"))

    broken = Method("broken", "scikit-learn", "", failing)
    assert complete(record, [DIABETES], [broken]) == 3
    assert complete(record, [DIABETES], [broken]) == 3
    assert list(tables.errors(record, "regression")[1][0]) == ["set", "mean"]


def test_errors_are_over_the_least_of_the_set_and_of_the_latest_code() -> None:
    record = Record("none.json")
    for method, error, version in (("ridge", 2.0, "1"), ("gated", 9.0, "former"), ("gated", 1.0, "present")):
        for split in range(tables.SPLITS):
            head = {"set": "boston", "method": method, "split": split, "seed": tables.SPLIT_SEED, "version": version}
            entry = head | {"rmse": error + 0.1 * (split - 1), "ended": version}
            record.entries[key_of(entry)] = entry
    assert len(record.entries) == 9
    (row,) = tables.errors(record, "regression")[1]
    assert row == {"set": "boston", "gated": 1.0, "ridge": pytest.approx(2.0)}


def test_scores_of_classes_are_log_loss_and_accuracy() -> None:
    table = load(IRIS)
    model = as_numbers(LogisticRegression()).fit(table.X, table.y)
    scores = tables.scores(model, "classes", table.X, table.y)
    p = model.predict_proba(table.X)
    assert scores["log_loss"] == pytest.approx(-np.log(p[np.arange(150), table.y]).mean(), rel=1e-5)
    assert scores["accuracy"] == pytest.approx(np.mean(p.argmax(axis=1) == table.y))


def test_the_command_fits_what_lacks_and_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.json"
    tables.main("regressors", names="ridge", sets="diabetes,friedman1-exact", record=path)
    shown = capsys.readouterr().out
    assert "diabetes" in shown and "friedman1-exact" in shown
    assert len(Record(path).entries) == 6
    with pytest.raises(SystemExit, match=r"no method is called svm; there are gated, .*svr"):
        tables.main("regressors", names="svm", record=path)
    with pytest.raises(SystemExit, match=r"no set is called bostn; there are .*boston"):
        tables.main("regressors", sets="bostn", record=path)
