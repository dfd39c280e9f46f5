"""The expected loss of gradient descent in the kernel regime (proposition 4.1), with its parts.

Full-batch gradient descent with step eta on (1/2)|f - y|^2 and a constant kernel K gives, over initial outputs f_0 of
mean 0 and covariance NNGP,

    E L_t = 1/2 [ y^T (I - eta K)^(2t) y + tr( NNGP (I - eta K)^(2t) ) ]

The first part is the bias, the second the variance. The paper takes NNGP = K / m, with a relative error d/m for width
m. At finite width the kernel is random, which raises the mean loss; `finite_width_loss` averages over kernels.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gatelab.arrays import Array, finite_array
from gatelab.display import Compact, ProgressLike, reporting
from gatelab.dynamics.networks import draw, neuron_partials
from gatelab.dynamics.spectral import (
    Loss,
    Spectral,
    eigen,
    kernel_matrix,
    loss_scale,
    samples,
    seed_numbers,
    step_list,
    targets,
)
from gatelab.errors import GatelabError, real_number
from gatelab.feedforward.definition import check_width
from gatelab.feedforward.registry import product_unit


@dataclass(frozen=True, eq=False)
class Trajectory(Compact):
    """The expected loss at every step: `loss` = `bias` + `variance`, for the learning rate `lr`.

    `deviation` is the standard deviation of one network's loss over initializations with Gaussian outputs, None if the
    outputs were given. `stable` is whether the learning rate is at most `limit`, 2 / lambda_max; above it the loss
    grows without bound.
    """

    steps: Array
    loss: Array
    bias: Array = field(repr=False)
    variance: Array = field(repr=False)
    deviation: Array | None = field(repr=False)
    lr: float
    label: str
    stable: bool
    spectral: Spectral = field(repr=False)

    @property
    def limit(self) -> float:
        """The largest stable learning rate: 2 / lambda_max, for the chosen loss."""
        return float(2 / self.spectral.eigenvalues[-1] / self.spectral.scale)

    @property
    def eigenvalues(self) -> Array:
        """The eigenvalues of the kernel, in increasing order."""
        return self.spectral.eigenvalues

    def at(self, steps: Any) -> Trajectory:
        """The trajectory at other steps."""
        return trajectory(self.spectral, step_list(steps, len(self.eigenvalues)), self.lr, self.label)

    def table(self) -> pd.DataFrame:
        """A table with one row per step."""
        columns = {"step": self.steps, "loss": self.loss, "bias": self.bias, "variance": self.variance}
        if self.deviation is not None:
            columns["deviation"] = self.deviation
        return pd.DataFrame(columns)


def expected_loss(
    K: Any,
    y: Any,
    width: int | None = None,
    lr: float | None = None,
    steps: Any = 100,
    *,
    nngp: Any = None,
    start: Any = None,
    loss: Loss = "sum",
) -> Trajectory:
    """E L_t of gradient descent with kernel K and targets y. Warns if the loss grows without bound.

    Args:
        K: a tangent kernel (`gl.ntk.analytic(unit, X, width)`), (n, n).
        y: the targets, (n,) or (n, outputs).
        width: by default the width of the kernel; without `nngp` and `start`, NNGP is K / width as in the paper.
        lr: the learning rate, by default half of 2 / lambda_max.
        steps: the last step, for all steps from 0, or a list of steps.
        nngp: the exact covariance of the initial outputs.
        start: the initial outputs of one or more networks, (n,), (n, outputs) or (networks, n, outputs), for the mean
            loss of these networks.
        loss: "sum", or "mean" to divide loss and gradient by n.

    Returns:
        The loss at these steps, with its parts.

    >>> curve = expected_loss([[2.0, 0.0], [0.0, 1.0]], [1.0, 1.0], width=10, lr=0.5, steps=2)
    >>> curve.loss                              # one step ends the first direction
    array([1.15    , 0.1375  , 0.034375])
    >>> curve.bias
    array([1.     , 0.125  , 0.03125])
    """
    matrix = kernel_matrix(K)
    n = len(matrix)
    Y = targets(y, n)
    scale = loss_scale(loss, n)
    values, vectors = eigen(matrix)
    step = 1 / values[-1] / scale if lr is None else real_number("lr", lr, above=0)
    places = step_list(steps, n)
    projected = vectors.T @ Y
    if start is not None:
        covariance = None
        outputs = start_weights(vectors, Y, start) - np.sum(projected**2, axis=1)
    else:
        covariance = output_covariance(K, values, vectors, width, nngp)
        outputs = Y.shape[1] * np.diagonal(covariance)
    spectral = Spectral(values, projected, outputs, covariance, step * scale, scale)
    curve = trajectory(spectral, places, step, getattr(K, "label", "kernel"))
    if not curve.stable:
        above = f"lr is {step:.3g}, above 2 / lambda_max = {curve.limit:.3g} of {curve.label}"
        warnings.warn(f"{above}: the loss grows without bound; give a smaller lr", UserWarning, stacklevel=2)
    return curve


def trajectory(s: Spectral, steps: Array, lr: float, label: str) -> Trajectory:
    """The loss and its parts at these steps."""
    decay = s.decay(steps)

    def weighted(weights: Array) -> Array:
        """decay @ weights, with 0 times infinity = 0: directions without weight may diverge."""
        present = weights != 0
        with np.errstate(invalid="ignore", over="ignore"):
            return decay[:, present] @ weights[present]

    bias, variance = (weighted(0.5 * s.scale * weights) for weights in (s.targets, s.outputs))
    stable = bool(s.lr * s.eigenvalues[-1] <= 2)
    with np.errstate(invalid="ignore", over="ignore"):
        # The two parts may be infinite with different signs; the logarithm of their sum is still known.
        loss = bias + variance if stable else np.exp(s.log_loss(steps))
    return Trajectory(steps, loss, bias, variance, s.deviation(steps), lr=lr, label=label, stable=stable, spectral=s)


def output_covariance(K: Any, values: Array, vectors: Array, width: int | None, nngp: Any) -> Array:
    """The covariance of one initial output in the basis of the kernel's eigenvectors."""
    if nngp is not None:
        matrix = kernel_matrix(nngp, "nngp")
        if len(matrix) != len(values):
            raise GatelabError(f"nngp has {len(matrix)} samples and K {len(values)}; give kernels of the same rows")
        return vectors.T @ matrix @ vectors
    if width is None:
        width = getattr(K, "width", None)
    if width is None:
        raise GatelabError("the size of the initial outputs is unknown; give width, nngp or start")
    return np.diag(values / check_width(width))


