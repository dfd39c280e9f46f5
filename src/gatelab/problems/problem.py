"""What is fitted: a frozen pair of training and test data, from arrays or from a function of one variable.

Train and test are different data, always. A split of arrays keeps equal rows on one side; a function's test
points are a uniform random draw of their own, however the training points were chosen, and carry no noise.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gatelab.errors import GatelabError, unknown_name

Array = NDArray[np.float64]
Function = Callable[[Array], Array]
SAMPLINGS = ("random", "grid", "gauss")
MAX_POINTS = 10**8


@dataclass(frozen=True, eq=False)
class Data:
    """N rows of inputs x (N, d_in) and targets y (N, d_out), finite and float64.

    One-dimensional arrays are read as columns. The arrays are copies: what happens to the caller's own
    afterwards does not reach them.

    >>> data = Data([0.0, 0.5, 1.0], [[1, 2], [3, 4], [5, 6]])
    >>> data.n, data.d_in, data.d_out
    (3, 1, 2)
    """

    x: Array
    y: Array

    def __post_init__(self) -> None:
        x, y = _matrix(self.x, "x"), _matrix(self.y, "y")
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


@dataclass(frozen=True, eq=False)
class Problem:
    """Training data, test data and, where the target is a known function of one variable, that function.

    `interval` is where a one-dimensional problem lives; no x lies outside it. `f` maps an (N,) array to an
    (N,) array.

    >>> runge = Problem.from_function(lambda x: 1 / (1 + 9 * x**2), n=100, name="runge")
    >>> runge.train.n, runge.test.n, runge.interval
    (100, 100, (-1.0, 1.0))
    """

    name: str
    train: Data
    test: Data
    interval: tuple[float, float] | None = None
    f: Function | None = None
    description: str = ""
    recipe: Mapping[str, Any] | None = None
    """How `problem` made it, in plain values, so that another process can make the same; None for data of one's own."""

    def __post_init__(self) -> None:
        if (self.train.d_in, self.train.d_out) != (self.test.d_in, self.test.d_out):
            raise GatelabError(
                f"train maps {self.train.d_in} inputs to {self.train.d_out} outputs and test"
                f" {self.test.d_in} to {self.test.d_out}; give both the same columns"
            )
        if not _varies(self.train.x):
            raise GatelabError(
                f"every x of the {self.train.n} training rows is {_row(self.train.x)};"
                " give inputs with at least 2 distinct values"
            )
        _require_varying(self.train.y)
        if self.interval is not None:
            object.__setattr__(self, "interval", self._checked_interval())

    @property
    def d_in(self) -> int:
        return self.train.d_in

    @property
    def d_out(self) -> int:
        return self.train.d_out

    def _checked_interval(self) -> tuple[float, float]:
        if self.d_in != 1:
            raise GatelabError(
                f"an interval is given with {self.d_in} inputs; it belongs to problems of one input: leave it out"
            )
        a, b = checked_interval(self.interval)
        x = np.concatenate([self.train.x, self.test.x])
        outside = int(((x < a) | (x > b)).sum())
        if outside:
            raise GatelabError(
                f"{outside} of {len(x)} inputs lie outside the interval [{a:g}, {b:g}] (they reach from"
                f" {x.min():g} to {x.max():g}); widen the interval or leave it out"
            )
        return a, b

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        *,
        test: tuple[Any, Any] | None = None,
        test_fraction: float = 0.2,
        seed: int = 0,
        name: str = "arrays",
        interval: tuple[float, float] | None = None,
    ) -> Problem:
        """A problem from arrays, tensors or lists, one row for each example.

        Without `test`, a random `test_fraction` of the distinct rows, the same for the same seed, is set
        aside for testing; copies of a row stay on one side. With one input the interval defaults to the range
        of all x.

        >>> x = np.linspace(0, 3, 50)
        >>> p = Problem.from_arrays(x, np.sin(x), seed=1)
        >>> p.train.n, p.test.n, p.interval
        (40, 10, (0.0, 3.0))
        """
        x, y = _matrix(x, "x"), _matrix(y, "y")
        if test is None:
            train_data, test_data = _split(x, y, test_fraction, seed)
        else:
            train_data, test_data = Data(x, y), _given_test(test)
        if interval is None and train_data.d_in == 1:
            lows, highs = zip(*[(d.x.min(), d.x.max()) for d in (train_data, test_data)], strict=True)
            # An interval needs a < b; a single distinct x is for the problem itself to refuse.
            interval = (float(min(lows)), float(max(highs))) if min(lows) < max(highs) else None
        description = f"{train_data.n} training and {test_data.n} test rows"
        problem = cls(name, train_data, test_data, interval, None, description)
        if test is not None:
            _refuse_shared_rows(problem)
        return problem

    @classmethod
    def from_function(
        cls,
        f: Function,
        *,
        interval: tuple[float, float] = (-1.0, 1.0),
        n: int = 10_000,
        n_test: int | None = None,
        sampling: str = "random",
        noise: float = 0.0,
        seed: int = 0,
        name: str | None = None,
    ) -> Problem:
        """A problem from a function of one variable that maps an (N,) array to an (N,) array.

        `sampling` places the n training points: "random" draws them uniformly, "grid" spaces them equally
        from end to end, "gauss" takes Gauss-Legendre nodes, of a single rule up to 64 points and beyond that
        of equal panels with about 8 nodes each. No weights are kept: the RMSE over Gauss nodes is the plain
        mean over points, whose density is near uniform with panels and crowds towards the ends with a single
        rule.

        `noise` is the standard deviation of Gaussian noise on the training targets. The n_test test points
        (n, unless given) are an independent uniform draw and stay clean.

        >>> p = Problem.from_function(np.exp, interval=(0, 1), n=50, n_test=20, sampling="grid")
        >>> p.name, p.test.n, p.train.x[-1]
        ('exp', 20, array([1.]))
        """
        interval = checked_interval(interval)
        n = _whole("n", n, 2, MAX_POINTS)
        n_test = n if n_test is None else _whole("n_test", n_test, 2, MAX_POINTS)
        if not (isinstance(noise, Real) and math.isfinite(noise) and noise >= 0):
            raise GatelabError(f"noise is {noise!r}; give a standard deviation, 0 or more")
        # Three children, so that neither the noise nor the way of sampling changes the test points.
        for_train, for_test, for_noise = (np.random.default_rng(s) for s in _seeds(seed).spawn(3))
        x = _sample(sampling, interval, n, for_train)
        x_test = for_test.uniform(*interval, n_test)
        y = _values(f, x)
        _require_varying(y)
        y_test = _values(f, x_test)
        name = str(name or getattr(f, "text", None) or getattr(f, "__name__", type(f).__name__))
        train = Data(x, y + noise * for_noise.standard_normal(n))
        description = f"{name} on [{interval[0]:g}, {interval[1]:g}]"
        return cls(name, train, Data(x_test, y_test), interval, f, description)


