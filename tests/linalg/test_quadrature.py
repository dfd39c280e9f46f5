"""Quadrature rules and recurrences against those of numpy and scipy, and on arrays and tensors alike."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
import torch
from scipy import special, stats

from gatelab.linalg import quadrature

LEGENDRE = np.polynomial.legendre.leggauss(12)


def test_panels_hold_legendres_rule():
    z, lengths = quadrature.panel_rule(np.array([-1.0, 1.0]), 12)
    theirs = special.roots_legendre(12)
    np.testing.assert_allclose(z, theirs[0], atol=1e-15)
    np.testing.assert_allclose(lengths, theirs[1], rtol=1e-12)
    edges = np.array([-2.0, 0.0, 0.5, 3.0])
    z, lengths = quadrature.panel_rule(edges, 12)
    assert z.shape == lengths.shape == (36,) and (np.diff(z) > 0).all()
    assert lengths @ np.abs(z) ** 3 == pytest.approx((16 + 81) / 4, rel=1e-14)
    assert lengths.reshape(3, 12).sum(1) == pytest.approx(np.diff(edges))


def test_hermite_functions_are_scipys_of_unit_norm():
    z = np.linspace(-6, 6, 41)
    first = np.exp(-z * z / 4)
    ours = list(quadrature.hermite_functions(z, first, 30))
    for k, h in enumerate(ours):
        theirs = special.eval_hermitenorm(k, z) / math.sqrt(math.factorial(k)) * first
        np.testing.assert_allclose(h, theirs, rtol=1e-10, atol=1e-12)
    tensors = quadrature.hermite_functions(torch.from_numpy(z), torch.from_numpy(first), 30)
    for h, t in zip(ours, tensors, strict=True):
        np.testing.assert_allclose(h, t.numpy(), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("d", [2, 3, 4, 9, 100])
def test_gegenbauer_polynomials_are_scipys_over_their_value_at_one(d):
    t, a = np.linspace(-1, 1, 31), (d - 2) / 2
    for k, P in enumerate(islice(quadrature.gegenbauer_polynomials(t, d), 12)):
        if a:
            theirs = special.eval_gegenbauer(k, a, t) / special.eval_gegenbauer(k, a, 1.0)
        else:
            theirs = special.eval_chebyt(k, t)
        np.testing.assert_allclose(P, theirs, atol=1e-12)


@pytest.mark.parametrize("d", [3, 5, 20])
def test_gegenbauers_rule_is_scipys(d):
    t, masses = quadrature.gegenbauer_rule(d, 15)
    theirs, weights = special.roots_gegenbauer(15, (d - 2) / 2)
    np.testing.assert_allclose(t, theirs, atol=1e-13)
    np.testing.assert_allclose(masses, weights / weights.sum(), rtol=1e-9)


@pytest.mark.parametrize("d", [1, 2, 7, 300])
def test_the_rule_of_lengths_has_the_moments_of_chi(d):
    r, masses = quadrature.chi_rule(d, 24)
    for k in range(6):
        assert masses @ r**k == pytest.approx(stats.chi(d).moment(k), rel=1e-9)


@pytest.mark.parametrize("d", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("steepest", [1.0, 64.0])
def test_the_rule_of_cosines_has_the_moments_of_a_random_direction(d, steepest):
    t, masses = quadrature.cosine_rule(d, steepest)
    assert 2 * masses.sum() == pytest.approx(1) and ((t > 0) & (t <= 1)).all()
    assert 2 * masses @ t**2 == pytest.approx(1 / d, rel=1e-11)
    assert 2 * masses @ t**4 == pytest.approx(3 / (d * (d + 2)), rel=1e-11)
