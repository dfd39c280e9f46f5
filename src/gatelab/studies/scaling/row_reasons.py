"""Why a row of table 1 is as it is, in measured numbers: theory, the target, the data, and the two protocols.

The target sin 4x sin 4y = cos 4(x - y) / 2 - cos 4(x + y) / 2 is a sum of two ridge functions, and a network may be two
halves, each fitted on a line. For x and y uniform on [-1, 1] both x - y and x + y have the triangular density on
[-2, 2] and the errors of the halves are next to uncorrelated, so that their squares add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from gatelab.arrays import Array
from gatelab.data import Problem
from gatelab.display import counted
from gatelab.errors import GatelabError
from gatelab.feedforward import unit as as_unit
from gatelab.scaling_laws import Law, Point, Scaling, Slope, fit_law, slope
from gatelab.solve import fit, predict
from gatelab.studies.scaling.error_curves import slope_reason
from gatelab.studies.scaling.printed import PROTOCOLS, UNITS
from gatelab.studies.scaling.problem_rows import FittedRow, ProblemRow

POINTS = 10_000
WORST = 0.01  # the part of the test rows that is looked at for outliers
REFITTED = 8  # the widest network that is fitted once more to look at its errors
WIDE = 1.5  # test over training error from which on data count as what sets it
# Columns that were swept at fixed values of the others: rows of one sweep are neighbours of each other.
SWEPT = {"airfoil": "frequency"}
DEFINITIONS = (
    f"{PROTOCOLS['split'].capitalize()}: RMSE on data that were not trained on. {PROTOCOLS['paper'].capitalize()}: "
    "RMSE on the training data, as the paper's code reports it of Friedman's problems and of measured data; targets "
    "of one and two inputs it tests on points of their own, so that the two are one there. Errors of standardised "
    "targets are in units of their deviation.",
    "Slopes are against n, through the median of the seeds; brackets are 95 % intervals from resampling widths and "
    "seeds. Fits with at least half as many parameters as training values are left out (hollow in the figures).",
)
SEPARATE = (
    "Of measured data the true split trains on four fifths of the rows and the paper's protocol on all: these are "
    "different fits. Of synthetic problems both protocols read the same fits. All are trained as near to their optimum "
    "as our solvers come; `scaling/method` has our Newton in the stages of the paper's code."
)


def row_reason(fitted: FittedRow) -> str:
    """The errors behind the slopes of a row, beside what theory grants."""
    row, split = fitted.row, fitted.curves["split"]
    small, large = row.widths[0], row.widths[-1]
    ranges, beside_theory = [], []
    for unit in UNITS:
        test, train = fitted.errors(unit, "split"), fitted.training(unit)
        ranges.append(
            f"{unit} {test[small]:.2g} to {test[large]:.2g} (training {train[small]:.2g} to {train[large]:.2g})"
        )
        ours, rate = fitted.slope(unit, "split"), row.worst_case(unit)
        words = rate_words(ours, rate)
        beside_theory.append(f"The {unit}'s {ours.value:.2f} is {words} the worst case {rate:.2f}.")
    sentences = [f"{row.label}, test RMSE for n = {small}..{large}: {', '.join(ranges)}.", *beside_theory]
    sentences.append(gap_words({unit: (fitted.errors(unit, "split"), fitted.training(unit)) for unit in UNITS}))
    if row.ridge:
        sentences.append(ridge_words(fitted))
    if row.inputs == 1:
        sentences += [slope_reason(split, unit).strip() for unit in UNITS]
    return " ".join(filter(None, sentences))


def rate_words(ours: Slope, rate: float) -> str:
    """How a slope lies beside a rate.

    >>> rate_words(Slope(-1.3, -1.4, -1.1, 0, 5), -0.8), rate_words(Slope(-0.9, -1.0, -0.7, 0, 5), -0.8)
    ('steeper than', 'not told from')
    >>> rate_words(Slope(-0.5, -0.6, -0.3, 0, 5), -0.8)
    'flatter than'
    """
    if not ours.excludes(rate):
        return "not told from"
    if ours.value < rate:
        return "steeper than"
    return "flatter than"


def gap_words(errors: Mapping[str, tuple[dict[int, float], dict[int, float]]]) -> str:
    """Where test errors have left training errors behind, from (test, training) of each unit.

    >>> gap_words({"mlp": ({8: 1.0, 16: 0.5}, {8: 0.9, 16: 0.4}), "glu": ({8: 1.0, 16: 0.9}, {8: 0.9, 16: 0.3})})
    'At n = 16 the test RMSE is 3.0 (glu) times the training RMSE: there the training points, not the unit, set it.'
    """
    large = max(width for test, _ in errors.values() for width in test)
    times = {unit: test[large] / train[large] for unit, (test, train) in errors.items()}
    wide = ", ".join(f"{ratio:.1f} ({unit})" for unit, ratio in times.items() if ratio > WIDE)
    if not wide:
        return ""
    data = "there the training points, not the unit, set it"
    return f"At n = {large} the test RMSE is {wide} times the training RMSE: {data}."


def ridge_words(fitted: FittedRow) -> str:
    """What the structure of the target allows as n grows, and at the widths that were measured."""
    rates = ", ".join(f"{fitted.row.attainable(unit)} ({unit})" for unit in UNITS)
    structure = f"The target is a sum of two ridge functions, so that {rates} are attainable as n grows."
    widths = fitted.row.widths
    if widths[0] < 4:  # halves of a neuron or two say nothing
        return structure
    parts = []
    for unit in UNITS:
        pair, large = pair_errors(unit, widths), widths[-1]
        line = slope(np.array(list(pair), float), np.array(list(pair.values()))[:, None])
        times = fitted.training(unit)[large] / pair[large]
        parts.append(f"{unit} {line.value:.2f} ({times:.1f} times at n = {large})")
    return (
        f"{structure} Two fits on a line that share the neurons have, over these widths, the slopes (and our training "
        f"RMSE is so many times theirs) {', '.join(parts)}: what is above 1 is left to the optimiser."
    )


def pair_errors(unit: str, widths: Sequence[int], points: int = POINTS) -> dict[int, float]:
    """The test RMSE of two fits on a line that share the neurons.

    >>> errors = pair_errors("mlp", [32, 64], 2000)
    >>> 2 < errors[32] / errors[64] < 5
    True
    """
    line = ridge_problem(points)
    parts = sorted({part for width in widths for part in (width // 2, width - width // 2)})
    error = {part: fit(unit, line, part).test_rmse for part in parts}
    return {width: float(np.hypot(error[width // 2], error[width - width // 2])) for width in widths}


def ridge_problem(points: int = POINTS) -> Problem:
    """One of the two ridge functions, on points of the triangular density."""
    rng = np.random.default_rng(0)
    t, other = (rng.uniform(-1, 1, (points, 2)).sum(axis=1) for _ in range(2))
    wave = {"name": "cos(4t)/2", "interval": (-2.0, 2.0)}
    return Problem.from_arrays(t, np.cos(4 * t) / 2, test=(other, np.cos(4 * other) / 2), **wave)


def protocols_reason(fitted: FittedRow) -> str:
    """The difference of the protocols for one row, in numbers."""
    parts = []
    for unit in UNITS:
        test, train, paper = fitted.errors(unit, "split"), fitted.training(unit), fitted.errors(unit, "paper")
        small, large = min(test), max(test)
        turn = turning_width(test)
        course = f"the test RMSE still falls at n = {large} ({test[large]:.3g})"
        if turn is not None:
            course = f"the test RMSE is least at n = {turn} ({test[turn]:.3g}) and {test[large]:.3g} at n = {large}"
        parts.append(
            f"{unit}: test over training RMSE is {test[small] / train[small]:.2f} at n = {small} and "
            f"{test[large] / train[large]:.2f} at n = {large}; {course}, where the paper's protocol reports "
            f"{paper[large]:.3g}{floor_words(fitted, unit)}."
        )
    return f"{fitted.row.label}, both protocols. {' '.join(parts)}"


def turning_width(errors: dict[int, float]) -> int | None:
    """The width of the least error if wider networks were measured and are worse, else None.

    >>> turning_width({2: 0.5, 4: 0.3, 8: 0.4}), turning_width({2: 0.5, 4: 0.3})
    (4, None)
    """
    least = min(errors, key=lambda width: errors[width])
    if least == max(errors):
        return None
    return least


def floor_words(fitted: FittedRow, unit: str) -> str:
    """The floors of a unit under both protocols; nothing where one of them could not be fitted."""
    laws = [floor_law(fitted.curves[protocol], unit) for protocol in ("split", "paper")]
    floors = [f"{law.E:.2g} [{law.intervals.E[0]:.2g}, {law.intervals.E[1]:.2g}]" for law in laws if law]
    if len(floors) < len(laws):
        return ""
    return f"; a floor E + A/P^a fitted to each is E = {floors[0]} on test rows and {floors[1]} on training rows"


@lru_cache(maxsize=16)  # table and sentence ask for the same ones
def floor_law(study: Scaling, unit: str) -> Law | None:
    """E + A/P^a through the errors of a unit; None where the widths are too few for it."""
    points = [p for p in study.points if p.unit == unit and not p.flag]
    try:
        return fit_law([p.parameters for p in points], [1.0] * len(points), [p.test_rmse for p in points])
    except GatelabError:
        return None


def floors_table(fitted: FittedRow) -> pd.DataFrame:
    """The floor E of each unit under each protocol, with its interval."""
    rows = []
    for protocol, study in fitted.curves.items():
        for unit in UNITS:
            law = floor_law(study, unit)
            if law is not None:
                low, high = law.intervals.E
                names = {"problem": fitted.row.name, "unit": unit, "protocol": protocol}
                rows.append(names | {"E": law.E, "low": low, "high": high, "exponent": law.a, "points": law.points})
    return pd.DataFrame(rows)


def gap_table(fitted: FittedRow) -> pd.DataFrame:
    """A row a unit and width, medians of the seeds: the three errors, and how far test and training are apart."""
    rows = []
    for unit in UNITS:
        test, train, paper = fitted.errors(unit, "split"), fitted.training(unit), fitted.errors(unit, "paper")
        for width in fitted.sizes(unit):
            rows.append(
                {
                    "problem": fitted.row.name,
                    "unit": unit,
                    "width": width,
                    "parameters": as_unit(unit).parameter_count(width, fitted.row.inputs),
                    "split_train_rmse": train[width],
                    "split_test_rmse": test[width],
                    "test_over_train": test[width] / train[width],
                    "paper_protocol_rmse": paper[width],
                }
            )
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class RowFacts:
    """What the rows of measured data themselves say.

    Attributes:
        rows: How many there are.
        repeated: How many share their inputs with another.
        spread: The deviation of targets among rows of equal inputs, NaN where there are none.
        at_maximum: How many have the largest target.
        settings: At how many settings of the other inputs one of them was swept, None where none was.
    """

    rows: int
    repeated: int
    spread: float
    at_maximum: int
    settings: int | None

    def sentence(self, label: str) -> str:
        """The counts in words; `label` is the name of the data."""
        repeats = "none shares its inputs with another, so that the noise cannot be read off repeated rows"
        if self.repeated:
            repeats = (
                f"{self.repeated} share their inputs with another, and their targets differ by {self.spread:.2g} (RMS, "
                "in units of the target's deviation), which no network can undo"
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


def row_facts(row: ProblemRow) -> RowFacts:
    """Counts over all rows, which the paper's protocol keeps together."""
    everything = row.problem("paper")
    x, y = everything.train.x, everything.train.y[:, 0]
    _, group, count = np.unique(x, axis=0, return_inverse=True, return_counts=True)
    group = group.ravel()
    repeated = count[group] > 1
    mean = np.bincount(group, y) / count
    spread, settings = np.nan, None
    if repeated.any():
        spread = float(np.sqrt(np.mean((y - mean[group])[repeated] ** 2)))
    swept = SWEPT.get(row.name)
    if swept in everything.columns:
        others = [i for i, name in enumerate(everything.columns) if name != swept]
        settings = len(np.unique(x[:, others], axis=0))
    return RowFacts(len(x), int(repeated.sum()), spread, int((y == y.max()).sum()), settings)


