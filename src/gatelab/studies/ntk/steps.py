"""How many steps training takes: the paper's premise that they grow like κ log(1/ε), against κ without one eigenvalue.

With a constant kernel the loss falls by (1 - η λ)² a step along each eigenvector, and the steps to a share ε of it
follow from eigenvalues and the target's weights along them. Networks start at zero: their first outputs are subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy.stats import rankdata

from gatelab.arrays import Array
from gatelab.dynamics.expected import own_kernel
from gatelab.dynamics.networks import Stack, neuron_partials
from gatelab.dynamics.networks import draw as draw_weights
from gatelab.dynamics.spectral import eigen, steps_until
from gatelab.ntk import analytic
from gatelab.ntk.kernels import product_unit
from gatelab.plotting import GREY, Entry, Panel, Pen, figure_legend, looks, new_figure, style
from gatelab.statistics import Interval, bootstrap
from gatelab.studies.definition import (
    Claim,
    Finding,
    Outcome,
    Request,
    Sketch,
    Stroke,
    Study,
    Tables,
    Verdict,
    bracket,
    last,
    numbers,
    only,
)
from gatelab.studies.ntk.gaussian import PAIRS, PAPER_NAMES, interval, interval_cells, samples
from gatelab.studies.progress import ticker
from gatelab.studies.verdicts import NEAR, ends, reproduced_if

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


def as_rows(values: Array) -> Array:
    """All cases of a draw as one row, (draws, cases)."""
    return values.reshape(len(values), -1)


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
        y, by_kappa, by_steps = as_rows(steps), order_of_pairs(kappa), order_of_pairs(steps)
        for predictor, name in enumerate(PREDICTORS):
            values = cases.logs(predictor, rate, target, share)[0]
            x, order = as_rows(values), order_of_pairs(values)
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
                "lead": mean_over_draws(spearman(as_rows(kappa), y) - within),
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


def steps_at(K: Array, Y: Array, lr: float | None = None) -> Array:
    """Steps with a kernel, (targets, shares), by default at 1/λ_max; weights that are rounding count for nothing."""
    values, vectors = eigen(K)
    weights = (vectors.T @ Y).T ** 2
    weights[weights < 1e-25 * weights.sum(1, keepdims=True)] = 0
    return np.array([steps_until(values, own, lr or 1 / float(values[-1]), np.array(SHARES)) for own in weights])


def gains_table(plan: StepPlan, tick: Callable[[], None]) -> pd.DataFrame:
    """What gating divides κ, bulk κ and steps by, a row a pair, target and share."""
    n, d = plan.pair_size
    units = [unit for pair in PAIRS for unit in pair]
    steps = np.empty((len(RATES) + 1, len(TARGETS), len(SHARES), plan.pair_seeds, len(units)))
    predictors = np.empty((len(PREDICTORS), len(RATES), len(TARGETS), plan.pair_seeds, len(units)))
    for seed in range(plan.pair_seeds):
        X, Y = rows_and_targets("Gaussian", n, d, seed)
        for j, kernel in enumerate(analytic(units, X, plan.pair_width)):
            steps[:-1, ..., seed, j], predictors[..., seed, j] = kernel_steps(kernel.numpy(), Y)
            steps[-1, ..., seed, j] = steps_at(centred(kernel.numpy()), Y)
        tick()
    rows = []
    for pair, target, share in np.ndindex(len(PAIRS), len(TARGETS), len(SHARES)):
        row: dict[str, object] = {"plain": PAIRS[pair][0], "gated": PAIRS[pair][1], "n": n, "d": d}
        row |= {"width": plan.pair_width, "seeds": plan.pair_seeds, "target": TARGETS[target], "share": SHARES[share]}
        columns = {"condition": predictors[0, 0, target], "bulk": predictors[1, 0, target]}
        columns |= dict(zip(("steps", "best", "removed", "centred"), steps[:, target, share], strict=True))
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
        shape = (product_unit(self.unit), self.width, self.X.shape[1], 1, range(TRAINED_SEEDS), rates)
        nets = Stack.drawn(*shape, fan_in=self.X.shape[1], dtype=torch.float64, device=torch.device("cpu"))
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
    """The first step at which the loss is at most that share of the first loss; infinite where it never is."""
    reached = np.flatnonzero(losses <= SHARES[share] * losses[0])
    return float(reached[0]) if reached.size else np.inf


# ---- what it says


def run(request: Request) -> Outcome:
    """Steps in closed form for every case, the gains of the paper's pairs, and networks that are trained."""
    plan = StepPlan()
    if request.quick:
        plan = QUICK
    tick = ticker(request, len(plan.draws()) + plan.pair_seeds + len(plan.trained) * len(TRAINED_UNITS))
    cases = StepCases.measured(plan, tick)
    tables = {
        "prediction": prediction_table(cases),
        "cases": cases_table(cases),
        "gains": gains_table(plan, tick),
        "training": training_table(plan, tick),
    }
    return Outcome(draw(tables), tables, claims(tables, exponents(cases)), notes(plan))


