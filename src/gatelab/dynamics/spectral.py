"""Gradient descent on a quadratic, direction by direction: eq. 9 of the paper, at any step and without overflow.

What every function of this room takes is checked here: kernels, targets, samples, steps, and which loss is meant.

In the basis of the kernel's eigenvectors the residual f - y shrinks by (1 - eta lambda) each step, so that

    L_t = 1/2 sum_i w_i (1 - eta lambda_i)^(2t)            w_i = (u_i^T y)^2 + the variance of f_0 along u_i

Powers are exponentials of 2t log|1 - eta lambda|, with log1p where the product is small: t may be any real number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp

from gatelab.arrays import Array
from gatelab.data.checks import for_numpy
from gatelab.display import one_line
from gatelab.errors import GatelabError, unknown_name, whole_number
from gatelab.interrupts import apart
from gatelab.memory import check_memory

Loss = Literal["sum", "mean"]
SYMMETRIC = 1e-8  # of the largest entry: what rounding may leave
NEGATIVE = 1e-9  # of the largest eigenvalue: a kernel's eigenvalue below minus this is no rounding


def numbers(value: Any, what: str) -> Array:
    """The value as float64, or a message that says what it is instead."""
    array = np.asarray(for_numpy(value, what))
    if array.dtype.kind not in "fiub":
        raise GatelabError(f"{what} is of type {array.dtype}; give real numbers")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise GatelabError(f"{what} holds NaN or infinite values; drop or fill them")
    return array


def kernel_matrix(K: Any, what: str = "K") -> Array:
    """A symmetric matrix of numbers, made exactly symmetric."""
    matrix = numbers(K, what)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise GatelabError(f"{what} has shape {matrix.shape}; give a kernel of n samples, (n, n)")
    # The matrix made symmetric, its eigenvectors, what LAPACK works in, and the covariance in their basis.
    check_memory(7 * matrix.nbytes, f"the dynamics of {len(matrix)} samples", "give a kernel of fewer rows")
    if np.abs(matrix - matrix.T).max() > SYMMETRIC * np.abs(matrix).max():
        raise GatelabError(f"{what} is not symmetric; give a kernel such as gl.ntk.analytic makes")
    return (matrix + matrix.T) / 2


def targets(y: Any, n: int) -> Array:
    """Targets as (n, k), a column an output."""
    array = numbers(y, "y")
    size = np.abs(array).max(initial=0.0)
    if size and not 1e-150 < size < 1e150:
        raise GatelabError(f"y reaches {size:.3g}, whose square is beyond double precision; give it in other units")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or len(array) != n or not array.shape[1]:
        raise GatelabError(f"y has shape {np.shape(y)}; give {n} targets, ({n},) or ({n}, outputs)")
    return array


def samples(X: Any, what: str = "X") -> Array:
    """Samples as (n, d), one row a sample."""
    array = numbers(X, what)
    if array.ndim != 2 or not array.size:
        raise GatelabError(f"{what} has shape {array.shape}; give (n, d), one row a sample")
    return array


def loss_scale(loss: str, n: int) -> float:
    """1 for (1/2)|f - y|^2, 1/n for its mean over the samples. A step on the mean is a step of lr/n on the sum."""
    if loss not in ("sum", "mean"):
        raise unknown_name("loss", str(loss), ("sum", "mean"))
    return {"sum": 1.0, "mean": 1.0 / n}[loss]


def positive(value: Any, what: str) -> float:
    """The value as a positive, finite float."""
    try:
        number = 0.0 if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise GatelabError(f"{what} is {value!r}; give a positive number")
    return number


def seed_numbers(seeds: Any) -> Sequence[int]:
    """A number is that many seeds from 0 on; else the seeds themselves.

    >>> list(seed_numbers(3)), seed_numbers([5, 2])
    ([0, 1, 2], [5, 2])
    """
    if np.ndim(seeds) == 0:
        return range(whole_number("seeds", seeds, 1))
    return [whole_number("a seed", seed, 0) for seed in seeds]


def step_list(steps: Any, n: int) -> Array:
    """An integer is all steps up to it, and 0; else the steps themselves, in their order; for losses of n samples."""
    if np.ndim(steps) == 0:
        last = whole_number("steps", steps, 0)
        check_curve(last + 1, n)
        return np.arange(last + 1, dtype=np.float64)
    array = numbers(steps, "steps")
    check_curve(array.size, n)
    if array.ndim != 1 or not array.size or array.min() < 0:
        raise GatelabError(f"steps is {steps!r}; give a whole number, or a list of steps from 0 on")
    return array


def check_curve(count: int, n: int) -> None:
    """Refuse more steps than fit.

    There are five arrays of a number for each step and sample: powers, their copies, and products with targets.
    """
    check_memory(
        8 * 5 * count * (n + 1), f"a curve of {count} losses of {n} samples", "give fewer steps, or a list of some"
    )


def pair(value: Any, what: str) -> tuple[Any, Any]:
    """One for both units, or one each."""
    if isinstance(value, tuple | list):
        if len(value) != 2:
            raise GatelabError(f"{what} has {len(value)} entries; give one for both units, or two")
        return value[0], value[1]
    return value, value


@dataclass(frozen=True)
class StableStep:
    """Steps of gradient descent.

    `limit` is 2 / lambda_max, beyond which it diverges, and `best` is 2 / (lambda_max + lambda_min), with which the
    slowest direction is as fast as a fixed step can make it. `rate` is the factor by which the residual along the
    slowest direction shrinks with the best step, (kappa - 1) / (kappa + 1).
    """

    limit: float
    best: float
    rate: float
    lambda_max: float
    lambda_min: float

    def __repr__(self) -> str:
        return one_line(self, f"limit {self.limit:.4g}, best {self.best:.4g} with rate {self.rate:.4g}")


def stable_step(K: Any, *, loss: Loss = "sum") -> StableStep:
    """The step sizes that a kernel allows.

    Args:
        K: a tangent kernel, (n, n).
        loss: "sum" for the loss (1/2)|f - y|^2, "mean" for its mean over the samples.

    Returns:
        The largest stable step and the best fixed one.

    >>> step = stable_step([[3.0, 1.0], [1.0, 3.0]])
    >>> step.limit, round(step.best, 3), round(step.rate, 3)
    (0.5, 0.333, 0.333)
    """
    matrix = kernel_matrix(K)
    values, _ = eigen(matrix)
    low, high = float(values[0]), float(values[-1])
    scale = loss_scale(loss, len(matrix))
    return StableStep(
        limit=2 / (high * scale),
        best=2 / ((high + low) * scale),
        rate=(high - low) / (high + low),
        lambda_max=high,
        lambda_min=low,
    )


def eigen(K: Array, what: str = "K") -> tuple[Array, Array]:
    """Eigenvalues, rising and not negative, and eigenvectors."""
    values, vectors = apart(np.linalg.eigh, K)
    if values[-1] <= 0 or values[0] < -NEGATIVE * values[-1]:
        raise GatelabError(
            f"{what} has eigenvalues from {values[0]:.3g} to {values[-1]:.3g}; "
            "a kernel's are not negative, and not all zero"
        )
    return np.maximum(values, 0.0), vectors


def log_factors(product: Array) -> Array:
    """log|1 - eta lambda| of products eta lambda, minus infinity where one step ends the direction."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(product < 1, np.log1p(-product), np.log(np.abs(product - 1)))


