"""The expected loss of gradient descent in the kernel regime: proposition 4.1, with its parts.

Full-batch gradient descent with step eta on (1/2)|f - y|^2 and a constant kernel K gives, over initial outputs f_0 of
mean 0 and covariance NNGP,

    E L_t = 1/2 [ y^T (I - eta K)^(2t) y + tr( NNGP (I - eta K)^(2t) ) ]

The first part is the bias, the second the variance. The paper takes NNGP = K / m, which for width m leaves out d/m of
it; given the kernel (`gl.ntk.analytic(..., kind="nngp")`) the term is exact. With several outputs every output has
the same kernel, and the losses add up.

The expected loss at finite width, where the kernel itself is random: what the closed form leaves out.

A network of width m has at its start a kernel of its own, which differs from the expected one by about 1/sqrt(m). Slow
directions profit less from a larger eigenvalue than they lose by a smaller one, so that the mean loss lies above the
loss of the mean kernel, by a share that grows with t. Here the loss of the linearised network is averaged over kernels
of drawn networks. The signs of the output's weights are averaged exactly: they leave the kernel as it is, and given
all else f_0 = sum_i V_i h_i has covariance sum_i V_i^2 h_i h_i^T, so that few draws suffice.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gatelab.arrays import Array
from gatelab.display import ProgressLike, one_line, reporting
from gatelab.dynamics.networks import draw, neuron_partials
from gatelab.dynamics.spectral import (
    Loss,
    Spectral,
    eigen,
    kernel_matrix,
    loss_scale,
    numbers,
    positive,
    samples,
    step_list,
    targets,
    whole,
)
from gatelab.errors import GatelabError
from gatelab.feedforward import Unit
from gatelab.feedforward import unit as find_unit
from gatelab.feedforward.definition import check_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The expected loss at every step: `loss` = `bias` + `variance`.

    `deviation` is the standard deviation of one network's loss over initialisations with Gaussian outputs, None where
    the outputs were given. `stable` says whether the step is at most `limit`, 2 / lambda_max; above it the loss
    grows without bound, and is infinite where it overflows.
    """

    steps: Array
    loss: Array
    bias: Array
    variance: Array
    deviation: Array | None
    lr: float
    label: str
    stable: bool
    spectral: Spectral = field(repr=False)

    def __repr__(self) -> str:
        return one_line(
            self,
            f"{self.label}, lr {self.lr:.3g}: loss {self.loss[0]:.3g} at step {self.steps[0]:.0f}, "
            f"{self.loss[-1]:.3g} at step {self.steps[-1]:.0f}",
        )

    @property
    def limit(self) -> float:
        """2 / lambda_max, for the loss that is meant: with a larger step gradient descent diverges."""
        return float(2 / self.spectral.eigenvalues[-1] / self.spectral.scale)

    @property
    def eigenvalues(self) -> Array:
        return self.spectral.eigenvalues

    def components(self) -> Array:
        """The loss along each eigenvector, (steps, n), in the order of `eigenvalues`: their sum is the loss."""
        s = self.spectral
        return 0.5 * s.scale * s.decay(self.steps) * (s.targets + s.outputs)

    def at(self, steps: Any) -> Trajectory:
        """The same at other steps."""
        return _evaluated(self.spectral, step_list(steps, len(self.eigenvalues)), self.lr, self.label)

    def table(self) -> pd.DataFrame:
        columns = {"step": self.steps, "loss": self.loss, "bias": self.bias, "variance": self.variance}
        return pd.DataFrame(columns if self.deviation is None else columns | {"deviation": self.deviation})

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Figure:
        """The curve with its two parts; written to `path` or drawn into your own `ax` if given."""
        from gatelab.plotting import saved
        from gatelab.plotting.kernels import parts_figure

        parts = self.loss, self.bias, self.variance, self.deviation
        return saved(parts_figure(self.label, self.steps, *parts, ax=ax), path)


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
    """E L_t of gradient descent with kernel K towards y, at `steps` (a number: 0 to it; or a list of steps).

    K is a tangent kernel (`gl.ntk.analytic(unit, X, width)`), y the targets, (n,) or (n, outputs). `width` is by
    default that of the kernel; with it alone NNGP is K / width, the paper's approximation. `nngp` gives the covariance
    of the initial outputs exactly. `start` gives the initial outputs themselves, (n,), (n, outputs) or (networks, n,
    outputs): then the loss is theirs, averaged over the networks. `lr` is by default half of 2 / lambda_max. With
    loss="mean" the loss, and so its gradient, is divided by n.

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
    step = 1 / values[-1] / scale if lr is None else positive(lr, "lr")
    at = step_list(steps, n)
    projected = vectors.T @ Y
    covariance = None if start is not None else _covariance(K, values, vectors, width, nngp)
    if covariance is None:
        outputs = _start_weights(vectors, Y, start) - np.sum(projected**2, axis=1)
    else:
        outputs = Y.shape[1] * np.diagonal(covariance)
    spectral = Spectral(values, projected, outputs, covariance, step * scale, scale)
    made = _evaluated(spectral, at, step, getattr(K, "label", "kernel"))
    if not made.stable:
        warnings.warn(
            f"lr is {step:.3g}, above 2 / lambda_max = {made.limit:.3g} of {made.label}: the loss grows without "
            "bound; give less",
            UserWarning,
            stacklevel=2,
        )
    return made


def _evaluated(s: Spectral, steps: Array, lr: float, label: str) -> Trajectory:
    decay = s.decay(steps)
    bias, variance = (_weighted(decay, 0.5 * s.scale * weights) for weights in (s.targets, s.outputs))
    stable = bool(s.lr * s.eigenvalues[-1] <= 2)
    with np.errstate(invalid="ignore", over="ignore"):
        # Where both parts are infinite and of different signs, the logarithm of their sum is known all the same.
        loss = bias + variance if stable else np.exp(s.log_loss(steps))
    return Trajectory(steps, loss, bias, variance, s.deviation(steps), lr, label, stable, s)


def _weighted(decay: Array, weights: Array) -> Array:
    """decay @ weights, where nothing times infinity is nothing: a direction without weight may grow as it likes."""
    present = weights != 0
    with np.errstate(invalid="ignore", over="ignore"):
        return decay[:, present] @ weights[present]


def _covariance(K: Any, values: Array, vectors: Array, width: int | None, nngp: Any) -> Array:
    """The covariance of the initial outputs of one output, in the basis of the kernel's eigenvectors."""
    if nngp is not None:
        given = kernel_matrix(nngp, "nngp")
        if len(given) != len(values):
            raise GatelabError(f"nngp is of {len(given)} samples and K of {len(values)}; give kernels of the same rows")
        return vectors.T @ given @ vectors
    width = getattr(K, "width", None) if width is None else width
    if width is None:
        raise GatelabError(
            "without a width the size of the initial outputs is unknown; give width (their covariance is then taken as "
            "K / width), nngp (that covariance) or start (the outputs). For a kernel per neuron, width=1"
        )
    return np.diag(values / check_width(width))


