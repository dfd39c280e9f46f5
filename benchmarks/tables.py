"""Estimators side by side on tables: splits, the record that grows as fits end, ranks and their figure.

`benchmarks.regressors` and `benchmarks.classifiers` say which methods there are; all else is here.

    python -m benchmarks.regressors --list                                      the sets and their facts
    python -m benchmarks.regressors --methods gated --sets boston,mpg --jobs 2  fits that the record lacks, then tables
    python -m benchmarks.regressors --show --figure ranks.png                   tables and figure of the record alone
    python -m benchmarks.regressors --export FOLDER                             the sets as CSV, for another machine
    python -m benchmarks.regressors --data FOLDER --record other.json           there; then here: --merge other.json

Rows are parted in three by a seed that nobody tuned on; each part is tested once, and whatever a method chooses it
chooses on the other two. Each (set, method, part) is written to the record as it ends, so that a call goes on where
the last one stopped. Rows of ours are told apart by a hash of the code of the estimators and solvers.
"""

from __future__ import annotations

import argparse
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
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from matplotlib.figure import Figure
from scipy.stats import friedmanchisquare, rankdata, studentized_range
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
from gatelab.plotting import theme
from gatelab.statistics import Interval, bootstrap

PrintedTable = tuple[str, list[dict[str, Any]], str]
Entry = dict[str, Any]
SPLIT_SEED = 771_203
SPLITS = 3
LEAST_PROBABILITY = 1e-6  # of a class, where the log loss is taken: a forest says zero and may be wrong
CLOSE = 1.02  # times the best: as good as the best
MOST_LEVELS = 40  # columns of zeros and ones that a column of names becomes, for methods that take numbers alone
KERNEL_ROWS = 2500  # kernel methods cost rows cubed: where rows are many they get this many
PROCESS_ROWS = 1000  # rows of a set beyond which a Gaussian process is left out
CODE = Path(gatelab.__file__).parent
RESULTS = Path(__file__).resolve().parents[1] / "results" / "tables"
FIELD: dict[Task, str] = {"regression": "rmse", "classes": "log_loss"}


@dataclass(frozen=True)
class Method:
    """An estimator and how it is given a table.

    Attributes:
        name: how it is asked for.
        label: how tables call it.
        package: that it comes from; "gatelab" for ours.
        settings: what it is given, in words; a record of other settings does not count.
        make: the estimator itself; None where it is not available.
        most_rows: of a set, beyond which the method is left out; None for no limit.
        why: why it is not available.
        variant: whether it is another setting of a method that is compared already; it then takes no place.
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
        """Of the package; of ours, a hash of the code."""
        if self.ours:
            return estimator_code()
        try:
            return version(self.package)
        except PackageNotFoundError:
            return ""

    def takes(self, dataset: DataSet) -> bool:
        """Whether the set is short enough."""
        return self.most_rows is None or dataset.rows <= self.most_rows


@lru_cache(maxsize=1)
def estimator_code() -> str:
    """A mark of the code that fits: estimators and solvers.

    >>> len(estimator_code())
    12
    """
    digest = hashlib.sha256()
    for room in ("estimators", "solve"):
        for path in sorted((CODE / room).rglob("*.py")):
            digest.update(path.relative_to(CODE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


# How methods are given a table.


def as_numbers(estimator: Any, *, scaled_target: bool = False) -> Any:
    """An estimator behind what makes numbers of a table: medians for what is missing, zeros and ones for names.

    Args:
        estimator: takes numbers alone.
        scaled_target: whether it also wants targets of mean zero and variance one.

    Returns:
        A pipeline.
    """
    names = make_column_selector(dtype_include="category")
    levels = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_LEVELS, sparse_output=False, drop="if_binary"
    )
    columns = ColumnTransformer(
        [
            ("numbers", SimpleImputer(strategy="median"), make_column_selector(dtype_include="number")),
            ("names", make_pipeline(FilledNames(), levels), names),
        ]
    )
    pipeline = make_pipeline(columns, StandardScaler(), estimator)
    if scaled_target:
        return TransformedTargetRegressor(pipeline, transformer=StandardScaler())
    return pipeline


class FilledNames(BaseEstimator):
    """Columns of names as texts, what is missing a name of its own."""

    def fit(self, X: pd.DataFrame, y: Any = None) -> FilledNames:
        self.columns_ = list(X.columns)
        return self

    def transform(self, X: pd.DataFrame) -> np.ndarray:
        return X.astype(object).where(X.notna(), "(missing)").to_numpy(dtype=object)


def as_table(estimator: Any) -> Any:
    """One of ours as it is if it takes tables, which its tags tell; else behind what makes numbers of them."""
    tags = get_tags(estimator).input_tags
    if tags.allow_nan or tags.categorical:
        return estimator
    return as_numbers(estimator)


class Fewer(BaseEstimator):
    """A model fitted to `KERNEL_ROWS` rows drawn at random, where there are many more."""

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


# One fit.


def splits(table: LoadedTable) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows of each part; classes are parted alike.

    Args:
        table: what is parted.

    Returns:
        `SPLITS` pairs of row numbers; every row is tested once.
    """
    parts: KFold | StratifiedKFold = KFold(SPLITS, shuffle=True, random_state=SPLIT_SEED)
    if table.dataset.task == "classes":
        parts = StratifiedKFold(SPLITS, shuffle=True, random_state=SPLIT_SEED)
    return list(parts.split(table.X, table.y))


