"""Piecewise Chebyshev derivatives compared with nested automatic differentiation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gatelab.errors import GatelabError
from gatelab.theory.derivatives import PiecewiseChebyshev, interpolate


def by_autograd(f, x, order):
    t = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    y = f(t)
    for _ in range(order):
        (y,) = torch.autograd.grad(y.sum(), t, create_graph=True)
    return y.detach().numpy()


def paper(x):
    return 1 / (1 + torch.cos(torch.pi * x) ** 2)


CASES = {
    "paper": (paper, (-1.0, 1.0)),
    "exp-sin": (lambda x: torch.exp(torch.sin(3 * x)), (0.0, 3.0)),
    "runge9": (lambda x: 1 / (1 + 9 * x**2), (-1.0, 1.0)),
    "chirp": (lambda x: torch.sin(4 * (x - 1) ** 2), (-1.0, 1.0)),
    "atan": (torch.atan, (-5.0, 2.0)),
    "offset": (lambda x: 3 + torch.sin(x), (10.0, 12.0)),
}


def from_torch(f):
    return lambda x: f(torch.from_numpy(x)).numpy()


@pytest.mark.parametrize("order", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("case", CASES)
def test_against_autograd(case, order):
    f, (a, b) = CASES[case]
    x = np.concatenate([np.linspace(a, b, 1001), np.random.default_rng(0).uniform(a, b, 1000)])
    ours, twin = interpolate(from_torch(f), (a, b)).derivative(order)(x), by_autograd(f, x, order)
    # Rounding of f itself, magnified by (2/h)^4, is what remains; it weighs most where f is large and flat.
    tolerance = 1e-5 if case != "offset" else 1e-3
    assert np.abs(ours - twin).max() <= tolerance * np.abs(twin).max()


@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("case", ["paper", "exp-sin", "runge9", "chirp"])
def test_norms_against_a_fine_midpoint_rule(case, m):
    f, (a, b) = CASES[case]
    n, sigma = 400_000, 2 / (2 * m + 1)
    x = a + (b - a) * (np.arange(n) + 0.5) / n
    brute = ((np.abs(by_autograd(f, x, m)) ** sigma).mean() * (b - a)) ** (1 / sigma)
    assert interpolate(from_torch(f), (a, b)).norm(m, sigma) == pytest.approx(brute, rel=1e-4)


@pytest.mark.parametrize("zero", [0.0, 0.3, 1 / 3, 0.99])
def test_a_cusp_costs_no_digits(zero):
    # f'' = x - zero, and the integral of |x - zero|^sigma is known.
    sigma = 0.2
    exact = (((1 - zero) ** (1 + sigma) + (1 + zero) ** (1 + sigma)) / (1 + sigma)) ** (1 / sigma)
    f = interpolate(lambda x: x**3 / 6 - zero * x**2 / 2, (-1, 1))
    assert f.norm(2, sigma) == pytest.approx(exact, rel=1e-6)


def test_norms_of_zero_and_near_overflow():
    assert interpolate(lambda x: x**2, (-1, 1)).norm(3, 2 / 7) == 0.0
    f = interpolate(np.sin, (0, 3))
    big = interpolate(lambda x: 1e200 * np.sin(x), (0, 3))
    assert big.norm(2, 2 / 5) == pytest.approx(1e200 * f.norm(2, 2 / 5), rel=1e-6)


def test_values_have_the_shape_of_x_and_reach_both_ends():
    f = interpolate(np.exp, (0.1, 0.7), panels=7)
    assert isinstance(f, PiecewiseChebyshev)
    assert (f.panels, f.degree) == (7, 10)
    assert f(0.1).shape == ()
    x = np.linspace(0.1, 0.7, 12).reshape(3, 4)
    np.testing.assert_allclose(f(x), np.exp(x), rtol=1e-14)
    assert f(np.array([])).shape == (0,)


def test_the_tail_is_large_for_rough_functions():
    assert interpolate(np.sin, (0, 3)).tail < 1e-14
    assert interpolate(lambda x: np.abs(x - 0.1), (-1, 1)).tail > 1e-6
    assert interpolate(np.zeros_like, (0, 1)).tail == 0.0


def test_halved_panels_follow_what_is_steep_and_nothing_else():
    steep = interpolate(lambda x: np.tanh(1000 * x), (-1, 1), halvings=10)
    x = np.linspace(-0.003, 0.003, 2001)
    exact = by_autograd(lambda t: torch.tanh(1000 * t), x, 2)
    assert np.abs(steep.derivative(2)(x) - exact).max() < 1e-5 * np.abs(exact).max()
    assert 64 < steep.panels < 120
    assert interpolate(lambda x: np.sin(x).astype(np.float32), (0, 3), halvings=10).panels == 64


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: interpolate(np.sin, (1, 0)), "give two finite numbers"),
        (lambda: interpolate(lambda x: 1.0, (0, 1)), r"the shape \(\)"),
        (lambda: interpolate(lambda x: np.where(x < 0.5, np.nan, x), (0, 1)), "not finite at 352 of 704 .* x = 7.9"),
        (lambda: interpolate(np.sin, (0, 1)).derivative(10), "order is 10; give 0 to 9"),
        (lambda: interpolate(np.sin, (0, 1))(1.1), r"leaves the interval \[0, 1\]"),
        (lambda: interpolate(np.sin, (0, 1)).norm(1, 0.0), "sigma is 0"),
    ],
)
def test_refuses(make, says):
    with pytest.raises(GatelabError, match=says):
        make()
