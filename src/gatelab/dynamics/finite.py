"""The expected loss at finite width, where the kernel itself is random: what the closed form leaves out.

A network of width m has at its start a kernel of its own, which differs from the expected one by about 1/sqrt(m). Slow
directions profit less from a larger eigenvalue than they lose by a smaller one, so that the mean loss lies above the
loss of the mean kernel, by a share that grows with t. Here the loss of the linearised network is averaged over kernels
of drawn networks. The signs of the output's weights are averaged exactly: they leave the kernel as it is, and given
all else f_0 = sum_i V_i h_i has covariance sum_i V_i^2 h_i h_i^T, so that few draws suffice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatelab.display import ProgressLike, one_line, reporting
from gatelab.dynamics.inputs import Array, Loss, loss_scale, positive, samples, step_list, targets, whole
from gatelab.dynamics.spectral import Spectral, eigen
from gatelab.dynamics.two_layer import draw, neuron_partials
from gatelab.errors import GatelabError
from gatelab.units import Unit
from gatelab.units import unit as find_unit
from gatelab.units.unit import check_width


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
