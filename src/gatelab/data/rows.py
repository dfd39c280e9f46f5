"""Rows of inputs and targets: checked, split into training and test, sampled from a function, and standardized.

Points of one input are arrays (N,), points of d inputs are arrays (N, d).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gatelab.arrays import Array, finite_array, refuse_masked
from gatelab.display import Compact, counted, one_line
from gatelab.errors import GatelabError, check_seed, real_number, unknown_name, whole_number

if TYPE_CHECKING:
    from gatelab.data.definition import Problem

Function = Callable[[Array], Array]
PROTOCOLS = ("split", "paper")
MAX_POINTS = 10**8
# Beyond these sizes, squares of errors and fourth powers of widths overflow or underflow.
LEAST, MOST = 1e-60, 1e60
# The header of row labels in CSV files of pandas and R, and pandas' name for it.
UNNAMED = re.compile(r"(Unnamed: \d+(\.\d+)?)?")
EPS = float(np.finfo(np.float64).eps)
SAMPLINGS = ("random", "grid")


@dataclass(frozen=True, eq=False)
class Data:
    """Rows of inputs and targets, finite and float64; one-dimensional arrays are read as columns.

    Attributes:
        x: the inputs, (N, d_in).
        y: the targets, (N, d_out).

    >>> data = Data([0.0, 0.5, 1.0], [[1, 2], [3, 4], [5, 6]])
    >>> data.n, data.d_in, data.d_out
    (3, 1, 2)
    """

    x: Array
    y: Array

    def __repr__(self) -> str:
        return one_line(self, f"{self.n} rows, {counted(self.d_in, 'input')}, {counted(self.d_out, 'output')}")

    def __post_init__(self) -> None:
        x, y = matrix(self.x, "x"), matrix(self.y, "y")
        if len(x) != len(y):
            raise GatelabError(f"x has {len(x)} rows and y has {len(y)}; give one target row for each input row")
        if len(x) < 2:
            raise GatelabError(f"the data have {len(x)} row{'s' * (len(x) != 1)}; give at least 2")
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", y)

    @property
    def n(self) -> int:
        return self.x.shape[0]

    @property
    def d_in(self) -> int:
        return self.x.shape[1]

    @property
    def d_out(self) -> int:
        return self.y.shape[1]


def row_keys(*parts: Array) -> NDArray[np.void]:
    """One opaque value per row; equal rows have equal values."""
    # Adding zero turns -0.0 into 0.0, which is equal but has other bytes.
    rows = np.ascontiguousarray(np.hstack(parts)) + 0.0
    return rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()


def split(rows: Data, test_fraction: float, seed: int) -> tuple[Data, Data]:
    """Training and test rows; rows of equal x stay on one side."""
    real_number("test_fraction", test_fraction, above=0, below=1)
    generator = np.random.default_rng(seeds(seed))
    distinct, group = np.unique(row_keys(rows.x), return_inverse=True)
    groups = len(distinct)
    if groups < 4:
        raise GatelabError(
            f"the data have {rows.n} rows with {groups} distinct x; rows of equal x stay together, so at least 4 are"
            " needed to split into train and test: give more, or, of arrays, the test data yourself as test=(x, y)"
        )
    n_test = min(max(round(test_fraction * groups), 2), groups - 2)
    in_test = (generator.permutation(groups) < n_test)[group.ravel()]
    return Data(rows.x[~in_test], rows.y[~in_test]), Data(rows.x[in_test], rows.y[in_test])


def given_test(test: Any) -> Data:
    try:
        x, y = test
    except (TypeError, ValueError):
        raise GatelabError("test is not a pair; give test=(x_test, y_test), or leave it out for a split") from None
    return Data(matrix(x, "test x"), matrix(y, "test y"))


def refuse_shared_rows(train: Data, test: Data) -> None:
    """Refuse test rows that are equal to training rows in x and y; another target at the same x is a fair test."""
    if shared := int(np.isin(row_keys(test.x, test.y), row_keys(train.x, train.y)).sum()):
        raise GatelabError(
            f"{shared} of {test.n} test rows are training rows too, so the test error would partly be"
            " training error; remove them from one side, or leave test out for a split"
        )


def sizes(n: Any, n_test: Any) -> tuple[int, int]:
    """The numbers of training and of test points, which are equal by default."""
    n = whole_number("n", n, 2, MAX_POINTS)
    if n_test is None:
        return n, n
    return n, whole_number("n_test", n_test, 2, MAX_POINTS)


def sample(sampling: str, interval: tuple[float, float], n: int, d_in: int, rng: np.random.Generator) -> Array:
    """n points in the interval, or in the cube with these sides; a grid in a cube has about n points."""
    if sampling not in SAMPLINGS:
        raise unknown_name("sampling", str(sampling), SAMPLINGS)
    if sampling == "random":
        return rng.uniform(*interval, n if d_in == 1 else (n, d_in))
    if d_in == 1:
        return np.linspace(*interval, n)
    if grid_side(n, d_in) ** d_in > MAX_POINTS:
        raise GatelabError(f"a grid with {d_in} inputs has 2^{d_in} points or more; take sampling 'random'")
    side = np.linspace(*interval, grid_side(n, d_in))
    return np.stack(np.meshgrid(*[side] * d_in, indexing="ij"), axis=-1).reshape(-1, d_in)


def grid_side(n: int, d_in: int) -> int:
    """The points per side of a product grid of about n points, at least 2."""
    return max(2, round(n ** (1 / d_in)))


def values(f: Function, x: Array) -> Array:
    """The function's values at x, finite and float64: (N,) for one input, (N,) or (N, d_out) for several."""
    one = x.ndim == 1
    shapes = "an (N,) array to an (N,) array" if one else f"an (N, {x.shape[1]}) array to (N,) or (N, d_out)"
    if not callable(f):
        raise GatelabError(f"f is {f!r}; give a function that maps {shapes}")
    try:
        with np.errstate(all="ignore"):
            y = f(x.copy())  # which may work in place
            refuse_masked(y, "the function's result")
            y = np.asarray(y)
    except GatelabError:
        raise
    except Exception as error:
        raise GatelabError(
            f"the function failed on an array of {len(x)} points: {type(error).__name__}: {error};"
            f" write it with numpy functions, so that it maps {shapes}, or wrap it in numpy.vectorize"
        ) from error
    fits = y.shape == x.shape if one else y.shape[:1] == x.shape[:1] and y.ndim <= 2 and y.size > 0
    if not fits or y.dtype.kind not in "biuf":
        raise GatelabError(
            f"the function returned {y.dtype} of shape {y.shape} for an array of shape {x.shape}; it must map {shapes}"
            " of real numbers"
        )
    y = y.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(y.reshape(len(y), -1)).all(axis=1))
    if len(bad):
        first = bad[np.argmin(x[bad])] if one else bad[0]
        raise GatelabError(
            f"the function is not finite at {len(bad)} of {len(x)} points, the first of them at"
            f" x = {first_row(x[first].reshape(1, -1))} (value {y[first]}); choose an interval where it is defined"
        )
    return y


