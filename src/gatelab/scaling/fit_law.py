"""`fit_law`: the law in P and D from a table, with bootstrap intervals. `law_search.py` finds the minimum."""

from __future__ import annotations

from typing import Any

import numpy as np

from gatelab.display import ProgressLike, reporting
from gatelab.errors import GatelabError, check_seed
from gatelab.scaling.law import Intervals, Law, ends_of
from gatelab.scaling.law_grid import TERMS, Array, Logs
from gatelab.scaling.law_search import again, best, log_law

LEAST = 6
_POINTS = 20_000  # of all draws of a batch together: what the cache holds


def fit_law(
    P: Any,
    D: Any,
    L: Any,
    *,
    delta: float = 1e-3,
    bootstrap: int = 200,
    level: float = 0.95,
    seed: int = 0,
    progress: ProgressLike = None,
) -> Law:
    """The law L = E + A/P^a + B/D^b of the least Huber loss of log L, all constants >= 0, with bootstrap intervals.

    Errors of log L beyond `delta` count by their size, not its square: a run that went wrong does not bend the law.
    Any E, A or B may be 0. Exponents reach up to 16.

    The bootstrap draws (P, D) with all that was measured there: repeats, say seeds, share whatever keeps their (P, D)
    off the law, and drawn one by one they would make intervals too narrow. Draws that cannot determine the law (fewer
    than three values of P or D) are drawn again. Where a term vanishes in more draws than the level leaves out, its
    exponent has the interval (0, inf). The constants A and B are those at P = 1 and D = 1, mostly far from the data,
    and their intervals are as wide as that. `progress` is shown on a terminal and in a notebook unless it is False, or
    a function of (done, total) draws.

    If P or D is the same in every row, its term cannot be told from E, and the law without it is fitted; see `notes`.

    >>> P, D = (z.ravel() for z in np.meshgrid([1e7, 1e8, 1e9, 1e10], [1e9, 1e10, 1e11]))
    >>> print(fit_law(P, D, 1.69 + 406.4 / P**0.34 + 410.7 / D**0.28, bootstrap=0))
    L = 1.69 + 406/P^0.34 + 411/D^0.28
    """
    data = _checked(P, D, L, delta, bootstrap, level)
    logs, centre = _logs(*data)
    terms = [t for t in TERMS if t == 0 or np.ptp(data[t - 1]) > 0]
    cell, draws = _draws(data, terms, bootstrap, seed)
    row = best(logs, np.ones(len(cell)), delta, terms)
    at_once, rows = max(1, _POINTS // len(cell)), []
    with reporting(progress, "bootstrap") as report:
        for first in range(0, bootstrap, at_once):
            rows.append(again(logs, draws[first : first + at_once][:, cell], row, delta, terms))
            if report:
                report(min(first + at_once, bootstrap), bootstrap)
    value, many = _uncentred(row[None], centre)[0], _uncentred(np.concatenate([np.empty((0, 5)), *rows]), centre)
    if np.abs(value[:3][np.isfinite(value[:3])]).max() > 700:
        raise GatelabError("a constant of the law is beyond what a float holds; give P, D and L in other units")
    residual = log_law(logs, row[None])[0][0] - logs.y
    return Law(
        **_constants(value[None])[0],
        intervals=_intervals(many, level),
        rmse=float(np.sqrt(np.mean(residual**2))),
        points=len(cell),
        level=level,
        data=data,
        draws=many,
    )


def _checked(P: Any, D: Any, L: Any, delta: float, bootstrap: int, level: float) -> tuple[Array, Array, Array]:
    """The three columns, if a law can be fitted to them."""
    data = tuple(_column(name, values) for name, values in (("P", P), ("D", D), ("L", L)))
    if len({len(column) for column in data}) > 1:
        raise GatelabError(f"P, D and L have {', '.join(str(len(c)) for c in data)} values; give one of each a run")
    p, d, loss = data
    cells = len(np.unique(np.stack((p, d)), axis=1).T)
    if cells < LEAST:
        raise GatelabError(f"the law has 5 constants and the table {cells} different (P, D); give {LEAST} or more")
    counts = {name: len(np.unique(column)) for name, column in (("P", p), ("D", d))}
    for name, count in counts.items():
        if count == 2:
            raise GatelabError(
                f"{name} has 2 values; its exponent needs 3 or more (with 1, the law without that term is fitted)"
            )
    if min(counts.values()) > 1 and _tied(np.log(p), np.log(d)):
        raise GatelabError(
            "D is a power of P throughout, so that the terms of P and D cannot be told apart; "
            "add runs that change one and keep the other"
        )
    if not (np.isfinite(delta) and delta > 0):
        raise GatelabError(f"delta is {delta}; give a positive number, such as 1e-3")
    if bootstrap < 0 or not 0 < level < 1:
        raise GatelabError(f"bootstrap is {bootstrap} and level {level}; give 0 or more, and a level such as 0.95")
    return p, d, loss


def _column(name: str, values: Any) -> Array:
    try:
        column = np.array(values, dtype=float)
    except (TypeError, ValueError):
        raise GatelabError(f"{name} does not hold numbers; give an array with a number for each run") from None
    if column.ndim != 1:
        raise GatelabError(f"{name} has shape {column.shape}; give one dimension, a number for each run")
    wrong = np.flatnonzero(~(np.isfinite(column) & (column > 0)))
    if len(wrong):
        raise GatelabError(f"{name}[{wrong[0]}] is {column[wrong[0]]}; give positive numbers, leave out failed runs")
    return column


def _tied(p: Array, d: Array) -> bool:
    """Whether log D is a line in log P, to a thousandth of its range."""
    line = np.polynomial.Polynomial.fit(p, d, 1)
    return float(np.std(line(p) - d)) < 1e-3 * float(np.std(d))


def _logs(P: Array, D: Array, L: Array) -> tuple[Logs, tuple[float, float]]:
    p, d = np.log(P), np.log(D)
    return Logs(p - p.mean(), d - d.mean(), np.log(L)), (float(p.mean()), float(d.mean()))


def _uncentred(x: Array, centre: tuple[float, float]) -> Array:
    """Rows for P and D over their geometric means as rows for P and D themselves."""
    x = x.copy()
    x[:, 1:3] += x[:, 3:] * centre
    x[:, 3:][np.isinf(x[:, 1:3])] = 1  # of a term that is not there: any but 0, which times infinity is no number
    return x


def _draws(data: tuple[Array, Array, Array], terms: list[int], count: int, seed: int) -> tuple[np.ndarray, Array]:
    """The cell of each point, a cell being a (P, D), and how often each cell is drawn (count, cells)."""
    cells, cell = np.unique(np.stack(data[:2]), axis=1, return_inverse=True)
    cell, total = cell.ravel(), cells.shape[1]
    generator = np.random.default_rng(check_seed(seed))
    kept, lacking = [np.empty((0, total))], count
    while lacking:
        drawn = generator.multinomial(total, np.full(total, 1 / total), size=max(64, 2 * lacking)).astype(float)
        usable = np.count_nonzero(drawn, axis=1) >= 2 * len(terms) - 1
        for term in terms[1:]:
            values = np.unique(cells[term - 1], return_inverse=True)[1].ravel()
            seen = drawn @ np.eye(values.max() + 1)[values]
            usable &= np.count_nonzero(seen, axis=1) >= 3
        kept.append(drawn[usable][:lacking])
        lacking -= len(kept[-1])
    return cell, np.concatenate(kept)


def _constants(x: Array) -> list[dict[str, float]]:
    """E, A, a, B, b of each row; the exponent of a term that is not there is NaN."""
    with np.errstate(over="ignore"):
        factors = np.exp(x[:, :3])
    exponents = np.where(factors[:, 1:] > 0, x[:, 3:], np.nan)
    columns = (factors[:, 0], factors[:, 1], exponents[:, 0], factors[:, 2], exponents[:, 1])
    return [dict(zip(Intervals._fields, map(float, row), strict=True)) for row in zip(*columns, strict=True)]


def _intervals(x: Array, level: float) -> Intervals:
    if not len(x):
        return Intervals()
    drawn = {name: np.array([row[name] for row in _constants(x)]) for name in Intervals._fields}
    ends = {}
    for name, values in drawn.items():
        # A draw without the term allows its exponent to be anything.
        low, high = ends_of(np.where(np.isnan(values), 0, values), np.where(np.isnan(values), np.inf, values), level)
        ends[name] = (float(low), float(high))
    return Intervals(**ends)
