"""Forms under encryption, their levels by one count, and plans for whole models: search, measurement, files."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gatelab as gl
from gatelab.errors import GatelabError
from gatelab.feedforward.gates import activation
from gatelab.linearization import find_published, forms
from gatelab.linearization.circuits import CircuitForm, FormTerm, Number, PlainMachine
from gatelab.linearization.encryption import SealMachine, parameters_for
from gatelab.linearization.plans import Subject, assignments, plan_encrypted, quality_of
from gatelab.models import GPT2


@pytest.fixture(scope="module")
def data() -> forms.PreActivations:
    z = np.random.default_rng(0).normal(0, 1.5, 20_000)
    return forms.PreActivations.of(np.append(z, [-9.0, 11.0]))


def forms_for(data: forms.PreActivations, levels: int) -> list[CircuitForm]:
    gate, names = activation("gelu"), {3: (), 4: ("puma", "bolt"), 5: ("puma", "bolt", "nexus")}
    pieces = [forms.published_form(find_published(name), gate, data, levels) for name in names[levels]]
    return [*forms.candidates(gate, data, levels), *pieces]


@pytest.mark.parametrize("levels", [3, 4, 5])
def test_a_form_run_as_a_circuit_has_its_values_and_no_more_levels(levels: int, data: forms.PreActivations) -> None:
    low, high = data.interval
    z = np.linspace(low, high, 97)
    every = forms_for(data, levels)
    for form in every:
        machine = PlainMachine()
        result = form.run(machine, Number((2 * z - low - high) / (high - low)), form.cost.baby)
        assert np.abs(result.value - form(z)).max() <= 1e-9 * max(1, np.abs(form(z)).max())
        assert result.level == form.cost.levels <= levels and machine.products == form.cost.products
        assert form.degree < 2**levels, "what a circuit of L levels computes is a polynomial below 2^L"


def test_a_fit_is_best_in_its_norm_and_minimax_in_its_own(data: forms.PreActivations) -> None:
    gate = activation("gelu")
    z = np.linspace(*data.interval, 4001)
    everywhere = gate(torch.from_numpy(z)).numpy()
    best, fit = forms.minimax_form(gate, data, 4), forms.fitted_form(gate, data, 4, 1e-4)
    assert data.error(fit, gate) < data.error(best, gate)
    assert np.abs(fit(z) - everywhere).max() > np.abs(best(z) - everywhere).max()


def test_breaks_outside_the_interval_need_no_comparison() -> None:
    nexus, data = find_published("nexus"), forms.PreActivations.of(np.linspace(-3.0, 3.1, 500), margin=0.0)
    form = forms.published_form(nexus, activation("gelu"), data, 5)
    assert not form.terms and form.cost.levels == 4
    assert np.allclose(form(data.z), nexus(data.z), atol=1e-12)


def test_a_table_is_its_form_inside_and_outside(data: forms.PreActivations) -> None:
    z = np.linspace(data.interval[0] - 2, data.interval[1] + 2, 1001)
    for form in forms_for(data, 4):
        looked_up = forms.TabulatedForm(form)(torch.from_numpy(z)).numpy()
        assert np.abs(looked_up - form(z)).max() < 1e-5 * np.abs(form(z)).max(), form


@pytest.mark.skipif(
    importlib.util.find_spec("tenseal") is None, reason="needs TenSEAL: pip install 'gatelab[encrypted]'"
)
@pytest.mark.slow
def test_pieces_run_under_encryption_too() -> None:
    data = forms.PreActivations.of(np.random.default_rng(1).normal(0, 1.5, 2000))
    t = np.linspace(-1, 1, 64)
    low, high = data.interval
    machine = SealMachine(parameters_for(4, largest=64))
    bolt = forms.published_form(find_published("bolt"), activation("gelu"), data, 4)
    product = FormTerm((0.0, 0.9, 0.0, 0.1), (0.3, 2.0))
    for form in (bolt, CircuitForm("product", data.interval, (0.1, 0.5), (product,))):
        result = form.run(machine, machine.encrypt(t), form.cost.baby)
        exact = form((low + high) / 2 + (high - low) / 2 * t)
        assert np.abs(machine.decrypt(result, 64) - exact).max() < 1e-6 * max(1.0, np.abs(exact).max()), form
        assert result.level == form.cost.levels == (3 if form.method == "product" else 4)


def test_the_search_is_exact() -> None:
    rng = np.random.default_rng(2)
    curves = [{n: float(rng.uniform()) for n in (2, 3, 4, 5)} for _ in range(4)]
    for total in range(8, 21):
        ways = [w for w in itertools.product((2, 3, 4, 5), repeat=4) if sum(w) == total]
        ways.sort(key=lambda w: sum(c[n] for c, n in zip(curves, w, strict=True)))
        assert [way for _, way in assignments(curves, most=5)[total]] == ways[:5]


def test_quality_is_a_cosine_or_a_ratio_of_perplexities() -> None:
    plain = np.array([[2.0, 10.0], [4.0, 10.0]])
    assert math.isclose(quality_of(plain, plain + np.array([[0.2, 0], [0.4, 0]])).value, math.exp(-0.6 / 20))
    assert math.isclose(quality_of(plain, plain - np.array([[0.2, 0], [0.4, 0]])).value, math.exp(-0.6 / 20))
    assert quality_of(plain, np.full((2, 2), np.nan)).value == 0
    e = np.eye(3)
    assert quality_of(e, e).value == 1 and quality_of(e, np.roll(e, 1, 0)).value == 0


def rows(count: int, length: int = 24, seed: int = 0) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 256, (length - i % 5,), generator=draw) for i in range(count)]


@pytest.fixture(scope="module")
def model() -> GPT2:
    model = GPT2("tiny", "gelu")
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "feed_forward" in name:
                p *= 12  # as far as trained weights reach
    return model


@pytest.mark.slow
def test_a_plan_keeps_the_quality_and_can_be_read_back(model: GPT2, tmp_path: Path) -> None:
    text = rows(16)
    plan = plan_encrypted(model, text, quality=0.995, most=5)
    assert plan.measure == "perplexity" and plan.chosen >= 0.995 and len(plan.layers) == 2
    assert plan.levels == sum(layer.form.cost.levels for layer in plan.layers)
    # The stated quality is that of the model with the plan applied, by its own loss, on the last quarter.
    changed, nll = plan.apply(model), []
    for m in (model, changed):
        with torch.no_grad():
            sums = [torch.nn.functional.cross_entropy(m(r[None])[0, :-1], r[1:], reduction="sum") for r in text[3::4]]
        nll.append(float(sum(sums)) / sum(len(r) - 1 for r in text[3::4]))
    assert math.isclose(plan.quality.value, math.exp(-abs(nll[0] - nll[1])), rel_tol=1e-4)
    assert gl.load(plan.save(tmp_path / "plan.json")) == plan
    # No plan of fewer levels has the quality.
    assert plan.levels > 4
    with pytest.raises(GatelabError, match="up to 4 levels"):
        plan_encrypted(model, text, quality=0.995, most=2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_model_on_a_gpu_has_the_plan_of_the_same_model_here(model: GPT2) -> None:
    here = plan_encrypted(model, rows(24), quality=0.995, most=5)
    there = copy.deepcopy(model).cuda()
    plan = plan_encrypted(there, [row.cuda() for row in rows(24)], quality=0.995, most=5)
    assert [layer.levels for layer in plan.layers] == [layer.levels for layer in here.layers]
    assert plan.quality.value == pytest.approx(here.quality.value, abs=1e-4)
    changed = plan.apply(there)(torch.stack([row[:20] for row in rows(4)]).cuda())
    assert changed.is_cuda and bool(changed.isfinite().all())


def test_pre_activations_are_those_of_the_blocks_without_padding(model: GPT2) -> None:
    subject, text = Subject(model), rows(5)
    recorded = [forms.PreActivations.of(z, 0.0) for z in subject.pre_activations(text)]
    count = sum(len(r) for r in text) * 96
    assert [int(d.counts.sum()) for d in recorded] == [count, count]
    flow = [gl.models.trace(model, lambda m, r=r: m(r[None])).inputs[0][0] for r in text]
    z = gl.models.blocks(model)[0].before(torch.cat(flow))
    assert np.allclose(recorded[0].interval, (float(z.min()), float(z.max())), atol=1e-5)


class GatedPart(nn.Module):
    """A block as Llama has it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(16, 32, bias=False), nn.Linear(16, 32, bias=False)
        self.down_proj, self.act_fn = nn.Linear(32, 16, bias=False), nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class GatedModel(nn.Module):
    """Tokens to logits, or to vectors as models of sentences give them."""

    def __init__(self, sentences: bool) -> None:
        super().__init__()
        self.tokens, self.mlp, self.sentences = nn.Embedding(256, 16), GatedPart(), sentences

    def forward(self, ids: Tensor) -> Any:
        x = self.tokens(ids)
        x = x + self.mlp(2 * x)
        if self.sentences:
            return SimpleNamespace(last_hidden_state=x)
        return x @ self.tokens.weight.T


