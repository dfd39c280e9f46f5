"""Estimators compared on tables: splits, fits, and the record that grows as fits end.

`estimators.py` lists the methods, `datasets.csv` the sets. `regressors` may be `classifiers`:

    python -m benchmarks.tables regressors --methods gated --sets boston  missing fits, then errors
    python -m benchmarks.tables regressors --export FOLDER                the sets as CSV, for another machine
    python -m benchmarks.tables regressors --data FOLDER                  there
    python -m benchmarks.tables large                                     ours and boosting on a million rows

Rows are divided into three parts by a seed that was never tuned on; a method chooses its settings on two of them. Each
(set, method, part) is recorded as it ends, of ours with a hash of the code. The study models/tables compares them.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
import typer
from joblib import Parallel, delayed
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import KFold, StratifiedKFold

from benchmarks.datasets import CLASSES, REGRESSION, DataSet, LoadedTable, Task, export, load
from benchmarks.estimators import Method, estimator_code, methods
from benchmarks.harness import Row, Table, facts, machine, show, timed, write_record
from gatelab import GatedRegressor
from gatelab.errors import GatelabError

SPLIT_SEED = 771_203
SPLITS = 3
RESULTS = Path(__file__).resolve().parents[1] / "results" / "tables"
SETS: dict[Task, list[DataSet]] = {"regression": REGRESSION, "classes": CLASSES}
FIELD: dict[Task, str] = {"regression": "rmse", "classes": "log_loss"}
# Of each record the task, and the set that `make bench` fits.
TASKS: dict[str, tuple[Task, str]] = {"regressors": ("regression", "diabetes"), "classifiers": ("classes", "wine")}
# Rows, columns, and what is said of the time; Friedman's first problem with noise of deviation 1.
LARGE: tuple[tuple[int, int, dict[str, Any]], ...] = ((10_000, 20, {}), (1_000_000, 10, {"time_budget": 150}))


def splits(table: LoadedTable) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows of each part; classes are stratified."""
    kind = {"classes": StratifiedKFold, "regression": KFold}[table.dataset.task]
    return list(kind(SPLITS, shuffle=True, random_state=SPLIT_SEED).split(table.X, table.y))


