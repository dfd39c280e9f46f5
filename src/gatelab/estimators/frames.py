"""Sorting and scaling of rows, and the inverse for predictions.

Rows are sorted, and equal rows become one with the sum of their weights. So a weight of two equals a repeated row, the
order of the rows does not matter, and no row is held out while an equal one is trained on. Inputs are then scaled to
mean zero and unit variance in the directions that they span, targets column by column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.display import Compact
from gatelab.errors import GatelabError

# The smallest relative variation of a column that is not constant, and of a direction compared with the largest.
_CONSTANT, _FLAT = 1e-14, 1e-10
# Tails are heavy if the span of 99 % of a column exceeds this multiple of the span of its middle half (4 for a normal
# law); the reach of predictions beyond transformed targets, relative to their range; the residuals to average over.
_HEAVY, _BENT_REACH, _SMEARS = 6.0, 0.1, 20


@dataclass(frozen=True, eq=False)
class TableRows:
    """Distinct rows with weights of mean one."""

    x: Array
    y: Array
    weight: Array

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: NDArray[np.intp]) -> TableRows:
        """Some of the rows, their weights again of mean one."""
        return TableRows(self.x[index], self.y[index], self.weight[index] / self.weight[index].mean())


def distinct(x: Array, y: Array, weight: Array) -> TableRows:
    """The distinct rows with positive weight, in lexicographic order."""
    if not weight.max(initial=0.0) > 0:
        raise GatelabError("every sample_weight is zero, so there is no row to fit; give some rows a positive weight")
    weighty = weight > 0
    both = np.concatenate([x, y], axis=1)[weighty] + 0.0  # makes -0.0 equal to 0.0 bit by bit
    rows, first = np.unique(both, axis=0, return_inverse=True)
    # Scaled by a power of two, which is exact, before the sum: huge weights would overflow.
    total = np.bincount(first.ravel(), np.ldexp(weight[weighty], -np.frexp(weight.max())[1]))
    return TableRows(rows[:, : x.shape[1]], rows[:, x.shape[1] :], total / total.mean())


@dataclass(frozen=True, eq=False)
class Bend:
    """a -> asinh((a - center) / spread) of every column with a spread: nearly linear within it, logarithmic beyond.

    It is for columns with heavy tails, whose outliers would otherwise dominate the scale.
    """

    center: Array
    spread: Array

    @classmethod
    def none(cls, columns: int) -> Bend:
        return cls(np.zeros(columns), np.zeros(columns))

    @classmethod
    def of(cls, a: Array) -> Bend:
        """The transformation of columns with heavy tails; the identity for others.

        >>> x = np.random.default_rng(0).normal(size=(500, 1))
        >>> [bool(Bend.of(a).spread[0]) for a in (x, np.exp(2 * x))]
        [False, True]
        """
        low, first, middle, third, high = np.quantile(a, [0.005, 0.25, 0.5, 0.75, 0.995], axis=0)
        heavy = (high - low > _HEAVY * (third - first)) & (third > first)
        # Columns without negative values are resolved near zero as well.
        positive = (a.min(axis=0) >= 0) & (first > 0)
        spread = np.where(positive, first / 2, (third - first) / 1.35)
        return cls(np.where(heavy & ~positive, middle, 0.0), np.where(heavy, spread, 0.0))

    @property
    def bends(self) -> bool:
        return bool(self.spread.any())

    def __call__(self, a: Array) -> Array:
        bent = self.spread > 0
        return np.where(bent, np.arcsinh((a - self.center) / np.where(bent, self.spread, 1.0)), a)

    def back(self, a: Array) -> Array:
        bent = self.spread > 0
        return np.where(bent, self.center + self.spread * np.sinh(np.where(bent, a, 0.0)), a)


@dataclass(frozen=True, eq=False)
class Frame(Compact):
    """x -> (x / x_unit - x_mean) x_map, and z -> y_unit (y_mean + y_scale z) with z clipped to z_low and z_high.

    The units are powers of two near the largest values, so that squares do not overflow and division is exact. `x_bend`
    and `y_bend` transform columns with heavy tails right after division by the unit. The inverse of a mean of
    transformed targets is biased, so that predictions average the inverse over the residuals `y_smear`, added to z.
    """

    x_unit: Array
    x_mean: Array
    x_map: Array
    y_unit: Array
    y_mean: Array
    y_scale: Array
    z_low: Array
    z_high: Array
    x_bend: Bend
    y_bend: Bend
    y_smear: Array

    @classmethod
    def of(cls, rows: TableRows, *, bend_inputs: bool = False, bend_targets: bool = False) -> Frame:
        """The frame in which these rows have mean zero and unit variance, optionally with heavy tails transformed."""
        x_unit, y_unit = _unit(rows.x), _unit(rows.y)
        x, y = rows.x / x_unit, rows.y / y_unit
        x_bend = Bend.of(x) if bend_inputs else Bend.none(x.shape[1])
        y_bend = Bend.of(y) if bend_targets else Bend.none(y.shape[1])
        x, y = x_bend(x), y_bend(y)
        x_mean, x_scale = _moments(x, rows.weight)
        y_mean, y_scale = _moments(y, rows.weight)
        varies = np.flatnonzero(x_scale)
        x_map = np.zeros((len(x_scale), len(varies)))
        x_map[varies, np.arange(len(varies))] = 1 / x_scale[varies]
        if len(varies):
            z = ((x - x_mean) @ x_map) * np.sqrt(rows.weight)[:, None]
            s, v = _singular(z)
            spanned = s > _FLAT * s[0]
            # Collinear inputs, or more inputs than rows: only the directions that they span.
            if spanned.sum() < len(varies):
                x_map = x_map @ v[spanned].T
        z_low, z_high = reach((y - y_mean) / np.where(y_scale > 0, y_scale, 1.0), _BENT_REACH if y_bend.bends else 0.5)
        return cls(
            x_unit=x_unit,
            x_mean=x_mean,
            x_map=x_map,
            y_unit=y_unit,
            y_mean=y_mean,
            y_scale=y_scale,
            z_low=z_low,
            z_high=z_high,
            x_bend=x_bend,
            y_bend=y_bend,
            y_smear=np.zeros((1, y.shape[1])),
        )

    @property
    def directions(self) -> int:
        return self.x_map.shape[1]

    def inputs(self, x: Array) -> Array:
        # Far outside the data a network may overflow; the prediction is then NaN.
        with np.errstate(over="ignore", invalid="ignore"):
            return (self.x_bend(x / self.x_unit) - self.x_mean) @ self.x_map

    def targets(self, y: Array) -> Array:
        return (self.y_bend(y / self.y_unit) - self.y_mean) / np.where(self.y_scale > 0, self.y_scale, 1.0)

    def outputs(self, z: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            values = self.y_mean + self.y_scale * np.clip(z, self.z_low, self.z_high)
            if not self.y_bend.bends:
                return self.y_unit * values
            smeared = [self.y_bend.back(values + self.y_scale * residual) for residual in self.y_smear]
            return self.y_unit * np.mean(smeared, axis=0)

    def deviations(self, z: Array, deviation: Array) -> Array:
        """A standard deviation of the network's values in raw units: half the distance of z +- deviation."""
        if not self.y_bend.bends:
            return self.y_unit * self.y_scale * deviation
        low, high = (self.y_mean + self.y_scale * (z + sign * deviation) for sign in (-1, 1))
        with np.errstate(over="ignore", invalid="ignore"):
            return self.y_unit * (self.y_bend.back(high) - self.y_bend.back(low)) / 2

    def smeared(self, residual: Array) -> Frame:
        """The frame with the residuals (rows, outputs) over which transformed targets are averaged."""
        return replace(self, y_smear=np.quantile(residual, (np.arange(_SMEARS) + 0.5) / _SMEARS, axis=0))

    def standard(self, rows: TableRows) -> TableRows:
        return TableRows(self.inputs(rows.x), self.targets(rows.y), rows.weight)

    def arrays(self) -> dict[str, Array]:
        """The arrays by name, as in saved files."""
        arrays = dict(vars(self))
        for name in ("x_bend", "y_bend"):
            bend = arrays.pop(name)
            arrays |= {f"{name}.centre": bend.center, f"{name}.spread": bend.spread}
        return arrays

    @classmethod
    def restored(cls, arrays: dict[str, Array]) -> Frame:
        parts: dict[str, Any] = {name: array for name, array in arrays.items() if "." not in name}
        parts |= {n: Bend(arrays[f"{n}.centre"], arrays[f"{n}.spread"]) for n in ("x_bend", "y_bend")}
        return cls(**parts)