def steps_until(eigenvalues: Array, weights: Array, lr: float, shares: Array, *, flow: bool = False) -> Array:
    """After how many steps the loss is down to shares of what it was at the start, when the kernel stays as it is.

    Steps are real numbers, t in (1 - eta lambda)^(2t), and at least one: rounded up they are the whole steps. The loss
    never rises where lr is at most 2 / lambda_max, so that t is found by halving.

    >>> steps_until(np.array([1.0, 2.0]), np.array([1.0, 1.0]), 0.5, np.array([0.5, 0.1, 0.01])).round(3)
    array([1.   , 1.161, 2.822])
    """
    present = weights > 0
    products, parts = lr * eigenvalues[present], weights[present] / weights.sum()
    rates = -products if flow else log_factors(products)
    slowest = float(rates.max())
    if slowest >= 0:
        return np.full(len(shares), np.inf)
    low = middle = np.full(len(shares), 0.0 if flow else 1.0)
    high = np.maximum(np.log(shares) / (2 * slowest), 1.0)
    while (high - low > 1e-10 * high).any():
        enough = np.exp(2 * middle[:, None] * rates) @ parts <= shares
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        middle = (low + high) / 2
    return high


@dataclass(frozen=True, eq=False)
class Spectral:
    """Eigenvalues, the weights of targets and of initial outputs along them, the step, and the loss's scale.

    `projected` are the targets along the eigenvectors, (n, k); `covariance` is that of the initial outputs in the same
    basis, None where the outputs are given.
    """

    eigenvalues: Array
    projected: Array
    outputs: Array
    covariance: Array | None
    lr: float
    scale: float

    def __repr__(self) -> str:
        return one_line(self, f"{len(self.eigenvalues)} eigenvalues, lr {self.lr:.3g}")

    @property
    def targets(self) -> Array:
        """The squares of the targets along the eigenvectors, summed over the outputs."""
        return np.sum(self.projected**2, axis=1)

    @property
    def signal(self) -> float:
        """y^T K y."""
        return float(self.eigenvalues @ self.targets)

    @property
    def spread(self) -> float:
        """tr K^2."""
        return float(np.sum(self.eigenvalues**2))

    @property
    def slowest_factor(self) -> float:
        """|1 - eta lambda_min|."""
        return abs(1 - self.lr * float(self.eigenvalues[0]))

    @property
    def slowest_weight(self) -> float:
        """The weight of the direction of lambda_min at the start."""
        weights: Array = self.targets + self.outputs
        return float(weights[0])

    @property
    def pace(self) -> float:
        """-log of the slowest rate; directions of eigenvalue 0 never go, and count for nothing."""
        rates = self.log_rates[self.eigenvalues > 1e-12 * self.eigenvalues[-1]]
        return float(-rates.max())

    @property
    def log_rates(self) -> Array:
        """log|1 - eta lambda|, minus infinity for a direction that one step ends."""
        return log_factors(self.lr * self.eigenvalues)

    def decay(self, steps: Array) -> Array:
        """(1 - eta lambda_i)^(2t), (steps, directions); infinite where it overflows."""
        with np.errstate(invalid="ignore", over="ignore"):
            powers = np.exp(2 * steps[:, None] * self.log_rates)
        return np.where(steps[:, None] == 0, 1.0, powers)

    def log_loss(self, steps: Array) -> Array:
        """log L_t, also where L_t is too small for float64 to hold."""
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = np.log(0.5 * self.scale * np.maximum(self.targets + self.outputs, 0.0))
            exponents = np.where(steps[:, None] == 0, 0.0, 2 * steps[:, None] * self.log_rates)
        return np.asarray(logsumexp(exponents + weights, axis=1))

    def deviation(self, steps: Array) -> Array | None:
        """Of L = 1/2 (f_0 - y)^T M (f_0 - y), f_0 Gaussian: Var L = 1/2 tr((M N)^2) + y^T M N M y, output by output."""
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
