"""Least squares in spline spaces, banded, in O(N) work.

A spline is stored as its Legendre coefficients z in each cell, (cells, degree + 1); every functional of it is a short
row on them. B-splines are the local basis: the condition number of their Gram matrix does not grow with the number of
cells, so that forming it loses no accuracy; that of truncated powers, the basis of a network, grows like n^4 or faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import legendre
from scipy.linalg.lapack import dpbtrf, dpbtrs  # pyright: ignore[reportAttributeAccessIssue]
from scipy.special import comb

from gatelab.arrays import AnyArray as Array


@lru_cache(maxsize=16)
def _tables(degree: int) -> tuple[Array, Array, Array, Array]:
    """Nodes in (-1, 1), the map from values there to Legendre coefficients, and derivatives at -1 and at +1."""
    nodes = np.cos(np.pi * (np.arange(degree + 1)[::-1] + 0.5) / (degree + 1))
    to_legendre = np.linalg.inv(legendre.legvander(nodes, degree))
    at_left, at_right = (
        np.array([legendre_derivatives(degree, r, np.array([end]))[0] for r in range(degree + 1)])
        for end in (-1.0, 1.0)
    )
    return nodes, to_legendre, at_left, at_right


@lru_cache(maxsize=64)
def _differentiate(degree: int, r: int) -> Array:
    """The matrix that takes (P_0, ..., P_degree) to their r-th derivatives."""
    matrix = np.zeros((degree + 1, degree + 1))
    for i, row in enumerate(np.eye(degree + 1)):
        derivative = legendre.legder(row, r)
        matrix[: len(derivative), i] = derivative
    return matrix


def legendre_derivatives(degree: int, r: int, xi: Array) -> Array:
    """P_i^(r)(xi) for i = 0..degree, shape (len(xi), degree + 1)."""
    return legendre.legvander(xi, degree) @ _differentiate(degree, r)


@lru_cache(maxsize=16)
def _bernstein(degree: int) -> Array:
    """Legendre coefficients of the Bernstein polynomials on [-1, 1], one per column."""
    nodes, to_legendre, _, _ = _tables(degree)
    u = 0.5 * (nodes[:, None] + 1)
    i = np.arange(degree + 1)
    return to_legendre @ (comb(degree, i) * u**i * (1 - u) ** (degree - i))


@dataclass(frozen=True)
class CellData:
    """Sorted data cut into cells between `breaks`, with the first row and the number of rows of each cell.

    `values` has the Legendre polynomials at the rows, (degree + 1, N); `gram` their products summed over each cell,
    (cells, degree + 1, degree + 1); `right` their products with y, (cells, degree + 1).
    """

    x: Array
    y: Array
    breaks: Array
    degree: int
    starts: Array
    counts: Array
    values: Array
    gram: Array
    right: Array

    @property
    def widths(self) -> Array:
        return np.diff(self.breaks)

    def residual(self, z: Array) -> Array:
        """y minus the piecewise polynomial with Legendre coefficients z."""
        r = self.y.copy()
        for i in range(self.degree + 1):
            r -= np.repeat(z[:, i], self.counts) * self.values[i]
        return r


def cell_data(x: Array, y: Array, breaks: Array, degree: int) -> CellData:
    """The moments of (x, y), x sorted, on the cells between `breaks`; one pass over the data."""
    inner = np.searchsorted(x, breaks[1:-1])
    starts = np.concatenate(([0], inner))
    counts = np.diff(np.concatenate((starts, [len(x)])))
    scale = 2.0 / np.diff(breaks)
    xi = (x - np.repeat(0.5 * (breaks[1:] + breaks[:-1]), counts)) * np.repeat(scale, counts)
    values = np.empty((degree + 1, len(x)))
    values[0] = 1.0
    if degree >= 1:
        values[1] = xi
    for i in range(1, degree):
        values[i + 1] = ((2 * i + 1) * xi * values[i] - i * values[i - 1]) / (i + 1)
    gram = np.empty((len(counts), degree + 1, degree + 1))
    right = np.empty((len(counts), degree + 1))

    def sums(v: Array) -> Array:
        # reduceat repeats an element for an empty cell and refuses a start at the very end.
        return np.where(counts > 0, np.add.reduceat(v, np.minimum(starts, len(v) - 1)), 0.0)

    gram[:, 0, 0] = counts
    right[:, 0] = sums(values[0] * y)
    for i in range(1, degree + 1):
        right[:, i] = sums(values[i] * y)
        gram[:, i, 0] = gram[:, 0, i] = sums(values[i])
        for j in range(1, i + 1):
            gram[:, i, j] = gram[:, j, i] = sums(values[i] * values[j])
    moments = {"values": values, "gram": gram, "right": right}
    return CellData(x=x, y=y, breaks=breaks, degree=degree, starts=starts, counts=counts, **moments)


@dataclass(frozen=True)
class Space:
    """Splines of `degree` on `breaks` whose inner knots have `multiplicity`: C^(degree - multiplicity) there.

    `extract[c]` maps the degree + 1 B-spline coefficients alive on cell c to its Legendre coefficients.
    """

    breaks: Array
    degree: int
    multiplicity: int
    extract: Array

    @property
    def cells(self) -> int:
        return len(self.breaks) - 1

    @property
    def dim(self) -> int:
        return self.degree + 1 + (self.cells - 1) * self.multiplicity

    def to_cells(self, coefficients: Array) -> Array:
        """Legendre coefficients per cell of B-spline coefficients (dim,)."""
        alive = self.multiplicity * np.arange(self.cells)[:, None] + np.arange(self.degree + 1)
        return (self.extract @ coefficients[alive][:, :, None])[:, :, 0]

    def jump_rows(self, r: int) -> Array:
        """The jump of the r-th derivative at each knot on the B-splines of both cells, (cells - 1, degree + 1 + m)."""
        _, _, at_left, at_right = _tables(self.degree)
        scale = (2.0 / np.diff(self.breaks)) ** r
        left = -(scale[:-1, None] * (at_right[r] @ self.extract[:-1]))
        right = scale[1:, None] * (at_left[r] @ self.extract[1:])
        rows = np.zeros((self.cells - 1, self.degree + 1 + self.multiplicity))
        rows[:, : self.degree + 1] += left
        rows[:, self.multiplicity :] += right
        return rows

    def gather(self, rows: Array) -> Array:
        """Functionals given per cell on Legendre coefficients, (k, cells, degree + 1), as (k, dim) on B-splines."""
        local = np.einsum("kci,cij->kcj", rows, self.extract)
        out = np.zeros((len(rows), self.dim))
        for j in range(self.degree + 1):
            out[:, j : j + self.cells * self.multiplicity : self.multiplicity][:, : self.cells] += local[:, :, j]
        return out


def space(breaks: Array, degree: int, multiplicity: int) -> Space:
    """The spline space, with its B-splines evaluated once in degree + 1 nodes of each cell."""
    nodes, to_legendre, _, _ = _tables(degree)
    if multiplicity >= degree:  # B-splines that are at most continuous are Bernstein polynomials in each cell
        same = np.broadcast_to(_bernstein(degree), (len(breaks) - 1, degree + 1, degree + 1))
        return Space(breaks, degree, multiplicity, same)
    return Space(breaks, degree, multiplicity, to_legendre @ _alive_values(breaks, degree, multiplicity, nodes))


def _alive_values(breaks: Array, degree: int, multiplicity: int, nodes: Array) -> Array:
    """The B-splines alive on each cell at its nodes, (cells, nodes, degree + 1), by de Boor's recursion."""
    ends = np.full(degree + 1, breaks[0]), np.full(degree + 1, breaks[-1])
    knots = np.concatenate((ends[0], np.repeat(breaks[1:-1], multiplicity), ends[1]))
    first = degree + multiplicity * np.arange(len(breaks) - 1)
    x = 0.5 * ((breaks[1:] + breaks[:-1])[:, None] + (breaks[1:] - breaks[:-1])[:, None] * nodes)
    left = [x - knots[first + 1 - j][:, None] for j in range(1, degree + 1)]
    right = [knots[first + j][:, None] - x for j in range(1, degree + 1)]
    values = [np.ones_like(x)]
    for d in range(1, degree + 1):
        carried: Array | float = 0.0
        for r in range(d):
            share = values[r] / (right[r] + left[d - r - 1])
            values[r] = carried + right[r] * share
            carried = left[d - r - 1] * share
        values.append(np.asarray(carried))
    return np.stack(values, axis=2)


