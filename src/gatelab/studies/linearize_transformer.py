"""Paper 003's open question: GELU, or the whole feed-forward block, replaced in transformers, given and trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from gatelab.models.replace import blocks
from gatelab.plotting import NEURON_COLOURS
from gatelab.plotting.dynamics import Curve
from gatelab.plotting.replaced import Replacement, replaced_figure
from gatelab.studies.linearize_transformer_claims import Rows, claims, notes
from gatelab.studies.linearize_transformer_models import minilm, see, small_bert, texts
from gatelab.studies.linearize_transformer_training import (
    TRAINED,
    Runs,
    Size,
    curve_rows,
    losses,
    training,
    training_rows,
)
from gatelab.studies.linearize_transformer_ways import Layer, judge, measure, measure_gpt, plain, ways
from gatelab.studies.measure import ticker
from gatelab.studies.study import Outcome, Request, Study

SENTENCES = {"full": (192, 96), "quick": (40, 20)}  # to calibrate on, and to measure on
LOOKED_AT = {"full": 3500, "quick": 400}  # inputs of a layer that its verdict is of
GPT_WAYS = ("taylor 10", "minimax 4", "minimax 8", "fit 4", "fit 8", "hermite 4", "mpcformer", "puma", "linear fit")
QUICK = Size(steps=24, context=16, d_model=16, width=32, seeds=2, test=16)


def run(request: Request) -> Outcome:
    kind, size = ("quick", QUICK) if request.quick else ("full", Size())
    chosen, trained = ways(request.quick), ("minimax 4", "taylor 10") if request.quick else TRAINED
    tick = ticker(request, len(chosen) + len(trained) + 3)
    text = texts(request.quick, *SENTENCES[kind])
    embedder = small_bert() if request.quick else minilm()
    known = see(embedder, embedder.model, text.calibration)
    layers = [Layer(b, x) for b, x in zip(blocks(embedder.model), known.inputs, strict=True)]
    at = plain(embedder, text.measured)
    rows: dict[str, list[dict[str, Any]]] = {"layers": [], "cosines": []}
    for way in chosen:
        errors, cosine = measure(way, layers, at)
        rows["layers"] += errors
        rows["cosines"].append(cosine)
        tick()
    rows["verdicts"] = [judge(i, layer, LOOKED_AT[kind]) for i, layer in enumerate(layers)]
    tick()
    runs, gpts = training(size, text.letters, trained, tick)
    rows["training"] = training_rows(runs)
    after = ("minimax 4", "linear fit") if request.quick else GPT_WAYS
    rows["curves"] = curve_rows(runs)
    rows["gpt"] = [row for way in after for row in measure_gpt(way, gpts, text.letters, size.test)]
    tick()
    tables = {name: pd.DataFrame(found) for name, found in rows.items()}
    said = notes(text, size, embedder.name, rows["layers"])
    return Outcome(_figure(rows, runs, embedder.name), tables, claims(rows), said)


def _figure(rows: Mapping[str, Rows], runs: Runs, name: str) -> Figure:
    made = [_replacement(row, [r for r in rows["layers"] if r["way"] == row["way"]]) for row in rows["cosines"]]
    curves, gaps = [], []
    base = losses(runs["gelu"])
    for i, (label, histories) in enumerate(runs.items()):
        test, colour = losses(histories), "#222222" if label == "gelu" else NEURON_COLOURS[(i - 1) % 7]
        steps = max((h.steps for h in histories), key=len).astype(float)
        curves.append(Curve(label, steps, test.mean(0), colour=colour))
        if label != "gelu":
            away = test - base[:, : test.shape[1]]
            gaps.append(Curve(label, steps, away.mean(0), away.min(0), away.max(0), colour=colour))
    title = f"Feed-forward blocks of {name} replaced, and a GPT trained without GELU"
    return replaced_figure(made, curves, gaps, title)


def _replacement(cosine: Mapping[str, Any], layers: Rows) -> Replacement:
    alone, accumulated = ([float(r[k]) for r in layers] for k in ("alone", "accumulated"))
    mean, low, high, worst = (1 - cosine[k] for k in ("cosine", "cosine high", "cosine low", "least"))
    return Replacement(cosine["way"], tuple(alone), tuple(accumulated), (mean, low, high, worst))


STUDY = Study(
    "linearize/transformer",
    "Replaced in a transformer",
    "The paper expects a decomposed GELU to help transformers converge, and leaves it to further work.",
    run,
    long=True,
)
