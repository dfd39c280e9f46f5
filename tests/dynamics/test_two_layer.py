"""Batched networks against a single network by autograd, step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gatelab as gl
from gatelab.dynamics import in_span, train
from gatelab.errors import GatelabError

N, D = 30, 5


def sine_gated(z: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.sin(z) * v + z


def problem(outputs: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(2)
    return generator.standard_normal((N, D)), generator.standard_normal((N, outputs))


def slow(unit, X, Y, width, lr, steps, seed, scale=1.0) -> np.ndarray:
    """The losses of one network, by autograd and a plain loop."""
    net = gl.unit(unit).network(width, D, Y.shape[1], seed=seed)
    learned = [p for name, p in net.named_parameters() if name[0].isupper()]
    x, y = torch.tensor(X), torch.tensor(Y)
    losses = []
    for _ in range(steps + 1):
        loss = 0.5 * scale * (net(x) - y).square().sum()
        losses.append(loss.item())
        with torch.no_grad():
            for p, g in zip(learned, torch.autograd.grad(loss, learned), strict=True):
                p -= lr * g
    return np.array(losses)


UNITS = ["mlp", "glu", "gqu", "relu2", "gelu", "geglu", "silu", "swiglu", "bilinear", "sigmoid-glu"]


@pytest.mark.parametrize("unit", [*UNITS, gl.Unit("gelu", 3), sine_gated], ids=lambda u: gl.unit(u).name)
@pytest.mark.parametrize("outputs", [1, 3])
def test_a_batch_is_its_networks_one_by_one(unit, outputs: int) -> None:
    X, Y = problem(outputs)
    run = train(unit, X, Y, 9, 3e-4, 12, seeds=[4, 0, 7])
    expected = [slow(unit, X, Y, 9, 3e-4, 12, seed) for seed in (4, 0, 7)]
    np.testing.assert_allclose(run.losses, expected, rtol=1e-11)
    start = gl.unit(unit).network(9, D, outputs, seed=7)(torch.tensor(X)).detach().numpy()
    np.testing.assert_allclose(run.start[2], start, rtol=1e-12, atol=1e-14)
    assert run.seeds == (4, 0, 7) and not (run.diverged >= 0).any()


def test_the_mean_loss() -> None:
    X, Y = problem(1)
    run = train("glu", X, Y, 9, 0.1, 10, seeds=2, loss="mean")
    np.testing.assert_allclose(run.losses, [slow("glu", X, Y, 9, 0.1, 10, j, scale=1 / N) for j in (0, 1)], rtol=1e-11)


def test_how_the_batch_is_cut_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = problem(1)
    whole = train("glu", X, Y, 16, 1e-3, 40, seeds=7)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        np.testing.assert_array_equal(train("glu", X, Y, 16, 1e-3, 40, seeds=7).losses, whole.losses)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setattr("gatelab.dynamics.training.CACHE", 1)
    np.testing.assert_allclose(train("glu", X, Y, 16, 1e-3, 40, seeds=7).losses, whole.losses, rtol=1e-12)


def test_samples_in_their_span_train_alike() -> None:
    """Rotated weights give the same network: the losses of given weights agree to rounding."""
    X = np.random.default_rng(0).standard_normal((6, 40))
    Z = in_span(X)
    assert Z.shape == (6, 6)
    np.testing.assert_allclose(Z @ Z.T, X @ X.T, atol=1e-10)
    y = np.arange(6.0)
    # Means over 400 networks of the two; the difference is within 4 standard errors, false alarms below 1e-4 a step.
    runs = [train("glu", X, y, 20, 2e-3, 8, seeds=400), train("glu", Z, y, 20, 2e-3, 8, seeds=400, fan_in=40)]
    spread = np.sqrt(sum(r.losses.var(0, ddof=1) / 400 for r in runs))
    assert (np.abs(runs[0].mean - runs[1].mean) < 4 * spread).all()


def test_recorded_steps_and_progress() -> None:
    X, Y = problem(1)
    steps = train("mlp", X, Y, 4, 1e-4, 1200, seeds=1).steps
    assert len(steps) <= 200 and (steps[0], steps[-1]) == (0, 1200)
    seen: list[tuple[int, int]] = []
    full = train("mlp", X, Y, 4, 1e-4, 60, seeds=2, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] and seen == sorted(seen)
    some = train("mlp", X, Y, 4, 1e-4, 60, seeds=2, record=[60, 0, 33])
    assert some.steps.tolist() == [0, 33, 60]
    np.testing.assert_array_equal(some.losses, full.losses[:, [0, 33, 60]])


def test_networks_that_diverge_are_recorded_and_said() -> None:
    X, Y = problem(1)
    with pytest.warns(UserWarning, match=r"2 of 2 networks of 'glu' diverged, the first at step \d+ \(lr 0.5\)"):
        run = train("glu", X, Y, 16, 0.5, 80, seeds=2)
    assert (run.diverged >= 1).all()
    for row, at in zip(run.losses, run.diverged, strict=True):
        assert np.isfinite(row[:at]).all() and np.isinf(row[at:]).all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"unit": "gllu"}, "no unit is called"),
        ({"width": 0}, "width is 0"),
        ({"lr": []}, "lr is"),
        ({"seeds": []}, "at least one"),
        ({"seeds": [1, 1]}, "none twice"),
        ({"seeds": 0}, "seeds is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"record": [99]}, "step 99 of 5"),
        ({"record": [0.5]}, "record is"),
        ({"unit": torch.nn.Linear}, "given as a class"),
        ({"y": np.ones(3)}, "30 targets"),
    ],
)
def test_errors_say_what_was_given(change: dict, says: str) -> None:
    X, Y = problem(1)
    given = {"unit": "glu", "X": X, "y": Y, "width": 4, "lr": 1e-3, "steps": 5} | change
    with pytest.raises(GatelabError, match=says):
        train(**given)
