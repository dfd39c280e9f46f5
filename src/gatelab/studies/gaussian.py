"""What the studies of kernels share: Gaussian samples, extreme eigenvalues over seeds, and their intervals.

Units of one seed see the same samples, so that ratios between units are ratios on equal data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from gatelab.errors import GatelabError
from gatelab.ntk import Kernel, analytic, spectrum
from gatelab.studies.verdicts import ends as ends_of
from gatelab.units import Unit

Array = NDArray[np.float64]
# What the paper calls the units, by their names here.
PAPER_NAMES = {
    "mlp": "ReLU",
    "glu": "ReGLU",
    "gelu": "GELU",
    "geglu": "GEGLU",
    "silu": "SiLU",
    "swiglu": "SwiGLU",
}
PAIRS = (("mlp", "glu"), ("gelu", "geglu"), ("silu", "swiglu"))
# The paper's copy has no captions: neither width nor sizes of its figures are known.
WIDTH = 4096
NO_CAPTIONS = "The paper's captions are lost in the copy that was used; sizes and width are our choice."
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """The geometric mean over seeds and the t-interval of the logarithms."""

    value: float
    low: float
    high: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"

    @property
    def ends(self) -> str:
        """The interval alone, as a claim has it."""
        return ends_of(self.low, self.high)


def interval(values: Array | Sequence[float]) -> Interval:
    """Of positive values, one a seed. A single seed has no interval.

    >>> str(interval([1.0, 2.0, 4.0]))
    '2 [0.357, 11.2]'
    """
    logs = np.log(np.asarray(values, float))
    middle, count = float(logs.mean()), len(logs)
    if count < 2:
        return Interval(float(np.exp(middle)), np.nan, np.nan, count)
    reach = float(student.ppf(0.5 + LEVEL / 2, count - 1)) * float(logs.std(ddof=1)) / count**0.5
    low, high = (float(np.exp(middle + step)) for step in (-reach, reach))
    return Interval(float(np.exp(middle)), low, high, count)


def samples(n: int, d: int, seed: int, *, normalised: bool = False) -> Array:
    """n standard Gaussian vectors of d entries, or these brought to the length sqrt(d)."""
    x = np.random.default_rng([seed, n, d]).standard_normal((n, d))
    return x * (d**0.5 / np.linalg.norm(x, axis=1, keepdims=True)) if normalised else x


@dataclass(frozen=True, eq=False)
class Ends:
    """The largest and smallest eigenvalue of a unit's kernel over its width, an entry a seed."""

    largest: Array
    smallest: Array

    @property
    def condition(self) -> Array:
        return self.largest / self.smallest


def ends(
    units: Sequence[str | Unit],
    n: int,
    d: int,
    seeds: int,
    tick: Callable[[], None],
    *,
    width: int | None = WIDTH,
    normalised: bool = False,
) -> list[Ends]:
    """The extreme eigenvalues of each unit's kernel over `seeds` draws of the samples, one tick a draw."""
    found: list[list[tuple[float, float]]] = [[] for _ in units]
    for seed in range(seeds):
        kernels = analytic(list(units), samples(n, d, seed, normalised=normalised), width)
        for kept, kernel in zip(found, kernels, strict=True):
            kept.append(extremes(kernel))
        tick()
    columns = [np.array(kept).T / (width or 1) for kept in found]
    return [Ends(*pair) for pair in columns]


def extremes(kernel: Kernel) -> tuple[float, float]:
    """The largest and the smallest eigenvalue, which must be known to be positive."""
    found = spectrum(kernel)
    if found.status != "resolved":
        raise GatelabError(f"the kernel of {kernel.label} on {found.n} samples is {found.status}: {found.notes[-1]}")
    return found.lambda_max, found.lambda_min


def eigenvalues(kernel: Kernel) -> Array:
    """All of them, in ascending order."""
    values = spectrum(kernel, full=True).eigenvalues
    assert values is not None
    return values
