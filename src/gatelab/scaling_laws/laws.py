"""The loss as a function of the numbers of parameters and data, L = E + A/P^a + B/D^b: `Law` and `fit_law`.

This is the form of Hoffmann et al. 2022 (*Training Compute-Optimal Large Language Models*, approach 3): E is the
irreducible loss, the second term is due to the finite network, the third to the finite data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array, finite_array
from gatelab.display import ProgressLike, one_line, reporting
from gatelab.errors import GatelabError, check_seed, real_number, whole_number
from gatelab.plotting.curves import law_figure
from gatelab.plotting.theme import html, saved
from gatelab.scaling_laws.law_search import STEEPEST, TERMS, Logs, again, best, log_law
from gatelab.statistics import LEVEL, Interval, check_level

Ends = tuple[float, float]
_UNKNOWN: Ends = (np.nan, np.nan)
LEAST_CELLS = 6  # different (P, D) that a law needs
_LARGEST_LOG = 700  # of a constant, near the overflow of floats
_POINTS_AT_ONCE = 20_000  # of all draws of a batch together, which fit the cache


class Intervals(NamedTuple):
    """The low and the high end for each constant, NaN if unknown."""

    E: Ends = _UNKNOWN
    A: Ends = _UNKNOWN
    a: Ends = _UNKNOWN
    B: Ends = _UNKNOWN
    b: Ends = _UNKNOWN


NO_INTERVALS = Intervals()


class Allocation(NamedTuple):
    """The optimal allocation of a budget: parameters, data, and the predicted loss."""

    P: Any
    D: Any
    L: Any


@dataclass(frozen=True)
class Law:
    """L = E + A/P^a + B/D^b. A constant that the data do not determine is NaN, or has an infinite interval.

    `rmse` is that of log L over the fitted `points`, `data` has the columns P, D and L, and `draws` the laws of the
    bootstrap as rows (log E, log A, log B, a, b). A law can also be made from five constants, such as published ones:

    >>> law = Law(E=1.69, A=406.4, a=0.34, B=410.7, b=0.28)
    >>> print(law, law.predict(70e9, 1.4e12).round(3))
    L = 1.69 + 406/P^0.34 + 411/D^0.28 1.937
    """

    E: float
    A: float
    a: float
    B: float
    b: float
    intervals: Intervals = NO_INTERVALS
    rmse: float = np.nan
    points: int = 0
    level: float = LEVEL
    data: tuple[Array, Array, Array] | None = field(default=None, repr=False, compare=False)
    draws: Array | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        return one_line(self, str(self))

    def __str__(self) -> str:
        terms = [three_digits(self.E)] * bool(self.E or not (self.A or self.B))
        for factor, size, exponent in ((self.A, "P", self.a), (self.B, "D", self.b)):
            terms += [f"{three_digits(factor)}/{size}^{three_digits(exponent)}"] * bool(factor)
        return f"L = {' + '.join(terms)}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats of the constants, one sentence each."""
        sentences = []
        sizes = self.data or (np.empty(0), np.empty(0))
        for name, power, term, exponent, size in (
            ("P", "A/P^a", self.A, self.a, sizes[0]),
            ("D", "B/D^b", self.B, self.b, sizes[1]),
        ):
            if len(size) and np.ptp(size) == 0:
                sentences.append(f"{name} is the same in every row: E includes {power}, which is not identifiable")
            elif not term:
                sentences.append(f"the loss does not fall with {name}: {power} is 0 and its exponent is undefined")
            elif exponent >= STEEPEST:
                sentences.append(f"{power} affects the smallest {name} only: its exponent is {STEEPEST:g} or more")
        return tuple(sentences)

    def predict(self, P: Any, D: Any) -> Any:
        """The law's loss for numbers or arrays of parameters and data."""
        with np.errstate(divide="ignore"):
            row = np.concatenate((np.log([self.E, self.A, self.B]), (self.a, self.b)))
        row = np.where(np.isnan(row), 1, row)  # exponents of absent terms
        return losses(row[None], P, D)[0][()]

    def band(self, P: Any, D: Any, *, level: float | None = None) -> tuple[Any, Any]:
        """The bootstrap interval of the law's loss; single measurements scatter more widely."""
        if self.draws is None or not len(self.draws):
            raise GatelabError("this law has no bootstrap draws, so no band; fit it with bootstrap=200")
        values = losses(self.draws, P, D)
        low, high = outer_ends(values, values, check_level(self.level if level is None else level))
        return low[()], high[()]

    def optimal(self, C: Any, *, flops_per: float = 6.0) -> Allocation:
        """The P and D of minimum loss for the compute C = flops_per · P · D, in closed form.

        P = (aA / bB)^(1/(a+b)) (C/k)^(b/(a+b)) with k = flops_per, and D = C / (k P). The default of 6 floating-point
        operations per parameter and example is that of a transformer's forward and backward pass.

        >>> best = Law(E=1.69, A=406.4, a=0.34, B=410.7, b=0.28).optimal(5.76e23)
        >>> f"{best.P:.3g} parameters, {best.D:.3g} tokens, loss {best.L:.3f}"
        '3.22e+10 parameters, 2.98e+12 tokens, loss 1.931'
        """
        for name, factor in (("P", self.A * self.a), ("D", self.B * self.b)):
            if not factor > 0:
                raise GatelabError(f"{self} has no term in {name}, so there is no optimal allocation")
        compute = np.asarray(C)
        if compute.dtype.kind not in "iuf" or not (np.isfinite(compute) & (compute > 0)).all():
            raise GatelabError(f"C is {C}; give positive numbers")
        product = np.log(compute / real_number("flops_per", flops_per, above=0))
        shift = np.log(self.a) + np.log(self.A) - np.log(self.b) - np.log(self.B)
        log_p = (shift + self.b * product) / (self.a + self.b)
        P, D = np.exp(log_p)[()], np.exp(product - log_p)[()]
        return Allocation(P, D, self.predict(P, D))

    def interval(self, constant: str) -> Interval:
        """A constant with its interval.

        >>> Law(E=1.69, A=406.4, a=0.34, B=0, b=np.nan).interval("a").value
        0.34
        """
        low, high = getattr(self.intervals, constant)
        return Interval(getattr(self, constant), low, high, self.level)

    def table(self) -> pd.DataFrame:
        """One row per constant, with its interval."""
        rows = [(name, getattr(self, name), *getattr(self.intervals, name)) for name in Intervals._fields]
        return pd.DataFrame(rows, columns=["constant", "value", "low", "high"])

    def plot(self, path: str | Path | None = None, *, ax: Any = None, title: str | None = None) -> Figure:
        """L against P for each D and against D for each P, with the law, its band, and E.

        Written to `path` if given, and drawn into axes `ax`: two, or one if P or D is the same in every row.
        """
        if self.data is None:
            raise GatelabError("this law was not fitted to data, which a figure needs; use fit_law")
        band = None
        if self.draws is not None and len(self.draws):
            band = self.band
        how = {"title": title or self.formula(), "captions": [f"{name} = {self.with_ends(name)}" for name in "abE"]}
        return saved(law_figure(*self.data, self.predict, band=band, floor=self.E, ax=ax, **how), path)

    def formula(self) -> str:
        r"""The law in matplotlib's mathtext.

        >>> Law(E=1e-6, A=40.7, a=3.04, B=0, b=np.nan).formula()
        '$L = 1\\times10^{-6} + 40.7/P^{3.04}$'
        """
        powers = re.sub(r"\^(\S+)", r"^{\1}", str(self))
        return "$" + re.sub(r"e([+-])0?(\d+)", lambda m: rf"\times10^{{{m[1].strip('+')}{m[2]}}}", powers) + "$"

    def with_ends(self, constant: str) -> str:
        """A constant with its interval, as text.

        >>> Law(E=1.69, A=406.4, a=0.34, B=0, b=np.nan).with_ends("A")
        '406'
        """
        interval = self.interval(constant)
        if np.isnan(interval.value):
            return "none"
        if not interval.known:
            return three_digits(interval.value)
        return f"{three_digits(interval.value)} [{three_digits(interval.low)}, {three_digits(interval.high)}]"

    def _repr_html_(self) -> str:
        rows = [(name, self.with_ends(name)) for name in "EAaBb"]
        if self.points:
            rows += [("points", str(self.points)), ("RMSE of log L", f"{self.rmse:.2g}")]
        rows += [("note", note) for note in self.notes]
        return html(str(self), rows, figure=None if self.data is None else self.plot())


