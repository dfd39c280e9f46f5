"""Paper 003's open question: GELU, or the whole feed-forward block, replaced in transformers, given and trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gatelab.models.layouts import blocks
from gatelab.plotting import NEURON_COLOURS
from gatelab.plotting.kernels import LossCurve
from gatelab.plotting.maps import LEVELS, Replacement, replaced_figure
from gatelab.studies.definition import Claim, Outcome, Request, Study, Verdict, ticker
from gatelab.studies.linearize.transformer_models import Texts, minilm, small_bert, texts, trace_sentences
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
from gatelab.studies.linearize.transformer_ways import (
    DIRECTIONS,
    MAPS,
    TracedLayer,
    judge,
    measure,
    measure_gpt,
    plain,
    ways,
)

COLLAPSED = 0.5  # of the cosine: unrelated sentences are near 0 to 0.2
Rows = Sequence[Mapping[str, Any]]
SENTENCES = {"full": (192, 96), "quick": (40, 20)}  # to calibrate on, and to measure on
LOOKED_AT = {"full": 3500, "quick": 400}  # inputs of a layer that its verdict is of
GPT_WAYS = ("taylor 10", "minimax 4", "minimax 8", "fit 4", "fit 8", "hermite 4", "mpcformer", "puma", "linear fit")
QUICK = Size(steps=24, context=16, d_model=16, width=32, seeds=2, test=16)


def run(request: Request) -> Outcome:
    """Every way in a model of sentences, GPTs trained without GELU, and the trained GPT with its blocks replaced."""
    kind, size, trained, after = "full", Size(), TRAINED, GPT_WAYS
    if request.quick:
        kind, size, trained, after = "quick", QUICK, ("minimax 4", "taylor 10"), ("minimax 4", "linear fit")
    chosen = ways(request.quick)
    tick = ticker(request, len(chosen) + len(trained) + 3)
    text = texts(request.quick, *SENTENCES[kind])
    embedder = small_bert() if request.quick else minilm()
    known = trace_sentences(embedder, embedder.model, text.calibration)
    layers = [TracedLayer(b, x) for b, x in zip(blocks(embedder.model), known.inputs, strict=True)]
    model = plain(embedder, text.measured)
    rows: dict[str, list[dict[str, Any]]] = {"layers": [], "cosines": []}
    for way in chosen:
        errors, cosine = measure(way, layers, model)
        rows["layers"] += errors
        rows["cosines"].append(cosine)
        tick()
    rows["verdicts"] = [judge(i, layer, LOOKED_AT[kind]) for i, layer in enumerate(layers)]
    tick()
    runs, gpts = training(size, text.letters, trained, tick)
    rows["training"] = training_rows(runs)
    rows["curves"] = curve_rows(runs)
    rows["gpt"] = [row for way in after for row in measure_gpt(way, gpts, text.letters, size.test)]
    tick()
    tables = {name: pd.DataFrame(part) for name, part in rows.items()}
    remarks = notes(text, size, embedder.name, rows["layers"])
    return Outcome(draw(rows, runs, embedder.name), tables, claims(rows), remarks)


# ---- what it says


def claims(tables: Mapping[str, Rows]) -> tuple[Claim, ...]:
    """All claims, out of the rows of the tables by their names."""
    cosines, layers, judged = tables["cosines"], tables["layers"], tables["verdicts"]
    return (
        taylor_claim(cosines, layers, judged),
        *level_claims(cosines),
        ranges_claim(judged, layers),
        whole_claim(cosines, layers),
        possible_claim(judged),
        convergence_claim(tables["training"]),
        gpt_claim(tables["gpt"]),
    )


def new_claim(what: str, ours: str, because: str, interval: str = "") -> Claim:
    """Of what the paper leaves open."""
    return Claim(what, "left open (section 5.1)", ours, "new", because, interval)


def rows_of(rows: Rows, *ways: str) -> list[Mapping[str, Any]]:
    """The rows of these ways."""
    return [row for row in rows if row["way"] in ways]


def ways_text(rows: Rows, column: str, digits: int) -> str:
    """Every way with its number, "none" where there is no row."""
    return ", ".join(f"{row['way']} {row[column]:.{digits}f}" for row in rows) or "none"


def span(numbers: Iterable[float], form: str) -> str:
    """From the least to the greatest; one number where they look the same.

    >>> span([3, 1, 2], "d"), span([1.01, 1.02], ".1f")
    ('1 to 3', '1.0')
    """
    known = sorted(numbers)
    low, high = f"{known[0]:{form}}", f"{known[-1]:{form}}"
    if low == high:
        return low
    return f"{low} to {high}"


def taylor_claim(cosines: Rows, layers: Rows, judged: Rows) -> Claim:
    """The paper's own way."""
    cosine, part = rows_of(cosines, "taylor 10")[0], rows_of(layers, "taylor 10")
    reach = max(max(row["highest z"], -row["lowest z"]) for row in judged)
    return new_claim(
        "GELU by five Taylor terms, as in the paper, in every block",
        f"cosine {cosine['cosine']:.3f}",
        f"{span((r['outside'] for r in part), '.2%')} of a layer's pre-activations lie beyond ±3, the farthest at "
        f"{reach:.1f}; a layer's output alone is off by {span((r['alone'] for r in part), '.2g')} of its size.",
        f"{cosine['cosine low']:.3f} to {cosine['cosine high']:.3f}",
    )


