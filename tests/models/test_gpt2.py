"""GPT-2 with any unit: sizes, causality, seeds, gradients, and the model of transformers as its twin."""

from __future__ import annotations

import math

import pytest
import torch
from image_checks import Tanh, count
from torch.nn import functional

from gatelab.errors import GatelabError
from gatelab.feedforward import Unit, units
from gatelab.models import GPT2, GPT2_SIZES, GPT2Config

TOKENS = torch.randint(0, 256, (3, 20), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("unit", [u.name for u in units()])
def test_every_unit_costs_the_same_and_gives_logits(unit):
    model = GPT2("tiny", unit)
    assert model(TOKENS).shape == (3, 20, 256)
    assert count(model) == GPT2_SIZES["tiny"].parameter_count(unit) == count(GPT2("tiny", "mlp"))


def test_widths_that_do_not_divide_cost_the_same_within_two_percent():
    counts = [count(GPT2("tiny", u, width=100)) for u in (*units(), Unit("silu", factors=3))]
    assert max(counts) / min(counts) < 1.02
    unmatched = count(GPT2("tiny", "glu", width=100, match_mlp=False))
    assert unmatched == GPT2_SIZES["tiny"].parameter_count("mlp") + 2 * 32 * (100 * 3 - 96 * 2)


def test_users_units_are_taken():
    def sine(z, v):
        return z.sin() * v

    assert GPT2("tiny", sine)(TOKENS).shape == (3, 20, 256)
    model = GPT2("tiny", Tanh)
    assert model(TOKENS).shape == (3, 20, 256)
    assert abs(count(model) / count(GPT2("tiny", "mlp")) - 1) < 0.02
    assert count(model) == GPT2_SIZES["tiny"].parameter_count(Tanh)
    first, second = (b.feed_forward.module.a.weight for b in model.blocks)
    assert not torch.equal(first, second)


def test_the_size_of_gpt2():
    """OpenAI's model has 124 439 808 parameters, L (n + d) of them biases of its feed-forward parts."""
    c = GPT2_SIZES["gpt2"]
    for unit in ("gelu", "swiglu", "gqu"):
        assert c.parameter_count(unit) == 124_439_808 - c.layers * (c.width + c.d_model)


@pytest.mark.slow
def test_gpt2_as_built():
    assert count(GPT2("gpt2", "swiglu")) == 124_393_728


@pytest.mark.parametrize("unit", ["gelu", "swiglu"])
def test_a_later_token_leaves_earlier_logits(unit):
    model = GPT2("tiny", unit, dtype=torch.float64)
    changed = TOKENS.clone()
    changed[:, 12] = (changed[:, 12] + 1) % 256
    before, after = model(TOKENS), model(changed)
    assert torch.allclose(before[:, :12], after[:, :12], atol=1e-13)
    assert ((before[:, 12:] - after[:, 12:]).abs().amax((0, 2)) > 1e-6).all()
    assert torch.allclose(model(TOKENS[:, :7]), before[:, :7], atol=1e-13)


def test_equal_seeds_are_equal_models_and_the_global_generator_is_left_alone():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    one, same, other = GPT2("tiny", "glu", seed=1), GPT2("tiny", "glu", seed=1), GPT2("tiny", "glu", seed=2)
    GPT2("tiny", Tanh)
    assert torch.equal(torch.get_rng_state(), state)
    wide = GPT2("tiny", "glu", seed=1, dtype=torch.float64)
    for name, p in one.named_parameters():
        assert torch.equal(p, same.get_parameter(name))
        assert torch.equal(p, wide.get_parameter(name).float())
        if "norm" not in name and "bias" not in name:
            assert not torch.equal(p, other.get_parameter(name))


def test_weights_start_as_openais():
    """Standard deviations of samples of at least 3072 numbers: beyond 4 sigma, 5 %, once in 16 000; seven are seen."""
    model = GPT2("tiny", "glu", vocabulary=512, context=128)
    block = model.blocks[0]
    added = 0.02 / math.sqrt(4)
    for p, std in (
        (model.tokens.weight, 0.02),
        (model.positions.weight, 0.01),
        (block.attention.qkv.weight, 0.02),
        (block.feed_forward.D, added),
        (torch.cat([b.attention.out.weight for b in model.blocks]), added),
        (torch.cat([b.feed_forward.G for b in model.blocks]), 0.02),
        (torch.cat([b.feed_forward.U for b in model.blocks]), 0.02),
    ):
        assert abs(float(p.detach().std()) / std - 1) < 4 / math.sqrt(2 * p.numel())
    with torch.no_grad():
        assert abs(float(model.loss(TOKENS[:, :-1], TOKENS[:, 1:])) - math.log(512)) < 0.1


@pytest.mark.parametrize("unit", ["gelu", "swiglu", "gqu", Tanh])
def test_every_parameter_gets_a_gradient(unit):
    model = GPT2("tiny", unit, context=20)
    model.loss(TOKENS[:, :-1], TOKENS[:, 1:]).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.abs().sum() > 0, name


def test_it_learns():
    model = GPT2("tiny", "swiglu")
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        loss = model.loss(TOKENS[:, :-1], TOKENS[:, 1:])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 1.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_compiled_and_in_bfloat16():
    model = GPT2("tiny", "swiglu")
    expected = model(TOKENS)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(TOKENS), expected, atol=1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = model(TOKENS)
        loss = model.loss(TOKENS[:, :-1], TOKENS[:, 1:])
    assert low.dtype == torch.bfloat16 and loss.dtype == torch.float32
    assert (low - expected).abs().max() < 0.05 * expected.abs().max()
    assert GPT2("tiny", dtype=torch.float64)(TOKENS).dtype == torch.float64


def test_dropout_acts_in_training_alone():
    model = GPT2("tiny", dropout=0.3)
    assert not torch.equal(model(TOKENS), model(TOKENS))
    model.eval()
    assert torch.equal(model(TOKENS), model(TOKENS))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GPT2("tinny"), "no GPT-2 size is called 'tinny'; did you mean 'tiny'"),
        (lambda: GPT2("tiny", contxt=3), "did you mean 'context'"),
        (lambda: GPT2("tiny", heads=3), "d_model is 32, which heads = 3 does not divide"),
        (lambda: GPT2("tiny", layers=0), "layers is 0; give a whole number"),
        (lambda: GPT2("tiny", dropout=1.0), "dropout is 1.0"),
        (lambda: GPT2("tiny", "gllu"), "did you mean 'glu'"),
        (lambda: GPT2("tiny", seed=-1), "seed is -1"),
        (lambda: GPT2("tiny")(torch.zeros(1, 33, dtype=torch.long)), "T up to 32; cut the text"),
        (lambda: GPT2Config(width=2.5), "width is 2.5"),  # type: ignore[arg-type]
    ],
)
def test_errors_say_the_way_out(make, says):
    with pytest.raises(GatelabError, match=says):
        make()