def losses(x: Array, P: Any, D: Any) -> Array:
    """The losses (rows, ...) of laws (log E, log A, log B, a, b)."""
    P, D = np.broadcast_arrays(np.asarray(P, float), np.asarray(D, float))
    if not ((P > 0).all() and (D > 0).all()):
        raise GatelabError(f"P is {P} and D is {D}; give positive numbers of parameters and data")
    E, A, B, a, b = x.T.reshape(5, len(x), *(1,) * P.ndim)
    return np.exp(E) + np.exp(A - a * np.log(P)) + np.exp(B - b * np.log(D))


def outer_ends(low: Array, high: Array, level: float) -> tuple[Any, Any]:
    """The quantiles of `low` and `high` over rows between which the share `level` lies."""
    tail = (1 - level) / 2
    return np.quantile(low, tail, axis=0, method="lower"), np.quantile(high, 1 - tail, axis=0, method="higher")


def three_digits(value: float) -> str:
    """Three significant digits, without a power of ten for moderate numbers.

    >>> three_digits(1388.1), three_digits(0.3403), three_digits(1.2e7)
    ('1390', '0.34', '1.2e+07')
    """
    return f"{float(f'{value:.3g}'):g}"


def fit_law(
    P: Any,
    D: Any,
    L: Any,
    *,
    delta: float = 1e-3,
    bootstrap: int = 200,
    level: float = LEVEL,
    seed: int = 0,
    progress: ProgressLike = None,
) -> Law:
    """The law L = E + A/P^a + B/D^b with the smallest Huber loss of log L, with bootstrap intervals.

    All constants are at least 0; E, A or B can be 0, and exponents are at most 16.

    The bootstrap resamples pairs (P, D) with all their losses, since repeats, such as seeds, share the deviation of
    their pair from the law. Draws with fewer than three values of P or D are repeated. If a term vanishes in a share of
    the draws above 1 - level, the interval of its exponent is (0, inf). If P or D is the same in every row, the law
    without its term is fitted; see `notes`.

    Args:
        P: the number of parameters of each run.
        D: the number of data of each run.
        L: the loss of each run.
        delta: the Huber loss is linear for errors of log L beyond it, so that outliers have little influence.
        bootstrap: the number of draws; 0 for no intervals.
        level: the share of the draws between the ends of an interval.
        seed: of the draws.
        progress: False for no progress bar, or a function of (done, total) draws.

    Returns:
        The law with its intervals, its data and its draws.

    >>> P, D = (z.ravel() for z in np.meshgrid([1e7, 1e8, 1e9, 1e10], [1e9, 1e10, 1e11]))
    >>> print(fit_law(P, D, 1.69 + 406.4 / P**0.34 + 410.7 / D**0.28, bootstrap=0))
    L = 1.69 + 406/P^0.34 + 411/D^0.28
    """
    data = _checked(P, D, L, delta, bootstrap, level)
    p, d = np.log(data[0]), np.log(data[1])
    logs, center = Logs(p - p.mean(), d - d.mean(), np.log(data[2])), (float(p.mean()), float(d.mean()))
    terms = [t for t in TERMS if t == 0 or np.ptp(data[t - 1]) > 0]
    cell, draws = _draws(data, terms, bootstrap, seed)
    row = best(logs, delta, terms)
    at_once, rows = max(1, _POINTS_AT_ONCE // len(cell)), []
    with reporting(progress, "bootstrap") as report:
        for first in range(0, bootstrap, at_once):
            rows.append(again(logs, draws[first : first + at_once][:, cell], row, delta, terms))
            if report:
                report(min(first + at_once, bootstrap), bootstrap)
    value, many = _uncentered(row[None], center)[0], _uncentered(np.concatenate([np.empty((0, 5)), *rows]), center)
    if np.abs(value[:3][np.isfinite(value[:3])]).max() > _LARGEST_LOG:
        raise GatelabError("a constant of the law overflows; give P, D and L in other units")
    residual = log_law(logs, row[None])[0][0] - logs.y
    rmse = float(np.sqrt(np.mean(residual**2)))
    facts = {"rmse": rmse, "points": len(cell), "level": level, "data": data, "draws": many}
    return Law(*_constants(value[None])[0].tolist(), intervals=_intervals(many, level), **facts)


def _checked(P: Any, D: Any, L: Any, delta: float, bootstrap: int, level: float) -> tuple[Array, Array, Array]:
    """The three columns, checked."""
    columns = {name: finite_array(name, z, 1, "leave out failed runs") for name, z in (("P", P), ("D", D), ("L", L))}
    data = p, d, loss = tuple(columns.values())
    for name, column in columns.items():
        if not (column > 0).all():
            raise GatelabError(f"{name} holds {column.min():g}; give positive numbers, leave out failed runs")
    if len({len(column) for column in data}) > 1:
        raise GatelabError(f"P, D and L have {', '.join(str(len(c)) for c in data)} values; give one of each per run")
    cells = len(np.unique(np.stack((p, d)), axis=1).T)
    if cells < LEAST_CELLS:
        raise GatelabError(f"the table has {cells} different (P, D); give {LEAST_CELLS} or more for the 5 constants")
    counts = {name: len(np.unique(column)) for name, column in (("P", p), ("D", d))}
    for name, count in counts.items():
        if count == 2:
            raise GatelabError(f"{name} has 2 values; give 3 or more, or 1 for the law without that term")
    line = np.polynomial.Polynomial.fit(np.log(p), np.log(d), 1) if min(counts.values()) > 1 else None
    if line is not None and np.std(line(np.log(p)) - np.log(d)) < 1e-3 * np.std(np.log(d)):
        raise GatelabError("D is a power of P, so their terms are not identifiable; add runs that change one of them")
    real_number("delta", delta, above=0)
    whole_number("bootstrap", bootstrap, 0)
    check_level(level)
    return p, d, loss


def _uncentered(x: Array, center: tuple[float, float]) -> Array:
    """Rows for P and D, from rows for P and D over their geometric means."""
    x = x.copy()
    x[:, 1:3] += x[:, 3:] * center
    x[:, 3:][np.isinf(x[:, 1:3])] = 1  # of an absent term: any value except 0, since 0 * inf is NaN
    return x


def _draws(data: tuple[Array, Array, Array], terms: list[int], count: int, seed: int) -> tuple[np.ndarray, Array]:
    """The cell (P, D) of each point, and the number of times that each cell is drawn (count, cells)."""
    cells, cell = np.unique(np.stack(data[:2]), axis=1, return_inverse=True)
    cell, total = cell.ravel(), cells.shape[1]
    generator = np.random.default_rng(check_seed(seed))
    accepted, lacking = [np.empty((0, total))], count
    while lacking:
        drawn = generator.multinomial(total, np.full(total, 1 / total), size=max(64, 2 * lacking)).astype(float)
        usable = np.count_nonzero(drawn, axis=1) >= 2 * len(terms) - 1
        for term in terms[1:]:
            values = np.unique(cells[term - 1], return_inverse=True)[1].ravel()
            counts = drawn @ np.eye(values.max() + 1)[values]
            usable &= np.count_nonzero(counts, axis=1) >= 3
        accepted.append(drawn[usable][:lacking])
        lacking -= len(accepted[-1])
    return cell, np.concatenate(accepted)


def _constants(x: Array) -> Array:
    """E, A, a, B, b of each row; the exponent of an absent term is NaN."""
    with np.errstate(over="ignore"):
        factors = np.exp(x[:, :3])
    a, b = np.where(factors[:, 1:] > 0, x[:, 3:], np.nan).T
    return np.stack((factors[:, 0], factors[:, 1], a, factors[:, 2], b), axis=1)


def _intervals(x: Array, level: float) -> Intervals:
    if not len(x):
        return Intervals()
    values = _constants(x)
    # A draw without the term allows any exponent.
    ends = outer_ends(np.where(np.isnan(values), 0, values), np.where(np.isnan(values), np.inf, values), level)
    return Intervals(*zip(*(end.tolist() for end in ends), strict=True))