def _start_weights(vectors: Array, Y: Array, start: Any) -> Array:
    """The squares of the initial residuals along each eigenvector, averaged over networks."""
    f = numbers(start, "start")
    if f.ndim == 1:
        f = f[:, None]
    if f.ndim == 2:
        f = f[None]
    if f.ndim != 3 or f.shape[1:] != Y.shape:
        raise GatelabError(
            f"start has shape {np.shape(start)}; give the initial outputs of one network, {Y.shape}, or of several, "
            f"(networks, {Y.shape[0]}, {Y.shape[1]})"
        )
    return np.mean(np.sum((vectors.T @ (f - Y)) ** 2, axis=2), axis=0)


@dataclass(frozen=True, eq=False)
class FiniteWidth:
    """The mean over drawn networks, its standard error, and the loss of each, (networks, steps)."""

    steps: Array
    loss: Array
    error: Array
    each: Array

    def __repr__(self) -> str:
        return one_line(self, f"{len(self.each)} networks: loss {self.loss[-1]:.3g} at step {self.steps[-1]:.0f}")


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
    loss: Loss = "sum",
    fan_in: int | None = None,
    progress: ProgressLike = None,
) -> FiniteWidth:
    """The loss of linearised networks of finite width: exact but for training's change of the kernel.

    The networks are those of `train` with the same seeds. With `given_start` each starts from its own outputs, and
    `each` is a prediction of that very network; else the outputs' signs are averaged. A kernel of n samples and k
    outputs is of size n k.

    >>> X = np.random.default_rng(0).standard_normal((20, 10))
    >>> made = finite_width_loss("glu", X, X[:, 0], width=500, lr=1e-3, steps=[0, 10], seeds=8)
    >>> bool(made.loss[1] < made.loss[0]), made.each.shape
    (True, (8, 2))
    """
    known = find_unit(unit)
    if not isinstance(known, Unit):
        raise GatelabError(
            f"the unit {known.name!r} was given as a class, whose initial weights are its own affair; "
            "use gl.ntk.empirical on its networks and gl.dynamics.expected_loss(K, y, start=...)"
        )
    x = samples(X)
    Y = targets(y, len(x))
    scale, eta, at = loss_scale(loss, len(x)), positive(lr, "lr"), step_list(steps, Y.size)
    width = check_width(width)
    which = (
        range(whole(seeds, "seeds", 1)) if np.ndim(seeds) == 0 else [whole(s, "a seed", 0) for s in np.asarray(seeds)]
    )
    each = []
    with reporting(progress, f"linearised networks of {known.name}") as report:
        for done, seed in enumerate(which, 1):
            maps, V = draw(known, width, x.shape[1], Y.shape[1], seed, fan_in or x.shape[1], torch.float64)
            each.append(_linearised(known, maps, V, torch.from_numpy(x), Y, eta, scale, at, given_start))
            if report:
                report(done, len(which))
    made = np.array(each)
    error = made.std(axis=0, ddof=1) / len(made) ** 0.5 if len(made) > 1 else np.full(len(at), np.nan)
    return FiniteWidth(at, made.mean(axis=0), error, made)


def _linearised(
    unit: Unit,
    maps: Tensor,
    V: Tensor,
    X: Tensor,
    Y: Array,
    eta: float,
    scale: float,
    steps: Array,
    given_start: bool,
) -> Array:
    H, S = neuron_partials(unit, maps @ X.T)
    K = own_kernel(H, S, V, X).numpy()
    values, vectors = eigen(K, "the kernel of a network")
    if given_start:
        residual = (V @ H).numpy().ravel() - Y.T.ravel()
        spectral = Spectral(values, (vectors.T @ residual)[:, None], np.zeros(len(values)), None, eta * scale, scale)
    else:
        # sum_i V_ai V_bi h_i h_i^T, of all outputs together
        F = (V[:, :, None] * H).permute(1, 0, 2).reshape(H.shape[0], -1).numpy()
        spread = np.sum((F @ vectors) ** 2, axis=0)
        projected = (vectors.T @ Y.T.ravel())[:, None]
        spectral = Spectral(values, projected, spread, None, eta * scale, scale)
    return np.exp(spectral.log_loss(steps))


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