def exponents(cases: StepCases) -> dict[str, Interval]:
    """By target, the exponent of log(1/ε) in the steps at 1/λ_max: slopes over ε, averaged over the cases of a draw."""
    x = np.log(np.log(1 / np.array(SHARES)))
    x = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    slopes = np.tensordot(x, np.log(cases.steps[PLAIN]), (0, 1)).mean((2, 3))
    return {target: mean_over_draws(own) for target, own in zip(TARGETS, slopes, strict=True)}


def claims(tables: Tables, in_share: Mapping[str, Interval]) -> tuple[Claim, ...]:
    """The premise in κ and in ε, who predicts, what the one eigenvalue costs, and trained networks."""
    rows = tables["prediction"]
    return (
        *(premise_claim(target, only(rows, rate=RATES[PLAIN], target=target)) for target in TARGETS),
        *(exponent_claim(target, in_share[target]) for target in TARGETS),
        *(
            contest_claim(RATES[rate], PREDICTORS[other], only(rows, rate=RATES[rate]))
            for rate, other in ((PLAIN, 1), (PLAIN, 3), (REMOVED, 1))
        ),
        *(pairs_claim(RATES[rate], only(rows, rate=RATES[rate])) for rate in (PLAIN, REMOVED)),
        cost_claim(tables["cases"]),
        *(gain_claim(last(tables["gains"], gated=gated, target="random", share=SHARES[DRAWN])) for _, gated in PAIRS),
        *(training_claim(word, only(tables["training"], kernel=word)) for word in KERNELS),
    )


def near_one(slope: Interval) -> bool:
    """Whether an exponent is told apart from 1 neither by its interval nor by more than is near."""
    return 1 in slope or abs(slope.value - 1) <= NEAR


def premise_claim(target: str, rows: pd.DataFrame) -> Claim:
    """The exponent of κ in the steps, which the paper's premise has as 1, at each ε."""
    own = only(rows, predictor=PREDICTORS[0])
    slopes = [Interval(*ends) for ends in own[["slope", "slope_low", "slope_high"]].to_numpy(dtype=float)]
    shares = ", ".join(f"{share:g}" for share in own["share"])
    bound = ", ".join(f"{value:.2f}" for value in own["over_bound"])
    return Claim(
        f"exponent of κ in the steps, {target} targets, rate 1/λ_max",
        "1: κ log(1/ε) steps (section 2.2)",
        f"{', '.join(f'{slope.value:.2f}' for slope in slopes)} at ε = {shares}",
        reproduced_if(all(map(near_one, slopes))),
        f"Medians of the steps over the bound κ log(1/ε)/2 are {bound}: it is neared as ε goes to 0 and the smallest "
        f"eigenvalue is all that is left. Rank correlations over all cases are {span(own, 'overall', '.2f')}.",
        ", ".join(slope.ends(".2f") for slope in slopes),
    )


def exponent_claim(target: str, exponent: Interval) -> Claim:
    """The exponent of log(1/ε) in the steps."""
    return Claim(
        f"exponent of log(1/ε) in the steps, {target} targets, rate 1/λ_max",
        "1: κ log(1/ε) steps (section 2.2)",
        f"{exponent.value:.2f}",
        reproduced_if(near_one(exponent)),
        f"From ε = {SHARES[0]:g} to {SHARES[-1]:g}, averaged over cases: what lies along large eigenvalues goes first.",
        exponent.ends(".2f"),
    )


def span(rows: pd.DataFrame, column: str, form: str) -> str:
    """The least and the largest of a column in words, once where they read the same."""
    return " to ".join(dict.fromkeys(f"{value:{form}}" for value in (rows[column].min(), rows[column].max())))


