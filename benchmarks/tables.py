"""Estimators compared on tables: splits, fits, the record that grows as fits end, and its summary.

`benchmarks.regressors` and `benchmarks.classifiers` list the methods.

    python -m benchmarks.regressors --list                                      the sets
    python -m benchmarks.regressors --methods gated --sets boston,mpg --jobs 2  missing fits, then the summary
    python -m benchmarks.regressors --export FOLDER                             the sets as CSV, for another machine
    python -m benchmarks.regressors --data FOLDER --record other.json           there; then here: --merge other.json

Rows are divided into three parts by a seed that was never tuned on; each part is tested once, and a method chooses its
settings on the other two. Each (set, method, part) is written to the record as it ends, so that an interrupted call
can be repeated. Entries of ours carry a hash of the code of the estimators and solvers. Figures and comparisons with
intervals are in the study models/tables.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
import pandas as pd
import torch
import typer
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import get_tags

import gatelab
from benchmarks.datasets import DataSet, LoadedTable, Task, chosen, export, load
from gatelab.display import counted, reporting
from gatelab.errors import GatelabError
from gatelab.files import write_whole

PrintedTable = tuple[str, list[dict[str, Any]], str]
Entry = dict[str, Any]
SPLIT_SEED = 771_203
SPLITS = 3
LEAST_PROBABILITY = 1e-6  # of a class, for the log loss: a forest predicts zero and may be wrong
CLOSE = 1.02  # times the best: as good as the best
MOST_LEVELS = 40  # one-hot columns of a category, for methods that take only numbers
KERNEL_ROWS = 2500  # kernel methods cost rows cubed: longer sets are sampled
PROCESS_ROWS = 1000  # longer sets are left out by Gaussian processes
CODE = Path(gatelab.__file__).parent
RESULTS = Path(__file__).resolve().parents[1] / "results" / "tables"
FIELD: dict[Task, str] = {"regression": "rmse", "classes": "log_loss"}


@dataclass(frozen=True)
class Method:
    """An estimator and how it is given a table.

    Attributes:
        name: for the command line and the record.
        label: for tables.
        package: "gatelab" for ours.
        settings: a description; entries with other settings are computed again.
        make: builds the estimator; None where it is not available.
        most_rows: longer sets are left out.
        why: the reason it is not available.
        variant: another setting of a method in the list, which is not ranked.
    """

    name: str
    label: str
    package: str
    settings: str
    make: Callable[[], Any] | None
    most_rows: int | None = None
    why: str = ""
    variant: bool = False

    @property
    def ours(self) -> bool:
        return self.package == "gatelab"

    @property
    def version(self) -> str:
        """The version of the package; of ours, a hash of the code."""
        if self.ours:
            return estimator_code()
        try:
            return version(self.package)
        except PackageNotFoundError:
            return ""

    def takes(self, dataset: DataSet) -> bool:
        return self.most_rows is None or dataset.rows <= self.most_rows


@lru_cache(maxsize=1)
def estimator_code() -> str:
    """A hash of the code of estimators and solvers."""
    digest = hashlib.sha256()
    for package in ("estimators", "solve"):
        for path in sorted((CODE / package).rglob("*.py")):
            digest.update(path.relative_to(CODE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def as_numbers(estimator: Any, *, scaled_target: bool = False) -> Any:
    """A pipeline for an estimator that takes only numbers: medians for gaps, one-hot columns, standardized columns."""
    levels = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_LEVELS, sparse_output=False, drop="if_binary"
    )
    columns = ColumnTransformer(
        [
            ("numbers", SimpleImputer(strategy="median"), make_column_selector(dtype_include="number")),
            ("names", make_pipeline(FilledNames(), levels), make_column_selector(dtype_include="category")),
        ]
    )
    pipeline = make_pipeline(columns, StandardScaler(), estimator)
    if scaled_target:
        return TransformedTargetRegressor(pipeline, transformer=StandardScaler())
    return pipeline


class FilledNames(BaseEstimator):
    """Categories as text, with a level for missing values."""

    def fit(self, X: pd.DataFrame, y: Any = None) -> FilledNames:
        self.columns_ = list(X.columns)
        return self

    def transform(self, X: pd.DataFrame) -> np.ndarray:
        return X.astype(object).where(X.notna(), "(missing)").to_numpy(dtype=object)


def as_table(estimator: Any) -> Any:
    """One of ours as it is if its tags say that it takes tables, else in a pipeline that makes numbers of them."""
    tags = get_tags(estimator).input_tags
    if tags.allow_nan or tags.categorical:
        return estimator
    return as_numbers(estimator)


class Fewer(BaseEstimator):
    """A model fitted to at most `KERNEL_ROWS` random rows."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __sklearn_tags__(self) -> Any:
        return get_tags(self.model)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Fewer:
        order = np.arange(len(X))
        if len(X) > KERNEL_ROWS:
            order = np.random.default_rng(0).permutation(len(X))[:KERNEL_ROWS]
        model: Any = clone(self.model)
        self.model_ = model.fit(X[order], y[order])
        self.classes_ = getattr(self.model_, "classes_", None)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model_.predict(X)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.model_.predict_proba(X)


