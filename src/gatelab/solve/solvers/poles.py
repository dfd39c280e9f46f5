"""The pole solver: networks of one input and one output with smooth gates, to the rounding of float64.

silu(Gx + g) has its first poles at -g/G ± iπ/|G|, so that a neuron can sit on a singularity of the target. Starts put
neurons on its nearest poles, by the AAA algorithm (Y. Nakatsukasa, O. Sète, L. N. Trefethen, 2018), and the others at
random; a race of Levenberg-Marquardt steps picks the best. Rows are those nearest to Gauss-Legendre nodes; where the
error at all rows is larger, or AAA needs many points (noise, kinks), variable projection on all rows is tried as well.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import AAA

from gatelab.arrays import AnyArray as Array
from gatelab.data import Problem
from gatelab.errors import GatelabError, check_seed
from gatelab.feedforward import AnyUnit, FunctionUnit, Network, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.definition import check_width
from gatelab.solve.constructions import embedded, start_network
from gatelab.solve.marquardt import Damping, descend
from gatelab.solve.solution import Solution, Status, UnitLike, check_steps, mean_square, tensors
from gatelab.solve.solvers import varpro

# Rows of a search; the next number is tried where the error at all rows is larger than at these by the factor.
_NODES, _RESOLVED = (96, 192, 384), 1.1
# Starts of the race, more for small networks, which are cheap and have many local optima.
_FEWEST, _MOST, _NEURONS, _REFINED = 28, 300, 800, 4
# The share of the starts in each heat and the number of steps, the first on half the nodes; the share of the loss that
# a step should gain.
_HEATS, _TOLERANCE = ((1.0, 12), (0.12, 25), (0.04, 100)), 1e-3
# Losses that differ by less than this share belong to the same optimum.
_SAME = 1e-3
# Random poles: their distance from the middle of the interval, and their height, in half lengths of it.
_ASIDE, _HEIGHTS = 1.3, (0.15, 4.0)
# Poles of the target that count; the relative accuracy at which they are looked for, and the points that AAA may need.
_NEAR, _AAA_TOLERANCE, _AAA_POINTS = 1.0, 1e-11, 40
# The nodes do not resolve poles lower than this over their number, which is about the largest distance of two nodes.
_SPACING = 3.0
# Relative sizes: of coefficients that rounding decides, and of a residual that is rounding, relative to the targets or
# to neurons that nearly cancel each other.
_RIDGE, _ROUNDING, _CANCELED = 1e-15, 1e-14, 1e-15
_DAMPING = Damping(first=1e-2, least=1e-16, most=1e10)


def memory(unit: AnyUnit, width: int, n: int, d_in: int, d_out: int) -> int:
    """Features and Jacobians of all starts at the nodes, and the neurons' values at all rows."""
    raced = min(width, _NODES[-1] // 6)  # wider networks are those of variable projection, which checks for itself
    return 8 * (8 * raced * starts_of(raced) * _NODES[-1] + 4 * n * width)


def starts_of(width: int) -> int:
    """The number of starts of a race."""
    return min(max(_NEURONS // width, _FEWEST), _MOST)


def applies(unit: AnyUnit, problem: Problem) -> bool:
    """Whether a unit has a smooth gate and at most one factor, and the problem one input and one output."""
    if not isinstance(unit, Unit) or isinstance(unit, FunctionUnit):
        return False
    smooth = unit.gate.degree is None and unit.gate.growth is not None and unit.gate.name != "identity"
    return smooth and unit.factors < 2 and problem.d_in == problem.d_out == 1


def solve(
    unit: UnitLike,
    problem: Problem,
    width: int,
    *,
    seed: int = 0,
    steps: int | None = None,
    start: object = None,
) -> Solution:
    """The best network of a race from poles of the target and random ones."""
    chosen, width, most = as_unit(unit), check_width(width), check_steps(steps)
    if not isinstance(chosen, Unit) or not applies(chosen, problem):
        raise GatelabError(
            f"the solver poles fits smooth gates with at most one factor to one input and one output, and was given "
            f"{chosen.name} and {problem.d_in} inputs; leave solver out, or give varpro"
        )
    rows = tensors(problem)
    random, first = np.random.default_rng(check_seed(seed)), None
    if start is not None:
        first = start_network(start, chosen, width, (1, 1))
    best: Solution | None = None
    for count in _NODES:
        coarse, nodes = (Nodes.of(problem.train.x[:, 0], problem.train.y[:, 0], k) for k in (count // 2, count))
        if 3 * width + 2 > len(coarse.t) or (poles := target_poles(nodes)) is None:
            continue
        # What fewer nodes have found is refined; few other starts are worth the time.
        starts, known = starts_of(width), first
        if best is not None:
            starts, known = _REFINED, best.network
        theta = drawn(random, starts, width, np.repeat(poles, 2 - chosen.factors))
        if isinstance(known, Network):
            theta[: -(-starts // 4)] = continued(known, nodes, theta[::4])
        solution = race(chosen, (coarse, nodes, nodes), theta, most)
        error = math.sqrt(mean_square(solution.network, *rows))
        at_nodes = (error, *solution.history)[-1]
        if best is None or error < best.history[-1]:
            best = Solution(solution.network, solution.status, (*solution.history[:-1], error))
        if error <= _RESOLVED * at_nodes or len(nodes.t) == problem.train.n:
            break
    else:
        more = varpro.solve(chosen, problem, width, seed=seed, steps=steps, start=start)
        if best is None or mean_square(more.network, *rows) < best.history[-1] ** 2:
            return more
    assert best is not None
    if first is not None and (loss := mean_square(first, *rows)) < best.history[-1] ** 2:
        return Solution(embedded(first, chosen, width), Status.STALLED, (math.sqrt(loss),))
    return best


class Nodes(NamedTuple):
    """Rows near Gauss-Legendre nodes: t in [-1, 1], square roots of weights, targets, and the interval."""

    t: Array
    weights: Array
    y: Array
    low: float
    high: float

    @classmethod
    def of(cls, x: Array, y: Array, count: int) -> Nodes:
        """At most `count` rows, each with the weight of the nodes that it is nearest to; all rows have equal ones."""
        order = np.argsort(x, kind="stable")
        low, high = float(x[order[0]]), float(x[order[-1]])
        if len(x) <= count:
            t = 2 * (x[order] - low) / (high - low) - 1
            return cls(t, np.full(len(x), len(x) ** -0.5), y[order], low, high)
        nodes, weights = np.polynomial.legendre.leggauss(count)
        sorted_x, places = x[order], low + (high - low) * (nodes + 1) / 2
        right = np.clip(np.searchsorted(sorted_x, places), 1, len(x) - 1)
        nearer_left = places - sorted_x[right - 1] < sorted_x[right] - places
        rows, where = np.unique(right - nearer_left, return_inverse=True)
        total = np.bincount(where, weights) / 2
        t = 2 * (sorted_x[rows] - low) / (high - low) - 1
        return cls(t, np.sqrt(total), y[order][rows], low, high)


def race(unit: Unit, nodes: tuple[Nodes, ...], theta: Array, most: int) -> Solution:
    """Heats of ever fewer starts and ever more steps, each with its nodes."""
    starts = len(theta)
    losses, history = np.arange(starts, dtype=float), [()] * starts
    batch, status = PoleBatch(unit, nodes[0], theta[:1]), (Status.BUDGET,) * starts
    for (share, steps), rows in zip(_HEATS, nodes, strict=True):
        best = distinct(losses, math.ceil(share * starts))
        batch, history = PoleBatch(unit, rows, theta[best]), [history[b] for b in best]
        descent = descend(
            batch,
            [min(steps, most - len(line)) for line in history],
            tolerance=_TOLERANCE,
            floor=(_ROUNDING * float(np.abs(rows.y).max())) ** 2,
            damping=_DAMPING,
        )
        theta, losses, status = batch.theta, batch.losses(), descent.status
        history = [before + after for before, after in zip(history, descent.losses, strict=True)]
    winner = int(np.argmin(losses))
    errors = tuple(math.sqrt(loss) for loss in history[winner])
    if math.sqrt(losses[winner]) < _CANCELED * batch.amplitude(winner):
        return Solution(batch.network(winner), Status.FLOOR, errors)
    return Solution(batch.network(winner), status[winner], errors)


def target_poles(nodes: Nodes) -> NDArray[np.complex128] | None:
    """Poles of the target in the upper half plane, in the coordinate t, the nearest first; None if it is not smooth."""
    if (np.diff(nodes.t) == 0).any():  # rows at the same place
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rational = AAA(nodes.t, nodes.y, rtol=_AAA_TOLERANCE, max_terms=_AAA_POINTS + 1)
        poles = rational.poles()
    unresolved = (np.abs(poles.imag) < _SPACING / len(nodes.t)) & (np.abs(poles.real) <= 1)
    if len(rational.support_points) > _AAA_POINTS or unresolved.any():
        return None
    distance = np.abs(poles.imag) + np.maximum(np.abs(poles.real) - 1, 0)
    inside = (poles.imag > 1e-6) & (distance < _NEAR)
    return poles[inside][np.argsort(distance[inside])]


def drawn(random: np.random.Generator, starts: int, width: int, poles: NDArray[np.complex128]) -> Array:
    """Gate weights G and biases g in t (starts, width, 2): half the starts have all of these poles, the others some."""
    real = random.uniform(-_ASIDE, _ASIDE, (starts, width))
    height = np.exp(random.uniform(np.log(_HEIGHTS[0]), np.log(_HEIGHTS[1]), (starts, width)))
    known = min(len(poles), width)
    counts = random.integers(0, known + 1, starts)
    counts[::2] = known
    for i, count in enumerate(counts):
        real[i, :count], height[i, :count] = poles[:count].real, poles[:count].imag
    G = np.pi / height * random.choice([-1, 1], (starts, width))
    return np.stack([G, -G * real], axis=-1)


def continued(first: Network, nodes: Nodes, theta: Array) -> Array:
    """These starts with the neurons of a network as their first."""
    half, middle = (nodes.high - nodes.low) / 2, (nodes.high + nodes.low) / 2
    G, g = (value.detach().numpy().ravel() for value in (first.G, first.g))
    starts = theta.copy()
    starts[:, : first.width] = np.stack([G * half, g + G * middle], axis=-1)
    return starts


def distinct(losses: Array, count: int) -> list[int]:
    """The members of least loss, one for each value of the loss."""
    chosen: list[int] = []
    for b in np.argsort(losses, kind="stable").tolist():
        if not chosen or losses[b] > (1 + _SAME) * losses[chosen[-1]]:
            chosen.append(b)
        if len(chosen) == count:
            break
    return chosen


class PoleBatch:
    """Networks with their gates (B, n, 2), the output weights at their best, and steps by QR of the damped system."""

    def __init__(self, unit: Unit, nodes: Nodes, theta: Array) -> None:
        self.unit, self.nodes, self.theta = unit, nodes, theta.copy()
        self.powers = np.stack([nodes.t**k for k in range(unit.factors + 1)])
        self.here = self.project(self.theta)
        p = 2 * theta.shape[1]
        self.jacobian = np.zeros((len(theta), len(nodes.t), p))
        self.scale = np.zeros((len(theta), p))
        self.there: tuple[Array, Projected] = self.theta, self.here

    def losses(self) -> Array:
        return self.here.loss.copy()

    def project(self, theta: Array) -> Projected:
        """The best output weights for these gates, with a ridge at the level of rounding."""
        gate = self.unit.gate(self.arguments(theta)).numpy()
        columns = [gate * power[:, None] for power in self.powers] + [np.ones_like(gate[..., :1])]
        F = np.concatenate(columns, axis=-1) * self.nodes.weights[:, None]
        size = np.maximum(np.linalg.norm(F, axis=1, keepdims=True), 1e-150)
        target = self.nodes.y * self.nodes.weights
        N, m = len(target), F.shape[-1]
        ridge = np.broadcast_to(_RIDGE * N * np.eye(m), (len(F), m, m))
        Q, R = np.linalg.qr(np.concatenate([F / size, ridge], axis=1))
        Q = Q[:, :N]
        c = np.linalg.solve(R, (Q.mT @ target)[..., None])[..., 0] / size[:, 0]
        residual = target - (F @ c[..., None])[..., 0]
        loss = np.square(residual).sum(axis=1)
        return Projected(Q, c, residual, np.where(np.isfinite(loss), loss, np.inf))

    def arguments(self, theta: Array) -> torch.Tensor:
        """Gt + g of all gates at the nodes."""
        return torch.from_numpy(self.nodes.t[:, None] * theta[:, None, :, 0] + theta[:, None, :, 1])

    def linearize(self, members: Array) -> None:
        Q, c, n = self.here.Q[members], self.here.coefficients[members], self.theta.shape[1]
        slope = self.unit.gate.slope(self.arguments(self.theta[members])).numpy()
        amplitude = sum(c[:, None, k * n : (k + 1) * n] * power[:, None] for k, power in enumerate(self.powers))
        change = slope * amplitude * self.nodes.weights[:, None]
        J = np.concatenate([change * self.nodes.t[:, None], change], axis=-1)
        self.jacobian[members] = J - Q @ (Q.mT @ J)  # Kaufman's approximation
        self.scale[members] = np.maximum(self.scale[members], np.linalg.norm(self.jacobian[members], axis=1))

    def trial(self, members: Array, damping: Array) -> tuple[Array, Array]:
        J, scale, residual = self.jacobian[members], self.scale[members], self.here.residual[members]
        scale = np.maximum(scale, 1e-10 * scale.max(axis=1, keepdims=True) + 1e-300)
        p = J.shape[-1]
        J = J / scale[:, None]
        damped = np.zeros((len(J), J.shape[1] + p, p + 1))
        damped[:, : J.shape[1], :p], damped[:, : J.shape[1], p] = J, residual
        damped[:, J.shape[1] :, :p] = np.sqrt(damping)[:, None, None] * np.eye(p)
        R = np.asarray(np.linalg.qr(damped, mode="r"))
        step = np.linalg.solve(R[:, :p, :p], R[:, :p, p:])[..., 0]
        promised = np.square((J @ step[..., None])[..., 0]).sum(axis=1) + 2 * damping * np.square(step).sum(axis=1)
        step = step / scale
        theta = self.theta[members] + np.stack([step[:, : p // 2], step[:, p // 2 :]], axis=-1)
        self.there = theta, self.project(theta)
        return self.there[1].loss, promised

    def accept(self, members: Array, rows: Array) -> None:
        self.theta[members] = self.there[0][rows]
        for mine, new in zip(self.here, self.there[1], strict=True):
            mine[members] = new[rows]

    def amplitude(self, member: int) -> float:
        """The sum of the neurons' largest values, of which the network is what their cancellation leaves."""
        gate = np.abs(self.unit.gate(self.arguments(self.theta[[member]])[0]).numpy()).max(axis=0)
        n, c = len(gate), np.abs(self.here.coefficients[member])
        return float(c[-1] + sum(c[k * n : (k + 1) * n] @ gate for k in range(len(self.powers))))

    def network(self, member: int) -> Network:
        """A member in the coordinate of the problem, its neurons with factors of length 1."""
        half, middle = (self.nodes.high - self.nodes.low) / 2, (self.nodes.high + self.nodes.low) / 2
        (G, g), c = self.theta[member].T, self.here.coefficients[member]
        n = len(G)
        values: dict[str, Any] = {"G": G / half, "g": g - G * middle / half, "D": c[:n]}
        if self.unit.factors:
            u, U = c[:n] - c[n : 2 * n] * middle / half, c[n : 2 * n] / half
            D = np.maximum(np.hypot(U, u), np.finfo(float).tiny)
            values |= {"U": U / D, "u": u / D, "D": D}
        return Network(self.unit, n).fill(**values, d=c[-1:])


class Projected(NamedTuple):
    """Features as Q, output weights, residuals and losses of a batch of networks."""

    Q: Array
    coefficients: Array
    residual: Array
    loss: Array
