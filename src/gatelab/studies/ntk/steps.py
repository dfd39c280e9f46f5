"""How many steps training takes: the paper's premise that they grow like κ log(1/ε), and κ without one eigenvalue.

With a constant kernel the loss falls by (1 - η λ)² per step along each eigenvector, and the steps to a share ε of the
loss follow from eigenvalues and the target's weights along them. They are counted in continuous time, t real: where a
unit needs six steps and a part, whole ones would decide its gain. Networks start at 0: their first outputs are
subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
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
from gatelab.feedforward.registry import product_unit
from gatelab.ntk import analytic
from gatelab.plotting.facets import Facets, Overlay, draw_figure
from gatelab.statistics import Interval, bootstrap
from gatelab.studies.claims import Claim
from gatelab.studies.engine import Study, Table, Tables, geometric_mean, interval_at, interval_columns
from gatelab.studies.ntk.gaussian import NAMES, PAIRS, limits, rows_and_targets

TARGETS = ("random", "smooth")
SHARES = (1e-1, 1e-2, 1e-4, 1e-6)  # of the loss at the start: ε
RATES = ("1/λ_max", "2/(λ_max + λ_min)", "1/λ_2, top removed")
PLAIN, REMOVED = 0, 2  # of RATES
PREDICTORS = ("κ", "bulk κ", "λ_max over mean λ", "λ_max over λ of the target")
UNITS = ("mlp", "gelu", "silu", "relu2", "glu", "geglu", "swiglu", "gqu")
ALL_PAIRS = tuple(combinations(range(len(UNITS)), 2))
GATED_PAIRS = [ALL_PAIRS.index((UNITS.index(plain), UNITS.index(gated))) for plain, gated in PAIRS]
DRAWN = 0.01  # the ε that the figure shows
SIZES = [
    *(("Gaussian", n, d) for n, d in ((100, 25), (100, 100), (200, 50), (200, 200), (400, 100))),
    *(("clusters", n, d) for n, d in ((100, 25), (100, 100), (200, 50), (200, 200))),
    *(("digits", n, 64) for n in (100, 200, 400)),
]
LOST = "The formula is lost in our copy and was restored: κ log(1/ε) steps."
TARGET_NAMES = {target: f"{target} targets" for target in TARGETS}
# Further numbers that gating divides, by their columns.
GAINS = {
    "removed": "without the top direction",
    "condition": "κ is divided by",
    "bulk": "bulk κ is divided by",
    "best": "at 2/(λ_max + λ_min)",
    "flow": "gradient flow",
    "centred": "networks minus their mean output",
}
FIGURE = (
    *(
        Facets(
            table="cases", x=x, y=f"steps_{DRAWN:g}", hue="unit", row="target", where={"rate": rate}, xlog=True,
            ylog=True, points=True, lines=(Overlay(f"{x}, bound", f"{x} log(1/ε)/2", "solid", hue=False),),
            ylabel=f"steps to ε = {DRAWN:g}", title=f"rate {rate}", names=NAMES | TARGET_NAMES,
        )
        for rate, x in ((RATES[PLAIN], "κ"), (RATES[REMOVED], "bulk κ"))
    ),
    Facets(
        table="training", x="predicted", y="measured", hue="unit", row="target", where={"share": DRAWN}, xlog=True,
        ylog=True, points=True, lines=(Overlay("predicted", "equal", "solid", hue=False),), xlabel="closed form",
        ylabel=f"steps of trained networks to ε = {DRAWN:g}", title="trained networks", names=NAMES | TARGET_NAMES,
    ),
    Facets(
        table="prediction", x="share", y="within", hue="predictor", row="target", xlog=True, xlabel="ε",
        where={"rate": RATES[PLAIN]}, ylabel="rank correlation with the steps", names=TARGET_NAMES,
        title="how well a number orders units and widths, rate 1/λ_max",
    ),
)  # fmt: skip


def draw(tables: Tables) -> Figure:
    """Steps against κ and bulk κ next to the premise, those of trained networks, and rank correlations."""
    cases = tables["cases"]
    bounds = {f"{x}, bound": 0.5 * np.log(1 / DRAWN) * cases[x] for x in ("κ", "bulk κ")}
    return draw_figure(FIGURE, {**tables, "cases": cases.assign(**bounds)})


STUDY = Study(
    "ntk/steps",
    "Steps to an accuracy against κ",
    "Achieving error ε takes κ log(1/ε) iterations (section 2.2): a premise that the paper takes from others.",
    long=True,
    position=8.5,
    figure=draw,
    cards={
        "κ, training and one eigenvalue": Facets(
            table="gains", x="share", y="steps", where={"gated": "glu", "target": "random"}, xlog=True, ylog=True,
            lines=(Overlay("removed", "top direction removed"),), xlabel="ε, of the loss at the start",
            ylabel="steps of ReLU over ReGLU",
        )
    },
)  # fmt: skip


# ---- steps of a kernel


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


def centered(K: Array) -> Array:
    """H K H, the kernel of networks minus their mean output over the rows."""
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


KERNELS: dict[str, Callable[[Array], Array]] = {"whole": np.asarray, "centred": centered}


def steps_at(K: Array, Y: Array, lr: float | None = None, *, flow: bool = False) -> Array:
    """Steps with a kernel, (targets, shares), by default at 1/λ_max; weights that are rounding count as zero."""
    values, vectors = eigen(K)
    weights = (vectors.T @ Y).T ** 2
    weights[weights < 1e-25 * weights.sum(1, keepdims=True)] = 0
    lr, shares = lr or 1 / float(values[-1]), np.array(SHARES)
    return np.array([steps_until(values, own, lr, shares, flow=flow) for own in weights])


# ---- steps of a network


def network_losses(
    unit: str, X: Array, y: Array, width: int, lr: float, seed: int, *, steps: int, until: float, less_mean: bool
) -> Array:
    """The losses before each step of a network minus its first outputs, until they are a share `until` of the first.

    With `less_mean` the mean of the outputs is subtracted as well.
    """
    rows, d = torch.from_numpy(X), X.shape[1]
    net = Stack(product_unit(unit), width, d, 1, [seed], torch.full((1,), lr, dtype=torch.float64), d)
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
    fallen = -np.log(np.minimum.accumulate(losses) / losses[0])
    return max(1.0, float(np.interp(-np.log(share), fallen, np.arange(len(losses)), right=np.inf)))


# ---- measures


@STUDY.measure(
    "cases",
    grid={"data, n, d": SIZES, "widths": [(128, 1024, 8192)], "seed": range(4)},
    quick={"data, n, d": [("Gaussian", 40, 10), ("digits", 40, 64)], "widths": [(256,)], "seed": range(3)},
)
def cases(data: str, n: int, d: int, widths: Sequence[int], seed: int) -> dict[str, Any]:
    """Steps and predictors of one draw of rows, with every unit and width as the last two axes."""
    X, Y = rows_and_targets(data, n, d, seed)
    found = [[kernel_steps(kernel.numpy(), Y) for kernel in analytic(list(UNITS), X, width)] for width in widths]
    arrays = [np.array([[of_unit[i] for of_unit in of_width] for of_width in found]) for i in range(2)]
    return {name: a.transpose(2, 3, 4, 1, 0).tolist() for name, a in zip(("steps", "predictors"), arrays, strict=True)}


@STUDY.measure(
    "gains",
    together="share",
    over="seed",
    mean="geometric",
    grid={
        "plain, gated": PAIRS,
        "n, d, width": [(1000, 500, 4096)],  # the size of figure 1
        "seed": range(5),
        "target": TARGETS,
        "share": SHARES,
    },
    quick={"n, d, width": [(60, 30, 256)], "seed": range(3)},
)
def gains(
    plain: str, gated: str, n: int, d: int, width: int, seed: int, target: str, share: Sequence[float]
) -> Iterator[dict[str, float]]:
    """The factors by which gating divides κ, bulk κ and the steps."""
    above, below = (unit_counts(unit, n, d, width, seed) for unit in (plain, gated))
    t = TARGETS.index(target)
    for i in range(len(share)):
        yield {name: float(above[name][t, i] / below[name][t, i]) for name in above}


@lru_cache(maxsize=2)
def unit_counts(unit: str, n: int, d: int, width: int, seed: int) -> dict[str, Array]:
    """κ, bulk κ, and steps in five ways, (targets, shares) each."""
    X, Y = rows_and_targets("Gaussian", n, d, seed)
    K = analytic(unit, X, width).numpy()
    (plain, best, removed), predictors = kernel_steps(K, Y)
    condition, bulk, *_ = np.broadcast_to(predictors[:, PLAIN, :, None], (len(PREDICTORS), *plain.shape))
    counts = {"condition": condition, "bulk": bulk, "steps": plain, "best": best, "removed": removed}
    return counts | {"centred": steps_at(centered(K), Y), "flow": steps_at(K, Y, flow=True)}


@STUDY.measure(
    "training",
    together="share",
    grid={
        "data, n, d": [("Gaussian", 60, 30), ("digits", 60, 64)],
        "unit": ["mlp", "relu2", "glu", "swiglu"],
        "width": [2048],
        "target": TARGETS,
        "kernel": list(KERNELS),
        "seed": range(3),
        "share": SHARES[:2],
    },
    quick={"data, n, d": [("Gaussian", 20, 10)], "width": [256]},
)
def training(
    data: str, n: int, d: int, unit: str, width: int, target: str, kernel: str, seed: int, share: Sequence[float]
) -> Iterator[dict[str, float]]:
    """Steps of a trained network at 1/λ_max and of the closed form; `own` is of the network's kernel at the start.

    The kernel is whole for networks as they are, and centered for networks minus their mean output.
    """
    (X, Y), t, kernel_of = rows_and_targets(data, n, d, 0), TARGETS.index(target), KERNELS[kernel]
    K, less_mean = kernel_of(analytic(unit, X, width).numpy()), kernel == "centred"
    values, predicted = eigen(K)[0], steps_at(K, Y)[t]
    lr, last = 1 / float(values[-1]), len(share) - 1
    settings = {"steps": int(2 * predicted[last]) + 20, "until": share[last], "less_mean": less_mean}
    losses = network_losses(unit, X, Y[:, t], width, lr, seed, **settings)
    own = steps_at(kernel_of(network_kernel(unit, X, width, seed)), Y, lr)[t]
    for i, part in enumerate(share):
        counts = {"predicted": float(predicted[i]), "condition": float(values[-1] / values[int(less_mean)])}
        yield {**counts, "own": float(own[i]), "measured": first_step(losses, part)}


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    """The predictions and the means of all cases, from the numbers of every draw of rows."""
    draws = rows["cases"]
    steps, predictors = (np.moveaxis(np.array(draws[name].tolist()), 0, 3) for name in ("steps", "predictors"))
    made = {"prediction": prediction_table(steps, predictors), "cases": cases_table(draws, steps, predictors)}
    return made | {"exponents": exponents_table(steps)} | {name: tables[name] for name in ("gains", "training")}


# ---- predictions: how well a number of a kernel predicts the steps
# Arrays of steps are (rates, targets, shares, draws, units, widths), of predictors (predictors, rates, targets, draws,
# units, widths); draws are those of the rows.


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


def mean_over_draws(values: Array) -> Interval:
    """The mean of a number per draw of the rows, with the interval of drawing these again."""
    return bootstrap([values], lambda v: v.mean(-1))


def order_of_pairs(values: Array) -> Array:
    """Which unit of each pair has more, as signs: (draws, pairs, widths) of (draws, units, widths)."""
    first, second = np.array(ALL_PAIRS).T
    return np.sign(values[:, first] - values[:, second])


def prediction_table(steps: Array, predictors: Array) -> Table:
    """A row per rate, target, share and predictor: rank correlations, slope, pairs in order, and the lead of κ.

    `within` is over units and widths on the same rows, `overall` over all cases; `lead` is by how much κ has
    more of the former, and `right` how often κ is right, of the pairs of units that the two order differently.
    """
    rows = []
    for rate, target, share in np.ndindex(steps.shape[:3]):
        kappa, counts = np.log(predictors[0, rate, target]), np.log(steps[rate, target, share])
        y, by_kappa, by_steps = counts.reshape(len(counts), -1), order_of_pairs(kappa), order_of_pairs(counts)
        for predictor, name in enumerate(PREDICTORS):
            values = np.log(predictors[predictor, rate, target])
            x, order = values.reshape(y.shape), order_of_pairs(values)
            within, in_order = spearman(x, y), (1 + order * by_steps) / 2
            apart = (order * by_kappa < 0).astype(float)
            votes = [(apart * (1 + by_kappa * by_steps) / 2).sum((1, 2)), apart.sum((1, 2))]
            row = {"rate": RATES[rate], "target": TARGETS[target], "share": SHARES[share], "predictor": name}
            intervals = {
                "within": mean_over_draws(within),
                "overall": bootstrap([x, y], all_ranks, paired=True, draws=200),
                "slope": bootstrap([x, y], line_slope, paired=True),
                "pairs": mean_over_draws(in_order.mean((1, 2))),
                "gated_pairs": mean_over_draws(in_order[:, GATED_PAIRS].mean((1, 2))),
                "lead": mean_over_draws(spearman(kappa.reshape(y.shape), y) - within),
                "right": bootstrap(votes, lambda a, b: a.sum(-1) / np.maximum(b.sum(-1), 1), paired=True),
            }
            for word, ends in intervals.items():
                row |= interval_columns(word, ends)
            over = np.exp(y - x) / (0.5 * np.log(1 / SHARES[share]))
            rows.append(row | {"disagreements": int(apart.sum()), "over_bound": float(np.median(over))})
    return pd.DataFrame(rows)


def cases_table(draws: Table, steps: Array, predictors: Array) -> Table:
    """A row per rate, target, size, unit and width: geometric means over the seeds."""
    sizes = list(dict.fromkeys(zip(draws["data"], draws["n"], draws["d"], strict=True)))
    index = [(*size, unit, width) for size in sizes for unit in UNITS for width in draws["widths"].iloc[0]]
    labels = (*PREDICTORS, *(f"steps_{share:g}" for share in SHARES))
    frames = []
    for rate, target in np.ndindex(len(RATES), len(TARGETS)):
        logs = np.log([*predictors[:, rate, target], *steps[rate, target]])
        means = np.exp(logs.reshape(len(labels), len(sizes), -1, len(index) // len(sizes)).mean(2))
        frame = pd.DataFrame(index, columns=["data", "n", "d", "unit", "width"])
        values = dict(zip(labels, np.round(means.reshape(len(labels), -1), 3), strict=True))
        frames.append(frame.assign(rate=RATES[rate], target=TARGETS[target], **values))
    return pd.concat(frames, ignore_index=True)


def exponents_table(steps: Array) -> Table:
    """By target, the exponent of log(1/ε) in the steps at 1/λ_max: slopes over ε, averaged over the cases of a draw."""
    x = np.log(np.log(1 / np.array(SHARES)))
    x = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    slopes = np.tensordot(x, np.log(steps[PLAIN]), (0, 1)).mean((2, 3))
    return pd.DataFrame(
        {"target": target, **interval_columns("exponent", mean_over_draws(own))}
        for target, own in zip(TARGETS, slopes, strict=True)
    )


# ---- claims


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """The premise in κ and in ε, the best predictor, the cost of the one eigenvalue, and trained networks."""
    rows = tables["prediction"].set_index(["rate", "predictor"]).sort_index()
    for target in TARGETS:
        yield premise_claim(target, rows.loc[(RATES[PLAIN], "κ")].query("target == @target"))
    for target, row in tables["exponents"].set_index("target").iterrows():
        yield Claim.of(
            f"exponent of log(1/ε) in the steps, {target} targets, rate 1/λ_max", interval_at(row, "exponent"),
            1.0, "number", place=f"section 2.2, power of log(1/ε), {target} targets", reconstructed=True,
            note=f"From ε = {SHARES[0]:g} to {SHARES[-1]:g}: what lies along large eigenvalues goes first. {LOST}",
        )  # fmt: skip
    for rate, other in ((RATES[PLAIN], "bulk κ"), (RATES[PLAIN], PREDICTORS[3]), (RATES[REMOVED], "bulk κ")):
        yield contest_claim(rate, other, rows.loc[rate])
    for rate in (RATES[PLAIN], RATES[REMOVED]):
        yield pairs_claim(rate, rows.loc[rate])
    yield cost_claim(tables["cases"])
    for row in tables["gains"].query("target == 'random' and share == @DRAWN").to_dict("records"):
        yield Claim.of(
            f"what {NAMES[row['gated']]} divides {NAMES[row['plain']]}'s steps by, n = {row['n']}, d = {row['d']}",
            interval_at(row, "steps"), support={words: interval_at(row, name) for name, words in GAINS.items()},
            note=f"Random targets, ε = {row['share']:g}, rate 1/λ_max.",
        )  # fmt: skip
    for kernel, of_kernel in tables["training"].groupby("kernel", sort=False):
        yield training_claim(str(kernel), of_kernel)


def premise_claim(target: str, rows: Table) -> Claim:
    """The exponent of κ in the steps, which is 1 in the paper's premise, at the ε where it is farthest from 1."""
    rows = rows.sort_values("share", ascending=False)
    worst = rows.iloc[int((rows["slope"] - 1).abs().argmax())]
    return Claim.of(
        f"exponent of κ in the steps, {target} targets, rate 1/λ_max", interval_at(worst, "slope"), 1.0, "number",
        place=f"section 2.2, power of κ, {target} targets", reconstructed=True,
        support={
            f"at ε = {', '.join(f'{share:g}' for share in rows['share'])}": rows["slope"].tolist(),
            "median of the steps over κ log(1/ε)/2": rows["over_bound"].tolist(),
            "rank correlation over all cases": rows["overall"].tolist(),
        },
        note=f"The value is that at ε = {worst['share']:g}. {LOST}",
    )  # fmt: skip