def checked_interval(interval: Any) -> tuple[float, float]:
    """The interval as two floats a < b, or the error that says what is wrong with it.

    >>> checked_interval((3, 0))
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: the interval (3, 0) is inverted; give (0, 3)
    """
    try:
        a, b = (float(end) for end in interval)
    except (TypeError, ValueError, OverflowError):
        raise GatelabError(f"the interval is {interval!r}; give two numbers (a, b) with a < b") from None
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(b - a)):
        raise GatelabError(f"the interval ({a:g}, {b:g}) is not finite; give two finite numbers a < b")
    if a > b:
        raise GatelabError(f"the interval ({a:g}, {b:g}) is inverted; give ({b:g}, {a:g})")
    if a == b:
        raise GatelabError(f"the interval ({a:g}, {b:g}) is empty; give two numbers a < b")
    return a, b


def _matrix(value: Any, what: str) -> Array:
    """A finite float64 copy with one row for each example."""
    if isinstance(value, torch.Tensor):
        # Half-precision tensors have no counterpart in numpy, float64 has. Complex ones are refused below.
        value = value.detach().cpu()
        value = (value if value.is_complex() else value.double()).numpy()
    try:
        raw = np.asarray(value)
        if raw.dtype.kind not in "biufO":
            raise TypeError(f"its type is {raw.dtype}")
        matrix = np.array(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise GatelabError(f"{what} cannot be read as real numbers ({error}); give a numeric array") from error
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise GatelabError(f"{what} has the shape {matrix.shape}; give (N,) or (N, columns), one row for each example")
    _require_finite(matrix, what)
    return matrix


def _require_finite(matrix: Array, what: str) -> None:
    bad = ~np.isfinite(matrix)
    if bad.any():
        nans = int(np.isnan(matrix).sum())
        first = int(np.argmax(bad.any(axis=1)))
        raise GatelabError(
            f"{what} holds {nans} NaN and {int(bad.sum()) - nans} infinite values, the first in row {first}"
            " (counted from 0); remove or replace those rows"
        )


def _varies(matrix: Array) -> bool:
    """Whether some column takes values that differ by more than rounding."""
    # Halves, since the range of finite numbers can overflow.
    half_range = matrix.max(axis=0) / 2 - matrix.min(axis=0) / 2
    return bool((half_range > 8 * np.finfo(np.float64).eps * np.abs(matrix).max(axis=0)).any())


def _row(matrix: Array) -> str:
    values = [f"{v:.6g}" for v in matrix[0]]
    return values[0] if len(values) == 1 else f"({', '.join(values[:5])}{', ...' * (len(values) > 5)})"


def _require_varying(y: Array) -> None:
    y = y.reshape(len(y), -1)
    if not _varies(y):
        raise GatelabError(
            f"the target is constant = {_row(y)} on the {len(y)} training rows; a network's output bias d"
            " fits it exactly and no slope exists; choose another target"
        )


def _whole(what: str, value: Any, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise GatelabError(f"{what} is {value!r}; give a whole number, {least} or more") from None
    if not least <= number <= most:
        raise GatelabError(f"{what} is {number}; give a whole number from {least} to {most}")
    return number


def _seeds(seed: Any) -> np.random.SeedSequence:
    return np.random.SeedSequence(_whole("seed", seed, 0, 2**63 - 1))


def _row_keys(x: Array, y: Array) -> NDArray[np.void]:
    """One opaque value for each row, equal where the rows are."""
    # Adding zero turns -0.0 into 0.0, whose bytes differ although the numbers are equal.
    rows = np.ascontiguousarray(np.hstack([x, y])) + 0.0
    return rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()


def _split(x: Array, y: Array, test_fraction: float, seed: int) -> tuple[Data, Data]:
    if not (isinstance(test_fraction, Real) and 0 < test_fraction < 1):
        raise GatelabError(f"test_fraction is {test_fraction!r}; give a number between 0 and 1, such as 0.2")
    seeds = _seeds(seed)
    everything = Data(x, y)
    if not _varies(x):
        raise GatelabError(f"every x is {_row(x)}; give inputs with at least 2 distinct values")
    distinct, group = np.unique(_row_keys(everything.x, everything.y), return_inverse=True)
    groups = len(distinct)
    if groups < 4:
        raise GatelabError(
            f"the data have {len(x)} rows, {groups} of them distinct; at least 4 distinct rows are needed to"
            " split into train and test: give more, or give the test data yourself as test=(x, y)"
        )
    n_test = min(max(round(test_fraction * groups), 2), groups - 2)
    tested = np.random.default_rng(seeds).permutation(groups) < n_test
    in_test = tested[group.ravel()]
    return Data(x[~in_test], y[~in_test]), Data(x[in_test], y[in_test])


def _given_test(test: Any) -> Data:
    try:
        x, y = test
    except (TypeError, ValueError):
        raise GatelabError("test is not a pair; give test=(x_test, y_test), or leave it out for a split") from None
    return Data(_matrix(x, "test x"), _matrix(y, "test y"))


def _refuse_shared_rows(problem: Problem) -> None:
    train, test = (_row_keys(d.x, d.y) for d in (problem.train, problem.test))
    known = {key.tobytes() for key in train}
    shared = sum(key.tobytes() in known for key in test)
    if shared:
        raise GatelabError(
            f"{shared} of {len(test)} test rows are training rows too, so the test error would partly be"
            " training error; remove them from one side, or leave test out for a split"
        )


def _sample(sampling: str, interval: tuple[float, float], n: int, rng: np.random.Generator) -> Array:
    if sampling == "random":
        return rng.uniform(*interval, n)
    if sampling == "grid":
        return np.linspace(*interval, n)
    if sampling == "gauss":
        return _gauss_nodes(interval, n)
    raise unknown_name("sampling", str(sampling), SAMPLINGS)


def _gauss_nodes(interval: tuple[float, float], n: int) -> Array:
    a, b = interval
    panels = 1 if n <= 64 else n // 8
    h = (b - a) / panels
    # Panels of two sizes, spread evenly, so that exactly n nodes come out whatever n is.
    counts = np.diff(np.arange(panels + 1) * n // panels)
    nodes = []
    for count in np.unique(counts):
        local = (np.polynomial.legendre.leggauss(int(count))[0] + 1) / 2
        nodes.append((a + h * (np.flatnonzero(counts == count)[:, None] + local)).ravel())
    return np.clip(np.sort(np.concatenate(nodes)), a, b)


def _values(f: Function, x: Array) -> Array:
    if not callable(f):
        raise GatelabError(f"f is {f!r}; give a function that maps an (N,) array to an (N,) array")
    try:
        with np.errstate(all="ignore"):
            # A copy, since a user's function may work in place.
            y = np.asarray(f(x.copy()))
    except Exception as error:
        raise GatelabError(
            f"the function failed on an array of {len(x)} points: {type(error).__name__}: {error};"
            " write it with numpy functions, or wrap it in numpy.vectorize"
        ) from error
    if y.shape != x.shape or y.dtype.kind not in "biuf":
        raise GatelabError(
            f"the function returned {y.dtype} of shape {y.shape} for an array of shape {x.shape};"
            " it must return one real number for each x"
        )
    y = y.astype(np.float64)
    bad = ~np.isfinite(y)
    if bad.any():
        first = np.flatnonzero(bad)[np.argmin(x[bad])]
        raise GatelabError(
            f"the function is not finite at {int(bad.sum())} of {len(x)} points, the first of them at"
            f" x = {x[first]:.6g} (value {y[first]}); choose an interval where it is defined"
        )
    return y
