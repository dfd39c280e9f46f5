"""The paper's solver: Newton's method on the whole batch, layer by layer, in float64 (section 4).

The Hessian of a product unit is cheap, since its output is d + sum_i D_i h(z_i1, z_i2, ...), z affine in x: with
residuals r and the Jacobian J of the output, H = 2/N [J^T J + blockdiag over neurons of sum_n r_n hess(D_i h_i)(x_n)].
The Hessian of any other module is that of its gradient by autograd, as in the paper's code.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, chain

import numpy as np
import torch
from scipy import linalg
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev

from gatelab.arrays import Array
from gatelab.data import Problem
from gatelab.errors import unknown_name, whole_number
from gatelab.feedforward import AnyUnit, Network, factor_names
from gatelab.feedforward import unit as as_unit
from gatelab.interrupts import apart
from gatelab.solve.solution import Solution, Status, UnitLike, mean_square, start, tensors

Names = tuple[str, ...]
# A loss, and its gradient (P,) and Hessian (P, P) in the chosen parameters.
Curvature = tuple[float, Tensor, Tensor]
Step = Callable[[Names], Status | None]  # None where the parameters moved, else why they did not
_EPS = float(np.finfo(np.float64).eps)
# Residuals of at most this many roundings of the targets count as zero.
_ROUNDINGS = 64
# Bounds of the length of a step, in Newton steps, and the share of the predicted decrease that it must reach.
_SHORTEST, _LONGEST, _ARMIJO = 2.0**-34, 2.0**10, 1e-4
_JACOBIAN_ENTRIES = 4_000_000  # at once: 32 MB
_STEPS_PER_LAYER = 3  # of the reference code, before it moves all parameters
# A step has converged if it promises less than this share of the loss.
_TOLERANCE = 1e-12
SCHEDULES = ("paper", "reference")


def memory(unit: AnyUnit, width: int, n: int, d_in: int, d_out: int) -> int:
    """6 Hessians (P, P); pieces of the Jacobian have bounded size."""
    return 8 * 6 * unit.parameter_count(width, d_in, d_out) ** 2


def solve(
    unit: UnitLike,
    problem: Problem,
    width: int,
    *,
    seed: int = 0,
    schedule: str = "paper",
    steps: int = 300,
    init: str | None = None,
) -> Solution:
    """Minimize the training MSE from one start.

    The schedule says which parameters move together, from the output layer to the gate (D, U, Q, ..., G): `paper`
    spends half of the steps on sweeps over single layers and the rest on D, then D and U, ..., finally all;
    `reference` is that of the paper's code, three steps on each layer alone, once, and the rest on all.
    """
    if schedule not in SCHEDULES:
        raise unknown_name("schedule", schedule, SCHEDULES)
    budget = whole_number("steps", steps, 1)
    net = start(as_unit(unit), problem, width, seed=seed, init=init)
    x, y = tensors(problem)
    curvature = partial(dense_curvature, net, x, y)
    if isinstance(net, Network) and is_elementwise(net, x):
        curvature = partial(structured_curvature, net, x, y)
    history: list[float] = []

    def step(names: Names) -> Status | None:
        outcome, loss = _step(net, x, y, names, curvature)
        if outcome is None:
            history.append(loss**0.5)
        return outcome

    layers = layers_of(net)
    if schedule == "paper":
        _layers(step, layers, budget // 2)
        status = _stages(step, [(names, None) for names in accumulate(layers)], budget - len(history))
    else:
        stages = [(names, _STEPS_PER_LAYER) for names in layers]
        status = _stages(step, [*stages, (tuple(chain(*layers)), budget)], budget)
    if mean_square(net, x, y) <= (_ROUNDINGS * _EPS) ** 2 * y.square().mean().item():
        status = Status.FLOOR
    return Solution(net, status, tuple(history))


def layers_of(net: nn.Module) -> tuple[Names, ...]:
    """The parameters by layer, output first; those of a user's class by submodule."""
    if isinstance(net, Network):
        return tuple((n, n.lower()) for n in ("D", *factor_names(net.unit.factors), "G"))
    owners: dict[str, list[str]] = {}
    for name in (n for n, p in net.named_parameters() if p.requires_grad):
        owners.setdefault(name.rpartition(".")[0], []).append(name)
    return tuple(tuple(names) for names in reversed(owners.values()))


