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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.arrays import Array
from gatelab.display import Listener, ProgressLike, counted, one_line, reporting
from gatelab.errors import GatelabError
from gatelab.feedforward.gates import Activation, activation
from gatelab.files import write_whole
from gatelab.linearization.exchange import find_published
from gatelab.linearization.forms import CircuitForm, PreActivations, TabulatedForm, candidates
from gatelab.linearization.polynomials import GELU_TANH, values
from gatelab.models.layouts import blocks
from gatelab.models.replace import replace_activation
from gatelab.statistics import Interval, bootstrap

FORMAT = "gatelab plan 1"
FEWEST, MOST = 2, 7  # levels of a layer that are tried
ENOUGH = 1e-7  # of a loss: a layer that loses less alone gains nothing from more levels
TRIED = 3  # assignments of one total that are measured in the whole model
LEEWAY = 2.0  # times what may be lost: an assignment whose layers alone lose more than that in sum is not measured
BATCH = 16
LEAST_ROWS = 8
_KNOWN = ("gelu", "silu", "tanh", "sigmoid", "relu")


# ---- models


class Switch:
    """An activation that can be changed, and that notes what enters it while `inputs` is a list."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.plain = self.function = function
        self.inputs: list[Tensor] | None = None

    def __call__(self, z: Tensor) -> Tensor:
        if self.inputs is not None:
            self.inputs.append(z.detach().cpu())
        return self.function(z)


def activations_of(model: nn.Module) -> list[Callable[[Tensor], Tensor]]:
    """The activation of every feed-forward block, gated or plain."""
    return [block.activation for block in blocks(model)]


def recognised(function: Callable[[Tensor], Tensor]) -> Activation:
    """Which of the activations that polynomials are made for a model's own is, by its values."""
    z = torch.linspace(-6, 6, 601)
    with torch.no_grad():
        value = function(z)
    for gate in (*map(activation, _KNOWN), GELU_TANH):
        if torch.allclose(value, gate(z), atol=1e-6):
            return gate
    raise GatelabError(f"the activation {function} is none of {', '.join(_KNOWN)}; replace it by one of them")


class Subject:
    """A model whose activations can be switched, and what it gives for rows of tokens."""

    def __init__(self, model: nn.Module) -> None:
        functions = activations_of(model)
        self.gates = [recognised(f) for f in functions]
        self.switches = [Switch(f) for f in functions]
        self.model = replace_activation(model, dict(enumerate(self.switches))).eval()
        self.device = next(model.parameters()).device

    def put(self, forms: Mapping[int, Callable[[Tensor], Tensor]]) -> None:
        """Other activations in these layers, its own in all others."""
        for i, switch in enumerate(self.switches):
            switch.function = forms.get(i, switch.plain)

    @torch.no_grad()
    def outputs(self, rows: Sequence[Tensor]) -> Array:
        """An embedding for each row, (rows, d); of a language model its loss and number of tokens, (rows, 2)."""
        out: list[Array] = [np.zeros(0)] * len(rows)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for start in range(0, len(order), BATCH):
            which = order[start : start + BATCH]
            ids = nn.utils.rnn.pad_sequence([rows[i] for i in which], batch_first=True)
            lengths = torch.tensor([len(rows[i]) for i in which])
            mask = torch.arange(ids.shape[1]) < lengths[:, None]
            before = [len(s.inputs) for s in self.switches if s.inputs is not None]
            result = self.call(ids.to(self.device), mask.to(self.device))
            for switch, count in zip(self.switches, before, strict=False):
                assert switch.inputs is not None
                switch.inputs[count:] = [z.reshape(*mask.shape, -1)[mask] for z in switch.inputs[count:]]
            for i, part in zip(which, result, strict=True):
                out[i] = part
        return np.stack(out)

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

    def record(self, rows: Sequence[Tensor], margin: float) -> list[PreActivations]:
        """The pre-activations of every layer of the plain model."""
        self.put({})
        for switch in self.switches:
            switch.inputs = []
        try:
            self.outputs(rows)
            return [PreActivations.of(torch.cat(s.inputs or []).numpy(), margin) for s in self.switches]
        finally:
            for switch in self.switches:
                switch.inputs = None

    def outside(self, rows: Sequence[Tensor], intervals: Sequence[tuple[float, float]]) -> list[float]:
        """The share of each layer's pre-activations beyond its interval, the model as it is switched."""
        for switch in self.switches:
            switch.inputs = []
        try:
            self.outputs(rows)
            shares = []
            for switch, (low, high) in zip(self.switches, intervals, strict=True):
                z = torch.cat(switch.inputs or [])
                shares.append(float(((z < low) | (z > high)).double().mean()))
            return shares
        finally:
            for switch in self.switches:
                switch.inputs = None


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
class LayerPlan:
    """What a layer computes under encryption.

    Attributes:
        activation: the name of what it stands for.
        form: the form.
        levels: that it uses.
        products: of ciphertexts.
        alone: the quality with this layer alone replaced, on the text that forms were chosen by, at its lower end.
    """

    activation: str
    form: CircuitForm
    levels: int
    products: int
    alone: float

    def __repr__(self) -> str:
        low, high = self.form.interval
        return one_line(
            self, f"{self.form.method} of {self.activation} on [{low:.4g}, {high:.4g}], {counted(self.levels, 'level')}"
        )


