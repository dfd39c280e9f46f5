"""Plans for encrypted inference: by layer the form that keeps a model's quality with the fewest levels in all.

The text is parted in three. On the first part pre-activations are recorded, and forms of every number of levels are
made for each layer. On the second, each layer's curve is measured: what the model loses with that layer alone replaced,
by level, the best form of each. The search is exact: a table over layers and levels in all has the least sum of losses
of every total. Losses need not add up, so the best few assignments of each total are then measured in the whole model,
from the fewest levels up, and the first whose quality is certain, by the lower end of its interval over rows, is the
plan. On the third part, which nothing was chosen by, its quality is measured and stated.

Quality is 1 where nothing has changed: of a model of sentences the mean cosine of its embeddings with the plain ones
(mean over tokens), of a language model its perplexity before and after, the smaller over the larger: a text on which a
damaged model happens to do better must not hide the damage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.arrays import Array
from gatelab.display import Compact, Listener, ProgressLike, counted, reporting
from gatelab.errors import GatelabError, real_number
from gatelab.feedforward.gates import Activation, activation
from gatelab.files import write_whole
from gatelab.linearization.circuits import CircuitForm
from gatelab.linearization.exchange import find_published, read_document
from gatelab.linearization.forms import PreActivations, TabulatedForm, candidates
from gatelab.linearization.polynomials import GELU_TANH
from gatelab.models.hooks import captured, replaced
from gatelab.models.layouts import Pointwise, blocks
from gatelab.models.replace import replace_activation
from gatelab.plain import from_plain, to_plain
from gatelab.statistics import Interval, bootstrap

FORMAT = "gatelab plan 1"
FEWEST, MOST = 2, 7  # levels of a layer that are tried
ENOUGH = 1e-7  # of a loss: a layer that loses less alone gains nothing from more levels
TRIED = 3  # assignments of one total that are measured in the whole model
LEEWAY = 2.0  # times what may be lost: an assignment whose layers alone lose more than that in sum is not measured
BATCH = 16
LEAST_ROWS = 8
_KNOWN = ("gelu", "silu", "tanh", "sigmoid", "relu")
Forms = Mapping[int, Callable[[Tensor], Tensor]]  # other activations, by layer
_OWN: Forms = MappingProxyType({})


# ---- models


def gate_of(function: Callable[[Tensor], Tensor]) -> Activation:
    """Which of the activations that polynomials are made for a model's own is, by its values."""
    z = torch.linspace(-6, 6, 601)
    with torch.no_grad():
        value = function(z)
    for gate in (*map(activation, _KNOWN), GELU_TANH):
        if torch.allclose(value, gate(z), atol=1e-6):
            return gate
    raise GatelabError(f"the activation {function} is none of {', '.join(_KNOWN)}; replace it by one of them")


