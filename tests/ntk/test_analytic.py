"""Analytic kernels: against Monte Carlo over initialisations, theory.md's formulas, and themselves tiled otherwise."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch.func import functional_call, jacrev, vmap

import gatelab as gl
from gatelab import ntk
from gatelab.errors import GatelabError
from gatelab.feedforward import Unit, factor_names, unit
from gatelab.ntk.kernels import Tiling


def samples(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def empirical(u, x, width, many):
    """J J^T and outputs of many networks, their biases (zero at the start) left out, by automatic differentiation."""
    networks = [u.network(width, x.shape[1], 1, seed=seed, init="lecun") for seed in range(many)]
    names = ("G", *factor_names(u.factors), "D")
    weights = {name: torch.stack([getattr(net, name).detach() for net in networks]) for name in names}

    def outputs(own):
        return functional_call(networks[0], own, (x,))[:, 0]

    parts = vmap(jacrev(outputs))(weights)
    J = torch.cat([parts[name].flatten(2) for name in names], 2)
    return J @ J.mT, vmap(outputs)(weights)


@pytest.mark.parametrize(
    ("gate", "factors"), [("relu", 0), ("relu", 1), ("relu", 2), ("gelu", 1), ("silu", 0), ("silu", 2)]
)
def test_kernels_are_the_mean_over_initialisations(gate, factors):
    """At any width: 72 comparisons at 5 standard errors of 600 networks, false alarms 4e-5 were the means normal."""
    u, x, width, many = Unit(gate, factors), samples(3, 4, seed=3), 16, 600
    kernels, outputs = empirical(u, x, width, many)
    first, second = torch.triu_indices(3, 3).unbind()
    upper = first, second
    for kind, each in (("ntk", kernels[:, first, second]), ("nngp", outputs[:, first] * outputs[:, second])):
        K = ntk.analytic(u, x, width, kind=kind)
        z = (each.mean(0) - K.matrix[upper]) / (each.std(0) / math.sqrt(many))
        assert z.abs().max() < 5, (kind, z)


def test_relu_kernels_are_arc_cosine_kernels():
    """theory.md's formulas in plain numpy."""
    x, m, d = samples(20, 7).numpy(), 30, 7
    G, r = x @ x.T, np.linalg.norm(x, axis=1)
    theta = np.arccos(np.clip(G / np.outer(r, r), -1, 1))
    np.fill_diagonal(theta, 0.0)
    k1 = np.outer(r, r) / (2 * np.pi * d) * (np.sin(theta) + (np.pi - theta) * np.cos(theta))
    k0 = (np.pi - theta) / (2 * np.pi)
    for q, kernel in enumerate(ntk.analytic(["mlp", "glu", "gqu"], x, m)):
        np.testing.assert_allclose(kernel.numpy(), (G / d) ** q * ((m + q * d) * k1 + G * k0), rtol=1e-12, atol=1e-13)


def test_the_limit_is_the_nngp_kernel_and_what_the_kernel_over_width_tends_to():
    x = samples(8, 5)
    for name in ("glu", "swiglu"):
        limit = ntk.analytic(name, x)
        assert torch.equal(limit.matrix, ntk.analytic(name, x, 3, kind="nngp").matrix)
        near = ntk.analytic(name, x, 10**9).matrix / 10**9
        torch.testing.assert_close(near, limit.matrix, rtol=1e-6, atol=1e-8)
        assert limit.width is None
        assert limit.label == name


@pytest.mark.parametrize("width", [None, 40])
def test_tiles_do_not_show(width):
    x = samples(61, 9)
    x[7], x[50] = x[3], -x[3]
    x[20] = 0.0
    units = [unit(name) for name in ("mlp", "gqu", "geglu", "swiglu", "sigmoid-glu", "bilinear", "relu3")]
    whole = Tiling(units, x, width).kernels(100)
    for tile in (7, 60):
        for (K, _), (T, _), u in zip(whole, Tiling(units, x, width).kernels(tile), units, strict=True):
            scale = K.diagonal().sqrt()
            bound = (2e-12 if u.gate.name in ("silu", "sigmoid") else 1e-14) * torch.outer(scale, scale)
            assert ((K - T).abs() <= bound).all(), (u.name, tile)
            assert torch.equal(T, T.T)


def test_a_list_is_its_members():
    x = samples(30, 4)
    kept = x.clone()
    names = ["mlp", "glu", "swiglu", "mlp"]
    for name, kernel in zip(names, ntk.analytic(names, x, 16), strict=True):
        alone = ntk.analytic(name, x, 16)
        assert torch.equal(kernel.matrix, alone.matrix)
        assert (kernel.label, kernel.width, kernel.error) == (name, 16, alone.error)
    assert isinstance(ntk.analytic(("mlp",), x), tuple)
    assert torch.equal(x, kept)


@pytest.mark.parametrize("name", [u.name for u in gl.units()])
def test_kernels_of_every_unit_are_symmetric_and_positive(name):
    kernel = ntk.analytic(name, samples(40, 6), 20)
    assert kernel.matrix.dtype == torch.float64
    assert torch.equal(kernel.matrix, kernel.matrix.T)
    values = torch.linalg.eigvalsh(kernel.matrix)
    assert values[0] >= -1e-12 * values[-1]
    assert kernel.error < 1e-11


