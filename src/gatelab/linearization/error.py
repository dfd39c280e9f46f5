"""Monte Carlo for the scalar function GELU(z) = z P(Z <= z), Z ~ N(0, 1) (paper 003, section 4.1).

    naive        z/N #{Z_i <= z}                       N Var = z^2 Phi(1 - Phi)            at most 0.1478, at |z| = 1.28
    antithetic   the same with pairs Z_i, -Z_i          N Var = z^2 Phi(-|z|) (2 Phi(|z|) - 1)   at most 0.1328
    quantile     Z_i = Phi^-1((i - 1/2) / N)           no chance; with 256 points within 5.6e-3

The indicator {Z_i <= w.x} is no product of a function of w and one of x: this estimator does not factor into Phi and
Psi, whatever N is, and `build` says so.

How far a linearisation is off: RMSE and maximum, with intervals, beside the least that so many features allow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gatelab.display import one_line
from gatelab.errors import GatelabError, check_seed, unknown_name
from gatelab.feedforward import Activation
from gatelab.linalg.interruptible import apart
from gatelab.linearization.floors import check_spread
from gatelab.linearization.monomials import Maps
from gatelab.memory import check_memory

KINDS = ("naive", "antithetic", "quantile")


def monte_carlo(z: Tensor, samples: int, kind: str = "naive", generator: torch.Generator | None = None) -> Tensor:
    """An estimate of GELU at every z from one set of samples, so that values at different z are not independent.

    >>> z = torch.linspace(-4, 4, 4001, dtype=torch.float64)
    >>> error = (monte_carlo(z, 256, "quantile") - torch.nn.functional.gelu(z)).abs().max()
    >>> round(float(error), 4)
    0.0056
    """
    N = _count(samples, kind)
    if kind == "quantile":
        points = torch.special.ndtri((torch.arange(N, device=z.device, dtype=torch.float64) + 0.5) / N)
    else:
        if generator is None:
            raise GatelabError(
                f"kind {kind!r} draws samples and no generator was given; pass torch.Generator().manual_seed(0)"
            )
        half = N if kind == "naive" else N // 2
        points = torch.randn(half, generator=generator, dtype=torch.float64, device=generator.device).to(z.device)
        if kind == "antithetic":
            points = torch.cat([points, -points])
    below = torch.searchsorted(points.sort().values, z.detach().double().contiguous(), right=True)
    return z * (below.double() / N).to(z.dtype)


def monte_carlo_variance(z: Tensor, samples: int, kind: str = "naive") -> Tensor:
    """The variance of the estimate at z; 0 for the quantile grid, whose error is bias.

    >>> z = torch.linspace(-4, 4, 8001, dtype=torch.float64)
    >>> [round(float(monte_carlo_variance(z, 100, kind).max() * 100), 4) for kind in KINDS]
    [0.1478, 0.1328, 0.0]
    """
    N = _count(samples, kind)
    if kind == "quantile":
        return torch.zeros_like(z)
    p, rest = torch.special.ndtr(-z.abs()), torch.special.ndtr(z.abs())
    each = p * rest if kind == "naive" else p * (rest - p)
    return z.square() * each / N


def build(activation: Activation, d: int, **options: object) -> Maps:
    """Refused: there are no maps to build."""
    raise GatelabError(
        f"monte-carlo estimates the scalar {activation.name}(z) and does not factor into Phi(w) and Psi(x): the "
        "indicator {Z <= w.x} needs w and x together. Use gatelab.linearization.monte_carlo(z, samples, kind, "
        "generator) for scalars, or an unbiased method that factors: 'maclaurin', 'tensorsketch' or 'fourier'"
    )


def _count(samples: int, kind: str) -> int:
    if kind not in KINDS:
        raise unknown_name("kind of Monte Carlo", kind, KINDS)
    if isinstance(samples, bool) or not hasattr(samples, "__index__") or int(samples) < 1:
        raise GatelabError(f"samples is {samples!r}; give a whole number, 1 or more")
    if kind == "antithetic" and int(samples) % 2:
        raise GatelabError(f"samples is {samples}; antithetic samples come in pairs: give an even number")
    return int(samples)


if TYPE_CHECKING:
    from gatelab.linearization.linearizations import Linearization

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
    from gatelab.linearization.floors import floor

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