class Subject:
    """A model whose activations can be exchanged, and what it gives for rows of tokens."""

    def __init__(self, model: nn.Module) -> None:
        functions = [block.activation for block in blocks(model)]
        self.gates = [gate_of(f) for f in functions]
        self.places = [Pointwise(partial(f)) for f in functions]
        self.model = replace_activation(model, dict(enumerate(self.places))).eval()
        self.device = next(model.parameters()).device

    def batches(self, rows: Sequence[Tensor]) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Rows of like length: their numbers, ids padded on the right, and where the ids are no padding."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for start in range(0, len(order), BATCH):
            which = order[start : start + BATCH]
            ids = nn.utils.rnn.pad_sequence([rows[i] for i in which], batch_first=True)
            lengths = torch.tensor([len(rows[i]) for i in which])
            mask = torch.arange(ids.shape[1]) < lengths[:, None]
            yield which, ids.to(self.device), mask.to(self.device)

    @torch.no_grad()
    def outputs(self, rows: Sequence[Tensor], forms: Forms = _OWN) -> Array:
        """An embedding for each row, (rows, d); of a language model its loss and number of tokens, (rows, 2)."""
        out: list[Array] = [np.zeros(0)] * len(rows)
        with replaced({self.places[i]: form for i, form in forms.items()}):
            for which, ids, mask in self.batches(rows):
                for i, part in zip(which, self.call(ids, mask), strict=True):
                    out[i] = part
        return np.stack(out)

    @torch.no_grad()
    def pre_activations(self, rows: Sequence[Tensor], forms: Forms = _OWN) -> list[Tensor]:
        """What enters the activation of every layer, without that of padding."""
        inputs: list[list[Tensor]] = [[] for _ in self.places]
        with (
            replaced({self.places[i]: form for i, form in forms.items()}),
            captured(dict(enumerate(self.places))) as values,
        ):
            for _, ids, mask in self.batches(rows):
                self.call(ids, mask)
                for i, calls in values.items():
                    inputs[i] += [z.reshape(*mask.shape, -1)[mask].cpu() for z in calls]
                    calls.clear()
        return [torch.cat(parts) for parts in inputs]

    def call(self, ids: Tensor, mask: Tensor) -> list[Array]:
        """The model on a batch that is padded on the right."""
        if hasattr(self.model, "config") and hasattr(self.model.config, "model_type"):
            result = self.model(input_ids=ids, attention_mask=mask.long())
        else:
            result = self.model(ids)
        logits = getattr(result, "logits", result)
        if isinstance(logits, Tensor):
            losses = functional.cross_entropy(
                logits[:, :-1].flatten(0, 1).double(), ids[:, 1:].flatten(), reduction="none"
            ).view(len(ids), -1)
            valid = mask[:, 1:]
            return [np.array([float(x[m].sum()), float(m.sum())]) for x, m in zip(losses, valid, strict=True)]
        states = result.last_hidden_state.double()
        means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return list(functional.normalize(means, dim=1).cpu().numpy())


def quality_of(plain: Array, changed: Array) -> Interval:
    """What is kept, with its interval over rows: the mean cosine of embeddings, or smaller over larger perplexity.

    A model that gives numbers no more has kept nothing.
    """
    if not np.isfinite(changed).all():
        return Interval(0.0, 0.0, 0.0)
    if plain.shape[1] == 2:
        more, tokens = changed[:, 0] - plain[:, 0], plain[:, 1]
        return bootstrap([more, tokens], lambda a, n: np.exp(-np.abs(a.sum(-1) / n.sum(-1))), paired=True)
    return bootstrap([(plain * changed).sum(1)], lambda p: p.mean(-1))


# ---- plans


@dataclass(frozen=True)
class LayerPlan(Compact):
    """What a layer computes under encryption.

    Attributes:
        activation: the name of what it stands for.
        form: the form.
        alone: the quality with this layer alone replaced, on the text that forms were chosen by, at its lower end.
        outside: the share of its pre-activations beyond the interval, on text that nothing was chosen by.
    """

    activation: str
    form: CircuitForm
    alone: float
    outside: float
    PROPERTIES: ClassVar = ("levels", "products")  # that files have too

    @property
    def levels(self) -> int:
        """That it uses."""
        return self.form.cost.levels

    @property
    def products(self) -> int:
        """Of ciphertexts."""
        return self.form.cost.products


@dataclass(frozen=True)
class EncryptedPlan(Compact):
    """By layer the form that keeps the quality with the fewest levels in all.

    Attributes:
        layers: a `LayerPlan` each.
        demanded: the quality that was asked for.
        chosen: the quality on the text that it was chosen by, the lower end of its interval.
        quality: that on text which nothing was chosen or calibrated by, with its interval.
        measure: "cosine" or "perplexity".
    """

    layers: tuple[LayerPlan, ...]
    demanded: float
    chosen: float
    quality: Interval
    measure: str
    PROPERTIES: ClassVar = ("levels", "products")  # that files have too

    @property
    def levels(self) -> int:
        """Levels of all layers together."""
        return sum(layer.levels for layer in self.layers)

    @property
    def products(self) -> int:
        """Products of ciphertexts in all layers together."""
        return sum(layer.products for layer in self.layers)

    @property
    def outside(self) -> tuple[float, ...]:
        """By layer, the share of pre-activations beyond the interval."""
        return tuple(layer.outside for layer in self.layers)

    def apply(self, model: nn.Module) -> nn.Module:
        """A copy of the model with the forms in place of its activations."""
        count = len(blocks(model))
        if count != len(self.layers):
            raise GatelabError(f"the plan is of {counted(len(self.layers), 'layer')}, the model has {count}")
        return replace_activation(model, {i: TabulatedForm(layer.form) for i, layer in enumerate(self.layers)})

    def document(self) -> dict[str, Any]:
        """All of it in JSON's own types."""
        return {"format": FORMAT, **to_plain(self)}

    def save(self, path: str | Path) -> Path:
        """Write the plan to a file, which `read_plan` reads."""
        return write_whole(path, json.dumps(self.document(), indent=1, allow_nan=False) + "\n")