@pytest.mark.parametrize("name", ["mlp", "glu", "relu2", "geglu", "swiglu", "sigmoid-glu"])
def test_duplicate_rows_stay_duplicates(name):
    """Where rounding makes the cosine 1 - 1e-16, the angle would be 1e-8 and the kernel of relu off by as much."""
    x = samples(12, 301)
    x[5], x[9], x[10] = x[2], x[2], 2 * x[2]
    K = ntk.analytic(name, x, 64).matrix
    for i in (5, 9):
        torch.testing.assert_close(K[i], K[2], rtol=1e-13, atol=1e-13 * float(K[2, 2]))
    pair = ntk.analytic(name, x[[2, 10]], 64).matrix
    torch.testing.assert_close(K[2, 10], pair[0, 1], rtol=1e-13, atol=0)


def test_zero_rows():
    """act(0) decides: nothing for relu, act(0) E[act] for sigmoid; never NaN."""
    x = samples(4, 3)
    x[1] = 0.0
    assert not ntk.analytic("mlp", x, 10).matrix[1].any()
    u = Unit("sigmoid", 0)
    K = ntk.analytic(u, x, 10).matrix
    torch.testing.assert_close(K[1], torch.full((4,), 10 * 0.25, dtype=torch.float64), rtol=1e-12, atol=0)
    assert not ntk.analytic("sigmoid-glu", x, 10).matrix[1].any()
    for name in (u.name for u in gl.units()):
        K = ntk.analytic(name, torch.zeros(2, 3), 10).matrix
        assert torch.isfinite(K).all()
        assert not K.any()


def test_rows_of_every_size():
    """Entries are homogeneous in relu's samples: no square may overflow or vanish on the way."""
    x = samples(4, 3)
    K = ntk.analytic("mlp", x, 5).matrix
    for power in (-480, 480):
        torch.testing.assert_close(ntk.analytic("mlp", x * 2.0**power, 5).matrix, K * 2.0 ** (2 * power))
    with pytest.raises(GatelabError, match="overflow"):
        ntk.analytic("mlp", x * 1e200, 5)


def test_inputs_of_other_types_are_computed_in_float64():
    x = torch.tensor([[1, 2], [3, -1], [0, 1]])
    want = ntk.analytic("glu", x.double(), 8).matrix
    for given in (x, x.numpy(), x.tolist(), x.half(), x.bfloat16(), x.float().requires_grad_()):
        K = ntk.analytic("glu", given, 8).matrix
        assert K.dtype == torch.float64
        assert torch.equal(K, want)


@pytest.mark.parametrize(
    ("X", "says"),
    [
        (np.ones(3), r"shape \(3,\).*reshape"),
        (np.ones((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (np.ones((0, 3)), r"shape \(0, 3\)"),
        (np.ones((3, 0)), r"shape \(3, 0\)"),
        (np.array([[1.0], [np.nan], [np.inf]]), "X holds 1 NaN and 1 infinite values, the first in row 1"),
        (torch.tensor([[1.0], [math.nan], [math.inf]]), "2 rows of X hold NaN or infinite values"),
        (np.ma.masked_array(np.ones((2, 2)), mask=np.eye(2)), "X has 2 masked values"),
        (torch.ones(2, 2, dtype=torch.complex64), "real"),
    ],
)
def test_samples_that_cannot_be_used_are_refused(X, says):
    with pytest.raises(GatelabError, match=says):
        ntk.analytic("glu", X, 8)


@pytest.mark.parametrize(
    ("u", "options", "message"),
    [
        (torch.nn.Identity, {}, "empirical"),
        (lambda z, v: torch.sin(z + v), {}, r"2 affine maps.*empirical"),
        ("glu", {"width": 0}, "whole number of neurons"),
        ("glu", {"kind": "nerve"}, "'ntk' or 'nngp'"),
        ([], {}, "empty"),
        ("gllu", {}, "no unit is called"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(u, options, message):
    with pytest.raises(GatelabError, match=message):
        ntk.analytic(u, samples(3, 2), **options)


def test_a_users_gate_of_one_argument_has_a_kernel():
    """E[sin u sin v] = exp(-(s^2 + t^2) / 2) sinh(c)."""
    x = samples(10, 4)
    S = x @ x.T / 4
    s2 = S.diagonal()
    want = torch.exp(-(s2[:, None] + s2) / 2) * torch.sinh(S)
    for u in (Unit(torch.sin, 0), lambda z: torch.sin(z)):
        kernel = ntk.analytic(u, x)
        torch.testing.assert_close(kernel.matrix, want, rtol=0, atol=2e-12)
        assert 0 < kernel.error < 1e-11


def test_a_gate_whose_series_falls_short_warns_and_says_by_how_much():
    x = samples(6, 3)
    x[1] = x[0] + 0.01 * x[2]
    user = Unit(lambda z: torch.relu(z), 1, name="user")
    with pytest.warns(UserWarning, match=r"'user' is off by up to .*e-0"):
        kernel = ntk.analytic(user, x, 8)
    exact = ntk.analytic("glu", x, 8).matrix
    scale = exact.diagonal().sqrt()
    off = ((kernel.matrix - exact).abs() / torch.outer(scale, scale)).max()
    assert 1e-12 < off <= kernel.error
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ntk.analytic(user, samples(6, 300), 8)


def test_progress_counts_the_tiles():
    seen = []
    x = samples(30, 2)
    Tiling([unit("mlp")], x, 3).kernels(10, lambda done, total: seen.append((done, total)))
    assert seen == [(k, 6) for k in range(1, 7)]
