"""Splines with free knots: where to start, and a Levenberg-Marquardt method that stays banded.

Orthogonal parts: the density of knots that theory asks for (`Density`), the projection onto a spline space with given
knots (`project`), and the step that moves the knots (`optimise`).

Variable projection in this setting has a short form. Moving the knot t_j by delta changes a spline whose r-th
derivative jumps there by a_j by -delta a_j (x - t_j)_+^(r-1) / (r-1)!: to first order it opens a jump in the
derivative below. So the linearised problem is a least-squares spline with ONE CONTINUITY LESS at every knot, still
local and banded; its jumps b_j, damped, give the step delta_j = -b_j / a_j. (Golub and Pereyra 1973 with Kaufman's
simplification; nothing dense is formed, so that a step costs O(N) for any number of knots.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gatelab.linalg import splines
from gatelab.linalg.pilot import pilot_derivative
from gatelab.linalg.splines import Array, CellData, Space

Constrain = Callable[[Space], Array]


@dataclass(frozen=True)
class Spline:
    """A least-squares spline: Legendre coefficients z on the cells between breaks, and its error on the data."""

    breaks: Array
    z: Array
    multiplicity: int
    data: CellData
    rmse: float

    @property
    def knots(self) -> Array:
        return self.breaks[1:-1]

    @property
    def degree(self) -> int:
        return self.z.shape[1] - 1


def project(
    x: Array, y: Array, breaks: Array, degree: int, multiplicity: int, constrain: Constrain | None = None
) -> Spline:
    """The best spline on these breaks; `LinAlgError` where the data do not determine it."""
    if np.diff(breaks).min() <= 1e-13 * (breaks[-1] - breaks[0]):
        raise np.linalg.LinAlgError("knots coincide")
    data = splines.cell_data(x, y, breaks, degree)
    if not (data.counts[0] and data.counts[-1]):  # else the constraints of facing would be met where nobody looks
        raise np.linalg.LinAlgError("no data in the first or the last cell")
    space = splines.space(breaks, degree, multiplicity)
    z = space.to_cells(splines.solve(data, space, constraints=constrain(space) if constrain else None))
    return Spline(breaks, z, multiplicity, data, float(np.sqrt(np.mean(np.square(data.residual(z))))))


def optimise(
    start: Spline, *, steps: int, tolerance: float = 1e-6, constrain: Constrain | None = None
) -> tuple[Spline, tuple[float, ...], bool]:
    """Move the knots downhill; the best spline, its RMSE after each step, and whether it has settled.

    The RMSE is that of the best spline so far: a step that data do not allow, or that gains nothing, is one too.
    `start` must satisfy the constraints. Settled means three steps in a row gained less than `tolerance` of the
    error, or no damping finds an improvement.
    """
    x, y = start.data.x, start.data.y
    floor = 1e-15 * float(np.abs(y).max())
    best, damping, idle = start, 1e-2, 0
    history: list[float] = []
    while not (idle == 3 or damping > 1e8 or best.rmse <= floor or not len(best.knots)):
        if len(history) >= steps:
            return best, tuple(history), False
        try:
            breaks = _moved(best, damping, constrain)
            trial = project(x, y, breaks, best.degree, best.multiplicity, constrain)
        except np.linalg.LinAlgError:  # a cell without enough data: shorter steps
            damping *= 10
            history.append(best.rmse)
            continue
        if trial.rmse < best.rmse:
            idle = idle + 1 if trial.rmse > (1 - tolerance) * best.rmse else 0
            best, damping = trial, max(damping / 4, 1e-8)
        else:
            damping *= 5
        history.append(best.rmse)
    return best, tuple(history), True


def _moved(spline: Spline, damping: float, constrain: Constrain | None) -> Array:
    """The breaks after one damped step."""
    breaks, data = spline.breaks, spline.data
    r = spline.degree - spline.multiplicity + 1
    wider = splines.space(breaks, spline.degree, spline.multiplicity + 1)
    h, counts = data.widths, data.counts
    # Marquardt's scaling: the squared norm on the data of a unit jump in derivative r - 1, up to a constant.
    weights = (counts[1:] + counts[:-1]) * (h[1:] + h[:-1]) ** (2 * r - 2) / 12
    rows = wider.jump_rows(r - 1)
    c = splines.solve(data, wider, (rows, damping * weights), constrain(wider) if constrain else None)
    opened = splines.jumps(wider.to_cells(c), breaks, r - 1)
    strength = splines.jumps(spline.z, breaks, r)
    step = np.divide(-opened, strength, out=np.zeros_like(opened), where=np.abs(strength) > 1e-200)
    moved = breaks.copy()
    moved[1:-1] += np.clip(step, -0.4 * h[:-1], 0.4 * h[1:])
    return moved


@dataclass(frozen=True)
class Density:
    """The knot density that equidistributes the error, |f^(m)|^(2/(2m+1)), as its cumulative distribution."""

    grid: Array
    cumulative: Array

    def knots(self, count: int, generator: np.random.Generator | None = None) -> Array:
        """`count` inner knots at equal shares of the density; a generator shakes them by a third of a cell."""
        share = np.arange(1.0, count + 1)
        if generator is not None:
            share = np.clip(np.sort(share + 0.35 * generator.standard_normal(count)), 0.2, count + 0.8)
        return np.interp(share / (count + 1), self.cumulative, self.grid)


def density(x: Array, y: Array, interval: tuple[float, float], degree: int) -> Density:
    """The density for splines of `degree`, from a pilot spline through the data."""
    m = degree + 1
    try:
        _, f_m = pilot_derivative(x, y, interval, m)
        share = np.abs(f_m) ** (2 / (2 * m + 1))
    except np.linalg.LinAlgError:  # too few or too clustered data for a pilot: equal cells are the honest start
        share = np.ones(64)
    share = share + 0.02 * share.mean() + np.finfo(float).tiny
    cumulative = np.concatenate(([0.0], np.cumsum(share)))
    return Density(np.linspace(*interval, len(cumulative)), cumulative / cumulative[-1])


def split_worst(spline: Spline) -> Array:
    """The breaks with one more in the middle of the cell that holds most of the squared error."""
    r = spline.data.residual(spline.z)
    ends = np.concatenate((spline.data.starts, [len(r)]))
    sums = np.array([np.sum(r[a:b] ** 2) for a, b in pairwise(ends)])
    worst = int(np.argmax(sums))
    return np.insert(spline.breaks, worst + 1, 0.5 * (spline.breaks[worst] + spline.breaks[worst + 1]))


def spread(breaks: Array, x: Array, least: int) -> Array:
    """Breaks moved as little as needed so that every cell holds `least` distinct ones of the sorted data."""
    x, cells = x[np.concatenate(([True], np.diff(x) > 0))], len(breaks) - 1
    if cells * least > len(x):
        return breaks
    at = np.searchsorted(x, breaks[1:-1])
    offsets = least * np.arange(1, cells)
    at = np.maximum.accumulate(at - offsets) + offsets
    at = np.minimum.accumulate((at - offsets)[::-1])[::-1] + offsets
    at = np.clip(at, offsets, len(x) - least * np.arange(cells - 1, 0, -1))
    moved = at != np.searchsorted(x, breaks[1:-1])
    out = breaks.copy()
    out[1:-1] = np.where(moved, 0.5 * (x[at - 1] + x[np.minimum(at, len(x) - 1)]), breaks[1:-1])
    return out
