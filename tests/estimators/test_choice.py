"""What validation chooses: narrow and ridged where there is noise, wide and free where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from gatelab import GatedRegressor, unit
from gatelab.estimators import squares
from gatelab.estimators.frames import TableRows
from gatelab.estimators.squares import SquaresSearch, random_gates
from gatelab.estimators.trees import Squares

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def plane(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (n, 2))


@pytest.mark.slow
def test_noise_is_not_fitted() -> None:
    """Over a line: a network that fits the noise is off by more than 0.5 between rows, the best line by 0.12."""
    x, fresh = plane(200), plane(1000, seed=1)
    y = x[:, 0] + np.random.default_rng(2).normal(size=200)
    model = GatedRegressor(random_state=0, starts=1, rounds=1).fit(x, y)
    assert np.sqrt(np.mean((model.predict(fresh) - fresh[:, 0]) ** 2)) < 0.35
    assert model.width_ <= 2


def test_smooth_surfaces_are_reproduced_to_many_digits() -> None:
    x, fresh = plane(600), plane(600, seed=1)
    f = lambda z: np.sin(3 * z[:, 0]) * np.cos(2 * z[:, 1])  # noqa: E731
    model = GatedRegressor(random_state=0, starts=1).fit(x, f(x))
    assert np.sqrt(np.mean((model.predict(fresh) - f(fresh)) ** 2)) < 1e-6
    assert model.gates_ == "drawn" and model.width_ > 20
    assert model.committee_.networks == (model.network_,) and [m["weight"] for m in model.members_] == [1.0]


@pytest.mark.slow
def test_a_kinked_target_takes_trained_gates() -> None:
    x = plane(500)
    model = GatedRegressor(("swiglu", "glu"), random_state=0, starts=1, rounds=1).fit(x, np.abs(x[:, 0] + x[:, 1]))
    assert (model.unit_, model.gates_) == ("glu", "trained")
    assert model.score(plane(500, seed=1), np.abs(plane(500, seed=1).sum(1))) > 0.9999


def test_what_is_given_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Squares, "most", 20)
    monkeypatch.setattr(squares, "RIDGES", (1e-6, 1e-2))
    x = plane(60)
    y = x[:, 0] * x[:, 1]
    options = {"random_state": 0, "starts": 1, "rounds": 0, "steps": 10}
    assert {v["width"] for v in GatedRegressor(width=3, **options).fit(x, y).validation_} == {3}
    assert {v["ridge"] for v in GatedRegressor(ridge=1e-3, **options).fit(x, y).validation_} == {1e-3}
    given = GatedRegressor(width=3, ridge=1e-3, **options).fit(x, y)
    assert given.validation_ == []
    assert (given.width_, given.ridge_, given.unit_) == (3, 1e-3, "swiglu")


def test_folds_cover_every_row_once_and_hold_out_equal_inputs_together() -> None:
    x = np.repeat(plane(20), 2, axis=0)
    rows = TableRows(x, np.arange(40.0)[:, None], np.ones(40))
    search = SquaresSearch(rows, x, seed=0, device="cpu")
    assert search.used == 5
    assert sorted(np.bincount(search.fold)) == [8] * 5
    assert (search.fold[::2] == search.fold[1::2]).all()


def test_the_batch_of_a_width_is_what_fits_to_fewer_rows_would_find() -> None:
    """A bilinear form in two inputs is one network of width 2, which rows with a weight of zero do not change."""
    x = plane(100)
    y = (x[:, :1] * x[:, 1:] + x[:, :1]) / 0.5
    search = SquaresSearch(TableRows(x, y, np.ones(100)), x, seed=0, device="cpu")
    (candidate,) = search.train(unit("bilinear"), 2, [0.0])
    assert candidate.error < 1e-9


def test_drawn_gates_have_the_least_squares_solution() -> None:
    x = plane(200)
    y = np.exp(x.sum(axis=1, keepdims=True))
    weight = np.random.default_rng(0).uniform(0.5, 1.5, 200)
    net = random_gates(unit("swiglu"), TableRows(x, y, weight / weight.mean()), 4, 2.0, seed=0)
    import torch

    inputs = torch.tensor(x)
    gate = torch.nn.functional.silu(inputs @ net.G.T + net.g).detach().numpy()
    columns = np.column_stack([gate * x[:, :1], gate * x[:, 1:], gate, np.ones(200)])
    root = np.sqrt(weight)[:, None]
    best = columns @ np.linalg.lstsq(columns * root, y * root, rcond=None)[0]
    assert np.abs(net(inputs).detach().numpy() - best).max() < 1e-9