def contest_claim(rate: str, other: str, rows: Table) -> Claim:
    """Whether κ, as the paper says, or another number ranks units and widths better on the same rows."""
    own, said = rows.loc[other], {}
    if (rate, other) == (RATES[PLAIN], "bulk κ"):
        said = {"paper": 0.0, "rule": "above", "place": "section 2.2, κ is the key indicator"}
    ahead, behind = int((own["lead_low"] > 0).sum()), int((own["lead_high"] < 0).sum())
    support: dict[str, Any] = {"settings (target and ε) in which κ leads": ahead, "the other leads": behind}
    support["not significant"] = len(own) - ahead - behind
    support |= {f"correlations of {name}": limits(rows.loc[name, "within"]) for name in ("κ", other)}
    support["κ right of the pairs that the two order differently"] = limits(own["right"])
    title = f"least lead of κ over {other} in rank correlation with the steps, rate {rate}"
    return Claim.of(title, least(own, "lead"), support=support, **said)


def pairs_claim(rate: str, rows: Table) -> Claim:
    """The share of the paper's pairs whose unit of smaller κ needs fewer steps, the least over targets and ε."""
    kappa, bulk, said = rows.loc["κ"], rows.loc["bulk κ"], {}
    if rate == RATES[PLAIN]:
        said = {"paper": 0.5, "rule": "above", "place": "section 2.2, smaller κ, faster training"}
    return Claim.of(
        f"gated and plain units: smaller κ, fewer steps, rate {rate}", least(kappa, "gated_pairs"), **said,
        support={
            "by bulk κ": limits(bulk["gated_pairs"]),
            f"of all pairs of {len(UNITS)} units, by κ": limits(kappa["pairs"]),
            "by bulk κ, all pairs": limits(bulk["pairs"]),
        },
        note="The share of cases, the least over targets and ε; 0.5 is chance. Equal steps count half.",
    )  # fmt: skip


