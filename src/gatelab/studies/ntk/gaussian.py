"""What the studies of kernels share: Gaussian samples, extreme eigenvalues over seeds, and their intervals.

Units of one seed see the same samples, so that ratios between units are ratios on equal data.

Table 1 of the paper: the extreme eigenvalues of the three matrices that its kernels are made of.

The cells are lost in the copy that was used. They are restored from the proof of Theorem 3.1: Marchenko and Pastur's
ends for the Wishart matrix, El Karoui's approximation 11^T/d + I for its square by elements, and a matrix of rank one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2
from scipy.stats import t as student

from gatelab.arrays import Array
from gatelab.errors import GatelabError
from gatelab.feedforward import Unit
from gatelab.ntk import Kernel, analytic, spectrum
from gatelab.studies.definition import Claim
from gatelab.studies.verdicts import ends as ends_of

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
class LogInterval:
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


def interval(values: Array | Sequence[float]) -> LogInterval:
    """Of positive values, one a seed. A single seed has no interval.

    >>> str(interval([1.0, 2.0, 4.0]))
    '2 [0.357, 11.2]'
    """
    logs = np.log(np.asarray(values, float))
    middle, count = float(logs.mean()), len(logs)
    if count < 2:
        return LogInterval(float(np.exp(middle)), np.nan, np.nan, count)
    reach = float(student.ppf(0.5 + LEVEL / 2, count - 1)) * float(logs.std(ddof=1)) / count**0.5
    low, high = (float(np.exp(middle + step)) for step in (-reach, reach))
    return LogInterval(float(np.exp(middle)), low, high, count)


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


NEAR = 0.15  # of the value, as for the exponents: the cells are limits, sizes are finite
MATRICES = ("Wishart matrix G/d", "square of G/d by elements", "matrix of rank one r r^T/d")


def matrices(x: Array) -> tuple[Array, Array, Array]:
    """G/d, (G/d)*(G/d) and r r^T/d of the rows of x."""
    d = x.shape[1]
    W = x @ x.T / d
    r = np.linalg.norm(x, axis=1)
    return W, W * W, np.outer(r, r) / d


def restored(n: int, d: int) -> tuple[tuple[float, float], ...]:
    """Largest and smallest eigenvalue of each, by the proof.

    >>> restored(400, 100)
    ((9.0, 0.0), (5.0, 1.0), (400.0, 0.0))
    """
    gamma = n / d
    least = (1 - gamma**0.5) ** 2 if gamma < 1 else 0.0
    return ((1 + gamma**0.5) ** 2, least), (1 + gamma, 1.0), (float(n), 0.0)


FORMULAS = (("(1 + √(n/d))² =", "(1 - √(n/d))² for n < d, else"), ("1 + n/d =", ""), ("n =", ""))


def table_claims(n: int, d: int, seeds: int) -> list[Claim]:
    """A claim a cell."""
    found = np.empty((seeds, len(MATRICES), 2))
    for seed in range(seeds):
        for i, M in enumerate(matrices(samples(n, d, seed))):
            values = np.linalg.eigvalsh(M)
            found[seed, i] = values[-1], values[0]
    claims = []
    for i, (name, expected, formulas) in enumerate(zip(MATRICES, restored(n, d), FORMULAS, strict=True)):
        for j, (word, value, formula) in enumerate(zip(("largest", "smallest"), expected, formulas, strict=True)):
            claims.append(_cell(f"{word} eigenvalue of the {name} (table 1)", formula, value, found[:, i, j], n, d, i))
    return claims


def _cell(what: str, formula: str, value: float, each: Array, n: int, d: int, matrix: int) -> Claim:
    paper = f"{formula} {value:.3g} (cell lost, restored from the proof)".lstrip()
    if value == 0:
        rounding = 1e-10 * n
        worst = float(np.abs(each).max())
        near, ends = worst < rounding, ""
        said = "0" if near else f"{each.mean():.3g}"
        because = f"n = {n}, d = {d}: {worst:.0e}, where rounding is up to {rounding:.0e}."
    else:
        at = interval(each)
        said, ends, near = f"{at.value:.3g}", at.ends, abs(at.value / value - 1) <= NEAR
        because = f"n = {n}, d = {d}: {at.value / value:.3f} times the cell. {_why(matrix, what, n, d)}"
    return Claim(what, paper, said, "reproduced" if near else "differs", because, ends)


def _why(matrix: int, what: str, n: int, d: int) -> str:
    """What the limit leaves out at these sizes."""
    if matrix == 0:
        return "The edge of a finite matrix lies inside its limit, by chance and by its size."
    if matrix == 2:
        return f"It is the sum of r²/d, whose deviation is √(2n/d) = {(2 * n / d) ** 0.5:.2g}."
    if what.startswith("largest"):
        return "The bulk below it has a width of its own, which the approximation by the identity drops."
    short = float(chi2.ppf(1 - 0.5 ** (1 / n), d)) / d
    return (
        f"The diagonal is r⁴/d², {short**2:.2f} for the shortest sample where the identity has 1, and n is "
        f"{2 * n / (d * (d + 1)):.3f} of the d(d+1)/2 directions that are to be filled."
    )
