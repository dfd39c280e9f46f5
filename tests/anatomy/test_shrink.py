"""Smaller models: what every method keeps, what a refit gains, and that files come whole or not at all."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from typer.testing import CliRunner

from gatelab.anatomy import distillation, refits
from gatelab.anatomy.flows import Flow, tapped, taps_of
from gatelab.anatomy.profiling import profile
from gatelab.anatomy.shrinking import Shrunk, check_saved, shrink
from gatelab.anatomy.smaller_layers import block_rows, felt_frame
from gatelab.anatomy.streams import Stream, check_order, felt_directions, last_states
from gatelab.anatomy.texts import continued, log_perplexity
from gatelab.cli.application import app
from gatelab.errors import GatelabError
from gatelab.models.layouts import Block, layers_of
from tiny_models import tiny

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
ROOT = Path(__file__).parents[2]
DENSE = 24  # neurons of the tiny models
LAYOUTS = pytest.mark.parametrize("kind", ["llama", "gpt2", "bert", "vit", "opt", "distil"])


def rows_for(kind: str) -> torch.Tensor:
    """Windows of chance tokens, or images."""
    generator = torch.Generator().manual_seed(1)
    if kind == "vit":
        return torch.rand(20, 3, 16, 16, generator=generator)
    return torch.randint(40, (20, 32), generator=generator)


def random_block(n: int = 12, d: int = 6, factors: int = 1) -> Block:
    """A block with biases everywhere."""
    generator = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    pairs = tuple((draw(n, d), draw(n)) for _ in range(factors))
    return Block("b", draw(n, d), draw(n), draw(d, n), draw(d), functional.silu, pairs)


@cache
def half(kind: str, method: str) -> Shrunk:
    """Half of the neurons of a tiny model; do not change it."""
    return shrink(tiny(kind), 0.5, rows_for(kind), method=method, length=32)


OTHER_METHODS = [("llama", "magnitude"), ("gpt2", "wanda"), ("bert", "flap"), ("vit", "surgeon"), ("llama", "flap")]
SAVED = [("llama", "flap"), *((kind, "ours") for kind in ("gpt2", "bert", "opt"))]


@pytest.mark.parametrize(
    ("kind", "method"),
    [*((kind, "ours") for kind in ("llama", "gpt2", "bert", "vit", "opt", "distil")), *OTHER_METHODS],
)
def test_every_layout_and_every_method(kind: str, method: str, tmp_path: Path) -> None:
    """Plain Transformers loads what was saved, and gives the same."""
    model, rows = tiny(kind), rows_for(kind)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    small = shrink(model, 0.5, rows, method=method, length=32)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert [layer.read().width for layer in layers_of(small.model)] == [DENSE // 2] * 2
    assert small.bytes_after < small.bytes_before
    assert len(small.table()) == 2
    assert math.isfinite(small.after)
    if method in ("magnitude", "wanda", "flap"):
        whole = shrink(model, 1.0, rows, method=method, length=32)
        assert whole.after == pytest.approx(whole.before, abs=1e-6)
    if (kind, method) not in SAVED:
        return
    folder = small.save(tmp_path / "small")
    loaded = type(small.model).from_pretrained(str(folder))
    if small.measure == "log perplexity":
        assert log_perplexity(loaded.eval(), rows) == pytest.approx(log_perplexity(small.model, rows), abs=1e-6)
    else:
        assert torch.allclose(loaded.eval()(rows)[0], small.model(rows)[0], atol=1e-5)
    assert json.loads((folder / "gatelab.json").read_text())["method"] == method


KIN: dict[str, dict[str, Any]] = {
    "Llama": {}, "Mistral": {"num_key_value_heads": 1, "sliding_window": 8}, "Qwen2": {"num_key_value_heads": 1},
    "Qwen3": {"num_key_value_heads": 1, "head_dim": 8}, "Gemma2": {"num_key_value_heads": 1, "head_dim": 8},
    "Gemma3": {"num_key_value_heads": 1, "head_dim": 8, "sliding_window": 8}, "Olmo2": {}, "Granite": {},
    "Cohere": {}, "StableLm": {"num_key_value_heads": 2}, "SmolLM3": {"num_key_value_heads": 1}, "Phi": {},
    "GPTNeoX": {}, "Starcoder2": {"num_key_value_heads": 1}, "Falcon": {"ffn_hidden_size": 24},
    "GPTNeo": {"attention_types": [[["global", "local"], 1]], "num_heads": 2},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", KIN)
def test_models_that_the_page_names_are_saved_smaller(name: str, tmp_path: Path) -> None:
    """Plain Transformers gives the same logits from the folder as the smaller model does."""
    model, rows = tiny(name, **KIN[name]), rows_for("llama")
    small = shrink(model, 0.5, rows, length=32)
    loaded = type(model).from_pretrained(str(small.save(tmp_path / "small"))).eval()
    assert [layer.read().width for layer in layers_of(loaded)] == [DENSE // 2] * 2
    with torch.no_grad():
        assert torch.allclose(loaded(rows).logits, small.model(rows).logits, atol=1e-4)
    page = (ROOT / "docs/packages/shrink.md").read_text().replace(" ", "").replace("-", "").lower()
    assert name.lower() in page


def test_surgeon_order_is_the_greedy_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared with a refit of D from scratch for every neuron that could be removed."""
    monkeypatch.setattr("gatelab.anatomy.refits.RIDGE", 1e-13)
    block = random_block()
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    targets = block.hidden(x) @ block.W2.T
    sums = refits.BlockTargets(x, targets).moments(block)
    left = list(range(block.width))
    h = block.hidden(x)
    while len(left) > 5:
        costs = []
        for i in left:
            others = [j for j in left if j != i]
            solution = torch.linalg.lstsq(h[:, others], targets).solution
            costs.append(float((targets - h[:, others] @ solution).square().sum()))
        left.pop(min(range(len(costs)), key=costs.__getitem__))
    assert refits.kept_neurons("surgeon", block, sums, 5).tolist() == left