@dataclass(frozen=True)
class Outliers:
    """In which test rows the squared error of a fit lies.

    Attributes:
        unit: The unit of the fit.
        width: Its width.
        share: The part of the squared error that the worst hundredth of the rows carries.
        alone: The part that the worst row carries.
        rmse: The test RMSE.
        without: The test RMSE without the worst hundredth.
        reach: The farthest input of the worst row, in deviations from the mean.
        typical: The median of that over all test rows.
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
        """The numbers in words."""
        return (
            f"The widest gap up to n = {REFITTED} is that of a {self.unit} of {self.width} neurons: the worst "
            f"{WORST:.0%} of the test rows carry {self.share:.0%} of its squared error, one alone {self.alone:.0%}; "
            f"its RMSE is {self.rmse:.2f} with them and {self.without:.2f} without. The farthest input of the worst "
            f"row is {self.reach:.1f} deviations from the mean ({self.typical:.1f} in the median of the test rows)."
        )


def outliers(fitted: FittedRow) -> Outliers:
    """The fit of the true split with the widest gap, made again to see in which rows its test error lies."""
    row, point = fitted.row, widest_gap(fitted.curves["split"])
    target = row.problem()
    again = fit(point.unit, target, point.width, seed=point.seed, **row.options)
    return outliers_in(target, predict(again.network, target.test.x), point.unit, point.width)


def widest_gap(study: Scaling) -> Point:
    """The fit, among those small enough to be made again, whose test error is furthest from its training error."""
    small = [p for p in study.points if p.width <= REFITTED] or study.points
    return max(small, key=lambda p: p.test_rmse / p.train_rmse)


def outliers_in(target: Problem, values: Array, unit: str, width: int) -> Outliers:
    """Where the error of a fit's values on the test rows lies."""
    squares = np.square(values - target.test.y).sum(axis=1)
    reach = np.abs(target.test.x).max(axis=1)
    rank = np.argsort(squares)
    others, worst = np.split(rank, [len(rank) - max(1, round(WORST * len(rank)))])
    return Outliers(
        unit=unit,
        width=width,
        share=float(squares[worst].sum() / squares.sum()),
        alone=float(squares[rank[-1]] / squares.sum()),
        rmse=float(np.sqrt(squares.mean())),
        without=float(np.sqrt(squares[others].mean())),
        reach=float(reach[rank[-1]]),
        typical=float(np.median(reach)),
    )


def fits_note(rows: Sequence[ProblemRow]) -> str:
    """Widths, seeds and options of each row."""
    parts = []
    for row in rows:
        words = [f"{row.label}: {len(row.widths)} widths n = {row.widths[0]}..{row.widths[-1]}"]
        words += [counted(row.seeds, "seed"), *(f"{name} {value}" for name, value in row.options.items())]
        if row.every:
            words.append("every width in the slope")
        parts.append(", ".join(words))
    return f"What was fitted. {'; '.join(parts)}."
