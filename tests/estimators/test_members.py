"""Several networks as one: step gates against loops, picks against all picks there are, deviations against new rows."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest

from gatelab import GatedRegressor, GatelabError, unit
from gatelab.estimators.frames import Bend, Frame, TableRows
from gatelab.estimators.search import deviation_scale, pick_counts
from gatelab.estimators.squares import bent_frame
from gatelab.estimators.trees import BinnedRows, Squares, boosted_trees

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def stairs(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two steps of which one is there only above the other, and noise."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(size=(n, 3))
    return x, 2.0 * (x[:, 0] > 0.4) * (x[:, 1] > 0.3) - (x[:, 1] > 0.7) + 0.2 * generator.normal(size=n)


def test_gates_are_those_that_a_loop_over_all_thresholds_finds():
    generator = np.random.default_rng(0)
    x = np.column_stack([generator.normal(size=120), generator.integers(0, 5, 120)])
    residual, weight, loss = generator.normal(size=(120, 2)), generator.uniform(0.5, 2.0, 120), Squares()
    rows = BinnedRows.of(x, residual, weight)
    tree, leaf = rows.level_tree(np.arange(120), residual, weight, generator, loss.held, 3)
    cell = np.zeros(120, dtype=int)

    def explained(parts: np.ndarray) -> float:
        chosen = [parts == p for p in np.unique(parts)]
        sums = [(np.square(weight[c] @ residual[c]).sum(), weight[c].sum()) for c in chosen]
        return sum(square / (total + loss.held) for square, total in sums)

    for j, b in zip(tree.columns, tree.bins, strict=True):
        gains = {
            (k, i): explained(2 * cell + (x[:, k] > cut))
            for k, cuts in enumerate(rows.thresholds)
            for i, cut in enumerate(cuts)
        }
        assert gains[j, b] == pytest.approx(max(gains.values()), rel=1e-12)
        cell = 2 * cell + (x[:, j] > rows.thresholds[j][b])
    assert np.array_equal(leaf, cell)


def test_values_of_step_gates_are_sums_over_trees_and_agree_with_what_growth_saw():
    x, y = stairs(200)
    held = np.arange(200) < 50
    ((network, values),) = boosted_trees(BinnedRows.of(x, y[:, None], np.ones(200)), Squares(), [held], [1], 2)
    assert np.allclose(network.values(x)[held], values, rtol=0, atol=1e-12)
    total = np.full(200, network.offset[0])
    for columns, thresholds, table in zip(network.columns, network.thresholds, network.tables, strict=True):
        for i, row in enumerate(x):
            first, second = (row[j] > c for j, c in zip(columns, thresholds, strict=True))
            total[i] += table[2 * first + second, 0]
    assert np.allclose(network.values(x)[:, 0], total, rtol=0, atol=1e-12)


def test_picks_are_as_good_as_the_best_of_all_picks_or_nearly():
    """Greedy picks are not the best ones; on this draw they are within two per cent, and never worse than one."""
    generator = np.random.default_rng(0)
    y = generator.normal(size=(60, 1))
    values = y + generator.normal(size=(5, 60, 1)) * np.array([0.5, 0.6, 0.6, 0.9, 2.0])[:, None, None]
    weight = generator.uniform(size=60)

    def error(chosen: tuple[int, ...]) -> float:
        return float(weight @ np.square(values[list(chosen)].mean(axis=0) - y)[:, 0])

    count = pick_counts(values, y, weight, 4)
    greedy = error(tuple(np.repeat(np.arange(5), count)))
    every = [c for k in range(1, 5) for c in combinations_with_replacement(range(5), k)]
    assert min(map(error, every)) <= greedy <= 1.02 * min(map(error, every))
    assert greedy < min(error((i,)) for i in range(5))
    assert pick_counts(np.stack([y, y + 1]), y, weight, 8).tolist() == [1, 0]


def test_deviations_hold_the_share_of_residuals_that_they_state():
    generator = np.random.default_rng(0)
    residual = generator.standard_t(4, size=(1999, 1))
    noise, scale = deviation_scale(residual, np.zeros_like(residual))
    assert np.mean(np.abs(residual) <= 1.96 * scale * noise) == pytest.approx(0.95, abs=0.002)


@pytest.fixture(scope="module")
def model() -> GatedRegressor:
    """Networks are no wider than four: of steps wider ones are no better, and 60 trees are nearly as good as more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Squares, "most", 60)
        patch.setattr("gatelab.estimators.squares._MOST_WORK", 1e5)
        return GatedRegressor(random_state=0).fit(*stairs(250))


