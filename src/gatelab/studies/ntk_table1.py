"""Table 1 of the paper: the extreme eigenvalues of the three matrices that its kernels are made of.

The cells are lost in the copy that was used. They are restored from the proof of Theorem 3.1: Marchenko and Pastur's
ends for the Wishart matrix, El Karoui's approximation 11^T/d + I for its square by elements, and a matrix of rank one.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2

from gatelab.studies.gaussian import Array, interval, samples
from gatelab.studies.study import Claim

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
