"""The first paper's experiments by our Newton in its stages: `python benchmarks/paper_method.py RECORD --jobs 12`.

Every fit is kept in a store as it ends. The command stops after so many seconds, can be stopped at any time, and goes
on from the store when it is called again; each call writes all that is finished into the record. `GATELAB_DATA` names
the folder of airfoil and California; a fit takes one thread.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import typer

from gatelab.files import write_whole
from gatelab.scaling_laws.reference import EXPERIMENTS, paper_curves, paper_runs, plain_curves
from gatelab.sweep import Progress, Record, Run, map_runs


class OutOfTime(Exception):
    """The time is up: what is running is given up, what has ended is in the store."""


def main(
    record: Path,
    seconds: float = 540.0,
    jobs: int = 12,
    store: Path = Path("runs.db"),
    only: Annotated[str, typer.Option(help="names of experiments, parted by semicolons")] = "",
    most: Annotated[int, typer.Option(help="at most so many runs, of the shortest; for a trial")] = 0,
) -> None:
    """Compute what is missing, for so many seconds, and write the record of all that is finished."""
    torch.set_num_threads(1)
    names = [name.strip() for name in only.split(";") if name.strip()] or [e.name for e in EXPERIMENTS]
    runs = [run for run in paper_runs() if run.arguments["experiment"] in names]
    if most:
        runs = sorted(runs, key=lambda run: run.arguments["width"])[:most]
    finished, began = [], time.perf_counter()
    reported = [began]

    def report(progress: Progress) -> None:
        if time.perf_counter() - reported[0] > 20:
            reported[0] = time.perf_counter()
            print(f"{reported[0] - began:.0f} s: {progress.finished} of {len(runs)} fits", flush=True)

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        for fitted in map_runs(runs, store=store, backend="processes", jobs=jobs, progress=report):
            finished.append(fitted)
    except OutOfTime:
        print(f"the {seconds:g} seconds are over", flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    write_record(record, finished, runs, jobs)


def write_record(path: Path, records: list[Record], runs: list[Run], jobs: int) -> None:
    """All that is finished, with the device, the date and the commands of every call so far."""
    earlier: dict[str, Any] = {}
    if path.is_file():
        earlier = json.loads(path.read_text(encoding="utf-8"))
    command = " ".join(["python", *sys.argv])
    failed = [r for r in records if not r.ok]
    content = {
        "command": command,
        "commands": [*earlier.get("commands", []), command],
        "device": f"{jobs} {platform.machine()} cores, one thread a fit, torch {torch.__version__}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "planned": len(runs),
        "finished": len(records) - len(failed),
        "failed": [{**r.arguments, "error": (r.error or "").strip().splitlines()[-1:]} for r in failed],
        "core_seconds": sum(float(r.metrics["core_seconds"]) for r in records if r.ok),
        "curves": plain_curves(paper_curves(records)),
    }
    write_whole(path, json.dumps(content, indent=1) + "\n")
    print(f"{path}: {content['finished']} of {len(runs)} fits, {len(failed)} failed", flush=True)


if __name__ == "__main__":
    typer.run(main)
