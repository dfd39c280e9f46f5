"""Paper 002's own estimates for Gaussian data: Propositions B.6 and B.9, and the rates of Theorem 3.1.

With r_i^2 replaced by its mean d and two terms of the Taylor series of the kernel kept,

    ReLU    K_0 ~ c1 G + c2 r r^T + c3 diag(r^2)              c1 = (m+d)/4d, c2 = m/(2 pi d), c3 = c1 - c2
    ReGLU   K_1 ~ a1 (r r^T)*G + a2 G*G + a3 diag(r^4)        a1 = (m+d)/(2 pi d^2), a2 = (m+2d)/4d^2, a3 = a2 - a1

m is the width; None stands for the limit of K / m. Both understate the condition number, 1.5 to 3.5 times where
n >= 2d: rows differ in length, and the smallest and the largest of them decide. `gatelab.theory.deformed` keeps
the lengths.
"""

from __future__ import annotations

import math

from gatelab.theory.random_matrix import mp_edges, spiked_edge


def paper_extremes(order: int, n: int, d: int, width: int | None) -> tuple[float, float]:
    """(lambda_max, lambda_min) as the paper estimates them, order 0 or 1.

    >>> [round(x / 1000, 3) for x in paper_extremes(0, 400, 100, 1000)]
    [64.058, 0.116]
    >>> [round(x / 1000, 3) for x in paper_extremes(1, 400, 100, 1000)]
    [1.63, 0.282]
    """
    if order not in (0, 1):
        raise ValueError(f"the paper has order 0 and 1, not {order}")
    return (_relu if order == 0 else _reglu)(n, d, width)


def _shares(d: int, width: int | None) -> tuple[float, float]:
    """(m, d) as they enter the coefficients; divided by m in the limit of great width."""
    return (1.0, 0.0) if width is None else (float(width), float(d))


def _relu(n: int, d: int, width: int | None) -> tuple[float, float]:
    m, dm = _shares(d, width)
    gamma = n / d
    c1, c2 = (m + dm) / (4 * d), m / (2 * math.pi * d)
    c3 = c1 - c2
    theta = 2 * n * m / (math.pi * (m + dm))
    low = mp_edges(gamma)[0] if gamma < 1 else 0.0
    return c1 * d * spiked_edge(theta, gamma) + c3 * d, c1 * d * low + c3 * d


def _reglu(n: int, d: int, width: int | None) -> tuple[float, float]:
    """For lambda_max the lower bound, which is what the paper draws."""
    m, dm = _shares(d, width)
    gamma = n / d
    a1, a2 = (m + dm) / (2 * math.pi * d * d), (m + 2 * dm) / (4 * d * d)
    a3 = a2 - a1
    low = mp_edges(gamma)[0] if gamma < 1 else 0.0
    diagonal = a3 * d * (d + 2)
    squares = max(0.0, 1 - math.sqrt(2 * n) / d) ** 2
    return a2 * d * d * (1 + (n + 1) / d) + diagonal, diagonal + a2 * d * d * squares + a1 * d * d * low


def paper_rates(order: int) -> dict[str, str]:
    """Theorem 3.1: how the extremes and the condition number grow, with n and d in proportion.

    >>> paper_rates(0)["condition"], paper_rates(1)["condition"]
    ('n', 'n/d')
    """
    growth = "n" if order == 0 else "n/d"
    return {"lambda_max": f"m {growth}", "lambda_min": "m", "condition": growth}
