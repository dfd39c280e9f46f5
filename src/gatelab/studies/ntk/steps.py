"""How many steps training takes: the paper's premise that they grow like κ log(1/ε), and κ without one eigenvalue.

With a constant kernel the loss falls by (1 - η λ)² per step along each eigenvector, and the steps to a share ε of the
loss follow from eigenvalues and the target's weights along them. They are counted in continuous time. Networks start
at 0: their first outputs are subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.arrays import Array
from gatelab.dynamics import train
from gatelab.dynamics.spectral import eigen, steps_until
from gatelab.ntk import analytic
from gatelab.plotting.facets import Facets, Overlay, draw_figure
from gatelab.statistics import Interval, bootstrap, spearman
from gatelab.studies.claims import Claim
from gatelab.studies.definition import limits
from gatelab.studies.engine import Study, Table, Tables, geometric_mean, interval_at, interval_columns
from gatelab.studies.ntk.gaussian import NAMES, PAIRS, rows_and_targets

TARGETS = ("random", "smooth")
SHARES = (1e-1, 1e-2, 1e-4, 1e-6)  # of the loss at the start: ε
RATES = ("1/λ_max", "1/λ_2, top removed")
PLAIN, REMOVED = 0, 1  # of RATES
PREDICTORS = ("κ", "bulk κ", "λ_max over λ of the target")
UNITS = ("mlp", "gelu", "silu", "relu2", "glu", "geglu", "swiglu", "gqu")
PLAIN_UNITS, GATED_UNITS = ([UNITS.index(pair[i]) for pair in PAIRS] for i in range(2))
DRAWN = 0.01  # the ε that the figure shows
SIZES = [
    *(("Gaussian", n, d) for n, d in ((100, 25), (100, 100), (200, 50), (200, 200), (400, 100))),
    *(("clusters", n, d) for n, d in ((100, 25), (100, 100), (200, 50), (200, 200))),
    *(("digits", n, 64) for n in (100, 200, 400)),
]
LOST = "The formula is lost in our copy and was restored: κ log(1/ε) steps."
TARGET_NAMES = {target: f"{target} targets" for target in TARGETS}
# Further numbers that gating divides, by their columns.
GAINS = {"removed": "without the top direction", "condition": "κ is divided by", "bulk": "bulk κ is divided by"}
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

    The part of the loss along a removed direction is gone at the start; shares are still those of the whole loss.
    """
    values, vectors = eigen(K)
    weights = (vectors.T @ Y) ** 2
    low, second, high = values[[0, -2, -1]]
    steps = np.empty((len(RATES), Y.shape[1], len(SHARES)))
    predictors = np.empty((len(PREDICTORS), len(RATES), Y.shape[1]))
    for rate, lr in enumerate((1 / high, 1 / second)):
        own = values[: len(values) - (rate == REMOVED)]
        for target, all_weights in enumerate(weights.T):
            left = all_weights[: len(own)]
            shares = np.minimum(np.array(SHARES) * all_weights.sum() / left.sum(), 1.0)
            steps[rate, target] = steps_until(own, left, lr, shares)
            predictors[:, rate, target] = high / low, second / low, own[-1] * (left / own).sum() / left.sum()
    return steps, predictors


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
    """κ, bulk κ, and the steps with and without the top direction, (targets, shares) each."""
    X, Y = rows_and_targets("Gaussian", n, d, seed)
    (plain, removed), predictors = kernel_steps(analytic(unit, X, width).numpy(), Y)
    condition, bulk, _ = np.broadcast_to(predictors[:, PLAIN, :, None], (len(PREDICTORS), *plain.shape))
    return {"condition": condition, "bulk": bulk, "steps": plain, "removed": removed}


@STUDY.measure(
    "training",
    together="share",
    grid={
        "data, n, d": [("Gaussian", 60, 30), ("digits", 60, 64)],
        "unit": ["mlp", "relu2", "glu", "swiglu"],
        "width": [2048],
        "target": TARGETS,
        "seed": range(3),
        "share": SHARES[:2],
    },
    quick={"data, n, d": [("Gaussian", 20, 10)], "width": [256]},
)
def training(
    data: str, n: int, d: int, unit: str, width: int, target: str, seed: int, share: Sequence[float]
) -> Iterator[dict[str, float]]:
    """Steps of a trained network at 1/λ_max, and of the closed form."""
    (X, Y), t = rows_and_targets(data, n, d, 0), TARGETS.index(target)
    K = analytic(unit, X, width).numpy()
    predicted, lr = kernel_steps(K, Y)[0][PLAIN, t], 1 / float(eigen(K)[0][-1])
    steps = int(2 * predicted[len(share) - 1]) + 20
    settings: dict[str, Any] = {"width": width, "lr": lr, "seeds": [seed], "progress": False}
    start = train(unit, X, Y[:, t], steps=1, **settings).start[0, :, 0]
    losses = train(unit, X, Y[:, t] + start, steps=steps, record=range(steps + 1), **settings).losses[0]
    for i, part in enumerate(share):
        yield {"predicted": float(predicted[i]), "measured": first_step(losses, part)}


@STUDY.columns
def columns(tables: Tables, rows: Tables) -> Tables:
    """The predictions and the means of all cases, from the numbers of every draw of rows."""
    draws = rows["cases"]
    steps, predictors = (np.moveaxis(np.array(draws[name].tolist()), 0, 3) for name in ("steps", "predictors"))
    made = {"prediction": prediction_table(steps, predictors), "cases": cases_table(draws, steps, predictors)}
    return made | {"exponents": exponents_table(steps), "gains": tables["gains"], "training": tables["training"]}


