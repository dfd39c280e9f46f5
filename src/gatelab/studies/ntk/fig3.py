"""Figure 3: condition numbers of the kernels of ViT and GPT-2, gated and not.

The full version is a record made on a GPU (benchmarks/gpu_kernels.py); the quick one computes kernels of small models
of gatelab's own, on random pixels and tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import nn

from gatelab.arrays import Array
from gatelab.models import GPT2, ViT
from gatelab.ntk import empirical, spectrum
from gatelab.plotting import Panel, figure_legend, look, new_figure, style
from gatelab.plotting.kernels import Series, draw_series
from gatelab.statistics import Interval
from gatelab.studies.definition import Claim, Outcome, Request, Study, ticker
from gatelab.studies.ntk.gaussian import PAIRS, PAPER_NAMES, interval, interval_columns
from gatelab.studies.records import origin, read_record
from gatelab.studies.verdicts import side_verdict

RECORD = "ntk/models.json"
COMMAND = "python benchmarks/gpu_kernels.py results/ntk/models.json --only figure3"
MODELS = {"vit": "ViT", "gpt2": "GPT-2"}
PANELS = {"vit": "(a)", "gpt2": "(b)"}
STARTS = {"lecun": "LeCun weights", "configuration": "weights of deviation 0.02"}
EXTRA = ("relu2", "gqu")  # units that the paper did not try: one without a gate, one with two factors
UNITS = (*(unit for pair in PAIRS for unit in pair), *EXTRA)
NAMES = PAPER_NAMES | {"relu2": "ReLU²", "gqu": "GQU"}
QUICK_SAMPLES, QUICK_SEEDS = 8, 2
SHIFTS = {"lecun": -0.07, "configuration": 0.07}  # beside each other in a panel


@dataclass(frozen=True, eq=False)
class Conditions:
    """A row for each model, start, unit and seed: extreme eigenvalues and condition number of its kernel."""

    rows: pd.DataFrame

    @cached_property
    def means(self) -> dict[Any, Interval]:
        """Condition numbers over seeds, by model, start and unit."""
        groups = self.rows.groupby(["model", "start", "unit"])
        return {key: interval(part["condition"].to_numpy(float)) for key, part in groups}

    def by_seed(self, model: str, start: str, unit: str) -> pd.DataFrame:
        """The rows of one unit, in the order of their seeds, which number them."""
        table = self.rows
        chosen = table.loc[(table["model"] == model) & (table["start"] == start) & (table["unit"] == unit)]
        return chosen.set_index("seed").sort_index()

    def table(self) -> pd.DataFrame:
        """All rows, each with the mean over its seeds."""
        columns = ["model", "start", "unit", "seed", "n", "parameters", "lambda_max", "lambda_min", "condition", "data"]
        table = self.rows.loc[:, columns].sort_values(["model", "start", "unit", "seed"], ignore_index=True)
        keys = zip(table["model"], table["start"], table["unit"], strict=True)
        mean, low, high = interval_columns([self.means[key] for key in keys])
        return table.assign(mean=mean, low=low, high=high)


def run(request: Request) -> Outcome:
    """Figure 3 from the record, or of small models."""
    if request.quick:
        rows = pd.DataFrame(measure_small(request))
        note = "A small version: models of two layers on random pixels and tokens; `configuration` needs the record."
    else:
        record = read_record(RECORD, COMMAND)
        rows = pd.DataFrame(record["figure3"])
        note = origin(record)
    conditions = Conditions(rows.loc[rows["unit"].isin(UNITS)])
    claims = [
        pair_claim(conditions, model, start, pair)
        for model, start, pair in product(MODELS, STARTS, PAIRS)
        if (model, start, pair[0]) in conditions.means
    ]
    claims += [
        extra_claim(conditions, model, start)
        for model, start in product(MODELS, STARTS)
        if (model, start, "gqu") in conditions.means
    ]
    tables = {"conditions": conditions.table()}
    return Outcome(draw(conditions), tables, tuple(claims), (note, *notes(conditions.rows)))


# ---- the small version


def measure_small(request: Request) -> Iterator[dict[str, Any]]:
    """A row for each small model, unit and seed."""
    tick = ticker(request, len(UNITS) * len(MODELS) * QUICK_SEEDS)
    for seed in range(QUICK_SEEDS):
        draws = torch.Generator().manual_seed(seed)
        pixels = torch.randn(QUICK_SAMPLES, 3, 8, 8, generator=draws, dtype=torch.float64)
        tokens = torch.randint(256, (QUICK_SAMPLES, 16), generator=draws)
        for kind, unit in product(MODELS, UNITS):
            model: nn.Module
            if kind == "vit":
                model, data = ViT("tiny", unit, seed=seed, dtype=torch.float64), "random pixels"
                kernel = empirical(model, pixels, 0)
            else:
                model, data = GPT2("tiny", unit, seed=seed, dtype=torch.float64), "random tokens"
                draw_lecun_weights(model, seed)
                kernel = empirical(model, tokens, (-1, 11))
            ends = spectrum(kernel)
            yield {
                "model": kind,
                "unit": unit,
                "start": "lecun",
                "seed": seed,
                "n": QUICK_SAMPLES,
                "data": data,
                "parameters": sum(p.numel() for p in model.parameters()),
                "lambda_min": ends.lambda_min,
                "lambda_max": ends.lambda_max,
                "condition": ends.condition,
            }
            tick()


def draw_lecun_weights(model: nn.Module, seed: int) -> None:
    """Matrices of all blocks from N(0, 1 / fan-in), as theory has them."""
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2 and "blocks" in name:
                p.copy_(torch.randn(p.shape, generator=draws, dtype=p.dtype) * p.shape[1] ** -0.5)


# ---- what it says


def pair_claim(conditions: Conditions, model: str, start: str, pair: tuple[str, str]) -> Claim:
    """The condition number of a model with a gated unit against that with the plain one."""
    plain, gated = (conditions.by_seed(model, start, unit) for unit in pair)

    def times(larger: pd.DataFrame, smaller: pd.DataFrame, column: str) -> Interval:
        return interval((larger[column] / smaller[column]).to_numpy(float))

    change, word = times(plain, gated, "condition"), "smaller"
    verdict = side_verdict(change, 1, "above")
    if change.value < 1:
        change, word = times(gated, plain, "condition"), "larger"
    means = [conditions.means[model, start, unit] for unit in pair]
    names = [NAMES[unit] for unit in pair]
    return Claim(
        f"condition number of {MODELS[model]} with {names[1]} against {names[0]}, {STARTS[start]}",
        "smaller",
        f"{change.value:.3g} times {word}",
        verdict,
        f"κ is {means[0]} with {names[0]} and {means[1]} with {names[1]}: λ_max is "
        f"{times(plain, gated, 'lambda_max')} times smaller and λ_min {times(gated, plain, 'lambda_min')} times "
        "larger.",
        change.ends(),
        place=f"figure 3, {PANELS[model]} {MODELS[model]}, {names[1]}, {STARTS[start]}",
    )


def extra_claim(conditions: Conditions, model: str, start: str) -> Claim:
    """The condition numbers of the units that the paper did not try."""
    means = {unit: conditions.means[model, start, unit] for unit in ("mlp", "glu", *EXTRA)}
    best = min(means, key=lambda unit: means[unit].value)
    return Claim(
        f"condition number of {MODELS[model]} with ReLU² and GQU, {STARTS[start]}",
        "-",
        ", ".join(f"{NAMES[unit]} {means[unit].value:.3g}" for unit in EXTRA),
        "new",
        f"Beside ReLU {means['mlp']} and ReGLU {means['glu']}: {NAMES[best]} is lowest of the four.",
        ", ".join(means[unit].ends() for unit in EXTRA),
    )


def notes(rows: pd.DataFrame) -> tuple[str, ...]:
    """Sizes and data, and what the paper does not say."""
    first = rows.iloc[0]
    data = "; ".join(f"{MODELS[str(m)]}: {d}" for m, d in rows.groupby("model")["data"].first().items())
    return (
        f"n = {first['n']} samples, one output a sample, blocks of equal numbers of weights; {data}. Intervals are "
        f"t-intervals of logarithms over {rows['seed'].nunique()} seeds, 95 %.",
        "The paper does not say how its models were initialised, nor which output the kernel is of. Behind a layer "
        "norm, weights of deviation 0.02 make pre-activations of deviation 0.02 sqrt(384) = 0.39 in this ViT and 0.55 "
        "in GPT-2; a gate times a factor is smaller than either, and the gated block has the lesser share in the "
        "kernel. LeCun's weights make them 1.",
    )


# ---- figure


def draw(conditions: Conditions) -> Figure:
    """A panel a model: condition numbers by pair of units, plain and gated, from both starts."""
    nothing: Array = np.empty(0)
    with style():
        figure = new_figure(9.6, 4.4)
        panels = [Panel(axes) for axes in figure.subplots(1, len(MODELS))]
        for panel, (model, title) in zip(panels, MODELS.items(), strict=True):
            draw_model(panel, conditions.means, model)
            panel.set(title=title)
        panels[0].set(ylabel="condition number of the tangent kernel, κ")
        starts = {start for _, start, _ in conditions.means}
        entries = [
            dots(f"{role}, {name}", nothing, nothing, role, start).entry()
            for start, name in STARTS.items()
            if start in starts
            for role in ("plain", "gated")
        ]
        figure_legend(figure, entries, ncols=len(entries))
        figure.suptitle("Figure 3: gated and plain feed-forward blocks in whole models")
    return figure


def draw_model(panel: Panel, means: dict[Any, Interval], model: str) -> None:
    """Pairs of units beside each other; hollow dots are of the start with small weights."""
    groups = [*PAIRS, EXTRA]
    series = []
    for place, pair in enumerate(groups):
        for side, (unit, role) in enumerate(zip(pair, ("plain", "gated"), strict=True)):
            for start, shift in SHIFTS.items():
                if (model, start, unit) in means:
                    value, low, high = interval_columns([means[model, start, unit]])
                    x = np.array([place + (side - 0.5) * 0.44 + shift])
                    series.append(dots(unit, x, value, role, start, low=low, high=high))
    draw_series(panel, series, x_log=False)
    panel.axes.set_xticks(range(len(groups)), ["\n".join(NAMES[u] for u in pair) for pair in groups])
    panel.set(xlim=(-0.6, len(groups) - 0.4))
    panel.axes.grid(axis="x", visible=False)


def dots(label: str, x: Array, value: Array, role: str, start: str, **ends: Array) -> Series:
    """Dots in the colour of plain or of gated units, hollow where weights start small."""
    colour = look({"plain": "mlp", "gated": "glu"}[role]).colour
    return Series(label, x, value, **ends, colour=colour, marker="o", line="", hollow=start != "lecun")


STUDY = Study(
    "ntk/fig3",
    "Condition numbers of ViT and GPT-2, gated and plain",
    "Replacing the feed-forward blocks of ViT and GPT-2 by GLU variants lowers the condition number.",
    run,
    position=3,
)