def beside_paper(rate: str, other: str, statement: str, holds: bool) -> tuple[str, Verdict]:
    """The paper's side of a claim and the verdict; it has nothing on other rates, nor on what knows the target."""
    if rate != RATES[PLAIN] or other == PREDICTORS[3]:
        return "-", "new"
    return statement, reproduced_if(holds)


def contest_claim(rate: str, other: str, rows: pd.DataFrame) -> Claim:
    """Who ranks units and widths on the same rows: κ, as the paper has it, or another number."""
    own = only(rows, predictor=other)
    low, high = (own[name].to_numpy(dtype=float) for name in ("lead_low", "lead_high"))
    ahead, behind = int((low > 0).sum()), int((high < 0).sum())
    by_share = ", ".join(f"{lead:+.3f}" for lead in own["lead"])
    paper, verdict = beside_paper(rate, other, "κ is the key indicator of speed (section 2.2)", ahead > behind == 0)
    ranks = "; ".join(f"{name} {span(only(rows, predictor=name), 'within', '.2f')}" for name in PREDICTORS)
    return Claim(
        f"κ or {other}: who ranks units by their steps, rate {rate}",
        paper,
        f"κ in {ahead} of {len(own)} settings, the other in {behind}, undecided in {len(own) - ahead - behind}",
        verdict,
        f"Rank correlations with the steps over units and widths on the same rows, by target and ε: {ranks}. κ leads "
        f"by {by_share} ({' then '.join(TARGETS)} targets, ε falling). Of the pairs that the two order differently κ "
        f"is right about {span(own, 'right', '.0%')}.",
        f"κ's lead in correlation, all settings: {ends(low.min(), high.max(), '.3f')}",
    )


def pairs_claim(rate: str, rows: pd.DataFrame) -> Claim:
    """Of the paper's pairs, how often the unit of smaller κ needs fewer steps; beside it bulk κ."""
    kappa, bulk = (only(rows, predictor=name) for name in PREDICTORS[:2])
    low = float(kappa["gated_pairs_low"].to_numpy(float).min())
    high = float(kappa["gated_pairs_high"].to_numpy(float).max())
    paper, verdict = beside_paper(rate, PREDICTORS[1], "smaller κ, faster training", low > 0.5)
    return Claim(
        f"gated beside plain units: smaller κ, fewer steps, rate {rate}",
        paper,
        f"in {span(kappa, 'gated_pairs', '.0%')} of cases, by target and ε",
        verdict,
        f"By bulk κ in {span(bulk, 'gated_pairs', '.0%')}; where both are always right these pairs do not tell them "
        f"apart. Of all pairs of {len(UNITS)} units κ is right about {span(kappa, 'pairs', '.0%')}, bulk κ about "
        f"{span(bulk, 'pairs', '.0%')}. Equal steps count half.",
        ends(low, high, ".0%"),
    )


def cost_claim(cases: pd.DataFrame) -> Claim:
    """How many times fewer steps there are without the top direction, over λ_max/λ_2."""
    columns = [f"steps_{share:g}" for share in SHARES]
    plain, removed = (only(cases, rate=RATES[rate]) for rate in (PLAIN, REMOVED))
    times = (plain["κ"] / plain["bulk κ"]).to_numpy(dtype=float)
    over = plain[columns].to_numpy(dtype=float) / removed[columns].to_numpy(dtype=float) / times[:, None]
    low, middle, high = np.quantile(over, (0.025, 0.5, 0.975))
    return Claim(
        "what the largest eigenvalue costs: steps at 1/λ_max over steps without it, over λ_max/λ_2",
        "-",
        f"{middle:.2f}",
        "new",
        f"λ_max/λ_2 is {times.min():.3g} to {times.max():.3g}. The one eigenvalue costs what it takes from the rate: "
        "the other directions go at λ/λ_max a step, whatever lies along the top one.",
        f"95 % of cases: {ends(low, high, '.2f')}",
    )


