"""What a sweep costs beside its runs: overhead a run on each backend, and a store of a million records."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from gatelab.sweep import BACKENDS, Record, Run, Store, map_runs

Table = tuple[str, list[dict[str, float | str]], str]
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


def _overhead(backend: Any) -> dict[str, float | str]:
    runs = [Run("builtins:dict", {"unit": "glu", "n": n}) for n in range(RUNS)]
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        for _ in range(2):  # the second time all is there
            began = time.perf_counter()
            count = sum(1 for _ in map_runs(runs, store=Path(folder) / "runs.db", backend=backend))
            seconds.append(time.perf_counter() - began)
            if count != RUNS:
                raise RuntimeError(f"{backend} gave {count} records of {RUNS}")
    computed, again = (1e3 * s / RUNS for s in seconds)
    return {"backend": backend, "ms a run": computed, "target": TARGETS[backend], "ms when stored": again}


def _records() -> Iterator[Record]:
    for n in range(RECORDS):
        arguments = {"unit": {"name": f"unit-{n % 10}"}, "width": n // 10 % 100, "seed": n // 1000, "solver": "knots"}
        metrics = {"train_rmse": 1 / (n + 1), "test_rmse": 1.1 / (n + 1)}
        status = "failed" if n % 1000 == 999 else "done"
        yield Record(Run("lab.fit:point", arguments), status, metrics, (1.0, 0.1, 0.01), None, 0.5, {"torch": "2"})


def _million() -> list[dict[str, float | str]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        began = time.perf_counter()
        with Store(path) as store:
            records = _records()
            while chunk := list(islice(records, 20_000)):
                store.put_all(chunk)
        filled = time.perf_counter() - began
        rows: list[dict[str, float | str]] = [{"what": "fill", "records": RECORDS, "seconds": filled}]
        filters: list[dict[str, Any]] = [
            {"where": {"seed": 7}},
            {"task": "lab.fit:point", "status": "done", "where": {"unit.name": "unit-3", "width": 50}},
            {"where": {"unit.name": "unit-3", "width": 50, "seed": 7}},
            {"status": "failed"},
            {"where": {"width": 50}},
        ]
        for each in filters:
            began = time.perf_counter()
            with Store(path) as store:
                found = len(list(store.records(**each)))
            conditions = [v for k, v in each.items() if k != "where"]
            label = ", ".join(conditions + [f"{k} = {v}" for k, v in each.get("where", {}).items()])
            rows.append({"what": f"open, filter: {label}", "records": found, "seconds": time.perf_counter() - began})
        keys = [record.key for record in islice(_records(), 100_000)]
        asks: list[tuple[str, Callable[[Store], int]]] = [
            ("count all", Store.count),
            ("count unit.name = unit-3", lambda store: store.count(where={"unit.name": "unit-3"})),
            ("100 000 keys: which are done", lambda store: len(store.statuses(keys))),
        ]
        for what, ask in asks:
            began = time.perf_counter()
            with Store(path) as store:
                rows.append({"what": f"open, {what}", "records": ask(store), "seconds": time.perf_counter() - began})
        rows.append({"what": "size on disk, MB", "records": path.stat().st_size / 1e6, "seconds": 0.0})
    return rows
