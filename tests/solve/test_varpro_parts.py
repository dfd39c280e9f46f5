"""The parts of variable projection, each against its slow twin."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gatelab.feedforward import activation, activations, unit
from gatelab.linalg import least_squares
from gatelab.solve import features
from gatelab.solve.features import ProductModel
from gatelab.solve.insertion import costs, draw, gains, insert, remove
from gatelab.solve.marquardt import ProjectedBatch, descend
from gatelab.solve.solution import Status

UNITS = ["mlp", "relu2", "glu", "gqu", "gelu", "swiglu", "bilinear", "sigmoid-glu"]


def own(z: Tensor, v: Tensor) -> Tensor:
    return z.sin() * v + v.square()


def model_of(
    spec: object, *, d_in: int = 2, d_out: int = 1, width: int = 4, batch: int = 3, rows: int = 60, ridge: float = 0.0
) -> tuple[ProductModel, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, d_in, generator=generator, dtype=torch.float64)
    y = torch.stack([torch.sin(2 * x[:, 0] + k) * x[:, -1] for k in range(d_out)], 1)
    chosen = unit(spec)  # pyright: ignore[reportArgumentType]
    model = ProductModel(
        chosen,  # pyright: ignore[reportArgumentType]
        torch.cat([x, torch.ones(rows, 1, dtype=torch.float64)], 1),
        y,
        torch.ones(batch, width, dtype=torch.bool),
        torch.full((batch,), ridge, dtype=torch.float64),
    )
    theta = torch.stack([draw(model, width, torch.Generator().manual_seed(b)) for b in range(batch)])
    # Gates are drawn through data points, where the loss has kinks of its own: a little beside them it is smooth.
    theta[:, 0, :, -1] += 1e-3
    return model, model.normalized(theta)


@pytest.mark.parametrize("name", activations())
def test_slopes_of_gates_are_their_derivatives(name: str) -> None:
    gate, z = activation(name), torch.linspace(-4.1, 4.2, 50, dtype=torch.float64).requires_grad_()
    by_autodiff = torch.autograd.grad(gate(z).sum(), z)[0]
    assert torch.allclose(gate.slope(z.detach()), by_autodiff, atol=1e-14)


@pytest.mark.parametrize("d_out", [1, 2])
@pytest.mark.parametrize("spec", [*UNITS, own])
def test_network_has_the_residual_of_the_projection(spec: object, d_out: int) -> None:
    model, theta = model_of(spec, d_out=d_out)
    found = model.project(theta)
    for b in range(len(theta)):
        net = model.network(theta, found.coefficients, b, 4)
        with torch.no_grad():
            out = net(model.x[:, :-1])
        assert torch.allclose(model.y - out, found.residual[b], atol=1e-8)


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize("d_out", [1, 2])
@pytest.mark.parametrize("spec", [*UNITS, own])
def test_gradient_is_that_of_the_projected_loss(spec: object, d_out: int, ridge: float) -> None:
    """Kaufman's form has the exact gradient; the twin differentiates the minimum over c by finite differences."""
    model, theta = model_of(spec, d_out=d_out, batch=1, ridge=ridge)
    _, g = model.normal(theta, model.project(theta))
    generator = torch.Generator().manual_seed(5)
    for _ in range(3):
        v = torch.randn(g.shape, generator=generator, dtype=torch.float64)
        h = 1e-6

        def loss(t: float, v: Tensor = v) -> float:
            return float(model.project(model.moved(theta, t * v)).loss)

        slope = (loss(h) - loss(-h)) / (2 * h)
        assert -2 * float((g * v).sum()) == pytest.approx(slope, rel=2e-4, abs=2e-5 * float(g.norm() * v.norm()) + 1e-5)


@pytest.mark.parametrize("d_out", [1, 2])
@pytest.mark.parametrize("spec", [*UNITS, own])
def test_normal_matrix_is_that_of_the_projected_jacobian(spec: object, d_out: int) -> None:
    """The twin: all derivatives of F c by autodiff, projected with a dense Q, rows of all outputs."""
    model, theta = model_of(spec, d_out=d_out, batch=1)
    found = model.project(theta)
    K, _ = model.normal(theta, found)
    if found.careful.any():
        pytest.skip("a singular F has no unique complement to compare with")
    c = found.coefficients

    def outputs(t: Tensor) -> Tensor:
        return model.columns(t)[0] @ c[0]

    J = torch.autograd.functional.jacobian(outputs, theta).reshape(len(model.x), d_out, -1)
    Q = torch.linalg.qr(model.columns(theta)[0])[0]
    left = torch.cat([J[:, o] - Q @ (Q.mT @ J[:, o]) for o in range(d_out)])
    assert torch.allclose(K[0], left.mT @ left, atol=1e-6 * float(K.abs().max()))


@pytest.mark.parametrize("spec", ["mlp", "glu", "swiglu", "gqu"])
def test_padding_and_weights_of_zero_change_nothing(spec: str) -> None:
    model, theta = model_of(spec)
    plain = model.project(theta)
    padded = replace(model, present=torch.cat([model.present, torch.zeros(3, 2, dtype=torch.bool)], 1))
    more = torch.cat([theta, torch.randn(3, theta.shape[1], 2, 3, dtype=torch.float64)], 2)
    assert torch.allclose(padded.project(more).loss, plain.loss, rtol=1e-12)
    rows = torch.cat([model.x, model.x[:5] + 1])
    weight = torch.cat([torch.ones(60), torch.zeros(5)]).double().expand(3, -1)
    weighted = replace(model, x=rows, y=torch.cat([model.y, model.y[:5]]), root_weight=weight)
    assert torch.allclose(weighted.project(theta).loss, plain.loss, rtol=1e-12)


