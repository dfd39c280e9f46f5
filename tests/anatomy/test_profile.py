"""Profiles of blocks in every layout, compared with direct computations."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import gatelab as gl
import tiny_models
from gatelab.anatomy import BlockRows, fit_block, layer_rows, log_perplexity, profile
from gatelab.anatomy.fits import Affine, affine_of_rows, left_over, ridge_map
from gatelab.anatomy.flows import Flow, Moments, tapped, taps_of, without_head
from gatelab.anatomy.profiles import Profile
from gatelab.anatomy.profiling import block_function, model_losses, parts_of, ready
from gatelab.errors import GatelabError
from gatelab.models import GPT2, blocks, replace_map
from gatelab.models.layouts import Block, Pointwise, unit_of
from gatelab.statistics import Interval

transformers = pytest.importorskip("transformers")
TOKENS = torch.randint(64, (1200,), generator=torch.Generator().manual_seed(0))


def tiny(kind: str):
    """A small model of each layout with random weights, large enough to be nonlinear."""
    if kind == "own":
        return GPT2("tiny", "swiglu").eval()
    return tiny_models.tiny(kind, vocabulary=64, width=40, **({"image_size": 8} if kind == "vit" else {}))


def small(model: nn.Module, text=TOKENS, **options) -> Profile:
    options = {"tokens": 960, "test": 240, "length": 16, "widths": (2, 4, 8), "steps": 4, "progress": False, **options}
    return profile(model, text, **options)


@pytest.fixture(scope="module")
def plain_profile() -> Profile:
    """A profile of the small Llama without fitted units."""
    return small(tiny("llama"), widths=())


def test_counters_are_those_of_all_rows_at_once():
    model = tiny("llama")
    windows = TOKENS[:320].view(20, 16)
    taps = taps_of(model)
    moments = [Moments(tap, 320) for tap in taps]
    streams = []
    hook = model.model.layers[1].register_forward_hook(lambda _, __, out: streams.append(out.reshape(-1, 16)))
    rows = []
    entrance = model.model.layers[1].mlp.register_forward_pre_hook(lambda _, a: rows.append(a[0].reshape(-1, 16)))
    with torch.no_grad(), tapped(taps, lambda i, flow: moments[i].add(flow)):
        for batch in windows.split(3):
            without_head(model)(batch)
    hook.remove()
    entrance.remove()
    x, block, stream = torch.cat(rows).double(), blocks(model)[1], torch.cat(streams)
    block = Block("", *(t.double() for t in (block.W1, block.b1, block.W2, block.b2)), block.activation,
                  tuple((U.double(), u.double()) for U, u in block.factors))  # fmt: skip
    h, y, z = block.hidden(x), block(x), block.before(x)
    values = moments[1].statistics()

    def rank(rows):
        eigenvalues = np.linalg.eigvalsh(np.cov(rows.numpy().T))
        return eigenvalues.sum() ** 2 / (eigenvalues**2).sum()

    usual = h.square().mean().sqrt().item()
    energy = h.square().mean(0)
    sizes = h.abs().flatten().sort(descending=True).values
    cosines = [
        abs(float(g @ u) / float(g.norm() * u.norm())) for g, u in zip(block.W1, block.factors[0][0], strict=True)
    ]
    expected = {
        "rank in": rank(x), "rank hidden": rank(h), "rank out": rank(y), "open gates": (z > 0).double().mean().item(),
        "never open": ((z > 0).sum(0) == 0).sum().item(), "dead": 0,
        "effective width": (energy.sum() ** 2 / energy.square().sum()).item(), "largest": sizes[0].item() / usual,
        "tail": sizes[math.ceil(1e-4 * len(sizes)) - 1].item() / usual, "alignment": np.mean(cosines),
        "stream share": (y.norm(dim=1) / stream.norm(dim=1)).mean().item(),
    }  # fmt: skip
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        assert values[name] == pytest.approx(value, rel=1e-4), name
    assert moments[1].count == 320


def test_dead_neurons_are_counted():
    model = tiny("gpt2")
    with torch.no_grad():
        model.transformer.h[0].mlp.c_fc.weight[:, :3] = 0
        model.transformer.h[0].mlp.c_fc.bias[:3] = -30.0
    result = small(model, widths=(), losses=False)
    assert result.blocks[0].statistics["dead"] == 3 and "3 of 80 neurons are dead" in " ".join(result.sentences())


@pytest.mark.parametrize(
    ("kind", "unit"),
    [*((kind, "gelu") for kind in ("gpt2", "bert", "distil", "neox", "vit")), ("opt", "mlp"), ("llama", "swiglu"),
     ("own", "swiglu")],
)  # fmt: skip
def test_every_layout_is_profiled(kind: str, unit: str):
    model = tiny(kind)
    text = torch.randn(24, 3, 8, 8, generator=torch.Generator().manual_seed(0)) if kind == "vit" else TOKENS
    result = small(model, text, tokens=480 if kind != "vit" else 18 * 16, test=96)
    table = result.table()
    assert list(table["unit"]) == [unit] * len(table) and len(table) == 2
    assert (table["left by linear"] > 0).all() and (table["left by linear"] < 2).all()
    assert math.isfinite(result.loss) == (kind not in ("bert", "distil", "vit"))
    assert table["skipped"].notna().all() and table["linearised"].notna().all()
    assert len(result.curves()) == 6 and result.sentences()
    assert not model.training and not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert not any("forward" in m.__dict__ for m in model.modules())


def test_losses_are_those_of_replaced_maps():
    """The layers before a block are not run again, which does not change the losses."""
    model = tiny("llama")
    parts = parts_of(model, TOKENS, None, 960, 240, 16)
    torch.manual_seed(1)
    maps = [Affine(0.1 * torch.randn(16, 16), torch.randn(16), 0.0) for _ in range(2)]
    test = parts[2]
    with ready(model, parts):
        costs, loss = model_losses(model, taps_of(model), test, maps, lambda _: None)
    clean = log_perplexity(model, test)
    assert loss == pytest.approx(clean, abs=1e-6)
    for i, (skipped, linearised) in enumerate(costs):
        for cost, function in ((skipped, torch.zeros_like), (linearised, maps[i])):
            changed = replace_map(model, {i: Pointwise(function)})
            assert cost.value == pytest.approx(log_perplexity(changed, test) - clean, abs=1e-5)
            assert cost.low < cost.value < cost.high


@pytest.mark.parametrize(
    "modules", [["model.norm", "model.layers.1", "model.layers.0.self_attn", "model.layers.0"], ["model.layers.1.mlp"]]
)
def test_the_order_of_modules_changes_no_number(modules: list[str], plain_profile: Profile):
    """Layers are recalled that the model has left before the block, not those that stand before it in the list."""
    model = tiny("llama")
    whole = {block.name: block for block in plain_profile.blocks}
    result = small(model, modules=modules, widths=())
    known = [block for block in result.blocks if block.name in whole]
    assert known == [whole[block.name] for block in known]
    assert all(block.number is None and block.skipped.value for block in result.blocks if block not in known)
    expected = [int(name.split(".")[2]) if name.endswith(("0", "1", "mlp")) else None for name in modules]
    assert [None if np.isnan(n) else n for n in result.table()["layer"].astype(float)] == expected
    assert result.plot().axes[0].get_xlabel() == ("layer" if None not in expected else "row of the table")


def test_a_layer_that_is_called_twice_is_never_recalled():
    model = tiny("llama")
    model.model.layers.append(model.model.layers[0])
    model.config.num_hidden_layers = 3
    parts = parts_of(model, TOKENS, None, 960, 240, 16)
    taps = taps_of(model)
    with ready(model, parts):
        costs, clean = model_losses(model, taps, parts[2], [None, None], lambda _: None)
        for tap, (skipped, _) in zip(taps, costs, strict=True):
            with block_function(tap, None):
                assert skipped.value == pytest.approx(log_perplexity(model, parts[2]) - clean, abs=1e-5)


def test_windows_are_no_longer_than_the_model_reads():
    assert small(tiny("llama"), length=None, widths=(), losses=False).tokens[2] == 192  # three windows of 64
    assert small(GPT2("tiny", "swiglu"), length=None, widths=(), losses=False).tokens[2] == 224  # seven of 32
    windows = TOKENS.view(-1, 10)
    assert sum(small(tiny("llama"), windows, length=None, widths=(), losses=False).tokens) == 1200
    (rows,) = layer_rows(tiny("gpt2"), [0], TOKENS, tokens=960, test=240)
    assert len(rows.test[0]) == 192


def test_linear_blocks_are_wholly_linear():
    model = tiny("gpt2")
    for block in model.transformer.h:
        block.mlp.act = nn.Identity()
    result = small(model)
    assert all(block.linear.value < 1e-4 for block in result.blocks)
    assert "Layers 0 to 1 are 100 % linear" in result.sentences()[0]
    assert all(abs(block.linearised.value) < 1e-3 for block in result.blocks)


def test_modules_by_name_need_no_layout():
    class Strange(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(64, 8)
            self.body = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 8))
            self.head = nn.Linear(8, 64)

        def forward(self, tokens):
            x = self.embed(tokens)
            return self.head(x + self.body(x))

    torch.manual_seed(0)
    model = Strange()
    result = small(model, modules=["body"])
    assert result.blocks[0].unit == "" and result.blocks[0].skipped is not None and math.isfinite(result.loss)
    assert model.training
    with pytest.raises(GatelabError, match=r"look like a block: 'body'.*modules="):
        small(model)
    with pytest.raises(GatelabError, match=r"no module 'bodi'"):
        small(model, modules=["bodi"])


def test_modules_by_name_are_called_in_many_ways():
    """With names alone, with rows that become others, with more than a text; and logits that are no tokens."""
    llama = tiny("llama")
    attention = small(llama, modules=["model.layers.1.self_attn"], widths=()).blocks[0]
    assert attention.skipped is not None and 0 < attention.linear.value < 2
    with pytest.raises(GatelabError, match=r"model.rotary_emb maps .* rows to 16"):
        small(llama, modules=["model.rotary_emb"])
    with pytest.raises(GatelabError, match=r"floating point numbers to such, and here is a tensor of torch.int64"):
        small(llama, modules=["model.embed_tokens"])
    experts = transformers.Qwen3MoeConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        moe_intermediate_size=8, num_experts=2, num_experts_per_tok=1,
    )  # fmt: skip
    with pytest.raises(GatelabError, match=r"look like a block: 'model.layers.0.mlp', for profile"):
        small(transformers.Qwen3MoeForCausalLM(experts))  # and not its attention
    bert = tiny("bert")
    part = small(bert, modules=["encoder.layer.0.output.dense"], widths=()).blocks[0]
    assert part.unit == "" and part.d_in == 40
    flows: list[Flow] = []
    with torch.no_grad(), tapped(taps_of(bert), lambda i, flow: flows.append(flow)):
        bert(TOKENS[:64].view(4, 16))
    assert torch.allclose(flows[0].stream, flows[0].x + flows[0].y)
    bert.config.chunk_size_feed_forward = bert.encoder.layer[0].chunk_size_feed_forward = 8
    with pytest.raises(GatelabError, match=r"encoder.layer.0 does not call its block exactly once"):
        small(bert)
    classes = nn.Sequential(nn.Embedding(64, 8), nn.Linear(8, 3))
    assert math.isnan(small(classes, modules=["1"], widths=()).loss)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (None, {}, "the model is a NoneType; give a module of torch"),
        ("llama", {"steps": -1, "widths": ()}, "steps is -1; give a whole number, 0 or more"),
        ("llama", {"widths": None}, "widths is None; give a whole number of neurons, 1 or more"),
        ("llama", {"modules": [1]}, r"modules is \[1\]; give a list of names"),
        ("llama", {"text": TOKENS[:32]}, "three are needed"),
        ("nan", {}, r"the weights model.layers.1.mlp.up_proj.weight contain NaN or infinity"),
        ("zero", {"widths": ()}, r"model\.layers\.1 has the same output for every token; leave it out"),
    ],
)
def test_what_cannot_be_profiled(model, options: dict, message: str):
    if model in ("llama", "nan", "zero"):
        given, model = model, tiny("llama")
        if given == "nan":
            model.model.layers[1].mlp.up_proj.weight.data[3, 4] = math.nan
        if given == "zero":
            model.model.layers[1].mlp.down_proj.weight.data.zero_()
    with pytest.raises(GatelabError, match=message):
        small(model, **options)


@pytest.mark.slow
def test_a_profile_is_a_value(tmp_path: Path):
    result = small(tiny("llama"))
    plain = json.loads(result.save(tmp_path / "profile.json").read_text())
    assert plain["blocks"][1]["linear"]["value"] == result.blocks[1].linear.value
    assert plain["sentences"] == list(result.sentences())
    assert result.plot(tmp_path / "profile.png") and (tmp_path / "profile.png").stat().st_size > 1000
    calls = []
    small(tiny("llama"), progress=lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1] and [d for d, _ in calls] == sorted(d for d, _ in calls)


def toy_rows(width: int = 3, d: int = 3, outputs: int = 2) -> BlockRows:
    torch.manual_seed(0)
    W, V, D = torch.randn(width, d), torch.randn(width, d), torch.randn(outputs, width)
    truth = Block("", W, torch.randn(width), D, torch.randn(outputs), torch.relu, ((V, torch.randn(width)),))
    x = torch.randn(900, d)
    y = truth(x)
    return BlockRows(x[:600], y[:600], (x[600:750], y[600:750]), (x[750:], y[750:]))


def test_ridge_maps_are_least_squares():
    rows = toy_rows()
    affine = affine_of_rows(rows.x, rows.y, rows.validation, ridges=(0.0,))
    design = torch.cat([rows.x, torch.ones(600, 1)], 1).double()
    solution = torch.linalg.lstsq(design, rows.y.double()).solution
    assert torch.allclose(torch.cat([affine.A, affine.b[:, None]], 1), solution.T.float(), atol=1e-4)
    xx = (rows.x.T @ rows.x).double()
    A = ridge_map(xx, (rows.x.T @ rows.y).double(), 0.5)
    scaled = torch.linalg.inv(xx + 0.5 * xx.diagonal().mean() * torch.eye(3)) @ (rows.x.T @ rows.y).double()
    assert torch.allclose(A.T, scaled)


@pytest.mark.slow
def test_fits_come_near_those_of_the_solver():
    """`gl.fit` trains to the optimum; the fit of blocks is an upper bound, here within a factor of 1.5 in the error."""
    rows = toy_rows()
    problem = gl.Problem.from_arrays(rows.x.numpy(), rows.y.numpy(), test=tuple(t.numpy() for t in rows.test))
    best = gl.fit("glu", problem, 2, progress=False)
    least = float(np.square(best.predict(rows.test[0].numpy()) - rows.test[1].numpy()).sum())
    least /= float((rows.test[1] - rows.y.mean(0)).square().sum())
    fits = [fit_block(rows, "glu", 2, steps=300, batch=256, seed=seed) for seed in range(3)]
    fit = min(fits, key=lambda one: one.validation)
    assert 0.9 * math.sqrt(least) < math.sqrt(fit.error) < 1.5 * math.sqrt(least)
    assert fit.error == pytest.approx(left_over(fit.block(rows.test[0]), rows.test[1], rows.y.mean(0)), rel=1e-5)
    assert fit.parameters == gl.unit("glu").parameter_count(2, 3, 2)


def test_a_block_starts_as_itself():
    rows = toy_rows(width=5)
    model = tiny("llama")
    block = blocks(model)[0]
    x = torch.randn(900, 16)
    y = block(x)
    whole = BlockRows(x[:600], y[:600], (x[600:750], y[600:750]), (x[750:], y[750:]))
    assert fit_block(whole, "swiglu", block.width, start=block, steps=0).error < 1e-6
    assert fit_block(whole, "swiglu", 8, start=block, steps=0).error > 1e-3

    class Mine(nn.Module):
        pass

    with pytest.raises(GatelabError, match="given as a class"):
        fit_block(rows, Mine, 4)


def test_units_are_known_by_their_gates():
    W = torch.eye(3)
    plain = [(nn.ReLU(), "mlp"), (nn.GELU("tanh"), "gelu"), (nn.SiLU(), "silu"), (lambda z: z.relu() ** 2, "relu2")]
    for gate, name in plain:
        assert unit_of(Block("", W, W[0], W, W[0], gate)).name == name
    for gate, name in ((nn.ReLU(), "glu"), (nn.Sigmoid(), "sigmoid-glu"), (nn.Identity(), "bilinear")):
        assert unit_of(Block("", W, W[0], W, W[0], gate, ((W, W[0]),))).name == name
    assert unit_of(Block("", W, W[0], W, W[0], torch.sin)).name not in {name for _, name in plain}


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # of processors without bfloat16
def test_a_layer_of_a_model_in_bfloat16_is_a_problem():
    model = GPT2("tiny", "swiglu").bfloat16()
    assert gl.Problem.from_layer(model, 0, TOKENS % 64, tokens=64, test=32, length=16).d_in == 32


@pytest.mark.parametrize("value", [-0.01, 0.01])
def test_a_loss_whose_interval_contains_zero_names_no_layer(value: float, plain_profile: Profile):
    result = plain_profile
    sure = tuple(replace(block, skipped=Interval(0.5, 0.1, 0.9)) for block in result.blocks)
    assert "Layer 0 is needed most" in " ".join(replace(result, blocks=sure).sentences())
    unsure = Interval(value, -0.2, 0.2)
    none = tuple(replace(block, skipped=unsure, linearised=unsure) for block in result.blocks)
    words = " ".join(replace(result, blocks=none).sentences())
    assert "is needed most" not in words and "costs the most" not in words
    assert "No loss without one block differs significantly from 0" in words


def test_shares_of_the_variance_are_not_negative(plain_profile: Profile):
    """A map that is worse than the mean explains nothing; the table has what it leaves."""
    result = plain_profile
    one, other = (replace(b, linear=Interval(v, v, v)) for b, v in zip(result.blocks, (1.07, 0.93), strict=True))
    changed = replace(result, blocks=(one, other))
    assert changed.sentences()[0].startswith("Layers 0 to 1 are 0 to 7 % linear")
    assert list(changed.table()["left by linear"]) == [1.07, 0.93]
    apart = replace(result, blocks=(replace(one, number=5), replace(other, number=2)))
    assert [words[:14] for words in apart.sentences()[:2]] == ["Layer 2 is 7 %", "Layer 5 is 0 %"]


def test_a_layer_is_a_problem_for_every_solver():
    model = tiny("llama")
    problem = gl.Problem.from_layer(model, 1, TOKENS, tokens=640, test=160, length=16)
    assert (problem.d_in, problem.d_out, problem.name) == (16, 16, "LlamaForCausalLM model.layers.1")
    block = blocks(model)[1]
    for rows in (problem.train, problem.test):
        assert np.allclose(block(torch.tensor(rows.x).float()).numpy(), rows.y, atol=1e-5)
    assert not {row.tobytes() for row in problem.train.x} & {row.tobytes() for row in problem.test.x}
    fit = gl.fit("swiglu", problem, 2, solver="adam", steps=5, progress=False)
    assert fit.network(torch.zeros(1, 16, dtype=torch.float64)).shape == (1, 16)
    same = gl.Problem.from_layer(model, "model.layers.1.mlp", TOKENS, tokens=640, test=160, length=16)
    assert np.array_equal(same.train.x, problem.train.x)
    with pytest.raises(GatelabError, match="layer is 2"):
        gl.Problem.from_layer(model, 2, TOKENS, length=16)
