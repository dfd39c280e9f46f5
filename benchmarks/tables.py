"""Estimators compared on tables: splits, fits, and the record that grows as fits end.

`estimators.py` lists the methods, `datasets.csv` the sets. `regressors` may be `classifiers`:

    python -m benchmarks.tables regressors --methods gated --sets boston,mpg --jobs 2  missing fits, then errors
    python -m benchmarks.tables regressors --export FOLDER                the sets as CSV, for another machine
    python -m benchmarks.tables regressors --data FOLDER                  there
    python -m benchmarks.tables large                                     ours and boosting on a million rows

Rows are divided into three parts by a seed that was never tuned on; each part is tested once, and a method chooses its
settings on the other two. Each (set, method, part) is written to the record as it ends. Entries of ours carry a hash of
the code. Figures and comparisons are in the study models/tables.
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
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from joblib import Parallel, delayed
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold

from benchmarks.datasets import CLASSES, REGRESSION, DataSet, LoadedTable, Task, chosen, export, load
from benchmarks.estimators import Method, estimator_code, methods
from benchmarks.harness import Table, facts, machine, show, write_record
from gatelab import GatedRegressor
from gatelab.display import reporting
from gatelab.errors import GatelabError

Entry = dict[str, Any]
Frame = Any  # a data frame; the stubs of pandas do not know its columns
SPLIT_SEED = 771_203
SPLITS = 3
LEAST_PROBABILITY = 1e-6  # of a class, for the log loss: a forest predicts zero and may be wrong
RESULTS = Path(__file__).resolve().parents[1] / "results" / "tables"
FIELD: dict[Task, str] = {"regression": "rmse", "classes": "log_loss"}
# Of each record the task, and the set that `make bench` fits.
TASKS: dict[str, tuple[Task, str]] = {"regressors": ("regression", "diabetes"), "classifiers": ("classes", "wine")}
# Rows, columns, and what is said of the time; Friedman's first problem with noise of deviation 1.
LARGE: tuple[tuple[int, int, dict[str, Any]], ...] = ((10_000, 20, {}), (1_000_000, 10, {"time_budget": 150}))
TESTED = 20_000


def splits(table: LoadedTable) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows of each part; classes are stratified."""
    kind = StratifiedKFold if table.dataset.task == "classes" else KFold
    return list(kind(SPLITS, shuffle=True, random_state=SPLIT_SEED).split(table.X, table.y))


