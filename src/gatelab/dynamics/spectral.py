"""Gradient descent on a quadratic, by eigendirection: eq. 9 of the paper, at any step and without overflow.

In the basis of the kernel's eigenvectors the residual f - y is multiplied by (1 - eta lambda) in each step, so that

    L_t = 1/2 sum_i w_i (1 - eta lambda_i)^(2t)            w_i = (u_i^T y)^2 + the variance of f_0 along u_i

Powers are exponentials of 2t log|1 - eta lambda|, so that t may be any real number. This module also checks the common
arguments of the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp

from gatelab.arrays import Array, finite_array
from gatelab.display import Compact
from gatelab.errors import GatelabError, unknown_name, whole_number
from gatelab.interrupts import apart
from gatelab.memory import check_memory
from gatelab.ntk.kernels import checked_samples
from gatelab.ntk.spectra import symmetric_matrix

Loss = Literal["sum", "mean"]
NEGATIVE = 1e-9  # the largest negative eigenvalue due to rounding, relative to the largest eigenvalue


def kernel_matrix(K: Any, what: str = "K") -> Array:
    """A symmetric matrix as an array."""
    matrix = symmetric_matrix(K, what).cpu().numpy()
    # The symmetric matrix, its eigenvectors, LAPACK's workspace, and the covariance in their basis.
    check_memory([matrix.shape] * 7, f"the dynamics of {len(matrix)} samples", "give a kernel of fewer rows")
    return matrix


def targets(y: Any, n: int) -> Array:
    """Targets as (n, k), one column per output."""
    array = finite_array("y", y)
    size = np.abs(array).max(initial=0.0)
    if size and not 1e-150 < size < 1e150:
        raise GatelabError(f"y reaches {size:.3g}, whose square is not in double precision; give it in other units")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or len(array) != n or not array.shape[1]:
        raise GatelabError(f"y has shape {np.shape(y)}; give {n} targets, ({n},) or ({n}, outputs)")
    return array


def samples(X: Any) -> Array:
    """Samples as (n, d), one row per sample."""
    return checked_samples(X).cpu().numpy()


def loss_scale(loss: str, n: int) -> float:
    """1 for (1/2)|f - y|^2, 1/n for its mean over the samples. A step on the mean is a step of lr/n on the sum."""
    scales = {"sum": 1.0, "mean": 1.0 / n}
    if loss not in scales:
        raise unknown_name("loss", str(loss), scales)
    return scales[loss]


def seed_numbers(seeds: Any) -> Sequence[int]:
    """The first seeds from 0 for a number, which may be too large for a list, otherwise the given seeds."""
    if np.ndim(seeds) == 0:
        return range(whole_number("seeds", seeds, 1))
    return [whole_number("a seed", seed, 0) for seed in seeds]


def step_list(steps: Any, n: int) -> Array:
    """All steps from 0 to a number, otherwise the given steps; for losses of n samples."""
    every = np.ndim(steps) == 0
    array = np.empty(0) if every else finite_array("steps", steps)
    count = whole_number("steps", steps, 0) + 1 if every else array.size
    # Powers, their copies, and products with targets.
    check_memory([(count, n + 1)] * 5, f"a curve of {count} losses of {n} samples", "give fewer steps")
    if every:
        return np.arange(count, dtype=np.float64)
    if array.ndim != 1 or not array.size or array.min() < 0:
        raise GatelabError(f"steps is {steps!r}; give a whole number, or a list of steps that are not negative")
    return array


@dataclass(frozen=True)
class StableStep(Compact):
    """Learning rates: gradient descent diverges above `limit`, 2 / lambda_max, and converges fastest at `best`.

    `best` is 2 / (lambda_max + lambda_min), and `rate`, (kappa - 1) / (kappa + 1), its factor of the residual per step.
    """

    limit: float
    best: float
    rate: float
    lambda_max: float
    lambda_min: float


def stable_step(K: Any, *, loss: Loss = "sum") -> StableStep:
    """The learning rates for a kernel.

    Args:
        K: a tangent kernel, (n, n).
        loss: "sum" for the loss (1/2)|f - y|^2, "mean" for its mean over the samples.

    Returns:
        The largest stable learning rate and the best one.

    >>> step = stable_step([[3.0, 1.0], [1.0, 3.0]])
    >>> step.limit, round(step.best, 3), round(step.rate, 3)
    (0.5, 0.333, 0.333)
    """
    matrix = kernel_matrix(K)
    values, _ = eigen(matrix)
    low, high = float(values[0]), float(values[-1])
    scale = loss_scale(loss, len(matrix))
    return StableStep(2 / (high * scale), 2 / ((high + low) * scale), (high - low) / (high + low), high, low)


def eigen(K: Array, what: str = "K") -> tuple[Array, Array]:
    """Eigenvalues, increasing and not negative, and eigenvectors."""
    values, vectors = apart(np.linalg.eigh, K)
    if values[-1] <= 0 or values[0] < -NEGATIVE * values[-1]:
        raise GatelabError(f"{what} has eigenvalues from {values[0]:.3g} to {values[-1]:.3g}; give a kernel")
    return np.maximum(values, 0.0), vectors


def log_factors(product: Array) -> Array:
    """log|1 - eta lambda| of products eta lambda, minus infinity if the product is 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(product < 1, np.log1p(-product), np.log(np.abs(product - 1)))


