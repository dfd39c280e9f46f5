"""What a sweep costs beside its runs: overhead a run on each backend, and a store of a million records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Table, timed
from gatelab.sweep import BACKENDS, Record, Run, Store, map_runs

RUNS = 10_000
RECORDS = 1_000_000
TARGETS = {"serial": "2", "processes": "5", "ray": "none"}


def run() -> Iterator[Table]:
    with tempfile.TemporaryDirectory() as folder:
        yield (
            f"Overhead of {RUNS:,} trivial runs, each stored",
            [_overhead(backend, Path(folder) / f"{backend}.db") for backend in BACKENDS],
            "ms a run, the start of workers (2 to 3 s each) or of a local Ray cluster included",
        )
        yield (
            f"A store of {RECORDS:,} records",
            list(_million(Path(folder) / "million.db")),
            "seconds to open the file and to filter it, each time anew; target: below 1",
        )


def _overhead(backend: Any, path: Path) -> Row:
    runs = [Run("builtins:dict", {"unit": "glu", "n": n}) for n in range(RUNS)]

    def count() -> int:
        return sum(1 for _ in map_runs(runs, store=path, backend=backend))

    (counted, computed), (_, again) = timed(count), timed(count)  # the second time all is there
    if counted != RUNS:
        raise RuntimeError(f"{backend} gave {counted} records of {RUNS}")
    milliseconds = {"ms a run": 1e3 * computed / RUNS, "ms when stored": 1e3 * again / RUNS}
    return {"backend": backend, "target": TARGETS[backend], **milliseconds}


def _record(n: int) -> Record:
    arguments = {"unit": {"name": f"unit-{n % 10}"}, "width": n // 10 % 100, "seed": n // 1000, "solver": "knots"}
    metrics = {"train_rmse": 1 / (n + 1), "test_rmse": 1.1 / (n + 1)}
    status = "failed" if n % 1000 == 999 else "done"
    return Record(Run("lab.fit:point", arguments), status, metrics, (1.0, 0.1, 0.01), None, 0.5, {"torch": "2"})


def _million(path: Path) -> Iterator[Row]:
    with Store(path) as store:
        for start in range(0, RECORDS, 20_000):
            store.put_all(map(_record, range(start, start + 20_000)))
    filters: dict[str, dict[str, Any]] = {
        "seed": {"where": {"seed": 7}},
        "task, status, unit, width": {
            "task": "lab.fit:point", "status": "done", "where": {"unit.name": "unit-3", "width": 50}
        },
        "status": {"status": "failed"},
    }  # fmt: skip

    def found(options: dict[str, Any]) -> int:
        with Store(path) as store:
            return len(list(store.records(**options)))

    for what, options in filters.items():
        records, seconds = timed(lambda options=options: found(options))
        yield {"filter": what, "records": records, "seconds": seconds}
