"""The power of a ladder's tests, by simulation: which sizes and how many seeds a question takes.

The laws of a record are taken as true, and its seed variances are interpolated in log P to the sizes of the design. The
critical value of each test comes from ladders about the law of its null hypothesis that is nearest to the true one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from gatelab.arrays import Array
from gatelab.display import ProgressLike, reporting
from gatelab.errors import GatelabError, check_seed, whole_number
from gatelab.scaling_laws.ladder_fits import (
    ALL_ALIKE,
    ENOUGH,
    EXPONENT,
    OFFSET,
    SHIFT,
    SHIFT_AND_EXPONENT,
    Cells,
    Form,
    fit_form,
    loosened,
)
from gatelab.scaling_laws.ladder_losses import LEAST_SIZES, SIGNIFICANT, LadderLosses, read_ladder, seed_noise

WANTED = 0.95  # the power that `seeds_for_95` has
MOST_SEEDS = 64
# What a test asks, its null hypothesis, the larger law, and the law that is true.
QUESTIONS = (
    ("units differ", ALL_ALIKE, OFFSET, OFFSET),
    ("exponents differ, against an offset", OFFSET, EXPONENT, EXPONENT),
    ("exponents differ, against a shift", SHIFT, SHIFT_AND_EXPONENT, EXPONENT),
)


def ladder_power(
    table: LadderLosses | pd.DataFrame | Mapping[str, Any],
    *,
    sizes: Sequence[float] | None = None,
    seeds: int | None = None,
    draws: int = 1000,
    seed: int = 0,
    progress: ProgressLike = None,
) -> pd.DataFrame:
    """The power of the tests of a ladder with these sizes and seeds, if the laws of a record are true.

    Args:
        table: the losses of a record, as for `fit_ladder`.
        sizes: numbers of parameters of the design; those of the record by default.
        seeds: per unit and size; those of the record by default.
        draws: the number of simulated ladders per law.
        seed: of the draws.
        progress: whether to show progress, or a function of done and total.

    Returns:
        One row per test: the question; the law that is true; the power at the 5 % level with known seed variances
        (`power`) and with the scale of the noise estimated from the residuals, as `fit_ladder` does (`power_f`); and
        the number of seeds for a power of 95 % with known variances, NaN if it is more than 64.
    """
    ladder = table if isinstance(table, LadderLosses) else read_ladder(table)
    whole_number("draws", draws, 100)
    check_seed(seed)
    count = whole_number("seeds", seeds or len(ladder.seeds), 2)
    parameters = np.sort(np.asarray(ladder.parameters if sizes is None else sizes, float))
    if len(parameters) < LEAST_SIZES or not parameters[0] > 0:
        raise GatelabError(
            f"sizes are {parameters.tolist()}; give {LEAST_SIZES} or more positive numbers of parameters"
        )
    design = PowerDesign(ladder, parameters, draws, seed)
    rows = []
    with reporting(progress, "simulated tests") as report:
        for i, (question, smaller, larger, truth) in enumerate(QUESTIONS):
            known, estimated = design.power(smaller, larger, truth, count)
            enough = design.enough_seeds(smaller, larger, truth)
            numbers = {"power": known, "power_f": estimated, "seeds_for_95": enough}
            rows.append({"question": question, "true": truth.name, **numbers})
            if report:
                report(i + 1, len(QUESTIONS))
    return pd.DataFrame(rows)


@dataclass(frozen=True, eq=False)
class PowerDesign:
    """Sizes to be trained, with the laws and the seed noise of a record."""

    ladder: LadderLosses
    parameters: Array
    draws: int
    seed: int

    @cached_property
    def record(self) -> Cells:
        """The means of the record."""
        return loosened(Cells.of(self.ladder, seed_noise(self.ladder)))

    def cells(self, seeds: int) -> Cells:
        """Cells of all units and sizes of the design, whose means have the noise of this number of seeds."""
        noise, units = seed_noise(self.ladder), len(self.ladder.units)
        logs = np.log(self.parameters)
        variance = np.exp(np.interp(logs, np.log(self.ladder.parameters), np.log(noise.variance)))
        unit, size = (part.ravel() for part in np.indices((units, len(logs))))
        correlation = np.where(unit[:, None] == unit, 1.0, noise.correlation)
        covariance = variance[size] / seeds * correlation * (size[:, None] == size)
        root = np.linalg.cholesky(np.linalg.inv(covariance)).T
        center = float(logs.mean())
        return Cells(unit, size, logs[size] - center, np.zeros(len(unit)), root, np.empty((0, 0)), math.exp(center))

    def power(self, smaller: Form, larger: Form, truth: Form, seeds: int) -> tuple[float, float]:
        """The power of the test with known variances and with an estimated scale."""
        cells = self.cells(seeds)
        law = fit_form(self.record, (self.record.root @ self.record.means)[None], truth)
        shifted = replace(cells, log_size=cells.log_size + math.log(cells.center / self.record.center))
        mean = cells.root @ law.losses(shifted)
        null = cells.root @ fit_form(cells, mean[None], smaller).losses(cells)
        generator = np.random.default_rng(self.seed)
        reductions, ratios = [], []
        for center in (null, mean):
            rows = center + generator.standard_normal((self.draws, len(center)))
            few = fit_form(cells, rows, smaller, tolerance=ENOUGH).misfit
            many = fit_form(cells, rows, larger, tolerance=ENOUGH).misfit
            reductions.append(few - many)
            ratios.append((few - many) / many)
        critical = 1 - SIGNIFICANT
        known, estimated = (float((b >= np.quantile(a, critical)).mean()) for a, b in (reductions, ratios))
        return known, estimated

    def enough_seeds(self, smaller: Form, larger: Form, truth: Form) -> float:
        """The smallest number of seeds with the wanted power, by bisection."""
        low, high = 1, MOST_SEEDS
        if self.power(smaller, larger, truth, high)[0] < WANTED:
            return math.nan
        while high - low > 1:
            middle = (low + high) // 2
            if self.power(smaller, larger, truth, middle)[0] >= WANTED:
                high = middle
            else:
                low = middle
        return float(high)