def start_weights(vectors: Array, Y: Array, start: Any) -> Array:
    """The squared initial residuals along each eigenvector, averaged over networks."""
    f = finite_array("start", start)
    if f.ndim in (1, 2):
        f = f.reshape(1, len(f), f.size // max(len(f), 1))
    if f.ndim != 3 or f.shape[1:] != Y.shape:
        raise GatelabError(f"start has shape {np.shape(start)}; give {Y.shape}, or a stack of these")
    return np.mean(np.sum((vectors.T @ (f - Y)) ** 2, axis=2), axis=0)


@dataclass(frozen=True, eq=False)
class FiniteWidth(Compact):
    """The mean `loss` over networks, its standard `error`, and the loss of `each`, (networks, steps)."""

    steps: Array
    loss: Array
    error: Array
    each: Array


def finite_width_loss(
    unit: Any,
    X: Any,
    y: Any,
    width: int,
    lr: float,
    steps: Any = 100,
    *,
    seeds: int | Sequence[int] = 32,
    given_start: bool = False,
    progress: ProgressLike = None,
) -> FiniteWidth:
    """The loss of linearized networks of finite width; only the change of the kernel during training is neglected.

    The networks are those of `train` with the same seeds. A kernel of n samples and k outputs has n k rows.

    Args:
        unit: a unit, not a class.
        X: the samples, (n, d).
        y: the targets, (n,) or (n, outputs).
        width: the number of neurons.
        lr: the learning rate.
        steps: the last step, for all steps from 0, or a list of steps.
        seeds: the number of networks, or a list of seeds.
        given_start: start each network from its initial outputs, so that `each` predicts the loss of that network;
            otherwise average over the signs of the output weights.
        progress: False for none, or a function of (done, total); see `gatelab.display`.

    Returns:
        The mean loss over the networks, its standard error, and the loss of each.

    >>> X = np.random.default_rng(0).standard_normal((20, 10))
    >>> curve = finite_width_loss("glu", X, X[:, 0], width=500, lr=1e-3, steps=[0, 10], seeds=8)
    >>> bool(curve.loss[1] < curve.loss[0]), curve.each.shape
    (True, (8, 2))
    """
    known = product_unit(unit)
    x = samples(X)
    Y = targets(y, len(x))
    eta, places = real_number("lr", lr, above=0), step_list(steps, Y.size)
    width = check_width(width)
    which = seed_numbers(seeds)
    rows = torch.from_numpy(x)
    losses = []
    with reporting(progress, f"linearized networks of {known.name}") as report:
        for count, seed in enumerate(which, 1):
            maps, V = draw(known, width, x.shape[1], Y.shape[1], seed, x.shape[1])
            H, S = neuron_partials(known, maps @ rows.T)
            values, vectors = eigen(own_kernel(H, S, V, rows).numpy(), "the kernel of a network")
            if given_start:
                target, outputs = (V @ H).numpy().ravel() - Y.T.ravel(), np.zeros(len(values))
            else:
                # sum_i V_ai V_bi h_i h_i^T, for all outputs
                F = (V[:, :, None] * H).permute(1, 0, 2).reshape(H.shape[0], -1).numpy()
                target, outputs = Y.T.ravel(), np.sum((F @ vectors) ** 2, axis=0)
            spectral = Spectral(values, (vectors.T @ target)[:, None], outputs, None, eta, 1.0)
            losses.append(np.exp(spectral.log_loss(places)))
            if report:
                report(count, len(which))
    each = np.array(losses)
    error = np.full(len(places), np.nan)
    if len(each) > 1:
        error = each.std(axis=0, ddof=1) / len(each) ** 0.5
    return FiniteWidth(places, each.mean(axis=0), error, each)


def own_kernel(H: Tensor, S: Tensor, V: Tensor, X: Tensor) -> Tensor:
    """The tangent kernel of one network, (k n, k n), outputs outermost: H (m, n), S (q + 1, m, n), V (k, m)."""
    n, k = H.shape[1], len(V)
    gram = X @ X.T
    K = torch.zeros(k, n, k, n, dtype=H.dtype)
    features = H.T @ H
    for a in range(k):
        for b in range(a + 1):
            weights = (V[a] * V[b])[:, None]
            block = gram * sum((s.T @ (s * weights) for s in S), torch.zeros_like(features))
            K[a, :, b, :] = block
            K[b, :, a, :] = block.T
        K[a, :, a, :] += features
    return K.reshape(k * n, k * n)
