"""How far a linearisation is off: RMSE and maximum, with intervals, beside the least that so many features allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gatelab.display import one_line
from gatelab.errors import GatelabError, check_seed, unknown_name
from gatelab.linalg.interruptible import apart
from gatelab.linearize.radial import check_spread
from gatelab.memory import check_memory

if TYPE_CHECKING:
    from gatelab.linearize.linearization import Linearization

DISTRIBUTIONS = {"gaussian": "normal", "sphere": "sphere"}  # and what the floor calls them
LEVEL = 0.95
DRAWS = 1000
GROUPS = 256
SVD_SIDE = 2048  # beyond it the floor of given weights and inputs is not computed
PART = 2**22
PAIRS, FEATURES = 2**16, 2**28  # pairs that are drawn by default, and numbers that they may have


@dataclass(frozen=True)
class Error:
    """`rmse` with its bootstrap interval (low, high), and `maximum`, the largest of `pairs` errors.

    With confidence `level` no more than the share `exceeding` of all pairs has an error above the maximum. `relative`
    is the RMSE over the root mean square of what is approximated. `floor` is the least RMSE that any maps of m features
    can have: on the distribution, or on the given W and X (their singular values); None where it is not known.
    """

    rmse: float
    low: float
    high: float
    maximum: float
    exceeding: float
    relative: float
    floor: float | None
    m: int
    d: int
    pairs: int
    level: float = LEVEL

    def __repr__(self) -> str:
        return one_line(self, str(self))

    def __str__(self) -> str:
        least = "" if self.floor is None else f", floor {self.floor:.3g}"
        return (
            f"RMSE {self.rmse:.3g} [{self.low:.3g}, {self.high:.3g}], maximum {self.maximum:.3g}, m = {self.m}{least}"
        )


def measure(
    made: Linearization,
    distribution: str = "gaussian",
    *,
    d: int | None = None,
    W: Any = None,
    X: Tensor | None = None,
    w_scale: float = 1.0,
    x_scale: float = 1.0,
    samples: int | None = None,
    seed: int = 0,
    level: float = LEVEL,
    progress: Callable[[int, int], None] | None = None,
) -> Error:
    """On fresh pairs (w, x) of a distribution, or on all pairs of rows of W and X where both are given.

    "gaussian" is w ~ N(0, w_scale^2 I) and x ~ N(0, x_scale^2 I); "sphere" has lengths w_scale and x_scale instead.
    `samples` pairs are drawn, by default 65536, and fewer where their features would number more than 2^28 (256 pairs
    at least). `progress(done, total)` counts pairs.
    """
    if not 0 < level < 1:
        raise GatelabError(f"level is {level!r}; give a confidence between 0 and 1")
    if (W is None) != (X is None):
        raise GatelabError("one of W and X is given; give both, or a distribution for both")
    if X is not None:
        return _on_data(made, W, X, level, seed)
    if distribution not in DISTRIBUTIONS:
        raise unknown_name("distribution", distribution, DISTRIBUTIONS)
    d = made.d if d is None else d
    if d is None:
        raise GatelabError("the number of inputs is not known; give d=..., here or to linearize")
    if samples is None:
        many = made.features(d).m if made.polynomial is None else 1
        samples = max(GROUPS, min(PAIRS, FEATURES // many))
    if isinstance(samples, bool) or not hasattr(samples, "__index__") or samples < GROUPS:
        raise GatelabError(f"samples is {samples!r}; give {GROUPS} pairs or more")
    scales = check_spread(w_scale, "w_scale"), check_spread(x_scale, "x_scale")
    return _on_distribution(made, distribution, d, scales, int(samples), seed, level, progress)


def _on_distribution(
    made: Linearization,
    law: str,
    d: int,
    scales: tuple[float, float],
    samples: int,
    seed: int,
    level: float,
    progress: Callable[[int, int], None] | None,
) -> Error:
    maps = made.features(d)
    draw = torch.Generator().manual_seed(check_seed(seed))

    def rows(n: int, scale: float) -> Tensor:
        v = torch.randn(n, d, generator=draw, dtype=torch.float64)
        return scale * (v / v.norm(dim=1, keepdim=True) if law == "sphere" else v)

    part = samples if made.polynomial is not None else max(1, min(samples, PART // maps.m))
    check_memory(
        8 * 4 * part * (made.factors + 2) * d + 8 * 8 * samples,
        f"the error on {samples} pairs of {d} inputs",
        "give fewer samples, or a smaller d",
    )
    squares, largest, energy = [], 0.0, 0.0
    for start in range(0, samples, part):
        n = min(part, samples - start)
        weights, x = [rows(n, scales[0]) for _ in range(made.factors + 1)], rows(n, scales[1])
        exact = made.activation((weights[0] * x).sum(1))
        for u in weights[1:]:
            exact = exact * (u * x).sum(1)
        gap = exact - _pairs(made, weights, x)
        squares.append(gap.square())
        largest, energy = max(largest, float(gap.abs().max())), energy + float(exact.square().sum())
        if progress:
            progress(start + n, samples)
    low, high = _bootstrap(torch.cat(squares).numpy(), level, seed)
    rmse = float(torch.cat(squares).mean().sqrt())
    least = None if made.factors else _floor(made, d, maps.m, scales, DISTRIBUTIONS[law])
    beyond = 1 - (1 - level) ** (1 / samples)
    relative = rmse / float(np.sqrt(energy / samples))
    return Error(rmse, low, high, largest, beyond, relative, least, maps.m, d, samples, level)


def drawn_pairs(made: Linearization, d: int, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """What is approximated and by what, of `count` pairs of standard normal w and x."""
    draw = torch.Generator().manual_seed(seed)
    x, *weights = (torch.randn(count, d, generator=draw, dtype=torch.float64) for _ in range(made.factors + 2))
    exact = made.activation((weights[0] * x).sum(1))
    for u in weights[1:]:
        exact = exact * (u * x).sum(1)
    with torch.no_grad():
        return exact.numpy(), _pairs(made, weights, x).numpy()


def _pairs(made: Linearization, weights: list[Tensor], x: Tensor) -> Tensor:
    """phi(w_i) . psi(x_i), without the features where the method is a polynomial."""
    if made.polynomial is not None:
        value = made.polynomial((weights[0] * x).sum(1))
        for u in weights[1:]:
            value = value * (u * x).sum(1)
        return value
    found = (made.phi(weights if made.factors else weights[0]) * made.psi(x)).sum(1)
    return found.real if found.is_complex() else found


def _on_data(made: Linearization, W: Any, X: Tensor, level: float, seed: int) -> Error:
    parts = [W] if isinstance(W, Tensor) else list(W)
    if X.ndim != 2 or any(p.ndim != 2 for p in parts) or not len(X) or not len(parts[0]):
        raise GatelabError(f"X is of shape {tuple(X.shape)}; give rows of inputs (N, d) and of weights (n, d)")
    n, N = len(parts[0]), len(X)
    step = max(1, PART // n)
    per_input, largest, energy = [], 0.0, 0.0
    with torch.no_grad():
        for i in range(0, N, step):
            exact = made.exact(W, X[i : i + step])
            gap = (exact - made.product(W, X[i : i + step])).double()
            per_input.append(gap.square().mean(1).cpu())
            largest = max(largest, float(gap.abs().max()))
            energy += float(exact.double().square().sum())
        least = _floor_of(made, W, X, n) if min(n, N) <= SVD_SIDE else None
    squares = torch.cat(per_input).numpy()
    low, high = _bootstrap(squares, level, seed)
    rmse, m = float(np.sqrt(squares.mean())), made.features(X.shape[1]).m
    relative = rmse / float(np.sqrt(energy / (n * N))) if energy else float("nan")
    # Pairs of one input go together: it is inputs that are drawn.
    beyond = 1 - (1 - level) ** (1 / N)
    return Error(rmse, low, high, largest, beyond, relative, least, m, X.shape[1], n * N, level)


def _bootstrap(squares: np.ndarray, level: float, seed: int) -> tuple[float, float]:
    """The interval of the root of their mean: groups of neighbours are drawn again, as whole ones."""
    groups = np.array([g.mean() for g in np.array_split(squares, min(GROUPS, len(squares)))])
    draws = np.random.default_rng(check_seed(seed)).integers(len(groups), size=(DRAWS, len(groups)))
    low, high = np.quantile(np.sqrt(groups[draws].mean(1)), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _floor(made: Linearization, d: int, m: int, scales: tuple[float, float], law: str) -> float | None:
    from gatelab.linearize.floor import floor

    try:
        return floor(made.activation, d, m, scales[0], scales[1], w_law=law, x_law=law)
    except GatelabError:
        return None  # more features than the spectrum resolves: the floor is below what can be told from 0


def _floor_of(made: Linearization, W: Any, X: Tensor, n: int) -> float:
    """What the best matrix of rank m leaves of act(X W^T): no maps of m features can leave less on these rows."""
    table = made.exact(W, X).double()
    gram = table.T @ table if n <= len(X) else table @ table.T
    kept = apart(torch.linalg.eigvalsh, gram).flip(0).clamp_min(0)
    return float((kept[made.features(X.shape[1]).m :].sum() / table.numel()).sqrt())
