"""Gradient descent on a quadratic, direction by direction: eq. 9 of the paper, at any step and without overflow.

In the basis of the kernel's eigenvectors the residual f - y shrinks by (1 - eta lambda) each step, so that

    L_t = 1/2 sum_i w_i (1 - eta lambda_i)^(2t)            w_i = (u_i^T y)^2 + the variance of f_0 along u_i

Powers are exponentials of 2t log|1 - eta lambda|, with log1p where the product is small: t may be any real number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from gatelab.display import one_line
from gatelab.dynamics.inputs import Array
from gatelab.errors import GatelabError
from gatelab.linalg.interruptible import apart

NEGATIVE = 1e-9  # of the largest eigenvalue: a kernel's eigenvalue below minus this is no rounding


def eigen(K: Array, what: str = "K") -> tuple[Array, Array]:
    """Eigenvalues, rising and not negative, and eigenvectors."""
    values, vectors = apart(np.linalg.eigh, K)
    if values[-1] <= 0 or values[0] < -NEGATIVE * values[-1]:
        raise GatelabError(
            f"{what} has eigenvalues from {values[0]:.3g} to {values[-1]:.3g}; "
            "a kernel's are not negative, and not all zero"
        )
    return np.maximum(values, 0.0), vectors


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
        return np.sum(self.projected**2, axis=1)

    @property
    def log_rates(self) -> Array:
        """log|1 - eta lambda|, minus infinity for a direction that one step ends."""
        product = self.lr * self.eigenvalues
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(product < 1, np.log1p(-product), np.log(np.abs(product - 1)))

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
