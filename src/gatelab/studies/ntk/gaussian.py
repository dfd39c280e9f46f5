"""What the studies of kernels share: Gaussian samples, extreme eigenvalues over seeds, intervals, and table 1.

Units of one seed see the same samples, so that ratios between units are ratios on equal data.

Table 1 of the paper has the extreme eigenvalues of the three matrices that its kernels are made of. Its cells are lost
in the copy that was used. They are restored from the proof of Theorem 3.1: Marchenko and Pastur's ends for the Wishart
matrix, El Karoui's approximation 11^T/d + I for its square by elements, and a matrix of rank one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from gatelab.arrays import Array
from gatelab.errors import GatelabError
from gatelab.feedforward import Unit
from gatelab.ntk import Kernel, analytic, spectrum
from gatelab.statistics import Interval, t_interval
from gatelab.studies.definition import Claim
from gatelab.studies.verdicts import reproduced_if, restored

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
CLOSE = 0.25  # estimates as near as this match closely
NEAR = 0.15  # of the value, as for the exponents: the cells of table 1 are limits, sizes are finite
MATRICES = ("Wishart matrix G/d", "square of G/d by elements", "matrix of rank one r r^T/d")
# What stands before the largest and the smallest eigenvalue of each matrix in table 1.
FORMULAS = (("(1 + √(n/d))² =", "(1 - √(n/d))² for n < d, else"), ("1 + n/d =", ""), ("n =", ""))


# ---- samples, and means over seeds


def samples(n: int, d: int, seed: int, *, normalised: bool = False) -> Array:
    """n standard Gaussian vectors of d entries, or these brought to the length sqrt(d)."""
    x = np.random.default_rng([seed, n, d]).standard_normal((n, d))
    if normalised:
        return x * (d**0.5 / np.linalg.norm(x, axis=1, keepdims=True))
    return x


def interval(values: Array | Sequence[float]) -> Interval:
    """The geometric mean of positive values, one a seed, with the t-interval of their logarithms.

    >>> str(interval([1.0, 2.0, 4.0]))
    '2 [0.357, 11.2]'
    """
    logs = t_interval(np.log(np.asarray(values, float)))
    return Interval(*(float(np.exp(number)) for number in (logs.value, logs.low, logs.high)))


def interval_columns(intervals: Sequence[Interval]) -> tuple[Array, Array, Array]:
    """Values, lower ends and upper ends, as curves are drawn from them.

    >>> interval_columns([Interval(2.0, 1.0, 3.0)])[1]
    array([1.])
    """
    return (
        np.array([i.value for i in intervals]),
        np.array([i.low for i in intervals]),
        np.array([i.high for i in intervals]),
    )


def interval_cells(name: str, values: Interval) -> dict[str, float]:
    """An interval in a row of a table: under its name, and its ends as `name_low` and `name_high`."""
    return {name: values.value, f"{name}_low": values.low, f"{name}_high": values.high}


def close(ratios: Sequence[float] | Array) -> bool:
    """Whether all ratios of estimates to what was measured are near 1, to either side.

    >>> close([0.81, 1.0, 1.24]), close([0.79])
    (True, False)
    """
    return bool(min(ratios) >= 1 / (1 + CLOSE) and max(ratios) <= 1 + CLOSE)


# ---- extreme eigenvalues


@dataclass(frozen=True, eq=False)
class KernelExtremes:
    """The largest and smallest eigenvalue of a unit's kernel over its width, an entry a seed."""

    largest: Array
    smallest: Array

    @property
    def condition(self) -> Array:
        """Condition numbers, an entry a seed."""
        return self.largest / self.smallest


def extremes_over_seeds(
    units: Sequence[str | Unit],
    n: int,
    d: int,
    seeds: int,
    tick: Callable[[], None],
    *,
    width: int | None = WIDTH,
    normalised: bool = False,
) -> list[KernelExtremes]:
    """The extreme eigenvalues of each unit's kernel over `seeds` draws of the samples, one tick a draw."""
    pairs: list[list[tuple[float, float]]] = [[] for _ in units]
    for seed in range(seeds):
        kernels = analytic(list(units), samples(n, d, seed, normalised=normalised), width)
        for of_unit, kernel in zip(pairs, kernels, strict=True):
            of_unit.append(extremes(kernel))
        tick()
    return [KernelExtremes(*(np.array(of_unit).T / (width or 1))) for of_unit in pairs]


