"""Figure 3: condition numbers of the kernels of ViT and GPT-2, gated and not.

The full version is a record made on a GPU (benchmarks/gpu_kernels.py); the quick one computes kernels of small models
of gatelab's own, on chance pixels and tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from gatelab.models import GPT2, ViT
from gatelab.ntk import empirical, spectrum
from gatelab.plotting import look, new_figure, style
from gatelab.plotting.kernels import Series, draw_series
from gatelab.studies.definition import Claim, Outcome, Request, Study, Verdict
from gatelab.studies.ntk.gaussian import PAIRS, PAPER_NAMES, LogInterval, interval
from gatelab.studies.progress import ticker
from gatelab.studies.records import origin, read_record

RECORD = "ntk/models.json"
COMMAND = "python benchmarks/gpu_kernels.py results/ntk/models.json --only figure3"
MODELS = {"vit": "ViT", "gpt2": "GPT-2"}
STARTS = {"lecun": "LeCun weights", "configuration": "weights of deviation 0.02"}
EXTRA = ("relu2", "gqu")  # units that the paper did not try
NAMES = PAPER_NAMES | {"relu2": "ReLU²", "gqu": "GQU"}
QUICK_SAMPLES, QUICK_SEEDS = 8, 2


def run(request: Request) -> Outcome:
    if request.quick:
        rows = pd.DataFrame(_quick(request))
        note = "A small version: models of two layers on chance pixels and tokens; `configuration` needs the record."
    else:
        record = read_record(RECORD, COMMAND)
        rows = pd.DataFrame(record["figure3"])
        note = origin(record)
    units = [*(unit for pair in PAIRS for unit in pair), *EXTRA]
    rows = rows.loc[rows["unit"].isin(units)]
    found = {key: interval(part["condition"].to_numpy(float)) for key, part in rows.groupby(["model", "start", "unit"])}
    claims = [
        _claim(rows, found, model, start, pair)
        for model, start, pair in product(MODELS, STARTS, PAIRS)
        if (model, start, pair[0]) in found
    ]
    claims += [
        _extra(found, model, start) for model, start in product(MODELS, STARTS) if (model, start, "gqu") in found
    ]
    return Outcome(_figure(found), {"conditions": _table(rows, found)}, tuple(claims), (note, *_notes(rows)))


# ---- the small version


def _quick(request: Request) -> Iterator[dict[str, Any]]:
    units = [*(unit for pair in PAIRS for unit in pair), *EXTRA]
    tick = ticker(request, len(units) * len(MODELS) * QUICK_SEEDS)
    for seed in range(QUICK_SEEDS):
        draw = torch.Generator().manual_seed(seed)
        pixels = torch.randn(QUICK_SAMPLES, 3, 8, 8, generator=draw, dtype=torch.float64)
        tokens = torch.randint(256, (QUICK_SAMPLES, 16), generator=draw)
        for kind, unit in product(MODELS, units):
            model: nn.Module
            if kind == "vit":
                model, given, outputs = ViT("tiny", unit, seed=seed, dtype=torch.float64), pixels, 0
            else:
                model, given, outputs = GPT2("tiny", unit, seed=seed, dtype=torch.float64), tokens, (-1, 11)
                _lecun(model, seed)
            ends = spectrum(empirical(model, given, outputs))
            yield {
                "model": kind,
                "unit": unit,
                "start": "lecun",
                "seed": seed,
                "n": QUICK_SAMPLES,
                "data": "chance pixels" if kind == "vit" else "chance tokens",
                "parameters": sum(p.numel() for p in model.parameters()),
                "lambda_min": ends.lambda_min,
                "lambda_max": ends.lambda_max,
                "condition": ends.condition,
            }
            tick()


def _lecun(model: nn.Module, seed: int) -> None:
    """Matrices of all blocks from N(0, 1 / fan-in), as theory has them."""
    draw = torch.Generator().manual_seed(seed)

    def fill(p: Tensor) -> None:
        p.copy_(torch.randn(p.shape, generator=draw, dtype=p.dtype) * p.shape[1] ** -0.5)

    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2 and "blocks" in name:
                fill(p)


# ---- figure


def _figure(found: dict[Any, LogInterval]) -> Figure:
    with style():
        figure = new_figure(9.6, 4.4)
        panels = figure.subplots(1, len(MODELS))
        for panel, (model, title) in zip(panels, MODELS.items(), strict=True):
            _panel(panel, found, model)
            panel.set_title(title)
        panels[0].set_ylabel("condition number of the tangent kernel, κ")
        seen = {start for _, start, _ in found}
        handles = [
            Series(
                f"{role}, {name}", *_nothing(), colour=look(unit).colour, marker="o", line="", hollow=start != "lecun"
            )
            for start, name in STARTS.items()
            if start in seen
            for role, unit in (("plain", "mlp"), ("gated", "glu"))
        ]
        figure.legend(handles=[h.handle() for h in handles], loc="outside lower center", ncols=len(handles))
        figure.suptitle("Figure 3: gated and plain feed-forward blocks in whole models")
    return figure


def _nothing() -> tuple[np.ndarray, np.ndarray]:
    return np.empty(0), np.empty(0)


def _panel(panel: Axes, found: dict[Any, LogInterval], model: str) -> None:
    groups = [*PAIRS, EXTRA]
    series = []
    for place, pair in enumerate(groups):
        for side, unit in enumerate(pair):
            for start, shift in (("lecun", -0.07), ("configuration", 0.07)):
                at = found.get((model, start, unit))
                if at is None:
                    continue
                # relu2 has no gate; GQU has two factors.
                colour = look("mlp" if side == 0 else "glu").colour
                x = np.array([place + (side - 0.5) * 0.44 + shift])
                low, high = (np.array([v]) for v in (at.low, at.high))
                series.append(
                    Series(unit, x, np.array([at.value]), low, high, colour, "o", "", hollow=start != "lecun")
                )
    draw_series(panel, series, x_log=False)
    panel.set_xticks(range(len(groups)), ["\n".join(NAMES[u] for u in pair) for pair in groups])
    panel.set_xlim(-0.6, len(groups) - 0.4)
    panel.grid(axis="x", visible=False)


# ---- what it says


def _claim(rows: pd.DataFrame, found: dict[Any, LogInterval], model: str, start: str, pair: tuple[str, str]) -> Claim:
    plain, gated = (_by_seed(rows, model, start, unit) for unit in pair)
    times = interval((plain["condition"] / gated["condition"]).to_numpy(float))
    ends = [
        interval(v.to_numpy(float))
        for v in (plain["lambda_max"] / gated["lambda_max"], gated["lambda_min"] / plain["lambda_min"])
    ]
    verdict: Verdict = "reproduced" if times.low > 1 else "differs"
    word = "smaller" if times.value >= 1 else "larger"
    if word == "larger":
        said = interval((gated["condition"] / plain["condition"]).to_numpy(float))
    else:
        said = times
    names = [NAMES[unit] for unit in pair]
    return Claim(
        f"condition number of {MODELS[model]} with {names[1]} against {names[0]}, {STARTS[start]}",
        "smaller",
        f"{said.value:.3g} times {word}",
        verdict,
        f"κ is {found[model, start, pair[0]]} with {names[0]} and {found[model, start, pair[1]]} with {names[1]}: "
        f"λ_max is {ends[0]} times smaller and λ_min {ends[1]} times larger.",
        said.ends,
    )


def _by_seed(rows: pd.DataFrame, model: str, start: str, unit: str) -> pd.DataFrame:
    chosen = rows.loc[(rows["model"] == model) & (rows["start"] == start) & (rows["unit"] == unit)]
    return chosen.set_index("seed").sort_index()


def _extra(found: dict[Any, LogInterval], model: str, start: str) -> Claim:
    at = {unit: found[model, start, unit] for unit in ("mlp", "glu", *EXTRA)}
    best = min(at, key=lambda unit: at[unit].value)
    return Claim(
        f"condition number of {MODELS[model]} with ReLU² and GQU, {STARTS[start]}",
        "-",
        ", ".join(f"{NAMES[unit]} {at[unit].value:.3g}" for unit in EXTRA),
        "new",
        f"Beside ReLU {at['mlp']} and ReGLU {at['glu']}: {NAMES[best]} is lowest of the four.",
        ", ".join(at[unit].ends for unit in EXTRA),
    )


def _table(rows: pd.DataFrame, found: dict[Any, LogInterval]) -> pd.DataFrame:
    columns = ["model", "start", "unit", "seed", "n", "parameters", "lambda_max", "lambda_min", "condition", "data"]
    table = rows.loc[:, columns].sort_values(["model", "start", "unit", "seed"], ignore_index=True)
    middle = [found[key] for key in zip(table["model"], table["start"], table["unit"], strict=True)]
    return table.assign(mean=[m.value for m in middle], low=[m.low for m in middle], high=[m.high for m in middle])


def _notes(rows: pd.DataFrame) -> tuple[str, ...]:
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


STUDY = Study(
    "ntk/fig3",
    "Condition numbers of ViT and GPT-2, gated and plain",
    "Replacing the feed-forward blocks of ViT and GPT-2 by GLU variants lowers the condition number.",
    run,
    position=3,
)
