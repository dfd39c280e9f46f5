"""The decoder: against one written out in plain torch, many models in one pass, and what it counts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.nn import functional

from gatelab.errors import GatelabError
from gatelab.feedforward import FeedForward
from gatelab.models import DECODER_SIZES, Decoder, DecoderConfig
from gatelab.models.decoder import convolved
from tiny_models import OwnUnit


def drawn_head(model: Decoder, seed: int = 0) -> Decoder:
    """The head is zero at first, which would hide everything before it."""
    with torch.no_grad():
        model.head.weight.copy_(torch.randn(model.head.weight.shape, generator=torch.Generator().manual_seed(seed)))
    return model


def written_out(model: Decoder, tokens: Tensor) -> Tensor:
    """One sequence, head by head and position by position."""
    c = model.config
    k = c.d_model // c.heads

    def norm(v: Tensor) -> Tensor:
        return v / torch.sqrt(v.square().mean() + 1e-6)

    def turned(v: Tensor, place: int) -> Tensor:
        pairs = []
        for i in range(k // 2):
            angle = torch.tensor(place * c.base ** (-2 * i / k), dtype=torch.float64)
            a, b = v[i].double(), v[i + k // 2].double()
            pairs.append((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()))
        return torch.stack([p[0] for p in pairs] + [p[1] for p in pairs]).to(v.dtype)

    rows = [norm(model.tokens.weight[t]) for t in tokens]
    for block in model.blocks:
        parts = [block.qkv.weight @ norm(x) for x in rows]
        if c.taps > 1:  # queries and keys of the last tokens, as far as there are any
            plain, both = [p.clone() for p in parts], 2 * c.d_model
            for i, p in enumerate(parts):
                p[:both] = sum(block.taps[lag] * plain[i - lag][:both] for lag in range(min(c.taps, i + 1)))
        mixed = [torch.zeros(c.d_model, dtype=rows[0].dtype) for _ in rows]
        for h in range(c.heads):
            q, key, v = ([p[s * c.d_model + h * k : s * c.d_model + (h + 1) * k] for p in parts] for s in range(3))
            q, key = ([turned(norm(p), i) for i, p in enumerate(each)] for each in (q, key))
            for i in range(len(rows)):
                scores = torch.stack([q[i] @ key[j] for j in range(i + 1)]) * (c.sharpness or k**0.5) / k
                weights = scores.softmax(0)
                mixed[i][h * k : (h + 1) * k] = sum(weights[j] * v[j] for j in range(i + 1))
        rows = [x + block.out.weight @ m for x, m in zip(rows, mixed, strict=True)]
        rows = [x + block.feed_forward(norm(x)) for x in rows]
    return torch.stack([model.head.weight @ norm(x) for x in rows])


@pytest.mark.parametrize("unit", ["gelu", "swiglu", "gqu"])
@pytest.mark.parametrize(
    "options", [{"vocabulary": 40}, {"vocabulary": 2000, "sharpness": 9.0, "base": 100.0}, {"taps": 3}]
)
def test_it_is_the_decoder_written_out(unit: str, options: dict[str, float]) -> None:
    model = drawn_head(Decoder("tiny", unit, dtype=torch.float64, seed=3, **options))
    vocabulary = model.config.vocabulary
    tokens = torch.randint(vocabulary, (7,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(model(tokens[None])[0], written_out(model, tokens), rtol=1e-6, atol=1e-6)
        following = tokens.roll(1)
        expected = functional.cross_entropy(model(tokens[None])[0], following)
        torch.testing.assert_close(model.loss(tokens[None], following[None]), expected)


def test_with_taps_keys_begin_as_the_queries_of_the_token_before() -> None:
    model = Decoder("tiny", "swiglu", taps=4, dtype=torch.float64)
    d = model.config.d_model
    rows = torch.randn(9, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for block in model.blocks:
        queries, keys = convolved(rows @ block.qkv.weight[: 2 * d].mT, block.taps, 9).split(d, -1)
        shorter = block.taps.detach().clone()
        shorter[-1] = 0  # a key has room for one token fewer
        expected = convolved(rows @ block.qkv.weight[:d].mT, shorter[:, :d], 9)
        torch.testing.assert_close(keys[1:], expected[:-1])
        assert not torch.allclose(keys, queries)


@pytest.mark.parametrize("unit", ["mlp", "gqu", OwnUnit])
@pytest.mark.parametrize("vocabulary", [50, 1500])
def test_stacked_parameters_are_each_model_alone(unit: object, vocabulary: int) -> None:
    models = [drawn_head(Decoder("tiny", unit, vocabulary=vocabulary, seed=s), s) for s in range(3)]
    stacked, _ = stack_module_state(models)
    tokens = torch.randint(vocabulary, (3, 2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = functional_call(models[0], stacked, (tokens,))
        losses = functional_call(models[0], stacked, (tokens, tokens.roll(1, -1)))
        for i, model in enumerate(models):
            torch.testing.assert_close(logits[i], model(tokens[i]))
            torch.testing.assert_close(losses[i], model.loss(tokens[i], tokens[i].roll(1, -1)))


@pytest.mark.parametrize("unit", ["swiglu", "gqu"])
def test_units_cost_the_same(unit: str) -> None:
    for config in DECODER_SIZES.values():
        assert config.body_count(unit) == config.body_count("gelu")
        assert config.token_flops(unit) == config.token_flops("gelu")


def test_it_counts_its_parameters_and_products() -> None:
    model = Decoder("tiny", "swiglu")
    config = model.config
    for built in (model, Decoder("tiny", "swiglu", taps=4)):
        assert built.config.parameter_count("swiglu") == sum(p.numel() for p in built.parameters())
    assert all(p.ndim == 2 for p in model.parameters())
    feed = model.blocks[0].feed_forward
    assert isinstance(feed, FeedForward) and feed.width == 64
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        tokens = torch.zeros(3, config.context, dtype=torch.int64)
        model.loss(tokens, tokens).backward()
    products = counter.get_flop_counts()["Global"]
    mm = sum(count for name, count in products.items() if "attention" not in str(name))
    # The embedding is a product here, forward and for its own gradient; what it needs by its nature is a look-up.
    embedding = 2 * 2 * config.vocabulary * config.d_model
    attention = 6 * config.layers * config.context * config.d_model
    assert mm / tokens.numel() - embedding == config.token_flops("swiglu") - attention


def test_bad_sizes_say_the_way_out() -> None:
    with pytest.raises(GatelabError, match=r"odd.*another number of heads"):
        DecoderConfig(d_model=6, heads=2)
    with pytest.raises(GatelabError, match=r"up to 32 in a row.*context=33"):
        Decoder("tiny")(torch.zeros(1, 33, dtype=torch.int64))
    with pytest.raises(GatelabError, match="centered is 1; give True or False"):
        DecoderConfig(centered=1)  # type: ignore[arg-type]
    with pytest.raises(GatelabError, match="need a product unit"):
        Decoder("tiny", nn.Bilinear, output_bias=True)


def test_a_running_mean_is_of_the_passes_before_and_has_no_gradient() -> None:
    model = drawn_head(Decoder("tiny", "gelu", context=8, centered=True))
    x = torch.randint(256, (3, 4, 9), generator=torch.Generator().manual_seed(1))
    hidden: list[Tensor] = []  # of the first block, whose input does not depend on any mean
    unit = model.blocks[0].minus_mean
    model.blocks[0].minus_mean = lambda h: (hidden.append(h.detach()), unit(h))[1]
    for each in x:
        model.loss(each[:, :-1], each[:, 1:]).backward()
    assert torch.allclose(model.blocks[0].mean, torch.cat(hidden).mean(0), atol=1e-6)
    assert torch.allclose(unit(hidden[2]), hidden[2] - (hidden[0] + hidden[1] + hidden[2]).mean(0) / 3, atol=1e-6)
    assert not model.blocks[0].mean.requires_grad
    before = model.blocks[0].mean.clone()
    with torch.no_grad():
        model.loss(x[0, :, :-1], x[0, :, 1:])
    model.eval().loss(x[0, :, :-1], x[0, :, 1:])
    assert torch.equal(before, model.blocks[0].mean)


def test_the_mean_of_a_centered_unit_is_an_output_bias() -> None:
    centered = drawn_head(Decoder("tiny", "geglu", context=9, centered=True))
    x = torch.randint(256, (4, 9), generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        centered.loss(x[:, :-1], x[:, 1:])
    folded = drawn_head(Decoder("tiny", "geglu", context=9, output_bias=True))
    plain = drawn_head(Decoder("tiny", "geglu", context=9))
    with torch.no_grad():
        for own, other in zip(folded.blocks, centered.blocks, strict=True):
            own.bias.copy_(-other.feed_forward.D @ other.mean)
    centered.eval()
    assert torch.allclose(folded(x), centered(x), atol=1e-5)
    assert (plain(x) - centered(x)).abs().max() > 0.01
    counts = [sum(p.numel() for p in model.parameters()) for model in (plain, centered, folded)]
    assert counts == [counts[0], counts[0], counts[0] + 2 * 32]
    assert folded.config.parameter_count("geglu") == counts[2]


def test_stacked_running_means_are_those_of_each_model_alone() -> None:
    models = [
        drawn_head(Decoder("tiny", "gelu", context=8, centered=True, output_bias=True, seed=s), s) for s in range(2)
    ]
    x = torch.randint(256, (2, 3, 9), generator=torch.Generator().manual_seed(1))
    params, buffers = stack_module_state(models)
    state = {**params, **{name: b.clone() for name, b in buffers.items()}}
    for _ in range(2):
        losses = functional_call(models[0], state, (x[..., :-1], x[..., 1:]))
    for i, model in enumerate(models):
        model.loss(x[i, :, :-1], x[i, :, 1:])
        assert losses[i].item() == pytest.approx(model.loss(x[i, :, :-1], x[i, :, 1:]).item(), abs=1e-5)
        assert torch.allclose(model.blocks[1].mean, state["blocks.1.mean"][i], atol=1e-6)