def extremes(kernel: Kernel) -> tuple[float, float]:
    """The largest and the smallest eigenvalue, which must be known to be positive."""
    ends = spectrum(kernel)
    if ends.status != "resolved":
        raise GatelabError(f"the kernel of {kernel.label} on {ends.n} samples is {ends.status}: {ends.notes[-1]}")
    return ends.lambda_max, ends.lambda_min


def eigenvalues(kernel: Kernel) -> Array:
    """All of them, in ascending order."""
    values = spectrum(kernel, full=True).eigenvalues
    assert values is not None
    return values


def shortest(n: int, d: int) -> float:
    """The least r^2/d of n samples, the median over draws: from the distribution of chi^2."""
    return float(chi2.ppf(1 - 0.5 ** (1 / n), d)) / d


# ---- table 1


def table_claims(n: int, d: int, seeds: int) -> list[Claim]:
    """A claim for each cell of table 1, measured on `seeds` draws of n samples in d dimensions."""
    measured = np.empty((seeds, len(MATRICES), 2))
    for seed in range(seeds):
        for i, M in enumerate(matrices(samples(n, d, seed))):
            values = np.linalg.eigvalsh(M)
            measured[seed, i] = values[-1], values[0]
    return [
        TableCell(name, word, formula, limit, n, d, measured[:, i, j]).claim()
        for i, (name, limits, formulas) in enumerate(zip(MATRICES, restored_limits(n, d), FORMULAS, strict=True))
        for j, (word, limit, formula) in enumerate(zip(("largest", "smallest"), limits, formulas, strict=True))
    ]


def matrices(x: Array) -> tuple[Array, Array, Array]:
    """G/d, (G/d)*(G/d) and r r^T/d of the rows of x."""
    d = x.shape[1]
    W = x @ x.T / d
    r = np.linalg.norm(x, axis=1)
    return W, W * W, np.outer(r, r) / d


def restored_limits(n: int, d: int) -> tuple[tuple[float, float], ...]:
    """Largest and smallest eigenvalue of each matrix, by the proof.

    >>> restored_limits(400, 100)
    ((9.0, 0.0), (5.0, 1.0), (400.0, 0.0))
    """
    gamma = n / d
    return ((1 + gamma**0.5) ** 2, max(0.0, 1 - gamma**0.5) ** 2), (1 + gamma, 1.0), (float(n), 0.0)


@dataclass(frozen=True, eq=False)
class TableCell:
    """A cell of table 1: an extreme eigenvalue of a matrix, its limit by the proof, and what was measured of it.

    `word` is "largest" or "smallest", `formula` what stands before the number in the cell, `measured` has an entry a
    seed.
    """

    matrix: str
    word: str
    formula: str
    limit: float
    n: int
    d: int
    measured: Array

    def claim(self) -> Claim:
        """The cell beside what was measured; a limit of zero is held against rounding."""
        what = f"{self.word} eigenvalue of the {self.matrix} (table 1)"
        place = f"table 1, {self.matrix}, {self.word}"
        paper = f"{self.formula} {self.limit:.3g} (cell lost, restored from the proof)".lstrip()
        sizes = f"n = {self.n}, d = {self.d}"
        if self.limit == 0:
            rounding = 1e-10 * self.n
            worst = float(np.abs(self.measured).max())
            because = f"{sizes}: {worst:.0e}, where rounding is up to {rounding:.0e}."
            ours = "0" if worst < rounding else f"{self.measured.mean():.3g}"
            return Claim(what, paper, ours, restored(reproduced_if(worst < rounding)), because, place=place)
        mean = interval(self.measured)
        near = abs(mean.value / self.limit - 1) <= NEAR
        because = f"{sizes}: {mean.value / self.limit:.3f} times the cell. {self.left_out()}"
        verdict = restored(reproduced_if(near))
        return Claim(what, paper, f"{mean.value:.3g}", verdict, because, mean.ends(), place)

    def left_out(self) -> str:
        """What the limit leaves out at these sizes."""
        n, d = self.n, self.d
        if self.matrix == MATRICES[0]:
            return "The edge of a finite matrix lies inside its limit, by chance and by its size."
        if self.matrix == MATRICES[2]:
            return f"It is the sum of r²/d, whose deviation is √(2n/d) = {(2 * n / d) ** 0.5:.2g}."
        if self.word == "largest":
            return "The bulk below it has a width of its own, which the approximation by the identity drops."
        return (
            f"The diagonal is r⁴/d², {shortest(n, d) ** 2:.2f} for the shortest sample where the identity has 1, and "
            f"n is {2 * n / (d * (d + 1)):.3f} of the d(d+1)/2 directions that are to be filled."
        )
