"""The parts of docs/results/ladder-design.md after the grid: cells that the records still miss, for gpu_gain.py.

Prediction at 26M and 60M, early training, the mechanism (centered units and output biases under three optimizers), a
second text, eighteen units, and batches that separate tokens from updates. Where rates are swept, a sweep of a few
rates on the tuning text comes first (at 11.2 million tokens, for batches at the trainings' own number), goes on beyond
an end at which its best rate lies, and the trainings take its best rate, multiplied by the rule's factor for their
number of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.gain_grid import FACTORS, GRID, SEEDS, STEPS, SWEPT, UNITS, Plan
from benchmarks.gain_runs import BATCH, CENTERED, OUTPUT_BIAS, Cell, Records, decoder, losses_of
from benchmarks.gain_units import EIGHTEEN, GATED
from gatelab.train.rates import RateRule, best_rate, further_rates, rounded_rate

PREDICTIONS = Path("results/ladder/gain-predictions.csv")  # committed before the trainings that it predicts
PREDICTED = ("26M", "60M")
PAIR = ("swiglu", "relu2")
PREDICTED_SEEDS = (0, 1, 2)
MECHANISM_SIZE, MECHANISM_STEPS = "3.2M", STEPS[2]
MECHANISM_SEEDS, REPEATED_SEEDS = (0, 1, 2, 3, 4, 5), (6, 7, 8, 9, 10, 11)
COMBINATIONS = (
    *((unit, variant) for unit in ("gelu", "relu2") for variant in ("", CENTERED, OUTPUT_BIAS)),
    ("geglu", ""),
    ("reglu", ""),
)
# The middle of the sweeps of SGD is a guess, and sweeps extend themselves; Muon has the rates of AdamW.
SGD_CENTER = 0.3
SEPARATED = ((64, 687), (16, 2747), (16, 687), (4, 2747))  # windows of a batch and updates: 22.5 or 5.6 million tokens
UNITS_SIZE, UNITS_STEPS, UNITS_SEEDS = "1.6M", STEPS[2], (0, 1, 2)
MOST_RATES = 15  # of a sweep that goes on
STEEP, FINEST = 0.1, 2.0**0.125  # bits above the best rate, where a parabola says little; factor between rates


@dataclass(frozen=True)
class Tuned:
    """Trainings at the best learning rate of a sweep of their own, centered at a rate."""

    record: str
    unit: str
    size: str
    steps: int
    seeds: tuple[int, ...]
    center: float
    factors: Sequence[float] = FACTORS
    variant: str = ""
    optimizer: str = "adamw"
    batch: int = BATCH
    swept: int = SWEPT[0]

    def cell(self, kind: str, steps: int, lrs: Sequence[float], seeds: tuple[int, ...]) -> Cell:
        """A cell of this unit, variant and optimizer."""
        rates, how = tuple(lrs), {"optimizer": self.optimizer, "batch": self.batch, "record": self.record}
        return Cell(kind, self.unit, self.size, steps, rates, seeds, self.variant, **how)

    def cells(self, rows: Sequence[dict[str, Any]], rule: RateRule) -> Iterator[Cell]:
        """The sweep, or what it goes on with, or the trainings; nothing if all are there."""
        sweep = self.cell("sweep", self.swept, [rounded_rate(self.center * f, 4) for f in self.factors], (0,))
        own = losses_of(rows, *sweep.key)
        lrs, losses = [lr for lr, _, _ in own], [loss for _, _, loss in own]
        if not lrs:
            yield sweep
            return
        further = further_rates(lrs, losses, count=len(self.factors), digits=4) or rates_between(lrs, losses)
        if further and len(lrs) < MOST_RATES:
            yield self.cell("sweep", self.swept, further, (0,))
            return
        longer = (self.steps / self.swept) ** -rule.steps_exponent
        rate = rounded_rate(best_rate(lrs, losses) * longer, 4)
        training = self.cell(self.record, self.steps, [rate], self.seeds)
        if not losses_of(rows, *training.key):
            yield training


def rates_between(lrs: Sequence[float], losses: Sequence[float]) -> list[float]:
    """Rates between the best one of a sweep, smallest first, and those next to it that are much worse.

    >>> rates_between([0.3, 0.6, 1.2], [2.0, 1.93, 4.3])
    [0.8485]
    >>> rates_between([0.3, 0.6, 1.2], [2.0, 1.93, 1.95])
    []
    """
    bits = np.where(np.isnan(losses), np.inf, losses)
    best = int(bits.argmin())
    near = [i for i in (best - 1, best + 1) if 0 <= i < len(lrs)]
    steep = [lrs[i] for i in near if bits[i] > bits[best] + STEEP]
    apart = [lr for lr in steep if max(lr / lrs[best], lrs[best] / lr) > FINEST]
    return [rounded_rate(math.sqrt(lr * lrs[best]), 4) for lr in apart]


def predictions_are_made() -> bool:
    """Whether the predictions of the whole grid are there, without which the trainings may not begin."""
    whole = len(GRID) * len(STEPS) * len(UNITS) * len(SEEDS)
    return PREDICTIONS.exists() and bool(pd.read_csv(PREDICTIONS)["trainings"].min() >= whole)


def prediction_cells(records: Records, rule: RateRule) -> Iterator[Cell]:
    """Sweeps of three rates, then three seeds at 90 million tokens."""
    for size in PREDICTED:
        for unit in PAIR:
            center = rule.rate(unit, decoder(size, "").d_model, SWEPT[0], digits=4)
            tuned = Tuned("prediction", unit, size, STEPS[-1], PREDICTED_SEEDS, center, FACTORS[1:4])
            yield from tuned.cells(records["prediction"], rule)


def cells_at_rule(record: str, steps: int, text: str, records: Records, rule: RateRule) -> Iterator[Cell]:
    """The four units at the size of the mechanism, at the rates of the rule, as far as they are missing."""
    for unit in UNITS:
        rate = rule.rate(unit, decoder(MECHANISM_SIZE, "").d_model, steps, digits=4)
        cell = Cell(record, unit, MECHANISM_SIZE, steps, (rate,), SEEDS, text=text, record=record)
        if not losses_of(records[record], *cell.key):
            yield cell


def mechanism_cells(records: Records, rule: RateRule) -> Iterator[Cell]:
    """Plain, centered, with a bias, and gated, for each optimizer."""
    size, steps, seeds = MECHANISM_SIZE, MECHANISM_STEPS, MECHANISM_SEEDS
    for optimizer, (unit, variant) in product(("adamw", "sgd", "muon"), COMBINATIONS):
        center = rule.rate(unit.replace("reglu", "geglu"), decoder(size, "").d_model, SWEPT[0], digits=4)
        if optimizer == "sgd":
            center = SGD_CENTER
        tuned = Tuned("mechanism", unit, size, steps, seeds, center, variant=variant, optimizer=optimizer)
        yield from tuned.cells(records["mechanism"], rule)


def repeated_cells(records: Records) -> Iterator[Cell]:
    """Plain, centered and gated units with SGD once more, with other seeds at the same rates."""
    for unit, variant in COMBINATIONS:
        cell = Cell("repetition", unit, MECHANISM_SIZE, MECHANISM_STEPS, (), REPEATED_SEEDS, variant, "sgd")
        trained = losses_of(records["mechanism"], "mechanism", *cell.key[1:])
        if variant != OUTPUT_BIAS and trained and not losses_of(records["mechanism"], *cell.key):
            yield replace(cell, lrs=(trained[0][0],), record="mechanism")


def unit_cells(records: Records, rule: RateRule) -> Iterator[Cell]:
    """Eighteen units; their sweeps are centered at the rule's rate for swiglu, relu2 or gelu."""
    for unit in EIGHTEEN:
        like = "gelu"
        if unit in GATED:
            like = "swiglu"
        elif "relu2" in unit or unit in ("relu3", "xielu"):
            like = "relu2"
        center = rule.rate(like, decoder(UNITS_SIZE, "").d_model, SWEPT[0], digits=4)
        yield from Tuned("units", unit, UNITS_SIZE, UNITS_STEPS, UNITS_SEEDS, center).cells(records["units"], rule)


