"""The floor compared with theory, closed forms, and singular values of plain matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gatelab.errors import GatelabError
from gatelab.feedforward import activation
from gatelab.linearization import floor, floor_curve
from gatelab.linearization.floors import multiplicity


@pytest.mark.parametrize(
    ("d", "w_scale", "figures"),
    [
        (2, 1.0, {4: 0.2357, 5: 0.0723, 8: 0.0316, 16: 0.01054, 32: 0.0023}),
        (16, 1.0, {17: 1.213, 152: 0.418, 3893: 0.254}),
        (16, 0.25, {17: 0.300, 152: 0.0705, 3893: 0.0259}),
    ],
)
def test_the_figures_of_theory(d, w_scale, figures):
    found = floor_curve("gelu", d, figures, w_scale=w_scale)
    for ours, expected in zip(found, figures.values(), strict=True):
        digits = len(f"{expected:g}".split(".")[1])
        assert abs(ours - expected) <= 0.5000001 * 10**-digits


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["gelu", "relu", "tanh"])
def test_singular_values_of_a_plain_matrix_in_two_dimensions(gate):
    # 1800 rows and inputs: squares of singular values have errors of about 1/sqrt(1800), the floor of less than 8 %.
    draw = torch.Generator().manual_seed(1)
    W, X = torch.randn(2, 1800, 2, generator=draw, dtype=torch.float64)
    Y = activation(gate)(W @ X.T)
    gram = Y.T @ Y / Y.numel()
    energies = torch.linalg.eigvalsh(gram).flip(0)
    tail = (energies.sum() - energies.cumsum(0)).clamp_min(0).sqrt()
    for m in (2, 5, 8, 16):
        assert float(tail[m - 1]) == pytest.approx(floor(gate, 2, m), rel=0.08)


def test_relu_by_hand_in_one_dimension():
    # relu(w x) = w x / 2 + |w| |x| / 2: two features are exact, and each of the two holds a quarter of E[w^2 x^2] = 1.
    assert floor_curve("relu", 1, [0, 1, 2]) == pytest.approx([math.sqrt(0.5), 0.5, 0.0], abs=1e-7)


def test_linear_gates_have_d_singular_values():
    assert sum(multiplicity(6, l) for l in (0, 2, 4)) == math.comb(9, 4)  # polynomials of degree 4 on the sphere
    assert floor("gelu", 16, 152, w_distribution="sphere", x_distribution="sphere") == pytest.approx(7.0e-4, rel=0.01)
    curve = floor_curve("identity", 7, [0, 3, 6, 7], w_scale=2.0, x_scale=0.5)
    assert curve == pytest.approx(np.sqrt([7, 4, 1, 0]), abs=1e-6)


@pytest.mark.parametrize("d", [1, 2, 3, 16, 1200])
def test_energy_is_that_of_a_gaussian_integral(d):
    # E[act(w.x)^2] without features; by drawing lengths |x| and integrating over the normal w.x / |x| exactly for relu.
    assert floor("relu", d, 0) == pytest.approx(math.sqrt(d / 2), rel=1e-9)


def test_scales_only_count_as_a_product_and_more_features_never_hurt():
    assert floor("silu", 5, 9, 0.5, 3.0) == pytest.approx(floor("silu", 5, 9, 1.5, 1.0), rel=1e-6)
    curve = floor_curve("gelu", 3, range(40))
    assert (np.diff(curve) <= 0).all()


def test_within_a_degree_the_squared_floor_falls_linearly():
    squares = floor_curve("gelu", 16, range(17, 153), w_scale=0.25) ** 2
    assert np.allclose(np.diff(squares), np.diff(squares).mean(), rtol=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [{"d": 0, "m": 3}, {"d": 2, "m": -1}, {"d": 2, "m": 3, "w_scale": 0.0}, {"d": 2, "m": 3, "w_distribution": "cube"}],
)
def test_what_cannot_be_asked(wrong):
    with pytest.raises(GatelabError):
        floor("gelu", **wrong)
    with pytest.raises(GatelabError, match="not finite"):
        floor(lambda z: 1 / (z - z), 2, 3)