@pytest.mark.parametrize("d_out", [1, 2])
@pytest.mark.parametrize("spec", ["mlp", "glu", "swiglu", "gqu"])
def test_costs_are_what_leaving_out_costs(spec: str, d_out: int) -> None:
    model, theta = model_of(spec, d_out=d_out, rows=200)
    found = model.project(theta)
    cost = costs(model, found)
    for i in range(4):
        present = model.present.clone()
        present[:, i] = False
        without = replace(model, present=present).project(theta)
        assert torch.allclose(cost[:, i], without.loss - found.loss, rtol=1e-3, atol=1e-6 * float(found.loss.max()))


@pytest.mark.parametrize("d_out", [1, 2])
@pytest.mark.parametrize("spec", ["mlp", "glu", "swiglu", "gqu"])
def test_gains_are_what_adding_gains(spec: str, d_out: int) -> None:
    """Up to the small share of a candidate that is added so that near copies promise nothing."""
    model, theta = model_of(spec, d_out=d_out, rows=200)
    found = model.project(theta)
    candidates = torch.stack([draw(model, 6, torch.Generator().manual_seed(9 + b)) for b in range(3)])
    candidates = model.normalized(candidates)
    promised = gains(model, theta, found, candidates)
    larger = replace(model, present=torch.ones(3, 5, dtype=torch.bool))
    real = torch.stack(
        [found.loss - larger.project(torch.cat([theta, candidates[:, :, i : i + 1]], 2)).loss for i in range(6)], 1
    )
    assert bool((promised <= real * (1 + 1e-6) + 1e-9).all())
    assert float((promised.argmax(1) == real.argmax(1)).double().mean()) >= 2 / 3
    assert bool((promised > 0.3 * real).double().mean() > 0.8)


def test_neurons_go_and_come_in_a_batch_as_they_would_alone() -> None:
    model, theta = model_of("glu", width=6)
    present = torch.tensor([[1, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1]], dtype=torch.bool)
    model = replace(model, present=present)
    unwanted, wanted = [2, 1, 0], [1, 0, 3]
    whole = [torch.Generator().manual_seed(b) for b in range(3)]
    fewer = remove(model, model.project(theta), unwanted, whole)
    more, moved = insert(fewer, theta, fewer.project(theta), wanted, whole)
    assert fewer.present.sum(1).tolist() == [3, 5, 4] and more.present.sum(1).tolist() == [4, 5, 7]
    assert torch.equal(model.present, present), "the batch that was given stays as it was"
    assert bool((more.project(moved).loss <= fewer.project(theta).loss + 1e-12).all())
    for b in range(3):
        g, only = torch.Generator().manual_seed(b), model.take(torch.tensor([b]))
        own_fewer = remove(only, only.project(theta[b : b + 1]), unwanted[b : b + 1], [g])
        assert torch.equal(own_fewer.present[0], fewer.present[b])
        alone = theta[b : b + 1]
        own_more, own_moved = insert(own_fewer, alone, own_fewer.project(alone), wanted[b : b + 1], [g])
        n = own_more.present.shape[1]
        assert torch.equal(own_more.present[0], more.present[b, :n]) and not bool(more.present[b, n:].any())
        assert torch.equal(own_moved[0], moved[b, :, :n])


@pytest.mark.parametrize("d_out", [1, 2])
@pytest.mark.parametrize("spec", ["mlp", "glu", "swiglu", "gqu"])
def test_the_way_of_a_gpu_comes_to_the_same(spec: str, d_out: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, theta = model_of(spec, d_out=d_out, rows=200, width=12, ridge=1e-6)
    generator = torch.Generator().manual_seed(3)
    model = replace(model, root_weight=torch.rand(3, 200, generator=generator, dtype=torch.float64) + 0.5)
    plain = model.project(theta)
    K, g = model.normal(theta, plain)
    candidates = model.normalized(torch.stack([draw(model, 6, torch.Generator().manual_seed(b)) for b in range(3)]))
    promised, cost = gains(model, theta, plain, candidates), costs(model, plain)
    for module in (least_squares, features):
        monkeypatch.setattr(module, "on_gpu", lambda A: True)
    there = model.project(theta)
    assert torch.allclose(there.loss, plain.loss, rtol=1e-9)
    assert torch.allclose(there.residual, plain.residual, atol=1e-8)
    other_K, other_g = model.normal(theta, plain)
    assert bool((other_K - K).norm() < 1e-8 * K.norm())
    assert bool((other_g - g).norm() < 1e-8 * g.norm())
    assert torch.allclose(gains(model, theta, plain, candidates), promised, rtol=1e-5, atol=1e-9)
    assert torch.allclose(costs(model, plain), cost, rtol=1e-4, atol=1e-9)


def test_descent_never_rises_and_stops_at_its_own_budget() -> None:
    model, theta = model_of("glu")
    batch = ProjectedBatch(model, theta)
    now = descend(batch, [0, 3, 300], tolerance=1e-4)
    assert [len(h) for h in now.losses[:2]] == [0, 3]
    assert now.status[0] == now.status[1] == Status.BUDGET
    assert now.status[2] in (Status.CONVERGED, Status.STALLED)
    assert all(a >= b for a, b in zip(now.losses[2], now.losses[2][1:], strict=False))
    assert torch.equal(batch.theta[0], theta[0])
    assert now.loss.tolist() == batch.losses().tolist()


def test_descent_says_floor_where_the_unit_is_exact() -> None:
    model, theta = model_of("bilinear", width=3)
    exact = replace(model, y=(model.x[:, :1] * model.x[:, 1:2]))
    now = descend(ProjectedBatch(exact, theta), [50] * 3, tolerance=1e-9, floor=1e-26 * float(exact.y.square().sum()))
    assert now.status == (Status.FLOOR,) * 3