STANDARDIZED = "inputs and target standardized by the mean and standard deviation of the training part"


@dataclass(frozen=True, eq=False)
class Scale(Compact):
    """The mean and the standard deviation of each column; 1 for a column that does not vary."""

    mean: Array
    deviation: Array

    def __post_init__(self) -> None:
        mean, deviation = self.mean, self.deviation
        if mean.ndim != 1 or mean.shape != deviation.shape or not (np.isfinite(mean) & (deviation > 0)).all():
            raise ValueError(f"the means {mean} and deviations {deviation} are not a valid scale")

    @classmethod
    def of(cls, rows: Array) -> Scale:
        with np.errstate(all="ignore"):
            mean = rows.mean(axis=0)
            # Divided by the largest, since squares of 1e-200 underflow and those of 1e200 overflow.
            largest = np.abs(rows - mean).max(axis=0)
            deviation = np.where(varying(rows), largest * ((rows - mean) / largest).std(axis=0), 1.0)
        if not (np.isfinite(mean) & np.isfinite(deviation) & (deviation > 0)).all():
            size = np.abs(rows).max()
            raise GatelabError(
                f"the mean and standard deviation of values up to {size:g} cannot be computed in double precision;"
                " rescale the columns, or do not standardize"
            )
        return cls(mean, deviation)

    def shrink(self, rows: Array) -> Array:
        return (rows - self.mean) / self.deviation

    def stretch(self, rows: Array) -> Array:
        return rows * self.deviation + self.mean


@dataclass(frozen=True, eq=False)
class Scales(Compact):
    """The scales of the inputs and targets of a standardized problem."""

    x: Scale
    y: Scale

    def shrink(self, rows: Data) -> Data:
        return Data(self.x.shrink(rows.x), self.y.shrink(rows.y))


@dataclass(frozen=True, eq=False)
class Standardized(Compact):
    """A function of standardized inputs with standardized values."""

    f: Function
    scales: Scales

    def __call__(self, x: Array) -> Array:
        return self.scales.y.shrink(self.f(self.scales.x.stretch(x)))


def standardized(problem: Problem) -> Problem:
    """The problem with inputs and targets standardized by its training part; its `scales` restore raw values."""
    if problem.scales is not None:
        raise GatelabError(f"the problem {problem.name!r} is standardized already; leave standardize out")
    scales = Scales(Scale.of(problem.train.x), Scale.of(problem.train.y))
    train = scales.shrink(problem.train)
    test = train if problem.test is problem.train else scales.shrink(problem.test)  # the paper's protocol
    changed: dict[str, Any] = {"train": train, "test": test, "scales": scales}
    if problem.interval is not None:
        changed["interval"] = tuple(scales.x.shrink(np.array(problem.interval)).tolist())
    if problem.noise is not None:
        changed["noise"] = float(problem.noise * np.sqrt(np.mean(scales.y.deviation**-2.0)))
    if problem.f is not None:
        changed["f"] = Standardized(problem.f, scales)
    return replace(problem, **changed, description="; ".join(filter(None, (problem.description, STANDARDIZED))))


