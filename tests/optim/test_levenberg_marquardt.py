"""Levenberg-Marquardt for modules: dense twins of every structured product, exact restores, and clear errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gatelab as gl
from gatelab.errors import GatelabError
from gatelab.optim import LevenbergMarquardt
from gatelab.optim.jacobians import Graph, Jacobian, blocks, row_jacobian
from gatelab.optim.systems import DenseSystem, FreeSystem


def network(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1]).to(dtype)


def rows(n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def curve(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    x = torch.linspace(-1, 1, 120, dtype=dtype)[:, None]
    return x, torch.sin(4 * x)


def equation(model: nn.Module) -> Callable[[], tuple[Tensor, Tensor]]:
    """A Laplace equation and its boundary, with derivatives by autograd inside the closure."""
    inside, edge = rows(30, 2).requires_grad_(), rows(11, 2, seed=1)

    def residuals() -> tuple[Tensor, Tensor]:
        u = model(inside)
        (slope,) = torch.autograd.grad(u.sum(), inside, create_graph=True)
        second = [torch.autograd.grad(slope[:, i].sum(), inside, create_graph=True)[0][:, i] for i in range(2)]
        return second[0] + second[1] + u[:, 0] ** 3, model(edge)

    return residuals


class Scaled(nn.Module):
    """Parameters that are not weights of linear maps, and weights that are used twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.middle = nn.Linear(2, 6), nn.Linear(6, 6)
        self.norm, self.scale = nn.LayerNorm(6), nn.Parameter(torch.tensor(1.3))

    def forward(self, x: Tensor) -> Tensor:
        z = self.middle(torch.tanh(self.first(self.scale * x)))
        return self.norm(torch.sin(self.middle(z)))


def by_differences(model: nn.Module, residuals: Callable[[], Tensor | tuple[Tensor, ...]]) -> Tensor:
    """Central differences, parameter by parameter."""
    columns, h = [], 1e-5
    for p in model.parameters():
        for i in range(p.numel()):
            ends = []
            for sign in (1, -1):
                with torch.no_grad():
                    p.view(-1)[i] += sign * h
                ends.append(blocks(residuals, None).flat.detach())
                with torch.no_grad():
                    p.view(-1)[i] -= sign * h
            columns.append((ends[0] - ends[1]) / (2 * h))
    return torch.stack(columns, 1)


def dense(J: Tensor, r: Tensor, *options: float) -> DenseSystem:
    return DenseSystem(Jacobian(r, J.shape[1], matrix=J), r, *options)


def cases() -> dict[str, tuple[nn.Module, Callable[[], Tensor | tuple[Tensor, ...]]]]:
    plain, several, wide, scaled = network(2, 5, 4, 1), network(2, 5, 3), network(2, 8, 1), Scaled().double()
    pinn, x, unit = network(2, 5, 5, 1), rows(20, 2), gl.unit("swiglu").network(4, 2, 1, seed=0)
    return {
        "rows": (plain, lambda: plain(x)),
        "several outputs": (several, lambda: several(x)),
        "more parameters than residuals": (wide, lambda: wide(x[:5]).exp()),
        "a differential equation": (pinn, equation(pinn)),
        "other parameters": (scaled, lambda: scaled(x)),
        "a unit of gatelab": (unit, lambda: unit(x)),
        "sequences": (plain, lambda: plain(x.view(5, 4, 2)).sum(1)),
    }


@pytest.mark.parametrize("name", list(cases()))
def test_jacobians_agree_with_differences(name: str) -> None:
    model, residuals = cases()[name]
    parameters = list(model.parameters())
    expected = by_differences(model, residuals)
    graph = Graph(blocks(residuals, None).flat, parameters)
    by_rows = row_jacobian(residuals, None, parameters)
    assert by_rows is not None
    for J in (graph.jacobian(), by_rows.matrix):
        torch.testing.assert_close(J, expected, rtol=1e-6, atol=1e-8)
    assert torch.equal(graph.value, by_rows.r)
    t, v = rows(1, J.shape[1])[0], rows(1, J.shape[0])[0]
    fresh = row_jacobian(residuals, None, parameters)
    assert fresh is not None
    torch.testing.assert_close(fresh.times(t), J @ t)
    torch.testing.assert_close(fresh.transposed(v), J.mT @ v)
    torch.testing.assert_close(torch.tensor(fresh.norm()), J.norm(), check_dtype=False)
    torch.testing.assert_close(fresh.gram(J.dtype).triu(), (J.mT @ J).triu())
    torch.testing.assert_close(fresh.outer(J.dtype), J @ J.mT)
    torch.testing.assert_close(graph.times(t), J @ t)
    torch.testing.assert_close(graph.transposed(v), J.mT @ v)


