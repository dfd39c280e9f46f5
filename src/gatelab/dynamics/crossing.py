"""Loss crossing: when does a unit that starts slower overtake?

Both losses are known in closed form at every real t, so that crossings are found as roots of log L_a - log L_b, which
keeps its digits however small the losses are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq

from gatelab.display import one_line
from gatelab.dynamics.conditions import Early, Late, early, late
from gatelab.dynamics.expected import Trajectory, expected_loss
from gatelab.dynamics.inputs import Array, Loss, kernel_matrix, loss_scale, pair, whole
from gatelab.dynamics.spectral import Spectral, eigen
from gatelab.errors import GatelabError

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
        from gatelab.plotting.dynamics import Curve, crossing_figure

        curves = [Curve(c.label, c.steps, c.loss) for c in self.curves]
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
