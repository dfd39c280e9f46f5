"""The law of a ladder, L = E + A P^-a, with one E and one exponent for all units and an amplitude A for each.

At one number of tokens an exponent per unit cannot be told from an E per unit; `token_laws` does, from losses on a grid
of parameters and tokens.
For a given exponent the law is linear in E >= 0 and the amplitudes. Residuals are weighted by the measured seed noise
(`ladder_losses.seed_noise`) and by a common deviation of all units at a size (`loosened`). The bootstrap resamples the
seeds of each size jointly for all units; since seeds are few, the deviations of all sizes, standardized, are pooled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.display import Compact, ProgressLike, one_line, reporting
from gatelab.errors import GatelabError, check_seed, whole_number
from gatelab.scaling_laws.ladder_losses import (
    DRAWS,
    LEAST_SIZES,
    LadderLosses,
    SeedNoise,
    read_ladder,
    redrawn_deviations,
    seed_noise,
)
from gatelab.statistics import Interval, percentile_interval

LOGS = np.linspace(math.log(0.02), math.log(4.0), 48)  # of exponents, where fits start
GOLDEN, SECTIONS = (math.sqrt(5) - 1) / 2, 24
MOST_FACTOR = 1e6  # larger factors come from flat laws


@dataclass(frozen=True, eq=False)
class Cells:
    """The data of the fits: one mean per unit and size. Cells with the same `unit` have a common amplitude."""

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
    def constants(self) -> int:
        """The number of constants of the law: E, the exponent and the amplitudes."""
        return int(self.unit.max()) + 3

    def alike(self) -> Cells:
        """The same cells for a law with one amplitude."""
        return replace(self, unit=np.zeros_like(self.unit))


class Constants(NamedTuple):
    """Rows of laws: E (rows,), the excess L - E at the cells' center (rows, units), exponents and misfits (rows,)."""

    E: Array
    excess: Array
    exponent: Array
    misfit: Array

    def losses(self, cells: Cells) -> Array:
        """The losses of the first law at the cells."""
        return self.E[0] + self.excess[0, cells.unit] * np.exp(-self.exponent[0] * cells.log_size)


def linear_part(cells: Cells, targets: Array, exponents: Array) -> Constants:
    """The best E >= 0 and amplitudes for rows of whitened targets, with an exponent for each row or one for all.

    E is the last column, so setting it to 0 leaves the other factors of QR unchanged.
    """
    power = np.exp(-exponents[:, None] * cells.log_size)
    design = np.zeros((*power.shape, cells.constants - 1))
    design[:, np.arange(len(cells.unit)), cells.unit], design[..., -1] = power, 1.0
    Q, R = np.linalg.qr(cells.root @ design)
    along = (targets[:, None] @ Q)[:, 0]
    along[:, -1] *= along[:, -1] * R[:, -1, -1] > 0
    theta = np.asarray(np.linalg.solve(R, along[..., None])[..., 0], np.float64)
    rest = targets - (Q @ along[..., None])[..., 0]
    return Constants(theta[:, -1], theta[:, :-1], exponents, np.square(rest).sum(axis=1))


def fitted(cells: Cells, targets: Array) -> Constants:
    """The least-squares law for each row of whitened targets: the best of a grid, refined by golden sections."""

    def misfit(logs: Array) -> Array:
        return linear_part(cells, targets, np.exp(logs)).misfit

    best = np.array([misfit(LOGS[i : i + 1]) for i in range(len(LOGS))]).argmin(axis=0)
    low, high = LOGS[np.maximum(best - 1, 0)], LOGS[np.minimum(best + 1, len(LOGS) - 1)]
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = misfit(left), misfit(right)
    for _ in range(SECTIONS):
        lower = at_left < at_right  # then the minimum is below `right`
        low, high = np.where(lower, low, left), np.where(lower, right, high)
        inner = np.where(lower, high - GOLDEN * (high - low), low + GOLDEN * (high - low))
        at_inner = misfit(inner)
        left, right = np.where(lower, inner, right), np.where(lower, left, inner)
        at_left, at_right = np.where(lower, at_inner, at_right), np.where(lower, at_left, at_inner)
    return linear_part(cells, targets, np.exp((low + high) / 2))


def own_law(cells: Cells) -> Constants:
    """The law of the cells' means."""
    return fitted(cells, (cells.root @ cells.means)[None])


def loosened(cells: Cells) -> Cells:
    """The cells with weights that include the common deviation of the units at a size.

    Its variance is that of the sizes' mean residuals from the law, of whose degrees of freedom E, A and a take three,
    minus the variance due to seeds.
    """
    off, precision = cells.means - own_law(cells).losses(cells), cells.root.T @ cells.root
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


