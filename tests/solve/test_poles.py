"""The pole solver: its steps against slow twins, its errors, and rows that are not smooth."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from benchmarks.smooth_precise import EXACT, Rows, gates_of

import gatelab as gl
from gatelab.errors import GatelabError
from gatelab.solve.solution import mean_square, tensors
from gatelab.solve.solvers import varpro
from gatelab.solve.solvers.poles import Nodes, PoleBatch, drawn, solve, target_poles


def nodes_of(f, count=64, low=-1.0, high=1.0, rows=2000) -> Nodes:
    x = np.linspace(low, high, rows)
    return Nodes.of(x, f(x), count)


def batch(name: str, width: int = 3, members: int = 4, seed: int = 0) -> PoleBatch:
    theta = drawn(np.random.default_rng(seed), members, width, np.array([]))
    return PoleBatch(gl.unit(name), nodes_of(np.cos, low=0.0, high=3.0), theta)


@pytest.mark.parametrize("name", ["silu", "swiglu", "geglu", "gelu"])
def test_output_weights_are_those_of_least_squares(name: str) -> None:
    """The twin solves the weighted problem densely, from the network's own neurons."""
    there = batch(name)
    for member in range(4):
        net = there.network(member)
        nodes = there.nodes
        x = torch.from_numpy(nodes.low + (nodes.high - nodes.low) * (nodes.t + 1) / 2)[:, None]
        with torch.no_grad():
            gate = net.unit.gate(x @ net.G.T + net.g).numpy()
            errors = (net(x)[:, 0].numpy() - nodes.y) * nodes.weights
        F = np.concatenate([gate * x.numpy() ** k for k in range(net.unit.factors + 1)] + [np.ones((len(x), 1))], 1)
        c = np.linalg.lstsq(F * nodes.weights[:, None], nodes.y * nodes.weights, rcond=None)[0]
        dense = np.square((F @ c - nodes.y) * nodes.weights).sum()
        assert np.square(errors).sum() == pytest.approx(dense, rel=1e-6, abs=1e-24)
        assert there.losses()[member] == pytest.approx(dense, rel=1e-6, abs=1e-24)


@pytest.mark.parametrize("name", ["silu", "swiglu"])
def test_the_gradient_is_that_of_differences(name: str) -> None:
    """Kaufman's Jacobian is an approximation; the gradient of the projected loss that it gives is exact."""
    there = batch(name, width=2)
    there.linearize(np.arange(4))
    gradient = -2 * np.einsum("bnp,bn->bp", there.jacobian, there.here.residual)
    for p in range(4):
        shift = np.zeros((2, 2))
        shift[p % 2, p // 2] = 1e-6
        ends = [there.project(there.theta + sign * shift).loss for sign in (1, -1)]
        np.testing.assert_allclose((ends[0] - ends[1]) / 2e-6, gradient[:, p], rtol=1e-4, atol=1e-9)


def test_steps_are_those_of_the_damped_normal_equations() -> None:
    there = batch("swiglu", width=2)
    members, damping = np.arange(4), np.full(4, 0.1)
    there.linearize(members)
    there.trial(members, damping)
    for b in range(4):
        J, scale = there.jacobian[b], there.scale[b]
        K = J.T @ J + 0.1 * np.diag(scale**2)
        step = np.linalg.solve(K, J.T @ there.here.residual[b])
        moved = there.there[0][b] - there.theta[b]
        np.testing.assert_allclose(np.concatenate([moved[:, 0], moved[:, 1]]), step, rtol=1e-6)


def test_nodes_integrate_as_the_rows_do() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, 10_000)
    nodes = Nodes.of(x, np.exp(x), 96)
    assert np.square(nodes.weights).sum() == pytest.approx(1.0)
    assert np.sum(nodes.weights**2 * nodes.y) == pytest.approx(math.sinh(1), rel=1e-4)
    few = Nodes.of(x[:20], np.exp(x[:20]), 96)
    assert len(few.t) == 20
    np.testing.assert_allclose(few.weights**2, 1 / 20)


def test_poles_of_a_rational_function_are_found() -> None:
    found = target_poles(nodes_of(lambda x: 1 / (1 + 25 * x**2) + 1 / ((x - 0.5) ** 2 + 0.09)))
    np.testing.assert_allclose(found[:2], [0.2j, 0.5 + 0.3j], atol=1e-8)


@cache
def fitted(unit: str, width: int) -> gl.Fit:
    return gl.fit(unit, "paper-1d", width, solver="poles")


@pytest.mark.parametrize(
    ("unit", "width", "most"), [("swiglu", 3, 3e-4), ("swiglu", 8, 5e-9), ("silu", 8, 3e-6), ("geglu", 6, 2e-5)]
)
def test_errors_on_the_papers_target(unit: str, width: int, most: float) -> None:
    """At most the best of five seeds of variable projection on all rows."""
    assert fitted(unit, width).test_rmse < most


