"""Real spherical harmonics in any number of dimensions, orthonormal for a chance direction.

Built one coordinate after another. With r_k^2 = x_1^2 + ... + x_k^2, a harmonic of degree l in k dimensions is one of
degree l' <= l in the first k - 1, times a polynomial in x_k and r_k^2 that is homogeneous of degree l - l':

    Y(x_1 .. x_k) = Y'(x_1 .. x_(k-1)) p_(l-l')(x_k, r_k)

where p_n(t, 1) are orthonormal under (1 - t^2)^(l' + (k-3)/2). Nothing divides by a partial length, so that no
direction is special. Two dimensions start it with Re and Im of (x_1 + i x_2)^l. Degrees up to two, which are all that
large layers ever use, are written down at once: x_i, x_i x_j, and contrasts of squares. So are products of l different
coordinates, where no more than those are wanted of a degree: coordinate by coordinate they would take d times as long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain, combinations, islice

import numpy as np
import torch
from torch import Tensor


def harmonics(x: Tensor, wanted: Mapping[int, int]) -> dict[int, Tensor]:
    """The first `wanted[l]` harmonics of each degree l at the unit vectors x, (n, d) -> (n, wanted[l]).

    >>> x = torch.nn.functional.normalize(torch.randn(5, 7, dtype=torch.float64), dim=1)
    >>> Y = harmonics(x, {2: 27})[2]
    >>> bool(torch.allclose((Y * Y).sum(1), torch.full((5,), 27.0, dtype=torch.float64)))
    True
    """
    d = x.shape[1]
    if d == 1:
        return {l: x**l for l in wanted}
    low = {l: _low(x, l, n) for l, n in wanted.items() if l <= 2}
    few = {l: _products(x, l, n) for l, n in wanted.items() if l > 2 and n <= math.comb(d, l)}
    rest = {l: n for l, n in wanted.items() if l not in low and l not in few}
    return low | few | (_by_coordinates(x, rest) if rest else {})


def _by_coordinates(x: Tensor, wanted: Mapping[int, int]) -> dict[int, Tensor]:
    """Any degree in two dimensions or more."""
    top, d = max(wanted), x.shape[1]
    # A degree serves the ones above it, in an order that needs no more of its columns than theirs.
    caps = [max(wanted.get(l, 0) for l in range(low, top + 1)) for low in range(top + 1)]
    solid = _plane(x, caps)
    for k in range(3, d + 1):
        solid = _add_coordinate(solid, x[:, k - 1], x[:, :k].square().sum(1), k, caps)
    return {l: solid[l][:, : wanted[l]] for l in wanted}


def _low(x: Tensor, degree: int, count: int) -> Tensor:
    """Degrees 0, 1 and 2 in closed form: E[x_i^4] = 3 / (d (d + 2)) and E[x_i^2 x_j^2] a third of it set the scales."""
    d = x.shape[1]
    if degree == 0:
        return torch.ones_like(x[:, :1])[:, :count]
    if degree == 1:
        return math.sqrt(d) * x[:, :count]
    i, j = torch.triu_indices(d, d, 1, device=x.device)[:, :count]
    parts = [math.sqrt(d * (d + 2)) * x[:, i] * x[:, j]]
    if count > len(i):
        k = torch.arange(1, d, device=x.device, dtype=x.dtype)
        squares = x.square()
        contrasts = (squares.cumsum(1)[:, :-1] - k * squares[:, 1:]) / (k * (k + 1)).sqrt()
        parts.append(math.sqrt(d * (d + 2) / 2) * contrasts[:, : count - len(i)])
    return torch.cat(parts, 1)


def _products(x: Tensor, degree: int, count: int) -> Tensor:
    """Products of so many different coordinates: harmonic, and orthogonal to each other as every sign can be turned."""
    d = x.shape[1]
    # E[x_1^2 .. x_l^2] is one over this.
    scale = math.prod(d + 2 * i for i in range(degree))
    value = x.new_full((1, count), math.sqrt(scale))
    for column in _different(d, degree, count):
        value = value * x[:, column.to(x.device)]
    return value


@lru_cache(maxsize=8)
def _different(d: int, degree: int, count: int) -> Tensor:
    """The first `count` choices of so many different coordinates, (degree, count)."""
    chosen = chain.from_iterable(islice(combinations(range(d), degree), count))
    return torch.from_numpy(np.fromiter(chosen, np.int64, degree * count).reshape(count, degree).T.copy())


def _plane(x: Tensor, caps: list[int]) -> list[Tensor]:
    ones = torch.ones_like(x[:, 0])
    real, imaginary = ones, torch.zeros_like(ones)
    solid = [ones[:, None]]
    for l in range(1, len(caps)):
        real, imaginary = real * x[:, 0] - imaginary * x[:, 1], real * x[:, 1] + imaginary * x[:, 0]
        solid.append(math.sqrt(2) * torch.stack([real, imaginary], 1)[:, : caps[l]])
    return solid


def _add_coordinate(solid: list[Tensor], x: Tensor, square: Tensor, k: int, caps: list[int]) -> list[Tensor]:
    parts: list[list[Tensor]] = [[] for _ in solid]
    for low, lower in enumerate(solid):
        p = _homogeneous(x, square, low, k, len(solid) - 1 - low)
        for n, value in enumerate(p):
            room = caps[low + n]
            # Own degree first: what is cut off then is what the fewest others need.
            parts[low + n].insert(0, lower[:, :room] * value[:, None])
    return [torch.cat(part, 1)[:, : caps[l]] for l, part in enumerate(parts)]


def _homogeneous(x: Tensor, square: Tensor, low: int, k: int, top: int) -> list[Tensor]:
    """p_0 .. p_top, from the recurrence of orthonormal Gegenbauer polynomials made homogeneous."""
    a = low + (k - 2) / 2
    log = math.lgamma(k / 2 + low) + math.lgamma((k - 1) / 2) - math.lgamma((k - 1) / 2 + low) - math.lgamma(k / 2)
    p = [torch.full_like(x, math.exp(log / 2))]
    for n in range(top):
        value = x * p[n]
        if n:
            value = value - _beside(n, a) * square * p[n - 1]
        p.append(value / _beside(n + 1, a))
    return p


def _beside(n: int, a: float) -> float:
    """The entry beside the diagonal in t p_(n-1) = b_n p_n + b_(n-1) p_(n-2)."""
    if n == 1:
        return math.sqrt(1 / (2 * (1 + a)))
    return math.sqrt(n * (n + 2 * a - 1) / (4 * (n + a) * (n + a - 1)))
