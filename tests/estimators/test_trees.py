"""Trees of step gates: Newton's steps against loops and automatic differentiation, networks against walks by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

import gatelab as gl
from gatelab import GatedClassifier
from gatelab.estimators import classes as search
from gatelab.estimators import trees
from gatelab.estimators.classes import ClassSearch, best_of_kinds
from gatelab.estimators.frames import TableRows
from gatelab.estimators.search import Candidate
from gatelab.estimators.trees import (
    KINDS,
    BinnedRows,
    Deviance,
    StepTrees,
    averaged_trees,
    boosted_trees,
    class_log_probability,
)


def boxes(n: int, seed: int = 0, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Classes that are boxes, of which every tenth row is of any class."""
    draw = np.random.default_rng(seed)
    x = draw.uniform(size=(n, 4))
    y = (x[:, 0] > 0.3).astype(int) + (x[:, 1] > 0.6) * (x[:, 2] > 0.4)
    y = np.where(draw.random(n) < 0.1, draw.integers(3, size=n), y)
    return x, np.minimum(y, classes - 1)


def binned(classes: int, n: int = 120) -> BinnedRows:
    x, y = boxes(n, classes=classes)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, n)
    return BinnedRows.of(x, np.eye(classes)[y], weight / weight.mean())


def walked(network: StepTrees, row: np.ndarray) -> np.ndarray:
    """The outputs at a row, gate by gate."""
    total = network.offset.copy()
    for root in network.roots:
        node = root
        while network.children[node, 0] != node:
            node = network.children[node, int(row[network.columns[node]] > network.thresholds[node])]
        total += network.tables[node]
    return total


