"""Plans for encrypted inference: a form per layer that preserves a model's quality with the fewest levels in total.

Half of the text calibrates forms of each number of levels for each layer; a quarter measures the loss of quality with
one layer replaced. A dynamic program finds the assignments with the smallest sum of losses for each total, the best few
are measured in the whole model, and the first whose interval reaches the quality is the plan. The last quarter is the
test. Quality is the mean cosine of embeddings, or the ratio of the two perplexities, the smaller over the larger.
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
from gatelab.linearization.forms import PreActivations, TabulatedForm, candidates
from gatelab.linearization.polynomials import GELU_TANH
from gatelab.models.hooks import captured, replaced
from gatelab.models.layouts import Pointwise, blocks
from gatelab.models.replace import replace_activation
from gatelab.plain import to_plain
from gatelab.statistics import Interval, bootstrap

FORMAT = "gatelab plan 1"
FEWEST, MOST = 2, 7  # levels per layer in the search
ENOUGH = 1e-7  # a loss of one layer below which more levels are not tried
TRIED = 3  # assignments with the same total that are measured in the whole model
LEEWAY = 2.0  # assignments with a sum of losses above this multiple of the allowed loss are not measured
BATCH = 16
LEAST_ROWS = 8
_KNOWN = ("gelu", "silu", "tanh", "sigmoid", "relu")
Forms = Mapping[int, Callable[[Tensor], Tensor]]  # new activations, by layer
_OWN: Forms = MappingProxyType({})


def gate_of(function: Callable[[Tensor], Tensor]) -> Activation:
    """The known activation with the values of a model's activation."""
    z = torch.linspace(-6, 6, 601)
    with torch.no_grad():
        value = function(z)
    for gate in (*map(activation, _KNOWN), GELU_TANH):
        if torch.allclose(value, gate(z), atol=1e-6):
            return gate
    raise GatelabError(f"the activation {function} is not one of {', '.join(_KNOWN)}; replace it by one of them")


class Subject:
    """A model with replaceable activations, and its outputs for rows of tokens."""

    def __init__(self, model: nn.Module) -> None:
        functions = [block.activation for block in blocks(model)]
        self.gates = [gate_of(f) for f in functions]
        self.places = [Pointwise(partial(f)) for f in functions]
        self.model = replace_activation(model, dict(enumerate(self.places))).eval()
        self.device = next(model.parameters()).device

    def batches(self, rows: Sequence[Tensor]) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Batches of rows of similar length: their indices, ids padded on the right, and the mask of the padding."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for start in range(0, len(order), BATCH):
            which = order[start : start + BATCH]
            ids = nn.utils.rnn.pad_sequence([rows[i] for i in which], batch_first=True)
            lengths = torch.tensor([len(rows[i]) for i in which])
            mask = torch.arange(ids.shape[1]) < lengths[:, None]
            yield which, ids.to(self.device), mask.to(self.device)

    @torch.no_grad()
    def outputs(self, rows: Sequence[Tensor], forms: Forms = _OWN) -> Array:
        """One embedding per row, (rows, d); for a language model the loss and the number of tokens, (rows, 2)."""
        out: list[Array] = [np.zeros(0)] * len(rows)
        with replaced({self.places[i]: form for i, form in forms.items()}):
            for which, ids, mask in self.batches(rows):
                for i, part in zip(which, self.call(ids, mask), strict=True):
                    out[i] = part
        return np.stack(out)

    @torch.no_grad()
    def pre_activations(self, rows: Sequence[Tensor], forms: Forms = _OWN) -> list[Tensor]:
        """The inputs of the activation of every layer, without padding."""
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
    """The quality with its interval over rows; 0 if outputs are not finite."""
    if not np.isfinite(changed).all():
        return Interval(0.0, 0.0, 0.0)
    if plain.shape[1] == 2:
        more, tokens = changed[:, 0] - plain[:, 0], plain[:, 1]
        return bootstrap([more, tokens], lambda a, n: np.exp(-np.abs(a.sum(-1) / n.sum(-1))), paired=True)
    return bootstrap([(plain * changed).sum(1)], lambda p: p.mean(-1))


@dataclass(frozen=True)
class LayerPlan(Compact):
    """The form of a layer, its quality alone (lower end), and the share of pre-activations outside its interval."""

    activation: str
    form: CircuitForm
    alone: float
    outside: float
    PROPERTIES: ClassVar = ("levels", "products")  # also written to files

    @property
    def levels(self) -> int:
        """The number of levels."""
        return self.form.cost.levels

    @property
    def products(self) -> int:
        """The number of products of ciphertexts."""
        return self.form.cost.products


