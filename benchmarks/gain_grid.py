"""The pilot's fourth round and the grid of docs/results/ladder-design.md: cells that their records still miss.

The last round of the pilot (pilot4.jsonl) chooses the decoder of the small sizes. Sweeps of learning rates make a rule,
and the trainings of the grid (grid.jsonl) take their rates from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from benchmarks.gain_runs import Cell, decoder, losses_of
from gatelab.train.rates import RateRule, at_end, best_rate, further_rates, rounded_rate

UNITS = ("swiglu", "gelu", "relu2", "geglu")
SIZES = ("0.1M", "0.2M", "0.4M", "0.8M", "1.6M", "3.2M", "6.4M")  # as first planned
# The grid's sizes and the variant of each, "" for the decoder of the design's first version; see its list of changes.
GRID = {"0.4M": "three layers", "0.8M": "three layers", "1.6M": "", "3.2M": "", "6.4M": ""}
STEPS = (687, 1373, 2747, 5493, 10986)  # 5.6, 11.2, 22.5, 45 and 90 million tokens, each read once
SWEPT = (1373, 5493)
SEEDS = (0, 1, 2, 3, 4)
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # learning rates of a sweep over the one in its middle
# Where sweeps are centered, for d_model 192; from the sweeps of results/ladder/enwik8.json.
CENTERS = {"swiglu": 0.0040, "geglu": 0.0040, "gelu": 0.0030, "relu2": 0.0025}
# The fourth round of the pilot: what is changed in the decoder, the simplest first.
AS_CHOSEN = "as chosen"
VARIANTS = (AS_CHOSEN, "logits up to 32", "8 taps", "three layers", "three layers, logits up to 32")
PILOT_SIZES, PILOT_UNITS = ("0.1M", "0.8M"), ("relu2", "swiglu")
LARGEST_DEVIATION, NEAR = 0.015, 0.01  # bits: of seeds in a variant that qualifies; a simpler variant's mean so close
PILOT_STEPS, PILOT_SEEDS = 5493, (0, 1, 2, 3, 4, 5)


def chosen_variant(rows: Sequence[dict[str, Any]]) -> str | None:
    """What the rule of the pilot's fourth round takes; None where no variant qualifies."""
    means = {}
    for variant in VARIANTS:
        best = []
        for size, unit in product(PILOT_SIZES, PILOT_UNITS):
            own = losses_of(rows, "pilot", unit, size, PILOT_STEPS, variant)
            by_rate = [[loss for lr, _, loss in own if lr == rate] for rate in sorted({lr for lr, _, _ in own})]
            best.append(min(by_rate, key=lambda losses: math.inf if np.isnan(losses).any() else np.mean(losses)))
        variances = np.var(best, axis=1, ddof=1).reshape(len(PILOT_SIZES), len(PILOT_UNITS)).mean(1)
        if (np.sqrt(variances) < LARGEST_DEVIATION).all():  # False for NaN
            means[variant] = float(np.mean(best))
    return next((variant for variant, mean in means.items() if mean <= min(means.values()) + NEAR), None)


@dataclass(frozen=True)
class Plan:
    """Sweeps and trainings of these sizes, each with its variant of the decoder."""

    variants: dict[str, str]

    def sweep(
        self, rows: Sequence[dict[str, Any]], unit: str, size: str, steps: int
    ) -> tuple[list[float], list[float]]:
        """The learning rates of a sweep, smallest first, and their losses; NaN where a training diverged."""
        own = losses_of(rows, "sweep", unit, size, steps, self.variants[size])
        return [lr for lr, _, _ in own], [loss for _, _, loss in own]

    def rule(self, rows: Sequence[dict[str, Any]]) -> RateRule:
        """Learning rates by unit, d_model and steps, through the best rates of all sweeps whose best lies inside."""
        best = []
        for unit, (size, variant), steps in product(UNITS, self.variants.items(), SWEPT):
            own = self.sweep(rows, unit, size, steps)
            if len(own[0]) > 2 and not at_end(*own):
                best.append((unit, decoder(size, variant).d_model, best_rate(*own), steps))
        return RateRule.of(best)

    def sweep_cells(self, rows: Sequence[dict[str, Any]]) -> list[Cell]:
        """Sweeps that are missing, the largest sizes first; one whose best rate lies at an end goes on beyond it."""
        cells = []
        for (size, variant), unit, steps in product(reversed(self.variants.items()), UNITS, SWEPT):
            center = CENTERS[unit] * (192 / decoder(size, variant).d_model) ** 0.7
            own = self.sweep(rows, unit, size, steps)
            lrs = [rounded_rate(center * factor, 4) for factor in FACTORS]
            if own[0]:
                lrs = further_rates(*own, count=len(FACTORS), digits=4)
            if lrs:
                cells.append(Cell("sweep", unit, size, steps, tuple(lrs), (0,), variant))
        return cells

    def grid_cells(self, rows: Sequence[dict[str, Any]]) -> list[Cell]:
        """Trainings that are missing, the smallest sizes first."""
        rates = self.rule(rows)
        cells = []
        for (size, variant), unit, steps in product(self.variants.items(), UNITS, STEPS):
            rate = rates.rate(unit, decoder(size, variant).d_model, steps, digits=4)
            cells.append(Cell("grid", unit, size, steps, (rate,), SEEDS, variant))
        return [cell for cell in cells if not losses_of(rows, *cell.key)]


def pilot_cells(rows: Sequence[dict[str, Any]], rates: RateRule) -> list[Cell]:
    """The fourth round of the pilot, as far as it is missing, at the rate of the rule and at half of it."""
    cells = []
    for size, variant, unit in product(reversed(PILOT_SIZES), VARIANTS, PILOT_UNITS):
        rate = rates.rate(unit, decoder(size, variant).d_model, PILOT_STEPS, digits=4)
        cells.append(Cell("pilot", unit, size, PILOT_STEPS, (rate / 2, rate), PILOT_SEEDS, variant, record="pilot4"))
    return [cell for cell in cells if not losses_of(rows, *cell.key)]
