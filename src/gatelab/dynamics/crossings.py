"""Loss crossing: when does a unit that starts slower overtake, expected and measured.

Both expected losses are known in closed form at every real t, so that crossings are found as roots of log L_a - log
L_b, which keeps its digits however small the losses are. Measured losses cross between recorded steps, with an interval
over seeds.

The two conditions of corollary 4.2 say who falls faster at first, and who in the end. Early, to first order in the
step: L_0 - L_1 = eta [ y^T K y + tr(NNGP K) ], and with NNGP = K / m the second term is tr(K^2) / m. Late, only the
directions of the smallest eigenvalues are left, C (1 - eta lambda_min)^(2t) with C = |u^T y|^2 + the variance of the
initial outputs along u, and the second unit is ahead once

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
EVERY, FURTHER = 512, 1500  # all steps up to the first, then as many as the second, evenly in log t
TIE = 1e-9  # losses as near as this, relative, are equal: rounding decides no order
DECAYED = 40.0  # the horizon: where the slowest direction has fallen by exp(-2 * 40)


@dataclass(frozen=True)
class Early(Compact):
    """Of both units: the loss at the start, y^T K y, tr K^2, and by how much the first step lowers the loss.

    `holds` is the corollary's condition that the first unit falls faster: its y^T K y and its tr K^2 are larger.
    """

    start: Pair
    signal: Pair
    spread: Pair
    first_step: Pair

    @property
    def holds(self) -> bool:
        """Whether the first unit falls faster early."""
        return self.signal[0] > self.signal[1] and self.spread[0] > self.spread[1]


@dataclass(frozen=True)
class Late(Compact):
    """Of both units: the smallest eigenvalue, the weight C of its direction, and its factor 1 - eta lambda a step.

    `holds` is the condition that the second unit falls faster in the end. `bound` is the step after which the paper's
    formula has it ahead, None where the condition fails. It compares two directions alone, and is no estimate of the
    crossing: others may have decided it long before.
    """

    lambda_min: Pair
    weight: Pair
    factor: Pair
    bound: float | None

    @property
    def holds(self) -> bool:
        """Whether the second unit falls faster in the end."""
        return self.factor[1] < self.factor[0]


@dataclass(frozen=True)
class Change:
    """A step at which the order of the two losses changes, the loss there, and who is ahead after it."""

    step: float
    loss: float
    ahead: str


@dataclass(frozen=True, eq=False)
class Crossing(Compact):
    """When the order of two losses changes, and why.

    `labels` are those of the kernels and `lr` the learning rates. `step` is the first change, between whole steps, and
    `loss` the loss there; None where one unit stays ahead up to `horizon`. `changes` are all of them. `first` is ahead
    at the start, `last` at the end. `early` and `late` are the conditions of corollary 4.2, `curves` the two losses.
    `verdict` says it in a sentence.

    With a step at which a loss grows without bound there is nothing to cross: `reason` says so, else it is None, and
    `step`, `loss`, `first` and `last` are None.
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
        """Who is ahead and from when on, and which conditions are met, in a sentence."""
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
        """Both curves and the crossing; written to `path` or drawn into your own `ax` if given."""
        from gatelab.plotting import saved
        from gatelab.plotting.kernels import LossCurve, crossing_figure

        curves = [LossCurve(c.label, c.steps, c.loss) for c in self.curves]
        return saved(crossing_figure(curves, self.step, self.loss, ax=ax), path)


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

    The search runs over every step up to 512 and then 1500 steps evenly spaced in log t.

    Args:
        K_a: the tangent kernel of the first unit, (n, n).
        K_b: that of the second.
        y: the targets, (n,) or (n, outputs).
        width: by default that of the kernels.
        lr: one learning rate for both, or a pair; by default half of the largest step that is stable for both. With one
            that is not, no crossing is named.
        steps: where the search ends, by default where the slowest direction is gone.
        nngp: a pair of covariances of the initial outputs; see `expected_loss`.
        start: a pair of initial outputs; see `expected_loss`.
        loss: with "mean" loss and gradient are divided by n.

    Returns:
        The steps at which the order of the losses changes, and the conditions of the corollary.

    >>> import numpy as np
    >>> plain, gated = np.diag([9.0, 0.5, 0.5]), np.diag([4.0, 4.0, 4.0])
    >>> order = crossing(plain, gated, [2.0, 1.0, 1.0], width=100, lr=0.05)
    >>> round(order.step, 2), order.first, order.last, order.early.holds, order.late.holds
    (2.55, 'a', 'b', True, True)
    """
    matrices = {name: kernel_matrix(K, name) for name, K in (("K_a", K_a), ("K_b", K_b))}
    n, other = (len(matrix) for matrix in matrices.values())
    if n != other:
        raise GatelabError(f"K_a is of {n} samples and K_b of {other}; give kernels of the same rows")
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
    horizon = slowest_steps(a, b) if steps is None else whole_number("steps", steps, 1)
    reason = unbounded(curves, names)
    order: tuple[Change, ...] = ()
    first = last = where = height = None
    if reason is None:
        order, first, last = order_changes(a, b, names, horizon)
    if order:
        where, height = order[0].step, order[0].loss
    # The curves end well past the last change; with every early step, since a first may come long before the last.
    end = min(horizon, int(np.ceil(4 * order[-1].step)) + 10 if order else 1000)
    drawn = np.unique(np.concatenate([np.arange(min(end, 200) + 1), np.round(np.linspace(0, end, min(end, 500) + 1))]))
    return Crossing(
        labels=names,
        step=where,
        loss=height,
        changes=order,
        first=first,
        last=last,
        horizon=horizon,
        lr=(curves[0].lr, curves[1].lr),
        early=early_condition(a, b),
        late=late_condition(a, b),
        curves=(curves[0].at(drawn), curves[1].at(drawn)),
        reason=reason,
    )


def pair(value: Any, what: str, *, common: bool = False) -> tuple[Any, Any]:
    """One for each kernel; None is for both, and with `common` so is a single value."""
    several = isinstance(value, tuple | list)
    if value is None or (common and not several):
        return value, value
    if not several or len(value) != 2:
        raise GatelabError(f"{what} is not a pair; give two, one for each kernel")
    return value[0], value[1]


def early_condition(a: Spectral, b: Spectral) -> Early:
    """The condition of the corollary that the first unit falls faster at first."""
    with np.errstate(over="ignore"):  # one step far beyond what is stable may leave float64
        (a_0, a_1), (b_0, b_1) = (np.exp(s.log_loss(np.array([0.0, 1.0]))) for s in (a, b))
    return Early(
        start=(float(a_0), float(b_0)),
        signal=(float(a.eigenvalues @ a.targets), float(b.eigenvalues @ b.targets)),
        spread=(float(np.sum(a.eigenvalues**2)), float(np.sum(b.eigenvalues**2))),
        first_step=(float(a_0 - a_1), float(b_0 - b_1)),
    )


def late_condition(a: Spectral, b: Spectral) -> Late:
    """The condition of the corollary that the second unit falls faster in the end."""
    slowest = float(a.eigenvalues[0]), float(b.eigenvalues[0])
    factors = abs(1 - a.lr * slowest[0]), abs(1 - b.lr * slowest[1])
    weights = float((a.targets + a.outputs)[0]), float((b.targets + b.outputs)[0])
    bound = None
    if factors[1] < factors[0] and min(weights) > 0:
        slower = math.inf if factors[1] == 0 else 2 * math.log(factors[0] / factors[1])
        bound = max(0.0, math.log(weights[1] / weights[0]) / slower)
    return Late(slowest, weights, factors, bound)


def slowest_steps(a: Spectral, b: Spectral) -> int:
    """Where the slower unit's slowest direction is gone; those of eigenvalue 0 never go, and count for nothing."""
    pace = min(-float(s.log_rates[s.eigenvalues > 1e-12 * s.eigenvalues[-1]].max()) for s in (a, b))
    if pace <= 0:
        return 1000
    return int(min(max(DECAYED / pace, 10), 1e9))


