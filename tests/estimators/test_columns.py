"""TableColumns as numbers: what is missing, what is a category, and that means tell no row its own target."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import f as fisher
from sklearn.base import clone

from gatelab import GatedClassifier, GatedRegressor
from gatelab.errors import GatelabError
from gatelab.estimators.columns import MOST_LEVELS, TableColumns
from gatelab.estimators.levels import LevelSpread, LevelTerm, level_effects, neighbor_similarity
from gatelab.estimators.reading import MISSING, positions

Y, W = np.arange(6.0)[:, None], np.ones(6)


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


def sloped(n: int = 400, levels: int = 20) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Pigs that each grow at a rate of their own, two targets, and how much each row has of its own pig."""
    generator = np.random.default_rng(5)
    pig, time, feed = generator.integers(0, levels, n), generator.uniform(0, 1, n), generator.normal(size=n)
    own = generator.normal(size=(levels, 2))[pig] + 3 * generator.normal(size=(levels, 2))[pig] * (time - 0.5)[:, None]
    y = own + (2 * time + feed)[:, None] + 0.2 * generator.normal(size=(n, 2))
    return pd.DataFrame({"time": time, "pig": [f"p{k:02}" for k in pig], "feed": feed}), y, own


def check_training(columns: TableColumns, table: pd.DataFrame, y: np.ndarray, weight: np.ndarray) -> None:
    """Training rows are encoded without the targets of their own fold, in any order."""
    fold = np.random.default_rng(3).integers(0, 5, len(y))
    trained = columns.training(table, y, weight, fold)
    others = fold != fold[7]
    alone = columns.averages(table[others], y[others], weight[others], choose=False)
    assert np.array_equal(trained[7], alone.encode(table[7:8])[0])
    changed = y.copy()
    changed[7] += 100.0
    assert np.array_equal(columns.training(table, changed, weight, fold)[7], trained[7])
    order = np.random.default_rng(4).permutation(len(y))
    again = columns.training(table.iloc[order], y[order], weight[order], fold[order])
    assert np.array_equal(again, trained[order])


def test_what_levels_add_is_that_of_one_penalised_fit(monkeypatch):
    """Given how far effects are drawn, fitting in turn ends where the normal equations of all together do."""
    table, y, weight, _ = panel()
    monkeypatch.setattr("gatelab.estimators.levels._FEWEST_DRAWN", 4.0)
    monkeypatch.setattr("gatelab.estimators.levels._MOST_DRAWN", 4.0)
    monkeypatch.setattr("gatelab.estimators.levels._ROUNDS", 1000)
    level, levels = np.unique(table["place"], return_inverse=True)[1], table["place"].nunique()
    other, time = np.arange(len(y)) % 17, table["time"].to_numpy()
    x = np.stack([time, np.ones(len(y))], axis=1)
    means = [LevelTerm(0, levels, level, np.ones(len(y))), LevelTerm(1, 17, other, np.ones(len(y)))]
    slopes = means[0].along(2, time, weight)
    (first, second, third), left = level_effects(x, [*means, slopes], y, weight)
    centres = np.array([np.average(time[level == k], weights=weight[level == k]) for k in range(levels)])
    away = time - centres[level]
    away = away / np.sqrt(np.average(away**2, weights=weight))
    whole = np.concatenate([x, np.eye(levels)[level], np.eye(17)[other], np.eye(levels)[level] * away[:, None]], axis=1)
    penalty = np.diag([0.0, 0.0] + (2 * levels + 17) * [4.0])
    exact = np.linalg.solve(whole.T @ (weight[:, None] * whole) + penalty, whole.T @ (weight[:, None] * y))
    assert np.allclose(first[:-1], exact[2 : 2 + levels], atol=1e-6)
    assert np.allclose(second[:-1], exact[2 + levels : 19 + levels], atol=1e-6)
    assert np.allclose(third[:-1], exact[19 + levels :], atol=1e-6)
    assert np.allclose(left, y - whole @ exact, atol=1e-6)
    assert not first[-1].any() and not second[-1].any() and not third[-1].any()


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
    term = LevelTerm(0, 30, index, np.ones(200))
    assert np.allclose(LevelSpread.of(values, term, weight).coefficients[:, 0], by_hand)
    # Where levels do not differ more than rows would by chance, nothing is left of them.
    noise = generator.normal(size=(200, 1))
    level = np.arange(200) % 100
    alike = LevelSpread.of(noise - noise[::-1], LevelTerm(0, 100, level, np.ones(200)), weight)
    assert np.abs(alike.coefficients).max() < 0.01