def _layers(step: Step, layers: Sequence[Names], budget: int) -> None:
    """One step on each layer in turn, until the steps run out or no layer of a sweep moves."""
    moved = True
    while moved:
        moved = False
        for names in layers:
            if budget and step(names) is None:
                moved, budget = True, budget - 1


def _stages(step: Step, stages: Sequence[tuple[Names, int | None]], budget: int) -> Status:
    """Stages of parameters with their maximum number of steps; None is an equal share of the remaining steps."""
    outcome: Status | None = None
    for stage, (names, most) in enumerate(stages):
        share = budget // (len(stages) - stage) if most is None else min(most, budget)
        outcome = None
        while share > 0 and (outcome := step(names)) is None:
            share, budget = share - 1, budget - 1
    return outcome or Status.BUDGET


def _step(
    net: nn.Module, x: Tensor, y: Tensor, names: Names, curvature: Callable[[Names], Curvature]
) -> tuple[Status | None, float]:
    """Move the named parameters once, in place: (None, new loss), or the reason for no move and the old loss."""
    before, gradient, hessian = curvature(names)
    if not (gradient.isfinite().all() and hessian.isfinite().all()):
        return Status.STALLED, before
    move, promise = direction(gradient.numpy(), hessian.numpy())
    if promise <= _TOLERANCE * before:
        return Status.CONVERGED, before
    parameters = [net.get_parameter(n) for n in names]
    origin = [p.detach().clone() for p in parameters]
    moves = torch.from_numpy(move).split([p.numel() for p in parameters])

    def loss_at(t: float) -> float:
        with torch.no_grad():
            for p, o, m in zip(parameters, origin, moves, strict=True):
                p.copy_(o + t * m.view_as(p))
        return mean_square(net, x, y)

    t = _search(loss_at, before, float(gradient.numpy() @ move))
    return (Status.STALLED if t == 0.0 else None), loss_at(t)


def direction(gradient: Array, hessian: Array) -> tuple[Array, float]:
    """The Newton direction P s with (P H P) s = -P grad, P = diag |H_ii|^-1/2, and |P grad|^2.

    Rows of H that are zero do not move. Where s does not descend, it is steepest descent in the scaled parameters.
    """
    rows = np.abs(hessian).max(axis=1)
    live = rows > _EPS**2 * rows.max()
    diagonal = np.abs(np.diag(hessian))
    # A live row with a zero on the diagonal (a factor whose D_i is 0) is scaled by its largest entry.
    P = np.where(diagonal > _EPS * rows, diagonal, rows)[live] ** -0.5
    b = -P * gradient[live]
    move = np.zeros_like(gradient)
    if live.any():
        s = _solve(P[:, None] * hessian[np.ix_(live, live)] * P, b)
        move[live] = P * np.where(s @ b > 0, s, b)
    return move, float(b @ b)


def _solve(A: Array, b: Array) -> Array:
    """A^-1 b for a symmetric indefinite A, the least-norm solution if A is singular, as at every minimum."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", linalg.LinAlgWarning)
            return apart(linalg.solve, A, b, assume_a="sym")
    except (linalg.LinAlgError, linalg.LinAlgWarning):
        return np.asarray(apart(linalg.lstsq, A, b, cond=1e-13)[0])  # pyright: ignore[reportOptionalSubscript]


def _search(loss_at: Callable[[float], float], loss: float, slope: float) -> float:
    """Armijo backtracking from the full step, then further while the loss falls; 0 where no step helps."""
    t, best = 1.0, loss_at(1.0)
    while not (best < loss and best <= loss + _ARMIJO * t * slope):  # NaN compares false: rejected
        t /= 2
        if t < _SHORTEST:
            return 0.0
        best = loss_at(t)
    for factor in (0.5, 2.0):
        while _SHORTEST <= t * factor <= _LONGEST and (trial := loss_at(t * factor)) < best:
            t, best = t * factor, trial
    return t


def is_elementwise(net: Network, x: Tensor) -> bool:
    """Whether each neuron depends only on its own pre-activations, which a user's function may violate."""
    with torch.no_grad():
        z = net.affine(x[:4])
        neurons = zip(*(v.flatten() for v in z), strict=True)
        single = [net.unit.neuron(*(v.view(1, 1) for v in maps)) for maps in neurons]
        return torch.allclose(net.unit.neuron(*z).flatten(), torch.cat(single).flatten(), rtol=1e-9, atol=1e-12)


