"""The parts of docs/results/ladder-design.md after the grid, as tables of their records (benchmarks/gain_parts.py).

Records have a row per training with its loss in bits; pairs of units are compared seed by seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from gatelab.arrays import Array
from gatelab.scaling_laws.ladder_comparisons import rank_agreement
from gatelab.statistics import DRAWS, LEVEL, bootstrap, holm, resampled, t_interval, t_reach
from gatelab.studies.engine import Table, interval_columns

SIGNIFICANT = 0.05
PAIRS = (("relu2", "swiglu"), ("gelu", "geglu"), ("gelu", "swiglu"), ("relu2", "geglu"))
GATED = {"gelu": "geglu", "relu2": "reglu"}
VARIANTS = ("centered", "output bias")
UNGATED_LOWER, GATED_LOWER, CROSSING, NEITHER = "ungated lower", "gated lower", "crossing", "inconclusive"


def prediction_table(predicted: Table, rows: Table) -> Table:
    """Predictions next to the means of the trainings that they are for, and whether these lie inside the interval."""
    wide = rows[rows["kind"] == "prediction"].pivot_table(
        index=["parameters", "seed"], columns="unit", values="averaged"
    )
    made = []
    for _, row in predicted.iterrows():
        first, _, second = row["loss"].partition(" - ")
        losses = wide[first]
        if second:
            losses = losses - wide[second]
        own = losses[losses.index.get_level_values("parameters") == row["parameters"]].dropna()
        if len(own):
            mean = t_interval(own.to_numpy())
            made.append({**row, **interval_columns("measured", mean), "held": row["low"] <= mean.value <= row["high"]})
    return pd.DataFrame(made)


def early_table(rows: Table) -> Table:
    """Differences of ungated and gated units by step, with t-intervals, Holm's p over steps, and a verdict per pair.

    There is a crossing if the ungated unit is significantly lower at a step and the gated one at a later step.
    """
    curves: dict[Any, Any] = dict(rows.set_index(["unit", "seed"])[["measured", "losses"]].iterrows())
    made: list[dict[str, Any]] = []
    for first, second in PAIRS:
        seeds = sorted({s for unit, s in curves if unit == first} & {s for unit, s in curves if unit == second})
        a, b = (np.array([curves[unit, seed]["losses"] for seed in seeds]) for unit in (first, second))
        apart, steps = (a - b)[:, 1:], curves[first, seeds[0]]["measured"][1:]  # all units start from one head of zeros
        p = holm(stats.ttest_1samp(apart, 0.0)[1])
        signs = np.where(p < SIGNIFICANT, np.sign(apart.mean(axis=0)), 0.0)
        for step, own, each in zip(steps, apart.T, p, strict=True):
            row = {"pair": f"{first} - {second}", "step": step, **interval_columns("difference", t_interval(own))}
            made.append(row | {"p_holm": each, "verdict": crossing_verdict(signs)})
    return pd.DataFrame(made)


def crossing_verdict(signs: Array) -> str:
    """What the significant signs of ungated minus gated losses say, in the order of steps.

    >>> crossing_verdict(np.array([-1.0, 0.0, 1.0])), crossing_verdict(np.array([1.0, 0.0, -1.0]))
    ('crossing', 'inconclusive')
    """
    lower, higher = np.flatnonzero(signs < 0), np.flatnonzero(signs > 0)
    if len(lower) and len(higher):
        return (NEITHER, CROSSING)[int(lower[0] < higher[-1])]
    if len(lower) or len(higher):
        return (UNGATED_LOWER, GATED_LOWER)[len(higher) > 0]
    return NEITHER


def share_table(rows: Table) -> Table:
    """The share of the gate's gain that centering or an output bias recovers, by unit and optimizer.

    It is (plain - variant) / (plain - gated) of the means, NaN where the t-interval of plain - gated contains 0, with
    the design's percentile interval over seeds drawn with replacement (`share_low`) and Fieller's interval
    (`fieller_low`). The first is too narrow for six seeds: it held 85 % of 200 simulated shares, the second 95 %.
    """
    trained = rows[rows["kind"] == "mechanism"]
    wide = trained.pivot_table(index="seed", columns=["optimizer", "unit", "variant"], values="averaged")
    made: list[dict[str, Any]] = []
    for optimizer, unit in itertools.product(trained["optimizer"].unique(), GATED):
        for variant in VARIANTS:
            columns = [(optimizer, unit, ""), (optimizer, unit, variant), (optimizer, GATED[unit], "")]
            if not all(column in wide for column in columns):
                continue
            plain, other, gated = wide[columns].dropna().to_numpy().T
            gain, own = t_interval(plain - gated), t_interval(plain - other)
            row = {"optimizer": optimizer, "unit": unit, "variant": variant, "seeds": len(plain)}
            row |= {**interval_columns("gain", gain), **interval_columns("recovered", own)}
            share = bootstrap([plain, other, gated], recovered_share, paired=True)
            names = {**interval_columns("share", share), **fieller_columns(plain - other, plain - gated)}
            if not gain.excludes(0.0):
                names = dict.fromkeys(names, np.nan)
            made.append(row | names)
    return pd.DataFrame(made)


def recovered_share(plain: Array, other: Array, gated: Array) -> Array:
    """The mean of plain - other over the mean of plain - gated, over the last axis."""
    return (plain - other).mean(-1) / (plain - gated).mean(-1)


def fieller_columns(part: Array, whole: Array) -> dict[str, float]:
    """The ends of Fieller's interval for the ratio of the means of paired values.

    The mean of the second must be significantly different from 0.
    """
    (pp, pw), (_, ww) = np.cov(part, whole) / len(part) * t_reach(LEVEL, len(part) - 1) ** 2
    p, w = part.mean(), whole.mean()
    root = np.sqrt(max((p * w - pw) ** 2 - (w * w - ww) * (p * p - pp), 0.0))
    return {f"fieller_{end}": (p * w - pw + sign * root) / (w * w - ww) for end, sign in (("low", -1), ("high", 1))}


def kernel_table(rows: Table) -> Table:
    """Condition numbers of kernels before and after training, with all eigenvalues and without the largest."""
    own = rows[rows["kind"] == "kernel"]
    made = own[["optimizer", "unit", "variant", "when", "seed", "rows"]]
    return made.assign(condition=own["largest"] / own["smallest"], bulk=own["second"] / own["smallest"])


def text_table(rows: Table) -> Table:
    """Differences of units on another text, paired by seed."""
    wide = rows.pivot_table(index="seed", columns="unit", values="averaged")
    apart = {f"{a} - {b}": t_interval((wide[a] - wide[b]).dropna().to_numpy()) for a, b in PAIRS}
    return pd.DataFrame([{"pair": pair, **interval_columns("difference", one)} for pair, one in apart.items()])


def rank_table(rows: Table, scores: Mapping[str, Mapping[str, float]], units: Sequence[str] = ()) -> Table:
    """Rank correlations of the units' mean losses with scores; intervals over seeds and over units."""
    wide = rows[rows["kind"] == "units"].pivot_table(index="unit", columns="seed", values="averaged").dropna()
    made: list[dict[str, Any]] = []
    for name, values in scores.items():
        own = wide.loc[[unit for unit in units or wide.index if np.isfinite(values.get(unit, np.nan))]]
        losses = own.to_numpy()
        drawn = losses[:, resampled(losses.shape[1], DRAWS, np.random.default_rng(0))].mean(-1).T
        ranks = rank_agreement(dict(zip(own.index, losses.mean(1).tolist(), strict=True)), drawn, values)
        columns = {**interval_columns("seeds", ranks.correlation), **interval_columns("correlation", ranks.over_units)}
        made.append({"score": name, "units": len(own), **columns, "p": ranks.p})
    return pd.DataFrame(made)
