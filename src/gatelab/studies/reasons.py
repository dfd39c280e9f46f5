"""Why a row of table 1 is as it is, in measured numbers, and what its columns mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from gatelab.scaling import Slope
from gatelab.studies.many_inputs import PROTOCOLS, UNITS, Measured, Row
from gatelab.studies.measure import slope_reason
from gatelab.studies.ridge_pair import pair_errors, pair_slope

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


def how_measured(rows: Sequence[Row]) -> str:
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