def matrix(value: Any, what: str) -> Array:
    """A finite float64 copy with one row per example."""
    try:
        rows = finite_array(what, without_row_labels(value, what), instead="remove or replace those rows")
    except GatelabError as error:
        raise GatelabError(f"{error}; gl.GatedRegressor accepts columns of text, dates and missing values") from error
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise GatelabError(f"{what} has the shape {rows.shape}; give (N,) or (N, columns), one row per example")
    return rows


def names_of(value: Any) -> tuple[str, ...]:
    """The column names of a pandas, polars or pyarrow table, or the name of one column; none unless all are text."""
    names: list[Any] = list(getattr(value, "column_names", ()))  # pyarrow
    if hasattr(value, "to_numpy") and not names:
        names = list(getattr(value, "columns", ()))
        if not names and len(getattr(value, "shape", ())) == 1:
            names = [getattr(value, "name", None)]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return ()
    return tuple(names)


def unnamed(names: Sequence[str]) -> list[int]:
    """The columns without a name among others with names, such as the index of a data frame in a file."""
    bare = [i for i, name in enumerate(names) if UNNAMED.fullmatch(str(name).strip())]
    return bare if len(bare) < len(names) else []


def are_row_labels(values: Any) -> bool:
    """Whether values can label rows: they are distinct, and integers if they are numbers."""
    texts = [str(value).strip() for value in values]
    try:
        numbers = np.array(texts, dtype=np.float64)
    except ValueError:
        return len(set(texts)) == len(texts)
    return bool((numbers == np.floor(numbers)).all()) and len(np.unique(numbers)) == len(numbers)


def without_row_labels(value: Any, what: str) -> Any:
    """Drop the unnamed columns of a data frame that label its rows, with a warning; return other values unchanged."""
    if not (hasattr(value, "columns") and hasattr(value, "iloc")):
        return value
    labels = [i for i in unnamed(list(value.columns)) if are_row_labels(value.iloc[:, i])]
    if not labels:
        return value
    names = ", ".join(repr(value.columns[i]) for i in labels)
    warn_of_columns(f"{what}: the column {names} labels the rows and is left out; rename it to use it")
    return value.iloc[:, [i for i in range(value.shape[1]) if i not in labels]]


def warn_of_columns(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=2)


def require_range(x: Array, y: Array) -> None:
    """Refuse inputs and targets whose powers overflow or underflow."""
    for rows, what in ((x, "inputs"), (y, "targets")):
        size = np.abs(rows).max(axis=0)
        extreme = (size > MOST) | ((size > 0) & (size < LEAST))
        if extreme.any():
            raise GatelabError(
                f"the {what} reach {size[extreme][0]:.3g}; sizes from {LEAST:g} to {MOST:g} work: give them in other"
                " units, or standardize=True"
            )


def varying(rows: Array) -> NDArray[np.bool_]:
    """For each column, whether its values differ by more than rounding."""
    # Halves, since the range of finite numbers may overflow.
    half_range = rows.max(axis=0) / 2 - rows.min(axis=0) / 2
    return half_range > 8 * EPS * np.abs(rows).max(axis=0)


def first_row(rows: Array) -> str:
    """The first row for an error message, with at most five values."""
    values = [f"{v:.6g}" for v in rows[0]]
    if len(values) == 1:
        return values[0]
    return f"({', '.join(values[:5])}{', ...' * (len(values) > 5)})"


def require_varying(y: Array) -> None:
    y = y.reshape(len(y), -1)
    if varying(y).any():
        return
    # Smaller differences are rounding errors of a constant.
    if (np.ptp(y, axis=0) > 4 * EPS * np.abs(y).max(axis=0)).any():
        raise GatelabError(
            f"the target differs by {np.ptp(y, axis=0).max():.3g} about {first_row(y)}, which float64 can hardly"
            " resolve; subtract that first"
        )
    raise GatelabError(
        f"the target is constant = {first_row(y)} on the {len(y)} training rows, which an output bias fits exactly;"
        " choose another target"
    )


def seeds(seed: Any) -> np.random.SeedSequence:
    return np.random.SeedSequence(check_seed(seed))


def checked_protocol(protocol: Any, **given: Any) -> bool:
    """Whether the protocol is the paper's, which tests on the training data and excludes the options of a test."""
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", str(protocol), PROTOCOLS)
    for name, value in given.items():
        if protocol == "paper" and value is not None:
            raise GatelabError(f"the paper's protocol tests on the training data; leave {name} out, or the protocol")
    return protocol == "paper"
