"""The paper's open question: GELU or whole feed-forward blocks of transformers, replaced after training or before."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from gatelab.feedforward import Activation, Unit
from gatelab.models.layouts import blocks
from gatelab.models.replace import trace
from gatelab.plotting.facets import Facets, Overlay, draw_figure
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request, limits
from gatelab.studies.engine import Study, Table, Tables, averaged, interval_at
from gatelab.studies.linearize import transformer_parts as parts
from gatelab.train import load_models

LEVELS = (0.999, 0.99)  # cosines that a way keeps
COLLAPSED = 0.5  # unrelated sentences have cosines near 0 to 0.2
OPEN = "left open (section 5.1)"
EXPECTED = "expected ('benefits include faster model convergence'), not measured"
TRAINED = ("minimax 4", "minimax 8", "hermite 4", "mpcformer", "taylor 10", "identity")
QUICK_WAYS = ("taylor 10", "minimax 8", "fit 4", "hermite 4", "mpcformer", "puma", "tangent", "linear fit")
WAYS_DRAWN: dict[str, Any] = {"col": "family", "wrap": 2, "ylog": True}
FIGURE = (
    Facets(
        table="layers", x="layer", y="accumulated", hue="way", **WAYS_DRAWN, lines=(Overlay("alone", "it alone"),),
        ylabel="relative error of a layer's output", title="all blocks replaced",
    ),
    Facets(
        table="cosines", x="way", y="lost", **WAYS_DRAWN, points=True, xlabel=" ", ylabel="1 - cosine of embeddings",
        lines=(Overlay("worst", "worst sentence", "dotted"),), levels={f"{level:g}": 1 - level for level in LEVELS},
        names={way: way.replace(" ", "\n") for way in parts.WAYS}, title="embeddings before and after",
    ),
    Facets(
        table="curves", x="step", y="test", hue="activation", row="loss", smooth=True,
        ylabel="test loss, nats per byte", title="a small GPT trained from scratch",
    ),
)  # fmt: skip


def figure(tables: Tables) -> Figure:
    curves = tables["curves"]
    gelu = curves[curves["activation"] == "gelu"].set_index(["seed", "step"])["test"].rename("gelu")
    late = curves[(curves["step"] >= curves["step"].max() / 5) & (curves["activation"] != "gelu")]
    late = late.join(gelu, on=["seed", "step"]).assign(test=lambda rows: rows["test"] - rows["gelu"])
    columns = ["loss", "activation", "step", "seed", "test"]
    both = {"": curves, "minus gelu of the same seed": late}
    curves = pd.concat([part.assign(loss=name)[columns] for name, part in both.items()])
    return draw_figure(FIGURE, {**tables, "curves": averaged(curves, "seed", columns[:3], "arithmetic")})


STUDY = Study(
    "linearize/transformer",
    "Replaced in a transformer",
    "The paper expects a decomposed GELU to help transformers converge, and leaves it to further work.",
    long=True,
    position=7,
    beyond=True,
    figure=figure,
)


@STUDY.tables
def tables(request: Request) -> Tables:
    """Every way in a model of sentences, and GPTs trained without GELU."""
    if request.quick:
        ways, functions = QUICK_WAYS, ("minimax 4", "taylor 10")
        embedder, text, most, size = parts.small_bert(), parts.quick_texts(40, 20), 400, parts.QUICK
    else:
        ways, functions = parts.WAYS, TRAINED
        embedder, text, most, size = parts.minilm(), parts.texts(192, 96), 3500, parts.FULL
    layers = parts.traced_layers(embedder.model, embedder.trace(text.calibration, embedder.model).inputs)
    traced = partial(embedder.trace, text.measured)
    before, errors, cosines = traced(embedder.model), [], []
    for done, way in enumerate(ways, 1):
        rows, after = parts.measure(way, embedder.model, layers, before, traced, embedder.finish)
        errors += rows
        cosines.append({"way": way, **parts.cosines(parts.embeddings(before), parts.embeddings(after))})
        if request.progress:
            request.progress(done, len(ways))
    runs = training(size, text.letters, functions)
    curves = [
        pd.DataFrame({"activation": name, "seed": h.recipe.seed, "step": h.steps, "train": h.train, "test": h.test})
        for name, histories in runs.items()
        for h in histories
    ]
    counts = {"calibration": len(text.calibration), "measured": len(text.measured)}
    rows = {
        "layers": errors,
        "cosines": cosines,
        "verdicts": [{"layer": i, **parts.judge(layer, most)} for i, layer in enumerate(layers, 1)],
        "training": parts.training_rows(runs),
        "curves": pd.concat(curves, ignore_index=True),
        "setup": [{"model": embedder.name, "text": text.about, **counts, **size}],
    }
    made = {name: pd.DataFrame(part) for name, part in rows.items()}
    for name in ("layers", "cosines"):
        made[name]["family"] = made[name]["way"].map(parts.FAMILIES)
    return made


def training(size: parts.Size, data: Any, names: Sequence[str]) -> dict[str, Any]:
    """Histories with GELU and with each other function, made for the pre-activations that GELU's models end with."""
    with tempfile.TemporaryDirectory() as folder:
        runs = {"gelu": parts.train(size, data, "gelu", folder)}
        gpts = load_models(folder, data)
    tokens, _ = data.batch(0, size["test"], size["context"])
    layers = [layer for gpt in gpts for layer in zip(blocks(gpt), trace(gpt, lambda m: m(tokens)).inputs, strict=True)]
    z = torch.cat([block.before(x).flatten() for block, x in layers])
    for name in names:
        function = Activation(name, parts.trained_function(name, z), growth=None)
        runs[name] = parts.train(size, data, Unit(activation=function, name=name))
    return runs


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    judged, cosines = tables["verdicts"], tables["cosines"].set_index("way")
    layers = tables["layers"].groupby("way", sort=False)
    alone, outside = (layers[column].agg(["min", "max"]) for column in ("alone", "outside"))
    farthest = float(judged[["lowest z", "highest z"]].abs().to_numpy().max())
    yield Claim.of(
        "cosine with GELU by five Taylor terms, as in the paper, in every block",
        interval_at(cosines.loc["taylor 10"], "cosine"), OPEN,
        support={
            "share of a layer's pre-activations beyond ±3": outside.loc["taylor 10"].tolist(),
            "farthest pre-activation": farthest,
            "error of a layer alone, relative": alone.loc["taylor 10"].tolist(),
        },
    )  # fmt: skip
    yield from level_claims(cosines)
    support: dict[str, Any] = {}
    by_width = judged.loc[(judged["lowest z"] - judged["highest z"]).sort_values().index]
    for row in by_width.iloc[[0, -1]].to_dict("records"):
        support[f"range in layer {row['layer']}"] = [row["lowest z"], row["highest z"]]
        support[f"99.9 % of |z| in layer {row['layer']} below"] = row["99.9% of |z| below"]
    for method in ("minimax", "fit", "hermite"):
        highest = [way for way in cosines.index if way.startswith(f"{method} ")][-1]
        support[f"error of the worst layer alone, {highest}"] = float(alone["max"][highest])
    yield Claim("farthest pre-activation that one polynomial must serve", farthest, paper=OPEN, support=support)
    for way, features in layers["features"].first().dropna().items():
        support = {"features": int(features), "error of a layer alone, relative": alone.loc[way].tolist()}
        title, cosine = f"cosine with every block as W2 Phi(W1) Psi(x), {way}", interval_at(cosines.loc[way], "cosine")
        yield Claim.of(title, cosine, OPEN, support=support)
    yield feature_claim(judged)
    for row in tables["training"][1:].to_dict("records"):
        steps = row["steps"] if np.isfinite(row["steps"]) else "never"
        support = {"diverged seeds": row["diverged"], "steps to the loss that GELU has half-way, over that half": steps}
        title = f"test loss of a small GPT minus that with GELU, {row['activation']}"
        yield Claim.of(title, interval_at(row, "less_gelu"), EXPECTED, support=support)


