"""The grid of docs/results/ladder-design.md: cells that its record still misses.

Sweeps of learning rates make a rule, and the trainings of the grid (grid.jsonl) take their rates from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from benchmarks.gain_runs import Cell, decoder, losses_of
from gatelab.train.rates import RateRule, at_end, best_rate, further_rates, rounded_rate

UNITS = ("swiglu", "gelu", "relu2", "geglu")
# The grid's sizes and the variant of each, "" for the decoder of the design's first version; see its list of changes.
GRID = {"0.4M": "three layers", "0.8M": "three layers", "1.6M": "", "3.2M": "", "6.4M": ""}
STEPS = (687, 1373, 2747, 5493, 10986)  # 5.6, 11.2, 22.5, 45 and 90 million tokens, each read once
SWEPT = (1373, 5493)
SEEDS = (0, 1, 2, 3, 4)
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # learning rates of a sweep over the one in its middle
# Where sweeps are centered, for d_model 192; from the sweeps of results/ladder/enwik8.json.
CENTERS = {"swiglu": 0.0040, "geglu": 0.0040, "gelu": 0.0030, "relu2": 0.0025}


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
