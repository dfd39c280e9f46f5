"""From splines to networks: which way each gate faces, and the parameters that follow.

A gate that faces right adds its jump polynomial J_j(x) = (x - t_j)^k p_j(x) to the right of its knot; one that faces
left takes J_j away on the left. With knots inside the interval a network is therefore a spline with

    y_0(x) + sum over left-facing j of J_j(x)  =  d + sum over open neurons of J_i(x),

y_0 being the polynomial of the first cell and an open neuron one whose knot lies left of the interval. The papers
keep the first knot on the left end, which for MLP and GLU meets this for every spline: n cells. With all n knots
inside, the equation is `degree` linear constraints on a spline of n + 1 cells; but there are 2^n ways to face, and
among them is nearly always one whose constraints the best spline satisfies almost by itself: a subset-sum problem in
`degree` dimensions. One more cell, for free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from gatelab.linalg import splines
from gatelab.linalg.splines import Array, Space
from gatelab.solve.free_knots import Spline
from gatelab.units import Network, Unit, factor_names


def always_open(unit: Unit) -> int:
    """How many neurons with knots left of the interval can supply any polynomial there (up to d).

    One for MLP and GLU; the powers (x - t_i)^k of relu^k need k knots t_i; a gated unit supplies two powers a knot.
    """
    assert unit.degree is not None
    return unit.degree if unit.factors == 0 else math.ceil(unit.degree / 2)


def open_knots(interval: tuple[float, float], count: int) -> Array:
    """The knots of open neurons: the first on the left end, the others to its left."""
    a, b = interval
    return a - 0.5 * (b - a) * np.arange(count)


def _open_taylor(unit: Unit, interval: tuple[float, float], count: int) -> Array:
    """Taylor coefficients 1..degree about the middle, in half intervals, of the powers that open neurons supply:
    (degree, powers)."""
    p = unit.degree
    assert p is not None
    a, b = interval
    middle, half = 0.5 * (a + b), 0.5 * (b - a)
    powers = [p] if unit.factors == 0 else [p - 1, p]
    distance = (middle - open_knots(interval, count)) / half
    return np.array(
        [[math.comb(e, r) * t ** (e - r) if r <= e else 0.0 for t in distance for e in powers] for r in range(1, p + 1)]
    ).reshape(p, len(powers) * count)


@dataclass(frozen=True)
class Facing:
    """Which inner gates face left, and how many further neurons are always open."""

    unit: Unit
    interval: tuple[float, float]
    left: Array
    open: int = 0

    @property
    def width(self) -> int:
        return len(self.left) + self.open

    @property
    def signs(self) -> Array:
        """s_c with y_0 + sum_left (y_j - y_(j-1)) = sum_c s_c y_c."""
        s = np.zeros(len(self.left) + 1)
        s[0] = 1.0
        s[1:] += self.left
        s[:-1] -= self.left
        return s

    def unmet(self) -> Array:
        """An orthonormal basis (degree, k) of the Taylor coefficients that open neurons cannot supply."""
        supplied = _open_taylor(self.unit, self.interval, self.open)
        u, values, _ = np.linalg.svd(supplied, full_matrices=True)
        return u[:, int(np.sum(values > 1e-9 * max(values, default=0.0))) :]

    def constrain(self, space: Space) -> Array:
        """The constraints, normalised rows (k, dim), for a spline space on the breaks."""
        rows = np.einsum("rk,rci->kci", self.unmet(), _taylor_rows(space.breaks, space.degree))
        out = space.gather(rows * self.signs[:, None])
        return out / np.linalg.norm(out, axis=1, keepdims=True)


def _taylor_rows(breaks: Array, degree: int) -> Array:
    """Taylor coefficients 1..degree of each cell's polynomial about the middle, in units of the half interval."""
    middle, half = 0.5 * (breaks[0] + breaks[-1]), 0.5 * (breaks[-1] - breaks[0])
    powers = np.cumprod([half / r for r in range(1, degree + 1)])
    return splines.derivatives_at(breaks, degree, middle) * powers[:, None, None]


def choose_facing(spline: Spline, unit: Unit, open: int, generator: np.random.Generator, count: int) -> list[Facing]:
    """Up to `count` ways for the gates to face, the one that costs the spline least first.

    From several starts, single gates and pairs are turned around while the estimated growth of the squared error,
    v^T (C H^-1 C^T)^-1 v, falls (v the violation, C the constraints, H the Gram matrix).
    """
    n = len(spline.knots)
    interval = (float(spline.breaks[0]), float(spline.breaks[-1]))
    right = Facing(unit, interval, np.zeros(n, bool), open)
    unmet = right.unmet()
    if not unmet.shape[1]:
        return [right]
    space = splines.space(spline.breaks, spline.degree, spline.multiplicity)
    rows = np.einsum("rk,rci->kci", unmet, _taylor_rows(spline.breaks, spline.degree))
    taylor = np.einsum("kci,ci->ck", rows, spline.z)
    jump = np.diff(taylor, axis=0)
    few = n > 100
    runs = np.unique(np.linspace(0, n, min(n + 1, 2 if few else 8)).astype(int))
    starts = [np.arange(n) < k for k in runs] + [generator.random(n) < 0.5 for _ in range(2 if few else 6)]
    found: dict[bytes, tuple[float, Facing]] = {}
    for left in starts:
        facing = Facing(unit, interval, left, open)
        metric = _cost_metric(spline, space, rows, facing)
        for _ in range(4):
            turned = _turn(facing.left, taylor[0], jump, metric)
            if np.array_equal(turned, facing.left):
                break
            facing = Facing(unit, interval, turned, open)
            metric = _cost_metric(spline, space, rows, facing)
        v = (taylor[0] + jump[facing.left].sum(0)) @ metric
        found[facing.left.tobytes()] = (float(v @ v), facing)
        if v @ v <= 1e-4 * spline.rmse**2 * len(spline.data.x):
            return [facing]
    return [facing for _, facing in sorted(found.values(), key=lambda pair: pair[0])[:count]]


