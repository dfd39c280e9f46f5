"""The power of a ladder's tests, by simulation: which sizes and how many seeds a question takes.

The laws of a record are taken as true, and its seed variances are interpolated in log P to the sizes of the design. The
critical value of each test comes from ladders about the law of its null hypothesis that is nearest to the true one. The
laws and the names of their forms are those of `token_laws` at one number of tokens, where the data term is part of E;
E is not bounded below.
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
from gatelab.display import ProgressLike, reporting
from gatelab.errors import GatelabError, check_seed, whole_number
from gatelab.scaling_laws import ladder_laws, token_laws
from gatelab.scaling_laws.ladder_laws import Cells, loosened
from gatelab.scaling_laws.ladder_losses import LEAST_SIZES, SIGNIFICANT, LadderLosses, read_ladder, seed_noise
from gatelab.scaling_laws.token_laws import TokenCells, expanded, law_losses, places

WANTED = 0.95  # the power that `seeds_for_95` has
MOST_SEEDS = 64
# What a test asks, the forms of its null hypothesis, of the larger law and of the law that is true.
QUESTIONS = (
    ("units differ", "", "A", "A"),
    ("exponents differ, against an offset", "A", "Aa", "Aa"),
    ("exponents differ, against a shift", "E", "Ea", "Aa"),
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
        One row per test: the question; the letters of the constants that are separate for each unit in the law that is
        true; the p value of the test in the record itself; the power at the 5 % level with known seed variances
        (`power`) and with the scale of the noise estimated from the residuals (`power_f`); and the number of seeds for
        a power of 95 % with known variances, NaN if it is more than 64.
    """
    ladder = table if isinstance(table, LadderLosses) else read_ladder(table)
    whole_number("draws", draws, 100)
    check_seed(seed)
    count = whole_number("seeds", len(ladder.seeds) if seeds is None else seeds, 2)
    parameters = np.unique(np.asarray(ladder.parameters if sizes is None else sizes, float))
    if len(parameters) < LEAST_SIZES or not 0 < parameters[0] <= parameters[-1] < math.inf:
        raise GatelabError(f"sizes are {parameters.tolist()}; give {LEAST_SIZES} or more different positive numbers")
    record, rows = loosened(Cells.of(ladder, seed_noise(ladder))), []
    with reporting(progress, "simulated tests") as report:
        for question, *forms in QUESTIONS:

            def power(seeds: int, forms: list[str] = forms) -> tuple[float, float]:
                return rejected_shares(record, design_cells(ladder, parameters, seeds), forms, draws, seed)

            enough = 2.0 + bisect_left(range(2, MOST_SEEDS + 1), WANTED, key=lambda seeds: power(seeds)[0])
            p = p_value(record, forms, draws, seed)
            rows.append((question, forms[-1], p, *power(count), enough if enough <= MOST_SEEDS else math.nan))
            if report:
                report(len(rows), len(QUESTIONS))
    return pd.DataFrame(rows, columns=["question", "true", "p", "power", "power_f", "seeds_for_95"])


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


def fitted(cells: Cells, form: str, means: Array, starts: Array) -> tuple[Array, Array]:
    """The constants of least misfit for rows of means, from a start for each, and their misfits."""
    n = len(cells.unit)
    alike = TokenCells((), cells.unit, np.exp(cells.log_size), np.ones(n), np.empty((n, 0)))
    return token_laws.fitted(alike, form, means, cells.root.T[None], starts)


def first_fit(cells: Cells, form: str, means: Array) -> Array:
    """The constants of one row of means, from the law with one amplitude for all units; B is 0."""
    E, excess, exponent, _ = ladder_laws.fitted(cells.alike(), (cells.root @ means)[None])
    start = np.array([[E[0], math.log(max(excess[0, 0], 1e-3)), math.log(exponent[0]), -math.inf, 0.0]])
    return fitted(cells, form, means[None], expanded(start, len(set(cells.unit)), "", form))[0]


def losses(theta: Array, cells: Cells, form: str) -> Array:
    """The losses of one law at the cells."""
    return law_losses(theta[0], places(cells.unit, form), cells.log_size, 0.0)


def reductions(cells: Cells, forms: Sequence[str], near: Array, means: Array) -> tuple[Array, Array]:
    """By how much and by what factor the larger law lowers the misfit of rows of means, which lie near a law."""
    smaller, larger, _ = forms
    theta, few = fitted(cells, smaller, means, np.repeat(near, len(means), axis=0))
    _, many = fitted(cells, larger, means, expanded(theta, len(set(cells.unit)), smaller, larger))
    return few - many, few / many


def simulated(cells: Cells, center: Array, draws: int, generator: np.random.Generator) -> Array:
    """Rows of means about a law with the noise of the cells."""
    return center + generator.standard_normal((draws, len(center))) @ np.linalg.inv(cells.root.T)


def p_value(record: Cells, forms: Sequence[str], draws: int, seed: int) -> float:
    """The p value of a test in the record, with an estimated scale, from ladders about its null law."""
    near = first_fit(record, forms[0], record.means)
    rows = simulated(record, losses(near, record, forms[0]), draws, np.random.default_rng(seed))
    own, *others = reductions(record, forms, near, np.concatenate((record.means[None], rows)))[1]
    return float((1 + np.greater_equal(others, own).sum()) / (1 + draws))


def rejected_shares(record: Cells, cells: Cells, forms: Sequence[str], draws: int, seed: int) -> tuple[float, float]:
    """The power of a test at these cells with known variances and with an estimated scale.

    `forms` are the null hypothesis, the larger law, and the law that is true.
    """
    smaller, _, truth = forms
    moved = replace(cells, log_size=cells.log_size + math.log(cells.center / record.center))
    mean = losses(first_fit(record, truth, record.means), moved, truth)
    near = first_fit(cells, smaller, mean)
    generator = np.random.default_rng(seed)
    centers = losses(near, cells, smaller), mean
    null, true = (reductions(cells, forms, near, simulated(cells, center, draws, generator)) for center in centers)
    known, estimated = (float((b >= np.quantile(a, 1 - SIGNIFICANT)).mean()) for a, b in zip(null, true, strict=True))
    return known, estimated