def test_moments_and_last_map_against_rows() -> None:
    block = random_block()
    x = torch.randn(300, 6, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    targets = torch.randn(300, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    sums = refits.BlockTargets(x, targets).moments(block)
    assert sums.error(block.W2) == pytest.approx(refits.BlockTargets(x, targets).error(block))
    D = refits.last_map(block, sums, 1e-12)
    assert torch.allclose(D, torch.linalg.lstsq(block.hidden(x), targets).solution.T, rtol=1e-5, atol=1e-7)


def test_joint_refit_gains_on_rows_that_it_has_not_seen() -> None:
    block = random_block(n=24)
    generator = torch.Generator().manual_seed(8)
    parts = [torch.randn(2048, 6, generator=generator, dtype=torch.float64) for _ in range(3)]
    fitted, others, fresh = (refits.BlockTargets(x, block.hidden(x) @ block.W2.T) for x in parts)
    sums = fitted.moments(block)
    chosen = refits.kept_neurons("surgeon", block, sums, 16)
    small = refits.narrowed(block, chosen)
    refitted = replace(small, W2=refits.last_map(small, sums.take(chosen), 1e-4))
    together = refits.joint_refit(refitted, fitted, others, epochs=8, rate=0.03)
    assert fresh.error(together) < 0.8 * fresh.error(refitted) < fresh.error(small)


def test_a_killed_run_goes_on_from_the_last_layer(tmp_path: Path) -> None:
    model, rows = tiny("llama"), rows_for("llama")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shrink(model, 0.5, rows, length=32, store=tmp_path / "store", progress=stop)
    assert len(list((tmp_path / "store").glob("*.safetensors"))) == 1
    steps: list[int] = []
    again = shrink(
        model, 0.5, rows, length=32, store=tmp_path / "store", progress=lambda done, total: steps.append(done)
    )
    assert again.after == pytest.approx(half("llama", "ours").after, abs=1e-6)
    with pytest.raises(GatelabError, match="another model, text, keep or method"):
        shrink(model, 0.6, rows, length=32, store=tmp_path / "store")


@torch.no_grad()
@LAYOUTS
def test_layer_by_layer_is_the_model(kind: str) -> None:
    """Outputs plus residual are the state before a norm."""
    model, rows = tiny(kind), rows_for(kind)[:4]
    check_order(model, rows)
    stream = Stream.begin(model, rows)
    for layer in layers_of(model):
        (passage,) = stream.through(layer)
        assert torch.allclose(layer.read()(passage.inputs), passage.outputs, atol=1e-5)
        stream.advance(layer)
        after = passage.outputs + passage.residual
        if kind == "bert":
            after = layer.module.output.LayerNorm(after)
        elif kind == "distil":
            after = layer.module.output_layer_norm(after)
        assert torch.allclose(after.view_as(stream.states), stream.states, atol=1e-5)


SLIDING = ["sliding_attention", "full_attention"]  # layers with masks and positions of their own


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("Llama", {}),
        ("Gemma2", {"num_key_value_heads": 1, "head_dim": 8}),
        ("Olmo2", {}),
        ("Granite", {"residual_multiplier": 0.2}),
        ("Gemma3", {"num_key_value_heads": 1, "head_dim": 8, "sliding_window": 8, "layer_types": SLIDING}),
    ],
)
def test_the_stream_follows_blocks_that_change(name: str, more: dict[str, Any]) -> None:
    """With a norm or a factor behind the block, or neither; the twin is the changed model itself."""
    model, rows = tiny(name, **more), rows_for("llama")
    with torch.no_grad():
        stream = Stream.begin(model, rows)
        assert stream.adds == (name == "Llama")
        for layer in layers_of(model):
            assert len(list(stream.through(layer))) > 0
            block = layer.read()
            layer.write(replace(block, W2=block.W2.flip(0) / 3))
            stream.advance(layer)
    assert torch.allclose(stream.states, last_states(model, rows).detach(), rtol=1e-3, atol=1e-4)
    small = shrink(tiny(name, **more), 0.5, rows, length=32)
    assert small.after - small.before < 1


