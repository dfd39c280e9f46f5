"""Crossings compared with a loop over steps, and the conditions of the corollary."""

from __future__ import annotations

import numpy as np
import pytest

from gatelab.dynamics import Training, crossing, expected_loss, measured_crossing
from gatelab.errors import GatelabError
from gatelab.ntk import analytic


def pair(n: int = 40, d: int = 20, width: int = 500):
    generator = np.random.default_rng(5)
    X = generator.standard_normal((n, d))
    return analytic(["mlp", "glu"], X, width), analytic(["mlp", "glu"], X, kind="nngp"), generator.standard_normal(n)


def test_the_step_is_where_a_loop_over_steps_sees_the_order_change() -> None:
    K, N, y = pair()
    found = crossing(*K, y, lr=2e-6, nngp=N)
    losses = [expected_loss(k, y, lr=2e-6, steps=3000, nngp=v).loss for k, v in zip(K, N, strict=True)]
    first = int(np.argmax(losses[1] < losses[0]))
    assert found.step is not None and first - 1 <= found.step <= first and first > 20
    assert found.loss == pytest.approx(losses[0][first], rel=0.01)
    assert (found.first, found.last) == ("mlp", "glu") and len(found.changes) == 1
    assert "mlp is ahead at first, glu from step" in found.verdict


def test_every_change_of_order_is_found() -> None:
    """Sums of three exponentials that cross twice: 6 r1 falls fast, then slow."""
    a, b = np.diag([8.0, 0.05, 0.05]), np.diag([1.0, 1.0, 0.01])
    found = crossing(a, b, [2.0, 1.0, 0.6], lr=0.05, start=(np.zeros(3), np.zeros(3)))
    steps = np.arange(found.horizon + 1)
    losses = [expected_loss(k, [2.0, 1.0, 0.6], lr=0.05, steps=steps, start=np.zeros(3)).loss for k in (a, b)]
    told = losses[0] != losses[1]
    signs = np.sign((losses[0] - losses[1])[told])
    at = steps[told][1:][signs[1:] != signs[:-1]]
    assert len(found.changes) == len(at) >= 2
    for change, step in zip(found.changes, at, strict=True):
        assert step - 1 <= change.step <= step
    assert found.step == found.changes[0].step
    assert [c.ahead for c in found.changes] == ["b", "a"][: len(at)]


def test_no_crossing_is_none() -> None:
    found = crossing(np.diag([2.0, 1.0]), np.diag([1.0, 0.5]), [1.0, 1.0], lr=0.1, start=(np.zeros(2), np.zeros(2)))
    assert found.step is None and found.loss is None and found.changes == () and found.last == "a"
    assert "a is ahead at all" in found.verdict


def test_each_unit_may_have_its_own_step() -> None:
    K, _, y = pair()
    own = [0.5 / np.linalg.eigvalsh(k.numpy())[-1] for k in K]
    found = crossing(*K, y, lr=own)
    assert found.lr == tuple(own)
    np.testing.assert_allclose(found.curves[1].at(50).loss, expected_loss(K[1], y, lr=own[1], steps=50).loss)


def test_the_conditions_are_those_of_the_corollary() -> None:
    K, _, y = pair()
    lr = 1e-5
    found = crossing(*K, y, lr=lr)
    matrices = [k.numpy() for k in K]
    np.testing.assert_allclose(found.early.signal, [y @ k @ y for k in matrices])
    np.testing.assert_allclose(found.early.spread, [np.trace(k @ k) for k in matrices])
    constants, values = [], []
    for k in matrices:
        w, u = np.linalg.eigh(k)
        constants.append((u[:, 0] @ y) ** 2 + w[0] / 500)
        values.append(w[0])
    np.testing.assert_allclose(found.late.lambda_min, values, rtol=1e-9)
    np.testing.assert_allclose(found.late.weight, constants, rtol=1e-6)
    assert found.late.holds is bool(values[1] > values[0])
    raw = np.log(constants[1] / constants[0]) / (2 * np.log((1 - lr * values[0]) / (1 - lr * values[1])))
    assert found.late.bound == pytest.approx(max(0.0, raw))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"K_b": np.eye(3)}, "K_a has 2 samples and K_b 3"),
        ({"K_b": np.eye(2)}, "the same loss at every step"),
        ({"lr": (0.1, 0.2, 0.3)}, "lr is not a pair"),
        ({"lr": 0.0}, "lr is 0.0; give a number above 0"),
        ({"lr": float("nan")}, "lr is nan; give a number above 0"),
        ({"nngp": np.eye(2)}, "nngp is not a pair"),
        ({"steps": 0}, "steps is 0"),
    ],
)
def test_errors(change: dict, says: str) -> None:
    given = {"K_a": np.eye(2), "K_b": 2 * np.eye(2), "y": [1.0, 1.0], "width": 3, "lr": 0.1} | change
    with pytest.raises(GatelabError, match=says):
        crossing(**given)


def training(losses: np.ndarray, diverged: int = -1) -> Training:
    rows = len(losses)
    marks = np.full(rows, diverged)
    steps = np.arange(losses.shape[1], dtype=float)
    return Training("x", 4, 0.1, tuple(range(rows)), steps, losses, marks, np.zeros((rows, 1, 1)), 0.0)


def test_a_measured_crossing_lies_between_recorded_steps_with_an_interval() -> None:
    t = np.arange(30.0)
    wobble = np.exp(0.05 * np.random.default_rng(0).standard_normal((8, 1)))
    a, b = training(wobble * np.exp(-0.1 * t)), training(wobble[::-1] * 2 * np.exp(-0.2 * t))
    found = measured_crossing(a, b)
    assert found.step == pytest.approx(np.log(2) / 0.1, rel=0.02)
    assert found.low < found.step < found.high and found.share == 1.0
    assert measured_crossing(a, training(3 * a.losses)).step is None
    with pytest.raises(GatelabError, match="diverged"):
        measured_crossing(a, training(b.losses, diverged=3))


@pytest.mark.parametrize(("lr", "wild"), [(1e9, ("mlp", "glu")), (None, ("mlp",))])
def test_losses_that_grow_without_bound_do_not_cross(lr: float | None, wild: tuple[str, ...]) -> None:
    K, N, y = pair()
    limits = {k.label: 2 / np.linalg.eigvalsh(k.numpy())[-1] for k in K}
    # Between the two limits, where one is given none: then one unit alone diverges.
    rate = float(np.mean(list(limits.values()))) if lr is None else lr
    with pytest.warns(UserWarning, match="grows without bound"):
        found = crossing(*K, y, lr=rate, nngp=N)
    least = min(limits, key=lambda name: limits[name])
    assert wild == (("mlp", "glu") if len(wild) == 2 else (least,))
    assert found.step is None and found.loss is None and found.changes == ()
    assert found.first is None and found.last is None
    assert found.reason == found.verdict and "without bound" in found.verdict
    for name in limits:
        assert (f"2 / lambda_max = {limits[name]:.3g} of {name}" in found.verdict) is (name in wild)
    assert all(not np.isnan(c.loss).any() for c in found.curves)
