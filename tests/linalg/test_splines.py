"""The banded least squares against scipy and against dense algebra."""

import numpy as np
import pytest
from numpy.polynomial import legendre
from scipy.interpolate import BSpline, make_lsq_spline

from gatelab.linalg import splines

SPACES = [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (3, 4), (4, 2)]


def _data(n=600, seed=0):
    generator = np.random.default_rng(seed)
    x = np.sort(generator.uniform(-2, 5, n))
    return x, np.exp(np.sin(x)) + 0.1 * generator.standard_normal(n)


def _breaks(cells=9, seed=1):
    inner = np.sort(np.random.default_rng(seed).uniform(-1.8, 4.8, cells - 1))
    return np.concatenate(([-2.0], inner, [5.0]))


def _knots(breaks, degree, multiplicity):
    ends = [breaks[0]] * (degree + 1), [breaks[-1]] * (degree + 1)
    return np.concatenate((ends[0], np.repeat(breaks[1:-1], multiplicity), ends[1]))


def _dense_design(x, breaks, degree, multiplicity):
    return BSpline.design_matrix(x, _knots(breaks, degree, multiplicity), degree).toarray()


@pytest.mark.parametrize(("degree", "multiplicity"), [s for s in SPACES if s[1] <= s[0]])
def test_solve_is_scipys_least_squares_spline(degree, multiplicity):
    x, y = _data()
    breaks = _breaks()
    s = splines.space(breaks, degree, multiplicity)
    c = splines.solve(splines.cell_data(x, y, breaks, degree), s)
    expected = make_lsq_spline(x, y, _knots(breaks, degree, multiplicity), degree).c
    np.testing.assert_allclose(c, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("degree", "multiplicity"), SPACES)
def test_cells_and_residual_match_the_dense_design(degree, multiplicity):
    x, y = _data()
    breaks = _breaks()
    data, s = splines.cell_data(x, y, breaks, degree), splines.space(breaks, degree, multiplicity)
    c = np.random.default_rng(3).standard_normal(s.dim)
    expected = y - _dense_design(x, breaks, degree, multiplicity) @ c
    np.testing.assert_allclose(data.residual(s.to_cells(c)), expected, atol=1e-12)


@pytest.mark.parametrize(("degree", "multiplicity"), SPACES)
def test_penalty_and_constraints_match_dense_algebra(degree, multiplicity):
    x, y = _data()
    breaks = _breaks()
    data, s = splines.cell_data(x, y, breaks, degree), splines.space(breaks, degree, multiplicity)
    generator = np.random.default_rng(4)
    r = degree - multiplicity + 1
    h = np.diff(breaks)
    rows, weights = s.jump_rows(r), generator.uniform(0.1, 2, s.cells - 1) * np.minimum(h[1:], h[:-1]) ** (2 * r)
    constraints = generator.standard_normal((2, s.dim))
    found = splines.solve(data, s, (rows, weights), constraints)

    design = _dense_design(x, breaks, degree, multiplicity)
    jumps = np.zeros((s.cells - 1, s.dim))
    for j in range(s.cells - 1):
        jumps[j, j * multiplicity : j * multiplicity + rows.shape[1]] = rows[j]
    gram = design.T @ design + jumps.T @ (weights[:, None] * jumps)
    kkt = np.block([[gram, constraints.T], [constraints, np.zeros((2, 2))]])
    expected = np.linalg.solve(kkt, np.concatenate((design.T @ y, [0, 0])))[: s.dim]
    np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize(("degree", "multiplicity"), SPACES)
@pytest.mark.parametrize("r", [0, 1, 2])
def test_jumps_are_one_sided_differences(degree, multiplicity, r):
    breaks = _breaks()
    s = splines.space(breaks, degree, multiplicity)
    c = np.random.default_rng(5).standard_normal(s.dim)
    z = s.to_cells(c)
    if r > degree:
        return
    rows = s.jump_rows(r)
    by_rows = np.array([rows[j] @ c[j * multiplicity :][: rows.shape[1]] for j in range(s.cells - 1)])
    np.testing.assert_allclose(by_rows, splines.jumps(z, breaks, r), atol=1e-9)
    if r <= degree - multiplicity:
        scale = (2 / np.diff(breaks).min()) ** r
        np.testing.assert_allclose(by_rows, 0, atol=1e-10 * scale)


def test_derivatives_at_a_point_are_those_of_the_continued_polynomials():
    breaks, degree = _breaks(), 3
    z = np.random.default_rng(6).standard_normal((len(breaks) - 1, degree + 1))
    rows = splines.derivatives_at(breaks, degree, 0.7)
    for c in range(len(z)):
        polynomial = legendre.Legendre(z[c], domain=breaks[c : c + 2])
        for r in range(1, degree + 1):
            np.testing.assert_allclose(rows[r - 1, c] @ z[c], polynomial.deriv(r)(0.7), rtol=1e-9)
        np.testing.assert_allclose(splines.values_at(breaks, z, 0.7)[c], polynomial(0.7), rtol=1e-9)


def test_an_empty_cell_is_said_so_and_empty_moments_are_zero():
    x, y = np.array([0.1, 0.2, 0.3, 0.9]), np.ones(4)
    data = splines.cell_data(x, y, np.array([0.0, 0.4, 0.5, 1.0]), 1)
    assert data.counts.tolist() == [3, 0, 1]
    assert not data.gram[1].any()
    last = splines.cell_data(x[:2], y[:2], np.array([0.0, 0.5, 1.0]), 1)
    assert last.counts.tolist() == [2, 0] and not last.gram[1].any()
    with pytest.raises(np.linalg.LinAlgError, match="do not determine"):
        splines.solve(data, splines.space(data.breaks, 1, 2))


@pytest.mark.parametrize("order", [2, 3, 4])
def test_pilot_derivative_of_a_smooth_function(order):
    x = np.sort(np.random.default_rng(0).uniform(0, 2, 10_000))
    at, found = splines.pilot_derivative(x, np.sin(3 * x), (0.0, 2.0), order)
    expected = 3.0**order * np.sin(3 * at + order * np.pi / 2)
    # The ends of a spline are its worst part; the density needs the middle.
    inner = slice(20, -20)
    assert np.sqrt(np.mean((found - expected)[inner] ** 2)) < 0.02 * 3.0**order
