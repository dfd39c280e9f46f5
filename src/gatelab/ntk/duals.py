"""The dual of a gate: expectations of products of the gate at two samples.

For a Gaussian pair (u, v) with standard deviations s and t and correlation rho, c = rho s t:

    A = E[act(u) act(v)]        C = c E[act'(u) act'(v)]

`dual(gate, s)` returns both tile by tile, s the standard deviations of the rows. Powers of relu (arc-cosine kernels,
Cho and Saul 2009), identity, erf and gelu have closed forms; other gates are Hermite series (Mehler's formula): with
a_k(s) = E[act(s z) he_k(z)], he_k of unit norm,

    E[act(u) act(v)] = sum_k a_k(s) a_k(t) rho^k          E[act(u)^2] = sum_k a_k(s)^2

The terms beyond K are at most the geometric mean of the two rows' tails. Analytic gates need few terms; with a kink a_k
decreases slowly, so that convergence relies on |rho| < 1, and parallel rows are integrated without the series.
Gauss-Legendre panels are cut at jumps of a user's gate or of its slope, which are located first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.feedforward import Activation, activation
from gatelab.linalg.quadrature import hermite_functions, on_intervals

TOLERANCE = 1e-12  # of the omitted terms
MOST_TERMS = 1024
LEVELS = 6  # 256 nodes to 8192
REACH = 12  # end of the nodes of the first level; each level reaches 1 further
NODES = 16  # Gauss-Legendre nodes per panel
NEGLIGIBLE = 1e-18  # terms of this relative size are omitted
SAMPLE = 64  # rows on which two resolutions are compared
CHUNK = 1 << 22  # values of the gate per batch
CELLS = 1 << 13  # cells of the search for jumps
HALVINGS = 40
JUMP = 1e-9  # relative to the largest value; smooth functions change far less over a cell after 40 halvings

Function = Callable[[Tensor], Tensor]


def find_breaks(function: Function, reach: float, device: torch.device) -> Tensor:
    """The points of (-reach, reach) other than 0 where the function jumps, at most one in each of 8192 cells.

    >>> find_breaks(lambda y: (y > 0.3).double() - (y < -2).double(), 5.0, torch.device("cpu"))
    tensor([-2.0000,  0.3000], dtype=torch.float64)
    """
    # Off-center cells, so that a jump at a round number is inside a cell.
    edges = torch.linspace(-reach, reach * (1 + 1e-4), CELLS + 1, dtype=torch.float64, device=device)
    left, right = edges[:-1].clone(), edges[1:].clone()
    low, high = function(left), function(right)
    scale = torch.maximum(low.abs().max(), high.abs().max())
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        value = function(middle)
        first = (value - low).abs() >= (high - value).abs()
        left, low = torch.where(first, left, middle), torch.where(first, low, value)
        right, high = torch.where(first, middle, right), torch.where(first, value, high)
    jumps = right[(high - low).abs() > JUMP * scale]
    return jumps[jumps.abs() > 1e-9 * reach]


def finite_values(function: Function) -> Function:
    """A user's function with checks of its values."""

    def values_at(points: Tensor) -> Tensor:
        values = function(points).detach()
        if values.shape != points.shape:
            raise GatelabError(f"the gate gave shape {tuple(values.shape)}; it must act on each element")
        bad = ~torch.isfinite(values)
        if bad.any():
            raise GatelabError(f"the gate or its slope is {values[bad][0]} at {points[bad][0]:.4g}; give a finite one")
        return values.to(points.dtype)

    return values_at


