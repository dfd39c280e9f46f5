"""The minimum Huber loss of log L = log(E + A p^-a + B d^-b): a damped Newton method from a grid of starts, in batches.

A law is a row x = (log E, log A, log B, a, b) for P and D over their geometric means; a term that is left out has the
logarithm -inf. For fixed exponents the law is linear in E, A, B >= 0, so least squares of the relative error has a
closed form on a grid of exponents, for every set of terms.

Rows of a batch are starts, or bootstrap draws, which differ in the weights of the points. With small delta the kinks of
the loss stop Newton's method, so delta decreases in steps from the scatter of the data. (scipy's least_squares takes
2.4 to 12 times as long, and half of its draws can end above the minimum.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from gatelab.arrays import Array

TERMS = (0, 1, 2)  # of E, of P, of D
STEEPEST = 16.0  # a term with a larger exponent affects the smallest sizes only
EXPONENTS = np.geomspace(0.01, STEEPEST, 28)
NOTHING = 1e-8  # terms below this share of L are dropped


class Logs(NamedTuple):
    """The table as logarithms: of P and D over their geometric means, and of L."""

    p: Array
    d: Array
    y: Array


def grid(
    logs: Logs, weights: Array, terms: Sequence[int] = TERMS, exponents: Array = EXPONENTS
) -> list[tuple[Array, Array]]:
    """Least squares of the relative error on a grid of exponents: misfits (a, b) and rows (a, b, 5) per set of terms.

    The misfit of a set is infinite unless its terms are all positive, so the least of all is that of nonnegative ones.
    """
    k, inverse = len(exponents), np.exp(logs.y.min() - logs.y)
    # Powers are relative to the smallest size, to avoid overflow.
    powers = [np.exp(-exponents[:, None] * (z - z.min())) * inverse for z in (logs.p, logs.d)]
    columns, shapes = (inverse[None], *powers), ((1, 1), (k, 1), (1, k))
    norms = [np.maximum(np.sqrt(np.square(column) @ weights), 1e-150) for column in columns]
    columns = [column / norm[:, None] for column, norm in zip(columns, norms, strict=True)]
    # Normal equations of columns of unit length, (a, b, 3, 3) and (a, b, 3), and the logarithms of E, A, B for a 1.
    G, c = np.ones((k, k, 3, 3)), np.empty((k, k, 3))
    for i in TERMS:
        c[..., i] = (columns[i] @ weights).reshape(shapes[i])
        for j in range(i):
            G[..., i, j] = ((columns[j] * weights) @ columns[i].T).reshape(np.broadcast_shapes(shapes[i], shapes[j]))
            G[..., j, i] = G[..., i, j]
    shifts = (np.zeros(1), exponents * logs.p.min(), exponents * logs.d.min())
    unit = [(logs.y.min() + shift - np.log(norm)) for shift, norm in zip(shifts, norms, strict=True)]
    unit = [each.reshape(shape) for each, shape in zip(unit, shapes, strict=True)]
    x = np.full((k, k, 5), -np.inf)
    x[..., 3], x[..., 4] = exponents[:, None], exponents
    sets = []
    for some in (some for size in range(1, len(terms) + 1) for some in combinations(terms, size)):
        part = G[..., some, :][..., some]
        solvable = np.linalg.det(part) > 1e-14
        part = np.where(solvable[..., None, None], part, np.eye(len(some)))
        theta = np.linalg.solve(part, c[..., some, None])[..., 0]
        positive = solvable & (theta > 0).all(axis=-1)
        row = x.copy()
        for i, term in enumerate(some):
            row[..., term] = np.log(np.where(positive, theta[..., i], 1)) + unit[term]
        sets.append((np.where(positive, weights.sum() - (theta * c[..., some]).sum(axis=-1), np.inf), row))
    return sets


def starts(logs: Logs, weights: Array, terms: Sequence[int] = TERMS) -> Array:
    """The best b for every a and the best a for every b, for each set of terms.

    The smallest misfit alone is not enough, since the Huber loss can have several minima near it.
    """
    chosen = []
    for misfit, rows in grid(logs, weights, terms):
        k = np.arange(len(misfit))
        profile = np.zeros_like(misfit, dtype=bool)
        profile[k, misfit.argmin(axis=1)] = profile[misfit.argmin(axis=0), k] = True
        profile &= np.isfinite(misfit)
        # Without a term its exponent has no effect, so one row of each such line is enough.
        _, first = np.unique(misfit[profile], return_index=True)
        chosen.append(rows[profile][first])
    return np.concatenate(chosen)


def tame(logs: Logs) -> Logs:
    """The table with outliers clipped, which would dominate least squares."""
    design = np.stack((np.ones_like(logs.p), logs.p, logs.d), axis=1)
    off = np.ones_like(logs.y)
    for _ in range(20):  # the plane of least absolute errors, by iterative reweighting
        root = 1 / np.sqrt(np.maximum(np.abs(off), 1e-6))
        off = logs.y - design @ np.linalg.lstsq(design * root[:, None], logs.y * root, rcond=None)[0]
    most = 4 * np.median(np.abs(off))
    return logs._replace(y=logs.y - off + np.clip(off, -most, most))


class Around(NamedTuple):
    """The loss of each row with its gradient (rows, 5), Hessian (rows, 5, 5), and a positive scale per parameter."""

    loss: Array
    gradient: Array
    hessian: Array
    scale: Array


def log_law(logs: Logs, x: Array) -> tuple[Array, Array]:
    """The logarithm of the law (rows, n) and the shares of its three terms (rows, 3, n)."""
    z = np.empty((len(x), 3, len(logs.y)))
    z[:, 0] = x[:, 0, None]
    z[:, 1] = x[:, 1, None] - x[:, 3, None] * logs.p
    z[:, 2] = x[:, 2, None] - x[:, 4, None] * logs.d
    top = z.max(axis=1)
    np.exp(np.subtract(z, top[:, None], out=z), out=z)
    total = z.sum(axis=1)
    z /= total[:, None]
    return top + np.log(total), z


def loss(logs: Logs, weights: Array, x: Array, delta: float) -> Array:
    """The sum of Huber losses of a row: r^2/2 for |r| <= delta, and linear beyond."""
    r = log_law(logs, x)[0] - logs.y
    bent = np.clip(r, -delta, delta)
    return np.einsum("rn,rn->r", weights, bent * (r - bent / 2))


def derivatives(logs: Logs, weights: Array, x: Array, delta: float) -> Around:
    """The loss and its derivatives in closed form.

    With s the shares and log L = logsumexp(Xx): J = sX, and the Hessian of a residual is X'(diag s - ss')X.
    """
    value, s = log_law(logs, x)
    r = value - logs.y
    bent = np.clip(r, -delta, delta)
    force = weights * bent
    J = np.empty((len(x), 5, len(logs.y)))
    J[:, :3] = s
    np.multiply(s[:, 1], -logs.p, out=J[:, 3])
    np.multiply(s[:, 2], -logs.d, out=J[:, 4])
    gradient = (J @ force[:, :, None])[:, :, 0]
    H = (J * (weights * (np.abs(r) <= delta) - force)[:, None]) @ J.transpose(0, 2, 1)
    for term in TERMS:
        H[:, term, term] += gradient[:, term]
    for term, exponent, size in ((1, 3, logs.p), (2, 4, logs.d)):
        H[:, term, exponent] += gradient[:, exponent]
        H[:, exponent, term] += gradient[:, exponent]
        H[:, exponent, exponent] += (force * s[:, term]) @ (size * size)
    slack = weights * (delta / np.maximum(np.abs(r), delta))
    scale = np.sqrt(np.einsum("rkn,rn->rk", J * J, slack))
    return Around(np.einsum("rn,rn->r", force, r - bent / 2), gradient, H, np.where(scale > 0, scale, 1.0))


def descend(logs: Logs, weights: Array, x: Array, delta: float, *, steps: int, tolerance: float) -> Array:
    """Rows after damped Newton steps, which never increase the loss, until the gain is below `tolerance` of it.

    Negative curvature is replaced by its absolute value. Exponents stay in [0, STEEPEST].
    """
    x, live = x.copy(), np.arange(len(x))
    damping = np.full(len(x), 1e-2)
    around = derivatives(logs, weights, x, delta)
    for _ in range(steps):
        step, gain = _step(x[live], around, damping[live])
        going = (gain > tolerance * around.loss) & (damping[live] < 1e8)
        live, step, around = live[going], step[going], Around(*(part[going] for part in around))
        if not len(live):
            break
        trial = x[live] + step
        trial[:, 3:] = np.clip(trial[:, 3:], 0, STEEPEST)
        trial_around = derivatives(logs, weights[live], trial, delta)
        better = trial_around.loss < around.loss
        x[live[better]] = trial[better]
        damping[live] = np.where(better, np.maximum(damping[live] / 5, 1e-12), damping[live] * 3)
        for before, after in zip(around, trial_around, strict=True):
            before[better] = after[better]
    return x


def _step(x: Array, around: Around, damping: Array) -> tuple[Array, Array]:
    """The damped step, and the predicted gain of the undamped one."""
    _, g, H, scale = around
    blocked = np.zeros(x.shape, bool)
    blocked[:, 3:] = ((x[:, 3:] <= 0) & (g[:, 3:] > 0)) | ((x[:, 3:] >= STEEPEST) & (g[:, 3:] < 0))
    g = np.where(blocked, 0, g / scale)
    H = np.where(blocked[:, :, None] | blocked[:, None, :], 0, H / (scale[:, :, None] * scale[:, None, :]))
    curvature, directions = np.linalg.eigh(H)
    curvature = np.maximum(np.abs(curvature), 1e-10)
    along = (directions.transpose(0, 2, 1) @ g[:, :, None])[:, :, 0]
    step = -(directions @ (along / (curvature + damping[:, None]))[:, :, None])[:, :, 0] / scale
    return np.clip(step, -3, 3), np.square(along / np.sqrt(curvature)).sum(axis=1)


def polish(logs: Logs, weights: Array, x: Array, delta: float, *, steps: int = 300, tolerance: float = 1e-13) -> Array:
    """Rows at a minimum, through decreasing deltas, or directly for rows with which that ends higher."""
    scatter = np.median(np.abs(log_law(logs, x)[0] - logs.y))
    way = x
    for stage in range(int(np.clip(np.ceil(np.log(max(scatter / delta, 1e-9)) / np.log(4)), 0, 12)), 0, -1):
        way = descend(logs, weights, way, delta * 4.0**stage, steps=20, tolerance=1e-4)
    lower = loss(logs, weights, way, delta) < loss(logs, weights, x, delta)
    return descend(logs, weights, np.where(lower[:, None], way, x), delta, steps=steps, tolerance=tolerance)


def best(logs: Logs, delta: float, terms: Sequence[int] = TERMS) -> Array:
    """The row of minimum loss, with the fewest terms that attain it."""
    ones = np.ones(len(logs.y))

    def value(x: Array) -> Array:
        return loss(logs, np.broadcast_to(ones, (len(x), len(ones))), x, delta)

    def lowest(x: Array, count: int) -> Array:
        """The rows of smallest loss, in order, including the best of each set of terms."""
        x = x[np.argsort(value(x), kind="stable")]
        _, of_sets = np.unique(np.isfinite(x[:, :3]), axis=0, return_index=True)
        return x[np.union1d(np.arange(min(count, len(x))), of_sets)]

    def polished(x: Array, **options: float) -> Array:
        return polish(logs, np.broadcast_to(ones, (len(x), len(ones))), x, delta, **options)  # pyright: ignore[reportArgumentType]

    def winners(x: Array) -> Array:
        """A few steps for all rows (for the best, if the table is large), then full convergence for the best."""
        x = lowest(x, max(32, 20_000 // len(ones)))
        x = np.concatenate([x, filled(logs, x[:4], terms)])
        x = lowest(polished(x, steps=15, tolerance=1e-6), 8)
        return lowest(polished(x), len(x))

    x = winners(np.concatenate([starts(logs, ones, terms), starts(tame(logs), ones, terms)]))
    # Once more from the grid, with the Huber weights of the best row so far.
    off = np.abs(log_law(logs, x[:1])[0][0] - logs.y)
    x = settled(logs, np.concatenate([x, winners(starts(logs, delta / np.maximum(off, delta), terms))]))
    found = value(x)
    # Differences at the level of rounding do not justify a term.
    enough = found <= found.min() * (1 + 1e-9) + 1e-24 * len(ones)
    return x[np.lexsort((found, np.isfinite(x[:, :3]).sum(axis=1), ~enough))[0]]


def again(logs: Logs, weights: Array, near: Array, delta: float, terms: Sequence[int] = TERMS) -> Array:
    """The best minimum for each row of weights, started at `near` and at the best of the grid."""
    fresh = []
    for own in weights:
        misfit, rows = min(grid(logs, own, terms, EXPONENTS[::3]), key=lambda pair: pair[0].min())
        fresh.append(rows.reshape(-1, 5)[misfit.argmin()])
    known = np.broadcast_to(near, (len(weights), 5))
    begin = [filled(logs, np.stack(fresh), terms), filled(logs, known, terms)]
    if not np.isfinite(near[list(terms)]).all():
        begin.append(known)
    many = np.tile(weights, (len(begin), 1))
    ends = polish(logs, many, np.concatenate(begin), delta, steps=100, tolerance=1e-8)
    lowest = loss(logs, many, ends, delta).reshape(len(begin), -1).argmin(axis=0)
    return settled(logs, ends.reshape(len(begin), -1, 5)[lowest, np.arange(len(weights))])


def settled(logs: Logs, x: Array) -> Array:
    """Rows without negligible terms, and with constant terms merged into E."""
    x = x.copy()
    for term, size in ((1, logs.p), (2, logs.d)):
        flat = (x[:, term + 2] * np.ptp(size) < NOTHING) & np.isfinite(x[:, term])
        x[flat, 0] = np.logaddexp(x[flat, 0], x[flat, term])
        x[flat, term] = -np.inf
    x[:, :3][log_law(logs, x)[1].max(axis=2) < NOTHING] = -np.inf
    return x


def filled(logs: Logs, x: Array, terms: Sequence[int]) -> Array:
    """Rows with all terms; missing ones start at a thousandth of L with the exponent 0.5."""
    small = np.full(5, -np.inf)
    small[list(terms)], small[3:] = np.median(logs.y) + np.log(1e-3), 0.5
    there = np.isfinite(x[:, :3])
    return np.where(np.concatenate([there, there[:, 1:]], axis=1), x, small)
