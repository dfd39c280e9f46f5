"""The two conditions of corollary 4.2, evaluated for given data: who falls faster at first, and who in the end.

Early, to first order in the step: L_0 - L_1 = eta [ y^T K y + tr(NNGP K) ], and with NNGP = K / m the second term is
tr(K^2) / m. Late, only the directions of the smallest eigenvalues are left, C (1 - eta lambda_min)^(2t) with
C = |u^T y|^2 + the variance of the initial outputs along u, and the second unit is ahead once

    t > ln(C_b / C_a) / ( 2 ln[ (1 - eta_a lambda_a) / (1 - eta_b lambda_b) ] )

Loss crossing: when does a unit that starts slower overtake?

Both losses are known in closed form at every real t, so that crossings are found as roots of log L_a - log L_b, which
keeps its digits however small the losses are.

The crossing of measured losses, with an interval over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq

from gatelab.arrays import Array
from gatelab.display import one_line
from gatelab.dynamics.expected import Trajectory, expected_loss
from gatelab.dynamics.runs import Training
from gatelab.dynamics.spectral import Loss, Spectral, eigen, kernel_matrix, loss_scale, pair, whole
from gatelab.errors import GatelabError, check_seed

Pair = tuple[float, float]


@dataclass(frozen=True)
class Early:
    """Of both units: the loss at the start, y^T K y, tr K^2, and by how much the first step lowers the loss.

    `holds` is the corollary's condition that the first unit falls faster: its y^T K y and its tr K^2 are larger.
    """

    start: Pair
    signal: Pair
    spread: Pair
    first_step: Pair

    def __repr__(self) -> str:
        return one_line(
            self, f"holds: {self.holds}, the first steps gain {self.first_step[0]:.3g} and {self.first_step[1]:.3g}"
        )

    @property
    def holds(self) -> bool:
        return self.signal[0] > self.signal[1] and self.spread[0] > self.spread[1]


@dataclass(frozen=True)
class Late:
    """Of both units: the smallest eigenvalue, the weight C of its direction, and its factor 1 - eta lambda a step.

    `holds` is the condition that the second unit falls faster in the end. `bound` is the step after which the paper's
    formula has it ahead, None where the condition fails. It compares two directions alone, and is no estimate of the
    crossing: others may have decided it long before.
    """

    lambda_min: Pair
    weight: Pair
    factor: Pair
    bound: float | None

    def __repr__(self) -> str:
        return one_line(
            self, f"holds: {self.holds}, smallest eigenvalues {self.lambda_min[0]:.3g} and {self.lambda_min[1]:.3g}"
        )

    @property
    def holds(self) -> bool:
        return self.factor[1] < self.factor[0]


def early(a: Spectral, b: Spectral) -> Early:
    with np.errstate(over="ignore"):  # one step far beyond what is stable may leave float64
        ends = [np.exp(s.log_loss(np.array([0.0, 1.0]))) for s in (a, b)]
    return Early(
        (float(ends[0][0]), float(ends[1][0])),
        (_signal(a), _signal(b)),
        (float(np.sum(a.eigenvalues**2)), float(np.sum(b.eigenvalues**2))),
        (float(ends[0][0] - ends[0][1]), float(ends[1][0] - ends[1][1])),
    )


def _signal(s: Spectral) -> float:
    return float(s.eigenvalues @ s.targets)


def late(a: Spectral, b: Spectral) -> Late:
    factors = (_factor(a), _factor(b))
    weights = (_weight(a), _weight(b))
    bound = None
    if factors[1] < factors[0] and min(weights) > 0:
        slower = math.inf if factors[1] == 0 else 2 * math.log(factors[0] / factors[1])
        bound = max(0.0, math.log(weights[1] / weights[0]) / slower)
    return Late((float(a.eigenvalues[0]), float(b.eigenvalues[0])), weights, factors, bound)


def _factor(s: Spectral) -> float:
    return abs(1 - s.lr * float(s.eigenvalues[0]))


def _weight(s: Spectral) -> float:
    weights: Array = s.targets + s.outputs
    return float(weights[0])


if TYPE_CHECKING:
    from matplotlib.figure import Figure

EVERY, FURTHER = 512, 1500  # all steps up to the first, then as many as the second, evenly in log t
TIE = 1e-9  # losses as near as this, relative, are equal: rounding decides no order
DECAYED = 40.0  # the horizon: where the slowest direction has fallen by exp(-2 * 40)


@dataclass(frozen=True)
class Change:
    """A step at which the order of the two losses changes, the loss there, and who is ahead after it."""

    step: float
    loss: float
    ahead: str


@dataclass(frozen=True, eq=False)
class Crossing:
    """When the order of two losses changes, and why.

    `step` is the first change, between whole steps, and `loss` the loss there; None where one unit stays ahead up to
    `horizon`. `changes` are all of them. `first` is ahead at the start, `last` at the end. `early` and `late` are the
    conditions of corollary 4.2. `verdict` says it in a sentence.

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

    def __repr__(self) -> str:
        where = "no crossing" if self.step is None else f"crossing at step {self.step:.1f}"
        return one_line(self, f"{' and '.join(self.labels)}: {where}, {self.last} ahead in the end")

    @property
    def verdict(self) -> str:
        a, b = self.labels
        if self.reason is not None:
            return self.reason
        if self.step is None:
            text = f"{self.last} is ahead at all {self.horizon} steps"
        else:
            turns = ", ".join(f"{c.ahead} from step {c.step:.1f}" for c in self.changes)
            text = f"{self.first} is ahead at first, {turns}"
        said = "is met" if self.early.holds else "is not met"
        done = "is met" if self.late.holds else "is not met"
        return f"{text}; the condition for {a} to fall faster early {said}, that for {b} to fall faster late {done}"

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

    `lr`, `nngp` and `start` are one for both, or pairs; for the latter two see `expected_loss`. `lr` is by default
    half of the largest step that is stable for both; with one that is not, no crossing is named. The search runs to
    `steps`, by default to where the slowest direction is gone, over every step up to 512 and then 1500 steps evenly
    spaced in log t.

    >>> import numpy as np
    >>> plain, gated = np.diag([9.0, 0.5, 0.5]), np.diag([4.0, 4.0, 4.0])
    >>> found = crossing(plain, gated, [2.0, 1.0, 1.0], width=100, lr=0.05)
    >>> round(found.step, 2), found.first, found.last, found.early.holds, found.late.holds
    (2.55, 'a', 'b', True, True)
    """
    matrices = kernel_matrix(K_a, "K_a"), kernel_matrix(K_b, "K_b")
    if len(matrices[0]) != len(matrices[1]):
        raise GatelabError(
            f"K_a is of {len(matrices[0])} samples and K_b of {len(matrices[1])}; give kernels of the same rows"
        )
    scale = loss_scale(loss, len(matrices[0]))
    lrs = pair(lr, "lr")
    if lr is None:
        top = max(float(eigen(m, name)[0][-1]) for m, name in zip(matrices, ("K_a", "K_b"), strict=True))
        lrs = (1 / top / scale,) * 2
    covariances, starts = _each(nngp, "nngp"), _each(start, "start")
    labels = _labels(K_a, K_b)
    made = [
        expected_loss(K, y, width, eta, 0, nngp=N, start=f, loss=loss)
        for K, eta, N, f in zip((K_a, K_b), lrs, covariances, starts, strict=True)
    ]
    a, b = (m.spectral for m in made)
    horizon = _horizon(a, b) if steps is None else whole(steps, "steps", 1)
    reason = _unbounded(made, labels)
    changes: tuple[Change, ...] = ()
    first = last = None
    if reason is None:
        changes, signs = _changes(a, b, horizon, labels)
        first, last = (labels[int(sign > 0)] for sign in signs)
    drawn = _drawn(horizon, changes)
    return Crossing(
        labels,
        changes[0].step if changes else None,
        changes[0].loss if changes else None,
        changes,
        first,
        last,
        horizon,
        (made[0].lr, made[1].lr),
        early(a, b),
        late(a, b),
        (made[0].at(drawn), made[1].at(drawn)),
        reason,
    )


def _unbounded(made: Sequence[Trajectory], labels: tuple[str, str]) -> str | None:
    """Which of the two losses grow without bound, and from which step on, in a sentence; None where neither does."""
    wild = [
        f"lr {t.lr:.3g} is above 2 / lambda_max = {t.limit:.3g} of {label}"
        for t, label in zip(made, labels, strict=True)
        if not t.stable
    ]
    if not wild:
        return None
    whose = "its loss grows" if len(wild) == 1 else "both losses grow"
    return f"{' and '.join(wild)}: {whose} without bound, and no crossing is named; give less"


def _each(value: Any, what: str) -> tuple[Any, Any]:
    if value is None:
        return None, None
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise GatelabError(f"{what} is of one unit; give a pair, one for each kernel")
    return value[0], value[1]


def _labels(K_a: Any, K_b: Any) -> tuple[str, str]:
    a, b = getattr(K_a, "label", "a"), getattr(K_b, "label", "b")
    return (a, b) if a != b else (f"{a} (first)", f"{b} (second)")


def _horizon(a: Spectral, b: Spectral) -> int:
    """Where the slower unit's slowest direction is gone; directions of eigenvalue 0 never go, and count for nothing."""
    slowest = []
    for s in (a, b):
        rates = s.log_rates[s.eigenvalues > 1e-12 * s.eigenvalues[-1]]
        slowest.append(float(-rates.max()))
    pace = min(slowest)
    return int(min(max(DECAYED / pace, 10), 1e9)) if pace > 0 else 1000