def batch_cells(records: Records, rule: RateRule) -> Iterator[Cell]:
    """Two numbers of tokens by two of updates; sweeps have the batch and the steps of the trainings."""
    for (batch, steps), unit in product(SEPARATED, UNITS):
        rate = rule.rate(unit, decoder(MECHANISM_SIZE, "").d_model, steps, digits=4) * (batch / BATCH) ** 0.5
        how: dict[str, Any] = {"batch": batch, "swept": steps}
        tuned = Tuned("batches", unit, MECHANISM_SIZE, steps, MECHANISM_SEEDS, rate, **how)
        yield from tuned.cells(records["batches"], rule)


def further_cells(records: Records, rule: RateRule) -> list[Cell]:
    """All cells after the grid that are missing; those that take most of the time, 26M and 60M, late."""
    predicted = list(prediction_cells(records, rule))
    if not predictions_are_made() or Plan(GRID).grid_cells(records["grid"]):
        predicted = [cell for cell in predicted if cell.kind == "sweep"]
    return [
        *cells_at_rule("early", STEPS[2], "enwik8", records, rule),
        *mechanism_cells(records, rule),
        *cells_at_rule("text", STEPS[3], "python", records, rule),
        *unit_cells(records, rule),
        *predicted,
        *repeated_cells(records),
        *batch_cells(records, rule),
    ]