def splits(table: LoadedTable) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows of each part; classes are stratified."""
    kind = StratifiedKFold if table.dataset.task == "classes" else KFold
    return list(kind(SPLITS, shuffle=True, random_state=SPLIT_SEED).split(table.X, table.y))


def measured(dataset: DataSet, method: Method, split: int, folder: str | None = None) -> Entry:
    """Fit a method to one part of a set and test it on the other: an entry of the record.

    It has errors, CPU seconds and peak memory of the fit; `failed` holds the error of a fit that failed.
    """
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    table = load(dataset, folder)
    train, test = splits(table)[split]
    entry: Entry = {"set": dataset.name, "method": method.name, "split": split, "version": method.version}
    entry |= {"settings": method.settings, "seed": SPLIT_SEED, "train": len(train), "test": len(test)}
    if method.make is None:
        raise GatelabError(f"{method.label} is not available: {method.why}")
    model = method.make()
    watch = MemoryWatch()
    began, clock = time.process_time(), time.perf_counter()
    try:
        model.fit(table.X.iloc[train], table.y[train])
        entry |= {"cpu_s": round(time.process_time() - began, 3), "wall_s": round(time.perf_counter() - clock, 3)}
        entry["peak_mib"] = watch.risen()
        entry |= scores(model, dataset.task, table.X.iloc[test], table.y[test])
    except Exception as error:  # a peer that fails on one set must not end the run; it is tried again next time
        entry["failed"] = f"{type(error).__name__}: {error}"[:300]
    entry |= {"machine": f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"}
    return entry | {"ended": datetime.now(UTC).isoformat(timespec="seconds")}


def scores(model: Any, task: Task, X: pd.DataFrame, y: np.ndarray) -> Entry:
    """RMSE and, with standard deviations, the share of targets within 1.96 of them; or log loss and accuracy."""
    if task == "classes":
        p = np.clip(model.predict_proba(X), LEAST_PROBABILITY, 1.0)
        p /= p.sum(axis=1, keepdims=True)
        loss = log_loss(y, p, labels=model.classes_)
        return {"log_loss": float(loss), "accuracy": float(np.mean(model.classes_[p.argmax(axis=1)] == y))}
    deviations = {}
    if "return_std" in signature(model.predict).parameters:
        prediction, std = model.predict(X, return_std=True)
        inside = np.abs(prediction - y) <= 1.96 * std
        deviations = {"coverage": float(np.mean(inside)), "mean_std": float(np.mean(std))}
    else:
        prediction = model.predict(X)
    return {"rmse": float(np.sqrt(np.mean(np.square(prediction - y))))} | deviations


class MemoryWatch:
    """The rise of this process's memory, on Linux."""

    def __init__(self) -> None:
        self.before: float | None = None
        try:
            # Memory that earlier fits have freed would else be used again without being counted.
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")
            self.before = process_memory("VmRSS:")
        except (OSError, AttributeError):
            self.before = None

    def risen(self) -> float | None:
        """MiB between the start and the highest value since."""
        if self.before is None:
            return None
        return round(process_memory("VmHWM:") - self.before, 1)


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
        lines = ",\n".join(json.dumps(self.entries[key]) for key in sorted(self.entries))
        tuned = sorted(dataset.name for task in get_args(Task) for dataset in chosen(task) if dataset.development)
        write_whole(self.path, f'{{"tuned": {json.dumps(tuned)},\n"entries": [\n{lines}\n]}}\n')

    def lacks(self, dataset: DataSet, method: Method, split: int) -> bool:
        """Whether a fit is missing, failed, or had other settings."""
        head = {"set": dataset.name, "method": method.name, "split": split, "version": method.version}
        entry = self.entries.get(key_of(head | {"seed": SPLIT_SEED}))
        return entry is None or "failed" in entry or entry["settings"] != method.settings