def measured(dataset: DataSet, method: Method, split: int, folder: str | None = None) -> Entry:
    """Fit a method to one part of a set and test it on the other: an entry of the record.

    Args:
        dataset: the set.
        method: what is fitted.
        split: which part is tested.
        folder: where the sets lie as CSV; None reads the packages.

    Returns:
        Errors, CPU seconds and peak memory of the fit; where it failed, `failed` says how.
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
    except Exception as error:  # a peer that fails on one set must not end the run; the entry says so, and is retried
        entry["failed"] = f"{type(error).__name__}: {error}"[:300]
    entry |= {"machine": f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"}
    return entry | {"ended": datetime.now(UTC).isoformat(timespec="seconds")}


def scores(model: Any, task: Task, X: pd.DataFrame, y: np.ndarray) -> Entry:
    """Errors on rows that were not trained on.

    Args:
        model: fitted.
        task: what the target is.
        X: the rows.
        y: their targets.

    Returns:
        RMSE and, of a method that tells standard deviations, the share of targets within 1.96 of them; or log loss and
        accuracy.
    """
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
    """By how much the memory of this process rises; Linux alone can tell."""

    def __init__(self) -> None:
        self.before: float | None = None
        try:
            # What earlier fits have freed would else be taken again without being counted.
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")
            self.before = process_memory("VmRSS:")
        except (OSError, AttributeError):
            self.before = None

    def risen(self) -> float | None:
        """MiB between the start and the highest since."""
        if self.before is None:
            return None
        return round(process_memory("VmHWM:") - self.before, 1)


def process_memory(line: str) -> float:
    """A line of what the system knows of this process, in MiB."""
    return int(Path("/proc/self/status").read_text().partition(line)[2].split()[0]) / 1024


# The record.


class Record:
    """Entries in a JSON file, a line each; what is added is in the file at once.

    Args:
        path: of the file, which may be there already.
        write_to: another file for what is added, which leaves the first as it is.
    """

    def __init__(self, path: str | Path, write_to: Path | None = None) -> None:
        self.path = Path(path)
        self.entries: dict[str, Entry] = {}
        self.reread()
        self.path = write_to or self.path

    def reread(self) -> None:
        """Take over what the file has: another process may have added to it."""
        if not self.path.exists():
            return
        try:
            lines = json.loads(self.path.read_text(encoding="utf-8"))["entries"]
            self.entries |= {key_of(entry): entry for entry in lines}
        except (ValueError, KeyError, TypeError) as error:
            raise GatelabError(
                f"{self.path} is no record of this benchmark ({error}); give another name as --record"
            ) from error

    def add(self, entries: Iterable[Entry]) -> None:
        """Add entries, in place of those with the same key, and write the file."""
        self.reread()
        self.entries |= {key_of(entry): entry for entry in entries}
        lines = ",\n".join(json.dumps(self.entries[key]) for key in sorted(self.entries))
        tuned = json.dumps(
            sorted(dataset.name for task in get_args(Task) for dataset in chosen(task) if dataset.development)
        )
        write_whole(self.path, f'{{"tuned": {tuned},\n"entries": [\n{lines}\n]}}\n')

    def lacks(self, dataset: DataSet, method: Method, split: int) -> bool:
        """Whether a fit is still to be done, or to be done again: it failed, or its settings were others."""
        head = {"set": dataset.name, "method": method.name, "split": split, "version": method.version}
        entry = self.entries.get(key_of(head | {"seed": SPLIT_SEED}))
        return entry is None or "failed" in entry or entry["settings"] != method.settings


def key_of(entry: Entry) -> str:
    """What tells an entry from others: set, method, part and seed; of ours the code as well.

    >>> key_of({"set": "boston", "method": "svr", "split": 0, "seed": 7, "version": "1.9"})
    'boston/svr/0/7'
    """
    parts = [entry["set"], entry["method"], str(entry["split"]), str(entry["seed"])]
    if entry["method"].startswith("gated"):
        parts.append(entry["version"])
    return "/".join(parts)


def complete(
    record: Record,
    sets: Sequence[DataSet],
    methods: Sequence[Method],
    *,
    jobs: int = 1,
    folder: str | None = None,
) -> int:
    """Fit what the record lacks, the shortest sets first.

    Args:
        record: that is read and added to.
        sets: which.
        methods: which.
        jobs: processes.
        folder: where the sets lie as CSV; None reads the packages.

    Returns:
        How many fits were done.
    """
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


# What the record says.


@dataclass(frozen=True)
class Comparison:
    """Errors of methods on sets, all of them known.

    Attributes:
        sets: names of the rows.
        methods: labels of the columns.
        errors: mean over the parts, (sets, methods).
    """

    sets: tuple[str, ...]
    methods: tuple[str, ...]
    errors: np.ndarray

    @property
    def ratios(self) -> np.ndarray:
        """Errors over the least of each set."""
        return self.errors / self.errors.min(axis=1, keepdims=True)

    @property
    def ranks(self) -> np.ndarray:
        """Places on each set, 1 for the least error; equal ones share theirs."""
        return rankdata(self.errors, axis=1)

    def only(self, sets: Iterable[str]) -> Comparison:
        """The same on some of the sets."""
        rows = [i for i, name in enumerate(self.sets) if name in set(sets)]
        return Comparison(tuple(self.sets[i] for i in rows), self.methods, self.errors[rows])

    def mean_ranks(self, seed: int = 0) -> list[Interval]:
        """Mean places of the methods, with intervals of a bootstrap over sets."""
        return [bootstrap([column], lambda x: x.mean(-1), seed=seed) for column in self.ranks.T]

    def friedman(self) -> float:
        """The p-value of Friedman's test: that no method differs; nan for fewer than three methods or sets."""
        if len(self.methods) < 3 or len(self.sets) < 3:
            return float("nan")
        return float(friedmanchisquare(*self.errors.T).pvalue)