def test_neurons_sit_on_the_poles_of_the_target() -> None:
    net = fitted("swiglu", 8).network
    poles = [complex(-g / G, math.pi / abs(G)) for G, g in zip(net.G.flatten().tolist(), net.g.tolist(), strict=True)]
    for pole in (complex(0.5, math.asinh(1) / math.pi), complex(-0.5, math.asinh(1) / math.pi)):
        assert min(abs(pole - p) for p in poles) < 0.01


@pytest.mark.parametrize(
    "target", [np.abs, np.sign, lambda x: 1 / (x + 0.1234), np.exp], ids=["kink", "jump", "pole inside", "entire"]
)
def test_rough_targets_are_fitted_no_worse_than_by_variable_projection(target, monkeypatch) -> None:
    """The pole solver may have asked for the same fit itself, which is then not computed again."""
    x, asked, honest = np.linspace(-1, 1, 300), [], varpro.solve
    problem = gl.Problem.from_arrays(x, target(x), name="rough")
    monkeypatch.setattr(varpro, "solve", lambda *a, **o: asked.append(honest(*a, **o)) or asked[-1])
    net = solve("swiglu", problem, 2).network
    ours = math.sqrt(mean_square(net, *tensors(problem)))
    (theirs,) = asked or [honest("swiglu", problem, 2)]
    assert ours <= 1.5 * math.sqrt(mean_square(theirs.network, *tensors(problem))) + 1e-9 * np.abs(target(x)).max()


def test_noise_is_averaged_over_all_rows() -> None:
    draw = np.random.default_rng(0)
    x = draw.uniform(-1, 1, 2000)
    problem = gl.Problem.from_arrays(x, np.cos(3 * x) + 0.1 * draw.standard_normal(2000), name="noise")
    net = solve("swiglu", problem, 3).network
    t = np.linspace(-0.95, 0.95, 200)
    with torch.no_grad():
        error = net(torch.from_numpy(t)[:, None])[:, 0].numpy() - np.cos(3 * t)
    assert np.sqrt(np.mean(error**2)) < 0.02  # 0.1 sqrt(13 / 2000) = 0.008


def test_a_start_is_never_lost() -> None:
    smaller = gl.fit("silu", "paper-1d", 5, solver="poles")
    larger = gl.fit("silu", "paper-1d", 6, solver="poles", start=smaller)
    assert larger.train_rmse <= smaller.train_rmse


CURVE = np.linspace(-1, 1, 200)


@pytest.mark.parametrize(
    ("unit", "options", "solver"),
    [
        *((unit, {}, "poles") for unit in ("silu", "gelu", "swiglu", "geglu", "sigmoid-glu", gl.Unit("tanh", 1))),
        ("swiglu", {"ridge": 1e-3}, "varpro"),
        ("bilinear", {}, "varpro"),
        (gl.Unit("silu", 2), {}, "varpro"),
        (lambda z: torch.sin(z), {}, "varpro"),
        ("glu", {}, "knots"),
    ],
)
def test_the_automatic_choice(unit, options, solver) -> None:
    problem = gl.Problem.from_arrays(CURVE, np.exp(CURVE), name="exponential")
    assert gl.fit(unit, problem, 2, steps=3, **options).solver == solver


def test_rows_at_the_same_places_are_fitted() -> None:
    draw = np.random.default_rng(0)
    x = np.repeat(draw.uniform(-1, 1, 50), 10)
    problem = gl.Problem.from_arrays(x, x**2 + 0.01 * draw.standard_normal(500), name="repeated")
    assert gl.fit("swiglu", problem, 2).train_rmse < 0.012


def test_neurons_that_cancel_are_reported() -> None:
    """exp needs neurons of large weights; the error is that of the rounding of their sum."""
    fitted = gl.fit("swiglu", "exp(x)", 9)
    assert fitted.status == "floor" and fitted.test_rmse < 1e-12 and "cancel" in fitted.advice


def test_other_gates_are_refused() -> None:
    with pytest.raises(GatelabError, match=r"smooth gates.*varpro"):
        gl.fit("glu", "paper-1d", 3, solver="poles")
    with pytest.raises(GatelabError, match=r"one input"):
        gl.fit("swiglu", "friedman1", 3, solver="poles")


@pytest.mark.parametrize(("unit", "width"), [("silu", 2), ("swiglu", 3), ("swiglu", 5), ("swiglu", 8)])
def test_errors_are_those_of_a_fit_in_115_digits(unit: str, width: int) -> None:
    """Where float64 suffices the optimum is the same; at eight neurons the conditioning leaves a little to gain."""
    rows = Rows(EXACT["1/(1+cos(pi*x)**2)"], gl.unit(unit).factors)
    net = gl.fit(unit, gl.problem("paper-1d", n=4000, sampling="grid"), width).network
    start, end = (rows.train(gates_of(net), steps)[0] for steps in (0, 12))
    t, weights = np.polynomial.legendre.leggauss(96)
    x = torch.from_numpy(t)[:, None]
    with torch.no_grad():
        errors = net(x)[:, 0].numpy() - 1 / (1 + np.cos(np.pi * t) ** 2)
    assert start == pytest.approx(np.sqrt(np.mean(weights / weights.mean() * errors**2)), rel=1e-3, abs=1e-14)
    assert end <= start
    if width < 5:
        assert end > 0.97 * start
