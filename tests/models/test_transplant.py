"""A unit in a given model: what changes, what stays, and that it computes what the formula says."""

from __future__ import annotations

import re
from functools import partial

import pytest
import torch
from torch import nn

from gatelab.errors import GatelabError
from gatelab.models import GPT2, replace_map, transplant
from tiny_models import OwnUnit, tiny


def made(kind, **options):
    """A function that makes a small model of Transformers, its weights as the model draws them."""
    return partial(tiny, kind, 50, 24, 48, 0.02, **options)


gpt2, vit, llama, bert, opt = (made(kind) for kind in ("gpt2", "vit", "llama", "bert", "opt"))


def count(model):
    return sum(p.numel() for p in model.parameters())


def run(model):
    return model(torch.ones(2, 3, 16, 16) if "ViT" in type(model).__name__ else torch.arange(20).reshape(2, 10))[0]


@pytest.mark.parametrize("make", [gpt2, vit, llama, bert, opt])
@pytest.mark.parametrize("unit", ["mlp", "gqu", "swiglu"])
def test_the_gate_alone_changes(make, unit):
    plain = make()
    before = {name: p.clone() for name, p in plain.state_dict().items()}
    gated = transplant(plain, unit, seed=3)
    assert all(torch.equal(before[name], p) for name, p in plain.state_dict().items())
    replaced = re.compile(r"mlp|intermediate|\d\.output\.dense|fc\d")
    kept = {name: p for name, p in gated.state_dict().items() if not replaced.search(name)}
    assert len(kept) > 10
    assert all(torch.equal(before[name], p) for name, p in kept.items())
    assert run(gated).shape == run(plain).shape
    # Biases of the factors, and the rounding of two thirds, are all that the counts differ by.
    assert abs(count(gated) - count(plain)) < 0.02 * count(plain)


def test_the_block_is_the_formula():
    block = transplant(gpt2(), "gqu").transformer.h[1].mlp
    x = torch.randn(2, 5, 24)
    G, U, Q, D = block.neurons.G, block.neurons.U, block.neurons.Q, block.D
    assert G.weight.shape == (24, 24)
    expected = D(torch.relu(G(x)) * U(x) * Q(x))
    assert torch.allclose(block(x), expected)


@pytest.mark.parametrize("make", [gpt2, vit])
def test_initial_weights_follow_the_models_scheme(make):
    model = transplant(make(), "glu", match_mlp=False)
    blocks = [m for m in model.modules() if type(m).__name__ == "Transplant"]
    hidden = torch.cat([b.neurons.U.weight.detach().flatten() for b in blocks])
    out = torch.cat([b.D.weight.detach().flatten() for b in blocks])
    scaled = 0.02 / (2 * 2) ** 0.5 if make is gpt2 else 0.02
    # 2304 draws or more: the sample deviation is within 8% of the true one but for 1 in 10^7.
    assert float(hidden.std()) == pytest.approx(0.02, rel=0.08)
    assert float(out.std()) == pytest.approx(scaled, rel=0.08)
    assert all((linear.bias == 0).all() for b in blocks for linear in (b.neurons.G, b.neurons.U, b.D))


def test_seeds_layers_and_the_global_generator():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    model = gpt2()
    torch.manual_seed(5)
    a, b, c = (transplant(model, "glu", seed=s) for s in (0, 0, 1))
    assert torch.equal(torch.rand(1), expected)
    weights = [m.transformer.h[0].mlp.neurons.G.weight for m in (a, b, c)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert not torch.equal(weights[0], a.transformer.h[1].mlp.neurons.G.weight)


def test_a_plain_unit_with_the_models_own_activation_computes_what_the_model_does():
    model = gpt2(activation_function="relu")
    plain = transplant(model, "mlp")
    for old, new in zip(model.transformer.h, plain.transformer.h, strict=True):
        for linear, conv in ((new.mlp.neurons.G, old.mlp.c_fc), (new.mlp.D, old.mlp.c_proj)):
            linear.weight.data.copy_(conv.weight.T)
            linear.bias.data.copy_(conv.bias)
    assert torch.allclose(run(plain), run(model), atol=1e-6)


def test_precision_mode_dropout_and_size_stay():
    model = transplant(gpt2(resid_pdrop=0.3).double().train(), "glu", match_mlp=False)
    block = model.transformer.h[0].mlp
    assert block.D.weight.dtype == torch.float64
    assert block.training
    assert block.dropout.p == 0.3
    assert block.neurons.G.out_features == 48


@pytest.mark.parametrize("make", [gpt2, vit])
@pytest.mark.parametrize("unit", [lambda z, v: torch.sin(z) * v, OwnUnit])
def test_a_users_function_and_class(make, unit):
    assert torch.isfinite(run(transplant(make(), unit))).all()


def test_other_models_are_refused():
    with pytest.raises(GatelabError, match=r"GPT2 is not a model of Transformers.*build gatelab's own"):
        transplant(GPT2("tiny"), "glu")


@pytest.mark.parametrize("make", [gpt2, vit, bert])
def test_a_block_that_was_replaced_is_refused(make):
    once = transplant(make(), "gqu")
    whole = replace_map(make(), {i: nn.Linear(24, 24) for i in range(2)})
    for model in (once, whole):
        with pytest.raises(GatelabError, match="the model as it was"):
            transplant(model, "glu")
