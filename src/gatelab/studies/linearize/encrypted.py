"""Encrypted inference measured: values in ciphertexts, whole blocks, plans for two models next to published pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gatelab.data.text import text_data
from gatelab.linearization import Published, find_published, linearize
from gatelab.linearization.circuits import CircuitForm, levels_of
from gatelab.linearization.encrypted_blocks import encrypt_block
from gatelab.linearization.forms import GUARDS, TabulatedForm, fitted_form, minimax_form, published_form
from gatelab.linearization.plans import MOST, Curves, EncryptedPlan, measure_curves, quality_of, search
from gatelab.models.hooks import captured
from gatelab.models.layouts import layers_of
from gatelab.models.pretrained import import_transformers, read_pretrained
from gatelab.plotting.facets import Facets
from gatelab.studies.claims import Claim
from gatelab.studies.definition import Request
from gatelab.studies.engine import Study, Table, Tables, interval_at
from gatelab.studies.linearize.transformer_parts import SMALL_BERT, made_up, seeded, sentences_of, small_bert

QUALITY = 0.999
INPUTS = 1000
FUNCTIONS = [("gelu", 14, 5.0), ("gelu", 62, 20.0), ("silu", 14, 8.0), ("silu", 30, 12.0), ("tanh", 15, 4.0)]
PUBLISHED = ("bolt", "puma", "nexus")
RIVALS = ("mixed minimax", "uniform fit", "uniform minimax", *PUBLISHED)
SENTENCES = 192  # of FineWeb-Edu
STORIES, TOKENS = 96, 128  # that the small Llama tells, to be planned on
SIGMOID_SCALE = 1.702  # SiLU(z) is about this times GELU(z over this)
MINILM = "all-MiniLM-L6-v2"
PLANS = Facets(
    table="plans",
    x="levels",
    y="loss",
    hue="way",
    ylog=True,
    xlabel="levels of all activations",
    ylabel="1 - quality",
    levels={f"quality {QUALITY:g}": 1 - QUALITY},
)
STUDY = Study(
    "linearize/encrypted",
    "Measured in a ciphertext",
    "The paper has nothing on encryption, for which polynomials of activations are made; here they are encrypted.",
    long=True,
    position=8,
    beyond=True,
    figure=replace(PLANS, col="model", title="Quality of models under encryption, by levels"),
    cards={"Encrypted inference": replace(PLANS, where={"model": [MINILM, SMALL_BERT]})},
)


@STUDY.measure(
    "values",
    grid={"function, degree, reach": FUNCTIONS},
    quick={"function, degree, reach": [("gelu", 2, 2.0), ("silu", 2, 3.0), ("tanh", 3, 1.5)]},
)
def encrypted_values(function: str, degree: int, reach: float) -> dict[str, Any]:
    """A polynomial at 1000 encrypted numbers; the noise that is allowed is that of 1000 others."""
    maps = linearize(function, "minimax", degree=degree, interval=reach)
    draw = np.random.default_rng(0)
    first, second = (maps.encrypted(draw.uniform(-reach, reach, INPUTS)) for _ in range(2))
    assert second.approximation is not None
    return {
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


@STUDY.tables
def tables(request: Request) -> Tables:
    """Plans for both models, our plan by layer, and the last block of each under encryption."""
    models, most, most_pieces, degree = (minilm, stories), MOST, 12, 15
    if request.quick:
        models, most, most_pieces, degree = (random_bert, random_llama), 5, 5, 3
    rows: dict[str, list[dict[str, Any]]] = {"blocks": [], "plans": [], "layers": []}
    for done, read in enumerate(models, 1):
        name, model, text = read()
        curves = measure_curves(model, text, most=most)
        # Minimax and no other form: levels by layer are all that this plan gains.
        alone = measure_curves(model, text, most=most, forms_of=lambda *layer: [minimax_form(*layer)])
        plan, mixed = search(curves, QUALITY), search(alone, QUALITY)
        own = {
            "layers": layer_rows(curves, plan, mixed),
            "plans": plan_rows(curves, plan, mixed, most, most_pieces),
            "blocks": [block_row(model, curves, degree)],
        }
        for table, part in own.items():
            rows[table] += [{"model": name, **row} for row in part]
        if request.progress:
            request.progress(done, len(models))
    return {table: pd.DataFrame(part) for table, part in rows.items()}


def minilm() -> tuple[str, Any, list[Tensor]]:
    """all-MiniLM-L6-v2 on sentences of FineWeb-Edu."""
    model = read_pretrained("minilm")
    text = sentences_of(text_data("fineweb-edu", "bytes").train, SENTENCES)
    return MINILM, model.model, [model.encode(sentence)[:256] for sentence in text]


@torch.no_grad()
def stories() -> tuple[str, Any, list[Tensor]]:
    """stories260K on stories that it tells: tokens drawn from its own predictions, from the beginning of a text on."""
    model: Any = read_pretrained("stories260k").model
    draw = torch.Generator().manual_seed(0)
    ids, cache = torch.ones(STORIES, 1, dtype=torch.long), None
    for _ in range(TOKENS - 1):
        result = model(ids[:, -1:], past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        chances = torch.softmax(result.logits[:, -1].double(), -1)
        ids = torch.cat([ids, torch.multinomial(chances, 1, generator=draw)], 1)
    return "stories260K", model, list(ids)


def random_bert() -> tuple[str, Any, list[Tensor]]:
    """A BERT with random weights that reads bytes, for the quick run."""
    return SMALL_BERT, small_bert().model, [torch.tensor(list(s.encode())[:48]) for s in made_up(12, 0)]


def random_llama() -> tuple[str, Any, list[Tensor]]:
    """A Llama of one layer on the same bytes."""
    transformers = import_transformers()
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64, initializer_range=0.4,
    )  # fmt: skip
    model = seeded(lambda: transformers.LlamaForCausalLM(config))
    return "a Llama of one layer and random weights", model, random_bert()[2]


def layer_rows(curves: Curves, plan: EncryptedPlan, mixed: EncryptedPlan) -> Iterator[dict[str, Any]]:
    """Our plan by layer, with the loss of that layer alone at every number of levels, and the levels of minimax."""
    for i, layer in enumerate(plan.layers):
        yield {
            "layer": i + 1,
            "low": layer.form.interval[0],
            "high": layer.form.interval[1],
            "form": layer.form.method,
            "degree": layer.form.degree,
            "levels": layer.levels,
            "levels of mixed minimax": mixed.layers[i].levels,
            "products": layer.products,
            "outside": layer.outside,
            **{f"loss at {n}": curves.losses[i].get(n) for n in range(2, MOST + 1)},
        }


def plan_rows(
    curves: Curves, plan: EncryptedPlan, mixed: EncryptedPlan, most: int, most_pieces: int
) -> Iterator[dict[str, Any]]:
    """Our plan, minimax and the published pieces: levels in total, and quality on text that nothing was chosen by.

    Forms (fitted to data, minimax) and levels (by layer, one for all) are crossed: what each of the two gains.
    """
    subject, text = curves.subject, curves.stating
    plain = subject.outputs(text)

    def row(way: str, forms: Sequence[CircuitForm]) -> dict[str, Any]:
        changed = subject.outputs(text, {i: TabulatedForm(form) for i, form in enumerate(forms)})
        quality = quality_of(plain, changed)
        losses = np.array([part[:, 0].sum() / plain[:, 1].sum() for part in (changed, plain)])
        perplexities: Any = (None, None)
        if plan.measure == "perplexity":
            perplexities = np.exp(np.minimum(losses, 700))
        ends = {"loss": quality.value, "loss_low": quality.high, "loss_high": quality.low}
        return {
            "way": way,
            "levels": sum(form.cost.levels for form in forms),
            "products": sum(form.cost.products for form in forms),
            "most of a layer": max(form.cost.levels for form in forms),
            "quality": quality.value,
            "quality low": quality.low,
            "quality high": quality.high,
            "perplexity": perplexities[0],
            "plain perplexity": perplexities[1],
            **{name: float(np.clip(1 - value, 1e-7, 1)) for name, value in ends.items()},  # for a logarithmic axis
        }

    layers = list(zip(subject.gates, curves.data, strict=True))
    ways: dict[str, tuple[range, Callable[..., CircuitForm]]] = {
        "uniform fit": (range(2, most + 1), partial(fitted_form, guard=GUARDS[0])),
        "uniform minimax": (range(2, most + 1), minimax_form),
    }
    for name in PUBLISHED:
        pieces = pieces_for(find_published(name), subject.gates[0].name)
        tried = range(levels_of(pieces.degree) + 1, most_pieces + 1)
        ways[name] = tried, partial(published_form, pieces)
    for way, chosen in (("our plan", plan), ("mixed minimax", mixed)):
        yield row(way, [layer.form for layer in chosen.layers])
    for way, (tried, form_of) in ways.items():
        for levels in tried:
            yield (uniform := row(way, [form_of(*layer, levels) for layer in layers]))
            if uniform["quality low"] >= QUALITY:
                break


def pieces_for(published: Published, gate: str) -> Published:
    """What was published for GELU; for SiLU it is stretched, since nobody has published pieces for CKKS."""
    if gate != "silu":
        return published
    s = SIGMOID_SCALE
    pieces = tuple(tuple(c * s ** (1 - k) for k, c in enumerate(piece)) for piece in published.pieces)
    return Published(published.name, published.source, tuple(s * b for b in published.breaks), pieces)


def block_row(model: Any, curves: Curves, degree: int) -> dict[str, Any]:
    """The last block of a model for one token of the text that nothing was chosen by, under encryption."""
    layer, gate = layers_of(model)[-1], curves.subject.gates[-1]
    with torch.no_grad(), captured({0: layer.entrance}) as inputs:
        model(curves.stating[0][None])
    polynomial = linearize(gate, "minimax", degree=degree, interval=curves.data[-1].interval).polynomial
    assert polynomial is not None
    result = encrypt_block(layer.read(), polynomial, gate, inputs[0][0][0, -1].double().numpy())
    return {
        "block": repr(layer.read()),
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


def cheapest(rows: Table, way: str) -> Table | None:
    """The row of fewest levels of a way that has the quality by the lower end of its interval; None where none has."""
    enough = rows[(rows["way"] == way) & (rows["quality low"] >= QUALITY)]
    if enough.empty:
        return None
    return enough.loc[enough["levels"].idxmin()]


@STUDY.claims
def claims(tables: Tables) -> Iterator[Claim]:
    """Values and blocks in ciphertexts, and the levels of plans."""
    values = tables["values"].to_dict("records")
    yield Claim(
        "largest excess of an error under encryption over the proved bound and the noise of other inputs",
        max(row["excess"] for row in values),
        support={
            f"{row['function']} of degree {row['degree']}": [
                row[name] for name in ("proved", "total", "noise", "levels")
            ]
            for row in values
        },
        note="Numbers of a function are the proved bound, the error, the noise and the levels.",
    )
    for row in tables["blocks"].to_dict("records"):
        names = ("degree", "largest output", "proved", "approximation", "encryption", "levels", "rotations", "seconds")
        yield Claim(
            f"error of the last block of {row['model']} for one token under encryption",
            row["total"],
            support={name: row[name] for name in (*names, "seconds of keys")},
            note="Proved is a bound on the error of the polynomial, approximation that error, encryption the rest.",
        )
    for model, rows in tables["plans"].groupby("model", sort=False):
        yield plan_claim(str(model), rows)


def plan_claim(model: str, rows: Table) -> Claim:
    """The fewest levels of our plan, and of every other way that reaches the quality; the least loss of the rest."""
    ours, levels, support = cheapest(rows, "our plan"), None, {}
    if ours is not None:
        levels = int(ours["levels"])
        support["1 - quality"] = interval_at(ours, "loss")
        support["most levels of a layer"] = int(ours["most of a layer"])
    for way in RIVALS:
        row = cheapest(rows, way)
        if row is None:
            least = rows[rows["way"] == way]["loss"].min()
            support[f"least 1 - quality of {way}, which does not reach it"] = float(least)
        else:
            support[f"levels of {way}"] = int(row["levels"])
    what = f"levels of all activations of {model} that keep a quality of {QUALITY:g}"
    return Claim(what, levels, support=support)
