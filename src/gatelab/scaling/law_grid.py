"""Where to look for the law: for fixed exponents it is linear in E, A, B >= 0, so a grid of exponents is cheap.

The grid solves least squares of the relative error in closed form, for every set of terms. A law is a row
x = (log E, log A, log B, a, b) for P and D over their geometric means; a term that is left out has the logarithm -inf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TERMS = (0, 1, 2)  # of E, of P, of D
STEEPEST = 16.0  # beyond it a term is a mark on the smallest sizes alone
EXPONENTS = np.geomspace(0.01, STEEPEST, 28)
COARSE = EXPONENTS[::3]


@dataclass(frozen=True, eq=False)
class Logs:
    """The table as logarithms: of P and D over their geometric means, and of L."""

    p: Array
    d: Array
    y: Array


def grid(
    logs: Logs, weights: Array, terms: Sequence[int] = TERMS, exponents: Array = EXPONENTS
) -> list[tuple[Array, Array]]:
    """Least squares of the relative error for all exponents: misfits (a, b) and rows (a, b, 5) for each set of terms.

    A set has all its terms positive; where least squares would not have them so the misfit is infinite. The least
    misfit of all sets is that of nonnegative least squares.
    """
    G, c, unit = _system(logs, weights, exponents)
    x = np.full((len(exponents), len(exponents), 5), -np.inf)
    x[..., 3], x[..., 4] = exponents[:, None], exponents
    found = []
    for size in range(1, len(terms) + 1):
        for some in combinations(terms, size):
            part = G[..., some, :][..., some]
            solvable = np.linalg.det(part) > 1e-14
            part = np.where(solvable[..., None, None], part, np.eye(size))
            theta = np.linalg.solve(part, c[..., some, None])[..., 0]
            positive = solvable & (theta > 0).all(axis=-1)
            row = x.copy()
            for i, term in enumerate(some):
                row[..., term] = np.log(np.where(positive, theta[..., i], 1)) + unit[term]
            misfit = weights.sum() - (theta * c[..., some]).sum(axis=-1)
            found.append((np.where(positive, misfit, np.inf), row))
    return found


def _system(logs: Logs, weights: Array, exponents: Array) -> tuple[Array, Array, list[Array]]:
    """Normal equations of columns of unit length, (a, b, 3, 3) and (a, b, 3), and the logarithms of E, A, B for a 1."""
    k = len(exponents)
    inverse = np.exp(logs.y.min() - logs.y)
    # Powers are taken from the smallest size, where they are 1: the steepest would overflow from the middle.
    powers = [np.exp(-exponents[:, None] * (z - z.min())) * inverse for z in (logs.p, logs.d)]
    columns, shapes = (inverse[None], *powers), ((1, 1), (k, 1), (1, k))
    norms = [np.maximum(np.sqrt(np.square(column) @ weights), 1e-150) for column in columns]
    columns = [column / norm[:, None] for column, norm in zip(columns, norms, strict=True)]
    G, c = np.ones((k, k, 3, 3)), np.empty((k, k, 3))
    for i in TERMS:
        c[..., i] = (columns[i] @ weights).reshape(shapes[i])
        for j in range(i):
            G[..., i, j] = ((columns[j] * weights) @ columns[i].T).reshape(np.broadcast_shapes(shapes[i], shapes[j]))
            G[..., j, i] = G[..., i, j]
    shifts = (np.zeros(1), exponents * logs.p.min(), exponents * logs.d.min())
    unit = [(logs.y.min() + shift - np.log(norm)) for shift, norm in zip(shifts, norms, strict=True)]
    return G, c, [each.reshape(shape) for each, shape in zip(unit, shapes, strict=True)]


def starts(logs: Logs, weights: Array, terms: Sequence[int] = TERMS) -> Array:
    """For each set of terms the best b for every a and the best a for every b.

    Not the least misfit alone: in the valley that it lies in, the Huber loss has minima of its own.
    """
    chosen = []
    for misfit, rows in grid(logs, weights, terms):
        k = np.arange(len(misfit))
        profile = np.zeros_like(misfit, dtype=bool)
        profile[k, misfit.argmin(axis=1)] = profile[misfit.argmin(axis=0), k] = True
        profile &= np.isfinite(misfit)
        # Without a term its exponent changes nothing: one of each such line is enough.
        _, first = np.unique(misfit[profile], return_index=True)
        chosen.append(rows[profile][first])
    return np.concatenate(chosen)


def least(found: list[tuple[Array, Array]]) -> Array:
    """The row of the least misfit of all sets of terms: nonnegative least squares."""
    misfit, rows = min(found, key=lambda pair: pair[0].min())
    return rows.reshape(-1, 5)[misfit.argmin()]


def tame(logs: Logs) -> Logs:
    """The table with outliers drawn in: least squares would start from them, not from the rest."""
    design = np.stack((np.ones_like(logs.p), logs.p, logs.d), axis=1)
    off = np.ones_like(logs.y)
    for _ in range(20):  # the plane of the least absolute errors, by reweighting
        root = 1 / np.sqrt(np.maximum(np.abs(off), 1e-6))
        off = logs.y - design @ np.linalg.lstsq(design * root[:, None], logs.y * root, rcond=None)[0]
    most = 4 * np.median(np.abs(off))
    return replace(logs, y=logs.y - off + np.clip(off, -most, most))
