"""Steps of gradient descent, counted: in closed form over units, rows and widths, and of networks that are trained.

With a constant kernel the loss falls by (1 - η λ)² a step along each eigenvector, and the steps to a share ε of it
follow from eigenvalues and the target's weights along them. They are counted in continuous time, t real: where a unit
needs six steps and a part, whole ones would decide its gain. Networks start at 0: their first outputs are subtracted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pandas as pd
import torch
from scipy.stats import rankdata

from gatelab.arrays import Array
from gatelab.dynamics.expected import own_kernel
from gatelab.dynamics.networks import Stack, neuron_partials
from gatelab.dynamics.networks import draw as draw_weights
from gatelab.dynamics.spectral import eigen, steps_until
from gatelab.ntk import analytic
from gatelab.ntk.kernels import product_unit
from gatelab.statistics import Interval, bootstrap
from gatelab.studies.ntk.gaussian import PAIRS, PAPER_NAMES, interval, interval_cells, samples

UNITS = ("mlp", "gelu", "silu", "relu2", "glu", "geglu", "swiglu", "gqu")
NAMES = PAPER_NAMES | {"relu2": "ReLU²", "gqu": "GQU"}
TARGETS = ("random", "smooth")
SHARES = (1e-1, 1e-2, 1e-4, 1e-6)  # of the loss at the start: ε
RATES = ("1/λ_max", "2/(λ_max + λ_min)", "1/λ_2, top removed")
PLAIN, BEST, REMOVED = range(3)
PREDICTORS = ("κ", "bulk κ", "λ_max over mean λ", "λ_max over λ of the target")
DRAWN = 1  # which ε the figure shows
TRAINED_UNITS, TRAINED_SEEDS, TRAINED_SHARES = ("mlp", "relu2", "glu", "swiglu"), 3, 2  # of SHARES the first
ALL_PAIRS = tuple(combinations(range(len(UNITS)), 2))
GATED_PAIRS = [ALL_PAIRS.index((UNITS.index(plain), UNITS.index(gated))) for plain, gated in PAIRS]
SIZES = (
    *(("Gaussian", n, d) for n, d in ((100, 25), (100, 100), (200, 50), (200, 200), (400, 100))),
    *(("clusters", n, d) for n, d in ((100, 25), (100, 100), (200, 50), (200, 200))),
    *(("digits", n, 64) for n in (100, 200, 400)),
)


@dataclass(frozen=True)
class StepPlan:
    """What is computed: kinds of rows with sizes, seeds and widths, the rows of the pairs, and what is trained."""

    sizes: tuple[tuple[str, int, int], ...] = SIZES
    seeds: int = 4
    widths: tuple[int, ...] = (128, 1024, 8192)
    pair_size: tuple[int, int] = (1000, 500)  # that of figure 1
    pair_width: int = 4096
    pair_seeds: int = 5
    trained: tuple[tuple[str, int, int], ...] = (("Gaussian", 60, 30), ("digits", 60, 64))
    trained_width: int = 2048

    def draws(self) -> list[tuple[str, int, int, int]]:
        """Every kind of rows, n and d, with every seed."""
        return [(*size, seed) for size in self.sizes for seed in range(self.seeds)]


QUICK = StepPlan(
    sizes=(("Gaussian", 40, 10), ("digits", 40, 64)),
    seeds=3,
    widths=(256,),
    pair_size=(60, 30),
    pair_width=256,
    pair_seeds=3,
    trained=(("Gaussian", 20, 10),),
    trained_width=256,
)


# ---- rows, targets, and steps of one kernel


def rows_and_targets(kind: str, n: int, d: int, seed: int) -> tuple[Array, Array]:
    """Rows of mean square 1, and a column a target, of mean 0 and mean square 1.

    Clusters are ten Gaussian ones, whose centres have three quarters of the variance; digits are scikit-learn's, less
    their mean image. The smooth target is sin(2 u.x) + (v.x)² for random directions u and v.
    """
    generator = np.random.default_rng([seed, n, d])
    if kind == "digits":
        from sklearn.datasets import load_digits

        images = np.asarray(load_digits(return_X_y=True)[0], float)
        X = (images - images.mean(0))[generator.permutation(len(images))[:n]]
        X /= np.sqrt((X * X).mean())
    else:
        X = samples(n, d, seed)
        if kind == "clusters":
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


@dataclass(frozen=True, eq=False)
class StepCases:
    """Steps, (rates, targets, shares, ...), and predictors, (predictors, rates, targets, ...).

    The last three axes of both are draws of the rows, units and widths.
    """

    plan: StepPlan
    steps: Array
    predictors: Array

    @classmethod
    def measured(cls, plan: StepPlan, tick: Callable[[], None]) -> StepCases:
        """Every unit at every width on every draw of the rows."""
        shape = len(plan.draws()), len(UNITS), len(plan.widths)
        steps = np.empty((len(RATES), len(TARGETS), len(SHARES), *shape))
        predictors = np.empty((len(PREDICTORS), len(RATES), len(TARGETS), *shape))
        for i, draw in enumerate(plan.draws()):
            X, Y = rows_and_targets(*draw)
            for k, width in enumerate(plan.widths):
                for j, kernel in enumerate(analytic(list(UNITS), X, width)):
                    steps[..., i, j, k], predictors[..., i, j, k] = kernel_steps(kernel.numpy(), Y)
            tick()
        return cls(plan, steps, predictors)

    def logs(self, predictor: int, rate: int, target: int, share: int) -> tuple[Array, Array]:
        """Logarithms of a predictor and of the steps, (draws, units, widths)."""
        return np.log(self.predictors[predictor, rate, target]), np.log(self.steps[rate, target, share])


# ---- how well a number predicts the steps


def spearman(x: Array, y: Array) -> Array:
    """Rank correlations over the last axis."""
    a, b = (rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2 for values in (x, y))
    return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def all_ranks(x: Array, y: Array) -> Array:
    """Rank correlations over all cases of all draws, (..., draws, cases)."""
    return spearman(x.reshape(*x.shape[:-2], -1), y.reshape(*y.shape[:-2], -1))


def line_slope(x: Array, y: Array) -> Array:
    """Slopes of the straight lines through all cases of all draws, (..., draws, cases)."""
    x = x - x.mean((-2, -1), keepdims=True)
    return (x * y).sum((-2, -1)) / (x * x).sum((-2, -1))


def order_of_pairs(values: Array) -> Array:
    """Which unit of each pair has more, as signs: (draws, pairs, widths) of (draws, units, widths)."""
    first, second = np.array(ALL_PAIRS).T
    return np.sign(values[:, first] - values[:, second])


def mean_over_draws(values: Array) -> Interval:
    """The mean of a number a draw of the rows, with the interval of drawing these again."""
    return bootstrap([values], lambda v: v.mean(-1))


def prediction_table(cases: StepCases) -> pd.DataFrame:
    """A row a rate, target, share and predictor: rank correlations, slope, pairs in order, and the contest with κ.

    `within` is over units and widths on the same rows, `overall` over all cases; `lead` is what κ has more of the
    former, and `right` how often κ is, of the pairs of units that the two order differently.
    """
    rows = []
    for rate, target, share in np.ndindex(cases.steps.shape[:3]):
        kappa, steps = cases.logs(0, rate, target, share)
        y, by_kappa, by_steps = steps.reshape(len(steps), -1), order_of_pairs(kappa), order_of_pairs(steps)
        for predictor, name in enumerate(PREDICTORS):
            values = cases.logs(predictor, rate, target, share)[0]
            x, order = values.reshape(y.shape), order_of_pairs(values)
            within, in_order = spearman(x, y), (1 + order * by_steps) / 2
            apart = (order * by_kappa < 0).astype(float)
            votes = [(apart * (1 + by_kappa * by_steps) / 2).sum((1, 2)), apart.sum((1, 2))]
            row: dict[str, object] = {
                "rate": RATES[rate],
                "target": TARGETS[target],
                "share": SHARES[share],
                "predictor": name,
            }
            intervals = {
                "within": mean_over_draws(within),
                "overall": bootstrap([x, y], all_ranks, paired=True, draws=200),
                "slope": bootstrap([x, y], line_slope, paired=True),
                "pairs": mean_over_draws(in_order.mean((1, 2))),
                "gated_pairs": mean_over_draws(in_order[:, GATED_PAIRS].mean((1, 2))),
                "lead": mean_over_draws(spearman(kappa.reshape(y.shape), y) - within),
                "right": bootstrap(votes, lambda a, b: a.sum(-1) / np.maximum(b.sum(-1), 1), paired=True),
            }
            for word, values_and_ends in intervals.items():
                row |= interval_cells(word, values_and_ends)
            over = np.exp(y - x) / (0.5 * np.log(1 / SHARES[share]))
            rows.append(row | {"disagreements": int(apart.sum()), "over_bound": float(np.median(over))})
    return pd.DataFrame(rows)


def cases_table(cases: StepCases) -> pd.DataFrame:
    """A row a rate, target, size, unit and width: geometric means over the seeds."""
    plan, frames = cases.plan, []
    names = ("data", "n", "d", "unit", "width")
    index = [(*size, unit, width) for size in plan.sizes for unit in UNITS for width in plan.widths]
    for rate, target in np.ndindex(len(RATES), len(TARGETS)):
        columns = [*cases.predictors[:, rate, target], *cases.steps[rate, target]]
        means = [np.exp(np.log(c).reshape(len(plan.sizes), plan.seeds, -1).mean(1)).ravel() for c in columns]
        frame = pd.DataFrame(index, columns=list(names)).assign(rate=RATES[rate], target=TARGETS[target])
        labels = (*PREDICTORS, *(f"steps_{share:g}" for share in SHARES))
        frames.append(frame.assign(**dict(zip(labels, np.round(means, 3), strict=True))))
    return pd.concat(frames, ignore_index=True)


# ---- what gating gains at the size of figure 1, and networks that are trained


def centred(K: Array) -> Array:
    """H K H, the kernel of networks less their mean output over the rows."""
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


KERNELS: dict[str, Callable[[Array], Array]] = {"whole": np.asarray, "centred": centred}


def steps_at(K: Array, Y: Array, lr: float | None = None, *, flow: bool = False) -> Array:
    """Steps with a kernel, (targets, shares), by default at 1/λ_max; weights that are rounding count for nothing."""
    values, vectors = eigen(K)
    weights = (vectors.T @ Y).T ** 2
    weights[weights < 1e-25 * weights.sum(1, keepdims=True)] = 0
    lr, shares = lr or 1 / float(values[-1]), np.array(SHARES)
    return np.array([steps_until(values, own, lr, shares, flow=flow) for own in weights])


def gains_table(plan: StepPlan, tick: Callable[[], None]) -> pd.DataFrame:
    """What gating divides κ, bulk κ and steps by, a row a pair, target and share."""
    n, d = plan.pair_size
    units = [unit for pair in PAIRS for unit in pair]
    names = ("steps", "best", "removed", "centred", "flow")
    steps = np.empty((len(names), len(TARGETS), len(SHARES), plan.pair_seeds, len(units)))
    predictors = np.empty((len(PREDICTORS), len(RATES), len(TARGETS), plan.pair_seeds, len(units)))
    for seed in range(plan.pair_seeds):
        X, Y = rows_and_targets("Gaussian", n, d, seed)
        for j, kernel in enumerate(analytic(units, X, plan.pair_width)):
            steps[:3, ..., seed, j], predictors[..., seed, j] = kernel_steps(kernel.numpy(), Y)
            steps[3, ..., seed, j] = steps_at(centred(kernel.numpy()), Y)
            steps[4, ..., seed, j] = steps_at(kernel.numpy(), Y, flow=True)
        tick()
    rows = []
    for pair, target, share in np.ndindex(len(PAIRS), len(TARGETS), len(SHARES)):
        row: dict[str, object] = {"plain": PAIRS[pair][0], "gated": PAIRS[pair][1], "n": n, "d": d}
        row |= {"width": plan.pair_width, "seeds": plan.pair_seeds, "target": TARGETS[target], "share": SHARES[share]}
        columns = {"condition": predictors[0, 0, target], "bulk": predictors[1, 0, target]}
        columns |= dict(zip(names, steps[:, target, share], strict=True))
        for name, values in columns.items():
            row |= interval_cells(name, interval(values[:, 2 * pair] / values[:, 2 * pair + 1]))
        rows.append(row)
    return pd.DataFrame(rows)


def training_table(plan: StepPlan, tick: Callable[[], None]) -> pd.DataFrame:
    """Steps of trained networks at 1/λ_max beside the closed form's; `own` is of the kernel that a network starts with.

    The kernel is whole for networks as they are, and centred for networks less their mean output.
    """
    rows = []
    for (kind, n, d), unit in ((size, unit) for size in plan.trained for unit in TRAINED_UNITS):
        X, Y = rows_and_targets(kind, n, d, 0)
        expected = analytic(unit, X, plan.trained_width).numpy()
        for (t, target), (word, kernel_of) in product(enumerate(TARGETS), KERNELS.items()):
            values = eigen(kernel_of(expected))[0]
            networks = StepNetworks(unit, X, Y[:, t], plan.trained_width, 1 / float(values[-1]), word == "centred")
            predicted = steps_at(kernel_of(expected), Y)[t]
            losses = networks.losses(int(2 * predicted[TRAINED_SHARES - 1]) + 20)
            for seed, s in product(range(TRAINED_SEEDS), range(TRAINED_SHARES)):
                row: dict[str, object] = {
                    "data": kind,
                    "n": n,
                    "d": d,
                    "unit": unit,
                    "width": plan.trained_width,
                    "kernel": word,
                }
                row |= {"target": target, "seed": seed, "share": SHARES[s], "predicted": predicted[s]}
                row["condition"] = values[-1] / values[int(word == "centred")]
                own = steps_at(kernel_of(networks.kernel(seed)), Y, networks.lr)[t, s]
                rows.append(row | {"own": own, "measured": first_step(losses[:, seed], s)})
        tick()
    return pd.DataFrame(rows)


@dataclass(frozen=True, eq=False)
class StepNetworks:
    """Networks of a unit less their first outputs, and with `less_mean` less the mean of what is left as well."""

    unit: str
    X: Array
    y: Array
    width: int
    lr: float
    less_mean: bool

    def losses(self, steps: int) -> Array:
        """The losses before each step, (steps, seeds), until all are at the last share that is trained for."""
        rows, rates = torch.from_numpy(self.X), torch.full((TRAINED_SEEDS,), self.lr, dtype=torch.float64)
        d = self.X.shape[1]
        nets = Stack.drawn(product_unit(self.unit), self.width, d, 1, range(TRAINED_SEEDS), rates, d)
        start = nets.outputs(rows).clone()
        losses = []
        for _ in range(steps):
            goal = torch.from_numpy(self.y) + start
            if self.less_mean:
                goal += (nets.outputs(rows) - start).mean(-1, keepdim=True)
            losses.append(nets.step(rows, goal, 1.0).numpy().copy())
            if (losses[-1] <= SHARES[TRAINED_SHARES - 1] * losses[0]).all():
                break
        return np.array(losses)

    def kernel(self, seed: int) -> Array:
        """The tangent kernel of one of them before its first step."""
        unit, rows, d = product_unit(self.unit), torch.from_numpy(self.X), self.X.shape[1]
        maps, V = draw_weights(unit, self.width, d, 1, seed, d, torch.float64)
        return own_kernel(*neuron_partials(unit, maps @ rows.T), V, rows).numpy()


def first_step(losses: Array, share: int) -> float:
    """When the loss is that share of the first, between steps by logarithms; infinite where it never is."""
    reached = np.flatnonzero(losses <= SHARES[share] * losses[0])
    if not reached.size:
        return np.inf
    before, after = np.log(losses[reached[0] - 1 : reached[0] + 1] / (SHARES[share] * losses[0]))
    return max(1.0, float(reached[0] - after / (after - before)))


def exponents(cases: StepCases) -> dict[str, Interval]:
    """By target, the exponent of log(1/ε) in the steps at 1/λ_max: slopes over ε, averaged over the cases of a draw."""
    x = np.log(np.log(1 / np.array(SHARES)))
    x = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    slopes = np.tensordot(x, np.log(cases.steps[PLAIN]), (0, 1)).mean((2, 3))
    return {target: mean_over_draws(own) for target, own in zip(TARGETS, slopes, strict=True)}