@pytest.mark.parametrize("sentences", [False, True])
def test_gated_models_and_models_of_sentences_are_planned(sentences: bool) -> None:
    torch.manual_seed(0)
    model = GatedModel(sentences)
    plan = plan_encrypted(model, rows(8, 12), quality=0.99, most=5)
    assert plan.measure == ("cosine" if sentences else "perplexity") and plan.layers[0].activation == "silu"
    changed = plan.apply(model)
    assert isinstance(changed, GatedModel) and isinstance(model.mlp.act_fn, nn.SiLU)
    z = torch.linspace(*plan.layers[0].form.interval, 50)
    assert torch.allclose(
        gl.models.blocks(changed)[0].activation(z), torch.from_numpy(plan.layers[0].form(z)).float(), atol=1e-4
    )
    assert plan.quality.value > 0.9


def test_bad_input_is_refused(model: GPT2, tmp_path: Path) -> None:
    with pytest.raises(GatelabError, match="3 rows; give 8"):
        plan_encrypted(model, rows(3))
    with pytest.raises(GatelabError, match="above 0 and below 1"):
        plan_encrypted(model, rows(8), quality=2.0, most=2)
    with pytest.raises(GatelabError, match="encode="):
        plan_encrypted(model, ["some text"] * 8)
    with pytest.raises(GatelabError, match="not one of gelu"):
        plan_encrypted(GPT2("tiny", torch.cos), rows(8))
    path = tmp_path / "plan.json"
    document = plan_encrypted(model, rows(8), quality=0.5, most=2).document()
    path.write_text(json.dumps({**document, "layers": [{}]}))
    with pytest.raises(GatelabError, match="cannot be read"):
        gl.load(path)
