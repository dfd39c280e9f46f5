"""The floor: the smallest possible error of maps Phi, Psi of m features on a distribution of w and x.

    min over Phi, Psi of  E[(act(w.x) - Phi(w).Psi(x))^2]  =  E[act^2] - (sum of the m largest sigma^2)

by Schmidt's theorem. Singular values are computed degree by degree (docs/derivations/floor.md): each one of the radial
operator g_l(r s) = E_t[act(r s t) P_l(t)] is N_l of them. The Gauss rule for lengths is that of the chi distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import cycle

import numpy as np
import torch
from numpy.typing import NDArray

from gatelab.arrays import Array
from gatelab.display import Compact
from gatelab.errors import GatelabError, real_number, unknown_name, whole_number
from gatelab.feedforward import Activation
from gatelab.feedforward import activation as gate_of
from gatelab.linalg.quadrature import MOST_DEGREES, chi_rule, cosine_rule, gegenbauer_polynomials

DISTRIBUTIONS = ("normal", "sphere")
SMALLEST, LARGEST = 1e-9, 1e6
_NODES = (24, 48, 96)
_SETTLED = 1e-4  # relative change of the error when the nodes are doubled
_ROUNDING = 1e-13  # of the energy: the rounding error of a squared floor


def check_spread(scale: float, name: str) -> float:
    """The standard deviation of the entries of w or x, such that powers of w.x stay in float64."""
    return real_number(name, scale, least=SMALLEST, most=LARGEST)


@dataclass(frozen=True)
class Scene:
    """The distribution of w and x: N(0, scale^2 I) ("normal"), or uniform on a sphere of radius `scale` ("sphere")."""

    d: int
    w_scale: float = 1.0
    x_scale: float = 1.0
    w_distribution: str = "normal"
    x_distribution: str = "normal"

    def __post_init__(self) -> None:
        whole_number("d", self.d, 1, of="inputs")
        check_spread(self.w_scale, "w_scale")
        check_spread(self.x_scale, "x_scale")
        for name in (self.w_distribution, self.x_distribution):
            if name not in DISTRIBUTIONS:
                raise unknown_name("distribution of rows", name, DISTRIBUTIONS)


@dataclass(frozen=True, eq=False)
class DegreeBlock:
    """The singular triples of one degree: `left` at the radii of w, `right` at those of x, both orthonormal."""

    degree: int
    multiplicity: int
    sigma: Array = field(repr=False)
    left: Array = field(repr=False)
    right: Array = field(repr=False)


def multiplicity(d: int, degree: int) -> int:
    """N_l, the number of independent harmonics of degree l in d dimensions."""
    if degree < 2:
        return d**degree
    return math.comb(d + degree - 1, degree) - math.comb(d + degree - 3, degree - 2)


def radii(scene: Scene, side: str, nodes: int) -> tuple[Array, Array]:
    """A quadrature rule (radii, masses) for the length of w or x."""
    scale = getattr(scene, f"{side}_scale")
    if getattr(scene, f"{side}_distribution") == "sphere":
        return np.array([scale]), np.ones(1)
    r, masses = chi_rule(scene.d, nodes)
    return r * scale, masses


def angular(activation: Activation, d: int, rho: Array) -> tuple[Array, Iterator[Array]]:
    """E_t[act(rho t)^2] at each rho, and an iterator over g_l(rho), l = 0, 1, 2, ..."""
    t, masses = cosine_rule(d, float(2.0 ** math.ceil(math.log2(max(float(rho.max()), 1e-300)))))
    z = torch.from_numpy(rho.reshape(-1, 1) * t)
    with torch.no_grad():
        right, left = activation(z).numpy(), activation(-z).numpy()
    if not (np.isfinite(right).all() and np.isfinite(left).all()):
        raise GatelabError(f"{activation.name} is not finite for |z| <= {float(z.max()):.3g}; give a smaller scale")
    square = ((right**2 + left**2) @ masses).reshape(rho.shape)
    parts = cycle((right + left, right - left))  # for even and odd degrees
    degrees = gegenbauer_polynomials(t, d)
    return square, ((next(parts) @ (masses * P)).reshape(rho.shape) for P in degrees)


def by_size(blocks: Sequence[DegreeBlock]) -> tuple[Array, Array, NDArray[np.intp], NDArray[np.intp]]:
    """sigma, multiplicity, block, and index in the block of every radial function, largest sigma first."""
    sigma = np.concatenate([b.sigma for b in blocks])
    many = np.repeat([float(b.multiplicity) for b in blocks], [len(b.sigma) for b in blocks])
    of = np.repeat(np.arange(len(blocks)), [len(b.sigma) for b in blocks])
    place = np.concatenate([np.arange(len(b.sigma)) for b in blocks])
    order = np.argsort(-sigma, kind="stable")
    return sigma[order], many[order], of[order], place[order]


@dataclass(frozen=True, eq=False)
class FloorSpectrum(Compact):
    """The singular values of act(w.x), by degree.

    Attributes:
        scene: the distribution of w and x.
        energy: E[act(w.x)^2].
        blocks: the singular values and radial functions of each degree.
        resolved: how many of the largest singular values are included.
        nodes: the number of radii.
    """

    scene: Scene
    energy: float
    blocks: tuple[DegreeBlock, ...]
    resolved: int
    nodes: int

    def rmse(self, m: int) -> float:
        """The floor for m features; 0 if it is below rounding."""
        if m > self.resolved:
            raise GatelabError(f"m is {m}, this spectrum has {self.resolved} features; compute one with m={m}")
        sigma, many, _, _ = by_size(self.blocks)
        before = np.concatenate([[0.0], np.cumsum(many)])
        shares = np.clip(m - before[:-1], 0.0, many)
        left = self.energy - float((shares * sigma**2).sum())
        if left <= _ROUNDING * self.energy:
            return 0.0
        return math.sqrt(left)


def spectrum(
    activation: str | Activation,
    d: int,
    m: int,
    *,
    w_scale: float = 1.0,
    x_scale: float = 1.0,
    w_distribution: str = "normal",
    x_distribution: str = "normal",
) -> FloorSpectrum:
    """The largest m singular values of act(w.x), with the radial rule doubled until the floor of m features converges.

    Args:
        activation: a name, an `Activation` or a function of one tensor.
        d: the number of inputs.
        m: the number of features.
        w_scale: the standard deviation of the entries of w, or the radius of the sphere.
        x_scale: the same for x.
        w_distribution: "normal" for w ~ N(0, w_scale^2 I), "sphere" for w uniform on a sphere.
        x_distribution: the same for x.

    Returns:
        A `FloorSpectrum`.

    >>> blocks = spectrum("gelu", 16, 152).blocks
    >>> [(b.degree, b.multiplicity, float(b.sigma[0].round(3))) for b in blocks][:3]
    [(0, 1, 1.576), (1, 16, 0.5), (2, 135, 0.098)]
    """
    gate = gate_of(activation)
    m = whole_number("m", m, 0, of="features")
    scene = Scene(d, float(w_scale), float(x_scale), w_distribution, x_distribution)
    coarse, change = spectrum_by_nodes(gate, scene, m, _NODES[0]), math.inf
    for nodes in _NODES[1:]:
        finer = spectrum_by_nodes(gate, scene, m, nodes)
        change = abs(finer.rmse(m) - coarse.rmse(m))
        if change <= _SETTLED * finer.rmse(m) + 1e-7 * math.sqrt(finer.energy):
            return finer
        coarse = finer
    raise GatelabError(
        f"the floor of {gate.name} in d = {d} changes by {change:.2g} at {_NODES[-1]} radii; give a smoother gate"
    )


@lru_cache(maxsize=8)
def spectrum_by_nodes(gate: Activation, scene: Scene, m: int, nodes: int) -> FloorSpectrum:
    r, left = radii(scene, "w", nodes)
    s, right = radii(scene, "x", nodes)
    square, projections = angular(gate, scene.d, r[:, None] * s)
    energy = float(left @ square @ right)
    a, b = np.sqrt(left)[:, None], np.sqrt(right)
    blocks: list[DegreeBlock] = []
    remainder, top = energy, 1 if scene.d == 1 else MOST_DEGREES
    for degree in range(top + 1):
        U, sigma, Vt = np.linalg.svd(a * next(projections) * b, full_matrices=False)
        block = DegreeBlock(degree, multiplicity(scene.d, degree), sigma, U / a, Vt.T / b[:, None])
        blocks.append(block)
        remainder = max(0.0, remainder - block.multiplicity * float((sigma**2).sum()))
        if degree >= 1 and _complete(blocks, remainder, energy, scene.d, m):
            break
    else:
        if scene.d > 1:
            raise GatelabError(f"{m} features of {gate.name} in d = {scene.d} reach beyond degree {top}; give fewer")
    return FloorSpectrum(scene, energy, tuple(blocks), m, nodes)


def _complete(blocks: list[DegreeBlock], remainder: float, energy: float, d: int, m: int) -> bool:
    """Whether no later degree can contain one of the m largest: their N_l sigma^2 is at most the remainder."""
    if remainder <= _ROUNDING * energy or m == 0:
        return True
    sigma, many, _, _ = by_size(blocks)
    enough = np.searchsorted(np.cumsum(many), m)
    following = multiplicity(d, blocks[-1].degree + 1)
    return bool(enough < len(sigma)) and float(sigma[enough]) ** 2 >= remainder / max(following, 1)


def floor(
    activation: str | Activation, d: int, m: int, w_scale: float = 1.0, x_scale: float = 1.0, **distributions: str
) -> float:
    """The smallest possible RMSE of maps of m features, w ~ N(0, w_scale^2 I), x ~ N(0, x_scale^2 I).

    `activation`, `d`, `w_scale`, `x_scale` and the distributions are as in `spectrum`.

    Args:
        m: the number of features.

    Returns:
        The RMSE.

    >>> round(floor("gelu", 2, 16), 5), round(floor("gelu", 16, 152), 3), round(floor("gelu", 16, 152, w_scale=0.25), 4)
    (0.01054, 0.418, 0.0705)
    """
    return spectrum(activation, d, m, w_scale=w_scale, x_scale=x_scale, **distributions).rmse(m)


def floor_curve(
    activation: str | Activation,
    d: int,
    ms: Iterable[int],
    w_scale: float = 1.0,
    x_scale: float = 1.0,
    **distributions: str,
) -> Array:
    """The floor at several numbers of features, from one spectrum.

    `activation`, `d`, `w_scale`, `x_scale` and the distributions are as in `spectrum`.

    Args:
        ms: the numbers of features.

    Returns:
        An array with the RMSE at each.

    >>> floor_curve("gelu", 2, [4, 5, 8]).round(4)
    array([0.2357, 0.0723, 0.0316])
    """
    ms = [int(m) for m in ms]
    if not ms:
        raise GatelabError("ms is empty; give one or more numbers of features")
    values = spectrum(activation, d, max(ms), w_scale=w_scale, x_scale=x_scale, **distributions)
    return np.array([values.rmse(m) for m in ms])
