"""A sweep as a program of its own, for tests that kill it.

python sweep_drive.py DATABASE BACKEND RUNS SECONDS LOG [RAY_ADDRESS]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from gatelab.sweep import Run, map_runs


def runs(count: int, seconds: float, log: str) -> list[Run]:
    return [Run("sweep_tasks:work", {"n": n, "seconds": seconds, "log": log, "fail_each": 13}) for n in range(count)]


def main() -> None:
    database, backend, count, seconds, log, *address = sys.argv[1:]
    go = Path(f"{log}.go")  # where it is asked for, whoever waits for it starts with the others
    Path(f"{log}.{os.getpid()}").touch()
    while os.environ.get("SWEEP_WAITS") and not go.exists():
        time.sleep(0.005)
    options: dict[str, Any] = {"backend": backend, "address": address[0] if address else None}
    for i, record in enumerate(map_runs(runs(int(count), float(seconds), log), store=database, jobs=2, **options)):
        print(i, record.status, flush=True)


if __name__ == "__main__":
    main()