def read_plan(path: str | Path) -> EncryptedPlan:
    """The plan of a file that `EncryptedPlan.save` wrote; levels are counted again and must agree.

    Args:
        path: the file.

    Returns:
        The `EncryptedPlan`, to the last bit.
    """
    document = read_document(path, FORMAT)
    plan = from_plain(EncryptedPlan, document, f"the plan in {path}")
    for i, (layer, row) in enumerate(zip(plan.layers, document["layers"], strict=True)):
        if (layer.levels, layer.products) != (row.get("levels"), row.get("products")):
            raise GatelabError(
                f"{path} is damaged: layer {i} says {row.get('levels')} levels and {row.get('products')} products, its "
                f"form needs {layer.levels} and {layer.products}; make the plan again"
            )
    return plan


# ---- the search


def assignments(
    curves: Sequence[Mapping[int, float]], most: int = TRIED
) -> dict[int, list[tuple[float, tuple[int, ...]]]]:
    """By total of levels, the `most` ways of least summed loss to give every layer one of its levels, with that loss.

    Of `curves`, the loss of each layer at each number of levels. Exact for losses that add up, the least loss first.
    """
    table: dict[int, list[tuple[float, tuple[int, ...]]]] = {0: [(0.0, ())]}
    for curve in curves:
        longer: dict[int, list[tuple[float, tuple[int, ...]]]] = {}
        for used, ways in table.items():
            for levels, loss in curve.items():
                longer.setdefault(used + levels, []).extend((sofar + loss, (*way, levels)) for sofar, way in ways)
        # Of equal totals only the best few can end among the best few.
        table = {used: sorted(ways)[:most] for used, ways in longer.items()}
    return table


@dataclass(frozen=True, eq=False)
class Curves(Compact):
    """What was measured of every layer: by level the best form, its losses alone, and the model they are of.

    Attributes:
        subject: the model.
        data: the pre-activations of every layer.
        forms: by layer and level, the best form.
        losses: by layer and level, 1 less the quality with that layer alone replaced, the lower end of its interval.
        choosing: the text to choose by.
        stating: the text to state the quality on.
    """

    subject: Subject
    data: tuple[PreActivations, ...]
    forms: tuple[dict[int, CircuitForm], ...]
    losses: tuple[dict[int, float], ...]
    choosing: list[Tensor]
    stating: list[Tensor]


def measure_curves(
    model: nn.Module,
    text: Sequence[Any],
    *,
    margin: float = 0.1,
    most: int = MOST,
    forms_of: Callable[[Activation, PreActivations, int], Sequence[CircuitForm]] | None = None,
    progress: Listener | None = None,
) -> Curves:
    """Calibrate on half of the rows of token ids, make every form, and measure each layer's curve on a quarter of them.

    `margin` is of the calibrated range, in half-widths; `most` the most levels of a layer; `forms_of` gives the forms
    of an activation, its data and a number of levels, by default all `candidates`. The model stays as it was.
    """
    rows = [torch.as_tensor(row).long().cpu() for row in text]
    if len(rows) < LEAST_ROWS:
        raise GatelabError(f"the text has {counted(len(rows), 'row')}; give {LEAST_ROWS} or more, to part it in three")
    calibrating, choosing = [row for i, row in enumerate(rows) if i % 4 < 2], rows[2::4]
    subject = Subject(model)
    data = tuple(PreActivations.of(z.numpy(), margin) for z in subject.pre_activations(calibrating))
    plain = subject.outputs(choosing)
    if forms_of is None:
        forms_of = partial(candidates, published=[find_published(name) for name in ("puma", "bolt", "nexus")])
    forms: list[dict[int, CircuitForm]] = []
    losses: list[dict[int, float]] = []
    steps = most - FEWEST + 1
    for i, (gate, known) in enumerate(zip(subject.gates, data, strict=True)):
        best: dict[int, tuple[float, CircuitForm]] = {}
        for levels in range(FEWEST, most + 1):
            # What is far worse on the calibration text needs no model to be refused: the two best go into it.
            ranked = sorted(forms_of(gate, known, levels), key=partial(known.error, gate=gate))[:2]
            measured = [subject.outputs(choosing, {i: TabulatedForm(form)}) for form in ranked]
            tried = [(1 - quality_of(plain, outputs).low, form) for outputs, form in zip(measured, ranked, strict=True)]
            best[levels] = min(tried, key=lambda pair: pair[0])
            if best[levels][0] < ENOUGH:
                break
            if progress:
                progress(i * steps + levels - FEWEST + 1, len(data) * steps)
        forms.append({levels: form for levels, (_, form) in best.items()})
        losses.append({levels: loss for levels, (loss, _) in best.items()})
    return Curves(subject, data, tuple(forms), tuple(losses), choosing, rows[3::4])