def gain_claim(row: Mapping[str, Any]) -> Claim:
    """What gating divides the steps by, at 1/λ_max and without the top direction."""
    return Claim(
        f"what {NAMES[row['gated']]} divides {NAMES[row['plain']]}'s steps by, n = {row['n']}, d = {row['d']}",
        "-",
        f"{row['steps']:.3g} at 1/λ_max, {row['removed']:.2g} without the top direction",
        "new",
        f"Random targets, ε = {row['share']:g}; κ is divided by {row['condition']:.3g}, bulk κ by {row['bulk']:.2g}. "
        f"At 2/(λ_max + λ_min) it is {row['best']:.3g}, and {row['centred']:.2g} for networks less their mean output.",
        f"{ends(row['steps_low'], row['steps_high'])}, {ends(row['removed_low'], row['removed_high'], '.2g')}",
    )


def training_claim(word: str, rows: pd.DataFrame) -> Claim:
    """Measured steps over those of the closed form, and what gating divides them by."""
    logs = rows.assign(**{name: np.log(rows[name].to_numpy(dtype=float)) for name in ("measured", "predicted", "own")})
    logs = pd.DataFrame(logs.groupby(["unit", "data", "seed"])[["measured", "predicted", "own"]].mean())
    measured, predicted, start = (pd.Series(logs[name]) for name in ("measured", "predicted", "own"))
    ratio, own = (interval(np.exp((measured - other).to_numpy(dtype=float))) for other in (predicted, start))
    ranks = float(spearman(*(rows[name].to_numpy(dtype=float) for name in ("predicted", "measured"))))
    plain, gated = (pd.Series(measured.xs(unit)) for unit in ("mlp", "glu"))
    gain = interval(np.exp((plain - gated).to_numpy(dtype=float)))
    return Claim(
        f"steps of trained networks over those of the closed form, {word} kernel, rate 1/λ_max",
        "-",
        f"{ratio.value:.2f}",
        "new",
        f"{len(rows)} counts of networks of width {rows['width'].iloc[0]}, in rank correlation with the predicted ones "
        f"{ranks:.2f}. Over the steps by the kernel that each has at its start it is {own:.2f}. ReGLU divides the "
        f"measured steps of ReLU by {gain}. Intervals are over {len(logs)} networks.",
        ratio.ends(),
    )


def notes(plan: StepPlan) -> tuple[str, ...]:
    """What was computed, and what the intervals are."""
    sizes = "; ".join(f"{kind} n = {n}, d = {d}" for kind, n, d in plan.sizes)
    return (
        f"{len(UNITS)} units, widths {', '.join(map(str, plan.widths))}, {plan.seeds} draws of the rows each: {sizes}.",
        "Closed form: expected kernels of these widths, outputs at the start subtracted. Targets have mean 0; random "
        "ones are normal, smooth ones sin(2 u.x) + (v.x)². ε is of the loss at the start. Bulk κ is λ_2/λ_min, "
        "and λ of the target is |y|²/(y.K⁻¹y), the mean of the eigenvalues that its weights ask for.",
        "With the top direction removed its part of the loss is solved for at the start, and the rate is 1/λ_2.",
        "Intervals are percentiles over draws of the rows, all kinds and sizes together, 95 %; of gains t-intervals of "
        "logarithms over seeds, and of trained networks over networks.",
        "Gradient descent with one constant rate on all rows. What momentum, batches or adaptive rates make of the one "
        "eigenvalue is not decided here, nor is training in which the kernel changes.",
    )


# ---- figure


