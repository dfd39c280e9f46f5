"""What a sum of two ridge functions allows: a network of two halves, each fitted on a line.

sin 4x sin 4y = cos 4(x - y) / 2 - cos 4(x + y) / 2. For x and y uniform on [-1, 1] both x - y and x + y have the
triangular density on [-2, 2] and the errors of the halves are next to uncorrelated, so that their squares add up.

Why the two protocols differ on measured data, in measured numbers.

Why a row of table 1 is as it is, in measured numbers, and what its columns mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from gatelab.data import Problem
from gatelab.errors import GatelabError
from gatelab.feedforward import unit as as_unit
from gatelab.scaling_laws import Law, Point, Scaling, Slope, fit_law, slope
from gatelab.solve import fit, predict
from gatelab.studies.scaling.errors import slope_reason
from gatelab.studies.scaling.rows import PROTOCOLS, UNITS, Measured, ProblemRow

POINTS = 10_000


def half(points: int = POINTS) -> Problem:
    """One of the two ridge functions, on points of the triangular density."""
    rng = np.random.default_rng(0)
    t, other = (rng.uniform(-1, 1, (points, 2)).sum(axis=1) for _ in range(2))
    wave = {"name": "cos(4t)/2", "interval": (-2.0, 2.0)}
    return Problem.from_arrays(t, np.cos(4 * t) / 2, test=(other, np.cos(4 * other) / 2), **wave)


def pair_errors(unit: str, widths: Sequence[int], points: int = POINTS) -> dict[int, float]:
    """The test RMSE of two fits on a line that share the neurons.

    >>> found = pair_errors("mlp", [32, 64], 2000)
    >>> 2 < found[32] / found[64] < 5
    True
    """
    line = half(points)
    parts = sorted({part for width in widths for part in (width // 2, width - width // 2)})
    error = {part: fit(unit, line, part).test_rmse for part in parts}
    return {width: float(np.hypot(error[width // 2], error[width - width // 2])) for width in widths}


def pair_slope(errors: dict[int, float]) -> Slope:
    return slope(np.array(list(errors), float), np.array(list(errors.values()))[:, None])


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
class RowFacts:
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


def facts(row: ProblemRow) -> RowFacts:
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
    return RowFacts(len(x), int(repeated.sum()), spread, int((y == y.max()).sum()), settings)


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


WIDE = 1.5  # test over training error from which on data count as what sets it
DEFINITIONS = (
    f"{PROTOCOLS['split'].capitalize()}: RMSE on data that were not trained on. {PROTOCOLS['paper'].capitalize()}: "
    "RMSE on the training data, as the reference code reports it. Errors of standardised targets are in units of "
    "their deviation.",
    "Slopes are against n, through the median of the seeds; brackets are 95 % intervals from resampling widths and "
    "seeds. Fits with at least half as many parameters as training values are left out (hollow in the figures).",
)
SEPARATE = (
    "Of measured data the true split trains on four fifths of the rows and the paper's protocol on all: these are "
    "different fits. Of synthetic problems both protocols read the same fits."
)


def how_measured(rows: Sequence[ProblemRow]) -> str:
    """Widths, seeds and options of each row."""
    said = []
    for row in rows:
        options = "".join(f", {name} {value}" for name, value in row.options.items())
        every = ", every width in the slope" if row.every else ""
        seeds = f"{row.seeds} seed{'s' * (row.seeds > 1)}"
        said.append(
            f"{row.label}: {len(row.widths)} widths n = {row.widths[0]}..{row.widths[-1]}, {seeds}{options}{every}"
        )
    return f"What was fitted. {'; '.join(said)}."


def row_reason(found: Measured) -> str:
    """The errors behind the slopes of a row, beside what theory grants."""
    row = found.row
    widths = row.widths
    said = []
    for unit in UNITS:
        test, train = found.errors(unit, "split"), found.training(unit)
        small, large = widths[0], widths[-1]
        said.append(
            f"{unit} {test[small]:.2g} to {test[large]:.2g} (training {train[small]:.2g} to {train[large]:.2g})"
        )
    return (
        f"{row.label}, test RMSE for n = {widths[0]}..{widths[-1]}: {', '.join(said)}. "
        + " ".join(_beside_theory(found, unit) for unit in UNITS)
        + gap_words({unit: (found.errors(unit, "split"), found.training(unit)) for unit in UNITS})
        + (_ridge_words(found) if row.ridge else "")
        + "".join(f" {slope_reason(found.curves['split'], unit).strip()}" for unit in UNITS if row.inputs == 1)
    )


def rate_words(ours: Slope, rate: float) -> str:
    """How a slope lies beside a rate.

    >>> rate_words(Slope(-1.3, -1.4, -1.1, 0, 5), -0.8), rate_words(Slope(-0.9, -1.0, -0.7, 0, 5), -0.8)
    ('steeper than', 'not told from')
    >>> rate_words(Slope(-0.5, -0.6, -0.3, 0, 5), -0.8)
    'flatter than'
    """
    if ours.low <= rate <= ours.high:
        return "not told from"
    return "steeper than" if ours.value < rate else "flatter than"


def _beside_theory(found: Measured, unit: str) -> str:
    ours, rate = found.slope(unit, "split"), found.row.worst_case(unit)
    return f"The {unit}'s {ours.value:.2f} is {rate_words(ours, rate)} the worst case {rate:.2f}."


def gap_words(errors: Mapping[str, tuple[dict[int, float], dict[int, float]]]) -> str:
    """Where test errors have left training errors behind, from (test, training) of each unit.

    >>> gap_words({"mlp": ({8: 1.0, 16: 0.5}, {8: 0.9, 16: 0.4}), "glu": ({8: 1.0, 16: 0.9}, {8: 0.9, 16: 0.3})})
    ' At n = 16 the test RMSE is 3.0 (glu) times the training RMSE: there the training points, not the unit, set it.'
    """
    large = max(width for test, _ in errors.values() for width in test)
    times = {unit: test[large] / train[large] for unit, (test, train) in errors.items()}
    wide = ", ".join(f"{ratio:.1f} ({unit})" for unit, ratio in times.items() if ratio > WIDE)
    if not wide:
        return ""
    data = "there the training points, not the unit, set it"
    return f" At n = {large} the test RMSE is {wide} times the training RMSE: {data}."


def _ridge_words(found: Measured) -> str:
    """What the structure of the target allows as n grows, and at the widths that were measured."""
    rates = ", ".join(f"{found.row.attainable(unit)} ({unit})" for unit in UNITS)
    said = f" The target is a sum of two ridge functions, so that {rates} are attainable as n grows."
    widths = found.row.widths
    if widths[0] < 4:  # halves of a neuron or two say nothing
        return said
    parts = []
    for unit in UNITS:
        pair, large = pair_errors(unit, widths), widths[-1]
        times = found.training(unit)[large] / pair[large]
        parts.append(f"{unit} {pair_slope(pair).value:.2f} ({times:.1f} times at n = {large})")
    return (
        f"{said} Two fits on a line that share the neurons have, over these widths, the slopes (and our training RMSE "
        f"is so many times theirs) {', '.join(parts)}: what is above 1 is left to the optimiser."
    )


def fits_table(found: Sequence[Measured]) -> pd.DataFrame:
    """A row a fit, labelled by its problem and by the data that it was trained on; no fit stands there twice."""
    parts = []
    for m in found:
        for protocol in PROTOCOLS if m.row.measured else ("split",):
            table = m.curves[protocol].table()
            table.insert(0, "problem", m.row.name)
            table.insert(1, "trained_on", "all rows" if protocol == "paper" else "training part")
            parts.append(table)
    return pd.concat(parts, ignore_index=True)