def measured(dataset: DataSet, method: Method, split: int, folder: str | None = None) -> Row:
    """Fit a method to one part of a set and test it on the other; `failed` holds the error of a fit that failed."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    table = load(dataset, folder)
    train, test = splits(table)[split]
    entry: Row = {"set": dataset.name, "method": method.name, "split": split, "version": method.version}
    entry |= {"settings": method.settings, "seed": SPLIT_SEED, "train": len(train), "test": len(test)}
    model = method.make()
    try:
        cpu, wall, mib = fit_costs(model, table.X.iloc[train], table.y[train])
        entry |= {"cpu_s": round(cpu, 3), "wall_s": round(wall, 3), "peak_mib": mib}
        entry |= scores(model, dataset.task, table.X.iloc[test], table.y[test])
    except Exception as error:  # a peer that fails on one set must not end the run; it is tried again next time
        entry["failed"] = f"{type(error).__name__}: {error}"[:300]
    return entry | {"machine": machine(), "ended": datetime.now(UTC).isoformat(timespec="seconds")}


def scores(model: Any, task: Task, X: pd.DataFrame, y: np.ndarray) -> Row:
    """RMSE and, with standard deviations, the share of targets within 1.96 of them; or log loss and accuracy."""
    if task == "classes":
        p = np.clip(model.predict_proba(X), 1e-6, 1.0)  # a forest predicts zero and may be wrong
        p /= p.sum(axis=1, keepdims=True)
        loss = log_loss(y, p, labels=model.classes_)
        return {"log_loss": float(loss), "accuracy": accuracy_score(y, model.classes_[p.argmax(axis=1)])}
    off = model.predict(X) - y
    errors = {"rmse": float(np.sqrt(np.mean(np.square(off))))}
    if "return_std" in signature(model.predict).parameters:
        std = model.predict(X, return_std=True)[1]
        errors |= {"coverage": float(np.mean(np.abs(off) <= 1.96 * std)), "mean_std": float(np.mean(std))}
    return errors


def fit_costs(model: Any, X: Any, y: Any) -> tuple[float, float, float | None]:
    """Fit a model: CPU seconds, seconds, and how far the memory of the process rises, in MiB, on Linux."""
    before = None
    with suppress(OSError, AttributeError):  # what earlier fits have freed would else be used without being counted
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = process_memory("VmRSS:")
    began = time.process_time()
    wall = timed(lambda: model.fit(X, y))[1]
    cpu = time.process_time() - began
    return cpu, wall, before and round(process_memory("VmHWM:") - before, 1)


def process_memory(line: str) -> float:
    """A line of /proc/self/status in MiB."""
    return int(Path("/proc/self/status").read_text().partition(line)[2].split()[0]) / 1024


class Record:
    """Entries in a JSON file, one per line; an added entry is in the file at once."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.entries = Path(path), dict[str, Row]()
        self.reread()

    def reread(self) -> None:
        """Read the file again: another process may have added to it."""
        if not self.path.exists():
            return
        try:
            lines = json.loads(self.path.read_text(encoding="utf-8"))["entries"]
            self.entries |= {key_of(entry): entry for entry in lines}
        except (ValueError, KeyError, TypeError) as error:
            raise GatelabError(f"{self.path} is not a record of this benchmark; give another as --record") from error

    def add(self, entry: Row) -> None:
        """Add an entry, replacing one with the same key, and write the file."""
        self.reread()
        self.entries[key_of(entry)] = entry
        tuned = sorted(dataset.name for dataset in (*REGRESSION, *CLASSES) if dataset.development)
        ordered = [self.entries[key] for key in sorted(self.entries)]
        write_record(self.path, {"tuned": tuned, "entries": ordered}, "entries")

    def lacks(self, dataset: DataSet, method: Method, split: int) -> bool:
        """Whether a fit is missing, failed, or had other settings."""
        head = {"set": dataset.name, "method": method.name, "split": split, "version": method.version}
        entry = self.entries.get(key_of(head | {"seed": SPLIT_SEED}))
        return entry is None or "failed" in entry or entry["settings"] != method.settings


def key_of(entry: Row) -> str:
    """Set, method, part and seed, as "boston/svr/0/7"; of ours the code as well."""
    parts = ["set", "method", "split", "seed", "version"][: 4 + entry["method"].startswith("gated")]
    return "/".join(str(entry[part]) for part in parts)


def complete(
    record: Record, sets: Sequence[DataSet], methods: Sequence[Method], *, jobs: int = 1, folder: str | None = None
) -> int:
    """Compute the fits that a record lacks; returns their number."""
    pairs = [(s, m) for s in sets for m in methods if m.version and s.rows <= m.most_rows]
    wanted = [(*pair, split) for pair in pairs for split in range(SPLITS)]
    missing = [fit for fit in wanted if record.lacks(*fit)]
    calls = (delayed(measured)(*fit, folder) for fit in missing)
    entries: Any = Parallel(n_jobs=jobs, return_as="generator_unordered")(calls)
    for done, entry in enumerate(entries, 1 + len(wanted) - len(missing)):
        record.add(entry)
        print(f"{done} of {len(wanted)}: {entry['set']}, {entry['method']} {entry.get('failed', '')}", file=sys.stderr)
    return len(missing)


def errors(record: Record, task: Task) -> Table:
    """Mean errors of the parts over the least of the set, by set and method; of ours the fits that ended last."""
    fits: Any = pd.DataFrame([entry for entry in record.entries.values() if "failed" not in entry])
    fits = fits.sort_values("ended").drop_duplicates(["set", "method", "split"], keep="last")
    means: Any = fits.pivot_table(FIELD[task], "set", "method")
    rows: Any = means.div(means.min(axis=1), axis=0).reset_index().to_dict("records")
    return f"{task} on tables", rows, f"{FIELD[task]}, mean of the parts, over the least of the set"


