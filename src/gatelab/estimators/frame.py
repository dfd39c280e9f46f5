"""From a user's arrays to what the solver sees, and back.

Rows are put in one order and equal rows become one, with the sum of their weights: a weight of two is a row that is
there twice, to the last bit, the order of the rows does not matter, and no row is held out while its twin is trained
on. Inputs are then of mean zero and unit variance in as many directions as they span, targets column by column.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from gatelab.display import counted, one_line
from gatelab.errors import GatelabError

Array = NDArray[np.float64]
# Columns that vary by less than this beside their size are constant, directions that vary less beside others are none.
_CONSTANT, _FLAT = 1e-14, 1e-10


@dataclass(frozen=True, eq=False)
class Rows:
    """Distinct rows with weights of mean one."""

    x: Array
    y: Array
    weight: Array

    def __repr__(self) -> str:
        return one_line(
            self, f"{len(self)} rows, {counted(self.x.shape[1], 'input')}, {counted(self.y.shape[1], 'output')}"
        )

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: NDArray[np.intp]) -> Rows:
        return Rows(self.x[index], self.y[index], self.weight[index] / self.weight[index].mean())


def distinct(x: Array, y: Array, weight: Array) -> Rows:
    """The rows in lexicographic order, each once, those without weight left out.

    >>> rows = distinct(np.array([[3.0], [1.0], [3.0]]), np.array([[4.0], [2.0], [4.0]]), np.ones(3))
    >>> rows.x.tolist(), rows.weight.round(3).tolist()
    ([[1.0], [3.0]], [0.667, 1.333])
    """
    if not weight.max(initial=0.0) > 0:
        raise GatelabError("every sample_weight is zero, so there is no row to fit; give some rows a positive weight")
    kept = weight > 0
    both = np.concatenate([x, y], axis=1)[kept] + 0.0  # -0.0 and 0.0 are the same number in different bits
    rows, first = np.unique(both, axis=0, return_inverse=True)
    # The greatest weight is one before anything is added up: huge weights have no sum.
    total = np.bincount(first.ravel(), weight[kept] / weight.max())
    return Rows(rows[:, : x.shape[1]], rows[:, x.shape[1] :], total / total.mean())


@dataclass(frozen=True, eq=False)
class Frame:
    """x -> (x / x_unit - x_mean) x_map, and z -> y_unit (y_mean + y_scale z) with z held between z_low and z_high.

    The units are powers of two near the greatest values, so that no square overflows and nothing is rounded.
    """

    x_unit: Array
    x_mean: Array
    x_map: Array
    y_unit: Array
    y_mean: Array
    y_scale: Array
    z_low: Array
    z_high: Array

    def __repr__(self) -> str:
        return one_line(self, f"{counted(self.directions, 'direction')} to {counted(len(self.y_mean), 'output')}")

    @classmethod
    def of(cls, rows: Rows) -> Frame:
        x_unit, x_mean, x_scale = _spread(rows.x, rows.weight)
        y_unit, y_mean, y_scale = _spread(rows.y, rows.weight)
        varies = np.flatnonzero(x_scale)
        x_map = np.zeros((len(x_scale), len(varies)))
        x_map[varies, np.arange(len(varies))] = 1 / x_scale[varies]
        if len(varies):
            z = (rows.x / x_unit - x_mean) @ x_map
            _, s, v = np.linalg.svd(z * np.sqrt(rows.weight)[:, None], full_matrices=False)
            spanned = s > _FLAT * s[0]
            # Collinear inputs, or more of them than rows: the directions that they span are enough, and fewer.
            if spanned.sum() < len(varies):
                x_map = x_map @ v[spanned].T
        z = (rows.y / y_unit - y_mean) / np.where(y_scale > 0, y_scale, 1.0)
        return cls(x_unit, x_mean, x_map, y_unit, y_mean, y_scale, *reach(z))

    @property
    def directions(self) -> int:
        """How many dimensions the network's input has."""
        return self.x_map.shape[1]

    def inputs(self, x: Array) -> Array:
        # Far outside the data a network may overflow; where its value is then undefined, the prediction is NaN.
        with np.errstate(over="ignore", invalid="ignore"):
            return (x / self.x_unit - self.x_mean) @ self.x_map

    def targets(self, y: Array) -> Array:
        return (y / self.y_unit - self.y_mean) / np.where(self.y_scale > 0, self.y_scale, 1.0)

    def outputs(self, z: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return self.y_unit * (self.y_mean + self.y_scale * np.clip(z, self.z_low, self.z_high))

    def standard(self, rows: Rows) -> Rows:
        return Rows(self.inputs(rows.x), self.targets(rows.y), rows.weight)

    def arrays(self) -> dict[str, Array]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


def reach(y: Array) -> tuple[Array, Array]:
    """How far predictions may go: half the range of the targets beyond their extremes.

    A gated network is a polynomial of its inputs outside the data. One row that is far out would otherwise cost more
    than all others together.
    """
    low, high = y.min(axis=0), y.max(axis=0)
    return low - (high - low) / 2, high + (high - low) / 2


def _spread(a: Array, weight: Array) -> tuple[Array, Array, Array]:
    """The unit, the mean in units and the standard deviation in units of every column; zero where it is constant."""
    largest = np.abs(a).max(axis=0)
    # 2^1024 does not exist, and below 2^-1021 its inverse would not.
    exponent = np.clip(np.frexp(largest)[1], -1000, 1023)
    unit = np.where(largest > 0, np.ldexp(1.0, exponent), 1.0)
    scaled = a / unit
    mean = weight @ scaled / weight.sum()
    scale = np.sqrt(weight @ np.square(scaled - mean) / weight.sum())
    return unit, mean, np.where(scale > _CONSTANT * np.abs(scaled).max(axis=0), scale, 0.0)