def least(rows: Table, name: str) -> Interval:
    return interval_at(rows.iloc[int(rows[name].argmin())], name)


def cost_claim(table: Table) -> Claim:
    """The factor by which steps fall without the top direction, over λ_max/λ_2."""
    names = [f"steps_{share:g}" for share in SHARES]
    plain, removed = (table[table["rate"] == RATES[rate]] for rate in (PLAIN, REMOVED))
    times = (plain["κ"] / plain["bulk κ"]).to_numpy(float)
    over = plain[names].to_numpy(float) / removed[names].to_numpy(float) / times[:, None]
    middle, low, high = map(float, np.quantile(over, (0.5, 0.025, 0.975)))
    return Claim(
        "what the largest eigenvalue costs: steps at 1/λ_max over steps without it, over λ_max/λ_2", middle, low, high,
        support={"λ_max/λ_2": limits(times)},
        note="The median and the middle 95 % of cases. The other directions go at λ/λ_max per step.",
    )  # fmt: skip


def training_claim(kernel: str, rows: Table) -> Claim:
    """Measured steps over those of the closed form, and the factor by which gating divides them."""
    counts = ["measured", "predicted", "own"]
    logs = rows.assign(**np.log(rows[counts])).groupby(["unit", "data", "seed"])[counts].mean()
    gain = logs["measured"].xs("mlp") - logs["measured"].xs("glu")
    return Claim.of(
        f"steps of trained networks over those of the closed form, {kernel} kernel, rate 1/λ_max",
        geometric_mean(np.exp(logs["measured"] - logs["predicted"])),
        support={
            "over those of the kernel at the start": geometric_mean(np.exp(logs["measured"] - logs["own"])),
            "rank correlation with the predicted ones": float(spearman(*rows[["predicted", "measured"]].to_numpy().T)),
            "what ReGLU divides ReLU's by": geometric_mean(np.exp(gain)),
            "networks": len(logs), "width": int(rows["width"].iloc[0]),
        },
    )  # fmt: skip
