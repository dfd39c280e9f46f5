"""The power of a ladder to find that units differ, by simulation: which sizes and how many seeds it takes.

The law of a record is taken as true, and its seed variances are interpolated in log P to the sizes of the design. The
critical value of the test comes from ladders about the nearest law with one amplitude for all units.
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
from gatelab.errors import GatelabError, check_seed, whole_number
from gatelab.scaling_laws.ladder_laws import Cells, fitted, loosened, own_law
from gatelab.scaling_laws.ladder_losses import LEAST_SIZES, SIGNIFICANT, LadderLosses, read_ladder, seed_noise

WANTED = 0.95  # the power that `seeds_for_95` has
MOST_SEEDS = 64


def ladder_power(
    table: LadderLosses | pd.DataFrame | Mapping[str, Any],
    *,
    sizes: Sequence[float] | None = None,
    seeds: int | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """The power to reject one law for all units with these sizes and seeds, if the law of a record is true.

    Args:
        table: the losses of a record, as for `fit_ladder`.
        sizes: numbers of parameters of the design; those of the record by default.
        seeds: per unit and size; those of the record by default.
        draws: the number of simulated ladders per law.
        seed: of the draws.

    Returns:
        One row: the power at the 5 % level with known seed variances (`power`) and with the scale of the noise
        estimated from the residuals (`power_f`); and the number of seeds for a power of 95 % with known variances, NaN
        if it is more than 64.
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
    known, estimated = design.power(count)
    return pd.DataFrame([{"power": known, "power_f": estimated, "seeds_for_95": design.enough_seeds()}])


@dataclass(frozen=True, eq=False)
class PowerDesign:
    """Sizes to be trained, with the law and the seed noise of a record."""

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

    def power(self, seeds: int) -> tuple[float, float]:
        """The power of the test with known variances and with an estimated scale."""
        cells = self.cells(seeds)
        shifted = replace(cells, log_size=cells.log_size + math.log(cells.center / self.record.center))
        mean, alike = cells.root @ own_law(self.record).losses(shifted), cells.alike()
        null = cells.root @ fitted(alike, mean[None]).losses(alike)
        generator = np.random.default_rng(self.seed)
        reductions, ratios = [], []
        for center in (null, mean):
            rows = center + generator.standard_normal((self.draws, len(center)))
            few, many = (fitted(own, rows).misfit for own in (alike, cells))
            reductions.append(few - many)
            ratios.append((few - many) / many)
        critical = 1 - SIGNIFICANT
        known, estimated = (float((b >= np.quantile(a, critical)).mean()) for a, b in (reductions, ratios))
        return known, estimated

    def enough_seeds(self) -> float:
        """The smallest number of seeds with the wanted power, by bisection."""
        low, high = 1, MOST_SEEDS
        if self.power(high)[0] < WANTED:
            return math.nan
        while high - low > 1:
            middle = (low + high) // 2
            if self.power(middle)[0] >= WANTED:
                high = middle
            else:
                low = middle
        return float(high)