def _cost_metric(spline: Spline, space: Space, rows: Array, facing: Facing) -> Array:
    """M with |v M|^2 the growth of the squared error when the violation v of these constraints is removed."""
    c = space.gather(rows * facing.signs[:, None])
    values, vectors = np.linalg.eigh(c @ splines.gram_solve(spline.data, space, c.T))
    return vectors / np.sqrt(np.maximum(values, 1e-14 * values[-1]))


def _turn(left: Array, first: Array, jump: Array, metric: Array) -> Array:
    left = left.copy()
    u = (first + jump[left].sum(0)) @ metric
    w = np.where(left, -1.0, 1.0)[:, None] * (jump @ metric)
    for _ in range(4 * len(left)):
        # |u + w_i + w_j|^2 - |u|^2 for all pairs from products, with single turns on the diagonal.
        alone = np.einsum("ik,ik->i", w, w) + 2 * w @ u
        pairs = alone[:, None] + alone[None, :] + 2 * w @ w.T
        np.fill_diagonal(pairs, alone)
        i, j = divmod(int(np.argmin(pairs)), len(left))
        if pairs[i, j] >= -1e-9 * (u @ u):
            return left
        for k in {i, j}:
            u, left[k] = u + w[k], not left[k]
            w[k] = -w[k]
    return left


@dataclass(frozen=True)
class Neurons:
    """A relu-power network in 1-D, in coordinates that do not overflow: neuron j is

        sign_j^k relu(sign_j (x - t_j))^k * prod_i (c_ij + b_ij (x - t_j)),

    k the gate's power and `lines` (n, max(q, 1), 2) holding (c, b); b stays 0 where q = 0. Every array may have a
    leading dimension: a batch of networks.
    """

    knots: Array
    sign: Array
    lines: Array
    offset: float | Array


def from_spline(spline: Spline, facing: Facing) -> Neurons:
    """The network that is this spline: factors but the last follow the gate, (x - t)^(q-1) (A + B (x - t))."""
    unit, p = facing.unit, facing.unit.degree
    assert p is not None
    powers = [p] if unit.factors == 0 else [p - 1, p]
    jump = np.stack([splines.jumps(spline.z, spline.breaks, e) / math.factorial(e) for e in powers], axis=1)
    sign = np.where(facing.left, -1.0, 1.0)
    polynomial = np.einsum("c,rci,ci->r", facing.signs, _taylor_rows(spline.breaks, spline.degree), spline.z)
    half = 0.5 * (facing.interval[1] - facing.interval[0])
    middle = 0.5 * (facing.interval[1] + facing.interval[0])
    supplied, *_ = np.linalg.lstsq(_open_taylor(unit, facing.interval, facing.open), polynomial, rcond=1e-12)
    supplied = supplied.reshape(facing.open, len(powers)) / half ** np.array(powers)
    knots = np.concatenate((open_knots(facing.interval, facing.open), spline.knots))
    weights = np.concatenate((supplied, sign[:, None] * jump))
    lines = np.zeros((len(knots), max(unit.factors, 1), 2))
    lines[:, :-1, 1] = 1.0
    lines[:, -1, : len(powers)] = weights
    at_middle = sum(
        (w * (middle - t) ** e).sum() for e, w, t in zip(powers, supplied.T, [knots[: facing.open]] * 2, strict=False)
    )
    offset = facing.signs @ splines.values_at(spline.breaks, spline.z, middle) - at_middle
    return Neurons(knots, np.concatenate((np.ones(facing.open), sign)), lines, float(offset))


def to_network(neurons: Neurons, unit: Unit) -> Network:
    """Exactly these neurons with the paper's parameters: |G| = 1, D = +-1 (or the weight itself where q = 0)."""
    k = unit.gate_power
    assert k is not None
    net = Network(unit, len(neurons.knots))
    t, sign = neurons.knots, neurons.sign

    def put(name: str, value: Array) -> None:
        p = getattr(net, name)
        p.copy_(torch.from_numpy(np.ascontiguousarray(value)).reshape(p.shape))

    with torch.no_grad():
        put("G", sign)
        put("g", -sign * t)
        outer = sign**k
        if unit.factors == 0:
            outer = outer * neurons.lines[:, 0, 0]
        for i, name in enumerate(factor_names(unit.factors)):
            put(name, neurons.lines[:, i, 1])
            put(name.lower(), neurons.lines[:, i, 0] - neurons.lines[:, i, 1] * t)
        put("D", outer)
        net.d.fill_(float(neurons.offset))
    return net
