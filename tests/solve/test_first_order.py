"""Adam and L-BFGS: they descend, keep the best they saw, and say so when they cannot."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from own_module import TwoLayers
from torch import Tensor, nn

from gatelab.data import Problem
from gatelab.errors import GatelabError
from gatelab.feedforward import unit
from gatelab.solve.solution import Solution, Status, mean_square, start, tensors
from gatelab.solve.solvers.adam import solve as adam
from gatelab.solve.solvers.lbfgs import solve as lbfgs

Solver = Callable[..., Solution]
both = pytest.mark.parametrize("solver", [adam, lbfgs])


@pytest.fixture(scope="module")
def wave() -> Problem:
    return Problem.from_function(lambda x: np.sin(3 * x), n=200)


def rmse(net: nn.Module, problem: Problem) -> float:
    return mean_square(net, *tensors(problem)) ** 0.5


@both
@pytest.mark.parametrize("spec", ["mlp", "glu", "swiglu", TwoLayers, lambda z, v: z.tanh() * v])
def test_it_descends_and_returns_the_best_network_seen(wave: Problem, solver: Solver, spec: object) -> None:
    steps = {adam: 150, lbfgs: 60}[solver]
    fit = solver(spec, wave, 6, steps=steps)
    first = rmse(start(unit(spec), wave, 6, seed=0, init=None), wave)  # pyright: ignore[reportArgumentType]
    assert rmse(fit.network, wave) == min(fit.history) < 0.6 * first
    assert fit.steps <= steps


def test_lbfgs_has_its_line_search(wave: Problem) -> None:
    """One call for 40 iterations is the same path as 40 calls for one."""
    x, y = tensors(wave)
    net = start(unit("glu"), wave, 4, seed=0, init=None)
    how = {"max_iter": 40, "max_eval": 1000, "history_size": 50, "tolerance_grad": 0.0, "tolerance_change": 0.0}
    whole = torch.optim.LBFGS(net.parameters(), line_search_fn="strong_wolfe", **how)

    def closure() -> Tensor:
        net.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        return loss

    whole.step(closure)  # pyright: ignore[reportArgumentType]
    assert lbfgs("glu", wave, 4, steps=40).history[-1] == pytest.approx(rmse(net, wave), rel=1e-9)
    fit = lbfgs("glu", wave, 4)
    assert fit.status is Status.CONVERGED
    assert all(b < a for a, b in zip(fit.history, fit.history[1:], strict=False))


@both
def test_equal_seeds_are_bit_equal(wave: Problem, solver: Solver) -> None:
    one, two, other = (solver("glu", wave, 4, seed=s, steps=20) for s in (0, 0, 1))
    assert one.history == two.history != other.history
    assert (one.status, one.steps) == (Status.BUDGET, 20)
    for a, b in zip(one.network.parameters(), two.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_divergence_keeps_the_best_network_so_far(wave: Problem) -> None:
    def explosive(z: Tensor) -> Tensor:
        return torch.exp(z * z)

    fit = adam(explosive, wave, 4, lr=20.0, steps=200)
    assert fit.status is Status.DIVERGED
    assert fit.steps < 200
    assert np.isfinite(rmse(fit.network, wave))
    assert all(np.isfinite(fit.history))


@pytest.mark.parametrize(("lr", "steps"), [(1e308, 0), (1e3, 30)])
def test_steps_that_only_lead_away_from_the_start_have_diverged(wave: Problem, lr: float, steps: int) -> None:
    """A first step to infinity left an empty history, on which repr failed, and the status "stalled"; steps of 1e3 were
    "still improving"."""
    fit = adam("glu", wave, 4, lr=lr, steps=30)
    assert (fit.status, fit.steps) == (Status.DIVERGED, steps)
    assert f"diverged in {steps} steps" in repr(fit)
    assert "learning rate" in fit.status.advice
    assert rmse(fit.network, wave) < 2


@both
def test_a_first_loss_that_is_not_finite_is_an_error(wave: Problem, solver: Solver) -> None:
    with pytest.raises(GatelabError, match="first loss of 'broken' is nan"):

        def broken(z: Tensor) -> Tensor:
            return (z - 100).log()

        solver(broken, wave, 4)


@both
def test_bad_options_say_the_way_out(wave: Problem, solver: Solver) -> None:
    with pytest.raises(GatelabError, match="initializes itself"):
        solver(TwoLayers, wave, 4, init="normal")
    with pytest.raises(GatelabError, match="lr is -1"):
        adam("glu", wave, 4, lr=-1.0)
    with pytest.raises(GatelabError, match="lr is 'fast'"):
        adam("glu", wave, 4, lr="fast")  # pyright: ignore[reportArgumentType]