def key_of(entry: Entry) -> str:
    """Set, method, part and seed; of ours the code as well.

    >>> key_of({"set": "boston", "method": "svr", "split": 0, "seed": 7, "version": "1.9"})
    'boston/svr/0/7'
    """
    parts = [entry["set"], entry["method"], str(entry["split"]), str(entry["seed"])]
    if entry["method"].startswith("gated"):
        parts.append(entry["version"])
    return "/".join(parts)


def complete(
    record: Record, sets: Sequence[DataSet], methods: Sequence[Method], *, jobs: int = 1, folder: str | None = None
) -> int:
    """Compute the fits that a record lacks; returns their number."""
    wanted = [(s, m, i) for s in sets for m in methods if m.make and m.takes(s) for i in range(SPLITS)]
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


def latest(record: Record, methods: Sequence[Method]) -> pd.DataFrame:
    """Complete fits as rows: mean over the parts per set and method; of ours only those of the latest code."""
    frame = pd.DataFrame([entry for entry in record.entries.values() if "failed" not in entry])
    if frame.empty:
        return frame
    for method in methods:
        own = frame[frame["method"] == method.name]
        if method.ours and len(own):
            codes = own.sort_values("ended")["version"]
            code = method.version if method.version in set(codes) else codes.iloc[-1]
            frame = frame[(frame["method"] != method.name) | (frame["version"] == code)]
    numbers = [c for c in ("rmse", "log_loss", "cpu_s", "peak_mib", "coverage") if c in frame]
    groups = frame[frame["method"].isin([m.name for m in methods])].groupby(["set", "method"])[numbers]
    return groups.mean()[groups.size() == SPLITS].reset_index()


def tables(record: Record, task: Task, methods: Sequence[Method]) -> Iterator[PrintedTable]:
    """Errors set by set, and a summary of the methods on tuned sets and on the others: title, rows, note."""
    field, fits = FIELD[task], latest(record, methods)
    if fits.empty or field not in fits:
        yield "an empty record", [{"method": "none"}], f"{record.path} has no complete fit"
        return
    ranked = [m for m in methods if not m.variant]
    errors = fits.pivot(index="set", columns="method", values=field)
    errors = errors[[m.name for m in ranked if m.name in errors]]
    sets = [s for s in chosen(task) if s.name in errors.index]
    ratios = errors.div(errors.min(axis=1), axis=0)
    labels = {m.name: m.label for m in methods}
    rows = []
    for s in sets:
        row: dict[str, Any] = {"set": s.name + " *" * s.development, "rows": s.rows, "columns": s.facts.columns}
        row |= {"best": f"{errors.loc[s.name].min():.4g}"}
        rows.append(row | {labels[name]: cell(ratio) for name, ratio in ratios.loc[s.name].items()})
    note = f"{field.replace('_', ' ')}, mean of {SPLITS} parts, over the best of the set. * used for tuning defaults."
    yield "set by set", rows, note
    unlimited = [m.name for m in ranked if m.most_rows is None and m.name in errors]
    for title, tuned in (("sets not used for tuning defaults", False), ("sets used for tuning defaults", True)):
        common = errors.loc[[s.name for s in sets if s.development == tuned], unlimited].dropna()
        if common.shape[0] > 1 and common.shape[1] > 1:
            yield summary(title, common, fits.set_index(["set", "method"]), labels)


def cell(ratio: float) -> str:
    if np.isnan(ratio):
        return "-"
    return f"{ratio:.3g}" if ratio >= 10 else f"{ratio:.3f}"


def summary(title: str, errors: pd.DataFrame, fits: pd.DataFrame, labels: dict[str, str]) -> PrintedTable:
    """Mean rank, shares and ratios to the best, seconds and memory of each method, on sets that all have."""
    ratios, ranks = errors.div(errors.min(axis=1), axis=0), errors.rank(axis=1).mean()
    rows = []
    for name in ranks.sort_values(kind="stable").index:
        own = fits.loc[[(s, name) for s in errors.index]]
        row: dict[str, Any] = {"method": labels[name], "mean rank": f"{ranks[name]:.2f}"}
        row |= {"first": f"{(ratios[name] == 1).mean():.0%}", "within 2 %": f"{(ratios[name] <= CLOSE).mean():.0%}"}
        row |= {"median / best": f"{ratios[name].median():.3f}", "worst / best": f"{ratios[name].max():.3g}"}
        if "boosting" in errors:
            row["worst / boosting"] = f"{(errors[name] / errors['boosting']).max():.3f}"
        for column, text in (("cpu_s", "CPU s"), ("peak_mib", "MiB")):
            if column in own:
                row[text] = f"{own[column].median():.3g}, {own[column].max():.3g}"
        rows.append(row)
    note = f"{counted(len(errors), 'set')} that all methods have; CPU seconds (one thread) and MiB: median and largest."
    return title, rows, note