def level_claims(cosines: Rows) -> Iterable[Claim]:
    """Which ways keep embeddings as they are, at two levels, and which lose them."""
    left = list(cosines)
    for level, besides in zip(LEVELS, ("", f" but not {LEVELS[0]:g}"), strict=True):
        above = [row for row in left if row["cosine low"] > level]
        left = [row for row in left if row not in above]
        worst = "No lower end of an interval is above."
        if above:
            worst = f"The worst sentence: {ways_text(above, 'least', 4)}."
        yield new_claim(
            f"ways that keep embeddings at a cosine above {level:g}{besides}",
            ways_text(above, "cosine", 5),
            worst,
            "95% over sentences, its lower end above",
        )
    gone = [row for row in left if row["cosine high"] < COLLAPSED]
    yield new_claim(
        f"ways that collapse, to a cosine below {COLLAPSED}",
        ways_text(gone, "cosine", 2),
        f"Between that and {LEVELS[-1]:g}: {ways_text([row for row in left if row not in gone], 'cosine', 3)}.",
        "95% over sentences, its upper end below",
    )


def ranges_claim(judged: Rows, layers: Rows) -> Claim:
    """The narrowest and the widest range of pre-activations, and how polynomials of high degree cope."""
    by_width = sorted(judged, key=lambda row: row["lowest z"] - row["highest z"])
    ranges = [
        f"layer {row['layer']}: [{row['lowest z']:.1f}, {row['highest z']:.1f}], 99.9% of |z| below "
        f"{row['99.9% of |z| below']:.1f}"
        for row in (by_width[0], by_width[-1])
    ]
    polynomials = {row["way"] for row in layers} - set(MAPS)
    highest = [
        max((w for w in polynomials if w.startswith(f"{method} ")), key=lambda w: int(w.split()[1]))
        for method in ("minimax", "fit", "hermite")
    ]
    worst = ", ".join(f"{max(r['alone'] for r in rows_of(layers, way)):.2g} ({way})" for way in highest)
    return new_claim(
        "what one polynomial must serve",
        "; ".join(ranges),
        "A few pre-activations lie far out. Minimax serves them at the cost of all others, Hermite's Gaussian weight "
        f"forgets them, a fit to all data weighs both; the worst layer alone is off by {worst}. The published ones "
        "put clamps there, which cost comparisons.",
    )


def whole_claim(cosines: Rows, layers: Rows) -> Claim:
    """Maps of few features in place of every block."""
    part = rows_of(cosines, *MAPS)
    features = {row["way"]: row["features"] for row in layers}
    alone = ", ".join(f"{r['way']} {span((x['alone'] for x in rows_of(layers, r['way'])), '.2g')}" for r in part)
    return new_claim(
        "the whole block by few features, W2 Phi(W1) Psi(x)",
        ", ".join(f"{r['way']} (m = {features[r['way']]}) {r['cosine']:.3f}" for r in part),
        f"Cosines of embeddings, every block replaced. A layer alone is off by: {alone}.",
        "; ".join(f"{r['way']} {r['cosine low']:.3f} to {r['cosine high']:.3f}" for r in part),
    )


