"""The error of a linearization: RMSE with an interval, maximum, and the floor for its number of features."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gatelab.display import one_line
from gatelab.errors import GatelabError, check_seed, unknown_name, whole_number
from gatelab.interrupts import apart
from gatelab.linearization.floors import check_spread, floor
from gatelab.memory import check_memory
from gatelab.statistics import LEVEL, Interval, percentile_interval, resampled

if TYPE_CHECKING:
    from gatelab.linearization.linearizations import Linearization

DISTRIBUTIONS = {"gaussian": "normal", "sphere": "sphere"}  # and their names in `floors`
DRAWS = 1000
GROUPS = 256
SVD_SIDE = 2048  # the largest matrix of given weights and inputs whose floor is computed
PART = 2**22
PAIRS, FEATURES = 2**16, 2**28  # the default number of pairs, and the most features of all pairs together


@dataclass(frozen=True)
class Error:
    """The error of a linearization.

    Attributes:
        rmse: the root mean square error.
        low: the lower end of its bootstrap interval.
        high: the upper end, at least the floor of the distribution.
        maximum: the largest error over the sampled pairs.
        relative: the RMSE divided by the root mean square of the exact values.
        floor: the smallest possible RMSE of any maps of m features, on the distribution or on the given W and X (by
            their singular values); None if unknown.
        m: the number of features.
        d: the number of inputs.
        pairs: the number of sampled pairs (w, x).
        level: the confidence of the interval.
    """

    rmse: float
    low: float
    high: float
    maximum: float
    relative: float
    floor: float | None
    m: int
    d: int
    pairs: int
    level: float = LEVEL

    def __repr__(self) -> str:
        return one_line(self, str(self))

    def __str__(self) -> str:
        text = f"RMSE {self.rmse:.3g} [{self.low:.3g}, {self.high:.3g}], maximum {self.maximum:.3g}, m = {self.m}"
        if self.floor is not None:
            text += f", floor {self.floor:.3g}"
        if self.remark:
            text += f"; {self.remark}"
        return text

    @property
    def remark(self) -> str:
        """An explanation of an RMSE above the size of the activation or below the floor; empty for others."""
        if self.relative > 1:
            return f"{self.relative:.2g} times the size of the activation itself: give a wider interval, or use hermite"
        if self.floor is not None and self.rmse < self.floor:
            return "below the floor by chance in the sampled pairs"
        return ""


def measure(
    linearization: Linearization,
    distribution: str = "gaussian",
    *,
    d: int | None = None,
    W: Any = None,
    X: Tensor | None = None,
    w_scale: float = 1.0,
    x_scale: float = 1.0,
    samples: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Error:
    """The error on random pairs (w, x) of a distribution, or on all pairs of rows of W and X if both are given."""
    if (W is None) != (X is None):
        raise GatelabError("one of W and X is given; give both, or a distribution for both")
    if X is not None:
        return _on_data(linearization, W, X, seed)
    if distribution not in DISTRIBUTIONS:
        raise unknown_name("distribution", distribution, DISTRIBUTIONS)
    if d is None:
        d = linearization.d
    if d is None:
        raise GatelabError("the number of inputs is not known; give d=..., here or to linearize")
    scales = check_spread(w_scale, "w_scale"), check_spread(x_scale, "x_scale")
    m = features = linearization.features(d).m
    if linearization.polynomial is not None:
        features = 1
    if samples is None:
        samples = max(GROUPS, min(PAIRS, FEATURES // features))
    samples = whole_number("samples", samples, GROUPS, of="pairs")
    part = samples if features == 1 else max(1, min(samples, PART // features))
    needed = 8 * 4 * part * (linearization.factors + 2) * d + 8 * 8 * samples
    check_memory(needed, f"the error on {samples} pairs of {d} inputs", "give fewer samples, or a smaller d")
    generator = torch.Generator().manual_seed(check_seed(seed))

    def rows(n: int, scale: float) -> Tensor:
        v = torch.randn(n, d, generator=generator, dtype=torch.float64)
        if distribution == "sphere":
            v = v / v.norm(dim=1, keepdim=True)
        return scale * v

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, samples, part):
            n = min(part, samples - start)
            weights = [rows(n, scales[0]) for _ in range(linearization.factors + 1)]
            x = rows(n, scales[1])
            z, *others = ((w * x).sum(1) for w in weights)
            exact = linearization.activation(z) * math.prod(others)
            if linearization.polynomial is None:
                yield exact, (linearization.phi(weights) * linearization.psi(x)).sum(1)
            else:
                yield exact, linearization.polynomial(z) * math.prod(others)
            if progress:
                progress(start + n, samples)

    least = None
    if not linearization.factors:
        kinds = dict.fromkeys(("w_distribution", "x_distribution"), DISTRIBUTIONS[distribution])
        with suppress(GatelabError):  # rounding may hide it
            least = floor(linearization.activation, d, m, *scales, **kinds)
    error = _error(pairs(), seed, m=m, d=d, floor=least)
    # True errors are at least the floor, so the coverage stays the same.
    return replace(error, high=max(error.high, least or 0.0))


def _error(parts: Iterable[tuple[Tensor, Tensor]], seed: int, **about: Any) -> Error:
    """The error from parts (exact, approximate), each a row of pairs or a table with one row per input."""
    squares, largest, energy, pairs = [], 0.0, 0.0, 0
    with torch.no_grad():
        for exact, approximate in parts:
            gap = (exact - approximate).double()
            squares.append(gap.square().reshape(len(gap), -1).mean(1).cpu())
            largest, energy = max(largest, float(gap.abs().max())), energy + float(exact.double().square().sum())
            pairs += gap.numel()
    each = torch.cat(squares)
    rmse = float(each.mean().sqrt())
    ends = _bootstrap(rmse, each.numpy(), seed)
    return Error(
        rmse=rmse,
        low=ends.low,
        high=ends.high,
        maximum=largest,
        relative=rmse / float(np.sqrt(energy / pairs)) if energy else float("nan"),
        pairs=pairs,
        **about,
    )


def _on_data(linearization: Linearization, W: Any, X: Tensor, seed: int) -> Error:
    """The error on all pairs of rows of W and X."""
    parts = [W] if isinstance(W, Tensor) else list(W)
    if X.ndim != 2 or any(p.ndim != 2 for p in parts) or not len(X) or not len(parts[0]):
        raise GatelabError(f"X is of shape {tuple(X.shape)}; give rows of inputs (N, d) and of weights (n, d)")
    n, (N, d) = len(parts[0]), X.shape
    m, least = linearization.features(d).m, None
    with torch.no_grad():
        if min(n, N) <= SVD_SIDE:
            # The error of the best approximation of act(X W^T) of rank m is a lower bound for all maps of m features.
            table = linearization.exact(W, X).double()
            gram = table.T @ table if n <= N else table @ table.T
            energies = apart(torch.linalg.eigvalsh, gram).flip(0).clamp_min(0)
            least = float((energies[m:].sum() / table.numel()).sqrt())
    pieces = X.split(max(1, PART // n))
    tables = ((linearization.exact(W, piece), linearization.product(W, piece)) for piece in pieces)
    return _error(tables, seed, m=m, d=d, floor=least)


def _bootstrap(rmse: float, squares: np.ndarray, seed: int) -> Interval:
    """A studentized bootstrap interval of the RMSE over groups of neighbors, since squared errors are skewed."""
    groups = np.array([g.mean() for g in np.array_split(squares, min(GROUPS, len(squares)))])
    rows = resampled(len(groups), DRAWS, np.random.default_rng(check_seed(seed)))
    means, spreads = groups[rows].mean(1), groups[rows].std(1)
    if not (spreads > 0).all():  # few or equal groups
        return percentile_interval(rmse, np.sqrt(means))
    far, near = np.quantile((means - groups.mean()) / spreads, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) * groups.std()
    low, high = np.sqrt(np.maximum(groups.mean() - [near, far], 0.0))
    return Interval(rmse, float(low), float(high))