def reach(y: Array, beyond: float = 0.5) -> tuple[Array, Array]:
    """The bounds of predictions, a share of the range beyond the extremes: networks extrapolate as polynomials."""
    low, high = y.min(axis=0), y.max(axis=0)
    return low - (high - low) * beyond, high + (high - low) * beyond


def _unit(a: Array) -> Array:
    """A power of two near the largest value of every column."""
    largest = np.abs(a).max(axis=0)
    # 2^1024 overflows, and so does the inverse of numbers below 2^-1021.
    exponent = np.clip(np.frexp(largest)[1], -1000, 1023)
    return np.where(largest > 0, np.ldexp(1.0, exponent), 1.0)


def _moments(a: Array, weight: Array) -> tuple[Array, Array]:
    """The mean and the standard deviation of every column; zero if it is constant."""
    mean = weight @ a / weight.sum()
    scale = np.sqrt(weight @ np.square(a - mean) / weight.sum())
    return mean, np.where(scale > _CONSTANT * np.abs(a).max(axis=0), scale, 0.0)


def _singular(z: Array) -> tuple[Array, Array]:
    """Singular values and right vectors, by a QR decomposition first if there are many rows."""
    if len(z) > 4 * z.shape[1]:
        z = np.asarray(np.linalg.qr(z, mode="r"))
    _, s, v = np.linalg.svd(z, full_matrices=False)
    return s, v
