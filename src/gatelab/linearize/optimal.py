"""The best maps of m features: the singular functions of act(w.x), degree by degree.

A feature is sqrt(sigma) u(|w|) Y(w/|w|) on the one side and sqrt(sigma) v(|x|) Y(x/|x|) on the other: a radial function
times a harmonic. Where an eigenvalue of the radial operator is negative, u and v differ by sign. On the law of w and x
that they were made for no other maps of m features have a smaller RMSE; where m ends within a degree a part of its
harmonics is taken, all of which are worth the same.

Radial functions are extended from the nodes to all radii by Nystrom's formula, u(r) = sum_j g_l(r s_j) v(s_j) / sigma,
tabled to somewhat beyond the last node and computed afresh further out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from torch import Tensor

from gatelab.errors import GatelabError
from gatelab.linearize.floor import Spectrum, spectrum
from gatelab.linearize.harmonics import harmonics
from gatelab.linearize.maps import Maps
from gatelab.linearize.radial import Angles, radii
from gatelab.units import Activation

Array = NDArray[np.float64]
_KNOTS = 320
_PRODUCTS = 3000  # values of rho = r s at which g_l is computed; splines between
_ROWS = 256  # rho for which the angular integrals are held at once


def build(
    activation: Activation,
    d: int,
    *,
    m: int,
    w_scale: float = 1.0,
    x_scale: float = 1.0,
    w_law: str = "normal",
    x_law: str = "normal",
) -> Maps:
    """The best m features for w ~ N(0, w_scale^2 I) and x ~ N(0, x_scale^2 I), or on spheres of those radii.

    >>> from gatelab.units import activation
    >>> maps = build(activation("gelu"), 16, m=152)
    >>> draw = torch.Generator().manual_seed(0)
    >>> W, X = torch.randn(2, 2000, 16, generator=draw, dtype=torch.float64)
    >>> error = activation("gelu")(W @ X.T) - maps.phi(W) @ maps.psi(X).T
    >>> round(float(error.square().mean().sqrt()), 2)  # the floor is 0.418
    0.42
    """
    if isinstance(m, bool) or not isinstance(m, int | np.integer) or m < 1:
        raise GatelabError(f"m is {m!r}; give a number of features, 1 or more")
    found = spectrum(activation, d, int(m), w_scale=w_scale, x_scale=x_scale, w_law=w_law, x_law=x_law)
    chosen = _choose(found, int(m))
    count = sum(piece.harmonics for piece in chosen)
    if count < m:
        raise GatelabError(
            f"act(w.x) in d = {d} has only {count} singular functions above rounding, m is {m}; "
            f"ask for {count} or fewer"
        )
    return Maps(_side(activation, found, chosen, "w"), _side(activation, found, chosen, "x"), int(m), d)


@dataclass(frozen=True)
class _Piece:
    """One radial function with so many harmonics of its degree."""

    block: int
    place: int
    harmonics: int


def _choose(found: Spectrum, m: int) -> list[_Piece]:
    sigma, many, of, place = found.pieces()
    chosen, left = [], m
    for s, n, b, k in zip(sigma, many, of, place, strict=True):
        if left == 0 or s <= 1e-12 * sigma[0]:
            break
        chosen.append(_Piece(int(b), int(k), int(min(n, left))))
        left -= chosen[-1].harmonics
    return chosen


def _side(activation: Activation, found: Spectrum, chosen: list[_Piece], side: str) -> Callable[[Tensor], Tensor]:
    degrees = [found.blocks[piece.block].degree for piece in chosen]
    wanted = {l: max(p.harmonics for p, of in zip(chosen, degrees, strict=True) if of == l) for l in degrees}
    radial = _Radial(activation, found, chosen, side)

    def features(rows: Tensor) -> Tensor:
        if rows.shape[-1] != found.scene.d:
            raise GatelabError(
                f"rows have {rows.shape[-1]} entries, the maps were made for d = {found.scene.d}; "
                f"give (..., {found.scene.d})"
            )
        flat = rows.reshape(-1, found.scene.d)
        length = torch.linalg.vector_norm(flat, dim=1)
        tiny = torch.finfo(flat.dtype).tiny
        Y = harmonics(flat / length.clamp_min(tiny)[:, None], wanted)
        R = radial(length)
        parts = [
            R[:, i, None] * Y[l][:, : piece.harmonics] for i, (piece, l) in enumerate(zip(chosen, degrees, strict=True))
        ]
        return torch.cat(parts, 1).reshape(*rows.shape[:-1], -1)

    return features


class _Radial:
    """sqrt(sigma) u(r) of the chosen radial functions: a cubic table, and Nystrom's formula beyond it."""

    def __init__(self, activation: Activation, found: Spectrum, chosen: list[_Piece], side: str) -> None:
        other = "x" if side == "w" else "w"
        self.activation, self.scene = activation, found.scene
        own, _ = radii(found.scene, side, found.nodes)
        self.nodes, masses = radii(found.scene, other, found.nodes)
        self.degrees = [found.blocks[piece.block].degree for piece in chosen]
        weights = []
        for piece in chosen:
            b = found.blocks[piece.block]
            v = (b.right if side == "w" else b.left)[:, piece.place]
            weights.append(masses * v / np.sqrt(b.sigma[piece.place]))
        self.weights = np.array(weights)
        self.end = 1.25 * float(own.max())
        knots = np.linspace(0.0, self.end, _KNOTS + 1)
        self.step = float(knots[1])
        # g_l is a function of rho = r s alone: a table of it serves all knots, and costs a tenth of computing each.
        rho = np.linspace(0.0, self.end * float(self.nodes.max()), _PRODUCTS + 1)
        smooth = {l: CubicSpline(rho, g) for l, g in self._projected(rho).items()}
        products = knots[:, None] * self.nodes
        values = np.stack([smooth[l](products) @ v for l, v in zip(self.degrees, self.weights, strict=True)], 1)
        # (knots, powers, functions): one gather brings all that a row needs.
        self.table = torch.from_numpy(np.ascontiguousarray(CubicSpline(knots, values).c.transpose(1, 0, 2)))

    def direct(self, r: Array) -> Array:
        """Nystrom's formula at the radii r, (n,) -> (n, functions)."""
        g = self._projected(r[:, None] * self.nodes)
        return np.stack([g[l] @ v for l, v in zip(self.degrees, self.weights, strict=True)], 1)

    def _projected(self, rho: Array) -> dict[int, Array]:
        """g_l(rho) of every degree in use."""
        out = {l: np.empty_like(rho) for l in set(self.degrees)}
        for start in range(0, len(rho), _ROWS):
            part = slice(start, start + _ROWS)
            angles = Angles(self.activation, self.scene.d, rho[part])
            for degree in range(max(self.degrees) + 1):
                g = angles.next_degree()
                if degree in out:
                    out[degree][part] = g
        return out

    def __call__(self, r: Tensor) -> Tensor:
        table = self.table.to(r.device, r.dtype)
        cell = (r.detach() / self.step).long().clamp_(0, _KNOTS - 1)
        t = (r - cell * self.step)[:, None]
        c = table[cell]
        value = ((c[:, 0] * t + c[:, 1]) * t + c[:, 2]) * t + c[:, 3]
        beyond = r.detach() > self.end
        if bool(beyond.any()):
            far = torch.from_numpy(self.direct(r[beyond].detach().double().cpu().numpy())).to(r.device, r.dtype)
            value = value.index_put((beyond.nonzero()[:, 0],), far)
        return value
