"""The record of `scaling/units`: a row per fit, small budgets first. The same command continues an unfinished file.

    python -m benchmarks.units results/scaling/units.csv --jobs 2

CPU seconds of rows compare only if one machine made them all.
"""

from __future__ import annotations

import csv
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import joblib
import pandas as pd
import typer

from gatelab.studies.scaling.units import BUDGETS, SEEDS, UNITS, error_row

KEYS = ["problem", "unit", "budget", "seed"]


def missing(path: Path) -> list[tuple[str, str, int, int]]:
    """Cells that the file does not have, small budgets first."""
    done = set(pd.read_csv(path)[KEYS].itertuples(index=False, name=None)) if path.is_file() else set()
    cells = [(p, unit, P, seed) for p, sizes in BUDGETS.items() for P, seed, unit in product(sizes, SEEDS, UNITS)]
    rank = {name: i for i, name in enumerate(BUDGETS)}
    return [cell for cell in sorted(cells, key=lambda c: (c[2], rank[c[0]], c[3])) if cell not in done]


def row_of(cell: tuple[str, str, int, int]) -> dict[str, Any]:
    error_row("friedman1", "glu", 20, 0, 100)  # what is loaded on first use is not counted
    return dict(zip(KEYS, cell, strict=True)) | error_row(*cell)


def main(path: Path, jobs: Annotated[int, typer.Option(min=1, help="Fits at a time, each on one core.")] = 1) -> None:
    """Make the fits that PATH does not have."""
    cells = missing(path)
    with (
        path.open("a", newline="", encoding="utf-8") as file,
        joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1),
    ):
        rows = joblib.Parallel(return_as="generator_unordered")(joblib.delayed(row_of)(cell) for cell in cells)
        for done, row in enumerate(rows, 1):
            writer = csv.DictWriter(file, list(row))
            if not file.tell():
                writer.writeheader()
            writer.writerow({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()})
            file.flush()
            print(f"{done} of {len(cells)} fits", end="\r", flush=True)


if __name__ == "__main__":
    typer.run(main)