def dense_curvature(net: nn.Module, x: Tensor, y: Tensor, names: Sequence[str]) -> Curvature:
    """For any module, by differentiating the gradient: P backward passes."""
    values = {n: p.detach() for n, p in net.named_parameters()}
    sizes = [values[n].numel() for n in names]

    def loss(theta: Tensor) -> Tensor:
        moved = {n: v.view_as(values[n]) for n, v in zip(names, theta.split(sizes), strict=True)}
        return (functional_call(net, values | moved, (x,)) - y).square().mean()

    theta = torch.cat([values[n].flatten() for n in names])
    # A few rows at a time: the activations of all P passes at once would need too much memory.
    hessian = jacrev(grad(loss), chunk_size=8)(theta)
    return loss(theta).item(), grad(loss)(theta), hessian


def structured_curvature(net: Network, x: Tensor, y: Tensor, names: Sequence[str]) -> Curvature:
    """For product units, by the formula at the top. `names` has weights together with their biases."""
    D = net.D.detach()
    # The positions of each parameter's entries in the vector of all named parameters, in the parameter's shape.
    shapes = [net.get_parameter(n).shape for n in names]
    size, sizes = sum(s.numel() for s in shapes), [s.numel() for s in shapes]
    place = {n: i.view(s) for n, s, i in zip(names, shapes, torch.arange(size).split(sizes), strict=True)}
    # lines[k] is (width, d_in + 1): the positions of the weights and the bias of each neuron's k-th affine map.
    lines = {
        k: torch.cat([place[n], place[n.lower()][:, None]], 1)
        for k, n in enumerate(("G", *factor_names(net.unit.factors)))
        if n in place
    }
    loss, g, H = 0.0, torch.zeros(size, dtype=x.dtype), torch.zeros(size, size, dtype=x.dtype)
    rows = max(1, _JACOBIAN_ENTRIES // max(size, net.width))
    for x_part, y_part in zip(x.split(rows), y.split(rows), strict=True):
        with torch.no_grad():
            z = net.affine(x_part)
            h = net.unit.neuron(*z)
            r = h @ D.T + net.d - y_part
        x1 = torch.cat([x_part, torch.ones_like(x_part[:, :1])], 1)
        slopes, bends = _neuron_derivatives(net.unit.neuron, z, tuple(lines))
        loss += r.square().sum().item()
        for o in range(net.d_out):
            J = torch.zeros(len(x_part), size, dtype=x.dtype)
            for k, slope in slopes.items():
                J[:, lines[k].flatten()] = ((D[o] * slope)[:, :, None] * x1[:, None, :]).flatten(1)
            if "D" in place:
                J[:, place["D"][o]] = h
                J[:, place["d"][o]] = 1.0
                for k, slope in slopes.items():
                    mixed = (r[:, o, None] * slope).T @ x1
                    H[place["D"][o][:, None], lines[k]] += mixed
                    H[lines[k], place["D"][o][:, None]] += mixed
            g += J.T @ r[:, o]
            H += J.T @ J
        pull, x2 = r @ D, (x1[:, :, None] * x1[:, None, :]).flatten(1)
        for (k, m), bend in bends.items():
            block = ((pull * bend).T @ x2).view(net.width, x1.shape[1], x1.shape[1])
            H[lines[k][:, :, None], lines[m][:, None, :]] += block
    return loss / y.numel(), 2 / y.numel() * g, 2 / y.numel() * H


def _neuron_derivatives(
    neuron: Callable[..., Tensor], z: Sequence[Tensor], lines: tuple[int, ...]
) -> tuple[dict[int, Tensor], dict[tuple[int, int], Tensor]]:
    """dh/dz_k and d2h/dz_k dz_m: for an elementwise h these are the gradients of sums."""
    if not lines:
        return {}, {}
    slope = grad(lambda *v: neuron(*v).sum(), argnums=lines)
    slopes, bends = slope(*z), {}
    for i, k in enumerate(lines):
        row = grad(lambda *v, i=i: slope(*v)[i].sum(), argnums=lines)(*z)
        bends |= {(k, m): bend for m, bend in zip(lines, row, strict=True)}
    return dict(zip(lines, slopes, strict=True)), bends