def nodes_on(start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights (without the density) of panels from start to end."""
    rule = (torch.from_numpy(v).to(start.device) for v in np.polynomial.legendre.leggauss(NODES))
    nodes, lengths = on_intervals(start, end, *rule)
    return nodes.flatten(-2), lengths.flatten(-2)


def panel_edges(level: int, device: torch.device) -> Tensor:
    """Edges of panels that meet at z = 0, where most kinks are; each level has twice as many and a wider range."""
    reach = REACH + level
    return torch.linspace(-reach, reach, 16 * 2**level + 1, dtype=torch.float64, device=device)


def cut_panels(edges: Tensor, breaks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For breaks (rows, breaks), ascending: a mask of the panels without any, and the ends of pieces of the others."""
    panel = torch.bucketize(breaks, edges).clamp_(1, len(edges) - 1)
    low, high = edges[panel - 1], edges[panel]
    cuts = torch.minimum(torch.maximum(breaks, low), high)
    whole = torch.ones(len(cuts), len(edges) - 1, dtype=torch.bool, device=edges.device)
    whole.scatter_(1, panel - 1, False)
    start, end = low.clone(), high.clone()
    together = panel[:, 1:] == panel[:, :-1]
    start[:, 1:] = torch.where(together, cuts[:, :-1], start[:, 1:])
    end[:, :-1] = torch.where(together, cuts[:, :-1], end[:, :-1])
    return whole, torch.cat([start, cuts], 1), torch.cat([cuts, end], 1)


def density(z: Tensor) -> Tensor:
    return torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def hermite(z: Tensor, terms: int) -> Iterator[Tensor]:
    """he_k(z) density(z) for k = 0, 1, ..., by the recurrence of he_k exp(-z^2/4), which is bounded."""
    root = torch.exp(-z * z / 4)
    scaled = root / math.sqrt(2 * math.pi)
    for function in hermite_functions(z, root, terms):
        yield function * scaled


@dataclass(frozen=True)
class Expansion:
    """The coefficients a_k of every row (terms, rows), the rows' squared norms, and estimates of the errors.

    `envelope` is the largest a_k^2 / E[f^2] of any row, `tail` bounds the omitted terms at |rho| = 1, and `delta` is
    the relative change of the coefficients between two resolutions.
    """

    function: Function
    breaks: Tensor
    edges: Tensor
    s: Tensor
    a: Tensor
    norm: Tensor
    envelope: np.ndarray
    tail: float
    delta: float

    def tail_from(self, top: float) -> np.ndarray:
        """A bound on the terms from k on, for every k up to the number of terms."""
        powers = top ** np.arange(len(self.envelope) + 1, dtype=np.float64)
        sizes = np.append(self.envelope, self.tail) * powers
        return np.cumsum(sizes[::-1])[::-1]

    def terms(self, top: float) -> int:
        """The number of terms that leaves TOLERANCE, or a tenth of the coefficients' error, to the others."""
        enough = np.flatnonzero(self.tail_from(top) <= max(TOLERANCE, self.delta / 10))
        if not len(enough):
            return len(self.envelope)
        return max(1, int(enough[0]))

    def error(self, top: float) -> float:
        """The error by omitted terms and by the coefficients up to |rho| = `top`."""
        return float(self.tail_from(top)[min(self.terms(top), len(self.envelope))]) + 2 * self.delta

    def tile(self, rho: Tensor, top: float, rows: slice, cols: slice) -> Tensor:
        """sum_k a_k(s) a_k(t) rho^k for every pair of rows; parallel rows are integrated directly."""
        total = self.sum(rho, top, rows, cols)
        for sign in (1, -1):
            i, j = torch.nonzero(rho == sign, as_tuple=True)
            if len(i):
                total[i, j] = self.parallel(self.s[rows][i], self.s[cols][j], sign)
        return total

    def sum(self, rho: Tensor, top: float, rows: slice, cols: slice) -> Tensor:
        """The series by Horner's rule, in place; missing powers are skipped in pairs."""
        powers, square = np.flatnonzero(self.envelope[: self.terms(top)] > NEGLIGIBLE), rho * rho
        total = torch.zeros_like(rho)
        for k, below in zip(powers[::-1].tolist(), [*powers[-2::-1].tolist(), 0], strict=False):
            total.addr_(self.a[k, rows], self.a[k, cols])
            for _ in range((k - below) // 2):
                total.mul_(square)
            if (k - below) % 2:
                total.mul_(rho)
        return total

    def parallel(self, s: Tensor, t: Tensor, sign: int) -> Tensor:
        """E[f(s z) f(+-t z)] of every pair s[i], t[i] of parallel or antiparallel rows."""
        value = s.new_empty(len(s))
        for part in chunks(len(s), len(self.edges) * NODES):
            u, v = s[part, None], sign * t[part, None]
            edges = torch.cat([self.edges.expand(len(u), -1), self.breaks / u, self.breaks / v], 1)
            edges = edges.nan_to_num(0.0).clamp(self.edges[0], self.edges[-1]).sort(1).values
            z, lengths = nodes_on(edges[:, :-1], edges[:, 1:])
            value[part] = (self.function(u * z) * self.function(v * z) * (lengths * density(z))).sum(1)
        return value


@dataclass(frozen=True)
class HermiteSeries:
    """A gate's dual by series; C needs `slopes`."""

    s: Tensor
    values: Expansion
    slopes: Expansion | None

    def tile(self, rho: Tensor, top: float, rows: slice, cols: slice) -> tuple[Tensor, Tensor | None]:
        """A and C of every pair: `rho` is exactly 1 or -1 for parallel rows, and `top` is the largest other |rho|."""
        A = self.values.tile(rho, top, rows, cols)
        if self.slopes is None:
            return A, None
        return A, self.slopes.tile(rho, top, rows, cols).mul_(rho).mul_(self.s[rows, None] * self.s[cols])

    def diagonal(self) -> tuple[Tensor, Tensor | None]:
        """A and C of every row with itself."""
        if self.slopes is None:
            return self.values.norm, None
        return self.values.norm, self.slopes.norm * self.s * self.s

    def error(self, top: float) -> float:
        """The largest error up to |rho| = `top`, relative to the geometric mean of the two diagonal entries."""
        return max(e.error(top) for e in (self.values, self.slopes) if e is not None)


def series(gate: Activation, s: Tensor, *, slopes: bool) -> HermiteSeries:
    """The Hermite series of `gate` for rows of standard deviation `s`, refined until it converges."""
    reach = (REACH + LEVELS) * float(s.max())
    with torch.enable_grad():
        point = torch.ones(1, dtype=torch.float64, requires_grad=True)
        smooth = gate.derivative is not None or gate(point).requires_grad
    if slopes and not smooth:
        raise GatelabError(f"the gate {gate.name!r} has no derivative; give one to Activation, or kind='nngp'")
    functions = [finite_values(f) for f in (gate.function, gate.slope)[: 1 + smooth]]
    breaks = s.new_empty(0)
    if reach > 0:
        breaks = torch.cat([find_breaks(f, reach, s.device) for f in functions]).sort().values
    if len(breaks) > 1:
        # The gate and its slope may jump at the same point, which each search finds to about 1e-12.
        breaks = breaks[torch.cat([breaks.new_ones(1), breaks.diff()]) > 1e-11 * reach]
    return HermiteSeries(s, expand(functions[0], breaks, s), expand(functions[1], breaks, s) if slopes else None)


def chunks(rows: int, each: int) -> Iterator[slice]:
    """Slices of rows with `each` values per row, CHUNK values at most."""
    step = max(1, CHUNK // each)
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))


def expand(function: Function, breaks: Tensor, s: Tensor) -> Expansion:
    """Double the nodes until coefficients converge, and the terms until the tail is small, on quantiles of s."""
    spread = torch.sort(s).values[torch.linspace(0, len(s) - 1, min(len(s), SAMPLE), device=s.device).round().long()]
    level, terms = 1, 32
    coarse = coefficients(function, breaks, spread, panel_edges(0, s.device), terms)
    while True:
        edges = panel_edges(level, s.device)
        a, norm = coefficients(function, breaks, spread, edges, terms)
        delta = float(relative((a - coarse[0]).square_().sum(0), norm).max().sqrt())
        delta = max(delta, float(relative((norm - coarse[1]).abs(), norm).max()))
        if delta > TOLERANCE / 10 and level + 1 < LEVELS:
            level, coarse = level + 1, (a, norm)
        elif tail(a, norm) > TOLERANCE and terms < MOST_TERMS:
            terms *= 2
            coarse = coefficients(function, breaks, spread, panel_edges(level - 1, s.device), terms)
        else:
            break
    a, norm = coefficients(function, breaks, s, edges, terms)
    envelope = relative(a * a, norm).amax(1).cpu().numpy()
    return Expansion(function, breaks, edges, s, a, norm, envelope=envelope, tail=tail(a, norm), delta=delta)


def coefficients(function: Function, breaks: Tensor, s: Tensor, edges: Tensor, terms: int) -> tuple[Tensor, Tensor]:
    """a_k, (terms, rows), and E[f^2] of every row, computed in batches of rows."""
    z, length = nodes_on(edges[:-1], edges[1:])
    basis = torch.stack([h * length for h in hermite(z, terms)], 1)
    weight = length * density(z)
    a, norm = s.new_empty(terms, len(s)), s.new_empty(len(s))
    for part in chunks(len(s), len(z)):
        values = function(s[part, None] * z)
        whole, start, end = cut_panels(edges, breaks / s[part, None])
        if len(breaks):
            values = values * whole.repeat_interleave(NODES, 1)
        a[:, part] = (values @ basis).T
        norm[part] = (values * values) @ weight
        if len(breaks):
            points, lengths = nodes_on(start, end)
            values = function(s[part, None] * points)
            weighted = values * lengths
            for k, h in enumerate(hermite(points, terms)):
                a[k, part] += (weighted * h).sum(1)
            norm[part] += (values * weighted * density(points)).sum(1)
    return a, norm


def relative(size: Tensor, norm: Tensor) -> Tensor:
    """size / norm, 0 for rows on which the function vanishes."""
    return torch.where(norm > 0, size / norm, torch.zeros_like(size))


def tail(a: Tensor, norm: Tensor) -> float:
    """The largest share of a row's norm that its coefficients omit."""
    return float(relative(norm - a.square().sum(0), norm).max().clamp(min=0.0))


# rho (a tile), s (a column), t (a row) -> A and C; rho is not changed.
Formula = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class ClosedForm:
    """A dual by formula: exact to rounding."""

    formula: Formula
    s: Tensor

    def tile(self, rho: Tensor, top: float, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        return self.formula(rho, self.s[rows, None], self.s[None, cols])

    def diagonal(self) -> tuple[Tensor, Tensor]:
        return self.formula(torch.ones_like(self.s), self.s, self.s)

    def error(self, top: float) -> float:
        return 0.0


Dual = ClosedForm | HermiteSeries


def dual(gate: str | Activation, s: Tensor, *, slopes: bool = True) -> Dual:
    """The dual of `gate` for rows of standard deviation `s`; without `slopes` a series omits C.

    >>> A, C = dual("relu", torch.tensor([1.0, 2.0], dtype=torch.float64)).diagonal()
    >>> A, C
    (tensor([0.5000, 2.0000], dtype=torch.float64), tensor([0.5000, 2.0000], dtype=torch.float64))
    """
    gate = activation(gate)
    for function, formula in _CLOSED:
        # By the function, not the name, which a user may choose freely.
        if gate.function is function:
            return ClosedForm(formula, s)
    return series(gate, s, slopes=slopes)


def _sine_squared(rho: Tensor) -> Tensor:
    """1 - rho^2 without cancellation near rho = +-1, where 1 - rho and 1 + rho are exact."""
    return torch.rsub(rho, 1).mul_(rho + 1)


def powers_of_relu(power: int) -> Formula:
    """E[relu(u)^k relu(v)^k] = (s t)^k J_k / (2 pi), and c k^2 E[relu(u)^(k-1) relu(v)^(k-1)].

    J_k(theta) = (-1)^k sin^(2k+1) (1/sin d/dtheta)^k [(pi - theta)/sin], written with psi = pi - theta = acos(-rho):

        J_0 = psi      J_1 = sin + psi cos      J_2 = 3 sin cos + psi (1 + 2 cos^2)
        J_3 = sin (4 + 11 cos^2) + psi cos (9 + 6 cos^2)
    """

    def formula(rho: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        psi = torch.neg(rho).acos_()
        sin = _sine_squared(rho).sqrt_()
        scale = s**power * (t**power / (2 * math.pi))
        if power == 1:
            C = psi.mul_(rho)
            return sin.add_(C).mul_(scale), C.mul_(scale)
        square = rho * rho
        if power == 2:
            C = (sin + psi * rho).mul_(rho).mul_(4)
            A = sin.mul_(rho).mul_(3).add_(psi.mul_(square.mul_(2).add_(1)))
        else:
            lower = (sin * rho).mul_(3).add_(psi * (2 * square).add_(1))
            C = lower.mul_(rho).mul_(9)
            A = sin.mul_((11 * square).add_(4)).add_(psi.mul_(rho).mul_(square.mul_(6).add_(9)))
        return A.mul_(scale), C.mul_(scale)

    return formula


def identity(rho: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    c = rho * (s * t)
    return c, c.clone()


def _gelu(rho: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """gelu(u) = u Phi(u), by Gaussian integration by parts. With a = 1 + s^2, b = 1 + t^2, D = ab - c^2:

    P = E[Phi(u) Phi(v)] = 1/4 + atan(c / sqrt D) / (2 pi)          e = E[phi(u) phi(v)] = 1 / (2 pi sqrt D)
    E[gelu gelu]   = c P + e (s^2 t^2 + c^2 (1/a + 1/b - 1))
    E[gelu' gelu'] = P + c e (1/a + 1/b + 1/D)
    """
    st = s * t
    c = rho * st
    D = _sine_squared(rho).mul_(st).mul_(st).add_(s * s + (t * t + 1))
    root = D.sqrt()
    P = (c / root).atan_().div_(2 * math.pi).add_(0.25)
    both = 1 / (1 + s * s) + 1 / (1 + t * t)
    e = root.mul_(2 * math.pi).reciprocal_()
    slopes = D.reciprocal_().add_(both).mul_(e).mul_(c).add_(P)
    A = both.sub_(1).mul_(c).mul_(c).addcmul_(st, st).mul_(e)
    return A.addcmul_(c, P), c.mul_(slopes)


def _erf(rho: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """E[erf erf] = 2/pi atan(2c / sqrt D), E[erf' erf'] = 4/pi / sqrt D, D = (1 + 2 s^2)(1 + 2 t^2) - 4 c^2."""
    st = s * t
    root = _sine_squared(rho).mul_(st).mul_(st).mul_(4).add_(2 * s * s + (2 * t * t + 1)).sqrt_()
    ratio = (rho * st).mul_(2).div_(root)
    return ratio.atan().mul_(2 / math.pi), ratio.mul_(2 / math.pi)


_CLOSED: tuple[tuple[Callable[[Tensor], Tensor], Formula], ...] = (
    *((activation(name).function, powers_of_relu(k)) for k, name in enumerate(("relu", "relu2", "relu3"), 1)),
    (activation("identity").function, identity),
    (activation("gelu").function, _gelu),
    (torch.erf, _erf),
)
