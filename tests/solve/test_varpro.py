"""Variable projection as a whole: what it reaches, and that a batch is the loop of its members."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from own_module import TwoLayers
from torch import Tensor, nn

from gatelab.data import Problem, problem
from gatelab.errors import GatelabError
from gatelab.feedforward import unit
from gatelab.solve import fit, fit_many
from gatelab.solve.features import linear_parameters
from gatelab.solve.fits import predict, rmse
from gatelab.solve.solvers.varpro import solve as solve_varpro
from gatelab.solve.solvers.varpro import varpro_many

QUICK = {"starts": 1, "rounds": 1, "steps": 6}


def own(z: Tensor, v: Tensor) -> Tensor:
    return z.tanh() * v


class Nothing(nn.Module):
    """No parameter is linear."""

    def __init__(self, width: int, d_in: int, d_out: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_in, d_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).sin()


@pytest.fixture(scope="module")
def surface() -> Problem:
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (400, 2))
    return Problem.from_arrays(x, np.sin(3 * x[:, 0]) * np.cos(2 * x[:, 1]))


def parameters(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


@pytest.mark.parametrize("spec", ["mlp", "glu", "gqu", "swiglu", own])
def test_a_batch_is_the_loop_of_its_members(spec: object, surface: Problem) -> None:
    """To rounding, which some matrix libraries do differently for members that begin elsewhere in memory."""
    x, y = surface.train.x, surface.train.y
    members = [(5, 0), (5, 1), (3, 0), (4, 7)]
    together = varpro_many(spec, x, y, members, **QUICK)  # pyright: ignore[reportArgumentType]
    for member, found in zip(members, together, strict=True):
        alone = varpro_many(spec, x, y, [member], **QUICK)[0]  # pyright: ignore[reportArgumentType]
        torch.testing.assert_close(parameters(found.network), parameters(alone.network), rtol=1e-6, atol=1e-6)
        assert found.history == pytest.approx(alone.history, rel=1e-6)
        assert found.status == alone.status


@pytest.mark.parametrize("spec", ["mlp", "glu", "gqu", "swiglu"])
def test_widths_padded_together_take_the_course_of_each(
    spec: str, surface: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU does it: one part, in which sums of another length round differently, and steps carry that on."""
    x, y = surface.train.x, surface.train.y
    members = [(5, 0), (3, 0), (4, 7)]
    alone = [varpro_many(spec, x, y, [m], starts=1, rounds=1, steps=3)[0] for m in members]
    monkeypatch.setattr("gatelab.solve.solvers.varpro.parts", lambda widths, *_: [list(range(len(widths)))])
    together = varpro_many(spec, x, y, members, starts=1, rounds=1, steps=3)
    for a, b in zip(alone, together, strict=True):
        assert a.history == pytest.approx(b.history, rel=1e-6)
        assert np.allclose(predict(a.network, x), predict(b.network, x), atol=1e-5)


def test_threads_change_nothing(surface: Problem) -> None:
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(varpro_many("glu", surface.train.x, surface.train.y, [(4, s) for s in range(4)], **QUICK))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(parameters(a.network), parameters(b.network), rtol=1e-6, atol=1e-6)


def test_ridge_and_weights_belong_to_their_members(surface: Problem) -> None:
    x, y = surface.train.x, surface.train.y
    weights = np.random.default_rng(1).uniform(0.5, 2, (3, len(x)))
    together = varpro_many("glu", x, y, [(3, 0)] * 3, ridge=[0.0, 1e-4, 1e-2], weights=weights, **QUICK)
    for i, ridge in enumerate([0.0, 1e-4, 1e-2]):
        alone = varpro_many("glu", x, y, [(3, 0)], ridge=ridge, weights=weights[i], **QUICK)[0]
        assert torch.allclose(parameters(together[i].network), parameters(alone.network), atol=1e-10)
    # A ridge costs training error; of networks that have settled, since one that has not may be anywhere.
    settled = varpro_many("glu", x, y, [(3, 0)] * 2, ridge=[0.0, 1e-2], starts=1, rounds=1)
    errors = [rmse(s.network, x, y) for s in settled]
    assert errors[1] > errors[0]