@dataclass(frozen=True)
class EncryptedPlan:
    """By layer the form that keeps the quality with the fewest levels in all.

    Attributes:
        layers: a `LayerPlan` each.
        demanded: the quality that was asked for.
        chosen: the quality on the text that it was chosen by, the lower end of its interval.
        quality: that on text which nothing was chosen or calibrated by, with its interval.
        outside: by layer, the share of pre-activations of that text beyond the interval.
        measure: "cosine" or "perplexity".
    """

    layers: tuple[LayerPlan, ...]
    demanded: float
    chosen: float
    quality: Interval
    outside: tuple[float, ...]
    measure: str

    def __repr__(self) -> str:
        return one_line(
            self,
            f"{counted(len(self.layers), 'layer')}, {counted(self.levels, 'level')}, {self.measure} kept "
            f"{self.quality:.5f}",
        )

    @property
    def levels(self) -> int:
        """Levels of all layers together."""
        return sum(layer.levels for layer in self.layers)

    @property
    def products(self) -> int:
        """Products of ciphertexts in all layers together."""
        return sum(layer.products for layer in self.layers)

    def apply(self, model: nn.Module) -> nn.Module:
        """A copy of the model with the forms in place of its activations."""
        count = len(activations_of(model))
        if count != len(self.layers):
            raise GatelabError(f"the plan is of {counted(len(self.layers), 'layer')}, the model has {count}")
        return replace_activation(model, {i: TabulatedForm(layer.form) for i, layer in enumerate(self.layers)})

    def document(self) -> dict[str, Any]:
        """All of it in JSON's own types."""
        q = self.quality
        return {
            "format": FORMAT,
            "measure": self.measure,
            "demanded": self.demanded,
            "chosen": self.chosen,
            "quality": {"value": q.value, "low": q.low, "high": q.high, "level": q.level},
            "levels": self.levels,
            "products": self.products,
            "layers": [
                {
                    "activation": layer.activation,
                    "levels": layer.levels,
                    "products": layer.products,
                    "alone": layer.alone,
                    "outside": share,
                    "form": layer.form.document(),
                }
                for layer, share in zip(self.layers, self.outside, strict=True)
            ],
        }

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
    file = Path(path)
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise GatelabError(
            f"{file} cannot be read ({error.strerror or error}); give a file of EncryptedPlan"
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise GatelabError(f"{file} is not JSON ({error}); give a plan that gatelab saved") from None
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise GatelabError(f"{file} is not a {FORMAT!r} document; give a plan that gatelab saved")
    try:
        layers = tuple(
            LayerPlan(
                str(row["activation"]),
                CircuitForm.of_document(row["form"]),
                int(row["levels"]),
                int(row["products"]),
                float(row["alone"]),
            )
            for row in document["layers"]
        )
        plan = EncryptedPlan(
            layers,
            float(document["demanded"]),
            float(document["chosen"]),
            Interval(**document["quality"]),
            tuple(float(row["outside"]) for row in document["layers"]),
            str(document["measure"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise GatelabError(f"{file} is damaged ({type(error).__name__}: {error}); make the plan again") from None
    for i, layer in enumerate(layers):
        if (layer.form.cost.levels, layer.form.cost.products) != (layer.levels, layer.products):
            raise GatelabError(
                f"{file} is damaged: layer {i} says {layer.levels} levels and {layer.products} products, its form "
                f"needs {layer.form.cost.levels} and {layer.form.cost.products}"
            )
    return plan


# ---- the search


def assignments(curves: Sequence[Mapping[int, float]], total: int, most: int = TRIED) -> list[tuple[int, ...]]:
    """The `most` ways of least summed loss to give every layer one of its levels so that they add up to the total.

    Of `curves`, the loss of each layer at each number of levels. Exact for losses that add up, the least loss first.

    >>> assignments([{3: 0.5, 4: 0.1}, {3: 0.2, 4: 0.15}], 7)
    [(4, 3), (3, 4)]
    """
    table: dict[int, list[tuple[float, tuple[int, ...]]]] = {0: [(0.0, ())]}
    for curve in curves:
        longer: dict[int, list[tuple[float, tuple[int, ...]]]] = {}
        for used, ways in table.items():
            for levels, loss in curve.items():
                longer.setdefault(used + levels, []).extend((sofar + loss, (*way, levels)) for sofar, way in ways)
        # Of equal totals only the best few can end among the best few.
        table = {used: sorted(ways)[:most] for used, ways in longer.items()}
    return [way for _, way in table.get(total, [])]


def parted(rows: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Half of the rows to calibrate on, a quarter to choose by, a quarter to state the quality on, interleaved."""
    return [r for i, r in enumerate(rows) if i % 4 < 2], list(rows[2::4]), list(rows[3::4])


@dataclass(frozen=True, eq=False)
class Curves:
    """What was measured of every layer: by level the best form, its losses alone, and the model they are of.

    Attributes:
        subject: the model.
        data: the pre-activations of every layer.
        forms: by layer and level, the best form.
        losses: by layer and level, 1 less the quality with that layer alone replaced, the lower end of its interval.
        parts: the text to calibrate on, to choose by, and to state the quality on.
    """

    subject: Subject
    data: tuple[PreActivations, ...]
    forms: tuple[dict[int, CircuitForm], ...]
    losses: tuple[dict[int, float], ...]
    parts: tuple[list[Tensor], list[Tensor], list[Tensor]]

    def __repr__(self) -> str:
        return one_line(self, f"{counted(len(self.forms), 'layer')}")


def measure_curves(
    model: nn.Module,
    rows: Sequence[Tensor],
    *,
    margin: float = 0.1,
    most: int = MOST,
    forms_of: Callable[[Activation, PreActivations, int], Sequence[CircuitForm]] | None = None,
    progress: Listener | None = None,
) -> Curves:
    """Calibrate on a part of the rows of token ids, make every form, and measure each layer's curve on another part.

    `margin` is of the calibrated range, in half-widths; `most` the most levels of a layer; `forms_of` gives the forms
    of an activation, its data and a number of levels, by default all `candidates`. The model stays as it was.
    """
    rows = [torch.as_tensor(row).long().cpu() for row in rows]
    if len(rows) < LEAST_ROWS:
        raise GatelabError(f"the text has {counted(len(rows), 'row')}; give {LEAST_ROWS} or more, to part it in three")
    parts, subject = parted(rows), Subject(model)
    data = subject.record(parts[0], margin)
    plain = subject.outputs(parts[1])
    if forms_of is None:
        forms_of = partial(candidates, published=[find_published(name) for name in ("puma", "bolt", "nexus")])
    forms: list[dict[int, CircuitForm]] = []
    losses: list[dict[int, float]] = []
    whole = len(data) * (most - FEWEST + 1)
    for i, (gate, known) in enumerate(zip(subject.gates, data, strict=True)):
        best: dict[int, tuple[float, CircuitForm]] = {}
        exact = values(gate, known.z).numpy()
        for levels in range(FEWEST, most + 1):
            # What is far worse on the calibration text needs no model to be refused: the two best go into it.
            ranked = sorted(
                forms_of(gate, known, levels),
                key=lambda form: known.rms(TabulatedForm(form).inside(known.z) - exact),
            )
            for form in ranked[:2]:
                subject.put({i: TabulatedForm(form)})
                loss = 1 - quality_of(plain, subject.outputs(parts[1])).low
                if levels not in best or loss < best[levels][0]:
                    best[levels] = loss, form
            if best[levels][0] < ENOUGH:
                break
            if progress:
                progress(i * (most - FEWEST + 1) + levels - FEWEST + 1, whole)
        forms.append({levels: form for levels, (_, form) in best.items()})
        losses.append({levels: loss for levels, (loss, _) in best.items()})
    subject.put({})
    return Curves(subject, tuple(data), tuple(forms), tuple(losses), parts)


def search(curves: Curves, quality: float) -> EncryptedPlan:
    """The assignment of fewest levels that has the quality when it is measured in the whole model."""
    if not 0 < quality < 1:
        raise GatelabError(f"the quality is {quality!r}; give a number between 0 and 1, such as 0.999")
    subject, (_, choosing, stating) = curves.subject, curves.parts
    tables = [{levels: TabulatedForm(form) for levels, form in forms.items()} for forms in curves.forms]
    plain = subject.outputs(choosing)
    best = 0.0
    least, most = (sum(pick(c) for c in curves.losses) for pick in (min, max))
    for total in range(least, most + 1):
        for way in assignments(curves.losses, total):
            if sum(c[levels] for c, levels in zip(curves.losses, way, strict=True)) > LEEWAY * (1 - quality):
                break  # those that follow lose more still
            subject.put({i: tables[i][levels] for i, levels in enumerate(way)})
            chosen = quality_of(plain, subject.outputs(choosing)).low
            best = max(best, chosen)
            if chosen >= quality:
                return stated(curves, way, quality, chosen, stating)
    subject.put({})
    raise GatelabError(
        f"no plan of up to {most} levels keeps a quality of {quality:g}; the best that was measured keeps {best:.6f}: "
        "ask for less, or raise the most levels of a layer"
    )


def stated(curves: Curves, way: Sequence[int], demanded: float, chosen: float, rows: Sequence[Tensor]) -> EncryptedPlan:
    """The plan of an assignment, with its quality on rows that nothing was chosen by."""
    subject = curves.subject
    subject.put({})
    plain = subject.outputs(rows)
    forms = [curves.forms[i][levels] for i, levels in enumerate(way)]
    subject.put({i: TabulatedForm(form) for i, form in enumerate(forms)})
    quality = quality_of(plain, subject.outputs(rows))
    outside = subject.outside(rows, [form.interval for form in forms])
    subject.put({})
    layers = tuple(
        LayerPlan(gate.name, form, form.cost.levels, form.cost.products, 1 - curves.losses[i][levels])
        for i, (gate, form, levels) in enumerate(zip(subject.gates, forms, way, strict=True))
    )
    measure = "cosine"
    if plain.shape[1] == 2:
        measure = "perplexity"
    return EncryptedPlan(layers, demanded, chosen, quality, tuple(outside), measure)


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
