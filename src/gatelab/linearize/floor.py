"""The floor: the least error that any maps Phi, Psi of m features can have on a law of w and x.

    min over Phi, Psi of  E[(act(w.x) - Phi(w).Psi(x))^2]  =  E[act^2] - (sum of the m largest sigma^2)

by Schmidt's theorem (Math. Ann. 63, 1907; Eckart and Young for matrices). `radial` gives the singular values degree by
degree. How many degrees are needed is known and not guessed: what energy the first ones have left over bounds every
singular value of all others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gatelab.display import one_line
from gatelab.errors import GatelabError
from gatelab.linearize.radial import Angles, Block, Scene, block, multiplicity, radii
from gatelab.units import Activation
from gatelab.units import activation as gate_of

Array = NDArray[np.float64]
_NODES = (24, 48, 96)
_SETTLED = 1e-4  # relative change of the error when the nodes are doubled
_ROUNDING = 1e-13  # of the energy: squares of errors below this are lost in subtraction


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The singular values of act(w.x) as far as the first `resolved` of them, by degree, and E[act^2].

    `nodes` is the number of radii; `chosen(m)` names the blocks and radial functions that the best m features use.
    """

    scene: Scene
    energy: float
    blocks: tuple[Block, ...]
    resolved: int
    nodes: int

    def __repr__(self) -> str:
        return one_line(
            self, f"{self.resolved} singular values in d = {self.scene.d}, floor {self.rmse(self.resolved):.3g}"
        )

    def pieces(self) -> tuple[Array, Array, NDArray[np.intp], NDArray[np.intp]]:
        """sigma, multiplicity, block and place within it of every radial function, largest sigma first."""
        sigma = np.concatenate([b.sigma for b in self.blocks])
        many = np.concatenate([np.full(len(b.sigma), float(b.multiplicity)) for b in self.blocks])
        of = np.concatenate([np.full(len(b.sigma), i) for i, b in enumerate(self.blocks)])
        place = np.concatenate([np.arange(len(b.sigma)) for b in self.blocks])
        order = np.argsort(-sigma, kind="stable")
        return sigma[order], many[order], of[order], place[order]

    def rmse(self, m: int) -> float:
        """The floor for m features; 0 where it is below what float64 can tell from 0."""
        if m > self.resolved:
            raise GatelabError(f"m is {m}, this spectrum was made for {self.resolved} features; ask for more at once")
        sigma, many, _, _ = self.pieces()
        before = np.concatenate([[0.0], np.cumsum(many)])
        taken = np.clip(m - before[:-1], 0.0, many)
        left = self.energy - float((taken * sigma**2).sum())
        return math.sqrt(left) if left > _ROUNDING * self.energy else 0.0


def spectrum(
    activation: str | Activation,
    d: int,
    m: int,
    *,
    w_scale: float = 1.0,
    x_scale: float = 1.0,
    w_law: str = "normal",
    x_law: str = "normal",
) -> Spectrum:
    """The largest m singular values of act(w.x), the radial rule doubled until the error for m features stands still.

    >>> found = spectrum("gelu", 16, 152)
    >>> [(b.degree, b.multiplicity, float(b.sigma[0].round(3))) for b in found.blocks][:3]
    [(0, 1, 1.576), (1, 16, 0.5), (2, 135, 0.098)]
    """
    gate = gate_of(activation)
    if isinstance(m, bool) or not isinstance(m, int | np.integer) or m < 0:
        raise GatelabError(f"m is {m!r}; give a number of features, 0 or more")
    scene = Scene(d, float(w_scale), float(x_scale), w_law, x_law)
    found, change = _at(gate, scene, int(m), _NODES[0]), math.inf
    for nodes in _NODES[1:]:
        finer = _at(gate, scene, int(m), nodes)
        change = abs(finer.rmse(m) - found.rmse(m))
        if change <= _SETTLED * finer.rmse(m) + 1e-7 * math.sqrt(finer.energy):
            return finer
        found = finer
    raise GatelabError(
        f"the floor of {gate.name} in d = {d} still moves by {change:.2g} at {_NODES[-1]} radii: "
        "the gate is too rough, or has jumps away from 0; take a smoother one, or a smaller m"
    )


@lru_cache(maxsize=8)
def _at(gate: Activation, scene: Scene, m: int, nodes: int) -> Spectrum:
    r, left = radii(scene, "w", nodes)
    s, right = radii(scene, "x", nodes)
    angles = Angles(gate, scene.d, r[:, None] * s)
    energy = float(left @ angles.square @ right)
    blocks: list[Block] = []
    rest = energy
    for degree in range(scene.most_degrees + 1):
        one = block(angles.next_degree(), scene.d, degree, left, right)
        blocks.append(one)
        rest = max(0.0, rest - one.multiplicity * float((one.sigma**2).sum()))
        if degree >= 1 and _complete(blocks, rest, energy, scene.d, m):
            break
    else:
        if scene.d > 1:
            raise GatelabError(
                f"{m} features of {gate.name} in d = {scene.d} reach beyond degree {scene.most_degrees}; ask for fewer"
            )
    return Spectrum(scene, energy, tuple(blocks), m, nodes)


def _complete(blocks: list[Block], rest: float, energy: float, d: int, m: int) -> bool:
    """Whether no later degree can hold one of the m largest: N_l sigma^2 of any of them is at most `rest`."""
    if rest <= _ROUNDING * energy or m == 0:
        return True
    sigma = np.concatenate([b.sigma for b in blocks])
    many = np.concatenate([np.full(len(b.sigma), float(b.multiplicity)) for b in blocks])
    order = np.argsort(-sigma, kind="stable")
    enough = np.searchsorted(np.cumsum(many[order]), m)
    following = multiplicity(d, blocks[-1].degree + 1)
    return bool(enough < len(order)) and float(sigma[order[enough]]) ** 2 >= rest / max(following, 1)


def floor(
    activation: str | Activation, d: int, m: int, w_scale: float = 1.0, x_scale: float = 1.0, **laws: str
) -> float:
    """The least RMSE of any maps of m features, w ~ N(0, w_scale^2 I), x ~ N(0, x_scale^2 I).

    `w_law="sphere"` or `x_law="sphere"` gives w or x the length `scale` and a chance direction instead.

    >>> round(floor("gelu", 2, 16), 5), round(floor("gelu", 16, 152), 3), round(floor("gelu", 16, 152, w_scale=0.25), 4)
    (0.01054, 0.418, 0.0705)
    """
    return spectrum(activation, d, m, w_scale=w_scale, x_scale=x_scale, **laws).rmse(m)


def floor_curve(
    activation: str | Activation, d: int, ms: Iterable[int], w_scale: float = 1.0, x_scale: float = 1.0, **laws: str
) -> Array:
    """The floor at every m of `ms`, from one spectrum.

    >>> floor_curve("gelu", 2, [4, 5, 8]).round(4)
    array([0.2357, 0.0723, 0.0316])
    """
    ms = [int(m) for m in ms]
    if not ms:
        raise GatelabError("no m was given; give the numbers of features to have the floor for")
    found = spectrum(activation, d, max(ms), w_scale=w_scale, x_scale=x_scale, **laws)
    return np.array([found.rmse(m) for m in ms])
