"""Rows of inputs and targets, and how they are parted into training and test."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gatelab.display import counted, one_line
from gatelab.errors import GatelabError
from gatelab.problems.checks import Array, first_row, matrix, seeds, varying


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


def _row_keys(*parts: Array) -> NDArray[np.void]:
    """One opaque value for each row, equal where the rows are."""
    # Adding zero turns -0.0 into 0.0, whose bytes differ although the numbers are equal.
    rows = np.ascontiguousarray(np.hstack(parts)) + 0.0
    return rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()


def split(x: Array, y: Array, test_fraction: float, seed: int) -> tuple[Data, Data]:
    """Training and test rows; rows of equal x stay on one side, whatever their targets are.

    Parted by x and y, rows of one x with the target 0 would be trained on and those with the target 1 tested on: of
    targets with few values the test error would be too large.
    """
    if not (isinstance(test_fraction, Real) and 0 < test_fraction < 1):
        raise GatelabError(f"test_fraction is {test_fraction!r}; give a number between 0 and 1, such as 0.2")
    source = seeds(seed)
    everything = Data(x, y)
    if not varying(x).any():
        raise GatelabError(f"every x is {first_row(x)}; give inputs with at least 2 distinct values")
    distinct, group = np.unique(_row_keys(everything.x), return_inverse=True)
    groups = len(distinct)
    if groups < 4:
        raise GatelabError(
            f"the data have {len(x)} rows with {groups} distinct x; rows of equal x stay together, so at least 4 are"
            " needed to split into train and test: give more, or, of arrays, the test data yourself as test=(x, y)"
        )
    n_test = min(max(round(test_fraction * groups), 2), groups - 2)
    tested = np.random.default_rng(source).permutation(groups) < n_test
    in_test = tested[group.ravel()]
    return Data(x[~in_test], y[~in_test]), Data(x[in_test], y[in_test])


def given_test(test: Any) -> Data:
    """The test data of a user."""
    try:
        x, y = test
    except (TypeError, ValueError):
        raise GatelabError("test is not a pair; give test=(x_test, y_test), or leave it out for a split") from None
    return Data(matrix(x, "test x"), matrix(y, "test y"))


def refuse_shared_rows(train: Data, test: Data) -> None:
    """Refuse test rows that are training rows, x and y alike.

    Another target at an x that was trained on is a measurement of its own, and a fair test.
    """
    known = {key.tobytes() for key in _row_keys(train.x, train.y)}
    shared = sum(key.tobytes() in known for key in _row_keys(test.x, test.y))
    if shared:
        raise GatelabError(
            f"{shared} of {test.n} test rows are training rows too, so the test error would partly be"
            " training error; remove them from one side, or leave test out for a split"
        )