def test_slopes_are_drawn_and_told_from_chance_as_lines_of_each_level_say():
    """By hand: a line for each level, the F-test of one slope for all of them, and slopes drawn by their variance."""
    generator = np.random.default_rng(6)
    index = np.concatenate([np.repeat(np.arange(20), 2), generator.integers(0, 20, 160), [20]])
    time, rate = generator.uniform(0, 5, 201), generator.normal(size=21)
    y = generator.normal(size=21)[index] + rate[index] * time + generator.normal(size=201)
    term = LevelTerm(0, 21, index, np.ones(201)).along(3, time, np.ones(201))
    spread = LevelSpread.of(y[:, None], term, np.ones(201))
    dummies = np.eye(21)[index]

    def residual(design: np.ndarray) -> float:
        return float(np.square(y - design @ np.linalg.lstsq(design, y, rcond=None)[0]).sum())

    of_rows = residual(np.concatenate([dummies, dummies * time[:, None]], axis=1)) / (201 - 21 - 20)
    between = residual(np.concatenate([dummies, time[:, None]], axis=1)) - 160 * of_rows - 19 * of_rows
    assert np.isclose(spread.ratio, (between + 19 * of_rows) / 19 / of_rows)
    assert np.isclose(spread.chance, fisher.sf(spread.ratio, 19, 160), rtol=1e-6) and spread.chance < 1e-6
    parts = [time[index == k] - time[index == k].mean() for k in range(21)]
    squares = np.array([part @ part for part in parts])
    drawn = of_rows * (squares.sum() - squares @ squares / squares.sum()) / between
    by_hand = [part @ y[index == k] / (part @ part + drawn) for k, part in enumerate(parts)]
    assert np.allclose(spread.coefficients[:, 0] / term.unit, by_hand)
    assert by_hand[20] == 0.0  # a level of one row has no slope
    # Levels of one slope are not told apart: a false alarm comes once in a thousand such draws.
    assert LevelSpread.of((y - rate[index] * time)[:, None] + 3 * time[:, None], term, np.ones(201)).chance > 1e-3
    # Where a number is the same in all rows of each level nothing can be told.
    constant = LevelTerm(0, 21, index, np.ones(201)).along(3, index / 7, np.ones(201))
    assert LevelSpread.of(y[:, None], constant, np.ones(201)).chance == 1.0


def test_many_levels_are_means_that_tell_no_row_its_own_target():
    table, y, weight, effects = panel()
    columns = TableColumns.of(table, y, weight)
    assert [c.kind for c in columns.columns] == ["means", "number", "levels"]
    level = np.unique(table["place"], return_inverse=True)[1]
    means = columns.encode(table)[:, :2]
    # Places are compared at one time and kind, though each was seen at times of its own.
    assert np.corrcoef(means[:, 0], effects[level, 0])[0, 1] > 0.95
    assert np.allclose(columns.encode(table.assign(place="nowhere"))[:, :2], weight @ y / weight.sum())
    check_training(columns, table, y, weight)


def test_levels_have_lines_of_their_own_where_slopes_differ_and_none_where_not():
    table, y, own = sloped()
    columns = TableColumns.of(table, y, np.ones(len(y)))
    assert [s.number for s in columns.columns[1].slopes] == [0] and columns.width == 6
    means, lines = np.split(columns.encode(table)[:, 1:5], 2, axis=1)
    assert np.corrcoef(lines[:, 0], own[:, 0])[0, 1] > 0.98 > 0.9 > np.corrcoef(means[:, 0], own[:, 0])[0, 1]
    # A pig that is not known has the mean of all at any time; one that is, its mean at its own mean time.
    unknown = columns.encode(table.assign(pig="new"))
    assert np.allclose(unknown[:, 1:3], y.mean(0)) and np.array_equal(unknown[:, 1:3], unknown[:, 3:5])
    middle = columns.encode(table.assign(time=table.groupby("pig")["time"].transform("mean")))
    assert np.allclose(middle[:, 1:3], middle[:, 3:5]) and np.array_equal(middle[:, 1:3], means)
    check_training(columns, table, y, np.ones(len(y)))
    # Without these slopes there is nothing but the means.
    time = table["time"].to_numpy()[:, None]
    level = np.unique(table["pig"], return_inverse=True)[1]
    noise = 0.2 * np.random.default_rng(8).normal(size=y.shape)
    alike = TableColumns.of(table, np.cos(level)[:, None] + 2 * time + noise, np.ones(len(y)))
    assert not alike.columns[1].slopes and alike.width == 4


