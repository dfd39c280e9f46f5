"""TableColumns as numbers: what is missing, what is a category, and that means tell no row its own target."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from gatelab import GatedRegressor
from gatelab.errors import GatelabError
from gatelab.estimators.columns import DRAWN, MISSING, MOST_LEVELS, TableColumns, positions

Y, W = np.arange(6.0)[:, None], np.ones(6)


def test_numbers_stay_as_they_are():
    x = np.random.default_rng(0).normal(size=(6, 3))
    columns = TableColumns.of(x, Y, W)
    assert columns.plain and columns.width == 3
    assert np.array_equal(columns.encode(x), x)


def test_what_is_missing_is_the_median_and_is_marked():
    x = np.array([[1.0, 0.0], [np.nan, 1.0], [3.0, 2.0], [5.0, 3.0], [np.nan, 4.0], [7.0, 5.0]])
    columns = TableColumns.of(x, Y, W)
    assert columns.encode(x)[:, 0].tolist() == [1.0, 4.0, 3.0, 5.0, 4.0, 7.0]
    assert columns.encode(x)[:, 1].tolist() == [0, 1, 0, 0, 1, 0]
    # A column that was whole in training takes its median where it is missing later.
    assert columns.encode(np.array([[2.0, np.nan]])).tolist() == [[2.0, 0.0, 2.5]]


@pytest.mark.parametrize(
    "values",
    [["a", "b", None, "a", "c", "b"], [True, False, None, True, True, False], pd.Categorical([1, 2, None, 1, 3, 2])],
)
def test_few_levels_are_columns_of_zeros_and_ones(values):
    table = pd.DataFrame({"kind": values})
    columns = TableColumns.of(table, Y, W)
    encoded = columns.encode(table)
    assert MISSING in columns.columns[0].levels and encoded.shape == (6, len(columns.columns[0].levels))
    assert (encoded.sum(axis=1) == 1).all() and set(np.unique(encoded)) == {0.0, 1.0}
    assert not columns.encode(pd.DataFrame({"kind": ["new"]})).any()


def test_many_levels_are_means_that_tell_no_row_its_own_target():
    generator = np.random.default_rng(1)
    n, levels = 400, 4 * MOST_LEVELS
    level = generator.integers(0, levels, n)
    y, weight = generator.normal(size=(n, 2)), generator.uniform(0.5, 2.0, n)
    table = pd.DataFrame({"place": [f"p{k}" for k in level]})
    columns = TableColumns.of(table, y, weight)
    overall = weight @ y / weight.sum()
    for row in (0, 17):
        same = level == level[row]
        by_hand = (weight[same] @ y[same] + DRAWN * overall) / (weight[same].sum() + DRAWN)
        assert np.allclose(columns.encode(table)[row], by_hand)
    assert np.allclose(columns.encode(pd.DataFrame({"place": ["nowhere"]})), overall)
    fold = generator.integers(0, 5, n)
    trained = columns.training(table, y, weight, fold)
    for row in (3, 99):
        others = fold != fold[row]
        same, mean = others & (level == level[row]), weight[others] @ y[others] / weight[others].sum()
        by_hand = (weight[same] @ y[same] + DRAWN * mean) / (weight[same].sum() + DRAWN)
        assert np.allclose(trained[row], by_hand)
    changed = y.copy()
    changed[3] += 100.0
    assert np.array_equal(columns.training(table, changed, weight, fold)[3], trained[3])


def test_plain_values_and_back():
    table = pd.DataFrame({"a": [1.0, None, 2.0, 3.0, 4.0, 5.0], "b": list("uvwxyz")})
    columns = TableColumns.of(table, Y, W)
    assert TableColumns.restored(json.loads(json.dumps(columns.facts()))) == columns


def test_what_is_refused():
    dates = pd.DataFrame({"when": pd.date_range("2020-01-01", periods=6)})
    with pytest.raises(GatelabError, match="column 'when' holds dates"):
        TableColumns.of(dates, Y, W)
    with pytest.raises(GatelabError, match="column '0' has infinite values"):
        TableColumns.of(np.full((6, 1), np.inf), Y, W)
    columns = TableColumns.of(pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}), Y, W)
    with pytest.raises(GatelabError, match="was numbers when the model was fitted"):
        columns.encode(pd.DataFrame({"a": ["x"]}))


def table_of(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers with gaps, a truth value, four kinds as text and forty places as categories; all of them matter."""
    generator = np.random.default_rng(seed)
    effects = np.random.default_rng(9).normal(size=40)
    size, place = generator.normal(size=n), generator.integers(0, 40, n)
    kind, flag = generator.integers(0, 4, n), generator.random(n) < 0.5
    y = effects[place] + size * np.array([0.0, 1.0, -1.0, 2.0])[kind] + flag
    table = pd.DataFrame(
        {
            "size": np.where(generator.random(n) < 0.05, np.nan, size),
            "kind": [f"k{k}" for k in kind],
            "place": pd.Categorical([f"p{p}" for p in place]),
            "flag": flag,
        }
    )
    return table, y


@pytest.mark.filterwarnings("ignore:the steps ran out")
def test_a_regressor_takes_the_columns_of_a_table_as_they_are(tmp_path):
    """A network of places alone explains half of the variance at best; with the kinds it explains most."""
    table, y = table_of(600)
    fresh, truth = table_of(300, seed=1)
    model = GatedRegressor(width=3, ridge=1e-3, starts=1, rounds=0, steps=25, random_state=0).fit(table, y)
    assert model.n_features_in_ == 4 and list(model.feature_names_in_) == ["size", "kind", "place", "flag"]
    assert [c.kind for c in model.columns_.columns] == ["number", "levels", "means", "levels"]
    assert model.score(fresh, truth) > 0.9
    loaded = GatedRegressor.load(model.save(tmp_path / "m"))
    assert np.array_equal(loaded.predict(fresh), model.predict(fresh))
    shuffled = np.random.default_rng(2).permutation(600)
    again = clone(model).fit(table.iloc[shuffled], y[shuffled])
    assert np.array_equal(again.predict(fresh), model.predict(fresh))
    unseen = fresh.assign(place="elsewhere", kind=None)
    assert np.isfinite(model.predict(unseen)).all()


def test_positions_are_those_of_a_dictionary():
    generator = np.random.default_rng(3)
    levels = tuple(sorted({f"level {k}" for k in generator.integers(0, 99, 50)}))
    texts = np.array([f"level {k}" for k in generator.integers(0, 120, 500)], dtype=object)
    slow = {level: i for i, level in enumerate(levels)}
    assert positions(texts, levels).tolist() == [slow.get(text, len(levels)) for text in texts]