def jumps(z: Array, breaks: Array, r: int) -> Array:
    """The jump of the r-th derivative at each inner break of the piecewise polynomial z."""
    degree = z.shape[1] - 1
    _, _, at_left, at_right = _tables(degree)
    scale = (2.0 / np.diff(breaks)) ** r
    return scale[1:] * (z[1:] @ at_left[r]) - scale[:-1] * (z[:-1] @ at_right[r])


def derivatives_at(breaks: Array, degree: int, point: float) -> Array:
    """Rows (degree, cells, degree + 1): derivatives 1..degree at `point` of each cell's polynomial, extrapolated."""
    scale = 2.0 / np.diff(breaks)
    xi = (point - 0.5 * (breaks[1:] + breaks[:-1])) * scale
    return np.stack([scale[:, None] ** r * legendre_derivatives(degree, r, xi) for r in range(1, degree + 1)])


def solve(
    data: CellData, s: Space, penalty: tuple[Array, Array] | None = None, constraints: Array | None = None
) -> Array:
    """B-spline coefficients of the least-squares spline.

    `penalty` is (rows, weights) as from `jump_rows`: sum_j weights_j (rows_j . c)^2 is added. `constraints` (k, dim)
    are zero. Raises `numpy.linalg.LinAlgError` if the data do not determine the spline.
    """
    p, m, cells = s.degree, s.multiplicity, s.cells
    right_local = np.einsum("cij,ci->cj", s.extract, data.right)
    band = _gram_band(data, s, p if penalty is None else p + m)
    right = np.zeros(s.dim)
    for j in range(p + 1):
        right[j : j + cells * m : m][:cells] += right_local[:, j]
    if penalty is not None and cells > 1:
        rows, weights = penalty
        weighted = rows * weights[:, None]
        stop = (cells - 1) * m
        for j in range(rows.shape[1]):
            for i in range(j, rows.shape[1]):
                band[i - j, j : j + stop : m][: cells - 1] += weighted[:, i] * rows[:, j]
    if constraints is None or not len(constraints):
        return _banded_solve(band, right)
    solved = _banded_solve(band, np.column_stack((right, constraints.T)))
    free, responses = solved[:, 0], solved[:, 1:]
    a, b = constraints @ responses, constraints @ free
    try:
        return free - responses @ np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        # Redundant constraints make `a` singular; any solution will do.
        return free - responses @ np.linalg.lstsq(a, b, rcond=None)[0]


