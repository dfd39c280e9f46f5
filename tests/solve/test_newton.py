"""The paper's solver: its Hessian against a dense twin, its step against least squares, its fits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from own_module import TwoLayers
from torch import Tensor, nn

from gatelab.data import Problem
from gatelab.errors import GatelabError
from gatelab.feedforward import Network, Unit, unit
from gatelab.solve.solution import Status, mean_square, start, tensors
from gatelab.solve.solvers import newton
from gatelab.solve.solvers.newton import SCHEDULES, direction, layers_of, structured_curvature
from gatelab.solve.solvers.newton import solve as solve_newton


def sine_squared(z: Tensor, v: Tensor) -> Tensor:
    return z.sin().square() * v + z * v.square()


@pytest.fixture(scope="module")
def wave() -> Problem:
    return Problem.from_function(lambda x: 1 / (1 + np.cos(np.pi * x) ** 2), n=300)


def names_of(net: nn.Module) -> list[str]:
    return [name for name, _ in net.named_parameters()]


def dense(net: nn.Module, x: Tensor, y: Tensor, names: list[str]) -> tuple[Tensor, Tensor]:
    """Gradient and Hessian by torch alone, from one vector of the named parameters."""
    held = {n: p.detach() for n, p in net.named_parameters()}
    sizes = [held[n].numel() for n in names]

    def loss(theta: Tensor) -> Tensor:
        moved = {n: v.view_as(held[n]) for n, v in zip(names, theta.split(sizes), strict=True)}
        return nn.functional.mse_loss(torch.func.functional_call(net, {**held, **moved}, (x,)), y)

    theta = torch.cat([held[n].flatten() for n in names])
    return torch.func.grad(loss)(theta), torch.func.hessian(loss)(theta)


@pytest.mark.parametrize("d_out", [1, 2])
@pytest.mark.parametrize("d_in", [1, 2])
@pytest.mark.parametrize("spec", ["mlp", "glu", "gqu", "relu2", "swiglu", "bilinear", sine_squared])
def test_structured_hessian_is_the_dense_one(
    spec: object, d_in: int, d_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newton, "_JACOBIAN_ENTRIES", 200)  # several chunks, the last of them shorter
    net = unit(spec).network(4, d_in, d_out, seed=3, init="normal")  # pyright: ignore[reportArgumentType]
    assert isinstance(net, Network)
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(37, d, dtype=torch.float64, generator=generator) for d in (d_in, d_out))
    every = names_of(net)
    for names in (every, ["D", "d"], ["g", "d", "G", "D"]):
        gradient, hessian = dense(net, x, y, names)
        for twin in (structured_curvature(net, x, y, names), newton.dense_curvature(net, x, y, names)):
            assert twin[0] == pytest.approx(mean_square(net, x, y), rel=1e-12)
            assert (twin[1] - gradient).abs().max() <= 1e-10 * (1 + gradient.abs().max())
            assert (twin[2] - hessian).abs().max() <= 1e-10 * (1 + hessian.abs().max())


@pytest.mark.parametrize("spec", ["mlp", "glu", "gqu"])
def test_one_step_on_the_output_layer_is_least_squares(wave: Problem, spec: str) -> None:
    fit = solve_newton(spec, wave, 6, schedule="reference", steps=1)
    x, y = tensors(wave)
    assert isinstance(fit.network, Network)
    with torch.no_grad():
        features = torch.cat([fit.network.neurons(x), torch.ones_like(x)], 1)
    best = torch.linalg.lstsq(features, y, driver="gelsd").solution
    residual = (features @ best - y).square().mean().sqrt().item()
    assert fit.history == (pytest.approx(residual, rel=1e-9),)


def test_direction_solves_badly_scaled_and_indefinite_systems() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((6, 6))
    scales = np.diag(10.0 ** np.arange(-6, 6, 2))
    H = scales @ (A @ A.T + np.eye(6)) @ scales
    g = scales @ rng.standard_normal(6)
    assert np.allclose(direction(g, H)[0], -np.linalg.solve(H, g), rtol=1e-8)
    move, _ = direction(g, -H)
    assert g @ move < 0, "a negative definite Hessian sends Newton uphill: steepest descent takes over"


def test_direction_of_a_singular_system_is_finite_and_leaves_zero_rows_out() -> None:
    move, _ = direction(np.array([1.0, 1.0, 0.0]), np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    assert np.allclose(move, [-0.5, -0.5, 0.0])
    assert direction(np.zeros(3), np.zeros((3, 3))) == (pytest.approx(np.zeros(3)), 0.0)


class OneDead(Unit):
    """A GLU whose second gate opens right of the data."""

    def network(self, *args: object, **options: object) -> Network:
        net = super().network(*args, **options)  # pyright: ignore[reportArgumentType]
        with torch.no_grad():
            net.G[1], net.g[1] = 1.0, -5.0
        return net


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_dead_neurons_are_eliminated_and_stay_as_they_are(wave: Problem, schedule: str) -> None:
    dead = OneDead("relu", 1)
    before = dead.network(4, init="spline-alternating")
    fit = solve_newton(dead, wave, 4, schedule=schedule, steps=30)
    after = fit.network
    assert isinstance(after, Network)
    for name in ("G", "g", "U", "u"):
        assert torch.equal(after.get_parameter(name)[1], before.get_parameter(name)[1])
        assert not torch.equal(after.get_parameter(name)[0], before.get_parameter(name)[0])
    assert torch.equal(after.D[:, 1], before.D[:, 1])
    assert fit.history[-1] < 0.1


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("spec", ["mlp", "gqu", "swiglu"])
def test_the_error_only_falls_and_the_history_ends_at_the_network(wave: Problem, spec: str, schedule: str) -> None:
    fit = solve_newton(spec, wave, 5, schedule=schedule, steps=40)
    assert all(b < a for a, b in zip(fit.history, fit.history[1:], strict=False))
    assert fit.history[-1] == mean_square(fit.network, *tensors(wave)) ** 0.5
    assert 0 < fit.steps <= 40
    assert spec != "mlp" or solve_newton(spec, wave, 5, schedule=schedule, steps=40).history == fit.history
    assert fit.history[-1] < 0.6 * wave.train.y.std()


@pytest.mark.slow
def test_it_comes_near_the_papers_errors() -> None:
    problem = Problem.from_function(lambda x: 1 / (1 + np.cos(np.pi * x) ** 2), n=500)
    for spec, bound in (("mlp", 9.6e-3), ("glu", 1.9e-3), ("gqu", 2.6e-3)):
        assert solve_newton(spec, problem, 10, steps=150).history[-1] < bound, spec


def test_statuses(wave: Problem) -> None:
    assert solve_newton("glu", wave, 4, steps=3).status is Status.BUDGET
    assert solve_newton("mlp", wave, 3, steps=2, schedule="reference").steps == 2
    assert solve_newton("mlp", wave, 3).status is Status.CONVERGED
    line = Problem.from_arrays(wave.train.x, 3 * wave.train.x + 1)
    assert solve_newton("mlp", line, 4).status is Status.FLOOR


def test_derivatives_that_are_not_finite_stall_and_leave_the_start(wave: Problem) -> None:
    def root(z: Tensor) -> Tensor:
        return torch.where(z > 0, z.sqrt(), z)  # left of the knot the slope of the branch not taken is NaN

    fit = solve_newton(root, wave, 4, schedule="reference", steps=50)
    assert fit.status is Status.STALLED
    assert all(p.isfinite().all() for p in fit.network.parameters())


def test_a_users_class_and_functions(wave: Problem) -> None:
    net = unit(TwoLayers).network(3)
    assert layers_of(net) == (("outer.weight", "outer.bias"), ("inner.weight", "inner.bias"))
    for own in (TwoLayers, sine_squared, lambda z: z.softmax(1)):
        fit = solve_newton(own, wave, 4, steps=20)
        assert all(b < a for a, b in zip(fit.history, fit.history[1:], strict=False))
        assert fit.history[-1] < 0.2, own


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "papers"}, "no schedule is called 'papers'; did you mean 'paper'"),
        ({"steps": 0}, "steps is 0"),
        ({"init": "spine"}, "no initializer is called 'spine'"),
    ],
)
def test_bad_options_say_the_way_out(wave: Problem, options: dict[str, object], message: str) -> None:
    with pytest.raises(GatelabError, match=message):
        solve_newton("glu", wave, 4, **options)  # pyright: ignore[reportArgumentType]
    with pytest.raises(GatelabError, match="initializes itself"):
        solve_newton(TwoLayers, wave, 4, init="normal")


def test_the_reference_codes_stages_move_one_layer_at_a_time_and_then_all(wave: Problem) -> None:
    """Given the others, output and factor are linear: a step each converges, and the gate is next."""
    begun = start(unit("glu"), wave, 5, seed=0, init="spline-alternating")
    moved = []
    for steps in (1, 2, 3):
        net = solve_newton("glu", wave, 5, schedule="reference", init="spline-alternating", steps=steps).network
        moved.append({n for n, p in net.named_parameters() if not torch.equal(p, begun.get_parameter(n))})
    assert moved == [{"D", "d"}, {"D", "d", "U", "u"}, {"D", "d", "U", "u", "G", "g"}]
    whole = solve_newton("glu", wave, 5, schedule="reference", init="spline-alternating", steps=30)
    assert whole.history[-1] < 0.9 * whole.history[2]
