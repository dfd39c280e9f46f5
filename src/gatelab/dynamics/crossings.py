"""Loss crossing: when a slower unit overtakes a faster one, expected and measured.

Expected losses have a closed form at every real t, and cross at the roots of log L_a - log L_b. The conditions of
corollary 4.2 are, early, L_0 - L_1 = eta [ y^T K y + tr(K^2) / m ] to first order, and late, with the loss
C (1 - eta lambda_min)^(2t) of the slowest direction u and C = |u^T y|^2 + the variance of the initial outputs along u,

    t > ln(C_b / C_a) / ( 2 ln[ (1 - eta_a lambda_a) / (1 - eta_b lambda_b) ] )
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq

from gatelab.arrays import Array
from gatelab.display import Compact
from gatelab.dynamics.expected import Trajectory, expected_loss
from gatelab.dynamics.spectral import Loss, Spectral, eigen, kernel_matrix, loss_scale
from gatelab.dynamics.training import Training
from gatelab.errors import GatelabError, check_seed, whole_number
from gatelab.statistics import Interval, percentile_interval, resampled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pair = tuple[float, float]
EVERY, FURTHER = 512, 1500  # the grid: every step up to 512, then 1500 steps evenly spaced in log t
TIE = 1e-9  # relative difference below which losses are equal
DECAYED = 40.0  # the default horizon: the slowest direction has decayed by exp(-2 * 40)


@dataclass(frozen=True)
class Early(Compact):
    """For both units: the initial loss, y^T K y and tr K^2."""

    start: Pair
    signal: Pair
    spread: Pair

    @property
    def holds(self) -> bool:
        """Whether the corollary has the loss of the first unit fall faster early."""
        return self.signal[0] > self.signal[1] and self.spread[0] > self.spread[1]


@dataclass(frozen=True)
class Late(Compact):
    """For both units: the smallest eigenvalue, the weight C of its direction, and its factor 1 - eta lambda per step.

    `bound` is the step after which the second unit is ahead by the paper's formula, None if the condition fails.
    """

    lambda_min: Pair
    weight: Pair
    factor: Pair
    bound: float | None

    @property
    def holds(self) -> bool:
        """The corollary's condition that the loss of the second unit falls faster late."""
        return self.factor[1] < self.factor[0]


@dataclass(frozen=True)
class Change:
    """A step at which the order of the losses changes, the loss there, and the unit with the lower loss afterwards."""

    step: float
    loss: float
    ahead: str


@dataclass(frozen=True, eq=False)
class Crossing(Compact):
    """When the order of two losses changes, and why.

    `step` is the first of the `changes`, between whole steps, and `loss` the loss there; None if one unit stays ahead
    up to `horizon`. `first` is ahead at the start, `last` at the end. `early` and `late` are the conditions of
    corollary 4.2, and `curves` the losses at step 0; `curves[0].at(steps)` has the first one at other steps. If a loss
    diverges, `reason` is a sentence, otherwise None, and `step`, `loss`, `first` and `last` are None.
    """

    labels: tuple[str, str]
    step: float | None
    loss: float | None
    changes: tuple[Change, ...]
    first: str | None
    last: str | None
    horizon: int
    lr: tuple[float, float]
    early: Early
    late: Late
    curves: tuple[Trajectory, Trajectory] = field(repr=False)
    reason: str | None = None

    @property
    def verdict(self) -> str:
        """Which unit is ahead when, and which conditions are met, in a sentence."""
        a, b = self.labels
        if self.reason is not None:
            return self.reason
        if self.step is None:
            text = f"{self.last} is ahead at all {self.horizon} steps"
        else:
            turns = ", ".join(f"{c.ahead} from step {c.step:.1f}" for c in self.changes)
            text = f"{self.first} is ahead at first, {turns}"
        met = {True: "is met", False: "is not met"}
        return (
            f"{text}; the condition for {a} to fall faster early {met[self.early.holds]},"
            f" that for {b} to fall faster late {met[self.late.holds]}"
        )

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """Both losses to beyond the last change, and the first one; written to `path` or drawn into `ax` if given."""
        from gatelab.plotting import saved
        from gatelab.plotting.kernels import PlotLine, lines_figure

        end = min(self.horizon, max([1000, *(int(4 * change.step) for change in self.changes)]))
        steps = np.unique(np.concatenate([np.arange(min(end, 200) + 1.0), np.linspace(0, end, 501).round()]))
        lines, title = [PlotLine(c.label, steps, c.at(steps).loss) for c in self.curves], "no crossing"
        if self.step is not None and self.loss is not None:
            title, at = f"crossing at step {self.step:.1f}", (np.array([self.step]), np.array([self.loss]))
            lines.append(PlotLine("crossing", *at, color="#222222", marker="o"))
        return saved(lines_figure(lines, title, ax=ax), path)