def test_steps_and_noise_are_told_by_step_gates(model):
    """The noise is 0.2, which no model can pass; a network of smooth gates alone is off by a third as much again."""
    x, y = stairs(2000, seed=1)
    assert {"steps", "both"} & {m["gates"] for m in model.members_}
    assert sum(m["weight"] for m in model.members_) == pytest.approx(1.0)
    assert np.sqrt(np.mean((model.predict(x) - y) ** 2)) < 0.26


def test_new_targets_are_within_the_deviations_that_are_stated(model):
    """250 rows held out set the scale, whose share of new rows varies by about 0.014: 2.5 of that, fixed seeds."""
    x, y = stairs(2000, seed=2)
    mean, deviation = model.predict(x, return_std=True)
    assert mean.shape == deviation.shape == (2000,)
    assert abs(np.mean(np.abs(mean - y) < 1.96 * deviation) - 0.95) < 0.035


def test_members_are_saved_with_their_weights(model, tmp_path):
    x, _ = stairs(50, seed=3)
    loaded = GatedRegressor.load(model.save(tmp_path / "m"))
    assert np.array_equal(model.predict(x, return_std=True), loaded.predict(x, return_std=True))
    assert loaded.members_ == model.members_ and loaded.unit is None


def test_a_budget_of_time_ends_the_search_and_a_deviation_needs_one(model):
    x, y = stairs(250)
    short = GatedRegressor(random_state=0, time_budget=0.01).fit(x, y)
    assert 0 < len(short.validation_) < len(model.validation_)
    with pytest.raises(GatelabError, match="time_budget is -1"):
        GatedRegressor(time_budget=-1).fit(x, y)
    given = GatedRegressor("glu", width=1, ridge=0.1, random_state=0).fit(x, y)
    with pytest.raises(GatelabError, match="leave out width or ridge"):
        given.predict(x, return_std=True)  # no rows were held out


def test_bent_columns_come_back():
    generator = np.random.default_rng(0)
    columns = np.exp(2 * generator.normal(size=300)), generator.standard_cauchy(300), generator.normal(size=300)
    a = np.column_stack(columns)
    bend = Bend.of(a)
    assert (bend.spread > 0).tolist() == [True, True, False]
    assert np.allclose(bend.back(bend(a)), a, rtol=1e-10)
    rows = TableRows(a, a[:, :1], np.ones(300))
    frame = Frame.of(rows, bend_inputs=True, bend_targets=True)
    assert np.allclose(frame.outputs(frame.targets(rows.y)), rows.y)
    assert np.abs(frame.inputs(a)).max() < 10 < np.abs(Frame.of(rows).inputs(a)).max()


def test_targets_and_inputs_with_heavy_tails_are_bent_where_that_helps(monkeypatch):
    """The logarithm of the target is a line in the logarithms of the inputs; of a normal target nothing is bent."""
    monkeypatch.setattr(Squares, "most", 60)
    generator = np.random.default_rng(0)
    x = np.exp(1.5 * generator.normal(size=(200, 2)))
    y = np.exp(0.7 * np.log(x[:, :1]) - 0.7 * np.log(x[:, 1:]) + 0.2 * generator.normal(size=(200, 1)))
    rows = TableRows(x, y, np.ones(200))
    frame = bent_frame(rows, Frame.of(rows), unit("swiglu"), 0, "cpu")
    assert frame.y_bend.bends and (frame.x_bend.spread > 0).all()
    plain = TableRows(generator.normal(size=(200, 2)), generator.normal(size=(200, 1)), np.ones(200))
    same = Frame.of(plain)
    assert bent_frame(plain, same, unit("swiglu"), 0, "cpu") is same


def test_predictions_of_bent_targets_are_means_and_not_medians():
    """Log-normal targets of deviation one have the mean exp(1/2), the median 1; a mean of 4000 is within 0.04 of it."""
    noise = np.random.default_rng(0).normal(size=(4000, 1))
    rows = TableRows(np.zeros((4000, 1)), np.exp(noise), np.ones(4000))
    frame = Frame.of(rows, bend_targets=True)
    z = frame.targets(rows.y)
    mean = frame.smeared(z - z.mean()).outputs(np.array([[z.mean()]]))
    assert frame.y_bend.bends
    assert mean[0, 0] == pytest.approx(np.exp(0.5), rel=0.1)
