"""What the study of transformers says: its claims and notes, out of its tables' rows.

Paper 003's open question: GELU, or the whole feed-forward block, replaced in transformers, given and trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.models.replace import blocks
from gatelab.plotting import NEURON_COLOURS
from gatelab.plotting.kernels import LossCurve
from gatelab.plotting.maps import LEVELS, Replacement, replaced_figure
from gatelab.studies.definition import Claim, Outcome, Request, Study, Verdict
from gatelab.studies.linearize.transformer_models import Texts, minilm, see, small_bert, texts
from gatelab.studies.linearize.transformer_training import (
    LEARNING_RATE,
    TRAINED,
    Runs,
    Size,
    curve_rows,
    losses,
    training,
    training_rows,
)
from gatelab.studies.linearize.transformer_ways import DIRECTIONS, MAPS, Layer, judge, measure, measure_gpt, plain, ways
from gatelab.studies.progress import ticker

OPEN = "left open (section 5.1)"
COLLAPSED = 0.5  # of the cosine: unrelated sentences are near 0 to 0.2
Rows = Sequence[Mapping[str, Any]]


def claims(tables: Mapping[str, Rows]) -> tuple[Claim, ...]:
    cosines, layers, judged = tables["cosines"], tables["layers"], tables["verdicts"]
    return (
        _taylor(cosines, layers, judged),
        *_levels(cosines),
        _ranges(judged, layers),
        _whole(cosines, layers),
        _possible(judged),
        _converges(tables["training"]),
        _in_gpt(tables["gpt"]),
    )


def _claim(
    what: str, ours: str, because: str, interval: str = "", paper: str = OPEN, verdict: Verdict = "new"
) -> Claim:
    return Claim(what, paper, ours, verdict, because, interval)


def _of(rows: Rows, *ways: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["way"] in ways]


def _named(rows: Rows, column: str, digits: int) -> str:
    return ", ".join(f"{row['way']} {row[column]:.{digits}f}" for row in rows) or "none"


def _ends(numbers: Iterable[float], form: str) -> str:
    known = sorted(numbers)
    low, high = f"{known[0]:{form}}", f"{known[-1]:{form}}"
    return low if low == high else f"{low} to {high}"


def _taylor(cosines: Rows, layers: Rows, judged: Rows) -> Claim:
    one, part = _of(cosines, "taylor 10")[0], _of(layers, "taylor 10")
    reach = max(max(row["highest z"], -row["lowest z"]) for row in judged)
    return _claim(
        "GELU by five Taylor terms, as in the paper, in every block",
        f"cosine {one['cosine']:.3f}",
        f"{_ends((r['outside'] for r in part), '.2%')} of a layer's pre-activations lie beyond ±3, the farthest at "
        f"{reach:.1f}; a layer's output alone is off by {_ends((r['alone'] for r in part), '.2g')} of its size.",
        f"{one['cosine low']:.3f} to {one['cosine high']:.3f}",
    )


def _levels(cosines: Rows) -> Iterable[Claim]:
    left = list(cosines)
    for level, besides in zip(LEVELS, ("", f" but not {LEVELS[0]:g}"), strict=True):
        kept = [row for row in left if row["cosine low"] > level]
        left = [row for row in left if row not in kept]
        worst = f"The worst sentence: {_named(kept, 'least', 4)}." if kept else "No lower end of an interval is above."
        yield _claim(
            f"ways that keep embeddings at a cosine above {level:g}{besides}",
            _named(kept, "cosine", 5),
            worst,
            "95% over sentences, its lower end above",
        )
    gone = [row for row in left if row["cosine high"] < COLLAPSED]
    yield _claim(
        f"ways that collapse, to a cosine below {COLLAPSED}",
        _named(gone, "cosine", 2),
        f"Between that and {LEVELS[-1]:g}: {_named([row for row in left if row not in gone], 'cosine', 3)}.",
        "95% over sentences, its upper end below",
    )


def _ranges(judged: Rows, layers: Rows) -> Claim:
    by_width = sorted(judged, key=lambda row: row["lowest z"] - row["highest z"])
    said = [
        f"layer {row['layer']}: [{row['lowest z']:.1f}, {row['highest z']:.1f}], 99.9% of |z| below "
        f"{row['99.9% of |z| below']:.1f}"
        for row in (by_width[0], by_width[-1])
    ]
    found = {row["way"] for row in layers} - set(MAPS)
    highest = [
        max((w for w in found if w.startswith(f"{method} ")), key=lambda w: int(w.split()[1]))
        for method in ("minimax", "fit", "hermite")
    ]
    worst = ", ".join(f"{max(r['alone'] for r in _of(layers, way)):.2g} ({way})" for way in highest)
    return _claim(
        "what one polynomial must serve",
        "; ".join(said),
        "A few pre-activations lie far out. Minimax serves them at the cost of all others, Hermite's Gaussian weight "
        f"forgets them, a fit to all data weighs both; the worst layer alone is off by {worst}. The published ones "
        "put clamps there, which cost comparisons.",
    )


def _whole(cosines: Rows, layers: Rows) -> Claim:
    part = _of(cosines, *MAPS)
    features = {row["way"]: row["features"] for row in layers}
    alone = ", ".join(f"{r['way']} {_ends((x['alone'] for x in _of(layers, r['way'])), '.2g')}" for r in part)
    return _claim(
        "the whole block by few features, W2 Phi(W1) Psi(x)",
        ", ".join(f"{r['way']} (m = {features[r['way']]}) {r['cosine']:.3f}" for r in part),
        f"Cosines of embeddings, every block replaced. A layer alone is off by: {alone}.",
        "; ".join(f"{r['way']} {r['cosine low']:.3f} to {r['cosine high']:.3f}" for r in part),
    )


def _possible(judged: Rows) -> Claim:
    answers, width = [row["answer at 1%"] for row in judged], judged[0]["width"]
    said = ", ".join(f"{answers.count(a)} of {len(answers)} layers {a}" for a in dict.fromkeys(answers))
    least = min((row["m needed for 1%"] for row in judged if row["m needed for 1%"] is not None), default=width)
    floors, second = ([row[k] for row in judged] for k in ("floor at m = d + 1", "isotropic floor at degree 2"))
    return _claim(
        f"GELU(W1 x + b1) of {width} neurons by fewer features, to 1% of its size",
        f"{_span(judged, 'm needed for 1%')} features needed, at least {least / width:.0%} of the neurons ({said})",
        f"{_span(judged, 'm enough for 1%')} are enough on inputs held out. For 10%, "
        f"{_span(judged, 'm needed for 10%')} are needed and {_span(judged, 'm enough for 10%')} enough. d + 1 "
        f"features leave {_ends(floors, '.0%')} at least, whatever the maps. All {judged[0]['m of degree 2']} features "
        f"of degree 2, more than the neurons, would leave {_ends(second, '.0%')} on isotropic inputs of that spread.",
    )


def _span(rows: Rows, column: str) -> str:
    known = [row[column] for row in rows if row[column] is not None]
    if not known:
        return "more than these inputs can tell"
    return _ends(known, "d") + (" (in some layers more than can be told)" if len(known) < len(rows) else "")


def _converges(rows: Rows) -> Claim:
    others = [row for row in rows if row["activation"] != "gelu"]
    seeds = rows[0]["seeds"]
    faster = [row["activation"] for row in others if row["less gelu high"] < 0]
    gone = [f"{row['activation']} {row['diverged']} of {seeds}" for row in others if row["diverged"]]
    known = [row for row in others if np.isfinite(row["less gelu"])]
    away = ", ".join(
        f"{r['activation']} {r['less gelu']:+.3f} ({r['less gelu low']:+.3f} to {r['less gelu high']:+.3f})"
        for r in known
    )
    speed = ", ".join(
        f"{r['activation']} {r['steps']:.2f}" if np.isfinite(r["steps"]) else f"{r['activation']} never" for r in known
    )
    said = [f"below GELU's loss: {', '.join(faster)}" if faster else "none is below GELU's loss beyond chance"]
    said += [f"diverged: {', '.join(gone)}"] if gone else ["none diverged"]
    return _claim(
        "a small GPT converges faster with GELU replaced",
        "; ".join(said),
        f"Final test loss less that of GELU, same seeds and batches: {away}. Steps to the loss that GELU has half-way, "
        f"over that half: {speed}. The identity is what no activation at all would do.",
        f"95% for all of them together, Student's t over {seeds} seeds",
        "expected ('benefits include faster model convergence'), not measured",
        "reproduced" if faster else "new",
    )


def _in_gpt(rows: Rows) -> Claim:
    more: dict[str, list[float]] = {}
    for row in rows:
        if row["layer"] == 1:
            more.setdefault(row["way"], []).append(row["loss"] - row["plain loss"])
    plain = np.mean([row["plain loss"] for row in rows])
    return _claim(
        "the trained GPT with its blocks replaced afterwards",
        ", ".join(f"{way} {np.mean(v):+.2g}" for way, v in more.items()),
        f"Change of the test loss, {plain:.3f} nats a byte with GELU, mean over seeds; calibrated layer by layer.",
    )


def notes(text: Texts, size: Size, name: str, layers: Rows) -> tuple[str, ...]:
    features = {row["way"]: row["features"] for row in layers if row["features"] is not None}
    return (
        f"The model is {name}. Text: {text.about}; {len(text.calibration)} sentences to calibrate on, "
        f"{len(text.measured)} others to measure on.",
        "An error is |difference| / |output| over all tokens of a layer's output, after its residual and norm; alone: "
        "on the inputs of the plain model. Intervals draw whole sentences again; a worst sentence has none.",
        "Polynomials are made layer by layer. Those of minimax and fit are for the layer's range in the calibration "
        "text and a tenth of its half-width more; shares outside are of ±3 for taylor, of five deviations for hermite.",
        f"Features of whole maps: {', '.join(f'{way} {m}' for way, m in features.items())}. The quadratic fit has "
        f"products of {DIRECTIONS} leading directions of the inputs at most. The floor is that of GELU(W1 x + b1); of "
        "the whole block there is none at m = d, since Psi may be the block itself.",
        f"The GPT has 2 layers, d_model {size.d_model}, width {size.width}, context {size.context}: {size.steps} steps "
        f"of {size.batch} windows, AdamW at {LEARNING_RATE:g}, the same for all. Polynomials serve the pre-activations "
        "that GELU's models end with.",
    )


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
        curves.append(LossCurve(label, steps, test.mean(0), colour=colour))
        if label != "gelu":
            away = test - base[:, : test.shape[1]]
            gaps.append(LossCurve(label, steps, away.mean(0), away.min(0), away.max(0), colour=colour))
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
    position=7,
    beyond=True,
)