def present_and_recorded(
    task: Task, methods: Sequence[Method], path: Path, quick: Sequence[str]
) -> Iterator[PrintedTable]:
    """The present code and boosting on quick sets, which is not written; then the tables of the record."""
    warnings.filterwarnings("ignore")
    sets, both = chosen(task, quick), [m for m in methods if m.name in ("gated", "boosting")]
    with tempfile.TemporaryDirectory() as folder:
        record = Record(Path(folder) / "record.json")
        complete(record, sets, both)
        _, rows, note = next(tables(record, task, both))
        yield "the present code", rows, note
    yield from tables(Record(path), task, methods)


def command(task: Task, methods: Sequence[Method], record: Path, arguments: Sequence[str] | None = None) -> None:
    """The command line of `benchmarks.regressors` and `benchmarks.classifiers`."""

    def main(
        names: Annotated[str, typer.Option("--methods", help="Names of methods, with commas; all by default.")] = "",
        sets: Annotated[str, typer.Option(help="Names of sets, with commas; all by default.")] = "",
        rows: Annotated[int, typer.Option(help="Leave out sets with more rows.")] = 10**9,
        jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
        record_file: Annotated[Path | None, typer.Option("--record", help="The file of the fits.")] = None,
        data: Annotated[str | None, typer.Option(help="The folder of an export, instead of the packages.")] = None,
        export_to: Annotated[str | None, typer.Option("--export", help="Write the sets as CSV and end.")] = None,
        merge: Annotated[Path | None, typer.Option(help="Add the entries of this record.")] = None,
        listing: Annotated[bool, typer.Option("--list", help="List the sets and end.")] = False,
        show: Annotated[bool, typer.Option("--show", help="Print the tables without fits.")] = False,
    ) -> None:
        if listing:
            print_tables([listed(task)])
            return
        if export_to:
            files = export(export_to, readable([*chosen("regression"), *chosen("classes")], None))
            print(f"{counted(len(files), 'file')} in {export_to}")
            return
        entries = Record(record_file or record)
        if merge:
            entries.add(Record(merge).entries.values())
        elif not show:
            wanted = named_methods(methods, [name for name in names.split(",") if name])
            short = [s for s in chosen(task, [n for n in sets.split(",") if n]) if s.rows <= rows]
            complete(entries, readable(short, data), wanted, jobs=jobs, folder=data)
        print_tables(tables(entries, task, methods))

    app = typer.Typer(add_completion=False)
    app.command(help=__doc__)(main)
    try:
        app(arguments, standalone_mode=arguments is None)
    except GatelabError as error:
        sys.exit(str(error))


def named_methods(methods: Sequence[Method], names: Sequence[str]) -> list[Method]:
    """The methods with these names, all without names; a line on stderr for each that is not available."""
    unknown = set(names) - {m.name for m in methods}
    if unknown:
        known = ", ".join(m.name for m in methods)
        raise GatelabError(f"no method is called {', '.join(sorted(unknown))}; there are {known}")
    wanted = [m for m in methods if not names or m.name in names]
    for method in wanted:
        if method.make is None:
            print(f"{method.label} is left out: {method.why}", file=sys.stderr)
    return wanted


def print_tables(printed: Iterable[PrintedTable]) -> None:
    for title, rows, note in printed:
        print(f"\n{title}\n{pd.DataFrame(rows).to_string(index=False)}\n{note}")


def listed(task: Task) -> PrintedTable:
    """The sets of a task and their facts."""
    rows = []
    for s in chosen(task):
        row: dict[str, Any] = {"set": s.name, "from": f"{s.package}: {s.file}", "target": s.target, "rows": s.rows}
        row |= {"of": s.facts.rows, "columns": s.facts.columns, "categories": s.facts.categories}
        row |= {"missing": s.facts.missing, "mean": f"{s.facts.mean:.4g}", "tuned": "yes" * s.development}
        rows.append(row | {"left out": "; ".join(f"{name}: {why}" for name, why in s.dropped)})
    return task, rows, "mean: of the target; of classes, the share of the most frequent"


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
