"""Extreme eigenvalues and the bounds that are claimed for them."""

import math

import numpy as np
import pytest
import torch

from gatelab.linalg import eigen
from gatelab.linalg.eigen import both_ends, extremes, krylov, operator_extremes, quadrature, start_vector


def with_spectrum(values, seed=0):
    """A dense symmetric matrix with these eigenvalues, up to rounding."""
    values = np.asarray(values, float)
    Q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))
    K = (Q * values) @ Q.T
    return torch.from_numpy((K + K.T) / 2)


SPECTRA = {
    "one": [3.0],
    "identity": np.ones(40),
    "even": np.linspace(1, 9, 150),
    "spiked": np.r_[np.linspace(1, 2, 150), 500],
    "tight cluster below": np.r_[1 + 1e-9 * np.arange(5), np.linspace(2, 3, 100)],
    "gap of 1e-6": np.r_[1, 1 + 1e-6, np.linspace(2, 3000, 100)],
    "ill conditioned": np.geomspace(1e-9, 1, 120),
    "indefinite": np.r_[-3, -1, np.linspace(0.1, 5, 100)],
    "barely indefinite": np.r_[-1e-6, np.linspace(0.1, 5, 100)],
}


@pytest.mark.parametrize("name", SPECTRA)
def test_bounds_hold_the_truth_and_are_tight(name):
    values = np.sort(SPECTRA[name])
    ends = extremes(with_spectrum(values))
    off = 4 * len(values) * 2.0**-52 * np.abs(values).max()  # what building the matrix may have moved
    for found, true in ((ends.lambda_max, values[-1]), (ends.lambda_min, values[0])):
        assert found.lower - off <= true <= found.upper + off
        assert found.lower <= found.value <= found.upper
        assert found.upper - found.lower <= 1e-6 * abs(true) + 1e-12 * np.abs(values).max()
        assert found.value == pytest.approx(true, rel=5e-7, abs=10 * off)


def test_singular_matrices_are_not_told_from_zero():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((80, 20))
    zero = extremes(torch.zeros(5, 5, dtype=torch.float64))
    assert (zero.lambda_max.value, zero.lambda_min.value) == (0, 0)
    for K in (X @ X.T, np.outer(X[:, 0], X[:, 0]), np.diag(np.r_[0.0, np.ones(9)])):
        ends = extremes(torch.from_numpy(K))
        assert ends.lambda_min.lower <= 0 <= ends.lambda_min.upper
        assert ends.lambda_min.upper - ends.lambda_min.lower < 1e-10 * ends.lambda_max.value
        assert ends.lambda_max.value == pytest.approx(np.linalg.eigvalsh(K)[-1], rel=1e-9)


def test_beyond_precision_the_interval_is_honest():
    """Hilbert's matrix of order 14: lambda_min is near 1e-19, far below rounding."""
    i = np.arange(14)
    ends = extremes(torch.from_numpy(1.0 / (i[:, None] + i + 1)))
    assert ends.lambda_min.lower <= 2.5e-19 <= ends.lambda_min.upper
    assert ends.lambda_min.lower < 0


def test_operators_small_and_large():
    for n in (100, 600):
        values = np.linspace(1, 9, n)
        K = with_spectrum(values)
        ends = operator_extremes(lambda v, K=K: K @ v, n)
        assert ends.proved == (n == 100)
        assert ends.lambda_max.lower <= 9 * (1 + 1e-12) and ends.lambda_max.upper >= 9 * (1 - 1e-12)
        assert ends.lambda_min.lower <= 1 <= ends.lambda_min.upper + 1e-12
        assert ends.lambda_max.upper < 9.2
        assert ends.lambda_min.lower > 0.8


def test_lanczos_against_dense_algebra():
    K = with_spectrum(np.linspace(-1, 4, 60))
    space = krylov(lambda v: K @ v, start_vector(60, 0), 20)
    Q = space.basis
    T = torch.from_numpy(np.diag(space.alpha) + np.diag(space.beta[:-1], 1) + np.diag(space.beta[:-1], -1))
    assert (Q @ Q.mT - torch.eye(20)).abs().max() < 1e-13
    assert (Q @ K @ Q.mT - T).abs().max() < 1e-13
    assert both_ends(lambda v: K @ v, start_vector(60, 1), steps=500)[0].value == pytest.approx(4, abs=1e-7)
    top, bottom = both_ends(lambda v: K @ v + 2 * v, start_vector(60, 1), flat=100)
    assert (top.value, bottom.value) == pytest.approx((6, 1), abs=1e-6)
    invariant = krylov(lambda v: 3 * v, start_vector(50, 0), 20)
    assert invariant.closed and len(invariant.alpha) == 1
    nodes, weights = quadrature(lambda v: K @ v, 60, 64, 30, 0, "cpu")
    assert weights.sum() == pytest.approx(1)
    assert weights @ nodes == pytest.approx(1.5, abs=5 * 1.5 * math.sqrt(2 / (60 * 64)))  # five standard errors


def test_products_and_solves_equal_the_plain_ones():
    K = with_spectrum(np.geomspace(1, 1e3, 120))
    v = start_vector(120, 3)
    factor = eigen.cholesky(K, 1, -0.5)
    assert factor is not None and factor.mT.is_contiguous()  # so that BLAS's own solve is taken
    shifted = K - 0.5 * torch.eye(120, dtype=torch.float64)
    torch.testing.assert_close(eigen.product(K)(v), K @ v, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(eigen.product(K[:, :])(v), eigen.product(K.mT)(v), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(shifted @ eigen.solve_factored(factor, v), v, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        eigen.solve_factored(factor.contiguous(), v), eigen.solve_factored(factor, v), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("lowest", [(1.0, 1.0001), (1.0, 1.5), (1e-6, 1.0), (-1e-3, 1.0)])
def test_spikes_and_a_bulk_need_a_shift_near_the_lower_end(lowest):
    """One eigenvalue far above, so that products alone are not waited for; the first shift may be too high, or not."""
    values = np.concatenate([lowest, np.linspace(1.6, 80, 397), [2e6]])
    found = extremes(with_spectrum(values))
    assert found.lambda_min.lower <= lowest[0] <= found.lambda_min.upper
    assert found.lambda_min.value == pytest.approx(lowest[0], abs=1e-6)