def critical_difference(methods: int, sets: int, level: float = 0.05) -> float:
    """Nemenyi's: mean places that differ by more differ at the level, all pairs together.

    Args:
        methods: how many are compared.
        sets: how many they are compared on.
        level: of the test.

    Returns:
        The difference of mean places.

    >>> round(critical_difference(4, 14), 3)
    1.254
    """
    quantile = studentized_range.ppf(1 - level, methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(methods * (methods + 1) / (6 * sets)))


def cliques(places: np.ndarray, difference: float) -> list[tuple[float, float]]:
    """The longest ranges of mean places within which no two methods differ.

    Args:
        places: mean places.
        difference: the critical one.

    Returns:
        First and last place of each range that holds two methods or more, in ascending order.

    >>> cliques(np.array([1.0, 1.5, 2.2, 4.0]), 1.0)
    [(1.0, 1.5), (1.5, 2.2)]
    """
    ordered = np.sort(places)
    last = [int(np.searchsorted(ordered, place + difference, side="right")) - 1 for place in ordered]
    ranges = [(i, j) for i, j in enumerate(last) if j > i and (i == 0 or j > last[i - 1])]
    return [(float(ordered[i]), float(ordered[j])) for i, j in ranges]


def versions_of(record: Record, method: Method) -> list[str]:
    """Codes of ours in the record: the present one first if it is there, then the latest first."""
    ended: dict[str, str] = {}
    for entry in record.entries.values():
        if entry["method"] == method.name and "failed" not in entry:
            ended[entry["version"]] = max(ended.get(entry["version"], ""), entry["ended"])
    return sorted(ended, key=lambda code: (code == method.version, ended[code]), reverse=True)


