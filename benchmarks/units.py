"""The record of `scaling/units`: a row per fit, small budgets first. The same command continues an unfinished file."""

from __future__ import annotations

import csv
import sys
from itertools import product
from pathlib import Path

import pandas as pd

from gatelab.studies.scaling.units import BUDGETS, SEEDS, UNITS, error_row


def main(path: Path) -> None:
    done = set()
    if path.is_file():
        done = set(pd.read_csv(path)[["problem", "unit", "budget", "seed"]].itertuples(index=False, name=None))
    cells = [(p, unit, P, seed) for p, sizes in BUDGETS.items() for P, seed, unit in product(sizes, SEEDS, UNITS)]
    rank = {name: i for i, name in enumerate(BUDGETS)}
    error_row("friedman1", "glu", 20, 0, 100)  # what is loaded on first use is not counted
    with path.open("a", newline="", encoding="utf-8") as file:
        for problem, unit, budget, seed in sorted(cells, key=lambda c: (c[2], rank[c[0]], c[3])):
            if (problem, unit, budget, seed) in done:
                continue
            names = {"problem": problem, "unit": unit, "budget": budget, "seed": seed}
            row = names | error_row(problem, unit, budget, seed)
            writer = csv.DictWriter(file, list(row))
            if not file.tell():
                writer.writeheader()
            writer.writerow({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()})
            file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
