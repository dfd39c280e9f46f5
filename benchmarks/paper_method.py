"""The first paper's experiments by our Newton in its stages: `python -m benchmarks.paper_method RECORD --jobs 12`.

Every fit is kept in a store as it ends. The command begins no fit after so many seconds and goes on from the store when
it is called again; each call writes all that is finished into the record. `GATELAB_DATA` names
the folder of airfoil and California; a fit takes one thread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import typer

from benchmarks.harness import facts, machine, write_record
from gatelab.data import problem
from gatelab.feedforward import unit as as_unit
from gatelab.scaling_laws import Point, Scaling
from gatelab.scaling_laws.curves import limits_of
from gatelab.scaling_laws.reference import EXPERIMENTS
from gatelab.sweep import Record, Run, map_runs

TASK = "gatelab.scaling_laws.reference:fit_as_the_paper"


def main(
    record: Path,
    seconds: Annotated[float, typer.Option(help="After them no fit begins.")] = 540.0,
    jobs: int = 12,
    store: Path = Path("runs.db"),
) -> None:
    """Compute what is missing, for so many seconds, and write the record of all that is finished."""
    runs, finished = paper_runs(), []
    options: dict[str, Any] = {"store": store, "backend": "processes", "jobs": jobs, "max_seconds": seconds}
    for fitted in map_runs(runs, **options):
        finished.append(fitted)
        if len(finished) % 50 == 0:
            print(f"{len(finished)} of {len(runs)} fits", flush=True)
    write_curves(record, finished, runs, jobs)


def write_curves(path: Path, records: list[Record], runs: tuple[Run, ...], jobs: int) -> None:
    """All that is finished, with the device, the date and the commands of every call so far."""
    earlier: dict[str, Any] = {}
    if path.is_file():
        earlier = json.loads(path.read_text(encoding="utf-8"))
    failed, origin = [r for r in records if not r.ok], facts("cpu")
    content = {
        **origin,
        "commands": [*earlier.get("commands", []), origin["command"]],
        "device": f"{jobs} cores of {machine()}, one thread a fit",
        "planned": len(runs),
        "finished": len(records) - len(failed),
        "failed": [{**r.arguments, "error": (r.error or "").strip().splitlines()[-1:]} for r in failed],
        "core_seconds": sum(float(r.metrics["core_seconds"]) for r in records if r.ok),
        "curves": plain_curves(paper_curves(records)),
    }
    write_record(path, content)
    print(f"{path}: {content['finished']} of {len(runs)} fits, {len(failed)} failed", flush=True)


def paper_runs() -> tuple[Run, ...]:
    """All runs, in the order in which they are worth computing.

    First the widths that every slope needs, the longest fits before the shorter ones; then what is further.
    """
    runs: list[Run] = []
    for part in ("widths", "further"):
        tasks = [
            (expected_work(e.problem, unit, width), e, {"unit": unit, "width": width, "seed": seed})
            for e in EXPERIMENTS
            for unit, widths in getattr(e, part).items()
            for width in widths
            for seed in range(e.seeds)
        ]
        tasks.sort(key=lambda task: -task[0])
        runs += [Run(TASK, {"experiment": e.name, **arguments, "solver": e.solver}) for _, e, arguments in tasks]
    return tuple(runs)


def expected_work(name: str, unit: str, width: int) -> float:
    """How long a fit takes beside others: a Hessian costs N P^2, a solve P^3."""
    inputs = {"paper-1d": 1, "sin4x-sin4y": 2, "friedman1": 5, "airfoil": 5, "california": 8}.get(name, 4)
    rows = {"paper-1d": 10_000, "airfoil": 1503, "california": 20_640}.get(name, 2000)
    parameters = as_unit(unit).parameter_count(width, inputs)
    return rows * parameters * (parameters + 100) + 20 * parameters**3


def paper_curves(records: list[Record]) -> dict[str, Scaling]:
    """The points of each experiment, of what has been computed."""
    names = ("experiment", "unit", "width", "seed")
    finished = {tuple(r.arguments[name] for name in names): r for r in records}
    curves = {}
    for experiment in EXPERIMENTS:
        points = []
        for unit in {**experiment.widths, **experiment.further}:
            mine = {k[2:]: r for k, r in finished.items() if k[:2] == (experiment.name, unit) and r.ok}
            widths = sorted({width for width, _ in mine})
            limits = dict.fromkeys(widths, np.nan)
            if experiment.name == "paper-1d":
                limits = limits_of(as_unit(unit), problem("paper-1d"), widths)
            for (width, seed), record in sorted(mine.items()):  # none is flagged, since the paper leaves none out
                metrics, limit = record.metrics, limits[width]
                errors = {name: float(metrics[name]) for name in ("train_rmse", "test_rmse")}
                ratio, how = errors["test_rmse"] / limit, {"flag": "", "status": str(metrics["status"])}
                cost, size = float(metrics["core_seconds"]), int(metrics["parameters"])
                points.append(Point(unit, width, size, seed, **errors, limit=limit, ratio=ratio, **how, seconds=cost))
        curves[experiment.name] = Scaling(experiment.name, tuple(points))
    return curves


def plain_curves(curves: Mapping[str, Scaling]) -> dict[str, Any]:
    """The curves as plain values for a record, which `read_curves` reads."""
    return {name: {"problem": c.problem, "points": [asdict(p) for p in c.points]} for name, c in curves.items()}


if __name__ == "__main__":
    typer.run(main)