def level_claims(cosines: Table) -> Iterator[Claim]:
    """The number of ways that preserve embeddings, at two levels, and that lose them, by the ends of intervals."""
    best, good = (cosines["cosine_low"] > level for level in LEVELS)
    gone = cosines["cosine_high"] < COLLAPSED
    for what, chosen in {
        f"ways that keep embeddings at a cosine above {LEVELS[0]:g}": best,
        f"ways that keep embeddings at a cosine above {LEVELS[1]:g} but not {LEVELS[0]:g}": good & ~best,
        f"ways that collapse, to a cosine below {COLLAPSED}": gone,
        f"ways between {COLLAPSED} and {LEVELS[1]:g}": ~good & ~gone,
    }.items():
        support = {way: (1 - row).tolist() for way, row in cosines.loc[chosen, ["cosine", "least"]].iterrows()}
        note = "Numbers are 1 - cosine, the mean and the worst sentence."
        yield Claim(what, int(chosen.sum()), paper=OPEN, support=support, note=note)


def feature_claim(judged: Table) -> Claim:
    """The number of features that the activations of a layer need with any maps."""
    support: dict[str, Any] = {}
    for column in ("m needed for 1%", "m enough for 1%", "m needed for 10%", "m enough for 10%"):
        known = judged[column].dropna().astype(int)
        if len(known):
            support[f"{column}, {len(known)} of {len(judged)} layers"] = limits(known)
    support["floor at m = d + 1, relative"] = limits(judged["floor at m = d + 1"])
    width = int(judged["width"].iloc[0])
    what = f"features that GELU(W1 x + b1) of {width} neurons needs to 1 % of its size, share of the neurons"
    return Claim(what, 100 * float(judged["m needed for 1%"].min()) / width, paper=OPEN, unit="%", support=support)