def crossing(
    K_a: Any,
    K_b: Any,
    y: Any,
    width: int | None = None,
    lr: Any = None,
    *,
    steps: int | None = None,
    nngp: Any = None,
    start: Any = None,
    loss: Loss = "sum",
) -> Crossing:
    """Where the expected losses of two kernels on the same targets cross.

    Args:
        K_a: the tangent kernel of the first unit, (n, n).
        K_b: the tangent kernel of the second unit.
        y: the targets, (n,) or (n, outputs).
        width: by default the width of the kernels.
        lr: one learning rate for both, or a pair; by default half of the largest step that is stable for both.
        steps: the last step of the search; by default the slowest direction has decayed there.
        nngp: a pair of covariances of the initial outputs; see `expected_loss`.
        start: a pair of initial outputs; see `expected_loss`.
        loss: "sum", or "mean" to divide loss and gradient by n.

    Returns:
        The steps at which the order of the losses changes, and the conditions of the corollary.

    >>> plain, gated = np.diag([9.0, 0.5, 0.5]), np.diag([4.0, 4.0, 4.0])
    >>> order = crossing(plain, gated, [2.0, 1.0, 1.0], width=100, lr=0.05)
    >>> round(order.step, 2), order.first, order.last, order.early.holds, order.late.holds
    (2.55, 'a', 'b', True, True)
    """
    matrices = {name: kernel_matrix(K, name) for name, K in (("K_a", K_a), ("K_b", K_b))}
    n, other = (len(matrix) for matrix in matrices.values())
    if n != other:
        raise GatelabError(f"K_a has {n} samples and K_b {other}; give kernels of the same rows")
    if lr is None:
        lr = 1 / max(float(eigen(matrix, name)[0][-1]) for name, matrix in matrices.items()) / loss_scale(loss, n)
    curves = [
        expected_loss(K, y, width, eta, 0, nngp=N, start=f, loss=loss)
        for K, eta, N, f in zip(
            (K_a, K_b), pair(lr, "lr", common=True), pair(nngp, "nngp"), pair(start, "start"), strict=True
        )
    ]
    a, b = (curve.spectral for curve in curves)
    names = getattr(K_a, "label", "a"), getattr(K_b, "label", "b")
    if names[0] == names[1]:
        names = f"{names[0]} (first)", f"{names[1]} (second)"
    if steps is None:
        # The slowest direction of both has decayed there, except directions of eigenvalue 0.
        pace = min(-float(s.log_rates[s.eigenvalues > 1e-12 * s.eigenvalues[-1]].max()) for s in (a, b))
        steps = int(min(max(DECAYED / pace, 10), 1e9)) if pace > 0 else 1000
    horizon = whole_number("steps", steps, 1)
    reason, order, first, last = divergence_reason(curves, names), (), None, None
    if reason is None:
        order, first, last = order_changes(a, b, names, horizon)
    where = height = None
    if order:
        where, height = order[0].step, order[0].loss
    return Crossing(
        names, where, height, order, first, last, horizon, lr=(curves[0].lr, curves[1].lr),
        early=early_condition(a, b), late=late_condition(a, b), curves=(curves[0], curves[1]),
        reason=reason,
    )  # fmt: skip


def pair(value: Any, what: str, *, common: bool = False) -> tuple[Any, Any]:
    """One value per kernel; None and, with `common`, a single value are for both."""
    several = isinstance(value, tuple | list)
    if value is None or (common and not several):
        return value, value
    if not several or len(value) != 2:
        raise GatelabError(f"{what} is not a pair; give two, one for each kernel")
    return value[0], value[1]


def early_condition(a: Spectral, b: Spectral) -> Early:
    start = a.loss(0.0), b.loss(0.0)
    signal = float(a.eigenvalues @ a.targets), float(b.eigenvalues @ b.targets)
    return Early(start, signal, (float(np.sum(a.eigenvalues**2)), float(np.sum(b.eigenvalues**2))))


def late_condition(a: Spectral, b: Spectral) -> Late:
    slowest = float(a.eigenvalues[0]), float(b.eigenvalues[0])
    factors = abs(1 - a.lr * slowest[0]), abs(1 - b.lr * slowest[1])
    weights = float((a.targets + a.outputs)[0]), float((b.targets + b.outputs)[0])
    bound = None
    if factors[1] < factors[0] and min(weights) > 0:
        slower = math.inf if factors[1] == 0 else 2 * math.log(factors[0] / factors[1])
        bound = max(0.0, math.log(weights[1] / weights[0]) / slower)
    return Late(slowest, weights, factors, bound)