def values(record: Record, dataset: DataSet, method: Method, field: str, code: str | None = None) -> np.ndarray | None:
    """A number of a method on every part of a set, None where a part is missing.

    Args:
        record: where from.
        dataset: the set.
        method: the method.
        field: of the entries.
        code: of ours; None takes the present one, or the latest of the record.

    Returns:
        A number a part.
    """
    if method.ours and code is None:
        code = next(iter(versions_of(record, method)), method.version)
    numbers = []
    for split in range(SPLITS):
        head = {"set": dataset.name, "method": method.name, "split": split, "seed": SPLIT_SEED}
        entry = record.entries.get(key_of(head | {"version": code or method.version}))
        if entry is None or entry.get(field) is None:
            return None
        numbers.append(entry[field])
    return np.array(numbers)


def comparison(record: Record, sets: Sequence[DataSet], methods: Sequence[Method], field: str) -> Comparison:
    """Errors of the methods on the sets that all of them have.

    Args:
        record: where from.
        sets: candidates.
        methods: columns.
        field: of the entries.

    Returns:
        A comparison, whose sets may be fewer.
    """
    rows = {}
    for dataset in sets:
        columns = [values(record, dataset, method, field) for method in methods]
        if all(column is not None for column in columns):
            rows[dataset.name] = [float(np.mean(column)) for column in columns if column is not None]
    errors = np.array(list(rows.values())).reshape(len(rows), len(methods))
    return Comparison(tuple(rows), tuple(method.label for method in methods), errors)


def tables(record: Record, task: Task, methods: Sequence[Method]) -> Iterator[PrintedTable]:
    """What the record says: set by set, in places, in seconds and bytes, and version by version of ours.

    Args:
        record: where from.
        task: of the sets.
        methods: which.

    Yields:
        A title, rows and a note for each table.
    """
    field, sets = FIELD[task], chosen(task)
    present = [m for m in methods if any(values(record, s, m, field) is not None for s in sets)]
    if not present:
        yield "nothing is recorded yet", [{"method": "none"}], f"{record.path} has no complete fit"
        return
    compared = [m for m in present if not m.variant]
    yield set_by_set(record, sets, compared, field)
    full = [m for m in compared if m.most_rows is None]
    limited = [m for m in compared if m.most_rows is not None]
    groups = {
        "sets not used for tuning defaults": [s for s in sets if not s.development],
        "development sets": [s for s in sets if s.development],
    }
    for title, group in groups.items():
        yield from standing(record, group, full, field, f"{title}, all methods without a limit of rows")
        peers = [m for m in full if not m.ours]
        if len(comparison(record, group, peers, field).sets) > len(comparison(record, group, full, field).sets):
            yield from standing(record, group, peers, field, f"{title}, peers alone, which have more of them")
    if limited:
        few = [s for s in groups["sets not used for tuning defaults"] if all(m.takes(s) for m in limited)]
        yield from standing(record, few, compared, field, "short sets not used for tuning defaults, all methods")
    for method in present:
        if method.ours:
            yield from version_by_version(record, sets, method, field)
    yield from members_and_coverage(record, sets, present, field)


