"""Table 1: the extreme eigenvalues of the three matrices that the paper's kernels are made of.

Its cells are lost in the copy that was used. They are restored from the proof of Theorem 3.1: Marchenko and Pastur's
ends for the Wishart matrix, El Karoui's approximation 11^T/d + I for its square by elements, and a matrix of rank one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gatelab.arrays import Array
from gatelab.statistics import Interval
from gatelab.studies.claims import Claim
from gatelab.studies.engine import interval_at

MATRICES = ("Wishart matrix G/d", "square of G/d by elements", "matrix of rank one r r^T/d")


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


def cell_claims(row: dict[str, Any]) -> Iterator[Claim]:
    """The two cells of a row of table 1; where the limit is 0, the interval is what rounding allows."""
    for word in ("largest", "smallest"):
        limit, measured, note = float(row[f"{word}_limit"]), interval_at(row, word), ""
        if limit == 0:
            note = "The interval is what rounding allows."
            rounding = 1e-10 * row["n"]
            measured = Interval(measured.value, measured.value - rounding, measured.value + rounding)
        yield Claim.of(
            f"{word} eigenvalue of the {row['matrix']} (table 1)",
            measured,
            limit,
            "number",
            place=f"table 1, {row['matrix']}, {word}",
            reconstructed=True,
            support={"n": int(row["n"]), "d": int(row["d"])},
            note=note,
        )
