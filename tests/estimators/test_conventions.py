"""scikit-learn's own checks, none of them excused, and the tools that take an estimator."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gatelab import GatedRegressor
from gatelab.estimators import squares
from gatelab.estimators.squares import widths_for
from gatelab.estimators.trees import Squares

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
FIXED = GatedRegressor(width=3, ridge=1e-6, starts=1, rounds=0, steps=20, random_state=0)


@pytest.mark.slow
@parametrize_with_checks(
    [
        GatedRegressor(starts=1, rounds=0, steps=4),
        GatedRegressor("glu", width=2, ridge=1e-6, starts=1, rounds=0, steps=20),
    ]
)
def test_scikit_learn_checks(estimator, check, monkeypatch) -> None:
    """Two ridges, two widths, few step gates: what is checked are conventions, not how good a choice is."""
    monkeypatch.setattr(Squares, "most", 4)
    monkeypatch.setattr(squares, "RIDGES", (1e-6, 1e-2))
    monkeypatch.setattr(squares, "widths_for", lambda unit, rows: widths_for(unit, rows)[:2])
    check(estimator)


def data(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).uniform(-1, 1, (n, 2))
    return x, np.exp(x[:, 0]) * x[:, 1]


def test_in_a_pipeline_with_pandas_and_a_transformed_target() -> None:
    x, y = data()
    frame = pd.DataFrame(x, columns=["left", "right"])
    pipe = make_pipeline(StandardScaler().set_output(transform="pandas"), clone(FIXED))
    model = TransformedTargetRegressor(pipe, transformer=StandardScaler()).fit(frame, y)
    assert model.score(frame, y) > 0.99
    assert list(model.regressor_[-1].feature_names_in_) == ["left", "right"]


def test_names_that_differ_are_refused() -> None:
    x, y = data()
    model = clone(FIXED).fit(pd.DataFrame(x, columns=["left", "right"]), y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(pd.DataFrame(x, columns=["right", "left"]))


def test_in_a_grid_search_and_in_cross_validation() -> None:
    x, y = data()
    grid = GridSearchCV(FIXED, {"width": [1, 4], "unit": ["swiglu", "mlp"]}, cv=3).fit(x, y)
    assert grid.best_params_ == {"width": 4, "unit": "swiglu"}
    assert cross_val_score(FIXED, x, y, cv=3).min() > 0.9


def test_vector_targets_of_very_different_scales_are_all_fitted() -> None:
    x, y = data(200)
    both = np.stack([1e-6 * y, 1e6 * x[:, 0] * x[:, 1]], axis=1)
    model = clone(FIXED).set_params(width=8, steps=60).fit(x, both)
    assert model.predict(x).shape == both.shape
    assert (np.std(model.predict(x) - both, axis=0) < 0.01 * both.std(axis=0)).all()


def test_a_weight_of_two_is_the_row_twice_to_the_last_bit_in_any_order() -> None:
    x, y = data(60)
    weight = np.random.default_rng(1).integers(0, 3, 60)
    twice = np.repeat(np.arange(60), weight)
    shuffled = np.random.default_rng(2).permutation(twice)
    weighted = clone(FIXED).fit(x, y, sample_weight=weight).predict(x)
    assert np.array_equal(weighted, clone(FIXED).fit(x[shuffled], y[shuffled]).predict(x))
    assert not np.array_equal(weighted, clone(FIXED).fit(x, y).predict(x))


def test_weights_say_where_to_be_right() -> None:
    """Two halves of noise about different levels, one width: the mean that is fitted follows the weights."""
    x = np.zeros((40, 1))
    y = np.repeat([0.0, 1.0], 20)
    model = GatedRegressor().fit(x, y, sample_weight=np.repeat([3.0, 1.0], 20))
    assert model.predict(x[:1]) == pytest.approx(0.25, abs=1e-14)


def test_equal_seeds_give_equal_bits_and_an_interrupted_fit_leaves_no_trace(monkeypatch) -> None:
    x, y = data()
    model = clone(FIXED).fit(x, y)
    before = model.predict(x)
    assert np.array_equal(before, clone(FIXED).fit(x, y).predict(x))

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("gatelab.estimators.regressor.fit_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(np.hstack([x, x]), y)
    assert model.n_features_in_ == 2
    assert np.array_equal(model.predict(x), before)


def test_verbose_says_what_is_tried(capsys) -> None:
    x, y = data(40)
    model = GatedRegressor(width=1, starts=1, rounds=0, steps=5, random_state=0, verbose=1).fit(x, y)
    assert capsys.readouterr().out.count("width 1") == len(model.validation_) == len(squares.RIDGES)
