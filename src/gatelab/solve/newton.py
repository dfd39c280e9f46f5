"""The paper's solver: Newton's method on the whole batch, layer by layer, in float64 (section 4).

Four parts: what to minimise (the loss with its exact Hessian, in `curvature`), where to go (`direction`: Jacobi
preconditioning, elimination of singular rows, an indefinite solve), how far (`_search`) and which parameters
when (`Schedule`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, LinAlgWarning, lstsq, solve
from torch import Tensor, nn

from gatelab.errors import unknown_name, whole_number
from gatelab.linalg.interruptible import apart
from gatelab.solve.common import UnitLike, mean_square, start, tensors
from gatelab.solve.curvature import Curvature, dense_curvature, is_elementwise, structured_curvature
from gatelab.solve.solution import Solution, Status
from gatelab.units import Network, factor_names
from gatelab.units import unit as as_unit

if TYPE_CHECKING:
    from gatelab.problems import Problem

Array = NDArray[np.float64]
Names = tuple[str, ...]
_EPS = float(np.finfo(np.float64).eps)
_SHORTEST, _LONGEST = 2.0**-34, 2.0**10


class Schedule(StrEnum):
    """Which parameters move together, from the output layer to the gate: D, U, Q, ..., G.

    `layers` sweeps over them one layer at a time; `cascade` moves D, then D and U, ..., finally all; `paper`
    spends half of the steps on the one and the rest on the other.
    """

    LAYERS = "layers"
    CASCADE = "cascade"
    PAPER = "paper"


def newton(
    unit: UnitLike,
    problem: Problem,
    width: int,
    *,
    seed: int = 0,
    schedule: Schedule | str = Schedule.PAPER,
    steps: int = 300,
    init: str | None = None,
    tolerance: float = 1e-12,
    hessian: Literal["structured", "autodiff"] = "structured",
) -> Solution:
    """Minimise the training MSE L from one start, in at most `steps` steps; `history` has one RMSE for each.

    `hessian="autodiff"` differentiates the gradient, as the paper's code does; a product unit's structure gives the
    same matrix many times faster, so that is the default.

    Converged means |P grad L|^2 <= tolerance * L with the Jacobi preconditioner P: twice what Newton steps
    along the coordinates would still gain, as a share of the loss.

    >>> from gatelab.problems import Problem
    >>> wave = Problem.from_function(lambda x: np.sin(3 * x), n=200)
    >>> fit = newton("glu", wave, 4, steps=30)
    >>> fit.steps, fit.history[-1] < 0.01
    (30, True)
    """
    if schedule not in tuple(Schedule):
        raise unknown_name("schedule", str(schedule), [s.value for s in Schedule])
    budget = whole_number("steps", steps, 1)
    net = start(as_unit(unit), problem, width, seed=seed, init=init)
    x, y = tensors(problem)
    if hessian not in ("structured", "autodiff"):
        raise unknown_name("way to the Hessian", str(hessian), ("structured", "autodiff"))
    structured = hessian == "structured" and isinstance(net, Network) and is_elementwise(net, x)
    curvature = partial(structured_curvature if structured else dense_curvature, net, x, y)
    history: list[float] = []

    def step(names: Names) -> Status | None:
        outcome, loss = _step(net, x, y, names, curvature, tolerance)
        if outcome is None:
            history.append(loss**0.5)
        return outcome

    status, layers = Status.BUDGET, layers_of(net)
    if schedule != Schedule.CASCADE:
        status = _layers(step, layers, budget if schedule == Schedule.LAYERS else budget // 2)
    if schedule != Schedule.LAYERS:
        status = _cascade(step, layers, budget - len(history))
    at_rounding = mean_square(net, x, y) <= (64 * _EPS) ** 2 * y.square().mean().item()
    return Solution(net, Status.FLOOR if at_rounding else status, tuple(history))


def layers_of(net: nn.Module) -> tuple[Names, ...]:
    """The parameters by layer, output first; a user's class is cut by the submodules that own them.

    >>> layers_of(as_unit("gqu").network(2))
    (('D', 'd'), ('U', 'u'), ('Q', 'q'), ('G', 'g'))
    """
    if isinstance(net, Network):
        return tuple((n, n.lower()) for n in ("D", *factor_names(net.unit.factors), "G"))
    owners: dict[str, list[str]] = {}
    for name in (n for n, p in net.named_parameters() if p.requires_grad):
        owners.setdefault(name.rpartition(".")[0], []).append(name)
    return tuple(tuple(names) for names in reversed(owners.values()))


def _layers(step: Callable[[Names], Status | None], layers: Sequence[Names], budget: int) -> Status:
    """One step on each layer in turn, until the steps are spent or a whole sweep moves nothing."""
    while budget > 0:
        outcomes: list[Status | None] = []
        for names in layers:
            outcomes.append(step(names))
            budget -= int(outcomes[-1] is None)
            if budget == 0:
                return Status.BUDGET
        if None not in outcomes:
            return Status.CONVERGED if set(outcomes) == {Status.CONVERGED} else Status.STALLED
    return Status.BUDGET


def _cascade(step: Callable[[Names], Status | None], layers: Sequence[Names], budget: int) -> Status:
    """The output alone, with the next layer, ..., finally all; a stage leaves its unused steps to the next."""
    outcome: Status | None = None
    for stage in range(1, len(layers) + 1):
        names = tuple(chain(*layers[:stage]))
        share = budget // (len(layers) - stage + 1)
        outcome = None
        while share > 0 and outcome is None:
            outcome = step(names)
            moved = int(outcome is None)
            share, budget = share - moved, budget - moved
    return outcome or Status.BUDGET


def _step(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    names: Names,
    curvature: Callable[[Names], Curvature],
    tolerance: float,
) -> tuple[Status | None, float]:
    """Move the named parameters once, in place: (None, the new loss), or why they stayed and the old loss."""
    here = curvature(names)
    if not (here.gradient.isfinite().all() and here.hessian.isfinite().all()):
        return Status.STALLED, here.loss
    move, promise = direction(here.gradient.numpy(), here.hessian.numpy())
    if promise <= tolerance * here.loss:
        return Status.CONVERGED, here.loss
    parameters = [net.get_parameter(n) for n in names]
    origin = [p.detach().clone() for p in parameters]
    moves = torch.from_numpy(move).split([p.numel() for p in parameters])

    def loss_at(t: float) -> float:
        with torch.no_grad():
            for p, o, m in zip(parameters, origin, moves, strict=True):
                p.copy_(o + t * m.view_as(p))
        return mean_square(net, x, y)

    t = _search(loss_at, here.loss, float(here.gradient.numpy() @ move))
    loss = loss_at(t)
    return (Status.STALLED, loss) if t == 0.0 else (None, loss)


def direction(gradient: Array, hessian: Array) -> tuple[Array, float]:
    """The Newton direction P s with (P H P) s = -P grad, P = diag |H_ii|^-1/2, and |P grad|^2.

    Rows of H that are zero (dead neurons, typically) are left out and do not move. Where s does not descend,
    H being indefinite, the direction is steepest descent in the scaled parameters.

    >>> direction(np.array([2.0, 8.0, 0.0]), np.diag([2.0, 4.0, 0.0]))[0]
    array([-1., -2.,  0.])
    >>> direction(np.array([2.0, 8.0]), np.diag([2.0, -4.0]))[0]
    array([-1., -2.])
    """
    rows = np.abs(hessian).max(axis=1)
    live = rows > _EPS**2 * rows.max()
    diagonal = np.abs(np.diag(hessian))
    # A zero on the diagonal of a live row (a factor whose D_i is 0) cannot scale it; its largest entry can.
    P = np.where(diagonal > _EPS * rows, diagonal, rows)[live] ** -0.5
    b = -P * gradient[live]
    move = np.zeros_like(gradient)
    if live.any():
        s = _solve(P[:, None] * hessian[np.ix_(live, live)] * P, b)
        move[live] = P * (s if s @ b > 0 else b)
    return move, float(b @ b)


def _solve(A: Array, b: Array) -> Array:
    """A^-1 b for a symmetric indefinite A (LAPACK sysv), of least norm where LAPACK calls A singular.

    Scaling one factor of a neuron up and another down leaves the output as it is, so the Hessian of all
    parameters is singular at every minimum: least squares is the rule there, not the exception.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", LinAlgWarning)
            return apart(solve, A, b, assume_a="sym")
    except (LinAlgError, LinAlgWarning):
        s = apart(lstsq, A, b, cond=1e-13)
        return np.asarray(s[0])  # pyright: ignore[reportOptionalSubscript]


def _search(loss_at: Callable[[float], float], loss: float, slope: float) -> float:
    """Armijo backtracking from the full step, then further while the loss falls; 0 where no step helps.

    Not strong Wolfe: its condition on the slope is for quasi-Newton updates, which an exact Hessian does not
    need, and the slope jumps where a relu opens. A loss is cheap beside a Hessian, so looking on pays.
    """
    t, best = 1.0, loss_at(1.0)
    while not (best < loss and best <= loss + 1e-4 * t * slope):  # NaN compares false: rejected
        t /= 2
        if t < _SHORTEST:
            return 0.0
        best = loss_at(t)
    for factor in (0.5, 2.0):
        while _SHORTEST <= t * factor <= _LONGEST and (trial := loss_at(t * factor)) < best:
            t, best = t * factor, trial
    return t