def order_changes(
    a: Spectral, b: Spectral, names: tuple[str, str], horizon: int
) -> tuple[tuple[Change, ...], str, str]:
    """Every change of order on the grid, refined; and who is ahead at the first and at the last step."""

    def lag(t: Array) -> Array:
        """log L_a - log L_b: negative where the first unit is ahead."""
        return a.log_loss(t) - b.log_loss(t)

    grid = np.arange(min(horizon, EVERY) + 1, dtype=np.float64)
    if horizon > EVERY:
        grid = np.unique(np.concatenate([grid, np.geomspace(EVERY, horizon, FURTHER)]))
    lags = np.concatenate([lag(part) for part in np.array_split(grid, max(1, len(grid) // 200))])
    clear = np.abs(lags) > TIE
    if not clear.any():
        raise GatelabError("the two units have the same loss at every step; there is nothing to cross")
    grid, lags = grid[clear], lags[clear]
    ahead = [names[int(value > 0)] for value in lags]
    order = []
    for i in np.flatnonzero(np.sign(lags[1:]) != np.sign(lags[:-1])):
        root: Any = brentq(lambda t: float(lag(np.array([t]))[0]), grid[i], grid[i + 1], xtol=1e-9)
        order.append(Change(float(root), float(np.exp(a.log_loss(np.array([root]))[0])), ahead[i + 1]))
    return tuple(order), ahead[0], ahead[-1]


def unbounded(curves: list[Trajectory], names: tuple[str, str]) -> str | None:
    """Which of the two losses grow without bound, in a sentence; None where neither does."""
    wild = [
        f"lr {curve.lr:.3g} is above 2 / lambda_max = {curve.limit:.3g} of {name}"
        for curve, name in zip(curves, names, strict=True)
        if not curve.stable
    ]
    if not wild:
        return None
    whose = "its loss grows" if len(wild) == 1 else "both losses grow"
    return f"{' and '.join(wild)}: {whose} without bound, and no crossing is named; give less"


@dataclass(frozen=True)
class MeasuredCrossing(Compact):
    """The last crossing of two mean losses.

    `step` is None where they do not cross, and `changes` are all crossings. `low` and `high` are the ends of the
    percentile interval over draws of the seeds of both units, among those draws that cross; `share` is the share of
    these, and `seeds` is how many networks each unit has.
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
    """Where the mean loss of `b` passes that of `a`, between recorded steps by a straight line in log loss.

    Args:
        a: networks of the unit that is ahead at first, at one learning rate.
        b: those of the other, recorded at the same steps.
        level: of the interval.
        draws: how often the seeds of both are drawn with replacement.
        seed: of these draws.

    Returns:
        The last crossing with its interval.
    """
    if a.losses.ndim != 2 or b.losses.ndim != 2:
        raise GatelabError("a crossing is of one learning rate each; take training.at(lr)")
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
    """The steps at which the order of two curves changes.

    >>> changes(np.arange(3.0), np.array([1.0, 1.0, 1.0]), np.exp([1.0, 0.5, -0.5]))
    (1.5,)
    """
    gap = np.log(a) - np.log(b)
    clear = gap != 0
    steps, gap = steps[clear], gap[clear]
    places = np.flatnonzero(np.sign(gap[1:]) != np.sign(gap[:-1]))
    return tuple(float(steps[i] + (steps[i + 1] - steps[i]) * gap[i] / (gap[i] - gap[i + 1])) for i in places)