def test_weight_two_is_the_row_twice(surface: Problem) -> None:
    """A bilinear network of enough width is any quadratic: one optimum, whatever the course."""
    x, y = surface.train.x, surface.train.y
    weights = np.ones(len(x))
    weights[:80] = 2
    how = {"starts": 1, "rounds": 1}
    weighted = varpro_many("bilinear", x, y, [(4, 0)], weights=weights, **how)[0]
    twice = varpro_many("bilinear", np.vstack([x, x[:80]]), np.vstack([y, y[:80]]), [(4, 0)], **how)[0]
    probe = np.random.default_rng(3).uniform(-1, 1, (50, 2))
    assert np.allclose(predict(weighted.network, probe), predict(twice.network, probe), atol=1e-5)


@pytest.mark.parametrize(("spec", "width"), [("mlp", 3), ("glu", 2), ("gqu", 2), ("swiglu", 2)])
def test_it_finds_the_network_that_made_the_data(spec: str, width: int) -> None:
    """A teacher of few neurons is found again to rounding, on data that were not trained on too."""
    teacher = unit(spec).network(width, 2, seed=3, init="normal")
    x = np.random.default_rng(0).uniform(-2, 2, (300, 2))
    found = fit(spec, Problem.from_arrays(x, predict(teacher, x)), width, solver="varpro", starts=8, rounds=12)
    assert found.test_rmse < 1e-7


def test_vector_outputs(surface: Problem) -> None:
    x = surface.train.x
    y = np.stack([x[:, 0] * x[:, 1], x[:, 0] ** 2, x.sum(1)], 1)
    found = solve_varpro("bilinear", Problem.from_arrays(x, y), 3, starts=2, rounds=2)
    assert rmse(found.network, x, y) < 1e-9
    assert found.network.D.shape == (3, 3)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.slow
def test_no_spikes_between_rows() -> None:
    """A gate that opens at few rows must not run wild between them: its line is held by a prior in the end."""
    data = problem("friedman2", n=400)
    found = fit_many("gqu", data, [10], seeds=6, starts=1, rounds=4)
    largest = [float(f.network.D.detach().abs().max()) for f in found]  # pyright: ignore
    assert max(largest) < 1e3


def test_a_class_of_ones_own(surface: Problem) -> None:
    found = fit(TwoLayers, surface, 5, starts=3, rounds=0, steps=50)
    assert found.solver == "varpro"
    assert found.test_rmse < 0.06
    first = fit(TwoLayers, surface, 5, solver="adam", steps=1).train_rmse
    assert found.train_rmse < 0.1 * first


def test_a_class_without_linear_parameters() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    found = solve_varpro(Nothing, Problem.from_arrays(x, np.sin(x @ [0.5, -1.0] + 0.2)), 1, starts=6)
    assert found.history[-1] < 1e-9
    assert linear_parameters(Nothing(1, 2, 1).double(), torch.randn(20, 2, dtype=torch.float64)) == ()


def test_fit_many_is_fit_member_by_member(surface: Problem) -> None:
    found = fit_many("glu", surface, [2, 3], seeds=2, **QUICK)
    assert [(f.width, f.seed) for f in found] == [(2, 0), (2, 1), (3, 0), (3, 1)]
    alone = fit("glu", surface, 3, seed=1, solver="varpro", **QUICK)
    assert found[3].test_rmse == pytest.approx(alone.test_rmse, rel=1e-8)
    assert found[3].parameters == alone.parameters


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"starts": 0}, "starts is 0"),
        ({"rounds": -1}, "rounds is -1"),
        ({"device": "abacus"}, "device is 'abacus'"),
        ({"round": 2}, "no option 'round'"),
        ({"start": 2}, "start is int"),
    ],
)
def test_errors_say_what_was_given(options: dict, says: str, surface: Problem) -> None:
    with pytest.raises(GatelabError, match=says):
        fit("glu", surface, 2, solver="varpro", **options)
    for weights in (np.ones(3), -np.ones(surface.train.n), np.zeros(surface.train.n), "many"):
        with pytest.raises(GatelabError, match="weights"):
            varpro_many("glu", surface.train.x, surface.train.y, [(2, 0)], weights=weights)  # pyright: ignore
