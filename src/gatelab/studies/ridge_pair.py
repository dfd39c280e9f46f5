"""What a sum of two ridge functions allows: a network of two halves, each fitted on a line.

sin 4x sin 4y = cos 4(x - y) / 2 - cos 4(x + y) / 2. For x and y uniform on [-1, 1] both x - y and x + y have the
triangular density on [-2, 2] and the errors of the halves are next to uncorrelated, so that their squares add up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gatelab.problems import Problem
from gatelab.scaling import Slope, slope
from gatelab.solve import fit

POINTS = 10_000


def half(points: int = POINTS) -> Problem:
    """One of the two ridge functions, on points of the triangular density."""
    rng = np.random.default_rng(0)
    t, other = (rng.uniform(-1, 1, (points, 2)).sum(axis=1) for _ in range(2))
    wave = {"name": "cos(4t)/2", "interval": (-2.0, 2.0)}
    return Problem.from_arrays(t, np.cos(4 * t) / 2, test=(other, np.cos(4 * other) / 2), **wave)


def pair_errors(unit: str, widths: Sequence[int], points: int = POINTS) -> dict[int, float]:
    """The test RMSE of two fits on a line that share the neurons.

    >>> found = pair_errors("mlp", [32, 64], 2000)
    >>> 2 < found[32] / found[64] < 5
    True
    """
    line = half(points)
    parts = sorted({part for width in widths for part in (width // 2, width - width // 2)})
    error = {part: fit(unit, line, part).test_rmse for part in parts}
    return {width: float(np.hypot(error[width // 2], error[width - width // 2])) for width in widths}


def pair_slope(errors: dict[int, float]) -> Slope:
    return slope(np.array(list(errors), float), np.array(list(errors.values()))[:, None])