def measured(dataset: DataSet, method: Method, split: int, folder: str | None = None) -> Entry:
    """Fit a method to one part of a set and test it on the other; `failed` holds the error of a fit that failed."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    table = load(dataset, folder)
    train, test = splits(table)[split]
    entry: Entry = {"set": dataset.name, "method": method.name, "split": split, "version": method.version}
    entry |= {"settings": method.settings, "seed": SPLIT_SEED, "train": len(train), "test": len(test)}
    model = method.make()
    try:
        cpu, wall, mib = fit_costs(model, table.X.iloc[train], table.y[train])
        entry |= {"cpu_s": round(cpu, 3), "wall_s": round(wall, 3), "peak_mib": mib}
        entry |= scores(model, dataset.task, table.X.iloc[test], table.y[test])
    except Exception as error:  # a peer that fails on one set must not end the run; it is tried again next time
        entry["failed"] = f"{type(error).__name__}: {error}"[:300]
    return entry | {"machine": machine(), "ended": datetime.now(UTC).isoformat(timespec="seconds")}


def scores(model: Any, task: Task, X: pd.DataFrame, y: np.ndarray) -> Entry:
    """RMSE and, with standard deviations, the share of targets within 1.96 of them; or log loss and accuracy."""
    if task == "classes":
        p = np.clip(model.predict_proba(X), LEAST_PROBABILITY, 1.0)
        p /= p.sum(axis=1, keepdims=True)
        loss = log_loss(y, p, labels=model.classes_)
        return {"log_loss": float(loss), "accuracy": float(np.mean(model.classes_[p.argmax(axis=1)] == y))}
    off = model.predict(X) - y
    errors = {"rmse": float(np.sqrt(np.mean(np.square(off))))}
    if "return_std" in signature(model.predict).parameters:
        std = model.predict(X, return_std=True)[1]
        errors |= {"coverage": float(np.mean(np.abs(off) <= 1.96 * std)), "mean_std": float(np.mean(std))}
    return errors


def fit_costs(model: Any, X: Any, y: Any) -> tuple[float, float, float | None]:
    """Fit a model: CPU seconds, seconds, and how far the memory of the process rises, in MiB, on Linux."""
    before = None
    with suppress(OSError, AttributeError):
        # Memory that earlier fits have freed would else be used again without being counted.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = process_memory("VmRSS:")
    began, clock = time.process_time(), time.perf_counter()
    model.fit(X, y)
    cpu, wall = time.process_time() - began, time.perf_counter() - clock
    return cpu, wall, before and round(process_memory("VmHWM:") - before, 1)


def process_memory(line: str) -> float:
    """A line of /proc/self/status in MiB."""
    return int(Path("/proc/self/status").read_text().partition(line)[2].split()[0]) / 1024


class Record:
    """Entries in a JSON file, one per line; an added entry is in the file at once."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.entries: dict[str, Entry] = {}
        self.reread()

    def reread(self) -> None:
        """Read the file again: another process may have added to it."""
        if not self.path.exists():
            return
        try:
            lines = json.loads(self.path.read_text(encoding="utf-8"))["entries"]
            self.entries |= {key_of(entry): entry for entry in lines}
        except (ValueError, KeyError, TypeError) as error:
            raise GatelabError(
                f"{self.path} is not a record of this benchmark ({error}); give another name as --record"
            ) from error

    def add(self, entries: Iterable[Entry]) -> None:
        """Add entries, replacing those with the same key, and write the file."""
        self.reread()
        self.entries |= {key_of(entry): entry for entry in entries}
        tuned = sorted(dataset.name for dataset in (*REGRESSION, *CLASSES) if dataset.development)
        ordered = [self.entries[key] for key in sorted(self.entries)]
        write_record(self.path, {"tuned": tuned, "entries": ordered}, "entries")

    def lacks(self, dataset: DataSet, method: Method, split: int) -> bool:
        """Whether a fit is missing, failed, or had other settings."""
        head = {"set": dataset.name, "method": method.name, "split": split, "version": method.version}
        entry = self.entries.get(key_of(head | {"seed": SPLIT_SEED}))
        return entry is None or "failed" in entry or entry["settings"] != method.settings


def key_of(entry: Entry) -> str:
    """Set, method, part and seed, as "boston/svr/0/7"; of ours the code as well."""
    parts = [entry["set"], entry["method"], str(entry["split"]), str(entry["seed"])]
    if entry["method"].startswith("gated"):
        parts.append(entry["version"])
    return "/".join(parts)


def complete(
    record: Record, sets: Sequence[DataSet], methods: Sequence[Method], *, jobs: int = 1, folder: str | None = None
) -> int:
    """Compute the fits that a record lacks; returns their number."""
    wanted = [(s, m, i) for s in sets for m in methods if m.takes(s) for i in range(SPLITS)]
    missing = [fit for fit in wanted if record.lacks(*fit)]
    if not missing:
        return 0
    done = len(wanted) - len(missing)
    calls = (delayed(measured)(*fit, folder) for fit in missing)
    entries: Any = Parallel(n_jobs=jobs, return_as="generator_unordered")(calls)
    with reporting(True, "fits", stored=done) as report:
        for entry in entries:
            record.add([entry])
            done += 1
            if "failed" in entry:
                print(f"{entry['set']}, {entry['method']}: {entry['failed']}", file=sys.stderr)
            if report is not None:
                report(done, len(wanted), f"{entry['set']}, {entry['method']}")
    return len(missing)