def _gelu_new(z):
    return functional.gelu(z, approximate="tanh")


@pytest.mark.parametrize(("unit", "theirs"), [("gelu", "gelu"), (_gelu_new, "gelu_new")])
def test_the_model_of_transformers_is_its_twin(unit, theirs):
    transformers = pytest.importorskip("transformers")
    ours = GPT2("tiny", unit, seed=5, dtype=torch.float64).eval()
    with torch.no_grad():
        for p in ours.parameters():  # layer norms and biases that are 1 and 0 would hide mistakes
            p += 0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()), dtype=p.dtype)
    c = ours.config
    config = transformers.GPT2Config(
        vocab_size=c.vocabulary,
        n_positions=c.context,
        n_embd=c.d_model,
        n_layer=c.layers,
        n_head=c.heads,
        n_inner=c.width,
        activation_function=theirs,
    )
    with torch.random.fork_rng(devices=[]):
        model = transformers.GPT2LMHeadModel(config).double().eval()
    state = {"transformer.wte.weight": ours.tokens.weight, "transformer.wpe.weight": ours.positions.weight}
    state |= {f"transformer.ln_f.{k}": p for k, p in ours.norm.named_parameters()}
    for i, block in enumerate(ours.blocks):
        at = f"transformer.h.{i}."
        for name, norm in (("ln_1", block.norm_1), ("ln_2", block.norm_2)):
            state |= {f"{at}{name}.{k}": p for k, p in norm.named_parameters()}
        for name, layer in (("attn.c_attn", block.attention.qkv), ("attn.c_proj", block.attention.out)):
            state |= {f"{at}{name}.weight": layer.weight.T, f"{at}{name}.bias": layer.bias}
        for name, weight in (("mlp.c_fc", block.feed_forward.G), ("mlp.c_proj", block.feed_forward.D)):
            state |= {f"{at}{name}.weight": weight.T, f"{at}{name}.bias": torch.zeros_like(weight[:, 0])}
    state["lm_head.weight"] = ours.tokens.weight
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys
    assert all(key.endswith(("attn.bias", "attn.masked_bias")) for key in missing.missing_keys)
    assert model.num_parameters() == count(ours) + c.layers * (c.width + c.d_model)
    with torch.no_grad():
        assert torch.allclose(ours(TOKENS), model(TOKENS).logits, atol=1e-10)
