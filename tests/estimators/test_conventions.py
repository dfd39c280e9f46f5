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

from gatelab import GatedClassifier, GatedRegressor
from gatelab.estimators import classes, squares
from gatelab.estimators.squares import widths_for
from gatelab.estimators.trees import Squares

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
FIXED = GatedRegressor(width=3, ridge=1e-6, starts=1, rounds=0, steps=20, random_state=0)

CLASSES = GatedClassifier("swiglu", width=2, ridge=1e-3, members=3, random_state=0)


@pytest.mark.slow
@parametrize_with_checks(
    [
        GatedRegressor(starts=1, rounds=0, steps=4),
        GatedRegressor("glu", width=2, ridge=1e-6, starts=1, rounds=0, steps=20),
        GatedClassifier(members=3),
        GatedClassifier("glu", width=2, ridge=1e-3, members=1),
    ]
)
def test_scikit_learn_checks(estimator, check, monkeypatch) -> None:
    """Two ridges, one or two widths, few step gates: what is checked are conventions, not how good a choice is."""
    monkeypatch.setattr(Squares, "most", 4)
    monkeypatch.setattr(squares, "RIDGES", (1e-6, 1e-2))
    monkeypatch.setattr(squares, "widths_for", lambda unit, rows: widths_for(unit, rows)[:2])
    monkeypatch.setattr(classes, "RIDGES", (1e-3, 1e-1))
    monkeypatch.setattr(classes, "WIDTHS", (2, 2, 2))
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


def test_in_a_grid_search_and_in_cross_validation() -> None:
    x, y = data()
    grid = GridSearchCV(FIXED, {"width": [1, 4], "unit": ["swiglu", "mlp"]}, cv=2).fit(x, y)
    assert grid.best_params_ == {"width": 4, "unit": "swiglu"}
    assert cross_val_score(FIXED, x, y, cv=2).min() > 0.9


def test_vector_targets_of_very_different_scales_are_all_fitted() -> None:
    x, y = data(200)
    both = np.stack([1e-6 * y, 1e6 * x[:, 0] * x[:, 1]], axis=1)
    model = clone(FIXED).set_params(width=8, steps=60).fit(x, both)
    assert model.predict(x).shape == both.shape
    assert (np.std(model.predict(x) - both, axis=0) < 0.01 * both.std(axis=0)).all()


def values(model, x: np.ndarray) -> np.ndarray:
    return model.predict_proba(x) if isinstance(model, GatedClassifier) else model.predict(x)


@pytest.mark.parametrize("fixed", [FIXED, CLASSES])
def test_a_weight_of_two_is_the_row_twice_to_the_last_bit_in_any_order(fixed) -> None:
    x, y = data(60)
    y = y > 0 if fixed is CLASSES else y
    weight = np.random.default_rng(1).integers(0, 3, 60)
    shuffled = np.random.default_rng(2).permutation(np.repeat(np.arange(60), weight))
    weighted = values(clone(fixed).fit(x, y, sample_weight=weight), x)
    assert np.array_equal(weighted, values(clone(fixed).fit(x[shuffled], y[shuffled]), x))
    assert not np.array_equal(weighted, values(clone(fixed).fit(x, y), x))


@pytest.mark.parametrize(("fixed", "inner"), [(FIXED, "regressor.fit_batch"), (CLASSES, "classifier.ClassSearch")])
def test_equal_seeds_give_equal_bits_and_an_interrupted_fit_leaves_no_trace(fixed, inner, monkeypatch) -> None:
    x, y = data()
    y = y > 0 if fixed is CLASSES else y
    model = clone(fixed).fit(x, y)
    before = values(model, x)
    assert np.array_equal(before, values(clone(fixed).fit(x, y), x))

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"gatelab.estimators.{inner}", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(np.hstack([x, x]), y)
    assert model.n_features_in_ == 2
    assert np.array_equal(values(model, x), before)


def test_weights_say_where_to_be_right() -> None:
    """Two halves of noise about different levels, one width: the mean that is fitted follows the weights."""
    x = np.zeros((40, 1))
    y = np.repeat([0.0, 1.0], 20)
    model = GatedRegressor().fit(x, y, sample_weight=np.repeat([3.0, 1.0], 20))
    assert model.predict(x[:1]) == pytest.approx(0.25, abs=1e-14)