def _changes(a: Spectral, b: Spectral, horizon: int, labels: tuple[str, str]) -> tuple[tuple[Change, ...], Array]:
    """Every change of order on the grid, refined; and the signs of log L_a - log L_b at the first and last step."""
    grid = np.arange(min(horizon, EVERY) + 1, dtype=np.float64)
    if horizon > EVERY:
        grid = np.unique(np.concatenate([grid, np.geomspace(EVERY, horizon, FURTHER)]))

    def ahead(t: Array) -> Array:
        return a.log_loss(t) - b.log_loss(t)

    def root(low: float, high: float) -> float:
        found: Any = brentq(lambda t: float(ahead(np.array([t]))[0]), low, high, xtol=1e-9)
        return float(found)

    values = np.concatenate([ahead(part) for part in np.array_split(grid, max(1, len(grid) // 200))])
    told = np.abs(values) > TIE
    if not told.any():
        raise GatelabError("the two units have the same loss at every step; there is nothing to cross")
    grid, values = grid[told], values[told]
    found = []
    for i in np.flatnonzero(np.sign(values[1:]) != np.sign(values[:-1])):
        step = root(grid[i], grid[i + 1])
        at = float(np.exp(a.log_loss(np.array([step]))[0]))
        found.append(Change(step, at, labels[0] if values[i + 1] < 0 else labels[1]))
    return tuple(found), np.sign(values[[0, -1]])


def _drawn(horizon: int, changes: tuple[Change, ...]) -> Array:
    """The steps of the curves that are kept: well past the last change, or all."""
    end = min(horizon, int(np.ceil(4 * changes[-1].step)) + 10) if changes else min(horizon, 1000)
    # Every early step, since a first crossing may come long before the last.
    early = np.arange(min(end, 200) + 1, dtype=np.float64)
    return np.unique(np.concatenate([early, np.round(np.linspace(0, end, min(end, 500) + 1))]))


@dataclass(frozen=True)
class MeasuredCrossing:
    """The last crossing of two mean losses, None where they do not cross; `changes` are all of them.

    `low` and `high` are the percentile interval over draws of the seeds of both units, among those draws that cross,
    and `share` is the share of these.
    """

    step: float | None
    low: float
    high: float
    share: float
    changes: tuple[float, ...]
    seeds: tuple[int, int]

    def __repr__(self) -> str:
        return one_line(self, f"{self}, in {self.share:.0%} of the draws")

    def __str__(self) -> str:
        return "none" if self.step is None else f"{self.step:.3g} [{self.low:.3g}, {self.high:.3g}]"


def measured_crossing(
    a: Training, b: Training, *, level: float = 0.95, draws: int = 1000, seed: int = 0
) -> MeasuredCrossing:
    """Where the mean loss of `b` passes that of `a`, between recorded steps by a straight line in log loss."""
    if a.losses.ndim != 2 or b.losses.ndim != 2:
        raise GatelabError("a crossing is of one learning rate each; take training.at(lr)")
    if not np.array_equal(a.steps, b.steps):
        raise GatelabError("the two trainings recorded different steps; train both with the same `record`")
    if (a.diverged >= 0).any() or (b.diverged >= 0).any():
        raise GatelabError("some networks diverged, and their mean loss with them; train with a smaller lr")
    generator = np.random.default_rng(check_seed(seed))
    found = changes(a.steps, a.mean, b.mean)
    last = []
    for _ in range(draws):
        rows = [t.losses[generator.integers(0, len(t.losses), len(t.losses))].mean(axis=0) for t in (a, b)]
        some = changes(a.steps, rows[0], rows[1])
        if some:
            last.append(some[-1])
    low, high = np.quantile(last, [0.5 - level / 2, 0.5 + level / 2]) if last else (np.nan, np.nan)
    share = len(last) / draws if draws else np.nan
    return MeasuredCrossing(
        found[-1] if found else None, float(low), float(high), share, found, (len(a.seeds), len(b.seeds))
    )


def changes(steps: Array, a: Array, b: Array) -> tuple[float, ...]:
    """The steps at which the order of two curves changes.

    >>> changes(np.arange(3.0), np.array([1.0, 1.0, 1.0]), np.exp([1.0, 0.5, -0.5]))
    (1.5,)
    """
    gap = np.log(a) - np.log(b)
    told = gap != 0
    steps, gap = steps[told], gap[told]
    at = np.flatnonzero(np.sign(gap[1:]) != np.sign(gap[:-1]))
    return tuple(float(steps[i] + (steps[i + 1] - steps[i]) * gap[i] / (gap[i] - gap[i + 1])) for i in at)