# ---- predictions: how well a number of a kernel predicts the steps
# Arrays of steps are (rates, targets, shares, draws, units, widths), of predictors (predictors, rates, targets, draws,
# units, widths); draws are those of the rows.


def line_slope(x: Array, y: Array) -> Array:
    """Slopes of the straight lines through all cases of all draws, (..., draws, cases)."""
    x = x - x.mean((-2, -1), keepdims=True)
    return (x * y).sum((-2, -1)) / (x * x).sum((-2, -1))


def mean_over_draws(values: Array) -> Interval:
    return bootstrap([values], lambda v: v.mean(-1))


def order_of_pairs(values: Array) -> Array:
    """Which unit of each of the paper's pairs has more, as signs: (draws, pairs, widths) of (draws, units, widths)."""
    return np.sign(values[:, PLAIN_UNITS] - values[:, GATED_UNITS])


def prediction_table(steps: Array, predictors: Array) -> Table:
    """By rate, target, share and predictor: rank correlation over units and widths, by how much κ leads, and more."""
    rows = []
    for rate, target, share in np.ndindex(steps.shape[:3]):
        kappa, counts = np.log(predictors[0, rate, target]), np.log(steps[rate, target, share])
        y, by_steps = counts.reshape(len(counts), -1), order_of_pairs(counts)
        for predictor, name in enumerate(PREDICTORS):
            values = np.log(predictors[predictor, rate, target])
            x = values.reshape(y.shape)
            within, in_order = spearman(x, y), (1 + order_of_pairs(values) * by_steps) / 2
            row = {"rate": RATES[rate], "target": TARGETS[target], "share": SHARES[share], "predictor": name}
            row |= interval_columns("within", mean_over_draws(within))
            row |= interval_columns("slope", bootstrap([x, y], line_slope, paired=True))
            row |= interval_columns("gated_pairs", mean_over_draws(in_order.mean((1, 2))))
            row |= interval_columns("lead", mean_over_draws(spearman(kappa.reshape(y.shape), y) - within))
            over = np.exp(y - x) / (0.5 * np.log(1 / SHARES[share]))
            rows.append(row | {"over_bound": float(np.median(over))})
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


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    rows = tables["prediction"].set_index(["rate", "predictor"]).sort_index()
    for target in TARGETS:
        yield premise_claim(target, rows.loc[(RATES[PLAIN], "κ")].query("target == @target"))
    for target, row in tables["exponents"].set_index("target").iterrows():
        yield Claim.of(
            f"exponent of log(1/ε) in the steps, {target} targets, rate 1/λ_max", interval_at(row, "exponent"),
            1.0, "number", place=f"section 2.2, power of log(1/ε), {target} targets", reconstructed=True,
            note=f"From ε = {SHARES[0]:g} to {SHARES[-1]:g}: what lies along large eigenvalues goes first. {LOST}",
        )  # fmt: skip
    for rate, other in ((RATES[PLAIN], "bulk κ"), (RATES[PLAIN], PREDICTORS[2]), (RATES[REMOVED], "bulk κ")):
        yield contest_claim(rate, other, rows.loc[rate])
    for rate in RATES:
        yield pairs_claim(rate, rows.loc[rate])
    yield cost_claim(tables["cases"])
    for row in tables["gains"].query("target == 'random' and share == @DRAWN").to_dict("records"):
        yield Claim.of(
            f"what {NAMES[row['gated']]} divides {NAMES[row['plain']]}'s steps by, n = {row['n']}, d = {row['d']}",
            interval_at(row, "steps"), support={words: interval_at(row, name) for name, words in GAINS.items()},
            note=f"Random targets, ε = {row['share']:g}, rate 1/λ_max.",
        )  # fmt: skip
    yield training_claim(tables["training"])


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
    title = f"least lead of κ over {other} in rank correlation with the steps, rate {rate}"
    return Claim.of(title, least(own, "lead"), support=support, **said)


def pairs_claim(rate: str, rows: Table) -> Claim:
    """The share of the paper's pairs whose unit of smaller κ needs fewer steps, the least over targets and ε."""
    kappa, bulk, said = rows.loc["κ"], rows.loc["bulk κ"], {}
    if rate == RATES[PLAIN]:
        said = {"paper": 0.5, "rule": "above", "place": "section 2.2, smaller κ, faster training"}
    return Claim.of(
        f"gated and plain units: smaller κ, fewer steps, rate {rate}", least(kappa, "gated_pairs"), **said,
        support={"by bulk κ": limits(bulk["gated_pairs"])},
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


def training_claim(rows: Table) -> Claim:
    """Measured steps over those of the closed form, and the factor by which gating divides them."""
    counts = ["measured", "predicted"]
    logs = rows.assign(**np.log(rows[counts])).groupby(["unit", "data", "seed"])[counts].mean()
    gain = logs["measured"].xs("mlp") - logs["measured"].xs("glu")
    return Claim.of(
        "steps of trained networks over those of the closed form, rate 1/λ_max",
        geometric_mean(np.exp(logs["measured"] - logs["predicted"])),
        support={
            "rank correlation with the predicted ones": float(spearman(*rows[["predicted", "measured"]].to_numpy().T)),
            "what ReGLU divides ReLU's by": geometric_mean(np.exp(gain)),
            "networks": len(logs), "width": int(rows["width"].iloc[0]),
        },
    )  # fmt: skip
