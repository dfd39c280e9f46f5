"""The benchmark on tables: sets and their facts, the record that goes on, places and their figure."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression

from gatelab.errors import GatelabError

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import datasets, tables  # noqa: E402
from benchmarks.datasets import CLASSES, REGRESSION, DataSet, Facts, facts_of, load, source  # noqa: E402
from benchmarks.regressors import methods as regressors  # noqa: E402
from benchmarks.tables import Comparison, Method, Record, complete, key_of, splits  # noqa: E402

SHIPPED = [s for s in (*REGRESSION, *CLASSES) if s.package == "scikit-learn"]
DIABETES = next(s for s in REGRESSION if s.name == "diabetes")
IRIS = next(s for s in CLASSES if s.name == "iris")


def comparison(sets: int = 12, methods: int = 5, seed: int = 0) -> Comparison:
    errors = np.random.default_rng(seed).uniform(1, 2, (sets, methods))
    return Comparison(tuple(f"s{i}" for i in range(sets)), tuple(f"m{i}" for i in range(methods)), errors)


# Places.


def test_places_are_those_that_counting_gives() -> None:
    errors = np.random.default_rng(1).integers(1, 5, (30, 6)).astype(float)
    places = Comparison(tuple(map(str, range(30))), tuple("abcdef"), errors).ranks
    for row, expected in zip(errors, places, strict=True):
        counted = [1 + sum(row < value) + (sum(row == value) - 1) / 2 for value in row]
        np.testing.assert_array_equal(expected, counted)


def test_mean_places_have_intervals_that_hold_them() -> None:
    values = comparison()
    for place, column in zip(values.mean_ranks(), values.ranks.T, strict=True):
        assert place.value == pytest.approx(column.mean())
        assert place.low < place.value < place.high


# Demsar's table 5 (a): critical values of the two-tailed Nemenyi test at 5 %, for 2 to 10 methods.
PRINTED = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)


@pytest.mark.parametrize(("methods", "printed"), list(enumerate(PRINTED, 2)))
def test_critical_difference_is_that_of_the_range_of_normal_numbers(methods: int, printed: float) -> None:
    """The twin integrates the distribution of the range of as many normal numbers, and Demsar has printed it."""
    difference = tables.critical_difference(methods, 20)
    unit = math.sqrt(methods * (methods + 1) / (6 * 20))
    assert difference / unit == pytest.approx(printed, abs=1.5e-3)
    reach = difference / unit * math.sqrt(2)
    below, _ = quad(lambda z: methods * norm.pdf(z) * (norm.cdf(z + reach) - norm.cdf(z)) ** (methods - 1), -9, 9)
    assert below == pytest.approx(0.95, abs=1e-6)


def test_bars_are_the_largest_groups_without_a_difference() -> None:
    draw = np.random.default_rng(5)
    for _ in range(50):
        places, difference = np.round(draw.uniform(1, 8, 7), 1), float(draw.uniform(0.3, 3))
        groups = [set(group) for size in range(2, 8) for group in combinations(sorted(places), size)]
        together = [group for group in groups if max(group) - min(group) <= difference]
        largest = [group for group in together if not any(group < other for other in together)]
        expected = sorted({(min(group), max(group)) for group in largest if len(group) > 1})
        assert [bar for bar in tables.cliques(places, difference) if bar[0] < bar[1]] == expected


def test_no_labels_of_the_figure_overlap() -> None:
    errors = comparison(20, 9, seed=7)
    names = ("GatedClassifier", "HistGradientBoosting", "LightGBM", "logistic regression", "MLPClassifier", *"abcd")
    figure = tables.critical_difference_figure(Comparison(errors.sets, names, errors.errors), "A title of some length")
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 9 + 9 + 2
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)


# Sets.


def test_there_are_enough_sets_of_every_kind() -> None:
    assert f"on {len(REGRESSION)} and {len(CLASSES)} tables" in (ROOT / "CHANGELOG.md").read_text()
    for sets, least in ((REGRESSION, 15), (CLASSES, 10)):
        assert len({s.name for s in sets}) == len(sets)
        unseen = [s for s in sets if not s.development]
        assert len(unseen) >= least
        assert sum(s.facts.categories > 0 for s in unseen) >= 5
        assert sum(s.facts.missing > 0 for s in unseen) >= 4
        assert all(200 <= s.rows <= 5000 for s in unseen if s.rows < 10_000)
        assert sum(s.rows >= 10_000 for s in unseen) == 1


@pytest.mark.parametrize("dataset", SHIPPED, ids=lambda s: s.name)
def test_what_scikit_learn_ships_has_the_facts_of_its_record(dataset: DataSet) -> None:
    assert dataset.development
    table = load(dataset)
    assert table.X.shape == (dataset.rows, dataset.facts.columns)
    assert len(table.y) == dataset.rows


def test_another_version_of_a_set_is_noticed() -> None:
    with pytest.raises(GatelabError, match=r"diabetes has .*442.* says .*441"):
        load(replace(DIABETES, facts=replace(DIABETES.facts, rows=441)))
    with pytest.raises(GatelabError, match="another version"):
        load(replace(DIABETES, facts=replace(DIABETES.facts, mean=152.2)))


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
    columns: dict[str, Any] = {"dropped": (("row", "a number of the row"),), "categories": ("code",), "most": 40}
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
    model = tables.as_numbers(LinearRegression()).fit(few, table.y[:20])
    stranger = table.X.iloc[20:].copy()
    stranger["code"] = pd.Categorical(["nine"] * len(stranger))
    assert np.isfinite(model.predict(stranger)).all()


# The record.


def counted_method(calls: list[int], name: str = "mean", settings: str = "", stop_after: int = 99) -> Method:
    def make() -> Any:
        calls.append(1)
        if len(calls) > stop_after:
            raise KeyboardInterrupt
        return tables.as_numbers(DummyRegressor())

    return Method(name, name, "scikit-learn", settings, make)


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
        return tables.as_numbers(DummyRegressor(strategy="no such"))

    broken = Method("broken", "broken", "scikit-learn", "", failing)
    assert complete(record, [DIABETES], [broken]) == 3
    assert complete(record, [DIABETES], [broken]) == 3
    assert tables.values(record, DIABETES, broken, "rmse") is None


def test_codes_of_ours_are_told_apart(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json")
    ours = Method("gated", "GatedRegressor", "gatelab", "", lambda: tables.as_numbers(DummyRegressor()))
    complete(record, [DIABETES], [ours])
    former = [e | {"version": "former", "rmse": 2 * e["rmse"], "ended": "2020"} for e in record.entries.values()]
    record.add(former)
    assert len(record.entries) == 6
    assert tables.versions_of(record, ours) == [ours.version, "former"]
    new, old = (tables.values(record, DIABETES, ours, "rmse", code) for code in (None, "former"))
    assert new is not None and old is not None
    np.testing.assert_allclose(old, 2 * new)
    (_, rows, _), *_ = tables.version_by_version(record, [DIABETES], ours, "rmse")
    assert rows[0]["geometric mean of new / old"] == "0.500"


def test_scores_of_classes_are_log_loss_and_accuracy() -> None:
    table = load(IRIS)
    model = tables.as_numbers(LogisticRegression()).fit(table.X, table.y)
    scores = tables.scores(model, "classes", table.X, table.y)
    p = model.predict_proba(table.X)
    assert scores["log_loss"] == pytest.approx(-np.log(p[np.arange(150), table.y]).mean(), rel=1e-5)
    assert scores["accuracy"] == pytest.approx(np.mean(p.argmax(axis=1) == table.y))


def test_tables_say_who_is_first_and_how_far_others_are() -> None:
    record = Record("none.json")
    sets = [s for s in REGRESSION if not s.development][:4]
    methods = [m for m in regressors() if m.name in ("boosting", "forest", "ridge")]
    errors = np.array([[1.0, 1.01, 2.0], [1.0, 3.0, 1.5], [1.2, 1.0, 1.0], [1.0, 1.1, 1.3]])
    for i, dataset in enumerate(sets):
        for j, method in enumerate(methods):
            for split in range(tables.SPLITS):
                head = {"set": dataset.name, "method": method.name, "split": split, "seed": tables.SPLIT_SEED}
                entry = head | {"version": "1", "rmse": errors[i, j] + 0.1 * (split - 1), "cpu_s": 1.0, "ended": ""}
                record.entries[key_of(entry)] = entry
    by_title = {title: rows for title, rows, _ in tables.tables(record, "regression", methods)}
    rows = {
        row["method"]: row for row in by_title["sets not used for tuning defaults, all methods without a limit of rows"]
    }
    boosting, forest = rows["HistGradientBoosting"], rows["random forest"]
    assert (boosting["first"], boosting["within 2 %"], boosting["worst / best"]) == ("75%", "75%", "1.2")
    assert (forest["first"], forest["within 2 %"], forest["worst / HistGradientBoosting"]) == ("25%", "50%", "3.000")
    assert len(by_title["set by set"]) == 4
    assert not any("peers alone" in title for title in by_title)

    # Ours on two of the four sets: places are of those two, and those of the peers on all four stand beside them.
    ours = regressors()[0]
    for dataset in sets[:2]:
        for split in range(tables.SPLITS):
            head = {"set": dataset.name, "method": ours.name, "split": split, "seed": tables.SPLIT_SEED}
            entry = head | {"version": ours.version, "rmse": 5.0, "cpu_s": 1.0, "ended": ""}
            record.entries[key_of(entry)] = entry
    notes = {title: note for title, _, note in tables.tables(record, "regression", [ours, *methods])}
    both = "sets not used for tuning defaults, all methods without a limit of rows"
    untuned = sum(not s.development for s in REGRESSION)
    assert notes[both].startswith(f"2 of {untuned} sets")
    peers = "sets not used for tuning defaults, peers alone, which have more of them"
    assert notes[peers].startswith(f"4 of {untuned} sets")


def test_the_command_fits_what_lacks_and_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.json"
    words = ["--sets", "diabetes,friedman1-exact", "--methods", "ridge,mean", "--record", str(path)]
    tables.command("regression", [*regressors(), counted_method([])], path, words)
    shown = capsys.readouterr().out
    assert "development sets, all methods without a limit of rows" in shown
    assert "sets not used for tuning defaults" not in shown
    assert len(Record(path).entries) == 12
    figure = str(tmp_path / "places.png")
    with pytest.raises(SystemExit, match="fewer than two methods on two common sets"):
        tables.command("regression", regressors(), path, ["--show", "--record", str(path), "--figure", figure])
    with pytest.raises(SystemExit, match=r"no method is called svm; there are gated, .*svr"):
        tables.command("regression", regressors(), path, ["--methods", "svm", "--record", str(path)])
    with pytest.raises(SystemExit, match=r"no set is called bostn; there are .*boston"):
        tables.command("regression", regressors(), path, ["--sets", "bostn", "--record", str(path)])


def test_the_list_says_what_is_left_out_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    tables.command("regression", regressors(), Path("none.json"), ["--list"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(REGRESSION) + 4  # an empty line, title, heads of columns, note
    (cpus,) = [line for line in lines if line.split()[:1] == ["cpus"]]
    assert "estperf: an estimate of the target" in cpus


def test_records_of_two_machines_are_joined_and_told(tmp_path: Path) -> None:
    here, there = Record(tmp_path / "here.json"), Record(tmp_path / "there.json")
    exact = next(s for s in REGRESSION if s.name == "friedman1-exact")
    ridge, other = next(m for m in regressors() if m.name == "ridge"), counted_method([])
    complete(here, [DIABETES, exact], [ridge])
    complete(there, [DIABETES, exact], [other])
    there.add([entry | {"machine": "another"} for entry in there.entries.values()])
    here.add(there.entries.values())
    notes = [note for title, _, note in tables.tables(here, "regression", [ridge, other]) if "development" in title]
    assert len(notes) == 1 and "Seconds are of different machines: " in notes[0]
    assert notes[0].endswith("; another.")