@dataclass(frozen=True)
class EncryptedPlan(Compact):
    """The form of every layer, with the fewest levels in total for the wanted quality.

    Attributes:
        layers: one `LayerPlan` per layer.
        demanded: the wanted quality.
        chosen: the quality on the selection text (lower end of the interval).
        quality: the quality on the test text, with its interval.
        measure: "cosine" or "perplexity".
    """

    layers: tuple[LayerPlan, ...]
    demanded: float
    chosen: float
    quality: Interval
    measure: str
    PROPERTIES: ClassVar = ("levels", "products")  # also written to files

    @property
    def levels(self) -> int:
        """The total number of levels."""
        return sum(layer.levels for layer in self.layers)

    @property
    def products(self) -> int:
        """The total number of products of ciphertexts."""
        return sum(layer.products for layer in self.layers)

    @property
    def outside(self) -> tuple[float, ...]:
        """The share of pre-activations outside the interval, per layer."""
        return tuple(layer.outside for layer in self.layers)

    def apply(self, model: nn.Module) -> nn.Module:
        """A copy of the model with the forms in place of its activations."""
        count = len(blocks(model))
        if count != len(self.layers):
            raise GatelabError(f"the plan has {len(self.layers)} layers, the model {count}; give the model of the plan")
        return replace_activation(model, {i: TabulatedForm(layer.form) for i, layer in enumerate(self.layers)})

    def document(self) -> dict[str, Any]:
        """A dict for JSON."""
        return {"format": FORMAT, **to_plain(self)}

    def save(self, path: str | Path) -> Path:
        """Write a file for `gatelab.load`."""
        return write_whole(path, json.dumps(self.document(), indent=1, allow_nan=False) + "\n")


def assignments(
    curves: Sequence[Mapping[int, float]], most: int = TRIED
) -> dict[int, list[tuple[float, tuple[int, ...]]]]:
    """The `most` assignments (sum of losses, levels by layer) with the least loss, for each total number of levels."""
    table: dict[int, list[tuple[float, tuple[int, ...]]]] = {0: [(0.0, ())]}
    for curve in curves:
        longer: dict[int, list[tuple[float, tuple[int, ...]]]] = {}
        for total, shorter in table.items():
            for levels, loss in curve.items():
                longer.setdefault(total + levels, []).extend((sum_ + loss, (*way, levels)) for sum_, way in shorter)
        # Only the best few of each total can become the best few of a longer one.
        table = {total: sorted(ways)[:most] for total, ways in longer.items()}
    return table


@dataclass(frozen=True, eq=False)
class Curves(Compact):
    """The best form of every layer for each number of levels, its loss alone, and the texts for selection and test."""

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
    forms_of: Callable[[Activation, PreActivations, int], Sequence[CircuitForm]] = candidates,
    progress: Listener | None = None,
) -> Curves:
    """Calibrate forms on half of the rows of token ids, and measure the losses of each layer on a quarter of them."""
    rows = [torch.as_tensor(row).long().cpu() for row in text]
    if len(rows) < LEAST_ROWS:
        raise GatelabError(f"the text has {counted(len(rows), 'row')}; give {LEAST_ROWS} or more, to split it in three")
    calibrating, choosing = [row for i, row in enumerate(rows) if i % 4 < 2], rows[2::4]
    subject = Subject(model)
    data = tuple(PreActivations.of(z.numpy(), margin) for z in subject.pre_activations(calibrating))
    plain = subject.outputs(choosing)
    forms: list[dict[int, CircuitForm]] = []
    losses: list[dict[int, float]] = []
    steps = most - FEWEST + 1
    for i, (gate, known) in enumerate(zip(subject.gates, data, strict=True)):
        best: dict[int, tuple[float, CircuitForm]] = {}
        for levels in range(FEWEST, most + 1):
            # Only the two forms with the smallest errors on the calibration text are measured in the model.
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
    """The assignment with the fewest levels that has the wanted quality in the whole model."""
    quality = real_number("the quality", quality, above=0, below=1)
    plain = curves.subject.outputs(curves.choosing)
    best, totals = 0.0, assignments(curves.losses)
    for total in sorted(totals):
        for loss, way in totals[total]:
            if loss > LEEWAY * (1 - quality):
                break  # the following ones lose more
            tables = {i: TabulatedForm(curves.forms[i][levels]) for i, levels in enumerate(way)}
            chosen = quality_of(plain, curves.subject.outputs(curves.choosing, tables)).low
            best = max(best, chosen)
            if chosen >= quality:
                alone = [1 - curves.losses[i][levels] for i, levels in enumerate(way)]
                return _plan(curves, tables, alone, quality, chosen)
    raise GatelabError(
        f"no plan of up to {max(totals)} levels has a quality of {quality:g}, the best has {best:.6f}; give a lower one"
    )


def _plan(
    curves: Curves, tables: Mapping[int, TabulatedForm], alone: Sequence[float], demanded: float, chosen: float
) -> EncryptedPlan:
    """The plan of these forms, with its quality on the test text."""
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
    """Choose a polynomial for every layer that preserves the quality with the fewest levels in total.

    Args:
        model: a Transformers model like BERT, GPT-2 or Llama, or gatelab's GPT2; it is not modified.
        text: eight or more rows of token ids, or strings with `encode`. They are split into three parts: for
            calibration, for selection, and for the reported quality.
        quality: the wanted quality: the mean cosine of embeddings, or the smaller perplexity over the larger.
        encode: a function from a string to token ids.
        margin: the margin of calibrated ranges, in half-widths.
        most: the most levels of a layer.
        progress: see `gatelab.display`.

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
