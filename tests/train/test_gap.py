"""The gap at equal training loss, and whole comparisons of units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from training_data import images, text

from gatelab.errors import GatelabError
from gatelab.train import Gap, gap, gap_recipes, matched_gap
from gatelab.train.gaps import compare

TINY = {"size": "tiny", "steps": 12, "batch": 8, "evaluations": 8, "warmup": 2}


def curves(generator: np.random.Generator, count: int, shift: float = 0.0, fast: float = 1.0) -> list[np.ndarray]:
    """gap = (2.2 - loss) + shift + a run's own offset, along losses that fall with noise at some speed."""
    t = np.linspace(0, 3 * fast, 30)
    runs = []
    for _ in range(count):
        loss = 0.2 + 2.0 * np.exp(-t) + 0.01 * generator.normal(size=len(t))
        runs.append(np.stack([loss, 2.2 - loss + shift + 0.05 * generator.normal()], 1))
    return runs


def test_a_faster_unit_has_the_same_gap_at_equal_loss_though_its_cloud_is_elsewhere() -> None:
    generator = np.random.default_rng(0)
    slow, fast = curves(generator, 6), curves(generator, 6, fast=3.0)
    found = compare("made up", "slow", "fast", slow, fast)
    assert found.matched is not None
    assert abs(found.matched.value) < 0.1 and 0 in found.matched
    assert found.joint.p < 0.01 < 0.05 < found.matched.p


def test_matched_is_the_mean_of_interpolated_gaps() -> None:
    a = [np.array([[2.0, 0.0], [1.0, 1.0], [1.5, 9.0], [0.5, 2.0]])]  # a loss that rises again is no new low
    b = [np.array([[1.5, 0.5], [0.8, 1.6]])]
    found = matched_gap(a, b)
    levels = np.linspace(0.8, 1.5, 200)
    first = np.interp(levels, [0.5, 1.0, 2.0], [2.0, 1.0, 0.0]).mean()
    second = np.interp(levels, [0.8, 1.5], [1.6, 0.5]).mean()
    assert found.value == pytest.approx(second - first)
    assert (found.low_loss, found.high_loss) == (0.8, 1.5) and np.isnan(found.low) and found.p == 1.0


def test_intervals_cover_the_truth() -> None:
    """A true difference of 0.1, 200 times: 95 % intervals hold it in less than 88 % once in 10 000 seeds."""
    generator = np.random.default_rng(2)
    held = []
    for _ in range(200):
        found = matched_gap(curves(generator, 5), curves(generator, 5, 0.1), draws=1000)
        held.append(found.low <= 0.1 <= found.high)
    assert 0.88 <= np.mean(held) <= 1.0


def test_matched_false_alarms_are_as_stated() -> None:
    """300 comparisons of equal groups of 4: p <= 2/35 in that share, up to three deviations (0.999)."""
    generator = np.random.default_rng(4)
    level = 2 / 35 + 1e-9
    alarms = np.mean([matched_gap(curves(generator, 4), curves(generator, 4), draws=10).p <= level for _ in range(300)])
    assert alarms <= level + 3 * (level * (1 - level) / 300) ** 0.5


def test_runs_without_common_losses_are_refused_and_compared_as_clouds_alone() -> None:
    a, b = [np.array([[2.0, 0.0], [1.5, 0.1]])] * 2, [np.array([[1.0, 0.2], [0.5, 0.3]])] * 2
    with pytest.raises(GatelabError, match="no training losses in common"):
        matched_gap(a, b)
    assert compare("", "a", "b", a, b).matched is None
    with pytest.raises(GatelabError, match="0 and 2 runs"):
        matched_gap([], b)


@pytest.fixture(scope="module")
def measured() -> Gap:
    return gap(["mlp", "glu"], model="mixer", data=images(), seeds=2, augment=False, **TINY)


def test_a_gap_has_runs_comparisons_tables_and_a_plane(measured: Gap) -> None:
    assert len(measured.histories) == 8 and measured.settings() == [("mixer", "stripes")]
    assert len({h.recipe.seed for h in measured.histories}) == 8
    table = measured.table()
    assert table["where"].tolist() == [f"mixer, stripes, {name}" for name in ("sgd", "adamw", "mlp", "glu")]
    assert table["first"].tolist() == ["mlp", "mlp", "sgd", "sgd"] and np.allclose(table["least_p"], 1 / 3)
    assert (table["p"] >= table["least_p"]).all() and (table["runs_first"] == 2).all()
    points = measured.points()
    assert len(points) == 8 * len(measured.histories[0].steps) == 64 and np.allclose(
        points["gap"], points["test"] - points["train"]
    )
    assert all((run[:, 0] > 0).all() for run in measured.runs("mixer", "stripes", "glu", "sgd"))
    first = measured.histories[0]
    assert len(first.points) == (first.steps >= 2).sum() < len(first.steps)
    (panel,) = measured.plot().axes
    assert len(panel.lines) == 8 + 1  # a line a run, and the line at zero


def test_a_gap_is_written_and_read(measured: Gap, tmp_path: Path) -> None:
    path = Gap(measured.histories, {"device": "a CPU", "date": "today"}).save(tmp_path / "gap.json")
    again = Gap.load(path)
    assert again.origin == {"device": "a CPU", "date": "today"}
    assert [h.recipe for h in again.histories] == [h.recipe for h in measured.histories]
    np.testing.assert_allclose(again.points()["gap"], measured.points()["gap"], rtol=1e-3, atol=1e-4)
    path.write_text("{}")
    with pytest.raises(GatelabError, match="record of gaps"):
        Gap.load(path)


def test_text_and_resumption(tmp_path: Path) -> None:
    values = {**TINY, "steps": 6, "evaluations": 2, "warmup": 1, "optimizers": ["adamw"], "folder": tmp_path}
    counts: list[tuple[int, int]] = []
    found, again = (
        gap(["silu", "swiglu"], model="gpt2", data=text(), seeds=1, progress=lambda *a: counts.append(a[:2]), **values)
        for _ in range(2)
    )
    assert counts == [(step, 12) for step in range(1, 13)]  # the second call trains nothing
    assert len(list(tmp_path.iterdir())) == 2
    for a, b in zip(found.histories, again.histories, strict=True):
        assert np.array_equal(a.test, b.test)


def test_runs_that_diverge_are_left_out_of_comparisons() -> None:
    values = {**TINY, "lr": 1e6, "clip": None, "warmup": 0}
    found = gap(["mlp"], data=images(), optimizers=["sgd"], seeds=2, **values)
    assert len(found.diverged()) == 2 and found.runs("mixer", "stripes", "mlp", "sgd") == []
    assert found.comparisons() == []


def test_recipes_of_a_gap_are_refused_where_they_make_no_sense() -> None:
    for values, says in (
        ({"units": ["glu", "reglu"]}, "each once"),
        ({"optimizers": []}, "one or more"),
        ({"seeds": 0}, "seeds is 0"),
    ):
        with pytest.raises(GatelabError, match=says):
            gap_recipes(**values)