def steps_until(eigenvalues: Array, weights: Array, lr: float, shares: Array) -> Array:
    """The real number of steps, at least one, until the loss is a share of its initial value, for lr <= 2 / lambda_max.

    >>> steps_until(np.array([1.0, 2.0]), np.array([1.0, 1.0]), 0.5, np.array([0.5, 0.1, 0.01])).round(3)
    array([1.   , 1.161, 2.822])
    """
    present = weights > 0
    rates, parts = log_factors(lr * eigenvalues[present]), weights[present] / weights.sum()
    slowest = float(rates.max())
    if slowest >= 0:
        return np.full(len(shares), np.inf)
    low = middle = np.ones(len(shares))
    high = np.maximum(np.log(shares) / (2 * slowest), 1.0)
    while (high - low > 1e-10 * high).any():
        enough = np.exp(2 * middle[:, None] * rates) @ parts <= shares
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        middle = (low + high) / 2
    return high


@dataclass(frozen=True, eq=False)
class Spectral(Compact):
    """The eigenvalues, the targets and initial outputs in the eigenbasis, the learning rate, and the scale of the loss.

    `projected` are the targets, (n, k); `outputs` the variances of the initial outputs, and `covariance` their
    covariance, None if the outputs are given.
    """

    eigenvalues: Array
    projected: Array
    outputs: Array
    covariance: Array | None
    lr: float
    scale: float

    @property
    def targets(self) -> Array:
        """The squared targets along the eigenvectors, summed over the outputs."""
        return np.sum(self.projected**2, axis=1)

    @property
    def log_rates(self) -> Array:
        """log|1 - eta lambda|."""
        return log_factors(self.lr * self.eigenvalues)

    def decay(self, steps: Array) -> Array:
        """(1 - eta lambda_i)^(2t), (steps, directions)."""
        with np.errstate(invalid="ignore", over="ignore"):
            powers = np.exp(2 * steps[:, None] * self.log_rates)
        return np.where(steps[:, None] == 0, 1.0, powers)

    def log_loss(self, steps: Array) -> Array:
        """log L_t, also where L_t underflows."""
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = np.log(0.5 * self.scale * np.maximum(self.targets + self.outputs, 0.0))
            exponents = np.where(steps[:, None] == 0, 0.0, 2 * steps[:, None] * self.log_rates)
        return np.asarray(logsumexp(exponents + weights, axis=1))

    def loss(self, step: float) -> float:
        """L_t at one step."""
        return float(np.exp(self.log_loss(np.array([step]))[0]))

    def deviation(self, steps: Array) -> Array | None:
        """Of L = 1/2 (f_0 - y)^T M (f_0 - y): per output Var L = 1/2 tr((M N)^2) + y^T M N M y."""
        if self.covariance is None:
            return None
        decay = self.decay(steps)
        with np.errstate(invalid="ignore", over="ignore"):
            # M is diagonal here: tr((M N)^2) = sum_ij M_i M_j N_ij^2.
            spread = 0.5 * self.projected.shape[1] * np.sum((decay @ self.covariance**2) * decay, axis=1)
            for column in self.projected.T:
                moved = decay * column
                spread = spread + np.sum((moved @ self.covariance) * moved, axis=1)
        return self.scale * np.sqrt(np.maximum(spread, 0.0))