def set_by_set(record: Record, sets: Sequence[DataSet], methods: Sequence[Method], field: str) -> PrintedTable:
    """Errors over the best, a row a set.

    Args:
        record: where from.
        sets: rows.
        methods: columns.
        field: of the entries.

    Returns:
        Title, rows and note.
    """
    rows = []
    for dataset in sets:
        means = {}
        for method in methods:
            numbers = values(record, dataset, method, field)
            if numbers is not None:
                means[method.label] = float(numbers.mean())
        if not means:
            continue
        best = min(means.values())
        row: dict[str, Any] = {"set": dataset.name + " *" * dataset.development, "rows": dataset.rows}
        row |= {"columns": dataset.facts.columns, "best": f"{best:.4g}"}
        rows.append(row | {m.label: cell(means.get(m.label), best) for m in methods})
    note = f"{field.replace('_', ' ')}, mean of {SPLITS} parts, over the best of the set. * development set."
    return "set by set", rows, note


def cell(value: float | None, best: float) -> str:
    """An error over the best, as text."""
    if value is None:
        return "-"
    return f"{value / best:.3g}" if value / best >= 10 else f"{value / best:.3f}"


def standing(
    record: Record, sets: Sequence[DataSet], methods: Sequence[Method], field: str, title: str
) -> Iterator[PrintedTable]:
    """Places, shares, worst cases, seconds and memory of methods, nothing where fewer than two can be compared.

    Args:
        record: where from.
        sets: candidates.
        methods: rows.
        field: of the entries.
        title: of the table.

    Yields:
        One table.
    """
    methods = [m for m in methods if any(values(record, s, m, field) is not None for s in sets)]
    errors = comparison(record, sets, methods, field)
    if len(errors.sets) < 2 or len(methods) < 2:
        return
    common = [s for s in sets if s.name in errors.sets]
    ratios, places = errors.ratios, errors.mean_ranks()
    boosting = [i for i, m in enumerate(methods) if m.name in ("boosting", "lightgbm")]
    rows = []
    for i in np.argsort([place.value for place in places], kind="stable"):
        method = methods[i]
        row: dict[str, Any] = {"method": errors.methods[i], "mean place": f"{places[i]:.2f}"}
        row["first"] = f"{np.mean(ratios[:, i] == 1):.0%}"
        row["within 2 %"] = f"{np.mean(ratios[:, i] <= CLOSE):.0%}"
        row["median / best"] = f"{np.median(ratios[:, i]):.3f}"
        row["worst / best"] = f"{ratios[:, i].max():.3g}"
        for j in boosting:
            row[f"worst / {errors.methods[j]}"] = f"{(errors.errors[:, i] / errors.errors[:, j]).max():.3f}"
        if len(boosting) > 1:
            least = errors.errors[:, boosting].min(axis=1)
            row["> 1.1 x boosting"] = f"{np.sum(errors.errors[:, i] > 1.1 * least)} of {len(common)}"
        row |= cost(record, common, method)
        rows.append(row)
    difference = critical_difference(len(methods), len(common))
    note = (
        f"{len(common)} of {counted(len(sets), 'set')}, which all methods have; places with bootstrap intervals over "
        f"sets; Friedman's test: p = {errors.friedman():.2g}; critical difference (Nemenyi, 5 %): {difference:.2f}. "
        "CPU seconds of one thread and MiB of a fit, the median and the most over sets, searches included. "
        "More than 1.1 times the better of both boostings: how often."
    )
    machines = machines_of(record, errors.sets, methods)
    if len(machines) > 1:
        note += f" Seconds are of different machines: {'; '.join(machines)}."
    yield title, rows, note


