"""The best maps of m features: the singular functions of act(w.x), degree by degree.

A feature is a radial function times a harmonic: sqrt(sigma) u(|w|) Y(w/|w|) for w, sqrt(sigma) v(|x|) Y(x/|x|) for x.
All harmonics of a degree contribute equally, so m may end within a degree. Radial functions are extended from the nodes
to all radii by Nystrom's formula, u(r) = sum_j g_l(r s_j) v(s_j) / sigma. Harmonics are orthonormal for a random
direction and built by adding one coordinate at a time, from Re and Im of (x_1 + i x_2)^l.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain, combinations, islice

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor

from gatelab.arrays import Array
from gatelab.errors import GatelabError, whole_number
from gatelab.feedforward import Activation
from gatelab.linalg.quadrature import gegenbauer_beside
from gatelab.linearization.floors import DegreeBlock, FloorSpectrum, angular, by_size, radii, spectrum
from gatelab.linearization.monomials import Maps

_KNOTS = 320
_PRODUCTS = 3000  # values of rho = r s at which g_l is computed, with splines in between
_ROWS = 256  # values of rho per batch of angular integrals


def optimal_maps(
    activation: Activation,
    d: int,
    *,
    m: int,
    w_scale: float = 1.0,
    x_scale: float = 1.0,
    w_distribution: str = "normal",
    x_distribution: str = "normal",
) -> Maps:
    """The best m features for w ~ N(0, w_scale^2 I) and x ~ N(0, x_scale^2 I), or on spheres of those radii."""
    m = whole_number("m", m, 1, of="features")
    distributions = {"w_distribution": w_distribution, "x_distribution": x_distribution}
    values = spectrum(activation, d, m, w_scale=w_scale, x_scale=x_scale, **distributions)
    pieces = leading_pieces(values, m)
    count = sum(harmonics for _, _, harmonics in pieces)
    if count < m:
        raise GatelabError(f"act(w.x) in d = {d} has only {count} singular functions, m is {m}; give {count} or fewer")
    phi, psi = (SideFeatures(activation, values, pieces, side) for side in ("w", "x"))
    return Maps(phi, psi, m, d)


def leading_pieces(spectrum: FloorSpectrum, m: int) -> list[tuple[DegreeBlock, int, int]]:
    """Block, index and number of harmonics of the radial functions of the m largest singular values."""
    sigma, many, of, place = by_size(spectrum.blocks)
    pieces, left = [], m
    for s, n, b, k in zip(sigma, many, of, place, strict=True):
        if left == 0 or s <= 1e-12 * sigma[0]:
            break
        pieces.append((spectrum.blocks[b], int(k), int(min(n, left))))
        left -= pieces[-1][2]
    return pieces


class SideFeatures:
    """The features of rows w or of inputs x: harmonics times sqrt(sigma) u(r)."""

    def __init__(
        self, activation: Activation, spectrum: FloorSpectrum, pieces: list[tuple[DegreeBlock, int, int]], side: str
    ) -> None:
        other, functions = {"w": ("x", "right"), "x": ("w", "left")}[side]
        self.activation, self.d = activation, spectrum.scene.d
        self.degrees, self.counts = [block.degree for block, _, _ in pieces], [n for _, _, n in pieces]
        each = list(zip(self.degrees, self.counts, strict=True))
        self.wanted = {l: max(n for degree, n in each if degree == l) for l in dict.fromkeys(self.degrees)}
        own, _ = radii(spectrum.scene, side, spectrum.nodes)
        self.nodes, masses = radii(spectrum.scene, other, spectrum.nodes)
        sides = [(getattr(block, functions)[:, k], block.sigma[k]) for block, k, _ in pieces]
        self.weights = np.array([masses * v / np.sqrt(sigma) for v, sigma in sides])
        self.end = 1.25 * float(own.max())
        knots = np.linspace(0.0, self.end, _KNOTS + 1)
        self.step = float(knots[1])
        # g_l depends on rho = r s alone: one table for all knots costs a tenth of computing each.
        rho = np.linspace(0.0, self.end * float(self.nodes.max()), _PRODUCTS + 1)
        smooth = {l: CubicSpline(rho, g) for l, g in self._projected(rho).items()}
        products = knots[:, None] * self.nodes
        values = np.stack([smooth[l](products) @ v for l, v in zip(self.degrees, self.weights, strict=True)], 1)
        # (knots, powers, functions): one gather per row.
        self.table = torch.from_numpy(np.ascontiguousarray(CubicSpline(knots, values).c.transpose(1, 0, 2)))

    def __call__(self, rows: Tensor) -> Tensor:
        """(..., d) -> (..., m)."""
        if rows.shape[-1] != self.d:
            raise GatelabError(f"rows have {rows.shape[-1]} entries, the maps {self.d}; give (..., {self.d})")
        flat = rows.reshape(-1, self.d)
        length = torch.linalg.vector_norm(flat, dim=1)
        tiny = torch.finfo(flat.dtype).tiny
        Y, R = harmonics(flat / length.clamp_min(tiny)[:, None], self.wanted), self.radial(length)
        each = enumerate(zip(self.degrees, self.counts, strict=True))
        parts = [R[:, i, None] * Y[l][:, :n] for i, (l, n) in each]
        return torch.cat(parts, 1).reshape(*rows.shape[:-1], -1)

    def direct(self, r: Array) -> Array:
        """Nystrom's formula at the radii r, (n,) -> (n, functions)."""
        g = self._projected(r[:, None] * self.nodes)
        return np.stack([g[l] @ v for l, v in zip(self.degrees, self.weights, strict=True)], 1)

    def _projected(self, rho: Array) -> dict[int, Array]:
        """g_l(rho) of every degree of the maps."""
        out = {l: np.empty_like(rho) for l in set(self.degrees)}
        for start in range(0, len(rho), _ROWS):
            part = slice(start, start + _ROWS)
            _, projections = angular(self.activation, self.d, rho[part])
            for degree, g in enumerate(islice(projections, max(self.degrees) + 1)):
                if degree in out:
                    out[degree][part] = g
        return out

    def radial(self, r: Tensor) -> Tensor:
        """The radial functions at lengths r, (n,) -> (n, functions)."""
        table = self.table.to(r.device, r.dtype)
        cell = (r.detach() / self.step).long().clamp_(0, _KNOTS - 1)
        t = (r - cell * self.step)[:, None]
        c = table[cell]
        value = ((c[:, 0] * t + c[:, 1]) * t + c[:, 2]) * t + c[:, 3]
        beyond = r.detach() > self.end
        if bool(beyond.any()):
            direct = torch.from_numpy(self.direct(r[beyond].detach().double().cpu().numpy())).to(r.device, r.dtype)
            value = value.index_put((beyond.nonzero()[:, 0],), direct)
        return value


