"""Rows as they come: fitted sensibly, or refused with a sentence that says what to do."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning

from gatelab import GatedClassifier, GatedRegressor, GatelabError


def smooth(n: int = 150, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).uniform(-1, 1, (n, d))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] ** 2


def quick(**options) -> GatedRegressor:
    usual = {"width": 4, "ridge": 1e-8, "starts": 1, "rounds": 1, "steps": 40, "random_state": 0}
    return GatedRegressor(**usual | options)


def error(model: GatedRegressor, x: np.ndarray, y: np.ndarray) -> float:
    return float(np.std(model.predict(x) - y) / np.std(y))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.column_stack([np.full(150, 0.1), x, np.full(150, 1e9)]),
        lambda x: np.column_stack([x, x[:, 0] - 3 * x[:, 1], 2 * x]),
        lambda x: x + 1e8,
    ],
)
def test_constant_and_collinear_columns_and_offsets_that_dwarf_inputs_change_nothing(change) -> None:
    x, y = smooth()
    model = quick().fit(change(x), y)
    assert model.frame_.directions == 2 and error(model, change(x), y) < 0.01


@pytest.mark.parametrize("scale", [1e150, 1e307, 1e-300])
def test_huge_and_tiny_scales_are_no_matter(scale: float) -> None:
    x, y = smooth()
    targets = y / scale if 1e-200 < scale < 1e200 else y  # beyond, the test's own squares would overflow
    assert error(quick().fit(x * scale, targets), x * scale, targets) < 0.01


def test_more_inputs_than_rows_are_as_many_as_the_rows_span() -> None:
    x = np.random.default_rng(0).normal(size=(12, 50))
    with pytest.warns(UserWarning, match="only 12 different target values"):
        model = quick(width=2, ridge=1e-2).fit(x, x[:, 0])
    assert model.frame_.directions == 11
    assert np.isfinite(model.predict(x)).all()


def test_three_rows_are_fitted_and_said_to_be_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatelab.estimators.trees.Squares.most", 60)
    x, y = np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 1.0, 2.0])
    with pytest.warns(UserWarning, match="give more rows"):
        model = GatedRegressor(random_state=0).fit(x, y)
    assert model.width_ == 1
    assert np.abs(model.predict([[0.5], [1.5]]) - [0.5, 1.5]).max() < 0.5


def test_constant_targets_and_constant_inputs_give_the_mean() -> None:
    x, y = smooth()
    assert (GatedRegressor().fit(x, np.full(150, 7.0)).predict(x) == 7.0).all()
    assert GatedRegressor().fit(np.ones((150, 2)), y).predict([[5.0, 5.0]]) == pytest.approx(y.mean())
    with pytest.warns(UserWarning, match="hardly more than its rounding"):
        quick().fit(x, y + 1e15)


X, Y = smooth()
INFINITE = np.where(np.arange(300).reshape(150, 2) == 3, -np.inf, X)


DATES = np.arange(150).astype("datetime64[D]")
REFUSED = {
    "width is 0": {"model": quick(width=0)},
    "ridge is -1.0": {"model": quick(ridge=-1.0)},
    "ridge is nan": {"model": quick(ridge=np.nan)},
    "did you mean": {"model": quick(unit="gllu")},
    "unit is empty": {"model": quick(unit=())},
    "starts is 0": {"model": quick(starts=0)},
    "rounds is 1.5": {"model": quick(rounds=1.5)},
    "steps is 0": {"model": quick(steps=0)},
    "device is 'abacus'": {"model": quick(device="abacus")},
    "give a smaller width": {"model": quick(width=151)},
    "is a class; give a product unit": {"model": quick(unit=torch.nn.Linear)},
    "every sample_weight is zero": {"weight": np.zeros(150)},
    "negative": {"weight": -1.0},
    "one number for each of the 150 rows": {"weight": np.ones(3)},
    "sample_weight contains infinity": {"weight": np.inf},
    "sample_weight contains NaN": {"weight": np.full(150, np.nan)},
    "X contains infinity": {"x": INFINITE},
    "y contains infinity": {"y": np.where(Y > 1, np.inf, Y)},
    "minimum of 2 is required": {"x": [[1.0]], "y": [1.0]},
    "[Ss]parse": {"x": csr_array(np.eye(5)), "y": np.arange(5.0)},
    "y contains NaN": {"y": [1.0, None] * 75},
    "y holds datetime64": {"y": DATES},
    "target y is None": {"y": None},
    "all of one class of y": {"model": GatedClassifier(), "y": np.zeros(150)},
    "has the key 7": {"model": GatedClassifier(class_weight={7: 2}), "y": Y > 0.5},
    "class_weight of True is -2": {"model": GatedClassifier(class_weight={True: -2}), "y": Y > 0.5},
    "class_weight is 'even'": {"model": GatedClassifier(class_weight="even"), "y": Y > 0.5},
    "members is 0": {"model": GatedClassifier(members=0), "y": Y > 0.5},
    "time_budget is 0": {"model": GatedClassifier(time_budget=0), "y": Y > 0.5},
    r"1 missing value\(s\) \(NaN or None\), the first in row 0": {
        "model": GatedClassifier(),
        "y": [None, *"ab" * 74, "a"],
    },
    "y has 2 columns .*MultiOutputClassifier": {"model": GatedClassifier(), "y": np.stack([Y > 0, Y > 1], axis=1)},
    "Unknown label type": {"model": GatedClassifier(), "y": Y},
    "GatedClassifier requires y": {"model": GatedClassifier(), "y": None},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_cannot_be_fitted_is_refused(sentence: str) -> None:
    given = {"model": quick(), "x": X, "y": Y, "weight": None} | REFUSED[sentence]
    with pytest.raises((ValueError, TypeError), match=sentence):
        given["model"].fit(given["x"], given["y"], sample_weight=given["weight"])


def test_too_few_steps_are_said_and_enough_are_not() -> None:
    x, y = smooth()
    with pytest.warns(ConvergenceWarning, match="raise steps"):
        assert quick(width=8, ridge=0.0, rounds=0, steps=1).fit(x, y).n_iter_ == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(width=1, ridge=1e-2, steps=500).fit(x, y)
        quick(width=2, ridge=0.0, steps=None).fit(x, y)


def test_a_network_that_runs_away_is_held(monkeypatch) -> None:
    """The solver may end at infinite coefficients where gates underflow; the fit then tries again with a ridge."""
    from gatelab.estimators import regressor

    asked, real = [], regressor.fit_batch

    def runs_away(*args, ridge, **options):
        asked.append(ridge)
        found = real(*args, ridge=ridge, **options)
        if ridge == 0.0:
            found[0].network.D.data.fill_(np.inf)
        return found

    monkeypatch.setattr(regressor, "fit_batch", runs_away)
    x, y = smooth()
    assert error(quick(ridge=0.0).fit(x, y), x, y) < 0.01
    assert asked == [0.0, 1e-8]


def test_a_row_far_outside_the_data_is_held_near_the_targets() -> None:
    x, y = smooth()
    model = quick(unit="glu").fit(x, y)
    far = model.predict(1e3 * x)
    half = (y.max() - y.min()) / 2
    assert far.max() == pytest.approx(y.max() + half) and far.min() == pytest.approx(y.min() - half)
    frame = model.frame_
    free = model.network_(torch.tensor(frame.inputs(x))).detach().numpy()  # within the data nothing is held
    assert np.allclose(model.predict(x), frame.y_unit * (frame.y_mean + frame.y_scale * free)[:, 0])


def test_masked_values_are_refused() -> None:
    x, y = smooth()
    hidden = np.ma.masked_array(x, mask=x > 0.9)
    with pytest.raises(GatelabError, match=f"X has {hidden.mask.sum()} masked values of 300"):
        quick().fit(hidden, y)
    model = quick().fit(np.ma.masked_array(x), y)
    with pytest.raises(GatelabError, match="X has"):
        model.predict(hidden)


def test_the_index_column_of_a_frame_is_no_input() -> None:
    pd = pytest.importorskip("pandas")
    x, y = smooth()
    frame = pd.DataFrame(x, columns=["a", "b"]).reset_index(names="Unnamed: 0")
    with pytest.warns(UserWarning, match="'Unnamed: 0' labels the rows"):
        model = quick().fit(frame, y)
    assert model.n_features_in_ == 2 and list(model.feature_names_in_) == ["a", "b"]
    with pytest.warns(UserWarning, match="'Unnamed: 0' labels the rows"):
        values = model.predict(frame)
    assert np.array_equal(values, quick().fit(x, y).predict(x))
