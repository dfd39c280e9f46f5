"""GPT-2, ViT and Mixer with any unit: what all of them are held to, and each against a twin."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from gatelab.errors import GatelabError
from gatelab.feedforward import Unit, units
from gatelab.models import GPT2, GPT2_SIZES, MIXER_SIZES, VIT_SIZES, GPT2Config, Mixer, ViT
from gatelab.models.block import Attention
from tiny_models import OwnUnit

IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
TOKENS = torch.randint(0, 256, (3, 20), generator=torch.Generator().manual_seed(0))
DATA = {
    GPT2: (TOKENS[:, :-1], TOKENS[:, 1:]),
    ViT: (IMAGES, torch.tensor([0, 1, 2, 3, 9, 9])),
    Mixer: (IMAGES, torch.tensor([0, 1, 2, 3, 9, 9])),
}
SIZES = {GPT2: GPT2_SIZES, ViT: VIT_SIZES, Mixer: MIXER_SIZES}
MODELS = pytest.mark.parametrize("model", [GPT2, ViT, Mixer])
IMAGE_MODELS = pytest.mark.parametrize("model", [ViT, Mixer])


def sine(z, v):
    return z.sin() * v


def count(model):
    return sum(p.numel() for p in model.parameters())


@MODELS
def test_every_unit_costs_the_same(model):
    sizes, (x, y) = SIZES[model], DATA[model]
    plain = model("tiny", "mlp")
    for unit in units():
        built = model("tiny", unit)
        assert built(x).shape == plain(x).shape
        assert count(built) == count(plain) == sizes["tiny"].parameter_count(unit)
    for name in sizes:
        assert len({sizes[name].parameter_count(u) for u in units()}) == 1
    for unit in (OwnUnit, sine, Unit("silu", factors=3), "glu", "gqu"):
        built = model("tiny", unit, width=100)
        assert built.loss(x, y).isfinite()
        assert count(built) == built.config.parameter_count(unit)
        assert abs(count(built) / count(model("tiny", "mlp", width=100)) - 1) < 0.02
    unmatched = model("tiny", "glu", match_mlp=False)
    assert count(unmatched) == unmatched.config.parameter_count("glu", match_mlp=False) > count(plain)


@MODELS
def test_equal_seeds_are_equal_models_and_the_global_generator_is_left_alone(model):
    torch.manual_seed(3)
    state = torch.get_rng_state()
    one, same, other = (model("tiny", "glu", seed=s) for s in (1, 1, 2))
    own = model("tiny", OwnUnit)
    assert torch.equal(torch.get_rng_state(), state)
    wide = model("tiny", "glu", seed=1, dtype=torch.float64)
    for name, p in one.named_parameters():
        assert torch.equal(p, same.get_parameter(name))
        assert torch.equal(p, wide.get_parameter(name).float())
        if "norm" not in name and "bias" not in name:
            assert not torch.equal(p, other.get_parameter(name))
    users = [m.a.weight for m in own.modules() if isinstance(m, OwnUnit)]
    assert not any(torch.equal(users[0], other) for other in users[1:])


@MODELS
@pytest.mark.parametrize("unit", ["gelu", "swiglu", "gqu", OwnUnit])
def test_every_parameter_gets_a_gradient(model, unit):
    built = model("tiny", unit, **({"context": 19} if model is GPT2 else {}))
    built.loss(*DATA[model]).backward()
    for name, p in built.named_parameters():
        assert p.grad is not None and p.grad.abs().sum() > 0, name


@MODELS
def test_dropout_acts_in_training_alone(model):
    built, (x, _) = model("tiny", dropout=0.3), DATA[model]
    assert not torch.equal(built(x), built(x))
    built.eval()
    assert torch.equal(built(x), built(x))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GPT2("tinny"), "no GPT-2 size is called 'tinny'; did you mean 'tiny'"),
        (lambda: GPT2("tiny", contxt=3), "did you mean 'context'"),
        (lambda: GPT2("tiny", heads=3), "d_model is 32, which heads = 3 does not divide"),
        (lambda: GPT2("tiny", dropout=1.0), "dropout is 1.0"),
        (lambda: GPT2("tiny")(torch.zeros(1, 33, dtype=torch.long)), "T up to 32; cut the text"),
        (lambda: GPT2Config(width=2.5), "width is 2.5"),  # type: ignore[arg-type]
        (lambda: ViT("tiny")(torch.zeros(2, 1, 8, 8)), r"shape \(2, 1, 8, 8\), the model takes \(N, 3, 8, 8\)"),
        (lambda: Mixer("tiny")(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)), "torch.uint8.*data.normalized"),
    ],
)
def test_errors_say_the_way_out(make, says):
    with pytest.raises(GatelabError, match=says):
        make()


@IMAGE_MODELS
def test_images_of_other_sizes_that_do_not_see_each_other(model):
    built, x = model("tiny", "swiglu", dtype=torch.float64), IMAGES.double()
    assert torch.allclose(built(x), torch.cat([built(image[None]) for image in x]), atol=1e-12)
    small = model("small", "swiglu", image_size=64, patch=8, classes=200, channels=1)
    assert small(torch.zeros(2, 1, 64, 64)).shape == (2, 200)
    assert count(small) == small.config.parameter_count("swiglu")


@pytest.mark.parametrize("causal", [True, False])
def test_attention_written_out_is_the_fused_one(causal: bool):
    torch.manual_seed(0)
    attention = Attention(12, 3, causal=causal, dropout=0.0).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    fused = attention(x)
    attention.fused = False
    assert torch.allclose(attention(x), fused, rtol=1e-12, atol=1e-12)


def test_a_block_of_the_mixer_is_what_the_formula_says():
    """Token by token and channel by channel, in loops."""
    block = Mixer("tiny", "swiglu", dtype=torch.float64).blocks[0]
    x = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def swiglu(v, part):
        return part.D @ (functional.silu(part.G @ v) * (part.U @ v))

    expected = x.clone()
    normed = functional.layer_norm(x, (32,))
    for n in range(2):
        for channel in range(32):
            expected[n, :, channel] += swiglu(normed[n, :, channel], block.over_tokens)
    normed = functional.layer_norm(expected, (32,))
    for n in range(2):
        for token in range(16):
            expected[n, token] = expected[n, token] + swiglu(normed[n, token], block.over_channels)
    assert torch.allclose(block(x), expected, atol=1e-12)
    block = Mixer("tiny", "gqu").blocks[1]
    assert block.over_tokens.unit.name == block.over_channels.unit.name == "gqu"
    assert (block.over_tokens.width, block.over_channels.width) == (12, 48)


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
        vocab_size=c.vocabulary, n_positions=c.context, n_embd=c.d_model, n_layer=c.layers, n_head=c.heads,
        n_inner=c.width, activation_function=theirs,
    )  # fmt: skip
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
