"""What a sweep costs beside its runs: overhead a run on each backend, and a store of a million records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Table, timed
from gatelab.sweep import BACKENDS, Record, Run, Store, map_runs

RUNS = 10_000
RECORDS = 1_000_000
TARGETS = {"serial": "2", "processes": "5", "ray": "none"}


def run() -> Iterator[Table]:
    yield (
        f"Overhead of {RUNS:,} trivial runs, each stored",
        [_overhead(backend) for backend in BACKENDS],
        "ms a run, the start of workers (2 to 3 s each) or of a local Ray cluster included",
    )
    yield (
        f"A store of {RECORDS:,} records",
        _million(),
        "seconds to open the file and to filter it, each time anew; target: below 1",
    )


def _overhead(backend: Any) -> Row:
    runs = [Run("builtins:dict", {"unit": "glu", "n": n}) for n in range(RUNS)]
    with tempfile.TemporaryDirectory() as folder:

        def count() -> int:
            return sum(1 for _ in map_runs(runs, store=Path(folder) / "runs.db", backend=backend))

        (counted, computed), (_, again) = timed(count), timed(count)  # the second time all is there
        if counted != RUNS:
            raise RuntimeError(f"{backend} gave {counted} records of {RUNS}")
    milliseconds = {"ms a run": 1e3 * computed / RUNS, "ms when stored": 1e3 * again / RUNS}
    return {"backend": backend, "target": TARGETS[backend], **milliseconds}


def _records() -> Iterator[Record]:
    for n in range(RECORDS):
        arguments = {"unit": {"name": f"unit-{n % 10}"}, "width": n // 10 % 100, "seed": n // 1000, "solver": "knots"}
        metrics = {"train_rmse": 1 / (n + 1), "test_rmse": 1.1 / (n + 1)}
        status = "failed" if n % 1000 == 999 else "done"
        yield Record(Run("lab.fit:point", arguments), status, metrics, (1.0, 0.1, 0.01), None, 0.5, {"torch": "2"})


def _million() -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"

        def ask(what: str, question: Any) -> None:
            def answer() -> Any:
                with Store(path) as store:
                    return question(store)

            records, seconds = timed(answer)
            rows.append({"what": what, "records": records, "seconds": seconds})

        def fill(store: Store) -> int:
            records = _records()
            while chunk := list(islice(records, 20_000)):
                store.put_all(chunk)
            return RECORDS

        ask("fill", fill)
        filters: list[dict[str, Any]] = [
            {"where": {"seed": 7}},
            {"task": "lab.fit:point", "status": "done", "where": {"unit.name": "unit-3", "width": 50}},
            {"where": {"unit.name": "unit-3", "width": 50, "seed": 7}},
            {"status": "failed"},
            {"where": {"width": 50}},
        ]
        for each in filters:
            conditions = [v for k, v in each.items() if k != "where"]
            label = ", ".join(conditions + [f"{k} = {v}" for k, v in each.get("where", {}).items()])
            ask(f"open, filter: {label}", lambda store, each=each: len(list(store.records(**each))))
        keys = [record.key for record in islice(_records(), 100_000)]
        ask("open, count all", Store.count)
        ask("open, count unit.name = unit-3", lambda store: store.count(where={"unit.name": "unit-3"}))
        ask("open, 100 000 keys: which are done", lambda store: len(store.statuses(keys)))
        rows.append({"what": "size on disk, MB", "records": path.stat().st_size / 1e6, "seconds": 0.0})
    return rows
