"""The closed form: against matrix powers, against draws, and where it must refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gatelab.dynamics import expected_loss, stable_step
from gatelab.errors import GatelabError
from gatelab.ntk import analytic


def problem(n: int = 12, d: int = 6, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    return generator.standard_normal((n, d)), generator.standard_normal((n, k))


def slow(K: np.ndarray, N: np.ndarray, Y: np.ndarray, lr: float, t: int) -> tuple[float, float]:
    """Bias and variance by powers of the matrix itself."""
    M = np.linalg.matrix_power(np.eye(len(K)) - lr * K, 2 * t)
    return 0.5 * float(np.trace(Y.T @ M @ Y)), 0.5 * Y.shape[1] * float(np.trace(N @ M))


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("exact", [True, False])
def test_it_is_the_formula_of_matrix_powers(outputs: int, exact: bool) -> None:
    X, Y = problem(k=outputs)
    K, N = analytic("glu", X, 50), analytic("glu", X, kind="nngp")
    lr = 0.9 / stable_step(K).lambda_max
    made = expected_loss(K, Y, lr=lr, steps=[0, 1, 7, 40], nngp=N if exact else None)
    for i, t in enumerate((0, 1, 7, 40)):
        bias, variance = slow(K.numpy(), N.numpy() if exact else K.numpy() / 50, Y, lr, t)
        np.testing.assert_allclose([made.bias[i], made.variance[i]], [bias, variance], rtol=1e-10)
    np.testing.assert_allclose(made.loss, made.bias + made.variance)
    np.testing.assert_allclose(made.at([7]).loss, made.loss[2])


def test_the_mean_is_the_sum_over_n_with_the_step_times_n() -> None:
    X, Y = problem()
    K = analytic("mlp", X, 50)
    total = expected_loss(K, Y, lr=1e-3, steps=9)
    mean = expected_loss(K, Y, lr=12e-3, steps=9, loss="mean")
    np.testing.assert_allclose(mean.loss * 12, total.loss, rtol=1e-12)
    assert stable_step(K, loss="mean").limit == pytest.approx(12 * stable_step(K).limit)


def test_given_outputs_it_is_gradient_descent_on_the_quadratic() -> None:
    X, Y = problem(k=2)
    K = analytic("mlp", X, 50).numpy()
    starts = np.random.default_rng(0).standard_normal((3, 12, 2))
    made = expected_loss(K, Y, lr=1e-3, steps=25, start=starts)
    f = starts.copy()
    for t in range(26):
        assert made.loss[t] == pytest.approx(0.5 * np.mean(np.sum((f - Y) ** 2, axis=(1, 2))), rel=1e-10)
        f = f - 1e-3 * K @ (f - Y)
    assert made.deviation is None


@pytest.mark.parametrize("outputs", [1, 2])
def test_mean_and_deviation_are_those_of_gaussian_outputs(outputs: int) -> None:
    """4000 draws: the mean within 4 standard errors, its spread within 8 %; false alarms below 1e-3."""
    X, Y = problem(k=outputs)
    K, N = analytic("glu", X, 200), analytic("glu", X, kind="nngp")
    made = expected_loss(K, Y, lr=1e-3, steps=[0, 3, 20], nngp=N)
    root = np.linalg.cholesky(N.numpy())
    f = root @ np.random.default_rng(1).standard_normal((4000, 12, outputs))
    powers = [np.linalg.matrix_power(np.eye(12) - 1e-3 * K.numpy(), t) for t in (0, 3, 20)]
    each = np.stack([0.5 * np.square(power @ (f - Y)).sum((1, 2)) for power in powers], axis=1)
    assert made.deviation is not None
    assert (np.abs(each.mean(0) - made.loss) < 4 * made.deviation / 4000**0.5).all()
    np.testing.assert_allclose(each.std(0), made.deviation, rtol=0.08)


def test_small_directions_are_not_lost() -> None:
    K = np.diag([1.0, 1e-9])
    made = expected_loss(K, [0.0, 1.0], width=1, lr=1.0, steps=[0, 1, 10**9])
    assert made.bias[2] == pytest.approx(0.5 * np.exp(-2.0), rel=1e-8)


def test_stable_steps() -> None:
    K = np.diag([5.0, 1.0])
    step = stable_step(torch.tensor(K))
    for lr, grows in ((0.99 * step.limit, False), (1.01 * step.limit, True)):
        assert bool(np.abs(1 - lr * np.diag(K)).max() > 1) is grows
    assert np.abs(1 - step.best * np.diag(K)).max() == pytest.approx(step.rate)
    for other in (0.97 * step.best, 1.03 * step.best):
        assert np.abs(1 - other * np.diag(K)).max() > step.rate


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"K": np.ones((2, 3))}, "shape"),
        ({"K": np.array([[1.0, 2.0], [0.0, 1.0]])}, "not symmetric"),
        ({"K": -np.eye(2)}, "eigenvalues from"),
        ({"K": np.full((2, 2), np.nan)}, "entry .* of K is nan"),
        ({"y": [1.0, 2.0, 3.0]}, "2 targets"),
        ({"y": [1e200, 1.0]}, "y reaches 1e\\+200"),
        ({"width": None}, "give width"),
        ({"width": 0}, "width is 0"),
        ({"lr": "fast"}, "lr is 'fast'"),
        ({"steps": -1}, "steps is -1"),
        ({"steps": [0, -2]}, "steps is"),
        ({"steps": 1.5}, "steps is 1.5"),
        ({"nngp": np.eye(3)}, "nngp has 3 samples"),
        ({"start": np.ones((4, 5))}, "start has shape"),
        ({"loss": "median"}, "no loss is called"),
    ],
)
def test_errors_say_what_was_given(change: dict, says: str) -> None:
    given = {"K": np.eye(2), "y": [1.0, 2.0], "width": 4, "lr": 0.1, "steps": 3} | change
    with pytest.raises(GatelabError, match=says):
        expected_loss(given.pop("K"), given.pop("y"), given.pop("width"), given.pop("lr"), given.pop("steps"), **given)


def test_the_default_rate_and_the_table() -> None:
    X, Y = problem()
    made = expected_loss(analytic("mlp", X, 50), Y, steps=20)
    assert made.lr == pytest.approx(made.limit / 2)
    assert list(made.table().columns) == ["step", "loss", "bias", "variance", "deviation"] and len(made.table()) == 21


def test_a_step_above_the_limit_grows_and_one_at_it_does_not() -> None:
    K = np.diag([1.0, 0.5])
    at_limit = expected_loss(K, [1.0, 1.0], width=1, lr=2.0, steps=[0, 1, 10**6])
    assert at_limit.stable and at_limit.limit == 2.0 and at_limit.loss[2] <= at_limit.loss[0]
    with pytest.warns(UserWarning, match=r"lr is 1e\+300, above 2 / lambda_max = 2"):
        wild = expected_loss(K, [0.0, 1.0], width=1, lr=1e300, steps=[0, 1, 2])
    assert not wild.stable and np.isfinite(wild.loss[0]) and (wild.loss[1:] == np.inf).all()
    # The targets are 0 along the fastest direction, and 0 times infinity counts as 0.
    with pytest.warns(UserWarning):
        still = expected_loss(np.diag([1.0, 1e-3]), [0.0, 1.0], width=1, lr=4.0, steps=[10**4])
    assert still.bias[0] == pytest.approx(0.5 * (1 - 4e-3) ** (2 * 10**4)) and still.variance[0] == np.inf
