"""Where the gate's gain sits: the trainings of docs/results/ladder-design.md, as rows of records, on a GPU.

    PYTHONPATH=src:. python -m benchmarks.gpu_gain results/ladder --seconds 540

It needs enwik8 below GATELAB_DATA (text/enwik8.gz), and text/python.gz of benchmarks/python_text.py. The folder's
records are continued: rows that they have are not computed again. The order is: sweeps of learning rates and trainings
of the grid (grid.jsonl), and the parts of benchmarks/gain_parts.py. After `--seconds` running trainings are saved below
gatelab-out, and the next call on the same machine goes on with them. NVIDIA's multi-process service lets processes
overlap. `--tiny` is the same in small, for a CPU.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.gain_grid import GRID, Plan
from benchmarks.gain_parts import further_cells
from benchmarks.gain_runs import Cell, Records, compute, overlapping
from gatelab.train.loop import device_name

RECORDS = ("grid", "prediction", "early", "mechanism", "text", "units", "batches")


def all_cells(records: Records) -> list[Cell]:
    """What the records miss, in the order of the design; a part is planned as soon as what it depends on is there."""
    plan, grid = Plan(GRID), records["grid"]
    sweeps = plan.sweep_cells(grid)
    if sweeps:
        return sweeps
    return plan.grid_cells(grid) + further_cells(records, plan.rule(grid))


def main(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 8,
    seconds: Annotated[float, typer.Option(help="After them trainings are stopped and saved.")] = 540.0,
    lease: Annotated[float, typer.Option(help="After them the machine and what it has saved are gone.")] = 1e9,
    tiny: Annotated[bool, typer.Option("--tiny", help="The same in small, on a CPU.")] = False,
) -> None:
    """Compute what the records in FOLDER do not have yet."""
    began = time.time()
    device = device_name(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    facts = {"device": device, "date": f"{datetime.now(UTC):%Y-%m-%d}", "torch": torch.__version__}
    facts["command"] = f"python -m benchmarks.gpu_gain {folder}"
    limits = {"deadline": began + seconds, "lost": began + lease}
    with overlapping():
        compute(all_cells, folder, names=RECORDS, facts={"facts": facts}, jobs=jobs, tiny=tiny, **limits)
    print(f"{time.time() - began:.0f} s in all", flush=True)


if __name__ == "__main__":
    typer.run(main)
