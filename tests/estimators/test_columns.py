"""TableColumns as numbers: what is missing, what is a category, and that means tell no row its own target."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from gatelab import GatedRegressor
from gatelab.errors import GatelabError
from gatelab.estimators.columns import (
    MISSING,
    MOST_LEVELS,
    TableColumns,
    level_effects,
    positions,
    shrunken_means,
)

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


def panel(n: int = 400, levels: int = 4 * MOST_LEVELS) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """Places, each at times of its own, two targets, and weights."""
    generator = np.random.default_rng(1)
    level, kind = generator.integers(0, levels, n), generator.integers(0, 3, n)
    time = generator.uniform(0, 1, n) + 3 * level / levels
    effects = generator.normal(size=(levels, 2))
    y = effects[level] + 5 * time[:, None] + kind[:, None] + 0.3 * generator.normal(size=(n, 2))
    table = pd.DataFrame({"place": [f"p{k:02}" for k in level], "time": time, "kind": [f"k{k}" for k in kind]})
    return table, y, generator.uniform(0.5, 2.0, n), effects - effects.mean(0)


def test_what_levels_add_is_that_of_one_penalised_fit(monkeypatch):
    """Given how far effects are drawn, fitting in turn ends where the normal equations of all together do."""
    table, y, weight, _ = panel()
    monkeypatch.setattr("gatelab.estimators.columns._FEWEST_DRAWN", 4.0)
    monkeypatch.setattr("gatelab.estimators.columns._MOST_DRAWN", 4.0)
    monkeypatch.setattr("gatelab.estimators.columns._ROUNDS", 4000)
    level, levels = np.unique(table["place"], return_inverse=True)[1], table["place"].nunique()
    other = np.arange(len(y)) % 17
    x = np.stack([table["time"], np.ones(len(y))], axis=1)
    first, second = level_effects(x, [level, other], [levels, 17], y, weight)
    whole = np.concatenate([x, np.eye(levels)[level], np.eye(17)[other]], axis=1)
    penalty = np.diag([0.0, 0.0] + (levels + 17) * [4.0])
    exact = np.linalg.solve(whole.T @ (weight[:, None] * whole) + penalty, whole.T @ (weight[:, None] * y))
    assert np.allclose(first[:-1], exact[2 : 2 + levels], atol=1e-6)
    assert np.allclose(second[:-1], exact[2 + levels :], atol=1e-6)
    assert not first[-1].any() and not second[-1].any()


def test_means_are_drawn_by_the_spread_of_levels_beside_that_of_rows():
    """By hand: the variance of rows, that of levels by the method of moments, and how many rows zero counts for."""
    generator = np.random.default_rng(2)
    index = np.concatenate([np.arange(30), generator.integers(0, 30, 170)])
    values, weight = generator.normal(size=(30, 1))[index] + generator.normal(size=(200, 1)), np.ones(200)
    parts = [values[index == k, 0] for k in range(30)]
    within = sum(((part - part.mean()) ** 2).sum() for part in parts) / (200 - 30)
    sizes = np.array([len(part) for part in parts])
    between = sum(len(part) * part.mean() ** 2 for part in parts) - 29 * within
    drawn = within * (200 - (sizes**2).sum() / 200) / between
    assert 0.5 < drawn < 2  # levels and rows were drawn with the same variance
    by_hand = [part.sum() / (len(part) + drawn) for part in parts]
    assert np.allclose(shrunken_means(values, index, 30, weight)[:, 0], by_hand)
    # Where levels do not differ more than rows would by chance, nothing is left of them.
    noise = generator.normal(size=(200, 1))
    level = np.arange(200) % 100
    assert np.abs(shrunken_means(noise - noise[::-1], level, 100, weight)).max() < 0.01


def test_many_levels_are_means_that_tell_no_row_its_own_target():
    table, y, weight, effects = panel()
    columns = TableColumns.of(table, y, weight)
    assert [c.kind for c in columns.columns] == ["means", "number", "levels"]
    level = np.unique(table["place"], return_inverse=True)[1]
    means = columns.encode(table)[:, :2]
    # Places are compared at one time and kind, though each was seen at times of its own.
    assert np.corrcoef(means[:, 0], effects[level, 0])[0, 1] > 0.95
    assert np.allclose(columns.encode(table.assign(place="nowhere"))[:, :2], weight @ y / weight.sum())
    fold = np.random.default_rng(3).integers(0, 5, len(y))
    trained = columns.training(table, y, weight, fold)
    others = fold != fold[7]
    alone = TableColumns(columns.columns).level_means(table[others], y[others], weight[others])[0]
    assert np.array_equal(trained[7, :2], alone[level[7]])
    changed = y.copy()
    changed[7] += 100.0
    assert np.array_equal(columns.training(table, changed, weight, fold)[7], trained[7])
    order = np.random.default_rng(4).permutation(len(y))
    again = columns.training(table.iloc[order], y[order], weight[order], fold[order])
    assert np.array_equal(again, trained[order])


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
