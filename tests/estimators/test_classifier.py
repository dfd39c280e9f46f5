"""The classifier: its likelihood against automatic differentiation, what it learns, and scikit-learn's conventions."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gatelab as gl
from gatelab import GatedClassifier, GatelabError
from gatelab.estimators import classes as search
from gatelab.estimators import likelihood
from gatelab.estimators.likelihood import Likelihood, adam, gauss_newton
from gatelab.estimators.search import log_loss as mean_loss
from gatelab.estimators.search import log_mean, mixture_weights, temperature_of

FIXED = GatedClassifier("swiglu", width=2, ridge=1e-3, members=3, random_state=0)


def model(classes: int, unit: str = "swiglu", width: int = 3, members: int = 2) -> tuple[Likelihood, torch.Tensor]:
    """A batch on random rows, with random parameters."""
    draw = torch.Generator().manual_seed(classes)
    x = torch.randn(20, 3, generator=draw, dtype=torch.float64)
    x = torch.cat([x, torch.ones_like(x[:, :1])], 1)
    target = torch.eye(classes, dtype=torch.float64)[torch.randint(classes, (20,), generator=draw)]
    weight = torch.rand(members, 20, generator=draw, dtype=torch.float64)
    relevance = torch.rand(members, 4, generator=draw, dtype=torch.float64)
    ridge = torch.rand(members, generator=draw, dtype=torch.float64)
    batch = Likelihood(gl.unit(unit), width, x, target, weight, ridge, relevance)
    return batch, torch.randn(members, sum(batch.sizes), generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("unit", ["swiglu", "mlp", "gqu"])
def test_gradient_and_gauss_newton_matrix_are_those_of_autograd(unit: str, classes: int) -> None:
    batch, theta = model(classes, unit)
    K, g = batch.normal(theta)
    for member in range(len(theta)):
        alone = batch.take(torch.tensor([member]))

        def loss(t: torch.Tensor, alone: Likelihood = alone) -> torch.Tensor:
            return alone.loss(t[None])[0][0]

        def logits(t: torch.Tensor, alone: Likelihood = alone) -> torch.Tensor:
            return alone.logits(t[None])[0]

        torch.testing.assert_close(g[member], -torch.autograd.functional.jacobian(loss, theta[member]))
        J = torch.autograd.functional.jacobian(logits, theta[member])
        p = batch.log_probability(theta)[member].exp()
        slow = torch.diag(alone.penalty(theta[member][None])[0])
        for row in range(len(p)):
            fisher = torch.diag(p[row]) - torch.outer(p[row], p[row])
            if classes == 2:
                fisher = fisher[1:, 1:]
            slow = slow + batch.weight[member, row] * J[row].T @ fisher @ J[row]
        torch.testing.assert_close(K[member], slow)


def test_sensitivity_is_the_mean_square_of_the_logits_slopes() -> None:
    batch, theta = model(3)
    batch = replace(batch, weight=batch.weight / batch.weight.sum(1, keepdim=True))
    x = batch.x.clone().requires_grad_()
    square = torch.zeros_like(x)
    for c in range(3):
        square += torch.autograd.grad(batch.logits(theta, x)[1, :, c].sum(), x)[0].square()
    slow = (batch.weight[1, :, None] * square).sum(0)[:-1].sqrt()
    torch.testing.assert_close(batch.sensitivity(theta)[1], slow)


def test_parts_of_rows_and_of_members_change_nothing(monkeypatch) -> None:
    batch, theta = model(3)
    weight = batch.weight / batch.weight.sum(1, keepdim=True)
    whole, rows = gauss_newton(batch, theta, weight, steps=5), batch.deviance(theta)
    monkeypatch.setattr(likelihood, "_TALL_BYTES", 400)
    assert batch.together == 1
    torch.testing.assert_close(batch.deviance(theta), rows)
    torch.testing.assert_close(gauss_newton(batch, theta, weight, steps=5).theta, whole.theta)


def test_adam_and_gauss_newton_lead_to_one_minimum_of_the_linear_part() -> None:
    batch, theta = model(3, width=0)
    newton = gauss_newton(batch, theta, None, steps=50)
    passes = adam(batch, theta, None, passes=150, rate=0.1, batch_rows=20, seed=0)
    torch.testing.assert_close(batch.loss(passes.theta)[0], batch.loss(newton.theta)[0], atol=0, rtol=1e-3)


def test_mixture_weights_with_a_row_more_for_each_are_better_than_any_of_a_grid() -> None:
    draw = np.random.default_rng(0)
    y, weight = np.eye(2)[draw.integers(2, size=60)], np.ones(60)
    log_p = [np.log(draw.dirichlet([1, 1], 60)) for _ in range(2)]
    share = mixture_weights(log_p, y, weight, rounds=2000)
    assert share.min() >= 0 and share.sum() == pytest.approx(1)

    # A row that a member explains for certain adds the logarithm of its share to the likelihood.
    def loss(s: float) -> float:
        return mean_loss(log_mean(log_p, np.array([s, 1 - s])), y, weight) - np.log(s * (1 - s)) / 60

    assert loss(share[0]) <= min(map(loss, np.linspace(0.01, 0.99, 99))) + 1e-6
    useless = mixture_weights([log_p[0], np.where(y > 0, -50.0, 0.0)], y, weight, rounds=2000)
    np.testing.assert_allclose(useless, [61 / 62, 1 / 62])


def test_the_temperature_of_logits_that_are_three_times_too_large_is_three() -> None:
    """With 4000 rows its logarithm has a standard deviation of about 0.03; the prior takes some of it away."""
    draw = np.random.default_rng(0)
    z = draw.standard_normal(4000)
    y = (draw.random(4000) < 1 / (1 + np.exp(-z))).astype(int)
    log_p = torch.tensor(np.stack([np.zeros(4000), 3 * z], 1)).log_softmax(-1).numpy()
    assert temperature_of(log_p, np.eye(2)[y], np.ones(4000)) == pytest.approx(3, rel=0.15)


def linear_data(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((n, 3))
    p = 1 / (1 + np.exp(-(1.5 * x[:, 0] - x[:, 1])))
    return x, (draw.random(n) < p).astype(int), p


@pytest.fixture(scope="module")
def linear_fit() -> GatedClassifier:
    """What is chosen for 600 rows whose logits are linear."""
    x, y, _ = linear_data(600, 2)
    return GatedClassifier(members=4, random_state=0).fit(x, y)


def test_a_linear_target_is_fitted_as_logistic_regression_does(linear_fit: GatedClassifier) -> None:
    x, y, _ = linear_data(600, 2)
    z, t, _ = linear_data(4000, 1)
    line = LogisticRegression().fit(x, y)
    assert log_loss(t, linear_fit.predict_proba(z)) < 1.013 * log_loss(t, line.predict_proba(z))


def test_a_strong_ridge_leaves_the_linear_part_of_scikit_learn() -> None:
    """The neurons vanish, and ridge r is C = 1 / (r n) there, for inputs of unit variance."""
    x, y, _ = linear_data(200, 0)
    x = StandardScaler().fit_transform(x)
    line = LogisticRegression(C=1 / (0.3 * 200), tol=1e-8).fit(x, y)
    batch = Likelihood.plainly(gl.unit("swiglu"), 2, torch.tensor(np.c_[x, np.ones(200)]), 2)
    batch = replace(batch, target=torch.tensor(np.eye(2)[y]), ridge=torch.tensor([0.3], dtype=torch.float64))
    begun = search.start(batch, torch.zeros(1, 4, dtype=torch.float64), 0)
    logits = batch.logits(gauss_newton(batch, begun, None, steps=200).theta)[0, :, 0]
    np.testing.assert_allclose(logits.numpy(), line.decision_function(x), atol=0.01)


def test_probabilities_are_calibrated_where_they_are_known(linear_fit: GatedClassifier) -> None:
    """Their expected calibration error over ten bins of 5000 rows; that of the true ones is about 0.008 by chance."""
    z, t, p = linear_data(5000, 3)
    q = linear_fit.predict_proba(z)

    def calibration_error(q: np.ndarray) -> float:
        cell = np.minimum((q * 10).astype(int), 9)
        return sum(abs((t - q)[cell == c].sum()) for c in range(10)) / len(q)

    np.testing.assert_allclose(q.sum(1), 1, atol=1e-12)
    assert calibration_error(p) < 0.02
    assert calibration_error(q[:, 1]) < 0.03


def test_three_classes_of_text_in_a_pipeline_and_a_search() -> None:
    x, y = load_iris(return_X_y=True)
    names = np.array(["one", "two", "three"])[y]
    grid = GridSearchCV(make_pipeline(StandardScaler(), FIXED), {"gatedclassifier__width": [1, 2]}, cv=2).fit(x, names)
    assert grid.best_score_ > 0.93
    assert grid.classes_.tolist() == ["one", "three", "two"]
    assert set(grid.predict(x)) == {"one", "two", "three"}


def test_class_weights_are_weights_of_rows() -> None:
    x, y, _ = linear_data(80, 0)
    y = np.where(y, "yes", "no")
    weighted = clone(FIXED).set_params(class_weight={"yes": 3}).fit(x, y).predict_proba(x)
    rows = clone(FIXED).fit(x, y, sample_weight=np.where(y == "yes", 3, 1)).predict_proba(x)
    assert np.array_equal(weighted, rows)
    half = np.r_[np.flatnonzero(y == "no"), np.flatnonzero(y == "yes")[:8]]
    balanced = clone(FIXED).set_params(class_weight="balanced").fit(x[half], y[half])
    assert balanced.predict_proba(x)[:, 1].mean() > clone(FIXED).fit(x[half], y[half]).predict_proba(x)[:, 1].mean()


@pytest.mark.parametrize("labels", [["a", "b", "c"], [3, 1, 2], [0.0, 1.0, 2.0], [True, False, True]])
def test_a_saved_model_predicts_the_same_to_the_last_bit(labels, tmp_path) -> None:
    x, y = (rows[::3] for rows in load_iris(return_X_y=True))
    y = np.array(labels)[y]
    table = pd.DataFrame(x, columns=list("abcd")).assign(a=np.where(x[:, 0] > 7, np.nan, x[:, 0]))
    fitted = clone(FIXED).set_params(class_weight={labels[0]: 2.0}, unit=("swiglu", gl.unit("glu"))).fit(table, y)
    again = gl.load(fitted.save(tmp_path / "model.safetensors"))
    assert isinstance(again, GatedClassifier)
    assert np.array_equal(fitted.predict_proba(table), again.predict_proba(table))
    assert np.array_equal(fitted.predict(table), again.predict(table)) and again.classes_.dtype == fitted.classes_.dtype
    assert json.dumps(again.validation_) == json.dumps(fitted.validation_)
    assert again.get_params()["class_weight"] == {labels[0]: 2.0}


def test_what_a_file_cannot_hold_is_refused(tmp_path) -> None:
    odd = np.empty(2, dtype=object)
    odd[:] = [("a",), ("b",)]
    for classes in (odd, np.array(["2024-01-01"], dtype="datetime64[ns]")):
        with pytest.raises(GatelabError, match="give text, numbers or booleans"):
            gl.estimators.classifier.plain_classes(classes)
    with pytest.raises(GatelabError, match="holds a Fit, not a GatedClassifier"):
        GatedClassifier.load(gl.fit("glu", "x2", 2).save(tmp_path / "fit"))


def test_many_rows_go_by_adam_within_the_time_that_is_given(monkeypatch, capsys) -> None:
    monkeypatch.setattr(search, "_NEWTON_WORK", 0)
    monkeypatch.setattr(search, "WIDTHS", (8, 8, 8))
    x, y, _ = linear_data(300, 0)
    y = np.where(x[:, 2] > 1, 2, y)
    monkeypatch.setattr(search, "RIDGES", (1e-3, 1e-2))
    fitted = GatedClassifier("swiglu", members=3, random_state=0, time_budget=1e-3, verbose=1).fit(x, y)
    assert len(fitted.validation_) == capsys.readouterr().out.count("log_loss") == len(search.RIDGES)
    fitted.set_params(time_budget=None).fit(x, y)
    assert len(fitted.validation_) > len(search.RIDGES)
    assert fitted.score(x, y) > 0.75


def test_few_rows_rare_classes_and_inputs_that_do_not_differ() -> None:
    assert GatedClassifier().fit([[0.0], [1.0]], ["a", "b"]).predict([[0.0], [1.0]]).tolist() == ["a", "b"]
    x, y, _ = linear_data(60, 0)
    y[0] = 2
    rare = clone(FIXED).fit(x, y)
    assert np.isfinite(rare.predict_log_proba(x)).all() and rare.predict_proba(x).shape == (60, 3)
    flat = GatedClassifier(random_state=0).fit(np.ones((40, 2)), np.repeat([0, 1, 1, 1], 10))
    assert flat.predict_proba(np.ones((1, 2)))[0, 1] == pytest.approx(0.75, abs=0.02)


def test_far_outside_probabilities_are_those_of_the_edge() -> None:
    x, y, _ = linear_data(80, 0)
    fitted = clone(FIXED).fit(x, y)
    low, high = x.min(0), x.max(0)
    edge = fitted.predict_proba([high + (high - low) / 2])
    np.testing.assert_allclose(fitted.predict_proba([high + 1e6, [1e300] * 3]), np.repeat(edge, 2, 0), atol=1e-9)
    assert 0 < edge.min() < edge.max() < 1