def gram_solve(data: CellData, s: Space, right: Array) -> Array:
    """H^-1 right, with H the Gram matrix of the space on the data."""
    return _banded_solve(_gram_band(data, s, s.degree), right)


def values_at(breaks: Array, z: Array, point: float) -> Array:
    """The value at `point` of each cell's polynomial, extrapolated."""
    xi = (point - 0.5 * (breaks[1:] + breaks[:-1])) * 2.0 / np.diff(breaks)
    return np.einsum("ci,ci->c", legendre.legvander(xi, z.shape[1] - 1), z)


def sample(breaks: Array, z: Array) -> tuple[Array, Array]:
    """Points and values of a piecewise polynomial, enough of them in each cell to determine it."""
    xi = np.linspace(-1, 1, 2 * z.shape[1] + 5)[1:-1]
    x = 0.5 * ((breaks[1:] + breaks[:-1])[:, None] + (breaks[1:] - breaks[:-1])[:, None] * xi)
    return x.ravel(), (z @ legendre.legvander(xi, z.shape[1] - 1).T).ravel()


def pilot_derivative(x: Array, y: Array, interval: tuple[float, float], order: int) -> tuple[Array, Array]:
    """Midpoints of equal subintervals and the derivative of that order there, by a spline fit."""
    degree = order + 1
    breaks = np.linspace(*interval, int(np.clip(len(x) // 20, 1, 200)) + 1)
    s = space(breaks, degree, 1)
    z = s.to_cells(solve(cell_data(x, y, breaks, degree), s))
    inside = np.linspace(-1, 1, 17)[1::2]
    values = z @ legendre_derivatives(degree, order, inside).T * (2 / np.diff(breaks))[:, None] ** order
    middles = 0.5 * (breaks[1:] + breaks[:-1])[:, None] + 0.5 * np.diff(breaks)[:, None] * inside
    return middles.ravel(), values.ravel()


def _gram_band(data: CellData, s: Space, bandwidth: int) -> Array:
    local = np.swapaxes(s.extract, 1, 2) @ data.gram @ s.extract
    band = np.zeros((bandwidth + 1, s.dim))
    cells, m = s.cells, s.multiplicity
    for j in range(s.degree + 1):
        for i in range(j, s.degree + 1):
            band[i - j, j : j + cells * m : m][:cells] += local[:, i, j]
    return band


def _banded_solve(band: Array, right: Array) -> Array:
    # LAPACK directly: scipy's checks cost more than the factorization of a few hundred rows.
    factor, info = dpbtrf(band, lower=1)
    if info:
        raise np.linalg.LinAlgError(f"the data do not determine the spline: pivot {info} of {band.shape[1]}")
    solved, _ = dpbtrs(factor, right, lower=1)
    return solved