def order_changes(
    a: Spectral, b: Spectral, names: tuple[str, str], horizon: int
) -> tuple[tuple[Change, ...], str, str]:
    """Every change of order, and the unit that is ahead at the first and at the last step."""

    def lag(t: Array) -> Array:
        """log L_a - log L_b, negative if the first unit is ahead."""
        return a.log_loss(t) - b.log_loss(t)

    grid = np.arange(min(horizon, EVERY) + 1.0)
    if horizon > EVERY:
        grid = np.union1d(grid, np.geomspace(EVERY, horizon, FURTHER))
    lags = np.concatenate([lag(part) for part in np.array_split(grid, max(1, len(grid) // 200))])
    clear = np.abs(lags) > TIE
    if not clear.any():
        raise GatelabError("the two units have the same loss at every step; give different kernels")
    grid, lags = grid[clear], lags[clear]
    ahead = [names[int(value > 0)] for value in lags]
    order = []
    for i in np.flatnonzero(np.sign(lags[1:]) != np.sign(lags[:-1])):
        root: Any = brentq(lambda t: float(lag(np.array([t]))[0]), grid[i], grid[i + 1], xtol=1e-9)
        order.append(Change(float(root), a.loss(root), ahead[i + 1]))
    return tuple(order), ahead[0], ahead[-1]


def divergence_reason(curves: list[Trajectory], names: tuple[str, str]) -> str | None:
    """Which of the two losses diverge, in a sentence; None if neither does."""
    wild = [
        f"lr {curve.lr:.3g} is above 2 / lambda_max = {curve.limit:.3g} of {name}"
        for curve, name in zip(curves, names, strict=True)
        if not curve.stable
    ]
    if not wild:
        return None
    whose = ("its loss grows", "both losses grow")[len(wild) - 1]
    return f"{' and '.join(wild)}: {whose} without bound, so the losses do not cross; give a smaller lr"


@dataclass(frozen=True)
class MeasuredCrossing(Compact):
    """The last crossing of two mean losses: its `step`, None if they do not cross, and all `changes`.

    `low` and `high` are the ends of a bootstrap interval over the `seeds` of both units, from the draws that cross, and
    `share` is the share of these.
    """

    step: float | None
    low: float
    high: float
    share: float
    changes: tuple[float, ...]
    seeds: tuple[int, int]

    def __str__(self) -> str:
        return "none" if self.step is None else str(Interval(self.step, self.low, self.high))


def measured_crossing(
    a: Training, b: Training, *, level: float = 0.95, draws: int = 1000, seed: int = 0
) -> MeasuredCrossing:
    """Where the mean losses of `a` and `b` cross, by linear interpolation of the log losses between recorded steps.

    Args:
        a: networks of one unit.
        b: networks of another unit, recorded at the same steps.
        level: the level of the interval.
        draws: the number of bootstrap draws of the seeds.
        seed: the seed of these draws.

    Returns:
        The last crossing with its interval.
    """
    if not np.array_equal(a.steps, b.steps):
        raise GatelabError("the two trainings recorded different steps; train both with the same `record`")
    if (a.diverged >= 0).any() or (b.diverged >= 0).any():
        raise GatelabError("some networks diverged, and their mean loss with them; train with a smaller lr")
    generator = np.random.default_rng(check_seed(seed))
    steps = changes(a.steps, a.mean, b.mean)
    last = []
    for _ in range(draws):
        means = [t.losses[resampled(len(t.losses), 1, generator)[0]].mean(axis=0) for t in (a, b)]
        last += changes(a.steps, *means)[-1:]
    step = steps[-1] if steps else None
    interval = percentile_interval(math.nan, np.array(last), level)
    share = len(last) / draws if draws else math.nan
    return MeasuredCrossing(step, interval.low, interval.high, share, steps, (len(a.seeds), len(b.seeds)))


def changes(steps: Array, a: Array, b: Array) -> tuple[float, ...]:
    """The steps at which the order of two curves changes."""
    gap = np.log(a) - np.log(b)
    clear = gap != 0
    steps, gap = steps[clear], gap[clear]
    places = np.flatnonzero(np.sign(gap[1:]) != np.sign(gap[:-1]))
    return tuple(float(steps[i] + (steps[i + 1] - steps[i]) * gap[i] / (gap[i] - gap[i + 1])) for i in places)
