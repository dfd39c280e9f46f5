"""Blocks replaced in given models: what changes, what stays, and that it computes what the formulas say."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from gatelab.errors import GatelabError
from gatelab.linearization import linearize
from gatelab.models import GPT2
from gatelab.models.layouts import Pointwise, blocks, layers_of
from gatelab.models.replace import LinearMap, folded, replace_activation, replace_map, trace
from tiny_models import tiny

TOKENS = torch.arange(20).reshape(2, 10)


def own():
    return GPT2("tiny", "gelu", vocabulary=50, seed=3).eval()


def gated():
    return GPT2("tiny", "swiglu", vocabulary=50, seed=3).eval()


def made(kind, **options):
    """A function that makes a small model of Transformers."""
    return partial(tiny, kind, 50, 24, 40, 0.2, **options)


bert, gpt2, neox, phi, opt = (made(kind) for kind in ("bert", "gpt2", "neox", "Phi", "opt"))
llama, qwen = made("llama", num_key_value_heads=1, mlp_bias=True), made("Qwen2", num_key_value_heads=2)
PLAIN = pytest.mark.parametrize("make", [own, bert, gpt2])
MODELS = pytest.mark.parametrize("make", [own, bert, gpt2, gated, llama, qwen, neox, phi, opt])


@torch.no_grad()
def run(model):
    result = model(TOKENS)
    return result if isinstance(result, torch.Tensor) else result[0]


def inner(layer):
    """The feed-forward part as the model itself computes it, without dropout, residual and norm."""
    if hasattr(layer, "feed_forward"):
        return layer.feed_forward
    if hasattr(layer, "mlp"):
        return layer.mlp
    if hasattr(layer, "fc1"):
        return lambda x: layer.fc2(layer.activation_fn(layer.fc1(x)))
    return lambda x: layer.output.dense(layer.intermediate(x))


@MODELS
def test_blocks_are_what_the_model_computes(make):
    model = make()
    seen, parts = trace(model, run), dict(model.named_modules())
    assert len(blocks(model)) == len(seen.inputs) >= 2
    for block, x in zip(blocks(model), seen.inputs, strict=True):
        assert torch.allclose(block(x), inner(parts[block.layer])(x), atol=1e-6)
        assert torch.allclose(block.before(x), x @ block.W1.T + block.b1, atol=1e-5)


@MODELS
def test_the_same_activation_and_the_same_map_change_nothing(make):
    model = make()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    expected = run(model)
    same = replace_activation(model, {i: b.activation for i, b in enumerate(blocks(model))})
    for changed in (same, replace_map(model, {i: Pointwise(b) for i, b in enumerate(blocks(model))})):
        assert torch.allclose(run(changed), expected, atol=1e-5)
    zero = run(replace_activation(model, torch.zeros_like))
    assert not torch.allclose(zero, expected, atol=1e-2)
    assert torch.equal(run(model), expected)
    assert all(torch.equal(before[name], p) for name, p in model.state_dict().items())


@pytest.mark.parametrize("make", [own, bert, llama, opt])
def test_one_layer_alone(make):
    model = make()
    seen = trace(model, run)
    changed = replace_activation(model, {1: torch.tanh})
    after = trace(changed, run)
    assert torch.equal(after.outputs[0], seen.outputs[0])
    assert torch.equal(after.inputs[1], seen.inputs[1])
    assert not torch.allclose(after.outputs[1], seen.outputs[1], atol=1e-3)
    block = blocks(changed)[1]
    x = after.inputs[1]
    hidden = torch.tanh(block.before(x))
    for U, u in block.factors:
        hidden = hidden * (x @ U.T + u)
    assert torch.allclose(block(x), hidden @ block.W2.T + block.b2, atol=1e-5)


def test_a_polynomial_of_linearize_and_the_model_with_that_function_agree():
    model = gated()
    made = linearize("gelu", "minimax", degree=6, interval=(-4.0, 4.0))
    c = made.polynomial.coefficients
    by_hand = replace_activation(model, lambda z: sum(a * z.double() ** k for k, a in enumerate(c)).to(z.dtype))
    assert torch.allclose(run(replace_activation(model, made)), run(by_hand), atol=1e-4)


@PLAIN
@pytest.mark.parametrize("method", ["hermite", "tangent", "maclaurin"])
def test_folded_maps_are_the_layer_of_features_and_then_W2(make, method):
    model = make()
    block, x = blocks(model)[0], trace(model, run).inputs[0]
    d = x.shape[-1] + 1
    options = {"hermite": {"degree": 2}, "tangent": {"reference": x.flatten(0, -2).mean(0)}, "maclaurin": {"m": 60}}
    made = linearize("gelu", method, d=d, **options[method])
    rows = torch.cat([block.W1, block.b1[:, None]], 1).double()
    inputs = torch.cat([x, torch.ones_like(x[..., :1])], -1).double()
    expected = made.psi(inputs) @ made.phi(rows).T @ block.W2.double().T + block.b2.double()
    whole = folded(block, made)
    assert whole.A.shape == (len(block.W2), made.m)
    assert torch.allclose(whole(x).double(), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))
    changed = replace_map(model, {0: whole})
    after = trace(changed, run)
    assert torch.equal(after.inputs[0], x)
    assert not torch.equal(after.outputs[0], trace(model, run).outputs[0])


def test_dropout_precision_and_buffers_go_with_the_model():
    model = bert(hidden_dropout_prob=0.5).double()
    block = blocks(model)[0]
    whole = LinearMap(lambda rows: rows, torch.cat([block.W2 @ block.W1, (block.W2 @ block.b1)[:, None]], 1), block.b2)
    changed = replace_map(model, {0: whole})
    assert "encoder.layer.0.intermediate.made.A" in changed.state_dict()
    assert run(changed).dtype == torch.float64
    assert not torch.equal(run(changed.train()), run(changed))  # the second half of the layer still drops


@pytest.mark.parametrize("make", [bert, gpt2, llama, qwen, neox, phi, opt])
def test_a_block_of_fewer_neurons_is_written_and_computes_what_it_is(make):
    model = make()
    layer = layers_of(model)[1]
    block = layer.read()
    neurons = torch.randperm(block.width, generator=torch.Generator().manual_seed(0))[:17]
    factors = tuple((U[neurons], u[neurons]) for U, u in block.factors)
    fewer = replace(block, W1=block.W1[neurons], b1=block.b1[neurons], W2=block.W2[:, neurons], factors=factors)
    before = trace(model, run)
    layer.write(fewer)
    after = trace(model, run)
    assert torch.equal(after.inputs[1], before.inputs[1])
    assert not torch.allclose(after.outputs[1], before.outputs[1])
    assert layer.read().width == 17
    assert torch.allclose(inner(layer.module)(after.inputs[1]), fewer(after.inputs[1]), atol=1e-5)


def test_biases_are_not_lost_in_silence():
    layer = layers_of(qwen())[0]
    block = layer.read()
    with pytest.raises(GatelabError, match="has no bias in this model"):
        layer.write(replace(block, b1=torch.ones_like(block.b1)))


def test_trace_leaves_no_hooks_behind():
    model = own()
    with pytest.raises(RuntimeError, match="stop"):
        trace(model, lambda _: (_ for _ in ()).throw(RuntimeError("stop")))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    with pytest.raises(GatelabError, match="0 of 2 layers were called"):
        trace(model, lambda _: None)


def test_what_cannot_be_replaced_is_refused():
    model = own()
    with pytest.raises(GatelabError, match="is gated, and Phi"):
        folded(blocks(gated())[0], linearize("gelu", "taylor", degree=2))
    with pytest.raises(GatelabError, match="layer 2 does not exist; the model has 2"):
        replace_activation(model, {2: torch.tanh})
    with pytest.raises(GatelabError, match=r"layer 0 was given 3\.0"):
        replace_activation(model, 3.0)
    with pytest.raises(GatelabError, match="the map of layer 0 is a function"):
        replace_map(model, {0: lambda x: x})
    with pytest.raises(GatelabError, match=r"not a polynomial of w\.x; replace whole maps"):
        replace_activation(model, linearize("gelu", "tangent", reference=torch.zeros(32)))
    gone = replace_map(model, {0: nn.Identity()})
    with pytest.raises(GatelabError, match=r"blocks\.0 was replaced before"):
        blocks(gone)