@dataclass(frozen=True, eq=False)
class LadderLaw(Compact):
    """L = E + A P^-a of a ladder, with an A for each unit, and its intervals over seeds.

    Attributes:
        losses: The measured losses.
        E: The loss at infinite size, with this number of tokens.
        exponent: a.
        excess: L - E of each unit at the size `center`.
        center: The geometric mean of all sizes.
        misfit: The weighted sum of squared residuals of the means; its expected value is `freedom`.
        freedom: The number of means minus the number of constants.
        common_misfit: The standard deviation of the units' common deviation from the law at a size.
        drawn: The constants of the law and of the bootstrap, the law's own first.
    """

    losses: LadderLosses
    E: Interval
    exponent: Interval
    excess: tuple[Interval, ...]
    center: float
    misfit: float
    freedom: int
    common_misfit: float
    drawn: Constants = field(repr=False)

    def __repr__(self) -> str:
        return one_line(self, f"L = {self.E.value:.3g} + A P^-{self.exponent.value:.3g}, {len(self.excess)} units")

    def predict(self, unit: str, size: Any) -> Any:
        """The law's loss of a unit at a size or an array of them."""
        excess = self.excess[self.losses.index(unit)].value
        return self.E.value + excess * (np.asarray(size) / self.center) ** -self.exponent.value

    def factor(self, unit: str, reference: str) -> Interval:
        """The factor by which the reference must be larger to have the unit's loss, (A_reference / A_unit)^(1/a).

        Args:
            unit: with the loss to reach.
            reference: the unit that would be enlarged.

        Returns:
            The factor with its interval over seeds; above 1 if the unit is better.
        """
        left = np.log(np.maximum(self.drawn.excess, 1e-12))
        logs = (left[:, self.losses.index(reference)] - left[:, self.losses.index(unit)]) / self.drawn.exponent
        factors = np.clip(np.exp(logs), 1 / MOST_FACTOR, MOST_FACTOR)
        return percentile_interval(float(factors[0]), factors[1:])

    def table(self) -> pd.DataFrame:
        """One row per unit: every constant with its interval, and the factor of the first unit that equals it."""
        rows = []
        for unit, excess in zip(self.losses.units, self.excess, strict=True):
            values = {"exponent": self.exponent, "excess": excess, "E": self.E}
            values["factor"] = self.factor(unit, self.losses.units[0])
            row: dict[str, Any] = {"unit": unit}
            for name, one in values.items():
                row |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
            rows.append(row)
        return pd.DataFrame(rows)


def fit_ladder(
    table: LadderLosses | pd.DataFrame | Mapping[str, Any],
    *,
    draws: int = DRAWS,
    seed: int = 0,
    progress: ProgressLike = None,
) -> LadderLaw:
    """Fit the law of a ladder.

    Args:
        table: the losses, or a table or mapping of columns for `read_ladder`: unit, parameters, seed, loss, and
            optionally diverged and size.
        draws: the number of bootstrap samples.
        seed: of the draws.
        progress: False for no progress bar, or a function of (done, total) draws.

    Returns:
        The law with intervals and with the factors between units.

    >>> P, truth = np.geomspace(4e5, 2.5e7, 5), {"gelu": 1.0, "swiglu": 0.9}
    >>> grid = [(u, p, s) for u in truth for p in P for s in range(3)]
    >>> noise = 0.002 * np.random.default_rng(1).standard_normal(len(grid))
    >>> loss = [0.8 + 29 * truth[u] * p**-0.28 + e for (u, p, s), e in zip(grid, noise)]
    >>> columns = dict(zip(("unit", "parameters", "seed"), zip(*grid))) | {"loss": loss}
    >>> law = fit_ladder(columns, draws=200)
    >>> 0.9 ** (-1 / 0.28) in law.factor("swiglu", "gelu")
    True
    """
    ladder = table if isinstance(table, LadderLosses) else read_ladder(table)
    whole_number("draws", draws, 20)
    check_seed(seed)
    cells = loosened(Cells.of(ladder, seed_noise(ladder)))
    law = own_law(cells)
    for unit, excess in zip(ladder.units, law.excess[0], strict=True):
        if excess <= 0:
            raise GatelabError(f"the loss of {unit} does not fall with size, so it has no law; leave it out")
    u, r, s = np.nonzero(ladder.present)
    parts, done = [law], 0
    with reporting(progress, "law of the ladder") as report:
        for off in redrawn_deviations(ladder, draws=draws, seed=seed):
            means = cells.means + off[:, r, s, u] @ cells.weights.T
            parts.append(fitted(cells, means @ cells.root.T))
            done += len(off)
            if report:
                report(done, draws)
    drawn = Constants(*map(np.concatenate, zip(*parts, strict=True)))
    E, exponent, *excess = (
        percentile_interval(float(own[0]), own[1:]) for own in (drawn.E, drawn.exponent, *drawn.excess.T)
    )
    facts = {"freedom": len(cells.unit) - cells.constants, "common_misfit": cells.common, "drawn": drawn}
    return LadderLaw(ladder, E, exponent, tuple(excess), cells.center, float(law.misfit[0]), **facts)