@pytest.mark.parametrize("name", ["Phi", "GPTNeoX"])
def test_whether_next_tokens_are_predicted_is_asked_of_the_model(name: str) -> None:
    small = shrink(
        tiny(name), 0.5, rows_for("llama"), length=32, distill=distillation.Distillation(own_text=64, rates=(0.01,))
    )
    assert small.measure == "log perplexity"
    # Of weights so small that it hardly looks at other tokens.
    masked = transformers.BertForMaskedLM(tiny("bert", std=0.02).config)
    assert shrink(masked, 0.5, rows_for("bert"), method="wanda", length=32).measure == "cosine"


@torch.no_grad()
def test_blocks_that_are_added_to_in_place_or_are_more_than_their_weights() -> None:
    """Falcon adds attention to what its block gives; RoBERTa of another kind has a norm before the first map."""
    rows, sizes = rows_for("llama"), {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "initializer_range": 0.3}
    torch.manual_seed(0)
    falcon = transformers.FalconForCausalLM(transformers.FalconConfig(**sizes, ffn_hidden_size=DENSE)).eval()
    layer = layers_of(falcon)[0]
    for passage in Stream.begin(falcon, rows).through(layer):
        assert torch.allclose(layer.read()(passage.inputs), passage.outputs, atol=1e-5)
    flows: list[Flow] = []
    with tapped(taps_of(falcon), lambda i, flow: flows.append(flow)):
        falcon(rows)
    assert all(
        torch.allclose(one.read()(flow.x), flow.y, atol=1e-5)
        for one, flow in zip(layers_of(falcon), flows, strict=True)
    )
    small = shrink(falcon, 1.0, rows, method="surgeon", length=32)
    assert small.after == pytest.approx(small.before, abs=1e-4)
    assert shrink(falcon, 0.5, rows, length=32).reason == ""
    config = transformers.RobertaPreLayerNormConfig(**sizes, intermediate_size=DENSE, max_position_embeddings=64)
    with pytest.raises(GatelabError, match="from its weights"):
        shrink(transformers.RobertaPreLayerNormModel(config), 0.5, rows, length=32)
    config = transformers.BertConfig(**sizes, intermediate_size=DENSE, chunk_size_feed_forward=8)
    with pytest.raises(GatelabError, match="exactly once per batch"):
        shrink(transformers.BertModel(config), 0.5, rows, length=32)


