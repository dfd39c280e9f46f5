"""Laws in parameters and tokens, L = E + A P^-a + B D^-b: which of the constants differ between units.

A form is the letters of the constants that are separate for each unit: "" has one law for all units, "AB" an amplitude
of each term per unit. Laws are fitted to the mean over seeds of every unit, size and number of tokens, weighted by the
variance of the seeds in each cell ("cell") or over all cells of a size ("size"). Tests are parametric bootstraps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import nnls

from gatelab.arrays import AnyArray, Array
from gatelab.display import Listener, ProgressLike, one_line, part_of, reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.scaling_laws.ladder_losses import SIGNIFICANT
from gatelab.solve.marquardt import damped_step, descend
from gatelab.statistics import LEVEL, Interval, holm, percentile_interval, t_reach

Table = Any  # a data frame
Weights = Literal["size", "cell"]
WEIGHTS: tuple[Weights, ...] = ("size", "cell")
LETTERS = "EAaBb"
FORMS = ("", "A", "B", "AB", "ABa", "ABb", "ABE")
NESTED = (("", "A"), ("", "B"), ("A", "AB"), ("B", "AB"), ("AB", "ABa"), ("AB", "ABb"), ("AB", "ABE"))
COLUMNS = ("unit", "parameters", "tokens", "seed", "loss")
DRAWS = 2000
STEPS, TOLERANCE = 60, 1e-7
LEAST = 3  # sizes, and numbers of tokens
AT_ONCE = 500  # simulated tables
COEFFICIENTS = ("mean", "per doubling of parameters", "per doubling of tokens")
EXPONENTS = np.geomspace(0.1, 1.6, 7)  # where fits start, for a and for b


@dataclass(frozen=True, eq=False)
class TokenCells:
    """Losses by unit, size and number of tokens: one row per cell, one column per seed, NaN for missing seeds."""

    units: tuple[str, ...]
    unit: NDArray[np.intp]  # the index of each cell's unit
    parameters: Array
    tokens: Array
    losses: Array

    @classmethod
    def of(cls, table: Table) -> TokenCells:
        """Read a table with the columns unit, parameters, tokens, seed and loss."""
        missing = [name for name in COLUMNS if name not in table]
        if missing:
            raise GatelabError(f"the table has no column {', '.join(missing)}; give {', '.join(COLUMNS)}")
        wide = table.pivot_table(index=["unit", "parameters", "tokens"], columns="seed", values="loss", sort=False)
        wide = wide[wide.count(axis=1) > 1]
        if wide.empty:
            raise GatelabError("no cell has two seeds; give several seeds for every unit, size and number of tokens")
        names, parameters, tokens = (wide.index.get_level_values(level) for level in range(3))
        units = tuple(dict.fromkeys(names))
        unit = np.array([units.index(name) for name in names])
        return cls(units, unit, parameters.to_numpy(float), tokens.to_numpy(float), wide.to_numpy(float))

    @property
    def x(self) -> Array:
        """The logarithm of the parameters over their geometric mean."""
        return np.log(self.parameters) - np.log(self.parameters).mean()

    @property
    def y(self) -> Array:
        """The logarithm of the tokens over their geometric mean."""
        return np.log(self.tokens) - np.log(self.tokens).mean()

    def deviations(self, losses: Array, weights: Weights) -> Array:
        """Standard deviations of seeds by a rule; losses are (..., cells, seeds)."""
        variance = np.nanvar(losses, axis=-1, ddof=1)
        if weights == "size":
            same = self.parameters[:, None] == self.parameters
            variance = variance @ (same / same.sum(axis=1))
        return np.sqrt(variance)

    def weighted(self, losses: Array, weights: Weights) -> tuple[Array, Array]:
        """Means over seeds and the inverse of their standard errors."""
        counts = np.isfinite(self.losses).sum(axis=1)
        return np.nanmean(losses, axis=-1), np.sqrt(counts) / self.deviations(losses, weights)


class LawBatch:
    """A batch of fits of one form for `descend`, each with its own means and weights."""

    def __init__(self, cells: TokenCells, form: str, means: Array, roots: Array, theta: Array) -> None:
        self.x, self.y, self.columns = cells.x, cells.y, places(cells.unit, form)
        self.means, self.roots, self.theta, self.there = means, roots, theta.copy(), theta
        self.normal = np.zeros((*theta.shape, theta.shape[1])), np.zeros_like(theta)

    def weighted(self, members: Any, values: Array) -> Array:
        """Values (..., members, cells) times the roots of the weights; `roots` may be one matrix for all, (1, n, n)."""
        return values @ self.roots[0] if self.roots.ndim == 3 else values * self.roots[members]

    def rest(self, members: Any, theta: Array) -> Array:
        return self.weighted(members, law_losses(theta, self.columns, self.x, self.y) - self.means[members])

    def losses(self) -> Array:
        return np.square(self.rest(slice(None), self.theta)).sum(axis=1)

    def linearize(self, members: AnyArray) -> None:
        theta = self.theta[members]
        _, A, a, B, b = (theta[:, self.columns[letter]] for letter in LETTERS)
        first, second = np.exp(A - np.exp(a) * self.x), np.exp(B - np.exp(b) * self.y)
        slopes = (1.0, first, -np.exp(a) * self.x * first, second, -np.exp(b) * self.y * second)
        J = np.zeros((theta.shape[1], len(theta), len(self.x)))
        for letter, slope in zip(LETTERS, slopes, strict=True):
            J[self.columns[letter], :, np.arange(len(self.x))] = np.transpose(slope)
        J = self.weighted(members, J).transpose(1, 0, 2)
        self.normal[0][members] = J @ J.transpose(0, 2, 1)
        self.normal[1][members] = -np.einsum("mkn,mn->mk", J, self.rest(members, theta))

    def trial(self, members: AnyArray, damping: Array) -> tuple[Array, Array]:
        square, gradient = (torch.from_numpy(part[members]) for part in self.normal)
        step, promised = damped_step(square, gradient, torch.from_numpy(damping))
        self.there = self.theta[members] + step.numpy()
        return np.square(self.rest(members, self.there)).sum(axis=1), promised.numpy()

    def accept(self, members: AnyArray, rows: AnyArray) -> None:
        self.theta[members] = self.there[rows]


def places(unit: NDArray[np.intp], form: str) -> dict[str, NDArray[np.intp]]:
    """The column of each constant of the law, by letter and cell; `unit` is that of each cell."""
    columns, first = {}, 0
    for letter in LETTERS:
        columns[letter] = first + unit * (letter in form)
        first = int(columns[letter].max()) + 1
    return columns


def law_losses(theta: Array, columns: dict[str, NDArray[np.intp]], x: Array | float, y: Array | float) -> Array:
    """The losses of laws with their constants in these columns, at logarithms x of P and y of D, both centered."""
    E, A, a, B, b = (theta[..., columns[letter]] for letter in LETTERS)
    return E + np.exp(A - np.exp(a) * x) + np.exp(B - np.exp(b) * y)


def constants(units: int, form: str) -> int:
    """The number of constants of a form."""
    return len(LETTERS) + (units - 1) * len(form)


def expanded(theta: Array, units: int, smaller: str, larger: str) -> Array:
    """The constants of a form as those of a larger one."""
    parts, first = [], 0
    for letter in LETTERS:
        count = units if letter in smaller else 1
        part = theta[:, first : first + count]
        parts.append(np.repeat(part, units, axis=1) if letter in larger and count == 1 else part)
        first += count
    return np.concatenate(parts, axis=1)


def fitted(cells: TokenCells, form: str, means: Array, roots: Array, starts: Array) -> tuple[Array, Array]:
    """The constants of least misfit for rows of means, from a start for each, and their misfits."""
    batch = LawBatch(cells, form, means, roots, starts)
    descent = descend(batch, [STEPS] * len(starts), tolerance=TOLERANCE)
    return batch.theta, descent.loss


def first_fit(cells: TokenCells, form: str, means: Array, roots: Array) -> tuple[Array, float]:
    """The law of one row of means, from the best starts of a grid of exponents."""
    starts = []
    for a, b in itertools.product(EXPONENTS, repeat=2):
        design = np.stack([np.ones_like(cells.x), np.exp(-a * cells.x), np.exp(-b * cells.y)], axis=1)
        (E, A, B), misfit = nnls(design * roots[:, None], means * roots)
        starts.append((misfit, E, math.log(max(A, 1e-3)), math.log(a), math.log(max(B, 1e-3)), math.log(b)))
    best = np.array(sorted(starts)[:6])[:, 1:]
    theta = expanded(best, len(cells.units), "", form)
    theta, misfits = fitted(cells, form, np.tile(means, (6, 1)), np.tile(roots, (6, 1)), theta)
    return theta[misfits.argmin()], float(misfits.min())


@dataclass(frozen=True, eq=False, repr=False)
class TokenLaws:
    """Laws of all forms in parameters and tokens, with tests and intervals.

    Attributes:
        units: Their names.
        tests: One row per rule of variance (`weights`) and pair of nested forms, `smaller` the null hypothesis and
            `larger` empty for the lack of fit of "AB". The `statistic` is the reduction of the misfit per added
            constant over the remaining misfit per degree of freedom; for the lack of fit, the latter. `p` is the share
            of simulated tables about the smaller law with at least this statistic.
        weights: The rule of the variances for the constants.
        drawn: The constants of the form "AB" and of bootstrap draws about it, the data's own first.
        cells: The losses.
    """

    units: tuple[str, ...]
    tests: Table = field(repr=False)
    weights: Weights
    drawn: Array = field(repr=False)
    cells: TokenCells = field(repr=False)

    def __repr__(self) -> str:
        return one_line(self, f"{len(self.cells.unit)} cells of {', '.join(self.units)}")

    def table(self) -> Table:
        """One row per test."""
        return self.tests

    def constants(self) -> Table:
        """The constants of the form "AB", one row per unit; A and B are the terms at the center of the cells.

        Returns:
            A data frame with every constant and the ends of its interval over seeds.
        """
        columns = places(self.cells.unit, "AB")
        rows: list[dict[str, Any]] = []
        for u, unit in enumerate(self.units):
            row: dict[str, Any] = {"unit": unit}
            cell = int(np.flatnonzero(self.cells.unit == u)[0])
            for letter in LETTERS:
                values = self.drawn[:, columns[letter][cell]]
                if letter != "E":
                    values = np.exp(values)
                one = percentile_interval(float(values[0]), values[1:], LEVEL)
                row |= {letter: one.value, f"{letter}_low": one.low, f"{letter}_high": one.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def factor(self, unit: str, reference: str, of: Literal["parameters", "tokens"]) -> Interval:
        """The factor of parameters or tokens by which the reference would have the unit's term of the law.

        Args:
            unit: with the term to reach.
            reference: the unit whose parameters or tokens are multiplied.
            of: which of the two.

        Returns:
            The factor with its interval over seeds; above 1 if the unit is better.
        """
        amplitude, exponent = {"parameters": "Aa", "tokens": "Bb"}[of]
        columns = places(self.cells.unit, "AB")
        mine, other = (
            self.drawn[:, columns[amplitude][self.cells.unit == self.units.index(name)][0]]
            for name in (unit, reference)
        )
        values = np.exp((other - mine) / np.exp(self.drawn[:, columns[exponent][0]]))
        return percentile_interval(float(values[0]), values[1:], LEVEL)

    @property
    def preferred(self) -> str:
        """The form "AB", or the larger form with the smallest p against it if that is below 0.05 by both rules."""
        largest = self.tests.query("smaller == 'AB' and larger != ''").groupby("larger", sort=False)["p"].max()
        return largest.idxmin() if largest.min() < SIGNIFICANT else "AB"

    def predictions(
        self, pair: tuple[str, str], sizes: Sequence[float], tokens: float, *, seeds: int, draws: int = DRAWS
    ) -> Table:
        """Losses of two units and their difference beyond the cells, with 95 % intervals for means over new seeds.

        The bootstrap draws residuals of the preferred form for all units of a size and number of tokens together. In
        simulations with such deviations the 95 % intervals of differences held 97 %, those of losses 84 %.

        Args:
            pair: of units; the loss of the second is subtracted from that of the first.
            sizes: numbers of parameters.
            tokens: their number.
            seeds: of the trainings to be predicted; their deviation is that of the largest size of the cells.
            draws: of the bootstrap.

        Returns:
            A data frame with a row for each size and loss or difference: value, low and high.
        """
        cells, form, generator = self.cells, self.preferred, np.random.default_rng(0)
        means, roots = cells.weighted(cells.losses, self.weights)
        theta, _ = first_fit(cells, form, means, roots)
        columns = places(cells.unit, form)
        law = law_losses(theta, columns, cells.x, cells.y)
        keys, block = np.unique(np.stack([cells.parameters, cells.tokens], axis=1), axis=0, return_inverse=True)
        rest = np.full((len(keys), len(self.units)), np.nan)
        rest[block.ravel(), cells.unit] = (means - law) * roots * math.sqrt(len(law) / (len(law) - len(theta)))
        rest = rest[np.isfinite(rest).all(axis=1)]  # residuals of sizes and tokens that all units have
        if not len(rest):
            raise GatelabError("no size and number of tokens has all units; give trainings of all units")
        noise = rest[generator.integers(len(rest), size=(draws, len(keys)))][:, block.ravel(), cells.unit]
        thetas, _ = fitted(cells, form, law + noise / roots, np.tile(roots, (draws, 1)), np.tile(theta, (draws, 1)))
        first = np.array([np.flatnonzero(cells.unit == self.units.index(name))[0] for name in pair])
        own = {letter: column[first] for letter, column in columns.items()}
        largest = int(cells.parameters.argmax())
        deviation = cells.deviations(cells.losses, self.weights)[largest]
        fewer = max(0.0, 1 / seeds - 1 / np.isfinite(cells.losses[largest]).sum())
        y = math.log(tokens) - np.log(cells.tokens).mean()
        rows: list[dict[str, Any]] = []
        for size in sizes:
            x = math.log(size) - np.log(cells.parameters).mean()
            value, drawn = (law_losses(each, own, x, y) for each in (theta, thetas))
            drawn = drawn + rest[generator.integers(len(rest), size=draws)][:, cells.unit[first]] / roots[largest]
            drawn = drawn + deviation * math.sqrt(fewer) * generator.standard_normal(drawn.shape)
            names = (*pair, " - ".join(pair))
            for name, weight in zip(names, ([1, 0], [0, 1], [1, -1]), strict=True):
                one = percentile_interval(float(value @ weight), drawn @ weight, LEVEL)
                row = {"form": form, "parameters": size, "tokens": tokens, "loss": name}
                rows.append(row | {"value": one.value, "low": one.low, "high": one.high})
        return pd.DataFrame(rows)


def fit_token_laws(
    table: Table, *, weights: Weights = "size", draws: int = DRAWS, seed: int = 0, progress: ProgressLike = None
) -> TokenLaws:
    """Fit the laws L = E + A P^-a + B D^-b and test which constants differ between units.

    Args:
        table: one row per training, with the columns unit, parameters, tokens, seed and loss.
        weights: the rule of the variances for the constants; tests are made with both.
        draws: the number of simulated tables per test; the smallest p is 1 / (1 + draws).
        seed: of the draws.
        progress: whether to show progress, or a function of done and total.

    Returns:
        The laws, with tests, constants and predictions.
    """
    whole_number("draws", draws, 20)
    cells = TokenCells.of(table)
    for name, values in (("parameters", cells.parameters), ("tokens", cells.tokens)):
        if len(set(values)) < LEAST:
            raise GatelabError(f"the table has {len(set(values))} numbers of {name}; give {LEAST} or more")
    if len(cells.unit) <= constants(len(cells.units), "ABE"):
        raise GatelabError(f"{len(cells.unit)} cells do not determine the laws; give more sizes or numbers of tokens")
    tests: list[dict[str, Any]] = []
    pairs: list[tuple[Weights, Any]] = list(itertools.product(WEIGHTS, (*NESTED, ("AB", ""))))
    nulls = {
        (rule, form): Simulation(cells, form, rule, *first_fit(cells, form, *cells.weighted(cells.losses, rule)))
        for rule, form in itertools.product(WEIGHTS, FORMS[:4])
    }
    with reporting(progress, "laws in tokens") as report:
        for i, (rule, (smaller, larger)) in enumerate(pairs):
            generator, part = np.random.default_rng([seed, i]), part_of(report, i, len(pairs))
            tests.append(nulls[rule, smaller].test(larger, draws, generator, part))
        simulation = nulls[weights, "AB"]
        simulated = simulation.losses(draws, np.random.default_rng([seed, len(pairs)]))
        starts = np.tile(simulation.theta, (draws, 1))
        drawn, _ = fitted(cells, "AB", *cells.weighted(simulated, weights), starts)
    return TokenLaws(cells.units, pd.DataFrame(tests), weights, np.concatenate((simulation.theta[None], drawn)), cells)


@dataclass(frozen=True, eq=False)
class Simulation:
    """Simulated seeds about a law that was fitted to the cells: the null hypothesis of a test."""

    cells: TokenCells
    form: str
    weights: Weights
    theta: Array
    misfit: float

    def losses(self, draws: int, generator: np.random.Generator) -> Array:
        """Losses (draws, cells, seeds) with the standard deviations of the rule; missing seeds stay missing."""
        cells = self.cells
        law = law_losses(self.theta, places(cells.unit, self.form), cells.x, cells.y)
        noise = generator.standard_normal((draws, *cells.losses.shape))
        noise[:, np.isnan(cells.losses)] = np.nan
        return law[:, None] + cells.deviations(cells.losses, self.weights)[:, None] * noise

    def statistic(self, larger: str, null: Array, theta: Array, means: Array, roots: Array) -> Array:
        """The F statistic of each row against a larger form; its misfit per degree of freedom without one."""
        units, n = len(self.cells.units), len(self.cells.unit)
        few, many = constants(units, self.form), constants(units, larger)
        if not larger:
            return null / (n - few)
        _, free = fitted(self.cells, larger, means, roots, expanded(theta, units, self.form, larger))
        return np.maximum(null - free, 0.0) / (many - few) / (free / (n - many))

    def test(
        self, larger: str, draws: int, generator: np.random.Generator, report: Listener | None = None
    ) -> dict[str, Any]:
        """A test of the form against a larger one; without one, of its lack of fit."""
        own = [part[None] for part in self.cells.weighted(self.cells.losses, self.weights)]
        value = self.statistic(larger, np.array([self.misfit]), self.theta[None], *own)[0]
        exceeding = 0
        for first in range(0, draws, AT_ONCE):
            count = min(AT_ONCE, draws - first)
            rows = self.cells.weighted(self.losses(count, generator), self.weights)
            theta, null = fitted(self.cells, self.form, *rows, np.tile(self.theta, (count, 1)))
            exceeding += int((self.statistic(larger, null, theta, *rows) >= value).sum())
            if report:
                report(first + count, draws)
        row = {"weights": self.weights, "smaller": self.form, "larger": larger, "statistic": float(value)}
        return row | {"p": (1 + exceeding) / (1 + draws)}


def token_differences(table: Table, pairs: Sequence[tuple[str, str]]) -> Table:
    """Differences of units, paired by seed, and their change per doubling of parameters and of tokens.

    Differences of each size and number of tokens are regressed on log2 P and log2 D, both minus their means, with
    weights by seed variance and an estimated scale of the residuals.

    Args:
        table: one row per training, with the columns unit, parameters, tokens, seed and loss.
        pairs: of units; the loss of the second is subtracted from that of the first.

    Returns:
        A data frame with a row per pair, rule of variances and coefficient (mean, per doubling of parameters, per
        doubling of tokens): value, low, high, p, and p after Holm's correction over the rows of a rule.
    """
    rows: list[dict[str, Any]] = []
    wide = table.pivot_table(index=["parameters", "tokens", "seed"], columns="unit", values="loss")
    for (first, second), weights in itertools.product(pairs, WEIGHTS):
        apart = (wide[first] - wide[second]).dropna().rename("loss").reset_index().assign(unit=f"{first} - {second}")
        cells = TokenCells.of(apart)
        means, roots = cells.weighted(cells.losses, weights)
        X = np.stack([np.ones(len(means)), cells.x / math.log(2), cells.y / math.log(2)], axis=1)
        covariance = np.linalg.inv((X * roots[:, None] ** 2).T @ X)
        beta = covariance @ (X.T @ (roots**2 * means))
        freedom = len(means) - X.shape[1]
        errors = np.sqrt(np.diag(covariance) * (((means - X @ beta) * roots) ** 2).sum() / freedom)
        reach = t_reach(LEVEL, freedom) * errors
        p = 2 * stats.t.sf(np.abs(beta / errors), freedom)
        for k, name in enumerate(COEFFICIENTS):
            row = {"first": first, "second": second, "weights": weights, "coefficient": name, "value": beta[k]}
            rows.append(row | {"low": beta[k] - reach[k], "high": beta[k] + reach[k], "p": p[k]})
    made = pd.DataFrame(rows)
    return made.assign(p_holm=made.groupby("weights")["p"].transform(holm))
