"""Encrypted inference measured: values in ciphertexts, whole blocks, plans for two models beside published pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from gatelab.data.text import text_data
from gatelab.feedforward.gates import Activation
from gatelab.linearization import Published, find_published, linearize
from gatelab.linearization.circuits import CircuitForm, levels_of
from gatelab.linearization.encrypted_blocks import encrypt_block
from gatelab.linearization.forms import (
    GUARDS,
    PreActivations,
    TabulatedForm,
    fitted_form,
    minimax_form,
    published_form,
)
from gatelab.linearization.plans import (
    MOST,
    Curves,
    EncryptedPlan,
    measure_curves,
    quality_of,
    search,
)
from gatelab.models.hooks import captured
from gatelab.models.layouts import layers_of
from gatelab.models.pretrained import import_transformers, read_pretrained
from gatelab.plotting import NEURON_COLOURS
from gatelab.plotting.panel import Entry, Panel, Pen, new_figure
from gatelab.plotting.theme import style
from gatelab.studies.definition import (
    Claim,
    Finding,
    Outcome,
    Request,
    Sketch,
    Stroke,
    Study,
    Tables,
    numbers,
    only,
    ticker,
)
from gatelab.studies.linearize.transformer_models import made_up, sentences_of, small_bert

QUALITY = 0.999
INPUTS = 1000
FUNCTIONS = (("gelu", 14, 5.0), ("gelu", 62, 20.0), ("silu", 14, 8.0), ("silu", 30, 12.0), ("tanh", 15, 4.0))
QUICK_FUNCTIONS = (("gelu", 2, 2.0), ("silu", 2, 3.0), ("tanh", 3, 1.5))
NAMES = ("bolt", "puma", "nexus")
RIVALS = ("mixed minimax", "uniform fit", "uniform minimax", *NAMES)
MOST_PIECES = 12  # levels of a layer up to which published pieces are tried
SENTENCES = 192  # of FineWeb-Edu
STORIES, TOKENS = 96, 128  # that the small Llama tells, to be planned on
BLOCK_DEGREE = 15
SIGMOID_SCALE = 1.702  # SiLU(z) is about this times GELU(z over this)


@dataclass(frozen=True, eq=False)
class PlannedModel:
    """A model with rows of tokens, and how far the search goes."""

    name: str
    model: Any
    rows: list[Tensor]
    most: int
    most_pieces: int


def run(request: Request) -> Outcome:
    """Values of three functions, two blocks and plans for two models, all under encryption or counted for it."""
    functions, models, degree = FUNCTIONS, full_models, BLOCK_DEGREE
    if request.quick:
        functions, models, degree = QUICK_FUNCTIONS, quick_models, 3
    tick = ticker(request, len(functions) + 2 * 3)
    rows: dict[str, list[dict[str, Any]]] = {"values": [], "blocks": [], "plans": [], "layers": []}
    for name, power, reach in functions:
        rows["values"].append(value_row(name, power, reach))
        tick()
    for planned in models():
        curves = measure_curves(planned.model, planned.rows, most=planned.most)
        tick()
        plan = search(curves, QUALITY)
        alone = measure_curves(planned.model, planned.rows, most=planned.most, forms_of=minimax_alone)
        mixed = search(alone, QUALITY)
        rows["layers"] += layer_rows(planned.name, curves, plan, mixed)
        rows["plans"] += plan_rows(planned, curves, plan, mixed)
        tick()
        rows["blocks"].append(block_row(planned, curves, degree))
        tick()
    tables = {name: pd.DataFrame(part) for name, part in rows.items()}
    return Outcome(draw(rows["plans"]), tables, tuple(claims(tables)), NOTES)


# ---- what is measured


def value_row(name: str, degree: int, reach: float) -> dict[str, Any]:
    """A polynomial at 1000 encrypted numbers; the noise that is allowed is that of 1000 others."""
    maps = linearize(name, "minimax", degree=degree, interval=reach)
    draw = np.random.default_rng(0)
    first, second = (maps.encrypted(draw.uniform(-reach, reach, INPUTS)) for _ in range(2))
    assert second.approximation is not None
    return {
        "function": name,
        "degree": degree,
        "reach": reach,
        "inputs": INPUTS,
        "proved": second.approximation,
        "noise of others": first.encryption,
        "noise": second.encryption,
        "total": second.total,
        "excess": second.total - second.approximation - first.encryption,
        "levels": second.levels,
        "products": second.products,
        "N": second.parameters.poly_modulus_degree,
        "security": second.parameters.security,
        "seconds": second.seconds["evaluation"],
        "bytes": second.bytes[0],
    }


def full_models() -> Iterator[PlannedModel]:
    """all-MiniLM-L6-v2 on sentences of FineWeb-Edu, and stories260K on stories that it tells."""
    sentences = read_pretrained("minilm")
    text = sentences_of(text_data("fineweb-edu", "bytes").train, SENTENCES)
    rows = [sentences.encode(sentence)[:256] for sentence in text]
    yield PlannedModel("all-MiniLM-L6-v2", sentences.model, rows, MOST, MOST_PIECES)
    stories = read_pretrained("stories260k")
    yield PlannedModel("stories260K", stories.model, told(stories.model, STORIES, TOKENS), MOST, MOST_PIECES)


def quick_models() -> Iterator[PlannedModel]:
    """The same steps with random weights: a BERT that reads bytes, and a Llama of one layer."""
    embedder = small_bert()
    letters = [torch.tensor(list(s.encode())[:48]) for s in made_up(12, 0)]
    yield PlannedModel(embedder.name, embedder.model, letters, 5, 5)
    transformers = import_transformers()
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64, initializer_range=0.4,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config).eval()
    yield PlannedModel("a Llama of one layer and random weights", model, letters, 5, 5)


@torch.no_grad()
def told(model: Any, count: int, length: int, seed: int = 0) -> list[Tensor]:
    """Stories that the model tells: tokens drawn from its own predictions, from the beginning of a text on."""
    draw = torch.Generator().manual_seed(seed)
    ids, cache = torch.ones(count, 1, dtype=torch.long), None
    for _ in range(length - 1):
        result = model(ids[:, -1:] if cache is not None else ids, past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        chances = torch.softmax(result.logits[:, -1].double(), -1)
        ids = torch.cat([ids, torch.multinomial(chances, 1, generator=draw)], 1)
    return list(ids)


def minimax_alone(gate: Activation, data: PreActivations, levels: int) -> list[CircuitForm]:
    """The minimax polynomial and no other form, so that levels by layer are all that a plan gains."""
    return [minimax_form(gate, data, levels)]


def layer_rows(name: str, curves: Curves, plan: EncryptedPlan, mixed: EncryptedPlan) -> Iterator[dict[str, Any]]:
    """Our plan by layer, with the loss of that layer alone at every number of levels, and the levels of minimax."""
    for i, (layer, share) in enumerate(zip(plan.layers, plan.outside, strict=True)):
        yield {
            "model": name,
            "layer": i + 1,
            "low": layer.form.interval[0],
            "high": layer.form.interval[1],
            "form": layer.form.method,
            "degree": layer.form.degree,
            "levels": layer.levels,
            "levels of mixed minimax": mixed.layers[i].levels,
            "products": layer.products,
            "outside": share,
            **{f"loss at {n}": curves.losses[i].get(n) for n in range(2, MOST + 1)},
        }


def plan_rows(
    planned: PlannedModel, curves: Curves, plan: EncryptedPlan, mixed: EncryptedPlan
) -> Iterator[dict[str, Any]]:
    """Our plan, minimax and the published pieces: levels in all, and quality on text nothing was chosen by.

    Forms (fitted to data, minimax) and levels (by layer, one for all) are crossed: what each of the two gains.
    """
    subject, rows = curves.subject, curves.stating
    plain = subject.outputs(rows)

    def row(way: str, forms: Sequence[CircuitForm]) -> dict[str, Any]:
        changed = subject.outputs(rows, {i: TabulatedForm(form) for i, form in enumerate(forms)})
        quality = quality_of(plain, changed)
        perplexities: dict[str, float | None] = {"perplexity": None, "plain perplexity": None}
        if plan.measure == "perplexity":
            sums = changed[:, 0].sum(), plain[:, 0].sum()
            perplexities = {
                key: float(np.exp(min(total / plain[:, 1].sum(), 700)))
                for key, total in zip(perplexities, sums, strict=True)
            }
        return {
            "model": planned.name,
            "way": way,
            "levels": sum(form.cost.levels for form in forms),
            "products": sum(form.cost.products for form in forms),
            "most of a layer": max(form.cost.levels for form in forms),
            "quality": quality.value,
            "quality low": quality.low,
            "quality high": quality.high,
            **perplexities,
        }

    layers = list(zip(subject.gates, curves.data, strict=True))
    ways: dict[str, tuple[range, Callable[[int], list[CircuitForm]]]] = {
        "uniform fit": (range(2, planned.most + 1), lambda n: [fitted_form(*layer, n, GUARDS[0]) for layer in layers]),
        "uniform minimax": (range(2, planned.most + 1), lambda n: [minimax_form(*layer, n) for layer in layers]),
    }
    for name in NAMES:
        published = fitting(find_published(name), subject.gates[0].name)
        tried = range(levels_of(published.degree) + 1, planned.most_pieces + 1)
        ways[name] = tried, lambda n, published=published: [published_form(published, *layer, n) for layer in layers]
    yield row("our plan", [layer.form for layer in plan.layers])
    yield row("mixed minimax", [layer.form for layer in mixed.layers])
    for way, (tried, forms_of) in ways.items():
        for levels in tried:
            yield (uniform := row(way, forms_of(levels)))
            if uniform["quality low"] >= QUALITY:
                break


def fitting(published: Published, gate: str) -> Published:
    """What was published for GELU; for SiLU it is stretched, since nobody has published pieces for CKKS."""
    if gate != "silu":
        return published
    s = SIGMOID_SCALE
    pieces = tuple(tuple(c * s ** (1 - k) for k, c in enumerate(piece)) for piece in published.pieces)
    return Published(published.name, published.source, tuple(s * b for b in published.breaks), pieces)


def block_row(planned: PlannedModel, curves: Curves, degree: int) -> dict[str, Any]:
    """The last block of a model for one token of the text that nothing was chosen by, under encryption."""
    token, gate, data = curves.stating[0], curves.subject.gates[-1], curves.data[-1]
    layer = layers_of(planned.model)[-1]
    block = layer.read()
    with torch.no_grad(), captured({0: layer.entrance}) as inputs:
        planned.model(token[None])
    polynomial = linearize(gate, "minimax", degree=degree, interval=data.interval).polynomial
    assert polynomial is not None
    result = encrypt_block(block, polynomial, gate, inputs[0][0][0, -1].double().numpy())
    return {
        "model": planned.name,
        "block": repr(block),
        "degree": degree,
        "levels": result.levels,
        "rotations": result.rotations,
        "N": result.parameters.poly_modulus_degree,
        "security": result.parameters.security,
        "largest output": result.size,
        "proved": result.approximation,
        "approximation": result.measured,
        "encryption": result.encryption,
        "total": result.total,
        "seconds of keys": result.seconds["keys"],
        "seconds": result.seconds["evaluation"],
        "bytes": result.bytes[0],
    }


# ---- what it says


def cheapest(rows: pd.DataFrame, way: str) -> Mapping[str, Any] | None:
    """The row of fewest levels of a way that has the quality by the lower end of its interval; None where none has."""
    fit = [r for r in only(rows, way=way).to_dict("records") if r["quality low"] >= QUALITY]
    return min(fit, key=lambda r: r["levels"], default=None)


def best(rows: pd.DataFrame, way: str) -> Mapping[str, Any]:
    """The row of a way that comes nearest to the quality."""
    return max(only(rows, way=way).to_dict("records"), key=lambda r: r["quality"])


def told_of(rows: pd.DataFrame, way: str) -> str:
    """Levels and quality of a way in a few words."""
    row = cheapest(rows, way)
    if row is None:
        near = best(rows, way)
        return f"{way} not with up to {near['most of a layer']} levels a layer (quality {near['quality']:.4f})"
    return f"{way} {row['levels']}, at most {row['most of a layer']} a layer ({row['quality']:.5f})"


def claims(tables: Tables) -> Iterator[Claim]:
    """What came out of ciphertexts, of blocks, and of plans."""
    values, blocks_ = tables["values"], tables["blocks"]
    yield new_claim(
        f"values under encryption beyond what is proved and the noise of others, {INPUTS} inputs a function",
        f"largest excess {values['excess'].max():.1e}",
        "; ".join(
            f"{r['function']} of degree {r['degree']}: proved {r['proved']:.3g}, noise {r['noise']:.1e}, total "
            f"{r['total']:.3g}, {r['levels']} levels"
            for r in values.to_dict("records")
        )
        + ".",
    )
    for r in blocks_.to_dict("records"):
        yield new_claim(
            f"the last block of {r['model']} for one token under encryption",
            f"off by {r['total']:.2g} where outputs reach {r['largest output']:.2g}",
            f"Proved: at most {r['proved']:.2g} by the polynomial of degree {r['degree']}; measured "
            f"{r['approximation']:.2g} by it and {r['encryption']:.1e} by encryption. "
            f"{r['levels']} levels, {r['rotations']} rotations, "
            f"{r['seconds']:.0f} s and {r['seconds of keys']:.0f} s for keys.",
        )
    for model, rows in tables["plans"].groupby("model", sort=False):
        yield new_claim(
            f"levels of all activations of {model} that keep a quality of {QUALITY:g}",
            told_of(rows, "our plan"),
            f"Others: {'; '.join(told_of(rows, way) for way in RIVALS)}.",
            "95% over rows of text that nothing was chosen by",
        )


def new_claim(what: str, ours: str, because: str, interval: str = "") -> Claim:
    """Of what no paper has."""
    return Claim(what, "-", ours, "new", because, interval)


NOTES = (
    "Quality is the mean cosine of embeddings with those of the plain model, or the smaller over the larger of two "
    "perplexities. Text is parted: half to calibrate on, a quarter to choose by, a quarter for what is stated.",
    "Forms and levels are crossed. Our plan and mixed minimax choose levels by layer, by one search; uniform ways and "
    "published pieces have one number of levels for all layers, the fewest with the quality on the stated text itself, "
    "which favors them. Our plan takes a fit to the layer's data wherever that is best; minimax knows its range alone.",
    "Levels are of activations alone: attention, softmax, norms and matrices are not counted. They are counted by "
    "running each circuit on plain numbers, for all alike. Published pieces need comparisons, which CKKS has not: here "
    "each is a step, the interpolant of (1 + erf) / 2, of as many levels as are left, the sharpness chosen for the "
    "layer's own data. NEXUS's released code (zju-abclab/NEXUS, src/gelu.cpp) takes two signs of six polynomials in a "
    "row for inputs up to 5. PUMA and BOLT are protocols for another setting, several parties that compute together: a "
    "comparison costs them rounds and no levels, and these counts say nothing about the protocols.",
    "In stories260K the activation is SiLU, for which the three have published nothing here: their pieces for GELU "
    f"stand in as {SIGMOID_SCALE} GELU(z / {SIGMOID_SCALE}). Its text are {STORIES} stories of {TOKENS} tokens that it "
    "tells itself.",
    "Noise that is allowed is measured on other inputs than those that are held against the bound.",
)


def findings(tables: Tables) -> tuple[Finding, ...]:
    """Levels that a model of sentences needs, ours beside the others'."""
    model = tables["plans"]["model"].iloc[0]
    rows = only(tables["plans"], model=model)
    ours = cheapest(rows, "our plan")
    if ours is None:
        return ()
    minimax, others = (", ".join(told_of(rows, way) for way in part) for part in (RIVALS[:3], NAMES))
    sentence = (
        f"Under CKKS the activations of {model} keep a cosine of {ours['quality']:.4f} with {ours['levels']} levels in "
        f"all and at most {ours['most of a layer']} in a layer. The same search over minimax polynomials alone, and "
        f"one number of levels for all layers: {minimax}. Published pieces, their comparisons counted: {others}."
    )
    sizes = "128 bits of security; sentences of FineWeb-Edu that nothing was calibrated on or chosen by."
    strokes = tuple(
        Stroke(str(way), numbers(part["levels"]), numbers(1 - part["quality"]), NEURON_COLOURS[i], marks=i == 0)
        for i, (way, part) in enumerate(rows.groupby("way", sort=False))
    )
    return (
        Finding("Encrypted inference", sentence, sizes, Sketch("levels in all", "1 - cosine", strokes, log_x=False)),
    )


def draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """1 - quality against levels in all, a panel a model."""
    table = pd.DataFrame(rows)
    models = list(table["model"].unique())
    with style():
        figure = new_figure(5.2 * len(models), 3.8)
        panels = [Panel(axes) for axes in np.atleast_1d(figure.subplots(1, len(models)))]
        for panel, model in zip(panels, models, strict=True):
            part = table[table["model"] == model]
            entries = []
            for i, (way, ways) in enumerate(part.groupby("way", sort=False)):
                pen = Pen(NEURON_COLOURS[i], marker="osv^DPX"[i], size=8 if i == 0 else 5)
                panel.line(ways["levels"], np.clip(1 - ways["quality"], 1e-7, 1), pen, label=str(way))
                entries.append(Entry(str(way), pen))
            panel.rule("y", 1 - QUALITY, Pen("#888888", "--", width=0.9))
            panel.set(yscale="log", xlabel="levels of all activations", ylabel="1 - quality", title=model)
            if panel is panels[0]:
                panel.legend(entries, loc="lower left")
        figure.suptitle("What models keep under encryption, by levels")
    return figure


STUDY = Study(
    "linearize/encrypted",
    "Measured in a ciphertext",
    "The paper has nothing on encryption, for which polynomials of activations are made; here they are encrypted.",
    run,
    long=True,
    findings=findings,
    position=8,
    beyond=True,
)