def possible_claim(judged: Rows) -> Claim:
    """How many features the activations of a layer need, whatever the maps."""
    answers, width = [row["answer at 1%"] for row in judged], judged[0]["width"]
    counts = ", ".join(f"{answers.count(a)} of {len(answers)} layers {a}" for a in dict.fromkeys(answers))
    least = min((row["m needed for 1%"] for row in judged if row["m needed for 1%"] is not None), default=width)
    floors, second = ([row[k] for row in judged] for k in ("floor at m = d + 1", "isotropic floor at degree 2"))
    return new_claim(
        f"GELU(W1 x + b1) of {width} neurons by fewer features, to 1% of its size",
        f"{known_span(judged, 'm needed for 1%')} features needed, at least {least / width:.0%} of the neurons "
        f"({counts})",
        f"{known_span(judged, 'm enough for 1%')} are enough on inputs held out. For 10%, "
        f"{known_span(judged, 'm needed for 10%')} are needed and {known_span(judged, 'm enough for 10%')} enough. "
        f"d + 1 features leave {span(floors, '.0%')} at least, whatever the maps. All {judged[0]['m of degree 2']} "
        f"features of degree 2, more than the neurons, would leave {span(second, '.0%')} on isotropic inputs of "
        "that spread.",
    )


def known_span(rows: Rows, column: str) -> str:
    """The numbers of features of all layers, as far as the inputs can tell."""
    known = [row[column] for row in rows if row[column] is not None]
    if not known:
        return "more than these inputs can tell"
    if len(known) < len(rows):
        return span(known, "d") + " (in some layers more than can be told)"
    return span(known, "d")


def convergence_claim(rows: Rows) -> Claim:
    """Whether training is faster without GELU, which the paper expects."""
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
    below, diverged = "none is below GELU's loss beyond chance", "none diverged"
    verdict: Verdict = "new"
    if faster:
        below = f"below GELU's loss: {', '.join(faster)}"
        verdict = "reproduced"
    if gone:
        diverged = f"diverged: {', '.join(gone)}"
    return Claim(
        "a small GPT converges faster with GELU replaced",
        "expected ('benefits include faster model convergence'), not measured",
        f"{below}; {diverged}",
        verdict,
        f"Final test loss less that of GELU, same seeds and batches: {away}. Steps to the loss that GELU has half-way, "
        f"over that half: {speed}. The identity is what no activation at all would do.",
        f"95% for all of them together, Student's t over {seeds} seeds",
    )


def gpt_claim(rows: Rows) -> Claim:
    """What replacing does to a model that was trained with GELU."""
    more: dict[str, list[float]] = {}
    for row in rows:
        if row["layer"] == 1:
            more.setdefault(row["way"], []).append(row["loss"] - row["plain loss"])
    plain = np.mean([row["plain loss"] for row in rows])
    return new_claim(
        "the trained GPT with its blocks replaced afterwards",
        ", ".join(f"{way} {np.mean(v):+.2g}" for way, v in more.items()),
        f"Change of the test loss, {plain:.3f} nats a byte with GELU, mean over seeds; calibrated layer by layer.",
    )


def notes(text: Texts, size: Size, name: str, layers: Rows) -> tuple[str, ...]:
    """Models and text, what errors and intervals are, and how the GPT was trained."""
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


# ---- figure


def draw(rows: Mapping[str, Rows], runs: Runs, name: str) -> Figure:
    """Errors and cosines of every way, and the losses of the GPT with each function."""
    replacements = [replacement(row, rows_of(rows["layers"], row["way"])) for row in rows["cosines"]]
    curves, gaps = [], []
    base = losses(runs["gelu"])
    colours = {label: NEURON_COLOURS[i % 7] for i, label in enumerate(n for n in runs if n != "gelu")}
    for label, histories in runs.items():
        test, colour = losses(histories), colours.get(label, "#222222")
        steps = max((h.steps for h in histories), key=len).astype(float)
        curves.append(LossCurve(label, steps, test.mean(0), colour=colour))
        if label != "gelu":
            away = test - base[:, : test.shape[1]]
            gaps.append(LossCurve(label, steps, away.mean(0), away.min(0), away.max(0), colour=colour))
    title = f"Feed-forward blocks of {name} replaced, and a GPT trained without GELU"
    return replaced_figure(replacements, curves, gaps, title)


def replacement(cosine: Mapping[str, Any], layers: Rows) -> Replacement:
    """One way as the figure has it: its errors by layer, and 1 - cosine with its ends and its worst."""
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