def machines_of(record: Record, sets: Iterable[str], methods: Iterable[Method]) -> list[str]:
    """The machines that entries of these sets and methods come from."""
    names, which = set(sets), {method.name for method in methods}
    entries = [e for e in record.entries.values() if e["set"] in names and e["method"] in which]
    return sorted({entry["machine"] for entry in entries if "machine" in entry})


def cost(record: Record, sets: Sequence[DataSet], method: Method) -> dict[str, str]:
    """CPU seconds and MiB of a fit: the median over sets and the most."""
    parts = {}
    for field, name in (("cpu_s", "CPU s"), ("peak_mib", "MiB")):
        numbers = [values(record, s, method, field) for s in sets]
        means = [float(n.mean()) for n in numbers if n is not None]
        parts[name] = f"{np.median(means):.3g}, {max(means):.3g}" if means else "-"
    return parts


def version_by_version(record: Record, sets: Sequence[DataSet], method: Method, field: str) -> Iterator[PrintedTable]:
    """Codes of one of ours against the present one, on the sets that both have.

    Args:
        record: where from.
        sets: candidates.
        method: of ours.
        field: of the entries.

    Yields:
        A table, if there is more than one code.
    """
    codes = versions_of(record, method)
    rows = []
    for code in codes[1:]:
        pairs = [(values(record, s, method, field, codes[0]), values(record, s, method, field, code)) for s in sets]
        both = [(float(new.mean()), float(old.mean())) for new, old in pairs if new is not None and old is not None]
        if both:
            ratio = np.array([new / old for new, old in both])
            row: dict[str, Any] = {"before": code, "sets": len(both), "better on": f"{np.mean(ratio < 1):.0%}"}
            rows.append(row | {"geometric mean of new / old": f"{np.exp(np.log(ratio).mean()):.3f}"})
            rows[-1]["worst"] = f"{ratio.max():.3f}"
    if rows:
        yield f"{method.label} {codes[0]} against its former code", rows, f"{field} on the same parts"


def members_and_coverage(
    record: Record, sets: Sequence[DataSet], methods: Sequence[Method], field: str
) -> Iterator[PrintedTable]:
    """What members give and cost, and how often targets lie within 1.96 standard deviations.

    Args:
        record: where from.
        sets: candidates.
        methods: of which those of ours matter.
        field: of the entries.

    Yields:
        A table each, where the record has something of it.
    """
    ours = {m.name: m for m in methods if m.ours}
    if len(ours) == 2:
        many, single = ours["gated"], ours["gated-1"]
        rows = []
        for dataset in sets:
            row: dict[str, Any] = {"set": dataset.name + " *" * dataset.development}
            for name, number in ((f"{field}, 1 / default", field), ("CPU s, default / 1", "cpu_s")):
                default, alone = (values(record, dataset, m, number) for m in (many, single))
                if default is None or alone is None:
                    break
                ratio = alone.mean() / default.mean()
                row[name] = f"{ratio if number == field else 1 / ratio:.3f}"
            else:
                rows.append(row)
        if rows:
            yield "members=1 against the default, same parts", rows, "above 1: what members give, and what they cost"
    rows = []
    for dataset in sets:
        shares = values(record, dataset, ours["gated"], "coverage") if "gated" in ours else None
        if shares is not None:
            rows.append({"set": dataset.name + " *" * dataset.development, "within 1.96 std": f"{shares.mean():.1%}"})
    if rows:
        yield "coverage of predict(X, return_std=True)", rows, "95 % if errors were normal and std true"