def draw(tables: Tables) -> Figure:
    """A row a target: steps against κ and bulk κ, those without the top direction, and rank correlations."""
    cases, column = tables["cases"], f"steps_{SHARES[DRAWN]:g}"
    panels = (
        (PLAIN, 0, "whole", "rate 1/λ_max"),
        (PLAIN, 1, "", "rate 1/λ_max"),
        (REMOVED, 1, "centred", "top removed, rate 1/λ_2"),
    )
    shapes = looks(UNITS)
    with style():
        figure = new_figure(13.2, 6.8)
        for row, target in zip(figure.subplots(2, 4), TARGETS, strict=True):
            for axes, (rate, predictor, kernel, title) in zip(row, panels, strict=False):
                panel, own = Panel(axes), only(cases, rate=RATES[rate], target=target)
                for unit in UNITS:
                    part = only(own, unit=unit)
                    pen = Pen(shapes[unit].colour, "", marker=shapes[unit].marker, size=3.5, alpha=0.7)
                    panel.line(part[PREDICTORS[predictor]], part[column], pen)
                if kernel:
                    real = only(tables["training"], kernel=kernel, target=target, share=SHARES[DRAWN])
                    panel.line(real["condition"], real["measured"], TRAINED_PEN, order=4)
                reach = np.array([own[PREDICTORS[predictor]].min(), own[PREDICTORS[predictor]].max()])
                panel.line(reach, 0.5 * reach * np.log(1 / SHARES[DRAWN]), BOUND_PEN)
                panel.set(xscale="log", yscale="log", xlabel=XLABELS[predictor], title=f"{target} targets, {title}")
                panel.set(ylabel=f"steps to ε = {SHARES[DRAWN]:g}")
            draw_correlations(Panel(row[-1]), only(tables["prediction"], target=target))
            row[-1].set_title(f"{target} targets, rank correlation")
        entries = [Entry(NAMES[u], Pen(shapes[u].colour, "", marker=shapes[u].marker)) for u in UNITS]
        entries += [
            Entry("trained networks (third column: less their mean output)", TRAINED_PEN),
            Entry("κ log(1/ε)/2, or bulk κ", BOUND_PEN),
        ]
        figure_legend(figure, entries, ncols=10, columnspacing=1.0, handletextpad=0.4)
        figure.suptitle("Steps of gradient descent against the condition number, with and without its one eigenvalue")
    return figure


def draw_correlations(panel: Panel, rows: pd.DataFrame) -> None:
    """Rank correlations over units and widths on the same rows, against ε."""
    for order, (rate, predictor, pen) in enumerate(CORRELATIONS):
        own = only(rows, rate=RATES[rate], predictor=PREDICTORS[predictor])
        x, stroke = own["share"] * 1.25 ** (order - 1.5), Pen(pen.colour, width=1.6, alpha=0.6)
        strokes = panel.strokes(x, own["within_low"], own["within_high"], stroke)
        label = f"{PREDICTORS[predictor]}, {('1/λ_max', '', 'top removed')[rate]}"
        panel.line(x, own["within"], pen, label=label, interval=strokes)
    panel.set(xscale="log", xlabel="ε", ylabel="mean over draws of rows")
    panel.legend(loc="lower left", fontsize=7)


XLABELS = ("κ = λ_max/λ_min", "bulk κ = λ_2/λ_min")
BOUND_PEN = Pen(GREY, "--", 1.1)
TRAINED_PEN = Pen("black", "", marker="o", size=6, face="none", edge=0.8)
CORRELATIONS = (
    (PLAIN, 0, Pen("#0072B2", marker="o")),
    (PLAIN, 1, Pen("#D55E00", marker="s")),
    (REMOVED, 0, Pen("#0072B2", "--", marker="o", face="white")),
    (REMOVED, 1, Pen("#D55E00", "--", marker="s", face="white")),
)


def findings(tables: Tables) -> tuple[Finding, ...]:
    """What gating gains in steps, with the largest eigenvalue and without it."""
    own = only(tables["gains"], gated=PAIRS[0][1], target="random")
    row = last(own, share=SHARES[DRAWN])
    sentence = (
        f"A gate divides a ReLU network's steps to ε = {row['share']:g} by {row['steps']:.0f}"
        f"{bracket(row['steps_low'], row['steps_high'], '.0f')} where κ falls {row['condition']:.0f} times; with the "
        f"top direction solved for and the rate set by the next, by {row['removed']:.2f}"
        f"{bracket(row['removed_low'], row['removed_high'])} where bulk κ falls {row['bulk']:.1f} times."
    )
    sizes = f"n = {row['n']} Gaussian rows of d = {row['d']}, width {row['width']}, {row['seeds']} seeds, closed form."
    strokes = tuple(
        Stroke(label, numbers(own["share"]), numbers(own[column]), colour)
        for label, column, colour in (("rate 1/λ_max", "steps", "#0072B2"), ("top removed", "removed", "#D55E00"))
    )
    sketch = Sketch("ε, of the loss at the start", "steps of ReLU over ReGLU", strokes)
    return (Finding("κ, training and one eigenvalue", sentence, sizes, sketch),)


STUDY = Study(
    "ntk/steps",
    "Steps to an accuracy against κ",
    "Achieving error ε takes κ log(1/ε) iterations (section 2.2): a premise that the paper takes from others.",
    run,
    long=True,
    findings=findings,
    position=8.5,
    beyond=True,
)