def harmonics(x: Tensor, wanted: Mapping[int, int]) -> dict[int, Tensor]:
    """The first `wanted[l]` harmonics of each degree l at the unit vectors x, (n, d) -> (n, wanted[l])."""
    d = x.shape[1]
    if d == 1:
        return {l: x**l for l in wanted}
    many = {l: n for l, n in wanted.items() if l > 2 and n > math.comb(d, l)}
    values = {l: _products(x, l, min(n, math.comb(d, l))) for l, n in wanted.items() if l not in many}
    if 2 in values:
        values[2] = torch.cat([values[2], _contrasts(x)[:, : wanted[2] - values[2].shape[1]]], 1)
    if many:
        values |= by_coordinates(x, many)
    return values


def by_coordinates(x: Tensor, wanted: Mapping[int, int]) -> dict[int, Tensor]:
    """Harmonics of any degree in two or more dimensions, by adding coordinates."""
    top, d = max(wanted), x.shape[1]
    # Higher degrees are built from lower ones and need no more columns of them than their own number.
    caps = [max(wanted.get(l, 0) for l in range(low, top + 1)) for low in range(top + 1)]
    ones = torch.ones_like(x[:, 0])
    real, imaginary = ones, torch.zeros_like(ones)
    solid = [ones[:, None]]
    for l in range(1, len(caps)):
        real, imaginary = real * x[:, 0] - imaginary * x[:, 1], real * x[:, 1] + imaginary * x[:, 0]
        solid.append(math.sqrt(2) * torch.stack([real, imaginary], 1)[:, : caps[l]])
    for k in range(3, d + 1):
        solid = _add_coordinate(solid, x[:, k - 1], x[:, :k].square().sum(1), k, caps)
    return {l: solid[l][:, : wanted[l]] for l in wanted}


def _contrasts(x: Tensor) -> Tensor:
    """The harmonics of degree 2 in squares alone; E[x_i^4] = 3 / (d (d + 2)) = 3 E[x_i^2 x_j^2] sets the scale."""
    d, squares = x.shape[1], x.square()
    k = torch.arange(1, d, device=x.device, dtype=x.dtype)
    contrasts = (squares.cumsum(1)[:, :-1] - k * squares[:, 1:]) / (k * (k + 1)).sqrt()
    return math.sqrt(d * (d + 2) / 2) * contrasts


def _products(x: Tensor, degree: int, count: int) -> Tensor:
    """Products of `degree` different coordinates: harmonic, and orthogonal by symmetry under changes of signs."""
    d = x.shape[1]
    # E[x_1^2 .. x_l^2] is one over this.
    scale = math.prod(d + 2 * i for i in range(degree))
    value = x.new_full((1, count), math.sqrt(scale))
    for column in _different(d, degree, count):
        value = value * x[:, column.to(x.device)]
    return value.expand(len(x), count)


@lru_cache(maxsize=8)
def _different(d: int, degree: int, count: int) -> Tensor:
    """The first `count` choices of `degree` different coordinates, (degree, count)."""
    chosen = chain.from_iterable(islice(combinations(range(d), degree), count))
    return torch.from_numpy(np.fromiter(chosen, np.int64, degree * count).reshape(count, degree).T.copy())


def _add_coordinate(solid: list[Tensor], x: Tensor, square: Tensor, k: int, caps: list[int]) -> list[Tensor]:
    """The harmonics of k dimensions, by degree, from those of k - 1; `square` is the squared length of all k."""
    parts: list[list[Tensor]] = [[] for _ in solid]
    for low, lower in enumerate(solid):
        p = _homogeneous(x, square, low, k, len(solid) - 1 - low)
        for n, value in enumerate(p):
            # The highest l' first: the columns cut off at the end are then those that the fewest others need.
            parts[low + n].insert(0, lower[:, : caps[low + n]] * value[:, None])
    return [torch.cat(part, 1)[:, : caps[l]] for l, part in enumerate(parts)]


def _homogeneous(x: Tensor, square: Tensor, low: int, k: int, top: int) -> list[Tensor]:
    """p_0 .. p_top, from the recurrence of orthonormal Gegenbauer polynomials made homogeneous."""
    beside = gegenbauer_beside(top, low + (k - 2) / 2).tolist()
    log = math.lgamma(k / 2 + low) + math.lgamma((k - 1) / 2) - math.lgamma((k - 1) / 2 + low) - math.lgamma(k / 2)
    p = [torch.full_like(x, math.exp(log / 2))]
    for n in range(top):
        value = x * p[n]
        if n:
            value = value - beside[n - 1] * square * p[n - 1]
        p.append(value / beside[n])
    return p