def critical_difference_figure(errors: Comparison, title: str, level: float = 0.05) -> Figure:
    """Demsar's diagram: mean places on a line, bars over methods that cannot be told apart.

    Args:
        errors: of methods on sets.
        title: above it.
        level: of Nemenyi's test.

    Returns:
        The figure.
    """
    places = errors.ranks.mean(axis=0)
    order = np.argsort(places, kind="stable")
    count = len(order)
    difference = critical_difference(count, len(errors.sets), level)
    bars = cliques(places, difference)
    half = (count + 1) // 2
    step, first = 0.34, 0.45 + 0.16 * len(bars)  # inches below the axis
    depth = first + step * (half - 1) + 0.2
    with theme.style():
        figure = Figure(figsize=(7.2, 1.05 + depth))
        axes = figure.add_axes((0, 0, 1, 1))
        left, right, top = 2.2, 5.0, depth + 0.12
        axes.set_xlim(0, 7.2)
        axes.set_ylim(0, 1.05 + depth)
        axes.axis("off")

        def at(place: float) -> float:
            return left + (right - left) * (place - 1) / (count - 1)

        axes.plot([left, right], [top, top], color="#222222", lw=1)
        for place in range(1, count + 1):
            axes.plot([at(place)] * 2, [top, top + 0.07], color="#222222", lw=1)
            axes.text(at(place), top + 0.1, str(place), ha="center", va="bottom", fontsize=8)
        axes.plot([at(1), at(1 + difference)], [top + 0.42] * 2, color="#222222", lw=1.6)
        for end in (at(1), at(1 + difference)):
            axes.plot([end, end], [top + 0.37, top + 0.47], color="#222222", lw=1.6)
        axes.text(at(1 + difference) + 0.08, top + 0.42, f"critical difference {difference:.2f}", va="center")
        axes.text(0.12, 0.85 + depth, title, fontsize=10, va="center")
        for number, i in enumerate(order):
            ours = errors.methods[i].startswith("Gated")
            colour, weight = ("#D55E00", "bold") if ours else ("#222222", "normal")
            height = top - first - step * (number if number < half else count - 1 - number)
            edge, side = (left - 0.15, "right") if number < half else (right + 0.15, "left")
            axes.plot([at(places[i]), at(places[i]), edge], [top, height, height], color=colour, lw=0.9)
            axes.plot([at(places[i])], [top], "o", color=colour, ms=4)
            shift = -0.06 if side == "right" else 0.06
            label = f"{errors.methods[i]}  {places[i]:.2f}"
            axes.text(edge + shift, height, label, ha=side, va="center", color=colour, weight=weight)
        for row, (begin, end) in enumerate(bars):
            height = top - 0.2 - 0.16 * row
            axes.plot([at(begin) - 0.02, at(end) + 0.02], [height] * 2, color="#0072B2", lw=3.2, solid_capstyle="butt")
    return figure


def present_and_recorded(
    task: Task, methods: Sequence[Method], path: Path, quick: Sequence[str]
) -> Iterator[PrintedTable]:
    """The present code beside boosting on quick sets, which is not written; then the tables of the record.

    Args:
        task: of the sets.
        methods: all there are.
        path: of the record.
        quick: names of the quick sets.

    Yields:
        Titles, rows and notes.
    """
    warnings.filterwarnings("ignore")
    sets, both = chosen(task, quick), [m for m in methods if m.name in ("gated", "boosting")]
    with tempfile.TemporaryDirectory() as folder:
        record = Record(path, write_to=Path(folder) / "record.json")
        complete(record, sets, both)
        _, rows, note = set_by_set(record, sets, both, FIELD[task])
        yield "the present code", rows, note
    yield from tables(Record(path), task, methods)


# The command.


def print_tables(printed: Iterable[PrintedTable]) -> None:
    """Tables for a log: plain text, a column as wide as it needs."""
    for title, rows, note in printed:
        print(f"\n{title}\n{pd.DataFrame(rows).to_string(index=False)}\n{note}")


