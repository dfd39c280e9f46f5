"""Why the two protocols differ on measured data, in measured numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from gatelab.errors import GatelabError
from gatelab.problems import Problem
from gatelab.scaling import Law, Point, Scaling, fit_law
from gatelab.solve import fit, predict
from gatelab.studies.many_inputs import UNITS, Measured, Row
from gatelab.units import unit as as_unit

WORST = 0.01
MADE_AGAIN = 8
# Columns that were swept while the others were held: rows of one sweep are neighbours of each other.
SWEPT = {"airfoil": "frequency"}


def gap_table(found: Measured) -> pd.DataFrame:
    """A row a unit and width, medians of the seeds: the three errors, and how far test and training are apart."""
    rows = []
    for unit in UNITS:
        test, train, paper = found.errors(unit, "split"), found.training(unit), found.errors(unit, "paper")
        for width in found.sizes(unit):
            rows.append(
                {
                    "problem": found.row.name,
                    "unit": unit,
                    "width": width,
                    "parameters": as_unit(unit).parameter_count(width, found.row.inputs),
                    "split_train_rmse": train[width],
                    "split_test_rmse": test[width],
                    "test_over_train": test[width] / train[width],
                    "paper_protocol_rmse": paper[width],
                }
            )
    return pd.DataFrame(rows)


def turning(errors: dict[int, float]) -> int | None:
    """The width of the least error if wider networks were measured and are worse, else None.

    >>> turning({2: 0.5, 4: 0.3, 8: 0.4}), turning({2: 0.5, 4: 0.3})
    (4, None)
    """
    least = min(errors, key=lambda width: errors[width])
    return least if least < max(errors) else None


@lru_cache(maxsize=16)  # table and sentence ask for the same ones
def floor_law(study: Scaling, unit: str) -> Law | None:
    """E + A/P^a through the errors of a unit; None where the widths are too few for it."""
    points = [p for p in study.points if p.unit == unit and not p.flag]
    try:
        return fit_law([p.parameters for p in points], [1.0] * len(points), [p.test_rmse for p in points])
    except GatelabError:
        return None


def floors_table(found: Measured) -> pd.DataFrame:
    """The floor E of each unit under each protocol, with its interval."""
    rows = []
    for protocol, study in found.curves.items():
        for unit in UNITS:
            law = floor_law(study, unit)
            if law is not None:
                low, high = law.intervals.E
                line = {"problem": found.row.name, "unit": unit, "protocol": protocol}
                rows.append(line | {"E": law.E, "low": low, "high": high, "exponent": law.a, "points": law.points})
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Facts:
    """What the rows themselves say. `spread` is the deviation of targets among rows of equal inputs, NaN if none."""

    rows: int
    repeated: int
    spread: float
    at_maximum: int
    settings: int | None

    def sentence(self, label: str) -> str:
        repeats = (
            f"{self.repeated} share their inputs with another, and their targets differ by {self.spread:.2g} (RMS, in "
            "units of the target's deviation), which no network can undo"
            if self.repeated
            else "none shares its inputs with another, so that the noise cannot be read off repeated rows"
        )
        parts = [f"Of {self.rows} rows of {label}, {repeats}."]
        if self.at_maximum > 0.01 * self.rows:
            parts.append(f"{self.at_maximum} have the largest target, {self.at_maximum / self.rows:.1%}: it is a cap.")
        if self.settings is not None:
            parts.append(
                f"They are sweeps at {self.settings} settings of the other inputs, about "
                f"{self.rows / self.settings:.0f} rows each: a test row drawn at random has neighbours of its own "
                "sweep in training, so that even the true split asks for interpolation only."
            )
        return " ".join(parts)


def facts(row: Row) -> Facts:
    """Counts over all rows, which the paper's protocol keeps together."""
    everything = row.problem("paper")
    x, y = everything.train.x, everything.train.y[:, 0]
    _, group, count = np.unique(x, axis=0, return_inverse=True, return_counts=True)
    group = group.ravel()
    repeated = count[group] > 1
    mean = np.bincount(group, y) / count
    spread = float(np.sqrt(np.mean((y - mean[group])[repeated] ** 2))) if repeated.any() else np.nan
    swept = SWEPT.get(row.name)
    held = [i for i, name in enumerate(everything.columns) if name != swept]
    settings = len(np.unique(x[:, held], axis=0)) if swept in everything.columns else None
    return Facts(len(x), int(repeated.sum()), spread, int((y == y.max()).sum()), settings)


