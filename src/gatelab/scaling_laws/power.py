"""The power of a ladder to find that units differ, by simulation: which sizes and how many seeds it takes.

The law of a record is taken as true, and its seed variances are interpolated in log P. The critical value of the test
comes from ladders about the nearest law with one amplitude for all units.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
        raise GatelabError(f"sizes are {parameters.tolist()}; give {LEAST_SIZES} or more positive numbers")
    record = loosened(Cells.of(ladder, seed_noise(ladder)))

    def power(seeds: int) -> tuple[float, float]:
        return rejected_shares(record, design_cells(ladder, parameters, seeds), draws, seed)

    known, estimated = power(count)
    enough: float = 2 + bisect_left(range(2, MOST_SEEDS + 1), WANTED, key=lambda seeds: power(seeds)[0])
    if enough > MOST_SEEDS:
        enough = math.nan
    return pd.DataFrame([{"power": known, "power_f": estimated, "seeds_for_95": float(enough)}])


def design_cells(ladder: LadderLosses, parameters: Array, seeds: int) -> Cells:
    """Cells of all units at these sizes, whose means have the noise of this number of seeds."""
    noise, units, logs = seed_noise(ladder), len(ladder.units), np.log(parameters)
    variance = np.exp(np.interp(logs, np.log(ladder.parameters), np.log(noise.variance)))
    unit, size = (part.ravel() for part in np.indices((units, len(logs))))
    correlation = np.where(unit[:, None] == unit, 1.0, noise.correlation)
    covariance = variance[size] / seeds * correlation * (size[:, None] == size)
    root = np.linalg.cholesky(np.linalg.inv(covariance)).T
    center = float(logs.mean())
    return Cells(unit, size, logs[size] - center, np.zeros(len(unit)), root, np.empty((0, 0)), math.exp(center))


def rejected_shares(record: Cells, cells: Cells, draws: int, seed: int) -> tuple[float, float]:
    """The power of the test at these cells with known variances and with an estimated scale."""
    shifted = replace(cells, log_size=cells.log_size + math.log(cells.center / record.center))
    mean, alike = cells.root @ own_law(record).losses(shifted), cells.alike()
    null = cells.root @ fitted(alike, mean[None]).losses(alike)
    generator = np.random.default_rng(seed)
    reductions, ratios = [], []
    for center in (null, mean):
        rows = center + generator.standard_normal((draws, len(center)))
        few, many = (fitted(own, rows).misfit for own in (alike, cells))
        reductions.append(few - many)
        ratios.append((few - many) / many)
    critical = 1 - SIGNIFICANT
    known, estimated = (float((b >= np.quantile(a, critical)).mean()) for a, b in (reductions, ratios))
    return known, estimated
