"""Least-squares fits of the laws L = E + A P^-a of a ladder, in batches, and tests of nested forms.

**Losses, not their logarithms.** For given exponents the law is linear in E >= 0 and the A, which are eliminated
exactly (variable projection). A search over all constants would follow a long valley in which E, A and a compensate
each other. Residuals are weighted by the measured seed noise (`ladder_losses.seed_noise`): its variance at each size,
pooled over units, and the correlation of losses with the same seed.

**Common deviations.** The aspect ratio of a size, or a learning rate from a rule, moves all units of a size together.
The variance of such a common deviation is estimated from the residuals of the sizes' means and enters the weights
(`loosened`). With it, the 5 % test rejected a true null hypothesis in 3 to 9 of 100 simulated ladders.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.display import Compact, Listener
from gatelab.errors import GatelabError
from gatelab.scaling_laws.ladder_losses import AT_ONCE, LEAST_SIZES, SIGNIFICANT, LadderLosses, SeedNoise

EXPONENTS = np.geomspace(0.02, 4.0, 48)
EXACT, ENOUGH = 1e-10, 1e-6  # relative tolerances of the misfit, for the data and for bootstrap draws


@dataclass(frozen=True, eq=False)
class Cells:
    """The data of the fits: one mean per unit and size."""

    unit: NDArray[np.intp]  # the index of each cell's unit
    size: NDArray[np.intp]  # and of its size
    log_size: Array  # the logarithm of the size over the geometric mean of all, `center`
    means: Array  # generalized least-squares means over seeds; plain means where no seed is missing
    root: Array  # a square root of the inverse covariance of the means
    weights: Array  # (cells, available losses), which give the means
    center: float
    common: float = 0.0  # the standard deviation of the units' common deviation at a size (`loosened`)

    @classmethod
    def of(cls, ladder: LadderLosses, noise: SeedNoise) -> Cells:
        rows = np.argwhere(ladder.present)
        u, r, s = rows.T
        paired = (r[:, None] == r) & (s[:, None] == s)
        covariance = noise.variance[r] * np.where(u[:, None] == u, 1.0, noise.correlation) * paired
        cells, cell = np.unique(rows[:, :2], axis=0, return_inverse=True)
        each = np.eye(len(cells))[cell.ravel()]
        weighed = np.linalg.solve(covariance, each)
        precision = each.T @ weighed
        weights = np.asarray(np.linalg.solve(precision, weighed.T), np.float64)
        unit, size = cells.T
        logs = np.log(ladder.sizes[unit, size])
        root = np.asarray(np.linalg.cholesky((precision + precision.T) / 2).T, np.float64)
        means = weights @ ladder.losses[ladder.present]
        return cls(unit, size, logs - logs.mean(), means, root, weights, float(np.exp(logs.mean())))

    @property
    def units(self) -> int:
        return int(self.unit.max()) + 1


class Form(NamedTuple):
    """The constants of the law that are separate for each unit."""

    name: str
    own_amplitude: bool
    own_exponent: bool
    own_limit: bool = False

    def constants(self, units: int) -> int:
        """The number of constants, including E."""
        return sum(units if own else 1 for own in (self.own_limit, self.own_amplitude, self.own_exponent))


ALL_ALIKE, OFFSET, EXPONENT = Form("alike", False, False), Form("offset", True, False), Form("exponent", True, True)
FORMS = (ALL_ALIKE, OFFSET, EXPONENT)
SHIFT, SHIFT_AND_EXPONENT = Form("shift", False, False, True), Form("shift and exponent", False, True, True)
OFFSET_AND_SHIFT = Form("offset and shift", True, False, True)
TESTED = ((ALL_ALIKE, OFFSET), (OFFSET, EXPONENT), (SHIFT, SHIFT_AND_EXPONENT), (OFFSET, OFFSET_AND_SHIFT))


class Constants(NamedTuple):
    """Rows of laws: E (rows,), the excess L - E at the cells' center and the exponents (rows, units), misfits.

    With one limit per unit, E is (rows, units).
    """

    E: Array
    excess: Array
    exponent: Array
    misfit: Array

    def losses(self, cells: Cells) -> Array:
        """The losses of the first law at the cells."""
        limits = np.broadcast_to(self.E[0], cells.units)[cells.unit]
        return limits + self.excess[0, cells.unit] * np.exp(-self.exponent[0, cells.unit] * cells.log_size)


class LinearPart(NamedTuple):
    """The fitted E >= 0 and amplitudes, the residuals, and their derivatives by the exponents."""

    E: Array
    amplitude: Array
    rest: Array
    slope: Array  # (rows, cells, exponents): Kaufman's approximation, whose gradient is exact


def projected(cells: Cells, targets: Array, form: Form, exponents: Array) -> LinearPart:
    """Fit E and the amplitudes. E is the last column, so setting it to 0 leaves the other factors of QR unchanged."""
    groups = cells.unit if form.own_exponent else np.zeros_like(cells.unit)
    power = np.exp(-exponents[:, groups] * cells.log_size)
    design, columns, count = linear_design(cells, form, power)
    Q, R = np.linalg.qr(cells.root @ design)
    along = np.einsum("dnk,dn->dk", Q, targets)
    if not form.own_limit:
        negative = along[:, -1] * R[:, -1, -1] < 0
        along[negative, -1] = 0.0
        Q[negative, :, -1] = 0.0
    theta = np.linalg.solve(R, along[:, :, None])[:, :, 0]
    moved = np.zeros((len(exponents), len(columns), exponents.shape[1]))
    moved[:, np.arange(len(columns)), groups] = cells.log_size * power * theta[:, columns]
    moved = cells.root @ moved
    slope = moved - Q @ (Q.transpose(0, 2, 1) @ moved)
    limits = theta[:, count:] if form.own_limit else theta[:, -1]
    return LinearPart(limits, theta[:, :count], targets - np.einsum("dnk,dk->dn", Q, along), slope)


def linear_design(cells: Cells, form: Form, power: Array) -> tuple[Array, NDArray[np.intp], int]:
    """The columns of amplitudes and limits for powers (rows, cells), the amplitude of each cell, and their number."""
    amplitudes = cells.unit if form.own_amplitude else np.zeros_like(cells.unit)
    limits = cells.unit if form.own_limit else np.zeros_like(cells.unit)
    places, count = np.arange(len(cells.unit)), int(amplitudes.max()) + 1
    design = np.zeros((len(power), len(places), count + int(limits.max()) + 1))
    design[:, places, amplitudes], design[:, places, count + limits] = power, 1.0
    return design, amplitudes, count


def least_misfit(cells: Cells, targets: Array, form: Form, starts: Array, *, tolerance: float = EXACT) -> Constants:
    """Least-squares laws near the starts (rows, exponents), by a damped Gauss-Newton method on log exponents.

    A step changes an exponent by a factor of at most two, and never increases the misfit.
    """
    logs, live, damping = np.log(starts), np.arange(len(starts)), np.full(len(starts), 1e-3)
    state = projected(cells, targets, form, starts)
    misfit = np.square(state.rest).sum(axis=1)
    E, amplitude = state.E.copy(), state.amplitude.copy()
    for _ in range(60):
        slope = state.slope * np.exp(logs[live])[:, None, :]
        gradient = np.einsum("dnk,dn->dk", slope, state.rest)
        square = slope.transpose(0, 2, 1) @ slope
        k = np.arange(square.shape[1])
        size = square[:, k, k].copy()
        square[:, k, k] += damping[live][:, None] * size + 1e-12 * size.max(axis=1, keepdims=True) + 1e-300
        step = np.clip(-np.linalg.solve(square, gradient[:, :, None])[:, :, 0], -math.log(2), math.log(2))
        gain = -np.einsum("dk,dk->d", gradient, step)
        going = (gain > tolerance * (1 + misfit[live])) & (damping[live] < 1e6)
        live, step = live[going], step[going]
        if not len(live):
            break
        trial = np.clip(logs[live] + step, math.log(1e-3), math.log(20.0))
        ahead = projected(cells, targets[live], form, np.exp(trial))
        reached = np.square(ahead.rest).sum(axis=1)
        better = reached < misfit[live]
        kept = LinearPart(*(part[going] for part in state))
        state = LinearPart(
            *(np.where(better.reshape(-1, *(1,) * (a.ndim - 1)), a, b) for a, b in zip(ahead, kept, strict=True))
        )
        logs[live[better]], misfit[live[better]] = trial[better], reached[better]
        E[live[better]], amplitude[live[better]] = ahead.E[better], ahead.amplitude[better]
        damping[live] = np.where(better, np.maximum(damping[live] / 10, 1e-12), damping[live] * 5)
    shape = len(starts), cells.units
    return Constants(E, np.broadcast_to(amplitude, shape), np.broadcast_to(np.exp(logs), shape), misfit)


def fit_form(
    cells: Cells, targets: Array, form: Form, *, common: Constants | None = None, tolerance: float = EXACT
) -> Constants:
    """The least-squares law for each row of whitened targets, started from the best exponent of a grid.

    Separate exponents have two starts: the common exponent, and the log-log slopes of the units. With noise as large as
    the differences, the first start alone ends in a poorer minimum in 6 of 1000 cases.
    """
    fitted = common
    if fitted is None:
        shared = form._replace(own_exponent=False)
        starts = EXPONENTS[grid_misfits(cells, targets, shared).argmin(axis=0)][:, None]
        fitted = least_misfit(cells, targets, shared, starts, tolerance=tolerance)
    if not form.own_exponent:
        return fitted
    logs = np.log(np.maximum(np.linalg.solve(cells.root, targets.T).T, 1e-12))
    x = np.where(cells.unit[:, None] == np.arange(cells.units), cells.log_size[:, None], np.nan)
    x -= np.nanmean(x, axis=0)
    plain = -(logs @ np.nan_to_num(x)) / np.nansum(x**2, axis=0)
    begin = np.concatenate((fitted.exponent, np.maximum(plain, 0.02)))
    laws = least_misfit(cells, np.tile(targets, (2, 1)), form, begin, tolerance=tolerance)
    rows = len(targets)
    best = laws.misfit.reshape(2, rows).argmin(axis=0) * rows + np.arange(rows)
    return Constants(*(part[best] for part in laws))


def grid_misfits(cells: Cells, targets: Array, form: Form) -> Array:
    """The misfits (exponents, rows) of laws with one exponent on a grid and E >= 0."""
    design, _, _ = linear_design(cells, form, np.exp(-EXPONENTS[:, None] * cells.log_size))
    Q, R = np.linalg.qr(cells.root @ design)
    along = np.einsum("gnk,dn->gdk", Q, targets)
    if not form.own_limit:
        along[..., -1] *= along[..., -1] * R[:, -1, -1, None] > 0
    return np.square(targets).sum(axis=1) - np.square(along).sum(axis=2)


def loosened(cells: Cells) -> Cells:
    """The cells with weights that include the common deviation of the units at a size.

    Its variance is that of the sizes' mean residuals from the largest law, with three degrees of freedom used by E, A
    and a, minus the variance due to seeds. Three sizes leave no degree of freedom, and the weights stay unchanged.
    """
    law, precision = fit_form(cells, (cells.root @ cells.means)[None], EXPONENT), cells.root.T @ cells.root
    off = cells.means - law.losses(cells)
    size = (np.unique(cells.size)[:, None] == cells.size).astype(float)
    weight = np.einsum("ri,ij,rj->r", size, precision, size)
    freedom = len(size) - LEAST_SIZES
    if freedom < 1:
        return cells
    variance = np.square(size @ (precision @ off) / weight).sum() / freedom - (1 / weight).mean()
    if variance <= 0:
        return cells
    covariance = np.linalg.inv(precision) + variance * (size.T @ size)
    return replace(cells, root=np.linalg.cholesky(np.linalg.inv(covariance)).T, common=math.sqrt(variance))


@dataclass(frozen=True)
class NestedTest(Compact):
    """An F test of a law against one with more constants, by parametric bootstrap.

    Attributes:
        smaller: The form of the null hypothesis.
        larger: The form with more constants.
        statistic: The reduction of the misfit per added constant, over the remaining misfit per degree of freedom.
        p: The share of simulated ladders, with normal noise about the smaller law, with at least this statistic.
        draws: The number of simulated ladders.
    """

    PROPERTIES: ClassVar[tuple[str, ...]] = ("decided",)

    smaller: str
    larger: str
    statistic: float
    p: float
    draws: int

    @property
    def decided(self) -> bool:
        """Whether the smaller law is rejected at the 5 % level."""
        return self.p <= SIGNIFICANT


def nested_test(
    cells: Cells, smaller: Form, larger: Form, *, draws: int, seed: int, report: Listener | None = None
) -> NestedTest:
    """Test two nested laws; ladders are simulated under the smaller one, with the variance of its residuals."""
    n, (few, many) = len(cells.unit), (form.constants(cells.units) for form in (smaller, larger))
    if n <= many:
        raise GatelabError(f"{n} means of units and sizes do not determine {many} constants; give more sizes")

    def statistic(rows: Array, tolerance: float) -> tuple[Array, Constants]:
        null = fit_form(cells, rows, smaller, tolerance=tolerance)
        common = null if larger.own_exponent else None
        free = fit_form(cells, rows, larger, common=common, tolerance=tolerance)
        gained = np.maximum(null.misfit - free.misfit, 0.0)
        return gained / (many - few) / np.maximum(free.misfit / (n - many), 1e-300), null

    value, null = statistic((cells.root @ cells.means)[None], EXACT)
    mean, spread = cells.root @ null.losses(cells), math.sqrt(null.misfit[0] / (n - few))
    generator, exceeding = np.random.default_rng(seed), 0
    for first in range(0, draws, AT_ONCE):
        count = min(AT_ONCE, draws - first)
        simulated = mean + spread * generator.standard_normal((count, n))
        exceeding += int((statistic(simulated, ENOUGH)[0] >= value[0]).sum())
        if report:
            report(first + count, draws)
    return NestedTest(smaller.name, larger.name, float(value[0]), (1 + exceeding) / (1 + draws), draws)
