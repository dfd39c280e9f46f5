"""Memory budgets: how they are read and kept, and that they do not change the kernel."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import torch
from empirical_models import case, draw, naive, tokens
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from gatelab.errors import GatelabError
from gatelab.models import GPT2
from gatelab.ntk import empirical
from gatelab.ntk.modules import computation, contraction, rules, surveys
from gatelab.ntk.modules.computation import make_plan
from gatelab.ntk.modules.contraction import Outer, Rows, Sum, add_gram, add_tied, product
from gatelab.ntk.modules.samples import Samples, trainable
from gatelab.ntk.modules.surveys import survey


class Meter(TorchDispatchMode):
    """The peak of the memory that lives in tensors made while it is on."""

    def __init__(self):
        super().__init__()
        self.alive, self.most, self.peak = {}, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        old = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
        for t in out if isinstance(out, tuple | list) else (out,):
            if isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() not in old:
                storage = t.untyped_storage()
                self.alive[storage.data_ptr()] = (StorageWeakRef(storage), storage.nbytes())
                self.most += storage.nbytes()
        if self.most > self.peak:  # else there is no new peak, whatever has been freed
            self.alive = {k: v for k, v in self.alive.items() if not v[0].expired()}
            self.most = sum(size for _, size in self.alive.values())
            self.peak = max(self.peak, self.most)
        return out


def text():
    """A model whose factors are much larger than its parameters, and samples of it."""
    model = GPT2("tiny", "glu", vocabulary=19, context=16, d_model=16, width=48).double().eval()
    return model, tokens(36, 16, high=19), (-1, 2)


def planned(model, X, outputs, budget):
    parameters = trainable(model)
    samples = Samples.of(model, X, outputs, next(iter(parameters.values())))
    return make_plan(survey(samples, parameters), parameters, samples, budget, None)


@pytest.mark.parametrize("given", ["much", 0, -1, True, float("inf"), float("nan"), [3], 1000])
def test_other_budgets_and_one_that_holds_nothing_are_refused(given):
    says = r"three samples .* the budget is 0.0 MiB" if given == 1000 else r"budget is .*; give a number above 0"
    with pytest.raises(GatelabError, match=says):
        empirical(*text(), budget=given)


def test_a_small_budget_means_more_groups_and_the_same_kernel():
    model, X, outputs = text()
    whole = empirical(model, X, outputs, budget=2**30).matrix
    groups = [len(planned(model, X, outputs, 2**30).groups)]
    for budget in (1_000_000, 700_000):
        groups.append(len(planned(model, X, outputs, budget).groups))
        K = empirical(model, X, outputs, budget=budget).matrix
        assert torch.allclose(K, whole, rtol=1e-12, atol=1e-14 * float(whole.abs().max()))
    assert groups[0] == 1
    assert groups[0] < groups[1] < groups[2]


def test_factors_too_large_for_the_budget_give_way_to_jacobians():
    model, X = nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 1)).double(), draw(120, 5, 40)
    outputs = lambda out: out.sum((1, 2))  # noqa: E731
    budget = 300_000
    plan = planned(model, X, outputs, budget)
    assert "0.weight" in plan.free
    assert plan.block < 120
    K = empirical(model, X, outputs, budget=budget).matrix
    expected = naive(model, X, lambda out, i: out.sum(), 120)
    assert torch.allclose(K, expected, rtol=1e-10, atol=1e-10)


@pytest.fixture
def this_thread(monkeypatch):
    """Passes in this thread, where the meter sees them; else they have one of their own, and Ctrl-C is heard."""
    monkeypatch.setattr(computation, "apart", lambda function, *args: function(*args))


@pytest.mark.usefixtures("this_thread")
@pytest.mark.parametrize(
    "budget", [None, 700_000, *(pytest.param(n, marks=pytest.mark.slow) for n in (5_000_000, 1_000_000))]
)
def test_memory_stays_within_the_budget(budget):
    model, X, outputs = text()
    with Meter() as meter:
        empirical(model, X, outputs, budget=budget or 2**30)
    assert meter.peak <= (budget or 2**30)
    # The budget is made use of: the factors that the plan counts are there.
    assert meter.peak > 0.3 * (budget or 0)


@pytest.mark.usefixtures("this_thread")
def test_memory_of_jacobians_stays_within_the_budget():
    model, X = nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 1)).double(), draw(300, 5, 40)
    with Meter() as meter:
        empirical(model, X, lambda out: out.sum((1, 2)), budget=2_000_000)
    assert meter.peak <= 2_000_000 + 2 * 300 * 300 * 8


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_batches_change_nothing(batch):
    model, X, outputs, pick = case("gpt2")
    assert torch.allclose(empirical(model, X, outputs, batch=batch).matrix, naive(model, X, pick), rtol=1e-10)


@pytest.mark.parametrize("T", [1, 3, 8])
@pytest.mark.parametrize("workspace", [2000, 10**8])
def test_both_ways_of_contraction_agree(T, workspace):
    L, R, rows = draw(7, T, 5, seed=1), draw(7, T, 6, seed=2), tokens(7, T, high=5)
    L[:, :, 2:] *= tokens(5, high=2)[2:]
    gradients = torch.einsum("ntp,ntq->npq", L, R).flatten(1)
    scattered = torch.einsum("ntp,ntq->npq", nn.functional.one_hot(rows, 5).double(), R).flatten(1)
    outer, embedded = Outer(L, R), Rows(rows, R)
    no_matrix = Outer(L[:, :0], R[:, :0])
    ways = [
        (outer.add_to, gradients),
        (outer.add_by_gradients, gradients),
        (outer.add_by_positions, gradients),
        (lambda K, size: add_tied(K, no_matrix, embedded, size), scattered),
        (embedded.add_by_positions, scattered),
        (lambda K, size: add_tied(K, outer, embedded, size), gradients + scattered),
        (Sum(gradients).add_to, gradients),
    ]
    for add, J in ways:
        K = torch.zeros(7, 7, dtype=torch.float64)
        add(K, workspace)
        assert torch.allclose(K, J @ J.T, rtol=1e-12, atol=1e-12)


def test_blocks_and_slices_of_products(monkeypatch):
    A, B = draw(40, 103), draw(30, 103, seed=1)
    monkeypatch.setattr(contraction, "_SLICE", 1)
    assert torch.allclose(product(A[:2], B[:3]), A[:2] @ B[:3].T, rtol=1e-12)
    monkeypatch.setattr(contraction, "_BLOCK", 7)
    K = torch.ones(40, 40, dtype=torch.float64)
    add_gram(K, A)
    assert torch.allclose(K, 1 + A @ A.T, rtol=1e-12)


# Errors in different places, and the models in which each place is reached.


def fail_when_stretched(monkeypatch, error):
    plain = surveys.outline

    def outline(samples, known, index, stretched):
        if stretched:
            raise error
        return plain(samples, known, index, stretched)

    monkeypatch.setattr(surveys, "outline", outline)


def fail_in_survey(monkeypatch, error):
    monkeypatch.setattr(Outer, "gradients", Mock(side_effect=error))


def fail_in_later_pass(monkeypatch, error):
    plain = computation.make_plan

    def make_plan(*args):
        monkeypatch.setattr(rules, "per_sample", Mock(side_effect=error))
        return plain(*args)

    monkeypatch.setattr(computation, "make_plan", make_plan)


PLACES = {
    "a result stretched over the samples": (fail_when_stretched, "twice"),
    "the factors of three samples": (fail_in_survey, "glu"),
    "the factors of a batch": (fail_in_later_pass, "glu"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_memory_errors_are_raised(place, error, monkeypatch):
    fail, name = PLACES[place]
    model, X, outputs, _ = case(name)
    fail(monkeypatch, error)
    with pytest.raises(type(error)) as raised:
        empirical(model, X, outputs)
    assert raised.value is error


@pytest.mark.parametrize("place", PLACES)
def test_other_errors_lead_to_jacobians(place, monkeypatch):
    fail, name = PLACES[place]
    model, X, outputs, pick = case(name)
    fail(monkeypatch, RuntimeError("some operation cannot do this"))
    K, expected = empirical(model, X, outputs).matrix, naive(model, X, pick)
    assert torch.allclose(K, expected, rtol=1e-10, atol=1e-10 * float(expected.abs().max()))