@dataclass(frozen=True)
class Outliers:
    """How much of the squared test error the worst hundredth of the rows carries, and how much the worst row alone.

    `reach` is the farthest input of that row in deviations from the mean, `typical` the median of all test rows.
    """

    unit: str
    width: int
    share: float
    alone: float
    rmse: float
    without: float
    reach: float
    typical: float

    @property
    def sentence(self) -> str:
        return (
            f"The widest gap up to n = {MADE_AGAIN} is that of a {self.unit} of {self.width} neurons: the worst "
            f"{WORST:.0%} of the test rows carry {self.share:.0%} of its squared error, one alone {self.alone:.0%}; "
            f"its RMSE is {self.rmse:.2f} with them and {self.without:.2f} without. The farthest input of the worst "
            f"row is {self.reach:.1f} deviations from the mean ({self.typical:.1f} in the median of the test rows)."
        )


def widest_gap(study: Scaling) -> Point:
    """The fit, among those small enough to be made again, whose test error is furthest from its training error."""
    small = [p for p in study.points if p.width <= MADE_AGAIN] or study.points
    return max(small, key=lambda p: p.test_rmse / p.train_rmse)


def outliers(found: Measured) -> Outliers:
    """One fit of the true split made again, to see in which rows its test error lies."""
    row, point = found.row, widest_gap(found.curves["split"])
    target = row.problem()
    again = fit(point.unit, target, point.width, seed=point.seed, **row.options)
    return outliers_in(target, predict(again.network, target.test.x), point.unit, point.width)


def outliers_in(target: Problem, values: np.ndarray, unit: str, width: int) -> Outliers:
    squares = np.square(values - target.test.y).sum(axis=1)
    far = np.abs(target.test.x).max(axis=1)
    rank = np.argsort(squares)
    rest, worst = np.split(rank, [len(rank) - max(1, round(WORST * len(rank)))])
    return Outliers(
        unit,
        width,
        float(squares[worst].sum() / squares.sum()),
        float(squares[rank[-1]] / squares.sum()),
        float(np.sqrt(squares.mean())),
        float(np.sqrt(squares[rest].mean())),
        float(far[rank[-1]]),
        float(np.median(far)),
    )


def explanation(found: Measured) -> str:
    """The difference of the protocols for one row, in numbers."""
    parts = []
    for unit in UNITS:
        test, train, paper = found.errors(unit, "split"), found.training(unit), found.errors(unit, "paper")
        small, large = min(test), max(test)
        turn = turning(test)
        turned = (
            f"the test RMSE is least at n = {turn} ({test[turn]:.3g}) and {test[large]:.3g} at n = {large}"
            if turn is not None
            else f"the test RMSE still falls at n = {large} ({test[large]:.3g})"
        )
        parts.append(
            f"{unit}: test over training RMSE is {test[small] / train[small]:.2f} at n = {small} and "
            f"{test[large] / train[large]:.2f} at n = {large}; {turned}, where the paper's protocol reports "
            f"{paper[large]:.3g}{_floor_words(found, unit)}."
        )
    return f"{found.row.label}, both protocols. {' '.join(parts)}"


def _floor_words(found: Measured, unit: str) -> str:
    laws = [floor_law(found.curves[protocol], unit) for protocol in ("split", "paper")]
    if any(law is None for law in laws):
        return ""
    said = [f"{law.E:.2g} [{law.intervals.E[0]:.2g}, {law.intervals.E[1]:.2g}]" for law in laws if law]
    return f"; a floor E + A/P^a fitted to each is E = {said[0]} on test rows and {said[1]} on training rows"
