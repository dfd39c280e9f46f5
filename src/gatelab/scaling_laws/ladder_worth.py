"""What a unit of a ladder is worth beside another: how many times larger the other would have to be for its loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gatelab.arrays import Array
from gatelab.display import one_line
from gatelab.plain import to_plain
from gatelab.scaling_laws.ladder_losses import LadderAxis
from gatelab.statistics import LEVEL, Interval, percentile_interval

if TYPE_CHECKING:
    import pandas as pd

Trend = Literal["falling", "rising", "constant", "undecided"]
ALIKE = 0.1  # exponents that differ by less than a tenth are alike: k then changes by a factor of 1.26 a decade at most
_MOST_FACTOR = 1e6  # that is told: beyond it a law is flat
NOUNS: dict[LadderAxis, str] = {"parameters": "parameters", "flops": "FLOPs", "seconds": "seconds"}


@dataclass(frozen=True)
class Worth:
    """How many times larger the reference would have to be for the loss of a unit: k, by size.

    Attributes:
        unit: Whose losses are to be reached.
        reference: What would have to grow for it.
        against: What size is counted in.
        sizes: Those of the unit.
        factor: k at each of them, with intervals over seeds.
        extrapolated: Where the reference was not measured at such losses, and its last size and exponent had to do.
        overall: The one factor of the law with one exponent, (A_reference / A_unit)^(1/a).
        slope: d log k / d log size, of the line through all sizes.
    """

    PROPERTIES: ClassVar[tuple[str, ...]] = ("trend", "sentence")

    unit: str
    reference: str
    against: LadderAxis
    sizes: tuple[float, ...]
    factor: tuple[Interval, ...]
    extrapolated: tuple[bool, ...]
    overall: Interval
    slope: Interval

    plain = to_plain

    def __repr__(self) -> str:
        return one_line(self, self.sentence)

    @property
    def trend(self) -> Trend:
        """How k changes with size; constant where the slope is certainly within a tenth of 0."""
        if self.slope.excludes(0.0):
            return "falling" if self.slope.value < 0 else "rising"
        if self.slope.low >= -ALIKE and self.slope.high <= ALIKE:
            return "constant"
        return "undecided"

    @property
    def by_size(self) -> str:
        """The measured factors in percent, size by size."""
        pairs = zip(self.sizes, self.factor, strict=True)
        return ", ".join(f"{100 * (k.value - 1):+.0f} % {percent_ends(k)} at {size_words(size)}" for size, k in pairs)

    @property
    def sentence(self) -> str:
        """The answer in words, with as much of it as is decided."""
        noun, trend = NOUNS[self.against], self.trend
        amount = f"{more_or_fewer(self.overall.value)} {noun} than {self.reference} {percent_ends(self.overall)}"
        if trend in ("falling", "rising"):
            text = f"{self.unit} is worth, in {noun} of {self.reference}, {self.by_size}: {trend} with size"
        elif not self.overall.excludes(1.0):
            if max(self.overall.high, 1 / self.overall.low) > 0.99 * _MOST_FACTOR:
                amount = "curves as flat as these tell no number"
            text = f"whether {self.unit} is worth more or fewer {noun} than {self.reference} is undecided: {amount}"
        elif trend == "constant":
            text = f"{self.unit} is worth {amount}, at every size"
        else:
            text = f"{self.unit} is worth {amount} over all sizes; whether that changes with size is undecided"
        beyond = [size_words(size) for size, far in zip(self.sizes, self.extrapolated, strict=True) if far]
        if beyond:
            text += f" (at {', '.join(beyond)} by extrapolation of {self.reference})"
        return text

    def table(self) -> pd.DataFrame:
        """A row a size: k with its interval, and in percent."""
        import pandas as pd

        rows = [
            (size, k.value, k.low, k.high, 100 * (k.value - 1), far)
            for size, k, far in zip(self.sizes, self.factor, self.extrapolated, strict=True)
        ]
        return pd.DataFrame(rows, columns=[self.against, "factor", "low", "high", "percent", "extrapolated"])


def size_words(size: float) -> str:
    """A size to two digits, in millions where that is what one says.

    >>> size_words(401408), size_words(25690112), size_words(1.5e16), size_words(83.1)
    ('0.4M', '26M', '1.5e+16', '83')
    """
    if 1e4 <= size < 1e9:
        return f"{size / 1e6:.2g}M"
    return f"{size:.2g}"


def more_or_fewer(factor: float) -> str:
    """A factor in percent and words.

    >>> more_or_fewer(1.23), more_or_fewer(0.9)
    ('23 % more', '10 % fewer')
    """
    percent = 100 * (factor - 1)
    return f"{abs(percent):.0f} % {'more' if percent >= 0 else 'fewer'}"


def percent_ends(factor: Interval) -> str:
    """The ends of a factor's interval in percent.

    >>> percent_ends(Interval(1.23, 1.15, 1.32))
    '[15, 32]'
    """
    return Interval(*(100 * (end - 1) for end in (factor.value, factor.low, factor.high))).ends(".0f")


def log_factors(log_sizes: Array, losses: Array, curve: tuple[Array, Array], E: Array, exponent: Array) -> Array:
    """log k (rows, sizes): how far along the reference's curve (log sizes, losses) each loss lies.

    The curve is lines of log(L - E) against log size, and goes on beyond its ends with the exponent. Where it does not
    fall, the mean of the two nearest curves that do stands for it: the least so far, and the largest still to come.
    """
    x, heights = curve
    falling = 0.5 * (np.minimum.accumulate(heights, axis=1) + np.maximum.accumulate(heights[:, ::-1], axis=1)[:, ::-1])
    z, wanted = (np.log(np.maximum(part - E[:, None], 1e-9)) for part in (falling, losses))
    left = np.clip((z[:, None, :] > wanted[:, :, None]).sum(axis=2) - 1, 0, len(x) - 2)
    z_left, z_right = np.take_along_axis(z, left, axis=1), np.take_along_axis(z, left + 1, axis=1)
    share = (z_left - wanted) / np.maximum(z_left - z_right, 1e-12)
    inside = x[left] + np.clip(share, 0.0, 1.0) * (x[left + 1] - x[left])
    above, below = np.maximum(wanted - z[:, :1], 0.0), np.maximum(z[:, -1:] - wanted, 0.0)
    return inside - above / exponent[:, None] + below / exponent[:, None] - log_sizes


def factor_interval(log_factor: float, drawn: Array, level: float = LEVEL) -> Interval:
    """A factor with the percentiles of what was drawn for it, all given as logarithms.

    Factors are told between 1e-6 and 1e6. A draw that tells nothing, nan, counts against both ends.

    >>> print(factor_interval(0.0, np.log([0.5, 1.0, 2.0, 4.0]), level=0.5))
    1 [0.875, 2.5]
    >>> print(factor_interval(0.0, np.array([0.0, np.nan, np.nan, 900.0])))
    1 [1e-06, 1e+06]
    """
    most = math.log(_MOST_FACTOR)

    def factors(worst: float) -> Array:
        return np.exp(np.clip(np.where(np.isnan(drawn), worst, drawn), -most, most))

    value = float(np.exp(np.clip(log_factor, -most, most)))
    low, high = (percentile_interval(value, factors(worst), level) for worst in (-most, most))
    return replace(low, high=high.high)