@pytest.mark.parametrize("mixed", [lambda u: u - u.mean(), lambda u: u.flip(0) * u, lambda u: u.cumsum(0)])
def test_rows_that_depend_on_each_other_have_the_general_jacobian(mixed: Callable[[Tensor], Tensor]) -> None:
    model, x = network(2, 4, 1), rows(12, 2)
    optimizer = LevenbergMarquardt(model)
    J = optimizer._jacobian(lambda: mixed(model(x)), list(model.parameters())).matrix
    torch.testing.assert_close(J, by_differences(model, lambda: mixed(model(x))), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shape", [(30, 8), (8, 30)])
@pytest.mark.parametrize("damping", [1e-1, 1e-12])
def test_dense_and_free_systems_solve_the_damped_problem(shape: tuple[int, int], damping: float) -> None:
    J, r = rows(*shape) - 0.5, rows(shape[0], 1, seed=2)[:, 0]
    size = J.square().sum(0).mean().sqrt().expand(shape[1])
    A = torch.cat([J, damping**0.5 * torch.diag(size)])
    expected = -torch.linalg.lstsq(A, torch.cat([r, torch.zeros(shape[1], dtype=r.dtype)])).solution
    system = dense(J, r)
    step, change = system.step(damping)
    torch.testing.assert_close(step, expected, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(change, J @ step)
    torch.testing.assert_close(system.second(r), step, rtol=1e-3, atol=1e-6)
    theta = nn.Parameter(torch.zeros(shape[1], dtype=r.dtype))
    free = FreeSystem(Graph(J @ theta + r, [theta]), torch.Generator().manual_seed(0))
    free.size = size
    if damping == 1e-1:
        torch.testing.assert_close(free.step(damping)[0], expected, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("damping", [1.0, 1e-3, 1e-6, 1e-12])
def test_linear_parameters_are_eliminated_exactly(damping: float) -> None:
    """In float32, by Cholesky and by QR, next to one least-squares problem with all parameters."""
    J, r, ease = rows(40, 9) - 0.5, rows(40, 1, seed=2)[:, 0], 1e-6
    J[:, 2] = J[:, 1] * (1 + 1e-9)  # two linear parameters that do the same
    size = J.square().sum(0).mean().sqrt() * torch.tensor([ease] * 4 + [1.0] * 5, dtype=r.dtype).sqrt()
    A = torch.cat([J, damping**0.5 * torch.diag(size)])
    expected = -torch.linalg.lstsq(A, torch.cat([r, torch.zeros(9, dtype=r.dtype)]), driver="gelsd").solution
    system = dense(J, r, 4, ease)
    step, _ = system.step(damping)
    torch.testing.assert_close(step[4:], expected[4:], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(J @ step, J @ expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(J @ system.second(r), J @ step, rtol=1e-3, atol=1e-4)


def test_large_dampings_take_a_gram_matrix_in_float32_and_refine() -> None:
    J, r = rows(60, 12) - 0.5, rows(60, 1, seed=2)[:, 0]
    system, least = dense(J, r), 10 * 12 * torch.finfo(torch.float32).eps
    step, _ = system.step(1.1 * least)
    assert list(system._grams) == [torch.float32]
    exact = -torch.linalg.solve(J.mT @ J + 1.1 * least * J.square().sum(0).mean() * torch.eye(12).to(J), J.mT @ r)
    torch.testing.assert_close(step, exact, rtol=1e-9, atol=1e-10)
    system.step(0.9 * least)
    assert list(system._grams) == [torch.float32, torch.float64]


def test_small_dampings_keep_the_digits_that_normal_equations_lose() -> None:
    U, _ = torch.linalg.qr(rows(40, 6) - 0.5)
    V, _ = torch.linalg.qr(rows(6, 6, seed=1) - 0.5)
    J = U * torch.logspace(0, -10, 6, dtype=U.dtype) @ V.mT
    step, _ = dense(J, J @ torch.ones(6, dtype=U.dtype)).step(1e-24)
    assert float((step + 1).norm()) < 1e-4


@pytest.mark.parametrize("options", [{}, {"acceleration": False}, {"linear": "2"}, {"memory": 1e4}])
def test_fits_a_curve(options: dict) -> None:
    model, (x, y) = network(1, 8, 1), curve()
    optimizer = LevenbergMarquardt(model, **options)
    losses = [optimizer.step(lambda: model(x) - y)]
    while losses[-1] >= 1e-6 and len(losses) < 90:
        losses.append(optimizer.step(lambda: model(x) - y))
    assert all(b <= a for a, b in pairwise(losses)) and losses[-1] < 1e-6
    assert losses[-1] == pytest.approx((model(x) - y).square().mean().item(), rel=1e-6)
    assert optimizer.loss == losses[-1] and optimizer.steps == len(losses)


def test_float32_fits_too() -> None:
    model, (x, y) = network(1, 8, 1, dtype=torch.float32), curve(torch.float32)
    optimizer = LevenbergMarquardt(model)
    for _ in range(80):
        loss = optimizer.step(lambda: model(x) - y)
    assert loss**0.5 < 1e-3


def test_a_linear_problem_takes_one_step_and_converges() -> None:
    x = rows(50, 3)
    model = nn.Linear(3, 1).double()
    y = x @ torch.tensor([[1.0], [2.0], [3.0]], dtype=x.dtype) + rows(50, 1, seed=3)
    optimizer = LevenbergMarquardt(model)
    for _ in range(30):
        optimizer.step(lambda: model(x) - y)
    X = torch.cat([x, torch.ones(50, 1, dtype=x.dtype)], 1)
    best = np.linalg.lstsq(X.numpy(), y.numpy(), rcond=None)[0].ravel()
    torch.testing.assert_close(model.weight[0], torch.from_numpy(best[:3]), rtol=1e-8, atol=1e-8)
    assert optimizer.status in (gl.Status.CONVERGED, gl.Status.STALLED)


def test_weights_of_blocks_are_those_of_the_loss() -> None:
    model, (x, y) = network(1, 3, 1), curve()
    loss = LevenbergMarquardt(model, weights=[1, 4]).step(lambda: (model(x) - y, model(x[:7])))
    expected = (model(x) - y).square().mean() + 4 * model(x[:7]).square().mean()
    assert loss == pytest.approx(expected.item())


def test_restored_to_the_bit_if_no_step_helps_or_the_closure_raises() -> None:
    model, (x, y) = network(1, 4, 1), curve()
    before = [p.detach().clone() for p in model.parameters()]

    def moved() -> bool:
        return not all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))

    def worse() -> Tensor:
        return (model(x) - y) * (1 + 1000 * moved())

    optimizer = LevenbergMarquardt(model)
    optimizer.step(worse)
    assert not moved() and optimizer.status is gl.Status.STALLED

    def broken() -> Tensor:
        if moved():
            raise KeyboardInterrupt
        return model(x) - y

    with pytest.raises(KeyboardInterrupt):
        LevenbergMarquardt(model).step(broken)
    assert not moved()


def test_trials_that_are_not_finite_are_rejected() -> None:
    model, (x, y) = network(1, 4, 1), curve()
    most = model(x).abs().max().item() + 0.05
    optimizer = LevenbergMarquardt(model, damping=1e-6)
    losses = [optimizer.step(lambda: torch.sqrt(most - model(x)) - 0.3 * y) for _ in range(20)]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


@pytest.mark.parametrize("options", [{}, {"linear": "2"}, {"memory": 1e3}, {"longest": 0.1}])
def test_a_saved_state_continues_to_the_bit(options: dict) -> None:
    model, (x, y) = network(1, 6, 1), curve()
    optimizer = LevenbergMarquardt(model, **options)
    for _ in range(5):
        optimizer.step(lambda: model(x) - y)
    other = network(1, 6, 1, seed=7)
    other.load_state_dict(model.state_dict())
    resumed = LevenbergMarquardt(other, **options)
    resumed.load_state_dict(optimizer.state_dict())
    for _ in range(3):
        assert optimizer.step(lambda: model(x) - y) == resumed.step(lambda: other(x) - y)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(("bound", "options"), [(0.05, {}), (1e-5, {"linear": "2"}), (0.05, {"memory": 1e3})])
def test_steps_are_not_longer_than_the_longest(bound: float, options: dict) -> None:
    x, y = curve()

    def lengths(**bounds: float) -> list[float]:
        model, result = network(1, 6, 1), []
        optimizer = LevenbergMarquardt(model, **options, **bounds)
        losses = [np.inf]
        for _ in range(4):
            before = nn.utils.parameters_to_vector(model[0].parameters()).detach()
            losses.append(optimizer.step(lambda: model(x) - y))
            result.append((nn.utils.parameters_to_vector(model[0].parameters()) - before).norm().item())
        assert all(b < a for a, b in pairwise(losses))
        return result

    assert max(lengths()) > bound >= max(lengths(longest=bound)) * (1 - 1e-9)


class Coefficient(nn.Module):
    """An unknown coefficient, in which residuals are not affine, a network, and a parameter without influence."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = network(1, 5, 5), nn.Linear(5, 1).double()
        self.c, self.unused = (nn.Parameter(torch.tensor(0.4, dtype=torch.float64)) for _ in range(2))


def test_linear_parameters_of_residuals_that_are_not_affine_in_others() -> None:
    model, (x, y) = Coefficient(), curve()

    def residuals() -> tuple[Tensor, Tensor]:
        return model.head(torch.tanh(model.body(x))) * model.c.exp() - y, (model.c**3 - 1)[None]

    optimizer = LevenbergMarquardt(model, linear="head", weights=[1, 0.1], damping=1e-6)
    losses = [optimizer.step(residuals) for _ in range(15)]
    with torch.no_grad():
        features = torch.tanh(model.body(x)) * model.c.exp()
        features = torch.cat([features, model.c.exp().expand(len(x), 1)], 1)
    least = np.linalg.lstsq(features.numpy(), y.numpy(), rcond=None)[1][0] / len(x)
    assert losses[-1] == pytest.approx(least + 0.1 * (model.c.item() ** 3 - 1) ** 2, rel=1e-2)
    assert model.c.item() == pytest.approx(1, abs=0.05) and model.unused.item() == 0.4


def wrong_inputs() -> dict[str, tuple[str, dict, Callable[[nn.Module, Tensor], Callable[[], Tensor]], str]]:
    return {
        "no parameter": ({}, lambda m, x: lambda: x, "depends on no trainable parameter"),
        "detached": ({}, lambda m, x: lambda: m(x).detach(), "depends on no trainable parameter"),
        "empty": ({}, lambda m, x: lambda: m(x[:0]), r"has shape \(0, 1\), no elements"),
        "not finite": ({}, lambda m, x: lambda: m(x) / 0, "elements that are not finite"),
        "no derivative": ({}, lambda m, x: lambda: (0 * m(x)).sqrt(), "derivatives of residuals.. are not finite"),
        "not a tensor": ({}, lambda m, x: lambda: 1.0, "is of type float"),
        "other precision": ({}, lambda m, x: lambda: m(x).float(), "in torch.float32 and the model in torch.float64"),
        "weights": ({"weights": [1, 2]}, lambda m, x: lambda: m(x), "weights has 2 entries"),
        "not affine": ({"linear": "2"}, lambda m, x: lambda: m(x) ** 2, "is not affine"),
        "too large": ({"linear": "2", "memory": 10}, lambda m, x: lambda: m(x), "give more memory"),
    }


@pytest.mark.parametrize("name", list(wrong_inputs()))
def test_wrong_residuals_are_refused_and_the_model_is_unchanged(name: str) -> None:
    options, residuals, message = wrong_inputs()[name]
    model, (x, _) = network(1, 4, 1), curve()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = LevenbergMarquardt(model, **options)
    with pytest.raises(GatelabError, match=message):
        optimizer.step(residuals(model, x))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_wrong_models_are_refused() -> None:
    wrong: list[tuple[nn.Module, dict, str]] = [
        (network(1, 4, 1, dtype=torch.bfloat16), {}, "the parameters are bfloat16"),
        (network(1, 4, 1).half(), {}, "float16 on cpu; give them all in float32 or float64"),
        (network(1, 4, 1), {"linear": "head"}, "no submodule or parameter is called 'head'"),
        (nn.Tanh(), {}, "no trainable parameters"),
        (network(1, 4, 1), {"damping": 0}, "damping is 0"),
        (network(1, 4, 1), {"longest": -1}, "longest is -1"),
    ]
    for model, options, message in wrong:
        with pytest.raises(GatelabError, match=message):
            LevenbergMarquardt(model, **options)
