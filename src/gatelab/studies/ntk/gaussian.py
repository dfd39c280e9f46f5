"""Shared by the studies of kernels: samples, the same for all units of a seed, eigenvalues, intervals over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import chi2

from gatelab.arrays import Array
from gatelab.errors import GatelabError
from gatelab.ntk import Kernel, spectrum
from gatelab.statistics import Interval
from gatelab.studies.engine import Table, geometric_mean

# The names of the units as the paper writes them, and of two that it did not try.
NAMES = {"mlp": "ReLU", "glu": "ReGLU", "gelu": "GELU", "geglu": "GEGLU", "silu": "SiLU", "swiglu": "SwiGLU"}
NAMES |= {"relu2": "ReLU²", "gqu": "GQU"}
UNITS = ("mlp", "glu")
PAIRS = (UNITS, ("gelu", "geglu"), ("silu", "swiglu"))
# Our choice: the captions of the paper's figures are lost in our copy.
WIDTH = 4096


def samples(n: int, d: int, seed: int, *, normalized: bool = False) -> Array:
    """n standard Gaussian vectors of d entries, or the same scaled to the length sqrt(d)."""
    x = np.random.default_rng([seed, n, d]).standard_normal((n, d))
    if normalized:
        return x * (d**0.5 / np.linalg.norm(x, axis=1, keepdims=True))
    return x


def shortest(n: int, d: int) -> float:
    """The least r^2/d of n samples, the median over draws: from the distribution of chi^2."""
    return float(chi2.ppf(1 - 0.5 ** (1 / n), d)) / d


def extremes(kernel: Kernel) -> tuple[float, float]:
    """The largest and the smallest eigenvalue, which must be known to be positive."""
    ends = spectrum(kernel)
    if ends.status != "resolved":
        raise GatelabError(f"the kernel of {kernel.label} on {ends.n} samples is {ends.status}: {ends.notes[-1]}")
    return ends.lambda_max, ends.lambda_min


def eigenvalues(kernel: Kernel) -> Array:
    """All eigenvalues, in ascending order."""
    values = spectrum(kernel, full=True).eigenvalues
    assert values is not None
    return values


def unit_ratio(rows: Table, first: str, second: str, column: str) -> Interval:
    """A number of one unit over that of another, seed by seed."""
    by_unit = [rows[rows["unit"] == unit].set_index("seed")[column] for unit in (first, second)]
    return geometric_mean((by_unit[0] / by_unit[1]).to_numpy(float))


def farthest_from_1(ratios: Table) -> Any:
    """The label of the ratio that is farthest from 1."""
    return np.log(ratios).abs().idxmax()


def rows_and_targets(data: str, n: int, d: int, seed: int) -> tuple[Array, Array]:
    """Rows of mean square 1, and a column per target, of mean 0 and mean square 1.

    Clusters are ten Gaussian ones, whose centers have three quarters of the variance. The smooth target is
    sin(2 u.x) + (v.x)² for random directions u and v.
    """
    generator = np.random.default_rng([seed, n, d])
    if data == "digits":
        from sklearn.datasets import load_digits

        images = np.asarray(load_digits(return_X_y=True)[0], float)
        X = (images - images.mean(0))[generator.permutation(len(images))[:n]]
        X /= np.sqrt((X * X).mean())
    else:
        X = samples(n, d, seed)
        if data == "clusters":
            X = 0.5 * X + 0.75**0.5 * generator.standard_normal((10, d))[generator.integers(10, size=n)]
    u, v = (X @ generator.standard_normal((d, 2)) / d**0.5).T
    Y = np.column_stack([generator.standard_normal(n), np.sin(2 * u) + v**2])
    Y -= Y.mean(0)
    return X, Y / np.sqrt((Y * Y).mean(0))
