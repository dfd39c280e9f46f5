"""Spectra of kernels: ends, bounds, status, density, figure, refusals."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import aslinearoperator

from gatelab.errors import GatelabError
from gatelab.ntk import Kernel, analytic, spectrum
from gatelab.theory.random_matrix import mp_density, mp_edges


def wishart(n, d, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, d))
    return X @ X.T / d


@pytest.mark.parametrize("unit", ["mlp", "glu"])
def test_ends_of_a_kernel_equal_its_full_spectrum(unit):
    X = np.random.default_rng(0).standard_normal((300, 30))
    K = analytic(unit, X, width=500)
    found, full = spectrum(K), spectrum(K, full=True)
    assert full.eigenvalues is not None and len(full.eigenvalues) == 300
    assert found.lambda_max == pytest.approx(full.eigenvalues[-1], rel=1e-9)
    assert found.lambda_min == pytest.approx(full.eigenvalues[0], rel=1e-7)
    assert found.lambda_min_bounds[0] <= full.eigenvalues[0] <= found.lambda_min_bounds[1]
    low, high = found.condition_bounds
    assert low <= full.eigenvalues[-1] / full.eigenvalues[0] <= high
    assert high / low < 1 + 1e-6
    assert found.status == "resolved" and found.label == K.label


def test_duplicate_rows_are_reported():
    X = np.random.default_rng(0).standard_normal((40, 10))
    X[1] = X[0]
    with pytest.warns(UserWarning, match="zero in float64"):
        found = spectrum(analytic("mlp", X, width=100))
    assert found.status == "unresolved" and found.condition == math.inf
    assert found.lambda_min_bounds[0] <= 0 <= found.lambda_min_bounds[1]
    assert 1e10 < found.condition_bounds[0] < math.inf


@pytest.mark.parametrize(
    ("diagonal", "status", "warning"),
    [
        ([0.0, 1.0, 2.0], "unresolved", "zero rows"),
        ([0.0, 0.0, 0.0], "unresolved", "zero in float64"),
        ([-2.0, 1.0, 5.0], "indefinite", "not positive semidefinite"),
        ([1e-90, 2e-90, 8e-90], "resolved", None),
    ],
)
def test_diagonal_matrices(diagonal, status, warning):
    with pytest.warns(UserWarning, match=warning) if warning else nullcontext():
        found = spectrum(np.diag(diagonal))
    assert found.status == status
    assert (found.lambda_min, found.lambda_max) == pytest.approx((diagonal[0], diagonal[-1]))
    assert found.condition == (math.inf if warning else pytest.approx(8))


def test_a_kernels_error_can_take_lambda_min_away():
    K = torch.from_numpy(wishart(20, 400) + np.eye(20))
    assert spectrum(Kernel(K, "exact")).status == "resolved"
    rough = spectrum(Kernel(K, "rough", error=1e-4))
    off = 1e-4 * float(K.trace())
    exact = np.linalg.eigvalsh(K)
    assert rough.lambda_min_bounds == pytest.approx((exact[0] - off, exact[0] + off), rel=1e-6)
    assert "own error" in rough.notes[0]
    with pytest.warns(UserWarning, match="zero in float64"):
        assert spectrum(Kernel(K, "useless", error=1.0)).condition_bounds[1] == math.inf


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.ones((2, 3)), r"shape \(2, 3\)"),
        (np.ones(4), "n by n"),
        (np.zeros((0, 0)), "n >= 1"),
        ([[1.0, 0.5], [0.4, 1.0]], "not symmetric"),
        ([[1.0, 0.0], [0.0, np.nan]], r"entry \(1, 1\) of the matrix is nan"),
        (np.eye(2) * 1j, "complex"),
        ("kernel", "matrix of real numbers"),
        (1e200 * np.eye(2), "scale it"),
        (np.ma.masked_array(np.eye(2), mask=np.eye(2)), "the matrix has 2 masked values"),
    ],
)
def test_what_is_no_kernel_is_refused(matrix, words):
    with pytest.raises(GatelabError, match=words):
        spectrum(matrix)


def test_asymmetry_of_rounding_is_averaged():
    K = wishart(20, 50)
    K[0, 1] *= 1 + 1e-14
    assert spectrum(K).status == "resolved"
    assert spectrum(K.astype(np.float32)).status == "resolved"


def test_operators():
    K = wishart(80, 400)
    found, exact = spectrum(aslinearoperator(K)), np.linalg.eigvalsh(K)
    assert found.condition == pytest.approx(exact[-1] / exact[0], rel=1e-6)
    with pytest.raises(GatelabError, match="not symmetric"):
        spectrum(aslinearoperator(np.triu(K)))
    assert spectrum(aslinearoperator(K), full=True).eigenvalues == pytest.approx(exact)


def test_a_large_operator_says_what_it_does_not_know():
    K = wishart(500, 400)
    with pytest.warns(UserWarning, match="products alone"):
        found = spectrum(aslinearoperator(K))
    top = np.linalg.eigvalsh(K)[-1]
    assert found.lambda_max == pytest.approx(top, rel=1e-6)
    assert found.lambda_max_bounds[0] <= top * (1 + 1e-12) and top <= found.lambda_max_bounds[1]
    assert found.lambda_min_bounds[0] <= 0 <= found.lambda_min_bounds[1]


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("log", [True, False])
def test_density_integrates_to_one(full, log):
    found = spectrum(wishart(200, 800), full=full)
    x, density = found.density(np.int64(300), log=log)
    assert np.trapezoid(density, np.log10(x) if log else x) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("full", [True, False])
def test_density_of_a_wishart_matrix_is_marchenko_and_pasturs(full):
    """800 rows of 1600: away from the ends, where smoothing tells, within 0.07 of a density of up to 0.7."""
    found = spectrum(wishart(800, 1600), full=full)
    low, high = mp_edges(0.5)
    x = np.linspace(low + 0.3, high - 0.3, 30)
    at, density = found.density(x)
    assert np.array_equal(at, x)
    assert np.abs(density - mp_density(x, 0.5)).max() < 0.07


def test_the_figure(tmp_path):
    found = spectrum(wishart(50, 30) + np.eye(50))
    found.plot(tmp_path / "spectrum.svg", log=True)
    assert (tmp_path / "spectrum.svg").read_text().startswith("<?xml")
    with pytest.raises(GatelabError, match="positive points"):
        found.density([-1.0, 1.0], log=True)


def test_a_kernel_is_an_array_where_one_is_wanted():
    matrix = torch.eye(3, dtype=torch.float64)
    kernel = Kernel(matrix, "mlp", width=7)
    assert len(kernel) == 3
    assert np.array_equal(np.asarray(kernel), np.eye(3))
    copied = np.array(kernel, copy=True)
    copied[0, 0] = 5
    assert matrix[0, 0] == 1
    assert np.asarray(kernel, dtype=np.float32).dtype == np.float32
