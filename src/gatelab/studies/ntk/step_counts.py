"""Steps of gradient descent, counted: in closed form for a kernel, and of a network that is trained.

With a constant kernel the loss falls by (1 - η λ)² per step along each eigenvector, and the steps to a share ε of the
loss follow from eigenvalues and the target's weights along them. They are counted in continuous time, t real: where a
unit needs six steps and a part, whole ones would decide its gain. Networks start at 0: their first outputs are
subtracted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from gatelab.arrays import Array
from gatelab.dynamics.expected import own_kernel
from gatelab.dynamics.networks import Stack, neuron_partials
from gatelab.dynamics.networks import draw as draw_weights
from gatelab.dynamics.spectral import eigen, steps_until
from gatelab.ntk.kernels import product_unit
from gatelab.studies.ntk.gaussian import samples

TARGETS = ("random", "smooth")
SHARES = (1e-1, 1e-2, 1e-4, 1e-6)  # of the loss at the start: ε
RATES = ("1/λ_max", "2/(λ_max + λ_min)", "1/λ_2, top removed")
PLAIN, BEST, REMOVED = range(3)
PREDICTORS = ("κ", "bulk κ", "λ_max over mean λ", "λ_max over λ of the target")


def rows_and_targets(data: str, n: int, d: int, seed: int) -> tuple[Array, Array]:
    """Rows of mean square 1, and a column per target, of mean 0 and mean square 1.

    Clusters are ten Gaussian ones, whose centers have three quarters of the variance; digits are scikit-learn's, minus
    their mean image. The smooth target is sin(2 u.x) + (v.x)² for random directions u and v.
    """
    generator = np.random.default_rng([seed, n, d])
    if data == "digits":
        from sklearn.datasets import load_digits

        images = np.asarray(load_digits(return_X_y=True)[0], float)
        X = (images - images.mean(0))[generator.permutation(len(images))[:n]]
        X /= np.sqrt((X * X).mean())
    else:
        X = samples(n, d, seed)
        if data == "clusters":
            X = 0.5 * X + 0.75**0.5 * generator.standard_normal((10, d))[generator.integers(10, size=n)]
    u, v = (X @ generator.standard_normal((d, 2)) / d**0.5).T
    Y = np.column_stack([generator.standard_normal(n), np.sin(2 * u) + v**2])
    Y -= Y.mean(0)
    return X, Y / np.sqrt((Y * Y).mean(0))


def kernel_steps(K: Array, Y: Array) -> tuple[Array, Array]:
    """Steps, (rates, targets, shares), and predictors, (predictors, rates, targets), of a kernel.

    With the top direction removed its part of the loss is gone at the start, as if it had been solved for, and shares
    are still those of the whole loss. The last two predictors are of the eigenvalues that are left.
    """
    values, vectors = eigen(K)
    weights = (vectors.T @ Y) ** 2
    low, second, high = values[[0, -2, -1]]
    steps = np.empty((len(RATES), Y.shape[1], len(SHARES)))
    predictors = np.empty((len(PREDICTORS), len(RATES), Y.shape[1]))
    for rate, lr in enumerate((1 / high, 2 / (high + low), 1 / second)):
        own = values[: len(values) - (rate == REMOVED)]
        for target, all_weights in enumerate(weights.T):
            left = all_weights[: len(own)]
            shares = np.minimum(np.array(SHARES) * all_weights.sum() / left.sum(), 1.0)
            steps[rate, target] = steps_until(own, left, lr, shares)
            aligned = own[-1] * (left / own).sum() / left.sum()
            predictors[:, rate, target] = high / low, second / low, own[-1] / own.mean(), aligned
    return steps, predictors


def centred(K: Array) -> Array:
    """H K H, the kernel of networks minus their mean output over the rows."""
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


KERNELS: dict[str, Callable[[Array], Array]] = {"whole": np.asarray, "centred": centred}


def steps_at(K: Array, Y: Array, lr: float | None = None, *, flow: bool = False) -> Array:
    """Steps with a kernel, (targets, shares), by default at 1/λ_max; weights that are rounding count as zero."""
    values, vectors = eigen(K)
    weights = (vectors.T @ Y).T ** 2
    weights[weights < 1e-25 * weights.sum(1, keepdims=True)] = 0
    lr, shares = lr or 1 / float(values[-1]), np.array(SHARES)
    return np.array([steps_until(values, own, lr, shares, flow=flow) for own in weights])


# ---- one network


def network_losses(
    unit: str, X: Array, y: Array, width: int, lr: float, seed: int, *, steps: int, until: float, less_mean: bool
) -> Array:
    """The losses before each step of a network minus its first outputs, until they are a share `until` of the first.

    With `less_mean` the mean of the outputs is subtracted as well.
    """
    rows, d = torch.from_numpy(X), X.shape[1]
    net = Stack.drawn(product_unit(unit), width, d, 1, [seed], torch.full((1,), lr, dtype=torch.float64), d)
    start = net.outputs(rows).clone()
    losses: list[float] = []
    while len(losses) < steps and (not losses or losses[-1] > until * losses[0]):
        goal = torch.from_numpy(y) + start
        if less_mean:
            goal += (net.outputs(rows) - start).mean(-1, keepdim=True)
        losses.append(float(net.step(rows, goal, 1.0)[0]))
    return np.array(losses)


def network_kernel(unit: str, X: Array, width: int, seed: int) -> Array:
    """The tangent kernel of that network before its first step."""
    shape, rows, d = product_unit(unit), torch.from_numpy(X), X.shape[1]
    maps, V = draw_weights(shape, width, d, 1, seed, d, torch.float64)
    return own_kernel(*neuron_partials(shape, maps @ rows.T), V, rows).numpy()


def first_step(losses: Array, share: float) -> float:
    """When the loss is that share of the first, between steps by logarithms; infinite where it never is."""
    reached = np.flatnonzero(losses <= share * losses[0])
    if not reached.size:
        return np.inf
    before, after = np.log(losses[reached[0] - 1 : reached[0] + 1] / (share * losses[0]))
    return max(1.0, float(reached[0] - after / (after - before)))
