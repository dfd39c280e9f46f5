"""The record of `scaling/units`: a row per fit, small budgets first. The same command continues an unfinished file.

    python -m benchmarks.units results/scaling/units.csv --jobs 2

CPU seconds of rows compare only if one machine made them all.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from joblib import parallel_config

from benchmarks.harness import Row, continued
from gatelab.studies.scaling.units import BUDGETS, SEEDS, UNITS, error_row

KEYS = ["problem", "unit", "budget", "seed"]


def rows_of(*cell: Any) -> list[Row]:
    error_row("friedman1", "glu", 20, 0, 100)  # what is loaded on first use is not counted
    row = dict(zip(KEYS, cell, strict=True))
    return [row | error_row(**row)]


def main(path: Path, jobs: Annotated[int, typer.Option(min=1, help="Fits at a time, each on one core.")] = 1) -> None:
    """Make the fits that PATH does not have."""
    cells = [(p, unit, P, seed) for p, sizes in BUDGETS.items() for P, seed, unit in product(sizes, SEEDS, UNITS)]
    cells.sort(key=lambda c: (c[2], list(BUDGETS).index(c[0]), c[3]))
    with parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        continued(path, KEYS, cells, rows_of, float_format="%.5g")


if __name__ == "__main__":
    typer.run(main)