def search(curves: Curves, quality: float) -> EncryptedPlan:
    """The assignment of fewest levels that has the quality when it is measured in the whole model."""
    quality = real_number("the quality", quality, above=0, below=1)
    plain = curves.subject.outputs(curves.choosing)
    best, totals = 0.0, assignments(curves.losses)
    for total in sorted(totals):
        for loss, way in totals[total]:
            if loss > LEEWAY * (1 - quality):
                break  # those that follow lose more still
            tables = {i: TabulatedForm(curves.forms[i][levels]) for i, levels in enumerate(way)}
            chosen = quality_of(plain, curves.subject.outputs(curves.choosing, tables)).low
            best = max(best, chosen)
            if chosen >= quality:
                alone = [1 - curves.losses[i][levels] for i, levels in enumerate(way)]
                return _plan(curves, tables, alone, quality, chosen)
    raise GatelabError(
        f"no plan of up to {max(totals)} levels keeps a quality of {quality:g}; the best that was measured keeps "
        f"{best:.6f}: ask for less, or raise the most levels of a layer"
    )


def _plan(
    curves: Curves, tables: Mapping[int, TabulatedForm], alone: Sequence[float], demanded: float, chosen: float
) -> EncryptedPlan:
    """The plan of these forms, with its quality on rows that nothing was chosen by."""
    subject, rows = curves.subject, curves.stating
    plain = subject.outputs(rows)
    quality = quality_of(plain, subject.outputs(rows, tables))
    layers = []
    for i, z in enumerate(subject.pre_activations(rows, tables)):
        low, high = tables[i].form.interval
        outside = float(((z < low) | (z > high)).double().mean())
        layers.append(LayerPlan(subject.gates[i].name, tables[i].form, alone[i], outside))
    measure = "perplexity" if plain.shape[1] == 2 else "cosine"
    return EncryptedPlan(tuple(layers), demanded, chosen, quality, measure)


def plan_encrypted(
    model: nn.Module,
    text: Sequence[Any],
    *,
    quality: float = 0.999,
    encode: Callable[[str], Tensor] | None = None,
    margin: float = 0.1,
    most: int = MOST,
    progress: ProgressLike = None,
) -> EncryptedPlan:
    """By layer the polynomial, or other form, that keeps a model's quality under encryption with the fewest levels.

    Args:
        model: a model of Transformers built as BERT, GPT-2 or Llama are, or gatelab's GPT2; it stays as it was.
        text: rows of token ids, eight or more, or strings with `encode`. They are parted in three: to calibrate on,
            to choose by, and to state the quality on.
        quality: to be kept: the mean cosine of embeddings, or the smaller of two perplexities over the larger.
        encode: makes token ids of a string.
        margin: by how much of their half-width ranges are widened.
        most: the most levels of a layer.
        progress: what to show, see `gatelab.display`.

    Returns:
        An `EncryptedPlan`.
    """
    rows = list(text)
    if any(isinstance(row, str) for row in rows):
        if encode is None:
            raise GatelabError("the text is strings; give encode=..., a function from a string to token ids")
        rows = [encode(row) for row in rows]
    with reporting(progress, "planning") as report:
        curves = measure_curves(model, rows, margin=margin, most=most, progress=report)
    return search(curves, quality)