def test_lines_of_levels_within_levels_vary_in_training_as_they_do_later():
    """Pigs of litters: which of both has the slopes is hardly told, and was told otherwise by parts of the rows."""
    generator = np.random.default_rng(0)
    pig, time = np.repeat(np.arange(70), 12), np.tile(np.arange(12.0), 70)
    rate = 0.3 * generator.normal(size=20)[np.arange(70) // 4] + 0.3 * generator.normal(size=70)
    y = 4 * generator.normal(size=70)[pig] + (6 + rate[pig]) * time + 1.5 * generator.normal(size=len(pig))
    table = pd.DataFrame({"time": time, "pig": [f"p{k}" for k in pig], "litter": [f"l{k // 4}" for k in pig]})
    train = generator.random(len(pig)) < 0.67
    y, weight = y[train][:, None], np.ones(train.sum())
    columns = TableColumns.of(table[train], y, weight)
    assert [len(column.slopes) for column in columns.columns] == [0, 1, 1]
    trained = columns.training(table[train], y, weight, columns.fold(table[train], y, weight, 5, 0))
    ratio = columns.encode(table[~train]).std(0) / trained.std(0)
    assert 0.7 < ratio[2] < 1.3 and 0.7 < ratio[4] < 1.3


def persons(rows: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 60 persons by number, their age and a size: each person has a mean, and age counts smoothly."""
    generator = np.random.default_rng(seed)
    person, age = generator.integers(100, 160, rows), generator.integers(20, 70, rows)
    own = np.random.default_rng(9).normal(size=60)[person - 100]
    y = own + np.sin(age / 10) + 0.3 * generator.normal(size=rows)
    return np.stack([person, age, generator.normal(size=rows)], axis=1).astype(float), y


def test_numbers_that_are_names_are_told_from_numbers():
    """A person's number is a name; an age is not, though it has as many values; nor is a number of few values."""
    x, y = persons()
    columns = TableColumns.of(x, y[:, None], np.ones(len(y)))
    person, age, size = columns.columns
    assert (person.kind, len(person.levels), person.averaged) == ("number", 60, True)
    assert not age.levels and not size.levels and columns.averaged and columns.width == 4
    encoded = columns.encode(x)
    assert np.array_equal(encoded[:, [0, 2, 3]], x) and np.corrcoef(encoded[:, 1], y)[0, 1] > 0.7
    unknown = columns.encode(np.array([[7.0, 30.0, 0.0]]))
    assert unknown[0, 0] == 7.0 and unknown[0, 1] == pytest.approx(y.mean())
    check_training(columns, pd.DataFrame(x), y[:, None], np.ones(len(y)))
    assert TableColumns.restored(json.loads(json.dumps(columns.facts()))) == columns
    assert not TableColumns.of(np.round(x / 10), y[:, None], np.ones(len(y))).averaged


def test_neighbours_are_compared_as_the_plain_f_test_of_pairs_does():
    x, y = persons(200)
    weight = np.random.default_rng(1).integers(1, 4, 200).astype(float)
    rows = np.repeat(np.arange(200), weight.astype(int))
    values = np.unique(x[:, 0])
    parts = {value: y[rows][x[rows, 0] == value] for value in values}
    within = sum(((part - part.mean()) ** 2).sum() for part in parts.values()) / (len(rows) - len(values))
    pairs = list(zip(values[::2], values[1::2], strict=False))
    apart = [(parts[a].mean() - parts[b].mean()) ** 2 / (1 / len(parts[a]) + 1 / len(parts[b])) for a, b in pairs]
    expected = fisher.sf(np.mean(apart) / within, len(pairs), len(rows) - len(values))
    assert neighbor_similarity(x[:, 0], y[:, None], weight) == pytest.approx(expected, rel=1e-6)
    assert neighbor_similarity(x[:, 0], (x[:, :1] / 10) + 1e-3 * y[:, None], weight) == 1.0, "all of it is smooth"


@pytest.mark.parametrize("kind", ["lines", "names"])
def test_both_estimators_learn_what_levels_have_and_keep_it_in_their_files(kind, tmp_path):
    """Means of pigs leave what their slopes differ by, which lines explain; persons are told by their numbers."""
    if kind == "lines":
        table, y, own = sloped(900)
        y, classes = y[:, 0], own[:, 0] > 0
    else:
        table, y = persons(900)
        classes = y > 0
    model = GatedRegressor("glu", width=2, ridge=1e-3, starts=1, rounds=0, random_state=0)
    model.fit(table[:600], y[:600])
    assert model.columns_.averaged and model.score(table[600:], y[600:]) > 0.8
    loaded = GatedRegressor.load(model.save(tmp_path / "r"))
    assert np.array_equal(loaded.predict(table), model.predict(table)) and loaded.columns_ == model.columns_
    classifier = GatedClassifier("glu", width=1, ridge=1e-3, members=1, random_state=0).fit(table[:600], classes[:600])
    assert classifier.columns_.averaged and classifier.score(table[600:], classes[600:]) > 0.8
    again = GatedClassifier.load(classifier.save(tmp_path / "c"))
    assert np.array_equal(again.predict_proba(table), classifier.predict_proba(table))


DAYS = np.random.default_rng(11).permutation(np.arange(-100, 100))
STAMPS = pd.Timestamp("2024-01-01") + pd.to_timedelta(DAYS, unit="D")
FIRST = 19723.0  # 2024-01-01 in days since 1970-01-01
# Numbers, dates and durations as users have them, and what they are as numbers.
WRITTEN = {
    "text": ([f"{d} " for d in DAYS], DAYS),
    "text with gaps": ([f"{d:.2e}" for d in DAYS[:-2]] + ["?", "NA"], [*DAYS[:-2], np.nan, np.nan]),
    "decimal of arrow": (pd.array([Decimal(int(d)) for d in DAYS], dtype=pd.ArrowDtype(pa.decimal128(9, 2))), DAYS),
    "ISO": (STAMPS.strftime("%Y-%m-%d"), FIRST + DAYS),
    "ISO with time": (STAMPS.strftime("%Y-%m-%dT12:00:00Z"), FIRST + DAYS + 0.5),
    "years first": (STAMPS.strftime("%Y/%m/%d"), FIRST + DAYS),
    "dots": (STAMPS.strftime("%d.%m.%Y"), FIRST + DAYS),
    "days first": (STAMPS.strftime("%d/%m/%Y"), FIRST + DAYS),
    "months first": (STAMPS.strftime("%m/%d/%Y"), FIRST + DAYS),
    "date": ([*STAMPS.date[:-1], None], [*(FIRST + DAYS[:-1]), np.nan]),
    "datetime64": (STAMPS.where(DAYS != 3), np.where(DAYS == 3, np.nan, FIRST + DAYS)),
    "time zone": (STAMPS.tz_localize("Asia/Tokyo"), FIRST + DAYS - 9 / 24),
    "periods": (list(STAMPS.to_period("D")), FIRST + DAYS),
    "date of arrow": (pd.array(STAMPS.date, dtype=pd.ArrowDtype(pa.date32())), FIRST + DAYS),
    "timedelta64": (pd.to_timedelta(DAYS, unit="D"), DAYS),
    "timedelta": (pd.Series([dt.timedelta(int(d)) for d in DAYS], dtype=object), DAYS),
    "text of durations": ([str(v) for v in pd.to_timedelta(DAYS / 2, unit="D")], DAYS / 2),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_text_that_is_numbers_dates_and_durations_are_numbers(name):
    """What differs in every row is no category: its levels were learned by heart, with an R^2 of -14 in training."""
    values, numbers = WRITTEN[name]
    table = pd.DataFrame({"a": values})
    columns = TableColumns.of(table, DAYS[:, None] ** 2.0, np.ones(200))
    missing = np.isnan(np.asarray(numbers, dtype=float))
    assert columns.columns[0].kind == "number" and columns.columns[0].marked == missing.any()
    encoded = columns.encode(table)
    assert np.allclose(encoded[~missing, 0], np.asarray(numbers)[~missing], rtol=0, atol=1e-9)
    assert (encoded[missing, 0] == columns.columns[0].median).all()
    again = TableColumns.restored(json.loads(json.dumps(columns.facts())))
    assert again == columns and np.array_equal(again.encode(table[5:6]), encoded[5:6])


def test_what_is_no_number_stays_a_category():
    texts = {
        "codes": [f"{d:05}" for d in np.abs(DAYS)],
        "names": [f"name {d}" for d in DAYS],
        "either": ["02/03/2024"] * 200,  # days or months first
        "sizes": [f"{abs(d)} m" for d in DAYS],  # metres, which pandas would take for minutes
        "underscored": [f"1_{abs(d):03}" for d in DAYS],
        "categories": pd.Categorical(DAYS),
        "mixed": [*map(str, DAYS[1:]), "a few"],
        "words": ["none"] * 200,
    }
    columns = TableColumns.of(pd.DataFrame(texts), DAYS[:, None] * 1.0, np.ones(200)).columns
    assert {column.name: column.kind == "number" for column in columns} == dict.fromkeys(texts, False)


def test_a_column_is_read_later_as_it_was_when_fitted():
    """Days before months were told by a day beyond the twelfth, which rows to predict need not have."""
    dates = TableColumns.of(pd.DataFrame({"when": STAMPS.strftime("%d/%m/%Y")}), DAYS[:, None] * 1.0, np.ones(200))
    assert dates.encode(pd.DataFrame({"when": ["03/02/2024"]})).tolist() == [[FIRST + 33]]
    assert dates.encode(pd.DataFrame({"when": [pd.Timestamp("2024-02-03", tz="UTC")]})).tolist() == [[FIRST + 33]]
    for values in ([7.0], ["7"], ["soon"], ["02/13/2024"], [pd.Timedelta(days=7)]):
        with pytest.raises(GatelabError, match="column 'when' was dates when the model was fitted and holds '"):
            dates.encode(pd.DataFrame({"when": values}))
    numbers = TableColumns.of(pd.DataFrame({"a": DAYS.astype(str)}), DAYS[:, None] * 1.0, np.ones(200))
    assert numbers.encode(pd.DataFrame({"a": [7.0, np.nan]})).tolist() == [[7.0], [numbers.columns[0].median]]
    with pytest.raises(GatelabError, match="column 'a' was numbers when the model was fitted and holds '2024-01-01"):
        numbers.encode(pd.DataFrame({"a": STAMPS[DAYS == 0]}))


@pytest.mark.parametrize("kind", ["M", "m"])
def test_a_gap_in_an_array_of_dates_is_a_gap(kind):
    """It was the least of all numbers."""
    x = STAMPS.to_numpy(copy=True)[:, None]
    if kind == "m":
        x = x - x[:1]
    x[3] = "NaT"
    model = GatedRegressor("glu", width=1, ridge=1e-3, starts=1, rounds=0, random_state=0).fit(x, DAYS * 1.0)
    assert model.columns_.columns[0].marked and model.score(x, DAYS * 1.0) > 0.9


@pytest.mark.parametrize("share", [1.0, 0.9])
def test_values_that_are_there_once_are_left_out_with_a_warning(share):
    """Of an id the mean target of a row is that of the row itself: accuracy was 0.73 with it, and is 1 without."""
    a = np.random.default_rng(0).uniform(-1, 1, 200)
    ids = [f"id {k}" if k < 200 * share else f"pair {k // 2}" for k in np.random.default_rng(1).permutation(200)]
    table, classes = pd.DataFrame({"a": a, "id": ids}), a**2 > 0.25
    model = GatedClassifier("glu", width=3, ridge=1e-3, members=1, random_state=0)
    with pytest.warns(UserWarning, match=f"column 'id': {200 * share:.0f} values are unique"):
        model.fit(table, classes)
    assert model.columns_.columns[1].single == 200 * share
    assert model.score(table, classes) > 0.95
    fresh = pd.DataFrame({"a": np.linspace(-1, 1, 50), "id": "new"})
    assert model.score(fresh, fresh["a"] ** 2 > 0.25) > 0.9
    text = pd.DataFrame({"note": [f"text {k}" for k in range(200)]})
    with pytest.warns(UserWarning, match="200 values are unique"):
        alone = GatedRegressor(width=1, ridge=1e-3, starts=1, rounds=0, random_state=0).fit(text, a)
    assert np.allclose(alone.predict(text), a.mean())


@pytest.mark.parametrize("numbered", [False, True])
def test_a_table_of_nothing_but_levels_is_learned(numbered):
    """All rows of a level are equal then, and were held out together, so that nothing was known of it: R^2 was -24."""
    generator = np.random.default_rng(0)
    level = generator.integers(0, 40, 400)
    y = np.random.default_rng(5).normal(size=40)[level] + 0.3 * generator.normal(size=400)
    table = pd.DataFrame({"place": level if numbered else [f"p{k}" for k in level]})
    model = GatedRegressor("glu", width=1, ridge=1e-3, starts=1, rounds=0, random_state=0).fit(table, y)
    assert model.columns_.averaged and model.score(table, y) > 0.85
    classifier = GatedClassifier("glu", width=1, ridge=1e-3, members=1, random_state=0).fit(table, y > 0)
    assert classifier.score(table, y > 0) > 0.8


def test_tables_of_arrow_and_polars_are_taken_as_those_of_pandas():
    table, y = table_of(120)
    model = GatedRegressor("glu", width=1, ridge=1e-3, starts=1, rounds=0, random_state=0).fit(table, y)
    arrow = pa.Table.from_pandas(table)
    assert np.array_equal(model.predict(arrow), model.predict(table))
    assert np.array_equal(clone(model).fit(arrow, y).predict(arrow), model.predict(table))

    class Polars:
        """A table of polars without pyarrow beside it."""

        def to_pandas(self):
            raise ModuleNotFoundError("pyarrow is required")

    class LazyFrame:
        """One that is not computed yet."""

        def collect_schema(self):
            return {}

    with pytest.raises(GatelabError, match=r"becomes one of pandas by pyarrow .* pip install 'gatelab\[parquet\]'"):
        model.predict(Polars())
    with pytest.raises(GatelabError, match=r"a LazyFrame, which is not computed yet; give X.collect\(\)"):
        model.fit(LazyFrame(), y)


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
def test_a_regressor_takes_the_columns_of_a_table_as_they_are():
    """A network of places alone explains half of the variance at best; with the kinds it explains most."""
    table, y = table_of(600)
    fresh, truth = table_of(300, seed=1)
    model = GatedRegressor(width=3, ridge=1e-3, starts=1, rounds=0, steps=25, random_state=0).fit(table, y)
    assert model.n_features_in_ == 4 and list(model.feature_names_in_) == ["size", "kind", "place", "flag"]
    assert [c.kind for c in model.columns_.columns] == ["number", "levels", "means", "levels"]
    assert model.score(fresh, truth) > 0.9
    shuffled = np.random.default_rng(2).permutation(600)
    again = clone(model).fit(table.iloc[shuffled], y[shuffled])
    assert np.array_equal(again.predict(fresh), model.predict(fresh))
    unseen = fresh.assign(place="elsewhere", kind=None)
    assert np.isfinite(model.predict(unseen)).all()


@pytest.mark.parametrize(
    ("texts", "levels", "expected"),
    [
        (["TRUE", "false", "1", "0.0", "2"], ("False", "True"), [1, 0, 1, 0, 2]),
        (["a", " a ", "b"], (" a", " b"), [0, 0, 1]),
        (["NA", "", "#N/A", "DE"], ("\0missing", "DE"), [0, 0, 0, 1]),
        (["NA", "", "DE"], ("DE", "NA"), [1, 2, 0]),
        (["1234", "01234"], ("01234",), [1, 0]),
    ],
)
def test_levels_are_found_however_a_file_writes_them(texts, levels, expected):
    """Such rows were predicted as rows of no known level, without a word."""
    assert positions(np.array(texts, dtype=object), levels).tolist() == expected


def test_whole_numbers_that_double_precision_rounds_are_warned_of() -> None:
    b = np.random.default_rng(0).normal(size=80)
    model = GatedRegressor(width=1, ridge=1e-3, members=1, starts=1, rounds=0)
    with pytest.warns(UserWarning, match=r"'id' has whole numbers beyond 2\^53.*give them as text"):
        model.fit(pd.DataFrame({"id": 10**18 + np.arange(80) // 4, "b": b}), b**2)