@torch.no_grad()
def test_ours_leads_to_the_state_of_the_given_model() -> None:
    """After a first layer that lost half of its neurons, what is asked of the second makes that good."""
    dense, rows = tiny("llama"), rows_for("llama")
    small = copy.deepcopy(dense)
    first = layers_of(small)[0]
    first.write(refits.narrowed(first.read(), torch.arange(DENSE // 2)))
    stream, ideal = Stream.begin(small, rows), Stream.begin(dense, rows)
    stream.advance(first)
    ideal.advance(layers_of(dense)[0])
    old, new = layers_of(dense)[1], layers_of(small)[1]
    held_out = torch.arange(len(rows)) % 8 == 7
    (passage,) = stream.through(new)
    fitted, others = block_rows(stream, ideal, old, new, held_out, True)
    assert len(others.inputs) == 2 * 32 and len(fitted.inputs) == 18 * 32
    wanted = last_states(dense, rows).flatten(0, 1)
    mask = held_out.repeat_interleave(32)
    assert torch.allclose(fitted.targets + passage.residual[~mask] + old.read().b2, wanted[~mask], atol=1e-4)
    assert torch.allclose(others.targets + passage.residual[mask] + old.read().b2, wanted[mask], atol=1e-4)


def test_ours_spares_what_the_loss_feels(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a loss that feels one coordinate of the outputs, less is lost of it than where it feels another one."""
    model, rows = tiny("llama"), rows_for("llama")
    lost = {}
    for felt in (0, 5):
        directions = torch.zeros(16, 16, dtype=torch.float64)
        directions[felt, felt] = 1.0
        monkeypatch.setattr("gatelab.anatomy.smaller_layers.felt_directions", lambda *_, D=directions: [D, D])
        small = shrink(model, 0.5, rows, length=32)
        with torch.no_grad():
            (passage,) = Stream.begin(model, rows).through(layers_of(model)[0])
            off = layers_of(small.model)[0].read()(passage.inputs) - passage.outputs
        lost[felt] = off.square().mean(0)
    assert lost[0][0] < lost[5][0] / 2 and lost[5][5] < lost[0][5] / 2


def test_a_distillation_fits_no_window_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, torch.Tensor] = {}

    def watched(dense: Any, small: Any, fitted: torch.Tensor, held_out: torch.Tensor, *rest: Any, **more: Any) -> Any:
        seen.update(fitted=fitted, held_out=held_out)
        return distillation.distil(dense, small, fitted, held_out, *rest, **more)

    monkeypatch.setattr("gatelab.anatomy.shrinking.distil", watched)
    rows = rows_for("llama")
    shrink(tiny("llama"), 0.5, (rows[:16], rows[16:]), method="wanda", length=32, distill=1)
    assert torch.equal(seen["held_out"], rows[[7, 15]]) and len(seen["fitted"]) == 14
    assert not any(torch.equal(a, b) for a in seen["fitted"] for b in rows[[7, 15, 16, 17, 18, 19]])


def test_modes_of_modules_are_restored() -> None:
    model = tiny("llama").train()
    model.model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    shrink(model, 0.5, rows_for("llama"), method="wanda", length=32)
    profile(model, rows_for("llama"), tokens=480, test=96, length=32, widths=(), progress=False)
    assert [module.training for module in model.modules()] == modes


def test_a_store_is_of_one_model_text_and_method(tmp_path: Path) -> None:
    model, rows = tiny("llama"), rows_for("llama")
    how: dict[str, Any] = {"method": "surgeon", "store": tmp_path / "store"}
    shrink(model, 0.5, rows, length=32, **how)
    flipped = copy.deepcopy(model)
    flipped.model.embed_tokens.weight.data = flipped.model.embed_tokens.weight.data.flip(0)
    changed = rows.clone()
    changed[0, 0] = (changed[0, 0] + 1) % 40
    for given, text, more in (
        (model, changed, {"length": 32}),
        (model, rows, {"length": 32, "distill": 1}),
        (flipped, rows, {"length": 32}),
    ):
        with pytest.raises(GatelabError, match="holds layers of another model, text, keep or method"):
            shrink(given, 0.5, text, **how, **more)
    (tmp_path / "store" / "plan.json").write_text("{")
    with pytest.raises(GatelabError, match="holds layers of another model"):
        shrink(model, 0.5, rows, length=32, **how)


def test_flap_needs_a_place_for_biases() -> None:
    with pytest.raises(GatelabError, match=r"configuration of Qwen2ForCausalLM .*; give method= one of 'ours'"):
        shrink(tiny("Qwen2"), 0.5, rows_for("llama"), method="flap", length=32)
    assert shrink(tiny("Phi"), 0.5, rows_for("llama"), method="flap", length=32).after > 0


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_errors_of_flap_have_its_bias(kind: str) -> None:
    """In the first layer, on whose inputs nothing has changed: the twin is the output of both models' own blocks."""
    model, rows = tiny(kind), rows_for(kind)
    small = shrink(model, 0.5, (rows[:16], rows[16:]), method="flap", length=32)
    with torch.no_grad():
        (passage,) = Stream.begin(model, rows[7:16:8]).through(layers_of(model)[0])
        old, new = (layers_of(one)[0].read() for one in (model, small.model))
        expected = (old(passage.inputs) - new(passage.inputs)).square().sum() / (
            (old(passage.inputs) - old.b2).square().sum()
        )
    assert small.layers[0].error == pytest.approx(float(expected), rel=1e-4)


def test_a_model_is_saved_where_its_configuration_holds_the_width(tmp_path: Path) -> None:
    """BART's encoder is of OPT's layout, and its configuration has another name for the width."""
    sizes = {"encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = transformers.BartConfig(
        vocab_size=40, d_model=16, encoder_ffn_dim=DENSE, decoder_ffn_dim=DENSE, max_position_embeddings=64, **sizes
    )
    model = transformers.BartForConditionalGeneration(config).eval()
    small = shrink(model.get_encoder(), 0.5, rows_for("llama"), method="surgeon", length=32)
    assert [layer.width for layer in small.layers] == [DENSE // 2] * 2
    with pytest.raises(GatelabError, match="the configuration of BartEncoder has no ffn_dim"):
        small.save(tmp_path / "small")
    with pytest.raises(GatelabError, match="would have no usual format: the configuration of BartEncoder"):
        check_saved(model.get_encoder())  # before any work, where a folder is asked for
    with pytest.raises(GatelabError, match="not called one after the other"):
        shrink(model, 0.5, rows_for("llama"), method="surgeon", length=32)


def test_weights_that_are_no_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def ruined(block: Block, *_: Any) -> Block:
        return replace(block, W2=block.W2 * math.nan)

    with monkeypatch.context() as patch, pytest.raises(GatelabError, match=r"the error of model.layers.0 is nan"):
        patch.setattr("gatelab.anatomy.smaller_layers.smaller_block", ruined)
        shrink(tiny("llama"), 0.5, rows_for("llama"), method="surgeon", length=32)
    model = tiny("llama")
    model.model.norm.weight.data[:] = 3e38  # finite, unlike what comes of it
    with pytest.raises(GatelabError, match="the log perplexity of the given model is nan"):
        shrink(model, 0.5, rows_for("llama"), method="wanda", length=32)
    for name, value in (("model.norm.weight", math.nan), ("model.layers.1.mlp.down_proj.weight", -math.inf)):
        model = tiny("llama")
        model.get_parameter(name).data[..., 0] = value
        with pytest.raises(GatelabError, match=f"the weights {name} contain NaN or infinity"):
            shrink(model, 0.5, rows_for("llama"), method="wanda", length=32)


@pytest.mark.parametrize("method", refits.METHODS)
def test_a_block_that_gives_nothing_is_made_smaller_without_loss(method: str) -> None:
    model = tiny("llama")
    model.model.layers[0].mlp.down_proj.weight.data.zero_()
    small = shrink(model, 0.5, rows_for("llama"), method=method, length=32)
    assert small.layers[0].error == pytest.approx(0, abs=1e-6) and small.layers[1].error > 0


def test_what_the_loss_feels() -> None:
    """Its twin differentiates the loss of one token after the other, by a change of the last block's output."""
    model, rows = tiny("llama"), rows_for("llama")[:2]
    felt = felt_directions(model, rows, seed=3)
    with torch.no_grad():
        logits = model(rows).logits
    generator = torch.Generator().manual_seed(3)
    drawn = torch.multinomial(logits.flatten(0, 1).softmax(-1), 1, generator=generator)[:, 0]
    layer = layers_of(model)[-1]
    total = torch.zeros(16, 16)
    for token in range(rows.numel()):
        probe = torch.zeros(rows.numel(), 16, requires_grad=True)
        hook = layer.exit.register_forward_hook(lambda _, __, y, probe=probe: y + probe.view_as(y))
        losses = functional.cross_entropy(model(rows).logits.flatten(0, 1), drawn, reduction="none")
        hook.remove()
        # After the last attention, the output at a place is felt by the loss at that place alone.
        (gradient,) = torch.autograd.grad(losses[token], probe)
        total += torch.outer(gradient[token], gradient[token])
    assert torch.allclose(felt[-1].float(), total / rows.numel(), rtol=1e-3, atol=1e-6)
    R, inverse = felt_frame(felt[-1], layer.read())
    assert torch.allclose(inverse @ R, torch.eye(16), atol=1e-4)


def test_a_rate_that_tears_a_model_apart_is_tried_and_left() -> None:
    """Of two rates the one that does better on held-out windows; where one alone is given and ruins, nothing moves."""
    dense, rows = tiny("llama"), rows_for("llama")
    small = copy.deepcopy(half("llama", "wanda").model)
    before = log_perplexity(small, rows[-4:])
    ruined = distillation.distil(
        dense, small, rows[:16], rows[16:24], distillation.Distillation(2, rates=(1e6,)), causal=True
    )
    assert (ruined.best, ruined.rate) == (0, 1e6)
    assert log_perplexity(small, rows[-4:]) == before
    course = distillation.distil(
        dense, small, rows[:16], rows[16:24], distillation.Distillation(2, rates=(1e6, 0.003)), causal=True
    )
    assert course.rate == 0.003
    assert course.best > 0
    assert len(course.losses) == 3


@pytest.mark.parametrize("temperature", [1.0, torch.tensor([[0.5], [1.0], [2.0]])])
def test_a_model_writes_what_it_predicts(temperature: float | torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token is drawn as the plain loop draws it, whose passes see the whole window again each time."""
    model, rows = tiny("llama"), rows_for("llama")
    written = continued(model, rows[:3, :4], 12, temperature=torch.as_tensor(temperature).squeeze(), seed=5)
    generator, plain = torch.Generator().manual_seed(5), rows[:3, :4]
    with torch.no_grad():
        for _ in range(8):
            p = (model(plain).logits[:, -1] / temperature).softmax(-1)
            plain = torch.cat([plain, torch.multinomial(p, 1, generator=generator)], 1)
    assert torch.equal(written, plain)
    monkeypatch.setattr("gatelab.anatomy.texts.MOST_WRITTEN", 2)
    in_parts = continued(model, rows[:3, :4], 12, seed=5)
    assert torch.equal(in_parts[:, :4], rows[:3, :4])
    assert in_parts.shape == (3, 12)
    cold = continued(model, rows[:3, :4], 12, temperature=1e-4)
    with torch.no_grad():
        assert torch.equal(cold[:, 4:], model(cold).logits.argmax(-1)[:, 3:-1])
    for wrong in (0.0, math.inf, torch.tensor([1.0, -1.0, 1.0]), torch.ones(2)):
        with pytest.raises(GatelabError, match=r"temperature is .*; give a positive number"):
            continued(model, rows[:3, :4], 12, temperature=wrong)


@pytest.mark.slow
def test_own_text_is_as_hard_as_the_given_one() -> None:
    """Text that the model wrote at a temperature gets that temperature back; one that is harder than its own gets 1.

    The mean of eight calls is off by a deviation of 0.011, and by more than 0.045 with a probability of 1 in 20 000.
    """
    model, rows = tiny("llama"), rows_for("llama")
    temperatures = []
    for seed in range(8):
        text = continued(model, rows[:, :8], 32, temperature=0.92, seed=seed)
        given = continued(model, distillation.beginnings_in(text, 128, seed), 32, temperature=0.92, seed=100 + seed)
        temperatures.append(distillation.fair_temperature(model, given, seed))
    assert abs(sum(temperatures) / 8 - 0.92) < 0.045
    assert distillation.fair_temperature(model, rows) == 1.0


def test_layers_are_fitted_to_the_given_text_alone() -> None:
    """What a model writes is not what it is used for: on SmolLM2 layers that were fitted to it too were worse."""
    model, rows = tiny("llama"), rows_for("llama")
    parts = (rows[:12], rows[-4:])
    alone = shrink(model, 0.5, parts, method="surgeon", length=32, distill=1)
    terms = distillation.Distillation(own_text=128, rates=(0.01,))
    with_own = shrink(model, 0.5, parts, method="surgeon", length=32, distill=terms)
    assert list(with_own.table()["error"]) == list(alone.table()["error"])
    assert with_own.distillation is not None and len(with_own.distillation.losses) == 2


def test_a_copy_that_writes_has_the_positions_of_the_model() -> None:
    model = tiny("llama")
    half = distillation.with_half_weights(model)
    assert all(p.dtype == torch.bfloat16 for p in half.parameters())
    buffers = dict(half.named_buffers())
    assert buffers and all(torch.equal(buffers[name], value) for name, value in model.named_buffers())
    assert continued(half, rows_for("llama")[:2, :4], 8).shape == (2, 8)


def test_settings_of_a_distillation_are_checked() -> None:
    wrong = {"epochs": [0], "own_text": [-1, 1.5, torch.ones(2, 3)]}
    wrong["rates"] = [(), (0.01, math.inf), 0.003, "fast"]
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(GatelabError, match=name):
                distillation.Distillation(**{name: value})


def test_a_pair_of_texts_is_checked_as_any_text() -> None:
    model, rows = tiny("llama"), rows_for("llama")
    calibration, test = rows[:16], rows[16:]
    small = shrink(model, 0.5, (calibration, test), method="wanda")
    for same in ((calibration.int(), test.numpy().astype("uint16")), (calibration.flatten(), test.flatten().tolist())):
        assert shrink(model, 0.5, same, method="wanda", length=32).after == small.after
    for wrong, words in (
        ((calibration, calibration[:2]), "2 of 2 test windows are in the calibration part too"),
        ((calibration, test + 9), "the model knows 40"),
        ((calibration[:0], test), "give one window or more"),
    ):
        with pytest.raises(GatelabError, match=words):
            shrink(model, 0.5, wrong, method="wanda", length=32)


def test_a_disk_that_fills_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = half("llama", "wanda")

    def full(folder: str, **_: Any) -> None:
        (Path(folder) / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(small.model, "save_pretrained", full)
    with pytest.raises(GatelabError, match="No space left"):
        small.save(tmp_path / "small")
    assert list(tmp_path.iterdir()) == []


def test_bad_input(tmp_path: Path) -> None:
    model = tiny("llama")
    with pytest.raises(GatelabError, match="no method is called"):
        shrink(model, 0.5, rows_for("llama"), method="wnda")
    with pytest.raises(GatelabError, match=r"the model is .*; give a module of torch"):
        shrink(None, 0.5, rows_for("llama"))
    for keep in (0, 1.5, "half"):
        with pytest.raises(GatelabError, match="above 0 and at most 1"):
            shrink(model, keep, rows_for("llama"))  # type: ignore[arg-type]
    with pytest.raises(GatelabError, match="no text"):
        shrink(model, 0.5)
    with pytest.raises(GatelabError, match="no tokenizer"):
        shrink(model, 0.5, "a text")
    with pytest.raises(GatelabError, match="cannot be called with these windows alone"):
        shrink(model, 0.5, torch.rand(12, 3, 8, 8))
    with pytest.raises(GatelabError, match="own_text is given and BertModel does not predict"):
        shrink(tiny("bert"), 0.5, rows_for("bert"), length=32, distill=distillation.Distillation(own_text=64))
    with pytest.raises(GatelabError, match="cannot be written"):
        half("llama", "wanda").save("x" * 300)
    with pytest.raises(GatelabError, match="no weights"):
        shrink(tmp_path, 0.5, range(200))


def test_the_command(tmp_path: Path) -> None:
    """From a folder of Transformers to another one, and its errors in one line."""
    tiny("llama").save_pretrained(tmp_path / "model")
    tokens = tokenizers.Tokenizer(tokenizers.models.WordLevel({str(i): i for i in range(40)}, unk_token="0"))
    tokens.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokens).save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text(" ".join(str(int(i)) for i in rows_for("llama").flatten()))
    words = ["shrink", str(tmp_path / "model"), "--text", str(tmp_path / "text.txt"), "--length", "32"]
    result = CliRunner().invoke(app, [*words, "--keep", "0.5", "--out", str(tmp_path / "small"), "--json"])
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["measure"] == "log perplexity"
    assert [layer["width"] for layer in document["layers"]] == [DENSE // 2] * 2
    assert document["distillation"] is None
    told = CliRunner().invoke(app, [*words, "--keep", "0.5", "--distill", "2", "--out", str(tmp_path / "distilled")])
    written = json.loads((tmp_path / "distilled" / "gatelab.json").read_text())["distillation"]
    assert len(written["losses"]) == 3 and (written["epochs"], written["own_text"]) == (2, 0)
    assert f"{written['losses'][0]:.4f} -> {min(written['losses']):.4f}" in " ".join(told.stdout.split())
    config = json.loads((tmp_path / "small" / "config.json").read_text())
    assert config["intermediate_size"] == DENSE // 2
    for wrong, message in (
        (["--keep", "1.5"], "above 0 and at most 1"),
        (["--out", str(tmp_path / "small")], "is there already"),
    ):
        result = CliRunner().invoke(app, [*words, *wrong])
        assert result.exit_code == 2
        assert message in result.stderr