def errors(record: Record, task: Task) -> Table:
    """Mean errors of the parts over the least of the set, by set and method; of ours the fits that ended last."""
    fits: Frame = pd.DataFrame([entry for entry in record.entries.values() if "failed" not in entry])
    fits = fits.sort_values("ended").drop_duplicates(["set", "method", "split"], keep="last")
    means: Frame = fits.pivot_table(FIELD[task], "set", "method")
    rows: Any = means.div(means.min(axis=1), axis=0).reset_index().to_dict("records")
    return f"{task} on tables", rows, f"{FIELD[task]}, mean of the parts, over the least of the set"


def run() -> Iterator[Table]:
    """The present code and boosting on quick sets, not recorded; large tables."""
    warnings.filterwarnings("ignore")
    for task, quick in TASKS.values():
        both = [m for m in methods(task) if m.name in ("gated", "boosting")]
        with tempfile.TemporaryDirectory() as folder:
            record = Record(Path(folder) / "record.json")
            complete(record, chosen(task, [quick]), both)
            yield errors(record, task)
    noted = "noise 1; MiB: how far memory rises; the regressor has a time_budget of 150 s on a million rows"
    yield "GatedRegressor on large tables", list(large_tables()), noted


def large_tables() -> Iterator[Entry]:
    """The regressor with its defaults and boosting on large tables: seconds, memory and error, one thread."""
    for rows, columns, settings in LARGE:
        X, y = make_friedman1(rows + TESTED, columns, noise=1.0, random_state=0)
        models = (GatedRegressor(random_state=0, **settings), HistGradientBoostingRegressor(random_state=0))
        for model in models:
            entry = {"rows": rows, "columns": columns, "method": type(model).__name__}
            entry |= dict(zip(("cpu_s", "wall_s", "mib"), fit_costs(model, X[:rows], y[:rows]), strict=True))
            yield entry | {"rmse": scores(model, "regression", X[rows:], y[rows:])["rmse"]}


def main(
    what: Annotated[str, typer.Argument(help="regressors, classifiers, or large for large tables.")],
    names: Annotated[str, typer.Option("--methods", help="Names of methods, with commas; all by default.")] = "",
    sets: Annotated[str, typer.Option(help="Names of sets, with commas; all by default.")] = "",
    rows: Annotated[int, typer.Option(help="Leave out sets with more rows.")] = 10**9,
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
    if what not in TASKS:
        raise typer.BadParameter(f"{what!r} is not one of {', '.join(TASKS)}, large")
    try:
        if export_to:
            print(*export(export_to, readable([*REGRESSION, *CLASSES], None)), sep="\n")
            return
        task, entries = TASKS[what][0], Record(record)
        if not only_show:
            short = [s for s in chosen(task, [n for n in sets.split(",") if n]) if s.rows <= rows]
            complete(entries, readable(short, data), named_methods(task, names), jobs=jobs, folder=data)
        show([errors(entries, task)])
    except GatelabError as error:
        sys.exit(str(error))


def named_methods(task: Task, names: str) -> list[Method]:
    """The methods with these names, all without names; a line on stderr for each that is not installed."""
    known = {m.name: m for m in methods(task)}
    asked = [name for name in names.split(",") if name] or list(known)
    if unknown := set(asked) - set(known):
        raise GatelabError(f"no method is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    wanted = [known[name] for name in asked]
    for method in wanted:
        if not method.version:
            print(f"{method.name} is left out: {method.package} is not installed", file=sys.stderr)
    return wanted


def readable(sets: Sequence[DataSet], folder: str | None) -> list[DataSet]:
    """The sets that can be read here; a line on stderr for each of the others."""
    present = []
    for dataset in sets:
        try:
            load(dataset, folder)
            present.append(dataset)
        except GatelabError as error:
            print(f"{dataset.name} is left out: {error}", file=sys.stderr)
    return present


if __name__ == "__main__":
    typer.run(main)
