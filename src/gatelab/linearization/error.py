"""How far a linearisation is off: RMSE and maximum, with intervals, beside the least that so many features allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gatelab.display import one_line
from gatelab.errors import GatelabError, check_seed, unknown_name, whole_number
from gatelab.interrupts import apart
from gatelab.linearization.floors import check_spread, floor
from gatelab.linearization.monomials import real
from gatelab.memory import check_memory
from gatelab.statistics import Interval, percentile_interval, resampled

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
    """How far a linearisation is off.

    Attributes:
        rmse: the root mean square error.
        low: the lower end of its bootstrap interval.
        high: the upper end, and at least the floor of the distribution, which no maps pass.
        maximum: the largest error of all pairs that were looked at.
        exceeding: with confidence `level` no more than this share of all pairs has an error above the maximum.
        relative: the RMSE over the root mean square of what is approximated.
        floor: the least RMSE that any maps of m features can have, on the distribution or on the given W and X (by
            their singular values); None where it is not known.
        m: the number of features.
        d: the number of inputs.
        pairs: how many pairs (w, x) were looked at.
        level: the confidence of the interval and of `exceeding`.
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
        text = f"RMSE {self.rmse:.3g} [{self.low:.3g}, {self.high:.3g}], maximum {self.maximum:.3g}, m = {self.m}"
        if self.floor is not None:
            text += f", floor {self.floor:.3g}"
        if self.remark:
            text += f"; {self.remark}"
        return text

    @property
    def remark(self) -> str:
        """What to make of an RMSE that looks wrong, one beyond the size of the activation or below the floor."""
        if self.relative > 1:
            return (
                f"{self.relative:.2g} times the size of the activation itself, so 0 would be nearer: w.x leaves the "
                "range that the maps hold on; give a wider interval or smaller scales, or take hermite or optimal"
            )
        if self.floor is not None and self.rmse < self.floor:
            return "below the floor by chance in the pairs that were drawn: no maps are on average"
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
    level: float = LEVEL,
    progress: Callable[[int, int], None] | None = None,
) -> Error:
    """On fresh pairs (w, x) of a distribution, or on all pairs of rows of W and X where both are given."""
    if not 0 < level < 1:
        raise GatelabError(f"level is {level!r}; give a confidence between 0 and 1")
    if (W is None) != (X is None):
        raise GatelabError("one of W and X is given; give both, or a distribution for both")
    if X is not None:
        return _on_data(linearization, W, X, level, seed)
    if distribution not in DISTRIBUTIONS:
        raise unknown_name("distribution", distribution, DISTRIBUTIONS)
    if d is None:
        d = linearization.d
    if d is None:
        raise GatelabError("the number of inputs is not known; give d=..., here or to linearize")
    if samples is None:
        many = 1
        if linearization.polynomial is None:
            many = linearization.features(d).m
        samples = max(GROUPS, min(PAIRS, FEATURES // many))
    samples = whole_number("samples", samples, GROUPS, of="pairs")
    pairs = RandomPairs(
        linearization=linearization,
        sphere=distribution == "sphere",
        d=d,
        w_scale=check_spread(w_scale, "w_scale"),
        x_scale=check_spread(x_scale, "x_scale"),
        generator=torch.Generator().manual_seed(check_seed(seed)),
    )
    return pairs.error(samples, seed, level, progress)


@dataclass(frozen=True)
class RandomPairs:
    """Pairs (w, x) of a distribution, drawn as they are asked for; of a gated unit w is several rows."""

    linearization: Linearization
    sphere: bool
    d: int
    w_scale: float
    x_scale: float
    generator: torch.Generator

    def rows(self, n: int, scale: float) -> Tensor:
        """n random rows, normal or on a sphere."""
        v = torch.randn(n, self.d, generator=self.generator, dtype=torch.float64)
        if self.sphere:
            v = v / v.norm(dim=1, keepdim=True)
        return scale * v

    def error(self, samples: int, seed: int, level: float, progress: Callable[[int, int], None] | None) -> Error:
        """The error on so many pairs, some of them at a time."""
        maps, factors = self.linearization.features(self.d), self.linearization.factors
        part = samples
        if self.linearization.polynomial is None:
            part = max(1, min(samples, PART // maps.m))
        check_memory(
            8 * 4 * part * (factors + 2) * self.d + 8 * 8 * samples,
            f"the error on {samples} pairs of {self.d} inputs",
            "give fewer samples, or a smaller d",
        )
        squares, largest, energy = [], 0.0, 0.0
        for start in range(0, samples, part):
            n = min(part, samples - start)
            weights = [self.rows(n, self.w_scale) for _ in range(factors + 1)]
            exact, approximate = both_sides(self.linearization, weights, self.rows(n, self.x_scale))
            gap = exact - approximate
            squares.append(gap.square())
            largest, energy = max(largest, float(gap.abs().max())), energy + float(exact.square().sum())
            if progress:
                progress(start + n, samples)
        rmse = float(torch.cat(squares).mean().sqrt())
        ends = _bootstrap(rmse, torch.cat(squares).numpy(), level, seed)
        least = self.floor(maps.m)
        return Error(
            rmse=rmse,
            low=ends.low,
            high=max(ends.high, least or 0.0),  # true errors are at the floor or above: this loses no coverage
            maximum=largest,
            exceeding=1 - (1 - level) ** (1 / samples),
            relative=rmse / float(np.sqrt(energy / samples)),
            floor=least,
            m=maps.m,
            d=self.d,
            pairs=samples,
            level=level,
        )

    def floor(self, m: int) -> float | None:
        """The floor of m features; None of gated units, and where it is below what can be told from 0."""
        if self.linearization.factors:
            return None
        rows = DISTRIBUTIONS["sphere" if self.sphere else "gaussian"]
        try:
            return floor(
                self.linearization.activation,
                self.d,
                m,
                self.w_scale,
                self.x_scale,
                w_distribution=rows,
                x_distribution=rows,
            )
        except GatelabError:
            return None


def drawn_pairs(linearization: Linearization, d: int, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """What is approximated and by what, of `count` pairs of standard normal w and x."""
    draw = torch.Generator().manual_seed(seed)
    factors = linearization.factors
    x, *weights = (torch.randn(count, d, generator=draw, dtype=torch.float64) for _ in range(factors + 2))
    with torch.no_grad():
        exact, approximate = both_sides(linearization, weights, x)
    return exact.numpy(), approximate.numpy()


def both_sides(linearization: Linearization, weights: list[Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """act(w_i.x_i) and phi(w_i) . psi(x_i), of a polynomial without the features."""
    z, *others = ((w * x).sum(1) for w in weights)
    exact = linearization.activation(z)
    if linearization.polynomial is None:
        approximate = real((linearization.phi(weights) * linearization.psi(x)).sum(1))
    else:
        approximate = linearization.polynomial(z)
        for u in others:
            approximate = approximate * u
    for u in others:
        exact = exact * u
    return exact, approximate


def _on_data(linearization: Linearization, W: Any, X: Tensor, level: float, seed: int) -> Error:
    """The error on all pairs of rows of W and X."""
    parts = [W] if isinstance(W, Tensor) else list(W)
    if X.ndim != 2 or any(p.ndim != 2 for p in parts) or not len(X) or not len(parts[0]):
        raise GatelabError(f"X is of shape {tuple(X.shape)}; give rows of inputs (N, d) and of weights (n, d)")
    n, (N, d) = len(parts[0]), X.shape
    m = linearization.features(d).m
    step = max(1, PART // n)
    per_input, largest, energy, least = [], 0.0, 0.0, None
    with torch.no_grad():
        for i in range(0, N, step):
            exact = linearization.exact(W, X[i : i + step])
            gap = (exact - linearization.product(W, X[i : i + step])).double()
            per_input.append(gap.square().mean(1).cpu())
            largest = max(largest, float(gap.abs().max()))
            energy += float(exact.double().square().sum())
        if min(n, N) <= SVD_SIDE:
            # What the best matrix of rank m leaves of act(X W^T): no maps of m features can leave less on these rows.
            table = linearization.exact(W, X).double()
            gram = table.T @ table if n <= N else table @ table.T
            energies = apart(torch.linalg.eigvalsh, gram).flip(0).clamp_min(0)
            least = float((energies[m:].sum() / table.numel()).sqrt())
    squares = torch.cat(per_input).numpy()
    rmse = float(np.sqrt(squares.mean()))
    ends = _bootstrap(rmse, squares, level, seed)
    return Error(
        rmse=rmse,
        low=ends.low,
        high=ends.high,
        maximum=largest,
        exceeding=1 - (1 - level) ** (1 / N),  # pairs of one input go together: it is inputs that are drawn
        relative=rmse / float(np.sqrt(energy / (n * N))) if energy else float("nan"),
        floor=least,
        m=m,
        d=d,
        pairs=n * N,
        level=level,
    )


def _bootstrap(rmse: float, squares: np.ndarray, level: float, seed: int) -> Interval:
    """The interval of the root of their mean: groups of neighbors are drawn again, as whole ones, and studentized.

    Squares of errors are skewed, and percentiles of their means end too low: where 12 % of those intervals lie below
    the true error (2048 pairs, d = 2), 6 % of these do.
    """
    groups = np.array([g.mean() for g in np.array_split(squares, min(GROUPS, len(squares)))])
    rows = resampled(len(groups), DRAWS, np.random.default_rng(check_seed(seed)))
    means, spreads = groups[rows].mean(1), groups[rows].std(1)
    if not (spreads > 0).all():  # few groups, or equal ones
        return percentile_interval(rmse, np.sqrt(means), level)
    far, near = np.quantile((means - groups.mean()) / spreads, [(1 - level) / 2, (1 + level) / 2]) * groups.std()
    low, high = np.sqrt(np.maximum(groups.mean() - [near, far], 0.0))
    return Interval(rmse, float(low), float(high), level)