@pytest.mark.parametrize("classes", [2, 3])
def test_slopes_and_curvatures_are_those_of_autograd(classes: int) -> None:
    draw = np.random.default_rng(classes)
    logits = draw.normal(size=(6, 1 if classes == 2 else classes))
    y = np.eye(classes)[draw.integers(classes, size=6)]
    slope, curvature = Deviance().slopes(logits, y)

    def loss(z: torch.Tensor, i: int) -> torch.Tensor:
        if classes == 2:
            z = torch.cat([torch.zeros(1, dtype=z.dtype), z])
        return -(z.log_softmax(0) * torch.tensor(y[i])).sum()

    for i in range(6):
        z = torch.tensor(logits[i])
        by_autograd = torch.autograd.functional.jacobian(lambda t, i=i: loss(t, i), z).numpy()
        hessian = torch.autograd.functional.hessian(lambda t, i=i: loss(t, i), z)
        np.testing.assert_allclose(slope[i], -by_autograd, atol=1e-12)
        np.testing.assert_allclose(curvature[i], np.diag(torch.as_tensor(hessian).numpy()), atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_every_leaf_makes_a_share_of_newtons_step_on_the_rows_that_the_tree_saw(classes: int) -> None:
    rows = binned(classes)
    trained = np.flatnonzero(np.arange(120) >= 20)
    logits = np.tile(Deviance().offset(rows.y[20:], rows.weight[20:]), (120, 1))
    before = logits.copy()
    tree = trees.boost(rows, Deviance(), np.random.default_rng(5), logits, trained, 4)
    some = np.sort(np.random.default_rng(5).choice(trained, 50, replace=False, shuffle=False))
    network = StepTrees.of([tree], rows, np.zeros(logits.shape[1]))
    x, _ = boxes(120, classes=classes)
    added = np.array([walked(network, row) for row in x])
    np.testing.assert_allclose(logits - before, added, atol=1e-12)
    for value in np.unique(added[:, 0]):
        own = [i for i in some if added[i, 0] == value]
        for c in range(logits.shape[1]):
            p = np.exp(class_log_probability(before))[:, c - logits.shape[1]]
            y = rows.y[:, c - logits.shape[1]]
            pull = sum(rows.weight[i] * (y[i] - p[i]) for i in own)
            curved = sum(rows.weight[i] * p[i] * (1 - p[i]) for i in own)
            step = trees._RATE * pull / (curved + Deviance.held)
            np.testing.assert_allclose(added[added[:, 0] == value, c], step, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_networks_agree_with_walks_and_with_what_growth_saw(kind: str, monkeypatch) -> None:
    x, y = boxes(120)
    rows = TableRows(x, np.eye(3)[y], np.ones(120))
    monkeypatch.setattr(Deviance, "most", 25)
    grower = ClassSearch(rows, x, 8, seed=0, device="cpu", end=np.inf, show=print)
    held = [np.arange(120) % 3 == f for f in range(3)]
    networks = [network for _, network in grower.grow(kind, held, None)]
    assert len({len(network) for network in networks}) == 1
    monkeypatch.setattr(trees, "_BLOCK", 64)
    for network in networks:
        np.testing.assert_allclose(network.values(x)[::4], [walked(network, row) for row in x[::4]], atol=1e-12)
        np.testing.assert_allclose(np.exp(network.log_probability(x)).sum(1), 1, atol=1e-12)
    ((network, outside),) = boosted_trees(grower.binned, Deviance(), held[:1], [0], 4)
    np.testing.assert_allclose(network.values(x)[held[0]], outside, atol=1e-12)


def test_leaves_of_averaged_trees_have_the_shares_of_their_classes() -> None:
    """One tree: the rows that were drawn, by hand; a little of the shares of all rows keeps zeros away."""
    rows = binned(3)
    held = np.arange(120) < 20
    network = averaged_trees(rows, held, 7, 1, lambda: False)
    drawn = np.random.default_rng(7).choice(np.flatnonzero(~held), 100)
    x, _ = boxes(120)
    p = np.array([walked(network, row) for row in x])
    share = np.sum([rows.weight[i] * rows.y[i] for i in np.flatnonzero(~held)], axis=0) + 0.5
    for value in np.unique(p.round(12), axis=0):
        own = [i for i in drawn if np.array_equal(p[i].round(12), value)]
        total = np.sum([rows.weight[i] * rows.y[i] for i in own], axis=0) + trees._PRIOR * share / share.sum()
        np.testing.assert_allclose(total / total.sum(), value, atol=1e-9)


def test_a_number_of_trees_that_is_given_is_grown_and_none_may_be_best() -> None:
    ((network, outside),) = boosted_trees(binned(2), Deviance(), [np.zeros(120, dtype=bool)], [1], 4, number=5)
    assert len(network) == 5 and outside.shape == (0, 1)
    noise = np.random.default_rng(0).integers(2, size=60)
    alone, held = BinnedRows.of(np.ones((60, 1)), np.eye(2)[noise], np.ones(60)), np.arange(60) < 20
    for over in (False, True):
        ((network, outside),) = boosted_trees(alone, Deviance(), [held], [1], 4, over=lambda over=over: over)
        assert len(network) == 0 and np.ptp(network.values(np.zeros((3, 1)))) == 0 and np.isfinite(outside).all()
    assert len(averaged_trees(alone, held, 1, None, lambda: True)) == 1


@pytest.fixture(scope="module")
def stepped() -> GatedClassifier:
    x, y = boxes(300)
    return GatedClassifier(("swiglu", "steps"), ridge=1e-2, members=3, random_state=0).fit(x, y)


def test_where_classes_are_boxes_steps_are_chosen_and_better_than_gates_alone(stepped, tmp_path) -> None:
    z, t = boxes(2000, seed=1)
    alone = GatedClassifier("swiglu", ridge=1e-2, members=3, random_state=0).fit(*boxes(300))
    assert stepped.unit_.endswith("steps") and stepped.committee_.trees
    again = gl.load(stepped.save(tmp_path / "model.safetensors"))
    assert isinstance(again, GatedClassifier) and again.unit == ("swiglu", "steps")
    assert np.array_equal(again.predict_proba(z), stepped.predict_proba(z))
    assert log_loss(t, stepped.predict_proba(z)) < 0.9 * log_loss(t, alone.predict_proba(z))
    assert not alone.committee_.trees


def test_of_few_rows_the_best_of_each_kind_is_a_member_and_of_more_those_that_help(stepped, monkeypatch) -> None:
    losses = {row["log_loss"]: row["width"] for row in stepped.validation_ if row["unit"] == "swiglu"}
    gated, linear = (min(loss for loss, n in losses.items() if bool(n) is wide) for wide in (True, False))
    committee = stepped.committee_
    assert {network.width for network in committee.networks} == {0, losses[gated]}
    assert {network.averaged for network in committee.trees} == {True, False}
    # A line is of little use for boxes, and its share is that of the row which it is given at least.
    assert linear > 1.2 * stepped.validation_[0]["log_loss"]
    share = np.bincount(committee.candidate, committee.weight)
    assert len(share) == 4 and min(share) >= 0.999 / 304 and sum(share) == pytest.approx(1)
    monkeypatch.setattr(search, "_MANY_ROWS", 100)
    more = GatedClassifier("swiglu", ridge=1e-2, members=3, random_state=0).fit(*boxes(120, classes=2))
    assert more.committee_.candidate.max() == 0


def test_a_candidate_without_a_loss_joins_nothing_unless_there_is_no_other() -> None:
    swiglu = gl.unit("swiglu")
    assert isinstance(swiglu, gl.Unit)
    lost, wide, wider = (Candidate(swiglu, n, error=loss) for n, loss in ((0, np.inf), (4, 0.6), (8, 0.5)))
    assert best_of_kinds([lost, wide, wider]) == [wider]
    assert best_of_kinds([lost]) == [lost]


@pytest.fixture
def few_trees(monkeypatch) -> None:
    """Networks of few trees, for what does not depend on how many there are."""
    monkeypatch.setattr(Deviance, "most", 25)
    monkeypatch.setattr(trees, "_AVERAGED", 10)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("members", [1, 4])
def test_steps_alone_take_weights_orders_and_any_number_of_members(members: int, tmp_path) -> None:
    x, y = boxes(90, classes=2)
    model = GatedClassifier("steps", members=members, random_state=0)
    weight = np.random.default_rng(1).integers(0, 3, 90)
    twice = np.random.default_rng(2).permutation(np.repeat(np.arange(90), weight))
    weighted = model.fit(x, y, sample_weight=weight).predict_proba(x)
    assert not model.committee_.networks and model.unit_.endswith("steps")
    again = gl.load(model.save(tmp_path / "model.safetensors"))
    assert isinstance(again, GatedClassifier) and np.array_equal(again.predict_proba(x), weighted)
    assert np.array_equal(weighted, model.fit(x[twice], y[twice]).predict_proba(x))
    assert model.fit([[0.0], [1.0]], ["a", "b"]).predict([[0.0], [1.0]]).tolist() == ["a", "b"]


@pytest.mark.usefixtures("few_trees")
def test_deep_trees_are_tried_where_rows_are_many_and_folds_that_did_not_judge_are_grown(monkeypatch) -> None:
    x, y = boxes(150, classes=2)
    tried = {row["unit"] for row in GatedClassifier("steps", members=4, random_state=0).fit(x, y).validation_}
    assert tried == {"boosted steps", "averaged steps"}
    monkeypatch.setattr(search, "_FEW_ROWS", 100)
    monkeypatch.setattr(search, "_JUDGES", 60)
    monkeypatch.setattr(search, "KINDS", ("deeply boosted",))
    model = GatedClassifier("steps", members=4, random_state=0).fit(x, y)
    assert model.unit_ == "deeply boosted steps" and len(model.committee_.trees) == 4
    assert len({len(network) for network in model.committee_.trees}) == 1
