"""How well a number of a kernel predicts the steps of training: rank correlations, slopes, pairs of units in order.

Arrays of steps are (rates, targets, shares, draws, units, widths), of predictors (predictors, rates, targets, draws,
units, widths); draws are those of the rows.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from gatelab.arrays import Array
from gatelab.statistics import Interval, bootstrap
from gatelab.studies.engine import Table, interval_columns
from gatelab.studies.ntk.gaussian import PAIRS

TARGETS = ("random", "smooth")
SHARES = (1e-1, 1e-2, 1e-4, 1e-6)  # of the loss at the start: ε
RATES = ("1/λ_max", "2/(λ_max + λ_min)", "1/λ_2, top removed")
PLAIN, BEST, REMOVED = range(3)
PREDICTORS = ("κ", "bulk κ", "λ_max over mean λ", "λ_max over λ of the target")
UNITS = ("mlp", "gelu", "silu", "relu2", "glu", "geglu", "swiglu", "gqu")
ALL_PAIRS = tuple(combinations(range(len(UNITS)), 2))
GATED_PAIRS = [ALL_PAIRS.index((UNITS.index(plain), UNITS.index(gated))) for plain, gated in PAIRS]


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