def command(task: Task, methods: Sequence[Method], record: Path, arguments: Sequence[str] | None = None) -> None:
    """What `python -m benchmarks.regressors` and `python -m benchmarks.classifiers` do.

    Args:
        task: of the sets.
        methods: all there are.
        record: the file, unless another is given.
        arguments: of the command line; None takes those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="", help=f"of {', '.join(m.name for m in methods)}; all unless given")
    parser.add_argument("--sets", default="", help="names as --list shows them, with commas; all unless given")
    parser.add_argument("--rows", type=int, default=10**9, help="leave out sets with more rows")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--record", type=Path, default=record, help="where fits are kept")
    parser.add_argument("--data", help="the folder of an export, in place of the packages")
    parser.add_argument("--export", help="write the sets as CSV into this folder, and end")
    parser.add_argument("--merge", type=Path, help="add the entries of this record, and show the tables")
    parser.add_argument("--list", action="store_true", help="the sets and their facts")
    parser.add_argument("--show", action="store_true", help="the tables of the record, without any fit")
    parser.add_argument("--figure", help="write the critical-difference plot of the sets not used for tuning defaults")
    given = parser.parse_args(arguments)
    try:
        obey(task, methods, given)
    except GatelabError as error:
        sys.exit(str(error))


def obey(task: Task, methods: Sequence[Method], given: argparse.Namespace) -> None:
    """Do what the command line says.

    Args:
        task: of the sets.
        methods: all there are.
        given: the parsed arguments.
    """
    if given.list:
        print_tables([listed(task)])
        return
    if given.export:
        sets = readable([*chosen("regression"), *chosen("classes")], None)
        print(f"{counted(len(export(given.export, sets)), 'file')} in {given.export}")
        return
    record = Record(given.record)
    if given.merge:
        record.add(Record(given.merge).entries.values())
    elif not given.show:
        names = [name for name in given.methods.split(",") if name]
        unknown = set(names) - {m.name for m in methods}
        if unknown:
            known = ", ".join(m.name for m in methods)
            raise GatelabError(f"no method is called {', '.join(sorted(unknown))}; there are {known}")
        wanted = [m for m in methods if not names or m.name in names]
        for method in wanted:
            if method.make is None:
                print(f"{method.label} is left out: {method.why}", file=sys.stderr)
        sets = [s for s in chosen(task, [n for n in given.sets.split(",") if n]) if s.rows <= given.rows]
        complete(record, readable(sets, given.data), wanted, jobs=given.jobs, folder=given.data)
    print_tables(tables(record, task, methods))
    if given.figure:
        print(f"figure in {draw(record, task, methods, given.figure)}")


def listed(task: Task) -> PrintedTable:
    """The sets of a task and their facts, as a table."""
    rows = []
    for s in chosen(task):
        row: dict[str, Any] = {"set": s.name, "from": f"{s.package}: {s.file}", "target": s.target, "rows": s.rows}
        row |= {"of": s.facts.rows, "columns": s.facts.columns, "of names": s.facts.categories}
        row |= {"missing": s.facts.missing, "mean": f"{s.facts.mean:.4g}", "development": "yes" * s.development}
        rows.append(row | {"left out": "; ".join(f"{name}: {why}" for name, why in s.dropped)})
    return task, rows, "mean: of the target; of classes, the share of the most frequent"


def readable(sets: Sequence[DataSet], folder: str | None) -> list[DataSet]:
    """The sets that can be read here; of the others a line says why not."""
    present = []
    for dataset in sets:
        try:
            load(dataset, folder)
            present.append(dataset)
        except GatelabError as error:
            print(f"{dataset.name} is left out: {error}", file=sys.stderr)
    return present


def draw(record: Record, task: Task, methods: Sequence[Method], path: str) -> Path:
    """Write the critical-difference plot of the methods without a limit of rows, on sets not used for tuning defaults.

    Args:
        record: where from.
        task: of the sets.
        methods: all there are.
        path: of the figure.

    Returns:
        The file.
    """
    sets = [s for s in chosen(task) if not s.development]
    full = [m for m in methods if m.most_rows is None and not m.variant]
    full = [m for m in full if any(values(record, s, m, FIELD[task]) is not None for s in sets)]
    errors = comparison(record, sets, full, FIELD[task])
    if len(errors.sets) < 2 or len(full) < 2:
        raise GatelabError(f"{record.path} has fewer than two methods on two common sets; run more before --figure")
    noun = {"regression": "RMSE", "classes": "log loss"}[task]
    title = f"Mean place by {noun} on {len(errors.sets)} tables not used for tuning defaults (1 is best)"
    return theme.save(critical_difference_figure(errors, title), path)
