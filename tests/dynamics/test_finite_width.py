"""Real gradient descent compared with the closed form, and the effect of finite width."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gatelab as gl
from gatelab.dynamics import expected_loss, finite_width_loss, stable_step, train
from gatelab.dynamics.expected import own_kernel
from gatelab.dynamics.networks import draw, neuron_partials
from gatelab.errors import GatelabError
from gatelab.ntk import analytic


@pytest.mark.parametrize("name", ["mlp", "glu", "gqu", "swiglu"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_kernel_of_a_network_is_its_jacobian_squared(name: str, outputs: int) -> None:
    unit = gl.unit(name)
    X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    maps, V = draw(unit, 7, 4, outputs, 3, 4)
    K = own_kernel(*neuron_partials(unit, maps @ X.T), V, X)
    net = unit.network(7, 4, outputs, seed=3)
    learned = [p for n, p in net.named_parameters() if n[0].isupper()]
    rows = []
    for value in net(X).T.reshape(-1):
        grads = torch.autograd.grad(value, learned, retain_graph=True)
        rows.append(torch.cat([g.reshape(-1) for g in grads]))
    J = torch.stack(rows)
    torch.testing.assert_close(K, J @ J.T, rtol=1e-11, atol=1e-11)


def setting(n: int, d: int, width: int):
    generator = np.random.default_rng(11)
    X, y = generator.standard_normal((n, d)), generator.standard_normal(n)
    K = analytic(["mlp", "glu"], X, width)
    return X, y, K, analytic(["mlp", "glu"], X, kind="nngp"), 0.8 / stable_step(K[0]).lambda_max


def test_given_outputs_and_kernels_real_networks_are_predicted_one_by_one() -> None:
    X, y, K, _, lr = setting(20, 10, 2000)
    for name, kernel in zip(("mlp", "glu"), K, strict=True):
        run = train(name, X, y, 2000, lr, 30, seeds=[5, 9])
        own = finite_width_loss(name, X, y, 2000, lr, 30, seeds=[5, 9], given_start=True)
        np.testing.assert_allclose(own.each, run.losses, rtol=0.01)
        expected = expected_loss(kernel, y, lr=lr, steps=30, start=run.start).loss
        np.testing.assert_allclose(expected, run.mean, rtol=0.15)
    with pytest.raises(GatelabError, match="given as a class"):
        finite_width_loss(torch.nn.Module, X, y, 4, 0.1)


def test_the_finite_width_mean_is_that_of_many_networks() -> None:
    """z-scores below 4 in ten steps, false alarms below 1e-3; later, as the kernel moves, nearer than the limit."""
    X, y, K, N, lr = setting(20, 10, 100)
    run = train("glu", X, y, 100, lr, 40, seeds=range(1000, 1300))
    own = finite_width_loss("glu", X, y, 100, lr, 40, seeds=200)
    error = np.sqrt(run.losses.var(0, ddof=1) / 300 + own.error**2)
    assert (np.abs(own.loss - run.mean) / error)[:10].max() < 4
    limit = expected_loss(K[1], y, lr=lr, steps=40, nngp=N[1]).loss
    assert own.loss[-1] > 1.2 * limit[-1]
    assert abs(own.loss[-1] - run.mean[-1]) < 0.5 * abs(limit[-1] - run.mean[-1])