def run() -> Iterator[Table]:
    """The present code and boosting on quick sets, not recorded; large tables."""
    for task, quick in TASKS.values():
        with tempfile.TemporaryDirectory() as folder:
            record = Record(Path(folder) / "record.json")
            complete(record, named("set", quick, SETS[task]), named("method", "gated,boosting", methods(task)))
            yield errors(record, task)
    noted = "noise 1; MiB: how far memory rises; the regressor has a time_budget of 150 s on a million rows"
    yield "GatedRegressor on large tables", list(large_tables()), noted


def large_tables() -> Iterator[Row]:
    """The regressor with its defaults and boosting on large tables: seconds, memory and error, one thread."""
    for rows, columns, settings in LARGE:
        X, y = make_friedman1(rows + 20_000, columns, noise=1.0, random_state=0)
        for model in (GatedRegressor(random_state=0, **settings), HistGradientBoostingRegressor(random_state=0)):
            cpu, wall, mib = fit_costs(model, X[:rows], y[:rows])
            entry = {"rows": rows, "columns": columns, "method": type(model).__name__, "cpu_s": cpu, "wall_s": wall}
            yield entry | {"mib": mib, "rmse": scores(model, "regression", X[rows:], y[rows:])["rmse"]}


def main(
    what: Annotated[Literal["regressors", "classifiers", "large"], typer.Argument(help="large: large tables.")],
    names: Annotated[str, typer.Option("--methods", help="Names of methods, with commas; all by default.")] = "",
    sets: Annotated[str, typer.Option(help="Names of sets, with commas; all by default.")] = "",
    jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
    record: Annotated[Path | None, typer.Option(help="The file of the fits.", show_default="results/tables")] = None,
    data: Annotated[str | None, typer.Option(help="The folder of an export, instead of the packages.")] = None,
    export_to: Annotated[str | None, typer.Option("--export", help="Write the sets as CSV and end.")] = None,
    only_show: Annotated[bool, typer.Option("--show", help="Print the errors without fits.")] = False,
) -> None:
    """Compute the fits that a record lacks, and show its errors."""
    record = record or RESULTS / f"{what}.json"
    if what == "large":
        torch.set_num_threads(1)
        write_record(record, facts("cpu") | {"version": estimator_code(), "rows": [*large_tables()]}, "rows")
        return
    try:
        if export_to:
            print(*export(export_to, readable([*REGRESSION, *CLASSES], None)), sep="\n")
            return
        task, entries = TASKS[what][0], Record(record)
        if not only_show:
            asked = named("method", names, methods(task))
            if missing := {method.package for method in asked if not method.version}:
                print(f"left out, since they are not installed: {', '.join(missing)}", file=sys.stderr)
            short = sorted(named("set", sets, SETS[task]), key=lambda dataset: dataset.rows)
            complete(entries, readable(short, data), asked, jobs=jobs, folder=data)
        show([errors(entries, task)])
    except GatelabError as error:
        sys.exit(str(error))


def named(what: str, names: str, known: Iterable[Any]) -> list[Any]:
    """Those with these names, with commas between them; all without names."""
    entries = {one.name: one for one in known}
    asked = [name for name in names.split(",") if name] or list(entries)
    if unknown := set(asked) - set(entries):
        raise GatelabError(f"no {what} is called {', '.join(sorted(unknown))}; there are {', '.join(entries)}")
    return [entries[name] for name in asked]


def readable(sets: Sequence[DataSet], folder: str | None) -> list[DataSet]:
    """The sets that can be read here; a line on stderr for each of the others."""
    present = []
    for dataset in sets:
        try:
            present.append(load(dataset, folder).dataset)
        except GatelabError as error:
            print(f"{dataset.name} is left out: {error}", file=sys.stderr)
    return present


if __name__ == "__main__":
    typer.run(main)
